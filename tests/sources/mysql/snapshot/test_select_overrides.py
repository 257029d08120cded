"""Tables that a snapshot reads with a SELECT of the configuration."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_cdc.core.config.select_overrides import LIST
from airflow_provider_cdc.core.errors import ConfigError, QueryRejected
from airflow_provider_cdc.sources.mysql.config import MySqlConfig
from tests.support.connectors import Connector, mysql_connector
from tests.support.signals import snapshot
from tests.support.sources.mysql.mysql_chunks import source_of

BASE = {"topic.prefix": "p", "database.hostname": "h", "database.user": "u", "database.server.id": 1}


@pytest.fixture(params=["mariadb", "mysql97"])
def db(request: pytest.FixtureRequest) -> Iterator[Any]:
    with request.getfixturevalue(request.param).database("over") as database:
        database.sql("CREATE TABLE orders (id INT PRIMARY KEY, deleted INT)", "CREATE TABLE other (id INT PRIMARY KEY)")
        database.sql("CREATE TABLE `a.b [1]` (id INT PRIMARY KEY)", "INSERT INTO `a.b [1]` VALUES (1), (2)")
        database.sql("INSERT INTO orders VALUES (1, 0), (2, 1), (3, 0)", "INSERT INTO other VALUES (1), (2)")
        yield database


@pytest.fixture
def connector_factory(db: Any, tmp_path: Path) -> Callable[..., Connector]:
    """A connector with statements for tables; it has not run yet."""

    def make(listed: str, **statements: str) -> Connector:
        connector = mysql_connector(db.server, tmp_path, db.server.kind, database_include_list=db.name)
        named = {f"{LIST}.{db.name}.{table}": sql for table, sql in statements.items()}
        connector.properties |= {LIST: listed, **named}
        return connector

    return make


def _ids(connector: Connector, db: Any, table: str) -> list[int]:
    return sorted(row["id"] for row in connector.rows(f"{db.name}.{table}"))


def test_a_snapshot_reads_the_statements_rows_and_the_stream_has_all(
    db: Any, connector_factory: Callable[..., Connector]
) -> None:
    select = f"SELECT * FROM {db.name}.orders WHERE deleted = 0 ORDER BY id DESC"
    connector = connector_factory(f"{db.name}.orders", orders=select)
    connector.replay.partial = True
    connector.capture()
    assert (_ids(connector, db, "orders"), _ids(connector, db, "other")) == ([1, 3], [1, 2])
    db.sql("INSERT INTO orders VALUES (4, 1)", "UPDATE orders SET deleted = 2 WHERE id = 2")
    connector.capture()
    assert _ids(connector, db, "orders") == [1, 2, 3, 4]


def test_a_table_without_its_statement_is_read_whole_with_a_warning(
    db: Any, connector_factory: Callable[..., Connector], caplog: pytest.LogCaptureFixture
) -> None:
    connector = connector_factory(
        f"{db.name}.orders,{db.name}.other", other=f"SELECT * FROM {db.name}.other WHERE id = 2"
    )
    connector.capture()
    assert (_ids(connector, db, "orders"), _ids(connector, db, "other")) == ([1, 2, 3], [2])
    assert f"{db.name}.orders has no SELECT" in caplog.text


@pytest.mark.parametrize("quoted", ['{}."a.b [1]"', '"{}"."a.b [1]"'])
def test_special_names_are_quoted(db: Any, connector_factory: Callable[..., Connector], quoted: str) -> None:
    name = quoted.format(db.name)
    connector = connector_factory(f"{name}, {db.name}.other")
    connector.properties[f"{LIST}.{name}"] = f"SELECT * FROM {db.name}.`a.b [1]` WHERE id = 2"
    connector.properties[f'{LIST}.{db.name}."other"'] = f"SELECT * FROM {db.name}.other WHERE id = 1"
    connector.capture()
    assert (_ids(connector, db, "a.b__1_"), _ids(connector, db, "other")) == ([2], [1])


@pytest.mark.parametrize("name", ["orders", '"a.b [1]', "a.b.c", 'x."a"b'])
def test_a_name_is_of_a_database_and_a_table(name: str) -> None:
    with pytest.raises(ConfigError, match=r"does not have the format <database>\.<table>"):
        MySqlConfig.parse({**BASE, LIST: name, f"{LIST}.{name}": "SELECT 1"})


def test_the_public_properties_mean_the_same_again() -> None:
    config = MySqlConfig.parse({**BASE, LIST: "a.b", f"{LIST}.a.b": "SELECT * FROM a.b"})
    assert (
        MySqlConfig.parse({**config.to_public_properties(), "database.hostname": "h", "database.user": "u"}) == config
    )


def test_a_name_of_no_table_is_reported(db: Any) -> None:
    listed = f"{db.name}.order,{db.name}.orders"
    named = {f"{LIST}.{name}": f"SELECT * FROM {db.name}.orders" for name in listed.split(",")}
    config = {LIST: listed, **named}
    with source_of(db.server) as source:
        source._config = source._config.parse({**BASE, **_login(db), **config})
        (finding,) = [f for f in source.check_prerequisites() if LIST in f.problem]
    assert f"{db.name}.order, which does not exist" in finding.problem
    assert not finding.fatal


def _login(db: Any) -> dict[str, Any]:
    server = db.server
    return {
        "database.hostname": server.host, "database.port": server.port, "database.user": server.user,
        "database.password": server.password, "database.server.id": 4713,
    }  # fmt: skip


def test_a_statement_that_does_not_give_the_table_is_an_error_that_names_its_property(
    db: Any, connector_factory: Callable[..., Connector]
) -> None:
    connector = connector_factory(f"{db.name}.orders", orders=f"SELECT id FROM {db.name}.orders")
    with pytest.raises(QueryRejected, match="deleted") as caught:
        connector.capture()
    assert f"correct {LIST}.{db.name}.orders" in str(caught.value)
    assert connector.changelog.list_batches("test") == []


def test_a_statement_of_a_signal_comes_before_that_of_the_configuration(
    db: Any, connector_factory: Callable[..., Connector]
) -> None:
    connector = connector_factory(f"{db.name}.orders", orders=f"SELECT * FROM {db.name}.orders WHERE id = 1")
    connector.capture()
    assert _ids(connector, db, "orders") == [1]
    orders = f"{db.name}.orders"
    one = {"data-collection": orders, "filter": f"SELECT * FROM {orders} WHERE id = 3"}
    snapshot(connector, orders, type="blocking", additional_conditions=[one])
    connector.capture()
    assert _ids(connector, db, "orders") == [1, 3]
    snapshot(connector, orders, type="blocking")
    connector.capture()
    assert _ids(connector, db, "orders") == [1], "without one it is read as it is at first"
