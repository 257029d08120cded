"""Rows of V$LOGMNR_CONTENTS prepared in the form of the wire, for measuring how fast a client takes them.

One table of eight columns, transactions of a thousand inserts unless something else is asked for. The rows lie in a file, so that a million of them cost
no memory; a fetch sends the bytes as they are.
"""

import mmap
import random
import time
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dev.servers.oracle.errors import unknown
from dev.servers.oracle.redo import logminer_columns, redo
from dev.servers.oracle.sql.lexer import Tokens, split, tokenize
from dev.servers.oracle.values import rowids
from dev.servers.oracle.wire import codecs
from dev.servers.oracle.wire.codecs import Column
from dev.servers.oracle.wire.statements import Outcome

TRANSACTION_ROWS = 1000
DIFFERENT = ("SCN", "SQL_REDO", "ROW_ID", "RS_ID")
"""Columns with another value in every row: not worth remembering."""
AT = "2024-02-29 12:00:00"
INSERT = (
    'insert into "{owner}"."{table}"("ID","CUSTOMER","AMOUNT","STATUS","NOTE","CREATED","CHANGED","PRICE") values '
    "('{row}','{customer}','{amount}.{cents:02d}','{status}','note number {row} of the benchmark',"
    "TO_DATE('2024-02-29 12:00:00', 'YYYY-MM-DD HH24:MI:SS'),TO_TIMESTAMP('2024-02-29 12:00:00.123456'),'{price}');"
)
DDL = (
    "CREATE TABLE {table} (id NUMBER(19) PRIMARY KEY, customer NUMBER(9) NOT NULL, amount NUMBER(12,2), status VARCHAR2(10),"
    " note VARCHAR2(100), created DATE, changed TIMESTAMP(6), price NUMBER)"
)


@dataclass
class Plan:
    """The rows to serve: ``count`` inserts, in transactions with their START and COMMIT rows around.

    ``at_once`` of them are open together: their rows come in turn, their commits in a random order. Besides, one transaction with
    ``open_rows`` inserts is open from the first row to the last. A query has ``pace`` rows a second at most, if that is not 0: LogMiner is
    slower than the driver.
    """

    folder: Path
    count: int
    first_scn: int
    owner: str
    table: str
    object_id: int
    version: int
    container: str | None
    transaction_rows: int = TRANSACTION_ROWS
    at_once: int = 1
    open_rows: int = 0
    pace: int = 0
    file: "PreparedRows | None" = None


class PreparedRows:
    """The file of encoded rows for one list of columns."""

    def __init__(self, plan: Plan, names: list[str]) -> None:
        self.names = names
        types = dict(logminer_columns.COLUMNS)
        missing = [name for name in names if name not in types]
        if missing:
            raise unknown(", ".join(missing), "not in V$LOGMNR_CONTENTS")
        self.columns = [Column(name, types[name] or logminer_columns.TEXT) for name in names]
        encoders = [(codecs.encoder(column), codecs.null(column)) for column in self.columns]
        repeated: list[dict[Any, bytes]] = [{} for _ in names]
        path = plan.folder / "bench.rows"
        self.ends = array("Q", [0])
        self.scns = array("Q")
        with path.open("wb") as file:
            for facts in _facts(plan):
                parts = [b"\x07"]
                for index, name in enumerate(names):
                    value = facts.get(name)
                    data = repeated[index].get(value)
                    if data is None:
                        encode, empty = encoders[index]
                        data = empty if value is None else encode(value)
                        if name not in DIFFERENT:
                            repeated[index][value] = data
                    parts.append(data)
                row = b"".join(parts)
                file.write(row)
                self.ends.append(self.ends[-1] + len(row))
                self.scns.append(facts["SCN"])
        with path.open("rb") as file:
            self.bytes = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)


