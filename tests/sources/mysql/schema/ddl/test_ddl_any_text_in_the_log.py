"""Quotes, comments and placeholders in names, defaults, members and comments, with another change of the table behind them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from airflow_provider_cdc.core.model.table_schema import TableId, TableSchema
from airflow_provider_cdc.sources.mysql.config import MySqlConfig
from airflow_provider_cdc.sources.mysql.schema.catalog_reader import MySqlCatalog
from tests.support.connectors import mysql_connector

TEXTS = (
    "it's", "''", 'a"b', '""', "a`b", "``", "${x}", "${env:HOME}", "$(x)", "{x}", "%s", "%(x)s", "/* c */", "/*", "*/", "/*! INT */",
    "/*!80000 DROP", "/*!50000 x */", "/*M! x */", "/*M!100000 x */", "-- x", "--", "# x", "a;b", "'; DROP TABLE t; --", "a\\b", "\\'",
    "\\", "a.b", "(a, b)", "é日", "a  b", "a\nb", "NULL", "PRIMARY KEY", "@@x", ":x", "?", "0", "_utf8'x'",
)  # fmt: skip
MODES = ("", "ANSI_QUOTES", "NO_BACKSLASH_ESCAPES", "ANSI_QUOTES,NO_BACKSLASH_ESCAPES")
GAPS = (" ", " /* ' */ ", " /*! */ ", "\n-- `\n", ' # "\n', " /*!50000 */ ", " /*M!100000 */ ", " /*!99999 nothing */ ")
"""What may stand between two words; the last is for a server newer than all."""


@dataclass
class Case:
    number: int
    text: str
    mode: str

    @property
    def table(self) -> str:
        return f"t{self.number}{self.text}"

    def name(self, text: str) -> str:
        quote = '"' if "ANSI" in self.mode and self.number % 3 else "`"
        return quote + text.replace(quote, quote * 2) + quote

    def string(self) -> str:
        text = self.text if "NO_BACKSLASH" in self.mode else self.text.replace("\\", "\\\\")
        if "ANSI" not in self.mode and self.number % 2:
            return '"' + text.replace('"', '""') + '"'
        return "'" + text.replace("'", "''") + "'"

    def statements(self) -> Iterator[str]:
        table, column, string = self.name(self.table), self.name(self.text), self.string()
        gap = GAPS[self.number % len(GAPS)]
        yield gap.join((
            "CREATE", "TABLE", table, f"({self.name('id' + self.text)}", "INT", f"PRIMARY KEY, {column}", "VARCHAR(40)", "DEFAULT", string,
            "COMMENT", f"{string}, e ENUM ({string}, 'other')", "DEFAULT", f"{string}) COMMENT", "=", string,
        ))  # fmt: skip
        yield gap.join((
            "ALTER TABLE", table, "ADD", self.name("x" + self.text), "SET", f"('z', 'y{self.number}')", f"COMMENT {string}", "AFTER", column,
            f", ADD /*!50000 COLUMN */ {self.name('y' + self.text)} JSON", f", COMMENT {string}",
        ))  # fmt: skip

    def afterwards(self) -> Iterator[str]:
        table = self.name(self.table)
        yield f"INSERT INTO {table} ({self.name('id' + self.text)}, {self.name('y' + self.text)}) VALUES (1, '{{}}')"
        yield f"ALTER TABLE {table} CHANGE {self.name('y' + self.text)} {self.name('after ' + self.text)} JSON FIRST"
        yield f"UPDATE {table} SET {self.name('after ' + self.text)} = '[]'"


@pytest.mark.parametrize("kind", ["mariadb", pytest.param("mysql97", marks=pytest.mark.mysql)])
def test_any_text_is_what_the_catalog_says(kind: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    server = request.getfixturevalue(kind)
    source, database = ("mariadb" if kind == "mariadb" else "mysql"), "any_text"
    server.sql(f"DROP DATABASE IF EXISTS {database}", f"CREATE DATABASE {database} CHARACTER SET utf8mb4")
    server.sql(f"CREATE TABLE {database}.first (id INT PRIMARY KEY)")
    connector = mysql_connector(
        server, tmp_path, source, database_include_list=database, include_schema_comments="true"
    )
    connector.capture()
    cases = [Case(n, text, mode) for n, (mode, text) in enumerate((m, t) for m in MODES for t in TEXTS)]
    config = MySqlConfig.parse({**connector.properties, **connector.secrets, "topic.prefix": "x"})
    expected: dict[str, TableSchema | None] = {}
    with server.connect(database=database) as connection, connection.cursor() as cursor:
        catalog = MySqlCatalog(connection, config, mariadb=source == "mariadb")
        for case in cases:
            cursor.execute("SET sql_mode = %s", (f"STRICT_ALL_TABLES,{case.mode}",))
            for statement in case.statements():
                cursor.execute(statement)
            expected[case.table] = catalog.read_table(TableId(namespace=database, name=case.table))
            for statement in case.afterwards():
                cursor.execute(statement)
    connector.capture()
    reported: dict[str, list[TableSchema]] = {}
    operations: dict[str, int] = {}
    for manifest in connector.changelog.read_manifests(connector.name):
        for record in manifest.schema_changes:
            for change in record.changes:
                if change.table is not None and not record.snapshot:
                    reported.setdefault(change.id.name, []).append(change.table)
        for file in manifest.files:
            for schema in manifest.schemas[file.topic].values():
                operations[schema.id.name] = operations.get(schema.id.name, 0)
            name = manifest.schemas[file.topic][str(file.schema_version)].id.name
            operations[name] += file.rows
    print(f"{kind}: {len(cases)} cases")
    wrong = []
    for case in cases:
        (_, schema, _), right = reported[case.table], expected[case.table]
        assert right is not None
        found = [(c.name, c.declared.comment, c.declared.values, c.declared.default) for c in schema.columns]
        want = [(c.name, c.declared.comment, c.declared.values, c.declared.default) for c in right.columns]
        if found != want or schema.comment != right.comment or operations[case.table] != 2:
            wrong.append(
                f"{case}: {found} {schema.comment!r} instead of {want} {right.comment!r}, {operations[case.table]} events"
            )
    server.sql(f"DROP DATABASE {database}")
    assert not wrong, "\n".join(wrong)
