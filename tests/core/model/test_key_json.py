"""Keys as JSON: what is sent is read exactly, or refused with what is valid."""

from __future__ import annotations

import datetime as dt
import json
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_provider_cdc.core.model.key_json import (
    InvalidKeyValue,
    build_key_arrays,
    build_sort_key,
    key_from_json,
    key_to_json,
    keys_of,
    parse_key_value,
)
from airflow_provider_cdc.core.model.table_schema import Column, arrow_type

VALUES: dict[str, st.SearchStrategy[Any]] = {
    "bool": st.booleans(),
    "int8": st.integers(-128, 127),
    "int64": st.integers(-(2**63), 2**63 - 1),
    "double": st.floats(allow_nan=False, allow_infinity=False),
    "string": st.text(st.characters(exclude_categories=["Cs"])),
    "binary": st.binary(),
    "date32[day]": st.dates(),
    "timestamp[us]": st.datetimes(),
    "timestamp[ms]": st.datetimes().map(lambda d: d.replace(microsecond=d.microsecond // 1000 * 1000)),
    "timestamp[us, tz=UTC]": st.datetimes(timezones=st.just(dt.UTC)),
    "decimal128(12, 3)": st.decimals(Decimal("-999999999"), Decimal("999999999"), places=3),
    "decimal128(30, 12)": st.decimals(Decimal(-1), Decimal(1), places=12),
    "decimal128(38, 0)": st.integers(-(10**38) + 1, 10**38 - 1).map(Decimal),
}


@pytest.mark.parametrize("type_", VALUES)
def test_every_value_comes_back_from_its_json(type_: str) -> None:
    column = Column(name="k", type=type_)

    @given(st.lists(VALUES[type_], min_size=1, max_size=5))
    def check_once(values: list[Any]) -> None:
        expected = pa.array(values, arrow_type(type_))
        sent = [json.loads(json.dumps(key_to_json([v])[0])) for v in values]
        keys = [[parse_key_value(v, column)] for v in sent]
        assert build_key_arrays(keys, [column])[0].equals(expected)
        assert keys == keys_of([expected]), "one form"
        assert [key_from_json(key, [type_]) for key in keys] == [[v] for v in expected.to_pylist()]
        ranks = [build_sort_key(key, [column]) for key in keys]
        if type_ in ("string", "binary"):
            assert ranks == [None] * len(keys)
        else:
            assert [values[i] for i in sorted(range(len(keys)), key=lambda i: ranks[i])] == sorted(values)  # type: ignore[arg-type, return-value]

    check_once()


@pytest.mark.parametrize(
    ("type_", "sent", "kept"),
    [
        ("decimal128(5, 2)", "1.5", "1.50"),
        ("decimal128(5, 2)", "-001.500", "-1.50"),
        ("decimal128(5, 2)", 7, "7.00"),
        ("decimal128(5, 2)", "-0", "0.00"),
        ("timestamp[us]", "2024-02-29 12:00:00", "2024-02-29T12:00:00"),
        ("timestamp[us]", "2024-02-29T12:00:00.5", "2024-02-29T12:00:00.500000"),
        ("timestamp[ns]", "2024-02-29T12:00:00.123456789", "2024-02-29T12:00:00.123456789"),
        ("timestamp[us, tz=UTC]", "2024-02-29T12:00:00+02:00", "2024-02-29T10:00:00+00:00"),
        ("timestamp[ns, tz=UTC]", "2024-02-29T12:00:00.000000001Z", "2024-02-29T12:00:00.000000001+00:00"),
        ("float", 1, 1.0),
    ],
)
def test_other_spellings_are_read_as_the_one_form(type_: str, sent: Any, kept: Any) -> None:
    column = Column(name="k", type=type_)
    assert parse_key_value(sent, column) == kept
    assert keys_of(build_key_arrays([[kept]], [column])) == [[kept]]


@pytest.mark.parametrize(
    ("type_", "sent", "valid"),
    [
        ("int8", 128, "a whole JSON number from -128 to 127"),
        ("int64", "7", "a whole JSON number"),
        ("int64", 7.0, "a whole JSON number"),
        ("int64", True, "a whole JSON number"),
        ("int64", None, '"k" is null; a int64 is a whole JSON number'),
        ("bool", 1, "true or false"),
        ("decimal128(5, 2)", 1.5, 'a string such as "1.50": JSON numbers are not exact'),
        ("decimal128(5, 2)", "1.505", "at most 5 digits, 2 of them after the point"),
        ("decimal128(5, 2)", "1000", "at most 5 digits, 2 of them after the point"),
        ("decimal128(5, 2)", "1e2", 'a string such as "1.50"'),
        ("decimal128(5, 0)", "NaN", 'a string such as "1"'),
        ("double", "1.5", "a JSON number"),
        ("double", float("nan"), "a JSON number"),
        ("string", 7, "a JSON string"),
        ("string", "\ud800", "a JSON string"),
        ("binary", "AQ=", "a base64 string"),
        ("binary", [1, 2], "a base64 string"),
        ("date32[day]", "2024-02-30", 'a string such as "2024-02-29"'),
        ("date32[day]", "2024-02-29T00:00:00", 'a string such as "2024-02-29"'),
        ("timestamp[us]", "2024-02-29T12:00:00Z", "without a time zone"),
        ("timestamp[us]", "2024-02-29T25:00:00", 'a string such as "2024-02-29T12:00:00.123456"'),
        ("timestamp[us]", "2024-02-29T12:00:00.1234567", 'a string such as "2024-02-29T12:00:00.123456"'),
        ("timestamp[us, tz=UTC]", "2024-02-29T12:00:00", "with the UTC offset"),
        ("timestamp[us, tz=UTC]", 0, "with the UTC offset"),
        ("list<item: float>", [1.0], "keys of this type are not supported"),
    ],
)
def test_what_is_no_value_is_refused_with_what_is(type_: str, sent: Any, valid: str) -> None:
    with pytest.raises(InvalidKeyValue) as caught:
        parse_key_value(sent, Column(name="k", type=type_))
    assert valid in str(caught.value)


def test_a_moment_that_its_type_cannot_hold_is_refused() -> None:
    column = Column(name="k", type="timestamp[ns]")
    with pytest.raises(InvalidKeyValue, match="does not fit"):
        build_key_arrays([[parse_key_value("3000-01-01T00:00:00", column)]], [column])
