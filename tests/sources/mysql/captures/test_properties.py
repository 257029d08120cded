"""Properties of all sources on MySQL and MariaDB: texts hidden or cut, types reported, names of fields and topics, the order of tables."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_cdc.sources.mysql.config import MySqlConfig
from tests.support.change_log.rendered import capture_records, of_table, row_fields
from tests.support.connectors import Connector, mysql_connector


@pytest.fixture(params=["mariadb", "mysql97"])
def db(request: pytest.FixtureRequest) -> Iterator[Any]:
    with request.getfixturevalue(request.param).database("props") as database:
        yield database


@pytest.fixture
def connector_factory(db: Any, tmp_path: Path) -> Callable[..., Connector]:
    return lambda **properties: mysql_connector(
        db.server, tmp_path, db.server.kind, **{"database_include_list": db.name, **properties}
    )


def test_texts_can_be_hidden_or_cut_in_the_snapshot_and_in_the_stream(
    db: Any, connector_factory: Callable[..., Connector]
) -> None:
    db.sql("CREATE TABLE t (id INT PRIMARY KEY, a VARCHAR(40), b CHAR(4), c TEXT, d VARCHAR(9))")
    db.sql("INSERT INTO t VALUES (1, 'secret', 'bbbb', 'é€x', 'seen')")
    connector = connector_factory()
    connector.properties |= {
        "column.mask.with.3.chars": rf"{db.name}\.t\.a", "column.mask.with.0.chars": f"{db.name}.t.b",
        "column.truncate.to.2.chars": rf"{db.name}\.t\.[c]",
    }  # fmt: skip
    (read,) = of_table(capture_records(connector), "t")
    assert read["value"]["after"] == {"id": 1, "a": "***", "b": "", "c": "é€", "d": "seen"}
    db.sql("UPDATE t SET a = 'concealed', c = 'yyy'", "INSERT INTO t VALUES (2, NULL, 'x', 'z', NULL)")
    update, insert = of_table(capture_records(connector), "t")
    hidden = {"id": 1, "a": "***", "b": "", "d": "seen"}
    assert (update["value"]["before"], update["value"]["after"]) == ({**hidden, "c": "é€"}, {**hidden, "c": "yy"})
    assert insert["value"]["after"] == {"id": 2, "a": None, "b": "", "c": "z", "d": None}
    written = b"".join(f.read_bytes() for f in connector.folder.rglob("*") if f.is_file())
    assert b"***" in written
    assert b"secret" not in written
    assert b"concealed" not in written


def test_texts_can_be_pseudonyms_in_the_snapshot_and_in_the_stream(
    db: Any, connector_factory: Callable[..., Connector]
) -> None:
    db.sql(
        "CREATE TABLE t (id INT PRIMARY KEY, a VARCHAR(80), b CHAR(8), c CHAR(8), d CHAR(8), e CHAR(8))",
        "INSERT INTO t VALUES (1, 'secret', 'secret', 'secret', 'secret', 'secret')",
    )
    connector = connector_factory()
    connector.properties |= {
        "column.mask.hash.v2.SHA-256.with.salt.${connection}": rf"{db.name}\.t\.[ab]",
        "column.exclude.list": rf"{db.name}\.t\.c",
        "column.mask.with.3.chars": rf"{db.name}\.t\.d",
        "column.truncate.to.2.chars": rf"{db.name}\.t\.e",
    }
    connector.secrets["column.mask.salt"] = "of the connection"
    (read,) = of_table(capture_records(connector), "t")
    db.sql("INSERT INTO t VALUES (2, 'secret', NULL, 'secret', 'secret', 'secret')")
    (insert,) = of_table(capture_records(connector), "t")
    pseudonym = hashlib.sha256(b"of the connectionsecret").hexdigest()
    assert read["value"]["after"] == {"id": 1, "a": pseudonym, "b": pseudonym[:8], "d": "***", "e": "se"}
    assert insert["value"]["after"] == {"id": 2, "a": pseudonym, "b": None, "d": "***", "e": "se"}
    written = b"".join(f.read_bytes() for f in connector.folder.rglob("*") if f.is_file())
    assert b"secret" not in written
    assert b"of the connection" not in written


@pytest.mark.parametrize(
    ("name", "value", "columns"),
    [
        ("column_propagate_source_type", r"{}\.t\.(v|p)", {"v", "p"}),
        ("datatype_propagate_source_type", r"{}\.t\.VARCHAR", {"v"}),
    ],
)
def test_schemas_can_propagate_the_types_of_columns_in_the_database(
    db: Any, connector_factory: Callable[..., Connector], name: str, value: str, columns: set[str]
) -> None:
    db.sql("CREATE TABLE t (id INT PRIMARY KEY, v VARCHAR(40), p DECIMAL(12, 2))", "INSERT INTO t VALUES (1, 'a', 1.5)")
    (read,) = of_table(capture_records(connector_factory(**{name: value.format(db.name)}), schemas=True), "t")
    prefix = "__debezium.source.column."
    reported = {
        column: {k.removeprefix(prefix): v for k, v in f.get("parameters", {}).items() if k.startswith(prefix)}
        for column, f in row_fields(read).items()
    }
    types = {"v": {"type": "VARCHAR", "length": "40"}, "p": {"type": "DECIMAL", "length": "12", "scale": "2"}}
    assert reported == {column: types[column] if column in columns else {} for column in ("id", "v", "p")}


@pytest.mark.parametrize("on", [True, False])
def test_updates_that_change_no_captured_column_can_be_left_out(
    db: Any, connector_factory: Callable[..., Connector], on: bool
) -> None:
    db.sql("CREATE TABLE t (id INT PRIMARY KEY, v INT, hidden INT)", "INSERT INTO t VALUES (1, 1, 1)")
    given = {"skip_messages_without_change": True} if on else {}
    connector = connector_factory(column_exclude_list=f"{db.name}.t.hidden", **given)
    capture_records(connector)
    db.sql("UPDATE t SET hidden = 2", "UPDATE t SET v = 2, hidden = 3", "UPDATE t SET v = NULL")
    found = [r["value"]["after"]["v"] for r in capture_records(connector)]
    assert found == ([2, None] if on else [1, 2, None])


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    ("mode", "name"), [(None, "Preis € 1"), ("avro", "Preis___1"), ("avro_unicode", "Preis_u0020_u20ac_u00201")]
)
def test_names_of_fields_can_be_made_fit_for_avro(
    db: Any, connector_factory: Callable[..., Connector], mode: str | None, name: str
) -> None:
    options = {} if mode is None else {"field_name_adjustment_mode": mode}
    db.sql("CREATE TABLE t (id INT PRIMARY KEY, `Preis € 1` INT)", "INSERT INTO t VALUES (1, 2)")
    (read,) = of_table(capture_records(connector_factory(**options), schemas=True), "t")
    assert read["value"]["payload"]["after"] == {"id": 1, name: 2}
    assert list(row_fields(read)) == ["id", name]


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    ("mode", "name"),
    [("none", "p-1.{}.o__t"), ("avro", "p_1.{}.o__t"), ("avro_unicode", "p_u002d1.{}.o_u005f_u005ft")],
)
def test_names_of_schemas_are_made_fit_for_avro_as_the_mode_says(
    db: Any, connector_factory: Callable[..., Connector], mode: str, name: str
) -> None:
    db.sql("CREATE TABLE `o$ t` (id INT PRIMARY KEY)", "INSERT INTO `o$ t` VALUES (1)")
    found = capture_records(connector_factory(topic_prefix="p-1", schema_name_adjustment_mode=mode), schemas=True)
    (read,) = [r for r in found if r["topic"] == f"p-1.{db.name}.o__t"]  # names of schemas are made of those of topics
    database = db.name.replace("_", "_u005f") if mode == "avro_unicode" else db.name
    assert read["key"]["schema"]["name"] == f"{name.format(database)}.Key"


def test_the_delimiter_stands_between_the_parts_of_each_topic(
    db: Any, connector_factory: Callable[..., Connector]
) -> None:
    db.sql("CREATE TABLE t (id INT PRIMARY KEY)")
    connector, usual = (
        connector_factory(topic_delimiter="_", provide_transaction_metadata=True, topic_prefix="p"),
        connector_factory(),
    )
    capture_records(connector)
    db.sql("INSERT INTO t VALUES (1)", "ALTER TABLE t ADD v INT")
    assert {r["topic"] for r in capture_records(connector)} == {"p", f"p_{db.name}_t", "p_transaction"}
    assert MySqlConfig.parse({**usual.properties, **usual.secrets, "topic.prefix": "x"}).topic_delimiter == "."


@pytest.mark.sampled(3)
@pytest.mark.parametrize(("order", "tables"), [("ascending", "cab"), ("descending", "bac"), (None, "abc")])
def test_tables_are_read_in_the_order_of_their_sizes_where_that_is_asked_for(
    db: Any, connector_factory: Callable[..., Connector], order: str | None, tables: str
) -> None:
    for name, rows in (("a", 90), ("b", 900), ("c", 9)):
        db.sql(f"CREATE TABLE {name} (id INT PRIMARY KEY)")
        db.sql(f"INSERT INTO {name} VALUES " + ", ".join(f"({i})" for i in range(rows)), f"ANALYZE TABLE {name}")
    options = {} if order is None else {"snapshot_tables_order_by_row_count": order}
    found = capture_records(connector_factory(snapshot_max_threads=1, **options))
    assert "".join(dict.fromkeys(r["topic"][-1] for r in found if r["topic"] != "test")) == tables
