"""Changes while a connector lives: of its filters, and of the structure of its tables."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from airflow_provider_cdc.core.capture import capture_run
from airflow_provider_cdc.core.errors import SchemaConflict
from airflow_provider_cdc.sources.memory.database import MemoryDatabase
from tests.support.connectors import Connector, memory_connector
from tests.support.workloads.small_tables import KEYED, equal, insert, operations

# filters that change


def test_a_table_added_to_the_include_list_is_read_and_then_streamed(db: MemoryDatabase, tmp_path: Path) -> None:
    connector = memory_connector(db, tmp_path, table_include_list="shop.a")
    connector.capture()
    insert(db, "shop.a", 3)
    insert(db, "shop.b", 3)
    connector.properties["table.include.list"] = "shop.a,shop.b"
    assert operations(connector, connector.capture()) == {"a": {"c": 1}, "b": {"r": 3}}
    equal(connector, db)
    insert(db, "shop.b", 4)
    assert operations(connector, connector.capture()) == {"b": {"c": 1}}
    equal(connector, db)


def test_a_table_that_comes_back_to_the_list_replaces_what_is_there(db: MemoryDatabase, tmp_path: Path) -> None:
    connector = memory_connector(db, tmp_path)
    connector.capture()
    connector.properties["table.exclude.list"] = "shop.b"
    with db.transaction() as t:
        t.delete("shop.b", {"id": 1})
    assert connector.capture().events == 0
    del connector.properties["table.exclude.list"]
    assert operations(connector, connector.capture()) == {"b": {"t": 1, "r": 1}}
    equal(connector, db)


def test_a_table_created_after_the_start_comes_from_the_log_alone(db: MemoryDatabase, tmp_path: Path) -> None:
    connector = memory_connector(db, tmp_path)
    connector.capture()
    db.create_table("shop.new", KEYED, key=("id",))
    insert(db, "shop.new", 1)
    assert operations(connector, connector.capture()) == {"new": {"c": 1}}
    equal(connector, db)


def test_with_never_an_added_table_is_not_read(db: MemoryDatabase, tmp_path: Path) -> None:
    connector = memory_connector(db, tmp_path, table_include_list="shop.a", snapshot_mode="never")
    connector.capture()
    connector.properties["table.include.list"] = "shop.a,shop.b"
    assert connector.capture().events == 0
    insert(db, "shop.b", 5)
    assert operations(connector, connector.capture()) == {"b": {"c": 1}}


def test_filters_that_change_before_a_snapshot_is_complete_lose_no_table(
    db: MemoryDatabase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    connector = memory_connector(db, tmp_path, table_include_list="shop.a,shop.b", batch_max_rows=1)
    _die_in_snapshot_of(monkeypatch, connector, "shop.b")
    db.create_table("shop.c", KEYED, key=("id",))
    insert(db, "shop.c", 1)
    connector.properties["table.include.list"] = "shop.*"
    connector.capture()
    equal(connector, db)


class _RunKilled(BaseException):
    pass


def _die_in_snapshot_of(monkeypatch: pytest.MonkeyPatch, connector: Connector, table: str) -> None:
    from airflow_provider_cdc.sources.memory import source as memory

    read = memory._MemorySnapshot.read

    def read_hooked(self: Any, chunk: Any) -> Any:
        if str(chunk.table) == table:
            raise _RunKilled
        yield from read(self, chunk)

    with monkeypatch.context() as patch:
        patch.setattr(memory._MemorySnapshot, "read", read_hooked)
        with pytest.raises(_RunKilled):
            connector.capture()


# statements that change rows without saying so


def test_a_rewriting_statement_reads_the_table_again(db: MemoryDatabase, tmp_path: Path) -> None:
    connector = memory_connector(db, tmp_path)
    connector.capture()
    insert(db, "shop.a", 3)
    db.change_column("shop.a", "n", "string", str)
    with db.transaction() as t:
        t.insert("shop.a", {"id": 4, "n": "four"})
        t.insert("shop.b", {"id": 4})
    result = connector.capture()
    assert operations(connector, result) == {"a": {"c": 2, "t": 1, "r": 4}, "b": {"c": 1}}
    equal(connector, db)


def test_what_empties_a_table_before_it_is_read_again_says_where_it_was_read(
    db: MemoryDatabase, tmp_path: Path
) -> None:
    connector = memory_connector(db, tmp_path)
    connector.capture()
    db.change_column("shop.a", "n", "string", str)
    result = connector.capture()
    events = [
        row
        for manifest in connector.changelog.read_manifests("test")
        for file in manifest.files
        if manifest.batch in result.batches
        for row in pq.read_table(connector.changelog.storage.join_path("test", file.path)).to_pylist()
    ]
    assert [(e["op"], e["source"]["entry"]) for e in events] == [("t", 5), ("r", 5), ("r", 5)]


def test_a_rewriting_statement_stops_every_run_if_configured(db: MemoryDatabase, tmp_path: Path) -> None:
    connector = memory_connector(db, tmp_path, schema_change_rewrite_mode="fail")
    connector.capture()
    insert(db, "shop.a", 3)
    db.change_column("shop.a", "n", "string", str)
    insert(db, "shop.b", 3)
    for _ in range(2):
        with pytest.raises(SchemaConflict, match=r"column n was changed from int32 to string") as caught:
            connector.capture()
        assert "MODIFY n string" in (caught.value.where or "")
        assert "schema.change.rewrite.mode=snapshot" in (caught.value.remedy or "")
    assert connector.rows("shop.a") == [{"id": i, "n": i, "note": None} for i in (1, 2, 3)]
    connector.properties["schema.change.rewrite.mode"] = "snapshot"
    connector.capture()
    equal(connector, db)


def test_a_rewriting_statement_is_skipped_if_configured_and_the_repair_command_is_reported(
    db: MemoryDatabase, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    connector = memory_connector(db, tmp_path, schema_change_rewrite_mode="ignore")
    connector.capture()
    db.change_column("shop.a", "n", "string", str)
    insert(db, "shop.b", 3)
    assert operations(connector, connector.capture()) == {"b": {"c": 1}}
    (message,) = (m for m in caplog.messages if "may be missing or outdated" in m)
    assert message.startswith("Rows of shop.a may be")
    assert "MODIFY n string" in message
    assert message.endswith("To snapshot them again: airflow cdc snapshot test shop.a --replace")


def test_statements_that_a_target_can_follow_read_nothing_again(db: MemoryDatabase, tmp_path: Path) -> None:
    connector = memory_connector(db, tmp_path)
    connector.capture()
    db.add_column("shop.a", "more", "int32", 7)
    db.add_column("shop.a", "empty", "string")
    db.change_column("shop.a", "n", "int64", int)
    db.drop_column("shop.a", "note")
    with db.transaction() as t:
        t.insert("shop.a", {"id": 9, "n": 2**40, "more": 1, "empty": ""})
    assert operations(connector, connector.capture()) == {"a": {"c": 1}}
    equal(connector, db)


def test_a_renamed_table_is_read_under_its_new_name(db: MemoryDatabase, tmp_path: Path) -> None:
    connector = memory_connector(db, tmp_path)
    connector.capture()
    db.rename_tables(("shop.a", "shop.c"))
    insert(db, "shop.c", 3)
    assert operations(connector, connector.capture())["c"]["r"] == 3
    equal(connector, db)


def test_tables_that_swap_their_names_have_their_rows_swapped(db: MemoryDatabase, tmp_path: Path) -> None:
    insert(db, "shop.b", 77)
    connector = memory_connector(db, tmp_path)
    connector.capture()
    db.rename_tables(("shop.a", "shop.b"), ("shop.b", "shop.a"))
    connector.capture()
    equal(connector, db)
    assert len(connector.rows("shop.a")) == 3


def test_a_table_created_again_begins_empty(db: MemoryDatabase, tmp_path: Path) -> None:
    connector = memory_connector(db, tmp_path)
    connector.capture()
    db.drop_table("shop.a")
    db.create_table("shop.a", {"id": "int64!", "other": "string"}, key=("id",))
    with db.transaction() as t:
        t.insert("shop.a", {"id": 1, "other": "x"})
    assert operations(connector, connector.capture()) == {"a": {"t": 1, "c": 1}}
    equal(connector, db)


def test_a_truncated_table_is_empty_and_a_skipped_truncate_is_not_seen(db: MemoryDatabase, tmp_path: Path) -> None:
    connector = memory_connector(db, tmp_path)
    skipping = memory_connector(db, tmp_path / "skipping", skipped_operations="t")
    for each in (connector, skipping):
        each.capture()
    db.truncate_table("shop.a")
    insert(db, "shop.a", 50)
    assert operations(connector, connector.capture()) == {"a": {"t": 1, "c": 1}}
    equal(connector, db)
    assert operations(skipping, skipping.capture()) == {"a": {"c": 1}}


@pytest.mark.parametrize("before", [False, True])
def test_a_table_created_with_rows_that_the_log_lacks_is_read(db: MemoryDatabase, tmp_path: Path, before: bool) -> None:
    connector = memory_connector(db, tmp_path)
    if before:
        db.create_table("shop.copy", KEYED, key=("id",))
        insert(db, "shop.copy", 7)
    connector.capture()
    if before:
        db.drop_table("shop.copy")
    db.create_table("shop.copy", KEYED, key=("id",), rows=[{"id": 1}, {"id": 2}])
    insert(db, "shop.copy", 3)
    found = operations(connector, connector.capture())
    assert found["copy"]["r"] == 3
    equal(connector, db)


def test_a_table_created_with_rows_that_the_log_lacks_stops_the_run_if_configured(
    db: MemoryDatabase, tmp_path: Path
) -> None:
    connector = memory_connector(db, tmp_path, schema_change_rewrite_mode="fail")
    connector.capture()
    db.create_table("shop.copy", KEYED, key=("id",), rows=[{"id": 1}])
    with pytest.raises(SchemaConflict, match="rows may have values that the log does not contain"):
        connector.capture()


# the base of the schema history


def test_a_start_reads_a_base_and_what_came_since(
    db: MemoryDatabase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(capture_run, "_COMPACTED", 2)
    connector = memory_connector(db, tmp_path)
    connector.capture()
    for n in range(5):
        db.create_table(f"shop.new{n}", KEYED, key=("id",))
        insert(db, f"shop.new{n}", 1)
        connector.capture()
        assert len(connector.store.load_schemas("test").changes) <= 3
    insert(db, "shop.new0", 2)
    insert(db, "shop.new4", 2)
    assert operations(connector, connector.capture()) == {"new0": {"c": 1}, "new4": {"c": 1}}
    assert len(list(connector.store.schema_history("test"))) >= 5
    equal(connector, db)
