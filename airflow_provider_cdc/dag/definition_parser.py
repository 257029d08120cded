"""Reads a file of YAML or JSON that holds one mapping, and knows the line of each value in it.

    >>> read_file(Path("/dags/fleet/shop.yaml")).values
    {'name': 'shop', 'source': 'mariadb', …}

YAML is read without its timestamps: ``2025-01-31`` is a text, as it is in JSON. This module is imported at DAG parse: it must stay light.
"""

from __future__ import annotations

import json
import math
import stat
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

MOST_BYTES = 256 * 1024
"""The size of a file that no one writes by hand."""
MOST_LEVELS = 32
"""How deep values may be below each other."""
MOST_VALUES = 20_000
"""How many there may be, each counted as often as YAML refers to it: a few lines can refer to billions."""
_LONGEST = 2**63 - 1
_TEXT, _MERGE, _TIMESTAMP = (f"tag:yaml.org,2002:{name}" for name in ("str", "merge", "timestamp"))

type_names: Mapping[type, str] = {
    dict: "a mapping", list: "a list", str: "a string", bool: "true or false", int: "a number", float: "a number", type(None): "nothing"
}  # fmt: skip
"""Types of values, as people who write files call them."""

ValuePath = tuple[str | int, ...]
"""Where a value is: keys and, in lists, numbers from zero."""


class DefinitionProblem(NamedTuple):
    """A mistake in a file.

    :param file: where, if that is another file than the one it is reported for
    :param line: counted from one
    """

    file: str | None
    line: int | None
    text: str

    def format_problem(self, name: str) -> str:
        """Format the problem with its place.

        :param name: the file that it is reported for
        """
        place = [self.file] if self.file not in (None, name) else []
        place += [f"line {self.line}"] if self.line is not None else []
        return f"{', '.join(map(str, place))}: {self.text}" if place else self.text


class DefinitionFileError(Exception):
    """A file that cannot be used."""

    def __init__(self, problems: Sequence[DefinitionProblem]) -> None:
        super().__init__(problems)
        self.problems = problems


@dataclass(frozen=True, slots=True)
class ParsedFile:
    """The contents of a file.

    :param lines: where values are, counted from one
    """

    values: dict[str, Any]
    lines: Mapping[ValuePath, int] = field(default_factory=dict)


def read_file(path: Path) -> ParsedFile:
    """Read a file that holds one mapping.

    :raises BadFile: it cannot be read, or does not hold one
    """
    try:
        return _read(path)
    except OSError as e:
        raise DefinitionFileError([DefinitionProblem(None, None, f"the file cannot be read: {e.strerror or e}")]) from e
    except RecursionError:
        raise DefinitionFileError([DefinitionProblem(None, None, "values are nested too deeply")]) from None


def _read(path: Path) -> ParsedFile:
    about = path.stat()
    if stat.S_ISDIR(about.st_mode):
        list(path.iterdir())
    if not stat.S_ISREG(about.st_mode):
        raise DefinitionFileError([DefinitionProblem(None, None, "it is not a regular file")])
    if about.st_size > MOST_BYTES:
        raise DefinitionFileError(
            [
                DefinitionProblem(
                    None, None, f"it has {about.st_size:,} bytes, but a definition may have at most {MOST_BYTES:,}"
                )
            ]
        )
    text = _decoded(path.read_bytes())
    if not text.strip():
        raise DefinitionFileError([DefinitionProblem(None, None, "the file is empty")])
    parsed = _from_json(text) if path.suffix.lower() == ".json" else _from_yaml(text)
    if parsed.values is None:
        raise DefinitionFileError([DefinitionProblem(None, None, "the file is empty")])
    if not isinstance(parsed.values, dict):
        raise DefinitionFileError(
            [
                DefinitionProblem(
                    None, 1, f"it contains {_called(parsed.values)} instead of a mapping: name: …, source: …"
                )
            ]
        )
    if problems := [DefinitionProblem(None, parsed.lines.get(where), text) for where, text in _unfit(parsed.values)]:
        raise DefinitionFileError(problems)
    return parsed


def _decoded(content: bytes) -> str:
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as e:
        line = content.count(b"\n", 0, e.start) + 1
        raise DefinitionFileError(
            [DefinitionProblem(None, line, f"the file is not UTF-8 (byte 0x{content[e.start]:02x})")]
        ) from None


def _from_json(text: str) -> ParsedFile:
    try:
        values = json.loads(text, object_pairs_hook=_once, parse_constant=_no_number)
    except json.JSONDecodeError as e:
        raise DefinitionFileError(
            [DefinitionProblem(None, e.lineno, f"it is not JSON: {e.msg}, column {e.colno}")]
        ) from None
    except _InvalidValue as e:
        raise DefinitionFileError([DefinitionProblem(None, None, str(e))]) from None
    return ParsedFile(values, _lines_of_json(text))


class _InvalidValue(ValueError):
    pass


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    mapping: dict[str, Any] = {}
    for key, value in pairs:
        if key in mapping:
            raise _InvalidValue(f"{key!r} occurs twice")
        mapping[key] = value
    return mapping


def _no_number(text: str) -> Any:
    raise _InvalidValue(f"{text} is not a valid number")


def _lines_of_json(text: str) -> dict[ValuePath, int]:
    """Find the places of values by a reader of YAML, which knows lines and nearly all JSON.

    The result is empty if the reader does not know this JSON.
    """
    import yaml  # type: ignore[import-untyped]

    try:
        _refuse_depths(text)
        return _lines(_loader()(text).get_single_node())
    except (yaml.YAMLError, DefinitionFileError):
        return {}


