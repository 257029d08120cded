"""The story of a row continues under the key columns that its table had before."""

from __future__ import annotations

from pathlib import Path

import pytest

from airflow_provider_cdc.changelog.row_history.row_history_models import RowHistory
from airflow_provider_cdc.changelog.row_history.row_key import RowKey
from airflow_provider_cdc.core.model.table_schema import TableChange, TableId
from airflow_provider_cdc.sources.memory.database import MemoryDatabase
from tests.support.change_log.row_stories import stories
from tests.support.connectors import Connector, memory_connector

TABLE = "s.t"


class Database(MemoryDatabase):
    """With the one statement that its parent leaves out."""

    def change_key(self, *key: str) -> None:
        with self.lock:
            id_, schema = next((t, s) for t, s in self._schemas.items() if str(t) == TABLE)
            schema = schema.model_copy(update={"key": key})
            self._alter(schema, TableChange(type="ALTER", id=id_, table=schema), f"PRIMARY KEY {key}")

    def change(self, id_: int, **values: object) -> None:
        with self.transaction() as t:
            t.update(TABLE, {"id": id_}, values)


@pytest.fixture
def database_and_connector(tmp_path: Path) -> tuple[Database, Connector]:
    db = Database(f"keys-{tmp_path}")
    columns = {"id": "int64!", "region": "string!", "code": "string!", "at": "timestamp[us, tz=UTC]", "note": "string"}
    db.create_table(TABLE, columns, key=("id",))
    with db.transaction() as t:
        for i in range(1, 4):
            t.insert(TABLE, {"id": i, "region": "eu", "code": f"c{i}", "at": None, "note": "one"})
    connector = memory_connector(db, tmp_path)
    connector.capture()
    db.change(1, note="two")
    return db, connector


def _read_row_history(connector: Connector, **key: object) -> RowHistory:
    return stories(connector).read_history(TableId(namespace="s", name="t"), RowKey(key))


def _operations(story: RowHistory) -> list[tuple[str, object]]:
    return [(c.operation, (c.after or {}).get("note")) for c in story.changes if c.operation != "schema change"]


def test_columns_come_to_the_key(database_and_connector: tuple[Database, Connector]) -> None:
    db, connector = database_and_connector
    db.change_key("id", "region")
    db.change(1, note="three")
    connector.capture()
    assert _operations(_read_row_history(connector, id=1, region="eu")) == [
        ("update", "three"),
        ("update", "two"),
        ("read", "one"),
    ]
    assert _operations(_read_row_history(connector, id=2, region="eu")) == [("read", "one")], "nothing since"
    assert _operations(_read_row_history(connector, id=1, region="us")) == [], "it is another row that had id 1"
    with db.transaction() as t:
        t.insert(TABLE, {"id": 1, "region": "us", "code": "c9", "at": None, "note": "new"})
    connector.capture()
    assert _operations(_read_row_history(connector, id=1, region="us")) == [("create", "new")]


def test_the_key_becomes_another_column_which_is_renamed(database_and_connector: tuple[Database, Connector]) -> None:
    db, connector = database_and_connector
    db.change_key("code")
    db.rename_column(TABLE, "code", "number")
    db.change(1, note="three")
    connector.capture()
    assert _operations(_read_row_history(connector, number="c1")) == [
        ("update", "three"),
        ("update", "two"),
        ("read", "one"),
    ]
    silent = _read_row_history(connector, number="c2")
    assert silent.changes == []
    assert any("earlier key of s.t was id" in note for note in silent.notes), silent.notes
    db.change(2, note="late")
    connector.capture()
    assert _operations(_read_row_history(connector, number="c2")) == [("update", "late"), ("read", "one")]


def test_a_key_change_before_the_key_had_other_columns(database_and_connector: tuple[Database, Connector]) -> None:
    db, connector = database_and_connector
    db.change(1, id=10)
    db.change_key("id", "region", "code")
    db.change(10, note="three")
    db.change_key("code", "region")
    db.change(10, note="four")
    connector.capture()
    found = _operations(_read_row_history(connector, code="c1", region="eu"))
    assert found == [("update", "four"), ("update", "three"), ("key change", "two"), ("update", "two"), ("read", "one")]


def test_message_key_columns_are_changed(database_and_connector: tuple[Database, Connector]) -> None:
    db, connector = database_and_connector
    connector.capture()
    connector.properties = {**connector.properties, "message.key.columns": r"s\.t:region,id"}
    db.change(1, note="three")
    connector.capture()
    assert _operations(_read_row_history(connector, id=1, region="eu")) == [
        ("update", "three"),
        ("update", "two"),
        ("read", "one"),
    ]
