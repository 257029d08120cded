"""The buffer of uncommitted changes, by transaction: in memory up to a limit, beyond it in temporary files.

LogMiner shows changes when they are made, not when they are committed, so the changes of every open transaction are buffered. Rows stay
Arrow columns: a :class:`RowSegment` holds the rows of many transactions, sorted by transaction. Small segments are merged like the runs of a
log-structured merge tree, so that 10,000 open transactions are not 10,000 segments. The oldest segments are spilled to files when the
limit is exceeded. The files have no name: the system deletes them when the process ends, however it ends. Segments may also be carried
over to the next stream (:mod:`airflow_provider_cdc.sources.oracle.transactions.carry_over`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from airflow_provider_cdc.sources.oracle.transactions.buffer.row_segments import ROWS, CarriedRows, RowSegment

Int64s = npt.NDArray[np.int64]
_T = TypeVar("_T")
_MERGED_ROWS = 262_144
"""Segments are not merged to more rows than this."""
CARRIED_BYTES = 32 << 20
"""Carried segments are not merged to more bytes in memory than this."""


class SpillBuffer:
    """The buffered changes of all open transactions.

    :param max_bytes: how many bytes of them may be in memory
    :param folder: folder of the spill files; ``None`` = the system's folder for temporary files
    :ivar counts: serial of a transaction → number of its buffered rows
    :ivar spilled_rows: number of rows spilled so far
    """

    def __init__(self, max_bytes: int, folder: str | None = None) -> None:
        self._max_bytes, self._folder = max_bytes, folder
        self._segments: list[RowSegment] = []
        self.counts: dict[int, int] = {}
        self.spilled_rows = 0

    def add_rows(self, rows: pa.Table) -> None:
        """Add rows that are later in the log than all others.

        :raises StorageFull: they cannot be spilled to disk
        """
        if not rows.num_rows:
            return
        segment = RowSegment(rows)
        for serial, count in zip(segment.serials.tolist(), (segment.ends - segment.starts).tolist(), strict=True):
            self.counts[serial] = self.counts.get(serial, 0) + count
        self._segments.append(segment)
        self._spill()  # before merging: rows that are spilled need not be copied
        self._merge()

    def read(self, serials: Sequence[int], columns: list[str] | None = None) -> pa.Table:
        """Return the rows of some transactions; they stay buffered.

        The rows are in the order of ``serials`` and in log order within each.
        """
        serial_array = np.array(serials, np.int64)
        parts = []
        for segment in self._segments:
            indices = segment.find_transactions(np.sort(serial_array))
            if len(indices):
                parts.append(segment.read(indices, columns if columns is None or "tx" in columns else ["tx", *columns]))
        if not parts:
            return ROWS.empty_table()
        rows = pa.concat_tables(parts).combine_chunks()
        order = np.argsort(serial_array, kind="stable")
        rank = order[np.searchsorted(serial_array[order], rows.column("tx").to_numpy())]
        if (np.diff(rank) < 0).any():
            rows = rows.take(pa.array(np.argsort(rank, kind="stable")))
        return rows

    def read_pieces(self, serial: int, rows: int, columns: list[str] | None = None) -> Iterator[pa.Table]:
        """Yield the rows of one transaction in log order, at most ``rows`` at a time; they stay buffered."""
        serials = np.array([serial], np.int64)
        for segment in self._segments:
            for at in segment.find_transactions(serials):
                yield from segment.read_pieces(int(at), rows, columns)

    def drop_transactions(self, serials: Sequence[int]) -> None:
        """Remove the rows of some transactions."""
        ordered_serials = np.sort(np.array(serials, np.int64))
        for serial in serials:
            self.counts.pop(serial, None)
        remaining = []
        for segment in self._segments:
            segment.live[segment.find_transactions(ordered_serials)] = False
            if not segment.live.any():
                segment.close()
                continue
            remaining.append(
                segment.build_compacted() if segment.in_memory and segment.live_rows * 2 < segment.rows else segment
            )
        self._segments = remaining

    def restore_segments(self, segments: Sequence[RowSegment]) -> None:
        """Begin with the rows of carried segments, in log order."""
        for segment in segments:
            for serial, count in zip(segment.serials.tolist(), (segment.ends - segment.starts).tolist(), strict=True):
                self.counts[serial] = self.counts.get(serial, 0) + count
        self._segments = [*segments]

    def carry_segments(self, write: Callable[[RowSegment], CarriedRows], whole: Callable[[list[RowSegment]], _T]) -> _T:
        """Have all segments in files that can be carried over.

        Small ones are written together, and those with many rows of transactions that have ended are written again. If that or ``whole``
        fails, all is as before.

        :param write: writes a segment, all of whose rows are live
        :param whole: takes all segments, in log order
        :return: the result of ``whole``
        """
        replaced: list[tuple[list[RowSegment], RowSegment]] = []
        try:
            for group in carried_together(self._segments):
                if len(group) > 1 or _to_write(group[0]):
                    replaced.append((group, self._written(group, write)))
            result = whole([*self._segments])
        except BaseException:
            for group, segment in reversed(replaced):
                self._replace([segment], group)
                group[0].carried = None if group[0] is segment else group[0].carried
            raise
        for group, segment in replaced:
            for old_segment in group:
                if old_segment is not segment:
                    old_segment.close()
        return result

    def _written(self, group: list[RowSegment], write: Callable[[RowSegment], CarriedRows]) -> RowSegment:
        """Write one segment with the live rows of some, in a file; in memory if all of them are."""
        whole = len(group) == 1 and group[0].in_memory and group[0].live.all()
        segment = (
            group[0] if whole else RowSegment(pa.concat_tables([old_segment.read_live_rows() for old_segment in group]))
        )
        segment.carried = write(segment)
        if not all(old_segment.in_memory for old_segment in group):
            segment.spill(self._folder)
        self._replace(group, [segment])
        return segment

    def _replace(self, old: list[RowSegment], new: list[RowSegment]) -> None:
        at = next(i for i, segment in enumerate(self._segments) if segment is old[0])
        self._segments[at : at + len(old)] = new

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
    def segment_count(self) -> int:
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
            self._segments[-2:] = [RowSegment(pa.concat_tables([older.read_live_rows(), newer.read_live_rows()]))]

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


def carried_together(segments: Sequence[RowSegment]) -> list[list[RowSegment]]:
    """Group the segments, in log order, that become one file.

    A carried one joins newer ones if it is not much larger: so a row is written again a few times only, however many runs its transaction
    is open for, and there are few files.
    """
    groups: list[list[RowSegment]] = []
    size, open_ = 0, False
    for segment in reversed(segments):
        is_rewritten = _to_write(segment)
        fits = open_ and size + segment.live_bytes <= CARRIED_BYTES
        if fits and (is_rewritten or segment.live_bytes <= 2 * size):
            groups[-1].insert(0, segment)
            size += segment.live_bytes
        else:
            groups.append([segment])
            size, open_ = segment.live_bytes, is_rewritten
    return groups[::-1]


def _to_write(segment: RowSegment) -> bool:
    """Check whether it is not carried yet, or most of its rows are of transactions that have ended."""
    return segment.carried is None or segment.live_rows * 2 < segment.rows
