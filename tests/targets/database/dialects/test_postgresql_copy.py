"""Rows in PostgreSQL's binary format are the rows that their texts make: values of each type, in each type that a column may have, by both ways."""

from __future__ import annotations

import datetime as dt
import struct
from decimal import Decimal
from random import Random
from typing import Any

import pyarrow as pa
import pytest
import sqlalchemy as sa

from airflow_provider_cdc.core.model.table_schema import GEOMETRY, Column, ColumnDeclaration, arrow_type
from airflow_provider_cdc.targets.database.dialects import dialect_of, postgresql_copy
from airflow_provider_cdc.targets.database.dialects.postgresql import PostgreSql
from airflow_provider_cdc.targets.database.schema.target_table import (
    DatabaseColumn,
    DatabaseTargetTable,
    TargetTableName,
)
from airflow_provider_cdc.targets.database.schema.value_kinds import kind_of

NUMBERS = [0, 1, -1, 7, 9999, 10_000, -10_000, 99_999_999, 2**31 - 1, -(2**31), 2**63 - 1, -(2**63)]
REALS = [0.0, -0.0, 1.5, -0.1, 1e300, 5e-324, 3.4028234663852886e38, float("inf"), float("-inf"), float("nan")]
TEXTS = [
    "",
    "a",
    "\\N",
    "\\",
    "\t",
    "\n",
    "\r\n",
    '"',
    "'",
    ",",
    "NULL",
    "ä€😀",
    " ",
    "a" * 5000,
    "{}",
    "\x01\x7f",
    "\\.",
]
MICROS = [0, 1, -1, 999_999, 86_399_999_999, 946_684_800_000_000, -62_135_596_800_000_000, 253_402_300_799_999_999]
CLOCK = [0, 1, 999_999, 86_399_999_999, 43_200_000_500]
MOMENT = "io.debezium.time.MicroTime"


def _column(type_: str, semantic: str | None = None, length: int | None = None, **more: Any) -> Column:
    declared = ColumnDeclaration(type_name="X" if length is not None else "", length=length)
    return Column(name="v", type=type_, semantic=semantic, declared=declared, **more)


def _decimals(r: Random, precision: int, scale: int) -> list[Any]:
    most = 10**precision - 1
    whole = [
        0,
        1,
        -1,
        most,
        -most,
        *(r.randrange(-most, most + 1) for _ in range(20)),
        *(10**n for n in range(precision)),
    ]
    return [Decimal(one).scaleb(-scale) if abs(one) < 10**28 else _exact_decimal(one, scale) for one in whole]


def _exact_decimal(number: int, scale: int) -> Decimal:
    sign, digits = int(number < 0), tuple(map(int, str(abs(number))))
    return Decimal((sign, digits, -scale))


DECIMALS = [
    (1, 0),
    (1, 1),
    (4, 4),
    (5, 4),
    (12, 2),
    (15, 0),
    (16, 16),
    (16, 1),
    (17, 3),
    (18, 18),
    (19, 0),
    (38, 0),
    (38, 10),
    (38, 38),
    (37, 35),
]
SHAPE = bytes.fromhex("0101000000") + struct.pack("<2d", 1, -2.5)


