"""Oracle column types → change log types, in every handling mode (Debezium Oracle connector, "Data type mappings")."""

from __future__ import annotations

from typing import Any

import pytest

from airflow_provider_cdc.core.model.table_schema import Column, TableId, arrow_type
from airflow_provider_cdc.sources.oracle.schema.column_types import ColumnType, make_column
from tests.sources.oracle.redo.redo_tables import PARTS, config

DECIMAL = "org.apache.kafka.connect.data.Decimal"
VARIABLE = "io.debezium.data.VariableScaleDecimal"
TIME = "io.debezium.time."
CONNECT = "org.apache.kafka.connect.data."
BOOLEAN = "io.debezium.connector.oracle.converters.NumberOneToBooleanConverter"
ZERO_SCALE = "io.debezium.connector.oracle.converters.NumberToZeroScaleConverter"


def column(type_: str, **properties: Any) -> Column:
    return make_column(PARTS, "C", ColumnType.parse(type_), config(**properties), nullable=True)


@pytest.mark.parametrize(
    ("type_", "arrow", "semantic"),
    [
        ("CHAR(3)", "string", None), ("NCHAR(3)", "string", None), ("VARCHAR(10)", "string", None),
        ("VARCHAR2(10 CHAR)", "string", None), ("NVARCHAR2(10)", "string", None), ("ROWID", "string", None),
        ("CLOB", "string", None), ("NCLOB", "string", None), ("BLOB", "binary", None), ("RAW(16)", "binary", None),
        ("XMLTYPE", "string", "io.debezium.data.Xml"), ("SYS.XMLTYPE", "string", "io.debezium.data.Xml"),
        ("BINARY_FLOAT", "float", None), ("BINARY_DOUBLE", "double", None),
        ("NUMBER(1)", "int8", None), ("NUMBER(2)", "int8", None), ("NUMBER(3)", "int16", None), ("NUMBER(4,0)", "int16", None),
        ("NUMBER(5)", "int32", None), ("NUMBER(9)", "int32", None), ("NUMBER(10)", "int64", None), ("NUMBER(18)", "int64", None),
        ("NUMBER(10,-2)", "int64", None), ("NUMBER(1,-1)", "int8", None), ("NUMBER(8,-1)", "int32", None),
        ("NUMBER(19)", "decimal128(19, 0)", DECIMAL), ("NUMBER(38)", "decimal128(38, 0)", DECIMAL),
        ("NUMBER(17,-2)", "decimal128(19, 0)", DECIMAL), ("NUMBER(38,-2)", "string", DECIMAL),
        ("NUMBER(12,2)", "decimal128(12, 2)", DECIMAL), ("NUMBER(2,5)", "decimal128(5, 5)", DECIMAL),
        ("NUMBER(10,50)", "string", DECIMAL), ("NUMBER(*,3)", "decimal128(38, 3)", DECIMAL),
        ("NUMBER", "string", VARIABLE), ("NUMBER(*)", "string", VARIABLE), ("NUMBER(5,*)", "string", VARIABLE),
        ("FLOAT", "string", VARIABLE), ("FLOAT(20)", "string", VARIABLE), ("REAL", "string", VARIABLE),
        ("DOUBLE PRECISION", "string", VARIABLE), ("INTEGER", "decimal128(38, 0)", DECIMAL), ("INT", "decimal128(38, 0)", DECIMAL),
        ("SMALLINT", "decimal128(38, 0)", DECIMAL), ("DECIMAL", "decimal128(38, 0)", DECIMAL), ("DECIMAL(5)", "int32", None),
        ("DECIMAL(5,1)", "decimal128(5, 1)", DECIMAL), ("NUMERIC(20,3)", "decimal128(20, 3)", DECIMAL),
        ("DATE", "timestamp[us]", TIME + "Timestamp"), ("TIMESTAMP", "timestamp[us]", TIME + "MicroTimestamp"),
        ("TIMESTAMP(0)", "timestamp[us]", TIME + "Timestamp"), ("TIMESTAMP(3)", "timestamp[us]", TIME + "Timestamp"),
        ("TIMESTAMP(4)", "timestamp[us]", TIME + "MicroTimestamp"), ("TIMESTAMP(6)", "timestamp[us]", TIME + "MicroTimestamp"),
        ("TIMESTAMP(7)", "timestamp[ns]", TIME + "NanoTimestamp"), ("TIMESTAMP(9)", "timestamp[ns]", TIME + "NanoTimestamp"),
        ("TIMESTAMP(6) WITH TIME ZONE", "string", TIME + "ZonedTimestamp"),
        ("TIMESTAMP WITH LOCAL TIME ZONE", "timestamp[us, tz=UTC]", TIME + "ZonedTimestamp"),
        ("TIMESTAMP(9) WITH LOCAL TIME ZONE", "timestamp[ns, tz=UTC]", TIME + "ZonedTimestamp"),
        ("INTERVAL YEAR(2) TO MONTH", "int64", TIME + "MicroDuration"),
        ("INTERVAL DAY(3) TO SECOND(9)", "int64", TIME + "MicroDuration"),
    ],
)  # fmt: skip
def test_type_in_the_default_modes(type_: str, arrow: str, semantic: str | None) -> None:
    made = column(type_)
    assert (made.type, made.semantic) == (arrow, semantic)
    arrow_type(made.type)


