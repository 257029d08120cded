"""Merging the changes of all tables into one order, compared with sorting them. The runs are lists in memory: no database is needed for it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_provider_cdc.core.model.log_items import CREATE
from airflow_provider_cdc.core.model.table_schema import Column, TableId, TableSchema
from airflow_provider_cdc.sources.db2.log.change_merger import ChangeBlock, ChangeMerger
from airflow_provider_cdc.sources.db2.log.lsn_arrays import LsnArray
from airflow_provider_cdc.sources.db2.log.ordered_table_changes import ChangeArrays

Lsn = tuple[bytes, bytes]


def table(number: int) -> TableSchema:
    return TableSchema(
        id=TableId(namespace="S", name=f"T{number}"), columns=(Column(name="N", type="int64"),), key=("N",)
    )


def changes(schema: TableSchema, rows: list[tuple[Lsn, int]]) -> ChangeArrays:
    after = pa.array([{"N": n} for _, n in rows], pa.struct([("N", pa.int64())]))
    commits, intents = (
        LsnArray.from_bytes([lsn[0] for lsn, _ in rows]),
        LsnArray.from_bytes([lsn[1] for lsn, _ in rows]),
    )
    return ChangeArrays(schema, commits, intents, np.full(len(rows), CREATE, np.int8), None, after)


@dataclass
class ListedChanges:
    """A run whose changes are a list, given in pieces of some sizes."""

    schema: TableSchema
    rows: list[tuple[Lsn, int]]
    sizes: list[int]
    fetches: int = 0
    most: int = 0

    @property
    def more(self) -> bool:
        return bool(self.rows)

    def fetch_changes(self) -> ChangeArrays | None:
        size = self.sizes[self.fetches % len(self.sizes)]
        self.fetches += 1
        piece, self.rows = self.rows[:size], self.rows[size:]
        return changes(self.schema, piece) if piece else None


def shorten_blocks(blocks: list[ChangeBlock]) -> list[tuple[bytes, str, int]]:
    """Commit, table and value of each change, in the order in which core takes them."""
    found = []
    for block in blocks:
        rows: dict[int, tuple[bytes, str, int]] = {}
        for part in block.parts:
            assert (np.diff(part.order) > 0).all()
            assert (np.diff(part.transaction) >= 0).all()
            assert part.changes.after is not None
            values = part.changes.after.field("N").to_pylist()
            for i, (order, tx) in enumerate(zip(part.order.tolist(), part.transaction.tolist(), strict=True)):
                commit = block.commits.bytes_at(tx)
                assert commit == part.changes.commit.bytes_at(i)
                rows[order] = (commit, part.changes.table.id.name, values[i])
        assert sorted(rows) == list(range(len(rows)))
        found += [rows[i] for i in sorted(rows)]
    return found


def whole_transactions(blocks: list[ChangeBlock]) -> None:
    """Blocks hold whole transactions, in ascending order; of an open block the first transaction of the next one is the rest."""
    ended: list[bytes] = []
    open_: bytes | None = None
    for block in blocks:
        commits = [block.commits.bytes_at(i) for i in range(len(block.commits))]
        if open_ is not None:
            assert commits[0] == open_
        if block.open:
            assert len(commits) == 1
            open_ = commits[0]
        else:
            ended += commits
            open_ = None
    assert open_ is None
    assert ended == sorted(set(ended))


LSN = st.tuples(
    st.sampled_from([b"\0\1", b"\0\2", b"\0\2\1", b"\3" * 10, b"\xff" * 16]), st.binary(min_size=1, max_size=3)
)
"""Few transactions, so that most of them are of several tables and are cut by fetches."""
RUNS = st.lists(
    st.tuples(
        st.lists(LSN, max_size=25, unique_by=lambda lsn: (lsn[0], lsn[1].rstrip(b"\0"))),
        st.lists(st.integers(1, 7), min_size=1, max_size=3),
    ),
    min_size=1,
    max_size=5,
)


@settings(max_examples=400, deadline=None)
@given(runs=RUNS, block_rows=st.integers(1, 20))
def test_changes_of_all_tables_come_in_the_order_of_commit_and_change(
    runs: list[tuple[list[Lsn], list[int]]], block_rows: int
) -> None:
    def key(lsn: Lsn) -> tuple[bytes, bytes]:
        return lsn[0].ljust(16, b"\0"), lsn[1].ljust(16, b"\0")

    expected, listed = [], []
    for number, (lsns, sizes) in enumerate(runs):
        rows = [(lsn, i) for i, lsn in enumerate(sorted(lsns, key=key))]
        listed.append(ListedChanges(table(number), rows, sizes))
        expected += [(key(lsn), number, lsn[0], f"T{number}", i) for lsn, i in rows]
    blocks = list(ChangeMerger(listed, block_rows).iterate_blocks())
    assert shorten_blocks(blocks) == [one[2:] for one in sorted(expected)]
    whole_transactions(blocks)


def test_a_transaction_larger_than_a_block_goes_out_in_open_blocks() -> None:
    rows = [((b"\1", bytes([i])), i) for i in range(95)] + [((b"\2", b"\1"), 95)]
    blocks = list(ChangeMerger([ListedChanges(table(0), rows, [10])], 20).iterate_blocks())
    assert [(len(block), block.open) for block in blocks] == [(20, True)] * 4 + [(16, False)]
    assert [len(block.commits) for block in blocks] == [1, 1, 1, 1, 2]
    assert [value for _, _, value in shorten_blocks(blocks)] == list(range(96))


def test_an_open_transaction_whose_changes_have_all_gone_out_is_ended_by_a_block_without_rows() -> None:
    first, second = [((b"\1", bytes([i])), i) for i in range(10)], [((b"\2", bytes([i])), i) for i in range(25)]
    blocks = list(ChangeMerger([ListedChanges(table(0), first + second, [10])], 10).iterate_blocks())
    whole_transactions(blocks)
    assert [(len(block), block.open) for block in blocks] == [
        (10, True),
        (0, False),
        (10, True),
        (10, True),
        (5, False),
    ]


def test_only_so_much_of_each_run_is_in_memory_as_the_order_needs() -> None:
    """A thousand tables, of which one has a large backlog: the others are fetched once."""
    quiet = [ListedChanges(table(i), [((b"\5", bytes([i // 256, i % 256, 1])), 0)], [50]) for i in range(1, 1000)]
    busy = ListedChanges(table(0), [((b"\1", i.to_bytes(3, "big")), i) for i in range(5000)], [50])
    merge, rows = ChangeMerger([busy, *quiet], 500), 0
    for block in merge.iterate_blocks():
        rows += len(block)
        waiting = sum(one.row_count for one in merge._waiting)
        assert waiting <= 500 + 50 + 1000
        assert len(block) <= 1500
    assert rows == 5000 + 999
    assert {one.fetches for one in quiet} == {1}
