"""Tables on a change log whose first batches were removed: each is what the source is, or says that it cannot be and what to do. None is ever a part of it."""

from __future__ import annotations

import logging
import random
import re
from typing import Any

import pytest

from airflow_provider_cdc.changelog.files.truncation_marker import TruncationMarker
from airflow_provider_cdc.changelog.reports.apply_report_store import ApplyReports
from airflow_provider_cdc.core.config.target_table_rules import TableRules
from airflow_provider_cdc.targets.lake.formats import load_format
from airflow_provider_cdc.targets.lake.formats.memory_table import STORED
from tests.support.signals import snapshot
from tests.targets.lake.lake import Lake
from tests.targets.lake.trimmed import (
    NAMES,
    create,
    database,
    equal,
    fill_tables,
    list_failures,
    other_target,
    put_rows,
    read_again,
    trim,
)

pytestmark = pytest.mark.spark


def test_a_target_is_known_before_anything_is_read_for_it(memory: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    create(memory, "a")
    put_rows(memory, "a", 1)
    reports = ApplyReports(memory.connector.changelog.storage, "test")

    def read_failing(*_: Any, **__: Any) -> Any:
        found = reports.read(memory.kind, memory.location)
        assert found is not None
        assert (found["last_batch"], found["table_states"]) == (0, {})
        raise RuntimeError("nothing can be read")

    changelog = memory.connector.changelog
    with monkeypatch.context() as patch:
        for name in (
            "find_first_batch", "read_truncation_marker", "find_manifest", "read_manifests", "has_batch", "list_batches", "find_last_batch",
        ):  # fmt: skip
            patch.setattr(type(changelog), name, read_failing)
        with pytest.raises(RuntimeError, match="nothing can be read"):
            memory.apply()
    assert trim(memory).removed_batches == 0
    memory.apply()
    equal(memory, "a")


def test_a_new_target_has_what_began_later_and_says_what_it_cannot_have(memory: Lake) -> None:
    fill_tables(memory)
    other = other_target(memory)
    failed = list_failures(other)
    assert failed.keys() == {"p.s.a", "p.s.b"}
    for name in ("a", "b"):
        assert f"The table of p.s.{name} cannot be built: batches of the change log before" in failed[f"p.s.{name}"]
        assert "for longer than changelog.retention.ms=0" in failed[f"p.s.{name}"]
        assert f"airflow cdc snapshot test s.{name} --replace" in failed[f"p.s.{name}"]
        assert not other.target(f"s.{name}").exists()
    equal(other, "c")
    assert list_failures(other).keys() == {"p.s.a", "p.s.b"}  # nor by trying again
    read_again(memory, "a")
    put_rows(memory, "a", 5)
    assert list_failures(other).keys() == {"p.s.b"}
    equal(other, "a", "c")
    read_again(memory, "b")
    other.apply()
    equal(other, *NAMES)
    memory.apply()
    equal(memory, *NAMES)


def test_what_a_target_needs_to_begin_with_is_not_removed_before_it_has_it(memory: Lake) -> None:
    fill_tables(memory)
    other = other_target(memory)
    list_failures(other)
    read_again(memory, "a", "b")
    put_rows(memory, "a", 6)
    memory.apply()
    assert trim(memory).removed_batches == 0
    other.apply()
    equal(other, *NAMES)
    assert trim(memory).removed_batches > 0


def test_a_table_that_is_lost_is_built_again_from_where_it_was_emptied(memory: Lake) -> None:
    fill_tables(memory)
    STORED.pop(memory.path("s.a"))
    STORED.pop(memory.path("s.c"))
    failed = list_failures(memory)
    assert failed.keys() == {"p.s.a"}
    equal(memory, "c")
    database(memory).truncate_table("s.a")
    put_rows(memory, "a", 7, 8)
    memory.apply()
    assert [row["id"] for row in memory.rows("s.a")] == [7, 8]
    equal(memory, *NAMES)


def test_changes_go_on_while_all_rows_are_read_again(memory: Lake) -> None:
    memory.connector.properties |= {"incremental.snapshot.chunk.size": 3, "batch.max.rows": 5}
    create(memory, "a")
    put_rows(memory, "a", *range(1, 30))
    memory.apply()
    put_rows(memory, "a", 100)
    memory.apply()
    trim(memory)
    db, changes = database(memory), random.Random(4)
    snapshot(memory.connector, "s.a", replace=True)
    with db.transaction() as t:
        t.update("s.a", {"id": 3}, {"n": -3})
        t.delete("s.a", {"id": 4})
    read, number = type(db).copy_rows, 0

    def read_changed(self: Any, table: str) -> Any:
        nonlocal number
        found = read(self, table)
        number += 1
        if number < 12:
            with self.transaction() as t:
                t.insert("s.a", {"id": 1000 + number, "n": 1, "region": "us"})
                t.update("s.a", {"id": changes.choice([5, 9, 20])}, {"n": number})
        return found

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(db), "copy_rows", read_changed)
        memory.connector.capture()
    memory.connector.capture()
    other = other_target(memory)
    other.apply()
    memory.apply()
    equal(other, "a")
    equal(memory, "a")


