"""Alerts of all connectors at once.

``airflow_provider_cdc.dag.alerts_dag`` makes a failed task of them, which Airflow reports as it reports others.

>>> with CdcStateHook().open_store() as store:
...     load_alerts(store, AlertLimits(behind_s=300))
['shop: 12 min behind its source [BehindSource]. Check: airflow cdc status shop; page: https://airflow.example.com/cdc/docs/alerts/BehindSource.md']

The word in brackets is the name of the alert's page in ``docs/alerts``.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, NamedTuple

from airflow_provider_cdc.core.docs_addresses import build_docs_address
from airflow_provider_cdc.core.error_texts import build_page_address, split_error_name
from airflow_provider_cdc.core.lifecycle.connector_status import ConnectorState, describe_set_aside, state_of, status_of
from airflow_provider_cdc.core.lifecycle.next_run import list_owed_applies
from airflow_provider_cdc.core.model.connector_offset import Offset
from airflow_provider_cdc.core.model.log_headroom import LogWindow
from airflow_provider_cdc.core.model.metric_samples import StoredSeries
from airflow_provider_cdc.core.remedy_commands import format_cdc_command
from airflow_provider_cdc.core.spi.state_records import ConnectorRecord
from airflow_provider_cdc.services.dashboards.late_tables import LateTables, find_late_tables, target_name_of
from airflow_provider_cdc.services.text.status_texts import format_age, format_remaining_time

if TYPE_CHECKING:
    from airflow_provider_cdc.state.state_store import StateStore


class AlertKind(enum.StrEnum):
    """A kind of alert; each has a page of its name in ``docs/alerts``."""

    RUN_FAILED = "RunFailed"
    NO_RUN = "NoRun"
    BEHIND_SOURCE = "BehindSource"
    LOG_ENDS = "LogEnds"
    TABLES_LEFT_BEHIND = "TablesLeftBehind"
    APPLY_FAILED = "ApplyFailed"
    APPLY_SILENT = "ApplySilent"
    TABLE_STALE = "TableStale"
    EVENT_SET_ASIDE = "EventSetAside"


class Alert(NamedTuple):
    """A condition of a connector that is not as it should be."""

    kind: AlertKind
    text: str


@dataclass(frozen=True, slots=True)
class AlertLimits:
    """Limits beyond which an alert is given.

    :param behind_s: how far a capture may be behind its source
    :param silent_s: how long ago the last run of a capture or of an apply may have ended; a run that is still alive is not silent
    :param log_left_s: how soon the source may remove the log at the position of a capture
    :param stale_s: how long ago the oldest change that a table of a target lacks may have been captured
    """

    behind_s: float = 600
    silent_s: float = 3600
    log_left_s: float = 7200
    stale_s: float = 3600


def load_alerts(store: StateStore, limits: AlertLimits | None = None, now: datetime | None = None) -> list[str]:
    """Return the alerts of all connectors of a state database; see :func:`format_alerts`."""
    limits, now = limits or AlertLimits(), now or datetime.now(UTC)
    connectors, series = list(store.list_connectors()), list(store.metrics.load_series())
    before = now - timedelta(seconds=limits.stale_s)
    applied: dict[str, list[StoredSeries]] = {}
    for stored in series:
        applied.setdefault(stored.connector, []).append(stored)
    late = {
        record.connector: find_late_tables(store, record, applied.get(record.connector, ()), before)
        for record in connectors
    }
    return format_alerts(connectors, series, limits, now, late)


def format_alerts(
    connectors: Iterable[ConnectorRecord],
    series: Iterable[StoredSeries],
    limits: AlertLimits | None = None,
    now: datetime | None = None,
    late: Mapping[str, Sequence[LateTables]] | None = None,
) -> list[str]:
    """Return a sentence for each problem, with the command that shows more, and the address of the page of the error or of the alert.

    The list is empty if all is well. Connectors that a user has stopped are left out; of those that are paused, only a log that is removed soon is
    reported.

    :param series: metrics of these connectors, and maybe of others
    :param late: connector → the tables that lack changes for longer than the limit
    """
    limits, now = limits or AlertLimits(), now or datetime.now(UTC)
    measured: dict[str, list[StoredSeries]] = {}
    for stored in series:
        if not stored.topic:
            measured.setdefault(stored.connector, []).append(stored)
    return [
        f"{record.connector}: {text} [{kind}]. Check: {format_cdc_command('status', record.connector)}; page: {find_alert_page(record, kind)}"
        for record in connectors
        for kind, text in find_alerts(
            record, measured.get(record.connector, ()), limits, now, (late or {}).get(record.connector, ())
        )
    ]


def find_alerts(
    record: ConnectorRecord,
    series: Iterable[StoredSeries],
    limits: AlertLimits,
    now: datetime,
    late: Iterable[LateTables] = (),
) -> list[Alert]:
    """Return the same of one connector, without its name and the command.

    :param series: metrics of the connector as a whole
    :param late: its tables that lack changes for longer than the limit
    """
    state = state_of(record)[0]
    if state is ConnectorState.PAUSED:  # the source's log does not wait for it
        return [alert for producer_series in series for alert in _of_log(producer_series, limits, now)]
    if state is ConnectorState.STOPPED:
        return []
    return [
        *_of_capture(record, limits, now),
        *_of_targets(record, limits, now),
        *(alert for producer_series in series for alert in _of_series(producer_series, record, limits, now)),
        *_of_tables(late, now),
    ]


def find_alert_page(record: ConnectorRecord, kind: AlertKind) -> str:
    """Find the address of the page of a connector's error, if it has one, or of the alert.

    >>> find_alert_page(record, AlertKind.LOG_ENDS)
    'docs/alerts/LogEnds.md'
    """
    name = split_error_name(status_of(record, []).last_error or "")[0] if kind is AlertKind.RUN_FAILED else ""
    return build_page_address(name) or build_docs_address(f"alerts/{kind}")


def _of_capture(record: ConnectorRecord, limits: AlertLimits, now: datetime) -> Iterator[Alert]:
    status = status_of(record, [])
    state = status.state
    if state is ConnectorState.FAILED:
        error = _first_sentence(status.last_error or "")
        yield Alert(AlertKind.RUN_FAILED, f"the last run failed {format_age(status.state_since, now)}: {error}")
    ended = record.run_ended_at
    if state is not ConnectorState.RUNNING and ended is not None and (now - ended).total_seconds() > limits.silent_s:
        yield Alert(AlertKind.NO_RUN, f"no run since the last run ended {format_age(ended, now)}")
    for table, text in describe_set_aside(record.offset or Offset(), now).items():
        yield Alert(AlertKind.EVENT_SET_ASIDE, f"an event of {table} cannot be read: {text.rstrip('.')}")


def _first_sentence(error: str) -> str:
    """Return the first line of an error, with the first entry of the list that it may begin."""
    first, *more = error.split("\n")
    return (f"{first} {more[0].strip().removeprefix('- ')}" if first.endswith(":") and more else first).rstrip(".")


def _of_series(series: StoredSeries, record: ConnectorRecord, limits: AlertLimits, now: datetime) -> Iterator[Alert]:
    behind_s = series.gauges.get("streaming.MilliSecondsBehindSource", 0) / 1000
    if behind_s > limits.behind_s:
        behind = format_age(now - timedelta(seconds=behind_s), now).removesuffix(" ago")
        yield Alert(AlertKind.BEHIND_SOURCE, f"{behind} behind its source")
    yield from _of_log(series, limits, now)
    if "apply.LastRunFailed" not in series.gauges:
        return
    where = f"the apply to {target_name_of(series)}"
    failed = int(series.gauges.get("apply.FailedTables", 0))
    if failed:
        yield Alert(
            AlertKind.TABLES_LEFT_BEHIND, f"{where} could not update {failed} table{'' if failed == 1 else 's'}"
        )
    elif series.gauges["apply.LastRunFailed"]:
        yield Alert(AlertKind.APPLY_FAILED, f"{where} failed {format_age(series.at, now)}")
    if record.targets:  # their notes say it
        return
    waits = record.last_batch > series.gauges.get("apply.LastBatch", 0)
    if waits and (now - series.at).total_seconds() > limits.silent_s:
        yield Alert(
            AlertKind.APPLY_SILENT,
            f"{where} last ran {format_age(series.at, now)}, and batches up to {record.last_batch} are not applied",
        )


def _of_tables(late: Iterable[LateTables], now: datetime) -> Iterator[Alert]:
    for tables in late:
        age = format_age(tables.since, now).removesuffix(" ago")
        more = f"; so do {tables.others} more tables" if tables.others else ""
        yield Alert(
            AlertKind.TABLE_STALE,
            f"the table of {tables.topic} in {tables.target} is {age} old: it lacks changes that were captured since{more}",
        )


def _of_targets(record: ConnectorRecord, limits: AlertLimits, now: datetime) -> Iterator[Alert]:
    """Report the targets that lack what was captured, and that no apply has tried for long."""
    for owed in list_owed_applies(record):
        if (target := owed.target) is None or target.batch >= owed.batch:
            continue  # that an apply has failed says its series
        ran_at = max(filter(None, (target.began_at, target.ended_at)))
        # a continuous apply begins once an hour, and notes its progress at its end
        if (now - ran_at).total_seconds() > limits.silent_s * (2 if target.is_at_work else 1):
            yield Alert(
                AlertKind.APPLY_SILENT,
                f"the apply to {target.target} at {target.location or 'an unknown place'} last ran {format_age(ran_at, now)}, "
                f"and batches up to {owed.batch} are not applied",
            )


def _of_log(series: StoredSeries, limits: AlertLimits, now: datetime) -> Iterator[Alert]:
    gone_at = LogWindow.from_metrics(series.gauges, "streaming.").gone_at
    if gone_at is not None and (gone_at - now).total_seconds() < limits.log_left_s:
        yield Alert(
            AlertKind.LOG_ENDS,
            f"its source removes the log at its position {format_remaining_time(gone_at, now)}: changes that are not captured by then are lost",
        )
