"""Handing over the rows of transactions, and standing in the log behind them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from airflow_provider_cdc.core.events import LeftOut, LogBlock, LogItem, RowBlock
from airflow_provider_cdc.sources.mysql import binlog as b
from airflow_provider_cdc.sources.mysql import kernels as k
from airflow_provider_cdc.sources.mysql.assemble import add_gtid_numbers, decode, transaction_columns
from airflow_provider_cdc.sources.mysql.event_set import EventSet, Open
from airflow_provider_cdc.sources.mysql.position import MySqlPosition, file_number


class HandingOver:
    """Makes blocks of what was found in a set of events, and moves the stream's position behind them."""

    def __init__(self, found: EventSet) -> None:
        self.s, self.found = found.s, found

    def complete(self) -> Iterator[LogItem]:
        """The complete transactions that were not handed over yet, up to ``until``: one block, but for another server's log."""
        found = self.found
        while (done := self._complete()) > found.first:
            last = int(found.transactions[done - 1, k.TX_END])
            block = self._block(last + 1, done)
            block.position = self.s.position = self.position(last, found.first, done)
            self._count(last, done, block.transactions.id[-1].as_py())
            self.passed(last, done)
            self.s.void = []
            yield block
            if self.s.single or self.s.reached():
                return

    def part(self) -> Iterator[LogItem]:
        """What is there of a transaction that is larger than the buffer."""
        found, tx = self.found, self.found.tx
        rows = found.rows_before(len(found))
        block = self._block(len(found), tx + 1)
        block.open = True
        note = found.note(tx)
        if (gtid := found.gtid(tx)) >= 0:
            note.gtid, note.standalone = found.gtid_numbers(np.array([gtid])), found.is_standalone(gtid)
        note.thread = int(found.transactions[tx, k.TX_THREAD])
        note.id, note.row_events = block.transactions.id[0].as_py(), rows
        self.s.open = note
        self.came(len(found) - 1)
        yield block

    def passed(self, last: int, done: int) -> None:
        """The transactions up to ``done`` are handed over; ``last`` is their last event."""
        self.found.lo, self.found.first = last + 1, done
        self.s.open = Open()

    def position(self, last: int, tx_lo: int, tx_hi: int) -> MySqlPosition:
        """After event ``last``, with which the transactions ``tx_lo`` to ``tx_hi`` are executed."""
        s = self.s
        if s.server.gtids:
            begun = self.found.note(tx_lo).gtid
            if begun is not None:
                add_gtid_numbers(s.gtids, begun)
            picked = self.found.transactions[tx_lo:tx_hi, k.TX_GTID]
            add_gtid_numbers(s.gtids, self.found.gtid_numbers(picked[picked >= 0]))
        s.last_end = int(self.found.routed.ends[last])
        return replace(
            s.position, file=s.file, pos=s.last_end, gtids=str(s.gtids), created=s.created, server=s.server.identity
        )

    def came(self, i: int) -> None:
        """Event ``i`` is the last one that was made use of."""
        self.s.metrics.came(int(self.found.events.table[i, k.EV_SERVER]), self.s.file, self.found.place(i))

    def _count(self, last: int, done: int, id_: str) -> None:
        found = self.found
        handed = range(found.first, done)
        apart, rolled_back = (sum(t in handed for t in some) for some in (found.apart, found.rolled_back))
        large = found.note(found.first).id is not None
        self.s.metrics.ended(len(handed) - apart, rolled_back, large=large, last=id_)
        self.came(last)

    def _complete(self) -> int:
        """Number of transactions that are complete and not after ``until``."""
        s, first = self.s, self.found.first
        done = self.found.tx + 1 - self.found.open
        if done == first:
            return done
        if s.single:
            return first + 1
        if s.until is None:
            return done
        if not s.until.same_log(s.position):
            return first + 1  # one by one: only their ids can be compared
        if file_number(s.file) != file_number(s.until.file):
            return done if file_number(s.file) < file_number(s.until.file) else first
        ends = self.found.routed.ends[self.found.transactions[first:done, k.TX_END]]
        return first + int(np.searchsorted(ends, s.until.pos, side="right"))

    def _block(self, hi: int, tx_hi: int) -> LogBlock:
        s, found = self.s, self.found
        self._leave_out_void(hi)
        transactions = found.transactions[found.first : tx_hi]
        begun = found.note(found.first).id
        columns = transaction_columns(found.events, transactions, found.routed.ends, s.file, begun, s.gtids)
        self._leave_out_sources(columns.transactions.id, hi)
        if s.config.include_query:
            found.routed.queries = self._queries()
        rows = decode(found.routed, s.maps.layouts, found.lo, hi, found.first, columns, s.scratch)
        if not s.maps.left_out:
            return LogBlock(rows, columns.transactions, s.position)
        why = [s.maps.why_left_out(block.table) for block in rows]
        left = [LeftOut(r.table.id, len(r), text) for r, text in zip(rows, why, strict=True) if text is not None]
        rows = renumbered([r for r, text in zip(rows, why, strict=True) if text is None])
        return LogBlock(rows, columns.transactions, s.position, left_out=left)

    def _leave_out_void(self, hi: int) -> None:
        """Rows of the first transaction that are known to be rolled back; they come when a transaction is read again."""
        found = self.found
        for low, high in self.s.void:
            mine = found.rows(found.first, hi)
            mine[: found.lo] = False
            events = np.flatnonzero(mine)
            numbers = np.arange(len(events)) + found.note(found.first).row_events
            found.routed.layout_of[events[(numbers >= low) & (numbers < high)]] = k.NOT_WANTED

    def _leave_out_sources(self, ids: pa.StringArray, hi: int) -> None:
        """Rows of transactions whose source does not count; signals and watermarks are no such rows.

        :param ids: of the transactions from the first one on that was not handed over
        """
        sources, found = self.s.sources, self.found
        if sources is None:
            return
        out = np.array([not sources.has(id_) for id_ in ids.to_pylist()])
        layouts = found.routed.layout_of[found.lo : hi]
        rows = np.flatnonzero(layouts >= 0)
        rows = rows[out[found.routed.transaction_of[found.lo : hi][rows] - found.first]]
        signals = self.s.config.signal_data_collection
        kept = [n for n, layout in enumerate(self.s.maps.layouts) if str(layout.schema.id) == signals]
        layouts[rows[~np.isin(layouts[rows], kept)]] = k.NOT_WANTED

    def _queries(self) -> tuple[list[str], npt.NDArray[np.int32]]:
        """Statements of annotations, and for each event the last one before it."""
        events = self.found.events
        kinds = events.table[:, k.EV_TYPE]
        found = np.flatnonzero((kinds == b.MARIADB_ANNOTATE) | (kinds == b.ROWS_QUERY))
        texts = []
        for i in found:
            body = events.body(int(i))
            texts.append((body[1:] if kinds[i] == b.ROWS_QUERY else body).decode("utf-8", "replace"))
        last = np.zeros(len(kinds), np.int32)
        last[found] = 1
        return texts, (np.cumsum(last) - 1).astype(np.int32)


def renumbered(rows: list[RowBlock]) -> list[RowBlock]:
    """Rows of a block of which some are gone, in their order."""
    left = np.sort(np.concatenate([r.order for r in rows])) if rows else np.zeros(0, np.int64)
    return [replace(r, order=np.searchsorted(left, r.order)) for r in rows]
