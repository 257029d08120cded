"""Native values as Debezium's JSON has them, by semantic type."""

from __future__ import annotations

import base64
import datetime as dt
import json
import math
import struct
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_provider_cdc.changelog.debezium.debezium_values import (
    as_integers,
    build_converter,
    column_schema,
    find_placeholder,
)
from airflow_provider_cdc.core.model.table_schema import GEOMETRY, Column, ColumnDeclaration

ZONED = "io.debezium.time.ZonedTimestamp"
DECIMAL = "org.apache.kafka.connect.data.Decimal"


def _convert(value: Any, type_: str, semantic: str | None = None, **more: Any) -> Any:
    return build_converter(Column(name="c", type=type_, semantic=semantic, **more))(value)


@given(st.decimals(allow_nan=False, allow_infinity=False, places=3, min_value=-(10**12), max_value=10**12))
def test_a_decimal_is_the_twos_complement_of_its_unscaled_value(value: Decimal) -> None:
    text = _convert(value, "decimal128(20, 3)", DECIMAL, parameters={"scale": "3"})
    raw = base64.b64decode(text)
    number = int.from_bytes(raw, "big", signed=True)
    assert Decimal(number).scaleb(-3) == value
    # the shortest form, as java.math.BigInteger.toByteArray gives it
    assert len(raw) == 1 or int.from_bytes(raw[1:], "big", signed=True) != number


@pytest.mark.parametrize(
    ("value", "raw"),
    [
        ("0.00", "00"),
        ("0.01", "01"),
        ("1.27", "7f"),
        ("1.28", "0080"),
        ("-1.28", "80"),
        ("-1.29", "ff7f"),
        ("-0.01", "ff"),
    ],
)
def test_decimals_at_the_edges_of_a_byte(value: str, raw: str) -> None:
    text = _convert(Decimal(value), "decimal128(10, 2)", DECIMAL, parameters={"scale": "2"})
    assert base64.b64decode(text).hex() == raw


@given(st.dates())
def test_a_date_is_days_since_1970(value: dt.date) -> None:
    days = _convert(value, "date32[day]", "io.debezium.time.Date")
    assert dt.date(1970, 1, 1) + dt.timedelta(days=days) == value


@given(st.datetimes())
def test_a_timestamp_is_milliseconds_or_microseconds_rounded_down(value: dt.datetime) -> None:
    micro = _convert(value, "timestamp[us]", "io.debezium.time.MicroTimestamp")
    assert dt.datetime(1970, 1, 1) + dt.timedelta(microseconds=micro) == value
    assert _convert(value, "timestamp[us]", "io.debezium.time.Timestamp") == micro // 1000


@pytest.mark.parametrize(
    ("digits", "text"),
    [
        (0, "2024-02-29T23:59:59Z"),
        (1, "2024-02-29T23:59:59.0Z"),
        (3, "2024-02-29T23:59:59.012Z"),
        (6, "2024-02-29T23:59:59.012345Z"),
    ],
)
def test_a_zoned_timestamp_is_a_text_in_utc_with_the_columns_decimals(digits: int, text: str) -> None:
    value = dt.datetime(2024, 3, 1, 1, 59, 59, 12345, dt.timezone(dt.timedelta(hours=2)))
    declared = ColumnDeclaration(length=digits)
    assert _convert(value, "timestamp[us, tz=UTC]", "io.debezium.time.ZonedTimestamp", declared=declared) == text


def _digits(value: float) -> int:
    return len(Decimal(repr(value)).normalize().as_tuple().digits)


@given(st.floats(width=32))
def test_a_float_is_the_shortest_decimal_that_means_it(value: float) -> None:
    shown = _convert(value, "float")
    if not math.isfinite(value):
        assert shown in ("Infinity", "-Infinity", "NaN")
        return
    assert struct.pack("<f", shown) == struct.pack("<f", value)
    assert _digits(shown) <= min(9, _digits(value))


@given(st.floats())
def test_a_double_is_itself_and_always_json(value: float) -> None:
    shown = json.loads(json.dumps(_convert(value, "double"), allow_nan=False))
    if math.isfinite(value):
        assert shown == value
    else:
        assert float(shown.replace("Infinity", "inf")) == value or (math.isnan(value) and shown == "NaN")


