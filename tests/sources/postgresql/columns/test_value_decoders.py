"""Values of real servers: equal from the binary form, from texts, and to what was stored."""

from __future__ import annotations

import datetime as dt
import json
import math
import struct
from collections.abc import Callable, Iterator
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from airflow_provider_cdc.core.errors import UnreadableValue
from airflow_provider_cdc.core.model.table_schema import Column, arrow_type
from airflow_provider_cdc.sources.postgresql.columns.value_decoders import make_decoder, needs_text
from dev.servers.postgres import Postgres
from tests.support.sources.postgresql.postgresql_column_reader import ColumnReader, configuration, pack

END = dt.datetime(9999, 12, 31, 23, 59, 59, 999999)
BEGIN = dt.datetime(1, 1, 1)
SETUP = (
    "CREATE EXTENSION citext", "CREATE EXTENSION hstore", "CREATE EXTENSION ltree", "CREATE TYPE mood AS ENUM ('sad', 'it''s')",
    "CREATE TYPE pair AS (a int, b text)", "CREATE DOMAIN posint AS int4 CHECK (value > 0)", "CREATE DOMAIN price AS numeric(6, 2)",
    "CREATE DOMAIN posints AS int4[]", "CREATE TYPE priced AS (a int, b money)", "CREATE TYPE nested AS (p pair[], h hstore)",
)  # fmt: skip
repeated = settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.fixture(scope="module", params=["14", "18"])
def reader(request: pytest.FixtureRequest, postgres_factory: Callable[..., Any]) -> Iterator[ColumnReader]:
    server: Postgres
    with postgres_factory(request.param) as server, server.connect() as connection:
        for statement in SETUP:
            connection.execute(statement)
        yield ColumnReader(connection)


