"""Keys that move over each other within a transaction: a relational target follows the rows."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from airflow_provider_cdc.core.errors import TargetError
from airflow_provider_cdc.sources.memory.database import MemoryDatabase
from airflow_provider_cdc.targets.database.config import DatabaseTargetConfig
from airflow_provider_cdc.targets.database.target_engine import open_engine
from tests.support.connectors import memory_connector
from tests.support.workloads.key_moves import KeyMoves
from tests.targets.database.apply.test_database_apply import rows, sink


@pytest.mark.parametrize("block", [3, 1000])
def test_rows_that_move_over_each_other_are_those_of_the_source(tmp_path: Path, block: int) -> None:
    """A1: in steps of parts of files and of windows of many files."""
    db = MemoryDatabase("moves")
    moves = KeyMoves(db, Random(block), deferred=block > 100)
    connector = memory_connector(db, tmp_path, memory_block_rows=block)
    engine = open_engine(DatabaseTargetConfig.parse({"connection.url": f"sqlite:///{tmp_path}/target.db"}))
    for batches in (1, 1, 3):
        for _ in range(batches):
            moves.transaction()
            moves.transaction()
            connector.capture()
        sink(engine, connector).apply()
        for table in moves.tables:
            found = sorted(rows(engine, f"test_{table.replace('.', '_')}"), key=repr)
            assert found == sorted(db.copy_rows(table), key=repr)


def test_values_that_the_log_leaves_out_travel_with_the_rows(tmp_path: Path) -> None:
    """A1: they are read from the rows before these go from their old keys."""
    for seed in range(2):
        db = MemoryDatabase(f"left out {seed}")
        moves = KeyMoves(db, Random(seed), sparse=("note",), deferred=False)
        connector = memory_connector(db, tmp_path / str(seed))
        engine = open_engine(DatabaseTargetConfig.parse({"connection.url": f"sqlite:///{tmp_path}/{seed}.db"}))
        connector.capture()
        sink(engine, connector).apply()
        for _ in range(4):
            moves.transaction()
            moves.transaction()
            connector.capture()
            sink(engine, connector).apply()
            for table in moves.tables:
                found = sorted(rows(engine, f"test_{table.replace('.', '_')}"), key=repr)
                assert found == sorted(db.copy_rows(table), key=repr), seed


def test_other_values_than_texts_are_not_lost_without_a_word(tmp_path: Path) -> None:
    """A1: that table stops, its neighbours continue."""
    db = MemoryDatabase("left out")
    for table, sparse in (("s.t", ("big",)), ("s.other", ())):
        db.create_table(table, {"id": "int64!", "n": "int64", "big": "binary"}, key=("id",), sparse=sparse)
    with db.transaction() as t:
        for i in (1, 2, 3):
            for table in ("s.t", "s.other"):
                t.insert(table, {"id": i, "n": i, "big": b"%d" % i})
    connector = memory_connector(db, tmp_path)
    connector.capture()
    engine = open_engine(DatabaseTargetConfig.parse({"connection.url": f"sqlite:///{tmp_path}/target.db"}))
    sink(engine, connector).apply()
    before = rows(engine, "test_s_t")
    with db.transaction() as t:
        for table in ("s.t", "s.other"):
            t.update_each(table, [({"id": i}, {"id": i + 1}) for i in (1, 2, 3)])
    connector.capture()
    with pytest.raises(TargetError, match="exchanged their keys"):
        sink(engine, connector).apply()
    assert rows(engine, "test_s_t") == before
    assert sorted(rows(engine, "test_s_other"), key=repr) == sorted(db.copy_rows("s.other"), key=repr)
