"""Keys that move over each other within a transaction: tables of every mode follow the rows."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest

from airflow_provider_cdc.core.config.target_table_rules import TableRules
from airflow_provider_cdc.targets.lake.formats.memory_table import STORED
from tests.support.workloads.key_moves import KeyMoves
from tests.targets.lake.lake import Lake, Row, new_lake

pytestmark = pytest.mark.spark


@pytest.mark.parametrize("sparse", [(), ("note",)], ids=["whole", "sparse"])
@pytest.mark.parametrize("mode", ["current", "soft_delete", "history", "log"])
def test_tables_follow_rows_that_move_over_each_other(
    spark: Any, tmp_path: Path, mode: str, sparse: tuple[str, ...]
) -> None:
    """A1: shifts, swaps, cycles, permutations, in one statement or several."""
    STORED.clear()
    lake = new_lake(spark, tmp_path, "memory", memory_block_rows=4 if sparse else 1000)
    moves = KeyMoves(lake.connector.database, Random(len(mode)), sparse=sparse, deferred=not sparse)
    lake.tables = TableRules.parse([{"tables": ".*", "mode": mode}]) if mode != "current" else lake.tables
    lake.follow()
    for _ in range(2):
        for _ in range(3):
            moves.transaction()
            lake.connector.capture()
        lake.apply()
        for table in moves.tables:
            source = sorted(lake.connector.database.copy_rows(table), key=repr)
            if mode == "log":
                events = sum(
                    f.rows
                    for m in lake.connector.changelog.read_manifests("test")
                    for f in m.files
                    if f.topic.endswith(table)
                )
                assert len(lake.rows(table)) == events
            else:
                assert _live(lake, table, [*source[0]] if source else ["id"]) == source, (table, mode)


@pytest.mark.every_kind
def test_tables_of_every_kind_follow_rows_that_move_over_each_other(
    make_lake: Callable[..., Lake], tmp_path: Path
) -> None:
    """A1: ``UPDATE t SET id = id + 1`` and a swap, with values that the log leaves out."""
    lake = make_lake(tmp_path, memory_block_rows=2)
    db = lake.connector.database
    for table, sparse in (("s.whole", ()), ("s.sparse", ("big",))):
        db.create_table(table, {"id": "int64!", "n": "int32", "big": "string"}, key=("id",), sparse=sparse)
        with db.transaction() as t:
            for i in (1, 2, 3, 4):
                t.insert(table, {"id": i, "n": i, "big": f"long {i}"})
    lake.follow()
    for to in ({1: 2, 2: 3, 3: 4, 4: 5}, {2: 5, 5: 2}):
        for table in ("s.whole", "s.sparse"):
            with db.transaction() as t:
                t.update_each(table, [({"id": old}, {"id": new}) for old, new in to.items()])
        lake.follow()
        for table in ("s.whole", "s.sparse"):
            assert _live(lake, table, ["id", "n", "big"]) == sorted(db.copy_rows(table), key=repr)


def _live(lake: Lake, table: str, names: list[str]) -> list[Row]:
    """The rows that are there now, with the columns of the source."""
    found = [
        {name: row[name] for name in names}
        for row in lake.rows(table)
        if row.get("_is_current", True) and not row.get("_is_deleted", False)
    ]
    return sorted(found, key=repr)
