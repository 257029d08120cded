"""A session that gets warm before it takes over."""

from __future__ import annotations

import logging
import subprocess
import sys
import tempfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from airflow_provider_cdc.targets.lake.jobs import session_warmup
from airflow_provider_cdc.targets.lake.jobs.apply_changes import ApplyChanges
from airflow_provider_cdc.targets.lake.jobs.session_warmup import rehearse_apply
from tests.targets.lake.lake import Lake

pytestmark = pytest.mark.spark


@pytest.mark.every_kind
def test_it_applies_all_kinds_of_events_to_a_table_that_is_gone_afterwards(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    monkeypatch.setattr(session_warmup, "ROUNDS", 2)
    made: list[ApplyChanges] = []
    found: list[Any] = []

    def job(changelog: Any, connector: str, location: str) -> ApplyChanges:
        made.append(ApplyChanges(lake.spark, changelog, connector, location=location, target=lake.kind, threads=1))
        run = made[0].run

        def run_and_record() -> Any:
            report = run()
            found.append((report.tables[0].rows, made[0]._open(report.tables[0].location).read_rows().count()))
            return report

        monkeypatch.setattr(made[0], "run", run_and_record)
        return made[0]

    rehearse_apply(job)
    assert found == [({"r": 200}, 200), ({"c": 50, "u": 100, "d": 50}, 200)]
    assert "The session warm-up took" in caplog.text
    assert not any(record.levelno >= logging.ERROR for record in caplog.records)
    (place,) = {str(one._location) for one in made}
    assert not Path(place).parent.parent.exists()


def test_what_a_killed_one_has_left_is_deleted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    code = "from airflow_provider_cdc.core.process_liveness import this_process as p; print(p())"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip()
    (left := tmp_path / "cdc-scratch-left").mkdir()
    (left / "alive.json").write_text(ended)

    def job(changelog: Any, *_: Any) -> Any:
        assert str(tmp_path) in changelog.storage.url
        return SimpleNamespace(run=lambda: None)

    rehearse_apply(job)
    assert not list(tmp_path.iterdir())


def test_one_that_fails_costs_time_and_nothing_else(caplog: pytest.LogCaptureFixture) -> None:
    def job(*_: Any) -> ApplyChanges:
        raise OSError("no space left")

    rehearse_apply(job)
    assert "no space left" in caplog.text


def test_a_look_at_the_tables_changes_nothing(lake: Lake) -> None:
    lake.connector.database.create_table("s.t", {"id": "int64!"}, key=("id",))
    with lake.connector.database.transaction() as t:
        t.insert("s.t", {"id": 1})
    lake.follow()
    before = sorted((str(f), f.stat().st_mtime_ns) for f in lake.folder.rglob("*") if f.is_file())
    lake.job().preload_table_states()
    assert sorted((str(f), f.stat().st_mtime_ns) for f in lake.folder.rglob("*") if f.is_file()) == before
