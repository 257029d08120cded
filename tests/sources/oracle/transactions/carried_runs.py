"""Streams over a redo log that is made by hand, with restarts, kills and damage; what is committed is kept as capture keeps it."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from airflow_provider_cdc.changelog.files.change_log import ChangeLog
from airflow_provider_cdc.core.model.connector_offset import CarriedFile
from airflow_provider_cdc.core.model.log_items import (
    CarryOverItem,
    Heartbeat,
    LogBlock,
    LogItem,
    Rollback,
    SchemaChange,
)
from airflow_provider_cdc.core.model.table_schema import TableId, TableSchema
from airflow_provider_cdc.core.writing.carry_over_store import StoredCarryOver
from airflow_provider_cdc.sources.oracle.config import OracleConfig
from airflow_provider_cdc.sources.oracle.connect import DatabaseStatus
from airflow_provider_cdc.sources.oracle.metrics import LogMinerMetrics
from airflow_provider_cdc.sources.oracle.mining import logminer_stream
from airflow_provider_cdc.sources.oracle.mining.log_buffer_flush import FlushedRedo
from airflow_provider_cdc.sources.oracle.mining.logminer_query import BATCH
from airflow_provider_cdc.sources.oracle.mining.logminer_stream import LogMinerStream
from airflow_provider_cdc.sources.oracle.mining.session import NO_XIDS
from airflow_provider_cdc.sources.oracle.position import OraclePosition
from airflow_provider_cdc.sources.oracle.schema.stream_lookups import NoLookups
from airflow_provider_cdc.sources.oracle.transactions.buffer import spill_buffer, transaction_buffer
from airflow_provider_cdc.sources.oracle.transactions.carry_over import row_file
from tests.sources.oracle.redo.redo_tables import config
from tests.sources.oracle.transactions.test_row_processor import Event, TwoTables, Workload, row, xid_of

DATABASE = SimpleNamespace(dbid=7, resetlogs=1, name="MADE")
QUICK = {
    "log.mining.sleep.time.default.ms": 0, "log.mining.sleep.time.max.ms": 0, "log.mining.buffer.memory.max.bytes": 4_000,
    "database.pdb.name": "PDB", "poll.interval.ms": 1,
}  # fmt: skip


class RunKilled(Exception):
    """The run was killed."""


@dataclass
class RandomTransactions(Workload):
    """Transactions by chance, and DDL in between: columns of the tables get other names.

    :param ddl: how often
    :param over: also of tables with changes that wait for their commit
    """

    ddl: float = 0.03
    over: bool = False

    def __post_init__(self) -> None:
        self.column = {"T1": "V", "T2": "V", "T3": "V"}
        self.touched: dict[int, set[str]] = {}
        self.statements = 0
        super().__post_init__()

    def _change(self, tx: int, done: list[Any]) -> None:
        super()._change(tx, done)
        self.touched.setdefault(tx, set()).add(done[-1][0])
        if self.r.random() < self.ddl:
            self._rename(self.r.choice(("T1", "T2")))

    def _rename(self, table: str) -> None:
        if not self.over and any(table in tables for tables in self.touched.values()):
            return
        self.statements += 1
        old, self.column[table] = self.column[table], f"V{self.statements}"
        self.scn += 1
        own = 100_000 + self.statements
        text = f"ALTER TABLE {table} RENAME COLUMN {old} TO {self.column[table]}"
        self.rows += [row(self.scn, 6, own), row(self.scn, 5, own, text, table), row(self.scn, 7, own)]
        self.scn += 1

    def _row(self, tx: int, code: int, table: str, id_: int, a: int | None, b: int | None, **more: Any) -> None:
        first = len(self.rows)
        super()._row(tx, code, table, id_, a, b, **more)
        for one in self.rows[first:]:
            one["sql"] = one["sql"].replace('"V"', f'"{self.column[table]}"')

    def _end(self, tx: int, done: list[Any]) -> None:
        super()._end(tx, done)
        self.touched.pop(tx, None)


class Log:
    """Stands for LogMiner on a log: serves its rows, window by window.

    :param ends: SCNs at which windows end
    :param hidden: seed of which transactions have private strands, and for how long; 0 = none
    :ivar mined: rows served so far
    """

    def __init__(self, rows: list[dict[str, Any]], ends: list[int], seed: int, hidden: int = 0) -> None:
        self.rows_, self.ends, self.mined, self.at = rows, ends, 0, 0
        self._random = random.Random(seed)
        self.begin_seconds = 0.0
        self.windows: list[tuple[int, int]] = []
        self.lives: dict[bytes, tuple[int, int]] = {}
        for one in rows:
            if one["code"] == 6:
                self.lives[one["xid"]] = one["scn"], 1 << 62
            elif one["code"] in (7, 36) and one["xid"] in self.lives:
                self.lives[one["xid"]] = self.lives[one["xid"]][0], one["scn"]
        strands = random.Random(hidden)
        # XID → SCN from which on its rows are in the log
        self.shown = {
            xid: min(last, scn + strands.choice((0, 5, 60, 1 << 62)))
            for xid, (scn, last) in self.lives.items()
            if hidden and strands.random() < 0.7
        }

    def cancel_call(self) -> None: ...

    def minable_scn(self) -> int:
        return next((end for end in self.ends if end > self.at), self.ends[-1])

    @property
    def log_collector(self) -> Log:
        return self

    def switched_scn(self) -> int:
        """No log is ever switched."""
        return 0

    def open_at(self, end: int) -> dict[bytes, int]:
        """The transactions that are open at an SCN, as the database shows them."""
        # a commit is in the log before the transaction leaves the view
        race = self._random.choice((0, 0, 1, 20)) if self.shown else 0
        return {xid: scn for xid, (scn, last) in self.lives.items() if scn <= end < last + race}

    def open_window(self, low: int, end: int) -> None:
        self.windows.append((low, end))

    def read_rows(
        self, low: int, end: int, read: int | None = None, late: Mapping[bytes, int] = NO_XIDS
    ) -> Iterator[pa.RecordBatch]:
        found = [one for one in self.rows_ if low <= one["scn"] <= end and self.shown.get(one["xid"], 0) <= end]
        if read is not None:
            found = [one for one in found if one["scn"] > read or one["xid"] in late]
        while found:
            size = self._random.choice((1, 2, 7, 50, 400))
            self.mined += len(found[:size])
            yield pa.RecordBatch.from_pylist(found[:size], BATCH)
            del found[:size]
        self.at = end

    def scn_time(self, scn: int) -> None:
        return None

    def log_ends(self, scn: int) -> list[int]:
        return []

    def record_memory(self) -> None:
        pass

    def close(self) -> None:
        pass


@dataclass
class ConnectorRuns:
    """Runs of one connector.

    :param properties: of the connector
    :param hidden: see :class:`Log`
    :ivar events: all that was committed
    :ivar carried: what the offset names
    """

    folder: Path
    story: RandomTransactions
    ends: list[int]
    properties: dict[str, Any] = field(default_factory=dict)
    hidden: int = 0
    events: list[Event] = field(default_factory=list)
    position: OraclePosition = field(default_factory=lambda: OraclePosition(0, 0, resetlogs=1, dbid=7))
    carried: CarriedFile | None = None
    mined: int = 0
    epoch: int = 0
    restored: int = 0
    lost: int = 0
    metrics: LogMinerMetrics | None = None
    release: str = "1"

    def __post_init__(self) -> None:
        self.config: OracleConfig = config(**QUICK, **self.properties)
        self.tables: dict[TableId, TableSchema] = dict(TwoTables(self.config).tables)
        self.files = ChangeLog(str(self.folder)).open_carry_over("c")

    def run(self, until: int, *, die: int | None = None, seed: int = 0, commit: float = 0.3) -> None:
        """Run the stream once, to an SCN.

        :param die: kill it after so many items
        :param commit: how often an item is followed by a commit
        """
        self.epoch += 1
        chance = random.Random(seed)
        carrier = StoredCarryOver(self.files, self.carried, self.epoch, {**self.properties, "release": self.release})
        carrier.start_stream(self.carried, [])
        tables = TwoTables(self.config)
        tables.tables = dict(self.tables)
        log = Log(self.story.rows, [end for end in self.ends if end <= until], seed, self.hidden)
        log.at = self.position.read_scn
        metrics = self.metrics = LogMinerMetrics(self.config)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(logminer_stream, "MiningSession", lambda *_: log)
            flush = SimpleNamespace(flush=lambda end: FlushedRedo(end, log.open_at(end)), close=lambda: None)
            patch.setattr(logminer_stream, "LogWriterFlush", lambda *_: flush)
            clock = SimpleNamespace(time=lambda: log.windows[-1][1] / 1000, monotonic=time.monotonic, sleep=time.sleep)
            patch.setattr(logminer_stream, "time", clock)
            patch.setattr(logminer_stream, "PIECE_ROWS", 40)
            patch.setattr(transaction_buffer, "BLOCK_ROWS", 16)
            patch.setattr(row_file, "PIECE_ROWS", 7)
            patch.setattr(spill_buffer, "CARRIED_BYTES", 20_000)
            patch.setattr(StoredCarryOver, "is_due", property(lambda _: chance.random() < 0.3))
            mined = LogMinerStream(
                self.config, _database(), self.position, OraclePosition(until, until, resetlogs=1, dbid=7), tables, NoLookups(),
                metrics, carried=carrier,
            )  # fmt: skip
            self._capture(mined.read_items(), carrier, tables, die, chance, commit)
        self.mined += log.mined
        self.restored += bool(log.windows and log.windows[0][0] > self.position.scn)
        self.lost += metrics.carried.lost

    def _capture(
        self,
        items: Iterator[LogItem],
        carrier: StoredCarryOver,
        tables: TwoTables,
        die: int | None,
        chance: random.Random,
        commit: float,
    ) -> None:
        events: list[Event] = []
        inside: list[Event] = []
        position, carried = self.position, self.carried
        for number, item in enumerate(items):
            match item:
                case LogBlock():
                    inside += events_of(item)
                    if item.open:
                        continue
                    events, inside = [*events, *inside], []
                case Rollback():
                    inside = []
                    continue
                case SchemaChange():
                    for change in item.changes:
                        assert change.table is not None
                        tables.tables[change.id] = change.table.model_copy(
                            update={"version": tables.tables[change.id].version + 1}
                        )
                case CarryOverItem():
                    carried = item.file
            assert not inside
            position = item.position  # type: ignore[union-attr, assignment]
            if die is not None and number >= die:
                items.close()  # type: ignore[attr-defined]
                return
            if chance.random() < commit:
                self._commit(events, position, carried, tables, carrier)
                events = []
        self._commit(events, position, carried, tables, carrier)

    def _commit(
        self,
        events: list[Event],
        position: OraclePosition,
        carried: CarriedFile | None,
        tables: TwoTables,
        carrier: StoredCarryOver,
    ) -> None:
        self.events += events
        self.position = OraclePosition.from_json(position.to_json())
        self.carried, self.tables = carried, dict(tables.tables)
        carrier.record_commit(carried)


def _database() -> DatabaseStatus:
    return DATABASE  # type: ignore[return-value]


def events_of(item: LogBlock) -> list[Event]:
    """The events of a block, in commit order. The column with the value has another name after each DDL statement."""
    found: list[tuple[int, Event]] = []
    for rows in item.rows:
        (column,) = [name for name in rows.table.column_names if name.startswith("V")]
        ids = item.transactions.id.to_pylist()
        before = rows.before.to_pylist() if rows.before is not None else [None] * len(rows)
        after = rows.after.to_pylist() if rows.after is not None else [None] * len(rows)
        assert rows.transaction is not None
        for i in range(len(rows)):
            image = after[i] or before[i]
            event = (
                ids[rows.transaction[i]], "rcud"[rows.op[i]] + rows.table.id.name[-1], image["ID"],
                before[i][column] if before[i] else None, after[i][column] if after[i] else None,
            )  # fmt: skip
            found.append((int(rows.order[i]), event))
    return [event for _, event in sorted(found)]


__all__ = ["ConnectorRuns", "Heartbeat", "RandomTransactions", "xid_of"]
