"""Assembles long values (LOBs, XML documents, long strings) and merges them into the change that they belong to.

LogMiner shows a statement with long values as several log rows: first the change itself, in which a LOB is ``EMPTY_CLOB()``; then for
each value a locator with writes (or the begin and end of an XML document or a long string); at last an update with the values that are
short enough to be stored in the row. All but the last have the empty ROWID. A change in place by ``DBMS_LOB`` begins with a locator
that has the row's own ROWID. All of them become one output row, as in Debezium's connector.

In 23ai the locator has no text, each write selects the locator again, and no log row ends a statement
(https://github.com/osodevops/kafka-connect-oracle-cdc, reference/lob-redo-shapes.md). An update without a text ends a statement that has
set an XML document.

A LOB that a statement sets is written once, from its first to its last character. For a change in place the old value is needed: it is
known if the same transaction has set it, or if the change overwrites all of it. Otherwise the value is unavailable, and
:attr:`AssembledRows.unknown` marks it as changed.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from airflow_provider_cdc.core.model import log_items
from airflow_provider_cdc.sources.oracle.kernels import literal_conversion as k
from airflow_provider_cdc.sources.oracle.kernels import operation_codes as o
from airflow_provider_cdc.sources.oracle.redo import lob_piece_parser as p
from airflow_provider_cdc.sources.oracle.redo.lob_output_rows import LobOutputRows
from airflow_provider_cdc.sources.oracle.redo.lob_transaction_state import (
    ChangedRow,
    LobTransaction,
    OpenLongValue,
    OutputRow,
)
from airflow_provider_cdc.sources.oracle.redo.long_value import LongValue
from airflow_provider_cdc.sources.oracle.redo.parsed_literal import UnreadableRedo
from airflow_provider_cdc.sources.oracle.redo.redo_statement_reader import Int64s, Mask, RedoReader, RedoRows
from airflow_provider_cdc.sources.oracle.redo.row_image_matching import RowImages
from airflow_provider_cdc.sources.oracle.schema.column_types import UNSUPPORTED, ColumnType

_MAX_UNNAMED: Final = 1_000
_TYPES = {"CLOB": k.TEXT, "NCLOB": k.TEXT, "BLOB": k.BYTES, "XML": k.TEXT}


@dataclass(slots=True)
class AssembledRows:
    """Output rows with their long values.

    :param origin: per output row the index of its first log row, whose SCN, ``RS_ID`` … it has. Ascending
    :param named: per output row the index of a log row that has its ROWID; without one, that of its first log row
    :param unknown: ``bool[column, row]``: long values that were changed, but whose new value is not in the log. They are unavailable in
        ``rows``, and a target that keeps the old value is wrong; ``None`` if there are none
    """

    rows: RedoRows
    origin: Int64s
    named: Int64s
    unknown: Mask | None


def read_with_lobs(
    reader: RedoReader,
    texts: list[str] | pa.Array,
    codes: npt.NDArray[Any],
    transactions: npt.NDArray[Any],
    row_ids: list[str | None] | pa.Array,
    undo: Mask | None = None,
) -> AssembledRows:
    """Read the log rows of one table, some of which have long values.

    :param texts: ``SQL_REDO`` in log order, continuation rows joined; may be NULL for the end of a value
    :param codes: ``OPERATION_CODE`` of changes and of pieces of long values
    :param transactions: transaction of each log row; transactions may be interleaved, and must be complete
    :param row_ids: ROWID of each log row
    :param undo: mask of the log rows after which the long values of the change before them are unknown: they may have been undone
    :raises UnreadableValue: a statement, or the sequence of statements, cannot be understood
    :raises SchemaConflict: a statement names another table, or a column that the schema does not have
    """
    if isinstance(texts, list):
        texts = pa.array(texts, pa.large_string())
    ids = row_ids if isinstance(row_ids, list) else row_ids.to_pylist()
    undo = np.zeros(len(ids), np.bool_) if undo is None else undo
    assembly = _LobAssembler(reader, texts.cast(pa.large_string()), np.asarray(codes, np.int64), undo)
    return assembly.run(np.asarray(transactions).tolist(), ids)


def read_keys(reader: RedoReader, texts: pa.Array, codes: Int64s, undo: Mask) -> dict[tuple[Any, ...], int] | None:
    """Return the keys of the table rows that some log rows touch, with the index of the first log row of each.

    Parameters and errors are those of :func:`read_with_lobs`.

    :return: ``None`` if the table has no key, or a log row does not have all of it
    """
    assembly = _LobAssembler(reader, texts.cast(pa.large_string()), np.asarray(codes, np.int64), undo)
    images, names = assembly.images, reader.schema.key
    first_rows: dict[tuple[Any, ...], int] = {}
    for image, i in enumerate([*assembly.changes.tolist(), *assembly.begins]):
        op = images.changes.op[image] if image < images.n else log_items.UPDATE
        for values, keys, absent in (
            (images.before, images.keys_before, log_items.CREATE),
            (images.after, images.keys_after, log_items.DELETE),
        ):
            if op == absent:
                continue
            if keys[image] < 0:
                return None
            key = tuple(values.field(name)[image].as_py() for name in names)
            first_rows[key] = min(i, first_rows.get(key, i))
    return first_rows


class _LobAssembler:
    """A pass over the log rows, with the state of each transaction."""

    def __init__(self, reader: RedoReader, texts: pa.Array, codes: Int64s, undo: Mask) -> None:
        self.reader, self.texts, self.codes, self.undo = reader, texts, codes, undo
        documents = [
            c for c, column in enumerate(reader.schema.columns) if ColumnType.from_column(column).base == "XMLTYPE"
        ]
        self.documents = [c for c in documents if reader.column_read(c).how != k.NOT_READ]
        self.empty = pc.equal(pc.fill_null(texts, ""), "").to_numpy(zero_copy_only=False)
        self.columns = {name: c for c, name in enumerate(reader.schema.column_names)}
        self.parsed: dict[int, list[p.Piece]] = {}
        begins = self._find_begins()
        self.begins = [i for i, _ in begins]
        self.ends = self.empty & (codes == o.UPDATE) & bool(documents)
        self.changes = np.flatnonzero((codes <= o.LAST_CHANGE) & ~undo & ~self.ends)
        statements = texts.take(pa.array(self.changes))
        if statements.null_count:
            raise reader.build_unreadable_error("A change has no redo text.", "")
        self.images = RowImages(
            reader,
            reader.read(statements, codes[self.changes]),
            [b.where for _, b in begins],
            [self.read_redo_text(i) for i, _ in begins],
        )
        self.output = LobOutputRows(reader, texts, codes, self.changes)
        self.next_begin = len(self.changes)

    def run(self, transactions: list[int], row_ids: list[str | None]) -> AssembledRows:
        states: dict[int, LobTransaction] = {}
        change = 0
        for i, code in enumerate(self.codes.tolist()):
            state = states.get(transactions[i])
            if state is None:
                state = states[transactions[i]] = LobTransaction()
            row_id = row_ids[i]
            row_id = None if row_id is None or row_id.strip() in ("", o.NO_ROW_ID) else row_id
            if self.undo[i] or self.ends[i]:
                self._end(state, i, row_id)
            elif code <= o.LAST_CHANGE:
                self.output.end_open_value(state)
                state.locator = None
                self._change(state, i, change, code, row_id)
                change += 1
            else:
                self._pieces(state, i, code, row_id)
        for state in states.values():
            self.output.end_open_value(state)
        self.output.output_rows.sort(key=lambda e: e.origin)
        return self._assembled()

    def read_redo_text(self, i: int) -> str:
        return self.texts[i].as_py() or ""

    def _find_begins(self) -> list[tuple[int, p.ValueBegin]]:
        """Parse the beginnings of all long values, so that their conditions are read in one call."""
        blocks = pc.match_substring_regex(self.texts, r"(?i)^\s*(declare|begin|select)\b").fill_null(False)
        starts = ~self.empty & np.isin(self.codes, (o.SELECT_LOB_LOCATOR, o.XML_BEGIN, o.STRING_BEGIN)) | (
            np.isin(self.codes, o.LOB_CODES) & blocks.to_numpy(zero_copy_only=False)
        )
        begins = []
        for i in np.flatnonzero(starts).tolist():
            self.parsed[i] = self._read(i)
            for piece in self.parsed[i]:
                if isinstance(piece, p.ValueBegin):
                    text = self.read_redo_text(i)
                    self.reader.check_table(piece.owner, piece.table, text)
                    self.reader.check_columns([piece.column], text)
                    begins.append((i, piece))
        return begins

    def _read(self, i: int) -> list[p.Piece]:
        text = self.read_redo_text(i)
        try:
            return p.read_pieces(int(self.codes[i]), text)
        except UnreadableRedo as e:
            raise self.reader.build_unreadable_error(f"A piece of a long value cannot be read: {e}.", text) from e

    # -- changes ----------------------------------------------------------------------------------------------------------

    def _end(self, state: LobTransaction, i: int, row_id: str | None) -> None:
        """Process an update without a text, which ends a statement; or an undo row.

        An undo row may have undone long values of the change before.
        """
        self.output.end_open_value(state)
        event, state.locator = state.newest, None
        if self.ends[i] and not self.undo[i] and self.documents and (event is None or event is not state.open):
            raise self.reader.build_unreadable_error("A change has no redo text.")
        if event is None or event.op == log_items.DELETE:
            return
        if self.undo[i]:
            self.output.mark_values_unknown(
                event, {*event.values, *(c for c in self.images.long if self.images.names_column(event.image, c))}
            )
        elif event is not state.open:
            return
        elif self.documents and event.op == log_items.UPDATE and not any(c in event.values for c in self.documents):
            raise self.reader.build_unreadable_error("A change has no redo text.")
        state.open = None
        self._name(state, event, i, row_id)

    def _name(self, state: LobTransaction, event: OutputRow, i: int, row_id: str | None) -> None:
        if row_id:
            event.named = i
            state.by_row_id[row_id] = event.row

    def _change(self, state: LobTransaction, i: int, at: int, code: int, row_id: str | None) -> None:
        images = self.images
        if code == o.UPDATE and row_id and state.open is not None and images.completes_change(state.open.image, at):
            self._complete(state, state.open, at, row_id)
            return
        key, old = images.keys_after[at], images.keys_before[at]
        if code == o.INSERT:
            row = ChangedRow()
        else:
            row = self._row(state, i, old, row_id) or ChangedRow()
            state.rows.pop(old, None)
        event = OutputRow(
            i, at, {o.INSERT: log_items.CREATE, o.DELETE: log_items.DELETE}.get(code, log_items.UPDATE), row
        )
        row.event, row.deleted, row.key = event, code == o.DELETE, old if code == o.DELETE else key
        if code == o.DELETE:
            row.history = []
            if row_id:
                state.by_row_id.pop(row_id, None)
            if old >= 0:
                state.rows[old] = row
        else:
            row.history.append(at)
            if key >= 0:
                state.rows[key] = row
            self._name(state, event, i, row_id)
        self.output.add_event(event)
        state.newest = event
        state.open = event if code != o.DELETE and not row_id else None
        if state.open is not None and key < 0:
            state.unnamed.append(event)
        state.last = event

    def _row(self, state: LobTransaction, i: int, key: int, row_id: str | None) -> ChangedRow | None:
        """Return the table row with this ROWID or key, if the transaction has changed it before."""
        named, keyed = state.by_row_id.get(row_id) if row_id else None, state.rows.get(key)
        row = named or keyed
        if row is not None and key >= 0 and (row.key not in (-1, key) or keyed not in (None, row)):
            raise self._confused(i, "its ROWID and its key identify different rows", None)
        return row

    def _complete(self, state: LobTransaction, event: OutputRow, at: int, row_id: str) -> None:
        """Process the last log row of a statement: the LOB values that are stored in the row."""
        for c in self.images.lobs:
            if self.images.sets_lob_column(at, c):
                event.values[c] = at
        event.row.history.append(at)
        self._name(state, event, int(self.changes[at]), row_id)
        state.open, state.newest = None, event
        if state.unnamed and state.unnamed[-1] is event:
            state.unnamed.pop()

    # -- pieces -----------------------------------------------------------------------------------------------------------

    def _pieces(self, state: LobTransaction, i: int, code: int, row_id: str | None) -> None:
        if code == o.SELECT_LOB_LOCATOR and self.empty[i]:
            state.locator = i, row_id
            return
        pieces = self.parsed.pop(i, None)
        pieces = self._read(i) if pieces is None else pieces
        for piece, next_ in itertools.zip_longest(pieces, pieces[1:]):
            if isinstance(piece, p.ValueBegin):
                if self._continues(state, piece, next_, row_id):
                    self.next_begin += 1
                else:
                    self.output.end_open_value(state)
                    at, located = state.locator or (i, None)
                    self._begin(state, at, i, piece, row_id or located)
                state.locator = None
                continue
            group = state.group or self._inferred(state, i, code, piece)
            codes = {"XML": o.XML_CODES, "STRING": o.STRING_CODES}.get(group.kind, o.LOB_CODES)
            if code not in codes or group.ended or piece.kind not in (None, group.kind):
                raise self._confused(i, f"a piece with operation code {code} follows the start of another value", group)
            try:
                self.output.apply_piece(group, piece)
            except UnreadableRedo as e:
                raise self._confused(i, str(e), group) from e
        if code in (o.XML_END, o.STRING_END):
            last = state.group
            if last is None or last.ended or (last.kind == "XML") != (code == o.XML_END):
                raise self._confused(i, "the start of a value is missing before its end", last)
            last.ended = True

    def _continues(self, state: LobTransaction, begin: p.ValueBegin, piece: p.Piece | None, row_id: str | None) -> bool:
        """Check whether a statement that selects its locator again continues the value that began last.

        A separate locator begins another value, unless it is for the cut at the end of a value.
        """
        group = state.group
        if group is None or group.kind != begin.kind or piece is None or row_id or (state.locator or (0, None))[1]:
            return False
        if state.locator is not None and not isinstance(piece, p.ValueTrim):
            return False
        same = group.column == self.columns.get(begin.column, -1)
        return same and group.touched and self.images.is_same_row(group.image, self.next_begin)

    def _begin(self, state: LobTransaction, at: int, i: int, begin: p.ValueBegin, row_id: str | None) -> None:
        """Begin a value.

        :param at: index of the first log row that it has
        """
        image, self.next_begin = self.next_begin, self.next_begin + 1
        text = self.read_redo_text(i)
        column = self._column(begin, text)
        in_place = row_id is not None and begin.kind in ("CLOB", "NCLOB", "BLOB")
        key = self.images.keys_after[image]
        if begin.where and self.images.lacks_key(image):
            raise self._confused(i, "its condition does not contain the key of its row", None, begin.column)
        row = self._row(state, i, key, row_id)
        if row is None and in_place and 0 < len(state.unnamed) <= _MAX_UNNAMED:
            # without a key: the row is known if exactly one fits
            fitting = [e for e in state.unnamed if self.images.matches_row(e.image, image)]
            if len(fitting) == 1:
                row = fitting[0].row
                state.unnamed.remove(fitting[0])
        if row is not None and row.deleted:
            raise self._confused(i, "a long value is written to a row that was deleted before", None, begin.column)
        event = self._event_of(state, row, image, column, in_place)
        before = row.event if row is not None else None
        if event is None:
            row = row or ChangedRow()
            event = OutputRow(at, image, log_items.UPDATE, row)
        row = event.row
        row.event = event
        if key >= 0:
            state.rows[key], row.key = row, key
        self._name(state, event, at, row_id)
        value = LongValue(None, text=begin.kind != "BLOB", fresh=True)
        if in_place and column >= 0:
            value = self.output.find_current_value(row, column, event, text, begin.kind != "BLOB")
        state.open, state.newest = None if in_place else event, event
        state.group = OpenLongValue(begin.kind, column, image, text, event, before, value, in_place=in_place)

    def _event_of(
        self, state: LobTransaction, row: ChangedRow | None, image: int, column: int, in_place: bool
    ) -> OutputRow | None:
        """Return the output row that a value belongs to; ``None`` = a new one."""
        if in_place:
            return row.event if row is not None else None
        event = state.open
        if event is not None and column not in event.values and self.images.matches_row(event.image, image):
            return event
        if row is not None and row.event is not None and self._announced(row.event, column):
            return row.event
        return None

    def _announced(self, event: OutputRow, column: int) -> bool:
        """Check whether a change has an empty LOB in a column, so that its value follows."""
        return column >= 0 and column not in event.values and self.images.is_empty(event.image, column)

    def _inferred(self, state: LobTransaction, i: int, code: int, piece: p.Piece) -> OpenLongValue:
        """Infer the value of a piece without a locator.

        A LOB that is never stored in the row has no locator: it belongs to the change just before.
        """
        last = state.last
        if code in o.LOB_CODES and isinstance(piece, p.ValueWrite) and last is not None and last is state.open:
            how = k.BYTES if piece.kind == "BLOB" else k.TEXT
            fitting = [
                c for c in self.images.lobs
                if self.reader.column_read(c).how == how and self.images.is_lob(c) and self._announced(last, c)
            ]  # fmt: skip
            if len(fitting) == 1:
                value = LongValue(None, text=how == k.TEXT, fresh=True)
                state.group = OpenLongValue(
                    piece.kind or "CLOB", fitting[0], last.image, self.read_redo_text(i), last, None, value
                )
                return state.group
        raise self._confused(i, "a piece belongs to a value whose start is missing", None)

    def _column(self, begin: p.ValueBegin, text: str) -> int:
        column = self.columns.get(begin.column, -1)
        if column < 0:
            return -1
        how = self.reader.column_read(column).how
        if how == k.NOT_READ and ColumnType.from_column(self.reader.schema.columns[column]).base not in UNSUPPORTED:
            return -1
        if how not in (k.TEXT, k.BYTES) or how != _TYPES.get(begin.kind, how):
            raise self.reader.build_unreadable_error(
                f"The log contains a {begin.kind} for a column of another type.", text, column=begin.column
            )
        return column

    def _confused(self, i: int, problem: str, group: OpenLongValue | None, column: str | None = None) -> Exception:
        if group is not None and group.column >= 0:
            column = self.reader.schema.column_names[group.column]
        return self.reader.build_unreadable_error(
            f"A long value cannot be assembled: {problem}.", self.read_redo_text(i), column=column
        )

    # -- rows -------------------------------------------------------------------------------------------------------------

    def _assembled(self) -> AssembledRows:
        events = self.output.output_rows
        rows = self.images.select_rows(
            np.array([e.image for e in events], np.int64), np.array([e.op for e in events], np.int8)
        )
        replaced: dict[int, list[tuple[int, Any]]] = {}
        for at, event in enumerate(events):
            for c in self.documents if event.op == log_items.CREATE else ():
                if self.images.lacks_column(
                    event.image, c
                ):  # an insert does not name documents; one that is NULL has no pieces
                    event.values.setdefault(c, None)
            for c, value in event.values.items():
                replaced.setdefault(c, []).append((at, value))
        unknown = self.images.replace_long_values(rows, replaced) if replaced else None
        origin = np.array([e.origin for e in events], np.int64)
        named = np.array([e.origin if e.named < 0 else e.named for e in events], np.int64)
        return AssembledRows(rows, origin, named, unknown)
