"""The progress of an apply to a database, while it works."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from airflow_provider_cdc.core.model.job_progress import JobProgress
from airflow_provider_cdc.core.reporting import progress_reporter as module
from airflow_provider_cdc.sources.memory.database import MemoryDatabase
from airflow_provider_cdc.targets.database.apply import database_apply
from airflow_provider_cdc.targets.database.apply.database_apply import DatabaseApply
from airflow_provider_cdc.targets.database.config import EQUAL, DatabaseTargetConfig
from tests.support.connectors import memory_connector


@pytest.fixture
def engine(tmp_path: Path) -> sa.Engine:
    return sa.create_engine(f"sqlite:///{tmp_path}/target.db")


def test_an_apply_that_takes_long_says_which_batch_it_is_at(
    engine: sa.Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(module, "EVERY_S", 0.02)
    monkeypatch.setattr(database_apply, "GROUP_BATCHES", 2)
    caplog.set_level(logging.INFO)
    database = MemoryDatabase("sink-progress")
    database.create_table("s.t", {"id": "int64!"}, key=("id",))
    connector = memory_connector(database, tmp_path, topic_prefix="p")
    for n in range(6):
        with database.transaction() as t:
            t.insert("s.t", {"id": n})
        connector.capture()
    board, seen = connector.changelog.open_progress_board(connector.name), list[JobProgress]()
    write = DatabaseApply._saved

    def look_slowly(self: DatabaseApply, *given: Any, **more: Any) -> None:
        for _ in range(1000):
            if (now := [work for work in board.list_work() if work.done == 2]) or self._way[0] != 2:
                seen.extend(now)
                break
            module.time.sleep(0.01)
        write(self, *given, **more)

    monkeypatch.setattr(DatabaseApply, "_saved", look_slowly)
    DatabaseApply(engine, DatabaseTargetConfig.parse(EQUAL), connector.changelog, connector.name).apply()
    assert seen[0].progress_text.startswith("Apply: 2 of 6 batches (33 %)")
    assert seen[0].now == "at work: p.s.t"
    assert seen[0].where.startswith("database at sqlite")
    assert board.list_work() == []
