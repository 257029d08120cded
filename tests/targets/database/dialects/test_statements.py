"""The SQL for Oracle, Db2 and SQL Server, as whole statements, and the values that are bound: what no test server shows."""

from __future__ import annotations

import sys
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
import sqlalchemy as sa

from airflow_provider_cdc.core.errors import ConfigError, TargetError
from airflow_provider_cdc.core.model.table_schema import Column
from airflow_provider_cdc.core.remedy_commands import format_cdc_command
from airflow_provider_cdc.targets.database import target_engine
from airflow_provider_cdc.targets.database.config import DatabaseTargetConfig
from airflow_provider_cdc.targets.database.dialects import load_dialect
from airflow_provider_cdc.targets.database.dialects.db2_sqlalchemy_dialect import Db2Engine, Db2SqlCompiler
from airflow_provider_cdc.targets.database.dialects.merge_dialect import MergeDialect
from airflow_provider_cdc.targets.database.dialects.sqlserver import convert_placeholders
from airflow_provider_cdc.targets.database.dialects.target_dialect import ExistingColumn
from airflow_provider_cdc.targets.database.schema.target_table import (
    DatabaseColumn,
    DatabaseTargetTable,
    TargetTableName,
)
from airflow_provider_cdc.targets.database.schema.value_kinds import ValueKind, kind_of
from airflow_provider_cdc.targets.database.target_engine import open_engine, place_of

MERGING = ("oracle", "db2", "mssql")


def dialect(name: str) -> MergeDialect:
    made = load_dialect(name)()
    assert isinstance(made, MergeDialect)
    return made


def table(named: MergeDialect, *columns: Column, schema: str | None = None) -> DatabaseTargetTable:
    """A table whose key is its first column."""
    fields = [DatabaseColumn(named.fold_name(column.name), column, key=not at) for at, column in enumerate(columns)]
    return DatabaseTargetTable("p.s.t", TargetTableName(named.fold_name("t"), schema), tuple(fields))


ID = Column(name="id", type="int64", nullable=False)
TOLD = {"__debezium.source.column.type": "VARCHAR"}
NOTE = Column(name="note", type="string", declared={"type_name": "VARCHAR", "length": 20}, parameters=TOLD)
PRICE = Column(name="price", type="decimal128(38, 10)")
MERGED = {
    "oracle": 'MERGE INTO "S"."T" t USING (SELECT :1 AS "ID", :2 AS "NOTE", :3 AS "PRICE" FROM dual) s ON (t."ID" = s."ID") '
    'WHEN MATCHED THEN UPDATE SET "NOTE" = s."NOTE", "PRICE" = s."PRICE" '
    'WHEN NOT MATCHED THEN INSERT ("ID", "NOTE", "PRICE") VALUES (s."ID", s."NOTE", s."PRICE")',
    "db2": 'MERGE INTO "S"."T" t USING (VALUES (CAST(? AS BIGINT), CAST(? AS VARCHAR(20 CODEUNITS32)), CAST(? AS DECIMAL(31, 10)))) '
    'AS s ("ID", "NOTE", "PRICE") ON (t."ID" = s."ID") WHEN MATCHED THEN UPDATE SET "NOTE" = s."NOTE", "PRICE" = s."PRICE" '
    'WHEN NOT MATCHED THEN INSERT ("ID", "NOTE", "PRICE") VALUES (s."ID", s."NOTE", s."PRICE")',
    "mssql": "MERGE INTO [S].[t] WITH (HOLDLOCK) AS t USING (VALUES (CAST(? AS bigint), CAST(? AS nvarchar(40)), CAST(? AS decimal(38, 10)))) "
    "AS s ([id], [note], [price]) ON (t.[id] = s.[id]) WHEN MATCHED THEN UPDATE SET [note] = s.[note], [price] = s.[price] "
    "WHEN NOT MATCHED THEN INSERT ([id], [note], [price]) VALUES (s.[id], s.[note], s.[price]);",
}
KEY_ONLY = {
    "oracle": 'MERGE INTO "T" t USING (SELECT :1 AS "ID" FROM dual) s ON (t."ID" = s."ID") WHEN NOT MATCHED THEN INSERT ("ID") VALUES (s."ID")',
    "db2": 'MERGE INTO "T" t USING (VALUES (CAST(? AS BIGINT))) AS s ("ID") ON (t."ID" = s."ID") WHEN NOT MATCHED THEN INSERT ("ID") VALUES (s."ID")',
    "mssql": "MERGE INTO [t] WITH (HOLDLOCK) AS t USING (VALUES (CAST(? AS bigint))) AS s ([id]) ON (t.[id] = s.[id]) "
    "WHEN NOT MATCHED THEN INSERT ([id]) VALUES (s.[id]);",
}
CREATED = {
    "oracle": 'CREATE TABLE "T" ("ID" NUMBER(19) NOT NULL, "NOTE" VARCHAR2(20 CHAR), "PRICE" NUMBER(38,10), PRIMARY KEY ("ID"))',
    "db2": 'CREATE TABLE "T" ("ID" BIGINT NOT NULL, "NOTE" VARCHAR(20 CODEUNITS32), "PRICE" DECIMAL(31, 10), PRIMARY KEY ("ID"))',
    "mssql": "CREATE TABLE [t] ([id] bigint NOT NULL, [note] nvarchar(40), [price] decimal(38, 10), PRIMARY KEY ([id]))",
}
ADDED = {
    "oracle": ['ALTER TABLE "T" ADD ("NOTE" VARCHAR2(20 CHAR), "PRICE" NUMBER(38,10))'],
    "db2": [
        'ALTER TABLE "T" ADD COLUMN "NOTE" VARCHAR(20 CODEUNITS32)',
        'ALTER TABLE "T" ADD COLUMN "PRICE" DECIMAL(31, 10)',
    ],
    "mssql": ["ALTER TABLE [t] ADD [note] nvarchar(40), [price] decimal(38, 10)"],
}
CHANGED = {
    "oracle": 'UPDATE "T" SET "NOTE" = :1 WHERE "ID" = :2',
    "db2": 'UPDATE "T" SET "NOTE" = ? WHERE "ID" = ?',
    "mssql": "UPDATE [t] SET [note] = ? WHERE [id] = ?",
}
DELETED = {
    "oracle": 'DELETE FROM "T" WHERE "ID" = :1',
    "db2": 'DELETE FROM "T" WHERE "ID" = ?',
    "mssql": "DELETE FROM [t] WHERE [id] = ?",
}


