"""Properties of the Db2 source: documented names and defaults, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest

from airflow_provider_cdc.core.errors import ConfigError
from airflow_provider_cdc.core.model.table_schema import TableId
from airflow_provider_cdc.sources.db2.config import Db2Config
from airflow_provider_cdc.sources.db2.config_enums import IsolationMode, LobHandling
from airflow_provider_cdc.sources.db2.connect import _connection_string
from tests.support.sources.db2.db2_settings import BASE, column, config


def test_documented_defaults() -> None:
    c = config()
    assert (c.database_port, c.snapshot_lock_timeout_ms, c.poll_interval_ms) == (50000, 10_000, 500)
    assert c.snapshot_isolation_mode is IsolationMode.REPEATABLE_READ
    assert c.lob_handling_mode is LobHandling.RESELECT
    assert c.time_precision_mode == "adaptive"
    assert (c.catalog_name, c.capture_schema) == ("TESTDB", '"ASNCDC"')
    assert c.build_dataset_name(TableId(namespace="SHOP", name="T")) == ("db2://localhost:50000", "TESTDB.SHOP.T")


@pytest.mark.parametrize(
    "properties",
    [
        {"database.hostname": None}, {"database.dbname": None}, {"database.dbname": ""}, {"database.user": "a;Security=None"},
        {"database.hostname": "db;PORT=1"}, {"database.dbname": "x{y}"}, {"snapshot.isolation.mode": "snapshot"},
        {"snapshot.lock.timeout.ms": -2}, {"schema.include.list": "A", "schema.exclude.list": "B"},
        {"snapshot.locking.mode": "shared"}, {"converters": "c", "c.type": "io.debezium.test.IsbnConverter"}, {"lob.handling.mode": "x"},
        {"snapshot.select.statement.overrides": "SHOP.T"}, {"database.authentication": "kerberos"},
    ],
)  # fmt: skip
def test_what_cannot_be_used_is_refused(properties: dict[str, Any]) -> None:
    given = {name: value for name, value in (BASE | properties).items() if value is not None}
    with pytest.raises(ConfigError, match=next(iter(properties)).replace("converters", r"c\.type")):
        Db2Config.parse(given)


def test_the_connection_string() -> None:
    text = _connection_string(config())
    assert text.startswith("DATABASE=testdb;HOSTNAME=localhost;PORT=50000;PROTOCOL=TCPIP;UID=cdc;PWD=secret-word;")
    assert "ReceiveTimeout=600;" in text
    assert "Authentication" not in text
    assert "Security" not in text


def test_the_connection_string_with_tls() -> None:
    text = _connection_string(
        config(database_ssl_mode="required", database_ssl_ca="/ca.arm", database_authentication="server_encrypt")
    )
    assert (
        "Authentication=SERVER_ENCRYPT;Security=SSL;SSLClientHostnameValidation=Basic;SSLServerCertificate=/ca.arm;"
        in text
    )


@pytest.mark.parametrize("password", ["a;UID=b", ";", " a", "a "])
def test_a_password_cannot_add_keywords(password: str) -> None:
    with pytest.raises(ConfigError, match="IBM's driver does not support") as caught:
        _connection_string(config(database_password=password))
    assert "UID=b" not in str(caught.value)


def test_the_connection_of_airflow() -> None:
    given = Db2Config.from_connection(
        host="db", port=50001, login="cdc", password="x", schema="SAMPLE", extra={"database.ssl.mode": "required"}
    )
    assert given == {
        "database.hostname": "db", "database.port": 50001, "database.user": "cdc", "database.password": "x", "database.dbname": "SAMPLE",
        "database.ssl.mode": "required",
    }  # fmt: skip


def test_values_of_lobs_are_captured_only_where_they_are_read_again() -> None:
    big, small = column("CLOB(1M)"), column("VARCHAR(20)")
    assert config().has_values(big)
    hidden = config(lob_handling_mode="unavailable")
    assert not hidden.has_values(big)
    assert hidden.has_values(small)
    # as an offset remembers the property
    assert hidden.model_copy(update={"lob_handling_mode": "reselect"}).has_values(big)
