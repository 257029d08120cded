"""Alerts of all connectors at once.

``airflow_provider_cdc.dag.alerts_dag`` makes a failed task of them, which Airflow reports as it reports others.

>>> with CdcStateHook().open_store() as store:
...     [format_alert(alert) for alert in load_alerts(store, AlertLimits(behind_s=300))]
['shop: 12 min behind its source [BehindSource]. Check: airflow cdc status shop; page: https://airflow.example.com/cdc/docs/alerts/BehindSource.md']

The word in brackets is the name of the alert's page in ``docs/alerts``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from airflow_provider_cdc.core.docs_addresses import build_docs_address
from airflow_provider_cdc.core.lifecycle.connector_status import ConnectorState, describe_set_aside, state_of, status_of
from airflow_provider_cdc.core.lifecycle.next_run import list_owed_applies
from airflow_provider_cdc.core.model.connector_offset import Offset
from airflow_provider_cdc.core.model.log_headroom import LogWindow
from airflow_provider_cdc.core.model.metric_samples import StoredSeries
from airflow_provider_cdc.core.remedy_commands import format_cdc_command
from airflow_provider_cdc.core.spi.state_records import ConnectorRecord, TargetProgress, TaskRun
from airflow_provider_cdc.hooks.page_links import format_log_path
from airflow_provider_cdc.services.dashboards.late_tables import LateTables, find_late_tables, target_name_of
from airflow_provider_cdc.services.dashboards.overview_models import (
    AlertKind,
    ConnectorAlert,
    FailedTask,
    LastError,
)
from airflow_provider_cdc.services.tasks.connector_fields import parse_owner
from airflow_provider_cdc.services.text.status_texts import (
    format_age,
    format_remaining_time,
    format_target_name,
    target_place,
)

if TYPE_CHECKING:
    from airflow_provider_cdc.state.state_store import StateStore


_SAFE = {
    AlertKind.NO_RUN: "All captured changes, and those that the source's log still has.",
    AlertKind.BEHIND_SOURCE: "Everything, as long as the source keeps its log.",
    AlertKind.LOG_ENDS: "All captured changes. Others are safe only until then.",
    AlertKind.TABLES_LEFT_BEHIND: "Everything: the change log keeps the batches that these tables lack.",
    AlertKind.APPLY_FAILED: "Everything: the change log keeps all batches that are not applied yet.",
    AlertKind.APPLY_SILENT: "Everything: the change log keeps all batches that are not applied yet.",
    AlertKind.TABLE_STALE: "Everything: the change log keeps all batches that the target has not applied.",
    AlertKind.EVENT_SET_ASIDE: "All rows of the table, and all events of other tables.",
}


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


def load_alerts(
    store: StateStore, limits: AlertLimits | None = None, now: datetime | None = None
) -> list[ConnectorAlert]:
    """Return the alerts of all connectors of a state database; the list is empty if all is well."""
    series: dict[str, list[StoredSeries]] = {}
    for stored in store.metrics.load_series():
        series.setdefault(stored.connector, []).append(stored)
    return [
        alert
        for record in store.list_connectors()
        for alert in _find_measured_alerts(store, record, series.get(record.connector, ()), limits, now)
    ]


def load_connector_alerts(
    store: StateStore, record: ConnectorRecord, limits: AlertLimits | None = None, now: datetime | None = None
) -> list[ConnectorAlert]:
    """Return the alerts of one connector; see :func:`load_alerts`."""
    return _find_measured_alerts(store, record, list(store.metrics.load_series(record.connector)), limits, now)


def _find_measured_alerts(
    store: StateStore,
    record: ConnectorRecord,
    series: Sequence[StoredSeries],
    limits: AlertLimits | None,
    now: datetime | None,
) -> list[ConnectorAlert]:
    """Return the alerts of a connector.

    :param series: metrics of the connector and of its topics
    """
    limits, now = limits or AlertLimits(), now or datetime.now(UTC)
    late = find_late_tables(store, record, series, now - timedelta(seconds=limits.stale_s))
    return find_alerts(record, [stored for stored in series if not stored.topic], limits, now, late)


def find_alerts(
    record: ConnectorRecord,
    series: Iterable[StoredSeries] = (),
    limits: AlertLimits | None = None,
    now: datetime | None = None,
    late: Iterable[LateTables] = (),
) -> list[ConnectorAlert]:
    """Return the alerts of one connector.

    A connector that a user has stopped has none; one that is paused has none but that of a log that is removed soon.

    :param series: metrics of the connector as a whole
    :param late: its tables that lack changes for longer than the limit
    """
    limits, now = limits or AlertLimits(), now or datetime.now(UTC)
    state = state_of(record)[0]
    if state is ConnectorState.PAUSED:  # the source's log does not wait for it
        return [alert for producer_series in series for alert in _of_log(producer_series, limits, now)]
    if state is ConnectorState.STOPPED:
        return []
    return [
        *_of_capture(record, limits, now),
        *_of_targets(record, limits, now),
        *(alert for producer_series in series for alert in _of_series(producer_series, record, limits, now)),
        *_of_tables(record.connector, late, now),
    ]


def build_alert(
    kind: AlertKind | None,
    sentence: str,
    *,
    connector: str,
    target: str = "",
    cause: LastError | None = None,
    run: TaskRun | None = None,
) -> ConnectorAlert:
    """Build an alert with its command and its page: that of the error with which a run has failed, if it has one, or of the alert.

    >>> build_alert(AlertKind.LOG_ENDS, "its source removes the log at its position in 2 h", connector="shop").page
    'docs/alerts/LogEnds.md'
    """
    page = "" if kind is None else build_docs_address(f"alerts/{kind}")
    if kind is AlertKind.RUN_FAILED and cause is not None:
        page = cause.page or page
    check = format_cdc_command("status", connector)
    return ConnectorAlert(
        kind=kind, connector=connector, sentence=sentence, target=target, cause=cause,
        safe="" if kind is None else _SAFE.get(kind, ""), task=None if run is None else _describe_run(run),
        check=check, page=page,
    )  # fmt: skip


def _describe_run(run: TaskRun) -> FailedTask:
    return FailedTask(**asdict(run), text=run.text, log_path=format_log_path(run))


def format_alert(alert: ConnectorAlert) -> str:
    """Format an alert as a sentence, with the command that shows more, and the address of its page.

    >>> format_alert(alert)
    'shop: 12 min behind its source [BehindSource]. Check: airflow cdc status shop; page: docs/alerts/BehindSource.md'
    """
    return f"{alert.connector}: {alert.sentence} [{alert.kind}]. Check: {alert.check}; page: {alert.page}"


def _of_capture(record: ConnectorRecord, limits: AlertLimits, now: datetime) -> Iterator[ConnectorAlert]:
    status = status_of(record, [])
    state = status.state
    if state is ConnectorState.FAILED:
        error = _first_sentence(status.last_error or "")
        yield build_alert(
            AlertKind.RUN_FAILED, f"the last run failed {format_age(status.state_since, now)}: {error}",
            connector=record.connector, cause=LastError.from_text(status.last_error or "", status.last_error_at),
            run=_find_failed_run(record),
        )  # fmt: skip
    ended = record.run_ended_at
    if state is not ConnectorState.RUNNING and ended is not None and (now - ended).total_seconds() > limits.silent_s:
        yield build_alert(
            AlertKind.NO_RUN, f"no run since the last run ended {format_age(ended, now)}", connector=record.connector
        )
    for table, text in describe_set_aside(record.offset or Offset(), now).items():
        yield build_alert(
            AlertKind.EVENT_SET_ASIDE,
            f"an event of {table} cannot be read: {text.rstrip('.')}",
            connector=record.connector,
        )


def _find_failed_run(record: ConnectorRecord) -> TaskRun | None:
    """Return the try of a task that failed last; one that was killed could record nothing, but its lease names it."""
    if record.dead_owner is None:
        return None if record.failure is None else record.failure.task_run
    dag_id = None if record.registration is None else record.registration.connections.get("dag")
    return None if dag_id is None else parse_owner(record.dead_owner, dag_id)


def _first_sentence(error: str) -> str:
    """Return the first line of an error, with the first entry of the list that it may begin."""
    first, *more = error.split("\n")
    return (f"{first} {more[0].strip().removeprefix('- ')}" if first.endswith(":") and more else first).rstrip(".")


def _of_series(
    series: StoredSeries, record: ConnectorRecord, limits: AlertLimits, now: datetime
) -> Iterator[ConnectorAlert]:
    behind_s = series.gauges.get("streaming.MilliSecondsBehindSource", 0) / 1000
    if behind_s > limits.behind_s:
        behind = format_age(now - timedelta(seconds=behind_s), now).removesuffix(" ago")
        yield build_alert(AlertKind.BEHIND_SOURCE, f"{behind} behind its source", connector=record.connector)
    yield from _of_log(series, limits, now)
    if "apply.LastRunFailed" not in series.gauges:
        return
    target, note = target_name_of(series), _find_note(series, record)
    where, cause, run = f"the apply to {target}", _find_cause(note), _find_run(note)
    failed = int(series.gauges.get("apply.FailedTables", 0))
    if failed:
        yield build_alert(
            AlertKind.TABLES_LEFT_BEHIND, f"{where} could not update {failed} table{'' if failed == 1 else 's'}",
            connector=record.connector, target=target, cause=cause, run=run,
        )  # fmt: skip
    elif series.gauges["apply.LastRunFailed"]:
        yield build_alert(
            AlertKind.APPLY_FAILED, f"{where} failed {format_age(series.at, now)}",
            connector=record.connector, target=target, cause=cause, run=run,
        )  # fmt: skip
    if record.targets:  # their notes say it
        return
    waits = record.last_batch > series.gauges.get("apply.LastBatch", 0)
    if waits and (now - series.at).total_seconds() > limits.silent_s:
        yield build_alert(
            AlertKind.APPLY_SILENT,
            f"{where} last ran {format_age(series.at, now)}, and batches up to {record.last_batch} are not applied",
            connector=record.connector, target=target,
        )  # fmt: skip


def _find_note(series: StoredSeries, record: ConnectorRecord) -> TargetProgress | None:
    """Return the note about the target of an apply's metrics."""
    place = series.tags.get("target"), series.tags.get("place")
    return next((noted for noted in record.targets if (noted.target, target_place(noted.location)) == place), None)


