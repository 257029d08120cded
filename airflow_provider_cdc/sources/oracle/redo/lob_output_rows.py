"""The output rows of long values: applies the pieces of a value, and finds the value that it had before."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pyarrow as pa

from airflow_provider_cdc.sources.oracle.kernels import literal_conversion as k
from airflow_provider_cdc.sources.oracle.redo import lob_piece_parser as p
from airflow_provider_cdc.sources.oracle.redo.literal_converter import UNAVAILABLE
from airflow_provider_cdc.sources.oracle.redo.lob_transaction_state import (
    ChangedRow,
    LobTransaction,
    OpenLongValue,
    OutputRow,
)
from airflow_provider_cdc.sources.oracle.redo.long_value import LongValue, assemble_document
from airflow_provider_cdc.sources.oracle.redo.parsed_literal import UnreadableRedo
from airflow_provider_cdc.sources.oracle.redo.redo_statement_reader import Int64s, RedoReader


class LobOutputRows:
    """Collects the output rows and their long values.

    :param texts: ``SQL_REDO`` of the log rows
    :param codes: their ``OPERATION_CODE``
    :param changes: indices of those that are changes
    :ivar found: the output rows, in the order in which they were added
    """

    def __init__(self, reader: RedoReader, texts: pa.Array, codes: Int64s, changes: Int64s) -> None:
        self._reader, self._texts, self._codes, self._changes = reader, texts, codes, changes
        self.output_rows: list[OutputRow] = []

    def add_event(self, event: OutputRow) -> None:
        """Add the output row of a change, once."""
        if not event.listed:
            event.listed = True
            self.output_rows.append(event)

    def apply_piece(self, group: OpenLongValue, piece: p.Piece) -> None:
        """Apply a piece to a value.

        :raises UnreadableRedo: the piece contradicts the value
        """
        first, group.touched = not group.touched, True
        if group.column < 0:
            return
        if (
            first
            and not group.in_place
            and (isinstance(piece, p.ValueErase) or (isinstance(piece, p.ValueTrim) and piece.length))
        ):
            # a statement that sets a value never begins so: it is a change in place without a ROWID
            group.in_place = True
            group.value = self.find_current_value(
                group.event.row, group.column, group.event, group.text, group.value.text
            )
        match piece:
            case p.ValueWrite(data, None):
                group.parts.append(data)
            case p.ValueWrite(data, offset, length) if data is not None and offset is not None:
                group.value.write(data, offset - 1, length)
            case p.ValueTrim(length):
                group.value.trim(length)
            case p.ValueErase(offset, length):
                group.value.erase(offset - 1, length)

    def find_current_value(self, row: ChangedRow, column: int, event: OutputRow, text: str, is_text: bool) -> LongValue:
        """Return the current value of a LOB that is changed in place."""
        value = self._find_set_value(row, column)
        if isinstance(value, LongValue):
            same: bool = event.values.get(column) is value
            return value if same else value.copy()
        if value is UNAVAILABLE:
            return LongValue(None, text=is_text)
        if isinstance(value, bytes) and is_text:
            value = value.decode()
        if value is None:
            raise self._reader.build_unreadable_error(
                "A change writes to a LOB that is NULL.", text, column=self._reader.schema.column_names[column]
            )
        return LongValue(value, text=is_text)

    def _find_set_value(self, row: ChangedRow, column: int) -> Any:
        """Return the value that the transaction has set in a column; :data:`UNAVAILABLE` if it is not known."""
        name = self._reader.schema.column_names[column]
        for entry in reversed(row.history):
            if isinstance(entry, tuple):
                if entry[0] == column:
                    return entry[1]
                continue
            i = int(self._changes[entry])
            values = self._reader.values_set(self._texts[i].as_py() or "", int(self._codes[i]), [name])
            if name in values:
                return values[name]
        return UNAVAILABLE

    def mark_values_unknown(self, event: OutputRow, columns: Iterable[int]) -> None:
        """Mark some long values of an output row as not known any more."""
        for column in columns:
            self._put(event, column, UNAVAILABLE)

    def end_open_value(self, state: LobTransaction) -> None:
        """End the value that began last, if there is one."""
        group, state.group = state.group, None
        if group is None or group.column < 0:
            return
        try:
            if group.kind in ("XML", "STRING"):
                self._put(group.event, group.column, self._document(group))
            elif group.in_place:
                if group.touched:
                    self._put(group.event, group.column, group.value)
            else:
                self._close_fresh(state, group)
        except UnreadableRedo as e:
            raise self._reader.build_unreadable_error(
                f"A long value cannot be assembled: {e}.",
                group.text,
                column=self._reader.schema.column_names[group.column],
            ) from e

    def _document(self, group: OpenLongValue) -> bytes | None:
        if not group.ended:
            raise UnreadableRedo("it has no end")
        text = self._reader.column_read(group.column).how == k.TEXT
        return assemble_document(group.parts, text=text, xml=group.kind == "XML")

    def _close_fresh(self, state: LobTransaction, group: OpenLongValue) -> None:
        """End a value that a statement sets. If it does not begin at its first character, it continues the previous value."""
        value = group.value
        if not group.touched:
            raise UnreadableRedo("it has no pieces")
        trimmed = value.length
        if (
            value.is_contiguous
            and (trimmed is None or trimmed == value.known_prefix_length)
            and (value.known_prefix_length or trimmed == 0)
        ):
            value.length, value.fresh = value.known_prefix_length, False
            self._put(group.event, group.column, value)
            return
        earlier = self._find_set_value(group.event.row, group.column)
        if earlier is UNAVAILABLE and not value.known_prefix_length:
            self._put(group.event, group.column, UNAVAILABLE)
            return
        begin, data = value.read_known_range() if len(value.covered) == 1 else (0, "")
        target = group.before or group.event
        if earlier is UNAVAILABLE or earlier is None or trimmed is not None or begin == 0:
            raise UnreadableRedo("some of its pieces are missing")
        whole = self.find_current_value(group.event.row, group.column, target, group.text, value.text)
        if whole.length is None or begin != whole.length:
            raise UnreadableRedo(f"its first {begin} characters or bytes are missing")
        whole.write(data, begin, len(data) if value.unit == 4 else None)
        group.event.row.event = state.open = target
        self._put(target, group.column, whole)

    def _put(self, event: OutputRow, column: int, value: Any) -> None:
        if event.values.get(column, event) is not value:
            event.values[column] = value
            event.row.history.append((column, value))
        self.add_event(event)
