"""Groups that readers of other processes read: each row once, each table's first and last row marked, whatever the estimates say."""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_provider_cdc.core.errors import QueryRejected
from airflow_provider_cdc.core.model.batch_manifest import DataFile
from airflow_provider_cdc.core.model.table_schema import TableId
from airflow_provider_cdc.core.snapshot import remote_group_reading
from airflow_provider_cdc.core.snapshot.remote_group_reading import GroupResult, GroupStopped, RemoteGroupReading
from airflow_provider_cdc.core.spi.remote_readers import ChunkResult, ChunkTask, ReaderError, ReadGroup
from airflow_provider_cdc.core.spi.snapshot_chunk import SnapshotChunk

GROUP = ReadGroup(number=1, batch=1, epoch=1, writer="w", position={}, ts_us=0, tables={})


class StandInReaders:
    """Readers that answer in any order, some results twice, and as many rows as there are.

    :param rows: condition of a chunk → its rows
    :ivar accepted: the last task of each chunk that was read
    """

    def __init__(self, rows: Mapping[str, int], random: Random) -> None:
        self._rows, self._random = rows, random
        self._tasks = deque[ChunkTask]()
        self._old = list[ChunkResult]()
        self.accepted = dict[int, ChunkTask]()
        self.out_of_view = set[str]()

    def begin_group(self, group: ReadGroup) -> None:
        assert not self._tasks

    def hand_out(self, tasks: Sequence[ChunkTask]) -> None:
        self._tasks += tasks

    def collect_results(self) -> list[ChunkResult]:
        results = self._random.sample(self._old, k=min(1, len(self._old)))
        for _ in range(self._random.randint(0, len(self._tasks))):
            self._tasks.rotate(self._random.randint(0, 5))
            results.append(self._read(self._tasks.popleft()))
        self._old += results
        return results

    def count_rows(self) -> int:
        return 0

    def _read(self, task: ChunkTask) -> ChunkResult:
        rows, same = self._rows[str(task.condition)], {"number": task.number, "attempt": task.attempt}
        if task.table in self.out_of_view:
            return ChunkResult(outcome="out_of_view", **same)
        if rows > task.last_seq - task.first_seq + 1:
            return ChunkResult(outcome="full", **same)
        self.accepted[task.number] = task
        file = DataFile(
            topic=task.table, schema_version=1, path=f"{task.number}-{task.attempt}", rows=rows, bytes=1, crc32=1,
            first_seq=task.first_seq, last_seq=task.first_seq + rows - 1, counts={"r": rows},
        )  # fmt: skip
        return ChunkResult(outcome="read", rows=rows, files=[file] if rows else [], **same)


def _read(
    readers: Any, tables: Sequence[Sequence[tuple[int, int]]], **more: Any
) -> tuple[GroupResult, list[SnapshotChunk]]:
    chunks = [
        SnapshotChunk(TableId(namespace="s", name=f"t{table}"), f"{table}.{number}", estimate)
        for table, counts in enumerate(tables)
        for number, (estimate, _) in enumerate(counts)
    ]
    stopped: Callable[[], bool] = more.pop("stopped", lambda: False)
    reading = RemoteGroupReading(readers, stopped=stopped, on_progress=lambda _: None)
    return reading.read_group(GROUP, chunks, 100, **{"rows_follow": False, **more}), chunks


def _rows_of(tables: Sequence[Sequence[tuple[int, int]]]) -> dict[str, int]:
    return {f"{t}.{n}": rows for t, counts in enumerate(tables) for n, (_, rows) in enumerate(counts)}


@given(
    tables=st.lists(
        st.lists(st.tuples(st.integers(0, 4), st.sampled_from([0, 0, 1, 2, 40, 90, 5000])), min_size=1, max_size=5),
        max_size=4,
    ),
    random=st.randoms(use_true_random=False),
    rows_follow=st.booleans(),
)
@settings(max_examples=300, deadline=None)
def test_each_row_is_there_once_and_the_edges_are_marked(
    tables: list[list[tuple[int, int]]], random: Random, rows_follow: bool
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(remote_group_reading, "_FEWEST_NUMBERS", 8)
        readers = StandInReaders(_rows_of(tables), random)
        result, chunks = _read(readers, tables, rows_follow=rows_follow)
    files = [file for some in result.files.values() for file in some]
    assert sum(file.rows for file in files) == sum(_rows_of(tables).values())
    assert {t.name: n for t, n in result.rows.items()} == {
        f"t{t}": sum(rows for _, rows in counts) for t, counts in enumerate(tables)
    }
    spans = sorted((file.first_seq, file.last_seq) for file in files)
    assert all(before[1] < after[0] for before, after in itertools.pairwise(spans))
    assert all(first > 100 for first, _ in spans)
    assert result.last_seq == max([100, *(last for _, last in spans)])

    full = sorted(
        (task for n, task in readers.accepted.items() if readers._rows[str(chunks[n].condition)]),
        key=lambda task: task.first_seq,
    )
    for task in full:
        own = [other for other in full if other.table == task.table]
        first = "first" if task is full[0] else "first_in_data_collection"
        last = "last_in_data_collection" if rows_follow or task is not full[-1] else "last"
        assert task.first_mark == (first if task is own[0] else "true")
        assert task.last_mark == (last if task is own[-1] else "true")
        assert f"{task.number}-{task.attempt}" in {file.path for file in files}


def test_a_table_out_of_view_has_no_rows_and_others_keep_theirs() -> None:
    tables = [[(1, 2), (1, 3)], [(1, 4)]]
    readers = StandInReaders(_rows_of(tables), Random(1))
    readers.out_of_view.add("s.t0")
    result, _ = _read(readers, tables)
    assert {str(t) for t in result.changed} == {"s.t0"}
    assert {str(t): n for t, n in result.rows.items()} == {"s.t1": 4}


def test_an_error_of_a_reader_is_raised_as_it_was() -> None:
    class Failing(StandInReaders):
        def _read(self, task: ChunkTask) -> ChunkResult:
            error = QueryRejected("The SELECT is wrong.", where="s.t0", remedy="correct it")
            return ChunkResult(
                number=task.number, attempt=task.attempt, outcome="failed", error=ReaderError.from_exception(error)
            )

    with pytest.raises(QueryRejected, match="The SELECT is wrong") as caught:
        _read(Failing({"0.0": 1}, Random(1)), [[(1, 1)]])
    assert caught.value.remedy == "correct it"


def test_a_run_that_is_asked_to_end_does_not_wait_for_chunks() -> None:
    with pytest.raises(GroupStopped):
        _read(StandInReaders({"0.0": 1}, Random(1)), [[(1, 1)]], stopped=lambda: True)
