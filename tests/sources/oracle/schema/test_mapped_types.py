"""Columns of Oracle as the documents map them: schema and value of each type, equal in a snapshot and in the stream."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dev.servers.oracle import Oracle
from tests.sources.oracle.redo.redo_tables import config
from tests.sources.oracle_adapter import oracle_connector
from tests.support.change_log.rendered import capture_records, of_table, row_fields
from tests.support.sources.oracle.oracle_server import NLS, drop_all

DECIMAL, VARIABLE = "org.apache.kafka.connect.data.Decimal", "io.debezium.data.VariableScaleDecimal"
CONNECT = "org.apache.kafka.connect.data"
LOGGED = "ALTER TABLE {} ADD SUPPLEMENTAL LOG DATA (ALL) COLUMNS"
Node = dict[str, Any]


def _encode_unscaled(value: int) -> str:
    return base64.b64encode(value.to_bytes((value + (value < 0)).bit_length() // 8 + 1, "big", signed=True)).decode()


def _variable(value: int, scale: int) -> Node:
    return {"scale": scale, "value": _encode_unscaled(value)}


def _named_type(kind: str, name: str, **parameters: str) -> Node:
    return {"type": kind, "name": name, "version": 1} | ({"parameters": parameters} if parameters else {})


def _decimal(precision: int, scale: int) -> Node:
    return _named_type("bytes", DECIMAL, **{"scale": str(scale), "connect.decimal.precision": str(precision)})


STRING, BYTES, INT8, INT16, INT32, INT64 = ({"type": t} for t in ("string", "bytes", "int8", "int16", "int32", "int64"))
FLOAT, DOUBLE = {"type": "float"}, {"type": "double"}
VARYING: Node = _named_type("struct", VARIABLE) | {
    "doc": "Variable scaled decimal",
    "fields": [
        {"type": "int32", "optional": False, "field": "scale"},
        {"type": "bytes", "optional": False, "field": "value"},
    ],
}
MILLIS, MICROS, NANOS = (_named_type("int64", f"io.debezium.time.{unit}Timestamp") for unit in ("", "Micro", "Nano"))
ZONED, DURATION = (
    _named_type("string", "io.debezium.time.ZonedTimestamp"),
    _named_type("int64", "io.debezium.time.MicroDuration"),
)
INTERVAL = _named_type("string", "io.debezium.time.Interval")
SECOND = 1529476623
MONTH = 2_629_800_000_000
AT = "2018-06-20 06:37:03"

# declared type, literal, node of the schema, value in JSON
TYPES: list[tuple[str, str, Node, Any]] = [
    ("CHAR(5)", "'ab'", STRING, "ab   "),
    ("CHAR", "'x'", STRING, "x"),
    ("NCHAR(4)", "'äb'", STRING, "äb  "),
    ("NVARCHAR2(9)", "'日本'", STRING, "日本"),
    ("VARCHAR(9)", "'it''s '", STRING, "it's "),
    ("VARCHAR2(9)", "'é'", STRING, "é"),
    ("VARCHAR2(9 CHAR)", "'𝄞'", STRING, "𝄞"),
    ("RAW(4)", "HEXTORAW('00FF0A')", BYTES, "AP8K"),
    ("BINARY_FLOAT", "0.1", FLOAT, 0.1),
    ("BINARY_DOUBLE", "0.1", DOUBLE, 0.1),
    ("DECIMAL", "7", _decimal(38, 0), _encode_unscaled(7)),
    ("DECIMAL(2)", "-99", INT8, -99),
    ("DECIMAL(9,3)", "-1.5", _decimal(9, 3), _encode_unscaled(-1500)),
    ("DOUBLE PRECISION", "-0.25", VARYING, _variable(-25, 2)),
    ("FLOAT", "1.5", VARYING, _variable(15, 1)),
    ("FLOAT(10)", "100", VARYING, _variable(100, 0)),
    ("INTEGER", "99999999999999999999999999999999999999", _decimal(38, 0), _encode_unscaled(10**38 - 1)),
    ("INT", "-1", _decimal(38, 0), _encode_unscaled(-1)),
    ("SMALLINT", "32768", _decimal(38, 0), _encode_unscaled(32768)),
    ("NUMBER", "12345678901234567890.5", VARYING, _variable(123456789012345678905, 1)),
    ("NUMBER(*)", "-0.000001", VARYING, _variable(-1, 6)),
    ("NUMBER(1)", "-9", INT8, -9),
    ("NUMBER(2)", "99", INT8, 99),
    ("NUMBER(3)", "-999", INT16, -999),
    ("NUMBER(4,0)", "9999", INT16, 9999),
    ("NUMBER(3,-1)", "1230", INT16, 1230),
    ("NUMBER(5)", "99999", INT32, 99999),
    ("NUMBER(9)", "-999999999", INT32, -999999999),
    ("NUMBER(10)", "9999999999", INT64, 9999999999),
    ("NUMBER(18)", "-999999999999999999", INT64, -(10**18) + 1),
    ("NUMBER(10,-2)", "123456789049", INT64, 123456789000),
    ("NUMBER(10,-2)", "-150", INT64, -200),
    ("NUMBER(19)", "9999999999999999999", _decimal(19, 0), _encode_unscaled(10**19 - 1)),
    ("NUMBER(17,-2)", "1234567890123456789", _decimal(17, -2), _encode_unscaled(12345678901234568)),
    ("NUMBER(10,2)", "0.18", _decimal(10, 2), _encode_unscaled(18)),
    ("NUMBER(2,5)", "-0.00099", _decimal(2, 5), _encode_unscaled(-99)),
    ("NUMBER(10,50)", "1.5e-45", _decimal(10, 50), _encode_unscaled(150000)),
    ("NUMERIC", "5", _decimal(38, 0), _encode_unscaled(5)),
    ("NUMERIC(18)", "5", INT64, 5),
    ("NUMERIC(6,1)", "255.55", _decimal(6, 1), _encode_unscaled(2556)),
    ("REAL", "0.5", VARYING, _variable(5, 1)),
    ("DATE", f"TO_DATE('{AT}')", MILLIS, SECOND * 1000),
    ("DATE", "TO_DATE('1969-12-31 23:59:59')", MILLIS, -1000),
    ("TIMESTAMP(0)", f"TO_TIMESTAMP('{AT}')", MILLIS, SECOND * 1000),
    ("TIMESTAMP(3)", f"TO_TIMESTAMP('{AT}.123')", MILLIS, SECOND * 1000 + 123),
    ("TIMESTAMP", f"TO_TIMESTAMP('{AT}.123456')", MICROS, SECOND * 10**6 + 123_456),
    ("TIMESTAMP(4)", f"TO_TIMESTAMP('{AT}.1234')", MICROS, SECOND * 10**6 + 123_400),
    ("TIMESTAMP(6)", "TO_TIMESTAMP('9999-12-31 23:59:59.999999')", MICROS, 253402300799999999),
    ("TIMESTAMP(7)", f"TO_TIMESTAMP('{AT}.1234567')", NANOS, SECOND * 10**9 + 123_456_700),
    ("TIMESTAMP(9)", f"TO_TIMESTAMP('{AT}.123456789')", NANOS, SECOND * 10**9 + 123_456_789),
    ("TIMESTAMP WITH TIME ZONE", f"TO_TIMESTAMP_TZ('{AT}.5 +05:30')", ZONED, "2018-06-20T06:37:03.500000+05:30"),
    ("TIMESTAMP(0) WITH TIME ZONE", f"TO_TIMESTAMP_TZ('{AT} +00:00')", ZONED, "2018-06-20T06:37:03Z"),
    ("TIMESTAMP(9) WITH TIME ZONE", f"TO_TIMESTAMP_TZ('{AT}.123456789 -08:00')", ZONED, "2018-06-20T06:37:03.123456789-08:00"),
    ("TIMESTAMP WITH LOCAL TIME ZONE", f"TO_TIMESTAMP_TZ('{AT}.5 -07:00')", ZONED, "2018-06-20T13:37:03.500000Z"),
    ("TIMESTAMP(0) WITH LOCAL TIME ZONE", f"TO_TIMESTAMP_TZ('{AT} +02:00')", ZONED, "2018-06-20T04:37:03Z"),
    ("TIMESTAMP(9) WITH LOCAL TIME ZONE", f"TO_TIMESTAMP_TZ('{AT}.123456789 +00:00')", ZONED, "2018-06-20T06:37:03.123456789Z"),
    ("INTERVAL DAY TO SECOND", "TO_DSINTERVAL('3 04:05:06.78')", DURATION, 273906_780_000),
    ("INTERVAL DAY(3) TO SECOND(9)", "TO_DSINTERVAL('-100 00:00:00.000001')", DURATION, -8_640_000_000_001),
    ("INTERVAL YEAR TO MONTH", "TO_YMINTERVAL('1-2')", DURATION, 14 * MONTH),
    ("INTERVAL YEAR(4) TO MONTH", "TO_YMINTERVAL('-9999-11')", DURATION, -(9999 * 12 + 11) * MONTH),
    ("ROWID", "'AAAR0pAAHAAAACAAAB'", STRING, "AAAR0pAAHAAAACAAAB"),
]  # fmt: skip


def _capture_type_records(server: Oracle, folder: Path, types: list[tuple[str, str]], **properties: Any) -> list[Any]:
    """A table with a column of each type: the records of one row in a snapshot and of another from the log."""
    columns = ", ".join(f"C{i} {declared}" for i, (declared, _) in enumerate(types))
    insert = f"INSERT INTO T VALUES (%s, {', '.join(literal for _, literal in types)})"
    server.sql(f"CREATE TABLE T (ID NUMBER(9) PRIMARY KEY, {columns})", LOGGED.format("T"))
    try:
        server.sql(NLS, insert.replace("%s", "1", 1))
        connector = oracle_connector(server, folder, schema_include_list="APP", **properties)
        first = of_table(capture_records(connector, schemas=True), "T")
        server.sql(NLS, insert.replace("%s", "2", 1))
        found = [*first, *of_table(capture_records(connector, schemas=True), "T")]
    finally:
        server.sql("DROP TABLE T PURGE")
    assert [r["value"]["payload"]["op"] for r in found] == ["r", "c"]
    return found


def _capture_both_values(
    server: Oracle, folder: Path, types: list[tuple[str, str]], **properties: Any
) -> tuple[list[Any], list[Node]]:
    """Values of both records, which must be the same, and the nodes of their schema."""
    found = _capture_type_records(server, folder, types, **properties)
    rows = [[r["value"]["payload"]["after"][f"C{i}"] for i in range(len(types))] for r in found]
    nodes = [[row_fields(r)[f"C{i}"] for i in range(len(types))] for r in found]
    assert rows[0] == rows[1]
    assert nodes[0] == nodes[1]
    return rows[0], [{k: v for k, v in f.items() if k not in ("field", "optional")} for f in nodes[0]]


@pytest.fixture(scope="module")
def type_records(oracle: Oracle, tmp_path_factory: pytest.TempPathFactory) -> list[Any]:
    drop_all(oracle)
    return _capture_type_records(
        oracle, tmp_path_factory.mktemp("types"), [(declared, literal) for declared, literal, *_ in TYPES]
    )


@pytest.mark.parametrize("i", range(len(TYPES)), ids=[f"{declared} {literal}"[:50] for declared, literal, *_ in TYPES])
def test_each_type_has_its_documented_schema_and_value(type_records: list[Any], i: int) -> None:
    _, _, node, value = TYPES[i]
    for record in type_records:
        assert row_fields(record)[f"C{i}"] == node | {"optional": True, "field": f"C{i}"}
        actual = record["value"]["payload"]["after"][f"C{i}"]
        assert (type(actual), actual) == (type(value), value)


# handling modes

NUMBERS = [
    ("BINARY_FLOAT", "1.5"), ("BINARY_DOUBLE", "-1.5"), ("DECIMAL(9,2)", "-12.5"), ("DECIMAL", "7"), ("DOUBLE PRECISION", "0.25"),
    ("FLOAT(20)", "2.5"), ("INTEGER", "3"), ("SMALLINT", "-4"), ("NUMBER", "1.125"), ("NUMBER(25)", "10000000000000000001"),
    ("NUMBER(17,-2)", "123400"), ("NUMBER(10,2)", "0.5"), ("NUMERIC(20,1)", "0.1"), ("REAL", "-8.5"),
]  # fmt: skip
WHOLE = [("NUMBER(2)", "1"), ("NUMBER(4)", "2"), ("NUMBER(9)", "3"), ("NUMBER(18)", "4"), ("NUMBER(8,-2)", "500")]


@pytest.mark.parametrize(
    ("mode", "kind", "values"),
    [
        ("double", DOUBLE, [-12.5, 7.0, 0.25, 2.5, 3.0, -4.0, 1.125, 1e19, 123400.0, 0.5, 0.1, -8.5]),
        ("string", STRING, ["-12.50", "7", "0.25", "2.5", "3", "-4", "1.125", "10000000000000000001", "123400", "0.50", "0.1", "-8.5"]),
    ],
)  # fmt: skip
def test_decimals_are_doubles_or_texts_by_their_handling_mode(
    schema: Oracle, tmp_path: Path, mode: str, kind: Node, values: list[Any]
) -> None:
    found, nodes = _capture_both_values(schema, tmp_path, NUMBERS, decimal_handling_mode=mode)
    assert [(type(v), v) for v in found] == [(type(v), v) for v in [1.5, -1.5, *values]]
    assert nodes == [FLOAT, DOUBLE, *[kind] * len(values)]
    assert config().decimal_handling_mode == "precise"


@pytest.mark.parametrize("mode", ["precise", "double", "string"])
def test_whole_numbers_of_up_to_18_digits_are_integers_in_every_mode(schema: Oracle, tmp_path: Path, mode: str) -> None:
    found, nodes = _capture_both_values(schema, tmp_path, WHOLE, decimal_handling_mode=mode)
    assert found == [1, 2, 3, 4, 500]
    assert nodes == [INT8, INT16, INT32, INT64, INT64]


@pytest.mark.parametrize(
    ("mode", "kind", "value"),
    [
        (None, BYTES, "+/8A"), ("bytes", BYTES, "+/8A"), ("base64", STRING, "+/8A"), ("base64-url-safe", STRING, "-_8A"),
        ("hex", STRING, "fbff00"),
    ],
)  # fmt: skip
def test_bytes_by_their_handling_mode(schema: Oracle, tmp_path: Path, mode: str | None, kind: Node, value: str) -> None:
    options = {} if mode is None else {"binary_handling_mode": mode}
    types = [("RAW(3)", "HEXTORAW('FBFF00')"), ("BLOB", "HEXTORAW('FBFF00')")]
    found, nodes = _capture_both_values(schema, tmp_path, types, lob_enabled=True, **options)
    assert (found, nodes) == ([value] * 2, [kind] * 2)


TIMES = [
    ("DATE", f"TO_DATE('{AT}')"), ("TIMESTAMP(0)", f"TO_TIMESTAMP('{AT}')"), ("TIMESTAMP(3)", f"TO_TIMESTAMP('{AT}.123')"),
    ("TIMESTAMP(6)", f"TO_TIMESTAMP('{AT}.123456')"), ("TIMESTAMP(9)", f"TO_TIMESTAMP('{AT}.123456789')"),
]  # fmt: skip
UNTOUCHED = [
    ("TIMESTAMP WITH TIME ZONE", f"TO_TIMESTAMP_TZ('{AT} +01:00')"),
    ("TIMESTAMP WITH LOCAL TIME ZONE", f"TO_TIMESTAMP_TZ('{AT} +01:00')"),
    ("INTERVAL DAY TO SECOND", "TO_DSINTERVAL('0 00:00:01')"),
    ("INTERVAL YEAR TO MONTH", "TO_YMINTERVAL('0-1')"),
]


def test_connect_times_are_those_of_kafka_connect(schema: Oracle, tmp_path: Path) -> None:
    found, nodes = _capture_both_values(schema, tmp_path, TIMES, time_precision_mode="connect")
    stamp = _named_type("int64", f"{CONNECT}.Timestamp")
    assert found == [17702, SECOND * 1000, *[SECOND * 1000 + 123] * 3]
    assert nodes == [_named_type("int32", f"{CONNECT}.Date"), *[stamp] * 4]
    assert config().time_precision_mode == "adaptive"


@pytest.mark.parametrize("mode", ["adaptive", "adaptive_time_microseconds", "connect"])
def test_zoned_times_and_intervals_do_not_depend_on_the_precision_mode(
    schema: Oracle, tmp_path: Path, mode: str
) -> None:
    found, nodes = _capture_both_values(schema, tmp_path, UNTOUCHED, time_precision_mode=mode)
    assert found == ["2018-06-20T06:37:03.000000+01:00", "2018-06-20T05:37:03.000000Z", 10**6, MONTH]
    assert nodes == [ZONED, ZONED, DURATION, DURATION]


def test_the_time_of_day_of_a_date_stays_unless_connect_is_asked_for(schema: Oracle, tmp_path: Path) -> None:
    types = [("DATE", f"TO_DATE('{AT}')")]
    for mode in ("adaptive", "adaptive_time_microseconds"):
        assert _capture_both_values(schema, tmp_path / mode, types, time_precision_mode=mode) == (
            [SECOND * 1000],
            [MILLIS],
        )
    assert _capture_both_values(schema, tmp_path / "default", types) == ([SECOND * 1000], [MILLIS])


def test_intervals_as_texts(schema: Oracle, tmp_path: Path) -> None:
    types = [
        ("INTERVAL YEAR TO MONTH", "TO_YMINTERVAL('1-2')"), ("INTERVAL YEAR(4) TO MONTH", "TO_YMINTERVAL('-3-6')"),
        ("INTERVAL DAY TO SECOND", "TO_DSINTERVAL('3 04:05:06.78')"),
        ("INTERVAL DAY TO SECOND", "TO_DSINTERVAL('-1 02:03:04.56')"), ("INTERVAL DAY TO SECOND", "TO_DSINTERVAL('0 00:00:00')"),
    ]  # fmt: skip
    found, nodes = _capture_both_values(schema, tmp_path, types, interval_handling_mode="string")
    assert found == [
        "P1Y2M0DT0H0M0S", "P-3Y-6M0DT0H0M0S", "P0Y0M3DT4H5M6.78S", "P0Y0M-1DT-2H-3M-4.56S", "P0Y0M0DT0H0M0S",
    ]  # fmt: skip
    assert nodes == [INTERVAL] * 5
    assert config().interval_handling_mode == "numeric"


@pytest.mark.parametrize("zone", ["UTC", "America/Los_Angeles", "Asia/Kathmandu"])
def test_local_times_are_as_they_were_written_and_instants_utc_wherever_capture_runs(
    schema: Oracle, tmp_path: Path, in_zone: Any, zone: str
) -> None:
    in_zone(zone)
    types = [("DATE", f"TO_DATE('{AT}')"), ("TIMESTAMP", f"TO_TIMESTAMP('{AT}')"), *UNTOUCHED[:2]]
    found, _ = _capture_both_values(schema, tmp_path, types)
    assert found == [SECOND * 1000, SECOND * 10**6, "2018-06-20T06:37:03.000000+01:00", "2018-06-20T05:37:03.000000Z"]


@pytest.fixture
def in_zone(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Sets the time zone of this process."""
    import time

    def set_(zone: str) -> None:
        monkeypatch.setenv("TZ", zone)
        time.tzset()

    yield set_
    monkeypatch.undo()
    time.tzset()


