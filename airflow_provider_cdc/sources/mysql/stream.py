"""Reading the binary log: from events to log items.

Row events go through the kernels, a buffer full at a time (``assemble.py``). What is left for plain Python is everything that
is not a row: files, statements, new table maps, compressed transactions, XA. An event that may carry data and is not known is
an error; nothing is passed over because it is not understood.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace

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
from airflow_provider_cdc.core.schema import TableChange, TableId, TableSchema
from airflow_provider_cdc.core.source import Tables
from airflow_provider_cdc.sources.mysql import binlog as b
from airflow_provider_cdc.sources.mysql import ddl
from airflow_provider_cdc.sources.mysql import kernels as k
from airflow_provider_cdc.sources.mysql.assemble import Routed, add_gtid_numbers, decode, transaction_columns
from airflow_provider_cdc.sources.mysql.columns import Scratch
from airflow_provider_cdc.sources.mysql.config import MySqlConfig
from airflow_provider_cdc.sources.mysql.connect import Server
from airflow_provider_cdc.sources.mysql.expand import expand
from airflow_provider_cdc.sources.mysql.gtid import Gtids, MariaDbGtids, MySqlGtids, parse_gtids
from airflow_provider_cdc.sources.mysql.position import MySqlPosition, file_number
from airflow_provider_cdc.sources.mysql.schema import SchemaReader
from airflow_provider_cdc.sources.mysql.tables import TableMaps
from airflow_provider_cdc.sources.mysql.wire import BinlogConnection, Events

Int64s = npt.NDArray[np.int64]


@dataclass(slots=True)
class _Open:
    """The transaction that is being read, where it is more than the kernels know.

    :param id: its id, once a part of it was handed over; ``None`` while all of it is in the buffer
    :param gtid: its GTID event as numbers, once that has left the buffer
    :param standalone: it consists of one statement (MariaDB says so)
    :param row_events: row events of it that have left the buffer
    :param savepoints: name → row events before it
    :param xa: its XA id, if it has one
    """

    id: str | None = None
    gtid: Int64s | None = None
    standalone: bool = False
    row_events: int = 0
    savepoints: dict[str, int] = field(default_factory=dict)
    xa: str | None = None


class _ReadAgain(Exception):
    """The open transaction has to be read again from its start: rows that were handed over are void."""


class BinlogStream:
    """One pass over the log. Use :meth:`items` once.

    :param until: where to end; ``None`` = never
    :param catalogue: reads a table's present structure
    :param database_charset: reads a database's default character set
    :param charsets: collation number → character set
    :param prepared: read one XA transaction that was prepared, as if it had been committed
    :ivar position: after the last complete transaction
    """

    def __init__(
        self,
        config: MySqlConfig,
        server: Server,
        start: MySqlPosition,
        until: MySqlPosition | None,
        tables: Tables,
        catalogue: Callable[[TableId], TableSchema | None],
        database_charset: Callable[[str], str | None],
        charsets: Mapping[int, str],
        *,
        prepared: bool = False,
    ) -> None:
        self._config, self._server, self._until, self._tables = config, server, until, tables
        self._single = self._commits_prepared = prepared
        self._maps = TableMaps(config, tables, catalogue, charsets)
        self._reader = SchemaReader(config, tables, catalogue, database_charset)
        self._again = (catalogue, database_charset, charsets)
        self._scratch = Scratch()
        self._void: list[tuple[int, int]] = []
        self._stand_at(start)

    def _stand_at(self, start: MySqlPosition) -> None:
        self.position = start
        self._file, self._created, self._last_end = start.file, start.created, start.pos
        empty: Gtids = MariaDbGtids() if self._server.mariadb else MySqlGtids()
        self._gtids = parse_gtids(start.gtids) if start.gtids else empty
        self._open = _Open()

    def items(self) -> Iterator[LogItem]:
        """See :meth:`airflow_provider_cdc.core.source.Source.stream`."""
        while True:
            try:
                yield from self._pass()
                return
            except _ReadAgain:
                yield Rollback()
                self._stand_at(self.position)

    def _pass(self) -> Iterator[LogItem]:
        """Read from the present position to the end."""
        follow = self._until is None
        with BinlogConnection(self._config, self._server, self.position, follow=follow) as connection:
            self._connection = connection
            for events in connection.events():
                for part in self._expanded(events):
                    yield from _Taking(self, part).items()
                    if self._reached():
                        return
        # the server has come to the end of its log, which is not before ``until``
        if self._until is not None and self._until.same_log(self.position) and not self.position.reached(self._until):
            self.position = replace(self.position, file=self._until.file, pos=self._until.pos)
        yield Heartbeat(self.position)

    def _expanded(self, events: Events) -> Iterator[Events]:
        try:
            yield from expand(events)
        except (ValueError, zlib.error) as e:
            raise SourceLogDamaged(
                f"A compressed event of the binary log cannot be read: {e}.",
                where=str(self.position),
                safe="Everything before it is captured.",
                remedy="run the capture again; if the error stays, read the tables again with snapshot.mode=always for one run",
            ) from e

    def read_prepared(self, place: dict[str, object]) -> Iterator[LogBlock]:
        """The rows of a prepared XA transaction, from where it stands in the log."""
        # a server ends the older of two connections that say they are the same replica
        config = self._config.model_copy(update={"database_server_id": self._config.database_server_id ^ 0x4000_0000})
        start = MySqlPosition(str(place["file"]), int(str(place["pos"])), server=self._server.identity)
        stream = BinlogStream(config, self._server, start, None, self._tables, *self._again, prepared=True)
        for item in stream.items():
            if isinstance(item, LogBlock):
                yield item
                if not item.open:
                    return

    def _reached(self) -> bool:
        return self._until is not None and self._open.id is None and self.position.reached(self._until)


class _Taking:
    """Takes one set of events: routes them, hands over blocks, looks at what is not a row.

    :ivar lo: first event that was not handed over yet
    :ivar first: the transaction it belongs to
    """

    def __init__(self, stream: BinlogStream, events: Events) -> None:
        self.s, self.events = stream, events
        n = len(events)
        self.state = np.zeros(k.STATE, np.int64)
        self.transactions = np.full((n + 1, k.TX_FIELDS), -1, np.int64)
        self.routed = Routed(
            events, np.full(n, k.NOT_ROWS, np.int32), np.zeros(n, np.int32), self._ends(), stream._file
        )
        self.lo = self.first = 0
        if stream._open.id is not None:
            self.state[k.TX] = self.state[k.OPEN] = 1

    def items(self) -> Iterator[LogItem]:
        while not self.s._reached():
            maps = self.s._maps
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
        if self.state[k.OPEN] and not self.s._reached():
            if self.events.full:
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
        return f"{self.s._file}:{self.place(i)}"

    def _ends(self) -> Int64s:
        """64-bit log positions after each event: the log has the low 32 bits only, and artificial events have no place."""
        table = self.events.table
        ends = table[:, k.EV_END].copy()
        artificial = (table[:, k.EV_FLAGS] & b.ARTIFICIAL_FLAG) != 0
        real = np.flatnonzero(~artificial & (ends > 0))
        low = np.concatenate([[self.s._last_end & 0xFFFFFFFF], ends[real]])
        # a file begins again at a small number after a ROTATE, of which the events after it know
        carry = np.cumsum((np.diff(low) < 0) & (table[real, k.EV_TYPE] != b.FORMAT_DESCRIPTION))
        ends[real] += (self.s._last_end & ~0xFFFFFFFF) + (carry << 32)
        return ends

    def _is_past(self, i: int) -> bool:
        """Whether event ``i`` begins at or after ``until``."""
        s = self.s
        if (
            s._until is None
            or not s._until.same_log(s.position)
            or int(self.events.table[i, k.EV_FLAGS]) & b.ARTIFICIAL_FLAG
        ):
            return False
        return (file_number(s._file), self.place(i)) >= (file_number(s._until.file), s._until.pos)

    def _arrive(self) -> None:
        """Stand at ``until`` if the next thing in the log comes after it: its last bytes need not be a transaction's."""
        s, at = self.s, self.at
        if self.first < int(self.state[k.TX]):
            at = int(self.transactions[self.first, k.TX_FIRST])
        if s._until is not None and 0 <= at < len(self.events) and self._is_past(at):
            s.position = replace(s.position, file=s._until.file, pos=s._until.pos)

    def _rows_before(self, i: int) -> int:
        """Row events of the open transaction before event ``i``."""
        tx = int(self.state[k.TX]) - 1
        mine = (self.routed.transaction_of[:i] == tx) & (self.routed.layout_of[:i] != k.NOT_ROWS)
        return self.s._open.row_events + int(np.count_nonzero(mine))

    # -- handing over -------------------------------------------------------------------------------------------------

    def _hand_over(self) -> Iterator[LogItem]:
        """The complete transactions that were not handed over yet, as one block, up to ``until``."""
        done = self._complete()
        if done == self.first:
            return
        block = self._block(int(self.transactions[done - 1, k.TX_END]) + 1, done)
        block.position = self.s.position = self._position(int(self.transactions[done - 1, k.TX_END]), self.first, done)
        self.lo, self.first = int(self.transactions[done - 1, k.TX_END]) + 1, done
        self.s._open, self.s._void = _Open(), []
        yield block

    def _hand_over_part(self) -> Iterator[LogItem]:
        """What is there of a transaction that is larger than the buffer."""
        s, tx = self.s, int(self.state[k.TX]) - 1
        rows = self._rows_before(len(self.events))
        block = self._block(len(self.events), tx + 1)
        block.open = True
        gtid = int(self.transactions[tx, k.TX_GTID])
        if gtid >= 0:
            s._open.gtid, s._open.standalone = self._gtid_numbers(gtid), self._standalone(gtid)
        s._open.id, s._open.row_events = block.transactions.id[0].as_py(), rows
        yield block

    def _complete(self) -> int:
        """Number of transactions that are complete and not after ``until``."""
        s, done = self.s, int(self.state[k.TX]) - int(self.state[k.OPEN])
        if done == self.first:
            return done
        if s._single:
            return self.first + 1
        if s._until is None:
            return done
        if not s._until.same_log(s.position):
            return self.first + 1  # one by one: only their ids can be compared
        if file_number(s._file) != file_number(s._until.file):
            return done if file_number(s._file) < file_number(s._until.file) else self.first
        ends = self.routed.ends[self.transactions[self.first : done, k.TX_END]]
        return self.first + int(np.searchsorted(ends, s._until.pos, side="right"))

    def _block(self, hi: int, tx_hi: int) -> LogBlock:
        s = self.s
        self._leave_out_void(hi)
        transactions = self.transactions[self.first : tx_hi]
        columns = transaction_columns(
            self.events, transactions, self.routed.ends, s._file, s._open.id or None, s._gtids
        )
        if s._config.include_query:
            self.routed.queries = self._queries()
        rows = decode(self.routed, s._maps.layouts, self.lo, hi, self.first, columns, s._scratch)
        return LogBlock(rows, columns.transactions, s.position)

    def _leave_out_void(self, hi: int) -> None:
        """Rows of the first transaction that are known to be rolled back; they come when a transaction is read again."""
        for low, high in self.s._void:
            mine = (self.routed.transaction_of[:hi] == self.first) & (self.routed.layout_of[:hi] != k.NOT_ROWS)
            mine[: self.lo] = False
            events = np.flatnonzero(mine)
            numbers = np.arange(len(events)) + self.s._open.row_events
            self.routed.layout_of[events[(numbers >= low) & (numbers < high)]] = k.NOT_WANTED

    def _position(self, last: int, tx_lo: int, tx_hi: int) -> MySqlPosition:
        """After event ``last``, with which the transactions ``tx_lo`` to ``tx_hi`` are executed."""
        s = self.s
        if s._server.gtids:
            if s._open.gtid is not None:
                add_gtid_numbers(s._gtids, s._open.gtid)
            picked = self.transactions[tx_lo:tx_hi, k.TX_GTID]
            numbers = np.zeros((len(picked[picked >= 0]), 3), np.int64)
            k.read_gtids(self.events.buf, self.events.table, picked[picked >= 0], numbers)
            add_gtid_numbers(s._gtids, numbers)
        s._last_end = int(self.routed.ends[last])
        return replace(
            s.position,
            file=s._file,
            pos=s._last_end,
            gtids=str(s._gtids),
            created=s._created,
            server=s._server.identity,
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
        schema = self.s._maps.learn(self.events.body(i), self.where(i))
        if schema is None:
            return
        yield from self._hand_over()
        known = self.s._tables.get(schema.id)
        change = TableChange(type="CREATE" if known is None else "ALTER", id=schema.id, table=schema, exact=False)
        ts_us = int(self.events.table[i, k.EV_TIME]) * 1_000_000
        yield SchemaChange("", schema.id.namespace, [change], self.s.position, ts_us, self._source(i))

    def _look_at(self, i: int) -> Iterator[LogItem]:
        """An event that the kernel leaves to plain Python."""
        s, kind = self.s, int(self.events.table[i, k.EV_TYPE])
        if kind in b.ROWS:
            if self.state[k.OPEN] and s._maps.known(int.from_bytes(self.events.body(i)[:6], "little")):
                return  # its table map had lost its place to another one; now it has it back
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
                yield Heartbeat(s.position)
        elif kind == b.MARIADB_GTID:
            self._xa_gtid(i)
        elif kind == b.XA_PREPARE:
            yield from self._prepared(i)
        elif kind == b.INCIDENT:
            raise b.unknown_event(kind, self.where(i), "the server says that changes are missing from its log")
        elif kind not in b.HARMLESS and not int(self.events.table[i, k.EV_FLAGS]) & b.IGNORABLE_FLAG:
            raise b.unknown_event(kind, self.where(i))
        self.state[k.AT] = i + 1

    def _rotate(self, i: int) -> Iterator[LogItem]:
        yield from self._hand_over()
        name, pos = b.parse_rotate(self.events.body(i))
        s = self.s
        if s._until is not None and s._until.same_log(s.position) and s._until.file == s._file != name:
            s.position = replace(s.position, file=s._file, pos=max(s._until.pos, s.position.pos))
        # asked by GTID, the server begins at the head of a file; asked by place, it says that place
        s._last_end = pos
        if name != s._file:
            s._file, s._created = name, 0
            self.routed.file = name
        # positions of the events after it count from the new file's beginning
        self.routed.ends[i + 1 :] = self.events.table[i + 1 :, k.EV_END]

    def _format(self, i: int) -> None:
        body = self.events.body(i)
        connection = self.s._connection
        checksums = body[-1] == 1 if connection.checksum else b.has_checksums(body)
        connection.checksum = 4 if checksums else 0
        self.s._created = int(self.events.table[i, k.EV_TIME])

    def _query(self, i: int) -> Iterator[LogItem]:
        """A statement: the frame of a transaction, DDL, or what does not concern tables."""
        query = b.parse_query(self.events.body(i))
        closes = self._is_whole_transaction(i, query.sql)
        for statement in ddl.read(query.sql, ansi_quotes=query.ansi_quotes):
            match statement:
                case ddl.Transaction():
                    yield from self._frame(i, statement)
                    closes = closes and bool(self.state[k.OPEN])
                case ddl.Dml():
                    self._statement_format(i, query, statement.kind)
                case _:
                    yield from self._ddl(i, query, statement, closes)
        if closes and self.state[k.OPEN]:
            self._close(i)
            yield from self._hand_over()

    def _is_whole_transaction(self, i: int, sql: str) -> bool:
        """Whether a statement ends the transaction that its GTID began; rows follow one that does not."""
        if not self.state[k.OPEN]:
            return False
        gtid = int(self.transactions[self.state[k.TX] - 1, k.TX_GTID])
        if self.s._server.mariadb:
            return self._standalone(gtid) if gtid >= 0 else self.s._open.standalone
        begun = int(self.transactions[self.state[k.TX] - 1, k.TX_THREAD]) >= 0 or self.s._open.id is not None
        return not begun and not sql.rstrip().upper().endswith("START TRANSACTION")

    def _ddl(self, i: int, query: b.Query, statement: ddl.Statement, closes: bool) -> Iterator[LogItem]:
        found = self.s._reader.read(statement, query, self.where(i))
        if found is None:
            return
        if closes:
            # the transaction is this statement: it is handed over as what it is, not as an empty block
            tx = int(self.state[k.TX]) - 1
            yield from self._hand_over()
            self._close(i)
            position = self._position(i, tx, tx + 1)
            self.lo, self.first = i + 1, tx + 1
            self.s._open = _Open()
        else:
            yield from self._hand_over()
            position = self.s.position if self.state[k.OPEN] else self._position(i, self.first, self.first)
        ts_us, source = int(self.events.table[i, k.EV_TIME]) * 1_000_000, self._source(i)
        self.s.position = position
        if found.truncated:
            yield Truncate(found.truncated, position, ts_us, source=source)
        if found.changes:
            open_ = bool(self.state[k.OPEN])
            yield SchemaChange(query.sql, query.database, found.changes, position, ts_us, source, open=open_)
        self.s._maps.forget()

    def _source(self, i: int) -> dict[str, object]:
        tx = int(self.state[k.TX]) - 1
        gtid = None
        if self.s._server.gtids and tx >= 0:
            columns = transaction_columns(
                self.events,
                self.transactions[tx : tx + 1],
                self.routed.ends,
                self.s._file,
                self.s._open.id,
                self.s._gtids,
            )
            gtid = columns.transactions.id[0].as_py()
        server_id = int(self.events.table[i, k.EV_SERVER])
        return {"server_id": server_id, "gtid": gtid, "file": self.s._file, "pos": self.place(i), "row": 0}

    def _statement_format(self, i: int, query: b.Query, kind: str) -> None:
        """Changes logged as statements cannot be captured: an error if they may concern captured tables."""
        if self.s._reader.concerns(query):
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
        s, name = self.s, statement.name or ""
        match statement.kind:
            case "begin" if not self.state[k.OPEN]:
                self._begin(i)
            case "commit" if self.state[k.OPEN]:
                self._close(i)
            case "rollback" if self.state[k.OPEN]:
                yield from self._void_all(i)
            case "savepoint":
                s._open.savepoints[name] = self._rows_before(i)
            case "rollback to":
                self._roll_back(i, s._open.savepoints.get(name, 0))
            case "xa start":
                s._open.xa = name
            case "xa commit" | "xa rollback":
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
        if self.s._open.id is not None:
            yield Rollback()
        self._close(i)

    def _roll_back(self, i: int, since: int) -> None:
        """Row events of the open transaction from number ``since`` on are void."""
        s, now = self.s, self._rows_before(i)
        if since < s._open.row_events and (since, now) not in s._void:
            s._void.append((since, now))
            raise _ReadAgain
        tx = int(self.state[k.TX]) - 1
        mine = (self.routed.transaction_of[:i] == tx) & (self.routed.layout_of[:i] != k.NOT_ROWS)
        events = np.flatnonzero(mine)[max(since - s._open.row_events, 0) :]
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
            raise b.unknown_event(b.MARIADB_GTID, self.where(i), "it begins inside a transaction that has not ended")
        self._begin(i)
        self.transactions[self.state[k.TX] - 1, k.TX_GTID] = i

    def _prepared(self, i: int) -> Iterator[LogItem]:
        """The end of a transaction's rows that are not committed yet; with one phase, they are."""
        body = self.events.body(i)
        if body[0] or self.s._commits_prepared:
            self._close(i)
            return
        s, first = self.s, int(self.transactions[self.state[k.TX] - 1, k.TX_FIRST])
        yield from self._hand_over()
        start = {"file": s._file, "pos": self.place(first) if first >= 0 else s.position.pos}
        yield from self._void_all(i)
        s.position = replace(s.position, prepared={**s.position.prepared, s._open.xa or b.xa_id(body): start})

    def _end_prepared(self, i: int, xid: str, *, commit: bool) -> Iterator[LogItem]:
        s = self.s
        start = s.position.prepared.get(xid)
        rest = {x: place for x, place in s.position.prepared.items() if x != xid}
        if start is None and commit and not s._commits_prepared:
            why = (
                f"XA transaction {xid} was prepared before the place where capture began, so that its rows are unknown"
            )
            raise b.unknown_event(b.QUERY, self.where(i), why)
        yield from self._hand_over()
        if start is not None and commit:
            ts_us = int(self.events.table[i, k.EV_TIME]) * 1_000_000
            gtid = self._source(i)["gtid"]
            for block in s.read_prepared(start):
                ids = Transactions(pa.array([str(gtid or xid)]), np.array([ts_us]))
                yield replace(block, position=s.position, transactions=ids)
        s.position = replace(s.position, prepared=rest)
