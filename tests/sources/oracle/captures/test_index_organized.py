"""Index-organized tables: LogMiner names their index as the segment, and their rows have no ROWID."""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from airflow_provider_cdc.core.errors import SchemaConflict
from dev.servers.oracle import Oracle
from tests.sources.oracle_adapter import oracle_connector
from tests.support.connectors import Connector
from tests.support.sources.oracle.oracle_server import mine_rows, run

CREATE = "CREATE TABLE {} (ID NUMBER(9) PRIMARY KEY, V VARCHAR2(20)) ORGANIZATION INDEX"
LOGGED = "ALTER TABLE {} ADD SUPPLEMENTAL LOG DATA (ALL) COLUMNS"


@pytest.fixture
def connector_factory(schema: Oracle, tmp_path: Path) -> Callable[..., Connector]:
    schema.sql(CREATE.format("ORGANIZED"), LOGGED.format("ORGANIZED"))
    return lambda **properties: oracle_connector(schema, tmp_path, **{"schema_include_list": "APP", **properties})


def equal(server: Oracle, connector: Connector) -> None:
    connector.capture()
    found = sorted((row["ID"], row["V"]) for row in connector.rows("APP.ORGANIZED"))
    assert found == sorted((int(id_), v) for id_, v in server.table_at("ORGANIZED"))


def test_the_rows_of_the_log_are_those_of_a_real_server(
    schema: Oracle, connector_factory: Callable[..., Connector]
) -> None:
    start = schema.scn()
    schema.sql("INSERT INTO ORGANIZED VALUES (1, 'a')")
    with closing(schema.capture()) as capture:
        ((segment, name, row_id),) = mine_rows(capture, start, columns="seg_name, table_name, row_id")
    assert segment.startswith("ORGANIZED,SYS_IOT_TOP_")
    assert (name, set(row_id)) == ("ORGANIZED", {"A"})


@pytest.mark.parametrize("strategy", ["redo_log_catalog", "online_catalog", "hybrid"])
def test_rows_come_from_the_snapshot_and_from_the_log(
    schema: Oracle, connector_factory: Callable[..., Connector], strategy: str
) -> None:
    connector = connector_factory(log_mining_strategy=strategy)
    schema.sql("INSERT INTO ORGANIZED VALUES (1, 'a')", "INSERT INTO ORGANIZED VALUES (2, 'b')")
    equal(schema, connector)
    schema.sql(
        "INSERT INTO ORGANIZED VALUES (3, 'c')",
        "UPDATE ORGANIZED SET V = 'x' WHERE ID = 1",
        "DELETE FROM ORGANIZED WHERE ID = 2",
    )
    schema.sql("UPDATE ORGANIZED SET ID = 30 WHERE ID = 3")
    equal(schema, connector)


def test_a_table_that_is_created_later_is_captured(schema: Oracle, connector_factory: Callable[..., Connector]) -> None:
    connector = connector_factory()
    connector.capture()
    schema.sql(CREATE.format("LATER"), LOGGED.format("LATER"), "INSERT INTO LATER VALUES (1, 'a')")
    connector.capture()
    assert [row["ID"] for row in connector.rows("APP.LATER")] == [1]


@pytest.mark.parametrize("seed", range(4))
def test_what_is_undone_is_found_without_rowids(
    schema: Oracle, connector_factory: Callable[..., Connector], seed: int
) -> None:
    r = random.Random(seed)
    connector = connector_factory()
    equal(schema, connector)
    for _ in range(10):
        with closing(schema.connect()) as connection:
            saved = False
            for _ in range(r.randint(1, 10)):
                id_, v = r.randint(1, 6), r.randint(1, 99)
                statement = r.choice([
                    f"MERGE INTO ORGANIZED t USING (SELECT {id_} id, 'v{v}' v FROM dual) s ON (t.ID = s.id)"
                    " WHEN MATCHED THEN UPDATE SET t.V = s.v WHEN NOT MATCHED THEN INSERT (ID, V) VALUES (s.id, s.v)",
                    f"UPDATE ORGANIZED SET V = 'u{v}' WHERE ID > {id_}", f"DELETE FROM ORGANIZED WHERE ID = {id_}",
                    "ROLLBACK TO s" if saved else "SAVEPOINT s",
                ])  # fmt: skip
                saved |= statement == "SAVEPOINT s"
                run(connection, statement)
            run(connection, "COMMIT")
        equal(schema, connector)


def test_rows_from_before_a_change_of_the_table_are_not_read_with_a_guess(
    schema: Oracle, connector_factory: Callable[..., Connector]
) -> None:
    """The order of the columns in the index is another one."""
    connector = connector_factory(log_mining_strategy="hybrid")
    connector.capture()
    schema.sql("INSERT INTO ORGANIZED VALUES (1, 'a')", "ALTER TABLE ORGANIZED ADD (W NUMBER(9))")
    with pytest.raises(SchemaConflict, match="ORGANIZED"):
        connector.capture()
