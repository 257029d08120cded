"""``airflow cdc setup``: what it answers before it reaches a database. The rest is in ``tests/system/test_setup_role.py``."""

from __future__ import annotations

import pytest

from tests.cli.conftest import run


@pytest.fixture(autouse=True)
def _context(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("_AIRFLOW_PROCESS_CONTEXT", "")  # commands set it; it is put back afterwards


@pytest.mark.parametrize("other", [("--url", "sqlite:///x"), ("--with-airflows-login",)])
def test_a_connection_has_one_login(other: tuple[str, ...]) -> None:
    with pytest.raises(SystemExit, match="cannot be used together"):
        run("setup", "--role", "cdc", *other)
