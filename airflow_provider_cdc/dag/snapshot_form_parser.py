"""Turns the form of an ad hoc snapshot into a signal, or into an error that names its problem."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from airflow_provider_cdc.core.config.connector_config import ConnectorConfig
from airflow_provider_cdc.core.config.table_source_config import TableConfig
from airflow_provider_cdc.core.errors import ConfigError
from airflow_provider_cdc.core.name_patterns import format_exact_pattern
from airflow_provider_cdc.operators.signal import execute_snapshot
from airflow_provider_cdc.services.connectors.captured_tables import format_names, select_tables


def snapshot_request(
    params: Mapping[str, Any], captured: Mapping[str, str], config: type[ConnectorConfig] = TableConfig
) -> dict[str, Any]:
    """Build the data of an ``execute-snapshot`` signal.

    :param params: of the form; see :func:`airflow_provider_cdc.dag.snapshot_dags.ad_hoc_snapshot_dag`
    :param captured: of :func:`~airflow_provider_cdc.services.connectors.captured_tables.captured_tables`
    :param config: of the connector's kind of source, which writes conditions in its own words
    :raises ConfigError: it cannot be meant; the error names every table that is not captured
    """
    tables = chosen_tables(params, captured)
    blocking = params.get("type") == "blocking"
    filters = _filters(params.get("filters") or {}, tables, captured)
    since = _since(params)
    if since is not None:
        filters = {
            table: config.changed_since(table, *since, given=filters.get(table), blocking=blocking) for table in tables
        }
    replace, surrogate = bool(params.get("replace")), (params.get("surrogate_key") or "").strip() or None
    if replace and filters:
        raise _wrong("Tables cannot be emptied first, because the filter reads only some of their rows again.")
    if blocking and surrogate:
        raise _wrong("A surrogate key divides tables into chunks, but a blocking snapshot has no chunks.")
    chunk_size = params.get("chunk_size")
    if blocking and chunk_size is not None:
        raise _wrong("A chunk size applies to incremental snapshots only; a blocking snapshot has no chunks.")
    # names are sent as patterns that match nothing else
    named = {table: format_exact_pattern(table) for table in tables}
    return execute_snapshot(
        list(named.values()),
        blocking=blocking,
        filters={named[table]: text for table, text in filters.items()},
        surrogate_key=surrogate,
        chunk_size=chunk_size,
        replace=replace,
    )


def chosen_tables(params: Mapping[str, Any], captured: Mapping[str, str]) -> list[str]:
    """Return the tables that the form names.

    :raises ConfigError: none, or one that is not captured
    """
    chosen = params.get("tables") or ()
    typed = [text if text in captured else text.strip() for text in params.get("more_tables") or () if text.strip()]
    if not chosen and not typed:
        raise _wrong("No table is chosen.", "choose tables, or type names under further tables")
    if missing := [name for name in chosen if name not in captured]:
        raise ConfigError(
            f"Not captured by the connector: {', '.join(missing)}.",
            where=f"captured: {format_names(list(captured))}",
            safe="Nothing was sent.",
            remedy="choose tables of this connector; the next run captures a table that was added to its lists "
            "and takes its snapshot automatically",
        )
    return select_tables([*chosen, *typed], captured)


def _filters(conditions: Mapping[str, Any], tables: Sequence[str], captured: Mapping[str, str]) -> dict[str, str]:
    """Build filters by the exact names of chosen tables."""
    filters: dict[str, str] = {}
    for name, text in conditions.items():
        if isinstance(text, dict):  # of a database whose conditions are documents
            text = json.dumps(text, ensure_ascii=False)
        if not isinstance(text, str):
            raise _wrong(
                f"The filter of {name} is {text!r}, not a string.", 'write {"database.table": "a condition in SQL"}'
            )
        if not text.strip():
            continue
        names = [table for table in select_tables([name], captured) if table in tables]
        if not names:
            raise _wrong(
                f"The filter names {name}, which is not one of the tables.",
                f"the tables are {format_names(tables)}",
            )
        filters |= dict.fromkeys(names, text.strip())
    return filters


def _since(params: Mapping[str, Any]) -> tuple[str, datetime] | None:
    """Return a column, and the moment since which rows were changed."""
    column, moment = (params.get("changed_since_column") or "").strip(), params.get("changed_since") or ""
    if not column and not moment:
        return None
    if not column or not moment:
        raise _wrong("Changed since needs both a column and a time.", "fill in both, or neither")
    try:
        parsed_moment = datetime.fromisoformat(moment)
    except ValueError:
        raise _wrong(f"{moment!r} is not a time.", "for example 2025-01-31T00:00:00+00:00") from None
    return column, parsed_moment.astimezone(UTC) if parsed_moment.tzinfo is not None else parsed_moment


def _wrong(problem: str, remedy: str | None = None) -> ConfigError:
    return ConfigError(problem, safe="Nothing was sent.", remedy=remedy)
