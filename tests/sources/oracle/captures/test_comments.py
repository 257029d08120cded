"""Comments of tables and columns, of the dictionary and of the log (``include.schema.comments``)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from dev.servers.oracle import Oracle
from tests.sources.oracle_adapter import oracle_connector
from tests.support.change_log.rendered import capture_records
from tests.support.connectors import Connector

LOGGED = "ALTER TABLE T ADD SUPPLEMENTAL LOG DATA (ALL) COLUMNS"


@pytest.fixture
def connector(schema: Oracle, tmp_path: Path) -> Connector:
    schema.sql(
        "CREATE TABLE T (ID NUMBER(9) PRIMARY KEY, V VARCHAR2(9))", LOGGED, "INSERT INTO T VALUES (1, 'a')",
        "COMMENT ON TABLE T IS 'it''s one'", "COMMENT ON COLUMN T.V IS 'a value'",
    )  # fmt: skip
    return oracle_connector(schema, tmp_path, schema_include_list="APP")


def _comments(connector: Connector) -> list[tuple[str | None, dict[str, str | None]]]:
    """Read the comments in the schema changes of one run: those of the table and of its columns."""
    changes: list[Any] = [r["value"]["tableChanges"] for r in capture_records(connector) if "ddl" in r["value"]]
    tables = [change["table"] for listed in changes for change in listed]
    return [(t["comment"], {c["name"]: c["comment"] for c in t["columns"]}) for t in tables]


def test_comments_are_in_schema_changes_of_snapshot_and_log(schema: Oracle, connector: Connector) -> None:
    connector.properties["include.schema.comments"] = "true"
    assert _comments(connector) == [("it's one", {"ID": None, "V": "a value"})]
    schema.sql("COMMENT ON TABLE T IS ''", "COMMENT ON COLUMN T.ID IS 'the key'", "INSERT INTO T VALUES (2, 'b')")
    assert _comments(connector) == [(None, {"ID": None, "V": "a value"}), (None, {"ID": "the key", "V": "a value"})]
    schema.sql("ALTER TABLE T RENAME COLUMN V TO W", "INSERT INTO T VALUES (3, 'c')")
    assert _comments(connector) == [(None, {"ID": "the key", "W": "a value"})]
    assert [row["W"] for row in connector.rows("APP.T")] == ["a", "b", "c"]
    manifest = [*connector.changelog.read_manifests(connector.name)][-1]
    captured = [schema for versions in manifest.schemas.values() for schema in versions.values()][-1]
    assert (captured.comment, captured.get_column("ID").declared.comment) == (None, "the key")


def test_comments_are_left_out_without_the_property(schema: Oracle, connector: Connector) -> None:
    assert _comments(connector) == [(None, {"ID": None, "V": None})]
    schema.sql("COMMENT ON TABLE T IS 'another'", "INSERT INTO T VALUES (2, 'b')")
    assert _comments(connector) == []
