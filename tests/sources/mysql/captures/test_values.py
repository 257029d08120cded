"""Every common type, to the last bit: the same cell from a snapshot, from the log and from a plain SELECT."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from tests.support.connectors import Connector, mysql_connector
from tests.support.sources.mysql.mysql_values import COMMON, MARIADB, MYSQL, VECTORS


class Matrix:
    """A table for each type: half of the rows before the snapshot, the same again afterwards."""

    def __init__(self, server: Any, folder: Path, kind: str, database: str, types: list[Any]) -> None:
        self.server, self.database, self.types = server, database, types
        server.sql(f"CREATE DATABASE {database}")
        server.sql("SET GLOBAL sql_mode = ''")
        self._sql = server.connect(database=database, autocommit=True)
        with self._sql.cursor() as cursor:
            cursor.execute("SET sql_mode = '', time_zone = '+00:00'")
            for i, (declared, values) in enumerate(types):
                cursor.execute(f"CREATE TABLE t{i} (id INT PRIMARY KEY, v {declared}, w {declared})")
                self.insert(cursor, i, values, 0)
        self.all_together()
        self.connector: Connector = mysql_connector(server, folder, kind, database_include_list=database)
        self.connector.capture()
        with self._sql.cursor() as cursor:
            for i, (_, values) in enumerate(types):
                self.insert(cursor, i, values, 1000)
                cursor.execute(f"UPDATE t{i} SET id = id + 1000 WHERE id >= 1000")
            self.fill_all("1000 + ")
        self.connector.capture()

    def all_together(self) -> None:
        """Create a table with all types in random order: facts of a column must not be taken for another's."""
        order = random.Random(7).sample(range(len(self.types)), len(self.types))
        columns = ", ".join(f"c{i} {self.types[i][0].replace('NOT NULL', 'NULL')}" for i in order if i != self.large)
        with self._sql.cursor() as cursor:
            cursor.execute(f"CREATE TABLE everything (id INT PRIMARY KEY, {columns})")
        self.fill_all("")

    def fill_all(self, first: str) -> None:
        with self._sql.cursor() as cursor:
            cursor.execute("SET sql_mode = ''")
            for n in range(2):
                some = [i for i in range(len(self.types)) if i != self.large]
                names = ", ".join(f"c{i}" for i in some)
                values = ", ".join(self.types[i][1][n % len(self.types[i][1])][0] for i in some)
                cursor.execute(f"INSERT INTO everything (id, {names}) VALUES ({first}{n}, {values})")

    @property
    def large(self) -> int:
        """A type that together with all others is too much for a row."""
        return next(i for i, (t, _) in enumerate(self.types) if t == "VARCHAR(300)")

    def insert(self, cursor: Any, i: int, values: list[tuple[str, Any]], first: int) -> None:
        for n, (literal, _) in enumerate(values):
            other = values[(n + 1) % len(values)][0]
            cursor.execute(f"INSERT INTO t{i} VALUES ({first + n}, {literal}, {other})")

    def selected(self, i: int, expression: str = "v") -> dict[int, Any]:
        with self._sql.cursor() as cursor:
            cursor.execute(f"SELECT id, {expression} FROM t{i}")
            return dict(cursor.fetchall())


def _check(matrix: Matrix) -> None:
    wrong = []
    for i, (declared, values) in enumerate(matrix.types):
        rows = {row["id"]: row for row in matrix.connector.rows(f"{matrix.database}.t{i}")}
        for n, (literal, expected) in enumerate(values):
            if expected is None and literal != "NULL" and not declared.startswith(("DATE", "TIMESTAMP")):
                expected = matrix.selected(i)[n]
            for where, id_ in (("snapshot", n), ("log", 2000 + n)):
                actual = rows[id_]["v"]
                if type(actual) is not type(expected) or actual != expected:
                    wrong.append(f"{declared} {literal[:40]} by {where}: {actual!r:.120} instead of {expected!r:.120}")
            if rows[n]["w"] != rows[2000 + n]["w"]:
                wrong.append(
                    f"{declared}, second column: snapshot {rows[n]['w']!r:.80}, log {rows[2000 + n]['w']!r:.80}"
                )
    everything = {row["id"]: row for row in matrix.connector.rows(f"{matrix.database}.everything")}
    for n in range(2):
        snapshot, log = everything[n], everything[1000 + n]
        wrong += [
            f"{k}: snapshot {snapshot[k]!r:.80}, log {log[k]!r:.80}"
            for k in snapshot
            if k != "id" and snapshot[k] != log[k]
        ]
    assert not wrong, "\n".join(wrong)


def test_mariadb_values_are_the_same_from_snapshot_log_and_select(mariadb_factory: Any, tmp_path: Path) -> None:
    with mariadb_factory() as server:
        _check(Matrix(server, tmp_path, "mariadb", "types", COMMON + MARIADB))


@pytest.mark.parametrize("edition", ["9.7", "8.0"])
def test_mysql_values_are_the_same_from_snapshot_log_and_select(
    mysql_factory: Any, tmp_path: Path, edition: str
) -> None:
    with mysql_factory(edition) as server:
        newer = VECTORS if edition == "9.7" else []
        _check(Matrix(server, tmp_path, "mysql", "types", COMMON + MYSQL + newer))
