"""The metrics of a run, under the names of the documents (Debezium connector documents, "Monitoring").

The contexts are those of the documents: ``snapshot``, only where the run read tables, ``streaming`` and ``schema-history``; chunks of
incremental snapshots have one of their own, ``incremental-snapshot``. Metrics of one kind of
database come from :meth:`airflow_provider_cdc.core.spi.source.Source.collect_stream_metrics` and is part of ``streaming``. There are no metrics of event queues,
as there are no queues.

    >>> capture.run().metrics["streaming"]["TotalNumberOfUpdateEventsSeen"]
    12
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from airflow_provider_cdc.core.model.batch_manifest import SchemaChangeRecord
    from airflow_provider_cdc.core.model.event_batch import EventBatch

Value = bool | int | float | str | list[str] | dict[str, int] | dict[str, str]
"""A metric: fit for JSON."""


@dataclass(slots=True)
class EventMetrics:
    """The events of one context.

    :ivar filtered: rows of captured tables of which ``skipped.operations`` and the like made no event
    :ivar newest: topic → when its newest event that is not committed yet was made at the source, in milliseconds
    :ivar behind_ms: how long after it was made at the source the last event was captured; clocks may differ
    """

    counts: Counter[str] = field(default_factory=Counter)
    filtered: int = 0
    last: str = ""
    at: float | None = None
    behind_ms: int = 0
    newest: dict[str, int] = field(default_factory=dict)

    def record_events(self, batches: Sequence[EventBatch]) -> None:
        """Events that were made."""
        for batch in batches:
            self.counts.update(batch.counts)
            self.newest[batch.topic] = int(batch.events.column("source").field("ts_ms")[-1].as_py())
        if batches:
            batch = max(batches, key=lambda b: b.last_seq)
            last = batch.events.slice(batch.events.num_rows - 1).select(["op", "source"]).to_pylist()[0]
            self.last = f"{batch.topic} {last['op']} seq {batch.last_seq}"
            self.behind_ms = max(int(time.time() * 1000) - int(last["source"]["ts_ms"]), 0)
            self.at = time.monotonic()

    def to_document(self, tables: Iterable[object]) -> dict[str, Value]:
        """Return the metrics that both contexts have.

        :param tables: that are captured
        """
        return {
            "LastEvent": self.last,
            "MilliSecondsSinceLastEvent": -1 if self.at is None else _ms(time.monotonic() - self.at),
            "TotalNumberOfEventsSeen": self.counts.total(),
            "NumberOfEventsFiltered": self.filtered,
            "CapturedTables": sorted(map(str, tables)),
        }


@dataclass(slots=True)
class SnapshotMetrics(EventMetrics):
    """The tables that a run read."""

    tables: int = 0
    remaining: int = 0
    rows: dict[str, int] = field(default_factory=dict)
    began: float = field(default_factory=time.monotonic)
    ended: float | None = None
    aborted: bool = False

    def start_snapshot(self, tables: int) -> None:
        self.tables += tables
        self.remaining = tables
        self.ended, self.aborted = None, False

    def end_snapshot(self, *, aborted: bool = False) -> None:
        self.ended, self.aborted = time.monotonic(), aborted

    def to_snapshot_document(self, tables: Iterable[object]) -> dict[str, Value]:
        """See :meth:`to_document`, and what only a snapshot has."""
        return self.to_document(tables) | {
            "TotalTableCount": self.tables,
            "RemainingTableCount": self.remaining,
            "SnapshotRunning": self.ended is None,
            "SnapshotAborted": self.aborted,
            "SnapshotCompleted": self.ended is not None and not self.aborted,
            "SnapshotDurationInSeconds": int((self.ended or time.monotonic()) - self.began),
            "RowsScanned": dict(self.rows),
        }


@dataclass(slots=True)
class ChunkMetrics(EventMetrics):
    """The chunks that incremental snapshots of a run have read."""

    number: int = 0
    table: str = ""
    bounds: dict[str, str] = field(default_factory=dict)
    rows: dict[str, int] = field(default_factory=dict)
    began: float | None = None
    paused_at: float | None = None
    paused_s: float = 0.0

    def record_chunk(self, number: int, table: str, rows: int, bounds: dict[str, str]) -> None:
        """
        :param bounds: ``ChunkFrom``, ``ChunkTo``, ``TableTo``; of a table's first chunk, ``TableFrom`` too
        """
        self.began = self.began or time.monotonic()
        # of a table that an earlier run has begun, the first key is not known
        first = self.bounds.get("TableFrom", "") if table == self.table else ""
        self.number, self.table, self.bounds = number, table, {"TableFrom": first} | bounds
        self.rows[table] = self.rows.get(table, 0) + rows

    def pause(self) -> None:
        self.paused_at = self.paused_at or time.monotonic()

    def resume(self) -> None:
        if self.paused_at is not None:
            self.paused_s += time.monotonic() - self.paused_at
        self.paused_at = None

    def to_incremental_document(self, tables: Iterable[object]) -> dict[str, Value]:
        """See :meth:`to_document`, and what only incremental snapshots have."""
        paused = self.paused_s + (time.monotonic() - self.paused_at if self.paused_at is not None else 0)
        return self.to_document(tables) | {
            "ChunkId": str(self.number),
            **self.bounds,
            "SnapshotPaused": self.paused_at is not None,
            "SnapshotPausedDurationInSeconds": int(paused),
            "SnapshotDurationInSeconds": int(time.monotonic() - self.began) if self.began is not None else 0,
            "RowsScanned": dict(self.rows),
        }


@dataclass(slots=True)
class HistoryMetrics:
    """The schema history: the changes that were read at the start, and those that were added."""

    started: int = field(default_factory=lambda: int(time.time()))
    recovered: int = 0
    applied: int = 0
    last_recovered: str = ""
    last_applied: str = ""
    recovered_at: float | None = None
    applied_at: float | None = None

    def record_recovered(self, records: Sequence[SchemaChangeRecord]) -> None:
        """Record changes that were read."""
        if records:
            self.recovered, self.last_recovered, self.recovered_at = (
                len(records),
                _change(records[-1]),
                time.monotonic(),
            )
            self.applied, self.last_applied, self.applied_at = self.recovered, self.last_recovered, self.recovered_at

    def record_applied(self, record: SchemaChangeRecord) -> None:
        """Record a change that was made."""
        self.applied, self.last_applied, self.applied_at = self.applied + 1, _change(record), time.monotonic()

    def restore_counts(self, changes: int, last: str) -> None:
        """So many changes are known, of which nothing had to be read."""
        self.recovered = self.applied = changes
        self.last_recovered = self.last_applied = last
        self.recovered_at = self.applied_at = time.monotonic()

    def to_document(self) -> dict[str, Value]:
        now = time.monotonic()
        return {
            "Status": "RUNNING",
            "RecoveryStartTime": self.started,
            "ChangesRecovered": self.recovered,
            "ChangesApplied": self.applied,
            "MilliSecondsSinceLastRecoveredChange": -1 if self.recovered_at is None else _ms(now - self.recovered_at),
            "MilliSecondsSinceLastAppliedChange": -1 if self.applied_at is None else _ms(now - self.applied_at),
            "LastRecoveredChange": self.last_recovered,
            "LastAppliedChange": self.last_applied,
        }


@dataclass(slots=True)
class RunMetrics:
    """Metrics of one run.

    :ivar freshness: topic and seconds, of each topic and commit: how long after it was committed at the source its newest event became durable
    """

    streaming: EventMetrics = field(default_factory=EventMetrics)
    history: HistoryMetrics = field(default_factory=HistoryMetrics)
    snapshot: SnapshotMetrics | None = None
    chunks: ChunkMetrics = field(default_factory=ChunkMetrics)
    freshness: list[tuple[str, float]] = field(default_factory=list)

    def record_commit(self) -> None:
        """Everything up to now is committed."""
        now = time.time()
        newest, self.streaming.newest = self.streaming.newest, {}
        self.freshness += [(topic, now - ms / 1000) for topic, ms in newest.items()]

    def start_snapshot(self, tables: int) -> SnapshotMetrics:
        """Record that a snapshot of so many tables begins."""
        if self.snapshot is None:
            self.snapshot = SnapshotMetrics()
        self.snapshot.start_snapshot(tables)
        return self.snapshot

    def to_document(
        self,
        tables: Iterable[object],
        source: Mapping[str, Value],
        snapshot: Mapping[str, Value] = MappingProxyType({}),
    ) -> dict[str, dict[str, Value]]:
        """By context and name.

        :param tables: that are captured
        :param source: the source's own metrics of its stream; ``snapshot``: of its snapshots
        """
        names, counts = list(tables), self.streaming.counts
        streaming = self.streaming.to_document(names) | {
            "TotalNumberOfCreateEventsSeen": counts["c"],
            "TotalNumberOfUpdateEventsSeen": counts["u"],
            "TotalNumberOfDeleteEventsSeen": counts["d"],
            "MilliSecondsBehindSource": self.streaming.behind_ms,
            "Connected": True,
        }
        filtered = source.get("NumberOfEventsFiltered", 0)
        assert isinstance(filtered, int)
        document = {
            "streaming": streaming | dict(source) | {"NumberOfEventsFiltered": self.streaming.filtered + filtered},
            "schema-history": self.history.to_document(),
        }
        if self.chunks.began is not None or self.chunks.paused_at is not None:
            document = {"incremental-snapshot": self.chunks.to_incremental_document(names)} | document
        if self.snapshot is None:
            return document
        return {"snapshot": self.snapshot.to_snapshot_document(names) | dict(snapshot)} | document


def shorten_metrics(
    metrics: Mapping[str, Mapping[str, Value]], most: int, letters: int | None = None
) -> dict[str, dict[str, Value]]:
    """Metrics with shorter lists and maps; a last entry says how many are left out.

    :param letters: of a text, such as the statement of a schema change; ``None``: all

    >>> shorten_metrics({"streaming": {"CapturedTables": ["a", "b", "c"], "LastEvent": "a c seq 7"}}, 2, letters=3)
    {'streaming': {'CapturedTables': ['a', 'b', '… and 1 more'], 'LastEvent': 'a c…'}}
    """
    return {
        context: {name: _shortened(value, most, letters) for name, value in values.items()}
        for context, values in metrics.items()
    }


def _shortened(value: Value, most: int, letters: int | None) -> Value:
    if isinstance(value, str):
        return value if letters is None or len(value) <= letters else f"{value[:letters]}…"
    if not isinstance(value, list | dict) or len(value) <= most:
        return value
    more = len(value) - most
    if isinstance(value, list):
        return [*value[:most], f"… and {more} more"]
    # the largest numbers say most
    by_size = sorted(value.items(), key=lambda item: item[1], reverse=True) if _numbers(value) else list(value.items())
    return dict(by_size[:most]) | {"… more": more}  # type: ignore[return-value]


def _numbers(value: Mapping[str, object]) -> bool:
    return all(isinstance(v, int) for v in value.values())


def _ms(seconds: float) -> int:
    return round(seconds * 1000)


def _change(record: SchemaChangeRecord) -> str:
    """Tables and statement of a schema change, not too long."""
    tables = ", ".join(str(c.id) for c in record.changes)
    return f"{tables}: {record.ddl}"[:500]
