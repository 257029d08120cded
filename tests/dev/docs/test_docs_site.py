"""The documentation as a site, and what the page for people on call has to name."""

from __future__ import annotations

import ast
import inspect
import re
import subprocess
from pathlib import Path

import pytest

from airflow_provider_cdc.core import errors
from airflow_provider_cdc.services.dashboards import connector_alerts
from airflow_provider_cdc.services.dashboards.overview_models import AlertKind
from dev import paths

ON_CALL = paths.ROOT / "docs" / "on-call.md"
ALERTS = paths.ROOT / "docs" / "alerts"


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


def test_the_site_asks_no_one_else_for_anything(site: Path) -> None:
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


def test_every_alert_has_its_page_with_its_sentence() -> None:
    pages = {page.stem: page.read_text() for page in ALERTS.glob("*.md") if page.stem != "index"}
    assert sorted(pages) == sorted(AlertKind)
    reported = {
        kind.attr: [part.value for part in sentence.values if isinstance(part, ast.Constant)]
        for node in ast.walk(ast.parse(inspect.getsource(connector_alerts)))
        if isinstance(node, ast.Yield) and isinstance(node.value, ast.Call)
        for kind, sentence in [node.value.args[:2]]
        if isinstance(kind, ast.Attribute) and isinstance(sentence, ast.JoinedStr)
    }
    assert sorted(reported) == sorted(kind.name for kind in AlertKind)
    for name, parts in reported.items():
        kind = AlertKind[name]
        shown = pages[kind].split("```")[1]
        assert f"[{kind}]" in shown
        assert [part for part in parts if str(part) not in shown] == []
        for index in (ALERTS / "index.md", ON_CALL):
            assert f"[{kind}](" in index.read_text()


def test_errors_that_the_page_names_are_there() -> None:
    text = ON_CALL.read_text() + (ALERTS / "RunFailed.md").read_text()
    named = set(re.findall(r"`([A-Z]\w+)`|^([A-Z]\w+): …$", text, re.M))
    words = {
        word
        for pair in named
        for word in pair
        if word and not word.startswith(("Where", "Safe", "Repair", "Page", "At"))
    }
    assert words <= set(errors.__all__)
    assert words
