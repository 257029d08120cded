"""From rows of ``V$LOGMNR_CONTENTS`` to log items.

LogMiner gives changes in the order in which they were made. Here they wait by transaction (``buffer.py``), and come out in commit
order, whole transactions at a time (Debezium Oracle connector, "How the connector buffers events"). Everything is done on columns;
Python looks at single rows only where they are DDL.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from airflow_provider_cdc.core.errors import SchemaConflict, SourceLogDamaged
from airflow_provider_cdc.core.events import Heartbeat, LeftOut, LogBlock, LogItem, RowBlock, SchemaChange, Transactions
from airflow_provider_cdc.core.schema import TableChange, TableId, TableSchema
from airflow_provider_cdc.core.source import Tables
from airflow_provider_cdc.sources.oracle import special
from airflow_provider_cdc.sources.oracle.assemble import Assembler
from airflow_provider_cdc.sources.oracle.buffer import ROWS, Buffer
from airflow_provider_cdc.sources.oracle.commits import Commit, after, commits_at, lows
from airflow_provider_cdc.sources.oracle.config import OracleConfig
from airflow_provider_cdc.sources.oracle.config_values import MiningStrategy
from airflow_provider_cdc.sources.oracle.continuation import Texts
from airflow_provider_cdc.sources.oracle.doubled import doubled
from airflow_provider_cdc.sources.oracle.lookups import Lookups, NoLookups
from airflow_provider_cdc.sources.oracle.metrics import Taken
from airflow_provider_cdc.sources.oracle.numbering import table_numbers
from airflow_provider_cdc.sources.oracle.operations import COMMIT, FOREVER, LAST_CHANGE, ROLLBACK, START
from airflow_provider_cdc.sources.oracle.position import OraclePosition
from airflow_provider_cdc.sources.oracle.redo.stale import Restorer
from airflow_provider_cdc.sources.oracle.structures import Structures
from airflow_provider_cdc.sources.oracle.transactions import OpenTransactions, Transaction
from airflow_provider_cdc.sources.oracle.undo import remaining

log = logging.getLogger(__name__)

BLOCK_ROWS = 32_768
_NOT_TOLD = "the log does not tell their structure, and the database has no such table any more"

Int64s = npt.NDArray[np.int64]


class Taker:
    """Takes rows of ``V$LOGMNR_CONTENTS`` in, gives log items out. Knows no database: rows may come from anywhere.

    :param start: commits before it are captured already
    :param structure: reads a table's present structure from the dictionary
    :param ddl: what a DDL statement means: (statement, default schema, place) → changes and truncated tables
    :param catalog: the pluggable database, or the database, that the rows are of
    :param lookups: answers about tables that LogMiner does not name
    :ivar position: after everything that was given out
    """

    def __init__(
        self,
        config: OracleConfig,
        start: OraclePosition,
        tables: Tables,
        structure: Callable[[TableId], TableSchema | None],
        ddl: Callable[[str, str, str], tuple[list[TableChange], list[TableId]]],
        catalog: str,
        lookups: Lookups | None = None,
    ) -> None:
        self._config, self._catalog = config, catalog
        lookups = lookups or NoLookups()
        self._structures = structures = Structures(tables, structure, catalog, lookups)
        if config.log_mining_strategy is not MiningStrategy.REDO_LOG_CATALOG:
            structures.objects.begin()
        self._restorer = Restorer(
            config.log_mining_strategy, config.lob_enabled, structures.at, structures.stored, lookups.storage, structures.by_object
        )  # fmt: skip
        self._special = special.SpecialRows(start, structures, ddl, catalog)
        self._start = start
        self.position = start
        self.open = OpenTransactions(start.given_up)
        self.buffer = Buffer(config.log_mining_buffer_memory_max_bytes, config.log_mining_buffer_spill_folder)
        self.counters = Taken()
        self._began = 0.0  # when the changes that are given out next began to be put together
        self._assembler = Assembler(config, lookups.row)
        self._texts = Texts()
        self._scn = 0

    # -- rows in --------------------------------------------------------------------------------------------------------

    def take(self, batch: pa.Table) -> Iterator[LogItem]:
        """Rows as the mining session gives them (see ``query.BATCH``), in its order."""
        rows = self._texts.whole(batch)
        if not rows.num_rows:
            return
        scns = rows.column("scn").to_numpy()
        if scns[0] < self._scn or (np.diff(scns) < 0).any():
            raise SourceLogDamaged(
                "LogMiner gave rows whose SCN is lower than that of the rows before.",
                where=f"SCN {self._scn} to {int(scns.max())}",
                safe="Everything before is captured.",
                remedy="run the capture again; if the error stays, look into the database's alert log",
            )
        self._scn, self.counters.ts_us = int(scns[-1]), rows.column("ts_us")[-1].as_py()
        codes = rows.column("code").to_numpy()
        lo = 0
        for at in np.flatnonzero(np.isin(codes, special.CODES)):
            yield from self._changes(rows.slice(lo, int(at) - lo))
            row = rows.slice(int(at), 1).to_pylist()[0]
            for item, position in self._special.items(row, self.position, self.open.low(FOREVER)):
                self.position = position
                yield item
            lo = int(at) + 1
        yield from self._changes(rows.slice(lo))

    def end(self, scn: int) -> Heartbeat:
        """All rows up to an SCN have come.

        :raises SourceLogDamaged: a text goes on in a row that did not come
        """
        self._texts.end()
        self.position = replace(self.position.read(scn), scn=self.open.low(scn), given_up=self.open.given_up)
        self._structures.forget(self.position.scn)
        return Heartbeat(self.position)

    def give_up(self, before_ts_us: int) -> list[Transaction]:
        """Stop waiting for transactions that began before a moment; returns them."""
        old = [t for t in self.open if not t.given_up and t.first_ts_us < before_ts_us]
        self._give_up(old)
        return old

    def close(self) -> None:
        self.buffer.close()

    # -- rows of transactions ---------------------------------------------------------------------------------------------

    def _changes(self, rows: pa.Table) -> Iterator[LogItem]:
        """Rows among which there is no DDL."""
        if not rows.num_rows:
            return
        codes = rows.column("code").to_numpy()
        scns = rows.column("scn").to_numpy()
        serials, met = self.open.number(rows.column("xid").combine_chunks(), scns, rows.column("ts_us").to_numpy())
        ends = np.flatnonzero((codes == COMMIT) | (codes == ROLLBACK))
        last = dict(zip(serials[ends].tolist(), ends.tolist(), strict=True))
        self._nothing_after(rows, serials, codes, last)
        changes = self._captured(rows, serials, codes)
        commits = commits_at(rows, ends[codes[ends] == COMMIT], serials, met)
        wanted = [c for c in commits if not self._start.captured(c.scn, c.thread, c.id)]
        self.counters.ended(wanted, [met[s].id for s in serials[ends[codes[ends] == ROLLBACK]].tolist()])
        yield from self._committed(changes, wanted, [met[s] for s in last])

    def _nothing_after(
        self, rows: pa.Table, serials: Int64s, codes: npt.NDArray[np.int16], last: dict[int, int]
    ) -> None:
        """A transaction has no changes after its end."""
        if not last:
            return
        ended = np.array(sorted(last), np.int64)
        at = np.minimum(np.searchsorted(ended, serials), len(ended) - 1)
        place = np.array([last[s] for s in ended.tolist()], np.int64)
        late = (ended[at] == serials) & (np.arange(len(serials)) > place[at]) & (codes != START)
        if late.any():
            i = int(np.argmax(late))
            raise SourceLogDamaged(
                "LogMiner gave a change after the end of its transaction.",
                where=f"SCN {rows.column('scn')[i]}, transaction {rows.column('xid')[i].as_py().hex()}",
                safe="Everything before is captured.",
                remedy="run the capture again; if the error stays, look into the database's alert log",
            )

    def _captured(self, rows: pa.Table, serials: Int64s, codes: npt.NDArray[np.int16]) -> pa.Table:
        """The changes of captured tables, in the form in which they wait."""
        control = (codes == START) | (codes == COMMIT) | (codes == ROLLBACK)
        numbers = table_numbers(rows, ~control, self._structures, self._catalog)
        keep = numbers >= 0
        self.counters.filtered += int((~control & ~keep).sum())
        keep &= ~doubled(rows, serials, keep)
        given_up = [t.serial for t in self.open if t.given_up]
        if given_up:
            keep &= ~np.isin(serials, given_up)
        self.counters.changes += int(keep.sum())
        columns = {name: rows.column(name) for name in ROWS.names if name not in ("tx", "table")}
        columns |= {"tx": pa.array(serials), "table": pa.array(numbers)}
        waiting = pa.table([columns[name] for name in ROWS.names], schema=ROWS)
        return waiting if keep.all() else waiting.filter(pa.array(keep))

    # -- commits ----------------------------------------------------------------------------------------------------------

    def _committed(self, changes: pa.Table, commits: list[Commit], ended: list[Transaction]) -> Iterator[LogItem]:
        """Give out transactions in the order of their commits; what is not committed waits.

        :param changes: rows that have just come
        :param ended: all transactions that ended, those that are not wanted as well
        """
        tx = changes.column("tx").to_numpy()
        direct = [c.serial for c in commits if c.serial not in self.buffer.counts]
        done = np.array(
            sorted({t.serial for t in ended} - (set(self.buffer.counts) & {c.serial for c in commits})), np.int64
        )
        here = _among(tx, np.array(sorted(direct), np.int64))
        now = changes if here.all() else changes.filter(pa.array(here))
        if not here.all():
            self.buffer.add(changes.filter(pa.array(~here & ~_among(tx, done))))
            self._oversized()
        counts = dict(
            zip(*(a.tolist() for a in np.unique(now.column("tx").to_numpy(), return_counts=True)), strict=True)
        )
        self.open.end(ended)
        sizes = [self.buffer.counts.get(c.serial, 0) + counts.get(c.serial, 0) for c in commits]
        left = [(commit, size) for commit, size in zip(commits, sizes, strict=True) if size]
        begins = lows([commit for commit, _ in left], self.open.low(FOREVER))
        group: list[Commit] = []
        rows = group_low = 0
        for (commit, size), low in zip(left, begins, strict=True):
            if group and rows + size > BLOCK_ROWS:
                yield from self._give(now, group, group_low)
                group, rows = [], 0
            if size > BLOCK_ROWS and commit.serial in self.buffer.counts:
                yield from self._give_large(commit, low)
            else:
                group.append(commit)
                rows, group_low = rows + size, low
        if group:
            yield from self._give(now, group, group_low)
        self.buffer.drop([t.serial for t in ended if t.serial in self.buffer.counts])

    def _give(self, now: pa.Table, commits: list[Commit], low: int) -> Iterator[LogItem]:
        """Some transactions as one block.

        :param low: where reading has to begin after it
        """
        self._began = time.monotonic()
        serials = np.array([c.serial for c in commits], np.int64)
        stored = [c.serial for c in commits if c.serial in self.buffer.counts]
        parts = [self.buffer.read(stored)] if stored else []
        if len(stored) < len(commits):
            here = _among(now.column("tx").to_numpy(), np.sort(serials))
            parts.append(now if here.all() else now.filter(pa.array(here)))
        rows = pa.concat_tables(parts)
        order = np.argsort(serials)
        rank = order[np.searchsorted(serials[order], rows.column("tx").to_numpy())]
        if (np.diff(rank) < 0).any():
            rows = rows.take(pa.array(np.argsort(rank, kind="stable")))
        keep, unmatched = remaining(rows)
        self._undone_unknown(unmatched, commits)
        if not keep.all():
            rows = rows.filter(pa.array(keep))
        yield from self._block(rows.combine_chunks(), commits, after(self.position, commits, low))

    def _give_large(self, commit: Commit, low: int) -> Iterator[LogItem]:
        """A transaction that is larger than a block, as several."""
        keep = self._left(commit)
        at, left = 0, int(keep.sum())
        for piece in _between_changes(self.buffer.pieces(commit.serial, BLOCK_ROWS)):
            self._began = time.monotonic()
            of_piece = keep[at : at + piece.num_rows]
            at += piece.num_rows
            count = int(of_piece.sum())
            if not count:
                continue
            left -= count
            rows = (piece if of_piece.all() else piece.filter(pa.array(of_piece))).combine_chunks()
            position = self.position if left else after(self.position, [commit], low)
            yield from self._block(rows, [commit], position, open_=left > 0)
        self.buffer.drop([commit.serial])

    def _left(self, commit: Commit) -> npt.NDArray[np.bool_]:
        """Which rows of a large transaction are left; without more of them in memory than that takes."""
        names = ["code", "rollback"]
        parts = [p.combine_chunks() for p in self.buffer.pieces(commit.serial, BLOCK_ROWS, names)]
        if any(pc.any(part.column("rollback")).as_py() for part in parts):
            names = ["tx", "code", "table", "row_id", "rollback"]
            parts = list(self.buffer.pieces(commit.serial, BLOCK_ROWS, names))
        keep, unmatched = remaining(pa.concat_tables(parts).combine_chunks())
        self._undone_unknown(unmatched, [commit])
        return keep

    def _block(
        self, rows: pa.Table, commits: list[Commit], position: OraclePosition, *, open_: bool = False
    ) -> Iterator[LogItem]:
        numbers = np.unique(rows.column("table").to_numpy()).tolist()
        self._structures.check(numbers)
        missing, gone = self._structures.missing(numbers, str(self.position))
        for change in missing:
            yield self._structure_change(change)
        left_out = [LeftOut(self._structures.table(n), _count(rows, n), _NOT_TOLD) for n in gone]
        if gone:
            rows = _of_others(rows, gone)
            numbers = sorted(set(numbers) - set(gone))
        try:
            blocks, transactions = self._assembled(rows, commits)
        except SchemaConflict as e:
            rows, unnamed = self._able(rows, numbers, self._restorer.restored)
            numbers = sorted(set(numbers) - {n for n, _ in unnamed})
            restored = self._restorer.restored(rows)
            otherwise = [] if restored is not None else self._structures.otherwise(numbers)
            if restored is not None:
                rows = restored
            elif otherwise:
                log.warning("%s The dictionary was read again.", e)
            elif not unnamed and not any(self._structures.read_again(n) for n in numbers):
                raise
            for change in otherwise:
                yield self._structure_change(change)
            rows, unread = self._able(rows, numbers, lambda some: self._assembled(some, commits))
            left_out += [left for _, left in unnamed + unread]
            blocks, transactions = self._assembled(rows, commits)
        self.position = position
        self.counters.gave(time.monotonic() - self._began)
        yield LogBlock(blocks, transactions, position, open_, left_out)

    def _able(
        self, rows: pa.Table, numbers: list[int], act: Callable[[pa.Table], object]
    ) -> tuple[pa.Table, list[tuple[int, LeftOut]]]:
        """The rows without those of tables that are read again and that something cannot be done with; and these."""
        left_out = []
        for number in numbers:
            if not self._structures.read_again(number):
                continue
            try:
                act(rows.filter(pc.equal(rows.column("table"), number)).combine_chunks())
            except SchemaConflict as e:
                left_out.append((number, LeftOut(self._structures.table(number), _count(rows, number), e.what)))
                rows = _of_others(rows, [number])
        return rows, left_out

    def _assembled(self, rows: pa.Table, commits: list[Commit]) -> tuple[list[RowBlock], Transactions]:
        began = time.monotonic()
        try:
            return self._assembler.blocks(rows, commits, self._structures.at)
        finally:
            self.counters.parse += time.monotonic() - began

    def _undone_unknown(self, count: int, commits: list[Commit]) -> None:
        if count:
            log.warning(
                "%d rows of %s undo a change that is not there; nothing of it was captured.",
                count, ", ".join(c.id for c in commits[:10]),
            )  # fmt: skip

    def _oversized(self) -> None:
        most = self._config.log_mining_buffer_transaction_events_threshold
        if most:
            large = [t for t in self.open if self.buffer.counts.get(t.serial, 0) > most]
            self.counters.oversized += len(large)
            self._give_up(large)

    def _give_up(self, transactions: list[Transaction]) -> None:
        for transaction in transactions:
            log.error(
                "Transaction %s, which began at SCN %d, is given up: %d changes are lost if it commits. Read their tables again.",
                transaction.id, transaction.first_scn, self.buffer.counts.get(transaction.serial, 0),
            )  # fmt: skip
            transaction.given_up = True
            self.counters.abandoned.append(transaction.id)
        self.position = replace(self.position, given_up=self.open.given_up)
        self.buffer.drop([t.serial for t in transactions if t.serial in self.buffer.counts])

    def _structure_change(self, change: TableChange) -> SchemaChange:
        return SchemaChange("", self._catalog, [change], self.position, int(time.time() * 1e6))


def _count(rows: pa.Table, number: int) -> int:
    """Changes of one table: not the pieces of their long values."""
    mine = rows.column("table").to_numpy() == number
    return int((mine & (rows.column("code").to_numpy() <= LAST_CHANGE)).sum())


def _of_others(rows: pa.Table, numbers: list[int]) -> pa.Table:
    return rows.filter(pa.array(~np.isin(rows.column("table").to_numpy(), numbers))).combine_chunks()


def _among(values: Int64s, wanted: Int64s) -> npt.NDArray[np.bool_]:
    """Which values are among some others, which are ascending."""
    if not len(wanted):
        return np.zeros(len(values), np.bool_)
    at = np.minimum(np.searchsorted(wanted, values), len(wanted) - 1)
    found: npt.NDArray[np.bool_] = wanted[at] == values
    return found


def _between_changes(pieces: Iterator[pa.Table]) -> Iterator[pa.Table]:
    """The same rows, cut where a change begins: the pieces of its long values stay with it."""
    held: pa.Table | None = None
    for piece in pieces:
        rows = piece if held is None else pa.concat_tables([held, piece])
        begins = np.flatnonzero(rows.column("code").to_numpy() <= LAST_CHANGE)
        cut = int(begins[-1]) if len(begins) else 0
        if cut:
            yield rows.slice(0, cut)
        held = rows.slice(cut)
    if held is not None and held.num_rows:
        yield held
