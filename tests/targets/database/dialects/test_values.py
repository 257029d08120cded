"""Values of every kind, and long ones, in Oracle and Db2 through their drivers."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
import sqlalchemy as sa

from airflow_provider_cdc.core.errors import TargetError, TargetUnavailable
from airflow_provider_cdc.core.model.table_schema import Column
from airflow_provider_cdc.sources.memory.database import MemoryDatabase
from airflow_provider_cdc.targets.database.apply.database_apply import DatabaseApply
from airflow_provider_cdc.targets.database.config import EQUAL, DatabaseTargetConfig
from airflow_provider_cdc.targets.database.dialects import dialect_of
from airflow_provider_cdc.targets.database.dialects.target_dialect import execute_sql
from airflow_provider_cdc.targets.database.schema.target_table import (
    DatabaseColumn,
    DatabaseTargetTable,
    TargetTableName,
)
from airflow_provider_cdc.targets.database.target_engine import open_engine
from tests.support.connectors import memory_connector
from tests.targets.database.apply.test_database_apply import UPPER, rows

BOTH = pytest.mark.parametrize("url", UPPER, indirect=True)
UTC = dt.UTC
MOMENT = dt.datetime(2024, 2, 29, 12, 0, 0, 5)


def typed_column(name: str, type_: str, semantic: str = "", **parameters: str) -> Column:
    return Column(name=name, type=type_, semantic=semantic or None, parameters=parameters)


POINT = bytes.fromhex("0101000000000000000000f03f0000000000000040")
EWKB = POINT[:1] + bytes.fromhex("01000020e6100000") + POINT[5:]
KINDS: list[tuple[Column, list[Any], dict[str, list[Any]]]] = [
    (typed_column("small", "int8"), [-128, 127], {}),
    (typed_column("single", "float"), [1.5, -0.25], {}),
    (typed_column("duration", "int64", "io.debezium.time.MicroDuration"), [-1, 2**62], {}),
    (typed_column("year", "int32", "io.debezium.time.Year"), [1901, 2155], {}),
    (typed_column("bits", "binary", "io.debezium.data.Bits", length="12"), [b"\x05\x01", b"\xff\x0f"], {}),
    (typed_column("json", "string", "io.debezium.data.Json"), ['{"a": "ä€😀"}', "[]"], {}),
    (typed_column("uuid", "string", "io.debezium.data.Uuid"), ["00000000-0000-0000-0000-000000000001", None], {}),
    (typed_column("mood", "string", "io.debezium.data.Enum", allowed="sad,ok"), ["sad", "ok"], {}),
    (typed_column("zoned", "string", "io.debezium.time.ZonedTime"), ["10:00:00+02:00", "23:59:59.999999Z"], {}),
    (
        typed_column("clock", "int64", "io.debezium.time.MicroTime"),
        [1_500_000, 86_399_999_999],
        {
            "oracle": [dt.timedelta(seconds=1.5), dt.timedelta(microseconds=86_399_999_999)],
            "db2": [dt.datetime(1970, 1, 1, 0, 0, 1, 500_000), dt.datetime(1970, 1, 1, 23, 59, 59, 999_999)],
        },
    ),
    (typed_column("nanos", "timestamp[ns]"), [MOMENT, dt.datetime(1900, 1, 1)], {}),
    (typed_column("moment", "timestamp[us, tz=UTC]"), [MOMENT.replace(tzinfo=UTC), None], {"oracle": [MOMENT, None], "db2": [MOMENT, None]}),
    (
        typed_column("told", "string", "io.debezium.time.ZonedTimestamp"),
        ["2024-02-29T14:00:00.000005+02:00", None],
        {"oracle": [MOMENT, None], "db2": [MOMENT, None]},
    ),
    (typed_column("shape", "struct<wkb: binary, srid: int32>"), [{"wkb": POINT, "srid": 4326}, None], {"oracle": [EWKB, None], "db2": [EWKB, None]}),
    (typed_column("vector", "list<item: float>"), [[1.5, 2.0], None], {"oracle": ["[1.5,2.0]", None], "db2": ["[1.5,2.0]", None]}),
    (typed_column("huge", "decimal128(31, 5)"), [Decimal("12345678901234567890123456.12345"), Decimal("-0.00001")], {}),
]  # fmt: skip
"""Column, values, and what a database gives back if it is something else."""


@BOTH
def test_values_of_every_kind_come_back(engine: sa.Engine) -> None:
    named = dialect_of(engine)
    kinds = [one for one in KINDS if engine.dialect.name != "db2" or one[0].name != "nanos"]  # Derby has microseconds
    id_ = DatabaseColumn("ID", Column(name="id", type="int64", nullable=False), key=True)
    fields = [id_, *(DatabaseColumn(column.name.upper(), column) for column, _, _ in kinds)]
    table = DatabaseTargetTable("p.s.t", TargetTableName("T"), tuple(fields))
    arrays = {field.name: values for field, (_, values, _) in zip(fields[1:], kinds, strict=True)}
    made = pa.table({"ID": [1, 2], **{f.name: _array(f.column.type, arrays[f.name]) for f in fields[1:]}})
    with engine.begin() as connection:
        execute_sql(connection, named.build_create_table(table))
    with engine.begin() as connection:
        for some in (made.slice(0, 1), made.slice(1, 1), made):  # inserted, and then changed
            named.upsert(connection, table, some, unique=False)
    found = sorted(rows(engine, "t"), key=lambda row: row["id"])
    for column, values, kept in kinds:
        expected = kept.get(engine.dialect.name, values)
        assert [_plain_value(row[column.name], column) for row in found] == [
            _plain_value(v, column) for v in expected
        ], column.name


def _array(type_: str, values: list[Any]) -> pa.Array:
    from airflow_provider_cdc.core.model.table_schema import arrow_type

    return pa.array(values, arrow_type(type_))


def _plain_value(value: Any, column: Column) -> Any:
    if isinstance(value, dt.datetime):
        return value.replace(tzinfo=None).isoformat(" ", "microseconds")
    if column.type.startswith("decimal") and value is not None:
        return Decimal(str(value))
    return float(value) if column.type == "float" else value


@BOTH
def test_long_values_stay_whole(engine: sa.Engine, tmp_path: Any) -> None:
    """Oracle takes those of more than 4,000 bytes in another way, and of more than 32,767 in yet another."""
    source = MemoryDatabase(str(tmp_path))
    source.create_table("s.t", {"id": "int64!", "a": "string", "b": "binary"}, key=("id",))
    connector = memory_connector(source, tmp_path, topic_prefix="p")
    sizes = [0, 1, 1333, 1334, 2000, 2001, 4000, 4001, 32_767, 32_768, 100_000]
    for turn in ("€", "x"):
        with source.transaction() as t:
            for size in sizes:
                values = {"a": turn * size, "b": turn.encode() * size}
                if t.update("s.t", {"id": size}, values) == 0:
                    t.insert("s.t", {"id": size, **values})
        connector.capture()
        DatabaseApply(engine, DatabaseTargetConfig.parse(EQUAL), connector.changelog, connector.name).apply()
        found = {row["id"]: (row["a"] or "", bytes(row["b"] or b"")) for row in rows(engine, "p_s_t")}
        assert found.keys() == set(sizes)
        for size in sizes:
            assert found[size] == (turn * size, turn.encode() * size), size


@pytest.mark.parametrize("url", ["oracle"], indirect=True)
def test_an_empty_text_in_a_key_of_oracle_is_refused_with_its_row(engine: sa.Engine, tmp_path: Any) -> None:
    source = MemoryDatabase(str(tmp_path))
    source.create_table("s.t", {"id": "string!", "a": "string!"}, key=("id",))
    connector = memory_connector(source, tmp_path, topic_prefix="p")
    with source.transaction() as t:
        t.insert("s.t", {"id": "x", "a": ""})
    connector.capture()
    DatabaseApply(engine, DatabaseTargetConfig.parse(EQUAL), connector.changelog, connector.name).apply()
    assert rows(engine, "p_s_t") == [{"id": "x", "a": None}]
    with source.transaction() as t:
        t.insert("s.t", {"id": "", "a": ""})
    connector.capture()
    with pytest.raises(TargetError, match=r"(?s)P_S_T rejects a row: ORA-01400.*row with ID="):
        DatabaseApply(engine, DatabaseTargetConfig.parse(EQUAL), connector.changelog, connector.name).apply()


@BOTH
def test_a_password_that_is_wrong_is_an_error_of_the_target(url: str, tmp_path: Any) -> None:
    engine = open_engine(DatabaseTargetConfig.parse({"connection.url": url, "connection.password": "wrong"}))
    connector = memory_connector(MemoryDatabase(str(tmp_path)), tmp_path, topic_prefix="p")
    with pytest.raises(
        TargetUnavailable, match="check that the database is running and that the connection is correct"
    ):
        DatabaseApply(engine, DatabaseTargetConfig.parse(EQUAL), connector.changelog, connector.name)