def _cases(r: Random) -> list[tuple[Column, list[str], list[Any], bool]]:
    """Column, the types that it may have in a table, values, and whether these are sent in binary form into the first of them."""
    cases: list[tuple[Column, list[str], list[Any], bool]] = [
        (_column("bool"), ["boolean", "text"], [True, False], True),
        (_column("string"), ["text", "varchar", "varchar(6000)", "char(6000)"], TEXTS, True),
        (_column("string", "io.debezium.data.Json"), ["json", "jsonb", "text"], ["{}", "null", ' {"a": "\\\\u00e4"} ', "[1, 1.50]"], True),
        (_column("string", "io.debezium.data.Uuid"), ["uuid", "text"], ["0" * 8 + "-0000" * 3 + "-" + "a" * 12], False),
        (_column("string", "io.debezium.data.Enum"), ["text", "varchar(9)"], ["a", "", "b,c"], True),
        (_column("string"), ["numeric", "bigint", "xml"], ["1", "22"], False),
        (_column("binary"), ["bytea"], [b"", b"\0", b"\\x00", b"\xff" * 5000, b"\n\t\\."], True),
        (_column("date32[day]"), ["date", "timestamp", "text"], [dt.date(1, 1, 1), dt.date(9999, 12, 31), dt.date(2000, 1, 1), dt.date(1970, 1, 1)], True),
        (_column("list<item: float>"), ["real[]"], [[1.5, -0.0]], False),
        (_column(GEOMETRY), ["bytea"], [{"wkb": SHAPE, "srid": 4326}, {"wkb": SHAPE, "srid": None}, {"wkb": SHAPE, "srid": 0}], True),
        (_column("float"), ["real", "double precision", "numeric"], [one for one in REALS if abs(one) != 1e300], True),
        (_column("double"), ["double precision", "numeric", "text"], REALS, True),
        (_column("int64", MOMENT, 6), ["time", "interval", "time(3)"], CLOCK, True),
        (_column("int64", MOMENT, 2), ["time(2)"], CLOCK, True),
        (_column("int64", MOMENT, 6), ["interval"], [-1, 838 * 3_600_000_000, *CLOCK], False),
        (_column("int64", "io.debezium.time.MicroDuration"), ["interval"], NUMBERS[:10], False),
    ]  # fmt: skip
    for bits, own in ((8, "smallint"), (16, "smallint"), (32, "integer"), (64, "bigint")):
        values = [n for n in NUMBERS if -(2 ** (bits - 1)) <= n < 2 ** (bits - 1)]
        cases.append(
            (_column(f"int{bits}"), [own, "bigint", "numeric", "numeric(30, 4)", "text", "real"], values, True)
        )
    for precision, scale in DECIMALS:
        types = [f"numeric({precision}, {scale})", "numeric", "numeric(60, 2)", "text", "double precision"]
        cases.append((_column(f"decimal128({precision}, {scale})"), types, _decimals(r, precision, scale), True))
    for unit, digits in (("us", 6), ("ns", 6), ("us", 3), ("us", 0)):
        some = [n * 1000 + 999 for n in MICROS[:-3]] if unit == "ns" else MICROS
        moments = [*some, *(r.randrange(-(10**15), 10**15) for _ in range(20))]
        plain = pa.array(moments, pa.timestamp(unit))
        cases.append(
            (_column(f"timestamp[{unit}]", None, digits), [f"timestamp({digits})", "timestamptz", "date"], plain, True)
        )
        zoned = pa.array(moments, pa.timestamp(unit, tz="UTC"))
        cases.append(
            (_column(f"timestamp[{unit}, tz=UTC]", None, digits), [f"timestamptz({digits})", "timestamp"], zoned, True)
        )
    return cases


def _values(column: Column, values: Any, r: Random) -> pa.Array:
    """With NULL among them, or none of it, as part of a longer array."""
    array = values if isinstance(values, pa.Array) else pa.array(values, arrow_type(column.type))
    nulls = pa.nulls(3, array.type)
    parts = [[nulls, array], [nulls, array, nulls, array], [nulls, nulls, nulls]][r.randrange(3)]
    whole = pa.concat_arrays(parts)
    return whole.slice(r.choice([0, 2, 3]))


def _copy_rows(
    engine: sa.Engine, into: str, columns: list[Column], arrays: list[pa.Array]
) -> tuple[list[tuple[Any, ...]] | str, bool]:
    """Copy rows into a table; return its rows or the error, and True if the copy was binary."""
    names = [f"c{number}" for number in range(len(columns))]
    table = DatabaseTargetTable(
        "t", TargetTableName("t"), tuple(DatabaseColumn(name, one) for name, one in zip(names, columns, strict=True))
    )
    dialect, statements = dialect_of(engine), list[str]()
    assert isinstance(dialect, PostgreSql)
    with engine.connect() as connection:
        connection.exec_driver_sql("SET TIME ZONE 'UTC'")
        connection.exec_driver_sql(f"CREATE TABLE t (n serial, {into})")
        cursor = type(connection.connection.driver_connection.cursor())  # type: ignore[union-attr]
        plain = cursor.copy

        def copy(self: Any, statement: str) -> Any:
            statements.append(statement)
            return plain(self, statement)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(cursor, "copy", copy)
            try:
                dialect._copy(connection, "t", table, pa.table(arrays, names=names))
                texts = ", ".join(f"{name}::text" for name in names)
                found: Any = connection.exec_driver_sql(f"SELECT {texts} FROM t ORDER BY n").all()
            except sa.exc.DBAPIError as e:
                found = str(e.orig).splitlines()[0]
        connection.rollback()
    assert len(statements) == 1
    return found, statements[0].endswith("(FORMAT binary)")


