"""Lists the tables that a connector captures, from its schema history, without a connection to the source."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from typing import TYPE_CHECKING

from airflow_provider_cdc.connector import parse_config
from airflow_provider_cdc.core.errors import CdcError, ConfigError
from airflow_provider_cdc.core.signals.signal_request_parser import SignalRejected, pattern_from_name
from airflow_provider_cdc.services.connectors.connector_handle import access_of

if TYPE_CHECKING:
    from airflow_provider_cdc.core.spi.state_records import ConnectorRecord
    from airflow_provider_cdc.state.state_store import StateStore

_SHOWN = 30
"""Names of tables in a message."""


def captured_tables(store: StateStore, connector: ConnectorRecord) -> dict[str, str]:
    """Return captured tables that have a schema.

    Name as ``database.table`` → name with the level above it, where there is one.
    """
    from airflow_provider_cdc.core.config.capture_filters import Filters
    from airflow_provider_cdc.core.model.schema_history import SchemaHistory

    tables = SchemaHistory.from_stored(store.load_schemas(connector.connector)).current_tables
    access = access_of(connector)
    if access is None:
        return {str(t): t.full_name for t in tables}
    access = access.use_current_connection()
    config = parse_config(access.definition, access.resolve_properties())
    filters, hidden = Filters(config), str(getattr(config, "signal_data_collection", None) or "")
    return {str(t): t.full_name for t in tables if filters.is_table_captured(t) and hidden not in (str(t), t.full_name)}


def known_tables(store: StateStore, connector: ConnectorRecord) -> list[str]:
    """Names of :func:`captured_tables`, for messages. If the definition cannot be used now, all tables of the schema history."""
    from airflow_provider_cdc.core.model.schema_history import SchemaHistory

    try:
        return sorted(captured_tables(store, connector))
    except CdcError:  # as when a connection was renamed: the status is shown all the same
        return sorted(str(t) for t in SchemaHistory.from_stored(store.load_schemas(connector.connector)).current_tables)


def select_tables(patterns: Sequence[str], captured: Mapping[str, str]) -> list[str]:
    """Select captured tables by names or regular expressions, which match whole names as in signals. The name of a table is that table alone.

    :param captured: of :func:`captured_tables`
    :raises ConfigError: one of them selects none, is no regular expression, or may take too long to match; the error names it
    """
    from airflow_provider_cdc.core.signals.table_patterns import check_names

    selected, wrong, readable = dict[str, None](), [], dict[str, re.Pattern[str]]()
    by_name = {full: name for name, full in captured.items()} | {name: name for name in captured}
    for pattern in patterns:
        try:
            if pattern not in by_name:
                readable[pattern] = re.compile(pattern_from_name(pattern))
        except re.error as e:
            wrong.append(f"{pattern!r} is not a regular expression: {e}")
    try:
        check_names(readable, [*captured, *captured.values()])
    except SignalRejected as e:  # matching cannot be interrupted, and no other thread would get its turn
        wrong, readable = [str(e)], {}
    for pattern in patterns:
        if pattern in by_name:
            selected[by_name[pattern]] = None
            continue
        if (compiled := readable.get(pattern)) is None:
            continue
        names = [name for name, full in captured.items() if compiled.fullmatch(name) or compiled.fullmatch(full)]
        if not names:
            looked_for = len(wrong) < _SHOWN
            near = get_close_matches(pattern.replace("\\", ""), captured, n=1, cutoff=0.6) if looked_for else []
            wrong.append(f"no captured table matches {pattern!r}" + (f"; did you mean {near[0]}?" if near else ""))
        selected |= dict.fromkeys(names)
    if wrong:
        raise ConfigError(
            "\n".join(wrong),
            where=f"captured: {format_names(list(captured))}",
            safe="Nothing was sent.",
            remedy="name captured tables as <database>.<table>, or regular expressions that match whole names",
        )
    return list(selected)


def format_names(names: Sequence[str]) -> str:
    """Names for a message.

    >>> format_names(["a", "b"])
    'a, b'
    """
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return (", ".join(names[:_SHOWN]) or "none") + more
