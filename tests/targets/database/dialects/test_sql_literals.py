"""Values as texts, on arrays: compared with what Python makes of them one by one."""

from __future__ import annotations

import datetime as dt
import zoneinfo

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_provider_cdc.targets.database.dialects import sql_literals

SECONDS = st.one_of(st.none(), st.integers(-(10**9) * 3600, 10**9 * 3600))
LISTS = {"max_size": 20}


@given(st.lists(st.one_of(st.none(), st.binary(max_size=12)), **LISTS), st.integers(0, 3))
def test_bytes_are_hexadecimal(values: list[bytes | None], offset: int) -> None:
    array = pa.array(values, pa.binary()).slice(offset)
    assert sql_literals.format_hexadecimal(array).to_pylist() == [
        None if v is None else v.hex() for v in values[offset:]
    ]


@given(st.lists(SECONDS, **LISTS), st.integers(0, 6))
def test_times_have_hours_minutes_and_seconds(values: list[int | None], scale: int) -> None:
    def format_time(micros: int) -> str:
        seconds, fraction = divmod(abs(micros), 10**6)
        text = f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}"
        text += f".{fraction:06}"[: 1 + scale] if scale else ""
        return f"-{text}" if micros < 0 else text

    found = sql_literals.format_clock_times(pa.array(values, pa.int64()), scale).to_pylist()
    assert found == [None if v is None else format_time(v) for v in values]


MOMENTS = st.datetimes(dt.datetime(1000, 1, 1), dt.datetime(9999, 12, 31))


@given(st.lists(st.one_of(st.none(), MOMENTS), **LISTS), st.sampled_from(["us", "ns"]), st.integers(0, 6))
def test_times_without_a_zone_are_reported_as_they_are(
    values: list[dt.datetime | None], unit: str, digits: int
) -> None:
    if unit == "ns":
        values = [None if v is None else v.replace(year=1700 + v.year % 500, day=min(v.day, 28)) for v in values]
    found = sql_literals.format_timestamps(pa.array(values, pa.timestamp(unit)), digits=digits).to_pylist()
    expected = [None if v is None else v.isoformat(" ", "microseconds")[: 20 + digits - (digits == 0)] for v in values]
    assert found == expected


@pytest.mark.parametrize("zone", ["UTC", "Europe/Berlin", "America/St_Johns"])
@given(values=st.lists(st.one_of(st.none(), st.datetimes(dt.datetime(1900, 1, 1), dt.datetime(2100, 1, 1))), **LISTS))
def test_moments_are_reported_in_a_zone(values: list[dt.datetime | None], zone: str) -> None:
    moments = [None if v is None else v.replace(tzinfo=dt.UTC) for v in values]
    there = zoneinfo.ZoneInfo(zone)
    expected = [
        None if m is None else m.astimezone(there).replace(tzinfo=None).isoformat(" ", "microseconds") for m in moments
    ]
    assert (
        sql_literals.format_zoned_timestamps(pa.array(moments, pa.timestamp("us", tz="UTC")), zone).to_pylist()
        == expected
    )
    iso = [None if m is None else m.astimezone(zoneinfo.ZoneInfo("Asia/Kathmandu")).isoformat() for m in moments]
    assert sql_literals.format_zoned_timestamps(pa.array(iso, pa.string()), zone).to_pylist() == expected


@given(st.lists(st.one_of(st.none(), st.integers(0, 2**12 - 1)), **LISTS))
def test_bits_are_zeros_and_ones_with_the_highest_first(values: list[int | None]) -> None:
    array = pa.array([None if v is None else v.to_bytes(2, "little") for v in values], pa.binary())
    assert sql_literals.format_bits(array, 12).to_pylist() == [None if v is None else f"{v:012b}" for v in values]
