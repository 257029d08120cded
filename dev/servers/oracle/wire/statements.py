"""The cursors of one client: execute, execute again, fetch, and the rows and out binds that come back."""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Protocol

from dev.servers.oracle.errors import OraError
from dev.servers.oracle.values import rowids
from dev.servers.oracle.values.datatypes import DataType
from dev.servers.oracle.wire import codecs
from dev.servers.oracle.wire.codecs import Bind, Column
from dev.servers.oracle.wire.lobs import Lobs
from dev.servers.oracle.wire.packets import Reader, encode_sized, ub

EXECUTE_OPTION, FETCH_OPTION, COMMIT_OPTION, NOT_PLSQL, BATCH_ERRORS = 0x20, 0x40, 0x100, 0x8000, 0x80000
DIRECTION_IN, DIRECTION_OUT, DIRECTION_BOTH = 32, 16, 48
NO_MORE_ROWS = 1403
LONGEST_PLAIN_BIND = 32767
RETURNING = re.compile(r"\bRETURN(?:ING)?\b.*?\bINTO\b(.*)$", re.IGNORECASE | re.DOTALL)
IS_DML = re.compile(r"\s*(?:INSERT|UPDATE|DELETE|MERGE)\b", re.IGNORECASE)


class EncodedRows(Protocol):
    """Rows that are already in the form of the wire."""

    def read_rows(self, count: int) -> tuple[bytes, int, bool]:
        """Up to this many rows, how many they are, and whether more follow."""


@dataclass
class Outcome:
    """The outcome of a statement: rows, or a count and the values of out binds."""

    columns: list[Column] | None = None
    rows: Iterator[Any] | None = None
    encoded: EncodedRows | None = None
    count: int = 0
    outs: dict[int, Any] = field(default_factory=dict)
    """By the number of the bind: a value, or for RETURNING a list of values for each execution."""
    row_id: bytes | None = None


class Backend(Protocol):
    """The part of an engine's session that the wire uses."""

    @property
    def in_transaction(self) -> bool: ...

    def run(self, sql: str, rows: list[list[Any]], *, only_describe: bool = False) -> Outcome: ...
    def commit(self) -> None: ...
    def rollback(self) -> None: ...
    def close(self) -> None: ...
    def set_schema(self, name: str) -> None: ...


@dataclass
class Cursor:
    """A statement that the client has parsed."""

    sql: str
    binds: list[Bind]
    plsql: bool
    returned: int = 0
    sent_again: list[int] = field(default_factory=list)
    outcome: Outcome | None = None
    defines: list[Bind] | None = None
    seen: int = 0

    @property
    def is_query(self) -> bool:
        """True if it has run, and gave rows."""
        return self.outcome is not None and self.outcome.columns is not None


def end_of_call(
    error: OraError | None = None,
    count: int = 0,
    cursor: int = 0,
    row_id: bytes | None = None,
    *,
    in_transaction: bool = False,
) -> bytes:
    """The message that ends a call: nothing wrong, no more rows, or an error."""
    number = error.number if error else 0
    body = b"\x04" + ub(0x02 if in_transaction else 0) + ub(1) + ub(0) * 4 + ub(cursor) + ub(0) + bytes(6)
    if row_id:
        object_id, file, block, slot = rowids.parts(row_id)
        body += ub(object_id) + ub(file) + b"\0" + ub(block) + ub(slot)
    else:
        body += ub(0) * 2 + b"\0" + ub(0) * 2
    body += ub(0) + b"\0\0" + ub(0) * 6 + ub(number) + ub(count)
    return body + (encode_sized((error.text + "\n").encode()) if error else b"")


