"""The account of what is met, by which test, is true as far as a program can tell: ``dev/ledger``."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

import pytest
from pydantic import Field

from airflow_provider_cdc import sources
from airflow_provider_cdc.core.config.table_source_config import TableConfig
from dev import compatibility, paths
from dev.compatibility import (
    Entry,
    entries,
    find_repeated,
    ids,
    requirement_texts,
    without_text,
    wrong_properties,
    wrong_tests,
)


def test_each_requirement_that_is_met_names_one_test_that_can_be_run(every_test: set[str]) -> None:
    assert list(wrong_tests(entries(), every_test)) == []


def test_who_opens_the_file_of_a_named_test_finds_it_there() -> None:
    """A test inherited from a shared suite stands elsewhere, and breaks for other sources, too."""
    done = [entry for entry in entries() if entry.section == "done"]
    texts = {file: (paths.ROOT / file).read_text() for file in {entry.text.partition("::")[0] for entry in done}}
    assert len(texts) > 100
    for entry in done:
        file, _, test = entry.text.partition("::")
        assert f"def {test.rpartition('::')[2]}(" in texts[file], entry


def test_no_requirement_stands_twice() -> None:
    assert list(find_repeated(entries())) == []


def test_each_requirement_has_a_text_and_each_text_is_in_the_account() -> None:
    texts = requirement_texts()
    assert list(without_text(entries(), texts)) == []
    assert len(texts) > 2000
    assert [id_ for id_, text in texts.items() if len(text) < 8] == []
    assert list(without_text([Entry("X-1", "done", "t")], {"X-2": "It works."})) == [
        "X-1 has no text in requirements.tsv", "nothing is said of X-2: It works."
    ]  # fmt: skip


def test_code_documentation_and_account_say_the_same_of_each_documented_property() -> None:
    assert list(wrong_properties(entries())) == []


def test_every_documented_property_is_in_the_account() -> None:
    documented = tomllib.loads(compatibility.PROPERTIES.read_text())
    assert len(documented["mysql"]) > 110
    assert len(documented["oracle"]) > 100
    assert len(documented["around"]["names"]) > 40


# the checks themselves


def test_a_range_is_each_of_its_requirements() -> None:
    assert ids("MY-098..MY-101") == ["MY-098", "MY-099", "MY-100", "MY-101"]
    assert ids("DB2-007") == ["DB2-007"]


def test_a_file_and_a_test_that_is_not_there_are_reported() -> None:
    statements = [
        Entry("X-001", "done", "tests/a.py"),
        Entry("X-002", "done", "tests/a.py::test_b"),
        Entry("X-003", "done", "tests/a.py::test_c"),
        Entry("X-004", "different", "tests/a.py"),
    ]
    wrong_entries = list(wrong_tests(statements, {"tests/a.py::test_b"}))
    assert [line.partition(":")[0] for line in wrong_entries] == ["X-001", "X-003"]
    assert "whole file" in wrong_entries[0]
    assert list(find_repeated([*statements, statements[0]])) == ["X-001 stands twice"]


class _Config(TableConfig):
    size: int = Field(3, alias="shop.size", description="How large.")
    IGNORED: ClassVar[Mapping[str, str]] = {"shop.java": "there is no Java here"}
    NOT_SUPPORTED: ClassVar[Mapping[str, str]] = {"shop.kafka.*": "there is no Kafka here"}


class _Source:
    Config = _Config


_KIND = sources.SourceClassPaths(f"{__name__}:_Source", f"{__name__}:_Config")


@pytest.mark.parametrize(
    ("name", "section", "text", "message"),
    [
        ("shop.size", "done", "tests/a.py::test_b", ""),
        ("shop.size", "different", "three by default, since more would not fit", ""),
        (
            "shop.size",
            "not-applicable",
            "there is no size here at all",
            "is honoured, and is said to be not applicable",
        ),
        ("shop.size", "different", "refused: there is no size here", "is honoured, and is said to be otherwise"),
        ("shop.java", "not-applicable", "there is no Java here; accepted with a warning", ""),
        ("shop.java", "not-applicable", "refused: there is no Java here", "is accepted, and is said to be otherwise"),
        ("shop.kafka.x", "different", "refused: there is no Kafka here", ""),
        ("shop.kafka.x", "done", "tests/a.py::test_b", "is refused, and is said to be done"),
        ("shop.colour", "done", "tests/a.py::test_b", "the configuration does not know it"),
        ("shop.size", "", "", "nothing is said of X-001, shop.size"),
    ],
)
def test_a_contradiction_is_reported(
    name: str, section: str, text: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sources.SOURCES, "shop", _KIND)
    monkeypatch.setattr(compatibility, "PROPERTIES", tmp_path / "properties.toml")
    monkeypatch.setattr(compatibility, "PAGE", tmp_path / "configuration.md")
    compatibility.PROPERTIES.write_text(f'[shop]\n"{name}" = "X-001"\n[around]\nnames = []\n')
    compatibility.PAGE.write_text(
        "| `shop.java` | there is no Java here |\n| `shop.kafka.*` | there is no Kafka here |\n"
    )
    found = list(wrong_properties([Entry("X-001", section, text)] if section else []))
    assert len(found) == bool(message)
    assert message in "".join(found)


def test_a_property_that_is_without_effect_and_not_in_the_documentation_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sources.SOURCES, "shop", _KIND)
    monkeypatch.setattr(compatibility, "PROPERTIES", tmp_path / "properties.toml")
    monkeypatch.setattr(compatibility, "PAGE", tmp_path / "configuration.md")
    compatibility.PROPERTIES.write_text('[shop]\n[around]\nnames = ["shop.java"]\n')
    compatibility.PAGE.write_text("")
    assert list(wrong_properties([])) == [
        "shop: shop.java is accepted, and docs/reference/configuration.md does not say so"
    ]
