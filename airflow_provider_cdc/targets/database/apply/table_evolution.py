"""Evolution of tables: creation, new columns, and columns that the source has widened (``schema.evolution=basic``).

Otherwise the run says which DDL would mend a table.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace

import sqlalchemy as sa

from airflow_provider_cdc.changelog.reading.pending_batches import (
    ColumnLineage,
    PendingBatches,
    base_version,
    trace_columns,
)
from airflow_provider_cdc.core.errors import TargetError
from airflow_provider_cdc.core.remedy_commands import format_cdc_command, name_cdc_command
from airflow_provider_cdc.targets.database.apply.reused_column_names import constant_sql, fills_later
from airflow_provider_cdc.targets.database.config import DatabaseTargetConfig, SchemaEvolution
from airflow_provider_cdc.targets.database.dialects.target_dialect import (
    ExistingColumn,
    ExistingTable,
    TargetDialect,
    execute_sql,
)
from airflow_provider_cdc.targets.database.events.earlier_rows_check import EarlierBatches
from airflow_provider_cdc.targets.database.schema.target_table import (
    DatabaseColumn,
    DatabaseTargetTable,
    TargetTableName,
    exclude_columns,
)
from airflow_provider_cdc.targets.database.schema.value_kinds import kind_of

_BROUGHT_UP = "brought up"
"""Fact about a table: it has everything, and nothing that is refused."""


@dataclass(frozen=True, slots=True)
class KeyChange:
    """The change of a table's key by the source.

    :param former: keys that the table may still have, by the names of its columns
    :param last: the table with its newest key
    """

    former: Collection[frozenset[str]]
    last: DatabaseTargetTable


def bring_up(
    dialect: TargetDialect,
    connection: sa.Connection,
    table: DatabaseTargetTable,
    pending: PendingBatches,
    config: DatabaseTargetConfig,
    connector: str,
    change: KeyChange,
    earlier: EarlierBatches,
) -> ExistingTable:
    """Make sure that the table exists with all the columns that rows have, and with their key, if it has one that they had before.

    :param earlier: the earlier batches of the table; they are read only if something is missing
    :return: the table as it is then
    :raises TargetError: ``schema.evolution=none``, and it lacks something; a new column has to have values that are not known; the table takes keys as
        equal that are not; it cannot get the key; or the table or columns were removed by hand, with values that do not come again
    """
    there = dialect.inspect_table(connection, table)
    if there is not None and not _has_columns_and_key(there, table):  # what it lacks, follows from what it is now
        dialect.structures.forget(table.name)
        there = dialect.inspect_table(connection, table)
    changes = there is None or bool(pending.changes) or not _has_columns_and_key(there, table)
    if changes:
        dialect.structures.forget(table.name)
    if there is None:
        if earlier.needs_earlier_rows:
            raise _lost(f"The table {table.name} no longer exists", "the rows of earlier batches", table, connector)
        # where keys cannot be changed, rows with a former one are found without an index
        new_table = table if dialect.CHANGES_KEYS else change.last
        _allowed(config, f"The table {table.name} does not exist.", table, [dialect.build_create_table(new_table)])
        there = _create_or_inspect(dialect, connection, new_table)
        if (
            new_table.key_columns != table.key_columns
            and (existing := dialect.inspect_table(connection, table)) is not None
        ):
            there = existing
    refuse_engine(dialect, there.engine, table.name, table.topic)
    key_names, key = {field.name for field in table.key_columns}, there.key
    if there.columns and {*there.key} != key_names and frozenset(there.key) in change.former:
        there = _with_key(dialect, connection, table, there, pending, config, connector)
    if there.columns:
        dialect.refuse_merging(connection, table, format_cdc_command("rebuild", connector, table.topic))
    lacking = [field for field in table.fields if there.columns and field.name not in there.columns]
    if lacking:
        _refuse_removed_columns(dialect, table, lacking, pending, connector, earlier)
        names = ", ".join(field.name for field in lacking)
        _allowed(
            config, f"The table {table.name} has no column {names}.", table, dialect.build_add_columns(table, lacking)
        )
        if frozenset(field.name for field in change.last.key_columns) == key_names:
            _refuse_keys(dialect, table, lacking, pending, there)
        else:
            lacking = [replace(field.nullable_copy, key=False) if field.key else field for field in lacking]
        _add(dialect, connection, table, lacking, pending, there, config, emptied=config.truncate_enabled)
    if config.schema_evolution is SchemaEvolution.BASIC and there.columns:
        if dialect.CHANGES:
            _widen(dialect, connection, table, there, pending, key)
        else:
            _refuse_other(dialect, table, there, pending)
            _add_digits(dialect, connection, table, there, pending)
    if changes:
        dialect.structures.forget(table.name)
    else:
        dialect.structures.keep(table.name, _BROUGHT_UP, True)
    return there


def needs_no_change(dialect: TargetDialect, table: DatabaseTargetTable, pending: PendingBatches) -> bool:
    """Check whether :func:`bring_up` has nothing to do and nothing to refuse, as far as that is known of a checked table without a statement."""
    there: ExistingTable | None = dialect.structures.find(table.name, "table")
    known = dialect.structures.is_checked(table.name) and dialect.structures.find(table.name, _BROUGHT_UP)
    if there is None or not known or pending.changes:
        return False
    return _has_columns_and_key(there.called_as(table, dialect.same_column), table)


def _has_columns_and_key(there: ExistingTable, table: DatabaseTargetTable) -> bool:
    return {*there.key} == {field.name for field in table.key_columns} and all(
        field.name in there.columns for field in table.fields
    )


def refuse_engine(dialect: TargetDialect, engine: str, name: TargetTableName, topic: str) -> None:
    """Reject a table whose engine has no transactions.

    :raises TargetError: a table has no transactions
    """
    if engine:
        raise TargetError(
            f"The table {name} uses the engine {engine}, which has no transactions: a failed run would leave partial rows, or write rows twice.",
            where=f"topic {topic}",
            safe="The table was not changed.",
            remedy=f"run ALTER TABLE {dialect.format_table_name(name)} ENGINE=InnoDB; then run the apply again",
        )


def brought_up(dialect: TargetDialect, connection: sa.Connection, table: DatabaseTargetTable) -> ExistingTable:
    """Return the table as :func:`bring_up` has left it, for databases that end a transaction with each DDL statement: there is none here.

    :raises TargetError: another session has changed it meanwhile
    """
    there = dialect.inspect_table(connection, table)
    lacking = [field.name for field in table.fields if there is None or field.name not in there.columns]
    if there is None or lacking:
        raise TargetError(
            f"The table {table.name} no longer has the column {', '.join(lacking)}.",
            where=f"topic {table.topic}",
            safe="The table is complete up to the previous batch; other tables continue.",
            remedy="run the apply again, which adds the missing columns",
        )
    return there


def _create_or_inspect(dialect: TargetDialect, connection: sa.Connection, table: DatabaseTargetTable) -> ExistingTable:
    """Create a table, and inspect it; another run may have created it first."""
    savepoint = connection.begin_nested() if dialect.DDL_IN_TRANSACTION else None
    try:
        dialect.create_table(connection, table)
    except sa.exc.DBAPIError as e:
        if dialect.is_transient(e):
            raise
        if savepoint is not None:
            savepoint.rollback()
        if (there := dialect.inspect_table(connection, table)) is None:
            raise TargetError(
                f"The table {table.name} with {len(table.fields)} columns cannot be created: {e.orig}",
                where=f"topic {table.topic}",
                safe="No table was created; other tables continue.",
                remedy="leave columns out with field.exclude.list, or create the table by hand with other types, which the apply keeps; the apply would run "
                f"{dialect.build_create_table(table)}. Then run the apply again",
            ) from e
        return there
    if savepoint is not None:
        savepoint.commit()
    return ExistingTable({}, tuple(field.name for field in table.key_columns))


def _allowed(config: DatabaseTargetConfig, problem: str, table: DatabaseTargetTable, statements: list[str]) -> None:
    if config.schema_evolution is SchemaEvolution.NONE:
        raise TargetError(
            problem,
            where=f"topic {table.topic}",
            safe="The table was not changed.",
            remedy=f"set schema.evolution=basic, or run {'; '.join(statements)}; then run the apply again",
        )


def _refuse_removed_columns(
    dialect: TargetDialect,
    table: DatabaseTargetTable,
    lacking: list[DatabaseColumn],
    pending: PendingBatches,
    connector: str,
    earlier: EarlierBatches,
) -> None:
    """Reject a table from which columns were removed by hand.

    :raises TargetError: the source had these columns all the time, and the table has them no more: rows that are there would have NULL
    """
    origins = trace_columns(pending, base_version(pending))
    had = [field for field in lacking if origins.get(field.column.name, ColumnLineage()).column == field.column.name]
    before = earlier.previous_schema if had else None
    # a column whose values could not be captured until now has none to lose
    earlier_names = {column.name for column in before.columns if column.type != "null"} if before is not None else set()
    taken = [field for field in had if field.column.name in earlier_names]
    if taken and earlier.needs_earlier_rows:
        names = ", ".join(field.name for field in taken)
        by_hand = "; ".join(dialect.build_add_columns(table, [field.nullable_copy for field in taken]))
        problem = (
            f"The table {table.name} has no column {names}: the column was removed, or the sink left it out until now"
        )
        more = f"run {by_hand} if existing rows may have NULL, or leave the column out with {exclude_columns(table.topic, *(field.column.name for field in taken))}; or "
        raise _lost(problem, "the values of existing rows", table, connector, more)


def _lost(problem: str, which: str, table: DatabaseTargetTable, connector: str, more: str = "") -> TargetError:
    """Return the error for values that were removed by hand and are not written again."""
    return TargetError(
        f"{problem}: new batches do not contain {which}.",
        where=f"topic {table.topic}",
        safe="Nothing was created or changed; other tables continue.",
        remedy=f"restore the missing table or column under its name, and run the apply again; or {more}rebuild the table with `{format_cdc_command('rebuild', connector, table.topic)}`",
    )


def _refuse_keys(
    dialect: TargetDialect,
    table: DatabaseTargetTable,
    lacking: list[DatabaseColumn],
    pending: PendingBatches,
    there: ExistingTable,
) -> None:
    keys = [field for field in lacking if field.key]
    if not keys:
        return
    origins = trace_columns(pending, base_version(pending))
    renamed = [
        dialect.build_rename_column(table, origin.column, field.name)
        for field in keys
        if (origin := _as_there(dialect, there, origins.get(field.column.name))) is not None
        and origin.column in there.columns
        and origin.column is not None
    ]
    by_hand = "create the table by hand with this key, or give it another name with collection.name.format"
    as_source = f"run {'; '.join(renamed)}, as the source did; then run the apply again"
    raise TargetError(
        f"The table {table.name} has no column {', '.join(field.name for field in keys)}, which is part of the key.",
        where=f"topic {table.topic}",
        safe="The table was not changed.",
        remedy=as_source if len(renamed) == len(keys) else by_hand,
    )


# -- keys -------------------------------------------------------------------------------------------------------------


def _with_key(
    dialect: TargetDialect,
    connection: sa.Connection,
    table: DatabaseTargetTable,
    there: ExistingTable,
    pending: PendingBatches,
    config: DatabaseTargetConfig,
    connector: str,
) -> ExistingTable:
    """Give a table the new key of the source's table, and return the table.

    :raises TargetError: it cannot get it, or ``schema.evolution=none``
    """
    old, new = ", ".join(there.key), ", ".join(field.name for field in table.key_columns)
    problem = f"The source has changed the key of {table.topic}, but the table {table.name} has the earlier key: ({old}) instead of ({new})"
    lacking = [
        replace(field.nullable_copy, key=False) for field in table.key_columns if field.name not in there.columns
    ]
    added = dialect.build_add_columns(table, lacking) if lacking else []
    statements = dialect.key_change(connection, table, there)
    remedy = (
        f"run {'; '.join((*added, *statements))}; then run the apply again. If the rows of the table do not allow the new key, drop the table, and run "
        f"`{format_cdc_command('rebuild', connector, table.topic)}`"
    )
    safe = "The table was not changed; other tables continue."
    if config.schema_evolution is SchemaEvolution.NONE or not dialect.changes_key(connection, table):
        raise TargetError(f"{problem}.", where=f"topic {table.topic}", safe=safe, remedy=remedy)
    savepoint = connection.begin_nested() if dialect.DDL_IN_TRANSACTION else None
    try:
        if pending.name_takeover is not None and config.truncate_enabled:  # none of its rows stays
            dialect.delete_all_rows(connection, table)
        if lacking:
            _add(dialect, connection, table, lacking, pending, there, config)
        for statement in statements:
            execute_sql(connection, statement)
        dialect.structures.forget(table.name)
    except sa.exc.DBAPIError as e:
        if dialect.is_transient(e):
            raise
        if savepoint is not None:
            savepoint.rollback()
        raise TargetError(
            f"{problem}, and the database rejects the change: {e.orig}",
            where=f"topic {table.topic}",
            safe=safe,
            remedy=remedy,
        ) from e
    if savepoint is not None:
        savepoint.commit()
    existing = dialect.inspect_table(connection, table)
    assert existing is not None
    return existing


# -- new columns ------------------------------------------------------------------------------------------------------


def _add(
    dialect: TargetDialect,
    connection: sa.Connection,
    table: DatabaseTargetTable,
    lacking: list[DatabaseColumn],
    pending: PendingBatches,
    there: ExistingTable,
    config: DatabaseTargetConfig,
    *,
    emptied: bool = False,
) -> None:
    """Add columns. Existing rows get the values of the source's rows in them, unless that is done later (:func:`fills_later`).

    :param emptied: whether the table is emptied where the pending batches empty it
    """
    origins = trace_columns(pending, base_version(pending))
    fills = {field.name: _fill(origins.get(field.column.name, ColumnLineage(field.column.name))) for field in lacking}
    if emptied and pending.name_takeover is not None:  # the table is emptied: no row needs a value that is unknown
        lacking = [
            field.nullable_copy if not field.key and _unknown(dialect, field, fills[field.name]) else field
            for field in lacking
        ]
    for field in lacking:
        _refuse_required(
            dialect, table, field, fills[field.name], _as_there(dialect, there, origins.get(field.column.name))
        )
    later = {field.name for field in table.fields if fills_later(dialect, field, config)}
    for field in lacking:
        fill = fills[field.name]
        # a column that must have a value gets it before the constraint
        late = field.is_required and not dialect.default_of(field)
        for statement in dialect.build_add_columns(table, [field.nullable_copy if late else field]):
            _alter(dialect, connection, statement, table, field, late=late)
        if fill is not None and field.name not in later:
            value = constant_sql(dialect, field, fill)
            execute_sql(
                connection,
                f"UPDATE {dialect.format_table_name(table.name)} SET {dialect.quote_name(field.name)} = {value}",
            )
        if late and fill is not None and dialect.CHANGES and dialect.LATE_NOT_NULL:
            dialect.structures.forget(table.name)
            altered = dialect.inspect_table(connection, table)
            assert altered is not None
            now = altered.columns[field.name]
            execute_sql(connection, dialect.build_change_column(table, now, _type(dialect, now, field), nullable=False))


def _alter(
    dialect: TargetDialect,
    connection: sa.Connection,
    statement: str,
    table: DatabaseTargetTable,
    field: DatabaseColumn,
    *,
    late: bool,
) -> None:
    """Add a column, unless another run was faster: it works beside this one, or was killed while its statement waited for a lock."""
    try:
        dialect.alter_table(connection, statement)
    except sa.exc.DBAPIError as e:
        if dialect.DDL_IN_TRANSACTION or dialect.is_transient(e) or late:
            raise
        dialect.structures.forget(table.name)
        there = dialect.inspect_table(connection, table)
        if there is None or field.name not in there.columns:
            raise


def _as_there(dialect: TargetDialect, there: ExistingTable, origin: ColumnLineage | None) -> ColumnLineage | None:
    """Return the same with the column's name as the table has it."""
    if origin is None or origin.column is None or origin.column in there.columns:
        return origin
    folded = dialect.fold_name(origin.column)
    return ColumnLineage(folded) if folded in there.columns else origin


