"""From rows of ``V$LOGMNR_CONTENTS`` to log items.

LogMiner returns changes in the order in which they were made. They are buffered by transaction (:mod:`airflow_provider_cdc.sources.oracle.transactions.buffer.transaction_buffer`) and delivered
in commit order, by whole transactions (Debezium Oracle connector, "How the connector buffers events"). All work is done on columns; only
DDL is processed row by row.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from airflow_provider_cdc.core.errors import SourceLogDamaged
from airflow_provider_cdc.core.model.log_items import Heartbeat, LogBlock, LogItem
from airflow_provider_cdc.core.spi.source import CapturedTableSchemas
from airflow_provider_cdc.sources.oracle.config import OracleConfig
from airflow_provider_cdc.sources.oracle.config_enums import MiningStrategy
from airflow_provider_cdc.sources.oracle.kernels.operation_codes import (
    COMMIT,
    DDL,
    FOREVER,
    REPLICATION_MARKER,
    ROLLBACK,
    START,
    UNSUPPORTED,
)
from airflow_provider_cdc.sources.oracle.position import OraclePosition
from airflow_provider_cdc.sources.oracle.schema.ddl_applier import DdlApplier
from airflow_provider_cdc.sources.oracle.schema.schema_versions import SchemaVersions
from airflow_provider_cdc.sources.oracle.schema.stream_lookups import StreamLookups
from airflow_provider_cdc.sources.oracle.stream_counters import RowCounters
from airflow_provider_cdc.sources.oracle.transactions import ddl_rows
from airflow_provider_cdc.sources.oracle.transactions.buffer.commit_positions import commits_at, position_after
from airflow_provider_cdc.sources.oracle.transactions.buffer.open_transactions import UNKNOWN, UncommittedTransaction
from airflow_provider_cdc.sources.oracle.transactions.buffer.row_segments import ROWS
from airflow_provider_cdc.sources.oracle.transactions.buffer.transaction_buffer import CommittedRows, TransactionBuffer
from airflow_provider_cdc.sources.oracle.transactions.duplicate_rows import find_duplicates
from airflow_provider_cdc.sources.oracle.transactions.table_resolver import table_numbers

if TYPE_CHECKING:
    from airflow_provider_cdc.sources.oracle.transactions.block_builder import CommittedBlockBuilder

Int64s = npt.NDArray[np.int64]

ORDERED = (COMMIT, DDL)
"""Codes of rows that come in the order of their SCNs: their effect depends on the rows before."""


class RowProcessor:
    """Makes log items of rows of ``V$LOGMNR_CONTENTS``. It uses no database itself.

    :param start: commits before this position are captured already
    :param tables: the schemas in force
    :param lookups: answers questions that the log leaves open
    :param ddl: applies DDL statements to the schemas of captured tables
    :param until: where the stream ends. Tables whose snapshot is of this position are captured from there on, with the changes that
        transactions which were open then have made before: its ``scn`` is needed until then
    :ivar position: the position after the last delivered item; only this class moves it
    :ivar transactions: the open transactions and their changes
    """

    def __init__(
        self,
        config: OracleConfig,
        start: OraclePosition,
        tables: CapturedTableSchemas,
        lookups: StreamLookups,
        ddl: DdlApplier,
        counters: RowCounters,
        until: OraclePosition | None = None,
    ) -> None:
        self._start, self._counters = start, counters
        self._versions = SchemaVersions(tables, lookups, config.catalog_name)
        if config.log_mining_strategy is not MiningStrategy.REDO_LOG_CATALOG:
            self._versions.note_present_names()
        self._ddl_rows = ddl_rows.DdlRowProcessor(config, start, self._versions, ddl, counters)
        self._blocks: CommittedBlockBuilder | None = None
        self._needs = config, self._versions, lookups, counters
        self._scn = 0
        self.transactions = TransactionBuffer(
            config, start, counters, self._versions.list_schemas, until.scn if until else FOREVER
        )
        self.position = start

    @property
    def schema_versions(self) -> SchemaVersions:
        """The tables' schemas by SCN."""
        return self._versions

    # -- rows in --------------------------------------------------------------------------------------------------------

    def process(self, rows: pa.Table) -> Iterator[LogItem]:
        """Yield the items that the next rows complete.

        :param rows: columns of ``mining.query.BATCH``, with whole statements, in the order of their SCNs
        :raises SourceLogDamaged: commits are not in the order of their SCNs, or redo is missing
        :raises MiningRestart: the first rows of a transaction were not read
        """
        if not rows.num_rows:
            return
        codes = rows.column("code").to_numpy()
        self._check_order(rows.column("scn").to_numpy()[np.isin(codes, ORDERED)])
        self._counters.ts_us = rows.column("ts_us")[-1].as_py()
        lo = 0
        for at in np.flatnonzero(np.isin(codes, ddl_rows.CODES)):
            yield from self._changes(rows.slice(lo, int(at) - lo))
            row = rows.slice(int(at), 1).to_pylist()[0]
            if row["code"] == UNSUPPORTED and self.transactions.leaves_out(row["xid"]):
                continue
            for item, position in self._ddl_rows.build_items(
                row, self.position, self.transactions.find_resume_scn(FOREVER)
            ):
                self.position = position
                yield item
            lo = int(at) + 1
        yield from self._changes(rows.slice(lo))

    def advance_position(self, scn: int) -> Heartbeat:
        """All rows up to an SCN were processed: move the position there."""
        transactions = self.transactions
        transactions.end_window(scn)
        self.position = replace(
            self.position.advance_read_scn(scn), scn=transactions.find_resume_scn(scn), given_up=transactions.given_up, names=transactions.list_transaction_users()
        )  # fmt: skip
        self._versions.prune_schemas(self.position.scn)
        return Heartbeat(self.position)

    def give_up_before(self, ts_us: int) -> None:
        """Give up transactions that began before a moment.

        :param ts_us: µs since the epoch
        """
        if self.transactions.give_up_before(ts_us):
            self.position = replace(self.position, given_up=self.transactions.given_up)

    def close(self) -> None:
        self.transactions.close()

    def _check_order(self, scns: Int64s) -> None:
        """Check that SCNs ascend.

        :param scns: of commits and DDL statements; those that are captured may come again
        :raises SourceLogDamaged: they do not ascend
        """
        scns = scns[scns > self.position.read_scn]
        if not len(scns):
            return
        if scns[0] < self._scn or (np.diff(scns) < 0).any():
            raise SourceLogDamaged(
                "LogMiner returned commits with a lower SCN than earlier commits.",
                where=f"SCN {self._scn} to {int(scns.max())}",
                safe="Everything before these commits is captured.",
                remedy="run the capture again; if the error persists, check the database's alert log",
            )
        self._scn = int(scns[-1])

    # -- rows of transactions ---------------------------------------------------------------------------------------------

    def _changes(self, rows: pa.Table) -> Iterator[LogItem]:
        """Yield the items of rows without DDL."""
        if not rows.num_rows:
            return
        codes = rows.column("code").to_numpy()
        serials, met = self.transactions.assign_serials(rows)
        ends = np.flatnonzero((codes == COMMIT) | (codes == ROLLBACK))
        last = dict(zip(serials[ends].tolist(), ends.tolist(), strict=True))
        _check_ends(rows, serials, codes, last)
        changes = self._captured(rows, serials, codes, met)
        commits = commits_at(rows, ends[codes[ends] == COMMIT], serials, met)
        new_commits = [c for c in commits if not self._start.has_commit(c.scn, c.thread, c.id)]
        ended = [met[s] for s in last]
        rolled_back = [met[s].id for s in serials[ends[codes[ends] == ROLLBACK]].tolist()]
        newest = (new_commits[-1].id, new_commits[-1].scn) if new_commits else ("", 0)
        self._counters.count_ended_transactions(len(new_commits), rolled_back, *newest)
        now = self.transactions.add_changes(changes, new_commits, ended)
        self.transactions.discard_unchanged([met[s] for s in serials[codes == REPLICATION_MARKER].tolist()])
        if self.transactions.give_up_oversized():
            self.position = replace(self.position, given_up=self.transactions.given_up)
        for committed in self.transactions.deliver_committed(now, new_commits, ended):
            yield from self._items(committed)

    def _captured(
        self, rows: pa.Table, serials: Int64s, codes: npt.NDArray[np.int16], met: dict[int, UncommittedTransaction]
    ) -> pa.Table:
        """Return the changes of captured tables.

        The columns are those of :data:`airflow_provider_cdc.sources.oracle.transactions.buffer.row_segments.ROWS`.
        """
        control = np.isin(codes, (START, COMMIT, ROLLBACK, REPLICATION_MARKER))
        numbers = table_numbers(rows, ~control, self._versions)
        keep = numbers >= 0
        self._counters.filtered += int((~control & ~keep).sum())
        keep &= ~find_duplicates(rows, serials, keep)
        keep &= self.transactions.find_relevant_rows(serials, met)
        self._counters.changes += int(keep.sum())
        columns = {name: rows.column(name) for name in ROWS.names if name not in ("tx", "table")}
        columns["user"] = with_users(columns["user"], serials, met)
        columns |= {"tx": pa.array(serials), "table": pa.array(numbers)}
        waiting = pa.table([columns[name] for name in ROWS.names], schema=ROWS)
        return waiting if keep.all() else waiting.filter(pa.array(keep))

    def _items(self, committed: CommittedRows) -> Iterator[LogItem]:
        low = committed.low
        position = self.position if low is None else position_after(self.position, committed.commits, low)
        if self._blocks is None:  # it loads the compiler of kernels, which takes longer than a run without changes
            from airflow_provider_cdc.sources.oracle.transactions.block_builder import CommittedBlockBuilder

            self._blocks = CommittedBlockBuilder(*self._needs)
        for item in self._blocks.build_items(committed, self.position, position):
            if isinstance(item, LogBlock):
                self.position = position
            yield item


