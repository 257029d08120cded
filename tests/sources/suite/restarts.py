"""Requirements of every source after a run has ended, wherever it did: nothing is lost and nothing captured twice."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from airflow_provider_cdc.sources import load_source
from tests.sources.suite.adapter import INT, TEXT, Adapter
from tests.sources.suite.common import (
    RunKilled,
    Suite,
    die_after,
    equal,
    start_connector,
)
from tests.support.workloads.large import capture_apart


class Restarts(Suite):
    """Runs that die, and runs that are stopped."""

    def test_a_restart_after_any_item_of_the_log_loses_and_repeats_nothing(
        self, filled_adapter: Adapter, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        with filled_adapter.small_blocks() as properties:
            before = start_connector(filled_adapter, tmp_path / "before", batch_max_rows=1, **properties)
            before.store.close()
            _write_everything(filled_adapter)
            for n in range(1, 200):
                shutil.copytree(tmp_path / "before", folder := tmp_path / str(n))
                connector = filled_adapter.connector(folder, batch_max_rows=1, **properties)
                with monkeypatch.context() as patch:
                    die_after(patch, load_source(filled_adapter.kind), n)
                    try:
                        connector.capture()
                        break
                    except RunKilled:
                        pass
                connector.capture()
                equal(connector, filled_adapter)
                connector.store.close()
        assert n > 6
        equal(connector, filled_adapter)

    def test_a_run_that_is_stopped_goes_on_later(self, filled_adapter: Adapter, tmp_path: Path) -> None:
        connector = start_connector(filled_adapter, tmp_path)
        with filled_adapter.transaction() as t:
            t.insert("a", {"id": 60})
        runs = (
            connector.capture(run_for_s=seconds) for seconds in (0.3, 1, 3, 9)
        )  # on a busy machine one may end before it has begun to read
        assert next((run.events for run in runs if run.events), 0) == 1
        with filled_adapter.transaction() as t:
            t.insert("a", {"id": 61})
        assert connector.capture().events == 1
        equal(connector, filled_adapter)

    def test_a_run_of_an_existing_connector_loads_nothing_that_it_does_not_need(
        self, filled_adapter: Adapter, tmp_path: Path
    ) -> None:
        if filled_adapter.kind == "memory":
            pytest.skip("this database lives in one process")
        connector = start_connector(filled_adapter, tmp_path)
        found = capture_apart(connector)
        assert (found["events"], found["pandas"], found["kernels"]) == (0, False, [])
        with filled_adapter.transaction() as t:
            t.insert("a", {"id": 60, "n": 1, "note": "new"})
        found = capture_apart(connector)
        assert (found["events"], found["pandas"]) == (1, False)
        equal(connector, filled_adapter)


def _write_everything(db: Adapter) -> None:
    """A bit of everything, in a dozen items."""
    with db.transaction() as t:
        t.insert("a", {"id": 201, "n": 1})
        t.update("a", {"id": 1}, {"id": 101})
        t.delete("b", {"id": 1})
    db.add_column("a", "more", INT, 3)
    with db.transaction() as t:
        t.update("a", {"id": 201}, {"more": 4})
        t.insert("bag", {"n": 1, "note": "x"})
    db.truncate("b")
    with db.transaction() as t:
        t.insert("b", *({"id": i, "n": i, "note": "x" * 30} for i in range(300, 2000)))
        t.update("bag", {"n": 1}, {"note": "y"})
    db.rename_column("a", "more", "most", INT)
    with db.transaction() as t:
        t.insert("a", {"id": 202, "most": 1})
    db.change_column("a", "most", TEXT)
    with db.transaction() as t:
        t.insert("a", {"id": 203, "most": "1"})
