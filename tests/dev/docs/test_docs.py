"""The documentation is about the code as it is."""

from __future__ import annotations

import enum
import re
import struct
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest
from pydantic import Field

from airflow_provider_cdc.core.config.base_configuration import PropertyEffect
from airflow_provider_cdc.core.config.table_source_config import TableConfig
from airflow_provider_cdc.sources import SOURCES, load_source
from dev import paths, pictures
from dev.properties import DATABASES, PAGE, configs, databases, page
from dev.type_table import NAMES

CODE = (".py", ".toml", ".yml", ".yaml", ".tsx", ".ts")
"""Suffixes of files whose texts may name a page."""
PAGES = sorted([*paths.ROOT.glob("*.md"), *(paths.ROOT / "docs").rglob("*.md"), *(paths.ROOT / "dev").glob("*.md")])


def test_configuration_page_has_every_property_as_it_is() -> None:
    assert PAGE.read_text() == page(PAGE.read_text()), "run: .venv/bin/python -m dev.properties"


def test_page_about_databases_has_every_type_as_it_is() -> None:
    assert DATABASES.read_text() == databases(DATABASES.read_text()), "run: .venv/bin/python -m dev.properties"


def test_page_about_databases_says_how_far_each_is_tried() -> None:
    text = (DATABASES.parent / "databases.md").read_text()
    tried = text.partition("## How far this is tried")[2].partition("\n## ")[0]
    assert [name for name in NAMES.values() if name not in tried] == []
    assert "It is experimental" in text


def test_every_property_says_what_it_is_for() -> None:
    assert [f.alias for config in configs() for f in config.model_fields.values() if not f.description] == []


def test_of_every_switch_a_page_says_what_a_change_does_to_rows_from_before() -> None:
    """Lists and switches that let in more than before are remembered by offsets, or are harmless for a reason."""
    text = (paths.ROOT / "docs" / "fix" / "reading-again.md").read_text()
    table = text[text.index("## What a changed property does") :].split("\n## ")[0]
    rows = [row.split("|")[1:3] for row in table.splitlines() if row.startswith("| `")]
    warned = [name for names, what in rows if "a warning names" in what for name in re.findall(r"`([^`]+)`", names)]
    said = [name for names, _ in rows for name in re.findall(r"`([^`]+)`", names)]
    for config in configs():
        aliases = {str(f.alias): f for f in config.model_fields.values()}
        switches = [
            name
            for name, field in aliases.items()
            if field.annotation in (bool, bool | None)
            or (isinstance(field.annotation, type) and issubclass(field.annotation, enum.Enum))
        ]
        silent = [
            n for n in switches if not n.startswith("snapshot.mode.") and n not in said and not _matches_any(n, warned)
        ]
        assert not silent
        kinds = (PropertyEffect.COLUMNS, PropertyEffect.CHANGES, PropertyEffect.QUERIES)
        remembered = {n for long, d in config.list_capture_properties().items() if d in kinds for n in long.split(", ")}
        assert [n for n in remembered if not _matches_any(n, warned)] == []
        assert [n for n in warned if n in aliases and n not in remembered] == []


def _matches_any(name: str, patterns: list[str]) -> bool:
    return any(name == p or (p.endswith("*") and name.startswith(p[:-1])) for p in patterns)


def test_every_source_has_a_section_with_its_properties(monkeypatch: pytest.MonkeyPatch) -> None:
    """A line in the registry is all that it takes."""
    from airflow_provider_cdc import sources

    monkeypatch.setitem(
        sources.SOURCES, "new", sources.SourceClassPaths(f"{__name__}:_NewSource", f"{__name__}:_NewConfig")
    )
    text = page(PAGE.read_text())
    section = text[text.index("## For `new`") :].split("\n## ")[0]
    assert "| `new.size` | `3` | How large. |" in section
    assert "| `poll.interval.ms` | `7` | How often. |" in section
    assert "topic.prefix" not in section
    assert "| `new.java` | there is no Java here |" in section
    for kind in ("mysql", "mariadb", "memory"):
        assert re.search(rf"^## For .*`{kind}`", text, re.MULTILINE), kind


class _NewConfig(TableConfig):
    new_size: int = Field(3, alias="new.size", description="How large.")
    poll_interval_ms: int = Field(7, alias="poll.interval.ms", description="How often.")
    IGNORED: ClassVar[Mapping[str, str]] = {"new.java": "there is no Java here"}


class _NewSource:
    Config = _NewConfig


@pytest.mark.parametrize("found", PAGES, ids=lambda p: p.name)
def test_links_lead_somewhere(found: Path) -> None:
    for link in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", found.read_text()):
        if not link.startswith(("http://", "https://")):
            assert (found.parent / link).exists(), link


def test_names_of_properties_and_pages_say_include_and_exclude() -> None:
    words = re.compile(r"black.?list|white.?list|\bmaster\b|\bslave", re.IGNORECASE)
    names = {str(f.alias) for kind in SOURCES for f in load_source(kind).Config.model_fields.values()}
    assert {"table.include.list", "table.exclude.list"} <= names
    assert not [n for n in names if words.search(n)]
    # what a server itself calls so is SQL, in code
    code = re.compile(r"```.*?```|`[^`\n]*`", re.DOTALL)
    pages = [paths.ROOT / "README.md", *(paths.ROOT / "docs").rglob("*.md")]
    assert len(pages) > 5
    assert not [(p.name, m[0]) for p in pages for m in words.finditer(code.sub("", p.read_text()))]


