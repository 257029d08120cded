"""Has readers of other processes read the tables of a batch, and checks that each chunk was read once.

Each chunk has a separate range of sequence numbers, since its rows are unknown before they are read. The numbers behind its last row
stay unused.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from airflow_provider_cdc.core.model.batch_manifest import DataFile
from airflow_provider_cdc.core.model.table_schema import TableId
from airflow_provider_cdc.core.spi.remote_readers import ChunkResult, ChunkTask, ReadGroup, RemoteReaders
from airflow_provider_cdc.core.spi.source import SnapshotChunk

log = logging.getLogger(__name__)

_FEWEST_NUMBERS: Final = 1 << 20
_SPARE: Final = 16
"""A chunk may have so many times the rows that the database estimates. One that has more is read once more, with so many times the numbers."""


class GroupStopped(Exception):
    """The run was asked to end; no file of the group counts."""


@dataclass(slots=True)
class GroupResult:
    """The tables of a group that were read.

    :ivar files: table → files with its events
    :ivar rows: table → rows that were read
    :ivar changed: tables that no reader sees as they were
    :ivar last_seq: the last sequence number of the files, or that before the group
    """

    last_seq: int
    files: dict[TableId, list[DataFile]] = field(default_factory=dict)
    rows: dict[TableId, int] = field(default_factory=dict)
    changed: set[TableId] = field(default_factory=set)


class RemoteGroupReading:
    """Reads one group of tables after the other.

    :param readers: that have opened their views
    :param stopped: whether the run was asked to end
    :param on_progress: is called with the rows that were read so far of the group
    :param first_row_read: the first row of the snapshot was read before
    """

    def __init__(
        self,
        readers: RemoteReaders,
        *,
        stopped: Callable[[], bool],
        on_progress: Callable[[int], None],
        first_row_read: bool = False,
    ) -> None:
        self._readers, self._stopped, self._on_progress = readers, stopped, on_progress
        self._begun = first_row_read

    def read_group(
        self, group: ReadGroup, chunks: Sequence[SnapshotChunk], last_seq: int, *, rows_follow: bool
    ) -> GroupResult:
        """Read the chunks of some tables, in which the rows of a table are in the order of its chunks.

        :param last_seq: the last sequence number that was given out before
        :param rows_follow: another group follows
        :raises GroupStopped: the run was asked to end
        :raises CdcError: of a reader; or no reader is left
        """
        tasks, seq = dict[int, ChunkTask](), last_seq
        for number, chunk in enumerate(chunks):
            end = seq + max(_FEWEST_NUMBERS, chunk.rows * _SPARE)
            tasks[number] = ChunkTask(
                number=number, table=str(chunk.table), condition=chunk.condition, first_seq=seq + 1, last_seq=end
            )
            seq = end
        self._readers.begin_group(group)
        self._mark(tasks, tasks, rows_follow=rows_follow)
        results = self._read(tasks, list(tasks), seq)
        # where chunks at an edge are empty, the row at the edge is in another one
        while again := self._mark(tasks, [n for n, result in results.items() if result.rows], rows_follow=rows_follow):
            for number in again:
                tasks[number] = tasks[number].model_copy(update={"attempt": tasks[number].attempt + 1})
            results |= self._read(tasks, again, max(task.last_seq for task in tasks.values()))
        return self._collect({str(chunk.table): chunk.table for chunk in chunks}, tasks, results, last_seq)

    def _read(self, tasks: dict[int, ChunkTask], numbers: Sequence[int], last_seq: int) -> dict[int, ChunkResult]:
        """Have chunks read, and return their results."""
        results, missing = dict[int, ChunkResult](), set(numbers)
        self._readers.hand_out([tasks[number] for number in numbers])
        while missing:
            if self._stopped():
                raise GroupStopped
            for result in self._readers.collect_results():
                task = tasks[result.number]
                if result.attempt != task.attempt or result.number not in missing:
                    continue  # of an attempt that was given up
                if result.outcome == "failed":
                    assert result.error is not None
                    raise result.error.to_exception()
                if result.outcome == "full":
                    numbers_needed = (task.last_seq - task.first_seq + 1) * _SPARE
                    tasks[task.number] = task.model_copy(
                        update={
                            "attempt": task.attempt + 1,
                            "first_seq": last_seq + 1,
                            "last_seq": last_seq + numbers_needed,
                        }
                    )
                    last_seq += numbers_needed
                    log.info(
                        "Chunk %d of %s has more rows than estimated, and is read once more.", task.number, task.table
                    )
                    self._readers.hand_out([tasks[task.number]])
                    continue
                missing.discard(result.number)
                results[result.number] = result
            self._on_progress(self._readers.count_rows())
        return results

    def _mark(self, tasks: dict[int, ChunkTask], full: Iterable[int], *, rows_follow: bool) -> list[int]:
        """Mark the chunks with the first and the last row of each table, and return those whose marks have changed.

        :param full: chunks that have rows
        """
        ordered = sorted(full, key=lambda number: tasks[number].first_seq)
        first, last = dict[str, int](), dict[str, int]()
        for number in ordered:
            first.setdefault(tasks[number].table, number)
            last[tasks[number].table] = number
        changed = []
        for number in ordered:
            table = tasks[number].table
            marks = {"first_mark": "true", "last_mark": "true"}
            if first[table] == number:
                marks["first_mark"] = "first_in_data_collection" if self._begun or number != ordered[0] else "first"
            if last[table] == number:
                marks["last_mark"] = "last_in_data_collection" if rows_follow or number != ordered[-1] else "last"
            marked = tasks[number].model_copy(update=marks)
            if marked != tasks[number]:
                tasks[number] = marked
                changed.append(number)
        return changed

    def _collect(
        self, tables: dict[str, TableId], tasks: dict[int, ChunkTask], results: dict[int, ChunkResult], last_seq: int
    ) -> GroupResult:
        group = GroupResult(last_seq)
        group.changed = {tables[tasks[n].table] for n, result in results.items() if result.outcome == "out_of_view"}
        for number in sorted(results, key=lambda number: tasks[number].first_seq):
            table = tables[tasks[number].table]
            if table in group.changed:
                continue
            files = results[number].files
            group.files.setdefault(table, []).extend(files)
            group.rows[table] = group.rows.get(table, 0) + results[number].rows
            group.last_seq = max([group.last_seq, *(file.last_seq for file in files)])
        self._begun = self._begun or any(group.rows.values())
        return group