@pytest.mark.parametrize(
    ("type_", "arrow", "semantic"),
    [("BOOLEAN", "bool", None), ("JSON", "string", "io.debezium.data.Json"), ("VECTOR", "string", None)],
)
def test_type_that_only_tables_have_the_values_of(type_: str, arrow: str, semantic: str | None) -> None:
    made = column(type_)
    assert (made.type, made.semantic) == (arrow, semantic)


@pytest.mark.parametrize("type_", ["BFILE", "LONG", "LONG RAW", "UROWID", "SDO_GEOMETRY", "ANYDATA", "SHOP.ADDRESS_T"])
def test_type_that_cannot_be_captured_is_always_null_and_says_what_it_is(type_: str) -> None:
    made = column(type_)
    assert (made.type, made.semantic, made.nullable) == ("null", None, True)
    assert made.declared.type_name == type_


def test_virtual_column_is_always_null() -> None:
    virtual = make_column(PARTS, "C", ColumnType.parse("NUMBER(5)"), config(), nullable=False, generated=True)
    assert (virtual.type, virtual.nullable, virtual.declared.generated) == ("null", True, True)
    assert ColumnType.from_column(virtual).ddl_expression == "NUMBER(5,0)"


@pytest.mark.parametrize(
    ("ddl", "dictionary"),
    [
        ("DATE", ("DATE", 7, None, None)), ("CLOB", ("CLOB", 4000, None, None)), ("BINARY_DOUBLE", ("BINARY_DOUBLE", 8, None, None)),
        ("VARCHAR2(40 CHAR)", ("VARCHAR2", 40, None, None)), ("RAW(16)", ("RAW", 16, None, None)), ("ROWID", ("ROWID", 10, None, None)),
        ("INTEGER", ("NUMBER", 22, None, 0)), ("NUMBER", ("NUMBER", 22, None, None)), ("FLOAT", ("FLOAT", 22, 126, None)),
        ("TIMESTAMP", ("TIMESTAMP(6)", 11, None, 6)), ("INTERVAL DAY TO SECOND", ("INTERVAL DAY(2) TO SECOND(6)", 11, 2, 6)),
        ("INTERVAL YEAR TO MONTH", ("INTERVAL YEAR(2) TO MONTH", 5, 2, 0)), ("SYS.XMLTYPE", ("PUBLIC.XMLTYPE", 2000, None, None)),
        ("TIMESTAMP WITH TIME ZONE", ("TIMESTAMP(6) WITH TIME ZONE", 13, None, 6)), ("LONG", ("LONG", 0, None, None)),
    ],
)  # fmt: skip
def test_type_of_the_ddl_and_of_the_dictionary_are_one(
    ddl: str, dictionary: tuple[str, int, int | None, int | None]
) -> None:
    assert ColumnType.parse(ddl) == ColumnType.of_catalog(*dictionary)


@pytest.mark.parametrize(
    ("type_", "properties", "arrow", "semantic"),
    [
        ("NUMBER", {"decimal.handling.mode": "double"}, "double", None),
        ("NUMBER", {"decimal.handling.mode": "string"}, "string", None),
        ("FLOAT", {"decimal.handling.mode": "double"}, "double", None),
        ("NUMBER(12,2)", {"decimal.handling.mode": "double"}, "double", None),
        ("NUMBER(12,2)", {"decimal.handling.mode": "string"}, "string", None),
        ("INTEGER", {"decimal.handling.mode": "double"}, "double", None),
        ("NUMBER(9)", {"decimal.handling.mode": "double"}, "int32", None),
        ("NUMBER(9)", {"decimal.handling.mode": "string"}, "int32", None),
        ("BINARY_FLOAT", {"decimal.handling.mode": "string"}, "float", None),
        ("RAW(16)", {"binary.handling.mode": "hex"}, "string", None),
        ("BLOB", {"binary.handling.mode": "base64"}, "string", None),
        ("DATE", {"time.precision.mode": "connect"}, "date32[day]", CONNECT + "Date"),
        ("TIMESTAMP(9)", {"time.precision.mode": "connect"}, "timestamp[us]", CONNECT + "Timestamp"),
        ("TIMESTAMP(3)", {"time.precision.mode": "connect"}, "timestamp[us]", CONNECT + "Timestamp"),
        ("TIMESTAMP WITH TIME ZONE", {"time.precision.mode": "connect"}, "string", TIME + "ZonedTimestamp"),
        ("DATE", {"time.precision.mode": "adaptive_time_microseconds"}, "timestamp[us]", TIME + "Timestamp"),
        ("INTERVAL DAY TO SECOND", {"interval.handling.mode": "string"}, "string", TIME + "Interval"),
        ("INTERVAL YEAR TO MONTH", {"interval.handling.mode": "string"}, "string", TIME + "Interval"),
        ("NUMBER(1)", {"converters": "b", "b.type": BOOLEAN}, "bool", None),
        ("NUMBER(1)", {"converters": "b", "b.type": BOOLEAN, "b.selector": "shop.parts.c"}, "bool", None),
        ("NUMBER(1)", {"converters": "b", "b.type": BOOLEAN, "b.selector": "PARTS.C"}, "int8", None),
        ("NUMBER(2)", {"converters": "b", "b.type": BOOLEAN}, "int8", None),
        ("NUMBER(17,-2)", {"converters": "z", "z.type": ZERO_SCALE, "z.decimal.mode": "string"}, "string", None),
        ("NUMBER(8,-2)", {"converters": "z", "z.type": ZERO_SCALE}, "int64", None),
    ],
)  # fmt: skip
def test_type_in_another_mode(type_: str, properties: dict[str, Any], arrow: str, semantic: str | None) -> None:
    made = column(type_, **properties)
    assert (made.type, made.semantic) == (arrow, semantic)


