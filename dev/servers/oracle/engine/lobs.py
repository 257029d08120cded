"""The redo of a long value: the row first with an empty LOB, then its parts, then the row's own end.

A CLOB, NCLOB or BLOB up to :data:`INLINE` bytes stays in the row: the insert shows ``EMPTY_CLOB()`` and an update with
the value follows. A longer one follows as a locator and fragments, an XML document as begin, writes and end, a string of
more than 4,000 bytes as an extended string; these and the first row carry the empty row id, and the record that ends the
sequence the real one. A change in place by DBMS_LOB begins with a locator that has the real row id.

This is the shape of 19c. In 23ai (:data:`SHAPES`) the locator has no text, each write, trim and erasure is a whole block that selects its
locator, and no record ends the sequence. There an insert shows every LOB as empty, those that are NULL too, an update shows its long
values nowhere, and the undo of a call of DBMS_LOB is a separate row
(https://github.com/osodevops/kafka-connect-oracle-cdc, reference/lob-redo-shapes.md).
"""

from collections.abc import Iterator
from typing import Any

from dev.servers.oracle.engine.catalog import Column, Table
from dev.servers.oracle.engine.engine import Engine
from dev.servers.oracle.engine.transactions import Transaction
from dev.servers.oracle.errors import OraError
from dev.servers.oracle.redo import redo as log
from dev.servers.oracle.values.datatypes import LOB_KINDS, qualify_names

INLINE = 1982
FRAGMENT = 2000
EXTENDED = 4000
XML_BEGIN, XML_WRITE, XML_END = 68, 70, 71
STRING_BEGIN, STRING_WRITE, STRING_END = 91, 92, 93
SELECT_LOCATOR = 9
HIDDEN = -2
"""A record that LogMiner does not show; the undo of the change needs it."""
SECURE, BASIC = "23ai", "23ai_basicfile"
SHAPES = ("19c", SECURE, BASIC)
"""How LOBs are logged: as 19c does, or as 23ai does for SecureFiles and for BasicFiles."""
IN_PLACE = True
"""Marks the records of DBMS_LOB calls: their locator has the row's own row id."""


def is_long(column: Column, value: Any) -> bool:
    """Check whether a value is logged apart from its row."""
    if value is None:
        return False
    if column.type.kind in LOB_KINDS:
        return len(value) > 0
    if column.type.kind == "XMLTYPE":
        return True
    return isinstance(value, str | bytes) and _size(value) > EXTENDED


def _size(value: str | bytes) -> int:
    return len(value if isinstance(value, bytes) else value.encode())


def placeholder_value(column: Column) -> Any:
    """The value that an insert shows where the real one follows: an empty LOB, or NULL."""
    return (b"" if column.type.kind == "BLOB" else "") if column.type.kind in LOB_KINDS else None


def in_row(column: Column, value: Any) -> Any:
    """The old value as the undo of a change shows it: one that lies apart from its row is empty, or NULL."""
    if column.type.kind in LOB_KINDS:
        return placeholder_value(column) if _size(value or "") > INLINE else value
    return None if is_long(column, value) else value


def check_nulls(table: Table, values: dict[int, Any], error: int) -> None:
    """ORA-01400 or ORA-01407 for NULL in a column that forbids it."""
    for column in table.live:
        if not column.nullable and values[column.id] is None:
            raise OraError(error, qualify_names(table.owner, table.name, column.name))


def record_insert(engine: Engine, transaction: Transaction, table: Table, row: int, values: dict[int, Any]) -> None:
    """Write the records that follow an insert, as the release shapes them."""
    if engine.lob_shape != "19c":
        _record_blocks(engine, transaction, table, row, {}, values, [column.id for column in table.live])
        return
    _record(
        engine, transaction, table, row, [column for column in table.live if is_long(column, values[column.id])], values
    )


def record_update(
    engine: Engine,
    transaction: Transaction,
    table: Table,
    row: int,
    before: dict[int, Any],
    values: dict[int, Any],
    changed: list[int],
) -> None:
    """An update and what follows it."""
    engine.update(transaction, table, row, values, changed)
    if engine.lob_shape != "19c":
        _record_blocks(engine, transaction, table, row, before, values, changed)
        return
    columns = [column for column in table.live if column.id in changed and is_long(column, values[column.id])]
    _record(engine, transaction, table, row, columns, values)


def _record(
    engine: Engine, transaction: Transaction, table: Table, row: int, columns: list[Column], values: dict[int, Any]
) -> None:
    if not columns:
        return
    inline: dict[int, Any] = {}
    lead = transaction.undo[-1].record + transaction.undo[-1].count - 1
    identity = _identity(table, values)
    for column in columns:
        value = values[column.id]
        if column.type.kind in LOB_KINDS and _size(value) <= INLINE:
            inline[column.id] = value
            continue
        for op, part in _parts(column, value):
            engine.record(
                transaction, op, table=table, row=row, body=[column.id, identity if part is None else part, lead]
            )
    if inline:
        engine.record(transaction, log.UPDATE, table=table, row=row, body=[identity, inline, lead])
    else:
        engine.record(transaction, log.INTERNAL, table=table, row=row, body=None)


