"""Claims of docs/run/security.md: tests that exist hold each of them."""

from __future__ import annotations

import ast
import re

import pytest

from dev import paths

PAGE = paths.ROOT / "docs" / "run" / "security.md"
_TEST = re.compile(r"`(tests/[\w/]+\.py)::(\w+)`")
NAMED = sorted(set(_TEST.findall(PAGE.read_text())))


@pytest.mark.parametrize(("file", "name"), NAMED)
def test_every_test_that_the_page_names_is_there(file: str, name: str) -> None:
    tree = ast.parse((paths.ROOT / file).read_text())
    assert name in {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}


def test_every_claim_names_a_test() -> None:
    claims = []
    head: list[str] = []
    for line in PAGE.read_text().splitlines():
        cells = [cell.strip() for cell in line.strip().strip("|").split(" | ")] if line.startswith("|") else []
        if not cells:
            head = []
        elif not head:
            head = cells
        elif "held by" in head and not line.startswith("| ---"):
            claims.append(line)
            assert _TEST.search(line), line
    assert len(claims) > 25
    assert len(NAMED) > 25