def _facts(plan: Plan) -> Any:
    number = 0
    for scn, (transaction, op) in enumerate(_order(plan), plan.first_scn + 1):
        serial = 1000 + transaction
        xid = redo.Xid(5 if transaction >= 0 else 6, serial % 34, serial)
        base = {
            "TIMESTAMP": AT, "THREAD#": 1, "SEQUENCE#": 1, "USERNAME": plan.owner, "XID": xid.raw, "XIDUSN": xid.segment, "XIDSLT": xid.slot,
            "XIDSQN": serial, "ROLLBACK": 0, "STATUS": 0, "SSN": 0, "CSF": 0, "ROW_ID": rowids.EMPTY, "CON_ID": 0,
            "SRC_CON_NAME": plan.container, "DATA_OBJ#": 0, "DATA_OBJV#": 0, "DATA_OBJD#": 0,
        }  # fmt: skip
        if op != redo.INSERT:
            yield _make_row(base, op, "commit;" if op == redo.COMMIT else "set transaction read write;", scn, number)
            continue
        row, number = number, number + 1
        sql = INSERT.format(
            owner=plan.owner, table=plan.table, row=row + 1, customer=row % 9973, amount=row % 7919, cents=row % 100,
            status=("NEW", "PAID", "SENT")[row % 3], price=f"{row % 1009}.{row % 7 + 1}",
        )  # fmt: skip
        yield _make_row(base, op, sql, scn, row) | {
            "SEG_OWNER": plan.owner, "TABLE_NAME": plan.table, "SEG_NAME": plan.table, "SEG_TYPE_NAME": "TABLE",
            "DATA_OBJ#": plan.object_id, "DATA_OBJV#": plan.version, "DATA_OBJD#": plan.object_id,
            "ROW_ID": rowids.to_text(rowids.make(plan.object_id, row)),
        }  # fmt: skip


def _order(plan: Plan) -> Iterator[tuple[int, int]]:
    """Transaction and operation of each row; the one that is open all the time is -1."""
    if not plan.open_rows:
        yield from _transaction_ranges(plan)
        return
    yield -1, redo.START
    due = 0.0
    for transaction, op in _transaction_ranges(plan):
        yield transaction, op
        due += plan.open_rows / plan.count if op == redo.INSERT else 0
        while due >= 1:
            yield -1, redo.INSERT
            due -= 1
    if due > 0.5:  # of rounding
        yield -1, redo.INSERT
    yield -1, redo.COMMIT


def _transaction_ranges(plan: Plan) -> Iterator[tuple[int, int]]:
    size = plan.transaction_rows
    transactions = -(-plan.count // size)
    for first in range(0, transactions, plan.at_once):
        together = list(range(first, min(first + plan.at_once, transactions)))
        yield from ((one, redo.START) for one in together)
        for turn in range(size):
            yield from ((one, redo.INSERT) for one in together if one * size + turn < plan.count)
        random.Random(first).shuffle(together)
        yield from ((one, redo.COMMIT) for one in together)


def _make_row(base: dict[str, Any], op: int, sql: str, scn: int, row: int) -> dict[str, Any]:
    own = {
        "SCN": scn,
        "OPERATION_CODE": op,
        "OPERATION": logminer_columns.OPERATIONS[op],
        "SQL_REDO": sql,
        "RS_ID": logminer_columns.rs_id(1, row),
    }
    return base | own


def last_scn(plan: Plan) -> int:
    """The SCN of the last row."""
    transactions = -(-plan.count // plan.transaction_rows)
    return plan.first_scn + plan.count + 2 * transactions + (plan.open_rows + 2 if plan.open_rows else 0)


class Rows:
    """A range of the prepared rows."""

    def __init__(self, prepared: PreparedRows, start: int, end: int, pace: int, check: Callable[[], None]) -> None:
        self._prepared, self._pace, self._check = prepared, pace, check
        self._at, self._end = start, end

    def read_rows(self, count: int) -> tuple[bytes, int, bool]:
        stop = min(self._at + count, self._end)
        if self._pace:
            self._wait((stop - self._at) / self._pace)  # LogMiner makes rows when they are asked for, and not ahead
        ends = self._prepared.ends
        data = self._prepared.bytes[ends[self._at] : ends[stop]]
        sent, self._at = stop - self._at, stop
        return data, sent, sent == count

    def _wait(self, seconds: float) -> None:
        """Wait, unless the client sends a break."""
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            self._check()
            time.sleep(min(left, 0.05))


def outcome(plan: Plan, sql: str, start: int, end: int, check: Callable[[], None]) -> Outcome:
    """The rows between two SCNs with the columns that the query selects; its other conditions hold for all of them."""
    reader = Tokens(tokenize(sql), sql)
    reader.expect("SELECT")
    names = [part[-1].text for part in split(reader.until("FROM"))]
    if plan.file is None or plan.file.names != names:
        plan.file = PreparedRows(plan, names)
    prepared = plan.file
    first = bisect_left(prepared.scns, start or 0)
    last = bisect_right(prepared.scns, end or 2**63)
    return Outcome(prepared.columns, iter(()), Rows(prepared, first, last, plan.pace, check))
