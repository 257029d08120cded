"""Rows without the names of their columns (``binlog_row_metadata=MINIMAL``): as with names, or their table is stopped; never mixed up."""

from __future__ import annotations

import re
from pathlib import Path
from random import Random
from typing import Any

import pyarrow.parquet as pq
import pytest

from airflow_provider_cdc.core.errors import UnreadableValue
from airflow_provider_cdc.sources.mysql.log.rows import structure_proof
from tests.support.connectors import Connector, mysql_connector
from tests.support.signals import snapshot, snapshot_as_advised
from tests.support.sources.mysql.row_metadata import list_events, row_metadata
from tests.support.sources.mysql.workload import source_rows

STORY = (
    "CREATE TABLE a (id INT PRIMARY KEY, x INT, y INT, e ENUM('p','q'), s SET('u','v','w'), t VARCHAR(20) CHARACTER SET latin1)",
    "INSERT INTO a VALUES (1, 10, 20, 'p', 'u,w', 'ä')",
    "ALTER TABLE a MODIFY y INT AFTER id",
    "INSERT INTO a VALUES (2, 10, 20, 'q', '', 'b')",
    "UPDATE a SET x = 7 WHERE id = 1",
    "ALTER TABLE a RENAME COLUMN x TO z",
    "INSERT INTO a VALUES (3, 1, 2, 'q', 'v', NULL)",
    "ALTER TABLE a MODIFY e ENUM('p','q','r'), ADD n BIGINT UNSIGNED NOT NULL DEFAULT 5 AFTER id",
    "INSERT INTO a VALUES (4, 18, 1, 2, 'r', 'v', NULL)",
    "DELETE FROM a WHERE id = 2",
    "DROP TABLE a",
    "CREATE TABLE a (id INT PRIMARY KEY, y INT, x INT)",
    "INSERT INTO a VALUES (1, 1, 2)",
    "CREATE TABLE b LIKE a",
    "INSERT INTO b VALUES (1, 1, 2)",
    "RENAME TABLE a TO c, b TO a, c TO b",
    "INSERT INTO a VALUES (9, 1, 2)",
    "ALTER TABLE b ADD UNIQUE KEY (x)",
    "INSERT INTO b VALUES (9, 1, 9)",
)


@pytest.mark.parametrize("kind", ["mariadb", "mysql97", "mysql80"])
def test_events_are_those_of_rows_with_names(request: pytest.FixtureRequest, tmp_path: Path, kind: str) -> None:
    server = request.getfixturevalue(kind)
    seen: dict[str, Any] = {}
    for level in ("FULL", "MINIMAL"):
        with server.database() as db, row_metadata(server, level):
            source = "mariadb" if kind == "mariadb" else "mysql"
            connector = mysql_connector(server, tmp_path / level, source, database_include_list=db.name)
            db.sql("CREATE TABLE first (id INT PRIMARY KEY)")
            connector.capture()
            db.sql(*STORY)
            connector.capture()
            for table in ("a", "b"):
                assert connector.rows(f"{db.name}.{table}") == source_rows(server, db.name, table)
            seen[level] = list_events(connector)
    assert seen["MINIMAL"] == seen["FULL"]
    assert sum(map(len, seen["FULL"].values())) > 10


def _fails(connector: Connector, *words: str) -> str:
    """Capture, and return the error, which names a stopped table and contains these words."""
    with pytest.raises(UnreadableValue) as caught:
        connector.capture()
    for word in words:
        assert word in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize("kind", ["mariadb", "mysql97", "mysql80"])
def test_a_table_that_was_altered_without_a_log_is_stopped_alone_and_read_again_as_advised(
    request: pytest.FixtureRequest, tmp_path: Path, kind: str
) -> None:
    """Two columns of one type have changed places: nothing in the log shows it."""
    server = request.getfixturevalue(kind)
    with server.database() as db, row_metadata(server, "MINIMAL"):
        source = "mariadb" if kind == "mariadb" else "mysql"
        connector = mysql_connector(server, tmp_path, source, database_include_list=db.name)
        db.sql("CREATE TABLE a (id INT PRIMARY KEY, x INT, y INT)", "CREATE TABLE b (id INT PRIMARY KEY)")
        connector.capture()
        silent = ("SET sql_log_bin = 0", "ALTER TABLE a MODIFY y INT AFTER id", "SET sql_log_bin = 1")
        db.sql("INSERT INTO a VALUES (1, 2, 3)")
        connector.capture()
        # the table waits for a logged statement, too, which does not explain the difference
        db.sql(*silent, "INSERT INTO a VALUES (2, 3, 2)", "INSERT INTO b VALUES (1)", "ALTER TABLE a ADD n INT")
        error = _fails(connector, f"{db.name}.a", "(binlog_row_metadata", "sql_log_bin=0", "are id, y, x, n")
        assert connector.rows(f"{db.name}.b") == source_rows(server, db.name, "b")
        assert [row["id"] for row in connector.rows(f"{db.name}.a")] == [1]
        snapshot_as_advised(connector, error)
        connector.capture()
        db.sql("INSERT INTO a VALUES (3, 3, 2, 1)")
        connector.capture()
        assert connector.rows(f"{db.name}.a") == source_rows(server, db.name, "a")


