"""Random work on the memory source, captured in steps: legal at every event and equal to the source after each run."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from airflow_provider_cdc.sources.memory.database import MemoryDatabase
from tests.support.connectors import memory_connector
from tests.support.workloads.memory_work import Workload


@pytest.mark.sampled(3)
@pytest.mark.parametrize("seed", range(12))
def test_change_log_replays_to_the_source(tmp_path: Path, seed: int) -> None:
    r = Random(seed)
    db = MemoryDatabase(f"core-random-{seed}")
    work = Workload(db, sparse=("note",) if seed % 2 else ())
    connector = memory_connector(
        db,
        tmp_path,
        memory_block_rows=r.choice([1, 2, 5, 1000]),
        snapshot_max_threads=r.choice([1, 3]),
        batch_max_rows=r.choice([1, 10, 1000]),
        provide_transaction_metadata=r.random() < 0.5,
    )
    for _ in range(8):
        for _ in range(r.randrange(12)):
            work.step(r)
        connector.capture()
        connector.replay.advance()
        for table in work.tables:
            assert connector.rows(table) == sorted(db.copy_rows(table), key=repr), table
    assert connector.replay.seq > 50
