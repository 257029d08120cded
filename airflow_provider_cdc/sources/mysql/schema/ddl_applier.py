"""Effects of a DDL statement in the log on the captured tables.

The reader in ``ddl`` says what a statement is; here it meets the structures in force. Where it does not suffice, the catalog
is read, which may already be ahead of the log: the row metadata in the log has the last word (:mod:`.table_map_cache`).
"""

from __future__ import annotations

import logging
import re
from dataclasses import dataclass, field, replace
from typing import Literal

from airflow_provider_cdc.core.model.table_schema import Column, TableChange, TableId, TableSchema
from airflow_provider_cdc.core.spi.source import CapturedTableSchemas
from airflow_provider_cdc.sources.mysql.config import MySqlConfig
from airflow_provider_cdc.sources.mysql.schema import ddl
from airflow_provider_cdc.sources.mysql.schema.alter_table_applier import AlterTableApplier, charset_of
from airflow_provider_cdc.sources.mysql.schema.catalog_reader import captured_column, row_key, system_versioned
from airflow_provider_cdc.sources.mysql.schema.column_types import SYSTEM_DATABASES, TRANSACTIONAL, MySqlColumnType
from airflow_provider_cdc.sources.mysql.schema.live_catalog import LiveCatalog
from airflow_provider_cdc.sources.mysql.schema.table_name_resolver import TableNameResolver
from airflow_provider_cdc.sources.relational.captured_structures import CapturedStructures, StatementEffect

log = logging.getLogger(__name__)

_CALLS = {"SELECT", "DO", "CALL", "VALUES", "TABLE", "WITH"}
"""Statements that are in the log because a stored function that they call has changed rows."""


@dataclass(slots=True)
class QueryEvent:
    """A QUERY event: a statement, in the database it ran in.

    :param error: code of the server's answer; not 0 when the statement failed after it had changed something
    :param explicit_timestamps: TIMESTAMP columns that say nothing of it may be NULL (``explicit_defaults_for_timestamp``)
    """

    thread: int
    error: int
    database: str
    sql: str
    sql_mode: int
    explicit_timestamps: bool = True

    @property
    def is_strict(self) -> bool:
        """Check whether the session refused values that do not fit, instead of bending them."""
        return bool(self.sql_mode & (0x200000 | 0x400000))

    @property
    def numbers_zeros(self) -> bool:
        """Check whether a zero in a column that becomes AUTO_INCREMENT gets the next number."""
        return not self.sql_mode & 0x80000


@dataclass(slots=True)
class DdlEffect(StatementEffect):
    """The effect of a statement on captured tables.

    :param structure_unknown: tables that are there now, whose structure neither the statement nor the catalog has any more: the log
        has it with their first row
    """

    structure_unknown: list[TableId] = field(default_factory=list)


