"""Pages of the reference say what the code says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from airflow_provider_cdc import dag
from airflow_provider_cdc.sources import SOURCES, config_class
from dev.reference import PAGES, REFERENCE, list_pages_with_classes, write_classes, write_markdown, write_page


@pytest.mark.parametrize("name", PAGES)
def test_a_page_of_the_reference_is_as_the_code_is(name: str) -> None:
    text = (REFERENCE / name).read_text()
    assert text == write_page(name, text), "run: .venv/bin/python -m dev.reference"


@pytest.mark.parametrize("page", list_pages_with_classes(), ids=lambda page: page.stem)
def test_a_page_of_an_operator_is_as_its_class_is(page: Path) -> None:
    assert page.read_text() == write_classes(page.read_text()), "run: .venv/bin/python -m dev.reference"


def test_every_public_name_of_dags_has_its_signature_on_the_page() -> None:
    text = (REFERENCE / "python.md").read_text()
    assert [name for name in dag.__all__ if f"\n### {name}\n" not in text or f"\n{name}(\n" not in text] == []


def test_every_kind_of_source_has_its_connection_with_all_that_the_extra_may_hold() -> None:
    text = (REFERENCE / "connections.md").read_text()
    for kind in set(SOURCES) - {"memory"}:
        section = text[text.index(f"## CDC: {kind}\n") :].split("\n## ")[0]
        shown = [re.escape(name).replace(r"\*", ".*") for name in re.findall(r"^\| `([^`]+)` \|", section, re.M)]
        names = [*config_class(kind).connection_properties(), *config_class(kind).list_login_extras()]
        names = [name for name in names if name not in config_class(kind).CONNECTION.values()]
        assert [name for name in names if not any(re.fullmatch(pattern, name) for pattern in shown)] == []


def test_the_page_of_properties_names_every_kind_of_source() -> None:
    row = re.search(r"^\| `source` \| (.*) \|$", (REFERENCE / "configuration.md").read_text(), re.M)
    assert row is not None
    assert set(re.findall(r"`(\w+)`", row[1])) == set(SOURCES)


def test_a_docstring_becomes_a_list_of_its_parameters_with_its_example() -> None:
    """The text of a parameter may continue on the next line."""
    shown = write_markdown(
        "Move rows.\n\n    >>> move(1)\n    2\n\n:param n: how many\n    rows\n:raises ConfigError: none"
    )
    assert shown == "Move rows.\n\n```\n>>> move(1)\n2\n```\n\n- `n`: how many rows\n- raises `ConfigError`: none"