class Statements:
    """Runs the statements of one logged-on client."""

    def __init__(self, backend: Backend, lobs: Lobs) -> None:
        self._backend = backend
        self._lobs = lobs
        self._cursors: dict[int, Cursor] = {}
        self._last_cursor = 0

    def forget(self, number: int) -> None:
        """The client has closed a cursor."""
        self._cursors.pop(number, None)

    def _error(
        self, error: OraError | None = None, count: int = 0, cursor: int = 0, row_id: bytes | None = None
    ) -> bytes:
        return end_of_call(error, count, cursor, row_id, in_transaction=self._backend.in_transaction)

    def execute(self, reader: Reader) -> bytes:
        options, number = reader.ub(), reader.ub()
        reader.u8()
        with_sql = reader.ub()
        reader.raw(1)
        reader.ub()
        reader.raw(2)
        reader.ub()
        expected = reader.ub()
        reader.ub()
        reader.u8()
        bind_count = reader.ub()
        reader.raw(5)
        reader.u8()
        define_count = reader.ub()
        reader.ub()
        reader.raw(3)
        reader.ub()
        reader.u8()
        reader.ub()
        reader.ub()
        reader.u8()
        reader.ub()
        reader.u8()
        sql = (reader.sized() or b"").decode() if with_sql else None
        words = [reader.ub() for _ in range(13)]
        binds = [_read_metadata(reader) for _ in range(bind_count + define_count)]
        if options & BATCH_ERRORS:
            raise OraError(900, "executemany with batcherrors")
        if define_count:
            cursor = self._cursor(number)
            cursor.defines = binds
            return self._rows(number, expected)
        if sql is None:
            cursor = self._cursor(number)
            cursor.binds = binds or cursor.binds
        else:
            if not number:
                number = self._free_number()
            match = RETURNING.search(sql) if IS_DML.match(sql) else None
            cursor = Cursor(sql, binds, plsql=not options & NOT_PLSQL, returned=match[1].count(":") if match else 0)
            self._cursors[number] = cursor
        cursor.sent_again = list(range(len(cursor.binds) - cursor.returned))
        # of a query that runs again, the second number is how many rows to fetch
        runs = words[1] if bind_count and not cursor.is_query else 1
        rows = self._bound_rows(reader, cursor, max(runs, 1))
        query = not options & EXECUTE_OPTION
        return self._start(
            number,
            rows,
            expected,
            fetch=bool(options & FETCH_OPTION),
            describe=True,
            commit=bool(options & COMMIT_OPTION),
            only=query,
        )

    def execute_again(self, reader: Reader) -> bytes:
        number, expected = reader.ub(), reader.ub()
        first, second = reader.ub(), reader.ub()
        cursor = self._cursor(number)
        rows = self._bound_rows(reader, cursor, 1 if cursor.is_query else expected)
        return self._start(
            number, rows, expected, fetch=bool(first & EXECUTE_OPTION), describe=False, commit=bool(second & 1)
        )

    def _free_number(self) -> int:
        """A cursor's number goes over the wire in two bytes: numbers of closed ones are used again."""
        while True:
            self._last_cursor = self._last_cursor % 60_000 + 1
            if self._last_cursor not in self._cursors:
                return self._last_cursor

    def _cursor(self, number: int) -> Cursor:
        try:
            return self._cursors[number]
        except KeyError:
            raise OraError(900, f"cursor {number} is not open") from None

    def _bound_rows(self, reader: Reader, cursor: Cursor, count: int) -> list[list[Any]]:
        if not cursor.sent_again:
            return [[None] * len(cursor.binds) for _ in range(max(count, 1))]
        late = [
            index for index in cursor.sent_again if not cursor.plsql and cursor.binds[index].size > LONGEST_PLAIN_BIND
        ]
        order = [index for index in cursor.sent_again if index not in late] + late
        rows = []
        for _ in range(count):
            if reader.u8() != 7:
                raise OraError(900, "bind rows")
            row: list[Any] = [None] * len(cursor.binds)
            for index in order:
                row[index] = codecs.read_bind(reader, cursor.binds[index], self._lobs.value)
            rows.append(row)
        return rows

    def _start(
        self,
        number: int,
        rows: list[list[Any]],
        wanted: int,
        *,
        fetch: bool,
        describe: bool,
        commit: bool,
        only: bool = False,
    ) -> bytes:
        cursor = self._cursor(number)
        cursor.seen = 0
        outcome = cursor.outcome = self._backend.run(cursor.sql, rows, only_describe=only)
        if outcome.columns is None:
            if commit:
                self._backend.commit()
            return self._out_binds(cursor, outcome) + self._error(None, outcome.count, number, outcome.row_id)
        answer = codecs.describe(outcome.columns) if describe else b""
        has_lobs = any(column.wire in (codecs.CLOB, codecs.BLOB) for column in outcome.columns)
        if only or not fetch or (has_lobs and describe):
            return answer + self._error(None, 0, number)
        return answer + self._rows(number, wanted)

    def _out_binds(self, cursor: Cursor, outcome: Outcome) -> bytes:
        if not outcome.outs:
            return b""
        if cursor.returned:
            indexes = range(len(cursor.binds) - cursor.returned, len(cursor.binds))
            executions = len(next(iter(outcome.outs.values())))
            return b"".join(
                b"\x07"
                + b"".join(_encode_returned(cursor.binds[index], outcome.outs[index][turn]) for index in indexes)
                for turn in range(executions)
            )
        count = len(cursor.binds)
        directions = bytes(DIRECTION_OUT if index in outcome.outs else DIRECTION_IN for index in range(count))
        cursor.sent_again = [index for index in range(count) if index not in outcome.outs]
        vector = b"\x0b\0" + ub(count) + ub(0) * 5 + directions
        return (
            vector
            + b"\x07"
            + b"".join(_out_value(cursor.binds[index], outcome.outs[index]) for index in sorted(outcome.outs))
        )

    def _rows(self, number: int, wanted: int) -> bytes:
        cursor = self._cursor(number)
        outcome = cursor.outcome
        if outcome is None or outcome.columns is None:
            raise OraError(900, f"cursor {number} has no rows")
        head = b"\x06\0" + ub(0) * 6
        if outcome.encoded is not None:
            data, sent, more = outcome.encoded.read_rows(wanted or 1)
            parts = [head, data]
        else:
            assert outcome.rows is not None
            encode = self._row_encoder(outcome.columns, cursor.defines)
            parts, sent = [head], 0
            for row in outcome.rows:
                parts.append(encode(row))
                sent += 1
                if sent == wanted:
                    break
            more = bool(wanted) and sent == wanted
        cursor.seen += sent
        if more:
            parts.append(self._error(None, cursor.seen, number))
        else:
            end = OraError(900, "")
            end.number, end.text = NO_MORE_ROWS, "ORA-01403: no data found"
            parts.append(self._error(end, cursor.seen, number))
        return b"".join(parts)

    def _row_encoder(self, columns: list[Column], defines: list[Bind] | None) -> Callable[[Any], bytes]:
        encoders = [
            self._lob_encoder(column, defines[index] if defines else None)
            if column.wire in (codecs.CLOB, codecs.BLOB)
            else codecs.encoder(column)
            for index, column in enumerate(columns)
        ]
        nulls = [
            b"\0\0\0" if defines and defines[index].wire in (codecs.LONG, codecs.LONG_RAW) else codecs.null(column)
            for index, column in enumerate(columns)
        ]

        def encode(row: Any) -> bytes:
            return b"\x07" + b"".join(
                [
                    empty if value is None else turn(value)
                    for value, turn, empty in zip(row, encoders, nulls, strict=True)
                ]
            )

        return encode

    def _lob_encoder(self, column: Column, define: Bind | None) -> Callable[[Any], bytes]:
        national = column.form == codecs.NATIONAL
        if define and define.wire in (codecs.LONG, codecs.LONG_RAW):
            charset = "utf-16-be" if define.form == codecs.NATIONAL else "utf-8"
            return lambda value: (
                encode_sized(value if isinstance(value, bytes) else str(value).encode(charset)) + b"\0\0"
            )
        return lambda value: self._lobs.column(value, national=national)

    def fetch(self, reader: Reader) -> bytes:
        return self._rows(reader.ub(), reader.ub())


def _read_metadata(reader: Reader) -> Bind:
    kind = reader.u8()
    reader.raw(3)
    size = reader.ub()
    if reader.ub():
        raise OraError(900, "arrays as binds")
    reader.ub()
    if reader.ub():
        raise OraError(900, "objects as binds")
    reader.ub()
    reader.ub()
    form = reader.u8()
    reader.ub()
    return Bind(kind, size, form)


def _out_value(bind: Bind, value: Any) -> bytes:
    column = Column("OUT", _type_of(bind))
    return (codecs.null(column) if value is None else codecs.encoder(column)(value)) + ub(0)


def _encode_returned(bind: Bind, values: list[Any]) -> bytes:
    return ub(len(values)) + b"".join(_out_value(bind, value) for value in values)


def _type_of(bind: Bind) -> DataType:
    kinds = {number: kind for kind, number in reversed(codecs.NUMBERS.items())}
    return DataType(kinds.get(bind.wire, "VARCHAR2"), length=bind.size)
