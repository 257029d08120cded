"""Columns of Db2 as the documents map them: schema and value of each type in records, equal in a snapshot and in the stream."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from dev.servers.db2 import Db2
from tests.sources.db2_adapter import Db2Adapter
from tests.support.change_log.rendered import Record, capture_records, of_table, row_fields
from tests.support.sources.db2.db2_settings import config

Node = dict[str, Any]
MappedRows = tuple[list[Any], list[Node]]
"""The values of a row, and the nodes of its schema."""


def _encode_unscaled(value: int) -> str:
    return base64.b64encode(value.to_bytes((value + (value < 0)).bit_length() // 8 + 1, "big", signed=True)).decode()


def _named_type(kind: str, name: str, **parameters: str) -> Node:
    return {"type": kind, "name": name, "version": 1} | ({"parameters": parameters} if parameters else {})


def _decimal(precision: int, scale: int) -> Node:
    name = "org.apache.kafka.connect.data.Decimal"
    return _named_type("bytes", name, **{"scale": str(scale), "connect.decimal.precision": str(precision)})


STRING, BYTES = {"type": "string"}, {"type": "bytes"}
DAY, TIME, AT = "2018-06-20", "15:13:16", "2018-06-20 15:13:16"
DAYS, MS, SECOND = 17_702, 54_796_000, 1_529_507_596

# declared type, literal, node of the schema, value in JSON
TYPES: list[tuple[str, str, Node, Any]] = [
    ("SMALLINT", "-32768", {"type": "int16"}, -32768),
    ("INTEGER", "2147483647", {"type": "int32"}, 2147483647),
    ("BIGINT", "9223372036854775807", {"type": "int64"}, 9223372036854775807),
    ("REAL", "1.5", {"type": "float"}, 1.5),
    ("DOUBLE", "0.1", {"type": "double"}, 0.1),
    ("DECIMAL(9,2)", "-1.5", _decimal(9, 2), _encode_unscaled(-150)),
    ("NUMERIC(5,1)", "12.5", _decimal(5, 1), _encode_unscaled(125)),
    ("CHAR(5)", "'ab'", STRING, "ab   "),
    ("VARCHAR(9)", "'it''s '", STRING, "it's "),
    ("CLOB(1K)", "CAST('long' AS CLOB(1K))", STRING, "long"),
    ("VARGRAPHIC(9)", "'日本'", STRING, "日本"),
    ("DBCLOB(1K)", "CAST('日' AS CLOB(1K))", STRING, "日"),
    ("BINARY(3)", "X'00FF0A'", BYTES, "AP8K"),
    ("VARBINARY(4)", "X'00FF0A'", BYTES, "AP8K"),
    ("BLOB(1K)", "CAST(X'00FF0A' AS BLOB(1K))", BYTES, "AP8K"),
    ("DATE", f"'{DAY}'", _named_type("int32", "io.debezium.time.Date"), DAYS),
    ("TIME", f"'{TIME}'", _named_type("int32", "io.debezium.time.Time"), MS),
    ("TIMESTAMP", f"'{AT}.945104'", _named_type("int64", "io.debezium.time.MicroTimestamp"), SECOND * 10**6 + 945_104),
    ("TIMESTAMP(3)", f"'{AT}.945'", _named_type("int64", "io.debezium.time.Timestamp"), SECOND * 1000 + 945),
    ("TIMESTAMP(9)", f"'{AT}.945104'", _named_type("int64", "io.debezium.time.NanoTimestamp"), SECOND * 10**9 + 945_104_000),
]  # fmt: skip


@pytest.fixture(scope="module")
def db(db2: Db2) -> Iterator[Db2Adapter]:
    """A table with a column of each type, and a row."""
    with ExitStack() as stack:
        adapter = Db2Adapter(db2, stack)
        columns = ", ".join(f"C{i} {declared}" for i, (declared, *_) in enumerate(TYPES))
        adapter.create_as("T", f"ID INTEGER NOT NULL PRIMARY KEY, {columns}")
        _insert(adapter, 1)
        yield adapter


def _insert(db: Db2Adapter, number: int) -> None:
    db.server.transaction(
        f"INSERT INTO {db.name('T')} VALUES ({number}, {', '.join(literal for _, literal, *_ in TYPES)})"
    )
    db.server.catch_up()


def _capture_mapped_rows(db: Db2Adapter, folder: Path, number: int, **properties: Any) -> tuple[MappedRows, MappedRows]:
    """Capture a row in a snapshot and one in the stream, and return both as they are mapped."""
    connector = db.connector(folder, **properties)
    first = of_table(capture_records(connector, schemas=True), "T")
    _insert(db, number)
    found = [first[0], *of_table(capture_records(connector, schemas=True), "T")]
    assert [r["value"]["payload"]["op"] for r in found] == ["r", "c"]
    return _mapped_row(found[0]), _mapped_row(found[1])


def _mapped_row(record: Record) -> MappedRows:
    after, fields = record["value"]["payload"]["after"], row_fields(record)
    nodes = [{k: v for k, v in fields[f"C{i}"].items() if k != "field"} for i in range(len(TYPES))]
    assert all(node.pop("optional") is True for node in nodes)
    return [after[f"C{i}"] for i in range(len(TYPES))], nodes


@pytest.fixture(scope="module")
def mapped_rows(db: Db2Adapter, tmp_path_factory: pytest.TempPathFactory) -> tuple[MappedRows, MappedRows]:
    return _capture_mapped_rows(db, tmp_path_factory.mktemp("types"), 2)


@pytest.mark.parametrize("i", range(len(TYPES)), ids=[declared for declared, *_ in TYPES])
def test_each_type_has_its_documented_schema_and_value(mapped_rows: tuple[MappedRows, MappedRows], i: int) -> None:
    _, _, node, value = TYPES[i]
    for values, nodes in mapped_rows:
        assert (type(values[i]), values[i], nodes[i]) == (type(value), value, node)


def test_connect_times_are_those_of_kafka_connect(db: Db2Adapter, tmp_path: Path) -> None:
    """Milliseconds, whatever digits a second has."""
    name = "org.apache.kafka.connect.data."
    stamp = (_named_type("int64", f"{name}Timestamp"), SECOND * 1000 + 945)
    expected = {
        "DATE": (_named_type("int32", f"{name}Date"), DAYS), "TIME": (_named_type("int32", f"{name}Time"), MS),
        "TIMESTAMP": stamp, "TIMESTAMP(3)": stamp, "TIMESTAMP(9)": stamp,
    }  # fmt: skip
    for values, nodes in _capture_mapped_rows(db, tmp_path, 3, time_precision_mode="connect"):
        found = {TYPES[i][0]: (nodes[i], values[i]) for i in range(len(TYPES))}
        assert {declared: found[declared] for declared in expected} == expected
    assert config().time_precision_mode == "adaptive"