class _NamedValues:
    """Two tables whose texts all begin with the name of their column, and whose columns change places, names and number.

    All columns have one type, so a wrong structure shows in the values alone.

    :ivar columns: table → its columns, ``id`` apart, in their order
    :ivar dirty: a change is not in the log, and no run has come since
    """

    def __init__(self, server: Any, db: Any, random: Random) -> None:
        self.server, self.db, self.random, self.dirty, self._next = server, db, random, False, 0
        self.columns: dict[str, list[str]] = {}
        for table in ("t", "u"):
            self.create(table)

    def number(self) -> int:
        self._next += 1
        return self._next

    def create(self, table: str) -> None:
        self.columns[table] = self.random.sample(["a", "b", "c", "d"], 4)
        columns = ", ".join(f"{c} VARCHAR(30)" for c in self.columns[table])
        self.db.sql(f"CREATE TABLE {table} (id INT PRIMARY KEY, {columns})")

    def insert(self, table: str) -> None:
        columns = self.columns[table]
        values = ", ".join(f"'{c}:{self.number()}'" for c in columns)
        self.db.sql(f"INSERT INTO {table} (id, {', '.join(columns)}) VALUES ({self.number()}, {values})")

    def update(self, table: str) -> None:
        values = ", ".join(f"{c} = '{c}:{self.number()}'" for c in self.columns[table])
        self.db.sql(f"UPDATE {table} SET {values}")

    def alter(self, table: str, *, silent: bool = False) -> None:
        """Change the places, names or number of columns, with or without the log."""
        columns, kind = self.columns[table], self.random.choice(("move", "rename", "exchange", "add", "drop"))
        one, other = self.random.sample(columns, 2)
        if kind == "move":
            text = f"MODIFY {one} VARCHAR(30) AFTER {other}"
            columns.remove(one)
            columns.insert(columns.index(other) + 1, one)
        elif kind == "rename":
            new = f"n{self.number()}"
            text = f"CHANGE {one} {new} VARCHAR(30)"
            columns[columns.index(one)] = new
        elif kind == "exchange":
            text = f"CHANGE {one} {other} VARCHAR(30), CHANGE {other} {one} VARCHAR(30)"
            i, j = columns.index(one), columns.index(other)
            columns[i], columns[j] = other, one
        elif kind == "add" or len(columns) < 4:
            new = f"n{self.number()}"
            text = f"ADD {new} VARCHAR(30) AFTER {one}"
            columns.insert(columns.index(one) + 1, new)
        else:
            text = f"DROP {one}"
            columns.remove(one)
        log = ("SET sql_log_bin = 0", "SET sql_log_bin = 1") if silent else ("DO 0", "DO 0")
        self.db.sql(log[0], f"ALTER TABLE {table} {text}", log[1])
        self.dirty |= silent

    def create_again(self, table: str) -> None:
        self.db.sql(f"DROP TABLE {table}")
        self.create(table)

    def exchange_tables(self) -> None:
        self.db.sql("RENAME TABLE t TO other, u TO t, other TO u")
        self.columns["t"], self.columns["u"] = self.columns["u"], self.columns["t"]

    def add_key(self, table: str) -> None:
        column = self.random.choice(self.columns[table])
        self.db.sql(f"ALTER TABLE {table} ADD INDEX ({column}), ADD KEY k{self.number()} (id, {column})")

    def step(self) -> None:
        table, what = self.random.choice(("t", "u")), self.random.random()
        if what < 0.5:
            self.insert(table)
        elif what < 0.6:
            self.update(table)
        elif what < 0.65:
            self.server.sql(f"SET GLOBAL binlog_row_metadata = '{self.random.choice(('FULL', 'MINIMAL', 'MINIMAL'))}'")
        elif self.dirty:
            # a statement that undoes a change without a log would hide it
            self.add_key(table)
        elif what < 0.8:
            self.alter(table)
        elif what < 0.9:
            self.alter(table, silent=True)
        elif what < 0.95:
            self.create_again(table)
        else:
            self.exchange_tables()


def _check_names(connector: Connector, after: int) -> int:
    """Check that each text of a written row is in the column whose name it begins with; gives the last batch."""
    for manifest in connector.changelog.read_manifests("test", after=after):
        after = manifest.batch
        for file in manifest.files:
            for row in pq.read_table(connector.changelog.storage.join_path("test", file.path)).to_pylist():
                for name, value in ((row["after"] or {}) if row["op"] in "cu" else {}).items():
                    assert name == "id" or value is None or value.startswith(f"{name}:"), (manifest.batch, row)
    return after


def _capture_with_repairs(connector: Connector) -> int:
    """Capture until no table is stopped, each being read again as its error advises; gives the number of stops."""
    for stops in range(5):
        try:
            connector.capture()
            return stops
        except UnreadableValue as e:
            for table in dict.fromkeys(re.findall(r"Rows of (\S+) were written", str(e))):
                snapshot(connector, re.escape(table), type="blocking", replace=True)
    raise AssertionError("a table is stopped again and again")


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("kind", ["mariadb", "mysql97", "mysql80"])
def test_no_value_comes_under_the_name_of_another_column(
    request: pytest.FixtureRequest, tmp_path: Path, kind: str, seed: int, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    """Columns and tables change places and names, in the log and beside it: each value is right, or the table is stopped."""
    monkeypatch.setattr(structure_proof, "_PAUSES_S", (0.05,))
    server, random, stops, batch = request.getfixturevalue(kind), Random(seed), 0, 0
    with server.database() as db, row_metadata(server, "MINIMAL"):
        source = "mariadb" if kind == "mariadb" else "mysql"
        connector = mysql_connector(server, tmp_path, source, database_include_list=db.name)
        story = _NamedValues(server, db, random)
        connector.capture()
        for last in [False] * 15 + [True]:
            for _ in range(random.randint(1, 8)):
                story.step()
            for table in ("t", "u") if last else ():
                story.insert(table)
            stops += _capture_with_repairs(connector)
            story.dirty = False
            batch = _check_names(connector, batch)
        for table in ("t", "u"):
            assert connector.rows(f"{db.name}.{table}") == source_rows(server, db.name, table)
    with capsys.disabled():
        print(f" [{batch} batches, {stops} stops]", end="")