@given(st.binary())
def test_bytes_are_base64(value: bytes) -> None:
    assert base64.b64decode(_convert(value, "binary")) == value


@given(st.floats(allow_nan=False), st.floats(allow_nan=False), st.sampled_from("<>"))
def test_a_point_has_its_coordinates_and_its_binary_form(x: float, y: float, order: str) -> None:
    wkb = struct.pack(f"{order}BIdd", order == "<", 1, x, y)
    shown = _convert({"wkb": wkb, "srid": 4326}, GEOMETRY, "io.debezium.data.geometry.Point")
    assert (shown["x"], shown["y"], shown["srid"]) == (x, y, 4326)
    assert base64.b64decode(shown["wkb"]) == wkb


def test_a_geometry_is_its_binary_form() -> None:
    shown = _convert({"wkb": b"\x01", "srid": None}, GEOMETRY, "io.debezium.data.geometry.Geometry")
    assert shown == {"wkb": "AQ==", "srid": None}


@pytest.mark.parametrize(
    ("column", "node"),
    [
        (Column(name="c", type="int16"), {"type": "int16", "optional": True, "field": "c"}),
        (Column(name="c", type="bool", nullable=False), {"type": "boolean", "optional": False, "field": "c"}),
        (Column(name="c", type="binary"), {"type": "bytes", "optional": True, "field": "c"}),
        (
            Column(name="c", type="date32[day]", semantic="io.debezium.time.Date"),
            {"type": "int32", "optional": True, "name": "io.debezium.time.Date", "version": 1, "field": "c"},
        ),
        (
            Column(name="c", type="timestamp[us, tz=UTC]", semantic="io.debezium.time.ZonedTimestamp"),
            {"type": "string", "optional": True, "name": "io.debezium.time.ZonedTimestamp", "version": 1, "field": "c"},
        ),
    ],
)
def test_a_column_is_described_as_connect_does(column: Column, node: dict[str, Any]) -> None:
    assert column_schema(column) == node
    assert column_schema(column, optional=False)["optional"] is False


def test_a_decimal_is_described_with_its_parameters() -> None:
    column = Column(name="c", type="decimal128(5, 2)", semantic=DECIMAL, parameters={"scale": "2"})
    assert column_schema(column) | {"version": 1} == {
        "type": "bytes", "optional": True, "name": DECIMAL, "version": 1, "parameters": {"scale": "2"}, "field": "c",
    }  # fmt: skip


# -- finer than Python's own datetimes, longer than Arrow's decimals -------------------------------------------------------------

_NANOS = st.integers(-9_223_372_036_854_775_807, 9_223_372_036_854_775_807)


@given(_NANOS)
def test_nanoseconds_are_counted_from_1970_in_the_unit_of_the_semantic_type(nanos: int) -> None:
    assert _convert(nanos, "timestamp[ns]", "io.debezium.time.NanoTimestamp") == nanos
    assert _convert(nanos, "timestamp[ns]", "io.debezium.time.MicroTimestamp") == nanos // 1000
    assert _convert(nanos, "timestamp[ns]", "org.apache.kafka.connect.data.Timestamp") == nanos // 10**6


@given(_NANOS, st.integers(7, 9))
def test_a_zoned_timestamp_of_nanoseconds_has_the_columns_decimals(nanos: int, digits: int) -> None:
    declared = ColumnDeclaration(length=digits)
    text = _convert(nanos, "timestamp[ns, tz=UTC]", "io.debezium.time.ZonedTimestamp", declared=declared)
    whole, _, fraction = text.removesuffix("Z").partition(".")
    assert fraction == f"{nanos % 10**9:09d}"[:digits]
    assert (dt.datetime.fromisoformat(whole) - dt.datetime(1970, 1, 1)) // dt.timedelta(seconds=1) == nanos // 10**9


@given(st.lists(st.none() | _NANOS), st.sampled_from([None, "UTC"]))
def test_timestamps_of_nanoseconds_come_out_of_arrow_as_they_are(nanos: list[int | None], zone: str | None) -> None:
    at = pa.array(nanos, pa.int64()).cast(pa.timestamp("ns", tz=zone))
    rows = pa.StructArray.from_arrays([at, pa.array(["x"] * len(nanos))], names=["at", "note"])
    assert as_integers(rows).to_pylist() == [{"at": n, "note": "x"} for n in nanos]
    outer = pa.StructArray.from_arrays([rows], names=["row"], mask=pa.array([True] * len(nanos), pa.bool_()))
    assert as_integers(outer).to_pylist() == [None] * len(nanos)


