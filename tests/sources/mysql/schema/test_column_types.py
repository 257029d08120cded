"""Each type and each handling mode has the documented schema and value, from a snapshot and from the log."""

from __future__ import annotations

import base64
import struct
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.change_log.rendered import capture_records, of_table, row_fields
from tests.support.connectors import mysql_connector

DECIMAL = "org.apache.kafka.connect.data.Decimal"


def _b64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _named_type(type_: str, name: str, **parameters: str) -> dict[str, Any]:
    return {"type": type_, "name": name, "version": 1} | ({"parameters": parameters} if parameters else {})


def _encode_unscaled(number: int) -> str:
    return _b64(number.to_bytes((number + (number < 0)).bit_length() // 8 + 1, "big", signed=True))


def _line(*points: tuple[float, float]) -> bytes:
    return struct.pack("<I", len(points)) + b"".join(struct.pack("<dd", *p) for p in points)


def _point(x: float, y: float) -> bytes:
    return struct.pack("<BIdd", 1, 1, x, y)


RING = ((0, 0), (0, 1), (1, 1), (0, 0))
LINE = struct.pack("<BI", 1, 2) + _line((0, 0), (1, 2))
POLYGON = struct.pack("<BII", 1, 3, 1) + _line(*RING)
GEOMETRY = {
    "type": "struct", "name": "io.debezium.data.geometry.Geometry", "version": 1, "doc": "Geometry", "fields": [
        {"type": "bytes", "optional": False, "field": "wkb"}, {"type": "int32", "optional": True, "field": "srid"},
    ],
}  # fmt: skip
POINT = {
    "type": "struct", "name": "io.debezium.data.geometry.Point", "version": 1, "doc": "Geometry (POINT)", "fields": [
        {"type": "double", "optional": False, "field": "x"}, {"type": "double", "optional": False, "field": "y"},
        {"type": "bytes", "optional": True, "field": "wkb"}, {"type": "int32", "optional": True, "field": "srid"},
    ],
}  # fmt: skip
STRING, BYTES = {"type": "string"}, {"type": "bytes"}
ZONED, MICROTIME = (
    _named_type("string", "io.debezium.time.ZonedTimestamp"),
    _named_type("int64", "io.debezium.time.MicroTime"),
)
MILLIS, MICROS = (
    _named_type("int64", "io.debezium.time.Timestamp"),
    _named_type("int64", "io.debezium.time.MicroTimestamp"),
)
JSON = _named_type("string", "io.debezium.data.Json")
SECOND = 1529476623

# declared type, literal, node of the schema, value in JSON
TYPES: list[tuple[str, str, dict[str, Any], Any]] = [
    ("BIT(1)", "b'1'", {"type": "boolean"}, True),
    ("BIT(8)", "x'81'", _named_type("bytes", "io.debezium.data.Bits", length="8"), _b64(b"\x81")),
    ("BIT(10)", "b'1000000011'", _named_type("bytes", "io.debezium.data.Bits", length="10"), _b64(b"\x03\x02")),
    ("TINYINT", "-128", {"type": "int16"}, -128),
    ("SMALLINT", "-32768", {"type": "int16"}, -32768),
    ("SMALLINT(3)", "32767", {"type": "int16"}, 32767),
    ("MEDIUMINT", "-8388608", {"type": "int32"}, -8388608),
    ("INT", "-2147483648", {"type": "int32"}, -(2**31)),
    ("INTEGER(4)", "2147483647", {"type": "int32"}, 2**31 - 1),
    ("BIGINT", "-9223372036854775808", {"type": "int64"}, -(2**63)),
    ("TINYINT UNSIGNED", "255", {"type": "int16"}, 255),
    ("SMALLINT UNSIGNED", "65535", {"type": "int32"}, 65535),
    ("MEDIUMINT UNSIGNED", "16777215", {"type": "int32"}, 16777215),
    ("INT UNSIGNED", "4294967295", {"type": "int64"}, 2**32 - 1),
    ("FLOAT", "0.1", {"type": "float"}, 0.1),
    ("FLOAT(23)", "1.5", {"type": "float"}, 1.5),
    ("FLOAT(25)", "0.1", {"type": "double"}, 0.1),
    ("FLOAT(53)", "0.1", {"type": "double"}, 0.1),
    ("DOUBLE", "0.1", {"type": "double"}, 0.1),
    ("DOUBLE(10,2)", "-12.25", {"type": "double"}, -12.25),
    ("CHAR(5)", "'äb'", STRING, "äb"),
    ("VARCHAR(20)", "'é😀 '", STRING, "é😀 "),
    ("BINARY(3)", "x'00ff'", BYTES, _b64(b"\x00\xff\x00")),
    ("VARBINARY(9)", "x'00ff00'", BYTES, _b64(b"\x00\xff\x00")),
    ("TINYBLOB", "x'00'", BYTES, "AA=="),
    ("BLOB", "x'01'", BYTES, "AQ=="),
    ("MEDIUMBLOB", "x'02'", BYTES, "Ag=="),
    ("LONGBLOB", "x'03'", BYTES, "Aw=="),
    ("TINYTEXT", "'ä'", STRING, "ä"),
    ("TEXT", "'b'", STRING, "b"),
    ("MEDIUMTEXT", "'c'", STRING, "c"),
    ("LONGTEXT", "''", STRING, ""),
    ("VARCHAR(9) CHARACTER SET latin1", "'é'", STRING, "é"),
    ("VARCHAR(9) CHARACTER SET cp1251", "'Привет'", STRING, "Привет"),
    ("JSON", "'{\"a\": [1, null]}'", JSON, '{"a": [1, null]}'),
    ("JSON", "'[1, \"x\"]'", JSON, '[1, "x"]'),
    ("JSON", "'\"x\"'", JSON, '"x"'),
    ("ENUM('a','it''s')", "'it''s'", _named_type("string", "io.debezium.data.Enum", allowed="a,it's"), "it's"),
    ("SET('p','q','r')", "'p,r'", _named_type("string", "io.debezium.data.EnumSet", allowed="p,q,r"), "p,r"),
    ("TIMESTAMP NULL", "'2018-06-20 06:37:03'", ZONED, "2018-06-20T06:37:03Z"),
    ("TIMESTAMP(1) NULL", "'2018-06-20 06:37:03.1'", ZONED, "2018-06-20T06:37:03.1Z"),
    ("TIMESTAMP(3) NULL", "'2018-06-20 06:37:03.123'", ZONED, "2018-06-20T06:37:03.123Z"),
    ("TIMESTAMP(6) NULL", "'2018-06-20 06:37:03.123456'", ZONED, "2018-06-20T06:37:03.123456Z"),
    ("DATE", "'2024-02-29'", _named_type("int32", "io.debezium.time.Date"), 19782),
    ("DATE", "'1969-12-31'", _named_type("int32", "io.debezium.time.Date"), -1),
    ("TIME", "'12:34:56'", MICROTIME, 45_296_000_000),
    ("TIME(3)", "'12:34:56.789'", MICROTIME, 45_296_789_000),
    ("TIME(6)", "'23:59:59.999999'", MICROTIME, 86_399_999_999),
    ("TIME", "'-838:59:59'", MICROTIME, -3_020_399_000_000),
    ("DATETIME", "'2018-06-20 06:37:03'", MILLIS, SECOND * 1000),
    ("DATETIME(3)", "'2018-06-20 06:37:03.123'", MILLIS, SECOND * 1000 + 123),
    ("DATETIME(4)", "'2018-06-20 06:37:03.1234'", MICROS, SECOND * 10**6 + 123_400),
    ("DATETIME(6)", "'2018-06-20 06:37:03.123456'", MICROS, SECOND * 10**6 + 123_456),
    ("DECIMAL(10,3)", "-1.5", _named_type("bytes", DECIMAL, scale="3", **{"connect.decimal.precision": "10"}), _encode_unscaled(-1500)),
    ("NUMERIC(6)", "255", _named_type("bytes", DECIMAL, scale="0", **{"connect.decimal.precision": "6"}), _encode_unscaled(255)),
    ("BIGINT UNSIGNED", "9223372036854775807", {"type": "int64"}, 2**63 - 1),
    ("POINT", "ST_GeomFromText('POINT(1 2)')", POINT, {"x": 1.0, "y": 2.0, "wkb": _b64(_point(1, 2)), "srid": None}),
    ("GEOMETRY", "ST_GeomFromText('LINESTRING(0 0,1 2)')", GEOMETRY, {"wkb": _b64(LINE), "srid": None}),
    ("LINESTRING", "ST_GeomFromText('LINESTRING(0 0,1 2)', 3857)", GEOMETRY, {"wkb": _b64(LINE), "srid": 3857}),
    ("POLYGON", "ST_GeomFromText('POLYGON((0 0,0 1,1 1,0 0))')", GEOMETRY, {"wkb": _b64(POLYGON), "srid": None}),
    ("MULTIPOINT", "ST_GeomFromText('MULTIPOINT(1 2)')", GEOMETRY, {"wkb": _b64(struct.pack("<BII", 1, 4, 1) + _point(1, 2)), "srid": None}),
    ("MULTILINESTRING", "ST_GeomFromText('MULTILINESTRING((0 0,1 2))')", GEOMETRY, {"wkb": _b64(struct.pack("<BII", 1, 5, 1) + LINE), "srid": None}),
    ("MULTIPOLYGON", "ST_GeomFromText('MULTIPOLYGON(((0 0,0 1,1 1,0 0)))')", GEOMETRY, {"wkb": _b64(struct.pack("<BII", 1, 6, 1) + POLYGON), "srid": None}),
    ("GEOMETRYCOLLECTION", "ST_GeomFromText('GEOMETRYCOLLECTION(POINT(1 2))')", GEOMETRY, {"wkb": _b64(struct.pack("<BII", 1, 7, 1) + _point(1, 2)), "srid": None}),
    ("VECTOR(3)", "STRING_TO_VECTOR('[1,2.5,-3]')", {"type": "array", "items": {"type": "float", "optional": False}, "name": "io.debezium.data.FloatVector", "version": 1}, [1.0, 2.5, -3.0]),
    ("YEAR", "2024", _named_type("int32", "io.debezium.time.Year"), 2024),
]  # fmt: skip


@pytest.fixture(scope="module")
def type_records(mysql97: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Any]]:
    """Capture a table with a column of each type; yield the records of a row in a snapshot and one in the log."""
    with mysql97.database("forms") as db:
        columns = ", ".join(f"c{i} {declared}" for i, (declared, *_) in enumerate(TYPES))
        db.sql(f"CREATE TABLE t (id INT PRIMARY KEY, {columns})")
        values = ", ".join(literal for _, literal, *_ in TYPES)
        insert = f"INSERT INTO t VALUES (%s, {values})"
        db.sql(insert.replace("%s", "1", 1))
        connector = mysql_connector(mysql97, tmp_path_factory.mktemp("forms"), "mysql", database_include_list=db.name)
        first = of_table(capture_records(connector, schemas=True), "t")
        db.sql(insert.replace("%s", "2", 1))
        yield [*first, *of_table(capture_records(connector, schemas=True), "t")]


@pytest.mark.parametrize("i", range(len(TYPES)), ids=[f"{declared} {literal}"[:40] for declared, literal, *_ in TYPES])
def test_each_type_has_its_documented_schema_and_value(type_records: list[Any], i: int) -> None:
    _, _, node, value = TYPES[i]
    read, created = type_records
    assert (read["value"]["payload"]["op"], created["value"]["payload"]["op"]) == ("r", "c")
    for record in type_records:
        assert row_fields(record)[f"c{i}"] == node | {"optional": True, "field": f"c{i}"}
        actual = record["value"]["payload"]["after"][f"c{i}"]
        assert (type(actual), actual) == (type(value), value)


@pytest.fixture
def db(mysql97: Any) -> Iterator[Any]:
    with mysql97.database("modes") as database:
        yield database


def _capture_both_images(
    db: Any, folder: Path, table: str, values: str, **properties: Any
) -> tuple[list[Any], dict[str, Any]]:
    """Row images of one row from a snapshot and of one from the log, and the nodes of their schema."""
    db.sql(f"INSERT INTO {table} VALUES (1, {values})")
    connector = mysql_connector(db.server, folder, "mysql", database_include_list=db.name, **properties)
    found = of_table(capture_records(connector, schemas=True), table)
    db.sql(f"INSERT INTO {table} VALUES (2, {values})")
    found += of_table(capture_records(connector, schemas=True), table)
    db.sql(f"DELETE FROM {table}")
    images = [{n: v for n, v in r["value"]["payload"]["after"].items() if n != "id"} for r in found]
    assert len(images) == 2
    nodes = [{n: f for n, f in row_fields(r).items() if n != "id"} for r in found]
    assert nodes[0] == nodes[1]
    return images, {n: {k: v for k, v in f.items() if k not in ("field", "optional")} for n, f in nodes[0].items()}


# handling modes


@pytest.mark.parametrize(
    ("mode", "node", "value"),
    [
        (None, _named_type("bytes", DECIMAL, scale="2", **{"connect.decimal.precision": "8"}), _encode_unscaled(-1250)),
        (
            "precise",
            _named_type("bytes", DECIMAL, scale="2", **{"connect.decimal.precision": "8"}),
            _encode_unscaled(-1250),
        ),
        ("double", {"type": "double"}, -12.5),
        ("string", {"type": "string"}, "-12.50"),
    ],
)
def test_decimals_by_their_handling_mode(db: Any, tmp_path: Path, mode: str | None, node: Any, value: Any) -> None:
    db.sql("CREATE TABLE t (id INT PRIMARY KEY, d DECIMAL(8,2), n NUMERIC(8,2))")
    options = {} if mode is None else {"decimal_handling_mode": mode}
    images, nodes = _capture_both_images(db, tmp_path, "t", "-12.5, -12.5", **options)
    assert images == [{"d": value, "n": value}] * 2
    assert nodes == {"d": node, "n": node}


BLOBS = ("BINARY(3)", "VARBINARY(9)", "TINYBLOB", "BLOB", "MEDIUMBLOB", "LONGBLOB")


@pytest.mark.parametrize(
    ("mode", "kind", "value"),
    [
        (None, "bytes", "+/8A"),
        ("bytes", "bytes", "+/8A"),
        ("base64", "string", "+/8A"),
        ("base64-url-safe", "string", "-_8A"),
        ("hex", "string", "fbff00"),
    ],
)
def test_binary_values_by_their_handling_mode(db: Any, tmp_path: Path, mode: str | None, kind: str, value: str) -> None:
    db.sql(f"CREATE TABLE t (id INT PRIMARY KEY, {', '.join(f'b{i} {t}' for i, t in enumerate(BLOBS))})")
    options = {} if mode is None else {"binary_handling_mode": mode}
    images, nodes = _capture_both_images(db, tmp_path, "t", ", ".join(["x'fbff00'"] * len(BLOBS)), **options)
    assert images == [{f"b{i}": value for i in range(len(BLOBS))}] * 2
    assert list(nodes.values()) == [{"type": kind}] * len(BLOBS)


def test_unsigned_bigints_are_longs_or_decimals(db: Any, tmp_path: Path) -> None:
    db.sql("CREATE TABLE t (id INT PRIMARY KEY, u BIGINT UNSIGNED)")
    for number, options in enumerate(({}, {"bigint_unsigned_handling_mode": "long"})):
        images, nodes = _capture_both_images(db, tmp_path / str(number), "t", "9223372036854775807", **options)
        assert (images, nodes) == ([{"u": 2**63 - 1}] * 2, {"u": {"type": "int64"}})
    images, nodes = _capture_both_images(
        db, tmp_path / "precise", "t", "18446744073709551615", bigint_unsigned_handling_mode="precise"
    )
    assert images == [{"u": _encode_unscaled(2**64 - 1)}] * 2
    assert nodes == {"u": _named_type("bytes", DECIMAL, scale="0", **{"connect.decimal.precision": "20"})}


CONNECT = "org.apache.kafka.connect.data"


def test_connect_times_are_those_of_kafka_connect(db: Any, tmp_path: Path) -> None:
    db.sql("CREATE TABLE t (id INT PRIMARY KEY, d DATE, t0 TIME, t6 TIME(6), dt DATETIME, dt6 DATETIME(6))")
    values = "'2024-02-29', '12:34:56', '12:34:56.789123', '2018-06-20 06:37:03', '2018-06-20 06:37:03.123456'"
    images, nodes = _capture_both_images(db, tmp_path, "t", values, time_precision_mode="connect")
    image = {"d": 19782, "t0": 45_296_000, "t6": 45_296_789, "dt": SECOND * 1000, "dt6": SECOND * 1000 + 123}
    assert images == [image] * 2
    time_, stamp = _named_type("int32", f"{CONNECT}.Time"), _named_type("int64", f"{CONNECT}.Timestamp")
    assert nodes == {"d": _named_type("int32", f"{CONNECT}.Date"), "t0": time_, "t6": time_, "dt": stamp, "dt6": stamp}


def test_the_time_precision_never_touches_timestamps(db: Any, tmp_path: Path) -> None:
    db.sql("CREATE TABLE t (id INT PRIMARY KEY, d DATE, t TIME, dt DATETIME(6), ts TIMESTAMP(6) NULL)")
    names = []
    values = "'2024-02-29', '01:00:00', '2018-06-20 06:37:03', '2018-06-20 06:37:03.123456'"
    for mode in (None, "adaptive_time_microseconds", "adaptive", "connect"):
        options = {} if mode is None else {"time_precision_mode": mode}
        images, nodes = _capture_both_images(db, tmp_path / str(mode), "t", values, **options)
        assert [i["ts"] for i in images] == ["2018-06-20T06:37:03.123456Z"] * 2
        assert nodes["ts"] == ZONED
        names.append([nodes[c]["name"].removeprefix("io.debezium.time.") for c in ("d", "t", "dt")])
    assert names == [
        *[["Date", "MicroTime", "MicroTimestamp"]] * 2,
        ["Date", "Time", "MicroTimestamp"],
        [f"{CONNECT}.Date", f"{CONNECT}.Time", f"{CONNECT}.Timestamp"],
    ]


# time zones


def _insert_in_zone(db: Any, zone: str, statement: str) -> None:
    with db.connect(autocommit=True) as connection, connection.cursor() as cursor:
        cursor.execute("SET time_zone = %s, sql_mode = ''", (zone,))
        cursor.execute(statement)


@pytest.mark.parametrize("host", ["UTC", "America/Los_Angeles", "Asia/Kathmandu"])
def test_instants_are_utc_and_local_times_as_they_were_written_wherever_capture_runs(
    db: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, host: str
) -> None:
    db.sql("CREATE TABLE t (id INT PRIMARY KEY, ts TIMESTAMP NULL, dt DATETIME, d DATE, t TIME)")
    written = "'2018-06-20 06:37:03', '2018-06-20 06:37:03', '2018-06-20', '06:37:03'"
    monkeypatch.setenv("TZ", host)
    time.tzset()
    try:
        _insert_in_zone(db, "-07:00", f"INSERT INTO t VALUES (1, {written})")
        connector = mysql_connector(db.server, tmp_path, "mysql", database_include_list=db.name)
        found = capture_records(connector)
        _insert_in_zone(db, "-07:00", f"INSERT INTO t VALUES (2, {written})")
        found += capture_records(connector)
    finally:
        monkeypatch.undo()
        time.tzset()
    images = [{n: v for n, v in r["value"]["after"].items() if n != "id"} for r in of_table(found, "t")]
    image = {"ts": "2018-06-20T13:37:03Z", "dt": SECOND * 1000, "d": 17702, "t": 23_823_000_000}
    assert images == [image] * 2


def test_dates_of_zeros_are_null_or_the_first_day_of_the_epoch(db: Any, tmp_path: Path) -> None:
    kinds = ("DATE", "DATETIME", "TIMESTAMP")
    columns = [f"n{i} {t} NULL, x{i} {t} NOT NULL" for i, t in enumerate(kinds)]
    _insert_in_zone(db, "+00:00", f"CREATE TABLE t (id INT PRIMARY KEY, {', '.join(columns)})")
    zeros = ", ".join(["'0000-00-00'"] * 6)
    _insert_in_zone(db, "+00:00", f"INSERT INTO t VALUES (1, {zeros})")
    connector = mysql_connector(db.server, tmp_path, "mysql", database_include_list=db.name)
    found = capture_records(connector)
    _insert_in_zone(db, "+00:00", f"INSERT INTO t VALUES (2, {zeros})")
    found += capture_records(connector)
    images = [r["value"]["after"] for r in of_table(found, "t")]
    assert len(images) == 2
    for image in images:
        assert [image[f"n{i}"] for i in range(3)] == [None, None, None]
        assert [image[f"x{i}"] for i in range(3)] == [0, 0, "1970-01-01T00:00:00Z"]
