"""The files of a directory that define connectors, each over the defaults of its folder and of those above it.

    >>> [stack.read() for stack in find_definition_files(Path("/dags/fleet"))]
    [{'name': 'shop', 'source': 'mariadb', …}, …]

This module is imported at DAG parse: it must stay light.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from airflow_provider_cdc.dag.definition_parser import (
    DefinitionFileError,
    DefinitionProblem,
    ParsedFile,
    ValuePath,
    read_file,
)

ENDINGS = (".yaml", ".yml", ".json")
"""Endings of the files that define something."""
DEFAULTS = "_defaults"
"""Name, without its ending, of the file with the values of all files in its folder and below."""
ONLY_OF_ONE = ("name", "dag_id")
"""Properties that cannot be the same for all definitions."""


@dataclass(slots=True)
class DefaultsFolder:
    """The defaults that the files of a folder have in common.

    :param names: the files with defaults in it, relative to the directory. More than one is a mistake
    """

    names: list[str]
    paths: list[Path]
    above: DefaultsFolder | None
    _read: list[tuple[str, ParsedFile]] | None = None
    _bad: DefinitionFileError | None = None

    def read_defaults(self) -> list[tuple[str, ParsedFile]]:
        """Defaults, those of the outermost folder first. Each file is read once.

        :raises BadFile: they cannot be used
        """
        if self._bad is not None:
            raise self._bad
        if self._read is None:
            try:
                self._read = self._first_read()
            except DefinitionFileError as e:
                self._bad = e
                raise
        return self._read

    def _first_read(self) -> list[tuple[str, ParsedFile]]:
        layers = [] if self.above is None else list(self.above.read_defaults())
        if len(self.names) > 1:
            raise DefinitionFileError(
                [DefinitionProblem(None, None, f"the folder has two files with defaults: {' and '.join(self.names)}")]
            )
        for name, path in zip(self.names, self.paths, strict=True):
            try:
                read = read_file(path)
            except DefinitionFileError as e:
                raise DefinitionFileError([problem._replace(file=name) for problem in e.problems]) from None
            if wrong := [key for key in ONLY_OF_ONE if key in read.values]:
                text = "cannot be the same for all definitions"
                raise DefinitionFileError(
                    [DefinitionProblem(name, read.lines.get((key,)), f"{key} {text}") for key in wrong]
                )
            layers.append((name, read))
        return layers


@dataclass(slots=True)
class LayeredDefinition:
    """A file that defines something, over those with defaults for it.

    :param name: relative to the directory
    """

    name: str
    path: Path
    folder: DefaultsFolder
    _read: list[tuple[str, ParsedFile]] = field(default_factory=list)

    def merge_values(self) -> dict[str, Any]:
        """Return the values of the file, together with the defaults.

        :raises BadFile: one of them cannot be used
        """
        own = read_file(self.path)
        self._read = [*self.folder.read_defaults(), (self.name, own)]
        values: dict[str, Any] = {}
        for _, read in self._read:
            values = _joined(values, read.values)
        return values

    def locate_problem(self, path: ValuePath, text: str) -> DefinitionProblem:
        """Build a problem with the place of a value.

        The place is that of the nearest value above it, if it is not there itself.
        """
        while path:
            for name, read in reversed(self._read):
                if path in read.lines:
                    return DefinitionProblem(name, read.lines[path], text)
            path = path[:-1]
        return DefinitionProblem(None, None, text)


def _joined(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    both = {
        name: _joined(below[name], above[name])
        for name in below.keys() & above.keys()
        if _mappings(below[name], above[name])
    }
    return {**below, **above, **both}


def _mappings(*values: Any) -> bool:
    return all(isinstance(value, Mapping) for value in values)


def find_definition_files(folder: Path) -> Iterator[LayeredDefinition]:
    """Find the files in a directory and below that define something, in a fixed order.

    Hidden files (``.git``, ``..data``) are left out.

    :raises OSError: the directory cannot be listed
    """
    yield from _files(folder, folder, None, set())


def _files(top: Path, folder: Path, above: DefaultsFolder | None, visited: set[Path]) -> Iterator[LayeredDefinition]:
    inside = sorted(path for path in folder.iterdir() if not path.name.startswith("."))
    named = [path for path in inside if path.suffix.lower() in ENDINGS and not _is_folder(path)]
    defaults = [path for path in named if path.stem == DEFAULTS]
    here = DefaultsFolder([_name(top, path) for path in defaults], defaults, above)
    yield from (LayeredDefinition(_name(top, path), path, here) for path in named if path not in defaults)
    for path in inside:
        if _is_folder(path) and (real := path.resolve()) not in visited | {folder.resolve()}:
            try:
                definitions = list(_files(top, path, here, visited | {folder.resolve(), real}))
            except OSError:
                # to be reported as a file that cannot be read
                definitions = [LayeredDefinition(_name(top, path), path, here)]
            yield from definitions


def _name(top: Path, path: Path) -> str:
    return f"{top.name}/{path.relative_to(top)}"


def _is_folder(path: Path) -> bool:
    try:
        return path.is_dir()
    except OSError:
        return False  # reported when it is read
