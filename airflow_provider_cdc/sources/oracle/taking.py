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

from airflow_provider_cdc.core.errors import SchemaConflict, SourceLogDamaged, UnknownLogEvent
from airflow_provider_cdc.core.events import (
    Heartbeat,
    LogBlock,
    LogItem,
    RowBlock,
    SchemaChange,
    Transactions,
    Truncate,
)
from airflow_provider_cdc.core.schema import TableChange, TableId, TableSchema
from airflow_provider_cdc.core.source import Tables
from airflow_provider_cdc.sources.oracle.assemble import Assembler, Commit
from airflow_provider_cdc.sources.oracle.buffer import ROWS, Buffer
from airflow_provider_cdc.sources.oracle.config import MiningStrategy, OracleConfig
from airflow_provider_cdc.sources.oracle.continuation import Texts
from airflow_provider_cdc.sources.oracle.lookups import Lookups, NoLookups
from airflow_provider_cdc.sources.oracle.metrics import Taken
from airflow_provider_cdc.sources.oracle.objects import unnamed
from airflow_provider_cdc.sources.oracle.operations import (
    COMMIT,
    DDL,
    FOREVER,
    LAST_CHANGE,
    MISSING_SCN,
    ROLLBACK,
    START,
    UNSUPPORTED,
)
from airflow_provider_cdc.sources.oracle.position import OraclePosition
from airflow_provider_cdc.sources.oracle.redo.stale import Restorer, nameless, stale
from airflow_provider_cdc.sources.oracle.structures import Structures
from airflow_provider_cdc.sources.oracle.transactions import OpenTransactions, Transaction
from airflow_provider_cdc.sources.oracle.undo import remaining

log = logging.getLogger(__name__)