def lobs_logged_apart(
    columns: list[Column], before: dict[int, Any], after: dict[int, Any]
) -> tuple[list[Column], list[Column]]:
    """The columns that 23ai logs apart from an insert (``before`` is empty) or update: in pieces, and in an update that follows."""
    lobs = [column for column in columns if column.type.kind in LOB_KINDS and column.id in after]
    pieces = [column for column in lobs if _size(after[column.id] or "") > INLINE]
    pieces += [
        column for column in columns if column.type.kind not in LOB_KINDS and is_long(column, after.get(column.id))
    ]
    if before and not pieces:
        return [], []
    later = [
        column for column in lobs if column not in pieces and (before or after[column.id] is None or after[column.id])
    ]
    return pieces, later


def first_record_values(columns: list[Column], before: dict[int, Any], after: dict[int, Any]) -> dict[int, Any]:
    """The values in 23ai's first record of an update; a LOB that was NULL is empty before its pieces."""
    pieces, later = lobs_logged_apart(columns, before, after)
    empty = {column.id: "" if column.type.kind != "BLOB" else b"" for column in pieces if column.type.kind in LOB_KINDS}
    hidden = {column.id for column in pieces + later}
    return {key: value for key, value in after.items() if key not in hidden} | {
        key: value for key, value in empty.items() if before.get(key) is None
    }


def _record_blocks(
    engine: Engine, transaction: Transaction, table: Table, row: int, before: dict[int, Any], values: dict[int, Any],
    changed: list[int],
) -> None:  # fmt: skip
    """Write the records behind an insert or update, as 23ai logs them."""
    pieces, later = lobs_logged_apart(table.live, before, {column: values[column] for column in changed})
    record = transaction.undo[-1].record + transaction.undo[-1].count - 1
    identity = _identity(table, values)

    def record_part(op: int, column: Column, part: Any) -> None:
        engine.record(transaction, op, table=table, row=row, body={"column": column.id, "part": part, "row": identity})

    for column in pieces:
        value, lob = values[column.id], column.type.kind in LOB_KINDS
        for op, part in _parts(column, value):
            record_part(op, column, part)
        if lob and before.get(column.id) is not None:
            if engine.lob_shape == BASIC:
                record_part(SELECT_LOCATOR, column, None)
            record_part(log.LOB_TRIM, column, len(value))
    if later or any(column.type.kind == "XMLTYPE" for column in (table.live if not before else pieces)):
        inline = {column.id: values[column.id] for column in later}
        engine.record(transaction, log.UPDATE, table=table, row=row, body=[identity, inline, record])
    if before and not first_record_values(table.live, before, {column: values[column] for column in changed}):
        hide(engine, record)


def hide(engine: Engine, record: int) -> None:
    """Take a record out of what LogMiner shows."""
    engine.db.execute("UPDATE redo SET op = ? WHERE id = ?", (HIDDEN, record))


def _identity(table: Table, values: dict[int, Any]) -> dict[int, Any]:
    """The values that the condition of a LOB record names: everything that is not long itself."""
    return {
        column.id: values[column.id]
        for column in table.live
        if not is_long(column, values[column.id]) and column.type.kind not in LOB_KINDS
    }


def _parts(column: Column, value: Any) -> Iterator[tuple[int, Any]]:
    if column.type.kind in LOB_KINDS:
        begin, write, end, first = SELECT_LOCATOR, log.LOB_WRITE, None, 1
    elif column.type.kind == "XMLTYPE":
        begin, write, end, first = XML_BEGIN, XML_WRITE, XML_END, 1
    else:
        begin, write, end, first = STRING_BEGIN, STRING_WRITE, STRING_END, 1
    yield begin, None
    for start in range(0, len(value), FRAGMENT):
        yield write, [first + start, value[start : start + FRAGMENT]]
    if end is not None:
        yield end, []


def change(
    engine: Engine, transaction: Transaction, table: Table, row: int, column: Column, steps: list[tuple[str, int, Any]]
) -> None:
    """DBMS_LOB calls on a value in place: ``("write", offset, data)``, ``("trim", size, None)``, ``("erase", offset, size)``."""
    values = dict(engine.newest(table, row)[1])
    value = values[column.id]
    if value is None:
        raise OraError(22275)
    records: list[tuple[int, Any]] = [(SELECT_LOCATOR, None)]
    empty: Any = b"\0" if isinstance(value, bytes) else " "
    for name, at, what in steps:
        if name == "write":
            value = value[: at - 1].ljust(at - 1, empty) + what + value[at - 1 + len(what) :]
            records += [
                (log.LOB_WRITE, [at + start, what[start : start + FRAGMENT]]) for start in range(0, len(what), FRAGMENT)
            ]
        elif name == "append":
            records.append((log.LOB_WRITE, [len(value) + 1, what]))
            value = value + what
        elif name == "trim":
            value = value[:at]
            records.append((log.LOB_TRIM, at))
        else:
            value = value[: at - 1] + empty * min(what, len(value) - at + 1) + value[at - 1 + what :]
            records.append((log.LOB_ERASE, [at, what]))
    values[column.id] = value
    engine.update(transaction, table, row, values, [column.id])
    lead = transaction.undo[-1].record
    hide(engine, lead)
    if engine.lob_shape != "19c":
        for op, part in records:
            body = {"column": column.id, "part": part, "row": _identity(table, values), "in_place": True}
            engine.record(transaction, op, table=table, row=row, body=body)
        return
    for op, part in records:
        content = _identity(table, values) if op == SELECT_LOCATOR else part
        engine.record(transaction, op, table=table, row=row, body=[column.id, content, lead, IN_PLACE])
    engine.record(transaction, log.INTERNAL, table=table, row=row, body=None)
