"""``airflow cdc state``: tables in a database of their own, and the move of a connector's state into it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.conftest import capture, clean, run
from tests.support.airflow.airflow_connector import ShopConnector, connect


@pytest.fixture
def own_database(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> str:
    """URL of a database that does not exist yet; the connection ``cdc_state_own`` names it."""
    url = f"sqlite:///{tmp_path}/own.db"
    connect(monkeypatch, "cdc_state_own", conn_type="cdc_state", password=url)
    return url


def test_a_connector_moves_to_a_database_of_its_own(
    shop_connector: ShopConnector,
    own_database: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    shop_connector.order(1)
    capture(shop_connector)
    clean(capsys)
    move = ("state", "copy", "--from-conn-id", "cdc_state_default", "--to-conn-id", "cdc_state_own")
    with pytest.raises(SystemExit, match="airflow cdc state migrate"):
        run(*move)
    run("state", "migrate", "--conn-id", "cdc_state_own")
    assert "at revision 0001" in capsys.readouterr().out
    run(*move)
    printed = capsys.readouterr().out
    assert "cdc_offset: 1" in printed
    assert "airflow cdc setup --url=- --replace" in printed

    with pytest.raises(SystemExit, match="moved: to the connection cdc_state_own"):
        run("status", "shop")
    connect(monkeypatch, "cdc_state_default", conn_type="cdc_state", password=own_database)
    shop_connector.order(2)
    capture(shop_connector)
    clean(capsys)
    run("batches", "shop", "-o", "json")
    assert '"batch": 2' in capsys.readouterr().out


def test_a_connection_is_not_copied_to_itself(shop_connector: ShopConnector) -> None:
    with pytest.raises(SystemExit, match="name the same state tables"):
        run("state", "copy", "--from-conn-id", "cdc_state_default", "--to-conn-id", "cdc_state_default")
    shop_connector.store.check_tables()
