"""Ranges of keys whose runs are killed at any commit: what is left is read by the next run, and nothing is deleted that is there."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_cdc.core.incremental import chunk_reader_thread as chunking
from airflow_provider_cdc.core.incremental import chunks_per_window
from airflow_provider_cdc.sources.memory.database import MemoryDatabase
from tests.core.incremental.test_key_ranges import key_range, planted_rows, start_connector
from tests.core.incremental.work import BusyWriter
from tests.sources.suite.common import RunKilled, dies_at_commit
from tests.support.signals import signal_state, snapshot
from tests.support.workloads.small_tables import equal


@pytest.mark.sampled(4)
@pytest.mark.parametrize("at", [1, 2, 3, 4])
def test_runs_that_die_at_their_commits(
    db: MemoryDatabase, tmp_path: Path, watermark_form: dict[str, Any], monkeypatch: pytest.MonkeyPatch, at: int
) -> None:
    monkeypatch.setattr(chunking, "KEYS", 20)
    monkeypatch.setattr(chunks_per_window, "CHUNKS", 1)
    connector = start_connector(db, tmp_path, incremental_snapshot_chunk_size=20, batch_max_rows=40, **watermark_form)
    r = random.Random(at)
    spoiled = r.sample(range(1100), 150)
    connector.replay.plant("test.shop.a", *planted_rows(*spoiled))
    ranges = [
        key_range(low, low + 99, *(i for i in spoiled if low <= i < low + 100), *range(low, low + 5))
        for low in range(0, 1100, 100)
    ]
    number = snapshot(connector, "shop.a", key_ranges=ranges)
    deaths = 0
    with BusyWriter(db, keys=1100, pause_s=0.01):
        for _ in range(6):
            with monkeypatch.context() as patch:
                dies_at_commit(patch, at)
                try:
                    connector.capture(run_for_s=20)
                except RunKilled:
                    deaths += 1
    connector.capture()
    connector.capture()
    equal(connector, db, "shop.a")
    assert deaths >= 3
    assert signal_state(connector, number) == ("done", "")
