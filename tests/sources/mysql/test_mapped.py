"""Rows whose structure neither the DDL nor the catalogue tells any more: the log has it, or they are told and left out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from tests.support.connectors import Connector, mysql_connector
from tests.support.workload import source_rows

TYPES = (
    "TINYINT", "SMALLINT UNSIGNED", "MEDIUMINT", "INT UNSIGNED", "BIGINT", "DECIMAL(12,3)", "FLOAT", "DOUBLE", "BIT(5)", "DATE",
    "YEAR", "TIME(3)", "DATETIME(6)", "TIMESTAMP(2) NULL", "CHAR(7)", "VARCHAR(300)", "VARCHAR(20) CHARACTER SET latin1", "TINYTEXT",
    "TEXT CHARACTER SET utf16", "MEDIUMTEXT", "LONGTEXT", "BLOB", "MEDIUMBLOB", "VARBINARY(9)", "BINARY(5)", "ENUM('a','bé')",
    "SET('x','y z')",
)  # fmt: skip
VALUES = (
    "-7", "65535", "-70000", "4000000000", "-9000000000", "123456.789", "1.5", "2.25", "b'10101'", "'2024-02-29'", "2024",
    "'-12:30:01.250'", "'2024-02-29 12:00:01.123456'", "'2024-02-29 12:00:01.25'", "'sévén'", "'a'", "'é'", "'tiny'", "'ÿ€'", "'m'",
    "'l'", "x'00ff'", "x'01'", "x'0102'", "x'0102030405'", "'bé'", "'x,y z'",
)  # fmt: skip


def _hidden(connector: Connector, db: Any, name: str, columns: str, *statements: str) -> dict[str, Any]:
    """Rows of a table that comes into sight under another structure than it has when capture comes, and goes on under a third
    name; gives what was captured of them."""
    db.sql("CREATE TABLE away (id INT PRIMARY KEY)", "CREATE TABLE t_other (id INT PRIMARY KEY)")
    connector.capture()
    db.sql(
        f"ALTER TABLE away {columns}", "RENAME TABLE away TO t_seen", *statements, f"RENAME TABLE t_seen TO {name}",
        f"ALTER TABLE {name} ADD late INT",
    )  # fmt: skip
    connector.capture()
    manifests = list(connector.changelog.manifests("test"))
    left = [record for manifest in manifests for record in manifest.left_out]
    events: dict[str, int] = {}
    for manifest in manifests:
        for file in manifest.files:
            for op, n in file.counts.items():
                if op in "cud":
                    events[op] = events.get(op, 0) + n
    ddl = [record.ddl for manifest in manifests for record in manifest.schema_changes if not record.snapshot]
    return {"left": left, "events": events, "ddl": [text for text in ddl if text]}


@pytest.mark.parametrize("kind", ["mariadb", "mysql97"])
def test_the_log_tells_the_structure_of_rows(request: pytest.FixtureRequest, tmp_path: Path, kind: str) -> None:
    server = request.getfixturevalue(kind)
    columns = ", ".join(f"ADD c{i} {type_}" for i, type_ in enumerate(TYPES))
    insert = f"INSERT INTO t_seen VALUES (1, {', '.join(VALUES)})"
    nulls = f"INSERT INTO t_seen VALUES (2, {', '.join(['NULL'] * len(VALUES))})"
    with server.database() as db:
        listed = {"table_include_list": rf"{db.name}\.t_.*"}
        connector = mysql_connector(server, tmp_path, "mariadb" if kind == "mariadb" else "mysql", **listed)
        found = _hidden(connector, db, "t_then", columns, insert, nulls, "UPDATE t_seen SET c0 = 5 WHERE id = 2")
        assert (found["left"], found["events"]) == ([], {"c": 2, "u": 1})
        assert [text.split()[0] for text in found["ddl"]] == ["RENAME", "RENAME", "ALTER"]
        images = {row["after"]["id"]: row["after"] for row in _events(connector) if row["op"] in "cu"}
        read = [{n: v for n, v in row.items() if n != "late"} for row in connector.rows(f"{db.name}.t_then")]
        assert read == [images[1], images[2]]
        seen = [
            s
            for m in connector.changelog.manifests("test")
            for t, of in m.schemas.items()
            if "t_seen" in t
            for s in of.values()
        ]
        then = connector.discovered(f"{db.name}.t_then")
        told = {c.name: (c.type, c.nullable) for c in seen[-1].columns}
        assert told == {c.name: (c.type, c.nullable) for c in then.columns if c.name != "late"}


def _events(connector: Connector) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    for manifest in connector.changelog.manifests("test"):
        for file in manifest.files:
            rows += pq.read_table(connector.changelog.storage.path("test", file.path)).to_pylist()
    return sorted(rows, key=lambda row: row["seq"])


def test_what_the_log_leaves_open_is_left_out_and_told(mariadb: Any, tmp_path: Path) -> None:
    """The log has a UUID as 16 bytes."""
    with mariadb.database() as db:
        connector = mysql_connector(mariadb, tmp_path, table_include_list=rf"{db.name}\.t_.*")
        rows = "INSERT INTO t_seen VALUES (1, UUID()), (2, UUID())"
        found = _hidden(
            connector, db, "t_then", "ADD u UUID", rows, "DELETE FROM t_seen WHERE id = 1", "ALTER TABLE t_seen DROP u"
        )
        (left,) = found["left"]
        assert (left.table, left.events, found["events"]) == (f"{db.name}.t_seen", 3, {})
        assert "whether column u is binary or uuid or inet6" in left.reason
        assert left.start["pos"] < left.end["pos"]
        assert connector.rows(f"{db.name}.t_then") == source_rows(mariadb, db.name, "t_then")
