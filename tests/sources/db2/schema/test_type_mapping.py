"""Db2 column types → change log types, in every handling mode (Debezium Db2 connector, "Data type mappings")."""

from __future__ import annotations

from typing import Any

import pytest

from airflow_provider_cdc.core.model.table_schema import arrow_type
from airflow_provider_cdc.sources.db2.schema.type_mapping import Db2ColumnType, is_distinct
from tests.support.sources.db2.db2_settings import column

DECIMAL = "org.apache.kafka.connect.data.Decimal"
VARIABLE = "io.debezium.data.VariableScaleDecimal"
TIME = "io.debezium.time."
CONNECT = "org.apache.kafka.connect.data."


@pytest.mark.parametrize(
    ("type_", "arrow", "semantic"),
    [
        ("SMALLINT", "int16", None), ("INTEGER", "int32", None), ("INT", "int32", None), ("BIGINT", "int64", None),
        ("REAL", "float", None), ("DOUBLE", "double", None), ("FLOAT", "double", None), ("BOOLEAN", "bool", None),
        ("DECIMAL", "decimal128(5, 0)", DECIMAL), ("DECIMAL(12, 2)", "decimal128(12, 2)", DECIMAL),
        ("NUMERIC(31,31)", "decimal128(31, 31)", DECIMAL), ("DECFLOAT", "string", VARIABLE), ("DECFLOAT(16)", "string", VARIABLE),
        ("CHAR(3)", "string", None), ("VARCHAR(20 CODEUNITS32)", "string", None), ("LONG VARCHAR", "string", None),
        ("CLOB(1M)", "string", None), ("GRAPHIC(3)", "string", None), ("VARGRAPHIC(20)", "string", None),
        ("LONG VARGRAPHIC", "string", None), ("DBCLOB(1K)", "string", None), ("XML", "string", "io.debezium.data.Xml"),
        ("CHAR(16) FOR BIT DATA", "binary", None), ("VARCHAR(16) FOR BIT DATA", "binary", None),
        ("LONG VARCHAR FOR BIT DATA", "binary", None), ("BINARY(4)", "binary", None), ("VARBINARY(4)", "binary", None),
        ("BLOB(2G)", "binary", None), ("ROWID", "string", None), ("DATE", "date32[day]", TIME + "Date"),
        ("TIME", "int64", TIME + "Time"), ("TIMESTAMP", "timestamp[us]", TIME + "MicroTimestamp"),
        ("TIMESTAMP(0)", "timestamp[us]", TIME + "Timestamp"), ("TIMESTAMP(3)", "timestamp[us]", TIME + "Timestamp"),
        ("TIMESTAMP(4)", "timestamp[us]", TIME + "MicroTimestamp"), ("TIMESTAMP(6)", "timestamp[us]", TIME + "MicroTimestamp"),
        ("TIMESTAMP(7)", "timestamp[ns]", TIME + "NanoTimestamp"), ("TIMESTAMP(9)", "timestamp[ns]", TIME + "NanoTimestamp"),
        ("TIMESTAMP(10)", "string", None), ("TIMESTAMP(12)", "string", None), ('"APP"."POINT"', "null", None),
    ],
)  # fmt: skip
def test_type_in_the_default_modes(type_: str, arrow: str, semantic: str | None) -> None:
    made = column(type_)
    assert (made.type, made.semantic) == (arrow, semantic)
    arrow_type(made.type)


@pytest.mark.parametrize(
    ("type_", "properties", "arrow", "semantic"),
    [
        ("DECIMAL(9,2)", {"decimal_handling_mode": "string"}, "string", None),
        ("DECIMAL(9,2)", {"decimal_handling_mode": "double"}, "double", None),
        ("DECFLOAT", {"decimal_handling_mode": "string"}, "string", None),
        ("DECFLOAT", {"decimal_handling_mode": "double"}, "double", None),
        ("BLOB(9)", {"binary_handling_mode": "hex"}, "string", None),
        ("VARCHAR(9) FOR BIT DATA", {"binary_handling_mode": "base64"}, "string", None),
        ("DATE", {"time_precision_mode": "connect"}, "date32[day]", CONNECT + "Date"),
        ("TIME", {"time_precision_mode": "connect"}, "int64", CONNECT + "Time"),
        ("TIME", {"time_precision_mode": "adaptive_time_microseconds"}, "int64", TIME + "MicroTime"),
        ("TIMESTAMP(12)", {"time_precision_mode": "connect"}, "timestamp[us]", CONNECT + "Timestamp"),
    ],
)
def test_type_in_other_modes(type_: str, properties: dict[str, Any], arrow: str, semantic: str | None) -> None:
    made = column(type_, **properties)
    assert (made.type, made.semantic) == (arrow, semantic)


def test_a_decimal_reports_its_scale_and_precision() -> None:
    assert column("DECIMAL(12,3)").parameters == {"scale": "3", "connect.decimal.precision": "12"}


@pytest.mark.parametrize(
    ("name", "length", "scale", "codepage", "ddl"),
    [
        ("CHARACTER", 3, 0, 1208, "CHAR(3)"), ("CHARACTER", 16, 0, 0, "CHAR(16) FOR BIT DATA"), ("VARCHAR", 9, 0, 0, "VARCHAR(9) FOR BIT DATA"),
        ("DECIMAL", 12, 2, 0, "DECIMAL(12,2)"), ("DECFLOAT", 8, 0, 0, "DECFLOAT(16)"), ("DECFLOAT", 16, 0, 0, "DECFLOAT(34)"),
        ("TIMESTAMP", 10, 6, 0, "TIMESTAMP(6)"), ("TIMESTAMP", 7, 0, 0, "TIMESTAMP(0)"), ("TIMESTAMP", 13, 12, 0, "TIMESTAMP(12)"),
        ("INTEGER", 4, 0, 0, "INTEGER"), ("DATE", 4, 0, 0, "DATE"), ("XML", 0, 0, 1208, "XML"), ("BLOB", 1 << 20, 0, 0, "BLOB(1048576)"),
        ("LONG VARCHAR", 32700, 0, 0, "LONG VARCHAR FOR BIT DATA"), ("DOUBLE", 8, 0, 0, "DOUBLE"), ("VARGRAPHIC", 20, 0, 1200, "VARGRAPHIC(20)"),
    ],
)  # fmt: skip
def test_the_catalog_and_ddl_give_the_same_type(name: str, length: int, scale: int, codepage: int, ddl: str) -> None:
    found = Db2ColumnType.of_catalog(name, length, scale, codepage=codepage)
    assert found == Db2ColumnType.parse(ddl)
    assert found.ddl_expression == ddl


def test_a_distinct_type_is_its_source_type_and_keeps_its_name() -> None:
    made = column("DECIMAL(9,2)", distinct='"SHOP"."MONEY"')
    assert made.type == "decimal128(9, 2)"
    assert made.declared.type_expression == '"SHOP"."MONEY"'
    assert Db2ColumnType.from_column(made) == Db2ColumnType("DECIMAL", 9, 2)
    assert is_distinct(made)
    assert not is_distinct(column("DECIMAL(9,2)"))