def test_pictures_are_those_that_pages_show_and_small() -> None:
    """``dev/docs --screenshots`` takes them."""
    there = {file.name: file.stat().st_size for file in pictures.PICTURES.iterdir()}
    assert pictures.list_shown_pictures() == set(there)
    assert {name: size for name, size in there.items() if size > 100_000} == {}


def test_a_picture_with_a_palette_has_the_same_points() -> None:
    """A picture that has one is read by the browser; here, one of each filter that a browser may have used."""
    draw = np.random.default_rng(1)
    colours = draw.integers(0, 256, (40, 3), dtype=np.uint8)
    points = colours[draw.integers(0, 40, (30, 50))]
    for how in range(5):
        written = pictures.smaller(as_browsers_write(points, how))
        assert len(written) < points.nbytes
        palette = dict(pictures._chunks(written))
        found = np.frombuffer(palette[b"PLTE"], np.uint8).reshape(-1, 3)
        lines = np.frombuffer(zlib.decompress(palette[b"IDAT"]), np.uint8).reshape(30, 51)
        assert (found[lines[:, 1:]] == points).all(), how


def as_browsers_write(points: np.ndarray, how: int) -> bytes:
    """A PNG whose lines have one filter, by its definition."""
    height, width, _ = points.shape
    lines = []
    for y in range(height):
        line = bytearray([how])
        for x in range(width):
            for c in range(3):
                left = int(points[y, x - 1, c]) if x else 0
                up = int(points[y - 1, x, c]) if y else 0
                corner = int(points[y - 1, x - 1, c]) if x and y else 0
                near = min((left, up, corner), key=lambda v: abs(left + up - corner - v))
                line.append((int(points[y, x, c]) - [0, left, up, (left + up) // 2, near][how]) % 256)
        lines.append(bytes(line))
    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    parts = [(b"IHDR", head), (b"IDAT", zlib.compress(b"".join(lines))), (b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(pictures._chunk(*part) for part in parts)


def test_pages_that_the_code_names_exist() -> None:
    named = re.compile(r"\bdocs/[\w/.-]+?\.(?:md|json)\b")
    folders = ("airflow_provider_cdc", "dags", "dev", "spark_jobs", "tests", ".github")
    files = [f for folder in folders for f in (paths.ROOT / folder).rglob("*") if f.suffix in CODE]
    files = [f for f in files if not {"node_modules", ".dev"} & {*f.parts}] + [paths.ROOT / "pyproject.toml"]
    mentions = [(file, page) for file in files for page in named.findall(file.read_text())]
    assert len(mentions) > 30
    assert [(str(file), page) for file, page in mentions if not (paths.ROOT / page).exists()] == []


def test_the_tutorial_on_s3_has_the_example_of_the_readme() -> None:
    """``tests/system/test_readme_on_s3.py`` runs it."""
    program = re.compile(r"^```python\n(.*?)^```$", re.M | re.S)
    readme, tutorial = (paths.ROOT / "README.md").read_text(), (paths.ROOT / "docs/start/tutorial-s3.md").read_text()
    assert program.findall(tutorial) == program.findall(readme)
    assert len(program.findall(readme)) == 1


def test_the_page_about_files_of_definitions_has_every_key() -> None:
    from airflow_provider_cdc.dag.definition_schema import ConnectorPart, DagPart, GroupPart

    text = (paths.ROOT / "docs/platforms/airflow.md").read_text()
    table = text[text.index("| key | meaning |") : text.index("- Durations are seconds")]
    connector, own, group, *_ = ({*re.findall(r"`([\w.]+)`", row)} for row in table.splitlines()[2:])
    keys = {*ConnectorPart.model_fields} - {"group", "default_args"}
    assert keys - connector - own - {*DagPart.model_fields} == set()
    assert group - {"group"} == {*GroupPart.model_fields}


def test_no_table_of_operators_has_a_class_twice() -> None:
    text = (paths.ROOT / "docs/platforms/airflow.md").read_text()
    rows = re.findall(r"^\| `((?:operators|sensors)\.[\w.]+)` \|", text, re.M)
    assert len(rows) == len({*rows})
    assert len(rows) > 15


def test_a_lost_position_is_repaired_by_the_command_first() -> None:
    """The other way, a property of the definition, needs a deployment."""
    for file in (paths.ROOT / "docs/sources").glob("*.md"):
        rows = [row for row in file.read_text().splitlines() if row.startswith("| `PositionLost`")]
        first = [re.search(r"airflow cdc gap|when_needed|snapshot\.mode=always", row.split(" | ")[-1]) for row in rows]
        assert [found[0] for found in first if found and found[0] != "airflow cdc gap"] == [], file.name


def test_the_description_of_the_package_names_every_source_and_kind_of_target() -> None:
    import tomllib

    project = tomllib.loads((paths.ROOT / "pyproject.toml").read_text())["project"]
    words = project["description"].lower()
    missing = [kind for kind in {*SOURCES} - {"memory", "debezium"} if kind not in words]
    assert missing == []
    assert all(word in words for word in ("delta", "iceberg", "databases"))
