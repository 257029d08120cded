"""Stored values, as ``DUMP`` shows them, to literals."""

from __future__ import annotations

import random
from decimal import Decimal

import pytest

from airflow_provider_cdc.sources.oracle.redo.internal_format import decode_number, stored_literal
from airflow_provider_cdc.sources.oracle.redo.parsed_literal import UnreadableRedo
from airflow_provider_cdc.sources.oracle.schema.column_types import ColumnType
from airflow_provider_cdc.sources.oracle.schema.stream_lookups import StoredFormats
from dev.servers.oracle.logminer.redo_sql import stored_row_id
from dev.servers.oracle.values import rowids
from dev.servers.oracle.wire.codecs import encode_float, encode_number


def read(type_: str, data: bytes | str, formats: StoredFormats | None = None) -> str:
    raw = data if isinstance(data, bytes) else bytes(int(part) for part in data.split(","))
    return stored_literal(raw, ColumnType.parse(type_), formats or StoredFormats())


@pytest.mark.parametrize(
    ("dump", "value"),
    [
        ("128", "0"),
        ("193,2", "1"),
        ("193,11", "10"),
        ("194,2", "100"),
        ("194,2,24", "123"),
        ("195,2,24,46", "12345"),
        ("192,11", "0.1"),
        ("193,2,51", "1.5"),
        ("191,2", "0.0001"),
        ("62,100,102", "-1"),
        ("61,100,78,102", "-123"),
        ("62,100,51,102", "-1.5"),
        ("194,8,70,53", "769.52"),
        ("193,4,15,16,93", "3.141592"),
    ],
)
def test_dumps_of_numbers(dump: str, value: str) -> None:
    """Read dumps of ``SELECT DUMP(n) FROM DUAL``, type 2."""
    assert read("NUMBER", dump) == f"'{value}'"


@pytest.mark.parametrize(
    ("type_", "dump", "literal"),
    [
        ("DATE", "120,114,2,27,15,23,19", "TO_DATE(' 2014-02-27 14:22:18', 'SYYYY-MM-DD HH24:MI:SS')"),
        ("DATE", "119,199,12,31,24,60,60", "TO_DATE(' 1999-12-31 23:59:59', 'SYYYY-MM-DD HH24:MI:SS')"),
        ("DATE", "53,88,1,1,1,1,1", "TO_DATE('-4712-01-01 00:00:00', 'SYYYY-MM-DD HH24:MI:SS')"),
        ("TIMESTAMP(6)", "120,113,3,5,13,8,10", "TO_TIMESTAMP(' 2013-03-05 12:07:09.000000000')"),
        ("TIMESTAMP(9)", "120,113,3,5,13,8,10,7,91,205,21", "TO_TIMESTAMP(' 2013-03-05 12:07:09.123456789')"),
        (
            "TIMESTAMP(3) WITH TIME ZONE",
            "120,113,3,5,23,8,10,7,84,212,192,22,60",
            "TO_TIMESTAMP_TZ(' 2013-03-06 00:07:09.123000000 +02:00')",
        ),
        (
            "TIMESTAMP(0) WITH TIME ZONE",
            "120,100,1,1,1,1,1,0,0,0,0,17,30",
            "TO_TIMESTAMP_TZ(' 1999-12-31 20:30:00.000000000 -03:30')",
        ),
        (
            "TIMESTAMP(6) WITH LOCAL TIME ZONE",
            "120,113,3,5,13,8,10",
            "TO_TIMESTAMP_TZ(' 2013-03-05 12:07:09.000000000 +00:00')",
        ),
        ("INTERVAL YEAR(2) TO MONTH", "128,0,0,3,66", "TO_YMINTERVAL('+03-06')"),
        ("INTERVAL YEAR(2) TO MONTH", "127,255,255,253,54", "TO_YMINTERVAL('-03-06')"),
        (
            "INTERVAL DAY(2) TO SECOND(6)",
            "128,0,0,4,65,72,70,141,62,111,112",
            "TO_DSINTERVAL('+004 05:12:10.222195568')",
        ),
        (
            "INTERVAL DAY(2) TO SECOND(0)",
            "127,255,255,255,58,57,56,128,0,0,0",
            "TO_DSINTERVAL('-001 02:03:04.000000000')",
        ),
        ("RAW(4)", "222,173,190,239", "HEXTORAW('deadbeef')"),
        ("BINARY_DOUBLE", "191,240,0,0,0,0,0,0", "'1.0000000000000000E+00'"),
        ("BINARY_DOUBLE", "64,15,255,255,255,255,255,255", "'-1.0000000000000000E+00'"),
        ("BINARY_FLOAT", "191,192,0,0", "'1.50000000E+00'"),
        ("BINARY_FLOAT", "255,128,0,0", "'Inf'"),
        ("BINARY_FLOAT", "0,127,255,255", "'-Inf'"),
        ("BINARY_FLOAT", "255,192,0,0", "'Nan'"),
    ],
)
def test_dumps_of_other_types(type_: str, dump: str, literal: str) -> None:
    if "SECOND(6)" in type_:  # nine digits need SECOND(9)
        with pytest.raises(UnreadableRedo, match="6 decimals"):
            read(type_, dump)
        type_ = type_.replace("SECOND(6)", "SECOND(9)")
    assert read(type_, dump) == literal


