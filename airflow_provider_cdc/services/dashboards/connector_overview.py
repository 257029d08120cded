"""Overview of all connectors, the most urgent one first. The number of queries does not depend on how many connectors and tables there are.

>>> with CdcStateHook().opened() as store:
...     [(line.connector, line.state, [alert.sentence for alert in line.alerts]) for line in load_overview(store)]
[('shop', 'failed', ['the last run failed 2 min ago: PositionLost: The log is gone'])]
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from airflow_provider_cdc.core.lifecycle.connector_status import ConnectorState, status_of
from airflow_provider_cdc.core.model.connector_signal import SignalState
from airflow_provider_cdc.core.model.job_progress import (
    ESTIMATE_AFTER_S,
    can_estimate,
    format_duration,
    round_estimate,
)
from airflow_provider_cdc.core.model.log_headroom import LogWindow
from airflow_provider_cdc.core.model.metric_rollups import ShortPieces
from airflow_provider_cdc.core.model.metric_samples import StoredSeries
from airflow_provider_cdc.core.model.metrics_last_hour import LastHourMetrics
from airflow_provider_cdc.core.spi.state_records import ConnectorRecord, SignalRecord, part_of
from airflow_provider_cdc.services.dashboards.connector_alerts import AlertLimits, build_alert, find_alerts
from airflow_provider_cdc.services.dashboards.lag_trend import find_lag_trend
from airflow_provider_cdc.services.dashboards.overview_models import (
    AttentionLevel,
    ConnectorAlert,
    ConnectorSummary,
    EventRate,
    Freshness,
    FreshnessPoint,
    LagTrend,
    LastError,
    NextRun,
    OldestTransaction,
    SnapshotProgress,
)
from airflow_provider_cdc.services.text.pause_gap_signal_texts import format_halt, progress_text
from airflow_provider_cdc.services.text.status_texts import format_age, pending_tables

if TYPE_CHECKING:
    from airflow_provider_cdc.core.lifecycle.connector_status import ConnectorStatus
    from airflow_provider_cdc.state.state_store import StateStore

_OLD_S = 600
"""Seconds after which a measurement says nothing of now: captures measure every few seconds."""


@dataclass(frozen=True, slots=True)
class ProducerMetrics:
    """The metrics of one producer for a connector as a whole.

    :param series: its gauges and texts alone
    :param freshness: of the last hour, as ``rates`` are, which captures alone have
    :param piece_s: seconds that a rate is of
    """

    series: StoredSeries
    freshness: Freshness | None
    rates: list[EventRate]
    piece_s: int

    @classmethod
    def from_series(cls, series: StoredSeries, lately: ShortPieces, now: datetime) -> ProducerMetrics:
        """Build the displayed metrics of a series.

        :param lately: pieces of the last hour
        """
        pieces, piece_s = lately.pieces, lately.piece_s
        hour, captures = LastHourMetrics.from_intervals(pieces, now.timestamp()), series.producer == "capture"
        bare = replace(series, counters={}, histograms={})
        return cls(
            bare, _freshness(hour, captures), _rates(hour, piece_s, now.timestamp()) if captures else [], piece_s
        )


def load_overview(
    store: StateStore,
    *,
    filter_visible: Callable[[Sequence[ConnectorRecord]], Iterable[ConnectorRecord]] = lambda records: records,
    next_run: Callable[[ConnectorRecord], NextRun | None] = lambda record: None,
    tags: Callable[[ConnectorRecord], Sequence[str]] = lambda record: (),
    now: datetime | None = None,
) -> list[ConnectorSummary]:
    """Return all connectors.

    :param filter_visible: selects the connectors that the user may see
    :param next_run: when the DAG that captures one of these runs next, where Airflow is queried
    :param tags: of that DAG
    """
    now = now or datetime.now(UTC)
    records = list(filter_visible(store.list_connectors(metrics=False)))
    wholes = wholes_of(store, now)
    signals = store.open_signals()
    lines = [
        line_of(r, wholes.get(r.connector, ()), signals.get(r.connector, ()), now, next_run(r), tags(r))
        for r in records
    ]
    return sorted(lines, key=_urgency)


def wholes_of(store: StateStore, now: datetime, connector: str | None = None) -> dict[str, list[ProducerMetrics]]:
    """Return the metrics of all connectors, or of one: connector → by its producers."""
    by_connector: dict[str, list[ProducerMetrics]] = {}
    for metrics in store.metrics.map_connector_totals(
        lambda series, lately: ProducerMetrics.from_series(series, lately, now), connector
    ):
        by_connector.setdefault(metrics.series.connector, []).append(metrics)
    for producers in by_connector.values():
        producers.sort(key=lambda metrics: metrics.series.producer)
    return by_connector


def line_of(
    record: ConnectorRecord,
    wholes: Sequence[ProducerMetrics],
    signals: Sequence[SignalRecord],
    now: datetime,
    next_run: NextRun | None = None,
    tags: Sequence[str] = (),
) -> ConnectorSummary:
    """Build the line of a connector.

    :param signals: those that have not ended
    """
    status = status_of(record, signals)
    standstills = [
        build_alert(None, sentence, connector=record.connector) for sentence in _standstills(record, status, now)
    ]
    alerts = [*find_alerts(record, [whole.series for whole in wholes], now=now), *standstills]
    capture = next((whole for whole in wholes if whole.series.producer == "capture"), None)
    gauges = {} if capture is None else capture.series.gauges
    registration, failed, window = (
        record.registration,
        status.state is ConnectorState.FAILED,
        LogWindow.from_metrics(gauges, "streaming."),
    )
    # that of the run before the one that has failed says nothing of the time since, in which nothing was read
    lag_ms = None if failed else gauges.get("streaming.MilliSecondsBehindSource")
    lag_at = None if capture is None or lag_ms is None else capture.series.at
    return ConnectorSummary(
        connector=record.connector, source=record.source_kind, state=status.state.value, state_since=status.state_since,
        phase=_phase(record, status), trouble=_trouble(status, wholes, alerts), alerts=alerts,
        position=record.offset_position, seq=record.last_seq, batch=record.last_batch, pending_tables=pending_tables(record), moved_at=record.moved_at,
        captured_by=record.owner, lease_s=round(record.lease_s, 1), changelog=None if registration is None else registration.changelog,
        freshness=_worst(wholes), lag_s=None if lag_ms is None else lag_ms / 1000,
        lag_at=lag_at, lag_trend=_lag_trend(capture, lag_ms, now), lag_bytes=None if failed else window.behind_bytes, log_gone_at=window.gone_at,
        events_per_s=[] if capture is None else capture.rates, snapshot=_snapshot(record, gauges, signals, now),
        oldest_transaction=None if capture is None else _oldest(capture.series),
        error=LastError.from_text(status.last_error, status.last_error_at) if failed and status.last_error else None,
        dag=None if registration is None else registration.connections.get("dag"), next_run=next_run, tags=list(tags),
    )  # fmt: skip


def _lag_trend(capture: ProducerMetrics | None, lag_ms: float | None, now: datetime) -> LagTrend | None:
    """Return the trend of the lag; a measurement that is old has none."""
    if capture is None or lag_ms is None or (now - capture.series.at).total_seconds() > _OLD_S:
        return None
    pieces = [(float(rate["at"]), rate["lag_s"]) for rate in capture.rates if rate["lag_s"] is not None]
    return find_lag_trend(lag_ms / 1000, capture.series.at.timestamp(), pieces, capture.piece_s)


def load_lag_text(store: StateStore, record: ConnectorRecord, now: datetime | None = None) -> str:
    """Return the lag of a connector behind its source in words, with its trend; empty if it is not known.

    >>> load_lag_text(store, record)
    '25 min behind the source, grows by 20 s a minute; measured 4 s ago'
    """
    now = now or datetime.now(UTC)
    line = line_of(record, wholes_of(store, now, record.connector).get(record.connector, ()), (), now)
    if line.lag_s is None:
        return ""
    trend = "" if line.lag_trend is None else f", {line.lag_trend.text}"
    return f"{format_duration(line.lag_s)} behind the source{trend}; measured {format_age(line.lag_at, now)}"


def _urgency(line: ConnectorSummary) -> tuple[Any, ...]:
    late = max(line.lag_s or 0.0, line.freshness.p95_s if line.freshness else 0.0)
    return -line.trouble, -len(line.alerts), -late, line.connector


def _trouble(
    status: ConnectorStatus, wholes: Sequence[ProducerMetrics], alerts: Sequence[ConnectorAlert]
) -> AttentionLevel:
    if status.state in (ConnectorState.PAUSED, ConnectorState.STOPPED):
        return AttentionLevel.RESTING
    broken = any(
        w.series.gauges.get("apply.LastRunFailed") or w.series.gauges.get("apply.FailedTables") for w in wholes
    )
    if status.state is ConnectorState.FAILED or broken or status.stopped:
        return AttentionLevel.FAILED
    return AttentionLevel.LATE if alerts else AttentionLevel.NONE


def _standstills(record: ConnectorRecord, status: ConnectorStatus, now: datetime) -> Iterator[str]:
    """Return a sentence for each part of a capture that stands still while its runs do not fail."""
    if status.state in (ConnectorState.PAUSED, ConnectorState.STOPPED):
        return
    for table, why in status.stopped.items():
        if f"{table}: {why}" in (status.last_error or ""):
            continue  # the failure of the last run says it
        yield f"nothing of {table} is captured until it is read again: {why}"
    silent = status.moved_at is not None and (now - status.moved_at).total_seconds() > AlertLimits().silent_s
    if status.pending and record.owner is not None and silent:
        yield f"the snapshot has committed nothing; its last commit was {format_age(status.moved_at, now)}"


def _phase(record: ConnectorRecord, status: ConnectorStatus) -> str:
    if text := format_halt(record.control):
        return text if record.owner is None else f"{text}; the active run ends at the next transaction"
    doing = "streams changes"
    if status.pending:
        number = len(status.pending)
        doing = f"takes a snapshot of {number:,} table{'' if number == 1 else 's'}"
    elif status.scans:
        doing = f"streams changes, with an incremental snapshot of {next(iter(status.scans))}{' (paused)' if status.scans_paused else ''}"
    if record.owner is not None:
        return doing
    if status.waits_after is not None and status.waits_until is not None:
        return f"waits after {status.waits_after} for a repair, until {status.waits_until:%Y-%m-%d %H:%M} UTC"
    if status.state is ConnectorState.FAILED:
        return "is idle until its next run"
    return f"is idle until its next run, which {doing}"


def _worst(wholes: Sequence[ProducerMetrics]) -> Freshness | None:
    """Return the freshness of the tables of the worst target.

    Where nothing was applied in the last hour, it is that of the change log.
    """
    all_freshness = [whole.freshness for whole in wholes if whole.freshness is not None]
    tables = [freshness for freshness in all_freshness if freshness.where == "tables"]
    return max(tables or all_freshness, key=lambda freshness: freshness.p95_s, default=None)


def _freshness(hour: LastHourMetrics, captures: bool) -> Freshness | None:
    p50, p95 = hour.freshness.estimate_quantile(0.5), hour.freshness.estimate_quantile(0.95)
    if p50 is None or p95 is None:
        return None
    worst = hour.worst or ("", 0.0)
    return Freshness(
        where="change log" if captures else "tables", commits=sum(hour.freshness.classes), p50_s=p50,
        p95_s=p95, worst_topic=worst[0], worst_s=worst[1], points=[FreshnessPoint(at=at, p95_s=p95_s) for at, p95_s in hour.fresh],
    )  # fmt: skip


def _rates(hour: LastHourMetrics, piece_s: int, now_s: float) -> list[EventRate]:
    return [  # the last one is not over
        EventRate(at=at, events_per_s=round(events / min(max(now_s - at, 1.0), piece_s), 3), lag_s=lag_s)
        for at, events, lag_s in hour.events
    ]


def _snapshot(
    record: ConnectorRecord, gauges: Mapping[str, float], signals: Sequence[SignalRecord], now: datetime
) -> SnapshotProgress | None:
    """Return the progress of the snapshot that is at work: one that a signal has asked for, or the first one."""
    running = next((s for s in signals if s.state is SignalState.RUNNING and "left" in s.progress), None)
    if running is not None:
        part = part_of(running.progress)
        elapsed = None if running.running_at is None else (now - running.running_at).total_seconds()
        return SnapshotProgress(text=progress_text(running.progress), part=part, left_s=_left(part, elapsed))
    left = len(pending_tables(record))
    if not left:
        return None
    total = max(int(gauges.get("snapshot.TotalTableCount", 0)), left)
    part, elapsed = (total - left) / total, gauges.get("snapshot.SnapshotDurationInSeconds", 0.0)
    # tables differ in size: the first small ones say nothing of the others
    left_s = _left(part, elapsed) if elapsed >= ESTIMATE_AFTER_S else None
    return SnapshotProgress(text=f"{left:,} of {total:,} tables left", part=part, left_s=left_s)


def _left(part: float | None, elapsed_s: float | None) -> float | None:
    if part is None or elapsed_s is None or not can_estimate(part, elapsed_s):
        return None
    return round_estimate(elapsed_s * (1 - part) / part)


def _oldest(captured: StoredSeries) -> OldestTransaction | None:
    """Only sources that keep open transactions measure it."""
    age_ms = captured.gauges.get("streaming.OldestTransactionAgeInMilliseconds")
    id_ = captured.texts.get("streaming.OldestTransactionId")
    return OldestTransaction(id=id_, age_s=age_ms / 1000) if age_ms and id_ else None


__all__ = ["ProducerMetrics", "line_of", "load_lag_text", "load_overview", "wholes_of"]
