"""Effects of the DDL statements in the log on the captured tables.

The reader in :mod:`.ddl` says what a statement is; here it is applied to the structures in force. Where a statement does not suffice, the catalog
is read. It may already be ahead of the log: the rows in the log have the last word.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import dataclass

from airflow_provider_cdc.core.model.table_schema import TableChange, TableId, TableSchema
from airflow_provider_cdc.core.spi.source import CapturedTableSchemas
from airflow_provider_cdc.sources.oracle.config import OracleConfig
from airflow_provider_cdc.sources.oracle.schema import ddl
from airflow_provider_cdc.sources.oracle.schema.alter_table import AlterTableResult, TableAlteration
from airflow_provider_cdc.sources.oracle.schema.ddl_column_builder import DdlColumnBuilder
from airflow_provider_cdc.sources.oracle.schema.stream_lookups import StreamLookups
from airflow_provider_cdc.sources.oracle.schema.system_tables import is_system
from airflow_provider_cdc.sources.relational.captured_structures import CapturedStructures, StatementEffect
from airflow_provider_cdc.sources.relational.row_key import row_key
from airflow_provider_cdc.sources.relational.sql_quoting import quote_table

log = logging.getLogger(__name__)


@dataclass(slots=True)
class DdlEffect(StatementEffect):
    """The effect of a statement on captured tables.

    :ivar unknown: it was not understood, so the catalog was asked
    """

    unknown: bool = False


class DdlApplier:
    """Applies DDL statements to the structures in force.

    :param lookups: knows the present structures of tables, and the values of constants
    """

    def __init__(self, config: OracleConfig, tables: CapturedTableSchemas, lookups: StreamLookups) -> None:
        self._config, self._catalog, self._tables, self._lookups = config, config.catalog_name, tables, lookups
        self._captured = CapturedStructures(tables, lambda table: is_system(table, config))
        self._indexes: dict[tuple[str, str], tuple[TableId, bool]] = {}
        """Indexes that were seen being created: their table, and whether they are unique."""

    def apply(self, statement: ddl.Statement, owner: str, where: str) -> DdlEffect:
        """Return the changes that the statement makes.

        :param owner: the schema that names without one belong to
        :param where: the statement's place, for messages
        """
        effect = DdlEffect()
        match statement:
            case ddl.CreateTable():
                self._create(statement, owner, where, effect)
            case ddl.AlterTable():
                self._alter(statement, owner, where, effect)
            case ddl.DropTable():
                self._captured.drop_table(self._id(statement.table, owner), effect)
            case ddl.DropUser():
                for table in self._captured.in_namespace(statement.name):
                    self._captured.drop_table(table, effect)
            case ddl.RenameObject():
                self._rename(self._id(statement.old, owner), self._id(statement.new, owner), where, effect)
            case ddl.FlashbackTable():
                self._flashback(statement, owner, where, effect)
            case ddl.TruncateTable():
                self._truncate(statement, owner, where, effect)
            case ddl.TruncateCluster():
                schema = statement.cluster.namespace or owner
                why = f"the cluster {statement.cluster} was truncated, and its tables are unknown"
                self._inexact(self._captured.in_namespace(schema), why, where, effect)
            case ddl.CreateIndex() | ddl.DropIndex() | ddl.AlterIndex():
                self._index(statement, owner, where, effect)
            case ddl.CommentOn():
                self._comment(statement, owner, effect)
            case ddl.UnknownStatement():
                self._unknown(statement, owner, where, effect)
            case _:
                pass
        return effect

    # -- which tables -------------------------------------------------------------------------------------------------

    def _id(self, name: ddl.QualifiedName, owner: str) -> TableId:
        return TableId(catalog=self._catalog, namespace=name.namespace or owner, name=name.name)

    # -- comments -----------------------------------------------------------------------------------------------------

    def _comment(self, s: ddl.CommentOn, owner: str, effect: DdlEffect) -> None:
        """Record another comment of a table or of one of its columns."""
        table = self._id(s.table, owner)
        known = self._tables.find_schema(table)
        if known is None or not self._config.include_schema_comments or not self._captured.is_captured(table):
            return
        if s.column is None:
            commented = known.model_copy(update={"comment": s.text})
        else:
            columns = tuple(c.with_comment(s.text) if c.name == s.column else c for c in known.columns)
            commented = known.model_copy(update={"columns": columns})
        if commented != known:
            effect.changes.append(TableChange(type="ALTER", id=table, table=commented))

    # -- tables that come and go --------------------------------------------------------------------------------------

    def _create(self, s: ddl.CreateTable, owner: str, where: str, effect: DdlEffect) -> None:
        table = self._id(s.table, owner)
        recorded = self._tables.find_schema(table)
        if s.temporary or not self._captured.is_captured(table) or (s.if_not_exists and recorded is not None):
            return
        if s.organization == "EXTERNAL":
            log.warning("%s, created at %s, is not captured: LogMiner returns no rows of such tables.", table, where)
            return
        schema = self._lookups.read_table(table) if s.select or s.object_type else self._created(table, s, where)
        if schema is None:
            log.warning(
                "%s, created at %s, cannot be captured: the catalog does not contain it (any more).", table, where
            )
            return
        if s.select:
            log.warning("%s was created with rows that may be missing from the log, at %s.", table, where)
        effect.changes.append(TableChange(type="CREATE", id=table, table=schema, exact=not s.select))

    def _created(self, table: TableId, s: ddl.CreateTable, where: str) -> TableSchema:
        definitions = DdlColumnBuilder(table, self._config, self._lookups)
        enabled = [k for k in s.keys if k.enabled]
        primary = {name for k in enabled if k.kind == "primary" for name in k.columns}
        built = [definitions.build_column(c) for c in s.columns]
        columns = [c.model_copy(update={"nullable": False}) if c.name in primary else c for c in built]
        visible = [c for c, d in zip(columns, s.columns, strict=True) if d.visible is not False]
        columns = visible + [c for c in columns if c not in visible]  # invisible ones have no number
        key = row_key([(k.kind == "primary", k.name or "", k.columns) for k in enabled], columns)
        schema = TableSchema(id=table, columns=tuple(columns), key=key)
        if len(enabled) < len(s.keys) or (not primary and len(enabled) > 1):
            return self._keyed(schema, "it has several keys", where)
        return schema

    def _rename(self, old: TableId, new: TableId, where: str, effect: DdlEffect) -> None:
        """Record the rename of a table.

        Under a new name a table is another one for its readers; into the recycle bin, it is dropped.
        """
        schema = self._tables.find_schema(old)
        if not self._captured.is_captured(new):
            self._captured.drop_table(old, effect)
        elif schema is not None:
            renamed = schema.model_copy(update={"id": new})
            effect.changes.append(TableChange(type="ALTER", id=new, previous_id=old, table=renamed, exact=False))
        else:  # of a table that was not captured under its old name, only the catalog has the structure
            self._appeared(new, f"it was {old} before, which is not captured", where, effect)

    def _appeared(self, table: TableId, why: str, where: str, effect: DdlEffect) -> None:
        """Record a captured table whose rows are not in the log."""
        present = self._lookups.read_table(table)
        if present is not None:
            log.warning("%s has rows that the log does not contain: %s (%s).", table, why, where)
            effect.changes.append(TableChange(type="CREATE", id=table, table=present, exact=False))

    def _flashback(self, s: ddl.FlashbackTable, owner: str, where: str, effect: DdlEffect) -> None:
        tables = [self._id(n, owner) for n in s.tables]
        if not s.before_drop:
            self._inexact(tables, "it was flashed back to an earlier time", where, effect)
            return
        table = self._id(s.renamed, tables[0].namespace) if s.renamed else tables[0]
        if self._captured.is_captured(table):
            self._appeared(table, "it was restored from the recycle bin", where, effect)
        elif table.name.startswith("BIN$"):
            log.warning(
                "A table was restored from the recycle bin at %s, and the statement does not name it. To capture "
                "the table: rename it, or snapshot it again.",
                where,
            )

    def _truncate(self, s: ddl.TruncateTable, owner: str, where: str, effect: DdlEffect) -> None:
        table = self._id(s.table, owner)
        if self._captured.is_captured(table):
            effect.truncated.append(table)
        if s.cascade:
            others = [t for t in self._tables.list_known_tables() if t != table]
            self._inexact(others, f"{table} was truncated, with the tables that refer to it", where, effect)

    def _inexact(self, tables: Iterable[TableId], why: str, where: str, effect: DdlEffect) -> None:
        """Rows of these tables may have changed, and the log does not say how."""
        for table in tables:
            if self._captured.rows_changed(table, effect):
                log.warning(
                    "Rows of %s may have changed in a way that the log does not show: %s (%s).", table, why, where
                )

    def _unknown(self, s: ddl.UnknownStatement, owner: str, where: str, effect: DdlEffect) -> None:
        """Record a statement that is not understood: the catalog is asked for the tables, and they are read again.

        A table that the catalog does not have may have gone with this statement or with a later one: its schema is kept, for the rows up to there.
        """
        named = [self._id(n, owner) for n in s.tables]
        tables = self._captured.list_concerned_tables(named)
        for table in tables:
            present, recorded = self._lookups.read_table(table), self._tables.find_schema(table)
            if present is None:
                self._captured.rows_changed(table, effect)
            elif recorded is None:
                effect.changes.append(TableChange(type="CREATE", id=table, table=present, exact=False))
            elif named or _shape(present) != _shape(recorded):
                effect.changes.append(TableChange(type="ALTER", id=table, table=present, exact=False))
        if tables:
            effect.unknown = True
            names = ", ".join(map(str, tables)) if named else "any captured table"
            log.warning(
                "A statement at %s cannot be parsed (%s); the catalog was read for %s: %s",
                where,
                s.reason,
                names,
                s.text[:500],
            )

    # -- keys ---------------------------------------------------------------------------------------------------------

    def _index(
        self, s: ddl.CreateIndex | ddl.DropIndex | ddl.AlterIndex, owner: str, where: str, effect: DdlEffect
    ) -> None:
        """Indexes matter as far as the row key may be one. ``DROP INDEX`` does not name its table."""
        name = s.name.namespace or owner, s.name.name
        match s:
            case ddl.CreateIndex():
                table = self._id(s.table, owner)
                self._indexes[name] = table, s.unique
                if s.unique and s.columns:
                    self._keys_changed([table], where, effect)
            case ddl.AlterIndex():
                if s.renamed is not None and name in self._indexes:
                    self._indexes[name[0], s.renamed] = self._indexes.pop(name)
            case ddl.DropIndex():
                index = self._indexes.pop(name, None)
                if index is None:
                    schemas = [
                        (t, self._tables.find_schema(t))
                        for t in self._tables.list_known_tables()
                        if t.namespace == name[0]
                    ]
                    self._keys_changed([t for t, schema in schemas if schema and schema.key], where, effect)
                elif index[1]:
                    self._keys_changed([index[0]], where, effect)

    def _keys_changed(self, tables: list[TableId], where: str, effect: DdlEffect) -> None:
        """Record that the row key may be another one now.

        The former keys are not kept: the catalog is asked.
        """
        for table in tables:
            structure = self._captured.find_structure(table)
            if structure is None:
                continue
            present = self._lookups.read_table(table)
            if (
                present is not None
                and set(present.column_names) == set(structure.column_names)
                and present.key != structure.key
            ):
                log.info("The key of %s is (%s) from %s.", table, ", ".join(present.key), where)
                schema = structure.model_copy(update={"key": present.key})
                effect.changes.append(TableChange(type="ALTER", id=table, table=schema))

    def _keyed(self, schema: TableSchema, why: str, where: str) -> TableSchema:
        """Return a schema with the key in the catalog, where both have the same columns."""
        present = self._lookups.read_table(schema.id)
        if present is not None and set(present.column_names) == set(schema.column_names):
            return schema.model_copy(update={"key": present.key})
        log.warning(
            "The key of %s is not certain at %s (%s), and the catalog, which has changed since, does not show it; (%s) is used.",
            schema.id,
            where,
            why,
            ", ".join(schema.key) or "none",
        )
        return schema

    # -- ALTER TABLE --------------------------------------------------------------------------------------------------

    def _alter(self, s: ddl.AlterTable, owner: str, where: str, effect: DdlEffect) -> None:
        table = self._id(s.table, owner)
        renamed = next((a.table for a in s.actions if isinstance(a, ddl.RenameTo)), None)
        if renamed is not None:
            self._rename(
                table, TableId(catalog=table.catalog, namespace=table.namespace, name=renamed.name), where, effect
            )
            return
        for action in s.actions:
            if isinstance(action, ddl.ChangePartitionData):
                # the other table of an exchange has new rows as well; whose default schema counts there is not logged
                others = [
                    t
                    for t in self._tables.list_known_tables()
                    if action.cascade or any(_named(t, n) for n in action.tables)
                ]
                others = [t for t in others if t != table]
                self._inexact(others, action.clause, where, effect)
        structure = self._captured.find_structure(table)
        if structure is None:
            return
        if any(isinstance(a, ddl.NoColumnChange) and a.clause == ddl.LESS_LOGGED for a in s.actions):
            log.warning(
                "Supplemental logging of %s was dropped at %s: from then on, unchanged values may be missing from "
                "the log. ALTER TABLE %s ADD SUPPLEMENTAL LOG DATA (ALL) COLUMNS restores it.",
                table,
                where,
                quote_table(table),
            )
        definitions = DdlColumnBuilder(table, self._config, self._lookups)
        altered = TableAlteration(structure, s, definitions).apply()
        if altered.missing:
            self._misfit(structure, altered, definitions.catalog_schema, where, effect)
            return
        change = altered.change
        if altered.unknown is not None and change.table is not None:
            change = change.model_copy(update={"table": self._keyed(change.table, altered.unknown, where)})
        if not change.exact:
            log.warning("Rows of %s may have changed in a way that the log does not show (%s).", table, where)
        effect.changes.append(change)

    def _misfit(
        self,
        structure: TableSchema,
        altered: AlterTableResult,
        present: TableSchema | None,
        where: str,
        effect: DdlEffect,
    ) -> None:
        """Record a statement that does not fit the structure in force.

        That structure then is that of a later or earlier moment.
        """
        log.warning(
            "%s differs from the definition in the statement at %s, in these columns or properties: %s. %s.",
            structure.id,
            where,
            ", ".join(altered.missing),
            "The catalog is used" if present is not None else "The catalog no longer contains the table",
        )
        if present is None:  # it was dropped since; until the log says so, its rows are read as far as they fit
            effect.changes.append(altered.change.model_copy(update={"exact": False}))
        elif _shape(present) != _shape(structure) or not altered.change.exact:
            effect.changes.append(TableChange(type="ALTER", id=structure.id, table=present, exact=False))


def _named(table: TableId, name: ddl.QualifiedName) -> bool:
    """Check whether a name may mean this table."""
    return name.name == table.name and name.namespace in (None, table.namespace)


def _shape(schema: TableSchema) -> tuple[object, ...]:
    """Return the parts of a structure that matter to rows: defaults and the order of columns do not."""
    return {(c.name, c.type, c.nullable) for c in schema.columns}, schema.key
