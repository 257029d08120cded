"""Documents as columns: arrays of values, field by field, and the text of the rest."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from airflow_provider_cdc.core.model.table_schema import arrow_type
from airflow_provider_cdc.sources.mongodb.columns.column_fields import FORMS, CollectionFields
from airflow_provider_cdc.sources.mongodb.documents.bson_spans import BsonValues
from airflow_provider_cdc.sources.mongodb.documents.document_errors import DamagedDocument
from airflow_provider_cdc.sources.mongodb.documents.extended_json import format_values
from airflow_provider_cdc.sources.mongodb.kernels import bson_lengths, document_fields
from airflow_provider_cdc.sources.mongodb.kernels import document_columns as k
from airflow_provider_cdc.sources.mongodb.kernels.error_codes import FINE, UTF8

_CELLS: Final = 2_000_000
"""Places of values that are kept at once, 17 bytes each."""
_MOST_ROWS: Final = 8192
_SPARE: Final = 32
_HEX: Final = np.frombuffer("".join(f"{byte:02x}" for byte in range(256)).encode(), np.uint8).reshape(256, 2)
_DASHES: Final = (4, 6, 8, 10)
_DECIMAL: Final = len('{"$numberDecimal": "')


@dataclass(frozen=True, slots=True)
class ShreddedDocuments:
    """Documents in columns.

    :ivar rest: the text of the other fields of each document; null if there are none
    :ivar columns: an array for each column of the fields
    """

    rest: pa.StringArray
    columns: list[pa.Array]


def shred_documents(documents: BsonValues, fields: CollectionFields) -> ShreddedDocuments:
    """Take documents apart. Fields and forms that are not known become columns as long as there is room.

    :param documents: a value that is no document has a null in each column
    :raises DamagedDocument: one is damaged
    """
    parts: list[_ShreddedRows] = []
    at = 0
    while at < len(documents) or not parts:
        rows = min(_MOST_ROWS, max(_CELLS // (len(fields.columns) + _SPARE), 64))
        parts.append(_ShreddedRows(documents, at, min(at + rows, len(documents)), fields))
        at += rows
    rest = _joined([part.build_rest() for part in parts], pa.string())
    return ShreddedDocuments(
        rest, [_joined([part.build_column(c) for part in parts], _type(fields, c)) for c in range(len(fields.columns))]
    )


def _type(fields: CollectionFields, c: int) -> pa.DataType:
    return arrow_type(FORMS[fields.forms[c]].type)


def _joined(arrays: list[pa.Array], type_: pa.DataType) -> pa.Array:
    return arrays[0] if len(arrays) == 1 else pa.concat_arrays(arrays) if arrays else pa.nulls(0, type_)


class _ShreddedRows:
    """Some of the rows, and where the values of each column are."""

    def __init__(self, documents: BsonValues, first: int, last: int, fields: CollectionFields) -> None:
        self._fields = fields
        self._documents = documents.select_rows(np.arange(first, last)) if last - first < len(documents) else documents
        self._first, self._rows = first, last - first
        self._room(len(fields.columns) + _SPARE)
        is_document = self._documents.kinds == bson_lengths.DOCUMENT
        length = int(np.where(is_document, self._documents.ends - self._documents.starts, 0).sum())
        self._rest, self._rest_ends = np.empty(length, np.uint8), np.zeros(self._rows, np.int64)
        self._find()

    def _room(self, columns: int) -> None:
        shape = (columns, self._rows)
        self._kinds, self._starts, self._ends = (
            np.zeros(shape, np.uint8), np.empty(shape, np.int64), np.empty(shape, np.int64)
        )  # fmt: skip

    def _more_room(self) -> None:
        before = self._kinds, self._starts, self._ends
        self._room(2 * len(self._kinds))
        rows = len(before[0])
        self._kinds[:rows], self._starts[:rows], self._ends[:rows] = before

    def _find(self) -> None:
        documents, f, row = self._documents, self._fields, 0
        new = np.zeros(5, np.int64)
        while True:
            row, status, at = k.split_documents(
                documents.buf, documents.kinds, documents.starts, documents.ends, row,
                f.parents, f.names, f.begins, f.table, f.opens, f.numbers, f.guess, f.has_room, f.depth,
                self._kinds, self._starts, self._ends, self._rest, self._rest_ends, new,
            )  # fmt: skip
            if status == FINE:
                return
            if status != k.NEW:
                raise DamagedDocument(self._first + row, int(at - documents.starts[row]), status)
            field, within, begin, end, number = map(int, new)
            try:
                name = documents.buf[begin:end].tobytes().decode()
            except UnicodeDecodeError as e:
                raise DamagedDocument(self._first + row, begin + e.start - int(documents.starts[row]), UTF8) from None
            f.learn_field(field, within, name, number)
            self._kinds[:, row] = 0  # the document is looked at once more
            if len(f.columns) > len(self._kinds):
                self._more_room()

    def build_rest(self) -> pa.StringArray:
        begins = np.append(0, self._rest_ends[:-1]).astype(np.int64)[: self._rows]
        kinds = np.where(self._rest_ends > begins, bson_lengths.DOCUMENT, bson_lengths.ABSENT).astype(np.uint8)
        return format_values(BsonValues(self._rest, kinds, begins, self._rest_ends)).cast(pa.string())

    def build_column(self, c: int) -> pa.Array:
        if c >= len(self._kinds):
            return pa.nulls(self._rows, _type(self._fields, c))
        values = BsonValues(self._documents.buf, self._kinds[c], self._starts[c], self._ends[c])
        return array_of(values, self._fields.forms[c])


def array_of(values: BsonValues, number: int) -> pa.Array:
    """Values of one form as an array; absent ones are null."""
    absent = values.kinds == bson_lengths.ABSENT
    if number == k.JSON:
        return format_values(values).cast(pa.string())
    if number == k.STRING:
        return values.to_strings().cast(pa.string())
    if number == k.DECIMAL:
        return pc.utf8_slice_codeunits(format_values(values).cast(pa.string()), _DECIMAL, -2)
    if number == k.BINARY:
        return _bytes(values, absent, 5).cast(pa.binary())
    if number == k.OBJECT_ID:
        return _hexadecimal(_bytes(values, absent, 0), absent, 12, ())
    if number == k.UUID:
        return _hexadecimal(_bytes(values, absent, 5), absent, 16, _DASHES)
    numbers = _numbers(values)
    mask = absent if absent.any() else None
    if number == k.DOUBLE:
        return pa.array(numbers.view(np.float64), mask=mask)
    if number == k.BOOL:
        return pa.array(numbers.astype(np.bool_), mask=mask)
    if number == k.DATE:
        return pa.array(numbers * 1000, pa.timestamp("us", tz="UTC"), mask=mask)
    return pa.array(numbers, mask=mask)


def _numbers(values: BsonValues) -> npt.NDArray[np.int64]:
    """Return the numbers of values of up to eight bytes, as the bits that they are."""
    out = np.zeros(len(values), np.int64)
    document_fields.read_integers(values.buf, values.kinds, values.starts, values.ends, out)
    return out


def _bytes(values: BsonValues, absent: npt.NDArray[np.bool_], skip: int) -> Any:
    """Return the bytes of values, behind as many as are skipped."""
    starts, ends = np.where(absent, 0, values.starts + skip), np.where(absent, 0, values.ends)
    kinds = np.where(absent, bson_lengths.ABSENT, bson_lengths.BINARY).astype(np.uint8)
    return BsonValues(values.buf, kinds, starts, ends).to_binary()


def _hexadecimal(raw: Any, absent: npt.NDArray[np.bool_], size: int, dashes: tuple[int, ...]) -> pa.StringArray:
    """Values of one size as digits, with a dash before some of the bytes."""
    there = ~absent
    data = np.frombuffer(raw.buffers()[2] or b"", np.uint8)[: int(there.sum()) * size].reshape(-1, size)
    digits = _HEX[data].reshape(len(data), 2 * size)
    digits = np.insert(digits, [2 * at for at in dashes], ord("-"), axis=1) if dashes else digits
    offsets = np.zeros(len(absent) + 1, np.int32)
    np.cumsum(there * digits.shape[1], out=offsets[1:])
    mask = pa.array(there).buffers()[1] if absent.any() else None
    return pa.Array.from_buffers(
        pa.string(), len(absent), [mask, pa.py_buffer(offsets), pa.py_buffer(np.ascontiguousarray(digits))]
    )
