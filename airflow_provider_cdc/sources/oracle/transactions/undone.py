"""Finds the changes of tables with long values that were undone within their transaction.

A statement with long values has several log rows. All of them, or all but the last, have no ROWID, and no row says where a statement
ends; only the row that undoes it has the ROWID. Three facts lead from it to what it undoes
(https://github.com/osodevops/kafka-connect-oracle-cdc, reference/lob-redo-shapes.md and ADR-0015):

* the newest change is undone first, one row of one statement by one undo row;
* the undo of an insert is a delete, that of a delete an insert;
* the undo of an update sets every column other than a long one that the update has set, and no further one.

Whether two values of one row were set by one statement or by two is not in the log, nor are the calls of ``DBMS_LOB`` apart from each
other. Such values stay, and their undo row with them: :mod:`..redo.lobs` takes them for unknown, and they are read from the table.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from airflow_provider_cdc.sources.oracle.kernels.operations import (
    DELETE,
    FIRST_PIECE,
    INSERT,
    INTERNAL,
    LOB_ERASE,
    LOB_TRIM,
    SELECT_LOB_LOCATOR,
    STRING_BEGIN,
    UPDATE,
    XML_BEGIN,
)
from airflow_provider_cdc.sources.oracle.redo import pieces as p
from airflow_provider_cdc.sources.oracle.redo.literals import Literal, Unreadable
from airflow_provider_cdc.sources.oracle.redo.statement_parser import read_statement

Mask = npt.NDArray[np.bool_]

_BEGINS = (SELECT_LOB_LOCATOR, XML_BEGIN, STRING_BEGIN)
_NO_ROW = -1


@dataclass(slots=True, eq=False)
class _Change:
    """A log row of a change, or the log rows of one long value.

    :param code: operation code of its first row
    :param row: number of its ROWID; -1 without one
    :param statement: number of the statement that it may be a part of
    :param columns: the columns that it sets, if they are known
    :param where: the values that name its row, if they are known
    :param doubtful: it may have been undone
    """

    code: int
    row: int
    statement: int
    rows: list[int] = field(default_factory=list)
    columns: frozenset[str] | None = None
    where: dict[str, Literal] | None = None
    doubtful: bool = False

    @property
    def piece(self) -> bool:
        return self.code >= FIRST_PIECE


class UndoneChanges:
    """The rows of one table in one transaction, in log order.

    :param long: the table's columns with long values
    :param codes: per log row, the operation code
    :param row_ids: a number for its ROWID; -1 without one
    :param texts: its redo text
    :param gone: output: mask of the log rows that were undone
    :param kept: output: mask of the undo rows that leave open what they undo
    :ivar unmatched: number of undo rows without a change to undo
    """

    def __init__(
        self,
        long: Collection[str],
        codes: Sequence[int],
        row_ids: Sequence[int],
        texts: Sequence[str | None],
        gone: Mask,
        kept: Mask,
    ) -> None:
        self._long, self._codes, self._row_ids, self._texts = frozenset(long), codes, row_ids, texts
        self._gone, self._kept = gone, kept
        self._stack: list[_Change] = []
        self._statement = 0
        self._open = False
        self.unmatched = 0

    def add(self, i: int) -> None:
        """The next row, if it is no undo row."""
        code, row = self._codes[i], self._row_ids[i]
        if code == INTERNAL:
            self._close(row)
        elif code < FIRST_PIECE:
            last = code == UPDATE and row != _NO_ROW and self._open and not self._plain(i)
            self._push(i, code, row, begins=not last)
            self._open = row == _NO_ROW
        elif code in _BEGINS or not self._stack:
            self._push(i, code, row, begins=not self._open or row != _NO_ROW)
            self._open = row == _NO_ROW
        else:
            self._extend(i, code)

    def _close(self, row: int) -> None:
        """A log row with the ROWID of the statement that is open ends it."""
        for change in reversed(self._stack if self._open else []):
            if change.statement != self._statement:
                break
            change.row = row if change.row == _NO_ROW else change.row
        self._open = False

    def _push(self, i: int, code: int, row: int, *, begins: bool) -> None:
        self._statement += begins
        self._stack.append(_Change(code, row, self._statement, [i]))

    def _extend(self, i: int, code: int) -> None:
        """Another row of the value that began last. A locator without a text, and the cut behind it, belong to the value before."""
        last = self._stack[-1]
        if (
            code in (LOB_TRIM, LOB_ERASE)
            and len(self._stack) > 1
            and len(last.rows) == 1
            and not self._texts[last.rows[0]]
        ):
            before = self._stack[-2]
            if before.piece and before.row == last.row == _NO_ROW and before.statement == last.statement:
                self._stack.pop()
                before.rows += last.rows
                last = before
        last.rows.append(i)

    # -- undo rows --------------------------------------------------------------------------------------------------------

    def undo(self, i: int) -> None:
        """The next row, which undoes a change."""
        code, row = self._codes[i], self._row_ids[i]
        while self._stack and self._stack[-1].doubtful and self._stack[-1].row not in (row, _NO_ROW):
            self._remove(len(self._stack) - 1)  # the undo has gone on to the change before
        if code == UPDATE:
            self._undo_update(i, row)
        elif not self._undo_whole(row, INSERT if code == DELETE else DELETE):
            self.unmatched += 1
        self._open = False

    def _undo_whole(self, row: int, wanted: int) -> bool:
        """Undo an insert or a delete, and what has followed it in its row."""
        stack, at = self._stack, len(self._stack) - 1
        while at >= 0 and stack[at].row in (row, _NO_ROW) and (wanted == INSERT and stack[at].code != INSERT):
            at -= 1
        if at >= 0 and stack[at].code == wanted and stack[at].row in (row, _NO_ROW):
            self._remove(at)
            return True
        found = next(
            (at for at in reversed(range(len(stack))) if stack[at].row == row and stack[at].code == wanted), None
        )
        if found is not None:
            self._remove(found, row)
        return found is not None

    def _undo_update(self, i: int, row: int) -> None:
        plain = self._plain(i)
        first = self._newest_statement(row)
        top = self._stack[-1] if self._stack else None
        if first is not None and top is not None:
            head = self._stack[first]
            if plain is None and not (top.piece and top.row == row):
                self._remove(first if head.code == UPDATE or head.piece else len(self._stack) - 1)
                return
            if plain and head.code == UPDATE and self._plain(head.rows[0]) == plain:
                self._remove(first)
                return
            if not plain and top.piece and top.row == row:
                self._doubt(i, row, [c for c in self._stack if c.row == row and c.piece])
                return
            if not plain and (top.piece or (top.code == UPDATE and not self._plain(top.rows[0]))):
                self._undo_long(i, row, first)
                return
        same = (c for c in reversed(range(len(self._stack))) if self._stack[c].row == row and self._sets(c, plain))
        found = next(same, None)
        if found is not None:
            self._remove(found, row)
        elif plain or plain is None:
            self.unmatched += 1

    def _sets(self, at: int, plain: frozenset[str] | None) -> bool:
        change = self._stack[at]
        return change.code == UPDATE and (plain is None or self._plain(change.rows[0]) == plain != frozenset())

    def _newest_statement(self, row: int) -> int | None:
        """Where the newest statement begins, if it may be one on this row."""
        stack = self._stack
        if not stack or stack[-1].row not in (row, _NO_ROW):
            return None
        at = len(stack) - 1
        while at and stack[at - 1].statement == stack[-1].statement:
            at -= 1
        return at

    def _undo_long(self, i: int, row: int, first: int) -> None:
        """Undo a statement that has set long values alone: the newest for certain, and those that it has set with it."""
        undone = self._read(self._remove(len(self._stack) - 1))
        columns = set(undone.columns or ())
        doubtful: list[_Change] = []
        for at in reversed(range(first, len(self._stack))):
            change = self._read(self._stack[at])
            if not change.piece:
                if change.code == UPDATE and not self._plain(change.rows[0]):
                    if (change.columns or frozenset()) <= columns and not doubtful:
                        self._remove(at)  # it has emptied what was set after it
                    else:
                        doubtful.append(change)
                break
            if columns & (change.columns or frozenset()) or _differ(change.where, undone.where):
                break
            columns |= change.columns or frozenset()
            doubtful.append(change)
        if doubtful:
            self._doubt(i, row, doubtful)

    def _doubt(self, i: int, row: int, changes: list[_Change]) -> None:
        self._kept[i] = True
        for change in changes:
            change.row, change.doubtful = row, True

    def _remove(self, at: int, row: int | None = None) -> _Change:
        """Take back the changes from ``at`` on; with ``row`` those of this row alone. Returns the first."""
        first, later = self._stack[at], self._stack[at:]
        taken = [c for c in later if row is None or c.row == row]
        self._stack[at:] = [c for c in later if row is not None and c.row != row]
        for change in taken:
            self._gone[change.rows] = True
        return first

    # -- texts ------------------------------------------------------------------------------------------------------------

    def _plain(self, i: int) -> frozenset[str] | None:
        """The columns other than long ones that an update sets; ``None`` if it has no text that says so."""
        text = self._texts[i]
        if not text:
            return None
        try:
            return frozenset(read_statement(text).new) - self._long
        except Unreadable:
            return None

    def _read(self, change: _Change) -> _Change:
        """The same change, with its columns and the values that name its row."""
        if change.columns is not None:
            return change
        change.columns = frozenset()
        for i in change.rows:
            text = self._texts[i]
            if not text:
                continue
            try:
                if not change.piece:
                    statement = read_statement(text)
                    change.columns, change.where = frozenset(statement.new), statement.where
                    return change
                begin = p.read_begin(self._codes[i], text)
            except Unreadable:
                continue
            if begin is not None:
                change.columns, change.where = frozenset([begin.column]), begin.where
                return change
        return change


def _differ(one: dict[str, Literal] | None, other: dict[str, Literal] | None) -> bool:
    """Whether two conditions name different rows; they may have different columns."""
    known = other or {}
    return any(name in known and known[name] != literal for name, literal in (one or {}).items())
