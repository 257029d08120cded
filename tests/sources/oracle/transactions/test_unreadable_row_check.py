"""Tables whose changes LogMiner does not show: each is stopped alone, and what its error names brings its rows back."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_cdc.core.errors import SchemaConflict, UnreadableValue
from airflow_provider_cdc.sources.oracle.checks import check_prerequisites
from dev.servers.oracle import Oracle
from tests.sources.oracle.mined import settings
from tests.sources.oracle_adapter import oracle_connector
from tests.support.connectors import Connector
from tests.support.signals import snapshot_as_advised

LOGGED = "ALTER TABLE {} ADD SUPPLEMENTAL LOG DATA (ALL) COLUMNS"
VECTOR = "[1.5E+000,2.5E+000]"
TYPES = {
    "BOOLEAN": ("TRUE", True), "JSON": ("""JSON('{"k":[1,null]}')""", '{"k":[1,null]}'), "VECTOR(2, FLOAT32)": (f"TO_VECTOR('{VECTOR}')", VECTOR),
    "BFILE": ("NULL", None), "SYS.ODCINUMBERLIST": ("NULL", None),
}  # fmt: skip
UNSUPPORTED = [name for name in TYPES if name[0] not in "BS" or name == "BOOLEAN"]
UNLOGGED = ["BFILE", "SYS.ODCINUMBERLIST"]


@pytest.fixture
def connector_factory(schema: Oracle, tmp_path: Path) -> Callable[..., Connector]:
    schema.sql("CREATE TABLE GOOD (ID NUMBER(9) PRIMARY KEY)", LOGGED.format("GOOD"))

    def make(type_: str, **properties: Any) -> Connector:
        schema.sql(f"CREATE TABLE ODD (ID NUMBER(9) PRIMARY KEY, V {type_})", LOGGED.format("ODD"))
        return oracle_connector(schema, tmp_path, **{"schema_include_list": "APP", **properties})

    return make


def ids(connector: Connector, table: str) -> list[int]:
    return sorted(row["ID"] for row in connector.rows(f"APP.{table}"))


@pytest.mark.parametrize("type_", UNSUPPORTED)
def test_values_that_the_log_does_not_have_are_read_from_the_table(
    schema: Oracle, connector_factory: Callable[..., Connector], type_: str
) -> None:
    connector = connector_factory(type_)
    literal, value = TYPES[type_]
    schema.sql(f"INSERT INTO ODD VALUES (1, {literal})", "INSERT INTO ODD VALUES (2, NULL)")
    connector.capture()
    assert {row["ID"]: row["V"] for row in connector.rows("APP.ODD")} == {1: value, 2: None}


def test_false_is_not_null(schema: Oracle, connector_factory: Callable[..., Connector]) -> None:
    connector = connector_factory("BOOLEAN")
    schema.sql("INSERT INTO ODD VALUES (1, FALSE)")
    connector.capture()
    assert [row["V"] for row in connector.rows("APP.ODD")] == [False]


@pytest.mark.parametrize("type_", UNSUPPORTED)
def test_a_table_that_logminer_cannot_show_is_stopped_alone_by_its_first_change(
    schema: Oracle, connector_factory: Callable[..., Connector], type_: str
) -> None:
    connector = connector_factory(type_)
    schema.sql(f"INSERT INTO ODD VALUES (1, {TYPES[type_][0]})")
    connector.capture()
    schema.sql("INSERT INTO GOOD VALUES (1)", "INSERT INTO ODD VALUES (2, NULL)", "INSERT INTO GOOD VALUES (2)")
    with pytest.raises(UnreadableValue, match=r"APP\.ODD") as caught:
        connector.capture()
    assert f"V ({type_.partition('(')[0]})" in str(caught.value)
    assert "transaction" in str(caught.value)
    assert ids(connector, "GOOD") == [1, 2]
    schema.sql("INSERT INTO GOOD VALUES (3)")
    with pytest.raises(UnreadableValue):  # the error stays until the table is read
        connector.capture()
    assert ids(connector, "GOOD") == [1, 2, 3]


@pytest.mark.parametrize("type_", ["JSON", "BFILE"])
def test_what_the_error_names_brings_the_rows_back(
    schema: Oracle, connector_factory: Callable[..., Connector], type_: str
) -> None:
    connector = connector_factory(type_)
    schema.sql("INSERT INTO ODD VALUES (1, NULL)")
    with nullcontext() if type_ == "JSON" else pytest.raises(UnreadableValue):
        connector.capture()
    schema.sql("INSERT INTO ODD VALUES (2, NULL)")
    with pytest.raises(UnreadableValue, match=r"drop .*V \((JSON|BFILE)\)") as caught:
        connector.capture()
    snapshot_as_advised(connector, str(caught.value))
    with nullcontext() if type_ == "JSON" else pytest.raises(UnreadableValue):
        connector.capture()
    assert ids(connector, "ODD") == [1, 2]
    schema.sql("ALTER TABLE ODD DROP COLUMN V", "INSERT INTO ODD VALUES (3)")
    snapshot_as_advised(connector, str(caught.value))
    connector.capture()
    schema.sql("INSERT INTO ODD VALUES (4)")
    connector.capture()
    assert ids(connector, "ODD") == [1, 2, 3, 4]


def test_a_table_is_left_out_and_the_run_succeeds(schema: Oracle, connector_factory: Callable[..., Connector]) -> None:
    connector = connector_factory("JSON")
    connector.capture()
    schema.sql("INSERT INTO GOOD VALUES (1)", "INSERT INTO ODD VALUES (1, NULL)")
    with pytest.raises(UnreadableValue):
        connector.capture()
    connector.properties["table.exclude.list"] = r"APP\.ODD"
    del connector.properties["schema.include.list"]
    connector.capture()
    assert ids(connector, "GOOD") == [1]


@pytest.mark.parametrize("type_", UNLOGGED)
def test_a_table_that_logminer_ignores_is_stopped_before_a_change_is_lost(
    schema: Oracle, connector_factory: Callable[..., Connector], type_: str
) -> None:
    connector = connector_factory(type_)
    schema.sql("INSERT INTO ODD VALUES (1, NULL)", "INSERT INTO GOOD VALUES (1)")
    with pytest.raises(UnreadableValue, match=r"LogMiner returns no changes of .*ODD") as caught:
        connector.capture()
    assert f"V ({type_.rpartition('.')[2]})" in str(caught.value)
    assert (ids(connector, "ODD"), ids(connector, "GOOD")) == ([1], [1])
    schema.sql("INSERT INTO GOOD VALUES (2)")
    with pytest.raises(UnreadableValue):
        connector.capture()
    assert ids(connector, "GOOD") == [1, 2]


def test_a_change_that_was_rolled_back_stops_nothing(
    schema: Oracle, connector_factory: Callable[..., Connector]
) -> None:
    connector = connector_factory("JSON")
    connector.capture()
    with schema.connect() as connection, connection.cursor() as cursor:
        cursor.execute("INSERT INTO ODD VALUES (1, NULL)")
        connection.rollback()
    connector.capture()


@pytest.mark.parametrize("type_", TYPES)
def test_the_check_names_such_a_table_with_what_to_do(
    schema: Oracle, connector_factory: Callable[..., Connector], type_: str
) -> None:
    connector_factory(type_)
    (finding,) = (
        f for f in check_prerequisites(settings(schema, schema__include__list="APP")) if "APP.ODD" in f.problem
    )
    assert not finding.fatal
    assert "table.exclude.list=APP.ODD" in finding.fix


@pytest.mark.parametrize("code", [1, 2, 3])
def test_a_change_without_a_text_stops_its_table(
    schema: Oracle, connector_factory: Callable[..., Connector], code: int
) -> None:
    connector = connector_factory("NUMBER(9)")
    connector.capture()
    inject(schema, "ODD", code, None)
    schema.sql("INSERT INTO GOOD VALUES (1)")
    with pytest.raises(UnreadableValue, match=r"no text \(SQL_REDO\) for a change of .*ODD") as caught:
        connector.capture()
    assert "SCN " in str(caught.value)
    assert "transaction 9.2.77" in str(caught.value)
    assert ids(connector, "GOOD") == [1]


def test_a_change_without_a_text_is_set_aside_and_its_table_is_read_again(
    schema: Oracle, connector_factory: Callable[..., Connector]
) -> None:
    connector = connector_factory("NUMBER(9)", event_processing_failure_handling_mode="warn")
    connector.capture()
    schema.sql("INSERT INTO ODD VALUES (1, 5)")
    inject(schema, "ODD", 1, None)
    schema.sql("INSERT INTO GOOD VALUES (1)", "INSERT INTO ODD VALUES (2, 6)")
    connector.capture()
    assert (ids(connector, "ODD"), ids(connector, "GOOD")) == ([1, 2], [1])
    offset = connector.store.load_offset(connector.name).offset
    assert offset is not None
    ((event,),) = offset.set_aside.values()
    assert (list(offset.set_aside), event.error) == (["APP.ODD"], "UnreadableValue")
    schema.sql("DELETE FROM ODD WHERE ID = 1", "INSERT INTO ODD VALUES (3, 7)")
    connector.capture()
    assert ids(connector, "ODD") == [2, 3]


def test_a_table_that_logminer_ignores_is_stopped_at_once_whatever_the_properties_say(
    schema: Oracle, connector_factory: Callable[..., Connector]
) -> None:
    """No snapshot would help: the stream that follows it has no change of the table either."""
    connector = connector_factory("BFILE", event_processing_failure_handling_mode="warn")
    schema.sql("INSERT INTO GOOD VALUES (1)")
    with pytest.raises(UnreadableValue, match=r"LogMiner returns no changes of .*ODD"):
        connector.capture()
    offset = connector.store.load_offset(connector.name).offset
    assert offset is not None
    assert (list(offset.stopped), offset.set_aside) == (["APP.ODD"], {})


def test_a_row_that_says_that_it_is_no_change_is_none(
    schema: Oracle, connector_factory: Callable[..., Connector]
) -> None:
    connector = connector_factory("NUMBER(9)")
    connector.capture()
    inject(schema, "ODD", 1, "/* No SQL_REDO for temporary tables */")
    schema.sql("INSERT INTO ODD VALUES (1, 2)")
    connector.capture()
    assert ids(connector, "ODD") == [1]


def test_columns_that_oracle_keeps_for_itself_are_passed_over_in_the_log(
    schema: Oracle, connector_factory: Callable[..., Connector]
) -> None:
    connector = connector_factory("NUMBER(9)")
    connector.capture()
    schema.sql("ALTER TABLE ODD ADD (W NUMBER(9))", "ALTER TABLE ODD SET UNUSED (W)")
    ((hidden,),) = schema.sql("SELECT COLUMN_NAME FROM ALL_TAB_COLS WHERE TABLE_NAME = 'ODD' AND HIDDEN_COLUMN = 'YES'")
    inject(schema, "ODD", 1, f"""insert into "APP"."ODD"("ID","V","{hidden}") values ('1','2','3');""")
    connector.capture()
    assert [(row["ID"], row["V"]) for row in connector.rows("APP.ODD")] == [(1, 2)]


def test_a_column_that_the_catalog_does_not_call_hidden_is_a_conflict(
    schema: Oracle, connector_factory: Callable[..., Connector]
) -> None:
    connector = connector_factory("NUMBER(9)")
    connector.capture()
    inject(schema, "ODD", 1, """insert into "APP"."ODD"("ID","V","SYS_NC00003$") values ('1','2','3');""")
    with pytest.raises(SchemaConflict, match=r"SYS_NC00003\$"):
        connector.capture()


def inject(server: Oracle, table: str, code: int, text: str | None) -> None:
    """A row of a transaction that commits."""
    xid = {"XID": (9).to_bytes(2, "little") + (2).to_bytes(2, "little") + (77).to_bytes(4, "little")}
    of_table = {
        "SEG_OWNER": "APP",
        "TABLE_NAME": table,
        "SEG_NAME": table,
        "SRC_CON_NAME": server.pdb,
        "USERNAME": "APP",
    }
    server.inject(
        [
            {"OPERATION_CODE": 6, **xid, "USERNAME": "APP"},
            {"OPERATION_CODE": code, **xid, **of_table, "SQL_REDO": text, "ROW_ID": "AAAS1pAAMAAAACXAAA"},
            {"OPERATION_CODE": 7, **xid, "USERNAME": "APP"},
        ]
    )
