"""The look-up of a row by a user: the permission, its record, and the history with the additions of state tables, targets and source."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from typing import TYPE_CHECKING, Any, TypeVar

from airflow_provider_cdc.changelog.row_history.row_history_models import KeyColumn
from airflow_provider_cdc.core.errors import ConfigError, NotGranted
from airflow_provider_cdc.core.model.notifications import ROW, Notification, NotificationType
from airflow_provider_cdc.core.model.schema_history import SchemaHistory
from airflow_provider_cdc.hooks.airflow_compat import conf
from airflow_provider_cdc.services.connectors.bounded_calls import call_log_in_time, call_source_in_time
from airflow_provider_cdc.services.connectors.connector_handle import ConnectorAccess, access_of, find_connector
from airflow_provider_cdc.services.row_history.row_apply_times import applied_at
from airflow_provider_cdc.services.row_history.source_row_reader import at_source
from airflow_provider_cdc.services.row_history.target_row_reader import at_targets

if TYPE_CHECKING:
    from airflow_provider_cdc.changelog.reports.apply_report import ApplyReport
    from airflow_provider_cdc.changelog.row_history.key_event_reader import KeyEventReader
    from airflow_provider_cdc.changelog.row_history.key_index_segment import KeyColumns
    from airflow_provider_cdc.changelog.row_history.row_history_models import CurrentSourceRow, RowHistory
    from airflow_provider_cdc.changelog.row_history.row_key import RowKey
    from airflow_provider_cdc.core.model.table_schema import TableId
    from airflow_provider_cdc.core.spi.state_records import ConnectorRecord
    from airflow_provider_cdc.state.state_store import StateStore

_T = TypeVar("_T")
OPTION = "show_rows_of"
_NOTHING = "Nothing was shown."


@dataclass(frozen=True, slots=True)
class RowQuery:
    """A request for the history of a row.

    :param table: as include lists spell it
    :param key: values of the key columns in their order, as texts; or one JSON object
    :param connector: that has captured it; empty where only one has
    :param by: who asks
    :param as_of: the row as of this time; in UTC, if it does not say otherwise
    :param compare: read the row at the source, too
    :param conn_ids: of target databases that may be queried
    :param seconds: seconds to spend on batches that the index of keys does not know yet
    :param answer_s: seconds to wait for the change log, for the targets, and for the source; ``None``: as long as they take
    """

    table: str
    key: Sequence[str]
    by: str
    connector: str = ""
    as_of: datetime | None = None
    compare: bool = False
    conn_ids: Sequence[str] = ()
    seconds: float = 60.0
    answer_s: float | None = None

    @property
    def requested_time(self) -> datetime | None:
        """The time for which the row is requested."""
        return self.as_of if self.as_of is None or self.as_of.tzinfo is not None else self.as_of.replace(tzinfo=UTC)


def load_row_history(
    store: StateStore, query: RowQuery, report_progress: Callable[[int, int], None] | None = None
) -> RowHistory:
    """Return the history of a row.

    :param report_progress: is called with the number of indexed batches, and of all batches to index
    :raises NotGranted: no user may see rows of the connector
    :raises ConfigError: there is no such table, or it has no such key
    :raises SourceUnavailable: the change log or the source has not answered in time
    """
    from airflow_provider_cdc.changelog.reports.apply_report_store import ApplyReports
    from airflow_provider_cdc.changelog.row_history.key_event_reader import KeyEventReader
    from airflow_provider_cdc.changelog.row_history.row_history_reader import RowHistoryReader
    from airflow_provider_cdc.changelog.row_history.row_key import key_of_texts
    from airflow_provider_cdc.changelog.row_history.row_masking import RowMasks

    connector, table = _table_of(store, query)
    may_show(connector)
    record, access = _access(store, connector)
    masks = RowMasks(_properties(access))

    def read_log() -> tuple[RowKey, RowHistory, list[ApplyReport]]:
        changelog = access.open_change_log()
        deadline = time.monotonic() + query.seconds
        events = KeyEventReader(changelog, connector, deadline, report_progress, after=record.last_batch)
        key = key_of_texts(query.key, _key_columns(events, table), str(table))
        _record(store, connector, table, query)
        history = cache(lambda name: store.schema_changes_of(connector, name))
        story = RowHistoryReader(events, connector, history, masks).read_history(table, key, as_of=query.requested_time)
        applied_at(story, access, store)
        return key, story, ApplyReports(changelog.storage, connector).list_reports() if query.as_of is None else []

    key, story, reports = _read_log(query, connector, read_log)
    if query.as_of is None:
        story.targets = at_targets(story, reports, access, table, masks, query.conn_ids, query.answer_s)
    if query.compare:
        schema = SchemaHistory.from_stored(store.load_schemas(connector)).find_schema(table)

        def read_source() -> CurrentSourceRow:
            return at_source(story, access, table, key, schema)

        if query.answer_s is None:
            story.source = read_source()
        else:
            name = f"The source of {connector}"
            story.source = call_source_in_time(query.answer_s, access.conn_id, read_source, name=name)
    return story


def _read_log(query: RowQuery, connector: str, read: Callable[[], _T]) -> _T:
    """Read the change log of a connector within the time of a query.

    :raises SourceUnavailable: it has not answered in time
    """
    return read() if query.answer_s is None else call_log_in_time(query.answer_s, connector, read, safe=_NOTHING)


def row_keys(store: StateStore, query: RowQuery) -> list[KeyColumn]:
    """Return the columns of a table's key, and how a value of each is given. It shows no data.

    :param query: only its table, connector and times are used
    :raises ConfigError: there is no such table, or it has no key
    """
    from airflow_provider_cdc.changelog.row_history.key_event_reader import KeyEventReader
    from airflow_provider_cdc.core.model.key_json import describe_value_form
    from airflow_provider_cdc.core.model.table_schema import Column

    connector, table = _table_of(store, query)
    record, access = _access(store, connector)

    def read_columns() -> KeyColumns:
        deadline = time.monotonic() + query.seconds
        return _key_columns(
            KeyEventReader(access.open_change_log(), connector, deadline, after=record.last_batch), table
        )

    columns = (Column(name=name, type=type_) for name, type_ in _read_log(query, connector, read_columns))
    return [KeyColumn(name=column.name, type=column.type, form=describe_value_form(column)) for column in columns]


def _access(store: StateStore, connector: str) -> tuple[ConnectorRecord, ConnectorAccess]:
    """Return the record of a connector and the access to it.

    :raises ConfigError: it is not recorded where its change log is
    """
    record = find_connector(store, connector)
    access = access_of(record)
    if access is None:
        raise ConfigError(
            f"The location of the change log of {connector} is not recorded.",
            safe=_NOTHING,
            remedy="run the capture of the connector once",
        )
    return record, access


def may_show(connector: str) -> None:
    """Make sure that rows of a connector may be shown: Airflow's configuration names it in ``[cdc] show_rows_of``, or has ``*`` there.

    :raises NotGranted: it does not
    """
    shown = {name.strip() for name in conf.get("cdc", OPTION, fallback="").split(",")}
    if shown.isdisjoint({connector, "*"}):
        raise NotGranted(
            f"Rows of {connector} cannot be shown: rows are data, and showing them is disabled by default.",
            where=f"[cdc] {OPTION} of Airflow's configuration",
            safe=_NOTHING,
            remedy=f"an administrator of this Airflow sets AIRFLOW__CDC__{OPTION.upper()}={connector}, or comma-separated names, or *",
        )


def _record(store: StateStore, connector: str, table: TableId, query: RowQuery) -> None:
    """Record the user and the row of the look-up, before anything is shown."""
    data = {
        "connector_name": connector, "by": query.by, "table": table.full_name, "key": " ".join(query.key),
        **({"as_of": query.requested_time.isoformat()} if query.requested_time else {}), **({"compare": "source"} if query.compare else {}),
    }  # fmt: skip
    store.add_notification(
        connector, Notification(aggregate_type=ROW, type=NotificationType.VIEWED, additional_data=data)
    )


def _properties(access: ConnectorAccess) -> dict[str, Any]:
    """Return the properties of a connector as they are now.

    If its connection is gone, they are as they were in its last run.
    """
    try:
        return {**access.definition.properties, **access.resolve_properties()}
    except ConfigError:
        return dict(access.definition.properties)


def _table_of(store: StateStore, query: RowQuery) -> tuple[str, TableId]:
    """Return the connector that captures a table, and the table's id.

    :raises ConfigError: there is none, or more than one
    """
    names = [query.connector] if query.connector else [record.connector for record in store.list_connectors()]
    for name in names if query.connector else ():
        find_connector(store, name)
    tables = {name: SchemaHistory.from_stored(store.load_schemas(name)).ever_known_tables for name in names}
    matches = [(name, id_) for name, ids in tables.items() for id_ in ids if query.table in (str(id_), id_.full_name)]
    if not matches:
        some = sorted({str(id_) for ids in tables.values() for id_ in ids})
        raise ConfigError(
            f"No connector has captured a table {query.table}.",
            where=f"tables: {', '.join(some[:20]) or 'none'}{' …' if len(some) > 20 else ''}",
            safe=_NOTHING,
            remedy="name it as <database>.<table>, or <schema>.<table>",
        )
    if len(matches) > 1:
        raise ConfigError(
            f"{len(matches)} connectors have captured a table {query.table}: {', '.join(name for name, _ in matches)}.",
            safe=_NOTHING,
            remedy=f"select one with --connector {matches[0][0]}",
        )
    return matches[0]


def _key_columns(events: KeyEventReader, table: TableId) -> KeyColumns:
    """Return the key columns of the newest version.

    :raises ConfigError: the change log has no event of the table, or it has no key
    """
    versions = events.list_key_columns().get(table.full_name)
    if not versions:
        raise ConfigError(
            f"The change log has no event of {table}: batches {events.first} to {events.last} were searched.",
            safe=_NOTHING,
        )
    columns = versions[max(versions)][-1]
    if not columns:
        raise ConfigError(
            f"{table} has no key: its events cannot be assigned to rows.",
            safe=_NOTHING,
            remedy="give the table a primary key, or set its key columns with message.key.columns of the connector: the row history starts there",
        )
    return columns


__all__ = ["OPTION", "RowQuery", "load_row_history", "may_show", "row_keys"]