KNOWN: dict[str, dict[str | None, Any]] = {
    "bool": {"t": True, "f": False, None: None},
    "int2": {"-32768": -32768, "32767": 32767, None: None},
    "int4": {"-2147483648": -(2**31), "2147483647": 2**31 - 1, None: None},
    "int8": {"-9223372036854775808": -(2**63), "9223372036854775807": 2**63 - 1, "0": 0},
    "oid": {"4294967295": 2**32 - 1, "0": 0},
    "float8": {"5e-324": 5e-324, "1.7976931348623157e+308": 1.7976931348623157e308, "-Infinity": -math.inf, "0.1": 0.1},
    "float4": {"0.5": 0.5, "Infinity": math.inf, "16777216": 16777216.0},
    "numeric(12,2)": {"9999999999.99": Decimal("9999999999.99"), "-0.01": Decimal("-0.01"), "10000": Decimal("10000.00"), None: None},
    "numeric(38,0)": {"9" * 38: Decimal("9" * 38), "-1" + "0" * 37: Decimal("-1" + "0" * 37)},
    "numeric(38,38)": {"0." + "9" * 38: Decimal("0." + "9" * 38), "0." + "0" * 37 + "1": Decimal("0." + "0" * 37 + "1")},
    "numeric": {"1.500": "1.500", "1" + "0" * 40: "1" + "0" * 40, "-0.000001": "-0.000001", "10000": "10000", "0": "0"},
    "numeric(45,5)": {"9" * 40 + ".12345": "9" * 40 + ".12345"},
    "price": {"1.50": Decimal("1.50")},
    "money": {"$1,234.56": Decimal("1234.56"), "-$0.01": Decimal("-0.01")},
    "text": {"": "", "ä€𝄞": "ä€𝄞", "x" * 9000: "x" * 9000, None: None},
    "varchar(3)": {"abc": "abc"},
    "char(4)": {"ab": "ab  "},
    '"char"': {"a": "a", "": ""},
    "bytea": {"\\x00ff": b"\x00\xff", "\\x": b"", None: None},
    "uuid": {"A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11": "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11", None: None},
    "date": {"0001-01-01": dt.date(1, 1, 1), "9999-12-31": dt.date(9999, 12, 31), "1969-12-31": dt.date(1969, 12, 31), None: None},
    "timestamp": {"infinity": END, "-infinity": BEGIN, "1969-12-31 23:59:59.999999": dt.datetime(1969, 12, 31, 23, 59, 59, 999999)},
    "timestamptz": {"infinity": END.replace(tzinfo=dt.UTC), "2024-02-29 12:00:00.5+02": dt.datetime(2024, 2, 29, 10, 0, 0, 500000, dt.UTC)},
    "time": {"24:00:00": 86_400_000_000, "00:00:00.000001": 1},
    "timetz": {"01:02:03.4+05:30": "19:32:03.4Z", "23:59:59-15:59:59": "15:59:58Z"},
    "interval": {"1 mon": 2_629_800_000_000, "-1 day 00:00:01": -86_399_000_000, "-00:00:00.5": -500_000},
    "json": {'{"a" : 1}': '{"a" : 1}'},
    "jsonb": {'{"a" : 1}': '{"a": 1}', None: None},
    "bit(1)": {"1": True, "0": False},
    "bit(10)": {"1000000001": b"\x01\x02"},
    "varbit": {"101": b"\x05", "": b""},
    "int4[]": {"{}": "[]", "{1,NULL}": "[1, null]", "{{1,2},{3,4}}": "[[1, 2], [3, 4]]", "[0:1]={5,6}": '"[0:1]={5,6}"', None: None},
    "text[]": {'{"a b","",NULL,"NULL","x\\"y","c\\\\d"}': json.dumps(["a b", "", None, "NULL", 'x"y', "c\\d"])},
    "numeric[]": {"{1.50,NaN}": '[1.50, "NaN"]'},
    "bool[]": {"{t,f}": "[true, false]"},
    "jsonb[]": {'{"{\\"a\\": 1}"}': '[{"a": 1}]'},
    "box[]": {"{(1,1),(0,0);(2,2),(1,1)}": '["(1,1),(0,0)", "(2,2),(1,1)"]'},
    "pair[]": {'{"(1,\\"a b\\")"}': '["(1,\\"a b\\")"]'},
    "posint": {"5": 5},
    "posints": {"{1,2}": "[1, 2]"},
    "hstore": {'"a"=>"1", "b"=>NULL, "c\\"d"=>""': '{"a": "1", "b": null, "c\\"d": ""}', "": "{}"},
    "point": {"(1.5,-2)": {"wkb": struct.pack("<BIdd", 1, 1, 1.5, -2.0), "srid": None}},
}  # fmt: skip

PRINTED: dict[str, list[str]] = {
    "inet": ["1.2.3.4", "1.2.3.0/24", "::1", "::", "::ffff:1.2.3.4", "::1.2.3.4", "2001:db8::1/64"],
    "cidr": ["10.0.0.0/8", "1.2.3.4/32", "2001:db8::/32"],
    "macaddr": ["08:00:2b:01:02:03"],
    "macaddr8": ["08:00:2b:01:02:03:04:05"],
    "xml": ["<a>ü</a>"],
    "name": ["n"],
    "citext": ["AbC"],
    "ltree": ["a.b.c"],
    "mood": ["sad", "it's"],
    "tsvector": ["'a':1A,2B,3C,4 'b''c' 'd\\\\e':5"],
    "tsquery": ["a & (b | !c) <-> d:*AB", "(a <2> (b <-> c)) & !(d | e)", "a | b & c", "!!a", ""],
    "line": ["{1,2.5,-3}"],
    "lseg": ["[(1,2),(3,4)]"],
    "box": ["(3,4),(1,2)"],
    "path": ["((1,2),(3,4))", "[(1,2),(3,4)]"],
    "polygon": ["((0,0),(1,0),(1,1e+300))"],
    "circle": ["<(1,2),3>"],
    "pg_lsn": ["16/B374D848", "0/0"],
    "txid_snapshot": ["10:20:10,14,15", "10:10:"],
    "xid8": ["18446744073709551615"],
    "tid": ["(1,2)"],
    "jsonpath": ['$."a"[*]'],
    "int4range": ["[1,10)", "empty", "(,5)", "(,)"],
    "tsrange": ['["2020-01-01 00:00:00","2021-01-01 00:00:00")', "[0044-03-15 12:00:00 BC,infinity)"],
    "daterange": ["[0044-03-15 BC,5874897-12-31)"],
    "numrange": ["(1.5,2.5]"],
    "int4multirange": ["{}", "{[1,3),[5,7)}"],
    "tstzmultirange": ['{["2020-01-01 00:00:00+00",)}'],
    "nested": ['("{""(1,\\\\""a b\\\\"")""}","""k""=>""v\\\\""w"", ""n""=>NULL")'],
    "pair": ['(1,"a b")', "(,)", '(2,"x""y\\\\z")', '(3,"")'],
}