@pytest.mark.parametrize(
    ("characters", "text", "data"),
    [
        ("AL32UTF8", "Zoë's €😀", "5a6fc3ab277320e282acf09f9880"),
        ("UTF8", "€😀", "e282aceda0bdedb880"),
        ("WE8MSWIN1252", "Zoë €", "5a6feb2080"),
        ("WE8ISO8859P15", "Zoë €", "5a6feb20a4"),
        ("WE8ISO8859P1", "Zoë", "5a6feb"),
        ("US7ASCII", "Zoe", "5a6f65"),
    ],
)
def test_texts_are_in_the_character_set_of_the_database(characters: str, text: str, data: str) -> None:
    doubled = text.replace("'", "''")
    assert read("VARCHAR2(20)", bytes.fromhex(data), StoredFormats(characters)) == f"'{doubled}'"
    assert read("NVARCHAR2(20)", text.encode("utf-16-be"), StoredFormats(characters)) == f"'{doubled}'"


def test_local_time_lies_in_the_time_zone_of_the_database() -> None:
    reported = read("TIMESTAMP(6) WITH LOCAL TIME ZONE", "120,113,3,5,1,8,10", StoredFormats(zone="+02:00"))
    assert reported == "TO_TIMESTAMP_TZ(' 2013-03-04 22:07:09.000000000 +00:00')"
    with pytest.raises(UnreadableRedo, match="region"):
        read("TIMESTAMP(6) WITH LOCAL TIME ZONE", "120,113,3,5,1,8,10", StoredFormats(zone="Europe/Paris"))


@pytest.mark.parametrize(
    ("type_", "data"),
    [
        ("NUMBER", "193"),
        ("NUMBER", "193,0"),
        ("NUMBER", "193,102"),
        ("NUMBER", "255,101"),
        ("NUMBER", "0"),
        ("NUMBER", "62,100"),
        ("NUMBER", "97,98,99"),
        ("NUMBER(2)", "194,2"),
        ("NUMBER(5)", "193,2,51"),
        ("VARCHAR2(2)", "97,98,99"),
        ("VARCHAR2(9)", "255,254"),
        ("NVARCHAR2(9)", "216,0"),
        ("RAW(1)", "1,2"),
        ("DATE", "120,113,13,5,13,8,10"),
        ("DATE", "120,113,3,5,25,8,10,0"),
        ("TIMESTAMP(6)", "120,113,3,5,13,8,10,255,255,255,255"),
        ("TIMESTAMP(6)", "120,113,3,5,13,8,10,7,91,205,21"),
        ("TIMESTAMP(6) WITH TIME ZONE", "120,113,3,5,13,8,10,0,0,0,0,136,4"),
        ("INTERVAL YEAR TO MONTH", "128,0,0,3,72"),
        ("INTERVAL DAY TO SECOND", "128,0,0,4,65,72,120,128,0,0,0"),
        ("BINARY_DOUBLE", "191,192,0,0"),
        ("ROWID", "1,2,3,4,5,6"),
        ("XMLTYPE", "1,2"),
    ],
)
def test_what_is_no_value_of_the_type_is_refused(type_: str, data: str) -> None:
    with pytest.raises(UnreadableRedo):
        read(type_, data)


def test_an_unknown_character_set_is_refused() -> None:
    with pytest.raises(UnreadableRedo, match="ZHT16BIG5"):
        read("VARCHAR2(9)", b"abc", StoredFormats("ZHT16BIG5"))


def test_every_number_comes_back() -> None:
    r = random.Random(11)
    for _ in range(3_000):
        digits = r.randint(1, 38)
        value = Decimal((r.randint(0, 1), tuple(r.randint(0, 9) for _ in range(digits)), r.randint(-90, 60)))
        assert decode_number(encode_number(value)) == value
    assert float(read("BINARY_DOUBLE", encode_float(-0.1, ">d")).strip("'")) == -0.1


def test_row_ids_come_back() -> None:
    assert read("ROWID", stored_row_id(rowids.make(73_001, 4_711))) == f"'{rowids.to_text(rowids.make(73_001, 4_711))}'"
    assert read("ROWID", stored_row_id("AAAR0pAAHAAAACAAAA")) == "'AAAR0pAAHAAAACAAAA'"
