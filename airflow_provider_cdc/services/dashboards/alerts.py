"""What somebody should look at, of all connectors at once; ``dags/inventory_alerts.py`` makes a failed task of it, which Airflow reports as it reports others.

>>> with CdcStateHook().opened() as store:
...     alerts(store.connectors(), store.metrics.of(), Limits(behind_s=300))
['shop: 412 s behind its source [BehindSource]. Look: airflow cdc status shop']

The word in brackets is the name of the alert's page in ``docs/alerts``.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import NamedTuple

from airflow_provider_cdc.core.lifecycle.status import RunState, state_of, status_of
from airflow_provider_cdc.core.model.log_range import LogWindow
from airflow_provider_cdc.core.model.metric_samples import KeptSeries
from airflow_provider_cdc.core.remedy_commands import cdc
from airflow_provider_cdc.core.spi.state_records import ConnectorRecord
from airflow_provider_cdc.services.text.format_status import age, until


class AlertKind(enum.StrEnum):
    """What can be wrong; each has a page of its name in ``docs/alerts``."""

    RUN_FAILED = "RunFailed"
    NO_RUN = "NoRun"
    BEHIND_SOURCE = "BehindSource"
    LOG_ENDS = "LogEnds"
    TABLES_LEFT_BEHIND = "TablesLeftBehind"
    APPLY_FAILED = "ApplyFailed"
    APPLY_SILENT = "ApplySilent"


class Alert(NamedTuple):
    """One thing of a connector that is not as it should be."""

    kind: AlertKind
    text: str


@dataclass(frozen=True, slots=True)
class Limits:
    """Beyond what somebody should look.

    :param behind_s: how far a capture may be behind its source
    :param silent_s: how long ago the last run of a capture or of an apply may have ended; a run that goes on is not silent
    :param log_left_s: how soon the source may remove the log at the position of a capture
    """

    behind_s: float = 600
    silent_s: float = 3600
    log_left_s: float = 7200


def alerts(
    connectors: Iterable[ConnectorRecord],
    series: Iterable[KeptSeries],
    limits: Limits | None = None,
    now: datetime | None = None,
) -> list[str]:
    """A sentence for each thing that is not as it should be, with the command that shows more; empty if all is well.

    Connectors that somebody has stopped are left out; of those that are paused, only a log that is removed soon is told.

    :param series: what was measured, of these connectors and maybe of others
    """
    limits, now = limits or Limits(), now or datetime.now(UTC)
    measured: dict[str, list[KeptSeries]] = {}
    for one in series:
        if not one.topic:
            measured.setdefault(one.connector, []).append(one)
    return [
        f"{record.connector}: {text} [{kind}]. Look: {cdc('status', record.connector)}"
        for record in connectors
        for kind, text in problems(record, measured.get(record.connector, ()), limits, now)
    ]


def problems(record: ConnectorRecord, series: Iterable[KeptSeries], limits: Limits, now: datetime) -> list[Alert]:
    """The same of one connector, without its name and the command.

    :param series: what was measured of the connector as a whole
    """
    state = state_of(record)[0]
    if state is RunState.PAUSED:  # the source's log does not wait for it
        return [alert for one in series for alert in _of_log(one, limits, now)]
    if state is RunState.STOPPED:
        return []
    return [
        *_of_capture(record, limits, now),
        *(alert for one in series for alert in _of_series(one, record, limits, now)),
    ]


def _of_capture(record: ConnectorRecord, limits: Limits, now: datetime) -> Iterator[Alert]:
    status = status_of(record, [])
    state = status.state
    if state is RunState.FAILED:
        error = (status.last_error or "").split("\n")[0].rstrip(".")
        yield Alert(AlertKind.RUN_FAILED, f"the last run has failed, {age(status.since, now)}: {error}")
    ended = record.run_ended_at
    if state is not RunState.RUNNING and ended is not None and (now - ended).total_seconds() > limits.silent_s:
        yield Alert(AlertKind.NO_RUN, f"no run since one that ended {age(ended, now)}")


def _of_series(one: KeptSeries, record: ConnectorRecord, limits: Limits, now: datetime) -> Iterator[Alert]:
    behind_s = one.gauges.get("streaming.MilliSecondsBehindSource", 0) / 1000
    if behind_s > limits.behind_s:
        yield Alert(AlertKind.BEHIND_SOURCE, f"{behind_s:,.0f} s behind its source")
    yield from _of_log(one, limits, now)
    if "apply.LastRunFailed" not in one.gauges:
        return
    where = f"the apply to {one.tags.get('target', '')} ({one.tags.get('place', '')})"
    failed = int(one.gauges.get("apply.FailedTables", 0))
    if failed:
        yield Alert(AlertKind.TABLES_LEFT_BEHIND, f"{where} could not bring {failed} tables up to date")
    elif one.gauges["apply.LastRunFailed"]:
        yield Alert(AlertKind.APPLY_FAILED, f"{where} has failed, {age(one.at, now)}")
    waits = record.batch > one.gauges.get("apply.LastBatch", 0)
    if waits and (now - one.at).total_seconds() > limits.silent_s:
        yield Alert(
            AlertKind.APPLY_SILENT,
            f"{where} has not run since {age(one.at, now)}, and batches up to {record.batch} wait",
        )


def _of_log(one: KeptSeries, limits: Limits, now: datetime) -> Iterator[Alert]:
    gone_at = LogWindow.of(one.gauges, "streaming.").gone_at
    if gone_at is not None and (gone_at - now).total_seconds() < limits.log_left_s:
        yield Alert(
            AlertKind.LOG_ENDS,
            f"its source removes the log at its position {until(gone_at, now)}: what is not captured by then is lost",
        )
