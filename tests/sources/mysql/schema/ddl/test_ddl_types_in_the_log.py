"""Every type word in CREATE, ADD, MODIFY and CHANGE, each followed by another change of the table before the run comes.

The catalog is ahead of the log then, so nothing but the text of the statement shows the structure of the rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_cdc.core.model.table_schema import Column, TableId, TableSchema
from airflow_provider_cdc.sources.mysql.config import MySqlConfig
from airflow_provider_cdc.sources.mysql.schema.catalog_reader import MySqlCatalog
from tests.sources.mysql.schema.ddl.type_words import MARIADB, MARIADB_11_8, MYSQL, MYSQL_9, TypeWord, iterate_words
from tests.support.connectors import Connector, mysql_connector

COLUMNS = 12
"""So many columns in one table."""
SHAPES = ("create", "add", "modify", "change")
KINDS = {
    "mariadb": {MARIADB},
    "mariadb118": {MARIADB, MARIADB_11_8},
    "mysql97": {MYSQL, MYSQL_9},
    "mysql80": {MYSQL},
}
STRICT = "STRICT_ALL_TABLES,NO_ENGINE_SUBSTITUTION"


@dataclass
class Case:
    """A table with some columns, and the way in which they are made."""

    table: str
    shape: str
    columns: dict[str, TypeWord]
    expected: TableSchema | None = None
    """Its structure as the catalog had it before the last change."""

    @property
    def like(self) -> TypeWord:
        return next(iter(self.columns.values()))

    @property
    def generated(self) -> bool:
        return any(" AS (" in word.text for word in self.columns.values())

    def statements(self) -> Iterator[str]:
        """Yield the statements that make the columns."""
        made = [
            f"{name} {word.text.replace('{c}', name).replace('{t}', self.table)}" for name, word in self.columns.items()
        ]
        options = f" CHARSET={self.like.charset}" if self.like.charset else ""
        if self.shape == "create":
            yield f"CREATE TABLE {self.table} (id INT PRIMARY KEY, {', '.join(made)}){options}"
        elif self.shape == "add":
            yield f"CREATE TABLE {self.table} (id INT PRIMARY KEY, last INT){options}"
            yield f"ALTER TABLE {self.table} ADD COLUMN ({made[0]}), ADD " + " AFTER id, ADD ".join(
                (*made[1:], "x INT")
            )
        else:
            old = [f"old_{name}" if self.shape == "change" else name for name in self.columns]
            before = ", ".join(f"{name} {word.before}" for name, word in zip(old, self.columns.values(), strict=True))
            yield f"CREATE TABLE {self.table} (id INT PRIMARY KEY, {before}){options}"
            changes = [
                f"CHANGE {o} {m}" if self.shape == "change" else f"MODIFY {m}" for o, m in zip(old, made, strict=True)
            ]
            yield f"ALTER TABLE {self.table} {', '.join(changes)}"

    def inserts(self) -> Iterator[str]:
        """Rows with each value at least once."""
        given = {name: word.values for name, word in self.columns.items() if word.values}
        for i in range(max((len(v) for v in given.values()), default=1)):
            values = [v[i % len(v)] for v in given.values()]
            yield f"INSERT INTO {self.table} ({', '.join(('id', *given))}) VALUES ({', '.join((str(i), *values))})"


def cases(kind: str) -> list[Case]:
    """All words that a kind of server knows, in tables of several columns, in each shape."""
    known = [w for w in iterate_words() if KINDS[kind] & set(w.servers)]
    alike: dict[tuple[Any, ...], list[TypeWord]] = {}
    for word in known:
        alike.setdefault((word.mode, word.charset, word.changes, word.alone), []).append(word)
    groups = []
    for some in alike.values():
        size = 1 if some[0].alone else COLUMNS
        groups += [some[i : i + size] for i in range(0, len(some), size)]
    found = []
    for n, group in enumerate(groups):
        columns = {f"c{n}_{i}": word for i, word in enumerate(group)}
        shapes = SHAPES if group[0].changes else SHAPES[:2]
        found += [Case(f"{shape}_{n}", shape, columns) for shape in shapes]
    return found


MARKS = {"mysql97": [pytest.mark.mysql], "mysql80": [pytest.mark.mysql, pytest.mark.long]}  # 9.7 has all types of 8.0


@pytest.fixture(params=[pytest.param(k, marks=MARKS.get(k, [])) for k in KINDS])
def server(request: pytest.FixtureRequest, mariadb: Any) -> Any:
    """Each kind of server in turn; ``kind`` says which."""
    found = mariadb
    if request.param == "mariadb118":
        found = request.getfixturevalue("mariadb_factory")("11.8")
    elif request.param != "mariadb":
        found = request.getfixturevalue(request.param)
    return request.param, found


def _write(server: Any, connector: Connector, database: str, all_cases: list[Case]) -> None:
    config = MySqlConfig.parse({**connector.properties, **connector.secrets, "topic.prefix": "x"})
    with server.connect(database=database) as connection, connection.cursor() as cursor:
        catalog = MySqlCatalog(connection, config, mariadb=connector.source == "mariadb")
        cursor.execute("SELECT @@version")
        whole = "11.8.9" not in str(cursor.fetchall())  # this release leaves generated columns out of updates
        for case in all_cases:
            mode = case.like.mode
            cursor.execute("SET sql_mode = %s", ("" if mode == "-STRICT" else f"{STRICT},{mode}",))
            for statement in case.statements():
                cursor.execute(statement)
            case.expected = catalog.read_table(TableId(namespace=database, name=case.table))
            for statement in case.inserts():
                cursor.execute(statement)
            cursor.execute(f"ALTER TABLE {case.table} ADD after_that INT FIRST")
            if whole or not case.generated:
                cursor.execute(f"UPDATE {case.table} SET after_that = 7")


def _differences(connector: Connector, database: str, all_cases: list[Case]) -> list[str]:
    """Return the differences between the structures from the text of the statements and those of the catalog."""
    reported: dict[str, list[TableSchema]] = {}
    for manifest in connector.changelog.read_manifests(connector.name):
        for record in manifest.schema_changes:
            for change in record.changes:
                if change.table is not None and not record.snapshot:
                    reported.setdefault(change.id.name, []).append(change.table)
    found = []
    for case in all_cases:
        assert case.expected is not None
        *_, schema, after_that = reported[case.table]
        assert after_that.column_names == ("after_that", *schema.column_names)
        found += _columns_that_differ(case, case.expected, schema)
    return found


def _columns_that_differ(case: Case, expected: TableSchema, schema: TableSchema) -> Iterator[str]:
    if expected.column_names != schema.column_names or expected.key != schema.key:
        yield f"{case.table}: {schema.column_names} {schema.key} instead of {expected.column_names} {expected.key}"
        return
    for mine, theirs in zip(schema.columns, expected.columns, strict=True):
        a, z = _facts(mine), _facts(theirs)
        if z["default_is_expression"]:  # MySQL calls every default in parentheses one
            a, z = ({k: v for k, v in side.items() if not k.startswith("default")} for side in (a, z))
        if a != z:
            yield f"{case.shape} {case.columns.get(mine.name, '')}: { {k: (a[k], z[k]) for k in a if a[k] != z[k]} }"


def _facts(column: Column) -> dict[str, Any]:
    """Return the facts that must be equal: without a number's width, and with one name of the character set utf8."""
    declared = column.declared.model_dump()
    base = declared["type_name"].split()[0]
    if base.endswith("INT") or base == "YEAR":
        del declared["length"]
    declared["length"] = declared.get("length") or None
    if declared["charset"] == "utf8":
        declared["charset"] = "utf8mb3"
    return column.model_dump(exclude={"declared"}) | declared


@pytest.mark.sampled(3)
def test_every_type_word_is_what_the_catalog_says(server: Any, tmp_path: Path) -> None:
    kind, running = server
    database = "type_words"
    running.sql(f"DROP DATABASE IF EXISTS {database}", f"CREATE DATABASE {database} CHARACTER SET utf8mb4")
    running.sql(f"CREATE TABLE {database}.first (id INT PRIMARY KEY)")
    connector = mysql_connector(
        running, tmp_path, "mariadb" if "mariadb" in kind else "mysql", database_include_list=database,
        schema_change_rewrite_mode="ignore",
    )  # fmt: skip
    connector.capture()
    all_cases = cases(kind)
    _write(running, connector, database, all_cases)
    connector.capture()
    print(f"{kind}: {sum(len(c.columns) for c in all_cases)} cases")
    differences = _differences(connector, database, all_cases)
    assert not differences, "\n".join(differences)