@pytest.mark.parametrize("type_", KNOWN)
def test_values_are_equal_in_both_forms_and_to_what_was_stored(reader: ColumnReader, type_: str) -> None:
    binary, text, _ = reader.read_both(type_, list(KNOWN[type_]))
    assert binary.type == text.type == arrow_type(reader.make_column(type_)[0].type)
    binary.validate(full=True)
    assert binary.to_pylist() == text.to_pylist() == list(KNOWN[type_].values())


@pytest.mark.parametrize("type_", PRINTED)
def test_values_without_an_array_of_their_own_are_texts_as_the_server_prints_them(
    reader: ColumnReader, type_: str
) -> None:
    binary, text, printed = reader.read_both(type_, PRINTED[type_])
    assert binary.to_pylist() == text.to_pylist() == printed


def test_a_type_without_a_binary_form_is_read_as_text_at_any_depth(reader: ColumnReader) -> None:
    _, oid, _ = reader.make_column("aclitem")
    _, array_oid, _ = reader.make_column("aclitem[]")
    assert needs_text(oid, reader.types)
    assert needs_text(array_oid, reader.types)
    assert not needs_text(reader.make_column("int4[]")[1], reader.types)


@pytest.mark.parametrize("type_", ["aclitem", "aclitem[]"])
def test_values_that_come_as_texts_only_are_decoded(reader: ColumnReader, type_: str) -> None:
    column, oid, modifier = reader.make_column(type_)
    decoder = make_decoder(column, oid, modifier, reader.types, reader.config)
    text = "cdc=r/cdc" if type_ == "aclitem" else "{cdc=r/cdc}"
    assert decoder.decode(pack([text])).to_pylist() == [text if type_ == "aclitem" else '["cdc=r/cdc"]']
    with pytest.raises(UnreadableValue):
        make_decoder(reader.make_column("aclitem")[0], oid, modifier, reader.types, reader.config).decode(pack([b"x"]))


@pytest.mark.parametrize("type_", ["int2vector", "int2vector[]", "money[]", "priced", "priced[]"])
def test_unknown_parts_make_a_column_unknown_and_its_bytes_can_be_captured(reader: ColumnReader, type_: str) -> None:
    assert reader.make_column(type_)[0].type == "null"
    with_unknown = ColumnReader(reader.connection, configuration(include_unknown_datatypes="true"))
    column, oid, modifier = with_unknown.make_column(type_)
    decoder = make_decoder(column, oid, modifier, with_unknown.types, with_unknown.config)
    assert decoder.decode(pack([b"\x00\xff", None])).to_pylist() == [b"\x00\xff", None]


def test_a_captured_column_of_a_type_that_is_not_in_the_catalog_is_an_error(reader: ColumnReader) -> None:
    with pytest.raises(UnreadableValue, match="OID 999999"):
        make_decoder(Column(name="v", type="int32"), 999999, -1, reader.types, reader.config)


