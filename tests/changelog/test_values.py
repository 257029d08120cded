"""Native values as Debezium's JSON has them, by semantic type."""

from __future__ import annotations

import base64
import datetime as dt
import json
import math
import struct
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_provider_cdc.changelog.values import column_schema, converter
from airflow_provider_cdc.core.schema import GEOMETRY, Column, Declared

DECIMAL = "org.apache.kafka.connect.data.Decimal"


def _convert(value: Any, type_: str, semantic: str | None = None, **more: Any) -> Any:
    return converter(Column(name="c", type=type_, semantic=semantic, **more))(value)


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
    declared = Declared(length=digits)
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
