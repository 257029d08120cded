"""The documentation is about the code as it is."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from dev import paths
from dev.properties import PAGE, page

PAGES = sorted([*paths.ROOT.glob("*.md"), *(paths.ROOT / "docs").rglob("*.md"), *(paths.ROOT / "dev").glob("*.md")])


def test_configuration_page_has_every_property_as_it_is() -> None:
    assert PAGE.read_text() == page(PAGE.read_text()), "run: .venv/bin/python -m dev.properties"


def test_every_property_says_what_it_is_for() -> None:
    from airflow_provider_cdc.sources.mysql.config import MySqlConfig

    assert [f.alias for f in MySqlConfig.model_fields.values() if not f.description] == []


@pytest.mark.parametrize("found", PAGES, ids=lambda p: p.name)
def test_links_lead_somewhere(found: Path) -> None:
    for link in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", found.read_text()):
        if not link.startswith(("http://", "https://")):
            assert (found.parent / link).exists(), link


def test_errors_named_in_operations_are_all_there_are() -> None:
    from airflow_provider_cdc.core import errors

    text = (paths.ROOT / "docs" / "operations.md").read_text()
    leaves = [
        name
        for name in errors.__all__
        if not getattr(errors, name).__subclasses__() and name not in ("ConfigError", "UnreadableValue")
    ]
    missing = [name for name in leaves if f"`{name}`" not in text]
    assert missing == []
