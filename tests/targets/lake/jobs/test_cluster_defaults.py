"""The promises hold whatever a cluster's ``spark-defaults.conf`` says."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from dev import paths
from tests.targets.lake.lake import spark_environment
from tests.targets.lake.under_defaults import HOSTILE

CORE = (
    "many_changes or by_number or emptied or new_column or wider or exchange_names or another_type_reads or dropped_and_added "
    "or ends_equal"
)
"""Tests of ``test_apply.py``."""


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.long
def test_under_hostile_defaults_the_core_of_the_suite_passes(tmp_path: Path) -> None:
    """In a separate process, since defaults are read when Spark starts."""
    (tmp_path / "spark-defaults.conf").write_text("".join(f"{key} {value}\n" for key, value in HOSTILE.items()))
    suite = [
        "tests/targets/lake/under_defaults.py",
        "tests/targets/lake/apply/test_apply.py",
        "-k",
        f"under_defaults or {CORE}",
    ]
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"--basetemp={tmp_path}/work", *suite]
    environment = {**spark_environment(), "SPARK_CONF_DIR": str(tmp_path)}
    for name in [name for name in os.environ if name.startswith(("PYTEST_", "PYSPARK_GATEWAY"))]:
        environment.pop(name, None)
    done = subprocess.run(command, cwd=paths.ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-8000:]
    passed = int(done.stdout.rsplit(" passed", 1)[0].rsplit(maxsplit=1)[-1])
    assert passed >= 19
