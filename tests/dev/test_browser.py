"""The choice of a Chromium. None is fetched here; ``tests/system`` uses the one that is found."""

from __future__ import annotations

from pathlib import Path

import pytest

from dev.bootstrap import browser


def program(path: Path, line: str) -> Path:
    path.write_text(f"#!/bin/sh\n{line}\n")
    path.chmod(0o755)
    return path


def test_the_one_that_is_named_is_taken_before_the_systems(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    named = program(tmp_path / "mine", "echo Chromium 1.2.3")
    monkeypatch.setenv("CDC_DEV_CHROMIUM", str(named))
    assert browser.find() == named
    assert browser.ensure() == named


def test_the_systems_is_taken_where_none_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    found = program(tmp_path / "chromium-browser", "echo Chromium 1.2.3")
    monkeypatch.delenv("CDC_DEV_CHROMIUM", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    monkeypatch.setattr(browser, "NAMES", ("chromium-browser",))
    assert browser.find() == found


@pytest.mark.parametrize("line", ["exit 1", "exec /nowhere"])
def test_one_that_does_not_run_is_none(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, line: str) -> None:
    monkeypatch.setenv("CDC_DEV_CHROMIUM", str(program(tmp_path / "broken", line)))
    assert browser.find() is None
    monkeypatch.setenv("CDC_DEV_CHROMIUM", str(tmp_path / "missing"))
    assert browser.find() is None
