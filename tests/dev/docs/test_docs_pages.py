"""Pages of errors and operators: each has one, and what the pages say is what the code says."""

from __future__ import annotations

import ast
import builtins
import importlib
import pkgutil
import re
import textwrap
from collections.abc import Iterator

import pytest
from airflow.sdk import BaseOperator, BaseSensorOperator

from airflow_provider_cdc import operators, sensors
from airflow_provider_cdc.cli.command_parser import build_commands
from airflow_provider_cdc.core import errors
from airflow_provider_cdc.get_provider_info import get_provider_info
from dev import paths

DOCS = paths.ROOT / "docs"
ERRORS = sorted({*errors.__all__} - {"CdcError", "TransientError", "TerminalError"})
OTHERS = {
    "AppliesChanges",
    "BrokenDefinitionOperator",
    "SparkJobOperator",
    "StateSensor",
    "SubmitsJob",
    "WaitingSensor",
}
"""What others are made of, and what stands for a definition that cannot be used."""
LITERAL = 10
"""Characters that a beginning must have besides values, to be the message and no other."""
EXAMPLE = re.compile(r"^```\n(\w+): (.*?)$", re.M)


def test_every_error_has_a_page_and_every_page_an_error() -> None:
    assert sorted(p.stem for p in (DOCS / "errors").glob("*.md") if p.stem != "index") == ERRORS


@pytest.mark.parametrize("name", ERRORS)
def test_a_page_of_an_error_says_what_is_safe_and_what_to_do(name: str) -> None:
    text = (DOCS / "errors" / f"{name}.md").read_text()
    assert text.startswith(f"# {name}\n")
    assert "**Safe:**" in text
    assert "**What to do" in text


@pytest.mark.parametrize("name", ERRORS)
def test_the_message_on_a_page_is_one_that_the_code_has(name: str) -> None:
    found = EXAMPLE.search((DOCS / "errors" / f"{name}.md").read_text())
    assert found is not None
    assert found[1] == name
    shown = found[2].removesuffix(" …")
    assert any(re.fullmatch(template, shown) for template in _templates(name)), shown


def test_the_list_of_errors_puts_each_where_it_belongs() -> None:
    retried, final = (DOCS / "errors" / "index.md").read_text().split("## Those that need a person")
    for name in ERRORS:
        transient = issubclass(getattr(errors, name), errors.TransientError)
        assert (f"| [{name}]" in retried, f"| [{name}]" in final) == (transient, not transient), name


def test_every_operator_and_sensor_has_a_page_and_is_known_to_airflow() -> None:
    classes = {kind: _tasks(package) for kind, package in (("operators", operators), ("sensors", sensors))}
    pages = {p.stem for p in (DOCS / "operators").glob("*.md") if p.stem != "index"}
    assert pages == {name for found in classes.values() for name in found}
    for kind, found in classes.items():
        known = {m for one in get_provider_info()[kind] for m in one["python-modules"]}
        assert set(found.values()) == known
        for name, module in found.items():
            assert f"<!-- class {module}.{name} begins -->\n" in (DOCS / "operators" / f"{name}.md").read_text()


def test_commands_that_the_docs_name_are_there() -> None:
    there = {command.name for group in build_commands() for command in group.subcommands}
    for page in (*DOCS.rglob("*.md"), paths.ROOT / "README.md"):
        named = {*re.findall(r"airflow cdc ([a-z][a-z0-9-]*)", page.read_text())}
        assert named <= there, page


def _tasks(package: object) -> dict[str, str]:
    """Public operators and sensors of a package: name → module."""
    found = {}
    for module in pkgutil.iter_modules(package.__path__, f"{package.__name__}."):  # type: ignore[attr-defined]
        for name, one in vars(importlib.import_module(module.name)).items():
            task = isinstance(one, type) and issubclass(one, BaseOperator | BaseSensorOperator)
            if task and one.__module__ == module.name and not name.startswith("_") and name not in OTHERS:
                found[name] = module.name
    return found


def _templates(error: str) -> Iterator[str]:
    """Patterns of the messages with which an error is raised, and of the beginnings of each that end before or behind a value."""
    for file in (paths.ROOT / "airflow_provider_cdc").rglob("*.py"):
        if error in (text := file.read_text()):
            for call in ast.walk(ast.parse(text)):
                if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id == error:
                    yield from _beginnings(call)


def _beginnings(call: ast.Call) -> Iterator[str]:
    for text in (node for argument in call.args[:1] for node in ast.walk(argument)):
        if isinstance(text, ast.Constant):
            yield re.escape(str(text.value).strip())
        elif isinstance(text, ast.JoinedStr):
            parts = [re.escape(str(p.value)) if isinstance(p, ast.Constant) else ".+" for p in text.values]
            beginnings = ("".join(parts[:n]).removesuffix("\\ ") for n in range(1, len(parts) + 1))
            yield from (b for b in beginnings if len(b.replace(".+", "")) >= LITERAL)


def _definitions() -> dict[str, list[ast.ClassDef | ast.FunctionDef]]:
    """Classes and functions of the package, by name."""
    found: dict[str, list[ast.ClassDef | ast.FunctionDef]] = {}
    for file in (paths.ROOT / "airflow_provider_cdc").rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.ClassDef | ast.FunctionDef):
                found.setdefault(node.name, []).append(node)
    return found


def _keywords(definition: ast.ClassDef | ast.FunctionDef) -> set[str] | None:
    """Names of the arguments that it takes; ``None``: any, or those of another class."""
    if isinstance(definition, ast.ClassDef):
        makers = [n for n in definition.body if isinstance(n, ast.FunctionDef) and n.name == "__init__"]
        if not makers:
            fields = {
                n.target.id for n in definition.body if isinstance(n, ast.AnnAssign) and isinstance(n.target, ast.Name)
            }
            return fields if fields and not definition.bases else None
        (definition,) = makers
    arguments = definition.args
    return (
        None if arguments.kwarg else {a.arg for a in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)}
    )


def test_the_python_on_the_pages_calls_and_imports_names_that_the_package_has() -> None:
    definitions, wrong, calls = _definitions(), [], 0
    run = {DOCS / "contributing" / "a-source.md"}  # by test_a_source.py
    for page in {paths.ROOT / "README.md", *DOCS.rglob("*.md")} - run:
        for block in re.findall(r"^ *```python\n(.*?)^ *```$", page.read_text(), re.S | re.M):
            tree = ast.parse(textwrap.dedent(block).replace("…", "..."))
            nodes = list(ast.walk(tree))
            known = {n.id for n in nodes if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)} | {
                *vars(builtins),
                "DAG",
            }
            known |= {n.name for n in nodes if isinstance(n, ast.ClassDef | ast.FunctionDef)}
            for node in nodes:
                if isinstance(node, ast.ImportFrom | ast.Import):
                    known |= {a.asname or a.name for a in node.names}
                if isinstance(node, ast.ImportFrom) and str(node.module).startswith("airflow_provider_cdc"):
                    module = importlib.import_module(str(node.module))
                    wrong += [
                        f"{page.name}: {node.module} has no {a.name}" for a in node.names if not hasattr(module, a.name)
                    ]
                if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                    calls += 1
                    name, given = node.func.id, {k.arg for k in node.keywords if k.arg}
                    if name not in definitions and name not in known:
                        wrong.append(f"{page.name}: {name} does not exist")
                    taken = [_keywords(d) for d in definitions.get(name, [])]
                    if taken and None not in taken and not any(given <= (t or set()) for t in taken):
                        wrong.append(f"{page.name}: {name} does not take {', '.join(sorted(given))}")
    assert wrong == []
    assert calls > 30