# defaults

MADE = "2021-01-02T03:04:05"
DAY = 1609545600
DEFAULTS: list[tuple[str, Any]] = [
    ("CHAR(2) DEFAULT 'ab'", "ab"), ("NCHAR(2) DEFAULT N'äb'", "äb"), ("VARCHAR(9) DEFAULT 'v'", "v"),
    ("VARCHAR2(9) DEFAULT 'it''s'", "it's"), ("NVARCHAR2(9) DEFAULT 'é'", "é"), ("INTEGER DEFAULT 7", _encode_unscaled(7)),
    ("NUMERIC(5) DEFAULT -5", -5), ("NUMBER(8,2) DEFAULT 1.5", _encode_unscaled(150)), ("NUMBER DEFAULT 2.5", _variable(25, 1)),
    ("FLOAT DEFAULT .5", _variable(5, 1)), ("BINARY_FLOAT DEFAULT 1.5", 1.5), ("BINARY_DOUBLE DEFAULT -1.5", -1.5),
    ("DATE DEFAULT TO_DATE('2021-01-02','YYYY-MM-DD')", DAY * 1000), ("DATE DEFAULT DATE '2021-01-02'", DAY * 1000),
    ("DATE DEFAULT TO_DATE('02.01.2021 03:04','DD.MM.YYYY HH24:MI')", (DAY + 11040) * 1000),
    ("TIMESTAMP DEFAULT TO_TIMESTAMP('02.01.2021 03:04:05.678','DD.MM.YYYY HH24:MI:SS.FF3')", (DAY + 11045) * 10**6 + 678_000),
    ("TIMESTAMP(3) DEFAULT TIMESTAMP '2021-01-02 03:04:05.678'", (DAY + 11045) * 1000 + 678),
    ("TIMESTAMP(9) DEFAULT TIMESTAMP '2021-01-02 03:04:05.123456789'", (DAY + 11045) * 10**9 + 123_456_789),
    ("TIMESTAMP(3) WITH TIME ZONE DEFAULT TIMESTAMP '2021-01-02 03:04:05 +01:00'", f"{MADE}.000+01:00"),
    ("TIMESTAMP(0) WITH LOCAL TIME ZONE DEFAULT TIMESTAMP '2021-01-02 04:04:05 +01:00'", f"{MADE}Z"),
    ("INTERVAL YEAR TO MONTH DEFAULT INTERVAL '1-2' YEAR TO MONTH", 14 * MONTH),
    ("INTERVAL YEAR TO MONTH DEFAULT TO_YMINTERVAL('-1-2')", -14 * MONTH),
    ("INTERVAL DAY TO SECOND DEFAULT INTERVAL '5' HOUR", 18_000_000_000),
    ("INTERVAL DAY TO SECOND DEFAULT TO_DSINTERVAL('1 02:03:04.5')", 93_784_500_000),
    ("DATE DEFAULT SYSDATE", None), ("DATE DEFAULT SYSDATE NOT NULL", 0), ("TIMESTAMP(3) DEFAULT SYSDATE NOT NULL", 0),
    ("TIMESTAMP DEFAULT SYSTIMESTAMP NOT NULL", 0), ("TIMESTAMP(9) DEFAULT SYSDATE NOT NULL", 0),
    ("TIMESTAMP WITH TIME ZONE DEFAULT SYSTIMESTAMP", None),
    ("TIMESTAMP WITH TIME ZONE DEFAULT SYSTIMESTAMP NOT NULL", "1970-01-01T00:00:00Z"),
    ("TIMESTAMP WITH LOCAL TIME ZONE DEFAULT SYSDATE NOT NULL", "1970-01-01T00:00:00Z"),
    ("NUMBER(9) DEFAULT NULL", None), ("VARCHAR2(30) DEFAULT USER", None), ("NUMBER(9)", None),
]  # fmt: skip


