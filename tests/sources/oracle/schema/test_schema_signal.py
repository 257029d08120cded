"""Names and structures as people write them."""

from __future__ import annotations

import pytest

from airflow_provider_cdc.changelog.debezium.record_renderer import _table_change
from airflow_provider_cdc.core.errors import ConfigError
from airflow_provider_cdc.core.model.table_schema import TableChange, TableId
from airflow_provider_cdc.sources.oracle.config import OracleConfig
from airflow_provider_cdc.sources.oracle.connect import connect
from airflow_provider_cdc.sources.oracle.schema.catalog_reader import OracleCatalog
from airflow_provider_cdc.sources.oracle.schema.schema_signal import signal_table, table_of
from dev.servers.oracle import Oracle
from tests.sources.oracle.mined import settings
from tests.sources.oracle.snapshot.test_snapshot import COLUMNS, LOBS

CONFIG = OracleConfig.parse(
    {
        "topic.prefix": "p", "database.hostname": "h", "database.user": "c##cdc", "database.dbname": "ORCLCDB.example.org",
        "database.pdb.name": "ORCLPDB1",
    }
)  # fmt: skip
ACCOUNT = TableId(catalog="ORCLPDB1", namespace="APP", name="ACCOUNT")


@pytest.mark.parametrize(
    ("text", "schema", "name"),
    [
        ("ORCLPDB1.APP.SIGNALS", "APP", "SIGNALS"),
        ("ORCLCDB.APP.SIGNALS", "APP", "SIGNALS"),
        ("orclpdb1.c##cdc.debezium_signal", "C##CDC", "DEBEZIUM_SIGNAL"),
        ("APP.SIGNALS", "APP", "SIGNALS"),
        (' app."My.Signals" ', "app".upper(), "My.Signals"),
    ],
)
def test_the_signal_table_has_the_database_or_the_root_before_it_or_neither(text: str, schema: str, name: str) -> None:
    table = signal_table(text, CONFIG)
    assert (table.catalog, table.namespace, table.name) == ("ORCLPDB1", schema, name)


@pytest.mark.parametrize("text", ["SIGNALS", "", "A.B.C.D", "OTHERPDB.APP.SIGNALS", "APP.", ".SIGNALS", 'APP."SIGNALS'])
def test_a_name_that_is_no_table_of_this_database_is_an_error_with_an_example(text: str) -> None:
    with pytest.raises(ConfigError, match=r"signal\.data\.collection") as e:
        signal_table(text, CONFIG)
    assert "ORCLPDB1.C##CDC.DEBEZIUM_SIGNAL" in str(e.value.remedy)


DOCUMENTED = {
    "type": "ALTER",
    "id": '"ORCLPDB1"."APP"."ACCOUNT"',
    "table": {
        "defaultCharsetName": None,
        "primaryKeyColumnNames": ["ID"],
        "columns": [
            {"name": "ID", "jdbcType": 2, "typeName": "NUMBER", "typeExpression": "NUMBER", "charsetName": None, "length": 9,
             "scale": 0, "position": 1, "optional": False, "autoIncremented": False, "generated": False},
        ],
    },
}  # fmt: skip


def test_the_documented_structure_is_understood() -> None:
    change = table_of(DOCUMENTED, "ORCLPDB1", "APP", CONFIG)
    assert (change.type, change.id, change.id.catalog, change.exact) == ("ALTER", ACCOUNT, "ORCLPDB1", True)
    assert change.table is not None
    assert change.table.key == ("ID",)
    (column,) = change.table.columns
    assert (column.name, column.type, column.nullable) == ("ID", "int32", False)


@pytest.mark.parametrize("id_", ['"APP"."ACCOUNT"', "ACCOUNT", "ORCLCDB.APP.ACCOUNT"])
def test_what_an_id_does_not_name_is_that_of_the_signal(id_: str) -> None:
    assert table_of(DOCUMENTED | {"id": id_}, "ORCLPDB1", "APP", CONFIG).id == ACCOUNT


@pytest.mark.parametrize(
    ("changed", "what"),
    [
        ({"id": None}, "is not the name of a table"),
        ({"id": "A.B.C.D"}, "is not the name of a table"),
        ({"id": '"OTHER"."APP"."ACCOUNT"'}, "database OTHER"),
    ],
)
def test_an_id_that_names_no_table_of_this_database_is_an_error(changed: dict[str, object], what: str) -> None:
    with pytest.raises(ConfigError, match=what):
        table_of(DOCUMENTED | changed, "ORCLPDB1", "APP", CONFIG)


def test_columns_whose_names_differ_in_case_are_two() -> None:
    columns = [{"name": "ID", "typeName": "NUMBER"}, {"name": "id", "typeName": "NUMBER"}]
    found = table_of(DOCUMENTED | {"table": {"columns": columns}}, "ORCLPDB1", "APP", CONFIG).table
    assert found is not None
    assert found.column_names == ("ID", "id")
    with pytest.raises(ConfigError, match="two columns of the same name"):
        table_of(DOCUMENTED | {"table": {"columns": columns[:1] * 2}}, "ORCLPDB1", "APP", CONFIG)


def test_what_a_schema_change_event_reports_is_understood_as_it_was(schema: Oracle) -> None:
    """Every column has the same type in the change log as the dictionary gives it."""
    body = ", ".join(f"{name} {kind}" for name, kind in (COLUMNS | LOBS).items())
    schema.sql(f"CREATE TABLE T1 ({body})")
    config = settings(schema)
    table = TableId(catalog="ORCLPDB1", namespace="APP", name="T1")
    with connect(config, container=True) as connection:
        known = OracleCatalog(connection, config).read_table(table)
    assert known is not None
    document = _table_change(TableChange(type="ALTER", id=table, table=known))
    found = table_of(document, "ORCLPDB1", None, config).table
    assert found is not None
    assert (found.key, found.id) == (known.key, table)
    for mine, other in zip(found.columns, known.columns, strict=True):
        assert mine == other


def test_numbers_of_the_jdbc_driver_mean_what_they_are_for_it() -> None:
    columns = [
        {"name": "N", "typeName": "NUMBER", "length": 0, "scale": -127},
        {"name": "I", "typeName": "NUMBER", "length": 38, "scale": 0},
        {"name": "F", "typeName": "FLOAT", "length": 126, "scale": -127},
        {"name": "T", "typeName": "TIMESTAMP(9)", "length": 11, "scale": 9},
        {"name": "Z", "typeName": "TIMESTAMP(3) WITH LOCAL TIME ZONE", "length": 11, "scale": 3},
        {"name": "D", "typeName": "DATE", "length": 7, "scale": None},
        {"name": "V", "typeName": "VARCHAR2", "length": 20},
    ]
    found = table_of(DOCUMENTED | {"table": {"columns": columns}}, "ORCLPDB1", "APP", CONFIG).table
    assert found is not None
    assert [c.type for c in found.columns] == [
        "string", "decimal128(38, 0)", "string", "timestamp[ns]", "timestamp[us, tz=UTC]", "timestamp[us]", "string",
    ]  # fmt: skip