def with_users(users: pa.ChunkedArray, serials: Int64s, met: dict[int, UncommittedTransaction]) -> pa.ChunkedArray:
    """Return the users of rows; where LogMiner does not know them, those of their transactions."""
    unknown = pc.fill_null(pc.equal(users, UNKNOWN), True)
    if not pc.any(unknown).as_py():
        return users
    some, at = np.unique(serials, return_inverse=True)
    names = pa.array([met[serial].user for serial in some.tolist()], pa.large_string())
    return pc.if_else(unknown, pc.coalesce(names.take(pa.array(at)), users), users)


def _check_ends(rows: pa.Table, serials: Int64s, codes: npt.NDArray[np.int16], last: dict[int, int]) -> None:
    """Make sure that no transaction has changes after its end.

    :param last: serial of a transaction that ended → index of the row with its end
    :raises SourceLogDamaged: one has
    """
    if not last:
        return
    ended = np.array(sorted(last), np.int64)
    at = np.minimum(np.searchsorted(ended, serials), len(ended) - 1)
    end_row = np.array([last[s] for s in ended.tolist()], np.int64)
    late = (ended[at] == serials) & (np.arange(len(serials)) > end_row[at]) & (codes != START)
    if late.any():
        i = int(np.argmax(late))
        raise SourceLogDamaged(
            "LogMiner returned a change after the end of its transaction.",
            where=f"SCN {rows.column('scn')[i]}, transaction {rows.column('xid')[i].as_py().hex()}",
            safe="Everything before this change is captured.",
            remedy="run the capture again; if the error persists, check the database's alert log",
        )