@pytest.mark.parametrize("name", MERGING)
def test_upserts_are_merges(name: str) -> None:
    named = dialect(name)
    expected = table(named, ID, NOTE, PRICE, schema="S")
    assert named.build_merge(expected, expected.fields) == MERGED[name]


@pytest.mark.parametrize("name", MERGING)
def test_where_there_is_nothing_but_a_key_nothing_is_changed(name: str) -> None:
    named = dialect(name)
    expected = table(named, ID)
    assert named.build_merge(expected, expected.fields) == KEY_ONLY[name]


@pytest.mark.parametrize("name", MERGING)
def test_tables_are_made_and_get_columns(name: str) -> None:
    named = dialect(name)
    expected = table(named, ID, NOTE, PRICE)
    assert named.build_create_table(expected) == CREATED[name]
    assert named.build_add_columns(expected, expected.value_columns) == ADDED[name]


@pytest.mark.parametrize("name", MERGING)
def test_rows_are_changed_and_deleted_by_their_keys(name: str) -> None:
    named = dialect(name)
    key, note = table(named, ID, NOTE).fields
    assert named.row_update(table(named, ID, NOTE), {key.name: key}, [note]) == CHANGED[name]
    assert named.build_delete(table(named, ID), [key]) == DELETED[name]


def test_columns_of_texts_may_be_null_in_oracle_which_has_no_empty_ones() -> None:
    named = dialect("oracle")
    required = [
        Column(name="note", type="string", nullable=False),
        Column(name="raw", type="binary", nullable=False),
        Column(name="count", type="int32", nullable=False),
    ]
    made = named.build_create_table(table(named, Column(name="id", type="string", nullable=False), *required))
    assert made == (
        'CREATE TABLE "T" ("ID" VARCHAR2(4000 CHAR) NOT NULL, "NOTE" CLOB, "RAW" BLOB, "COUNT" NUMBER(10) NOT NULL, PRIMARY KEY ("ID"))'
    )


@pytest.mark.parametrize(
    ("name", "text", "truth", "number"),
    [("oracle", "'it''s'", "1", "7"), ("db2", "'it''s'", "TRUE", "7"), ("mssql", "N'it''s'", "1", "7")],
)
def test_defaults_are_those_of_the_source(name: str, text: str, truth: str, number: str) -> None:
    named = dialect(name)
    assert named.build_default(ValueKind("text", 20), "it's") == text
    assert named.build_default(ValueKind("bool"), "1") == truth
    assert named.build_default(ValueKind("int32"), "7") == number


