"""The time of a capture by stage, by stopwatches that the benchmark puts around the seams from outside."""

from __future__ import annotations

import functools
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any


class Stages:
    """CPU and wall seconds by stage. What runs inside a stage and is a stage itself counts only there."""

    def __init__(self) -> None:
        self.cpu: dict[str, float] = {}
        self.wall: dict[str, float] = {}
        self._local = threading.local()
        self._lock = threading.Lock()

    def function(self, owner: Any, name: str, stage: str) -> None:
        """Watch a function or method."""
        original = getattr(owner, name)

        @functools.wraps(original)
        def run_measured(*args: Any, **kwargs: Any) -> Any:
            self._enter(stage)
            try:
                return original(*args, **kwargs)
            finally:
                self._leave()

        setattr(owner, name, run_measured)

    def generator(self, owner: Any, name: str, stage: str) -> None:
        """Watch a generator function: the time that it takes to come to each of its items."""
        original: Callable[..., Iterator[Any]] = getattr(owner, name)

        @functools.wraps(original)
        def run_measured(*args: Any, **kwargs: Any) -> Iterator[Any]:
            items = original(*args, **kwargs)
            try:
                while True:
                    self._enter(stage)
                    try:
                        item = next(items)
                    except StopIteration:
                        return
                    finally:
                        self._leave()
                    yield item
            finally:
                items.close()  # type: ignore[attr-defined]

        setattr(owner, name, run_measured)

    def figures(self) -> dict[str, dict[str, float]]:
        """Stage → CPU and wall seconds."""
        return {s: {"cpu_s": round(self.cpu[s], 3), "wall_s": round(self.wall[s], 3)} for s in sorted(self.cpu)}

    def _enter(self, stage: str) -> None:
        self._charge()
        self._local.stack.append(stage)

    def _leave(self) -> None:
        self._charge()
        self._local.stack.pop()

    def _charge(self) -> None:
        """Give the time since the last look to the stage on top."""
        now = time.thread_time(), time.perf_counter()
        if not hasattr(self._local, "stack"):
            self._local.stack, self._local.last = [], now
        if self._local.stack:
            stage, last = self._local.stack[-1], self._local.last
            with self._lock:
                self.cpu[stage] = self.cpu.get(stage, 0.0) + now[0] - last[0]
                self.wall[stage] = self.wall.get(stage, 0.0) + now[1] - last[1]
        self._local.last = now


def watch_capture(stages: Stages, kind: str) -> None:
    """Put stopwatches on everything that a capture goes through.

    :param kind: of source
    """
    from airflow_provider_cdc.changelog.files.parquet_writer import ParquetBatchWriter
    from airflow_provider_cdc.core.writing.event_envelope import Envelope
    from airflow_provider_cdc.sources import load_source
    from airflow_provider_cdc.state.state_store import StateStore

    {"oracle": _watch_oracle, "db2": _watch_db2, "mongodb": _watch_mongodb}.get(kind, _watch_mysql)(stages)
    source = load_source(kind)
    stages.generator(source, "stream_log", "decode")
    for name in ("check_prerequisites", "discover_tables", "verify_position", "current_position"):
        stages.function(source, name, "catalog")
    stages.function(Envelope, "encode_block", "envelope")
    stages.function(ParquetBatchWriter, "_handle", "parquet")
    for name in ("load_offset", "commit_batch", "confirm_lease", "advance_offset", "schema_history", "check_tables"):
        stages.function(StateStore, name, "state")


def _watch_mysql(stages: Stages) -> None:
    from airflow_provider_cdc.sources.mysql.log.binlog_connection import BinlogConnection
    from airflow_provider_cdc.sources.mysql.snapshot.result_set_reader import ResultReader, _PacketBuffer
    from airflow_provider_cdc.sources.mysql.snapshot.snapshot_session import MySqlSnapshot

    for owner in (BinlogConnection, _PacketBuffer):
        stages.function(owner, "_receive", "socket")
    stages.function(BinlogConnection, "_ask", "socket")
    stages.function(ResultReader, "_execute", "socket")
    stages.generator(ResultReader, "read", "decode")
    stages.function(MySqlSnapshot, "_open", "catalog")


def _watch_oracle(stages: Stages) -> None:
    from airflow_provider_cdc.sources.oracle.mining.session import MiningSession
    from airflow_provider_cdc.sources.oracle.redo.redo_statement_reader import RedoReader

    stages.generator(MiningSession, "read_rows", "fetch")
    stages.function(MiningSession, "open_window", "catalog")
    stages.function(RedoReader, "read", "redo")


def _watch_db2(stages: Stages) -> None:
    from airflow_provider_cdc.sources.db2.connect import Db2Connection, Db2Cursor
    from airflow_provider_cdc.sources.db2.log.change_merger import _MergedChanges
    from airflow_provider_cdc.sources.db2.rows.select_list import SelectList

    stages.function(Db2Cursor, "fetch_rows", "fetch")
    stages.function(Db2Connection, "fetch_rows", "catalog")
    stages.function(SelectList, "build_struct", "values")
    for name in ("__init__", "block"):
        stages.function(_MergedChanges, name, "merge")


def _watch_mongodb(stages: Stages) -> None:
    from airflow_provider_cdc.sources.mongodb.field_rewriter import FieldRewriter
    from airflow_provider_cdc.sources.mongodb.log import stream_event_reader
    from airflow_provider_cdc.sources.mongodb.log.raw_member_cursor import RawCursor

    stages.function(RawCursor, "_ask", "fetch")
    stages.function(stream_event_reader, "read_events", "fields of events")
    stages.function(FieldRewriter, "format_documents", "documents")
    stages.function(FieldRewriter, "build_update_descriptions", "updates")
