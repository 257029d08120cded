"""The command that shows and copies examples; and the wheel, which ships them."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from zipfile import ZipFile

import pytest

import airflow_provider_cdc
from airflow_provider_cdc.services.example_files import find_examples
from dev import paths
from dev.airflow import build_wheel
from tests.cli.conftest import run

DASHBOARD = "grafana/airflow-cdc.json"


def test_examples_are_listed_printed_and_copied(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run("examples")
    names = capsys.readouterr().out.splitlines()
    assert {"dags/inventory.py", "dags/inventory_alerts.py", "dags/inventory_fleet/mariadb.yaml", DASHBOARD} <= set(
        names
    )
    run("examples", DASHBOARD)
    assert capsys.readouterr().out == (paths.ROOT / "docs" / DASHBOARD).read_text()
    run("examples", "--to", str(tmp_path / "all"))
    assert {str(path.relative_to(tmp_path / "all")) for path in (tmp_path / "all").rglob("*.*")} == set(names)
    run("examples", DASHBOARD, "--to", str(tmp_path / "one"))
    assert [path.name for path in (tmp_path / "one").rglob("*.*")] == ["airflow-cdc.json"]


def test_a_file_that_someone_has_changed_is_not_written_over(tmp_path: Path) -> None:
    run("examples", "--to", str(tmp_path))
    (tmp_path / "dags" / "inventory.py").write_text("mine")
    (tmp_path / DASHBOARD).unlink()
    with pytest.raises(SystemExit, match=re.escape(str(tmp_path / "dags" / "inventory.py"))):
        run("examples", "--to", str(tmp_path))
    assert (tmp_path / "dags" / "inventory.py").read_text() == "mine"
    assert not (tmp_path / DASHBOARD).exists()
    with pytest.raises(SystemExit, match=r"nothing\.py is no example"):
        run("examples", "nothing.py")


def test_the_wheel_ships_the_examples_in_the_one_package_that_it_installs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with ZipFile(build_wheel(tmp_path)) as wheel:
        names = wheel.namelist()
        wheel.extractall(tmp_path / "installed")
    top = {name.split("/")[0] for name in names}
    assert {name for name in top if not name.endswith(".dist-info")} == {"airflow_provider_cdc"}
    assert not [name for name in names if "__pycache__" in name]
    tracked = subprocess.run(
        ["git", "ls-files", "dags", "docs/grafana", "spark_jobs"], cwd=paths.ROOT, capture_output=True, text=True, check=True
    ).stdout.split()  # fmt: skip
    shipped = {name.removeprefix("airflow_provider_cdc/") for name in names}
    moved = {name.replace("docs/grafana", "examples/grafana") for name in tracked}
    assert {f"examples/{name}" if name.startswith("dags/") else name for name in moved} <= shipped
    package = tmp_path / "installed" / "airflow_provider_cdc"
    monkeypatch.setattr(airflow_provider_cdc, "__file__", str(package / "__init__.py"))
    found = find_examples()
    assert found[DASHBOARD] == package / "examples" / DASHBOARD
    assert found["dags/inventory_alerts.py"].read_bytes() == (paths.ROOT / "dags" / "inventory_alerts.py").read_bytes()