@given(st.integers(-(10**60), 10**60), st.integers(0, 10))
def test_a_decimal_of_any_length_is_exact(number: int, scale: int) -> None:
    text = _text(number, scale)
    raw = base64.b64decode(_convert(text, "string", DECIMAL, parameters={"scale": str(scale)}))
    assert int.from_bytes(raw, "big", signed=True) == number


def test_a_decimal_of_hundreds_has_its_negative_scale() -> None:
    raw = base64.b64decode(_convert("-12300", "string", DECIMAL, parameters={"scale": "-2"}))
    assert int.from_bytes(raw, "big", signed=True) == -123


@given(st.integers(-(10**60), 10**60), st.integers(0, 20))
def test_a_decimal_with_a_scale_of_its_own_says_it(number: int, scale: int) -> None:
    value = _convert(_text(number, scale), "string", "io.debezium.data.VariableScaleDecimal")
    assert value["scale"] == scale
    assert int.from_bytes(base64.b64decode(value["value"]), "big", signed=True) == number


def _text(number: int, scale: int) -> str:
    digits = f"{abs(number):0{scale + 1}d}"
    sign = "-" if number < 0 else ""
    return sign + (f"{digits[:-scale]}.{digits[-scale:]}" if scale else digits)


@pytest.mark.parametrize(
    ("column", "value", "shown", "literal"),
    [
        (("int64", "io.debezium.time.MicroDuration"), 5_000_001, 5_000_001, "int64"),
        (("string", "io.debezium.time.Interval"), "P1Y2M3DT4H5M6.78S", "P1Y2M3DT4H5M6.78S", "string"),
        (("string", "io.debezium.time.ZonedTimestamp"), "2024-02-29T12:00:00.5+02:00", None, "string"),
        (("string", "io.debezium.data.Xml"), "<a/>", "<a/>", "string"),
        (("date32[day]", "org.apache.kafka.connect.data.Date"), dt.date(2021, 1, 2), 18629, "int32"),
        (("timestamp[us]", "io.debezium.time.Timestamp"), dt.datetime(2021, 1, 2), 1_609_545_600_000, "int64"),
        (("timestamp[ns]", "io.debezium.time.NanoTimestamp"), 7, 7, "int64"),
        (("timestamp[ns, tz=UTC]", "io.debezium.time.ZonedTimestamp"), 7, "1970-01-01T00:00:00.000000007Z", "string"),
        (("string", DECIMAL), "1", "AQ==", "bytes"),
    ],
)
def test_semantic_types_of_all_sources(column: tuple[str, str], value: Any, shown: Any, literal: str) -> None:
    made = Column(
        name="c", type=column[0], semantic=column[1], parameters={"scale": "0"} if column[1] == DECIMAL else {}
    )
    assert build_converter(made)(value) == (value if shown is None else shown)
    node = column_schema(made)
    assert (node["type"], node["name"], node["version"], node["optional"]) == (literal, column[1], 1, True)


def test_a_decimal_with_a_scale_of_its_own_is_a_struct() -> None:
    column = Column(name="c", type="string", semantic="io.debezium.data.VariableScaleDecimal", nullable=False)
    assert column_schema(column) == {
        "type": "struct", "optional": False, "name": "io.debezium.data.VariableScaleDecimal", "version": 1,
        "doc": "Variable scaled decimal", "field": "c",
        "fields": [
            {"type": "int32", "optional": False, "field": "scale"},
            {"type": "bytes", "optional": False, "field": "value"},
        ],
    }  # fmt: skip


def test_a_default_of_nanoseconds_is_a_number() -> None:
    declared = ColumnDeclaration(default="1970-01-01 00:00:01.000000007")
    column = Column(name="c", type="timestamp[ns]", semantic="io.debezium.time.NanoTimestamp", declared=declared)
    assert column_schema(column)["default"] == 1_000_000_007