def _defaults(server: Oracle, folder: Path, declared: list[str], **properties: Any) -> list[list[Node]]:
    """Nodes of a table that is there when capture begins, and of one that is created later."""
    columns = ", ".join(f"C{i} {text}" for i, text in enumerate(declared))
    connector = oracle_connector(server, folder, schema_include_list="APP", **properties)
    found = []
    for table in ("EARLY", "LATE"):
        server.sql(f"CREATE TABLE {table} (ID NUMBER(9) PRIMARY KEY, {columns})", LOGGED.format(table))
        server.sql(f"INSERT INTO {table} (ID) VALUES (1)")
        (record,) = of_table(capture_records(connector, schemas=True), table)
        found.append([row_fields(record)[f"C{i}"] for i in range(len(declared))])
    return found


def test_defaults_are_those_of_the_dictionary_and_of_the_ddl_alike(schema: Oracle, tmp_path: Path) -> None:
    for nodes in _defaults(schema, tmp_path, [text for text, _ in DEFAULTS]):
        assert [(text, n.get("default")) for (text, _), n in zip(DEFAULTS, nodes, strict=True)] == DEFAULTS
        assert [n["optional"] for n in nodes] == ["NOT NULL" not in text for text, _ in DEFAULTS]


def test_a_default_has_the_unit_of_its_column(schema: Oracle, tmp_path: Path) -> None:
    declared = [
        "DATE DEFAULT TO_DATE('2021-01-02','YYYY-MM-DD')", "TIMESTAMP(9) DEFAULT TIMESTAMP '2021-01-02 00:00:00.5'",
        "INTERVAL YEAR TO MONTH DEFAULT INTERVAL '1-2' YEAR TO MONTH",
        "INTERVAL DAY TO SECOND DEFAULT INTERVAL '-1 02:03:04.5' DAY TO SECOND", "NUMBER(9,1) DEFAULT 1.5", "NUMBER DEFAULT 1.5",
        "DATE DEFAULT SYSDATE NOT NULL",
    ]  # fmt: skip
    modes = {"time_precision_mode": "connect", "interval_handling_mode": "string", "decimal_handling_mode": "double"}
    for nodes in _defaults(schema, tmp_path, declared, **modes):
        assert [n.get("default") for n in nodes] == [
            18629, DAY * 1000 + 500, "P1Y2M0DT0H0M0S", "P0Y0M-1DT-2H-3M-4.5S", 1.5, 1.5, 0,
        ]  # fmt: skip


