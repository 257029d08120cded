"""The charts of a connector for an hour, a day or a week: its metrics interval by interval, and its events.

>>> charts_of(store, record, "day").series[0].points[-1].lag_s
0.4
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Literal

from pydantic import BaseModel, ConfigDict, Field

from airflow_provider_cdc.core.model.metric_rollups import (
    SPANS,
    ChartSpan,
    find_first_hour_length,
    merge_intervals,
    pieces_of,
)
from airflow_provider_cdc.core.model.metrics_last_hour import MetricsInterval
from airflow_provider_cdc.core.model.notifications import BLOCKING, INCREMENTAL, INITIAL, NotificationType

if TYPE_CHECKING:
    from airflow_provider_cdc.core.spi.state_records import ConnectorRecord
    from airflow_provider_cdc.state.state_store import StateStore

SpanName = Literal["hour", "day", "week"]
MOST = 100
"""Marks of each kind, the newest ones."""
_LOOKED_AT = 1000
_CLOCKS = timedelta(days=1)
"""By how much the clock of a database may be ahead."""
_TEXT = 500
"""Characters of a mark's text."""
_SNAPSHOTS = (INITIAL, INCREMENTAL, BLOCKING)
_SHOWN_TYPES = {NotificationType.STARTED, NotificationType.COMPLETED, NotificationType.ABORTED, NotificationType.FAILED}


