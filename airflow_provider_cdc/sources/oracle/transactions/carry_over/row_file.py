"""A file with the rows of a segment.

It has pieces of some thousand rows, each compressed by itself and with its checksum, so that the rows of one transaction can be read
without the others, and damage is found when it matters.

The columns are those of :data:`..row_segments.ROWS`, without the serial of the transaction, which is another one in each stream; tables are
numbered by the file itself.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from airflow_provider_cdc.core.model.connector_offset import CarriedFile
from airflow_provider_cdc.core.spi.carry_over import CarryOver, CarryOverLost
from airflow_provider_cdc.sources.oracle.transactions.buffer.row_segments import ROWS, RowSegment

Int64s = npt.NDArray[np.int64]

STORED: Final = pa.schema([field for field in ROWS if field.name != "tx"])
PIECE_ROWS: Final = 4_096
PIECE_BYTES: Final = 4 << 20
"""A piece has no more rows, nor bytes of statements unless it is a single row."""
_THREADS: Final = False


class RowFileTooLarge(Exception):
    """A file would have more bytes than it may have."""


class RowFile:
    """The rows of a segment in a file; implements :class:`..row_segments.CarriedRows`.

    :param pieces: per piece: its first byte, its size, its CRC-32, and the number of rows up to its end
    :param tables: per table of the file, its number in this stream
    :param serials: and ``starts``: those of the segment
    """

    def __init__(
        self,
        carried: CarryOver,
        file: CarriedFile,
        pieces: list[list[int]],
        tables: npt.NDArray[np.int32],
        serials: Int64s,
        starts: Int64s,
    ) -> None:
        self._carried, self.file, self.pieces, self.tables = carried, file, pieces, tables
        self._serials, self._starts = serials, starts
        self._ends = np.array([end for *_, end in pieces], np.int64)
        self._last: tuple[int, tuple[str, ...], pa.RecordBatch] | None = None

    def read(self, index: Int64s, columns: list[str] | None) -> pa.Table:
        """Rows by ascending index.

        :raises CarryOverLost: they are missing or damaged
        """
        names = columns or ROWS.names
        stored_names = tuple(name for name in STORED.names if name in names) or ("code",)
        piece = np.searchsorted(self._ends, index, side="right")
        parts = []
        for number in np.unique(piece).tolist():
            begin = int(self._ends[number - 1]) if number else 0
            parts.append(self._piece(number, stored_names).take(pa.array(index[piece == number] - begin)))
        stored = pa.Table.from_batches(parts, pa.schema([STORED.field(name) for name in stored_names])).combine_chunks()
        by_name = {name: stored.column(name) for name in stored_names}
        if "table" in by_name:
            by_name["table"] = pa.array(self.tables[by_name["table"].to_numpy()])
        if "tx" in names:
            by_name["tx"] = pa.array(self._serials[np.searchsorted(self._starts, index, side="right") - 1])
        return pa.table([by_name[name] for name in names], schema=pa.schema([ROWS.field(name) for name in names]))

    def close(self) -> None:
        """Forget the pieces that were read."""
        self._last = None

    def _piece(self, number: int, columns: tuple[str, ...]) -> pa.RecordBatch:
        if self._last is not None and self._last[:2] == (number, columns):
            return self._last[2]
        start, size, crc, _ = self.pieces[number]
        data = self._carried.read_part(self.file.name, start, size)
        if zlib.crc32(data) != crc:
            raise CarryOverLost(f"the file {self.file.name} is damaged at byte {start}")
        numbers = [STORED.get_field_index(name) for name in columns]
        options = pa.ipc.IpcReadOptions(included_fields=numbers, use_threads=_THREADS)
        with pa.ipc.open_stream(data, options=options) as reader:
            batch = reader.read_next_batch().select(list(columns))
        self._last = number, columns, batch
        return batch


def write_row_file(carried: CarryOver, segment: RowSegment, most: int) -> RowFile:
    """Write the rows of a segment, all of which are live.

    :param most: bytes that the file may have
    :raises RowFileTooLarge: it would have more
    :raises StorageUnavailable: it could not be written
    """
    rows = segment.read_live_rows().combine_chunks()
    tables, which = np.unique(rows.column("table").to_numpy(), return_inverse=True)
    stored = rows.select(STORED.names)
    numbered = pa.array(which.astype(np.int32))
    stored = stored.set_column(STORED.get_field_index("table"), STORED.field("table"), numbered)
    pieces: list[list[int]] = []

    def parts() -> Iterator[bytes]:
        at = 0
        for start, stop in _cut(rows.column("sql")):
            data = _encoded(stored.slice(start, stop - start))
            if at + len(data) > most:
                raise RowFileTooLarge
            pieces.append([at, len(data), zlib.crc32(data), stop])
            at += len(data)
            yield data

    file = carried.write_file(parts())
    return RowFile(carried, file, pieces, tables.astype(np.int32), segment.serials, segment.starts)


def describe_row_file(rows: RowFile, tables: list[Any]) -> dict[str, Any]:
    """Return the description that is needed to read the file again, fit for JSON.

    :param tables: per table of the file, its id
    """
    return {"file": rows.file.model_dump(), "pieces": rows.pieces, "tables": tables}


def _cut(texts: pa.ChunkedArray) -> Iterator[tuple[int, int]]:
    """Yield the begin and end of each piece."""
    total = len(texts)
    ends = np.cumsum(pc.fill_null(pc.binary_length(texts), 0).to_numpy())
    start = 0
    while start < total:
        before = int(ends[start - 1]) if start else 0
        fits = int(np.searchsorted(ends, before + PIECE_BYTES, side="right"))
        stop = min(max(fits, start + 1), start + PIECE_ROWS, total)
        yield start, stop
        start = stop


def _encoded(rows: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression="zstd", use_threads=_THREADS)
    batch = rows.combine_chunks().to_batches()[0]
    with pa.ipc.new_stream(sink, STORED, options=options) as writer:
        writer.write_batch(batch)
    data: bytes = sink.getvalue().to_pybytes()
    return data