def _from_yaml(text: str) -> ParsedFile:
    import yaml

    try:
        _refuse_depths(text)
        loader = _loader()(text)
        node = loader.get_single_node()
        if node is None:
            return ParsedFile(None)  # type: ignore[arg-type]
        if problems := list(_wrong_keys(node)):
            raise DefinitionFileError(problems)
        return ParsedFile(loader.construct_document(node), _lines(node))
    except yaml.MarkedYAMLError as e:
        mark = e.problem_mark or e.context_mark
        problem = ", ".join(part for part in (e.context, e.problem) if part)
        raise DefinitionFileError(
            [DefinitionProblem(None, mark and mark.line + 1, f"it is not YAML: {problem}")]
        ) from None
    except yaml.YAMLError as e:
        raise DefinitionFileError(
            [DefinitionProblem(None, None, f"it is not YAML: {getattr(e, 'reason', e)}")]
        ) from None
    except ValueError:
        # the message has the value, which may be a secret
        raise DefinitionFileError(
            [DefinitionProblem(None, None, "it is not YAML: a value does not match its tag")]
        ) from None


def _refuse_depths(text: str) -> None:
    """Reject values that are too deep below each other, by a look at their beginnings and ends only.

    The reader of whole values ends the process with a segmentation fault, if there are tens of thousands of them below each other.
    """
    import yaml

    level = 0
    for event in yaml.parse(text, _loader()):
        if isinstance(event, yaml.CollectionStartEvent):
            level += 1
        elif isinstance(event, yaml.CollectionEndEvent):
            level -= 1
        if level > MOST_LEVELS:
            raise DefinitionFileError(
                [DefinitionProblem(None, event.start_mark.line + 1, "values are nested too deeply")]
            )


@cache
def _loader() -> Any:
    """Return the reader of YAML.

    It builds the types that JSON has, except for tagged values.
    """
    import yaml

    class Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
        yaml_implicit_resolvers = {
            first: [resolver for resolver in resolvers if resolver[0] != _TIMESTAMP]
            for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
        }

    return Loader


def _wrong_keys(document: Any) -> Iterator[DefinitionProblem]:
    """Find keys that occur twice, which the reader accepts silently, and keys that are no texts."""
    for _, node in _nodes(document):
        if node.id != "mapping":
            continue
        first_lines: dict[str, int] = {}
        for key, _ in node.value:
            line = key.start_mark.line + 1
            if key.id != "scalar":
                yield DefinitionProblem(
                    None, line, f"a key cannot be {key.id}: put strings that begin with {{{{ into quotes"
                )
            elif key.tag not in (_TEXT, _MERGE):
                yield DefinitionProblem(None, line, f"the key {key.value} is not a string: put it into quotes")
            elif key.value in first_lines and key.tag == _TEXT:
                yield DefinitionProblem(
                    None, line, f"{key.value!r} occurs twice, first in line {first_lines[key.value]}"
                )
            else:
                first_lines[key.value] = line


def _lines(document: Any) -> dict[ValuePath, int]:
    lines: dict[ValuePath, int] = {}
    for path, node in _nodes(document):
        if node.id == "mapping":
            lines |= {(*path, key.value): key.start_mark.line + 1 for key, _ in node.value if key.id == "scalar"}
        elif node.id == "sequence":
            lines |= {(*path, number): item.start_mark.line + 1 for number, item in enumerate(node.value)}
    return lines


def _nodes(document: Any) -> Iterator[tuple[ValuePath, Any]]:
    """Return lists and mappings of a document with their paths, each once, however often it is referred to."""
    visited = {id(document)}
    waiting: list[tuple[ValuePath, Any]] = [((), document)]
    while waiting:
        path, node = waiting.pop()
        yield path, node
        inside: list[tuple[Any, Any]] = []
        if node.id == "mapping":
            inside = [(key.value, value) for key, value in node.value if key.id == "scalar"]
        elif node.id == "sequence":
            inside = list(enumerate(node.value))
        for name, value in inside:
            if value.id != "scalar" and id(value) not in visited:
                visited.add(id(value))
                waiting.append(((*path, name), value))


def _unfit(document: Mapping[str, Any]) -> Iterator[tuple[ValuePath, str]]:
    """Find values that neither JSON nor Airflow's database can keep: they would break the DAGs of the other files too."""
    waiting: list[tuple[ValuePath, Any]] = [((), document)]
    count = 0
    while waiting:
        path, value = waiting.pop()
        count += 1
        if len(path) > MOST_LEVELS:
            yield path[:1], "values are nested too deeply"
            return
        if count > MOST_VALUES:
            yield path[:1], f"it has more than {MOST_VALUES:,} values"
            return
        if isinstance(value, Mapping):
            if not all(map(_storable, value)):
                yield path, f"{_shown(path)}a key has a character that cannot be stored"
            waiting += [((*path, key), item) for key, item in value.items()]
        elif isinstance(value, list):
            waiting += [((*path, number), item) for number, item in enumerate(value)]
        elif wrong := _wrong(value):
            yield path, _shown(path) + wrong


def _wrong(value: Any) -> str | None:
    """Return why a value that holds no others cannot be used."""
    if isinstance(value, str):
        return None if _storable(value) else "the string has a character that cannot be stored"
    if type(value) not in type_names:
        return f"a {type(value).__name__} cannot be used"
    if isinstance(value, float) and not math.isfinite(value):
        return f"{value} is not a valid number"
    if isinstance(value, int) and abs(value) > _LONGEST:
        return "the number is too large"
    return None


def _shown(path: ValuePath) -> str:
    return f"{'.'.join(map(str, path))}: " if path else ""


def _storable(text: str) -> bool:
    return "\0" not in text and not any("\ud800" <= letter <= "\udfff" for letter in text)


def _called(value: Any) -> str:
    return type_names.get(type(value), f"a {type(value).__name__}")