BLOCK_ROWS = 32_768

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
        self._config, self._ddl, self._catalog = config, ddl, catalog
        lookups = lookups or NoLookups()
        self._structures = structures = Structures(tables, structure, catalog, lookups)
        if config.log_mining_strategy is not MiningStrategy.REDO_LOG_CATALOG:
            structures.objects.begin()
        self._restorer = Restorer(
            config.log_mining_strategy, config.lob_enabled, structures.at, structures.stored, lookups.storage, structures.by_object
        )  # fmt: skip
        self._start = start
        self.position = start
        self.open = OpenTransactions()
        self.buffer = Buffer(config.log_mining_buffer_memory_max_bytes, config.log_mining_buffer_spill_folder)
        self.counters = Taken()
        self._began = 0.0  # when the changes that are given out next began to be put together
        self._assembler = Assembler(config, lookups.row)
        self._texts = Texts()
        self._scn = 0

    # -- rows in --------------------------------------------------------------------------------------------------------

    def take(self, batch: pa.Table) -> Iterator[LogItem]:
        """Rows as the mining session gives them (see ``session.CONTENTS``), in its order."""
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
        for at in np.flatnonzero((codes == DDL) | (codes == MISSING_SCN) | (codes == UNSUPPORTED)):
            yield from self._changes(rows.slice(lo, int(at) - lo))
            yield from self._special(rows.slice(int(at), 1).to_pylist()[0])
            lo = int(at) + 1
        yield from self._changes(rows.slice(lo))

    def end(self, scn: int) -> Heartbeat:
        """All rows up to an SCN have come.

        :raises SourceLogDamaged: a text goes on in a row that did not come
        """
        self._texts.end()
        self.position = replace(self.position.read(scn), scn=self.open.low(scn))
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
        commits = _commits(rows, ends[codes[ends] == COMMIT], serials, met)
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
        numbers = self._table_numbers(rows, ~control)
        keep = numbers >= 0
        self.counters.filtered += int((~control & ~keep).sum())
        keep &= ~_doubled(rows, serials, keep)
        given_up = [t.serial for t in self.open if t.given_up]
        if given_up:
            keep &= ~np.isin(serials, given_up)
        self.counters.changes += int(keep.sum())
        columns = {name: rows.column(name) for name in ROWS.names if name not in ("tx", "table")}
        columns |= {"tx": pa.array(serials), "table": pa.array(numbers)}
        waiting = pa.table([columns[name] for name in ROWS.names], schema=ROWS)
        return waiting if keep.all() else waiting.filter(pa.array(keep))

    def _table_numbers(self, rows: pa.Table, of: npt.NDArray[np.bool_]) -> npt.NDArray[np.int32]:
        """Number of each row's table, -1 where it is not captured."""
        owners = rows.column("owner").combine_chunks().dictionary_encode()
        names = rows.column("table").combine_chunks().dictionary_encode()
        a = owners.indices.fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int64)
        b = names.indices.fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int64)
        unknown = nameless(owners.dictionary, a, "OWNER") | nameless(names.dictionary, b, "NAME")
        old = of & (unknown | stale(rows))
        named = of & ~old
        pairs, first, which = np.unique(np.where(named, a << 32 | b, -1), return_index=True, return_inverse=True)
        numbers = np.full(len(pairs), -1, np.int32)
        objects = rows.column("object").combine_chunks().fill_null(0).to_numpy(zero_copy_only=False)
        for i, pair in enumerate(pairs.tolist()):
            if pair >= 0:
                owner, name = owners.dictionary[pair >> 32].as_py(), names.dictionary[pair & 0xFFFFFFFF].as_py()
                numbers[i] = self._structures.number(owner, name)
                if objects[first[i]]:
                    table = TableId(namespace=owner, name=name, catalog=self._catalog)
                    self._structures.objects.learn(int(objects[first[i]]), table)
        found: npt.NDArray[np.int32] = numbers[which]
        if old.any():
            self._by_object(rows, objects, np.flatnonzero(old), found)
        return found

    def _by_object(
        self, rows: pa.Table, objects: Int64s, at: npt.NDArray[np.intp], found: npt.NDArray[np.int32]
    ) -> None:
        """Number the rows ``at`` by their objects."""
        some, first, which, counts = np.unique(
            objects[at], return_index=True, return_inverse=True, return_counts=True
        )  # fmt: skip
        numbers = np.empty(len(some), np.int32)
        for i, number in enumerate(some.tolist()):
            row = rows.slice(int(at[first[i]]), 1).select(["owner", "table", "scn"]).to_pylist()[0]
            numbers[i] = self._structures.number_of_object(
                number, row["owner"] or "UNKNOWN", row["table"] or "OBJ# ", row["scn"], int(counts[i])
            )
        found[at] = numbers[which]

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
        lows = self._lows([commit for commit, _ in left])
        group: list[Commit] = []
        rows = group_low = 0
        for (commit, size), low in zip(left, lows, strict=True):
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

    def _lows(self, commits: list[Commit]) -> list[int]:
        """Where reading has to begin after each of some commits: before what is open still, and what is yet to be given out."""
        first = np.array([c.first_scn for c in commits], np.int64)
        later = np.append(np.minimum.accumulate(first[::-1])[::-1], FOREVER)[1:] if len(first) else first
        scns = np.array([c.scn for c in commits], np.int64)
        lows: list[int] = np.minimum(np.minimum(later, scns), self.open.low(FOREVER)).tolist()
        return lows

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
        yield from self._block(rows.combine_chunks(), commits, self._after(commits, low))

    def _after(self, commits: list[Commit], low: int) -> OraclePosition:
        """The place after some commits."""
        newest = {c.thread: c.scn for c in commits}
        at: dict[int, set[str]] = {thread: set() for thread in newest}
        for c in commits:
            if c.scn == newest[c.thread]:
                at[c.thread].add(c.id)
        position = self.position
        for thread, scn in newest.items():
            position = position.committed(scn, thread, frozenset(at[thread]))
        return replace(position, scn=low)

    def _give_large(self, commit: Commit, low: int) -> Iterator[LogItem]:
        """A transaction that is larger than a block, as several."""
        keep = self._left(commit)
        at, waiting = 0, None
        for piece in _between_changes(self.buffer.pieces(commit.serial, BLOCK_ROWS)):
            self._began = time.monotonic()
            part = piece.filter(pa.array(keep[at : at + piece.num_rows]))
            at += piece.num_rows
            if part.num_rows:
                if waiting is not None:
                    yield from self._block(waiting, [commit], self.position, open_=True)
                waiting = part.combine_chunks()
        if waiting is not None:
            yield from self._block(waiting, [commit], self._after([commit], low))
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
        if gone:
            rows = rows.filter(pa.array(~np.isin(rows.column("table").to_numpy(), gone))).combine_chunks()
            numbers = sorted(set(numbers) - set(gone))
        try:
            blocks, transactions = self._assembled(rows, commits)
        except SchemaConflict as e:
            restored = self._restorer.restored(rows)
            otherwise = [] if restored is not None else self._structures.otherwise(numbers)
            if restored is not None:
                rows = restored
            elif not otherwise:
                raise
            else:
                log.warning("%s The dictionary was read again.", e)
            for change in otherwise:
                yield self._structure_change(change)
            blocks, transactions = self._assembled(rows, commits)
        self.position = position
        self.counters.gave(time.monotonic() - self._began)
        yield LogBlock(blocks, transactions, position, open_)

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
        self.buffer.drop([t.serial for t in transactions if t.serial in self.buffer.counts])

    # -- DDL, and rows that say that something is missing ------------------------------------------------------------------

    def _special(self, row: dict[str, object]) -> Iterator[LogItem]:
        """DDL, and rows that say that something is missing."""
        code, scn = row["code"], int(str(row["scn"]))
        if code == MISSING_SCN:
            raise SourceLogDamaged(
                f"LogMiner says that redo is missing: {row['info'] or row['sql'] or 'MISSING_SCN'}.",
                where=f"SCN {scn}",
                safe="Everything before is captured.",
                remedy="make sure that all archived logs from there on exist; to go on without, set snapshot.mode=always for one run",
            )
        if code == UNSUPPORTED:
            owner, name = str(row["owner"] or ""), str(row["table"] or "")
            known = not unnamed(owner, name)
            number = int(str(row["object"] or 0))
            if (
                self._structures.number(owner, name)
                if known
                else self._structures.number_of_object(number, owner, name, scn)
            ) >= 0:
                raise UnknownLogEvent(
                    f"LogMiner cannot show a change of {row['owner']}.{row['table']}: {row['info'] or 'operation UNSUPPORTED'}.",
                    where=f"SCN {scn}",
                    safe="Everything before is captured.",
                    remedy="leave the table out with table.exclude.list, or read it again with snapshot.mode=always for one run",
                )
            return
        yield from self._statement(row, scn)

    def _statement(self, row: dict[str, object], scn: int) -> Iterator[LogItem]:
        xid = row["xid"]
        assert isinstance(xid, bytes)
        thread = int(str(row["thread"]))
        transaction = Transaction(-1, xid, scn, 0).id
        if self._start.captured(scn, thread, transaction) or not row["sql"]:
            return
        text = str(row["sql"])
        changes, truncated = self._ddl(text, str(row["owner"] or row["user"] or ""), f"SCN {scn}")
        self._structures.named(changes, int(str(row["object"] or 0)) if len(changes) == 1 else 0, scn)
        if not changes and not truncated:
            return
        self.position = replace(
            self.position.committed(scn, thread, frozenset({transaction})), scn=min(self.open.low(scn), scn)
        )
        source = {
            "txId": transaction, "scn": str(scn), "rs_id": str(row["rs_id"] or "").strip() or None, "ssn": row["ssn"],
            "redo_thread": thread, "user_name": row["user"],
        }  # fmt: skip
        ts_us = int(str(row["ts_us"]))
        if truncated:
            yield Truncate(truncated, self.position, ts_us, transaction, source)
        if changes:
            old = self._structures.known(changes)
            yield SchemaChange(text, self._catalog, changes, self.position, ts_us, source)
            self._structures.replaced(old, scn)

    def _structure_change(self, change: TableChange) -> SchemaChange:
        return SchemaChange("", self._catalog, [change], self.position, int(time.time() * 1e6))