def test_nan_and_bytes_of_a_float_stay(reader: ColumnReader) -> None:
    for type_ in ("float4", "float8"):
        for array in reader.read_both(type_, ["NaN", "-0"])[:2]:
            nan, zero = array.to_pylist()
            assert math.isnan(nan)
            assert math.copysign(1, zero) == -1


@pytest.mark.parametrize(
    ("type_", "value"),
    [
        ("numeric(12,2)", "NaN"), ("numeric", "NaN"), ("numeric", "Infinity"), ("date", "0044-03-15 BC"), ("date", "10000-01-01"),
        ("timestamp", "0001-12-31 23:59:59 BC"), ("timestamptz", "10000-01-01 00:00:00+00"), ("interval", "178000000 years"),
    ],
)  # fmt: skip
def test_a_value_that_the_change_log_has_no_place_for_is_an_error_with_its_column(
    reader: ColumnReader, type_: str, value: str
) -> None:
    with pytest.raises(UnreadableValue) as caught:
        reader.read_both(type_, ["1" if type_.startswith("numeric") else value, value])
    assert caught.value.where == "v"
    assert "not" in caught.value.message or "no " in caught.value.message or "more" in caught.value.message


def test_modes_keep_what_precise_forms_cannot(reader: ColumnReader) -> None:
    texts = ColumnReader(
        reader.connection, configuration(decimal_handling_mode="string", interval_handling_mode="string")
    )
    assert texts.read_both("numeric", ["NaN", "Infinity", "1.50"])[0].to_pylist() == ["NaN", "Infinity", "1.50"]
    assert texts.read_both("numeric(5,2)", ["NaN", "1.5"])[0].to_pylist() == ["NaN", "1.50"]
    for array in texts.read_both("interval", ["1 year 2 mons 3 days 04:05:06.7", "-00:00:00.5"])[:2]:
        assert array.to_pylist() == ["P1Y2M3DT4H5M6.7S", "P0Y0M0DT0H0M-0.5S"]
    doubles = ColumnReader(reader.connection, configuration(decimal_handling_mode="double"))
    assert doubles.read_both("numeric(5,2)", ["1.5"])[0].to_pylist() == [1.5]
    assert math.isnan(doubles.read_both("numeric", ["NaN"])[0][0].as_py())


def test_bytes_have_the_form_that_binary_handling_mode_asks_for(reader: ColumnReader) -> None:
    hexes = ColumnReader(reader.connection, configuration(binary_handling_mode="hex"))
    for array in hexes.read_both("bytea", ["\\x00ff", None])[:2]:
        assert array.to_pylist() == ["00ff", None]


def test_rows_of_both_forms_may_be_mixed(reader: ColumnReader) -> None:
    column, oid, modifier = reader.make_column("numeric(12,2)")
    decoder = make_decoder(column, oid, modifier, reader.types, reader.config)
    assert decoder.decode(pack(["1.5", struct.pack("!4hh", 1, 0, 0, 2, 7), None])).to_pylist() == [
        Decimal("1.50"),
        Decimal("7.00"),
        None,
    ]


@pytest.mark.parametrize(
    "type_", ["int4", "numeric(12,2)", "uuid", "timestamp", "bool", "jsonb", "int4[]", "tsvector", "inet", "pair"]
)
def test_other_bytes_than_a_value_has_are_an_error(reader: ColumnReader, type_: str) -> None:
    column, oid, modifier = reader.make_column(type_)
    decoder = make_decoder(column, oid, modifier, reader.types, reader.config)
    with pytest.raises(UnreadableValue):
        decoder.decode(pack([b"\xff\xfe\xfd"]))


def test_texts_that_are_not_utf8_are_an_error(reader: ColumnReader) -> None:
    column, oid, modifier = reader.make_column("text")
    with pytest.raises(UnreadableValue, match="utf-8"):
        make_decoder(column, oid, modifier, reader.types, reader.config).decode(pack([b"ok", b"\xff"]))


