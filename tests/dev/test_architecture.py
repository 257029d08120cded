"""Pages about the code name modules, classes and functions that exist."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from dev import paths

DOCS = paths.ROOT / "docs"
ARCHITECTURE, PLACES = DOCS / "architecture.md", DOCS / "contributing" / "where-things-go.md"
ROOTS = {ARCHITECTURE: (paths.ROOT / "airflow_provider_cdc", paths.ROOT), PLACES: (paths.ROOT,)}
"""Page → where its paths begin; the first folder that has a file wins."""
BUILT = "plugins/static/"
"""Made by ``dev/setup``, and not in git."""
WALK = re.compile(r"^\| step \| module and function \| what happens \|\n\| --- \| --- \| --- \|\n((?:\|.*\n)+)", re.M)
NAMED = re.compile(r"`((?:[\w.-]+/)+[\w.-]*|[\w-]+\.py)`(?:\s+`([A-Za-z_][\w.]*)`)?")
"""A path, and the class, method, function or constant that stands directly behind it."""


def walks() -> list[list[list[str]]]:
    """Walks of the architecture page: for each its rows, as cells."""
    tables = WALK.findall(ARCHITECTURE.read_text())
    return [[[cell.strip() for cell in line.strip("|").split(" | ")] for line in t.splitlines()] for t in tables]


STATIONS = [
    pytest.param(file, name, id=f"{file}:{name}")
    for file, name in sorted({found for walk in walks() for row in walk for found in NAMED.findall(row[1])})
]


def test_the_architecture_page_walks_from_a_row_a_snapshot_and_a_verification() -> None:
    first = [walk[0][1] for walk in walks()]
    assert len(first) == 4
    assert ["sources/mysql/log/" in first[0], "plugins/" in first[1], "cli/verify.py" in first[2]] == [True] * 3


def test_steps_of_a_walk_are_numbered_and_each_names_a_module() -> None:
    for walk in walks():
        assert [row[0] for row in walk] == [str(n) for n in range(1, len(walk) + 1)]
        assert [row for row in walk if len(row) != 3 or not NAMED.search(row[1])] == []


@pytest.mark.parametrize(("file", "name"), STATIONS)
def test_a_station_of_a_walk_exists(file: str, name: str) -> None:
    found = resolve(ARCHITECTURE, file)
    assert found is not None
    assert name or file.startswith("spark_jobs/"), "a station names a function"
    assert not name or defines_name(found, name)


@pytest.mark.parametrize("page", [ARCHITECTURE, PLACES], ids=lambda p: p.stem)
def test_paths_and_names_of_a_page_exist(page: Path) -> None:
    missing = []
    for file, name in NAMED.findall(page.read_text()):
        found = resolve(page, file)
        if file != BUILT and (found is None or (name and not defines_name(found, name))):
            missing.append((file, name))
    assert missing == []


def test_a_name_that_no_module_defines_is_found() -> None:
    file = paths.ROOT / "airflow_provider_cdc" / "core" / "errors.py"
    assert defines_name(file, "CdcError")
    assert defines_name(file, "CdcError.__str__")
    assert defines_name(file, "__all__")
    assert not defines_name(file, "CdcError.no_method")
    assert not defines_name(file, "NoError")
    assert resolve(ARCHITECTURE, "core/no_module.py") is None


def resolve(page: Path, name: str) -> Path | None:
    """Resolve a path of a page; ``None`` if nothing is there."""
    return next((root / name for root in ROOTS[page] if (root / name).exists()), None)


def defines_name(file: Path, name: str) -> bool:
    """Check whether a module defines a name, as its syntax tree has it. Of TypeScript, only functions count."""
    if file.suffix == ".py":
        return name in defined_names(file)
    return re.search(rf"\bfunction {re.escape(name)}\b", file.read_text()) is not None


@cache
def defined_names(file: Path) -> frozenset[str]:
    return frozenset(_names(ast.parse(file.read_text()).body))


def _names(body: list[ast.stmt], before: str = "") -> Iterator[str]:
    for node in body:
        match node:
            case ast.ClassDef():
                yield before + node.name
                yield from _names(node.body, f"{before}{node.name}.")
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                yield before + node.name
            case ast.Assign():
                yield from (before + target.id for target in node.targets if isinstance(target, ast.Name))
            case ast.AnnAssign(target=ast.Name(id=target)):
                yield before + target
