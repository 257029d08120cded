"""Snapshot modes on the memory source: the tables that a run reads whole."""

from __future__ import annotations

from pathlib import Path

import pytest

from airflow_provider_cdc.core.errors import PositionLost, PrerequisiteError
from airflow_provider_cdc.sources.memory.database import MemoryDatabase
from tests.support.connectors import memory_connector
from tests.support.workloads.small_tables import equal, insert, operations

# snapshot.mode


@pytest.mark.parametrize("mode", [None, "initial", "when_needed"])
def test_initial_reads_tables_once_then_streams(db: MemoryDatabase, tmp_path: Path, mode: str | None) -> None:
    """Reads the tables first, as it does where no mode is set."""
    connector = memory_connector(db, tmp_path, **({} if mode is None else {"snapshot_mode": mode}))
    connector.capture()
    insert(db, "shop.a", 3)
    assert operations(connector, connector.capture()) == {"a": {"c": 1}}
    equal(connector, db)


def test_always_reads_tables_in_every_run_over_what_was_there(db: MemoryDatabase, tmp_path: Path) -> None:
    connector = memory_connector(db, tmp_path, snapshot_mode="always")
    assert operations(connector, connector.capture()) == {"a": {"r": 2}, "b": {"r": 2}}
    insert(db, "shop.a", 3)
    assert operations(connector, connector.capture()) == {"a": {"t": 1, "r": 3}, "b": {"t": 1, "r": 2}}
    equal(connector, db)


def test_initial_only_ends_after_the_snapshot_and_captures_nothing_more(db: MemoryDatabase, tmp_path: Path) -> None:
    connector = memory_connector(db, tmp_path, snapshot_mode="initial_only")
    assert connector.capture().events == 4
    insert(db, "shop.a", 3)
    assert connector.capture().events == 0
    # it can go on as another mode, without a gap
    assert operations(connector, connector.capture({"snapshot.mode": "initial"})) == {"a": {"c": 1}}
    equal(connector, db)


def test_no_data_knows_the_structures_and_streams_from_now(db: MemoryDatabase, tmp_path: Path) -> None:
    connector = memory_connector(db, tmp_path, snapshot_mode="no_data")
    assert connector.capture().events == 0
    assert [r.changes[0].type for r in connector.store.schema_history("test")] == ["CREATE", "CREATE"]
    insert(db, "shop.a", 3)
    assert operations(connector, connector.capture()) == {"a": {"c": 1}}


def test_never_streams_from_the_oldest_place_of_the_log(db: MemoryDatabase, tmp_path: Path) -> None:
    connector = memory_connector(db, tmp_path, snapshot_mode="never")
    assert operations(connector, connector.capture()) == {"a": {"c": 2}, "b": {"c": 2}}
    equal(connector, db)


def test_never_looks_a_structure_up_when_the_log_does_not_have_it(db: MemoryDatabase, tmp_path: Path) -> None:
    db.purge_log()
    insert(db, "shop.a", 3)
    connector = memory_connector(db, tmp_path, snapshot_mode="never")
    assert operations(connector, connector.capture()) == {"a": {"c": 1}}
    assert connector.rows("shop.a") == [{"id": 3, "n": 3, "note": None}]


def test_a_lost_position_is_an_error_that_says_what_is_missing(db: MemoryDatabase, tmp_path: Path) -> None:
    connector = memory_connector(db, tmp_path)
    connector.capture()
    insert(db, "shop.a", 3)
    db.purge_log()
    before = connector.store.load_offset("test")
    for _ in range(2):
        with pytest.raises(PositionLost) as caught:
            connector.capture()
        assert "entries 5 to 5" in str(caught.value)
        assert caught.value.where == "entry 4"
        assert caught.value.remedy
    assert connector.store.load_offset("test") == before
    assert connector.changelog.list_batches("test") == [1]


def test_with_when_needed_a_lost_position_reads_all_tables_again(db: MemoryDatabase, tmp_path: Path) -> None:
    connector = memory_connector(db, tmp_path, snapshot_mode="when_needed")
    connector.capture()
    with db.transaction() as t:
        t.delete("shop.a", {"id": 1})
    db.purge_log()
    assert operations(connector, connector.capture()) == {"a": {"t": 1, "r": 1}, "b": {"t": 1, "r": 2}}
    equal(connector, db)
    insert(db, "shop.a", 9)
    assert operations(connector, connector.capture()) == {"a": {"c": 1}}


def test_recovery_takes_the_present_structures_and_reads_no_row(db: MemoryDatabase, tmp_path: Path) -> None:
    connector = memory_connector(db, tmp_path)
    connector.capture()
    insert(db, "shop.a", 3)
    assert operations(connector, connector.capture({"snapshot.mode": "recovery"})) == {"a": {"c": 1}}
    equal(connector, db)


def test_a_database_without_a_captured_table_is_an_error_that_names_the_lists(
    db: MemoryDatabase, tmp_path: Path
) -> None:
    connector = memory_connector(db, tmp_path, table_include_list="shop.typo")
    with pytest.raises(PrerequisiteError, match="match no table") as caught:
        connector.capture()
    assert "shop.typo" in (caught.value.where or "")
    assert connector.store.load_offset("test").offset is None


# lists


def test_recovery_reads_tables_that_the_lists_have_added(db: MemoryDatabase, tmp_path: Path) -> None:
    connector = memory_connector(db, tmp_path, table_include_list="shop.a")
    connector.capture()
    insert(db, "shop.a", 3)
    connector.properties["table.include.list"] = "shop.a,shop.b"
    result = connector.capture({"snapshot.mode": "recovery"})
    assert operations(connector, result) == {"a": {"c": 1}, "b": {"r": 2}}
    equal(connector, db)


def test_without_rows_a_list_that_lets_in_more_is_reported_with_the_command_that_reads_them(
    db: MemoryDatabase, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    db.create_table("shop.bag", {"n": "int32"})
    connector = memory_connector(db, tmp_path, snapshot_mode="no_data", table_include_list="shop.a")
    connector.capture()
    connector.properties["table.include.list"] = "shop.*"
    connector.capture()
    (message,) = [m for m in caplog.messages if "may be missing or outdated" in m]
    assert message.startswith("Rows of shop.b, shop.bag may be missing")
    assert r"airflow cdc snapshot test shop.b --replace; airflow cdc snapshot test shop.bag --type blocking" in message
    caplog.clear()
    connector.capture()
    assert "may be missing" not in caplog.text


def test_a_narrower_list_is_no_reason_to_say_or_read_anything(
    db: MemoryDatabase, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    connector = memory_connector(db, tmp_path)
    connector.capture()
    connector.properties |= {
        "column.exclude.list": r"shop\.a\.name",
        "skipped.operations": "d",
        "table.exclude.list": "shop.b",
    }
    assert connector.capture().events == 0
    assert "may be missing" not in caplog.text