def _fill(origin: ColumnLineage) -> str | None:
    """Return the value that the source's rows have got in a new column; ``None`` if NULL, or if that is not known."""
    return origin.fill if origin.column is None else None


def _unknown(dialect: TargetDialect, field: DatabaseColumn, fill: str | None) -> bool:
    """Return whether a column is required, and its value in existing rows is unknown."""
    declared = field.column.declared
    has_value = fill is not None or bool(dialect.default_of(field)) or declared.default is not None
    has_value = has_value or declared.default_is_expression or declared.generated or declared.auto_incremented
    return field.is_required and not has_value


def _refuse_required(
    dialect: TargetDialect,
    table: DatabaseTargetTable,
    field: DatabaseColumn,
    fill: str | None,
    origin: ColumnLineage | None,
) -> None:
    """Reject a new column that has no value for existing rows and must have one.

    :raises TargetError: a column that must have a value has none for rows that are there
    """
    if not _unknown(dialect, field, fill):
        return
    remedy = f"run {'; '.join(dialect.build_add_columns(table, [field.nullable_copy]))} for a nullable column"
    if origin is not None and origin.column not in (None, field.column.name):
        remedy = (
            f"run {dialect.build_rename_column(table, str(origin.column), field.name)}, as the source did; or {remedy}"
        )
        if origin.column in {other.name for other in table.fields}:  # which is another column now
            rebuild = name_cdc_command("rebuild")
            remedy = f"the source has reused the names of columns: drop the table, and rebuild it with `{rebuild}`"
    raise TargetError(
        f"The new column {field.name} of {table.name} is not nullable and has no default for existing rows.",
        where=f"topic {table.topic}",
        safe="The table was not changed.",
        remedy=f"{remedy}; then run the apply again",
    )


