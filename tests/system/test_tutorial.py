"""The tutorial's commands, run one after another as they stand in it, against a MariaDB and an Airflow of their own."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from dev import paths
from dev.airflow import Airflow

pytestmark = [pytest.mark.airflow, pytest.mark.slow]

PAGE = paths.ROOT / "docs" / "start" / "tutorial.md"
FENCE = re.compile(r"^```(console|python|sql)\n(.*?)^```$", re.M | re.S)
HERE_ALREADY = re.compile(r"^(python3 -m venv .*|pip install .*)$")
"""What the tests have done: an environment with the provider's wheel is there."""
LOST = "airflow cdc gap shop"
"""The command that ends with 1, as the page says."""

AFTER_THE_END = "terminate called without an active exception\n"
"""What pyarrow's threads may say when a short process ends on a busy machine: everything is printed by then."""


class Reader:
    """Someone who does what the page says.

    :param airflow: with the wheel installed
    """

    def __init__(self, airflow: Airflow, server: Any, home: Path) -> None:
        self.server, self.home = server, home
        kept = {k: v for k, v in airflow.environment.items() if not k.startswith(("AIRFLOW_", "CDC_"))}
        (home / "cdc-tutorial" / "dags").mkdir(parents=True)
        self.environment = {**kept, "HOME": str(home), "SPARK_LOCAL_IP": "127.0.0.1"}
        self.exports: list[str] = []
        self.said: list[tuple[str, str]] = []

    def console(self, text: str) -> None:
        for line in text.splitlines():
            command = line.removeprefix("$ ")
            assert command != line, f"no prompt: {line}"
            if HERE_ALREADY.match(command):
                continue
            command = command.replace("--conn-port 3306", f"--conn-port {self.server.port}")
            if command.startswith("export "):
                self.exports.append(command)
                continue
            self.said.append((command, self.run(command, 1 if command == LOST else 0)))

    def run(self, command: str, status: int) -> str:
        script = "\n".join([*self.exports, command])
        done = subprocess.run(
            ["bash", "-c", script], env=self.environment, cwd=self.home, capture_output=True, text=True
        )
        if done.stderr == AFTER_THE_END and command.startswith("python -c"):
            return done.stdout
        assert done.returncode == status, f"{command} ended with {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    def python(self, text: str) -> None:
        (self.home / "cdc-tutorial" / "dags" / "shop.py").write_text(text)

    def sql(self, text: str) -> None:
        self.server.sql(*filter(None, (statement.strip() for statement in text.split(";"))))

    def output(self, start: str) -> list[str]:
        return [text for command, text in self.said if command.startswith(start)]


def test_who_types_what_the_page_says_gets_what_it_says(airflow: Airflow, mariadb_factory: Any, tmp_path: Path) -> None:
    with mariadb_factory() as server:
        reader = Reader(airflow, server, tmp_path)
        for kind, text in FENCE.findall(PAGE.read_text()):
            getattr(reader, kind)(text)
    first, second = reader.output("airflow cdc events")
    assert first.count('"op":"r"') == 2
    assert [second.count(f'"op":"{op}"') for op in "rcud"] == [2, 1, 2, 1]
    first, second = reader.output("python -c")
    assert [name for name in ("Ann", "Bob", "12.50", "99.00") if name not in first] == []
    assert [name for name in ("Ann", "Eve", "gift", "13.00", "7.25") if name not in second] == []
    assert "Bob" not in second
    (verified,) = reader.output("airflow cdc verify")
    assert "equal" in verified
    (story,) = reader.output("airflow cdc row")
    assert [total for total in ("12.50", "13.00") if total not in story] == []
    looked, planned, repaired = reader.output("airflow cdc gap")
    assert "--repair" in looked
    assert planned != repaired
    (status,) = reader.output("airflow cdc status")
    assert "failed" not in status.lower()
    exported = [export.split()[1].partition("=")[0] for export in reader.exports]
    assert exported == ["AIRFLOW_HOME", "AIRFLOW__CDC__SHOW_ROWS_OF"]
