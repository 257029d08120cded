"""All connectors at a look, the one that wants to be looked at most first. The number of queries does not depend on how many connectors and tables there are.

>>> with CdcStateHook().opened() as store:
...     [(line.connector, line.state, line.problems) for line in overview(store)]
[('shop', 'failed', ['the last run has failed, 2 min ago: The log is gone.'])]
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from airflow_provider_cdc.core.lifecycle.status import RunState, status_of
from airflow_provider_cdc.core.model.measured import Histogram, KeptSeries
from airflow_provider_cdc.core.model.overview import (
    ConnectorLine,
    Freshness,
    LastError,
    OpenTransaction,
    Rate,
    SnapshotProgress,
    Trouble,
)
from airflow_provider_cdc.core.model.recent import PIECE_S, Piece, of_last_hour
from airflow_provider_cdc.core.model.signal import SignalState
from airflow_provider_cdc.core.spi.records import ConnectorRecord, SignalRecord, part_of
from airflow_provider_cdc.hooks.alerts import Limits, problems
from airflow_provider_cdc.hooks.signal_texts import halted, progress_text
from airflow_provider_cdc.hooks.status_texts import pending_tables

if TYPE_CHECKING:
    from airflow_provider_cdc.core.lifecycle.status import Status
    from airflow_provider_cdc.state.store import StateStore

Whole = tuple[KeptSeries, list[Piece]]
"""What one producer has measured of a connector as a whole, and what there was in the last hour."""


def overview(
    store: StateStore,
    *,
    seen: Callable[[Sequence[ConnectorRecord]], Iterable[ConnectorRecord]] = lambda records: records,
    now: datetime | None = None,
) -> list[ConnectorLine]:
    """All connectors.

    :param seen: those of them that are shown to whoever asks
    """
    now = now or datetime.now(UTC)
    records = list(seen(store.connectors()))
    wholes: dict[str, list[Whole]] = {}
    for one in store.metrics.wholes():
        wholes.setdefault(one[0].connector, []).append(one)
    signals = store.open_signals()
    lines = [line_of(r, wholes.get(r.connector, ()), signals.get(r.connector, ()), now) for r in records]
    return sorted(lines, key=_urgency)


def line_of(
    record: ConnectorRecord, wholes: Sequence[Whole], signals: Sequence[SignalRecord], now: datetime
) -> ConnectorLine:
    """One connector.

    :param signals: those that have not ended
    """
    status = status_of(record, signals)
    found = problems(record, [series for series, _ in wholes], Limits(), now)
    gauges = next((series.gauges for series, _ in wholes if series.producer == "capture"), {})
    known, lag_ms = record.registration, gauges.get("streaming.MilliSecondsBehindSource")
    failed = status.state is RunState.FAILED
    return ConnectorLine(
        connector=record.connector, source=record.source, state=status.state.value, since=status.since,
        phase=_phase(record, status), trouble=_trouble(status, wholes, found), problems=found, position=record.position,
        seq=record.seq, batch=record.batch, pending_tables=pending_tables(record), moved_at=record.moved_at,
        captured_by=record.owner, lease_s=round(record.lease_s, 1), changelog=None if known is None else known.changelog,
        freshness=_freshness(wholes, now), lag_s=None if lag_ms is None else lag_ms / 1000, events_per_s=_rates(wholes, now),
        snapshot=_snapshot(record, gauges, signals, now), oldest_transaction=_oldest(record, gauges),
        error=LastError.of(status.last_error, status.last_error_at) if failed and status.last_error else None,
        dag=None if known is None else known.connections.get("dag"),
    )  # fmt: skip


def _urgency(line: ConnectorLine) -> tuple[Any, ...]:
    late = max(line.lag_s or 0.0, line.freshness.p95_s if line.freshness else 0.0)
    return -line.trouble, -len(line.problems), -late, line.connector


def _trouble(status: Status, wholes: Sequence[Whole], found: Sequence[str]) -> Trouble:
    if status.state in (RunState.PAUSED, RunState.STOPPED):
        return Trouble.RESTING
    broken = any(s.gauges.get("apply.LastRunFailed") or s.gauges.get("apply.FailedTables") for s, _ in wholes)
    if status.state is RunState.FAILED or broken:
        return Trouble.FAILED
    return Trouble.LATE if found else Trouble.NONE


def _phase(record: ConnectorRecord, status: Status) -> str:
    if text := halted(record.control):
        return text if record.owner is None else f"{text}; the run that is alive ends at the next transaction"
    doing = "streams changes"
    if status.pending:
        number = len(status.pending)
        doing = f"reads {number:,} table{'' if number == 1 else 's'} whole"
    elif status.scans:
        doing = f"streams changes, and reads {next(iter(status.scans))} in chunks{' (paused)' if status.scans_paused else ''}"
    if record.owner is not None:
        return doing
    if status.state is RunState.FAILED:
        return "stands still until its next run"
    return f"rests until its next run, which {doing}"


def _freshness(wholes: Sequence[Whole], now: datetime) -> Freshness | None:
    """Of the tables of the target that is the worst; of the change log where nothing was applied in the last hour."""
    found = [(series.producer != "capture", _fresh(series, pieces, now)) for series, pieces in wholes]
    tables = [one for applied, one in found if applied and one is not None]
    return max(tables or [one for _, one in found if one is not None], key=lambda one: one.p95_s, default=None)


def _fresh(series: KeptSeries, pieces: Sequence[Piece], now: datetime) -> Freshness | None:
    histogram, worst = Histogram(), ("", 0.0)
    for piece in of_last_hour(pieces, now.timestamp()):
        histogram.merge(piece.freshness)
        worst = max(worst, piece.worst or worst, key=lambda one: one[1])
    p50, p95 = histogram.quantile(0.5), histogram.quantile(0.95)
    if p50 is None or p95 is None:
        return None
    return Freshness(
        where="change log" if series.producer == "capture" else "tables", commits=sum(histogram.classes), p50_s=p50,
        p95_s=p95, worst_topic=worst[0], worst_s=worst[1],
    )  # fmt: skip


def _rates(wholes: Sequence[Whole], now: datetime) -> list[Rate]:
    captured = next((pieces for series, pieces in wholes if series.producer == "capture"), [])
    found = []
    for piece in of_last_hour(captured, now.timestamp()):
        seconds = min(max(now.timestamp() - piece.at, 1.0), PIECE_S)  # the last one goes on
        found.append(Rate(at=piece.at, events_per_s=round(piece.events / seconds, 3)))
    return found


def _snapshot(
    record: ConnectorRecord, gauges: Mapping[str, float], signals: Sequence[SignalRecord], now: datetime
) -> SnapshotProgress | None:
    """Of the snapshot that is at work: one that a signal has asked for, or the first one."""
    asked = next((s for s in signals if s.state is SignalState.RUNNING and "left" in s.progress), None)
    if asked is not None:
        part = part_of(asked.progress)
        elapsed = None if asked.running_at is None else (now - asked.running_at).total_seconds()
        return SnapshotProgress(text=progress_text(asked.progress), part=part, left_s=_left(part, elapsed))
    left = len(pending_tables(record))
    if not left:
        return None
    total = max(int(gauges.get("snapshot.TotalTableCount", 0)), left)
    part = (total - left) / total
    return SnapshotProgress(
        text=f"{left:,} of {total:,} tables left", part=part, left_s=_left(part, gauges.get("snapshot.SnapshotDurationInSeconds"))
    )  # fmt: skip


def _left(part: float | None, elapsed_s: float | None) -> float | None:
    return None if not part or elapsed_s is None else round(elapsed_s * (1 - part) / part, 1)


def _oldest(record: ConnectorRecord, gauges: Mapping[str, float]) -> OpenTransaction | None:
    """Only sources that keep open transactions measure it."""
    age_ms = gauges.get("streaming.OldestTransactionAgeInMilliseconds")
    id_ = record.metrics.get("streaming", {}).get("OldestTransactionId")
    return OpenTransaction(id=str(id_), age_s=age_ms / 1000) if age_ms and id_ else None


__all__ = ["Whole", "line_of", "overview"]
