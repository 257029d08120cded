"""Setting MySQL up and connecting to it: accounts, server settings, TLS, timeouts, properties; a switch of servers."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_cdc.core.errors import ConfigError, PositionLost, PrerequisiteError, SourceUnavailable
from airflow_provider_cdc.runtime import open_source
from airflow_provider_cdc.sources.mysql.checks import _settings
from airflow_provider_cdc.sources.mysql.config import MySqlConfig
from airflow_provider_cdc.sources.mysql.connect import Server, connect, scalar, server_of, translated
from airflow_provider_cdc.sources.mysql.log.binlog_connection import BinlogConnection
from airflow_provider_cdc.sources.mysql.position import MySqlPosition
from tests.support.asked import fate, snapshot
from tests.support.connectors import Connector, mysql_connector
from tests.support.mysql_server import purge_log
from tests.support.rendered import captured
from tests.support.workload import source_rows

PAGE = (Path(__file__).parents[3] / "docs/sources/mysql.md").read_text()
BASE = {"topic.prefix": "p", "database.hostname": "h", "database.user": "u", "database.server.id": 7}


@pytest.fixture
def db(mysql97: Any) -> Iterator[Any]:
    with mysql97.database("setup") as database:
        database.sql("CREATE TABLE t (id INT PRIMARY KEY, v INT)", "INSERT INTO t VALUES (1, 1)")
        yield database


def _connector(db: Any, folder: Path, **properties: Any) -> Connector:
    return mysql_connector(db.server, folder, "mysql", database_include_list=db.name, **properties)


def _config(server: Any, **properties: Any) -> MySqlConfig:
    named = {k.replace("_", "."): v for k, v in properties.items()}
    login = {"database.hostname": server.host, "database.port": server.port, "database.user": server.user}
    return MySqlConfig.parse({**BASE, **login, "database.password": server.password, **named})


# account and server, as the documentation says


def test_the_documented_account_can_capture_and_change_nothing(db: Any, tmp_path: Path) -> None:
    (block,) = re.findall(r"```sql\n(.*?)```", PAGE, re.DOTALL)
    db.sql("DROP USER IF EXISTS 'cdc'@'localhost'")
    statements = [s.replace("'cdc'", "'documented'").replace("…", "secret") for s in block.split(";") if s.strip()]
    db.server.sql("DROP USER IF EXISTS 'documented'@'%'", *statements)
    before = db.sql("SHOW CREATE TABLE t"), db.sql("SHOW TABLES")
    connector = _connector(db, tmp_path)
    connector.secrets |= {"database.user": "documented", "database.password": "secret"}
    captured(connector)
    db.sql("INSERT INTO t VALUES (2, 2)")
    captured(connector)
    assert connector.rows(f"{db.name}.t") == source_rows(db.server, db.name, "t")
    assert (db.sql("SHOW CREATE TABLE t"), db.sql("SHOW TABLES")) == before
    (granted,) = re.findall(r"GRANT (.*) ON", statements[-1])
    assert not {"INSERT", "UPDATE", "DELETE", "CREATE", "ALL PRIVILEGES"} & set(granted.split(", "))


def test_every_missing_privilege_is_named_at_once(db: Any, tmp_path: Path) -> None:
    db.server.sql("DROP USER IF EXISTS 'none'@'%'", "CREATE USER 'none'@'%' IDENTIFIED BY 'none'")
    connector = _connector(db, tmp_path)
    connector.secrets |= {"database.user": "none", "database.password": "none"}
    with pytest.raises(PrerequisiteError) as caught:
        connector.capture()
    named = re.findall(r"lacks the privilege ([A-Z ]+)\.", str(caught.value))
    assert named == ["REPLICATION SLAVE", "REPLICATION CLIENT", "SELECT", "RELOAD"]
    for name in named:
        assert f"GRANT {name} ON *.* TO 'none'@'%'" in str(caught.value)


@pytest.mark.parametrize("kind", ["mariadb", "mysql97"])
def test_privileges_of_snapshots_are_needed_for_snapshots_only(
    request: pytest.FixtureRequest, tmp_path: Path, kind: str
) -> None:
    server = request.getfixturevalue(kind)
    with server.database("rights") as db:
        db.sql("CREATE TABLE t (id INT PRIMARY KEY, v INT)", "INSERT INTO t VALUES (1, 1)")
        account = "'stream'@'%'"
        server.sql(f"DROP USER IF EXISTS {account}", f"CREATE USER {account} IDENTIFIED BY 'stream'")
        server.sql(f"GRANT SELECT, RELOAD, SHOW DATABASES, REPLICATION SLAVE, REPLICATION CLIENT ON *.* TO {account}")
        connector = mysql_connector(server, tmp_path, server.kind, database_include_list=db.name)
        connector.secrets |= {"database.user": "stream", "database.password": "stream"}
        connector.capture()
        server.sql(f"REVOKE SELECT, RELOAD, SHOW DATABASES ON *.* FROM {account}")
        db.sql("INSERT INTO t VALUES (2, 2)", "ALTER TABLE t ADD w INT", "UPDATE t SET w = 3")
        with pytest.raises(PrerequisiteError, match="lacks the privilege SELECT"):
            connector.capture()
        connector.properties["snapshot.mode"] = "never"
        connector.capture()
        assert connector.rows(f"{db.name}.t") == source_rows(server, db.name, "t")
        for needed in ("REPLICATION SLAVE", "REPLICATION CLIENT"):
            server.sql(f"REVOKE {needed} ON *.* FROM {account}")
            with pytest.raises(PrerequisiteError, match=f"lacks the privilege {needed}"):
                connector.capture()
            server.sql(f"GRANT {needed} ON *.* TO {account}")


GOOD = {
    "log_bin": "ON",
    "binlog_format": "ROW",
    "binlog_row_image": "FULL",
    "binlog_row_metadata": "FULL",
    "server_id": "1",
}


def _findings(**variables: str) -> list[Any]:
    server = Server("9.7.0", False, "id", {**GOOD, **variables})
    return _settings(server, MySqlConfig.parse(BASE))


@pytest.mark.parametrize(
    ("variables", "told", "fix", "fatal"),
    [
        ({"log_bin": "OFF"}, "keeps no binary log", "log_bin=binlog", True),
        ({"binlog_format": "MIXED"}, "binlog_format is MIXED", "SET GLOBAL binlog_format = 'ROW'", True),
        ({"binlog_row_image": "NOBLOB"}, "binlog_row_image is NOBLOB", "SET GLOBAL binlog_row_image = 'FULL'", True),
        ({"server_id": "7"}, "database.server.id is 7", "choose a number", True),
        ({"binlog_expire_logs_seconds": "3600"}, "less than a day", "binlog_expire_logs_seconds = 864000", False),
    ],
)
def test_a_setting_that_will_not_do_is_told(variables: dict[str, str], told: str, fix: str, fatal: bool) -> None:
    (finding,) = _findings(**variables)
    assert told in finding.what
    assert fix in finding.fix
    assert finding.fatal == fatal


def test_settings_count_in_upper_and_lower_case() -> None:
    assert _findings() == []
    assert _findings(log_bin="on", binlog_format="row", binlog_row_image="full", binlog_row_metadata="full") == []
    assert _findings(binlog_expire_logs_seconds="2592000") == []


def test_parts_of_json_documents_are_refused_with_what_mends_it(db: Any, tmp_path: Path) -> None:
    connector = _connector(db, tmp_path)
    db.sql("SET GLOBAL binlog_row_value_options = 'PARTIAL_JSON'")
    try:
        with pytest.raises(PrerequisiteError) as caught:
            connector.capture()
        fix = "SET GLOBAL binlog_row_value_options = ''"
        assert fix in str(caught.value)
    finally:
        db.sql("SET GLOBAL binlog_row_value_options = ''")
    assert connector.capture().events == 1


def test_a_server_without_a_binary_log_is_refused(mysql_factory: Any, tmp_path: Path) -> None:
    with mysql_factory("9.7", log_bin=False, gtid_mode=None, enforce_gtid_consistency=None) as server:
        connector = mysql_connector(server, tmp_path, "mysql")
        with pytest.raises(PrerequisiteError, match="keeps no binary log"):
            connector.capture()


# properties


DEBEZIUM = {
    "name": "inventory-connector",
    "connector.class": "io.debezium.connector.mysql.MySqlConnector",
    "database.hostname": "192.168.99.100",
    "database.port": "3306",
    "database.user": "debezium-user",
    "database.password": "debezium-user-pw",
    "database.server.id": "184054",
    "topic.prefix": "fullfillment",
    "database.include.list": "inventory",
    "schema.history.internal.kafka.bootstrap.servers": "kafka:9092",
    "schema.history.internal.kafka.topic": "schemahistory.fullfillment",
    "include.schema.changes": "true",
}


def test_the_smallest_documented_configuration_is_understood(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        config = MySqlConfig.parse(DEBEZIUM)
    assert (config.database_hostname, config.database_port, config.database_user) == (
        "192.168.99.100", 3306, "debezium-user",
    )  # fmt: skip
    assert (config.database_server_id, config.topic_prefix) == (184054, "fullfillment")
    assert config.database_include_list == ("inventory",)
    assert config.include_schema_changes
    assert "debezium-user-pw" not in caplog.text


@pytest.mark.parametrize("missing", ["database.hostname", "database.user", "database.server.id", "topic.prefix"])
def test_what_has_no_default_is_required(missing: str) -> None:
    with pytest.raises(ConfigError, match=rf"{re.escape(missing)}: required and not set"):
        MySqlConfig.parse({k: v for k, v in BASE.items() if k != missing})


@pytest.mark.parametrize("value", ["x", 0, -1, 2**32])
def test_the_server_id_is_a_number_that_a_replica_may_have(value: Any) -> None:
    with pytest.raises(ConfigError, match=r"database\.server\.id: "):
        MySqlConfig.parse({**BASE, "database.server.id": value})


def test_documented_defaults() -> None:
    config = MySqlConfig.parse(BASE)
    assert (config.database_port, config.connect_timeout_ms, config.database_query_timeout_ms) == (
        3306,
        30_000,
        600_000,
    )
    assert (config.snapshot_lock_timeout_ms, config.snapshot_locking_mode) == (10_000, "minimal")
    assert (config.binlog_net_read_timeout, config.binlog_net_write_timeout) == (0, 0)
    assert (config.database_ssl_mode, config.bigint_unsigned_handling_mode) == ("preferred", "long")
    assert not config.include_query


def test_a_hidden_column_and_the_statements_that_show_it_exclude_each_other(mysql97: Any) -> None:
    hidden = {"column.mask.with.3.chars": "shop.customers.name"}
    assert _config(mysql97, **hidden).column_texts == {"column.mask.with.3.chars": ("shop.customers.name",)}
    with pytest.raises(ConfigError, match=r"would show what column\.mask\.with\.3\.chars hides"):
        _config(mysql97, **hidden, include_query=True)


@pytest.mark.parametrize("what", ["database", "table", "column"])
def test_only_one_of_an_include_and_an_exclude_list_may_be_set(what: str) -> None:
    lists = {f"{what}.include.list": "a.*", f"{what}.exclude.list": "b.*"}
    with pytest.raises(ConfigError, match=rf"{what}\.include\.list and {what}\.exclude\.list exclude each other"):
        MySqlConfig.parse({**BASE, **lists})
    for name, value in lists.items():
        MySqlConfig.parse({**BASE, name: value})


def test_the_password_is_in_no_output(db: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    password = "hunter2-hunter2"
    config = MySqlConfig.parse({**BASE, "database.password": password})
    texts = [str(config), repr(config), str(config.public()), config.model_dump_json()]
    db.server.sql("DROP USER IF EXISTS 'shy'@'%'", f"CREATE USER 'shy'@'%' IDENTIFIED BY '{password}'")
    db.server.sql("GRANT SELECT, RELOAD, REPLICATION SLAVE, REPLICATION CLIENT ON *.* TO 'shy'@'%'")
    connector = _connector(db, tmp_path)
    connector.secrets |= {"database.user": "shy", "database.password": password}
    with caplog.at_level(logging.DEBUG):
        connector.capture()
        db.server.sql("DROP USER 'shy'@'%'")
        with pytest.raises(Exception, match="shy") as caught:
            connector.capture()
    files = [p.read_bytes() for p in tmp_path.rglob("*") if p.is_file()]
    assert len(files) > 2
    assert password not in caplog.text + str(caught.value) + repr(caught.value) + "".join(texts)
    assert not [f for f in files if password.encode() in f]
    from airflow_provider_cdc.operators.capture import CaptureOperator

    definition = connector.definition(database_password=password)
    with pytest.raises(ConfigError, match=r"database\.password") as refused:
        CaptureOperator(task_id="capture", definition=definition, conn_id="shop")
    assert password not in str(refused.value)


# connections


def test_the_configured_host_port_and_account_are_those_that_are_connected_to(mysql97: Any) -> None:
    connection = connect(_config(mysql97))
    assert scalar(connection, "SELECT @@port") == mysql97.port
    assert scalar(connection, "SELECT CURRENT_USER()") == f"{mysql97.user}@%"
    connection.close()


def test_a_query_is_waited_for_as_long_as_configured(mysql97: Any) -> None:
    config = _config(mysql97, database_query_timeout_ms=500)
    with pytest.raises(SourceUnavailable), translated(config):
        scalar(connect(config), "SELECT SLEEP(5)")
    for unbounded in (_config(mysql97, database_query_timeout_ms=0), _config(mysql97)):
        assert scalar(connect(unbounded), "SELECT SLEEP(1)") == 0


def _cipher(config: MySqlConfig) -> str:
    with translated(config):
        connection = connect(config)
        with connection.cursor() as cursor:
            cursor.execute("SHOW STATUS LIKE 'Ssl_cipher'")
            return str(cursor.fetchone()[1])


def test_tls_is_used_and_verified_as_the_mode_says(mysql97: Any, mysql_factory: Any) -> None:
    authority = str(mysql97.data / "ca.pem")
    assert _cipher(_config(mysql97, database_ssl_mode="disabled")) == ""
    for mode in ("preferred", "required"):
        assert _cipher(_config(mysql97, database_ssl_mode=mode)) != ""
    assert _cipher(_config(mysql97, database_ssl_mode="verify_ca", database_ssl_ca=authority)) != ""
    for mode, options in (("verify_ca", {}), ("verify_identity", {"database_ssl_ca": authority})):
        with pytest.raises(PrerequisiteError, match="certificate verify failed"):
            _cipher(_config(mysql97, database_ssl_mode=mode, **options))
    with mysql_factory("8.0", ssl=False) as plain:
        assert _cipher(_config(plain, database_ssl_mode="preferred")) == ""
        with pytest.raises(PrerequisiteError, match="would not be encrypted"):
            _cipher(_config(plain, database_ssl_mode="required"))


def test_timeouts_of_the_network_are_set_for_the_reader_of_the_log_alone(mysql97: Any) -> None:
    config = _config(mysql97, binlog_net_read_timeout=71, binlog_net_write_timeout=72)
    connection = connect(config)
    with connection.cursor() as cursor:
        cursor.execute("SHOW BINARY LOGS")
        file = cursor.fetchall()[-1][0]
    names = "('net_read_timeout', 'net_write_timeout')"

    def of_the_reader(config: MySqlConfig) -> list[Any]:
        with BinlogConnection(config, server_of(connection), MySqlPosition(file, 4), follow=True) as log:
            next(log.events())
            return mysql97.sql(
                "SELECT variable_value FROM performance_schema.variables_by_thread JOIN performance_schema.threads "
                f"USING (thread_id) WHERE processlist_id = {log._connection.thread_id()} AND variable_name IN {names} "
                "ORDER BY variable_name"
            )

    assert of_the_reader(config) == [("71",), ("72",)]
    there = mysql97.sql(f"SHOW GLOBAL VARIABLES WHERE variable_name IN {names}")
    assert sorted(there) == [("net_read_timeout", "30"), ("net_write_timeout", "60")]
    assert of_the_reader(_config(mysql97)) == [("30",), ("60",)]
    assert scalar(connection, "SELECT @@session.net_read_timeout") == 30
    connection.close()


# servers


def test_without_gtids_a_connector_stays_with_its_server(mysql_factory: Any, mysql97: Any, tmp_path: Path) -> None:
    with (
        mysql_factory("9.7", gtid_mode=False, enforce_gtid_consistency=False) as server,
        server.database("own") as db,
    ):
        db.sql("CREATE TABLE t (id INT PRIMARY KEY, v INT)", "INSERT INTO t VALUES (1, 1)")
        connector = _connector(db, tmp_path)
        captured(connector)
        db.sql("INSERT INTO t VALUES (2, 2)", "UPDATE t SET v = 3")
        found = captured(connector)
        assert [r["value"]["op"] for r in found] == ["c", "u", "u"]
        assert {r["value"]["source"]["gtid"] for r in found} == {None}
        assert connector.rows(f"{db.name}.t") == source_rows(server, db.name, "t")
        before = connector.store.load("test")
        other = {"database.hostname": mysql97.host, "database.port": mysql97.port}
        mine, connector.secrets = connector.secrets, {**connector.secrets, **other}
        with pytest.raises(PositionLost):
            connector.capture()
        assert connector.store.load("test") == before
        connector.secrets = mine
        db.sql("INSERT INTO t VALUES (4, 4)")
        assert [r["value"]["op"] for r in captured(connector)] == ["c"]
        # chunks need watermarks, and there are none: that is said before a row of the target is harmed
        replaced = snapshot(connector, f"{db.name}.t", replace=True)
        assert captured(connector) == []
        state, why = fate(connector, replaced)
        assert (state, "gtid_mode" in why) == ("failed", True)
        db.sql("INSERT INTO t VALUES (5, 5)")
        purge_log(server)
        with pytest.raises(PrerequisiteError, match="gtid_mode"):
            connector.capture({"position.lost.mode": "incremental"})
        connector.capture({"position.lost.mode": "snapshot"})
        assert connector.rows(f"{db.name}.t") == source_rows(server, db.name, "t")


def test_with_gtids_capture_goes_on_at_another_server_of_the_topology(mysql_factory: Any, tmp_path: Path) -> None:
    """The replica has other files and positions; what it has and the primary had not yet shown is captured there."""
    with mysql_factory("9.7") as primary, mysql_factory("9.7", server_id=2000) as replica:
        host, port, user, password = primary.host, primary.port, primary.admin_user, primary.admin_password
        for server in (primary, replica):
            server.sql("RESET BINARY LOGS AND GTIDS")
        replica.sql(
            f"CHANGE REPLICATION SOURCE TO SOURCE_HOST='{host}', SOURCE_PORT={port}, SOURCE_USER='{user}', "
            f"SOURCE_PASSWORD='{password}', SOURCE_AUTO_POSITION=1, GET_SOURCE_PUBLIC_KEY=1",
            "START REPLICA",
        )
        with primary.database("topology") as db:
            db.sql("CREATE TABLE t (id INT PRIMARY KEY, v INT)", "INSERT INTO t VALUES (1, 1)")
            connector = _connector(db, tmp_path)
            captured(connector)
            db.sql("INSERT INTO t VALUES (2, 2)")
            captured(connector)
            db.sql("UPDATE t SET v = 9 WHERE id = 1", "INSERT INTO t VALUES (3, 3)")
            (gtids,) = primary.sql("SELECT @@global.gtid_executed")[0]
            replica.sql("FLUSH BINARY LOGS", f"SELECT WAIT_FOR_EXECUTED_GTID_SET('{gtids}', 30)")
            connector.secrets |= {"database.hostname": replica.host, "database.port": replica.port}
            found = captured(connector)
            assert [(r["value"]["op"], r["value"]["after"]["id"]) for r in found] == [("u", 1), ("c", 3)]
            assert connector.rows(f"{db.name}.t") == source_rows(replica, db.name, "t")
            with open_source(connector.definition(), connector.secrets) as source:
                assert source.current_position().to_json()["server"] != ""
