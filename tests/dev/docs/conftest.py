"""A connector in the situation of a page."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.conftest import clean
from tests.support.docs.shop_situations import Shop, make_page_shop


@pytest.fixture
def shop(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Iterator[Shop]:
    made = make_page_shop(monkeypatch, tmp_path)
    clean(capsys)
    yield made
    made.connector.store.close()
