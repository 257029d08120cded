"""Rows without the names of their columns (``binlog_row_metadata=MINIMAL``): as with names, or their table is stopped; never mixed up."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pyarrow.parquet as pq
import pytest

from airflow_provider_cdc.core.errors import SchemaConflict, UnreadableValue
from airflow_provider_cdc.core.model.log_items import SchemaChange
from airflow_provider_cdc.core.model.table_schema import TableChange, TableId, TableSchema
from airflow_provider_cdc.sources.mysql.log.rows import structure_proof
from airflow_provider_cdc.sources.mysql.log.rows.structure_proof import StructureProof
from airflow_provider_cdc.sources.mysql.log.rows.table_map_cache import TableMapCache
from airflow_provider_cdc.sources.mysql.position import MySqlPosition
from airflow_provider_cdc.sources.mysql.schema.catalog_reader import captured_column
from airflow_provider_cdc.sources.mysql.schema.column_types import MySqlColumnType
from airflow_provider_cdc.sources.mysql.schema.live_catalog import LiveCatalog
from airflow_provider_cdc.sources.mysql.schema.table_name_resolver import TableNameResolver
from tests.support.connectors import Connector, mysql_connector
from tests.support.signals import snapshot, snapshot_as_advised
from tests.support.sources.mysql import binlog as made
from tests.support.sources.mysql.mysql_chunks import FixedTables
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


_TABLE = TableId(namespace="d", name="t")


def _schema(*names: str, provisional: bool = False) -> TableSchema:
    columns = tuple(
        captured_column(_TABLE, name, MySqlColumnType("int"), made.CONFIG, nullable=name != "id") for name in names
    )
    return TableSchema(id=_TABLE, columns=columns, key=("id",), provisional=provisional)


def _place(pos: int, *, moved: bool = False) -> MySqlPosition:
    return MySqlPosition("log.000001", pos, server="s", moved=moved)


class _ServerWithStatements:
    """Stand-in for a server: its catalog, which is ahead of the log that is read, and the statements in the rest of the log.

    :ivar reads: pairs of positions between which statements were read
    """

    def __init__(self, present: TableSchema | None, *statements: tuple[int, TableSchema | None]) -> None:
        self.present, self.statements, self.end = present, list(statements), 1000
        self.asked, self.position = 0, _place(100)
        self.reads: list[tuple[int, int]] = []

    def read_table(self, table: TableId, *, any_case: bool = False) -> TableSchema | None:
        self.asked += 1
        return self.present

    def _between(self, start: MySqlPosition, end: MySqlPosition, tables: Any) -> Iterator[SchemaChange]:
        self.reads.append((start.pos, end.pos))
        for pos, schema in self.statements:
            if start.pos < pos <= end.pos:
                change = TableChange(type="ALTER" if schema else "DROP", id=_TABLE, table=schema, exact=False)
                yield SchemaChange("", "d", [change], _place(pos), 0)

    def proof(self, known: TableSchema) -> StructureProof:
        catalog = LiveCatalog(lambda question: question(self))  # type: ignore[arg-type]
        tables = FixedTables({_TABLE: known})
        return StructureProof(tables, catalog, lambda: self.position, lambda: _place(self.end), self._between)


def _doubt(known: TableSchema, server: _ServerWithStatements) -> str:
    return server.proof(known).find_doubt(known, (1, 150)) or ""


@pytest.fixture
def _without_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(structure_proof, "_PAUSES_S", (0,))


@pytest.mark.usefixtures("_without_pauses")
def test_the_catalog_or_statements_that_lead_to_it_prove_a_structure() -> None:
    known, other, third = _schema("id", "x", "y"), _schema("id", "y", "x"), _schema("id", "z")
    assert _doubt(known, _ServerWithStatements(known)) == ""
    assert "are id, y, x, and known are id, x, y" in _doubt(known, _ServerWithStatements(other))
    assert _doubt(known, _ServerWithStatements(other, (500, other))) == ""
    assert _doubt(known, _ServerWithStatements(third, (500, other), (600, third))) == ""
    assert "sql_log_bin" in _doubt(known, _ServerWithStatements(other, (500, other), (600, third)))
    assert _doubt(known, _ServerWithStatements(None, (500, None))) == ""
    assert "does not exist" in _doubt(known, _ServerWithStatements(None))
    # the statement came to the log after the catalog was read
    assert _doubt(known, _ServerWithStatements(other, (500, other), (1000, third))) != ""
    unclear = other.model_copy(update={"provisional": True})
    assert "does not show the whole structure" in _doubt(known, _ServerWithStatements(other, (500, unclear)))


@pytest.mark.usefixtures("_without_pauses")
def test_a_provisional_structure_needs_the_catalog_and_no_later_statement() -> None:
    known, other = _schema("id", "x", "y", provisional=True), _schema("id", "y", "x")
    present = _schema("id", "x", "y")
    assert _doubt(known, _ServerWithStatements(present)) == ""
    assert "ahead of the log" in _doubt(known, _ServerWithStatements(other))
    assert "a later statement" in _doubt(known, _ServerWithStatements(present, (500, other), (600, present)))
    server = _ServerWithStatements(present, (500, other), (600, present))
    server.position = _place(100, moved=True)
    assert "set by hand" in _doubt(present, server)


@pytest.mark.usefixtures("_without_pauses")
def test_catalog_and_log_are_read_once_for_what_they_were_read_for() -> None:
    known, other = _schema("id", "x", "y"), _schema("id", "y", "x")
    server = _ServerWithStatements(other, (500, other))
    proof = server.proof(known)
    assert [proof.find_doubt(known, (1, pos)) for pos in (150, 160, 1000)] == [None] * 3
    assert (server.asked, server.reads) == (1, [(100, 1000)])
    server.end = 2000
    assert proof.find_doubt(known, (1, 1001)) is None
    assert (server.asked, server.reads) == (2, [(100, 1000), (1000, 2000)])


class _CountedProof:
    """Stand-in for a proof: it counts the questions, and doubts on demand."""

    asked = 0
    doubt: str | None = None

    def find_doubt(self, schema: TableSchema, at: tuple[int, int]) -> str | None:
        self.asked += 1
        return self.doubt


def _unnamed_map(table_id: int) -> bytes:
    """Return a table map of two INT columns, the first one not nullable, with signs and without names."""
    head = table_id.to_bytes(6, "little") + b"\x01\x00" + b"\x01d\x00" + b"\x01t\x00"
    return head + b"\x02\x03\x03" + b"\x00" + b"\x02" + b"\x01\x01\x00"


def test_each_new_table_id_is_proved_and_a_new_file_or_connection_forgets_them() -> None:
    """A statement on a table gives it a new id; after a restart of the server, the same id may mean another structure."""
    proof, tables = _CountedProof(), FixedTables({_TABLE: _schema("id", "x")})
    names = TableNameResolver(0, tables)
    maps = TableMapCache(made.CONFIG, tables, made.CATALOG, names, mariadb=False, proof=proof)  # type: ignore[arg-type]
    for table_id in (1, 2):
        assert maps.add_map(_unnamed_map(table_id), "here") is None
    assert (proof.asked, len(maps.layouts)) == (2, 1)
    maps.discard_unnamed_maps()
    assert not maps.restore_map(1)
    assert maps.add_map(_unnamed_map(1), "here") is None
    proof.doubt = "the catalog differs"
    with pytest.raises(SchemaConflict, match="the catalog differs") as caught:
        maps.add_map(_unnamed_map(3), "here")
    assert caught.value.table == "d.t"
    assert not maps.restore_map(3)


_CASES: dict[str, tuple[str, str, tuple[str, ...]]] = {
    "generated columns": ("", "", (
        "CREATE TABLE g (id INT PRIMARY KEY, x INT, y INT AS (x + 1) STORED, z INT AS (x + 2))", "INSERT INTO g (id, x) VALUES (1, 2)",
        "UPDATE g SET x = 3")),
    "invisible column": ("mariadb mysql97", "", (
        "CREATE TABLE g (id INT PRIMARY KEY, h INT INVISIBLE, x INT)", "INSERT INTO g (id, h, x) VALUES (1, 2, 3)")),
    "generated invisible key": ("mysql97", "", (
        "SET SESSION sql_generate_invisible_primary_key = 1", "CREATE TABLE g (x INT, y INT)", "INSERT INTO g (x, y) VALUES (1, 2)")),
    "index on an expression": ("mysql97", "", (
        "CREATE TABLE g (id INT PRIMARY KEY, x INT, INDEX ((x + 1)))", "INSERT INTO g VALUES (1, 2)")),
    "index on an expression, with a hidden column": ("mysql80", "g", (
        "CREATE TABLE g (id INT PRIMARY KEY, x INT, INDEX ((x + 1)))", "INSERT INTO g VALUES (1, 2)")),
    "partitions": ("", "", (
        "CREATE TABLE g (id INT PRIMARY KEY, x INT) PARTITION BY HASH (id) PARTITIONS 2", "INSERT INTO g VALUES (1, 2)",
        "ALTER TABLE g ADD PARTITION PARTITIONS 1", "INSERT INTO g VALUES (2, 3)")),
    "view and temporary table": ("", "", (
        "CREATE TABLE g (id INT PRIMARY KEY, x INT, y INT)", "CREATE VIEW v AS SELECT id, y, x FROM g", "INSERT INTO v VALUES (1, 2, 3)",
        "CREATE TEMPORARY TABLE g (id INT PRIMARY KEY, y INT, x INT)", "INSERT INTO g VALUES (1, 1, 1)", "DROP TEMPORARY TABLE g",
        "UPDATE g SET x = 9")),
    "another character set of the database": ("", "g", (
        "ALTER DATABASE CHARACTER SET latin1", "CREATE TABLE g (id INT PRIMARY KEY, t VARCHAR(20))", "INSERT INTO g VALUES (1, 'a')",
        "ALTER DATABASE CHARACTER SET utf8mb4")),
    "made without a log": ("", "g", (
        "SET sql_log_bin = 0", "CREATE TABLE g (id INT PRIMARY KEY, x INT, y INT)", "SET sql_log_bin = 1", "INSERT INTO g VALUES (1, 2, 3)")),
    "made without a log, and named by a statement": ("", "g", (
        "SET sql_log_bin = 0", "CREATE TABLE g (id INT PRIMARY KEY, x INT, y INT)", "SET sql_log_bin = 1",
        "CREATE TABLE IF NOT EXISTS g (id INT PRIMARY KEY, y INT, x INT)", "INSERT INTO g VALUES (1, 2, 3)")),
    "made by a query": ("mariadb mysql97", "", (
        "CREATE TABLE g AS SELECT 1 AS id, 2 AS x, 3 AS y", "INSERT INTO g VALUES (2, 3, 4)")),
    "made by a query, then altered": ("mariadb mysql97", "", (
        "CREATE TABLE g AS SELECT 1 AS id, 2 AS x, 3 AS y", "INSERT INTO g VALUES (2, 3, 4)", "ALTER TABLE g MODIFY y INT AFTER id",
        "INSERT INTO g VALUES (3, 4, 5)")),
    "key without a log": ("", "a", (
        "SET sql_log_bin = 0", "ALTER TABLE a DROP PRIMARY KEY, ADD PRIMARY KEY (x)", "SET sql_log_bin = 1", "INSERT INTO a VALUES (1, 2, 3)")),
    "members without a log": ("", "e", (
        "SET sql_log_bin = 0", "ALTER TABLE e MODIFY m ENUM('q','p')", "SET sql_log_bin = 1", "INSERT INTO e VALUES (2, 'p')")),
    "the same table made again": ("", "", (
        "INSERT INTO a VALUES (5, 6, 7)", "DROP TABLE a", "CREATE TABLE a (id INT PRIMARY KEY, y INT, x INT)", "INSERT INTO a VALUES (1, 2, 3)")),
}  # fmt: skip
"""Case → the servers that have it (all of them, if empty), the tables that are stopped, and the statements."""


@pytest.mark.parametrize("kind", ["mariadb", "mysql97", "mysql80"])
def test_tables_are_captured_or_stopped_with_their_repair(
    request: pytest.FixtureRequest, tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(structure_proof, "_PAUSES_S", (0.05,))
    server = request.getfixturevalue(kind)
    for number, (case, (kinds, stopped, statements)) in enumerate(_CASES.items()):
        if kinds and kind not in kinds.split():
            continue
        with server.database() as db, row_metadata(server, "MINIMAL"):
            source = "mariadb" if kind == "mariadb" else "mysql"
            connector = mysql_connector(server, tmp_path / str(number), source, database_include_list=db.name)
            db.sql(
                "CREATE TABLE a (id INT, x INT NOT NULL, y INT, PRIMARY KEY (id))",
                "CREATE TABLE e (id INT PRIMARY KEY, m ENUM('p','q'))", "INSERT INTO e VALUES (1, 'p')",
            )  # fmt: skip
            connector.capture()
            db.sql(*statements)
            found = ""
            try:
                connector.capture()
            except UnreadableValue as e:
                found = " ".join(re.findall(rf"{db.name}\.(\w+): \w+: Rows of", str(e)))
                snapshot_as_advised(connector, str(e))
                connector.capture()
            assert found == stopped, case
            db.sql("DROP VIEW IF EXISTS v")
            for table in ("a", "e", "g"):
                if any(f"TABLE {table} " in text for text in statements) or table != "g":
                    assert connector.rows(f"{db.name}.{table}") == source_rows(server, db.name, table), (case, table)


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


@pytest.mark.sampled(3)
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