def test_rows_that_were_read_again_on_a_condition_are_nothing_to_begin_with(memory: Lake) -> None:
    fill_tables(memory)
    condition = [{"data-collection": "s.a", "filter": "n > 2"}]
    snapshot(memory.connector, "s.a", additional_conditions=condition)
    memory.connector.capture()
    snapshot(memory.connector, "s.b", id_="whole")  # and these are not emptied: a row that is gone would stay
    memory.connector.capture()
    assert list_failures(other_target(memory)).keys() == {"p.s.a", "p.s.b"}


def test_a_table_of_a_backup_says_that_it_cannot_go_on(memory: Lake) -> None:
    create(memory, "a", "b")
    put_rows(memory, "b", 1)
    put_rows(memory, "a", 1)
    memory.apply()
    backup = {name: STORED[memory.path(f"s.{name}")] for name in ("a", "b")}
    put_rows(memory, "a", 2)
    put_rows(memory, "a", 3)
    memory.apply()
    trim(memory)
    STORED.update({memory.path(f"s.{name}"): stored for name, stored in backup.items()})
    failed = list_failures(memory)
    assert failed.keys() == {"p.s.a"}  # of s.b nothing is gone that the backup lacks
    assert (
        "The table of p.s.a is at batch 2 and cannot be continued: batches of the change log before 4"
        in failed["p.s.a"]
    )
    assert (
        "move the table away, and run the apply again, but first run `airflow cdc snapshot test s.a --replace"
        in failed["p.s.a"]
    )
    read_again(memory, "a")
    failed = list_failures(memory)
    assert re.search(r"to rebuild it from batch \d+ on", failed["p.s.a"])
    del STORED[memory.path("s.a")]
    memory.apply()
    equal(memory, "a", "b")


@pytest.mark.parametrize("forget", [True, False])
def test_a_target_whose_report_is_lost_or_of_other_rules_finds_its_tables_again(memory: Lake, *, forget: bool) -> None:
    """Quiet tables, too, of which the log that is left has nothing."""
    fill_tables(memory)
    if forget:
        ApplyReports(memory.connector.changelog.storage, "test").delete_report(memory.kind, memory.location)
    else:
        memory.tables = TableRules.parse([{"tables": r"s\.other", "mode": "log"}])
    put_rows(memory, "c", 2)
    memory.apply()
    equal(memory, *NAMES)
    assert memory.reports[-1].failed == {}


