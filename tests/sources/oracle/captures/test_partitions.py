"""Partitions: the log has their numbers; of one that is gone, LogMiner has no name."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from airflow_provider_cdc.core.errors import UnreadableValue
from dev.servers.oracle import Oracle
from tests.sources.oracle_adapter import oracle_connector
from tests.support.connectors import Connector
from tests.support.signals import snapshot_as_advised
from tests.support.sources.oracle.oracle_server import mine_rows

PARTS = "CREATE TABLE PARTS (ID NUMBER(9) PRIMARY KEY, V VARCHAR2(20)) PARTITION BY RANGE (ID) (PARTITION P1 VALUES LESS THAN (MAXVALUE))"
OTHER = "CREATE TABLE OTHER (ID NUMBER(9) PRIMARY KEY)"


@pytest.fixture
def server(schema: Oracle) -> Iterator[Oracle]:
    schema.sql(PARTS, OTHER, *(f"ALTER TABLE {t} ADD SUPPLEMENTAL LOG DATA (ALL) COLUMNS" for t in ("PARTS", "OTHER")))
    yield schema
    schema.configure(dropped_partitions=[])


@pytest.fixture
def connector_factory(server: Oracle, tmp_path: Path) -> Callable[..., Connector]:
    return lambda **properties: oracle_connector(server, tmp_path, **{"schema_include_list": "APP", **properties})


def ids(connector: Connector, table: str) -> list[int]:
    return sorted(row["ID"] for row in connector.rows(f"APP.{table}"))


def test_the_rows_of_the_log_are_those_of_a_real_server(server: Oracle) -> None:
    start = server.scn()
    server.sql("INSERT INTO PARTS VALUES (1, 'a')")
    with closing(server.capture()) as capture:
        ((segment, name, number),) = mine_rows(capture, start, columns="seg_name, table_name, data_obj#")
        ((object_,),) = server.sql("SELECT OBJECT_ID FROM ALL_OBJECTS WHERE OBJECT_TYPE = 'TABLE PARTITION'")
        assert (segment, name, number) == ("PARTS,P1", "PARTS", object_)
        server.configure(dropped_partitions=["PARTS"])
        where = "operation_code = 1"
        (row,) = mine_rows(capture, start, columns="seg_owner, seg_name, table_name, data_obj#, status", where=where)
    assert row == (None, f"OBJ# {number}", None, number, 2)


@pytest.mark.parametrize("strategy", ["redo_log_catalog", "online_catalog", "hybrid"])
def test_rows_of_a_partition_are_captured(
    server: Oracle, connector_factory: Callable[..., Connector], strategy: str
) -> None:
    connector = connector_factory(log_mining_strategy=strategy)
    connector.capture()
    server.sql("INSERT INTO PARTS VALUES (1, 'a')", "UPDATE PARTS SET V = 'b'")
    connector.capture()
    assert [row["V"] for row in connector.rows("APP.PARTS")] == ["b"]


@pytest.mark.parametrize("strategy", ["online_catalog", "hybrid"])
def test_rows_of_a_partition_that_is_gone_are_not_lost_without_a_word(
    server: Oracle, connector_factory: Callable[..., Connector], strategy: str
) -> None:
    connector = connector_factory(log_mining_strategy=strategy)
    connector.capture()
    server.sql("INSERT INTO PARTS VALUES (1, 'a')", "INSERT INTO OTHER VALUES (1)")
    server.configure(dropped_partitions=["PARTS"])
    with pytest.raises(
        UnreadableValue, match=r"may belong to .*PARTS: to a partition that has been dropped, merged or split"
    ) as caught:
        connector.capture()
    assert (ids(connector, "PARTS"), ids(connector, "OTHER")) == ([], [1])
    snapshot_as_advised(connector, str(caught.value))
    connector.capture()
    assert ids(connector, "PARTS") == [1]


def test_rows_of_an_unknown_object_with_other_columns_stop_nothing(
    server: Oracle, connector_factory: Callable[..., Connector]
) -> None:
    connector = connector_factory(log_mining_strategy="hybrid")
    connector.capture()
    of_none = {"SRC_CON_NAME": server.pdb, "USERNAME": "APP", "XID": bytes([9, 0, 2, 0, 77, 0, 0, 0])}
    text = """insert into "UNKNOWN"."OBJ# 9999"("COL 1") values (HEXTORAW('c102'));"""
    row = {"OPERATION_CODE": 1, "DATA_OBJ#": 9999, "SQL_REDO": text, "STATUS": 2, "ROW_ID": "AAAS1pAAMAAAACXAAA"}
    server.inject([{"OPERATION_CODE": 6, **of_none}, {**row, **of_none}, {"OPERATION_CODE": 7, **of_none}])
    server.sql("INSERT INTO PARTS VALUES (1, 'a')")
    connector.capture()
    assert ids(connector, "PARTS") == [1]
