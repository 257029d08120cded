"""The command ``check``, and commands without state tables."""

from __future__ import annotations

import json
import re
import time
from dataclasses import replace
from typing import Any

import pytest

from tests.cli.conftest import capture, clean, run
from tests.support.airflow.airflow_connector import ShopConnector
from tests.support.airflow.airflow_versions import cdc_command


def test_check_says_whether_everything_is_captured(
    shop_connector: ShopConnector, capsys: pytest.CaptureFixture[str]
) -> None:
    capture(shop_connector)
    clean(capsys)
    run("check", "shop")
    assert capsys.readouterr().out == "Ready for capture.\nThe log ends at entry 1.\nAll changes are captured.\n"
    shop_connector.order(1)
    clean(capsys)
    run("check", "shop", "-o", "json")
    assert json.loads(capsys.readouterr().out) == {
        "ready": True, "findings": [], "position": "entry 2", "waiting": "the log has advanced to entry 2",
    }  # fmt: skip


def test_check_fails_with_the_statements_that_repair(
    shop_connector: ShopConnector, mariadb: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    mariadb.sql("CREATE OR REPLACE USER few@'%' IDENTIFIED BY 'fewfew'", "GRANT SELECT, RELOAD ON *.* TO few@'%'")
    fields = {"host": mariadb.host, "port": mariadb.port, "login": "few", "password": "fewfew"}
    monkeypatch.setenv("AIRFLOW_CONN_NEW", json.dumps({"conn_type": "cdc_mariadb", **fields}))
    with pytest.raises(SystemExit) as ended:
        run("check", "--conn-id", "new")
    assert ended.value.code == 1
    assert "    GRANT REPLICATION SLAVE ON *.* TO 'few'@'%'\n" in capsys.readouterr().out


def test_check_refuses_snapshots_on_spark_of_a_source_that_cannot_share_a_view(
    shop_connector: ShopConnector, capsys: pytest.CaptureFixture[str]
) -> None:
    capture(shop_connector)
    definition = shop_connector.definition
    shop_connector.definition = replace(definition, properties={**definition.properties, "snapshot.engine": "spark"})
    capture(shop_connector)
    clean(capsys)
    with pytest.raises(SystemExit) as ended:
        run("check", "shop")
    assert ended.value.code == 1
    said = capsys.readouterr().out
    assert "Snapshots of memory databases cannot be read by Spark." in said
    assert "remove snapshot.engine=spark" in said


def test_check_says_how_long_the_log_is_kept_and_by_which_setting(
    shop_connector: ShopConnector, mariadb: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    seconds = int(mariadb.sql("SELECT @@GLOBAL.binlog_expire_logs_seconds")[0][0])
    fields = {"host": mariadb.host, "port": mariadb.port, "login": mariadb.user, "password": mariadb.password}
    monkeypatch.setenv("AIRFLOW_CONN_NEW", json.dumps({"conn_type": "cdc_mariadb", **fields}))
    run("check", "--conn-id", "new")
    assert re.search(
        rf"(?m)^The source .* its log .*\(binlog_expire_logs_seconds={seconds}\)\.$", capsys.readouterr().out
    )
    run("check", "--conn-id", "new", "-o", "json")
    kept = json.loads(capsys.readouterr().out)["log_retention"]
    assert kept == {"seconds": seconds or None, "setting": f"binlog_expire_logs_seconds={seconds}"}


def test_check_takes_what_the_connection_says_now(
    shop_connector: ShopConnector, monkeypatch: pytest.MonkeyPatch
) -> None:
    capture(shop_connector)
    monkeypatch.setenv("AIRFLOW_CONN_SHOP", '{"conn_type": "cdc_memory", "host": "elsewhere"}')
    with pytest.raises(SystemExit, match="memory database 'elsewhere' does not exist"):
        run("check", "shop")


def test_a_command_without_the_state_says_how_to_set_it_up(
    shop_connector: ShopConnector, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("AIRFLOW_CONN_CDC_STATE_DEFAULT")
    monkeypatch.setenv("AIRFLOW__DATABASE__SQL_ALCHEMY_CONN", "sqlite:////nowhere/airflow.db")
    began = time.monotonic()
    with pytest.raises(SystemExit, match=f"{cdc_command('setup')}|check the API server, the metadata database"):
        run(
            "connectors", "--state-conn-id", "nowhere"
        )  # a process of the server side asks the metadata database, which is not there
    assert time.monotonic() - began < 20
