"""Columns for each type of the change log, in each database: the tables of the reference ("Data type mappings"), one by one."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from airflow_provider_cdc.core.errors import TargetError
from airflow_provider_cdc.core.model.table_schema import GEOMETRY, Column, ColumnDeclaration
from airflow_provider_cdc.targets.database.schema.value_kinds import ValueKind, kind_of
from tests.targets.database.source_table import Table, column

CONNECT, DEBEZIUM = "org.apache.kafka.connect.data", "io.debezium"


def named(type_: str, semantic: str, **more: Any) -> Column:
    return column("c", type_, semantic=semantic, **more)


NOON, MOMENT = dt.datetime(2024, 2, 29, 12, 30, 0, 123456), dt.datetime(2024, 2, 29, 12, 30, 0, 500000, tzinfo=dt.UTC)
MICROS = 45_000_500_000  # 12:30:00.5

# column, value, and for each of PostgreSQL, MySQL and SQLite the type and the value as text
Made = tuple[Column, Any, tuple[str, str], tuple[str, str], tuple[str, str]]
CASES: dict[str, Made] = {
    "int8": (column("c", "int8"), -128, ("SMALLINT", "-128"), ("TINYINT", "-128"), ("SMALLINT", "-128")),
    "int16": (column("c", "int16"), -5, ("SMALLINT", "-5"), ("SMALLINT", "-5"), ("SMALLINT", "-5")),
    "int32": (column("c", "int32"), 2**31 - 1, ("INTEGER", str(2**31 - 1)), ("INTEGER", str(2**31 - 1)), ("INTEGER", str(2**31 - 1))),
    "int64": (column("c", "int64"), 2**63 - 1, ("BIGINT", str(2**63 - 1)), ("BIGINT", str(2**63 - 1)), ("BIGINT", str(2**63 - 1))),
    "float": (column("c", "float"), 0.5, ("REAL", "0.5"), ("FLOAT", "0.5"), ("REAL", "0.5")),
    "double": (column("c", "double"), 0.1, ("DOUBLE PRECISION", "0.1"), ("DOUBLE", "0.1"), ("DOUBLE", "0.1")),
    "bool": (column("c", "bool"), True, ("BOOLEAN", "true"), ("TINYINT(1)", "1"), ("BOOLEAN", "1")),
    "string": (column("c", "string"), "ä€", ("TEXT", "ä€"), ("LONGTEXT", "ä€"), ("TEXT", "ä€")),
    "bytes": (column("c", "binary"), b"AB", ("BYTEA", "\\x4142"), ("LONGBLOB", "AB"), ("BLOB", "AB")),
    "Decimal": (
        named("decimal128(12, 2)", f"{CONNECT}.Decimal"), Decimal("-1.50"), ("NUMERIC(12, 2)", "-1.50"), ("DECIMAL(12, 2)", "-1.50"), ("TEXT", "-1.50"),
    ),
    "Decimal of 65 digits": (
        named("string", f"{CONNECT}.Decimal", parameters={"scale": "2", "connect.decimal.precision": "65"}), "9" * 63 + ".99",
        ("NUMERIC(65, 2)", "9" * 63 + ".99"), ("DECIMAL(65, 2)", "9" * 63 + ".99"), ("TEXT", "9" * 63 + ".99"),
    ),
    "Decimal of 80 digits": (
        named("string", f"{CONNECT}.Decimal", parameters={"scale": "2", "connect.decimal.precision": "80"}), "9" * 78 + ".99",
        ("NUMERIC(80, 2)", "9" * 78 + ".99"), ("VARCHAR(83)", "9" * 78 + ".99"), ("TEXT", "9" * 78 + ".99"),
    ),
    "Decimal of 38 decimals": (
        named("decimal128(38, 38)", f"{CONNECT}.Decimal"), Decimal("1e-38"),
        ("NUMERIC(38, 38)", "0." + "0" * 37 + "1"), ("VARCHAR(41)", "0." + "0" * 37 + "1"), ("TEXT", "1E-38"),
    ),
    "Decimal of hundreds": (
        named("string", f"{CONNECT}.Decimal", parameters={"scale": "-2", "connect.decimal.precision": "40"}), "1" + "0" * 41,
        ("NUMERIC(42, 0)", "1" + "0" * 41), ("DECIMAL(42, 0)", "1" + "0" * 41), ("TEXT", "1" + "0" * 41),
    ),
    "connect Date": (named("date32[day]", f"{CONNECT}.Date"), NOON.date(), ("DATE", "2024-02-29"), ("DATE", "2024-02-29"), ("DATE", "2024-02-29")),
    "connect Time": (
        named("int64", f"{CONNECT}.Time"), MICROS, ("TIME(6)", "12:30:00.5"), ("TIME(6)", "12:30:00.500000"), ("TIME", "12:30:00.500000"),
    ),
    "connect Timestamp": (
        named("timestamp[us]", f"{CONNECT}.Timestamp"), NOON,
        ("TIMESTAMP(6)", "2024-02-29 12:30:00.123456"), ("DATETIME(6)", "2024-02-29 12:30:00.123456"), ("DATETIME", "2024-02-29 12:30:00.123456"),
    ),
    "Date": (named("date32[day]", f"{DEBEZIUM}.time.Date"), NOON.date(), ("DATE", "2024-02-29"), ("DATE", "2024-02-29"), ("DATE", "2024-02-29")),
    "Time": (
        Column(name="c", type="int64", semantic=f"{DEBEZIUM}.time.Time", declared=ColumnDeclaration(type_name="TIME", length=3)), MICROS,
        ("TIME(3)", "12:30:00.5"), ("TIME(3)", "12:30:00.500"), ("TIME", "12:30:00.500"),
    ),
    "MicroTime": (
        named("int64", f"{DEBEZIUM}.time.MicroTime"), MICROS, ("TIME(6)", "12:30:00.5"), ("TIME(6)", "12:30:00.500000"), ("TIME", "12:30:00.500000"),
    ),
    "NanoTime": (
        named("int64", f"{DEBEZIUM}.time.NanoTime"), MICROS, ("TIME(6)", "12:30:00.5"), ("TIME(6)", "12:30:00.500000"), ("TIME", "12:30:00.500000"),
    ),
    "ZonedTime": (
        named("string", f"{DEBEZIUM}.time.ZonedTime"), "12:30:00+02:00",
        ("TIME WITH TIME ZONE", "12:30:00+02"), ("VARCHAR(32)", "12:30:00+02:00"), ("TEXT", "12:30:00+02:00"),
    ),
    "Timestamp": (
        Column(name="c", type="timestamp[us]", semantic=f"{DEBEZIUM}.time.Timestamp", declared=ColumnDeclaration(type_name="DATETIME", length=3)),
        NOON.replace(microsecond=123000),
        ("TIMESTAMP(3)", "2024-02-29 12:30:00.123"), ("DATETIME(3)", "2024-02-29 12:30:00.123"), ("DATETIME", "2024-02-29 12:30:00.123000"),
    ),
    "MicroTimestamp": (
        named("timestamp[us]", f"{DEBEZIUM}.time.MicroTimestamp"), NOON,
        ("TIMESTAMP(6)", "2024-02-29 12:30:00.123456"), ("DATETIME(6)", "2024-02-29 12:30:00.123456"), ("DATETIME", "2024-02-29 12:30:00.123456"),
    ),
    "NanoTimestamp": (
        named("timestamp[ns]", f"{DEBEZIUM}.time.NanoTimestamp"), NOON,
        ("TIMESTAMP(6)", "2024-02-29 12:30:00.123456"), ("DATETIME(6)", "2024-02-29 12:30:00.123456"), ("DATETIME", "2024-02-29 12:30:00.123456"),
    ),
    "ZonedTimestamp": (
        named("timestamp[us, tz=UTC]", f"{DEBEZIUM}.time.ZonedTimestamp"), MOMENT,
        ("TIMESTAMP(6) WITH TIME ZONE", "2024-02-29 12:30:00.5+00"), ("DATETIME(6)", "2024-02-29 12:30:00.500000"), ("DATETIME", "2024-02-29 12:30:00.500000"),
    ),
    "ZonedTimestamp with an offset": (
        named("string", f"{DEBEZIUM}.time.ZonedTimestamp"), "2024-02-29T14:30:00.5+02:00",
        ("TIMESTAMP(6) WITH TIME ZONE", "2024-02-29 12:30:00.5+00"), ("DATETIME(6)", "2024-02-29 12:30:00.500000"), ("DATETIME", "2024-02-29 12:30:00.500000"),
    ),
    "VariableScaleDecimal": (
        named("string", f"{DEBEZIUM}.data.VariableScaleDecimal"), "12345678901234567890.123",
        ("NUMERIC", "12345678901234567890.123"), ("DECIMAL(65, 30)", "12345678901234567890.123" + "0" * 27), ("TEXT", "12345678901234567890.123"),
    ),
    "Bits": (
        named("binary", f"{DEBEZIUM}.data.Bits", parameters={"length": "10"}), b"\x03\x02", ("BIT(10)", "1000000011"), ("BIT(10)", "515"), ("TEXT", "1000000011"),
    ),
    "Enum": (
        named("string", f"{DEBEZIUM}.data.Enum", parameters={"allowed": "a,b c"}), "b c", ("TEXT", "b c"), ("ENUM('a','b c')", "b c"), ("TEXT", "b c"),
    ),
    "EnumSet": (
        named("string", f"{DEBEZIUM}.data.EnumSet", values=("a", "b")), "a,b", ("TEXT", "a,b"), ("SET('a','b')", "a,b"), ("TEXT", "a,b"),
    ),
    "Json": (named("string", f"{DEBEZIUM}.data.Json"), '{"a": 1}', ("JSON", '{"a": 1}'), ("JSON", '{"a": 1}'), ("TEXT", '{"a": 1}')),
    "Year": (named("int32", f"{DEBEZIUM}.time.Year"), 2024, ("INTEGER", "2024"), ("YEAR", "2024"), ("INTEGER", "2024")),
    "MicroDuration": (
        named("int64", f"{DEBEZIUM}.time.MicroDuration"), 90_000_000, ("INTERVAL", "00:01:30"), ("BIGINT", "90000000"), ("BIGINT", "90000000"),
    ),
    "Interval": (
        named("string", f"{DEBEZIUM}.time.Interval"), "P1Y2M3DT4H", ("INTERVAL", "1 year 2 mons 3 days 04:00:00"), ("VARCHAR(64)", "P1Y2M3DT4H"), ("TEXT", "P1Y2M3DT4H"),
    ),
    "Ltree": (named("string", f"{DEBEZIUM}.data.Ltree"), "a.b", ("TEXT", "a.b"), ("LONGTEXT", "a.b"), ("TEXT", "a.b")),
    "Uuid": (
        named("string", f"{DEBEZIUM}.data.Uuid"), "123e4567-e89b-12d3-a456-426655440000",
        *((type_, "123e4567-e89b-12d3-a456-426655440000") for type_ in ("UUID", "CHAR(36)", "TEXT")),
    ),
    "Xml": (named("string", f"{DEBEZIUM}.data.Xml"), "<a>1</a>", ("XML", "<a>1</a>"), ("LONGTEXT", "<a>1</a>"), ("TEXT", "<a>1</a>")),
    "FloatVector": (named("list<item: float>", f"{DEBEZIUM}.data.FloatVector"), [1.0, 2.5], ("REAL[]", "{1,2.5}"), ("LONGTEXT", "[1.0,2.5]"), ("TEXT", "[1.0,2.5]")),
}  # fmt: skip


TOO_LONG = ("Decimal of 65 digits", "Decimal of 80 digits", "Decimal of hundreds")
"""What Oracle and Db2 have no decimals for."""
OTHERS: dict[str, dict[str, str]] = {
    "oracle": {
        "int8": "NUMBER(3,0)", "int16": "NUMBER(5,0)", "int32": "NUMBER(10,0)", "int64": "NUMBER(19,0)", "float": "BINARY_FLOAT",
        "double": "BINARY_DOUBLE", "bool": "NUMBER(1,0)", "string": "CLOB", "bytes": "BLOB", "Decimal": "NUMBER(12,2)",
        "Decimal of 38 decimals": "NUMBER(38,38)", "connect Date": "DATE", "Date": "DATE", "ZonedTime": "VARCHAR2(32 CHAR)",
        **dict.fromkeys(("connect Time", "Time", "MicroTime", "NanoTime"), "INTERVAL DAY(3) TO SECOND(6)"),
        "connect Timestamp": "TIMESTAMP(6)", "Timestamp": "TIMESTAMP(3)", "MicroTimestamp": "TIMESTAMP(6)", "NanoTimestamp": "TIMESTAMP(9)",
        **dict.fromkeys(("ZonedTimestamp", "ZonedTimestamp with an offset"), "TIMESTAMP(6) WITH TIME ZONE"), "VariableScaleDecimal": "NUMBER",
        "Bits": "RAW(2)", "Enum": "VARCHAR2(255 CHAR)", "EnumSet": "CLOB", "Json": "CLOB", "Year": "NUMBER(5,0)", "MicroDuration": "NUMBER(19,0)",
        "Interval": "VARCHAR2(64 CHAR)", "Ltree": "CLOB", "Uuid": "VARCHAR2(36 CHAR)", "Xml": "CLOB", "FloatVector": "CLOB",
    },
    "db2": {
        "int8": "SMALLINT", "int16": "SMALLINT", "int32": "INTEGER", "int64": "BIGINT", "float": "REAL", "double": "DOUBLE", "bool": "BOOLEAN",
        "string": "CLOB", "bytes": "BLOB", "Decimal": "DECIMAL(12, 2)", "Decimal of 38 decimals": "VARCHAR(41 CODEUNITS32)",
        "connect Date": "DATE", "Date": "DATE", "ZonedTime": "VARCHAR(32)",
        **dict.fromkeys(("connect Time", "MicroTime", "NanoTime"), "TIMESTAMP(6)"), "Time": "TIMESTAMP(3)",
        "connect Timestamp": "TIMESTAMP(6)", "Timestamp": "TIMESTAMP(3)", "MicroTimestamp": "TIMESTAMP(6)", "NanoTimestamp": "TIMESTAMP(9)",
        **dict.fromkeys(("ZonedTimestamp", "ZonedTimestamp with an offset"), "TIMESTAMP(6)"), "VariableScaleDecimal": "DECFLOAT",
        "Bits": "VARBINARY(2)", "Enum": "VARCHAR(255 CODEUNITS32)", "EnumSet": "CLOB", "Json": "CLOB", "Year": "INTEGER", "MicroDuration": "BIGINT",
        "Interval": "VARCHAR(64)", "Ltree": "CLOB", "Uuid": "VARCHAR(36)", "Xml": "CLOB", "FloatVector": "CLOB",
    },
}  # fmt: skip


@pytest.mark.parametrize("url", list(OTHERS), indirect=True)
def test_each_type_of_the_reference_has_its_column_in_oracle_and_db2(engine: sa.Engine, tmp_path: Path) -> None:
    """Their values are in ``test_values.py``."""
    cases = {
        name: one
        for name, one in CASES.items()
        if name not in TOO_LONG and (name, engine.dialect.name) != ("NanoTimestamp", "db2")
    }
    columns = {f"c{number}": one for number, one in enumerate(cases.values())}
    table = Table(tmp_path, engine, *(one[0].model_copy(update={"name": name}) for name, one in columns.items()))
    table.insert({"id": 1, **{name: one[1] for name, one in columns.items()}}, {"id": 2})
    table.apply()
    expected = {name: OTHERS[engine.dialect.name][name] for name in cases}
    assert dict(zip(cases, table.types(*columns), strict=True)) == expected
    full, nothing = (list(row.values())[1:] for row in table.found())
    assert None not in full
    assert set(nothing) == {None}


@pytest.mark.parametrize("url", list(OTHERS), indirect=True)
@pytest.mark.parametrize("case", TOO_LONG)
def test_a_decimal_that_has_more_digits_than_the_database_is_refused(
    engine: sa.Engine, tmp_path: Path, case: str
) -> None:
    of, value, *_ = CASES[case]
    table = Table(tmp_path, engine, of)
    table.insert({"id": 1, "c": "-12"})
    table.apply()
    assert [Decimal(str(row["c"])) for row in table.found()] == [Decimal(-12)]
    table.insert({"id": 2, "c": value})
    with pytest.raises(TargetError, match=r"(?is)p_s_t rejects a row: .*id=2"):
        table.apply()
    assert len(table.found()) == 1


@pytest.mark.parametrize("url", ["sqlite", "postgresql", "mariadb", "mysql"], indirect=True)
def test_each_type_of_the_reference_has_its_column_and_keeps_its_value(engine: sa.Engine, tmp_path: Path) -> None:
    columns = {f"c{number}": one for number, one in enumerate(CASES.values())}
    table = Table(tmp_path, engine, *(one[0].model_copy(update={"name": name}) for name, one in columns.items()))
    table.insert({"id": 1, **{name: one[1] for name, one in columns.items()}}, {"id": 2})
    table.apply()
    at = {"postgresql": 2, "sqlite": 4}.get(engine.dialect.name, 3)
    found = dict(zip(CASES, zip(table.types(*columns), _texts(engine, columns), strict=True), strict=True))
    expected = {name: one[at] for name, one in CASES.items()}
    if getattr(engine.dialect, "is_mariadb", False):  # JSON is another word for a long text there
        expected["Json"] = ("LONGTEXT", '{"a": 1}')
    assert {name: _plain(type_, text) for name, (type_, text) in found.items()} == expected
    with engine.connect() as connection:
        (nothing,) = connection.exec_driver_sql("SELECT * FROM p_s_t WHERE id = 2").all()
    assert set(nothing[1:]) == {None}


def _texts(engine: sa.Engine, columns: dict[str, Made]) -> list[str]:
    type_ = {"postgresql": "text", "sqlite": "TEXT"}.get(engine.dialect.name, "CHAR")
    bits = f"{DEBEZIUM}.data.Bits"
    shown = [
        f"CAST({name}{' + 0' if one[0].semantic == bits and type_ == 'CHAR' else ''} AS {type_})"
        for name, one in columns.items()
    ]
    with engine.connect() as connection:
        if engine.dialect.name == "postgresql":
            connection.exec_driver_sql("SET TIME ZONE 'UTC'")
        row = connection.exec_driver_sql(f"SELECT {', '.join(shown)} FROM p_s_t WHERE id = 1").one()
    return [value.decode() if isinstance(value, bytes) else value for value in row]


def _plain(type_: str, text: str) -> tuple[str, str]:
    """Without the widths that MariaDB has for whole numbers."""
    for name in ("BIGINT", "INTEGER", "SMALLINT", "TINYINT", "YEAR"):
        if type_.startswith(f"{name}(") and type_ != "TINYINT(1)":
            return name, text
    return type_, text


@pytest.mark.parametrize(
    ("type_", "semantic", "declared", "message", "kind"),
    [
        ("string", None, ColumnDeclaration(type_name="DECIMAL", length=12, scale=2), "", ValueKind("text", 17)),
        ("double", None, ColumnDeclaration(type_name="DECIMAL", length=12, scale=2), "", ValueKind("double")),
        ("string", None, ColumnDeclaration(type_name="VARBINARY", length=300), "", ValueKind("text", 600)),
        ("string", None, ColumnDeclaration(type_name="BINARY", length=1), "", ValueKind("text", 4)),
        ("binary", None, ColumnDeclaration(type_name="VARBINARY", length=300), "", ValueKind("bytes", 300)),
        ("string", None, ColumnDeclaration(type_name="UUID"), "", ValueKind("uuid")),
        ("string", None, ColumnDeclaration(type_name="INET6"), "", ValueKind("text")),
        ("int16", None, ColumnDeclaration(type_name="TINYINT", length=1), "", ValueKind("int16")),
        (
            "int16",
            None,
            ColumnDeclaration(type_name="TINYINT", length=1),
            "TINYINT",
            ValueKind("int8", 1, source_type="TINYINT"),
        ),
        ("decimal128(5, -2)", f"{CONNECT}.Decimal", ColumnDeclaration(), "", ValueKind("decimal", 7, 0)),
        (GEOMETRY, f"{DEBEZIUM}.data.geometry.Point", ColumnDeclaration(), "", ValueKind("geometry")),
    ],
)
def test_modes_of_the_source_end_in_columns_that_have_room_for_their_values(
    type_: str, semantic: str | None, declared: ColumnDeclaration, message: str, kind: ValueKind
) -> None:
    """The cases are of decimal.handling.mode, binary.handling.mode, and the values of the source."""
    parameters = {"__debezium.source.column.type": message} if message else {}
    assert kind_of(Column(name="c", type=type_, semantic=semantic, declared=declared, parameters=parameters)) == kind


def test_label_trees_have_the_type_of_the_extension_if_the_database_has_it(postgres: Any, tmp_path: Path) -> None:
    with postgres.database("ltree") as name:
        postgres.sql("CREATE SCHEMA extras", "CREATE EXTENSION ltree SCHEMA extras", database=name)
        engine = sa.create_engine(postgres.url(name))
        table = Table(tmp_path, engine, named("string", f"{DEBEZIUM}.data.Ltree"))
        table.insert({"id": 1, "c": "a.b"}, {"id": 2})
        table.apply()
        type_ = (
            "SELECT format_type(atttypid, NULL) FROM pg_attribute WHERE attrelid = 'p_s_t'::regclass AND attname = 'c'"
        )
        assert postgres.sql(type_, database=name) == [("extras.ltree",)]
        assert postgres.sql("SELECT id, c::text FROM p_s_t ORDER BY id", database=name) == [(1, "a.b"), (2, None)]
        engine.dispose()


POINT = bytes.fromhex("0101000000000000000000f03f0000000000000040")
STAND_IN = (
    "CREATE SCHEMA postgis", "CREATE DOMAIN postgis.geometry AS bytea",
    "INSERT INTO pg_extension (oid, extname, extowner, extnamespace, extrelocatable, extversion) "
    "SELECT 99999, 'postgis', 10, oid, false, '3' FROM pg_namespace WHERE nspname = 'postgis'",
)  # fmt: skip


@pytest.mark.parametrize("mode", ["insert", "upsert"])
def test_geometries_have_the_type_of_postgis_if_the_database_has_it(postgres: Any, tmp_path: Path, mode: str) -> None:
    """PostGIS is 46 packages, so a type of its name stands in for its own, under its name in the catalog. PostGIS makes a geometry of the same bytes (EWKB) by its
    cast from bytea. A database without it, and the reference systems that bytes keep there, are in the tests of all types."""
    with postgres.database("gis") as name:
        postgres.sql(*STAND_IN, database=name)
        engine = sa.create_engine(postgres.url(name))
        table = Table(tmp_path, engine, named(GEOMETRY, f"{DEBEZIUM}.data.geometry.Geometry"))
        table.insert(
            {"id": 1, "c": {"wkb": POINT, "srid": 4326}}, {"id": 2, "c": {"wkb": POINT, "srid": None}}, {"id": 3}
        )
        table.apply(insert__mode=mode)
        type_ = (
            "SELECT format_type(atttypid, NULL) FROM pg_attribute WHERE attrelid = 'p_s_t'::regclass AND attname = 'c'"
        )
        assert postgres.sql(type_, database=name) == [("postgis.geometry",)]
        found = postgres.sql("SELECT encode(c, 'hex') FROM p_s_t ORDER BY id", database=name)
        assert found == [("0101000020e6100000" + POINT[5:].hex(),), (POINT.hex(),), (None,)]
        engine.dispose()


@pytest.mark.parametrize(
    ("of", "value", "named_so"),
    [
        (named("int64", f"{DEBEZIUM}.time.MicroTime"), -3_600_000_000, "-01:00:00"),
        (named("int64", f"{DEBEZIUM}.time.MicroTime"), 838 * 3_600_000_000, "838:00:00"),
        (column("c", "string"), "a\0b", "0x00"),
    ],
)
def test_values_that_postgresql_does_not_have_stop_the_table_and_are_named(
    postgres: Any, tmp_path: Path, of: Column, value: Any, named_so: str
) -> None:
    with postgres.database("sink") as name:
        engine = sa.create_engine(postgres.url(name))
        table = Table(tmp_path, engine, of)
        table.insert({"id": 1, "c": value})
        with pytest.raises(TargetError, match=rf"(?s)p_s_t rejects a row: .*{named_so}.*id=1"):
            table.apply()
        assert not sa.inspect(engine).has_table("p_s_t")  # it is made in the transaction of its rows
        engine.dispose()