@pytest.mark.parametrize(
    ("type_", "semantic", "digits", "text", "shown"),
    [
        ("bool", None, None, "1", True), ("bool", None, None, "0", False), ("bool", None, None, "yes", None),
        ("date32[day]", "io.debezium.time.Date", None, "2021-01-02 00:00:00", 18629),
        ("string", ZONED, 3, "2021-01-02 03:04:05.1 +01:00", "2021-01-02T03:04:05.100+01:00"),
        ("string", ZONED, 0, "2021-01-02 03:04:05.000 +00:00", "2021-01-02T03:04:05Z"),
        ("string", ZONED, 3, "2021-01-02 03:04:05.1", None),
        ("timestamp[us, tz=UTC]", ZONED, 6, "2021-01-02 03:04:05.1 +01:00", "2021-01-02T02:04:05.100000Z"),
        ("timestamp[ns, tz=UTC]", ZONED, 9, "1969-12-31 23:59:59.000000001 -01:00", "1970-01-01T00:59:59.000000001Z"),
        ("int64", "io.debezium.time.MicroDuration", None, "+01-02", 14 * 2_629_800_000_000),
        ("int64", "io.debezium.time.MicroDuration", None, "-1 02:03:04.5", -93_784_500_000),
        ("string", "io.debezium.time.Interval", None, "-01-02", "P-1Y-2M0DT0H0M0S"),
        ("string", "io.debezium.time.Interval", None, "+01 02:03:04.500000", "P0Y0M1DT2H3M4.5S"),
        ("int64", "io.debezium.time.MicroDuration", None, "soon", None),
    ],
)  # fmt: skip
def test_a_default_has_the_form_of_the_values(
    type_: str, semantic: str | None, digits: int | None, text: str, shown: Any
) -> None:
    column = Column(name="c", type=type_, semantic=semantic, declared=ColumnDeclaration(default=text, length=digits))
    assert column_schema(column).get("default") == shown


@pytest.mark.parametrize(
    ("type_", "semantic", "shown"),
    [
        ("timestamp[us]", "io.debezium.time.MicroTimestamp", 0), ("timestamp[ns]", "io.debezium.time.NanoTimestamp", 0),
        ("date32[day]", "io.debezium.time.Date", 0), ("string", ZONED, "1970-01-01T00:00:00Z"),
        ("timestamp[us, tz=UTC]", ZONED, "1970-01-01T00:00:00Z"), ("int64", None, None), ("string", None, None),
    ],
)  # fmt: skip
def test_a_moment_that_is_computed_is_the_first_of_1970_where_null_is_not_allowed(
    type_: str, semantic: str | None, shown: Any
) -> None:
    declared = ColumnDeclaration(default="CURRENT_TIMESTAMP", default_is_expression=True, length=6)
    column = Column(name="c", type=type_, semantic=semantic, declared=declared)
    assert "default" not in column_schema(column)
    assert column_schema(column.model_copy(update={"nullable": False})).get("default") == shown


@pytest.mark.parametrize(
    ("column", "mode", "shown"),
    [
        ({"type": "string"}, "bytes", "gone"),
        ({"type": "string"}, "hex", "gone"),
        ({"type": "string", "semantic": "io.debezium.data.Xml"}, "bytes", "gone"),
        ({"type": "binary"}, "bytes", "Z29uZQ=="),
        ({"type": "string", "declared": ColumnDeclaration(jdbc_type=2004)}, "base64", "Z29uZQ=="),
        ({"type": "string", "declared": ColumnDeclaration(jdbc_type=-3)}, "base64-url-safe", "Z29uZQ=="),
        ({"type": "string", "declared": ColumnDeclaration(jdbc_type=2004)}, "hex", "676f6e65"),
        ({"type": "int64"}, "bytes", None),
        ({"type": "timestamp[ns]"}, "bytes", None),
        ({"type": "decimal128(5, 2)", "semantic": DECIMAL}, "bytes", None),
        ({"type": "string", "semantic": DECIMAL}, "bytes", None),
        ({"type": "string", "semantic": "io.debezium.data.VariableScaleDecimal"}, "bytes", None),
    ],
)
def test_the_placeholder_has_the_form_of_the_column(column: dict[str, Any], mode: str, shown: str | None) -> None:
    assert find_placeholder(Column(name="c", **column), "gone", mode) == shown
