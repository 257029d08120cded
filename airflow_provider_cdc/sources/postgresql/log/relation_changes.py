"""Changes of structure, which the log shows by relation messages alone: a relation beside the schema in force and the live catalog."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from airflow_provider_cdc.core.model.table_schema import NOT_CAPTURED, Column, TableChange, TableId, TableSchema
from airflow_provider_cdc.sources.postgresql.config import PostgresConfig
from airflow_provider_cdc.sources.postgresql.log.relation_columns import Attribute, NumberedColumns, number_columns
from airflow_provider_cdc.sources.postgresql.protocol.relation_messages import Relation, RelationColumn
from airflow_provider_cdc.sources.postgresql.schema.column_types import make_column
from airflow_provider_cdc.sources.postgresql.schema.table_structure import TableStructure
from airflow_provider_cdc.sources.postgresql.schema.type_catalog import TypeCatalog

_PLAIN_TYPES: Final = ("string", "int16", "int32", "int64", "bool", "float", "double")
"""Types of which a cast understands the text that PostgreSQL has for a value."""
_BOOLEANS: Final = {"t": "true", "f": "false"}
_TEXTS: Final = ("varchar", "text")


@dataclass(frozen=True, slots=True)
class LiveTable:
    """The catalog's view of a relation, which may be ahead of the log.

    :param attributes: its columns, dropped ones too; empty if it does not exist any more
    :param structure: ``None`` if it does not exist any more, or was not needed
    """

    attributes: Sequence[Attribute]
    structure: TableStructure | None = None


class RelationComparison:
    """Compares relations with the schemas in force."""

    def __init__(self, config: PostgresConfig, types: TypeCatalog) -> None:
        self._config, self._types = config, types

    def fits_schema(self, relation: Relation, known: TableSchema, attributes: Sequence[Attribute]) -> bool:
        """Check whether rows of a relation have the columns of the schema in force, and nothing else was done to the table."""
        if known.object_number not in (None, relation.oid):
            return False
        numbered = number_columns(relation, known, attributes)
        columns = {c.name: c for c in known.columns}
        if any(sent.name not in columns or not self._same_type(columns[sent.name], sent) for sent in relation.columns):
            return False
        for sent, number in zip(relation.columns, numbered.numbers, strict=True):
            if columns[sent.name].declared.number not in (None, number):
                return False
        if not numbered.agreed and any(c.declared.number is not None for c in known.columns):
            return False
        sent_names = {c.name for c in relation.columns}
        if any(c.name not in sent_names and _is_gone(c, attributes) for c in known.columns):
            return False
        key = _shown_key(relation)
        return not key or set(key) == set(known.key) or not set(known.key) <= sent_names

    def find_changes(
        self, relation: Relation, table: TableId, known: TableSchema | None, live: LiveTable
    ) -> list[TableChange]:
        """Return the changes that lead from the schema in force to a relation that does not fit it.

        :param table: the relation's table
        :param known: schema of the same table, perhaps under another name, or of an earlier table of this name
        """
        same = known is not None and known.object_number in (None, relation.oid)
        numbered = number_columns(relation, known if same else None, live.attributes)
        schema = self._build_schema(relation, table, known if same else None, live, numbered)
        if known is None or not same:
            # rows that it had before the publication had the table are not in the log
            created = TableChange(type="CREATE", id=table, table=schema, exact=False)
            return [created] if known is None else [TableChange(type="DROP", id=table), created]
        return [self._alter(known, schema, live, numbered)]

    def _same_type(self, column: Column, sent: RelationColumn) -> bool:
        if column.type == NOT_CAPTURED and column.declared.generated:
            return True
        made = make_column(sent.name, sent.type_oid, sent.modifier, self._types, self._config, nullable=column.nullable)
        return _type_of(made) == _type_of(column)

    def _build_schema(
        self,
        relation: Relation,
        table: TableId,
        known: TableSchema | None,
        live: LiveTable,
        numbered: NumberedColumns,
    ) -> TableSchema:
        columns = [
            self._build_column(sent, number, known, live.structure)
            for sent, number in zip(relation.columns, numbered.numbers, strict=True)
        ]
        if known is not None:
            columns += _unpublished(known, columns, live.attributes)
        if all(c.declared.number is not None for c in columns):
            columns.sort(key=lambda c: c.declared.number or 0)
        names = [c.name for c in columns]
        captured = {c.name for c in columns if c.type != NOT_CAPTURED}
        key = tuple(name for name in _shown_key(relation) if name in captured)
        candidates = [] if live.structure is None else [_names_in_log(live.structure.schema, columns)]
        candidates += [] if known is None else [_names_in_log(known, columns)]
        found = next((c for c in candidates if c and set(c) <= captured and (not key or set(c) == set(key))), key)
        present = live.structure.schema if live.structure is not None else known
        return TableSchema(
            id=table, columns=tuple(columns), key=tuple(n for n in found if n in names), object_number=relation.oid,
            comment=None if present is None else present.comment, charset=None if present is None else present.charset,
        )  # fmt: skip

    def _build_column(
        self, sent: RelationColumn, number: int | None, known: TableSchema | None, structure: TableStructure | None
    ) -> Column:
        """Build a column: the stream gives its name and type, the catalog or the known schema the rest."""
        present = [] if structure is None else list(structure.schema.columns)
        present += [] if known is None else list(known.columns)
        model = next((c for c in present if number is not None and c.declared.number == number), None)
        made = make_column(
            sent.name, sent.type_oid, sent.modifier, self._types, self._config,
            nullable=True if model is None else model.nullable, number=number,
        )  # fmt: skip
        if model is None or _type_of(model) != _type_of(made):
            return made
        return model.model_copy(update={"name": sent.name})

    def _alter(
        self, known: TableSchema, schema: TableSchema, live: LiveTable, numbered: NumberedColumns
    ) -> TableChange:
        exact = numbered.certain and all(c.declared.number is not None for c in known.columns)
        before = {c.declared.number if exact else c.name: c for c in known.columns}
        attributes = {a.number: a for a in live.attributes}
        renamed: dict[str, str] = {}
        added: dict[str, str | None] = {}
        for column in schema.columns:
            old = before.get(column.declared.number if exact else column.name)
            if old is not None:
                if old.name != column.name:
                    renamed[column.name] = old.name
                exact = exact and _keeps_values(old, column)
                continue
            certain, value = _value_of_older_rows(column, attributes.get(column.declared.number or 0))
            if certain:
                added[column.name] = value
            exact = exact and certain
        stays = {id(before.get(c.declared.number)) for c in schema.columns}
        dropped = tuple(c.name for c in known.columns if numbered.certain and id(c) not in stays)
        previous = known.id if known.id != schema.id else None
        return TableChange(
            type="ALTER", id=schema.id, previous_id=previous, table=schema, renamed=renamed, added=added, dropped=dropped, exact=exact
        )  # fmt: skip


def _shown_key(relation: Relation) -> tuple[str, ...]:
    """Return the columns of the primary key, if the relation shows it: those of its replica identity are others if that was set."""
    return tuple(c.name for c in relation.columns if c.in_key) if relation.identity == "d" else ()


def _names_in_log(schema: TableSchema, columns: Sequence[Column]) -> tuple[str, ...]:
    """Return the key of a schema under the names that the log has for its columns; empty if the log lacks one."""
    names: Mapping[int | None, str] = {c.declared.number: c.name for c in columns}
    numbers = [schema.get_column(name).declared.number for name in schema.key]
    found = [names.get(number) if number is not None else None for number in numbers]
    return tuple(name for name in found if name is not None) if None not in found else ()


def _is_gone(column: Column, attributes: Sequence[Attribute]) -> bool:
    """Check whether the table has the column no longer; else the publication leaves it out."""
    number = column.declared.number
    return not any(
        not a.dropped and (a.number == number if number is not None else a.name == column.name) for a in attributes
    )


def _unpublished(known: TableSchema, columns: Sequence[Column], attributes: Sequence[Attribute]) -> list[Column]:
    """Return the columns that the table still has and the publication leaves out."""
    names, numbers = {c.name for c in columns}, {c.declared.number for c in columns}
    return [
        c
        for c in known.columns
        if c.name not in names and c.declared.number not in numbers and not _is_gone(c, attributes)
    ]


def _type_of(column: Column) -> tuple[object, ...]:
    d = column.declared
    return column.type, column.semantic, tuple(sorted(column.parameters.items())), d.type_name, d.length, d.scale


def _keeps_values(old: Column, new: Column) -> bool:
    """Check whether a change of type leaves the values as they are: its modifier was widened, or nothing changed."""
    if _type_of(old) == _type_of(new):
        return True
    a, b = old.declared, new.declared
    if NOT_CAPTURED in (old.type, new.type) and old.type != new.type:
        return False
    longer = b.length is None or (a.length is not None and b.length >= a.length)
    if a.type_name in _TEXTS and b.type_name in _TEXTS:
        return longer
    if a.type_name != b.type_name or old.semantic != new.semantic:
        return False
    if a.type_name == "numeric":
        return old.type.startswith("decimal") == new.type.startswith("decimal") and a.scale == b.scale and longer
    return a.type_name == "varbit" and longer


def _value_of_older_rows(column: Column, attribute: Attribute | None) -> tuple[bool, str | None]:
    """Return whether the value is certain that rows have which are older than the column, and the value."""
    if column.type == NOT_CAPTURED:
        return True, None
    if attribute is None or attribute.dropped:
        return False, None
    if attribute.has_missing:
        plain = column.type in _PLAIN_TYPES or column.type.startswith("decimal")
        if column.semantic is not None or not plain or attribute.missing is None:
            return False, None
        return True, _BOOLEANS.get(attribute.missing, attribute.missing) if column.type == "bool" else attribute.missing
    return attribute.unwritten, None


def with_structure(live: LiveTable, structure: TableStructure | None) -> LiveTable:
    """Return the view with the whole structure of the table."""
    return replace(live, structure=structure)
