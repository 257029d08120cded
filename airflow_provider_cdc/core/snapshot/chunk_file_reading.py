"""Reads one chunk of a table into files of a batch, in a reader's process."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Final

from airflow_provider_cdc.core.model.log_items import RowBlock
from airflow_provider_cdc.core.row_rate_limit import RowRateLimit
from airflow_provider_cdc.core.snapshot.snapshot_markers import mark_edges
from airflow_provider_cdc.core.spi.remote_readers import ChunkResult, ChunkTask, ReadGroup, RowReader, SnapshotView
from airflow_provider_cdc.core.spi.source import SnapshotChunk
from airflow_provider_cdc.core.spi.store_interfaces import BatchWriter
from airflow_provider_cdc.core.writing.event_envelope import Envelope

_LONGEST_PAUSE_S: Final = 0.2
"""Seconds after which a reader that waits sees that it was asked to end."""


class ReadingStopped(Exception):
    """The reader was asked to end; the files of the chunk are discarded."""


class ChunkFileReader:
    """Reads chunks into files.

    :param envelope: of the connector, as the capture has it
    :param limit: of the rows that this reader may read in a second
    :param stopped: whether the reader was asked to end
    :param on_rows: is called with the number of rows of each block
    """

    def __init__(
        self,
        reader: RowReader,
        envelope: Envelope,
        limit: RowRateLimit,
        *,
        stopped: Callable[[], bool],
        on_rows: Callable[[int], None],
    ) -> None:
        self._reader, self._envelope, self._limit = reader, envelope, limit
        self._stopped, self._on_rows = stopped, on_rows

    def read_chunk(self, task: ChunkTask, group: ReadGroup, view: SnapshotView, writer: BatchWriter) -> ChunkResult:
        """Read a chunk, and finish its files.

        :param writer: of files that only this chunk has
        :raises TableOutOfView: this reader does not see the table as it was
        :raises ReadingStopped: the reader was asked to end
        """
        try:
            rows = self._write_rows(task, group, view, writer)
            if rows is None:
                writer.discard_files()
                return ChunkResult(number=task.number, attempt=task.attempt, outcome="full")
            files = writer.finish_files()
        except BaseException:
            writer.discard_files()
            raise
        return ChunkResult(number=task.number, attempt=task.attempt, outcome="read", rows=rows, files=files)

    def _write_rows(self, task: ChunkTask, group: ReadGroup, view: SnapshotView, writer: BatchWriter) -> int | None:
        """Return how many rows were read; ``None`` if their events need more sequence numbers than there are."""
        table = group.tables[task.table].table
        chunk, seq, rows = SnapshotChunk(table.id, task.condition), task.first_seq - 1, 0
        for block, is_last in _with_last(self._reader.read(chunk, view)):
            block.table = table
            self._wait_for_rate()
            snapshot = mark_edges(
                len(block), "true" if rows else task.first_mark, task.last_mark if is_last else "true"
            )
            batches, seq = self._envelope.encode_read(block, view.position, seq, snapshot=snapshot)
            if seq > task.last_seq:
                return None
            for batch in batches:
                writer.write(batch)
            rows += len(block)
            self._limit.record_rows(len(block))
            self._on_rows(len(block))
        return rows

    def _wait_for_rate(self) -> None:
        while True:
            if self._stopped():
                raise ReadingStopped
            if (pause_s := self._limit.compute_pause()) <= 0:
                return
            time.sleep(min(pause_s, _LONGEST_PAUSE_S))


def _with_last(blocks: Iterator[RowBlock]) -> Iterator[tuple[RowBlock, bool]]:
    """Yield each block that has rows, and whether it is the last one."""
    held: RowBlock | None = None
    for block in blocks:
        if not len(block):
            continue
        if held is not None:
            yield held, False
        held = block
    if held is not None:
        yield held, True


__all__ = ["ChunkFileReader", "ReadingStopped"]