@repeated
@given(
    st.lists(
        st.decimals(allow_nan=False, allow_infinity=False, places=10, min_value=-(10**27), max_value=10**27),
        min_size=1,
        max_size=50,
    )
)
def test_any_decimals_are_equal_in_both_forms(reader: ColumnReader, numbers: list[Decimal]) -> None:
    binary, text, _ = reader.read_both("numeric(38,10)", [f"{n:f}" for n in numbers])
    assert binary.to_pylist() == text.to_pylist() == numbers
    binary, _, printed = reader.read_both("numeric", [f"{n:f}" for n in numbers])
    assert binary.to_pylist() == printed


@repeated
@given(
    st.lists(st.floats(allow_nan=False), min_size=1, max_size=50),
    st.lists(st.floats(width=32, allow_nan=False), min_size=1, max_size=50),
)
def test_any_floats_are_printed_as_the_server_does(
    reader: ColumnReader, wide: list[float], narrow: list[float]
) -> None:
    for type_, values in (("point", wide), ("circle", [abs(v) for v in wide])):
        shown = [f"({v!r},0)" if type_ == "point" else f"<({v!r},0),1>" for v in values]
        array, text, _ = reader.read_both(type_, shown)
        assert array.to_pylist() == text.to_pylist()
    array, text, _ = reader.read_both("float4[]", [f"{{{','.join(repr(v) for v in narrow)}}}"])
    assert array.to_pylist() == text.to_pylist()


@repeated
@given(st.lists(st.datetimes(), min_size=1, max_size=50))
def test_any_moments_are_equal_in_both_forms(reader: ColumnReader, moments: list[dt.datetime]) -> None:
    binary, text, _ = reader.read_both("timestamp", [str(m) for m in moments])
    assert binary.to_pylist() == text.to_pylist() == moments
    binary, text, printed = reader.read_both("tsrange", [f'["{m}",)' for m in moments])
    assert binary.to_pylist() == printed


@repeated
@given(
    st.lists(st.tuples(*[st.integers(-(10**5), 10**5)] * 2, st.integers(-(10**13), 10**13)), min_size=1, max_size=30)
)
def test_any_intervals_are_equal_in_both_forms(reader: ColumnReader, parts: list[tuple[int, int, int]]) -> None:
    values = [f"{months} mons {days} days {us / 10**6:.6f} seconds" for months, days, us in parts]
    binary, text, _ = reader.read_both("interval", values)
    assert binary.to_pylist() == text.to_pylist()
    exact = ColumnReader(reader.connection, configuration(interval_handling_mode="string"))
    binary, text, _ = exact.read_both("interval", values)
    assert binary.to_pylist() == text.to_pylist()


@repeated
@given(st.lists(st.one_of(st.none(), st.text(st.characters(codec="utf-8", exclude_characters="\0"))), max_size=20))
def test_any_texts_in_arrays_and_composites_are_equal_in_both_forms(
    reader: ColumnReader, texts: list[str | None]
) -> None:
    (stored,) = reader.connection.execute("SELECT %s::text[]::text", [texts]).fetchone()
    binary, text, _ = reader.read_both("text[]", [stored])
    assert binary.to_pylist() == text.to_pylist()
    assert json.loads(binary[0].as_py()) == texts
    rows = [r[0] for r in reader.connection.execute("SELECT ROW(1, t)::pair::text FROM unnest(%s::text[]) t", [texts])]
    binary, _, printed = reader.read_both("pair", rows)
    assert binary.to_pylist() == printed


def test_a_column_that_is_not_captured_has_nulls(reader: ColumnReader) -> None:
    array = make_decoder(Column(name="v", type="null"), 25, -1, reader.types, reader.config).decode(pack(["a", None]))
    assert array.to_pylist() == [None, None]
