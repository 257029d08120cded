"""The commands that errors and warnings of a run name as their repair."""

from __future__ import annotations

from collections.abc import Iterable

from airflow_provider_cdc.core.config.capture_filters import Filters
from airflow_provider_cdc.core.errors import CdcError, NotGranted, PositionLost, StorageFull
from airflow_provider_cdc.core.model.table_schema import TableSchema
from airflow_provider_cdc.core.name_patterns import format_exact_pattern
from airflow_provider_cdc.core.remedy_commands import format_cdc_command


def how_to_read(connector: str, tables: Iterable[TableSchema], filters: Filters) -> str:
    """Commands that read captured tables again: in chunks, or whole if they have no key."""
    keyed: list[str] = []
    whole: list[str] = []
    for schema in tables:
        (keyed if filters.select_key_columns(schema) else whole).append(format_exact_pattern(schema.id))
    commands = [format_cdc_command("snapshot", connector, *keyed, replace=True)] if keyed else []
    return "; ".join(
        [*commands, format_cdc_command("snapshot", connector, *whole, type="blocking")] if whole else commands
    )


def with_command(e: CdcError, connector: str) -> str | None:
    """Return the remedy of an error of a run, with the command that explains errors of its kind, if it has one."""
    if isinstance(e, PositionLost):
        command = format_cdc_command("gap", connector)
        does = "shows the lost changes and the possible repairs; position.lost.mode selects one of them automatically"
    elif isinstance(e, NotGranted):
        command, does = (
            format_cdc_command("check", connector),
            "lists each missing privilege, with the statement that grants it",
        )
    elif isinstance(e, StorageFull) and "change log" in e.message:
        command, of_any = (
            format_cdc_command("maintain", name, only="retention", now=True) for name in (connector, "CONNECTOR")
        )
        if of_any in (e.remedy or ""):  # the storage does not know the connector
            return (e.remedy or "").replace(of_any, command)
        does = "removes the batches that every target has applied"
    else:
        return e.remedy
    if command in (e.remedy or ""):
        return e.remedy
    # a command can be run at once; other remedies are often a change of the definition
    return f"`{command}` {does}; or {e.remedy}" if e.remedy else f"`{command}` {does}"
