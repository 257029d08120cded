"""Commands that texts of the package and the docs name: each is one that the command line takes."""

from __future__ import annotations

import argparse
import ast
import functools
import importlib
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from airflow_provider_cdc.core import errors
from airflow_provider_cdc.core.remedy_commands import format_cdc_command
from dev import paths
from tests.support.airflow.command_line import parser

PACKAGES = ("airflow_provider_cdc", "dags")
NASTY = "-CONNECTOR 'a\"b` $(x) ${y} \\ <n>\nat éø"
"""A name that nothing but quotes brings through a shell; the number of each distinguishes them."""
MENTION = re.compile(r"airflow cdc\b((?: [a-z][a-z0-9-]*)*)([^`\n]*)")
VALUE = "\0"
"""Stands for a value in the text of an f-string."""
PLACEHOLDER = re.compile(r"\b(CONNECTOR|NAME|TABLE)\b|<[a-z ]+>")


class Call(NamedTuple):
    """A call of ``format_cdc_command`` or ``name_cdc_command`` in the code."""

    module: str
    line: int
    call: ast.Call


@functools.cache
def sources(*, everything: bool = False) -> list[tuple[Path, ast.Module]]:
    """The files of the code; of the packages, those that may name a command, or all that raise errors."""
    files = (file for package in PACKAGES for file in sorted((paths.ROOT / package).rglob("*.py")))
    texts = ((file, file.read_text()) for file in files if "node_modules" not in file.parts)
    return [
        (file, ast.parse(text))
        for file, text in texts
        if "airflow " in text or "_cdc_command(" in text or (everything and "core.errors" in text)
    ]


@functools.cache
def calls(function: str = "format_cdc_command") -> list[Call]:
    found = []
    for file, tree in sources():
        module = ".".join(file.relative_to(paths.ROOT).with_suffix("").parts)
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == function:
                found.append(Call(module, node.lineno, node))
    return found


class LenientParser:
    """Takes values that only a run knows, whatever type or choices an argument has."""

    def __init__(self, action: argparse.Action, unknown: set[str]) -> None:
        self.unknown = unknown
        self.kind: Any = action.type or str
        self.choices = action.choices

    def __call__(self, text: str) -> Any:
        if text in self.unknown:
            return text
        value = self.kind(text)
        if self.choices is not None and value not in self.choices:
            raise ValueError(text)
        return value


def find_parser(
    words: list[str], made: argparse.ArgumentParser | None = None
) -> tuple[argparse.ArgumentParser, list[str]]:
    """Find the parser of the command that words begin with, and the words that are left.

    :param made: the parser of all commands, if there is one
    """
    made = made or parser()
    while words:
        group = next((a for a in made._actions if isinstance(a, argparse._SubParsersAction)), None)
        if group is None or words[0] not in group.choices:
            break
        made, words = group.choices[words[0]], words[1:]
    return made, words


def parse_words(words: list[str], unknown: set[str]) -> argparse.Namespace:
    """Parse words, of which some are values that only a run knows.

    :raises SystemExit: they are no command
    """
    command, rest = find_parser(words)
    assert command.get_default("func") is not None, f"there is no command {' '.join(words)}"
    for action in command._actions:
        if action.nargs != 0:
            action.type, action.choices = LenientParser(action, unknown), None
    return command.parse_args(rest)


def command_of(one: Call) -> str:
    """The words of the command, which may be written with constants of the module."""
    expression = ast.Expression(one.call.args[0])
    return str(eval(compile(expression, one.module, "eval"), vars(importlib.import_module(one.module))))


def call_arguments(one: Call) -> tuple[list[str], dict[str, Any]]:
    """Names and options with which the command is made: those that the code writes out, and nasty ones where a run knows them."""
    names: list[str] = []
    for node in one.call.args[1:]:
        if isinstance(node, ast.Constant):
            names.append(str(node.value))
        else:
            names += [f"{NASTY}{len(names)}-{i}" for i in range(2 if isinstance(node, ast.Starred) else 1)]
    options: dict[str, Any] = {}
    for keyword in one.call.keywords:
        assert keyword.arg is not None
        constant = isinstance(keyword.value, ast.Constant)
        options[keyword.arg] = keyword.value.value if constant else f"{NASTY}{keyword.arg}"  # type: ignore[attr-defined]
    return names, options


def test_there_are_calls() -> None:
    assert len(calls()) > 40


@pytest.mark.parametrize("one", calls(), ids=lambda one: f"{one.module}:{one.line}")
def test_a_command_that_the_code_makes_is_one_that_the_command_line_takes(one: Call) -> None:
    names, options = call_arguments(one)
    command = command_of(one)
    program, group, *words = shlex.split(format_cdc_command(command, *names, **options))
    assert (program, group) == ("airflow", "cdc")
    unknown = {str(value) for value in (*names, *options.values()) if NASTY in str(value)}
    read = vars(parse_words(words, unknown))
    for name, value in options.items():
        assert read[name] in (value, [value])  # of options that may be repeated, a list
    own, _ = find_parser(command.split())
    positional = [action.dest for action in own._actions if not action.option_strings]
    taken = [v for dest in positional for v in (read[dest] if isinstance(read[dest], list) else [read[dest]])]
    assert [v for v in taken if v is not None] == names
    if "connector" in positional and command not in ("offsets", "metrics", "check"):
        assert read["connector"] == names[positional.index("connector")]


