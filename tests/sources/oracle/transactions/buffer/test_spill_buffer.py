"""The buffer of open transactions against a dictionary of lists; undo rows against a stack."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from airflow_provider_cdc.core.errors import StorageFull
from airflow_provider_cdc.sources.oracle.kernels.operation_codes import NO_ROW_ID
from airflow_provider_cdc.sources.oracle.transactions.buffer.rolled_back_rows import not_rolled_back
from airflow_provider_cdc.sources.oracle.transactions.buffer.row_segments import ROWS
from airflow_provider_cdc.sources.oracle.transactions.buffer.spill_buffer import SpillBuffer


def rows_of(transactions: list[int], first: int) -> pa.Table:
    n = len(transactions)
    columns: dict[str, Any] = {
        "tx": transactions, "scn": range(first, first + n), "code": [1] * n, "table": [0] * n,
        "sql": [f"text {i}" for i in range(first, first + n)], "row_id": [f"R{i}" for i in range(first, first + n)],
        "rollback": [False] * n, "ssn": [0] * n, "thread": [1] * n, "rs_id": [""] * n, "user": ["U"] * n, "ts_us": [0] * n,
    }  # fmt: skip
    return pa.table([pa.array(list(columns[name]), ROWS.field(name).type) for name in ROWS.names], schema=ROWS)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("max_bytes", [1 << 30, 20_000, 0])
@pytest.mark.parametrize("seed", range(8))
def test_transactions_come_out_as_they_went_in(seed: int, max_bytes: int, tmp_path: Path) -> None:
    chance = random.Random(seed)
    buffer = SpillBuffer(max_bytes, str(tmp_path))
    waiting: dict[int, list[int]] = {}
    scn, newest = 0, 0
    for _ in range(120):
        size = chance.choice([1, 5, 300])
        transactions = [chance.randint(max(0, newest - 40), newest + 2) for _ in range(size)]
        newest = max(newest, *transactions)
        buffer.add_rows(rows_of(transactions, scn))
        for i, tx in enumerate(transactions):
            waiting.setdefault(tx, []).append(scn + i)
        scn += size
        chosen = chance.sample(sorted(waiting), min(len(waiting), chance.randint(0, 12)))
        assert buffer.counts == {tx: len(scns) for tx, scns in waiting.items()}
        read = buffer.read(chosen)
        assert read.column("scn").to_pylist() == [s for tx in chosen for s in waiting[tx]]
        assert read.column("sql").to_pylist() == [f"text {s}" for tx in chosen for s in waiting[tx]]
        if chosen:
            pieces = list(buffer.read_pieces(chosen[0], 7, ["scn", "row_id"]))
            assert all(p.num_rows <= 7 and p.column_names == ["scn", "row_id"] for p in pieces)
            assert [s for p in pieces for s in p.column("scn").to_pylist()] == waiting[chosen[0]]
        buffer.drop_transactions(chosen)
        for tx in chosen:
            del waiting[tx]
    assert (buffer.spilled_rows > 0) == (max_bytes < 1 << 30)
    assert not list(tmp_path.iterdir())  # its files have no names
    buffer.close()


def test_many_open_transactions_are_few_segments() -> None:
    buffer = SpillBuffer(1 << 30)
    for start in range(0, 20_000, 20):
        buffer.add_rows(rows_of(list(range(start, start + 20)), start))
    assert buffer.segment_count < 12
    assert len(buffer.counts) == 20_000


def test_what_has_left_is_not_kept_in_memory() -> None:
    buffer = SpillBuffer(1 << 30)
    buffer.add_rows(rows_of(list(range(10_000)), 0))
    full = buffer.nbytes
    buffer.drop_transactions(list(range(9_000)))
    assert buffer.nbytes < full / 5


def test_a_full_disk_says_which_folder(tmp_path: Path) -> None:
    buffer = SpillBuffer(0, str(tmp_path / "missing"))
    with pytest.raises(StorageFull, match=r"missing.*(?s:.*)log\.mining\.buffer\.spill\.folder"):
        buffer.add_rows(rows_of([1], 0))


# undo


def log_of(entries: list[tuple[int, str | None, bool, int]]) -> pa.Table:
    """(transaction, ROWID, undo, operation code) per row."""
    columns = zip(*entries, strict=True)
    tx, row_id, rollback, code = (list(c) for c in columns)
    return pa.table({
        "tx": pa.array(tx, pa.int64()), "code": pa.array(code, pa.int16()), "table": pa.array([0] * len(tx), pa.int32()),
        "row_id": pa.array(row_id, pa.large_string()), "rollback": pa.array(rollback, pa.bool_()),
        "sql": pa.nulls(len(tx), pa.large_string()),
    })  # fmt: skip


def kept_entries(entries: list[tuple[int, str | None, bool, int]]) -> tuple[list[int], int]:
    remaining = not_rolled_back(log_of(entries), lambda _: [])
    return np.flatnonzero(remaining.keep).tolist(), remaining.unmatched


def test_an_undo_row_takes_back_the_newest_change_of_its_row() -> None:
    assert kept_entries([(1, "A", False, 1), (1, "A", False, 3), (1, "B", False, 1), (1, "A", True, 3)]) == ([0, 2], 0)
    assert kept_entries([(1, "A", False, 1), (1, "A", False, 3), (1, "A", True, 3), (1, "A", True, 2)]) == ([], 0)
    assert kept_entries([(1, "A", False, 3), (1, "A", True, 3), (1, "A", False, 3)]) == ([2], 0)


def test_undo_keeps_to_its_transaction() -> None:
    assert kept_entries([(1, "A", False, 1), (2, "A", False, 3), (2, "A", True, 3)]) == ([0], 0)


def test_an_undo_row_without_a_change_is_counted() -> None:
    assert kept_entries([(1, "A", False, 1), (1, "B", True, 2)]) == ([0], 1)


def test_rows_without_a_rowid_go_with_the_row_that_ends_their_change() -> None:
    none = NO_ROW_ID
    insert = [(1, none, False, 1), (1, none, False, 9), (1, none, False, 10), (1, "A", False, 0)]
    other = (1, "B", False, 1)
    assert kept_entries([*insert, other]) == ([0, 1, 2, 4], 0)
    assert kept_entries([*insert, other, (1, "A", True, 2)]) == ([4], 0)
    assert kept_entries([*insert, other, (1, "B", True, 2)]) == ([0, 1, 2], 0)
    # an inline value: the insert, then an update that has the ROWID
    assert kept_entries([(1, none, False, 1), (1, "A", False, 3), (1, "A", True, 2)]) == ([], 0)


def test_a_change_with_long_values_that_failed_goes_with_the_undo_row_behind_it() -> None:
    """Its row with the ROWID never came; rows of other changes are not touched."""
    none = NO_ROW_ID
    failed = [(1, none, False, 1), (1, "B", True, 2)]
    assert kept_entries(failed) == ([], 0)
    assert kept_entries([(1, "A", False, 1), *failed, (1, none, False, 1), (1, "C", False, 3)]) == ([0, 3, 4], 0)
    assert kept_entries([(1, none, False, 1), (1, "A", False, 3), *failed, (1, "A", True, 2)]) == ([], 0)
    assert kept_entries([(1, "A", False, 1), (1, none, False, 3), (1, none, False, 9), (1, "A", True, 3)]) == ([0], 0)
    # the undo of another transaction says nothing
    assert kept_entries([(1, none, False, 1), (2, "B", True, 2)]) == ([0], 1)


def test_an_internal_row_alone_is_nothing_to_take_back() -> None:
    assert kept_entries([(1, "A", False, 1), (1, "A", False, 0), (1, "A", True, 2)]) == ([], 0)


def test_what_is_done_to_a_long_value_in_place_goes_with_the_insert() -> None:
    in_place = [(1, "A", False, 9), (1, "A", False, 10)]
    assert kept_entries([(1, "A", False, 1), *in_place, (1, "A", True, 2)]) == ([], 0)
    assert kept_entries([*in_place, (1, "A", False, 3), (1, "A", True, 3)]) == ([0, 1], 0)


@pytest.mark.parametrize("seed", range(30))
def test_undo_like_a_stack(seed: int) -> None:
    chance = random.Random(seed)
    entries: list[tuple[int, str | None, bool, int]] = []
    left: list[int] = []
    for tx in range(chance.randint(1, 6)):
        done: list[tuple[str, int]] = []
        for _ in range(chance.randint(1, 60)):
            if done and chance.random() < 0.3:  # back to a savepoint: newest first
                for _ in range(chance.randint(1, len(done))):
                    row, _ = done.pop()
                    entries.append((tx, row, True, 2))
            else:
                row = f"R{chance.randint(0, 8)}"
                done.append((row, len(entries)))
                entries.append((tx, row, False, 1))
        left += [at for _, at in done]
    assert kept_entries(entries) == (sorted(left), 0)
