"""The documentation that the API server shows: errors name their pages by these addresses."""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import urljoin, urlsplit

import pytest

from airflow_provider_cdc.core.error_texts import build_page_address
from airflow_provider_cdc.plugins import docs_pages
from airflow_provider_cdc.plugins.plugin_app import app
from dev import paths
from tests.plugins.conftest import ClientFactory
from tests.support.airflow.airflow_connector import ShopConnector

PREFIX = "/cdc"


def test_the_page_that_an_error_names_is_there_without_a_login(
    shop_connector: ShopConnector, client_factory: ClientFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AIRFLOW__API__BASE_URL", "https://airflow.example.com/base/")
    address = build_page_address("PositionLost")
    assert address == "https://airflow.example.com/base/cdc/docs/errors/PositionLost.md"
    answer = client_factory(role=None).get(urlsplit(address).path.removeprefix("/base/cdc"))
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    assert '<h1 id="positionlost">PositionLost</h1>' in answer.text
    assert "<script" not in answer.text
    assert answer.headers["content-security-policy"].startswith("default-src 'none'")


@pytest.mark.parametrize("path", ["../pyproject.toml", "conf.py", "errors", "errors/Nothing.md", "/etc/passwd", ""])
def test_nothing_but_the_documentation_is_shown(
    shop_connector: ShopConnector, client_factory: ClientFactory, path: str
) -> None:
    assert client_factory(role="ADMIN").get(f"/docs/{path}").status_code == 404


def test_links_between_pages_lead_to_pages_and_to_their_headings() -> None:
    files = docs_pages.list_files()
    wrong = []
    for page in ("on-call.md", *(name for name in files if name.startswith(("errors/", "alerts/")))):
        text = docs_pages.render_page(page)
        assert text is not None
        for link in re.findall(r'(?:href|src)="([^"]*)"', text):
            url = urlsplit(urljoin(f"http://here/{page}", link))
            if url.netloc != "here":
                continue
            target = docs_pages.render_page(url.path[1:]) if url.path.endswith(".md") else url.path[1:] in files
            if not target or (url.fragment and isinstance(target, str) and f'id="{url.fragment}"' not in target):
                wrong.append((page, link))
    assert wrong == []


def test_the_wheel_has_the_documentation() -> None:
    pyproject = (paths.ROOT / "pyproject.toml").read_text()
    assert '"docs" = "airflow_provider_cdc/docs"' in pyproject
    assert docs_pages.FOLDERS[0] == Path(docs_pages.__file__).parents[1] / "docs"
    assert any(route.path == "/docs/{page:path}" for route in app.routes if hasattr(route, "path"))