class _ChartModel(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class ChartPoint(_ChartModel):
    """An interval of time. Values that were not measured are ``None``."""

    at: int = Field(description="Start of the interval, in seconds since 1970")
    events: int
    events_per_s: float
    lag_s: float | None = Field(description="Maximum lag of the capture behind its source")
    cpu: float | None = Field(description="Processor time of the capture process, as a fraction of one core")
    p50_s: float | None = Field(description="Median freshness of the commits, in seconds")
    p95_s: float | None


class ChartSeries(_ChartModel):
    """The metrics of one producer: the capture, or the apply to one target."""

    producer: str
    points: list[ChartPoint]


class ChartAnnotation(_ChartModel):
    """An event that is marked in the charts."""

    at: datetime
    kind: Literal["run", "error", "snapshot", "schema change"]
    text: str


class ConnectorCharts(_ChartModel):
    """The charts of a connector for a span of time up to now."""

    span: SpanName
    since: int = Field(description="Seconds since 1970; the begin of a connector in its first hour")
    until: int
    piece_s: int = Field(description="Length of an interval, in seconds; shorter in the first hour of a connector")
    series: list[ChartSeries]
    marks: list[ChartAnnotation] = Field(description="Oldest first; the newest hundred of each kind")


def charts_of(
    store: StateStore, record: ConnectorRecord, name: SpanName, now: datetime | None = None
) -> ConnectorCharts:
    """Load the contents of charts of a span, by a fixed number of queries."""
    now = now or datetime.now(UTC)
    now_s, rollups = now.timestamp(), store.metrics.load_rollups(record.connector)
    length = find_first_hour_length([short for _, _, short in rollups.values()], now_s) if name == "hour" else None
    young = length is not None
    span = SPANS[name] if length is None else ChartSpan(SPANS[name].seconds, length)
    series, marks = [], list[ChartAnnotation]()
    for producer, (stored, recent, short) in rollups.items():
        found = (
            merge_intervals([], [MetricsInterval.from_document(p) for p in short.pieces], span, now_s)
            if young
            else pieces_of(name, stored, recent, now_s)
        )
        pieces = _through(found, span, now_s)
        series.append(ChartSeries(producer=producer, points=[_point(piece, span, now_s) for piece in pieces]))
        marks += _runs(store, record.connector, producer)
    marks += _notification_marks(store, record.connector)
    starts = [chart.points[0].at for chart in series if chart.points]
    since_s = min(starts) if young and starts else span.compute_start(now_s)
    since = datetime.fromtimestamp(since_s, UTC)
    marks += _schema_changes(store, record.connector, since)
    return ConnectorCharts(
        span=name,
        since=since_s,
        until=int(now_s),
        piece_s=span.piece_s,
        series=sorted(series, key=lambda chart: (chart.producer != "capture", chart.producer)),
        marks=_newest([mark for mark in marks if since <= mark.at <= now]),
    )


def _through(pieces: Sequence[MetricsInterval], span: ChartSpan, now_s: float) -> list[MetricsInterval]:
    """Add the intervals without metrics, from the first one to the last that is over: otherwise a chart would draw a line through them."""
    if not pieces:
        return []
    by_start = {piece.at: piece for piece in pieces}
    last = max(pieces[-1].at, int(now_s) - span.piece_s)
    return [by_start.get(at) or MetricsInterval(at) for at in range(pieces[0].at, last + 1, span.piece_s)]


def _point(piece: MetricsInterval, span: ChartSpan, now_s: float) -> ChartPoint:
    seconds = min(max(now_s - piece.at, 1.0), span.piece_s)  # the last one is not over
    return ChartPoint(
        at=piece.at,
        events=piece.events,
        events_per_s=round(piece.events / seconds, 3),
        lag_s=piece.lag_s,
        cpu=None if piece.cpu_s is None else float(f"{piece.cpu_s / seconds:.4g}"),
        p50_s=piece.freshness.estimate_quantile(0.5),
        p95_s=piece.freshness.estimate_quantile(0.95),
    )


def _runs(store: StateStore, connector: str, producer: str) -> Iterator[ChartAnnotation]:
    context = "run" if producer == "capture" else "apply"
    for at, measured in store.metrics.load_run_history(connector, producer):
        gauges = measured["gauges"]
        failed = bool(gauges.get(f"{context}.LastRunFailed"))
        seconds = gauges.get(f"{context}.LastRunDurationInSeconds")
        after = "" if seconds is None else f" after {seconds:,.1f} s"
        yield ChartAnnotation(
            at=_utc(at), kind="error" if failed else "run", text=f"{producer} {'failed' if failed else 'ended'}{after}"
        )


def _notification_marks(store: StateStore, connector: str) -> Iterator[ChartAnnotation]:
    for record in store.list_notifications(connector, limit=_LOOKED_AT):
        notification = record.notification
        if notification.aggregate_type in _SNAPSHOTS and notification.type in _SHOWN_TYPES:
            tables = notification.additional_data.get("data_collections", "")
            text = f"{notification.aggregate_type} {notification.type}{f': {tables}' if tables else ''}"
            yield ChartAnnotation(at=_utc(record.created_at), kind="snapshot", text=_short(text))
        elif notification.type in (NotificationType.FAILED, NotificationType.REFUSED):
            why = notification.additional_data.get("error") or notification.additional_data.get("message", "")
            text = f"{notification.aggregate_type} {notification.type}{f': {why}' if why else ''}"
            yield ChartAnnotation(at=_utc(record.created_at), kind="error", text=_short(text))


def _schema_changes(store: StateStore, connector: str, since: datetime) -> Iterator[ChartAnnotation]:
    # a change is recorded after it was made, but for clocks that differ: the whole history may have the structures of thousands of tables
    for change in store.schema_changes_since(connector, since - _CLOCKS, _LOOKED_AT):
        if not change.snapshot and not change.internal:
            at = datetime.fromtimestamp(change.ts_us / 1_000_000, UTC)
            yield ChartAnnotation(at=at, kind="schema change", text=_short(change.ddl or change.database))


def _newest(marks: Sequence[ChartAnnotation]) -> list[ChartAnnotation]:
    by_time = sorted(marks, key=lambda mark: mark.at)
    kinds = {mark.kind for mark in marks}
    newest = [mark for kind in kinds for mark in [candidate for candidate in by_time if candidate.kind == kind][-MOST:]]
    return sorted(newest, key=lambda mark: mark.at)


def _short(text: str) -> str:
    return text if len(text) <= _TEXT else f"{text[:_TEXT]}…"


def _utc(at: datetime) -> datetime:
    return at if at.tzinfo is not None else at.replace(tzinfo=UTC)


__all__ = ["MOST", "ChartAnnotation", "ChartPoint", "ChartSeries", "ConnectorCharts", "SpanName", "charts_of"]
