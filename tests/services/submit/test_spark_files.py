"""The files of Spark jobs at a URI: a job that has nothing else starts."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from airflow_provider_cdc.cli.setup import copy_spark_files
from airflow_provider_cdc.services.submit.spark_files import build_wheel, wheel_name


def test_scripts_and_package_are_written_and_a_script_runs_with_them_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    copy_spark_files(argparse.Namespace(to=f"{tmp_path}/files", storage_conn_id=None, verbose=False))
    names = {path.name for path in (tmp_path / "files").iterdir()}
    assert names >= {"apply_changes.py", "maintain_tables.py", "airflow_provider_cdc.zip", wheel_name()}
    assert f"file://{tmp_path}/files/apply_changes.py" in capsys.readouterr().out.split()
    program = "import sys, runpy; sys.path.insert(0, sys.argv[1]); sys.argv = sys.argv[2:]; runpy.run_path(sys.argv[0], run_name='__main__')"
    arguments = [f"{tmp_path}/files/airflow_provider_cdc.zip", f"{tmp_path}/files/apply_changes.py", "--help"]
    environment = {**os.environ, "PYTHONPATH": ""}
    done = subprocess.run(
        [sys.executable, "-c", program, *arguments], env=environment, cwd=tmp_path, capture_output=True, text=True
    )
    assert "--changelog" in done.stdout, done.stderr


def test_the_wheel_has_the_package_and_its_metadata_and_is_always_the_same(tmp_path: Path) -> None:
    (tmp_path / "x.whl").write_bytes(build_wheel())
    with zipfile.ZipFile(tmp_path / "x.whl") as wheel:
        names = wheel.namelist()
        assert wheel.testzip() is None
    assert "airflow_provider_cdc/targets/lake/jobs/apply_changes.py" in names
    assert any(name.endswith(".dist-info/METADATA") for name in names)
    assert not [name for name in names if "/plugins/" in name or "__pycache__" in name]
    assert build_wheel() == build_wheel()
