"""The story of a row is what was done to it: random work on the memory source, read from the database's own log and from the change log."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from itertools import dropwhile
from pathlib import Path
from random import Random

import pytest

from airflow_provider_cdc.changelog.reports.apply_report_store import ApplyReports
from airflow_provider_cdc.changelog.retention.batch_retention import Retention, RetentionLimits
from airflow_provider_cdc.changelog.row_history import key_index, key_index_segment
from airflow_provider_cdc.changelog.row_history.row_key import RowKey
from airflow_provider_cdc.core.model.connector_signal import SentSignal
from airflow_provider_cdc.sources.memory.database import MemoryDatabase
from tests.support.change_log.row_stories import Done, RowStories, complete_story, kept_places, order_story, stories
from tests.support.connectors import Connector, memory_connector
from tests.support.workloads.memory_work import KEYLESS, Workload


@pytest.fixture(autouse=True)
def small_files(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files of the index as small as those of a million batches are large."""
    monkeypatch.setattr(key_index, "STEP", 10)
    monkeypatch.setattr(key_index, "MOST", 60)
    monkeypatch.setattr(key_index_segment, "_PAGE", 8)


@pytest.mark.parametrize("seed", range(12))
def test_the_story_is_what_was_done(tmp_path: Path, seed: int) -> None:
    r = Random(seed)
    db = MemoryDatabase(f"story-{seed}")
    work = Workload(db, ddl=0.1, sparse=("note",) if seed % 2 else (), cross=False)
    connector = memory_connector(db, tmp_path, batch_max_rows=r.choice([1, 1, 5, 1000]))
    doings = RowStories(db)
    connector.capture()
    doings.captured()
    for round_ in range(4):
        for _ in range(r.randrange(30)):
            work.step(r)
        if r.random() < 0.3:
            data = {"data-collections": [r"shop\..*"], "type": "incremental"}
            connector.store.send("test", SentSignal(f"s{round_}", "execute-snapshot", json.dumps(data)))
        connector.capture()
        if r.random() < 0.3:
            _retain(connector, r)
        doings.advance()
        _compare(connector, doings, work)


def _retain(connector: Connector, r: Random) -> None:
    """Remove old batches."""
    last = connector.changelog.find_last_batch("test")
    ApplyReports(connector.changelog.storage, "test").write(
        {
            "connector": "test", "target": "delta", "location": "/lake", "last_batch": r.randint(last // 3, last), "tables": [], "failed": {},
            "lagging": {}, "table_states": {}, "seconds": 0.0, "rules": "", "owner": "a",
        }
    )  # fmt: skip
    for later in (0, 2):
        Retention(
            connector.changelog, "test", RetentionLimits(ms=1000), now=datetime.now(UTC) + timedelta(hours=later)
        ).run()


def _compare(connector: Connector, doings: RowStories, work: Workload) -> None:
    kept, teller = kept_places(connector), stories(connector)
    looked = 0
    for table, schema in doings.database.read_consistent_view()[1].items():
        if table.name == KEYLESS:
            continue
        rows = {row["id"]: row for row in doings.database.copy_rows(str(table))}
        for key, done in doings.rows[table].items():
            story = teller.read_history(table, RowKey({"id": key}))
            assert not story.left_out
            found = order_story(story, doings.database)
            was_done = [one for one in complete_story(done, found) if one[3] in kept]
            assert found == was_done, (str(table), key)
            looked += 1
            if story.row.state == "unknown":
                assert connector.changelog.find_first_batch("test") > 1
                continue
            assert (story.row.state == "row") == (key in rows), (str(table), key)
            newest = next((one for one in story.changes if one.operation != "schema change"), None)
            if key in rows and newest is not None and newest.columns == list(schema.column_names):
                known = {
                    name: value for name, value in (story.row.row or {}).items() if name not in story.row.unavailable
                }
                assert known == {name: rows[key][name] for name in known}, (str(table), key)
                assert (
                    connector.changelog.find_first_batch("test") > 1
                    or not story.row.unavailable
                    or "incremental" in str(story)
                )
    assert looked or not any(doings.rows.values())


def _of_the_row(done: list[Done]) -> list[Done]:
    """Without what empties the table before anything that is kept of the row: of a row that is not kept from its beginning, it may be the row's."""
    return list(dropwhile(lambda one: one[0] == "truncate", done))
