"""Taking a set of events from the log: routing them, handing over blocks, and looking at everything that is not a row.

The kernels find transactions and tables; what they leave to plain Python is here: files, statements, new table maps, savepoints,
XA. An event that may carry data and is not known is an error.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from airflow_provider_cdc.core.errors import PrerequisiteError, SourceLogDamaged
from airflow_provider_cdc.core.events import (
    Heartbeat,
    LogBlock,
    LogItem,
    Rollback,
    SchemaChange,
    Transactions,
    Truncate,
)
from airflow_provider_cdc.core.schema import TableChange
from airflow_provider_cdc.sources.mysql import binlog as b
from airflow_provider_cdc.sources.mysql import ddl
from airflow_provider_cdc.sources.mysql import kernels as k
from airflow_provider_cdc.sources.mysql.assemble import Routed, add_gtid_numbers, decode, transaction_columns
from airflow_provider_cdc.sources.mysql.gtid import MariaDbGtids, MySqlGtids
from airflow_provider_cdc.sources.mysql.position import MySqlPosition, file_number
from airflow_provider_cdc.sources.mysql.wire import Events

if TYPE_CHECKING:
    from airflow_provider_cdc.sources.mysql.stream import BinlogStream

Int64s = npt.NDArray[np.int64]


@dataclass(slots=True)
class Open:
    """The transaction that is being read, where it is more than the kernels know.

    :param id: its id, once a part of it was handed over; ``None`` while all of it is in the buffer
    :param gtid: its GTID event as numbers, once that has left the buffer
    :param standalone: it consists of one statement (MariaDB says so)
    :param thread: number of the session, as its BEGIN said
    :param row_events: row events of it that have left the buffer
    :param savepoints: name → row events before it
    :param xa: its XA id, if it has one
    """

    id: str | None = None
    gtid: Int64s | None = None
    standalone: bool = False
    thread: int = -1
    row_events: int = 0
    savepoints: dict[str, int] = field(default_factory=dict)
    xa: str | None = None


class ReadAgain(Exception):
    """The open transaction has to be read again from its start: rows that were handed over are void."""


class Taking:
    """Takes one set of events: routes them, hands over blocks, looks at what is not a row.

    :ivar lo: first event that was not handed over yet
    :ivar first: the transaction it belongs to
    """

    def __init__(self, stream: BinlogStream, events: Events) -> None:
        self.s, self.events = stream, events
        n = len(events)
        self.state = np.zeros(k.STATE, np.int64)
        self.transactions = np.full((n + 1, k.TX_FIELDS), -1, np.int64)
        self.routed = Routed(events, np.full(n, k.NOT_ROWS, np.int32), np.zeros(n, np.int32), self._ends(), stream.file)
        self.lo = self.first = 0
        self._notes: dict[int, Open] = {}
        self._rolled_back: set[int] = set()
        self._apart: set[int] = set()  # transactions of which nothing is committed here: DDL, and what is only prepared
        if stream.open.id is not None:
            # the transaction that was begun in an earlier buffer is the first one here
            self.state[k.TX] = self.state[k.OPEN] = 1
            self._notes[0] = stream.open
            self.transactions[0, k.TX_THREAD] = stream.open.thread

    def items(self) -> Iterator[LogItem]:
        """What the events hold, in their order.

        :raises SourceLogDamaged: an event does not hold what its kind has to
        """
        try:
            yield from self._items()
        except (ValueError, IndexError, struct.error) as e:
            raise SourceLogDamaged(
                f"An event of the binary log cannot be read: {e}.",
                where=self.where(min(self.at, len(self.events) - 1)),
                safe="Everything before its transaction is captured; no value was guessed.",
                remedy="run the capture again; if the error stays, the log is damaged, or this is an error of the reader: please "
                "report it. To go on past it, read the tables again with snapshot.mode=always for one run",
            ) from e

    def _items(self) -> Iterator[LogItem]:
        while not self.s.reached():
            maps = self.s.maps
            why = k.route(
                self.events.buf, self.events.table, self.state, self.routed.layout_of, self.routed.transaction_of,
                self.transactions, maps.ids, maps.places, maps.numbers, maps.bytes,
            )  # fmt: skip
            if why == k.ROUTED or self._is_past(self.at):
                break
            if why == k.NEW_MAP:
                yield from self._new_map(self.at)
            else:
                yield from self._look_at(self.at)
        yield from self._hand_over()
        self._arrive()
        if self.state[k.OPEN] and not self.s.reached():
            begun = self._note(int(self.state[k.TX]) - 1).id is not None
            if self.events.full or begun:
                yield from self._hand_over_part()
            else:
                self.events.keep = int(self.transactions[self.state[k.TX] - 1, k.TX_FIRST])

    # -- where things are ---------------------------------------------------------------------------------------------

    @property
    def at(self) -> int:
        """The event that is looked at."""
        return int(self.state[k.AT])

    def place(self, i: int) -> int:
        """Log position at which event ``i`` begins."""
        return int(self.routed.ends[i] - self.events.table[i, k.EV_SIZE])

    def where(self, i: int) -> str:
        return f"{self.s.file}:{self.place(i)}"

    def _ends(self) -> Int64s:
        """64-bit log positions after each event: the log has the low 32 bits only, and artificial events have no place."""
        table = self.events.table
        ends = table[:, k.EV_END].copy()
        artificial = (table[:, k.EV_FLAGS] & b.ARTIFICIAL_FLAG) != 0
        real = np.flatnonzero(~artificial & (ends > 0))
        low = np.concatenate([[self.s.last_end & 0xFFFFFFFF], ends[real]])
        # a file begins again at a small number after a ROTATE, of which the events after it know
        carry = np.cumsum((np.diff(low) < 0) & (table[real, k.EV_TYPE] != b.FORMAT_DESCRIPTION))
        ends[real] += (self.s.last_end & ~0xFFFFFFFF) + (carry << 32)
        return ends

    def _is_past(self, i: int) -> bool:
        """Whether event ``i`` begins at or after ``until``."""
        s = self.s
        if (
            s.until is None
            or not s.until.same_log(s.position)
            or int(self.events.table[i, k.EV_FLAGS]) & b.ARTIFICIAL_FLAG
        ):
            return False
        return (file_number(s.file), self.place(i)) >= (file_number(s.until.file), s.until.pos)

    def _arrive(self) -> None:
        """Stand at ``until`` if the next thing in the log comes after it: its last bytes need not be a transaction's."""
        s, at = self.s, self.at
        if self.first < int(self.state[k.TX]):
            at = int(self.transactions[self.first, k.TX_FIRST])
        if s.until is not None and 0 <= at < len(self.events) and self._is_past(at):
            s.position = replace(s.position, file=s.until.file, pos=s.until.pos)

    def _advance(self, i: int) -> None:
        """Stand where a heartbeat of the server says that its log ends: what lies before may be no transaction, as the head of
        a new file."""
        s = self.s
        place = replace(
            s.position,
            file=s.file,
            pos=int(self.routed.ends[i]),
            gtids=str(s.gtids) if s.server.gtids else "",
            created=s.created,
            server=s.server.identity,
        )
        # on the way to where a reader by GTIDs stands, what it has is passed over
        if s.until is None and (not place.same_log(s.position) or place.reached(s.position)):
            s.position = place

    def _note(self, tx: int) -> Open:
        """What is known of a transaction besides what the kernels know."""
        return self._notes.setdefault(tx, Open())

    def _rows_before(self, i: int) -> int:
        """Row events of the open transaction before event ``i``."""
        tx = int(self.state[k.TX]) - 1
        mine = (self.routed.transaction_of[:i] == tx) & (self.routed.layout_of[:i] != k.NOT_ROWS)
        return self._note(tx).row_events + int(np.count_nonzero(mine))

    # -- handing over -------------------------------------------------------------------------------------------------

    def _hand_over(self) -> Iterator[LogItem]:
        """The complete transactions that were not handed over yet, up to ``until``: one block, but for another server's log."""
        while (done := self._complete()) > self.first:
            last = int(self.transactions[done - 1, k.TX_END])
            block = self._block(last + 1, done)
            block.position = self.s.position = self._position(last, self.first, done)
            self._count(last, done, block.transactions.id[-1].as_py())
            self.lo, self.first = last + 1, done
            self.s.open, self.s.void = Open(), []
            yield block
            if self.s.single or self.s.reached():
                return

    def _hand_over_part(self) -> Iterator[LogItem]:
        """What is there of a transaction that is larger than the buffer."""
        s, tx = self.s, int(self.state[k.TX]) - 1
        rows = self._rows_before(len(self.events))
        block = self._block(len(self.events), tx + 1)
        block.open = True
        gtid = int(self.transactions[tx, k.TX_GTID])
        note = self._note(tx)
        if gtid >= 0:
            note.gtid, note.standalone = self._gtid_numbers(gtid), self._standalone(gtid)
        note.thread = int(self.transactions[tx, k.TX_THREAD])
        note.id, note.row_events = block.transactions.id[0].as_py(), rows
        s.open = note
        self._came(len(self.events) - 1)
        yield block

    def _count(self, last: int, done: int, id_: str) -> None:
        """The transactions up to ``done`` are handed over; ``last`` is their last event."""
        handed = range(self.first, done)
        apart, rolled_back = (sum(t in handed for t in some) for some in (self._apart, self._rolled_back))
        large = self._note(self.first).id is not None
        self.s.metrics.ended(len(handed) - apart, rolled_back, large=large, last=id_)
        self._came(last)

    def _came(self, i: int) -> None:
        self.s.metrics.came(int(self.events.table[i, k.EV_SERVER]), self.s.file, self.place(i))

    def _complete(self) -> int:
        """Number of transactions that are complete and not after ``until``."""
        s, done = self.s, int(self.state[k.TX]) - int(self.state[k.OPEN])
        if done == self.first:
            return done
        if s.single:
            return self.first + 1
        if s.until is None:
            return done
        if not s.until.same_log(s.position):
            return self.first + 1  # one by one: only their ids can be compared
        if file_number(s.file) != file_number(s.until.file):
            return done if file_number(s.file) < file_number(s.until.file) else self.first
        ends = self.routed.ends[self.transactions[self.first : done, k.TX_END]]
        return self.first + int(np.searchsorted(ends, s.until.pos, side="right"))

    def _block(self, hi: int, tx_hi: int) -> LogBlock:
        s = self.s
        self._leave_out_void(hi)
        transactions = self.transactions[self.first : tx_hi]
        columns = transaction_columns(
            self.events, transactions, self.routed.ends, s.file, self._note(self.first).id, s.gtids
        )
        if s.config.include_query:
            self.routed.queries = self._queries()
        rows = decode(self.routed, s.maps.layouts, self.lo, hi, self.first, columns, s.scratch)
        return LogBlock(rows, columns.transactions, s.position)

    def _leave_out_void(self, hi: int) -> None:
        """Rows of the first transaction that are known to be rolled back; they come when a transaction is read again."""
        for low, high in self.s.void:
            mine = (self.routed.transaction_of[:hi] == self.first) & (self.routed.layout_of[:hi] != k.NOT_ROWS)
            mine[: self.lo] = False
            events = np.flatnonzero(mine)
            numbers = np.arange(len(events)) + self._note(self.first).row_events
            self.routed.layout_of[events[(numbers >= low) & (numbers < high)]] = k.NOT_WANTED

    def _position(self, last: int, tx_lo: int, tx_hi: int) -> MySqlPosition:
        """After event ``last``, with which the transactions ``tx_lo`` to ``tx_hi`` are executed."""
        s = self.s
        if s.server.gtids:
            begun = self._note(tx_lo).gtid
            if begun is not None:
                add_gtid_numbers(s.gtids, begun)
            picked = self.transactions[tx_lo:tx_hi, k.TX_GTID]
            numbers = np.zeros((len(picked[picked >= 0]), 3), np.int64)
            k.read_gtids(self.events.buf, self.events.table, picked[picked >= 0], numbers)
            add_gtid_numbers(s.gtids, numbers)
        s.last_end = int(self.routed.ends[last])
        return replace(
            s.position,
            file=s.file,
            pos=s.last_end,
            gtids=str(s.gtids),
            created=s.created,
            server=s.server.identity,
        )

    def _queries(self) -> tuple[list[str], npt.NDArray[np.int32]]:
        """Statements of annotations, and for each event the last one before it."""
        kinds = self.events.table[:, k.EV_TYPE]
        found = np.flatnonzero((kinds == b.MARIADB_ANNOTATE) | (kinds == b.ROWS_QUERY))
        texts = []
        for i in found:
            body = self.events.body(int(i))
            texts.append((body[1:] if kinds[i] == b.ROWS_QUERY else body).decode("utf-8", "replace"))
        last = np.zeros(len(kinds), np.int32)
        last[found] = 1
        return texts, (np.cumsum(last) - 1).astype(np.int32)

    # -- what is not a row --------------------------------------------------------------------------------------------

    def _new_map(self, i: int) -> Iterator[LogItem]:
        schema = self.s.maps.learn(self.events.body(i), self.where(i))
        if schema is None:
            return
        yield from self._hand_over()
        known = self.s.tables.get(schema.id)
        change = TableChange(type="CREATE" if known is None else "ALTER", id=schema.id, table=schema, exact=False)
        ts_us = int(self.events.table[i, k.EV_TIME]) * 1_000_000
        yield SchemaChange("", schema.id.namespace, [change], self.s.position, ts_us, self._source(i))

    def _look_at(self, i: int) -> Iterator[LogItem]:
        """An event that the kernel leaves to plain Python."""
        s, kind = self.s, int(self.events.table[i, k.EV_TYPE])
        if kind in b.ROWS:
            if self.state[k.OPEN] and s.maps.known(int.from_bytes(self.events.body(i)[:6], "little")):
                return  # its table map had lost its place to another one; now it has it back
            s.metrics.malformed += 1
            raise b.unknown_event(kind, self.where(i), "rows without a table map, or outside of a transaction")
        if kind == b.QUERY:
            yield from self._query(i)
        elif kind == b.ROTATE:
            yield from self._rotate(i)
        elif kind == b.FORMAT_DESCRIPTION:
            self._format(i)
        elif kind == b.HEARTBEAT:
            if not self.state[k.OPEN]:
                yield from self._hand_over()
                self._advance(i)
                yield Heartbeat(s.position)
        elif kind == b.MARIADB_GTID:
            self._xa_gtid(i)
        elif kind in (b.PREVIOUS_GTIDS, b.MARIADB_GTID_LIST):
            self._before_file(i)
        elif kind == b.XA_PREPARE:
            yield from self._prepared(i)
        elif kind == b.INCIDENT:
            raise b.unknown_event(kind, self.where(i), "the server says that changes are missing from its log")
        elif kind not in b.HARMLESS and not int(self.events.table[i, k.EV_FLAGS]) & b.IGNORABLE_FLAG:
            s.metrics.malformed += kind in b.FRAMES
            raise b.unknown_event(kind, self.where(i))
        self.state[k.AT] = i + 1

    def _rotate(self, i: int) -> Iterator[LogItem]:
        yield from self._hand_over()
        name, pos = b.parse_rotate(self.events.body(i))
        s = self.s
        if s.until is not None and s.until.same_log(s.position) and s.until.file == s.file != name:
            s.position = replace(s.position, file=s.file, pos=max(s.until.pos, s.position.pos))
        # asked by GTID, the server begins at the head of a file; asked by place, it says that place
        s.last_end = pos
        if name != s.file:
            s.file, s.created = name, 0
            self.routed.file = name
        # positions of the events after it count from the new file's beginning
        self.routed.ends[i + 1 :] = self.events.table[i + 1 :, k.EV_END]

    def _format(self, i: int) -> None:
        body = self.events.body(i)
        connection = self.s.connection
        checksums = body[-1] == 1 if connection.checksum else b.has_checksums(body)
        connection.checksum = 4 if checksums else 0
        self.s.created = int(self.events.table[i, k.EV_TIME])

    def _before_file(self, i: int) -> None:
        """The transactions before a file: whoever began at its head did not know them."""
        s, body = self.s, self.events.body(i)
        if s.server.gtids and not str(s.gtids) and not int(self.events.table[i, k.EV_FLAGS]) & b.ARTIFICIAL_FLAG:
            s.gtids = MariaDbGtids.decode(body) if s.server.mariadb else MySqlGtids.decode(body)

    def _query(self, i: int) -> Iterator[LogItem]:
        """A statement: the frame of a transaction, DDL, or what does not concern tables."""
        s = self.s
        query = b.parse_query(self.events.body(i), s.codec)
        closes = self._is_whole_transaction(i, query.sql)
        options = ddl.sql_mode_options(query.sql_mode)
        for statement in ddl.read(query.sql, **options, version=s.server.version_number):
            match statement:
                case ddl.Transaction():
                    yield from self._frame(i, statement)
                    closes = closes and statement.kind in ("xa commit", "xa rollback") and bool(self.state[k.OPEN])
                    if statement.kind == "xa start":
                        self.transactions[int(self.state[k.TX]) - 1, k.TX_THREAD] = query.thread
                case ddl.Dml():
                    self._statement_format(i, query, statement.kind)
                case _ if self._is_half_done(i):
                    pass
                case _ if query.error:
                    why = f"it ended with error {query.error} on the server, after it had changed something"
                    yield from self._ddl(i, query, ddl.Unknown(query.sql, ddl.tables_of(statement), why), closes)
                case _:
                    yield from self._ddl(i, query, statement, closes)
            if closes and not isinstance(statement, ddl.Transaction):
                self._apart.add(int(self.state[k.TX]) - 1)
        if closes and self.state[k.OPEN]:
            self._close(i)
            yield from self._hand_over()

    def _is_half_done(self, i: int) -> bool:
        """Whether an ALTER TABLE only begins here, or is taken back (MariaDB's ``binlog_alter_two_phase``)."""
        if not self.s.server.mariadb or not self.state[k.OPEN]:
            return False
        gtid = int(self.transactions[int(self.state[k.TX]) - 1, k.TX_GTID])
        if gtid < 0 or int(self.events.table[gtid, k.EV_TYPE]) != b.MARIADB_GTID:
            return False
        extra = b.parse_mariadb_gtid(self.events.body(gtid)).extra
        return bool(extra & (b.MariaDbGtid.EXTRA_START_ALTER | b.MariaDbGtid.EXTRA_ROLLBACK_ALTER))

    def _is_whole_transaction(self, i: int, sql: str) -> bool:
        """Whether a statement ends the transaction that its GTID began; rows follow one that does not."""
        if not self.state[k.OPEN]:
            return False
        tx = int(self.state[k.TX]) - 1
        gtid = int(self.transactions[tx, k.TX_GTID])
        if self.s.server.mariadb:
            return self._standalone(gtid) if gtid >= 0 else self._note(tx).standalone
        begun = int(self.transactions[tx, k.TX_THREAD]) >= 0
        return not begun and not sql.rstrip().upper().endswith("START TRANSACTION")

    def _ddl(self, i: int, query: b.Query, statement: ddl.Statement, closes: bool) -> Iterator[LogItem]:
        found = self.s.reader.read(statement, query, self.where(i))
        if found is None:
            return
        if closes:
            # the transaction is this statement: it is handed over as what it is, not as an empty block
            tx = int(self.state[k.TX]) - 1
            yield from self._hand_over()
            self._close(i)
            position = self._position(i, tx, tx + 1)
            self.lo, self.first = i + 1, tx + 1
            self.s.open = Open()
        else:
            yield from self._hand_over()
            position = self.s.position if self.state[k.OPEN] else self._position(i, self.first, self.first)
        ts_us, source = int(self.events.table[i, k.EV_TIME]) * 1_000_000, self._source(i)
        self.s.position = position
        if closes:
            self._came(i)
            self.s.metrics.last_transaction = str(source["gtid"] or self.s.metrics.last_transaction)
        if found.truncated:
            gtid = source["gtid"]
            yield Truncate(found.truncated, position, ts_us, str(gtid) if gtid else None, source)
        if found.changes:
            open_ = bool(self.state[k.OPEN])
            yield SchemaChange(query.sql, query.database, found.changes, position, ts_us, source, open=open_)
        self.s.maps.forget()

    def _source(self, i: int) -> dict[str, object]:
        tx = int(self.state[k.TX]) - 1
        gtid = None
        if self.s.server.gtids and tx >= 0:
            columns = transaction_columns(
                self.events,
                self.transactions[tx : tx + 1],
                self.routed.ends,
                self.s.file,
                self._note(tx).id,
                self.s.gtids,
            )
            gtid = columns.transactions.id[0].as_py()
        server_id = int(self.events.table[i, k.EV_SERVER])
        return {
            "server_id": server_id, "gtid": gtid, "file": self.s.file, "pos": self.place(i), "row": 0, "thread": None,
            "query": None,
        }  # fmt: skip

    def _statement_format(self, i: int, query: b.Query, kind: str) -> None:
        """Changes logged as statements cannot be captured: an error if they may concern captured tables."""
        if self.s.reader.concerns(query):
            raise PrerequisiteError(
                f"The binary log holds a statement ({kind}) instead of rows: a session, or the server, had binlog_format set to "
                "STATEMENT or MIXED.",
                where=f"{self.where(i)}, database {query.database}: {query.sql[:200]}",
                safe="Everything before its transaction is captured. What the statement changed is not in the log.",
                remedy="SET GLOBAL binlog_format = 'ROW', end the sessions that were opened before, then read the tables again "
                "with snapshot.mode=always for one run",
            )

    # -- the frame of transactions ------------------------------------------------------------------------------------

    def _frame(self, i: int, statement: ddl.Transaction) -> Iterator[LogItem]:
        name, note = statement.name or "", self._note(int(self.state[k.TX]) - 1)
        match statement.kind:
            case "begin" if not self.state[k.OPEN]:
                self._begin(i)
            case "commit" if self.state[k.OPEN]:
                self._close(i)
            case "rollback" if self.state[k.OPEN]:
                self._rolled_back.add(int(self.state[k.TX]) - 1)
                yield from self._void_all(i)
            case "savepoint":
                note.savepoints[name] = self._rows_before(i)
            case "rollback to":
                self._roll_back(i, note.savepoints.get(name, 0))
            case "xa start":
                note.xa = name
            case "commit" | "rollback":
                self.s.metrics.malformed += 1
            case "xa commit" | "xa rollback":
                if statement.kind == "xa rollback":
                    self._rolled_back.add(int(self.state[k.TX]) - 1)
                yield from self._end_prepared(i, name, commit=statement.kind == "xa commit")

    def _begin(self, i: int) -> None:
        tx = int(self.state[k.TX])
        self.transactions[tx, k.TX_FIRST] = i
        self.routed.transaction_of[i] = tx
        self.state[k.TX] += 1
        self.state[k.OPEN] = 1

    def _close(self, i: int) -> None:
        self.transactions[self.state[k.TX] - 1, k.TX_END] = i
        self.state[k.OPEN] = 0

    def _void_all(self, i: int) -> Iterator[LogItem]:
        """The open transaction ends here, and leaves nothing."""
        tx = int(self.state[k.TX]) - 1
        mine = (self.routed.transaction_of[:i] == tx) & (self.routed.layout_of[:i] != k.NOT_ROWS)
        self.routed.layout_of[:i][mine] = k.NOT_WANTED
        if self._note(tx).id is not None:
            yield Rollback()
        self._close(i)

    def _roll_back(self, i: int, since: int) -> None:
        """Row events of the open transaction from number ``since`` on are void."""
        tx, now = int(self.state[k.TX]) - 1, self._rows_before(i)
        gone = self._note(tx).row_events
        if since < gone and (since, now) not in self.s.void:
            self.s.void.append((since, now))
            raise ReadAgain
        mine = (self.routed.transaction_of[:i] == tx) & (self.routed.layout_of[:i] != k.NOT_ROWS)
        events = np.flatnonzero(mine)[max(since - gone, 0) :]
        self.routed.layout_of[events] = k.NOT_WANTED

    def _gtid_numbers(self, gtid: int) -> Int64s:
        numbers = np.zeros((1, 3), np.int64)
        k.read_gtids(self.events.buf, self.events.table, np.array([gtid]), numbers)
        return numbers

    def _standalone(self, gtid: int) -> bool:
        if int(self.events.table[gtid, k.EV_TYPE]) != b.MARIADB_GTID:
            return False
        return bool(b.parse_mariadb_gtid(self.events.body(gtid)).flags & b.MariaDbGtid.STANDALONE)

    # -- XA: rows of a prepared transaction wait in the log until it is committed ---------------------------------------

    def _xa_gtid(self, i: int) -> None:
        """A GTID of MariaDB that begins, or ends, a prepared transaction."""
        if self.state[k.OPEN]:
            self.s.metrics.malformed += 1
            raise b.unknown_event(b.MARIADB_GTID, self.where(i), "it begins inside a transaction that has not ended")
        self._begin(i)
        self.transactions[self.state[k.TX] - 1, k.TX_GTID] = i

    def _prepared(self, i: int) -> Iterator[LogItem]:
        """The end of a transaction's rows that are not committed yet; with one phase, they are."""
        body = self.events.body(i)
        if body[0] or self.s.commits_prepared:
            self._close(i)
            return
        tx = int(self.state[k.TX]) - 1
        s, first, xid = self.s, int(self.transactions[tx, k.TX_FIRST]), self._note(tx).xa or b.xa_id(body)
        yield from self._hand_over()
        self._apart.add(tx)
        pos = self.place(first) if first >= 0 else s.position.pos
        start = {"file": s.file, "pos": pos, "server": s.server.identity}
        yield from self._void_all(i)
        s.position = replace(s.position, prepared={**s.position.prepared, xid: start})

    def _end_prepared(self, i: int, xid: str, *, commit: bool) -> Iterator[LogItem]:
        s = self.s
        start = s.position.prepared.get(xid)
        rest = {x: place for x, place in s.position.prepared.items() if x != xid}
        elsewhere = start is not None and start["server"] != s.server.identity
        if commit and not s.commits_prepared and (start is None or elsewhere):
            when = "in the log of another server" if elsewhere else "before the place where capture began"
            why = f"XA transaction {xid} was prepared {when}, so that its rows are unknown"
            raise b.unknown_event(b.QUERY, self.where(i), why)
        yield from self._hand_over()
        if start is not None and commit:
            ts_us = int(self.events.table[i, k.EV_TIME]) * 1_000_000
            gtid = self._source(i)["gtid"]
            for block in s.read_prepared(start):
                ids = Transactions(pa.array([str(gtid or xid)]), np.array([ts_us]))
                yield replace(block, position=s.position, transactions=ids)
        s.position = replace(s.position, prepared=rest)
