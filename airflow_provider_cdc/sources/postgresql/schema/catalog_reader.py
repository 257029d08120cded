"""Structures of tables from the system catalogs, with a fixed number of queries for any number of tables.

Partitions carry the rows of a partitioned table. With ``publish_via_partition_root`` the log names the root, else the leaf: so either roots are
tables, or their partitions.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final

from psycopg import Connection

from airflow_provider_cdc.core.model.table_schema import NOT_CAPTURED, Column, TableId, TableSchema
from airflow_provider_cdc.core.spi.source import any_table
from airflow_provider_cdc.sources.postgresql.config import PostgresConfig
from airflow_provider_cdc.sources.postgresql.connect import raise_cdc_errors
from airflow_provider_cdc.sources.postgresql.schema.column_defaults import ColumnDefault, parse_default
from airflow_provider_cdc.sources.postgresql.schema.column_types import make_column, value_form
from airflow_provider_cdc.sources.postgresql.schema.table_structure import TableStructure
from airflow_provider_cdc.sources.postgresql.schema.type_catalog import TypeCatalog
from airflow_provider_cdc.sources.relational.row_key import row_key
from airflow_provider_cdc.sources.relational.sql_quoting import build_create_statement, quote_literal, quoted_name

_PUBLICATION: Final = "SELECT pubviaroot, to_jsonb(p) ->> 'pubgencols' FROM pg_publication p WHERE pubname = %s"
_TABLES: Final = """
SELECT c.oid::int8, n.nspname, c.relname, c.relreplident::text, c.reltuples::float8,
       CASE WHEN {comments} THEN obj_description(c.oid, 'pg_class') END
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE c.relkind IN ('r', 'p') AND c.relpersistence = 'p' AND n.nspname NOT IN ('pg_catalog', 'information_schema')
  AND n.nspname !~ '^pg_(toast|temp)' AND {where}"""
_LISTED: Final = "has_schema_privilege(n.oid, 'USAGE') AND has_any_column_privilege(c.oid, 'SELECT') AND {partitions}"
_ROOTS: Final = "NOT c.relispartition"
_LEAVES: Final = "c.relkind = 'r'"
_NAMED: Final = "(n.nspname, c.relname) IN (SELECT * FROM unnest(%s::text[], %s::text[]))"
_NUMBERED: Final = "c.oid = ANY(%s::oid[])"
_COLUMNS: Final = """
SELECT a.attrelid::int8, a.attnum, a.attname, a.atttypid::int8, a.atttypmod, a.attnotnull, a.attidentity::text, a.attgenerated::text,
       pg_get_expr(d.adbin, d.adrelid), CASE WHEN {comments} THEN col_description(a.attrelid, a.attnum) END
FROM pg_attribute a LEFT JOIN pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
WHERE a.attrelid = ANY(%s::oid[]) AND a.attnum > 0 AND NOT a.attisdropped
ORDER BY a.attrelid, a.attnum"""
_INDEXES: Final = """
SELECT i.indrelid::int8, c.relname, i.indisprimary, i.indisreplident,
       i.indpred IS NULL AND i.indexprs IS NULL AND i.indimmediate AND i.indisvalid, (i.indkey::int2[])[0:i.indnkeyatts - 1]
FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid
WHERE i.indrelid = ANY(%s::oid[]) AND (i.indisunique OR i.indisprimary)"""
_OTHER_FORMS: Final = frozenset(
    {"array", "hstore", "bytea", "point", "geometry", "geography", "vector", "halfvec", "timetz", "money"}
)
"""Forms of values whose texts are not those of the change log."""
_BATCH: Final = 2_000
"""Tables in one query."""


@dataclass(frozen=True, slots=True)
class _Publishing:
    """The parts of a publication that decide which tables and columns the log has."""

    via_root: bool
    generated: bool


@dataclass(frozen=True, slots=True)
class _Index:
    name: str
    primary: bool
    identity: bool
    certain: bool
    numbers: tuple[int, ...]


class PostgresCatalog:
    """Reads structures of tables over one connection."""

    def __init__(
        self, connection: Connection[tuple[Any, ...]], config: PostgresConfig, types: TypeCatalog | None = None
    ) -> None:
        self._connection, self._config, self._types = connection, config, types

    @property
    def types(self) -> TypeCatalog:
        """The types of the database; read when they are needed first, or have not the type of a column."""
        if self._types is None:
            self._types = TypeCatalog.read(self._connection)
        return self._types

    def read_structures(
        self, tables: Iterable[TableId] | None = None, needed: Callable[[TableId], bool] = any_table
    ) -> dict[TableId, TableStructure]:
        """Read the structures of tables by name, or of all that the account may read and the log names.

        :param needed: others are left out
        """
        with raise_cdc_errors(self._config):
            publishing = self._read_publishing()
            if tables is not None:
                return self._read(self._named(list(tables)), needed, publishing)
            partitions = _ROOTS if publishing.via_root else _LEAVES
            return self._read(self._list(_LISTED.format(partitions=partitions), []), needed, publishing)

    def read_structure(self, table: TableId) -> TableStructure | None:
        """Read the structure of a table; ``None`` if it does not exist."""
        return next(iter(self.read_structures([table]).values()), None)

    def read_structure_by_number(self, oid: int) -> TableStructure | None:
        """Read the structure of the table with this OID of ``pg_class``; ``None`` if it does not exist."""
        with raise_cdc_errors(self._config):
            found = self._read(self._list(_NUMBERED, [[oid]]), any_table, self._read_publishing())
        return next(iter(found.values()), None)

    def read_row_counts(self, tables: Iterable[TableId]) -> dict[TableId, int]:
        """Read the server's estimates of the number of rows of tables; 0 for those that were never counted."""
        with raise_cdc_errors(self._config):
            return {self._table_id(row): max(int(row[4]), 0) for row in self._named(list(tables))}

    def create_statement(self, schema: TableSchema) -> str:
        """Build a CREATE TABLE statement for a schema."""
        return build_create_statement(schema, _definition)

    def _read_publishing(self) -> _Publishing:
        row = self._connection.execute(_PUBLICATION, [self._config.publication_name]).fetchone()
        if row is None:
            return _Publishing(self._config.publish_via_partition_root, generated=False)
        return _Publishing(bool(row[0]), row[1] == "s")

    def _named(self, tables: list[TableId]) -> list[tuple[Any, ...]]:
        if not tables:
            return []
        return self._list(_NAMED, [[t.namespace for t in tables], [t.name for t in tables]])

    def _list(self, where: str, arguments: list[Any]) -> list[tuple[Any, ...]]:
        return self._run(_TABLES, arguments, where=where)

    def _run(self, sql: str, arguments: list[Any], **parts: str) -> list[tuple[Any, ...]]:
        comments = "true" if self._config.include_schema_comments else "false"
        statement = sql.format(comments=comments, **parts)
        return self._connection.execute(statement, arguments or None).fetchall()

    def _table_id(self, row: tuple[Any, ...]) -> TableId:
        return TableId(namespace=row[1], name=row[2], catalog=self._config.database_dbname)

    def _read(
        self, rows: list[tuple[Any, ...]], needed: Callable[[TableId], bool], publishing: _Publishing
    ) -> dict[TableId, TableStructure]:
        wanted = {int(row[0]): row for row in rows if needed(self._table_id(row))}
        columns: dict[int, list[tuple[Any, ...]]] = defaultdict(list)
        indexes: dict[int, list[_Index]] = defaultdict(list)
        oids = list(wanted)
        for begin in range(0, len(oids), _BATCH):
            batch = [oids[begin : begin + _BATCH]]
            for row in self._run(_COLUMNS, batch):
                columns[row[0]].append(row)
            for oid, name, primary, identity, certain, numbers in self._run(_INDEXES, batch):
                indexes[oid].append(_Index(name, primary, identity, certain, tuple(numbers)))
        if any(self.types.find_type(row[3]) is None for rows_ in columns.values() for row in rows_):
            self._types = TypeCatalog.read(self._connection)
        structures = (self._structure(row, columns[oid], indexes[oid], publishing) for oid, row in wanted.items())
        return {s.schema.id: s for s in structures}

    def _structure(
        self, table: tuple[Any, ...], rows: list[tuple[Any, ...]], indexes: list[_Index], publishing: _Publishing
    ) -> TableStructure:
        columns = tuple(self._column(row, publishing) for row in rows)
        names = {row[1]: row[2] for row in rows}
        has_primary = any(i.primary for i in indexes)
        candidates = [
            (i.primary or (i.identity and not has_primary), i.name, tuple(names[n] for n in i.numbers))
            for i in indexes
            if (i.certain or i.primary) and all(n in names for n in i.numbers)
        ]
        schema = TableSchema(
            id=self._table_id(table),
            columns=columns,
            key=row_key(candidates, columns),
            comment=table[5] or None,
            object_number=table[0],
        )
        identity = str(table[3])
        return TableStructure(
            schema=schema,
            type_oids=tuple(row[3] for row in rows),
            modifiers=tuple(row[4] for row in rows),
            identity=identity,
            identity_columns=_identity_columns(identity, columns, indexes, names),
        )

    def _column(self, row: tuple[Any, ...], publishing: _Publishing) -> Column:
        _, number, name, type_oid, modifier, not_null, identity, generated, expression, comment = row
        counted = bool(identity) or (expression or "").startswith("nextval(")
        default = self._default(None if generated or counted else expression, type_oid)
        return make_column(
            name,
            type_oid,
            modifier,
            self.types,
            self._config,
            nullable=not not_null,
            default=default.text,
            default_is_expression=default.is_expression,
            generated=bool(generated),
            published=not generated or (generated == "s" and publishing.generated),
            auto_incremented=counted,
            comment=comment or None,
            number=number,
        )

    def _default(self, expression: str | None, type_oid: int) -> ColumnDefault:
        """Return a default; where the change log has another form of the type's values, it is an expression."""
        default = parse_default(expression)
        base, _ = self.types.find_base(type_oid)
        if default.text is None or base is None or value_form(base) not in _OTHER_FORMS:
            return default
        return ColumnDefault(expression, is_expression=True)


def _identity_columns(
    identity: str, columns: tuple[Column, ...], indexes: list[_Index], names: dict[int, str]
) -> tuple[str, ...]:
    if identity == "f":
        return tuple(c.name for c in columns if c.type != NOT_CAPTURED)
    wanted = [i for i in indexes if (i.primary if identity == "d" else i.identity)]
    return tuple(names[n] for n in wanted[0].numbers) if wanted and identity in "di" else ()


def _definition(column: Column) -> str:
    d = column.declared
    sized = f"({d.length})" if d.scale is None else f"({d.length},{d.scale})"
    has_size = d.length is not None and d.type_name in ("numeric", "varchar", "bpchar", "bit", "varbit")
    text = f"{quoted_name(column.name)} {d.type_name}{sized if has_size else ''}"
    if d.auto_incremented:
        text += " GENERATED BY DEFAULT AS IDENTITY"
    elif d.default is not None:
        text += f" DEFAULT {d.default if d.default_is_expression else quote_literal(d.default)}"
    return text if column.nullable else f"{text} NOT NULL"