def test_defaults_of_oracle_mean_the_same_in_every_session() -> None:
    named = dialect("oracle")
    assert named.build_default(ValueKind("date"), "2024-02-29") == "DATE '2024-02-29'"
    assert (
        named.build_default(ValueKind("timestamp", scale=6), "2024-02-29 12:00:00") == "TIMESTAMP '2024-02-29 12:00:00'"
    )
    assert named.build_default(ValueKind("time", scale=0), "12:00:00") == "TO_DSINTERVAL('0 12:00:00')"


@pytest.mark.parametrize(
    ("name", "text", "raw", "decimal", "fine", "hundreds"),
    [
        ("oracle", "VARCHAR2(4000 CHAR)", "RAW(2000)", "NUMBER(38,10)", "VARCHAR2(83 CHAR)", "NUMBER(7,0)"),
        ("db2", "VARCHAR(512)", "VARBINARY(512)", "DECIMAL(31, 10)", "VARCHAR(83 CODEUNITS32)", "DECIMAL(7, 0)"),
        ("mssql", "nvarchar(450)", "varbinary(900)", "decimal(38, 10)", "nvarchar(166)", "decimal(7, 0)"),
    ],
)
def test_keys_and_decimals_have_the_longest_lengths_of_the_database(
    name: str, text: str, raw: str, decimal: str, fine: str, hundreds: str
) -> None:
    named = dialect(name)
    assert named.type_of(ValueKind("text"), key=True) == text
    assert named.type_of(ValueKind("text", 100_000), key=True) == text
    assert named.type_of(ValueKind("bytes"), key=True) == raw
    assert named.type_of(ValueKind("decimal", 60, 10), key=False) == decimal
    assert named.type_of(ValueKind("decimal", 80, 70), key=False) == fine
    assert named.type_of(kind_of(Column(name="c", type="decimal128(5, -2)")), key=False) == hundreds


@pytest.mark.parametrize(
    ("name", "any_length", "key", "raw_key"),
    [
        ("postgresql", "text", "text", "bytea"),
        ("mysql", "longtext CHARACTER SET utf8mb4", "varchar(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin", "varbinary(255)"),
        ("mariadb", "longtext CHARACTER SET utf8mb4", "varchar(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin", "varbinary(255)"),
        ("oracle", "CLOB", "VARCHAR2(4000 CHAR)", "RAW(2000)"),
        ("db2", "CLOB(1G)", "VARCHAR(512)", "VARBINARY(512)"),
        ("mssql", "nvarchar(max)", "nvarchar(450)", "varbinary(900)"),
        ("sqlite", "TEXT", "TEXT", "BLOB"),
    ],
)  # fmt: skip
def test_texts_without_a_length_have_any_and_in_keys_the_longest_that_the_database_takes(
    name: str, any_length: str, key: str, raw_key: str
) -> None:
    named = load_dialect(name)()
    assert [named.type_of(ValueKind("text"), key=one) for one in (False, True)] == [any_length, key]
    assert named.type_of(ValueKind("bytes"), key=True) == raw_key


@pytest.mark.parametrize(
    ("name", "text", "raw"),
    [("oracle", "CLOB", "BLOB"), ("db2", "CLOB(1G)", "BLOB(1G)"), ("mssql", "nvarchar(max)", "varbinary(max)")],
)
def test_texts_and_bytes_have_the_lengths_of_the_source_only_if_it_reports_its_types(
    name: str, text: str, raw: str
) -> None:
    named = dialect(name)
    assert named.type_of(ValueKind("text", 20), key=False) == text
    assert named.type_of(ValueKind("bytes", 20), key=False) == raw
    names = [named.type_of(ValueKind(kind, 20, source_type="X"), key=False) for kind in ("text", "bytes")]  # type: ignore[arg-type]
    assert (
        names
        == {
            "oracle": ["VARCHAR2(20 CHAR)", "RAW(20)"],
            "db2": ["VARCHAR(20 CODEUNITS32)", "VARBINARY(20)"],
            "mssql": ["nvarchar(40)", "varbinary(20)"],
        }[name]
    )


THIRD = "0." + "3" * 40


