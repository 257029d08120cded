"""The faults of docs/contributing/known-faults.md: every run of the tests would find each of them again."""

from __future__ import annotations

import ast
import re

import pytest

from dev import paths
from tests.support.pytest_runs import costs

PAGE = paths.ROOT / "docs" / "contributing" / "known-faults.md"
_TEST = re.compile(r"`(tests/[\w/]+\.py)::(\w+)`")
FAULTS = [line for line in PAGE.read_text().splitlines() if line.startswith("| ") and not line.startswith("| ---")][1:]


@pytest.mark.parametrize("fault", FAULTS)
def test_a_test_that_every_run_tries_finds_each_fault(fault: str) -> None:
    found = _TEST.search(fault)
    assert found is not None
    file, name = found.groups()
    tests = {
        node.name: node
        for node in ast.walk(ast.parse((paths.ROOT / file).read_text()))
        if isinstance(node, ast.FunctionDef)
    }
    assert name in tests
    assert f"{file}::{name}" not in costs.costly()
    marks = " ".join(map(ast.unparse, tests[name].decorator_list))
    assert "sampled" not in marks
    assert "long" not in marks
    assert len(FAULTS) >= 20
