"""Table maps without column names: compared with a known schema, type by type."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_cdc.core.model.table_schema import TableId, TableSchema
from airflow_provider_cdc.sources.mysql.columns import column_type_codes as w
from airflow_provider_cdc.sources.mysql.log.rows.row_layout import LayoutMismatch, build_layout
from airflow_provider_cdc.sources.mysql.log.rows.table_map_parser import ColumnCollations, TableMap
from airflow_provider_cdc.sources.mysql.log.rows.unnamed_table_map import has_minimal_metadata, name_columns
from airflow_provider_cdc.sources.mysql.schema import ddl
from airflow_provider_cdc.sources.mysql.schema.catalog_reader import captured_column
from airflow_provider_cdc.sources.mysql.schema.column_types import MySqlColumnType
from tests.sources.mysql.log.rows.test_table_map_schema import TYPES, VALUES
from tests.support.connectors import mysql_connector
from tests.support.sources.mysql import binlog as made
from tests.support.sources.mysql.row_metadata import list_events, row_metadata

MORE = {
    "BIGINT UNSIGNED": str(2**63 - 1), "DECIMAL(40,2)": "1.5", "BIT(1)": "b'1'", "BIT(64)": "b'101'", "CHAR(255)": "'ü'",
    "CHAR(80) CHARACTER SET utf32": "'x'", "VARCHAR(60) CHARACTER SET sjis": "'あ'", "VARCHAR(64)": "'y'", "VARBINARY(255)": "x'01'",
    "VARBINARY(256)": "x'02'", "BINARY(0)": "''", "CHAR": "'z'", "TINYINT(1)": "1", "TINYBLOB": "x'03'", "LONGBLOB": "x'04'",
    "TIME": "'01:02:03'", "DATETIME": "'2024-02-29 12:00:01'", "TIMESTAMP(6) NULL": "'2024-02-29 12:00:01.5'", "JSON": "'[1, null]'",
    "POINT": "POINT(1, 2)", "GEOMETRYCOLLECTION": "NULL", "SET('a','b','c','d','e','f','g','h','i')": "'a,i'",
    f"ENUM({','.join(repr(f'm{n}') for n in range(300))})": "'m299'", "ENUM('a','z') CHARACTER SET latin1": "'z'",
}  # fmt: skip
OWN = {
    "mariadb": {"UUID": "UUID()", "INET4": "'127.0.0.1'", "INET6": "'::1'", "VARCHAR(90) COMPRESSED": "'c'", "TEXT COMPRESSED": "'d'", "BLOB COMPRESSED": "x'05'"},
    "mysql97": {"VECTOR(3)": "TO_VECTOR('[1,2,3]')"},
    "mysql80": {},
}  # fmt: skip


@pytest.mark.parametrize("kind", ["mariadb", "mysql97", "mysql80"])
def test_rows_of_all_types_are_those_with_names(request: pytest.FixtureRequest, tmp_path: Path, kind: str) -> None:
    """The table is made by a statement in the log, altered, and read by a snapshot: each gives the structure that the catalog has."""
    server = request.getfixturevalue(kind)
    types, values = [*TYPES, *MORE, *OWN[kind]], [*VALUES, *MORE.values(), *OWN[kind].values()]
    values = [v if v != "UUID()" else "'00112233-4455-6677-8899-aabbccddeeff'" for v in values]
    columns = ", ".join(f"c{i} {type_}" for i, type_ in enumerate(types))
    rows = f"INSERT INTO t VALUES (1, {', '.join(values)}), (2, {', '.join(['NULL'] * len(values))})"
    added = ", ".join(f"ADD c{i} {type_}" for i, type_ in enumerate(types))
    story = (
        f"CREATE TABLE t (id INT PRIMARY KEY, {columns})", rows, "UPDATE t SET c0 = 3", "DELETE FROM t WHERE id = 2",
        "CREATE TABLE u (id INT PRIMARY KEY)", f"ALTER TABLE u {added}", rows.replace("INTO t", "INTO u"),
        "ALTER TABLE t CONVERT TO CHARACTER SET utf8mb3", "UPDATE t SET c0 = 4",
    )  # fmt: skip
    seen: dict[str, Any] = {}
    for level in ("FULL", "MINIMAL"):
        with server.database() as db, row_metadata(server, level):
            listed = {"database_include_list": db.name, "bigint_unsigned_handling_mode": "precise"}
            connector = mysql_connector(server, tmp_path / level, "mariadb" if kind == "mariadb" else "mysql", **listed)
            db.sql("CREATE TABLE first (id INT PRIMARY KEY)")
            connector.capture()
            db.sql("SET sql_mode = ''", *story)
            connector.capture()
            seen[level] = list_events(connector)
            assert not [left for manifest in connector.changelog.read_manifests("test") for left in manifest.left_out]
    assert seen["MINIMAL"] == seen["FULL"]
    assert {table: len(events) > 1 for table, events in seen["FULL"].items()} == {"t": True, "u": True}


_ID = TableId(namespace="d", name="t")
_CHARSETS = {8: "latin1", 45: "utf8mb4", 33: "utf8mb3", 63: "binary"}


def _schema(*types: str) -> TableSchema:
    columns = []
    for i, text in enumerate(types):
        declared, _, charset = text.partition(" CHARACTER SET ")
        of = ddl.parse_type(declared, charset or "binary")
        type_ = MySqlColumnType(of.type, of.length, of.scale, of.unsigned, charset or None, of.values)
        columns.append(captured_column(_ID, f"c{i}", type_, made.CONFIG, nullable=True))
    return TableSchema(id=_ID, columns=tuple(columns))


def _fits(m: TableMap, *types: str) -> bool:
    schema = _schema(*types)
    try:
        build_layout(name_columns(m, schema, _CHARSETS), schema, made.CONFIG, _CHARSETS)
    except LayoutMismatch:
        return False
    return True


def _map(wire: int, meta: int, collation: int = 0, unsigned: bool = False) -> TableMap:
    return TableMap(
        False, 1, "d", "t", [wire], [meta], [True], unsigned=[unsigned], collations=ColumnCollations(collation)
    )


@pytest.mark.parametrize(
    ("m", "fits", "differs"),
    [
        (_map(w.T_VARCHAR, 80, 45), "VARCHAR(20) CHARACTER SET utf8mb4", ["VARCHAR(21) CHARACTER SET utf8mb4", "VARCHAR(80) CHARACTER SET latin1", "VARBINARY(80)"]),
        (_map(w.T_STRING, 0xFE50, 45), "CHAR(20) CHARACTER SET utf8mb4", ["CHAR(19) CHARACTER SET utf8mb4", "BINARY(80)"]),
        (_map(w.T_VARCHAR, 20, 8), "VARCHAR(20) CHARACTER SET latin1", ["VARCHAR(5) CHARACTER SET utf8mb4"]),
        (_map(w.T_VARCHAR, 30, 33), "VARCHAR(10) CHARACTER SET utf8", ["VARCHAR(10) CHARACTER SET utf8mb4"]),
        (_map(w.T_BLOB, 2, 63), "BLOB", ["TINYBLOB", "MEDIUMBLOB", "LONGBLOB", "TEXT CHARACTER SET latin1"]),
        (_map(w.T_BLOB, 3, 8), "MEDIUMTEXT CHARACTER SET latin1", ["TEXT CHARACTER SET latin1", "MEDIUMBLOB"]),
        (_map(w.T_BIT, 5), "BIT(5)", ["BIT(6)", "BIT(1)"]),
        (_map(w.T_ENUM, 0xF701), "ENUM('a')", [f"ENUM({','.join(repr(f'm{n}') for n in range(256))})", "SET('a')"]),
        (_map(w.T_SET, 0xF802), "SET('a','b','c','d','e','f','g','h','i')", ["SET('a')"]),
        (_map(w.T_LONG, 0), "INT", ["INT UNSIGNED", "BIGINT", "FLOAT"]),
        (_map(w.T_LONG, 0, unsigned=True), "INT UNSIGNED", ["INT"]),
        (_map(w.T_NEWDECIMAL, 0x0C03), "DECIMAL(12,3)", ["DECIMAL(12,2)", "DECIMAL(11,3)"]),
        (_map(w.T_DATETIME2, 6), "DATETIME(6)", ["DATETIME", "TIMESTAMP(6)", "TIME(6)"]),
        (_map(w.T_STRING, 0xFE10, 63), "BINARY(16)", ["BINARY(15)", "INET4", "CHAR(16) CHARACTER SET latin1"]),
    ],
)  # fmt: skip
def test_a_difference_in_type_size_sign_or_character_set_is_found(m: TableMap, fits: str, differs: list[str]) -> None:
    assert _fits(m, fits)
    for other in differs:
        assert not _fits(m, other), other
    assert not _fits(m, fits, fits)
    assert not _fits(replace(m, nullable=[False]), fits)


def test_maps_without_signs_or_character_sets_are_not_minimal() -> None:
    """MariaDB's ``NO_LOG`` has neither."""
    assert has_minimal_metadata(_map(w.T_LONG, 0))
    assert not has_minimal_metadata(replace(_map(w.T_LONG, 0), unsigned=None))
    assert has_minimal_metadata(_map(w.T_VARCHAR, 20, 8))
    assert not has_minimal_metadata(_map(w.T_VARCHAR, 20))
    assert has_minimal_metadata(replace(_map(w.T_DATE, 0), unsigned=None))