def _find_cause(note: TargetProgress | None) -> LastError | None:
    """Return the error of the last apply, if it has failed."""
    return LastError.from_text(note.error, note.ended_at) if note is not None and note.failures and note.error else None


def _find_run(note: TargetProgress | None) -> TaskRun | None:
    """Return the try of the last apply, if it has failed."""
    return None if note is None or note.failure is None or not note.failures else note.failure.task_run


def _of_tables(connector: str, late: Iterable[LateTables], now: datetime) -> Iterator[ConnectorAlert]:
    for tables in late:
        age = format_age(tables.since, now).removesuffix(" ago")
        more = f"; so do {tables.others} more tables" if tables.others else ""
        yield build_alert(
            AlertKind.TABLE_STALE,
            f"the table of {tables.topic} in {tables.target} is {age} old: it lacks changes that were captured since{more}",
            connector=connector, target=tables.target,
        )  # fmt: skip


def _of_targets(record: ConnectorRecord, limits: AlertLimits, now: datetime) -> Iterator[ConnectorAlert]:
    """Report the targets that lack what was captured, and that no apply has tried for long."""
    for owed in list_owed_applies(record):
        if (target := owed.target) is None or target.batch >= owed.batch:
            continue  # that an apply has failed says its series
        ran_at = max(filter(None, (target.began_at, target.ended_at)))
        # a continuous apply begins once an hour, and notes its progress at its end
        if (now - ran_at).total_seconds() > limits.silent_s * (2 if target.is_at_work else 1):
            yield build_alert(
                AlertKind.APPLY_SILENT,
                f"the apply to {target.target} at {target.location or 'an unknown place'} last ran {format_age(ran_at, now)}, "
                f"and batches up to {owed.batch} are not applied",
                connector=record.connector, target=format_target_name(target.target, target.location), cause=_find_cause(target),
                run=_find_run(target),
            )  # fmt: skip


def _of_log(series: StoredSeries, limits: AlertLimits, now: datetime) -> Iterator[ConnectorAlert]:
    gone_at = LogWindow.from_metrics(series.gauges, "streaming.").gone_at
    if gone_at is not None and (gone_at - now).total_seconds() < limits.log_left_s:
        yield build_alert(
            AlertKind.LOG_ENDS,
            f"its source removes the log at its position {format_remaining_time(gone_at, now)}: changes that are not captured by then are lost",
            connector=series.connector,
        )  # fmt: skip