@pytest.mark.parametrize(
    ("name", "type_", "kept", "lost"),
    [
        ("oracle", "NUMBER", [THIRD, "9" * 40, "-" + "9" * 39 + "0" * 60], ["3." + "3" * 39, "9" * 41, "0.0" + "3" * 40]),
        ("db2", "DECFLOAT", ["9" * 34, "0." + "0" * 40 + "3" * 34, "9" * 34 + "000"], ["9" * 35, THIRD]),
        ("mssql", "decimal(38, 18)", ["9" * 20 + "." + "9" * 18, "0.1" + "0" * 30], ["0." + "0" * 18 + "1", THIRD]),
    ],
)  # fmt: skip
def test_numbers_with_more_digits_than_the_database_keeps_are_refused(
    name: str, type_: str, kept: list[str], lost: list[str]
) -> None:
    named = dialect(name)
    number = Column(name="n", type="string", semantic="io.debezium.data.VariableScaleDecimal")
    expected = table(named, ID, number)
    field = expected.fields[1]
    assert named.type_of(kind_of(number), key=False) == type_
    (found,) = named.bind_columns(expected, pa.table({field.name: [*kept, None]}))
    assert found[0].to_pylist() == [*kept, None]
    for value in lost:
        with pytest.raises(TargetError, match=rf"(?i)column n cannot store all digits of a value: {value}"):
            list(named.bind_columns(expected, pa.table({field.name: [None, value]})))


