"""Comments of tables and columns, which the catalog has (``include.schema.comments``)."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import Any

from dev.servers.db2 import Db2
from tests.sources.db2_adapter import Db2Adapter
from tests.support.change_log.rendered import capture_records
from tests.support.connectors import Connector
from tests.support.signals import signal_state, snapshot


def _comments(connector: Connector) -> list[tuple[str | None, dict[str, str | None]]]:
    """Read the comments in the schema changes of one run: those of the table and of its columns."""
    changes: list[Any] = [r["value"]["tableChanges"] for r in capture_records(connector) if "ddl" in r["value"]]
    tables = [change["table"] for listed in changes for change in listed]
    return [(t["comment"], {c["name"]: c["comment"] for c in t["columns"]}) for t in tables]


def test_comments_of_the_catalog_are_in_schema_changes(db2: Db2, tmp_path: Path) -> None:
    with ExitStack() as stack:
        db = Db2Adapter(db2, stack)
        db._create("T", {"ID": "INTEGER", "V": "VARCHAR(9)"}, ("ID",))
        db.sql(f"COMMENT ON TABLE {db.name('T')} IS 'it''s one'", f"COMMENT ON COLUMN {db.name('T')}.V IS 'a value'")
        without = db.connector(tmp_path / "without")
        assert _comments(without) == [(None, {"ID": None, "V": None})]
        connector = db.connector(tmp_path, include_schema_comments="true")
        assert _comments(connector) == [("it's one", {"ID": None, "V": "a value"})]
        db.sql(f"COMMENT ON {db.name('T')} (ID IS 'the key', V IS '')")
        db.server.transaction(f"INSERT INTO {db.name('T')} VALUES (1, 'a')")
        db.server.catch_up()
        assert _comments(connector) == [("it's one", {"ID": "the key", "V": None})]
        db.sql(f"COMMENT ON TABLE {db.name('T')} IS 'another'")
        number = snapshot(connector, f"{db.namespace}.T")
        assert _comments(connector) == []  # chunks are read although a comment is another one
        assert signal_state(connector, number) == ("done", "")
        snapshot(connector, f"{db.namespace}.T", type="blocking")
        assert _comments(connector) == [("another", {"ID": "the key", "V": None})]