@pytest.mark.parametrize("url", ["postgresql"], indirect=True)
@pytest.mark.parametrize("seed", range(3))
def test_each_value_is_that_of_its_text(engine: sa.Engine, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    r, wrong = Random(seed), list[str]()
    for column, types, values, binary in _cases(r):
        array = _values(column, values, r)
        for type_ in types:
            found, was = _copy_rows(engine, f"c0 {type_}", [column], [array])
            with monkeypatch.context() as patch:
                patch.setattr(postgresql_copy, "encode_columns", lambda _: None)
                expected, text = _copy_rows(engine, f"c0 {type_}", [column], [array])
            assert not text
            if found != expected and not (isinstance(found, str) and isinstance(expected, str)):
                wrong.append(
                    f"{column.type} {kind_of(column).name} into {type_}: {found!r:.300} and not {expected!r:.300}"
                )
            if type_ == types[0] and was != binary and array.null_count < len(array):
                wrong.append(f"{column.type} into {type_}: {'texts' if binary else 'binary'}")
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("url", ["postgresql"], indirect=True)
@pytest.mark.parametrize("size", [1, 100, 4 << 20])
def test_columns_stand_beside_each_other_in_pieces_of_any_size(
    engine: sa.Engine, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fixed and other lengths, with and without NULL, in random orders."""
    r = Random(size)
    monkeypatch.setattr(postgresql_copy, "_BYTES", size)
    columns = [
        (_column("int64"), "bigint", pa.array([1, None, -3] * 5, pa.int64())),
        (_column("int32"), "integer", pa.array([1, 2, -3] * 5, pa.int32())),
        (_column("string"), "text", pa.array(["", None, "ä"] * 5, pa.string())),
        (_column("string"), "text", pa.array(["x", "\\N", "\t"] * 5, pa.string())),
        (_column("decimal128(12, 2)"), "numeric(12, 2)", pa.array([Decimal("1.50"), None, Decimal(-7)] * 5, pa.decimal128(12, 2))),
        (_column("bool"), "boolean", pa.array([True, False, True] * 5)),
        (_column("bool"), "boolean", pa.nulls(15, pa.bool_())),
    ]  # fmt: skip
    for _ in range(12):
        some = [r.choice(columns) for _ in range(r.randrange(1, 7))]
        types = ", ".join(f"c{number} {one[1]}" for number, one in enumerate(some))
        given = types, [one[0] for one in some], [one[2] for one in some]
        found, binary = _copy_rows(engine, *given)
        with monkeypatch.context() as patch:
            patch.setattr(postgresql_copy, "encode_columns", lambda _: None)
            expected, _ = _copy_rows(engine, *given)
        assert binary
        assert len(found) == 15
        assert found == expected


@pytest.mark.parametrize("url", ["postgresql"], indirect=True)
def test_times_that_have_other_texts_are_sent_as_texts(engine: sa.Engine) -> None:
    """Before the year 1 and after 9999, and of a clock with more hours than a day: what becomes of them is what the server says of their texts."""
    late = pa.array([253_402_300_800_000_000], pa.timestamp("us"))
    cases = [
        (_column("timestamp[us]"), "timestamp", late), (_column("date32[day]"), "date", pa.array([2_932_897], pa.int32()).cast(pa.date32())),
        (_column("date32[day]"), "date", pa.array([-719_163], pa.int32()).cast(pa.date32())), (_column("int64", MOMENT, 6), "time", pa.array([86_400_000_000])),
        (_column("int64", MOMENT, 6), "time", pa.array([-1])),
    ]  # fmt: skip
    assert [_copy_rows(engine, f"c0 {type_}", [column], [array])[1] for column, type_, array in cases] == [False] * 5


@pytest.mark.parametrize("encoding", ["LATIN1"])
def test_texts_keep_their_characters_in_a_database_of_another_encoding(postgres: Any, encoding: str) -> None:
    name = f"sink_{encoding.lower()}"
    postgres.sql(f"CREATE DATABASE {name} ENCODING '{encoding}' LOCALE 'C' TEMPLATE template0")
    engine = sa.create_engine(postgres.url(name))
    try:
        found, binary = _copy_rows(engine, "c0 text", [_column("string")], [pa.array(["ä\\N", "", None])])
        with engine.connect() as connection:
            assert connection.exec_driver_sql("SHOW server_encoding").scalar() == encoding
    finally:
        engine.dispose()
        postgres.sql(f"DROP DATABASE {name}")
    assert not binary
    rows = [row[0].decode() if isinstance(row[0], bytes) else row[0] for row in found]  # type: ignore[union-attr]
    assert rows == ["ä\\N", "", None]
