"""Rows that no one can decode any more, of tables that are read again: they are counted, and everything else is captured."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from airflow_provider_cdc.core.errors import SchemaConflict
from airflow_provider_cdc.sources.oracle.schema import ddl
from dev.servers.oracle import Oracle
from tests.sources.oracle_adapter import oracle_connector
from tests.support.connectors import Connector

REWRITE = "ALTER TABLE t ADD (made NUMBER(9) DEFAULT TO_NUMBER(TO_CHAR(SYSDATE, 'YYYY')))"
ROWS = (
    "INSERT INTO u VALUES (1, 'one')", "INSERT INTO t (id, note) VALUES (7, 'seven')", "UPDATE t SET note = 'x' WHERE id = 7",
    "UPDATE u SET note = 'two'", "DELETE FROM t WHERE id = 1", "COMMIT",
)  # fmt: skip
LATER = {
    "add": "ALTER TABLE t ADD (more NUMBER(1))", "drop": "ALTER TABLE t DROP COLUMN note",
    "rename": "ALTER TABLE t RENAME COLUMN note TO remark", "modify": "ALTER TABLE t MODIFY (note VARCHAR2(200))",
}  # fmt: skip
LOGGED = "ALTER TABLE {} ADD SUPPLEMENTAL LOG DATA (ALL) COLUMNS"


@pytest.fixture
def tables(schema: Oracle) -> Oracle:
    for name in ("t", "u"):
        schema.sql(f"CREATE TABLE {name} (id NUMBER(9) PRIMARY KEY, note VARCHAR2(40))", LOGGED.format(name))
    schema.sql("INSERT INTO t VALUES (1, 'a')", "INSERT INTO t VALUES (2, 'b')")
    return schema


def _connector(server: Oracle, folder: Path, strategy: str) -> Connector:
    connector = oracle_connector(server, folder, schema_include_list="APP", log_mining_strategy=strategy)
    connector.capture()
    return connector


def _count_told_events(connector: Connector) -> tuple[list[tuple[str, int]], dict[str, dict[str, int]]]:
    """Events that were left out, and those that were captured, by table; without rows that were read."""
    left, counts = [], {}
    for manifest in connector.changelog.read_manifests("test"):
        for record in manifest.left_out:
            left.append((record.table, record.events))
            assert record.start != record.end
        for file in manifest.files:
            mine = counts.setdefault(file.topic.rpartition(".")[2], dict[str, int]())
            for op, n in file.counts.items():
                mine[op] = mine.get(op, 0) + (n if op in "cud" else 0)
    return left, {table: {op: n for op, n in mine.items() if n} for table, mine in counts.items()}


def _rows(server: Oracle, table: str) -> list[dict[str, Any]]:
    with server.connect() as connection, connection.cursor() as cursor:
        cursor.execute(f"SELECT * FROM {table} ORDER BY id")
        names = [column[0] for column in cursor.description]
        return [dict(zip(names, row, strict=True)) for row in cursor]


@pytest.mark.parametrize(
    ("strategy", "later"), [("hybrid", "ALTER TABLE t SET UNUSED (note)"), *(("online_catalog", s) for s in LATER.values())]
)  # fmt: skip
def test_what_the_dictionary_of_now_cannot_name_is_left_out_before_the_table_is_read_again(
    tables: Oracle, tmp_path: Path, strategy: str, later: str
) -> None:
    """If the table is not read again, it is an error."""
    connector = _connector(tables, tmp_path, strategy)
    tables.sql(REWRITE)
    tables.sql(*ROWS)
    tables.sql(later)
    connector.capture()
    left, events = _count_told_events(connector)
    assert (left, events) == ([("APP.T", 3)], {"T": {}, "U": {"c": 1, "u": 1}})
    assert connector.rows("APP.T") == _rows(tables, "t")
    tables.sql("INSERT INTO t (id) VALUES (8)", "COMMIT")
    tables.sql("ALTER TABLE t ADD (last NUMBER(1))")
    with pytest.raises(SchemaConflict):
        connector.capture()


def test_what_the_log_cannot_name_is_left_out_before_the_table_is_read_again(
    tables: Oracle, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A column that came with a statement which is not understood, and is gone again."""
    connector = _connector(tables, tmp_path, "redo_log_catalog")
    tables.sql("ALTER TABLE t ADD (v NUMBER(9))", "INSERT INTO t VALUES (3, 'c', 3)", "UPDATE t SET v = 4 WHERE id < 3")
    tables.sql("INSERT INTO u VALUES (1, 'one')", "ALTER TABLE t DROP COLUMN v", "INSERT INTO t VALUES (4, 'd')")
    understood = ddl.parse_ddl_statement

    def read(text: str) -> Any:
        return understood(text.replace("ADD (v NUMBER(9))", "ADD PERIOD VERY NEW (v)"))

    monkeypatch.setattr(ddl, "parse_ddl_statement", read)
    connector.capture()
    left, events = _count_told_events(connector)
    assert (left, events) == ([("APP.T", 3)], {"T": {"c": 1}, "U": {"c": 1}})
    assert connector.rows("APP.T") == _rows(tables, "t")


def test_rows_of_a_table_that_is_dropped_later_are_captured_behind_a_statement_that_is_not_understood(
    tables: Oracle, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The catalog does not have the table any more; the schema in force still fits its rows."""
    connector = _connector(tables, tmp_path, "redo_log_catalog")
    tables.sql("ALTER TABLE t NOCACHE", "INSERT INTO t VALUES (3, 'c')", "UPDATE t SET note = 'd' WHERE id = 1")
    tables.sql("INSERT INTO u VALUES (1, 'one')", "DROP TABLE t PURGE")
    understood = ddl.parse_ddl_statement

    def read(text: str) -> Any:
        return understood(text.replace("NOCACHE", "FROBNICATE"))

    monkeypatch.setattr(ddl, "parse_ddl_statement", read)
    connector.capture()
    assert _count_told_events(connector) == ([], {"T": {"c": 1, "u": 1}, "U": {"c": 1}})
    assert not connector.capture().events


def test_rows_of_an_unknown_and_dropped_table_are_left_out(tables: Oracle, tmp_path: Path) -> None:
    connector = _connector(tables, tmp_path, "redo_log_catalog")
    tables.sql("CREATE TABLE w AS SELECT * FROM t", "INSERT INTO w VALUES (3, 'c')", "INSERT INTO u VALUES (1, 'one')")
    tables.sql("DROP TABLE w PURGE")
    connector.capture()
    left, events = _count_told_events(connector)
    assert left == [("APP.W", 3)]
    assert events["U"] == {"c": 1}
