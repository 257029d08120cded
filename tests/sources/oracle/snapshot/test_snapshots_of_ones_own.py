"""Policies, queries and locks of people's own, on the Oracle source."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import oracledb
import pytest

from airflow_provider_cdc.connector import open_source
from airflow_provider_cdc.core.errors import CdcError, PrerequisiteError
from airflow_provider_cdc.core.model.table_schema import TableId
from airflow_provider_cdc.sources.oracle.snapshot import snapshot
from dev.servers.oracle import Oracle
from tests.sources.oracle_adapter import oracle_connector
from tests.support.change_log.rendered import Record, capture_records
from tests.support.connectors import Connector
from tests.support.own_snapshots import own_snapshots

LOGGED = "ALTER TABLE {} ADD SUPPLEMENTAL LOG DATA (ALL) COLUMNS"
T, U = (TableId(namespace="APP", name=name, catalog="ORCLPDB1") for name in "TU")


@pytest.fixture
def snapshotter_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    return own_snapshots(tmp_path, monkeypatch)


@pytest.fixture
def db(schema: Oracle) -> Oracle:
    for name in "TU":
        schema.sql(f"CREATE TABLE {name} (ID NUMBER(9) PRIMARY KEY, V NUMBER(9))", LOGGED.format(name))
    schema.sql("INSERT INTO T VALUES (1, 1)", "INSERT INTO T VALUES (2, 2)", "INSERT INTO U VALUES (1, 1)")
    return schema


@pytest.fixture
def connector_factory(db: Oracle, snapshotter_module: Any, tmp_path: Path) -> Callable[..., Connector]:
    return lambda **properties: oracle_connector(db, tmp_path, **{"schema_include_list": "APP", **properties})


def _rows(found: list[Record]) -> list[tuple[str, str, int]]:
    """Table, operation and id of the rows' records, without truncates."""
    values = [(r["topic"].rpartition(".")[2], r["value"]) for r in found if r["topic"] != "test" and r["value"]]
    return sorted((t, v["op"], (v["after"] or v["before"])["ID"]) for t, v in values if v["op"] != "t")


def test_five_switches_say_what_a_run_does(db: Oracle, connector_factory: Callable[..., Connector]) -> None:
    connector, based = connector_factory(snapshot_mode="configuration_based"), "snapshot.mode.configuration.based"
    connector.properties |= {f"{based}.snapshot.data": "true", f"{based}.start.stream": "true"}
    assert _rows(capture_records(connector)) == [("T", "r", 1), ("T", "r", 2), ("U", "r", 1)]
    db.sql("INSERT INTO U VALUES (2, 2)")
    assert _rows(capture_records(connector)) == [("T", "r", 1), ("T", "r", 2), ("U", "r", 1), ("U", "r", 2)]
    connector.properties[f"{based}.snapshot.data"] = "false"
    db.sql("INSERT INTO U VALUES (3, 3)")
    assert _rows(capture_records(connector)) == [("U", "c", 3)]


def test_a_policy_of_ones_own_decides_in_each_run(
    db: Oracle, snapshotter_module: Any, connector_factory: Callable[..., Connector]
) -> None:
    connector = connector_factory(snapshot_mode="custom", snapshot_mode_custom_name="monthly")
    assert _rows(capture_records(connector)) == [("T", "r", 1), ("T", "r", 2), ("U", "r", 1)]
    db.sql("INSERT INTO U VALUES (2, 2)")
    assert _rows(capture_records(connector)) == [("U", "c", 2)]
    snapshotter_module.OncePerMonth.due = True
    assert _rows(capture_records(connector)) == [("T", "r", 1), ("T", "r", 2), ("U", "r", 1), ("U", "r", 2)]


def test_a_query_of_ones_own_says_what_is_read_and_the_log_is_whole(
    db: Oracle, snapshotter_module: Any, connector_factory: Callable[..., Connector], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is read as of the snapshot's SCN, whatever is committed meanwhile."""
    connector = connector_factory(snapshot_query_mode="custom", snapshot_query_mode_custom_name="some")
    snapshotter_module.SELECTS |= {"T": "SELECT V, ID FROM APP.T WHERE V > 1", "U": None}
    chunks = snapshot.OracleSnapshot.split_table
    with monkeypatch.context() as patch:
        patch.setattr(
            snapshot.OracleSnapshot, "split_table",
            lambda self, table: (db.sql("UPDATE T SET V = 5 WHERE ID = 1"), chunks(self, table))[1],
        )  # fmt: skip
        assert _rows(capture_records(connector)) == [("T", "r", 2), ("T", "u", 1)]
    assert sorted(snapshotter_module.CALLS) == [("APP.T", ["ID", "V"]), ("APP.U", ["ID", "V"])]
    db.sql("INSERT INTO T VALUES (3, 0)", "INSERT INTO U VALUES (2, 2)")
    assert _rows(capture_records(connector)) == [("T", "c", 3), ("U", "c", 2)]


def test_a_query_that_cannot_be_used_is_reported_with_its_table(
    snapshotter_module: Any, connector_factory: Callable[..., Connector]
) -> None:
    connector = connector_factory(snapshot_query_mode="custom", snapshot_query_mode_custom_name="some")
    for select in ("SELECT ID FROM APP.T", "SELECT ID, V FROM APP.U"):  # lacks a column; another table's
        snapshotter_module.SELECTS |= {"T": select, "U": None}
        with pytest.raises(PrerequisiteError, match=r"custom\.name for APP\.T cannot be used") as caught:
            connector.capture()
        assert select in (caught.value.where or "")


def test_a_lock_of_ones_own_is_held_until_the_structures_are_read(
    db: Oracle, snapshotter_module: Any, connector_factory: Callable[..., Connector], monkeypatch: pytest.MonkeyPatch
) -> None:
    connector = connector_factory(snapshot_locking_mode="custom", snapshot_locking_mode_custom_name="mild")
    snapshotter_module.LOCKS["T"] = "LOCK TABLE APP.T IN EXCLUSIVE MODE;"
    during, current = [], snapshot.current_scn

    def free(table: str) -> bool:
        with closing(db.connect()) as other, other.cursor() as cursor:
            try:
                cursor.execute(f"LOCK TABLE {table} IN ROW SHARE MODE NOWAIT")
            except oracledb.DatabaseError as e:
                if "ORA-00054" not in str(e):
                    raise
                return False
            other.rollback()
        return True

    def scn(*a: Any) -> int:
        during.append([free("APP.T"), free("APP.U")])
        return current(*a)

    with monkeypatch.context() as patch:
        patch.setattr(snapshot, "current_scn", scn)
        with (
            open_source(connector.definition(), connector.secrets) as source,
            source.open_snapshot([T, U], readers=1) as session,
        ):
            assert during
            assert all(found == [False, True] for found in during)
            assert free("APP.T")
            assert sum(len(block) for c in session.split_table(T) for block in session.read(c)) == 2
    assert [name for _, name in snapshotter_module.CALLS] == ["APP.T", "APP.U"]
    snapshotter_module.LOCKS["T"] = "LOCK TABLE APP.NOWHERE IN EXCLUSIVE MODE"
    with pytest.raises(CdcError, match=r"snapshot\.locking\.mode\.custom\.name") as caught:
        connector.capture()
    assert caught.value.where == snapshotter_module.LOCKS["T"]