def test_parameters_of_decimals_have_scale_and_precision() -> None:
    made = column("NUMBER(12,2)")
    negative = column("NUMBER(20,-2)")
    zero = column("NUMBER(20,-2)", converters="z", **{"z.type": ZERO_SCALE})
    assert made.parameters == {"scale": "2", "connect.decimal.precision": "12"}
    assert negative.parameters == {"scale": "-2", "connect.decimal.precision": "20"}
    assert zero.parameters["scale"] == "0"


def test_selector_of_a_converter_may_name_the_pluggable_database() -> None:
    given = config(converters="b", **{"b.type": BOOLEAN, "b.selector": r"PDB1\.SHOP\.PARTS\.C"})
    number = ColumnType.parse("NUMBER(1)")
    there = make_column(TableId(catalog="PDB1", namespace="SHOP", name="PARTS"), "C", number, given, nullable=True)
    elsewhere = make_column(TableId(catalog="PDB2", namespace="SHOP", name="PARTS"), "C", number, given, nullable=True)
    assert (there.type, elsewhere.type) == ("bool", "int8")


@pytest.mark.parametrize(
    ("dictionary", "expected"),
    [
        (("NUMBER", 22, None, None), ColumnType("NUMBER")),
        (("NUMBER", 22, None, 0), ColumnType("NUMBER", 38, 0)),
        (("NUMBER", 22, None, 3), ColumnType("NUMBER", 38, 3)),
        (("NUMBER", 22, 12, 2), ColumnType("NUMBER", 12, 2)),
        (("NUMBER", 22, 10, -2), ColumnType("NUMBER", 10, -2)),
        (("FLOAT", 22, 63, None), ColumnType("FLOAT", 63)),
        (("VARCHAR2", 40, None, None), ColumnType("VARCHAR2", 40)),
        (("CHAR", 6, None, None), ColumnType("CHAR", 6)),
        (("RAW", 16, None, None), ColumnType("RAW", 16)),
        (("DATE", 7, None, None), ColumnType("DATE")),
        (("TIMESTAMP(6)", 11, None, 6), ColumnType("TIMESTAMP", 6)),
        (("TIMESTAMP(9) WITH LOCAL TIME ZONE", 11, None, 9), ColumnType("TIMESTAMP WITH LOCAL TIME ZONE", 9)),
        (("INTERVAL DAY(2) TO SECOND(6)", 11, 2, 6), ColumnType("INTERVAL DAY TO SECOND", 6)),
        (("INTERVAL YEAR(2) TO MONTH", 5, 2, 0), ColumnType("INTERVAL YEAR TO MONTH", 2)),
    ],
)
def test_type_of_the_dictionary(dictionary: tuple[str, int, int | None, int | None], expected: ColumnType) -> None:
    assert ColumnType.of_catalog(*dictionary) == expected


@pytest.mark.parametrize(
    ("type_", "expression"),
    [
        ("number(12,2)", "NUMBER(12,2)"), ("NUMBER", "NUMBER"), ("number(5)", "NUMBER(5,0)"),
        ("timestamp(3) with time zone", "TIMESTAMP(3) WITH TIME ZONE"), ("varchar2(5 byte)", "VARCHAR2(5)"), ("date", "DATE"),
    ],
)  # fmt: skip
def test_declared_type_says_what_was_declared(type_: str, expression: str) -> None:
    made = column(type_)
    assert ColumnType.from_column(made).ddl_expression == expression
    assert made.declared.type_expression == made.declared.type_name == ColumnType.parse(type_).base
    assert ColumnType.from_column(made) == ColumnType.parse(type_)
