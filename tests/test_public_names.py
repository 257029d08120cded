"""Names and docstrings of the package: the words that must not come back."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from dev import paths

PACKAGE = paths.ROOT / "airflow_provider_cdc"
DENIED_NAMES = {
    "among", "anew", "asked", "at", "behind", "beside", "came", "found", "going", "here", "it", "kept", "look", "looked", "of", "one",
    "ones", "since", "some", "standing", "strange", "take", "taken", "tell", "tells", "that", "there", "thing", "things", "those", "told",
    "took", "unreported", "wanted", "what", "when", "where", "whether", "which", "who", "whose", "without",
}  # fmt: skip
DENIED_FIRST_WORDS = {"As", "How", "Of", "One", "Those", "What", "When", "Where", "Whether", "Which", "Who", "Whose"}
DENIED_WORDS = re.compile(
    r"\b(somebody|nobody|whoever|everybody|anybody|anew|untold|told|tells|goes on|go on|that there is|of its own)\b",
    re.IGNORECASE,
)
DENIED_FIELDS = {
    "anew", "asked", "begun", "found", "goes", "kept", "look", "looked", "made", "nobody", "of", "one", "ones", "somebody", "standing", "stands",
    "take", "taken", "tell", "tells", "thing", "things", "those", "told", "took", "untold", "wanted", "what", "who", "whoever",
}  # fmt: skip
"""Words that are no field, parameter or constant, and no part of one."""
PLAIN_PARTS = {"of", "one", "ones"}
"""Words that may be a part of a name, as in ``part_of_key``."""
FILE_INTERFACE = (" tell",)
"""Methods of files, which Python names."""
MOST_ONE_WORD = 0.15
"""Greatest share of public functions that may have a name of one word."""

Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


def _modules(*folders: Path) -> Iterator[tuple[Path, ast.Module]]:
    """Parse the modules of some folders; of the package if none is given."""
    for folder in folders or (PACKAGE,):
        yield from _parse_folder(folder)


@cache
def _parse_folder(folder: Path) -> list[tuple[Path, ast.Module]]:
    files = [path for path in sorted(folder.rglob("*.py")) if "node_modules" not in path.parts]
    return [(path.relative_to(paths.ROOT), ast.parse(path.read_text())) for path in files]


def _public_definitions(body: list[ast.stmt]) -> Iterator[Definition]:
    """Functions, classes and their methods, without what is inside functions."""
    for statement in body:
        if isinstance(statement, Definition) and not statement.name.startswith("_"):
            yield statement
            if isinstance(statement, ast.ClassDef):
                yield from _public_definitions(statement.body)
        elif isinstance(statement, ast.If | ast.Try):
            yield from _public_definitions(statement.body)


def _public_values(body: list[ast.stmt]) -> Iterator[tuple[int, str]]:
    """Names of constants, fields and parameters, each with its line."""
    for statement in body:
        if isinstance(statement, ast.ClassDef):
            yield from _public_values(statement.body)
        elif isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef):
            if not statement.name.startswith("_") or statement.name in ("__init__", "__call__"):
                arguments = statement.args
                for parameter in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs):
                    yield parameter.lineno, parameter.arg
        elif isinstance(statement, ast.Assign | ast.AnnAssign):
            targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
            names = [node for target in targets for node in ast.walk(target) if isinstance(node, ast.Name)]
            yield from ((node.lineno, node.id) for node in names if not node.id.startswith("_"))
        elif isinstance(statement, ast.If | ast.Try):
            yield from _public_values(statement.body)


def _is_denied(name: str) -> bool:
    words = name.lower().strip("_").split("_")
    return name.lower() in DENIED_FIELDS or not DENIED_FIELDS.isdisjoint(set(words) - PLAIN_PARTS)


@pytest.fixture(scope="module")
def definitions() -> dict[str, Definition]:
    return {
        f"{path}:{one.lineno} {one.name}": one
        for path, module in _modules()
        for one in _public_definitions(module.body)
    }


def test_no_public_function_has_a_denied_name(definitions: dict[str, Definition]) -> None:
    named = {
        place for place, one in definitions.items() if not isinstance(one, ast.ClassDef) and one.name in DENIED_NAMES
    }
    assert {place for place in named if not place.endswith(FILE_INTERFACE)} == set()


def test_no_field_parameter_or_constant_has_a_denied_name() -> None:
    denied = [
        f"{path}:{line} {name}"
        for path, module in _modules(PACKAGE, paths.ROOT / "spark_jobs", paths.ROOT / "dev")
        for line, name in _public_values(module.body)
        if _is_denied(name)
    ]
    assert denied == []


def test_most_public_functions_say_verb_and_object(definitions: dict[str, Definition]) -> None:
    functions = [one.name for one in definitions.values() if not isinstance(one, ast.ClassDef)]
    assert sum("_" not in name for name in functions) / len(functions) < MOST_ONE_WORD


def test_no_docstring_has_a_denied_word() -> None:
    denied = []
    for path, module in _modules(PACKAGE, *(paths.ROOT / folder for folder in ("dev", "spark_jobs", "tests"))):
        for node in ast.walk(module):
            if not isinstance(node, Definition | ast.Module):
                continue
            docstring = ast.get_docstring(node) or ""
            prose = re.sub(r"``[^`]*``|:param [^:]*:|`[^`]*`", "", docstring)
            first = re.split(r"[\s,:]", docstring, maxsplit=1)[0]
            if first in DENIED_FIRST_WORDS or DENIED_WORDS.search(prose):
                denied.append(f"{path}:{getattr(node, 'lineno', 1)} {docstring[:80]!r}")
    assert denied == []


def test_no_text_of_the_development_tools_begins_with_whether() -> None:
    denied = [
        f"{path}:{node.lineno}"
        for path, module in _modules(paths.ROOT / "dev")
        for node in ast.walk(module)
        if isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and str(node.value.value).startswith("Whether ")
    ]
    assert denied == []


def test_no_two_public_classes_of_a_package_have_the_same_name() -> None:
    seen: dict[tuple[Path, str], list[str]] = {}
    for path, module in _modules():
        for one in _public_definitions(module.body):
            if isinstance(one, ast.ClassDef) and one in module.body:
                seen.setdefault((path.parent, one.name), []).append(str(path))
    assert {key: where for key, where in seen.items() if len(where) > 1} == {}