# -- columns that are there -------------------------------------------------------------------------------------------


def _widen(
    dialect: TargetDialect,
    connection: sa.Connection,
    table: DatabaseTargetTable,
    there: ExistingTable,
    pending: PendingBatches,
    key: Collection[str] = (),
) -> None:
    """Follow the source where it has given columns more room, or lets them be NULL, or has dropped them.

    :param key: columns of the key that the table had until now: one that was made again need not have them
    """
    for field in table.fields:
        column = there.columns.get(field.name)
        if column is None or not _changed(pending, field.column.name):
            continue
        type_ = dialect.find_wider_type(column, field)
        nullable = column.nullable or not field.is_required
        if type_ is not None or nullable != column.nullable:
            execute_sql(
                connection,
                dialect.build_change_column(table, column, type_ or _type(dialect, column, field), nullable=nullable),
            )
    field_names, fold = {field.name for field in table.fields}, {name.lower(): name for name in there.columns}
    for name in {*key, *(dropped for change in pending.changes.values() for dropped in change.dropped)}:
        column = there.columns.get(fold.get(name.lower(), name))
        if column is None or column.name in field_names or column.name in there.key:
            continue
        if (
            not column.nullable and column.default is None and column.type != "NULL"
        ):  # no row has a value of it any more
            execute_sql(connection, dialect.build_change_column(table, column, column.type, nullable=True))


