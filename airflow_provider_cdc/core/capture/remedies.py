"""The commands that errors and warnings of a run name as their repair."""

from __future__ import annotations

from collections.abc import Iterable

from airflow_provider_cdc.core.config.filters import Filters
from airflow_provider_cdc.core.errors import CdcError, NotGranted, PositionLost
from airflow_provider_cdc.core.model.schema import TableSchema
from airflow_provider_cdc.core.remedy_commands import cdc, exactly


def how_to_read(connector: str, tables: Iterable[TableSchema], filters: Filters) -> str:
    """Commands that read captured tables again: in chunks, or whole if they have no key."""
    keyed: list[str] = []
    whole: list[str] = []
    for schema in tables:
        (keyed if filters.key(schema) else whole).append(exactly(schema.id))
    found = [cdc("snapshot", connector, *keyed, replace=True)] if keyed else []
    return "; ".join([*found, cdc("snapshot", connector, *whole, type="blocking")] if whole else found)


def with_command(e: CdcError, connector: str) -> str | None:
    """The remedy of an error of a run, with the command that tells more about errors of its kind, if there is one."""
    if isinstance(e, PositionLost):
        told = cdc("gap", connector)
        does = "shows what is lost and the ways to go on, of which position.lost.mode takes one by itself"
    elif isinstance(e, NotGranted):
        told, does = cdc("check", connector), "names each right that is missing, with the statement that grants it"
    else:
        return e.remedy
    if told in (e.remedy or ""):
        return e.remedy
    return f"{e.remedy}; or `{told}` {does}" if e.remedy else f"`{told}` {does}"