def test_a_default_without_a_value_stops_nothing(schema: Oracle, tmp_path: Path) -> None:
    declared = ["DATE DEFAULT TO_DATE('2021-02-31','YYYY-MM-DD')", "DATE DEFAULT TO_DATE('31.02.2021','DD.MM.YYYY')"]
    columns = ", ".join(f"C{i} {text}" for i, text in enumerate(declared))
    schema.sql(f"CREATE TABLE T (ID NUMBER(9) PRIMARY KEY, {columns})", LOGGED.format("T"))
    schema.sql("INSERT INTO T VALUES (1, NULL, NULL)")
    (record,) = of_table(
        capture_records(oracle_connector(schema, tmp_path, schema_include_list="APP"), schemas=True), "T"
    )
    assert "default" not in row_fields(record)["C0"]
    assert record["value"]["payload"]["after"] == {"ID": 1, "C0": None, "C1": None}


def test_raw_may_be_a_key(schema: Oracle, tmp_path: Path) -> None:
    schema.sql("CREATE TABLE T (K RAW(16) PRIMARY KEY, V NUMBER(9))", LOGGED.format("T"))
    schema.sql("INSERT INTO T VALUES (HEXTORAW('FBFF00'), 1)")
    connector = oracle_connector(schema, tmp_path, schema_include_list="APP", binary_handling_mode="hex")
    found = of_table(capture_records(connector), "T")
    schema.sql("UPDATE T SET V = 2", "UPDATE T SET K = HEXTORAW('00')")
    found += of_table(capture_records(connector), "T")
    assert [(r["key"]["K"], r["value"] and r["value"]["op"]) for r in found] == [
        ("fbff00", "r"), ("fbff00", "u"), ("fbff00", "d"), ("fbff00", None), ("00", "c"),
    ]  # fmt: skip