class DdlApplier:
    """Applies DDL statements to the structures in force."""

    def __init__(
        self,
        config: MySqlConfig,
        tables: CapturedTableSchemas,
        catalog: LiveCatalog,
        names: TableNameResolver,
        *,
        shows_lengths: bool = True,
    ) -> None:
        """Create the applier.

        :param names: finds tables by the names that statements have for them
        :param shows_lengths: whether the catalog shows the length of TINYINT(1) UNSIGNED; a length that it hides does not count
        """
        self._config, self._tables, self._catalog, self._names = config, tables, catalog, names
        self._shows_lengths = shows_lengths
        self._captured = CapturedStructures(tables, lambda table: table.namespace in SYSTEM_DATABASES)

    def determine_effect(self, statement: ddl.Statement, query: QueryEvent, where: str) -> DdlEffect | None:
        """Return the changes that the statement makes; ``None`` when it does not concern captured tables."""
        effect = DdlEffect()
        match statement:
            case ddl.CreateTable():
                self._create(statement, query, where, effect)
            case ddl.AlterTable():
                self._alter(statement, query, where, effect)
            case ddl.DropTable(temporary=False):
                for name in statement.tables:
                    self._captured.drop_table(self._id(name, query), effect)
            case ddl.RenameTable():
                self.routes_changed()  # it may be a view
                self._rename(statement.pairs, query, effect)
            case ddl.TruncateTable():
                table = self._id(statement.table, query)
                if self._captured.is_captured(table):
                    effect.truncated.append(table)
            case ddl.DropDatabase():
                for table in self._names.in_database(statement.name):
                    self._captured.drop_table(table, effect)
            case ddl.RepairTable():
                self._repair([self._id(name, query) for name in statement.tables], effect)
            case ddl.CreateIndex(unique=True) | ddl.DropIndex():
                self._keys_changed(self._id(statement.table, query), effect)
            case ddl.UnknownStatement():
                self._unknown(statement, query, where, effect)
            case _:
                pass
        return effect if effect.changes or effect.truncated or effect.structure_unknown else None

    def concerned_by(self, statement: ddl.DmlStatement, query: QueryEvent) -> str | None:
        """Why a statement that changes rows may change rows of captured tables; ``None`` if it does not.

        It may name one, or a view, a function or a table with triggers, by which it changes others.
        """
        words = {w.lower() for w in re.findall(r"[\w$]+|`[^`]+`", query.sql)}
        words |= {w.strip("`") for w in words}

        def named(table: TableId) -> bool:
            return table.name.lower() in words and in_scope(table.namespace)

        def in_scope(namespace: str) -> bool:
            return namespace.lower() in {*words, query.database.lower()}

        captured = [table for table in self._tables.list_known_tables() if self._tables.is_captured(table)]
        if match := next(filter(named, captured), None):
            return f"it names {match}"
        if statement.kind in _CALLS:
            return "it calls a function, which may change rows of any table"
        routes = self._catalog.stored_objects
        for kind, those in (("view", routes.views), ("function", routes.functions), ("table with triggers", routes.triggered or ())):  # fmt: skip
            if match := next(filter(named, those), None):
                return f"it names the {kind} {match}, which may change rows of other tables"
        beside = {table.namespace for table in captured if in_scope(table.namespace)}
        written = [table for table in routes.tables if named(table)]
        if routes.triggered is None and any(table.namespace in beside for table in written):
            return (
                f"it names {written[0]}, and the account may not see the triggers of this table (GRANT TRIGGER "
                "ON *.* allows it)"
            )
        if not written and beside and not words & SYSTEM_DATABASES:
            return f"it does not name any table that now exists in {', '.join(sorted(beside))}"
        return None

    def routes_changed(self) -> None:
        """Record that a view, trigger or function was made, changed or dropped."""
        self._catalog.forget_routes()

    # -- which tables -------------------------------------------------------------------------------------------------

    def _id(self, name: ddl.QualifiedName, query: QueryEvent) -> TableId:
        return self._names.resolve_table(name.namespace or query.database, name.name)

    # -- statements ---------------------------------------------------------------------------------------------------

    def _create(self, s: ddl.CreateTable, query: QueryEvent, where: str, effect: DdlEffect) -> None:
        table = self._id(s.table, query)
        recorded = self._tables.find_schema(table)
        if (
            s.temporary
            or not self._captured.is_captured(table)
            or (s.if_not_exists and not s.or_replace and recorded is not None)
        ):
            return
        if s.versioned:
            raise system_versioned(table, where)
        if s.sequence:
            return
        if s.like is not None:
            other = self._id(s.like, query)
            like = self._tables.find_schema(other) or self._catalog.read_table(other)
            schema = like.model_copy(update={"id": table}) if like is not None else self._catalog.read_table(table)
            if schema is None and self._is_no_table(other, table):
                return
        elif s.select or not s.columns:
            schema = self._catalog.read_table(table)
        else:
            columns = s.columns if query.explicit_timestamps else ddl.with_implied_timestamps(s.columns)
            schema = self._created(table, replace(s, columns=columns))
        if schema is not None:
            # in row format, the statement is logged without its SELECT, and the rows beside it
            effect.changes.append(TableChange(type="CREATE", id=table, table=schema, exact=not s.select))
        else:
            effect.structure_unknown.append(table)

    def _created(self, table: TableId, s: ddl.CreateTable) -> TableSchema:
        charset = charset_of(s.charset, s.collation) or self._catalog.database_charset(table.namespace)
        primary = {name.lower() for name in s.primary_key}
        columns = tuple(self._column(table, c, charset, not_null=c.name.lower() in primary) for c in s.columns)
        candidates = [(False, names) for names in s.unique_keys]
        if s.primary_key:
            candidates.append((True, s.primary_key))
        by_lower = {c.name.lower(): c.name for c in columns}
        candidates = [(p, tuple(by_lower.get(n.lower(), n) for n in names)) for p, names in candidates]
        comment = s.comment or None if self._config.include_schema_comments else None
        return TableSchema(
            id=table, columns=columns, key=row_key(candidates, columns), charset=charset, comment=comment
        )

    def _rename(
        self, pairs: tuple[tuple[ddl.QualifiedName, ddl.QualifiedName], ...], query: QueryEvent, effect: DdlEffect
    ) -> None:
        """Rename tables one after the other: names may rotate through a third one."""
        moved: dict[TableId, tuple[TableId, TableSchema | None]] = {}
        for old_name, new_name in pairs:
            old, new = self._id(old_name, query), self._id(new_name, query)
            origin, schema = moved.pop(old, (old, self._tables.find_schema(old)))
            moved[new] = origin, schema
        for new, (origin, schema) in moved.items():
            if self._captured.is_captured(new):
                # of a table that was not captured under its old name, only the catalog has the structure
                present = schema.model_copy(update={"id": new}) if schema is not None else self._catalog.read_table(new)
                if present is None and self._is_no_table(origin, new):
                    continue
                if present is not None:
                    effect.changes.append(
                        TableChange(type="ALTER", id=new, previous_id=origin, table=present, exact=False)
                    )
                else:
                    effect.structure_unknown.append(new)
        for new, (origin, _) in moved.items():
            if origin not in moved and not self._captured.is_captured(new):
                self._captured.drop_table(origin, effect)

    def _is_no_table(self, old: TableId, new: TableId) -> bool:
        """Check whether this is about a view or a sequence, which have no structure here.

        A captured table without a structure has no rows either: the first one brings it.

        :param old: the table that has become another one, or was the model of it
        """
        return self._captured.is_captured(old) or self._catalog.is_table(new) is False

    def _repair(self, tables: list[TableId], effect: DdlEffect) -> None:
        """Engines with transactions refuse a repair, which is logged all the same."""
        ours = [table for table in tables if self._captured.find_structure(table) is not None]
        for table, engine in self._catalog.read_engines(ours).items():
            if engine not in TRANSACTIONAL:
                self._captured.rows_changed(table, effect)

    def _keys_changed(self, table: TableId, effect: DdlEffect) -> None:
        """Handle a change of keys: the row key may be another one now.

        The keys that there were are not kept: the catalog is asked.
        """
        structure = self._captured.find_structure(table)
        if structure is None:
            return
        present = self._catalog.read_table(table)
        if present is not None and present.column_names == structure.column_names and present.key != structure.key:
            schema = structure.model_copy(update={"key": present.key, "provisional": True})
            effect.changes.append(TableChange(type="ALTER", id=table, table=schema))

    def _unknown(self, s: ddl.UnknownStatement, query: QueryEvent, where: str, effect: DdlEffect) -> None:
        """Handle a statement that is not understood.

        The catalog has the present state of the tables, and they are read again. A table that it does not have may have disappeared with this
        statement or with a later one: it is kept until it is read, or the log says more.
        """
        named = [self._id(n, query) for n in s.tables]
        tables = self._captured.list_concerned_tables(named)
        for table in tables:
            present, recorded = self._catalog.read_table(table), self._tables.find_schema(table)
            if present is None:
                self._captured.rows_changed(table, effect)
            elif named or recorded is None or not recorded.same_description(present):
                kind: Literal["CREATE", "ALTER"] = "CREATE" if recorded is None else "ALTER"
                effect.changes.append(TableChange(type=kind, id=table, table=present, exact=False))
        if tables:
            names = ", ".join(map(str, tables)) if named else "any captured table"
            log.warning(
                "A statement at %s cannot be parsed (%s); the catalog was read for %s: %s",
                where,
                s.reason,
                names,
                s.text[:500],
            )

    # -- ALTER TABLE --------------------------------------------------------------------------------------------------

    def _alter(self, s: ddl.AlterTable, query: QueryEvent, where: str, effect: DdlEffect) -> None:
        table = self._id(s.table, query)
        renamed = next((a.table for a in s.actions if isinstance(a, ddl.RenameTo)), None)
        new = self._id(renamed, query) if renamed is not None else table
        if renamed is not None and new != table:
            self._rename(((s.table, renamed),), query, effect)
            self._altered_too(table, s, query, effect)
            return
        for action in s.actions:
            if isinstance(action, ddl.PartitionDataChange):
                # the other table of an exchange has new rows as well
                for other in (self._id(n, query) for n in action.tables):
                    if not self._captured.rows_changed(other, effect) and isinstance(action, ddl.PartitionToTable):
                        self._became_table(other, table, effect)
        structure = self._captured.find_structure(table)
        if structure is None:
            return
        if any(isinstance(a, ddl.SystemVersioning) for a in s.actions):
            raise system_versioned(table, where)
        effect.changes.append(self._altered(structure, s, query, table))

    def _became_table(self, new: TableId, partitioned: TableId, effect: DdlEffect) -> None:
        """Handle a partition that is a separate table now, with rows of which the log has nothing."""
        if not self._captured.is_captured(new):
            return
        schema_before = self._tables.find_schema(partitioned)
        schema = (
            schema_before.model_copy(update={"id": new}) if schema_before is not None else self._catalog.read_table(new)
        )
        if schema is not None:
            effect.changes.append(TableChange(type="CREATE", id=new, table=schema, exact=False))
        else:
            effect.structure_unknown.append(new)

    def _altered(self, before: TableSchema, s: ddl.AlterTable, query: QueryEvent, now: TableId) -> TableChange:
        """Return the changes that the actions make to a table, apart from its name.

        :param now: its name after them
        """
        if not query.explicit_timestamps:
            s = replace(s, actions=tuple(map(ddl.with_implied_timestamp, s.actions)))
        altered = AlterTableApplier(
            before,
            s,
            lambda c, charset, not_null: self._column(before.id, c, charset, not_null=not_null),
            lambda: self._catalog.database_charset(before.id.namespace),
            query.is_strict,
            query.numbers_zeros,
            self._config.include_schema_comments,
            lambda: self._catalog.with_expressions(now),
        ).apply()
        change = altered.change
        if altered.keys_unknown and change.table is not None:
            present = self._catalog.read_table(now)
            columns = change.table.column_names
            if present is not None and present.column_names == columns and present.key != change.table.key:
                update = {"key": present.key, "provisional": True}
                change = change.model_copy(update={"table": change.table.model_copy(update=update)})
        return change

    def _altered_too(self, table: TableId, s: ddl.AlterTable, query: QueryEvent, effect: DdlEffect) -> None:
        """Apply the column changes of a statement that also gives a table another name."""
        recorded = self._tables.find_schema(table)
        for i, change in enumerate(effect.changes):
            if recorded is not None and change.previous_id == table and change.table is not None:
                altered = self._altered(recorded, s, query, change.id)
                assert altered.table is not None
                update = {
                    "table": altered.table.model_copy(update={"id": change.id}), "renamed": altered.renamed, "added": altered.added
                }  # fmt: skip
                effect.changes[i] = change.model_copy(update=update)

    def _column(self, table: TableId, c: ddl.ColumnDef, charset: str | None, *, not_null: bool = False) -> Column:
        c = ddl.resolve_charset(c, charset)
        hidden = c.type == "tinyint" and c.unsigned and not self._shows_lengths
        type_ = MySqlColumnType(
            c.type, None if hidden else c.length, c.scale, c.unsigned, c.charset or charset, c.values, c.zerofill
        )
        nullable = c.nullable is not False and not not_null and not c.primary and not c.auto_increment
        default = _bits(c.default or ddl.MySqlColumnDefault(None), c.type)
        return captured_column(
            table, c.name, type_, self._config, nullable=nullable, default=default.value,
            default_is_expression=default.is_expression, auto_incremented=c.auto_increment, generated=c.generated,
            comment=c.comment if self._config.include_schema_comments else None,
        )  # fmt: skip


def _bits(default: ddl.MySqlColumnDefault, type_: str) -> ddl.MySqlColumnDefault:
    """Format a default as schema changes show it: that of a BIT as its bits, as servers print it."""
    if type_ != "bit" or default.value is None or default.is_expression:
        return default
    if not default.value.strip().isdecimal():  # servers round 1.5 and 1e3
        return ddl.MySqlColumnDefault(default.value, True)
    return ddl.MySqlColumnDefault(f"{int(default.value):b}")
