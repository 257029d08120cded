"""The buffer of uncommitted changes, by transaction: in memory up to a limit, beyond it in temporary files.

LogMiner shows changes when they are made, not when they are committed, so the changes of every open transaction are buffered. Rows stay
Arrow columns: a :class:`Segment` holds the rows of many transactions, sorted by transaction. Small segments are merged like the runs of a
log-structured merge tree, so that 10,000 open transactions are not 10,000 segments. The oldest segments are spilled to files when the
limit is exceeded. The files have no name: the system deletes them when the process ends, however it ends.

The columns are those of :data:`ROWS`; ``tx`` is the serial of the transaction.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from airflow_provider_cdc.core.errors import StorageFull

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
_MERGED_ROWS = 262_144
"""Segments are not merged to more rows than this."""
_FILE_ROWS = 4_096
"""Rows per record batch in a file, the unit of reading."""
_THREADS = False
"""Whether Arrow uses threads for files. Each thread keeps memory of its own: 32 threads, 200 MB."""


class Segment:
    """Rows of some transactions, sorted by transaction, in log order within each.

    :ivar serials: the transactions, ascending
    :ivar starts: ``starts[i]:starts[i + 1]`` are the rows of ``serials[i]``
    :ivar live: mask of the transactions that are still buffered
    """

    def __init__(self, rows: pa.Table) -> None:
        tx = rows.column("tx").to_numpy()
        if len(tx) > 1 and (np.diff(tx) < 0).any():
            rows = rows.take(pa.array(np.argsort(tx, kind="stable")))
            tx = rows.column("tx").to_numpy()
        self.serials, first = np.unique(tx, return_index=True)
        self.starts: Int64s = np.append(first, len(tx)).astype(np.int64)
        self.live = np.ones(len(self.serials), np.bool_)
        self._rows: pa.Table | None = rows.combine_chunks()
        self._file: _File | None = None

    @property
    def rows(self) -> int:
        return int(self.starts[-1])

    @property
    def live_rows(self) -> int:
        return int(np.diff(self.starts)[self.live].sum())

    @property
    def nbytes(self) -> int:
        """Bytes in memory; 0 when spilled."""
        return self._rows.nbytes if self._rows is not None else 0

    @property
    def in_memory(self) -> bool:
        return self._rows is not None

    def find(self, serials: Int64s) -> Int64s:
        """Indices of those of the given transactions that this segment still buffers."""
        at = np.minimum(np.searchsorted(self.serials, serials), len(self.serials) - 1)
        found: Int64s = at[(self.serials[at] == serials) & self.live[at]]
        return found

    def read(self, found: Int64s, columns: list[str] | None = None) -> pa.Table:
        """The rows of the transactions with these indices (from :meth:`find`)."""
        index = _ranges(self.starts[found], self.starts[found + 1])
        if self._rows is not None:
            rows = self._rows if columns is None else self._rows.select(columns)
            if len(found) and found[-1] - found[0] == len(found) - 1 and (np.diff(found) == 1).all():
                return rows.slice(int(index[0]), len(index))
            return rows.take(pa.array(index))
        assert self._file is not None
        return self._file.read(index, columns)

    def pieces(self, at: int, rows: int, columns: list[str] | None = None) -> Iterator[pa.Table]:
        """The rows of the transaction with index ``at``, at most ``rows`` at a time."""
        lo, hi = int(self.starts[at]), int(self.starts[at + 1])
        for start in range(lo, hi, rows):
            stop = min(start + rows, hi)
            if self._rows is not None:
                part = self._rows if columns is None else self._rows.select(columns)
                yield part.slice(start, stop - start)
            else:
                assert self._file is not None
                yield self._file.read(np.arange(start, stop), columns)

    def compacted(self) -> Segment:
        """A copy with the live rows only."""
        assert self._rows is not None
        return Segment(self._rows.take(pa.array(_ranges(self.starts[:-1][self.live], self.starts[1:][self.live]))))

    def waiting(self) -> pa.Table:
        """The live rows."""
        return self.read(np.flatnonzero(self.live))

    def spill(self, folder: str | None) -> None:
        """Move the rows to a file."""
        assert self._rows is not None
        self._file = _File(self._rows, folder)
        self._rows = None

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
        self._rows = None


class _File:
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
                remedy="make room there, or set log.mining.buffer.spill.folder to a folder with more room",
            ) from e

    def _sink(self, mode: str) -> pa.PythonFile:
        return pa.PythonFile(_Unclosed(self._file), mode)

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


class _Unclosed:
    """Wraps a file so that it stays open when Arrow closes it."""

    def __init__(self, file: object) -> None:
        self._file = file
        self.closed = False

    def close(self) -> None:
        self.closed = True

    def __getattr__(self, name: str) -> object:
        return getattr(self._file, name)


class SpillBuffer:
    """The buffered changes of all open transactions.

    :param max_bytes: how many bytes of them may be in memory
    :param folder: folder of the spill files; ``None`` = the system's folder for temporary files
    :ivar counts: serial of a transaction → number of its buffered rows
    :ivar spilled_rows: number of rows spilled so far
    """

    def __init__(self, max_bytes: int, folder: str | None = None) -> None:
        self._max_bytes, self._folder = max_bytes, folder
        self._segments: list[Segment] = []
        self.counts: dict[int, int] = {}
        self.spilled_rows = 0

    def add(self, rows: pa.Table) -> None:
        """Add rows that are later in the log than all others.

        :raises StorageFull: they cannot be spilled to disk
        """
        if not rows.num_rows:
            return
        segment = Segment(rows)
        for serial, count in zip(segment.serials.tolist(), np.diff(segment.starts).tolist(), strict=True):
            self.counts[serial] = self.counts.get(serial, 0) + count
        self._segments.append(segment)
        self._spill()  # before merging: rows that are spilled need not be copied
        self._merge()

    def read(self, serials: Sequence[int], columns: list[str] | None = None) -> pa.Table:
        """The rows of some transactions, in the order of ``serials`` and in log order within each; they stay buffered."""
        wanted = np.array(serials, np.int64)
        parts = []
        for segment in self._segments:
            found = segment.find(np.sort(wanted))
            if len(found):
                parts.append(segment.read(found, columns if columns is None or "tx" in columns else ["tx", *columns]))
        if not parts:
            return ROWS.empty_table()
        rows = pa.concat_tables(parts).combine_chunks()
        order = np.argsort(wanted, kind="stable")
        rank = order[np.searchsorted(wanted[order], rows.column("tx").to_numpy())]
        if (np.diff(rank) < 0).any():
            rows = rows.take(pa.array(np.argsort(rank, kind="stable")))
        return rows

    def pieces(self, serial: int, rows: int, columns: list[str] | None = None) -> Iterator[pa.Table]:
        """The rows of one transaction in log order, at most ``rows`` at a time; they stay buffered."""
        wanted = np.array([serial], np.int64)
        for segment in self._segments:
            for at in segment.find(wanted):
                yield from segment.pieces(int(at), rows, columns)

    def drop(self, serials: Sequence[int]) -> None:
        """Remove the rows of some transactions."""
        wanted = np.sort(np.array(serials, np.int64))
        for serial in serials:
            self.counts.pop(serial, None)
        kept = []
        for segment in self._segments:
            segment.live[segment.find(wanted)] = False
            if not segment.live.any():
                segment.close()
                continue
            kept.append(segment.compacted() if segment.in_memory and segment.live_rows * 2 < segment.rows else segment)
        self._segments = kept

    def close(self) -> None:
        """Remove everything, and delete the files."""
        for segment in self._segments:
            segment.close()
        self._segments, self.counts = [], {}

    @property
    def nbytes(self) -> int:
        """In memory."""
        return sum(s.nbytes for s in self._segments)

    @property
    def segments(self) -> int:
        return len(self._segments)

    def _merge(self) -> None:
        """Merge the two newest segments as long as they are of similar size."""
        while len(self._segments) > 1:
            older, newer = self._segments[-2:]
            together = older.live_rows + newer.live_rows
            if older.nbytes + newer.nbytes > self._max_bytes // 2:  # merging needs them in memory twice
                return
            if not (older.in_memory and newer.in_memory) or together > _MERGED_ROWS or older.rows > 2 * newer.rows:
                return
            self._segments[-2:] = [Segment(pa.concat_tables([older.waiting(), newer.waiting()]))]

    def _spill(self) -> None:
        """Spill the oldest segments until half of the limit is free."""
        if self.nbytes <= self._max_bytes:
            return
        for segment in self._segments:
            if segment.in_memory:
                self.spilled_rows += segment.rows
                segment.spill(self._folder)
                if self.nbytes * 2 <= self._max_bytes:
                    return


def _ranges(starts: Int64s, ends: Int64s) -> Int64s:
    """``[starts[0], …, ends[0] - 1, starts[1], …]``."""
    lengths = ends - starts
    total = int(lengths.sum())
    offsets = np.repeat(starts - (np.cumsum(lengths) - lengths), lengths)
    index: Int64s = np.arange(total, dtype=np.int64) + offsets
    return index
