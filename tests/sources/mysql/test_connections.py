"""The configured host, account, encryption and timeouts are those of every connection; the password appears nowhere."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_cdc.core.errors import ConfigError, PrerequisiteError, SourceUnavailable
from airflow_provider_cdc.sources.mysql.config import MySqlConfig
from airflow_provider_cdc.sources.mysql.connect import connect, query_scalar, raise_cdc_errors, server_of
from airflow_provider_cdc.sources.mysql.log.binlog_connection import BinlogConnection
from airflow_provider_cdc.sources.mysql.position import MySqlPosition
from tests.support.connectors import Connector, mysql_connector

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


def test_a_hidden_column_and_the_statements_that_show_it_exclude_each_other(mysql97: Any) -> None:
    hidden = {"column.mask.with.3.chars": "shop.customers.name"}
    assert _config(mysql97, **hidden).column_texts == {"column.mask.with.3.chars": ("shop.customers.name",)}
    with pytest.raises(ConfigError, match=r"would expose the values that column\.mask\.with\.3\.chars hides"):
        _config(mysql97, **hidden, include_query=True)


def test_the_password_is_in_no_output(db: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    password = "hunter2-hunter2"
    config = MySqlConfig.parse({**BASE, "database.password": password})
    texts = [str(config), repr(config), str(config.to_public_properties()), config.model_dump_json()]
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


def test_the_configured_host_port_and_account_are_those_that_are_connected_to(mysql97: Any) -> None:
    connection = connect(_config(mysql97))
    assert query_scalar(connection, "SELECT @@port") == mysql97.port
    assert query_scalar(connection, "SELECT CURRENT_USER()") == f"{mysql97.user}@%"
    connection.close()


def test_a_query_is_waited_for_as_long_as_configured(mysql97: Any) -> None:
    config = _config(mysql97, database_query_timeout_ms=500)
    with pytest.raises(SourceUnavailable), raise_cdc_errors(config):
        query_scalar(connect(config), "SELECT SLEEP(5)")
    for unbounded in (_config(mysql97, database_query_timeout_ms=0), _config(mysql97)):
        assert query_scalar(connect(unbounded), "SELECT SLEEP(1)") == 0


def _cipher(config: MySqlConfig) -> str:
    with raise_cdc_errors(config):
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
            next(log.read_events())
            return mysql97.sql(
                "SELECT variable_value FROM performance_schema.variables_by_thread JOIN performance_schema.threads "
                f"USING (thread_id) WHERE processlist_id = {log._connection.thread_id()} AND variable_name IN {names} "
                "ORDER BY variable_name"
            )

    assert of_the_reader(config) == [("71",), ("72",)]
    there = mysql97.sql(f"SHOW GLOBAL VARIABLES WHERE variable_name IN {names}")
    assert sorted(there) == [("net_read_timeout", "30"), ("net_write_timeout", "60")]
    assert of_the_reader(_config(mysql97)) == [("30",), ("60",)]
    assert query_scalar(connection, "SELECT @@session.net_read_timeout") == 30
    connection.close()


def test_options_of_the_driver_reach_it(mysql97: Any) -> None:
    login = {"database.hostname": mysql97.host, "database.port": mysql97.port, "database.user": mysql97.user}
    given = {**BASE, **login, "database.password": mysql97.password}
    named = MySqlConfig.parse({**given, "driver.program_name": "cdc of sales"})
    with closing(connect(named)) as connection, connection.cursor() as cursor:
        cursor.execute(
            "SELECT attr_value FROM performance_schema.session_account_connect_attrs"
            " WHERE processlist_id = CONNECTION_ID() AND attr_name = 'program_name'"
        )
        assert [str(value) for (value,) in cursor.fetchall()] == ["cdc of sales"]
    assert named.to_public_properties()["driver.program_name"] == "cdc of sales"
    with pytest.raises(ConfigError, match=r"driver\.local_infile is not passed to the driver"):
        MySqlConfig.parse({**given, "driver.local_infile": "1"})