def test_a_command_that_the_code_names_is_there() -> None:
    named = {command_of(one) for one in calls("name_cdc_command") if not one.module.endswith("remedy_commands")}
    assert {"verify", "offset set"} <= named
    assert [command for command in named if find_parser(command.split())[1]] == []


def test_the_code_writes_no_command_with_names_or_options_by_hand() -> None:
    wrong = [f"{file}:{line}: {text}" for file, line, text in _list_mentions() if not _is_bare(text)]
    assert not wrong, "\n".join(wrong)


def test_no_command_of_a_remedy_has_a_placeholder() -> None:
    wrong = []
    for file, tree in sources():
        for node in ast.walk(tree):
            for keyword in node.keywords if isinstance(node, ast.Call) else ():
                if (
                    keyword.arg == "remedy"
                    and "airflow " in (text := _text(keyword.value))
                    and PLACEHOLDER.search(text)
                ):
                    wrong.append(f"{file}:{node.lineno}: {text}")
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize(
    "page", [*sorted((paths.ROOT / "docs").rglob("*.md")), paths.ROOT / "README.md"], ids=lambda page: page.stem
)
def test_commands_in_the_docs_are_taken_with_all_that_they_have(page: Path) -> None:
    text = page.read_text().replace("\\\n", " ")
    for found in re.finditer(r"airflow cdc ([^`\n]*)", text):
        fenced = text.rfind("\n", 0, found.start()) + 1
        _parse_command_text(found[1], whole=text[fenced : found.start()] in ("", "$ "))


def test_an_error_that_needs_a_person_says_what_is_safe_and_what_to_do() -> None:
    names = {name for name in errors.__all__ if issubclass(getattr(errors, name), errors.TerminalError)}
    names -= {"TerminalError", "ConfigError"}  # of a property, what is wrong is what to do
    wrong = []
    for file, tree in sources(everything=True):
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in names:
                text = {keyword.arg for keyword in node.keywords}
                if None not in text and not text >= {"safe", "remedy"}:
                    wrong.append(f"{file}:{node.lineno}")
    assert not wrong, "\n".join(wrong)


def test_commands_in_the_pages_are_there() -> None:
    for file in (paths.ROOT / "airflow_provider_cdc" / "plugins" / "ui" / "src").rglob("*.ts*"):
        for found in re.finditer(r"airflow cdc ([a-z][^`\n\")]*)", file.read_text()):
            _parse_command_text(re.sub(r"\$\{[^}]*\}", "x", found[1]), whole=False)


def _parse_command_text(text: str, *, whole: bool) -> None:
    """Parse what stands behind ``airflow cdc`` in a text, as far as it is written out.

    :param whole: it is to be typed as it is
    """
    optional = re.findall(r"\[([^\]]*)\]", text)
    text = re.sub(r"\[[^\]]*\]", "", text)
    lexer = shlex.shlex(text if whole else text.rstrip(".,;:) |"), posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    words = []
    for word in lexer:
        if not set(word) - set("|<>&;()"):
            break
        words.append(word)
    command, rest = find_parser([word.rstrip(".,") for word in words] if not whole else words)
    path = len(words) - len(rest)
    assert path, text
    if rest and not rest[0].startswith("-"):
        assert command.get_default("func") is not None, f"there is no command {text}"
    options = [word.partition("=")[0] for word in (*rest, *" ".join(optional).split()) if word.startswith("--")]
    for option in options:
        assert option in command._option_string_actions, f"{text}: {option}"
    if whole or (rest and not rest[0].startswith("-") and "…" not in text):
        command.parse_args(rest)


def _list_mentions() -> Iterator[tuple[Path, int, str]]:
    """Texts of the code that name a command, but for docstrings."""
    for file, tree in sources():
        docs = {id(n.value) for n in ast.walk(tree) if isinstance(n, ast.Expr)}
        inner = {id(v) for n in ast.walk(tree) if isinstance(n, ast.JoinedStr) for v in n.values}
        for node in ast.walk(tree):
            if (
                isinstance(node, (ast.Constant, ast.JoinedStr))
                and id(node) not in docs | inner
                and "airflow cdc" in (text := _text(node))
            ):
                yield file, node.lineno, text


def _text(node: ast.AST) -> str:
    """The text of an expression, with :data:`VALUE` for each value in it."""
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) else ""
    if isinstance(node, ast.JoinedStr):
        return "".join(_text(part) for part in node.values)
    return VALUE


def _is_bare(text: str) -> bool:
    """Check whether every command in a text stands there without names and options."""
    for found in MENTION.finditer(text):
        words, rest = found[1].split(), found[2]
        command, left = find_parser(words)
        named = len(words) - len(left)
        if not named and ((not words and not rest.strip()) or words[:1] == ["on"]):
            continue  # the group as such; who someone is
        if not named or (left and command.get_default("func") is None):
            return False
        option = re.match(rf" (--[a-z-]+)(?!.?{VALUE})", rest)
        if (
            not left
            and re.match(rf" ?(--|<|{VALUE}|[A-Z])", rest)
            and not (option and option[1] in command._option_string_actions)
        ):
            return False
    return True
