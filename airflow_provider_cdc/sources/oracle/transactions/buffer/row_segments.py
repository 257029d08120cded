"""Segments: buffered rows of many transactions, sorted by transaction; in memory, in a file without a name, or where they are carried over.

The columns are those of :data:`ROWS`; ``tx`` is the serial of the transaction.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from typing import Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from airflow_provider_cdc.core.errors import StorageFull
from airflow_provider_cdc.core.model.connector_offset import CarriedFile

ROWS = pa.schema(
    [
        pa.field("tx", pa.int64()),
        pa.field("scn", pa.int64()),
        pa.field("code", pa.int16()),
        pa.field("table", pa.int32()),
        pa.field("sql", pa.large_string()),
        pa.field("row_id", pa.large_string()),
        pa.field("rollback", pa.bool_()),
        pa.field("ssn", pa.int64()),
        pa.field("thread", pa.int32()),
        pa.field("rs_id", pa.large_string()),
        pa.field("user", pa.large_string()),
        pa.field("ts_us", pa.int64()),
    ]
)
"""The columns of a buffered change. ``table`` is the number of the table in ``SchemaVersions``."""

Int64s = npt.NDArray[np.int64]
_FILE_ROWS = 4_096
"""Rows per record batch in a file, the unit of reading."""
_THREADS = False
"""True if Arrow uses threads for files. Each thread keeps its own memory: 32 threads, 200 MB."""


class StoredRows(Protocol):
    """The rows of a segment that is not in memory."""

    def read(self, index: Int64s, columns: list[str] | None) -> pa.Table:
        """Rows by ascending index, with the columns of :data:`ROWS` or some of them."""

    def close(self) -> None:
        """Give back the resources that this process alone can use."""


class CarriedRows(StoredRows, Protocol):
    """Rows in a file that is carried over to the next stream."""

    @property
    def file(self) -> CarriedFile:
        """The file."""


class RowSegment:
    """Rows of some transactions, sorted by transaction, in log order within each.

    :ivar serials: the transactions, ascending
    :ivar starts: and ``ends``: ``starts[i]:ends[i]`` are the rows of ``serials[i]``
    :ivar live: mask of the transactions that are still buffered
    :ivar rows: number of all rows, those of transactions that have ended included
    :ivar size: their size in memory, bytes
    :ivar carried: the same rows in a file that is carried over, if there is one
    """

    def __init__(self, rows: pa.Table) -> None:
        tx = rows.column("tx").to_numpy()
        if len(tx) > 1 and (np.diff(tx) < 0).any():
            rows = rows.take(pa.array(np.argsort(tx, kind="stable")))
            tx = rows.column("tx").to_numpy()
        self.serials, first = np.unique(tx, return_index=True)
        self.starts: Int64s = first.astype(np.int64)
        self.ends: Int64s = np.append(first[1:], len(tx)).astype(np.int64)
        self.live = np.ones(len(self.serials), np.bool_)
        self.rows = len(tx)
        self.carried: CarriedRows | None = None
        self._rows: pa.Table | None = rows.combine_chunks()
        self._stored: StoredRows | None = None
        self.size = self._rows.nbytes

    @classmethod
    def from_carried(
        cls, carried: CarriedRows, serials: Int64s, starts: Int64s, ends: Int64s, rows: int, size: int
    ) -> RowSegment:
        """Build a segment whose rows are carried over.

        :param rows: number of all rows in the file
        :param size: their size in memory, bytes
        """
        segment = cls(ROWS.empty_table())
        segment.serials, segment.starts, segment.ends = serials, starts, ends
        segment.live = np.ones(len(serials), np.bool_)
        segment.rows, segment.size = rows, size
        segment._rows, segment._stored, segment.carried = None, carried, carried
        return segment

    @property
    def live_rows(self) -> int:
        return int((self.ends - self.starts)[self.live].sum())

    @property
    def live_bytes(self) -> int:
        """Approximate memory that the live rows take, bytes."""
        return int(self.size) * self.live_rows // max(self.rows, 1)

    @property
    def nbytes(self) -> int:
        """Bytes in memory; 0 if the rows are elsewhere."""
        return self._rows.nbytes if self._rows is not None else 0

    @property
    def in_memory(self) -> bool:
        return self._rows is not None

    def find_transactions(self, serials: Int64s) -> Int64s:
        """Return the indices of those of the given transactions that this segment still buffers."""
        at = np.minimum(np.searchsorted(self.serials, serials), len(self.serials) - 1)
        indices: Int64s = at[(self.serials[at] == serials) & self.live[at]]
        return indices

    def read(self, indices: Int64s, columns: list[str] | None = None) -> pa.Table:
        """Return the rows of the transactions with these indices (from :meth:`find_transactions`)."""
        index = _ranges(self.starts[indices], self.ends[indices])
        if self._rows is not None:
            rows = self._rows if columns is None else self._rows.select(columns)
            if len(index) and index[-1] - index[0] == len(index) - 1 and (np.diff(indices) == 1).all():
                return rows.slice(int(index[0]), len(index))
            return rows.take(pa.array(index))
        assert self._stored is not None
        return self._stored.read(index, columns)

    def read_pieces(self, at: int, rows: int, columns: list[str] | None = None) -> Iterator[pa.Table]:
        """Yield the rows of the transaction with index ``at``, at most ``rows`` at a time."""
        lo, hi = int(self.starts[at]), int(self.ends[at])
        for start in range(lo, hi, rows):
            stop = min(start + rows, hi)
            if self._rows is not None:
                part = self._rows if columns is None else self._rows.select(columns)
                yield part.slice(start, stop - start)
            else:
                assert self._stored is not None
                yield self._stored.read(np.arange(start, stop), columns)

    def build_compacted(self) -> RowSegment:
        """Return a copy with the live rows only."""
        assert self._rows is not None
        return RowSegment(self._rows.take(pa.array(_ranges(self.starts[self.live], self.ends[self.live]))))

    def read_live_rows(self) -> pa.Table:
        """Return the live rows."""
        return self.read(np.flatnonzero(self.live))

    def spill(self, folder: str | None) -> None:
        """Free the memory of the rows: move them to a file, unless one that is carried over has them."""
        assert self._rows is not None
        self._stored = self.carried or _TemporaryRowFile(self._rows, folder)
        self._rows = None

    def close(self) -> None:
        if self._stored is not None:
            self._stored.close()
        self._rows = None


class _TemporaryRowFile:
    """Rows in an Arrow file without a name."""

    def __init__(self, rows: pa.Table, folder: str | None) -> None:
        try:
            self._file = tempfile.TemporaryFile(prefix="cdc-oracle-", dir=folder)  # noqa: SIM115 - closed by close()
            options = pa.ipc.IpcWriteOptions(compression="lz4", use_threads=_THREADS)
            with pa.ipc.new_file(self._sink("w"), ROWS, options=options) as writer:
                writer.write_table(rows, max_chunksize=_FILE_ROWS)
            self._file.flush()
        except OSError as e:
            raise StorageFull(
                f"Changes of open transactions cannot be written to disk: {e}.",
                where=f"folder {folder or tempfile.gettempdir()}",
                safe="Nothing of these transactions is captured yet; the offset is before them.",
                remedy="free space in that folder, or set log.mining.buffer.spill.folder to a folder with more space",
            ) from e

    def _sink(self, mode: str) -> pa.PythonFile:
        return pa.PythonFile(_UnclosedFile(self._file), mode)

    def read(self, index: Int64s, columns: list[str] | None) -> pa.Table:
        """Rows by ascending index."""
        self._file.seek(0)
        numbers = [ROWS.get_field_index(c) for c in columns] if columns else None
        parts = []
        options = pa.ipc.IpcReadOptions(included_fields=numbers, use_threads=_THREADS)
        with pa.ipc.open_file(self._sink("r"), options=options) as reader:
            piece = index // _FILE_ROWS
            for number in np.unique(piece):
                batch = reader.get_batch(int(number))
                parts.append(batch.take(pa.array(index[piece == number] - number * _FILE_ROWS)))
        schema = pa.schema([ROWS.field(c) for c in columns]) if columns else ROWS
        return pa.Table.from_batches(parts, schema).select(columns or ROWS.names)

    def close(self) -> None:
        self._file.close()


class _UnclosedFile:
    """Wraps a file so that it stays open when Arrow closes it."""

    def __init__(self, file: object) -> None:
        self._file = file
        self.closed = False

    def close(self) -> None:
        self.closed = True

    def __getattr__(self, name: str) -> object:
        return getattr(self._file, name)


def _ranges(starts: Int64s, ends: Int64s) -> Int64s:
    """``[starts[0], …, ends[0] - 1, starts[1], …]``."""
    lengths = ends - starts
    total = int(lengths.sum())
    offsets = np.repeat(starts - (np.cumsum(lengths) - lengths), lengths)
    index: Int64s = np.arange(total, dtype=np.int64) + offsets
    return index
