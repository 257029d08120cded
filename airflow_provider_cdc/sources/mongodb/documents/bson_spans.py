"""BSON values and documents in one buffer, as arrays of places."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from airflow_provider_cdc.sources.mongodb.documents.document_errors import DamagedDocument
from airflow_provider_cdc.sources.mongodb.kernels import bson_lengths
from airflow_provider_cdc.sources.mongodb.kernels import document_fields as kernels
from airflow_provider_cdc.sources.mongodb.kernels.error_codes import FINE

_Bytes = npt.NDArray[np.uint8]
_Offsets = npt.NDArray[np.int64]

_WHOLE = np.zeros(256, np.bool_)
_WHOLE[[bson_lengths.INT32, bson_lengths.INT64, bson_lengths.DATE, bson_lengths.BOOL, bson_lengths.TIMESTAMP]] = True


@dataclass(frozen=True)
class BsonValues:
    """BSON values, one for each row, somewhere in a buffer.

    :ivar kinds: the BSON type of each; 0 = there is none
    :ivar starts: where its bytes begin, after the name; ``ends``: where they end
    """

    buf: _Bytes
    kinds: _Bytes
    starts: _Offsets
    ends: _Offsets

    def __len__(self) -> int:
        return len(self.kinds)

    def select_rows(self, rows: npt.NDArray[Any]) -> BsonValues:
        """Select some of the rows, by number or by a mask."""
        return BsonValues(self.buf, self.kinds[rows], self.starts[rows], self.ends[rows])

    def read_bytes(self, row: int) -> bytes:
        """Return the bytes of a value: of a document the whole of it, of a text its length, the text and a zero byte."""
        return self.buf[self.starts[row] : self.ends[row]].tobytes()

    def to_binary(self) -> pa.LargeBinaryArray:
        """Return the bytes of each value; null where there is none, or where it is null."""
        missing = (self.kinds == bson_lengths.ABSENT) | (self.kinds == bson_lengths.NULL)
        return self._gathered(pa.large_binary(), self.starts, self.ends, missing)

    def to_strings(self) -> pa.LargeStringArray:
        """Return the text of each value that is one; else null.

        :raises DamagedDocument: a text is not UTF-8
        """
        is_text = self.kinds == bson_lengths.STRING
        starts, ends = np.where(is_text, self.starts + 4, 0), np.where(is_text, self.ends - 1, 0)
        texts = self._gathered(pa.large_string(), starts, ends, ~is_text)
        try:
            texts.validate(full=True)
        except pa.ArrowInvalid:
            raise self._not_utf8(starts, ends) from None
        return texts

    def to_int64s(self) -> tuple[_Offsets, npt.NDArray[np.bool_]]:
        """Whole numbers, dates in milliseconds, booleans and timestamps as 64 bits, and which values are such; others are 0."""
        valid = _WHOLE[self.kinds]
        out = np.zeros(len(self), np.int64)
        kernels.read_integers(self.buf, np.where(valid, self.kinds, 0).astype(np.uint8), self.starts, self.ends, out)
        return out, valid

    def read_fields(self, *names: bytes) -> list[BsonValues]:
        """Find the fields of these names, of the documents among the values."""
        fields, _ = find_fields(self, names, np.ones((len(names), 256), np.bool_))
        return fields

    def _gathered(self, kind: pa.DataType, starts: _Offsets, ends: _Offsets, missing: npt.NDArray[np.bool_]) -> Any:
        offsets = np.zeros(len(self) + 1, np.int64)
        lengths = np.where(missing, 0, ends - starts)
        np.cumsum(lengths, out=offsets[1:])
        out = np.empty(int(offsets[-1]), np.uint8)
        kernels.gather_bytes(self.buf, starts, starts + lengths, offsets, out)
        mask = pa.array(~missing).buffers()[1] if missing.any() else None
        return pa.Array.from_buffers(kind, len(self), [mask, pa.py_buffer(offsets), pa.py_buffer(out)])

    def _not_utf8(self, starts: _Offsets, ends: _Offsets) -> DamagedDocument:
        from airflow_provider_cdc.sources.mongodb.kernels.error_codes import UTF8

        for row in range(len(self)):
            try:
                self.buf[starts[row] : ends[row]].tobytes().decode()
            except UnicodeDecodeError as e:
                return DamagedDocument(row, int(starts[row] - self.starts[row]) + e.start, UTF8)
        raise AssertionError("every text is UTF-8")


@dataclass(frozen=True)
class BsonDocuments:
    """Whole documents in a buffer; ``starts`` and ``ends`` say where."""

    buf: _Bytes
    starts: _Offsets
    ends: _Offsets

    @classmethod
    def of_stream(cls, data: bytes | _Bytes) -> BsonDocuments:
        """Documents that stand one after the other.

        :raises DamagedDocument: the last one is cut off, or a length is impossible
        """
        buf = _array(data)
        starts = np.empty(len(buf) // 5 + 1, np.int64)
        count, end = bson_lengths.split_documents(buf, 0, len(buf), starts)
        if end < 0:
            raise DamagedDocument(count, 0, end)
        return cls(buf, starts[:count].copy(), np.append(starts[1:count], end)[:count])

    @classmethod
    def of_list(cls, documents: Sequence[bytes]) -> BsonDocuments:
        """Documents that are apart."""
        lengths = np.fromiter(map(len, documents), np.int64, len(documents))
        ends = np.cumsum(lengths)
        return cls(_array(b"".join(documents)), ends - lengths, ends)

    def __len__(self) -> int:
        return len(self.starts)

    @property
    def document_values(self) -> BsonValues:
        """The documents as values."""
        return BsonValues(self.buf, np.full(len(self), bson_lengths.DOCUMENT, np.uint8), self.starts, self.ends)

    def read_field(self, name: bytes) -> BsonValues:
        """Find the field of this name of each document."""
        return self.document_values.read_fields(name)[0]

    def read_bytes(self, row: int) -> bytes:
        """Return the bytes of one document."""
        return self.buf[self.starts[row] : self.ends[row]].tobytes()


def find_fields(
    values: BsonValues, names: Sequence[bytes], allowed: npt.NDArray[np.bool_]
) -> tuple[list[BsonValues], _Bytes]:
    """Find the fields of these names, of the documents among the values.

    Also count the others of each document (255 for more).

    :param allowed: ``bool[names, 256]``: which BSON types each may have
    :raises DamagedDocument: a document is damaged, has such a field twice, or of another type
    """
    joined = np.frombuffer(b"".join(names), np.uint8)
    begins = np.cumsum([0, *map(len, names)], dtype=np.int64)
    shape = (len(names), len(values))
    kinds, starts, ends = np.zeros(shape, np.uint8), np.zeros(shape, np.int64), np.zeros(shape, np.int64)
    unknown = np.zeros(len(values), np.uint8)
    row, problem, at = kernels.find_fields(
        values.buf, values.kinds, values.starts, values.ends, joined, begins, allowed, kinds, starts, ends, unknown
    )
    if problem != FINE:
        raise DamagedDocument(row, int(at - values.starts[row]), problem)
    return [BsonValues(values.buf, kinds[f], starts[f], ends[f]) for f in range(len(names))], unknown


def _array(data: bytes | _Bytes) -> _Bytes:
    return np.frombuffer(data, np.uint8) if isinstance(data, bytes) else data
