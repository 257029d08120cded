"""Rows that are there, where the source has given the name of a column to another one: it has dropped a column and made it again, or renamed one to it.

Events bring rows that change. All others get here the values of the source's rows, in the transaction that moves the marker: done a second time,
it would undo changes that later batches have written.
"""

from __future__ import annotations

from collections.abc import Collection

from airflow_provider_cdc.changelog.reading.pending_batches import ColumnLineage, PendingBatches, trace_columns
from airflow_provider_cdc.core.errors import TargetError
from airflow_provider_cdc.core.remedy_commands import format_cdc_command
from airflow_provider_cdc.targets.database.config import DatabaseTargetConfig, InsertMode
from airflow_provider_cdc.targets.database.dialects.target_dialect import TargetDialect
from airflow_provider_cdc.targets.database.schema.target_table import DatabaseColumn, DatabaseTargetTable, leaves_out
from airflow_provider_cdc.targets.database.schema.value_kinds import kind_of


def moved_values(
    dialect: TargetDialect,
    table: DatabaseTargetTable,
    pending: PendingBatches,
    schema_version: int,
    had: Collection[str],
    config: DatabaseTargetConfig,
) -> list[tuple[DatabaseColumn, ColumnLineage]]:
    """Find the columns whose values in rows that are there come from another column now, or from a statement.

    :param schema_version: the version of the schema that the rows have
    :param had: the columns that the table had before this run; of others, those that :func:`fills_later` get the statement's value here, too
    :return: with where their values come from, by the names of the table
    :raises LookupError: some come from columns that the table has, and others from columns that it has not; or from one that is left out
    """
    names = _made_or_renamed(pending, schema_version)
    fields = [field for field in table.fields if field.column.name in names]
    if not fields:
        return []
    origins, same = trace_columns(pending, schema_version), {dialect.same_column(name): name for name in had}
    moved, gone = list[tuple[DatabaseColumn, ColumnLineage]](), list[str]()
    for field in fields:
        origin = origins.get(field.column.name, ColumnLineage())
        if origin.column is not None:
            called = (origin.column, dialect.fold_name(origin.column), same.get(dialect.same_column(origin.column), ""))
            name = next((name for name in called if name in had), None)
            if name is None and leaves_out(table.topic, origin.column, config):
                raise LookupError(f"{field.name} now has the values of {origin.column}, which a field list leaves out")
            if name is None:  # renamed in the table by hand, as at the source
                gone.append(origin.column)
                continue
            origin = ColumnLineage(name)
        if origin.column == field.name:
            continue
        if (
            origin.column is None
            and field.name not in had
            and (origin.fill is None or not fills_later(dialect, field, config))
        ):
            continue
        if origin == ColumnLineage() and field.is_required:
            continue  # only the source knows the value, and its table is read again
        moved.append((field, origin))
    if gone and any(origin.column for _, origin in moved):
        raise LookupError(f"it has no column {', '.join(gone)}, so other columns may already have been renamed by hand")
    return moved


def fills_later(dialect: TargetDialect, field: DatabaseColumn, config: DatabaseTargetConfig) -> bool:
    """Return whether existing rows get the value of a new column in the transaction that moves the marker.

    When the column is made, another run may have written newer values already. Three kinds get it then, all the same: columns of the key and required ones, which cannot wait; rows
    of ``insert.mode=insert``; and tables of several topics, whose rows are written in one transaction.
    """
    if dialect.DDL_IN_TRANSACTION or config.insert_mode is InsertMode.INSERT or config.collection_name_shared:
        return False
    return not field.key and (not field.is_required or bool(dialect.default_of(field)))


def update_statements(
    dialect: TargetDialect, table: DatabaseTargetTable, moved: list[tuple[DatabaseColumn, ColumnLineage]]
) -> list[str]:
    """Build SQL that gives all rows these values."""
    values = {field.name: _value(dialect, field, origin) for field, origin in moved}
    if all(origin == ColumnLineage() for _, origin in moved):  # a row that has none already stays as it is
        where = " OR ".join(f"{dialect.quote_name(name)} IS NOT NULL" for name in values)
        return [f"{statement} WHERE {where}" for statement in dialect.build_assignments(table, values)]
    return dialect.build_assignments(table, values)


def update_refused(connector: str, table: DatabaseTargetTable, why: str) -> TargetError:
    """Build the error for values that the table cannot be given."""
    return TargetError(
        f"The source has created columns of {table.topic} again, or has reused their names, and the rows of {table.name} cannot get the current values "
        f"of the source: {why}",
        where=f"topic {table.topic}",
        safe="The table was not changed; other tables continue.",
        remedy=f"drop the table, and run `{format_cdc_command('rebuild', connector, table.topic)}`",
    )


def _made_or_renamed(pending: PendingBatches, since: int) -> set[str]:
    """Names, as they are in the end, of columns that a change after a version has made or renamed."""
    names = set[str]()
    for version in sorted(version for version in pending.changes if version > since):
        change = pending.changes[version]
        now = {old: new for new, old in change.renamed.items()}
        names = {now.get(name, name) for name in names} | {*change.added, *change.renamed}
    return names


def constant_sql(dialect: TargetDialect, field: DatabaseColumn, text: str) -> str:
    """Format the SQL of a value that rows get in a column.

    :param text: casts to the column's type in the change log
    """
    kind = kind_of(field.column)
    if kind.name == "bool":  # not all databases know the words
        return dialect.format_boolean(text.lower() not in ("0", "f", "false"))
    return dialect.build_cast("'" + text.replace("'", "''") + "'", dialect.type_of(kind, key=False))


def _value(dialect: TargetDialect, field: DatabaseColumn, origin: ColumnLineage) -> str:
    if origin.column is not None:
        return dialect.quote_name(origin.column)
    return "NULL" if origin.fill is None else constant_sql(dialect, field, origin.fill)
