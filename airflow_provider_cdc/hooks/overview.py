"""All connectors at a look, the one that wants to be looked at most first. The number of queries does not depend on how many connectors and tables there are.

>>> with CdcStateHook().opened() as store:
...     [(line.connector, line.state, line.problems) for line in overview(store)]
[('shop', 'failed', ['the last run has failed, 2 min ago: The log is gone.'])]
"""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from airflow_provider_cdc.core.lifecycle.status import RunState, status_of
from airflow_provider_cdc.core.model.log_window import LogWindow
from airflow_provider_cdc.core.model.measured import KeptSeries
from airflow_provider_cdc.core.model.overview import (
    ConnectorLine,
    Freshness,
    LastError,
    NextRun,
    OpenTransaction,
    Rate,
    SnapshotProgress,
    Trouble,
)
from airflow_provider_cdc.core.model.recent import PIECE_S, LastHour
from airflow_provider_cdc.core.model.signal import SignalState
from airflow_provider_cdc.core.spi.records import ConnectorRecord, SignalRecord, part_of
from airflow_provider_cdc.hooks.alerts import Limits, problems
from airflow_provider_cdc.hooks.signal_texts import halted, progress_text
from airflow_provider_cdc.hooks.status_texts import pending_tables

if TYPE_CHECKING:
    from airflow_provider_cdc.core.lifecycle.status import Status
    from airflow_provider_cdc.state.store import StateStore

Whole = tuple[KeptSeries, list[dict[str, Any]]]
"""What one producer has measured of a connector as a whole, and the pieces of the last hour."""


def overview(
    store: StateStore,
    *,
    seen: Callable[[Sequence[ConnectorRecord]], Iterable[ConnectorRecord]] = lambda records: records,
    next_run: Callable[[ConnectorRecord], NextRun | None] = lambda record: None,
    now: datetime | None = None,
) -> list[ConnectorLine]:
    """All connectors.

    :param seen: those of them that are shown to whoever asks
    :param next_run: when the DAG that captures one of these runs next, where Airflow is asked
    """
    now = now or datetime.now(UTC)
    with _no_collection():
        records = list(seen(store.connectors(metrics=False)))
        wholes: dict[str, list[Whole]] = {}
        for one in store.metrics.wholes():
            wholes.setdefault(one[0].connector, []).append(one)
        signals = store.open_signals()
        lines = [
            line_of(r, wholes.get(r.connector, ()), signals.get(r.connector, ()), now, next_run(r)) for r in records
        ]
        wholes.clear()
    return sorted(lines, key=_urgency)


@contextlib.contextmanager
def _no_collection() -> Iterator[None]:
    """Have Python's garbage collector wait. What is read of 200 connectors is a hundred thousand small objects without cycles, which would have it look through
    everything that Airflow's API server holds in each third request: 0.2 s."""
    there = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if there:
            gc.enable()


def line_of(
    record: ConnectorRecord,
    wholes: Sequence[Whole],
    signals: Sequence[SignalRecord],
    now: datetime,
    next_run: NextRun | None = None,
) -> ConnectorLine:
    """One connector.

    :param signals: those that have not ended
    """
    status = status_of(record, signals)
    found = problems(record, [series for series, _ in wholes], Limits(), now)
    captured = next((series for series, _ in wholes if series.producer == "capture"), None)
    gauges = {} if captured is None else captured.gauges
    known, failed, window = record.registration, status.state is RunState.FAILED, LogWindow.of(gauges, "streaming.")
    # that of the run before the one that has failed says nothing of the time since, in which nothing was read
    lag_ms = None if failed else gauges.get("streaming.MilliSecondsBehindSource")
    lag_at = None if captured is None or lag_ms is None else captured.at
    return ConnectorLine(
        connector=record.connector, source=record.source, state=status.state.value, since=status.since,
        phase=_phase(record, status), trouble=_trouble(status, wholes, found), problems=found, position=record.position,
        seq=record.seq, batch=record.batch, pending_tables=pending_tables(record), moved_at=record.moved_at,
        captured_by=record.owner, lease_s=round(record.lease_s, 1), changelog=None if known is None else known.changelog,
        freshness=_freshness(wholes, now), lag_s=None if lag_ms is None else lag_ms / 1000,
        lag_at=lag_at, lag_bytes=None if failed else window.behind_bytes, log_gone_at=window.gone_at,
        events_per_s=_rates(wholes, now), snapshot=_snapshot(record, gauges, signals, now), oldest_transaction=_oldest(captured),
        error=LastError.of(status.last_error, status.last_error_at) if failed and status.last_error else None,
        dag=None if known is None else known.connections.get("dag"), next_run=next_run,
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
    found = [(s.producer != "capture", _fresh(s, LastHour.of(pieces, now.timestamp()))) for s, pieces in wholes]
    tables = [one for applied, one in found if applied and one is not None]
    return max(tables or [one for _, one in found if one is not None], key=lambda one: one.p95_s, default=None)


def _fresh(series: KeptSeries, hour: LastHour) -> Freshness | None:
    p50, p95 = hour.freshness.quantile(0.5), hour.freshness.quantile(0.95)
    if p50 is None or p95 is None:
        return None
    worst = hour.worst or ("", 0.0)
    return Freshness(
        where="change log" if series.producer == "capture" else "tables", commits=sum(hour.freshness.classes), p50_s=p50,
        p95_s=p95, worst_topic=worst[0], worst_s=worst[1],
    )  # fmt: skip


def _rates(wholes: Sequence[Whole], now: datetime) -> list[Rate]:
    captured = next((pieces for series, pieces in wholes if series.producer == "capture"), [])
    found, now_s = [], now.timestamp()
    for at, events in LastHour.of(captured, now_s).events:
        seconds = min(max(now_s - at, 1.0), PIECE_S)  # the last one goes on
        found.append(Rate(at=at, events_per_s=round(events / seconds, 3)))
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


def _oldest(captured: KeptSeries | None) -> OpenTransaction | None:
    """Only sources that keep open transactions measure it."""
    if captured is None:
        return None
    age_ms = captured.gauges.get("streaming.OldestTransactionAgeInMilliseconds")
    id_ = captured.texts.get("streaming.OldestTransactionId")
    return OpenTransaction(id=id_, age_s=age_ms / 1000) if age_ms and id_ else None


__all__ = ["Whole", "line_of", "overview"]
