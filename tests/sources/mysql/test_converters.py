"""The documented converters: booleans out of TINYINT(1), and the character sets of texts; the same in snapshot and stream."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_cdc.core.errors import ConfigError
from airflow_provider_cdc.sources.mysql.config import MySqlConfig
from airflow_provider_cdc.sources.mysql.converters import BOOLEAN, CHARSET, JDBC_SINK
from tests.support.change_log.rendered import capture_records, of_table, row_fields
from tests.support.connectors import Connector, mysql_connector
from tests.support.signals import signal_state, snapshot

BASE = {"topic.prefix": "p", "database.hostname": "h", "database.user": "u", "database.server.id": 1}
COLUMNS = "id INT PRIMARY KEY, b BOOLEAN DEFAULT TRUE, t TINYINT(1), u TINYINT(1) UNSIGNED, w TINYINT, x TINYINT(1) NOT NULL DEFAULT 0"


@pytest.fixture(params=["mariadb", "mysql97", "mysql80"])
def db(request: pytest.FixtureRequest) -> Iterator[Any]:
    with request.getfixturevalue(request.param).database("conv") as database:
        yield database


@pytest.fixture
def connector_factory(db: Any, tmp_path: Path) -> Callable[..., Connector]:
    def make(type_: str = BOOLEAN, **options: str) -> Connector:
        connector = mysql_connector(db.server, tmp_path, db.server.kind, database_include_list=db.name)
        named = {f"c.{key.replace('_', '.')}": value.format(db.name) for key, value in options.items()}
        connector.properties |= {"converters": "c", "c.type": type_, **named}
        return connector

    return make


def _capture_both_rows(db: Any, connector: Connector, columns: str, values: str) -> tuple[list[Any], list[Any]]:
    """Images and nodes of a row of the snapshot and one of the stream, of a table that is made during the stream too."""
    db.sql(f"CREATE TABLE t ({columns})", f"INSERT INTO t VALUES (1, {values})")
    found = of_table(capture_records(connector, schemas=True), "t")
    db.sql(
        f"INSERT INTO t VALUES (2, {values})",
        f"CREATE TABLE made ({columns})",
        f"INSERT INTO made VALUES (3, {values})",
    )
    streamed = capture_records(connector, schemas=True)
    found += of_table(streamed, "t") + of_table(streamed, "made")
    assert len(found) == 3
    images = [{k: v for k, v in r["value"]["payload"]["after"].items() if k != "id"} for r in found]
    return images, [row_fields(r) for r in found]


def _booleans(nodes: list[Any]) -> list[set[str]]:
    """Columns that have this type: by their values alone, 0 is False."""
    return [{name for name, node in of_row.items() if node["type"] == "boolean"} for of_row in nodes]


def test_tinyint_of_length_one_is_a_boolean(db: Any, connector_factory: Callable[..., Connector]) -> None:
    images, nodes = _capture_both_rows(db, connector_factory(), COLUMNS, "TRUE, NULL, 1, 5, 2")
    # MySQL hides the length of an unsigned one since 8.0.19
    reported = "(1)" in next(row[1] for row in db.sql("SHOW COLUMNS FROM t") if row[0] == "u")
    assert images == [{"b": True, "t": None, "u": True if reported else 1, "w": 5, "x": True}] * 3
    types = {"b": "boolean", "t": "boolean", "u": "boolean" if reported else "int16", "w": "int16", "x": "boolean"}
    for node in nodes:
        assert {name: node[name]["type"] for name in types} == types
        assert (node["b"]["default"], node["x"]["default"]) == (True, False)


def test_columns_can_be_chosen_without_regard_to_their_length(
    db: Any, connector_factory: Callable[..., Connector]
) -> None:
    connector = connector_factory(length_checker="false", selector=r"{0}\.(t|made)\.[uw], {0}\.other\..*")
    images, nodes = _capture_both_rows(db, connector, COLUMNS, "TRUE, NULL, 1, 0, 2")
    assert images == [{"b": 1, "t": None, "u": True, "w": False, "x": 2}] * 3
    assert _booleans(nodes) == [{"u", "w"}] * 3


def test_a_selector_leaves_the_others_as_they_are(db: Any, connector_factory: Callable[..., Connector]) -> None:
    images, nodes = _capture_both_rows(db, connector_factory(selector=r"{}\..*\.b"), COLUMNS, "FALSE, 1, 1, 5, 2")
    assert images == [{"b": False, "t": 1, "u": 1, "w": 5, "x": 2}] * 3
    assert _booleans(nodes) == [{"b"}] * 3


def test_columns_that_come_later_are_converted_too_and_rows_are_read_in_chunks(
    db: Any, connector_factory: Callable[..., Connector]
) -> None:
    connector = connector_factory()
    images, _ = _capture_both_rows(db, connector, "id INT, k BOOLEAN, PRIMARY KEY (k, id)", "TRUE")
    assert images == [{"k": True}] * 3
    db.sql("ALTER TABLE t ADD later BOOL NOT NULL DEFAULT TRUE", "INSERT INTO t VALUES (9, FALSE, FALSE)")
    (read,) = of_table(capture_records(connector), "t")
    assert read["value"]["after"] == {"id": 9, "k": False, "later": False}
    number = snapshot(connector, f"{db.name}.t", replace=True)
    connector.capture()
    assert signal_state(connector, number) == ("done", "")
    rows = [
        {"id": 1, "k": True, "later": True},
        {"id": 2, "k": True, "later": True},
        {"id": 9, "k": False, "later": False},
    ]
    assert sorted(connector.rows(f"{db.name}.t"), key=lambda row: row["id"]) == rows


def test_the_sinks_types_are_equal_in_snapshot_and_stream_and_texts_have_their_character_set(
    db: Any, connector_factory: Callable[..., Connector]
) -> None:
    columns = "id INT PRIMARY KEY, b BOOLEAN, r REAL, s VARCHAR(9) CHARACTER SET latin1, c TEXT CHARACTER SET utf8mb4"
    images, nodes = _capture_both_rows(
        db, connector_factory(JDBC_SINK, treat_real_as_double="true"), columns, "TRUE, 1.5, 'ä', 'b'"
    )
    assert images == [{"b": 1, "r": 1.5, "s": "ä", "c": "b"}] * 3
    for node in nodes:
        assert [node[name]["type"] for name in ("b", "r")] == ["int16", "double"]
        reported = {name: field.get("parameters", {}).get(CHARSET) for name, field in node.items()}
        assert reported == {"id": None, "b": None, "r": None, "s": "latin1", "c": "utf8mb4"}


def test_character_sets_are_reported_where_they_are_asked_for(
    db: Any, connector_factory: Callable[..., Connector]
) -> None:
    columns = "id INT PRIMARY KEY, s VARCHAR(9), c TEXT"
    _, nodes = _capture_both_rows(db, connector_factory(JDBC_SINK, selector_string=r".*\.s"), columns, "'a', 'b'")
    assert [[CHARSET in n[name].get("parameters", {}) for name in ("s", "c")] for n in nodes] == [[True, False]] * 3


@pytest.mark.parametrize(
    ("properties", "message"),
    [
        ({}, r"c\.type: required and not set"),
        ({"c.type": "com.example.Mine"}, r"c\.type: 'com\.example\.Mine' is not a known type"),
        ({"c.type": BOOLEAN, "c.selected": "a"}, r"c\.selected: unknown property; c has selector, length\.checker"),
        ({"c.type": BOOLEAN, "c.length.checker": "no"}, r"c\.length\.checker: 'no' is neither true nor false"),
        ({"c.type": BOOLEAN, "c.selector": "a,("}, r"c\.selector: '\(' is not a regular expression"),
        ({"c.type": BOOLEAN, "d.type": BOOLEAN}, r"d\.type: unknown property"),
    ],
)
def test_a_wrong_converter_is_reported(properties: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        MySqlConfig.parse({**BASE, "converters": "c", **properties})


def test_the_documented_examples_are_understood() -> None:
    config = MySqlConfig.parse(
        {
            **BASE, "converters": "boolean, jdbc-sink", "boolean.type": BOOLEAN,
            "boolean.selector": "db1.table1.*, db1.table2.column1", "boolean.length.checker": False,
            "jdbc-sink.type": JDBC_SINK, "jdbc-sink.selector.boolean": ".*.MY_TABLE.BOOL_COL",
            "jdbc-sink.selector.real": ".*.MY_TABLE.REAL_COL", "jdbc-sink.selector.string": ".*.MY_TABLE.STRING_COL",
            "jdbc-sink.treat.real.as.double": "true",
        }
    )  # fmt: skip
    assert [c["name"] for c in config.converters] == ["boolean", "jdbc-sink"]
    assert (
        MySqlConfig.parse({**config.to_public_properties(), "database.hostname": "h", "database.user": "u"}) == config
    )
