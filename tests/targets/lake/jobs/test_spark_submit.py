"""The jobs as Airflow and people start them: ``spark-submit`` with arguments, exit codes and files."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_cdc.core.errors import ConfigError
from airflow_provider_cdc.targets.lake.formats import load_format
from airflow_provider_cdc.targets.lake.formats.owners_and_markers import Marker
from airflow_provider_cdc.targets.lake.jobs import apply_changes
from airflow_provider_cdc.targets.lake.session.spark_session import STORAGE_OPTIONS, open_changelog
from dev import paths
from dev.bootstrap.jars import ensure
from tests.support.connectors import memory_connector
from tests.support.patience import LONGEST_S
from tests.targets.lake.lake import Lake, spark_environment

pytestmark = [pytest.mark.spark, pytest.mark.slow]


def _submit(job: str, kind: str, *arguments: Any) -> subprocess.CompletedProcess[str]:
    submit = Path(sys.executable).with_name("spark-submit")
    command = [
        submit, "--master", "local[2]", "--driver-memory", "1g", "--conf", "spark.ui.enabled=false",
        "--conf", "spark.sql.codegen.wholeStage=false", "--conf", "spark.sql.codegen.factoryMode=NO_CODEGEN",
        "--jars", ",".join(map(str, ensure(kind))), paths.ROOT / "spark_jobs" / f"{job}.py", "--target", kind, *arguments,
    ]  # fmt: skip
    return subprocess.run(
        list(map(str, command)), capture_output=True, text=True, timeout=LONGEST_S, env=spark_environment()
    )


def test_apply_then_verify_with_spark_submit(lake: Lake, tmp_path: Path) -> None:
    db = lake.connector.database
    db.create_table("s.orders", {"id": "int64!", "at": "timestamp[us, tz=UTC]"}, key=("id",))
    with db.transaction() as t:
        t.insert("s.orders", {"id": 1})
    lake.connector.capture()
    reference = memory_connector(db, tmp_path / "now", topic_prefix="p", snapshot_mode="initial_only")
    reference.capture()
    location = f"{tmp_path}/{{connector}}/{{table}}"

    changelog = lake.connector.changelog.storage.root
    done = _submit("apply_changes", lake.kind, "--changelog", changelog, "--connector", "test", "--location", location)
    assert done.returncode == 0, done.stderr[-3000:]
    assert "p.s.orders: 1 events, batches 1 to 1" in done.stdout

    target = load_format(lake.kind).open_target(lake.spark, f"{tmp_path}/test/orders")
    target.append(lake.spark.range(2, 3), Marker(lake.owner("p.s.orders"), 99))
    where = ("--changelog", reference.changelog.storage.root, "--connector", "test", "--location", location)
    done = _submit("verify_tables", lake.kind, *where, "--json", tmp_path / "verified.json")
    assert done.returncode == 1, done.stderr[-3000:]
    assert "surplus: id=2" in done.stdout
    document = json.loads((tmp_path / "verified.json").read_text())
    assert document["equal"] is False
    assert [(t["topic"], t["surplus"], t["missing"]) for t in document["tables"]] == [("p.s.orders", 1, 0)]


@pytest.mark.parametrize("job", ["apply_changes", "verify_tables"])
def test_arguments_that_are_missing_are_named(job: str) -> None:
    command = [sys.executable, str(paths.ROOT / "spark_jobs" / f"{job}.py"), "--connector", "test"]
    done = subprocess.run(command, capture_output=True, text=True, env=spark_environment())
    assert done.returncode == 2
    assert "--changelog, --location" in done.stderr


def test_arguments_that_make_no_sense_are_an_error_and_no_traceback(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = ["--changelog", str(tmp_path), "--connector", "test", "--location", f"{tmp_path}/{{table}}"]
    assert apply_changes.main([*given, "--threads", "0"]) == 2
    assert "connector test: threads: " in capsys.readouterr().err


def test_storage_options_come_from_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(STORAGE_OPTIONS, '{"auto_mkdir": true}')
    assert open_changelog(str(tmp_path)).storage._fs.auto_mkdir is True
    monkeypatch.setenv(STORAGE_OPTIONS, "secret=5")
    with pytest.raises(ConfigError, match="does not hold a JSON object") as failed:
        open_changelog(str(tmp_path))
    assert "secret=5" not in str(failed.value)