def _refuse_other(
    dialect: TargetDialect, table: DatabaseTargetTable, there: ExistingTable, pending: PendingBatches
) -> None:
    """Reject a type change that would alter values in a database that changes no columns.

    :raises TargetError: a database that changes no columns would change the values of a column
    """
    for field in table.fields:
        column = there.columns.get(field.name)
        if column is None or not _changed(pending, field.column.name):
            continue
        target_type = dialect.type_of(kind_of(field.column), key=field.key)
        if target_type == "TEXT" and column.type not in ("TEXT", "BLOB"):
            raise TargetError(
                f"The source has changed the column {field.name}, but {table.name} has it as {column.type}, which would change its string values.",
                where=f"topic {table.topic}",
                safe="The table was not changed.",
                remedy="create the table again with this column as TEXT, and copy its rows; then run the apply again",
            )


def _add_digits(
    dialect: TargetDialect,
    connection: sa.Connection,
    table: DatabaseTargetTable,
    there: ExistingTable,
    pending: PendingBatches,
) -> None:
    """Give values of rows that are there the digits that the source has added, where texts of other lengths are other values."""
    for field in table.fields:
        if field.name in there.columns and _changed(pending, field.column.name):
            statement = dialect.digits_added(table, field)
            if statement is not None:
                execute_sql(connection, statement)


def _type(dialect: TargetDialect, column: ExistingColumn, field: DatabaseColumn) -> str:
    """Return the type of a column; if SQLAlchemy does not know it, the type that the sink gives it."""
    return column.type or dialect.type_of(kind_of(field.column), key=field.key)


def _changed(pending: PendingBatches, name: str) -> bool:
    """Check whether one of these changes may have changed a column.

    Where the schema before a change is known, by that, otherwise they may.
    """
    for version, change in pending.changes.items():
        if change.type != "ALTER" or change.table is None or name not in change.table.column_names:
            continue
        if name in change.added or name in change.renamed:  # the table may have had another column of this name
            return True
        before = pending.schemas.get(version - 1)
        if before is None or name not in before.column_names:
            return True
        old_column, new_column = before.get_column(name), change.table.get_column(name)
        if (old_column.type, old_column.nullable, old_column.declared) != (
            new_column.type,
            new_column.nullable,
            new_column.declared,
        ):
            return True
    return False
