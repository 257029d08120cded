"""Tables have the comments of the source, in the words in which people find them."""

from __future__ import annotations

import logging

import pytest

from airflow_provider_cdc.core.config.target_table_rules import TableRules
from tests.targets.lake.lake import Lake

pytestmark = pytest.mark.spark
ODD = 'it\'s \\ "quoted" `x` ${env:HOME}\nand 漢字'


def _orders(lake: Lake) -> None:
    lake.connector.database.create_table("a.orders", {"id": "int64", "note": "string"}, key=("id",))  # type: ignore[attr-defined]


def _insert(lake: Lake, *ids: int) -> None:
    with lake.connector.database.transaction() as t:  # type: ignore[attr-defined]
        for id_ in ids:
            t.insert("a.orders", {"id": id_, "note": "x"})


def _comments(lake: Lake) -> dict[str, str | None]:
    """Column → comment as ``DESCRIBE`` shows it; that of the table under an empty name."""
    shown = [row for row in lake.sql("DESCRIBE TABLE EXTENDED {}", "a.orders").collect() if row[0]]
    rows = {row[0]: row[2] for row in shown}
    found = {name: rows[name] for name in lake.target("a.orders").read_column_types()}
    if lake.kind == "delta":
        return {**found, "": lake.sql("DESCRIBE DETAIL {}", "a.orders").collect()[0]["description"]}
    return {**found, "": next((row[1] for row in shown if row[0] == "Comment"), None)}


@pytest.mark.every_kind
def test_comments_of_the_source_are_those_of_the_table(lake: Lake) -> None:
    _orders(lake)
    lake.connector.database.comment("a.orders", "all orders", id="the number")  # type: ignore[attr-defined]
    _insert(lake, 1)
    lake.follow()
    assert _comments(lake) == {"id": "the number", "note": None, "": "all orders"}
    before = lake.version("a.orders")
    _insert(lake, 2)
    lake.follow()
    assert lake.version("a.orders") == before + 1, "what is there is not written again"
    lake.connector.database.comment("a.orders", ODD, note=ODD)  # type: ignore[attr-defined]
    lake.connector.database.add_column("a.orders", "more", "int32")  # type: ignore[attr-defined]
    _insert(lake, 3)
    lake.follow()
    assert _comments(lake) == {"id": "the number", "note": ODD, "more": None, "": ODD}
    lake.check()


def test_what_people_say_of_columns_without_a_comment_stays(lake: Lake) -> None:
    _orders(lake)
    _insert(lake, 1)
    lake.follow()
    lake.sql("ALTER TABLE {} ALTER COLUMN note COMMENT 'ours'", "a.orders")
    lake.connector.database.comment("a.orders", "", id="the number")  # type: ignore[attr-defined]
    _insert(lake, 2)
    lake.follow()
    found = _comments(lake)
    assert (found["id"], found["note"]) == ("the number", "ours")
    lake.check()


def test_a_comment_follows_its_column_to_the_name_that_a_rule_gives(lake: Lake) -> None:
    lake.tables = TableRules.parse([{"tables": ".*", "columns": {"rename": {"note": "remark"}, "drop": []}}])
    _orders(lake)
    lake.connector.database.comment("a.orders", "all", note="what people say")  # type: ignore[attr-defined]
    _insert(lake, 1)
    lake.follow()
    assert _comments(lake)["remark"] == "what people say"


def test_a_table_that_someone_else_has_just_changed_gets_its_comments_with_the_next_batch(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    from airflow_provider_cdc.targets.lake.formats.table_values import WriteConflict

    _orders(lake)
    lake.connector.database.comment("a.orders", "all")  # type: ignore[attr-defined]
    _insert(lake, 1)
    kind = type(lake.target("a.orders"))

    def raise_conflict(self: object, comments: object) -> None:
        raise WriteConflict("somebody else was faster")

    with monkeypatch.context() as patched, caplog.at_level(logging.INFO):
        patched.setattr(kind, "write_comments", raise_conflict)
        lake.follow()
    lake.check()
    _insert(lake, 2)
    lake.follow()
    assert _comments(lake)[""] == "all"
