"""What a DDL statement in the log does to the captured tables.

The reader in ``ddl`` says what a statement is; here it meets the structures in force. Where it does not suffice, the dictionary
is read, which may already be ahead of the log: the rows in the log have the last word.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from airflow_provider_cdc.core.schema import Column, TableChange, TableId, TableSchema
from airflow_provider_cdc.core.source import Tables
from airflow_provider_cdc.sources.oracle import ddl
from airflow_provider_cdc.sources.oracle.alter import Alter, Altered
from airflow_provider_cdc.sources.oracle.config import OracleConfig
from airflow_provider_cdc.sources.oracle.dictionary import is_system, quoted, row_key
from airflow_provider_cdc.sources.oracle.lookups import Lookups, NoLookups
from airflow_provider_cdc.sources.oracle.types import ColumnType, make_column

log = logging.getLogger(__name__)


@dataclass(slots=True)
class Found:
    """What a statement means for captured tables."""

    changes: list[TableChange] = field(default_factory=list)
    truncated: list[TableId] = field(default_factory=list)


class SchemaReader:
    """Applies DDL statements to the structures in force.

    :param dictionary: reads a table's present structure, ``None`` when it does not exist or cannot be captured
    :param catalog: of the ids of all tables: the pluggable database, or the database
    :param lookups: knows the values of constants
    """

    def __init__(
        self,
        config: OracleConfig,
        tables: Tables,
        dictionary: Callable[[TableId], TableSchema | None],
        catalog: str,
        lookups: Lookups | None = None,
    ) -> None:
        self._lookups = lookups or NoLookups()
        self._config, self._tables, self._dictionary, self._catalog = config, tables, dictionary, catalog
        self.unknown = 0  # statements that were not understood
        self._indexes: dict[tuple[str, str], tuple[TableId, bool]] = {}
        """Indexes that were seen being created: their table, and whether they are unique."""

    def read(self, statement: ddl.Statement, owner: str, where: str) -> Found | None:
        """What the statement changes; ``None`` when it does not concern captured tables.

        :param owner: the schema that names without one belong to
        :param where: the statement's place, for messages
        """
        found = Found()
        match statement:
            case ddl.CreateTable():
                self._create(statement, owner, where, found)
            case ddl.AlterTable():
                self._alter(statement, owner, where, found)
            case ddl.DropTable():
                self._drop(self._id(statement.table, owner), found)
            case ddl.DropUser():
                for table in [t for t in self._tables.known() if t.namespace == statement.name]:
                    self._drop(table, found)
            case ddl.Rename():
                self._rename(self._id(statement.old, owner), self._id(statement.new, owner), where, found)
            case ddl.FlashbackTable():
                self._flashback(statement, owner, where, found)
            case ddl.TruncateTable():
                self._truncate(statement, owner, where, found)
            case ddl.TruncateCluster():
                schema = statement.cluster.schema or owner
                why = f"the cluster {statement.cluster} was truncated, and which tables are in it is not known"
                self._inexact([t for t in self._tables.known() if t.namespace == schema], why, where, found)
            case ddl.CreateIndex() | ddl.DropIndex() | ddl.AlterIndex():
                self._index(statement, owner, where, found)
            case ddl.Unknown():
                self._unknown(statement, owner, where, found)
            case _:
                pass
        return found if found.changes or found.truncated else None

    # -- which tables -------------------------------------------------------------------------------------------------

    def _id(self, name: ddl.Name, owner: str) -> TableId:
        return TableId(catalog=self._catalog, namespace=name.schema or owner, name=name.name)

    def _captured(self, table: TableId) -> bool:
        return not is_system(table, self._config) and self._tables.captured(table)

    # -- tables that come and go --------------------------------------------------------------------------------------

    def _create(self, s: ddl.CreateTable, owner: str, where: str, found: Found) -> None:
        table = self._id(s.table, owner)
        known = self._tables.get(table)
        if s.temporary or not self._captured(table) or (s.if_not_exists and known is not None):
            return
        if s.organization != "HEAP":
            log.warning("%s, created at %s, is not captured: LogMiner has no rows of such tables.", table, where)
            return
        schema = self._dictionary(table) if s.select or s.of else self._created(table, s, where)
        if schema is None:
            log.warning(
                "%s, created at %s, cannot be captured: the dictionary does not have it (any more).", table, where
            )
            return
        if s.select:
            log.warning("%s was created with rows that the log need not have, at %s.", table, where)
        found.changes.append(TableChange(type="CREATE", id=table, table=schema, exact=not s.select))

    def _created(self, table: TableId, s: ddl.CreateTable, where: str) -> TableSchema:
        present = _Present(table, self._dictionary)
        enabled = [k for k in s.keys if k.enabled]
        primary = {name for k in enabled if k.kind == "primary" for name in k.columns}
        made = [self._column(table, c, None, present) for c in s.columns]
        columns = [c.model_copy(update={"nullable": False}) if c.name in primary else c for c in made]
        seen = [c for c, d in zip(columns, s.columns, strict=True) if d.visible is not False]
        columns = seen + [c for c in columns if c not in seen]  # invisible ones have no number
        key = row_key([(k.kind == "primary", k.name or "", k.columns) for k in enabled], columns)
        schema = TableSchema(id=table, columns=tuple(columns), key=key)
        if len(enabled) < len(s.keys) or (not primary and len(enabled) > 1):
            return self._keyed(schema, "it has several keys", where)
        return schema

    def _drop(self, table: TableId, found: Found) -> None:
        if self._captured(table) and self._tables.get(table) is not None:
            found.changes.append(TableChange(type="DROP", id=table))

    def _rename(self, old: TableId, new: TableId, where: str, found: Found) -> None:
        """Under a new name a table is another one for whoever follows; into the recycle bin, it is dropped."""
        schema = self._tables.get(old)
        if not self._captured(new):
            self._drop(old, found)
        elif schema is not None:
            renamed = schema.model_copy(update={"id": new})
            found.changes.append(TableChange(type="ALTER", id=new, previous_id=old, table=renamed, exact=False))
        else:  # nothing is known of a table that was not captured under its old name, but what the dictionary says
            self._appeared(new, f"it was {old} before, which is not captured", where, found)

    def _appeared(self, table: TableId, why: str, where: str, found: Found) -> None:
        """A captured table is there whose rows are not in the log."""
        present = self._dictionary(table)
        if present is not None:
            log.warning("%s has rows that the log does not have: %s (%s).", table, why, where)
            found.changes.append(TableChange(type="CREATE", id=table, table=present, exact=False))

    def _flashback(self, s: ddl.FlashbackTable, owner: str, where: str, found: Found) -> None:
        tables = [self._id(n, owner) for n in s.tables]
        if not s.before_drop:
            self._inexact(tables, "it was taken back to an earlier moment", where, found)
            return
        table = self._id(s.renamed, tables[0].namespace) if s.renamed else tables[0]
        if self._captured(table):
            self._appeared(table, "it is back from the recycle bin", where, found)
        elif table.name.startswith("BIN$"):
            log.warning(
                "A table came back from the recycle bin at %s, and the statement does not say which. If it is to be captured: "
                "rename it, or have it read again.",
                where,
            )

    def _truncate(self, s: ddl.TruncateTable, owner: str, where: str, found: Found) -> None:
        table = self._id(s.table, owner)
        if self._captured(table):
            found.truncated.append(table)
        if s.cascade:
            others = [t for t in self._tables.known() if t != table]
            self._inexact(others, f"{table} was truncated, with those tables that refer to it", where, found)

    def _inexact(self, tables: Iterable[TableId], why: str, where: str, found: Found) -> None:
        """Rows of these tables may have changed, and the log does not say how."""
        for table in tables:
            known = self._tables.get(table)
            if known is not None and self._captured(table):
                log.warning(
                    "Rows of %s may have changed in a way that the log does not show: %s (%s).", table, why, where
                )
                found.changes.append(TableChange(type="ALTER", id=table, table=known, exact=False))

    def _unknown(self, s: ddl.Unknown, owner: str, where: str, found: Found) -> None:
        """A statement that is not understood: the dictionary says what has become of the tables, and they are read again."""
        named = [self._id(n, owner) for n in s.tables]
        tables = [t for t in named or self._tables.known() if self._captured(t)]
        for table in tables:
            present, known = self._dictionary(table), self._tables.get(table)
            if present is None:
                self._drop(table, found)
            elif known is None:
                found.changes.append(TableChange(type="CREATE", id=table, table=present, exact=False))
            elif named or _shape(present) != _shape(known):
                found.changes.append(TableChange(type="ALTER", id=table, table=present, exact=False))
        if tables:
            self.unknown += 1
            names = ", ".join(map(str, tables)) if named else "any captured table"
            log.warning(
                "A statement at %s is not understood (%s); the dictionary was read for %s: %s",
                where,
                s.reason,
                names,
                s.text[:500],
            )

    # -- keys ---------------------------------------------------------------------------------------------------------

    def _index(self, s: ddl.CreateIndex | ddl.DropIndex | ddl.AlterIndex, owner: str, where: str, found: Found) -> None:
        """Indexes matter as far as the row key may be one. ``DROP INDEX`` does not name its table."""
        name = s.name.schema or owner, s.name.name
        match s:
            case ddl.CreateIndex():
                table = self._id(s.table, owner)
                self._indexes[name] = table, s.unique
                if s.unique and s.columns:
                    self._keys_changed([table], where, found)
            case ddl.AlterIndex():
                if s.renamed is not None and name in self._indexes:
                    self._indexes[name[0], s.renamed] = self._indexes.pop(name)
            case ddl.DropIndex():
                seen = self._indexes.pop(name, None)
                if seen is None:
                    schemas = [(t, self._tables.get(t)) for t in self._tables.known() if t.namespace == name[0]]
                    self._keys_changed([t for t, schema in schemas if schema and schema.key], where, found)
                elif seen[1]:
                    self._keys_changed([seen[0]], where, found)

    def _keys_changed(self, tables: list[TableId], where: str, found: Found) -> None:
        """The row key may be another one now. Which keys there were is not kept: the dictionary is asked."""
        for table in tables:
            known = self._tables.get(table)
            if known is None or not self._captured(table):
                continue
            present = self._dictionary(table)
            if present is not None and set(present.names) == set(known.names) and present.key != known.key:
                log.info("The key of %s is (%s) from %s on.", table, ", ".join(present.key), where)
                schema = known.model_copy(update={"key": present.key})
                found.changes.append(TableChange(type="ALTER", id=table, table=schema))

    def _keyed(self, schema: TableSchema, why: str, where: str) -> TableSchema:
        """A structure with the key that the dictionary has for it, where both have the same columns."""
        present = self._dictionary(schema.id)
        if present is not None and set(present.names) == set(schema.names):
            return schema.model_copy(update={"key": present.key})
        log.warning(
            "The key of %s is not certain at %s (%s), and the dictionary, which has changed since, does not tell; (%s) is used.",
            schema.id,
            where,
            why,
            ", ".join(schema.key) or "none",
        )
        return schema

    # -- ALTER TABLE --------------------------------------------------------------------------------------------------

    def _alter(self, s: ddl.AlterTable, owner: str, where: str, found: Found) -> None:
        table = self._id(s.table, owner)
        renamed = next((a.table for a in s.actions if isinstance(a, ddl.RenameTo)), None)
        if renamed is not None:
            self._rename(
                table, TableId(catalog=table.catalog, namespace=table.namespace, name=renamed.name), where, found
            )
            return
        for action in s.actions:
            if isinstance(action, ddl.PartitionData):
                # the other table of an exchange has new rows as well; whose default schema counts there is not logged
                others = [t for t in self._tables.known() if action.cascade or any(_named(t, n) for n in action.tables)]
                others = [t for t in others if t != table]
                self._inexact(others, action.what, where, found)
        known = self._tables.get(table)
        if known is None or not self._captured(table):
            return
        if any(isinstance(a, ddl.NoColumnChange) and a.what == ddl.LESS_LOGGED for a in s.actions):
            log.warning(
                "Supplemental logging of %s was dropped at %s: from there on, values that a statement does not change may be "
                "missing from the log. ALTER TABLE %s ADD SUPPLEMENTAL LOG DATA (ALL) COLUMNS brings them back.",
                table,
                where,
                quoted(table),
            )
        present = _Present(table, self._dictionary)
        altered = Alter(known, s, lambda c, old: self._column(table, c, old, present)).apply()
        if altered.missing:
            self._misfit(known, altered, present(), where, found)
            return
        change = altered.change
        if altered.unknown is not None and change.table is not None:
            change = change.model_copy(update={"table": self._keyed(change.table, altered.unknown, where)})
        if not change.exact:
            log.warning("Rows of %s may have changed in a way that the log does not show (%s).", table, where)
        found.changes.append(change)

    def _misfit(
        self, known: TableSchema, altered: Altered, present: TableSchema | None, where: str, found: Found
    ) -> None:
        """The statement does not fit the structure in force, which then is that of a later or earlier moment."""
        log.warning(
            "%s is not as the statement at %s has it: about %s they do not agree. %s.",
            known.id,
            where,
            ", ".join(altered.missing),
            "The dictionary is used" if present is not None else "The dictionary does not have the table any more",
        )
        if present is None:  # it was dropped since; until the log says so, its rows are read as far as they fit
            found.changes.append(altered.change.model_copy(update={"exact": False}))
        elif _shape(present) != _shape(known) or not altered.change.exact:
            found.changes.append(TableChange(type="ALTER", id=known.id, table=present, exact=False))

    def _column(self, table: TableId, c: ddl.ColumnDef, old: Column | None, present: _Present) -> Column:
        """A column from its definition; what ``MODIFY`` leaves out stays as it was."""
        if old is None and not c.virtual and (c.type is None or not c.built_in):
            there = present.column(c.name)
            if there is not None:
                return there
        type_ = c.type if c.type is not None else ColumnType.of(old) if old is not None else ColumnType("")
        declared = old.declared if old is not None else None
        value, expression = (declared.default, declared.default_is_expression) if declared else (None, False)
        if c.default is not None:
            constant = self._lookups.constant(c.default.text) if c.default.kind == "expression" else None
            expression = c.default.kind == "expression" and constant is None
            value = c.default.text if expression else constant or c.default.value
        if c.identity:
            value, expression = None, False
        nullable = c.nullable if c.nullable is not None else old.nullable if old is not None else True
        return make_column(
            table, c.name, type_, self._config, nullable=nullable, default=value, default_is_expression=expression,
            generated=c.virtual or bool(declared and declared.generated),
            auto_incremented=c.identity or bool(declared and declared.auto_incremented),
        )  # fmt: skip


class _Present:
    """A table as the dictionary has it, asked once and only when it is needed."""

    def __init__(self, table: TableId, dictionary: Callable[[TableId], TableSchema | None]) -> None:
        self._table, self._dictionary = table, dictionary
        self._asked = False
        self._found: TableSchema | None = None

    def __call__(self) -> TableSchema | None:
        if not self._asked:
            self._asked, self._found = True, self._dictionary(self._table)
        return self._found

    def column(self, name: str) -> Column | None:
        present = self()
        return next((c for c in present.columns if c.name == name), None) if present is not None else None


def _named(table: TableId, name: ddl.Name) -> bool:
    """Whether a name may mean this table."""
    return name.name == table.name and name.schema in (None, table.namespace)


def _shape(schema: TableSchema) -> tuple[object, ...]:
    """What of a structure matters to rows: defaults and the order of columns do not."""
    return {(c.name, c.type, c.nullable) for c in schema.columns}, schema.key