ALTERED: list[tuple[str, str, str, bool, bool, str]] = [
    ("oracle", "NUMBER(10,0)", "NUMBER(19)", True, True, 'ALTER TABLE "T" MODIFY ("NOTE" NUMBER(19))'),
    ("oracle", "NUMBER(10,0)", "NUMBER(10,0)", False, True, 'ALTER TABLE "T" MODIFY ("NOTE" NULL)'),
    ("oracle", "NUMBER(10,0)", "NUMBER(10,0)", True, False, 'ALTER TABLE "T" MODIFY ("NOTE" NOT NULL)'),
    ("db2", "VARCHAR(20)", "VARCHAR(40 CODEUNITS32)", True, True, 'ALTER TABLE "T" ALTER COLUMN "NOTE" SET DATA TYPE VARCHAR(40 CODEUNITS32)'),
    ("mssql", "INT", "bigint", False, False, "ALTER TABLE [t] ALTER COLUMN [note] bigint NOT NULL"),
    ("mssql", "INT", "INT", False, True, "ALTER TABLE [t] ALTER COLUMN [note] INT NULL"),
    (
        "mssql", "NVARCHAR(20) COLLATE Greek_CI_AS", "nvarchar(80)", True, True,
        "ALTER TABLE [t] ALTER COLUMN [note] nvarchar(80) COLLATE Greek_CI_AS NULL",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("name", "there", "type_", "was", "nullable", "statement"), ALTERED)
def test_columns_get_more_room(name: str, there: str, type_: str, was: bool, nullable: bool, statement: str) -> None:
    named = dialect(name)
    column = ExistingColumn(named.fold_name("note"), there, was)
    assert named.build_change_column(table(named, ID, NOTE), column, type_, nullable=nullable) == statement


@pytest.mark.parametrize(
    ("name", "there", "type_", "was", "nullable", "remedy"),
    [
        (
            "db2", "INTEGER", "BIGINT", False, True,
            'run ALTER TABLE "T" ALTER COLUMN "NOTE" SET DATA TYPE BIGINT ALTER COLUMN "NOTE" DROP NOT NULL; '
            "CALL SYSPROC.ADMIN_CMD('REORG TABLE \"T\"'); then run the apply again",
        ),
        (
            "oracle", "BINARY_FLOAT", "BINARY_DOUBLE", True, True,
            'run ALTER TABLE "T" ADD ("NOTE_" BINARY_DOUBLE); UPDATE "T" SET "NOTE_" = "NOTE"; ALTER TABLE "T" DROP COLUMN "NOTE"; '
            'ALTER TABLE "T" RENAME COLUMN "NOTE_" TO "NOTE"; then run the apply again',
        ),
    ],
)  # fmt: skip
def test_what_would_keep_others_from_the_table_is_left_to_people(
    name: str, there: str, type_: str, was: bool, nullable: bool, remedy: str
) -> None:
    named = dialect(name)
    with pytest.raises(TargetError) as caught:
        named.build_change_column(table(named, ID, NOTE), ExistingColumn("NOTE", there, was), type_, nullable=nullable)
    assert remedy in str(caught.value)


@pytest.mark.parametrize(
    ("name", "there", "expected"),
    [
        ("oracle", "VARCHAR2(10 CHAR)", "VARCHAR2(20 CHAR)"), ("oracle", "VARCHAR2(20 CHAR)", None), ("oracle", "CLOB", None),
        ("db2", "VARCHAR(10 CODEUNITS32)", "VARCHAR(20 CODEUNITS32)"), ("db2", "CLOB", None), ("db2", "SMALLINT", None),
        ("mssql", "NVARCHAR(20) COLLATE Greek_CI_AS", "nvarchar(40)"), ("mssql", "NVARCHAR(max)", None),
    ],
)  # fmt: skip
def test_only_columns_with_less_room_are_changed(name: str, there: str, expected: str | None) -> None:
    named = dialect(name)
    fields = table(named, ID, NOTE).fields
    assert named.find_wider_type(ExistingColumn("note", there, True), fields[1]) == expected
    assert named.find_wider_type(ExistingColumn("note", "VARCHAR2(9 CHAR)", True), DatabaseColumn("note", Column(name="c", type="string"))) in (
        None, "nvarchar(max)",
    )  # fmt: skip


def test_keys_of_sql_server_that_differ_in_case_are_different() -> None:
    named = dialect("mssql")
    made = named.build_create_table(table(named, Column(name="id", type="string", nullable=False), NOTE))
    assert made == (
        "CREATE TABLE [t] ([id] nvarchar(450) COLLATE Latin1_General_100_BIN2 NOT NULL, [note] nvarchar(40), PRIMARY KEY ([id]))"
    )


def test_columns_are_renamed_in_the_words_of_the_database() -> None:
    assert (
        dialect("mssql").build_rename_column(table(dialect("mssql"), ID), "it's", "new")
        == "EXEC sp_rename N'[t].[it''s]', N'new', 'COLUMN'"
    )
    assert (
        dialect("db2").build_rename_column(table(dialect("db2"), ID), "OLD", "NEW")
        == 'ALTER TABLE "T" RENAME COLUMN "OLD" TO "NEW"'
    )


@pytest.mark.parametrize("name", MERGING)
def test_geometries_keep_their_reference_system(name: str) -> None:
    point = bytes.fromhex("0101000000" + "00" * 16)
    shapes = pa.array([{"wkb": point, "srid": 4326}, None], pa.struct([("wkb", pa.binary()), ("srid", pa.int32())]))
    found = dialect(name).to_driver_values(shapes, ValueKind("geometry"))  # type: ignore[attr-defined]
    expected = bytes.fromhex("0101000020e6100000" + "00" * 16)
    assert (found if isinstance(found, list) else found.to_pylist()) == [expected, None]


@pytest.mark.parametrize(
    ("kind", "types"),
    [
        (ValueKind("bits", 12), {"mysql": "bit(12)", "postgresql": "bit(12)", "mssql": "varbinary(2)", "oracle": "RAW(2)", "db2": "VARBINARY(2)"}),
        (ValueKind("xml"), {"postgresql": "xml", "mssql": "xml", "mysql": "longtext CHARACTER SET utf8mb4", "oracle": "CLOB", "db2": "CLOB(1G)"}),
        (ValueKind("enum", members=("a",)), {"mssql": "nvarchar(255)", "oracle": "VARCHAR2(255 CHAR)", "db2": "VARCHAR(255 CODEUNITS32)"}),
        (ValueKind("set", members=("a",)), {"mssql": "nvarchar(max)", "oracle": "CLOB", "db2": "CLOB(1G)"}),
        (ValueKind("json"), {"mssql": "nvarchar(max)", "oracle": "CLOB", "db2": "CLOB(1G)"}),
        (ValueKind("ltree"), {"mssql": "nvarchar(max)", "oracle": "CLOB", "db2": "CLOB(1G)"}),
        (ValueKind("uuid"), {"mssql": "varchar(36)", "oracle": "VARCHAR2(36 CHAR)", "db2": "VARCHAR(36)"}),
        (ValueKind("year"), {"mssql": "int", "oracle": "NUMBER(5)", "db2": "INTEGER"}),
        (ValueKind("duration"), {"mssql": "bigint", "oracle": "NUMBER(19)", "db2": "BIGINT"}),
    ],
)  # fmt: skip
def test_types_of_some_databases_only_are_plain_ones_in_others(kind: ValueKind, types: dict[str, str]) -> None:
    assert {name: load_dialect(name)().type_of(kind, key=False) for name in types} == types


def test_moments_are_reported_in_a_zone_where_no_type_has_one() -> None:
    db2: Any = load_dialect("db2")("Europe/Berlin")
    assert db2.type_of(ValueKind("timestamp_tz", scale=0), key=False) == "TIMESTAMP(0)"
    moments = pa.array([0], pa.timestamp("us", tz="UTC"))
    assert db2.to_driver_values(moments, ValueKind("timestamp_tz", scale=0)) == ["1970-01-01 01:00:00"]


def test_question_marks_become_what_pymssql_reads() -> None:
    assert convert_placeholders("SELECT [a?]]?], [5%] WHERE x = ?") == "SELECT [a?]]?], [5%%] WHERE x = %s"


@pytest.mark.parametrize(
    ("name", "kind", "values", "bound"),
    [
        ("mssql", ValueKind("time", scale=6), pa.array([1_500_000, None]), ["00:00:01.500000", None]),
        ("mssql", ValueKind("timestamp", scale=9), pa.array([1], pa.timestamp("ns")), ["1970-01-01 00:00:00.0000000"]),
        ("mssql", ValueKind("timestamp_tz", scale=6), pa.array([1], pa.timestamp("us", tz="UTC")), ["1970-01-01 00:00:00.000001 +00:00"]),
        ("mssql", ValueKind("bits", 12), pa.array([b"\x05\x01"]), [b"\x05\x01"]),
        ("mssql", ValueKind("decimal", 5, 2), pa.array([Decimal("1.50")]), [Decimal("1.50")]),
        ("mssql", ValueKind("vector"), pa.array([[1.5, 2.0]], pa.list_(pa.float32())), ["[1.5,2.0]"]),
        ("db2", ValueKind("time", scale=0), pa.array([3_600_000_000]), ["01:00:00"]),
        ("db2", ValueKind("time", scale=6), pa.array([1_500_000]), ["1970-01-01 00:00:01.500000"]),
        ("db2", ValueKind("timestamp", scale=9), pa.array([1], pa.timestamp("ns")), ["1970-01-01 00:00:00.000000001"]),
        ("db2", ValueKind("decimal", 31, 2), pa.array([Decimal("1.50")]), ["1.50"]),
        ("db2", ValueKind("decimal", 31, 9), pa.array([Decimal("-0.000000001"), None]), ["-0.000000001", None]),
        ("db2", ValueKind("decimal", 38, 38), pa.array([Decimal("1e-38")]), ["0." + "0" * 37 + "1"]),
        ("mssql", ValueKind("decimal", 80, 70), pa.array(["0." + "9" * 70]), ["0." + "9" * 70]),
    ],
)  # fmt: skip
def test_values_are_bound_without_a_loss(name: str, kind: ValueKind, values: pa.Array, bound: list[Any]) -> None:
    assert dialect(name).to_driver_values(values, kind) == bound  # type: ignore[attr-defined]


class StatementRefused(Exception):
    """An error of a driver."""


@pytest.mark.parametrize(
    ("name", "error", "again"),
    [
        ("oracle", "ORA-00060: deadlock detected while waiting for resource", True),
        ("oracle", "DPY-4011: the database or network closed the connection", True),
        ("oracle", "ORA-00001: unique constraint (S.T) violated", False),
        ("db2", "SQL0911N  The current transaction has been rolled back.  SQLSTATE=40001 SQLCODE=-911", True),
        ("db2", "SQL30081N  A communication error has been detected.  SQLSTATE=08001", True),
        ("db2", "SQL0803N  One or more values are not valid.  SQLSTATE=23505 SQLCODE=-803", False),
        ("mssql", "[40001] [Microsoft][ODBC Driver 18] Transaction was deadlocked (1205) (SQLExecDirectW)", True),
        ("mssql", "[42000] [Microsoft][ODBC Driver 18] Lock request time out period exceeded. (1222) (SQLExecDirectW)", True),
        ("mssql", "[23000] [Microsoft][ODBC Driver 18] Violation of PRIMARY KEY constraint (2627) (SQLExecDirectW)", False),
        ("mssql", (1205, b"Transaction was deadlocked"), True),
        ("mssql", (2627, b"Violation of PRIMARY KEY constraint"), False),
    ],
)  # fmt: skip
def test_only_what_passes_is_tried_again(name: str, error: Any, again: bool) -> None:
    raised = StatementRefused(*error) if isinstance(error, tuple) else StatementRefused(error)
    assert dialect(name).is_transient(sa.exc.DBAPIError("UPDATE t", None, raised)) is again


@pytest.mark.parametrize(
    ("url", "driver", "remedy"),
    [
        ("oracle://h/?service_name=s", "oracledb", "airflow-provider-cdc[oracle]"),
        ("db2://h/S", "ibm_db_dbi", "airflow-provider-cdc[db2]"),
        ("ibm_db_sa://h/S", "ibm_db_dbi", "airflow-provider-cdc[db2]"),
        ("mssql://h/s", "pyodbc", "pip install pyodbc"),
        ("mssql+pymssql://h/s", "pymssql", "pip install pymssql"),
    ],
)
def test_a_driver_that_is_missing_is_named_with_how_it_is_installed(
    monkeypatch: pytest.MonkeyPatch, url: str, driver: str, remedy: str
) -> None:
    monkeypatch.setitem(sys.modules, driver, None)
    if url == "mssql://h/s":
        monkeypatch.setattr(target_engine.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ConfigError, match="is not installed") as caught:
        open_engine(DatabaseTargetConfig.parse({"connection.url": url}))
    assert remedy in str(caught.value)


def test_connections_to_db2_have_what_ibms_driver_wants() -> None:
    url = sa.make_url("db2://u:a%20%3D%7Bb@h:50001/SAMPLE?authentication=SERVER&Security=SSL")
    (text, *empty), more = Db2Engine().create_connect_args(url)
    assert (empty, more) == (["", ""], {})
    words = [word.partition("=")[::2] for word in text.split(";") if "=" in word]
    assert dict(words) == {
        "DATABASE": "SAMPLE", "HOSTNAME": "h", "PORT": "50001", "PROTOCOL": "TCPIP", "UID": "u", "PWD": "a ={b", "LOBCacheSize": "16777216",
        "ConnectTimeout": "20", "PATCH2": "15", "ClientApplName": "airflow_provider_cdc", "Authentication": "SERVER", "Security": "SSL",
    }  # fmt: skip
    for password in ("sesame;b", " sesame", "sesame "):
        with pytest.raises(ConfigError, match="another password") as caught:
            Db2Engine().create_connect_args(url.set(password=password))
        assert password not in str(caught.value)


@pytest.mark.parametrize(
    ("url", "place"),
    [
        ("oracle://app:x@h:1521/?service_name=PDB1", "oracle://h:1521/PDB1/APP/cdc_applied"),
        ("oracle://other:x@h:1521/?service_name=PDB1", "oracle://h:1521/PDB1/OTHER/cdc_applied"),
        ("oracle://app:x@h/XE", "oracle://h/XE/APP/cdc_applied"),
        ("db2://app:x@h:50000/SAMPLE", "db2://h:50000/SAMPLE/APP/cdc_applied"),
        ("postgresql://app:x@h:5432/shop", "postgresql://h:5432/shop/cdc_applied"),
    ],
)
def test_users_that_have_schemas_of_their_own_are_different_places(url: str, place: str) -> None:
    config = DatabaseTargetConfig.parse({"connection.url": url})
    assert place_of(open_engine(config), config) == place


def test_savepoints_of_db2_keep_cursors() -> None:
    text = str(sa.sql.expression.SavepointClause("one").compile(dialect=Db2Engine()))
    assert (text, Db2Engine.statement_compiler) == ("SAVEPOINT one ON ROLLBACK RETAIN CURSORS", Db2SqlCompiler)


SESSION_TABLES = {
    "oracle": (
        'CREATE PRIVATE TEMPORARY TABLE "ORA$PTT_CDC_VERIFY" ON COMMIT PRESERVE DEFINITION AS SELECT "ID", 0 AS "cdc row" FROM "S"."T" WHERE 1 = 0',
        'DELETE FROM "ORA$PTT_CDC_VERIFY"', 'DROP TABLE "ORA$PTT_CDC_VERIFY"',
    ),
    "db2": (
        'DECLARE GLOBAL TEMPORARY TABLE "SESSION"."cdc_verify" AS (SELECT "ID", 0 AS "cdc row" FROM "S"."T") WITH NO DATA '
        "ON COMMIT PRESERVE ROWS NOT LOGGED WITH REPLACE",
        'DELETE FROM "SESSION"."cdc_verify"', 'DROP TABLE "SESSION"."cdc_verify"',
    ),
    "mssql": (
        "SELECT [id], 0 AS [cdc row] INTO [#cdc_verify] FROM [S].[t] WHERE 1 = 0 UNION ALL SELECT [id], 0 AS [cdc row] FROM [S].[t] WHERE 1 = 0",
        "DELETE FROM [#cdc_verify]", "DROP TABLE [#cdc_verify]",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", MERGING)
def test_what_a_table_ought_to_have_comes_into_a_table_of_the_session(name: str) -> None:
    named = dialect(name)
    stage = named.session_table("cdc_verify")
    columns = f"{named.format_column_list([named.fold_name('id')])}, 0 AS {named.quote_name('cdc row')}"
    made = named.make_session_table(stage, columns, named.format_table_name(TargetTableName(named.fold_name("t"), "S")))
    assert (made, *named.empty_session_table(stage, made), named.drop_session_table(stage)) == SESSION_TABLES[name]


@pytest.mark.parametrize(
    ("name", "type_", "read"),
    [
        ("oracle", "NUMBER(38,10)", "TO_CHAR(c, 'TM9')"),
        ("oracle", "FLOAT", "TO_CHAR(c, 'TM9')"),
        ("oracle", "BINARY_FLOAT", "TO_BINARY_DOUBLE(c)"),
        ("oracle", "DATE", "LTRIM(TO_CHAR(c, 'SYYYY-MM-DD HH24:MI:SS'))"),
        ("oracle", "TIMESTAMP(0)", "LTRIM(TO_CHAR(c, 'SYYYY-MM-DD HH24:MI:SS'))"),
        ("oracle", "TIMESTAMP(9)", "LTRIM(TO_CHAR(c, 'SYYYY-MM-DD HH24:MI:SS.FF9'))"),
        (
            "oracle",
            "TIMESTAMP(6) WITH TIME ZONE",
            "LTRIM(TO_CHAR(SYS_EXTRACT_UTC(c), 'SYYYY-MM-DD HH24:MI:SS.FF6\"+00:00\"'))",
        ),
        ("oracle", "INTERVAL DAY(3) TO SECOND(6)", "TO_CHAR(c)"),
        ("oracle", "CLOB", "c"),
        ("db2", "TIMESTAMP(6)", "c"),
        ("db2", "TIMESTAMP(9)", "CAST(c AS VARCHAR(32))"),
        ("db2", "CLOB", "c"),
        ("mssql", "DATETIME2(7)", "CONVERT(varchar(27), c, 121)"),
        ("mssql", "TIME(7)", "CONVERT(varchar(27), c, 121)"),
        ("mssql", "DATETIMEOFFSET(7)", "CONVERT(varchar(34), SWITCHOFFSET(c, '+00:00'), 121)"),
        ("mssql", "DATE", "c"),
        ("mssql", "NVARCHAR(max)", "c"),
    ],
)
def test_values_are_read_in_a_form_in_which_the_driver_loses_nothing(name: str, type_: str, read: str) -> None:
    assert dialect(name).build_exact_column("c", type_) == read


class _AnsweringConnection:
    """Stands in for a connection to a database that none of the test servers is: what it answers, or the error."""

    def __init__(self, answer: Any) -> None:
        self._answer = answer
        self.dialect = self
        self.server_version_info = answer

    def exec_driver_sql(self, statement: str, **_: Any) -> Any:
        if isinstance(self._answer, Exception):
            raise self._answer
        return self

    def one(self) -> Any:
        return self._answer


def _of_db2(state: str) -> sa.exc.DBAPIError:
    return sa.exc.ProgrammingError("", {}, Exception(f"[IBM] SQL0286N  A table space was not found.  SQLSTATE={state}"))


@pytest.mark.parametrize(
    ("name", "answer", "why"),
    [
        ("oracle", (12, 2, 0, 1, 0), "private temporary tables (version 18 or newer)"),
        ("oracle", (18, 0, 0, 0, 0), None),
        ("db2", _of_db2("42727"), "the user has no table space for temporary tables"),
        ("mssql", ("shop]", 0), "the database shop] does not allow snapshot isolation"),
        ("mssql", ("shop]", 1), None),
    ],
)
def test_a_database_that_cannot_compare_says_what_it_lacks(name: str, answer: Any, why: str | None) -> None:
    rebuild = format_cdc_command("rebuild", "shop", "p.s.it's")
    found = dialect(name).not_comparable(_AnsweringConnection(answer), rebuild)  # type: ignore[arg-type]
    assert (found is None) == (why is None)
    if found is not None:
        assert why is not None
        assert why in found[0]
    if name == "oracle" and found:
        assert f"`{rebuild}`" in found[1]
    if name == "mssql" and found:
        assert found[1] == "run ALTER DATABASE [shop]]] SET ALLOW_SNAPSHOT_ISOLATION ON"


def test_other_errors_of_db2_are_not_taken_for_a_table_space() -> None:
    with pytest.raises(sa.exc.ProgrammingError):
        dialect("db2").not_comparable(_AnsweringConnection(_of_db2("42501")), "")  # type: ignore[arg-type]


def test_levels_of_isolation_are_what_db2_calls_them() -> None:
    ran: list[str] = []

    class Connection:
        def cursor(self) -> Any:
            return type("Cursor", (), {"execute": lambda _, sql: ran.append(sql), "close": lambda _: None})()

    for level in Db2Engine().get_isolation_level_values(Connection()):
        Db2Engine().set_isolation_level(Connection(), level)
    assert ran == [f"SET CURRENT ISOLATION = {word}" for word in ("UR", "CS", "RS", "RR")]
