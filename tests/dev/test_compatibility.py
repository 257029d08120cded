"""What is said to be met names tests that there are."""

from __future__ import annotations

import subprocess
import sys
import tomllib

from dev import paths

FOLDER = paths.ROOT / "tests" / "compatibility"


def test_each_requirement_that_is_met_names_tests_that_can_be_run() -> None:
    named: dict[str, list[str]] = {}
    for file in sorted(FOLDER.glob("*.toml")):
        for requirement, test in tomllib.loads(file.read_text())["done"].items():
            named.setdefault(test, []).append(requirement)
    command = [sys.executable, "-m", "pytest", "-q", "--collect-only", "-p", "no:cacheprovider", "tests"]
    found = subprocess.run(command, cwd=paths.ROOT, capture_output=True, text=True, check=True).stdout.splitlines()
    there = {line.partition("[")[0] for line in found} | {line.partition("::")[0] for line in found}
    assert {test: ids for test, ids in named.items() if test not in there} == {}
