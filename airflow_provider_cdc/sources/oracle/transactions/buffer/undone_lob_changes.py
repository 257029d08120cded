"""Finds the changes of tables with long values that were undone within their transaction.

A statement with long values has several log rows. All of them, or all but the last, have no ROWID, and no row says where a statement
ends; only the row that undoes it has the ROWID. Three facts lead from it to the change that it undoes
(https://github.com/osodevops/kafka-connect-oracle-cdc, reference/lob-redo-shapes.md and ADR-0015):

* the newest change is undone first, one row of one statement by one undo row;
* the undo of an insert is a delete, that of a delete an insert;
* the undo of an update sets every column other than a long one that the update has set, and no further one.

Whether two values of one row were set by one statement or by two is not in the log, nor are the calls of ``DBMS_LOB`` apart from each
other. Such values stay, and their undo row with them: :mod:`...redo.lob_assembler` takes them for unknown, and they are read from the table.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from airflow_provider_cdc.sources.oracle.kernels.operation_codes import (
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
from airflow_provider_cdc.sources.oracle.redo import lob_piece_parser as p
from airflow_provider_cdc.sources.oracle.redo.parsed_literal import ParsedLiteral, UnreadableRedo
from airflow_provider_cdc.sources.oracle.redo.statement_parser import read_statement

Mask = npt.NDArray[np.bool_]

_BEGINS = (SELECT_LOB_LOCATOR, XML_BEGIN, STRING_BEGIN)
_NO_ROW = -1


@dataclass(slots=True, eq=False)
class _Change:
    """A log row of a change, or the log rows of one long value.

    :param code: operation code of its first row
    :param row: number of its ROWID; -1 without one
    :param rows: its log rows
    :param head: the first change of the statement that it may be a part of
    :param columns: the columns that it sets, if they are known
    :param where: the values that name its row, if they are known
    :param in_place: it has the ROWID, as calls of ``DBMS_LOB`` have
    :param doubtful: it may have been undone
    """

    code: int
    row: int
    rows: list[int]
    in_place: bool = False
    head: _Change | None = None
    columns: frozenset[str] | None = None
    where: dict[str, ParsedLiteral] | None = None
    doubtful: bool = False
    undone: bool = False

    @property
    def is_piece(self) -> bool:
        return self.code >= FIRST_PIECE


class UndoneChangeFinder:
    """The rows of one table in one transaction, in log order.

    :param long: the table's columns with long values
    :param codes: per log row, the operation code
    :param row_ids: a number for its ROWID; -1 without one
    :param texts: its redo text
    :param gone: output: mask of the log rows that were undone
    :param left_open: output: mask of the undo rows that leave open which change they undo
    :ivar unmatched: number of undo rows without a change to undo
    """

    def __init__(
        self,
        long: Collection[str],
        codes: Sequence[int],
        row_ids: Sequence[int],
        texts: Sequence[str | None],
        gone: Mask,
        left_open: Mask,
    ) -> None:
        self._long, self._codes, self._row_ids, self._texts = frozenset(long), codes, row_ids, texts
        self._gone, self._left_open = gone, left_open
        self._stack: list[_Change] = []
        self._of_row: defaultdict[int, list[_Change]] = defaultdict(list)
        self._open: _Change | None = None
        self.unmatched = 0

    def add_row(self, i: int) -> None:
        """Add the next row, if it is no undo row."""
        code, row = self._codes[i], self._row_ids[i]
        if code == INTERNAL:
            self._close(row)
        elif code < FIRST_PIECE:
            last = code == UPDATE and row != _NO_ROW and self._open is not None and not self._plain(i)
            change = self._push(i, code, row, self._open if last else None)
            self._open = change if row == _NO_ROW else None
        elif code in _BEGINS or self._top() is None:
            change = self._push(i, code, row, self._open if row == _NO_ROW else None)
            self._open = change.head if row == _NO_ROW else None
        else:
            self._extend(i, code)

    def _close(self, row: int) -> None:
        """End the statement that is open: a log row has its ROWID."""
        for change in reversed(self._stack if self._open else []):
            if change.head is not self._open:
                break
            if change.row == _NO_ROW:
                self._name(change, row)
        self._open = None

    def _push(self, i: int, code: int, row: int, head: _Change | None) -> _Change:
        change = _Change(code, row, [i], in_place=code >= FIRST_PIECE and row != _NO_ROW)
        change.head = head or change
        self._stack.append(change)
        if row != _NO_ROW:
            self._of_row[row].append(change)
        return change

    def _name(self, change: _Change, row: int) -> None:
        if change.row != row:
            change.row = row
            self._of_row[row].append(change)

    def _top(self) -> _Change | None:
        """Return the newest change that was not undone."""
        while self._stack and self._stack[-1].undone:
            self._stack.pop()
        return self._stack[-1] if self._stack else None

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
            if before.is_piece and not before.undone and before.row == last.row == _NO_ROW and before.head is last.head:
                self._stack.pop()
                before.rows += last.rows
                last = before
        last.rows.append(i)

    # -- undo rows --------------------------------------------------------------------------------------------------------

    def apply_undo_row(self, i: int) -> None:
        """Process the next row, which undoes a change."""
        code, row = self._codes[i], self._row_ids[i]
        while (top := self._top()) and (top.doubtful or top.in_place) and top.row not in (row, _NO_ROW):
            self._take([top])  # the undo has come to an earlier change
        if code == UPDATE:
            self._undo_update(i, row)
        elif not self._undo_whole(row, INSERT if code == DELETE else DELETE):
            self.unmatched += 1
        self._open = None

    def _undo_whole(self, row: int, code: int) -> bool:
        """Undo an insert or a delete, and the changes that have followed it in its row."""

        def ends(change: _Change) -> bool:
            head = change.head or change
            return change.code == code or (code == INSERT and head.code == INSERT)

        later: list[_Change] = []
        for change in reversed(self._stack):  # the newest change, behind others of the same row
            if change.row not in (row, _NO_ROW):
                break
            if not change.undone and ends(change):
                self._take([*later, *self._statement(change.head or change)])
                return True
            if change.row == _NO_ROW and not change.undone:
                break
            later.append(change)
        later = []
        for change in self._live(row):
            later.append(change)
            if ends(change):
                self._take([*later, *(other for other in self._stack if other.head is change.head)])
                return True
        return False

    def _undo_update(self, i: int, row: int) -> None:
        plain, top = self._plain(i), self._top()
        if top is not None and top.row in (row, _NO_ROW):
            head = top.head or top
            if plain is None and not top.in_place:
                self._take(self._statement(head) if head.code == UPDATE else [top])
                return
            if plain and head.code == UPDATE and self._plain(head.rows[0]) == plain:
                self._take(self._statement(head))
                return
            if not plain and top.in_place:
                self._undo_call(i, row)
                return
            if not plain and (top.is_piece or (top.code == UPDATE and not self._plain(top.rows[0]))):
                self._undo_long(i, row, top)
                return
        if plain and self._undo_behind_calls(row, plain):
            return
        later: list[_Change] = []
        for change in self._live(row) if plain or plain is None else ():
            later.append(change)
            if change.code == UPDATE and (plain is None or self._plain(change.rows[0]) == plain):
                self._take(later)  # the newest is undone first, so that those after it were
                return
        self.unmatched += bool(plain) or plain is None

    def _undo_behind_calls(self, row: int, plain: frozenset[str]) -> bool:
        """Undo the update before the calls of ``DBMS_LOB``, and changes that may have been undone, that come last; and these with it."""
        calls: list[_Change] = []
        for change in reversed(self._stack):
            head = change.head or change
            if not change.undone and (change.in_place or change.doubtful) and change.row == row:
                calls.append(change)
            elif not change.undone:
                if change.row not in (row, _NO_ROW) or head.code != UPDATE or self._plain(head.rows[0]) != plain:
                    return False
                self._take([*calls, *self._statement(head)])
                return True
        return False

    def _live(self, row: int) -> Iterator[_Change]:
        """Return the changes with this ROWID that were not undone, newest first."""
        return (change for change in reversed(self._of_row.get(row, ())) if not change.undone)

    def _statement(self, head: _Change) -> list[_Change]:
        """Return the changes that may be of one statement, which is the newest of its row."""
        changes: list[_Change] = []
        for change in reversed(self._stack):
            if change.head is head:
                changes.append(change)
            elif changes and not change.undone:
                break
        return changes

    def _undo_call(self, i: int, row: int) -> None:
        """Undo a call of ``DBMS_LOB``: one of those that come last, and all of them when each was undone."""
        calls: list[_Change] = []
        for change in reversed(self._stack):
            if not change.undone and not (change.in_place and change.row == row):
                break
            calls += [] if change.undone else [change]
        next(change for change in calls if not change.doubtful).doubtful = True
        if not all(change.doubtful for change in calls):
            self._left_open[i] = True
            return
        self._take(calls)
        below = self._top()
        if below is not None and below.is_piece and below.row in (row, _NO_ROW):
            self._doubt(i, row, [below])  # one call may have had several locators

    def _undo_long(self, i: int, row: int, top: _Change) -> None:
        """Undo a statement that has set long values alone: the newest for certain, and those that it has set with it."""
        self._take([top])
        undone = self._read(top)
        columns = set(undone.columns or ())
        doubtful: list[_Change] = []
        for earlier in itertools.islice(reversed(self._stack), 1, None):
            if earlier.undone:
                continue
            if earlier.head is not top.head:
                break
            change = self._read(earlier)
            if not change.is_piece:
                if change.code == UPDATE and not self._plain(change.rows[0]):
                    if (change.columns or frozenset()) <= columns and not doubtful:
                        self._take([change])  # it has emptied the value that was set after it
                    else:
                        doubtful.append(change)
                break
            if columns & (change.columns or frozenset()) or _differ(change.where, undone.where):
                break
            columns |= change.columns or frozenset()
            doubtful.append(change)
        if doubtful:
            self._doubt(i, row, doubtful)

    def _doubt(self, i: int, row: int, changes: Iterable[_Change]) -> None:
        self._left_open[i] = True
        for change in list(changes):
            self._name(change, row)
            change.doubtful = True

    def _take(self, changes: Iterable[_Change]) -> None:
        for change in changes:
            change.undone = True
            self._gone[change.rows] = True

    # -- texts ------------------------------------------------------------------------------------------------------------

    def _plain(self, i: int) -> frozenset[str] | None:
        """Return the columns other than long ones that an update sets; ``None`` if it has no text that says so."""
        text = self._texts[i]
        if not text:
            return None
        try:
            return frozenset(read_statement(text).new) - self._long
        except UnreadableRedo:
            return None

    def _read(self, change: _Change) -> _Change:
        """Return the same change, with its columns and the values that name its row."""
        if change.columns is not None:
            return change
        change.columns = frozenset()
        for i in change.rows:
            text = self._texts[i]
            if not text:
                continue
            try:
                if not change.is_piece:
                    statement = read_statement(text)
                    change.columns, change.where = frozenset(statement.new), statement.where
                    return change
                begin = p.read_begin(self._codes[i], text)
            except UnreadableRedo:
                continue
            if begin is not None:
                change.columns, change.where = frozenset([begin.column]), begin.where
                return change
        return change


def _differ(first: dict[str, ParsedLiteral] | None, second: dict[str, ParsedLiteral] | None) -> bool:
    """Check whether two conditions name different rows; they may have different columns."""
    others = second or {}
    return any(name in others and others[name] != literal for name, literal in (first or {}).items())