def test_tables_that_the_source_has_dropped_or_renamed_are_not_missed(memory: Lake) -> None:
    create(memory, *NAMES, "kept")
    for name in (*NAMES, "kept"):
        put_rows(memory, name, 1)
    db = database(memory)
    db.drop_table("s.a")
    memory.connector.capture()
    put_rows(memory, "kept", 2)
    memory.apply()
    trim(memory)
    db.drop_table("s.b")
    memory.connector.capture()
    read_again(memory, "kept", "c")
    other = other_target(memory)
    other.apply()
    equal(other, "c", "kept")
    assert not other.target("s.a").exists()
    assert not other.target("s.b").exists()


def test_a_table_made_by_a_rename_is_built_and_the_name_that_it_gave_up_is_not_missed(memory: Lake) -> None:
    create(memory, "a", "b")
    put_rows(memory, "a", 1)
    put_rows(memory, "b", 1)
    put_rows(memory, "b", 2)
    memory.apply()
    trim(memory)
    database(memory).rename_tables(("s.a", "s.z"))
    put_rows(memory, "z", 2)
    read_again(memory, "b")
    other = other_target(memory)
    other.apply()
    equal(other, "b", "z")
    assert not other.target("s.a").exists()


@pytest.mark.parametrize("mode", ["log", "history", "soft_delete"])
def test_a_mode_that_keeps_what_was_says_where_it_begins(
    memory: Lake, caplog: pytest.LogCaptureFixture, mode: str
) -> None:
    fill_tables(memory)
    read_again(memory, "a", "b")
    other = other_target(memory, tables=TableRules.parse([{"tables": r"s\.a", "mode": mode}]))
    with caplog.at_level(logging.WARNING):
        other.apply()
    messages = [r.getMessage() for r in caplog.records if "earlier states of its rows are lost" in r.getMessage()]
    assert len(messages) == 1
    assert messages[0].startswith(f"The table of p.s.a (mode {mode}) starts with batch")
    assert {row["id"] for row in other.rows("s.a", "id")} == {1, 2, 3, 4} | ({None} if mode == "log" else set())
    equal(other, "b", "c")


def test_a_table_that_several_share_gets_the_rows_of_each_or_names_it(memory: Lake) -> None:
    rule = {"tables": r"s\.[ab]", "location": f"{memory.folder}/all", "shard": {"of": "{table}"}}
    memory.tables = TableRules.parse([rule])
    fill_tables(memory)
    other = other_target(memory, tables=TableRules.parse([{**rule, "location": f"{memory.folder}/others"}]))
    read_again(memory, "a")
    assert list_failures(other).keys() == {"p.s.b"}
    read_again(memory, "b")
    other.apply()
    memory.apply()
    for location in ("all", "others"):
        rows = load_format("memory").open_target(memory.spark, f"{memory.folder}/{location}").read_rows().collect()
        assert sorted((row["of"], row["id"]) for row in rows) == [("a", 1), ("a", 2), ("a", 3), ("a", 4), ("b", 1)]


# no one knows what is gone


def _remove_batches(lake: Lake, batches: int) -> None:
    """Remove the first batches as a rule of the store does."""
    changelog = lake.connector.changelog
    for number in range(1, batches + 1):
        changelog.storage.delete(changelog.path_of("test", number))
        changelog.storage.delete_folder(changelog.storage.join_path("test", "data", f"{number:012d}"))


def test_tables_go_on_and_new_ones_begin_after_a_rule_of_the_store_has_removed_batches(memory: Lake) -> None:
    create(memory, "a")
    put_rows(memory, "a", 1)
    put_rows(memory, "a", 2)
    memory.apply()
    _remove_batches(memory, 1)
    assert memory.connector.changelog.read_truncation_marker("test") == TruncationMarker(2)
    create(memory, "c")
    put_rows(memory, "c", 1)
    put_rows(memory, "a", 3)
    memory.apply()
    equal(memory, "a", "c")
    failed = list_failures(other_target(memory))
    assert failed.keys() == {"p.s.a", "p.s.c"}
    assert "by a lifecycle rule of the store or by a person" in failed["p.s.c"]
    assert "it is not known whether any of them contained changes of the table" in failed["p.s.c"]
