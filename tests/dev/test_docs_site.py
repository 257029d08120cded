"""The documentation as a site, and what the page for whoever is on call has to name."""

from __future__ import annotations

import ast
import re
import subprocess
from pathlib import Path

import pytest

from airflow_provider_cdc.core import errors
from dev import paths

ON_CALL = paths.ROOT / "docs" / "on-call.md"
ALERTS = paths.ROOT / "airflow_provider_cdc" / "hooks" / "alerts.py"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    done = subprocess.run([paths.ROOT / "dev" / "docs", folder], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return folder


def test_every_page_is_in_the_site_and_every_link_leads_somewhere(site: Path) -> None:
    docs = paths.ROOT / "docs"
    for page in docs.rglob("*.md"):
        assert (site / page.relative_to(docs)).with_suffix(".html").exists(), page


def test_the_site_asks_nobody_else_for_anything(site: Path) -> None:
    for page in site.rglob("*.html"):
        loaded = re.findall(r"<(?:script|link|img|iframe)[^>]+(?:src|href)=\"(https?:[^\"]+)", page.read_text())
        assert loaded == [], page


def test_a_link_that_leads_nowhere_is_an_error(tmp_path: Path) -> None:
    docs = tmp_path / "docs"
    docs.mkdir()
    (docs / "conf.py").write_text((paths.ROOT / "docs" / "conf.py").read_text())
    (docs / "index.md").write_text("# Pages\n\n[nowhere](other.md#no-such-heading)\n")
    command = (
        (paths.ROOT / "dev" / "docs")
        .read_text()
        .splitlines()[-2]
        .replace('html docs "$site"', f"html {docs} {tmp_path}/site")
    )
    done = subprocess.run(["bash", "-c", command], cwd=paths.ROOT, capture_output=True, text=True)
    assert done.returncode != 0
    assert "other.md" in done.stderr


def test_every_alert_has_its_section() -> None:
    """A heading is a part of the alert's sentence that no other alert has."""
    headings = re.findall(r"^### (.*)$", ON_CALL.read_text().partition("\n## Alerts")[2].partition("\n## ")[0], re.M)
    sentences = [
        "".join(part.value if isinstance(part, ast.Constant) else "…" for part in node.value.values)
        for node in ast.walk(ast.parse(ALERTS.read_text()))
        if isinstance(node, ast.Yield) and isinstance(node.value, ast.JoinedStr)
    ]
    assert len(sentences) >= 6
    for sentence in sentences:
        assert len([heading for heading in headings if heading in sentence]) == 1, sentence
    assert [heading for heading in headings if not any(heading in sentence for sentence in sentences)] == []


def test_errors_that_the_page_names_are_there() -> None:
    named = set(re.findall(r"`([A-Z]\w+)`|^([A-Z]\w+): …$", ON_CALL.read_text(), re.M))
    words = {word for pair in named for word in pair if word and not word.startswith(("Where", "Safe", "Repair", "At"))}
    assert words <= set(errors.__all__)
    assert words