def _commits(rows: pa.Table, at: Int64s, serials: Int64s, met: dict[int, Transaction]) -> list[Commit]:
    """The commits at some rows, but for those of transactions that were given up."""
    place = pa.array(at)
    columns = [rows.column(name).take(place).to_pylist() for name in ("scn", "thread", "ts_us")]
    found = zip((met[serial] for serial in serials[at].tolist()), *columns, strict=True)
    return [
        Commit(t.serial, t.id, scn, thread, ts_us, t.first_scn) for t, scn, thread, ts_us in found if not t.given_up
    ]


def _doubled(rows: pa.Table, serials: Int64s, of: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
    """Rows that LogMiner gives a second time, as it does when a log was added under two names.

    ``RS_ID`` and ``SSN`` together identify a change of a row (Oracle Database Reference, "V$LOGMNR_CONTENTS").
    """
    doubled = np.zeros(rows.num_rows, np.bool_)
    scns = rows.column("scn").to_numpy()
    same = np.append(False, np.diff(scns) == 0)
    near = np.flatnonzero((same | np.append(same[1:], False)) & of)
    if len(near) < 2:
        return doubled
    part = rows.take(pa.array(near))
    keys = [
        scns[near],
        serials[near],
        part.column("ssn").to_numpy(),
        part.column("thread").to_numpy(),
        part.column("code").to_numpy(),
    ]
    for name in ("rs_id", "row_id"):
        codes = part.column(name).combine_chunks().dictionary_encode().indices
        keys.append(codes.fill_null(-1).to_numpy(zero_copy_only=False))
    order = np.lexsort(keys)
    again = np.ones(len(near) - 1, np.bool_)
    for key in keys:
        again &= np.diff(key[order]) == 0
    doubled[near[order[1:][again]]] = True
    if doubled.any():
        log.warning(
            "LogMiner gave %d rows twice, at SCN %d and after; they count once.", doubled.sum(), scns[doubled][0]
        )
    return doubled


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
