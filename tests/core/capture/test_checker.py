"""The checker objects to what cannot have happened, and to nothing else."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import pytest

from airflow_provider_cdc.core.model.table_schema import Column, TableId, TableSchema
from airflow_provider_cdc.sources.memory.database import MemoryDatabase
from tests.support.change_log.incremental_checker import Checker, check
from tests.support.change_log.replay import IllegalEvent
from tests.support.connectors import memory_connector
from tests.support.workloads.memory_work import KEYLESS, Workload

SHOP = TableSchema(
    id=TableId(namespace="shop", name="t"),
    columns=(
        Column(name="id", type="int64", nullable=False),
        Column(name="v", type="string"),
        Column(name="w", type="string"),
    ),
    key=("id",),
)
TOPIC = "p.shop.t"


def row(id_: int, v: str | None, w: str | None = None) -> dict[str, Any]:
    return {"id": id_, "v": v, "w": w}


def event(
    op: str, before: dict[str, Any] | None = None, after: dict[str, Any] | None = None, **more: Any
) -> dict[str, Any]:
    image = after or before or {}
    base = {
        "topic": TOPIC, "op": op, "key": {"id": image.get("id")}, "before": before, "after": after, "unavailable": None,
        "unavailable_before": None, "previous_key": None, "source": {"snapshot": "false"},
    }  # fmt: skip
    return base | more


def create(after: dict[str, Any], **more: Any) -> dict[str, Any]:
    return event("c", None, after, **more)


def update(before: dict[str, Any] | None, after: dict[str, Any], **more: Any) -> dict[str, Any]:
    return event("u", before, after, **more)


def delete(before: dict[str, Any], **more: Any) -> dict[str, Any]:
    return event("d", before, **more)


def read(after: dict[str, Any], snapshot: str = "incremental", **more: Any) -> dict[str, Any]:
    return event("r", None, after, source={"snapshot": snapshot}, **more)


def truncate() -> dict[str, Any]:
    return event("t", key=None)


def check_events(*events: dict[str, Any], **options: Any) -> Checker:
    checker = Checker(**options)
    for seq, found in enumerate(events, 1):
        checker.event(found | {"seq": seq}, SHOP)
    return checker


A, B, C = row(1, "a"), row(1, "b"), row(1, "c")

LEGAL = {
    "a row from its beginning to its end": [create(A), update(A, B), delete(B), create(C)],
    "a read of a key of which nothing is known": [read(A)],
    "a read, then its changes": [read(A), update(A, B), delete(B)],
    "a read of what is in force": [create(A), update(A, B), read(B)],
    "a read again": [read(A), read(A)],
    "changes of a key that was never captured": [update(A, B), delete(B)],
    "a delete of a key that was never captured, and its next life": [delete(A), create(B), read(B)],
    "an update without before": [read(A), update(None, B), read(B)],
    "a table that was emptied": [read(A), create(row(2, "x")), truncate(), create(B), read(B)],
    "a blocking snapshot after a truncate": [create(A), truncate(), read(B, "true"), update(B, C)],
    "values that are left out": [
        read(row(1, "a", "w")),
        update(row(1, "a"), row(1, "b"), unavailable=["w"], unavailable_before=["w"]),
        read(row(1, "b", "w")),
        delete(row(1, "b", "w")),
    ],
    "a read that tells what was left out": [
        update(None, row(1, "b"), unavailable=["w"]),
        read(row(1, None, "w"), unavailable=["v"]),
        delete(row(1, "b", "w")),
    ],
    "another key": [
        read(row(1, "a", "w")),
        delete(row(1, "a", "w")),
        create(row(2, "a"), unavailable=["w"], previous_key={"id": 1}),
        read(row(2, "a", "w")),
    ],
}


@pytest.mark.parametrize("events", LEGAL.values(), ids=LEGAL.keys())
def test_what_can_happen_is_legal(events: list[dict[str, Any]]) -> None:
    check_events(*events)


ILLEGAL = {
    "a stale read after an update": ([read(A), update(A, B), read(A)], "a stale read"),
    "a stale read after a create": ([create(B), read(A)], "a stale read"),
    "a stale read of a key that was never captured": ([update(A, B), read(A)], "a stale read"),
    "a stale value beside one that is left out": (
        [update(None, row(1, "b"), unavailable=["w"]), read(row(1, "a", "w"))],
        "a stale read",
    ),
    "two reads that differ": ([read(A), read(B)], "two reads that differ"),
    "a deleted row that comes back": ([read(A), delete(A), read(A)], "brings back a row"),
    "a row that was deleted and never captured comes back": ([delete(A), read(A)], "brings back a row"),
    "a row of before a truncate": ([read(A), truncate(), read(A)], "brings back a row"),
    "a row of before a truncate of which nothing was known": ([truncate(), read(A)], "brings back a row"),
    "a deleted row by a blocking snapshot": ([create(A), delete(A), read(A, "true")], "brings back a row"),
    "a skipped update": ([create(A), update(B, C)], "before is another row"),
    "a repeated update": ([create(A), update(A, B), update(A, B)], "before is another row"),
    "a skipped update before a delete": ([read(A), delete(B)], "before is another row"),
    "a create of a row that is there": ([create(A), create(A)], "a create of a row that is there"),
    "a create of a row that was read": ([read(A), create(A)], "a create of a row that is there"),
    "an update of a deleted row": ([create(A), delete(A), update(A, B)], "not there"),
    "a second delete": ([create(A), delete(A), delete(A)], "not there"),
    "a value that is said to be left out": ([read(row(1, "a", "w"), unavailable=["w"])], "leaves out"),
}


@pytest.mark.parametrize(("events", "why"), ILLEGAL.values(), ids=ILLEGAL.keys())
def test_what_cannot_happen_is_illegal_at_the_event_that_says_it(events: list[dict[str, Any]], why: str) -> None:
    if len(events) > 1:
        check_events(*events[:-1])
    with pytest.raises(IllegalEvent, match=why) as e:
        check_events(*events)
    assert f"seq {len(events)}" in str(e.value)
    assert TOPIC in str(e.value)


def test_the_text_says_what_was_in_force_and_what_the_event_says() -> None:
    with pytest.raises(IllegalEvent) as e:
        check_events(read(A), update(A, B), read(A))
    text = str(e.value)
    assert "p.shop.t (1,): r at seq 3" in text
    assert f"{B} (seq 2, u)" in text
    assert f"after {A}" in text


@pytest.mark.parametrize("events", [[update(A, B)], [delete(A)], [read(A)]])
def test_nothing_comes_unannounced_in_a_table_that_is_captured_from_its_beginning(events: list[dict[str, Any]]) -> None:
    with pytest.raises(IllegalEvent):
        check_events(*events, whole=[TOPIC])
    check_events(read(A, "true"), update(A, B), read(B), whole=[TOPIC])


def test_rows_that_are_read_after_the_connector_has_emptied_the_table_are_news() -> None:
    events = [create(A), delete(A), truncate(), read(A), update(A, B)]
    check_events(*events, replaced=[TOPIC])
    with pytest.raises(IllegalEvent, match="brings back"):
        check_events(*events)


def test_the_end_is_compared_with_the_table() -> None:
    checker = check_events(read(A), create(row(2, "x")), create(row(3, "y")), delete(row(3, "y")))
    checker.finish(TOPIC, [A, row(2, "x")])
    with pytest.raises(IllegalEvent, match=r"1 rows not in the log:\n.*\(3,\).*gone \(seq 4, d\)"):
        checker.finish(TOPIC, [A, row(2, "x"), row(3, "y")])
    with pytest.raises(IllegalEvent, match=r"1 rows in the log only:\n.*\(2,\)"):
        checker.finish(TOPIC, [A])
    with pytest.raises(IllegalEvent, match=r"1 rows otherwise in the log:\n.*'z'.*'x'.*seq 2"):
        checker.finish(TOPIC, [A, row(2, "z")])
    with pytest.raises(IllegalEvent, match="1 rows not in the log"):
        checker.finish("p.shop.other", [A], key=("id",))


def test_a_value_that_is_not_reported_is_not_that_of_the_table() -> None:
    checker = check_events(update(None, row(1, "b"), unavailable=["w"]))
    with pytest.raises(IllegalEvent, match="otherwise in the log"):
        checker.finish(TOPIC, [row(1, "b", None)])


def test_a_table_without_a_key_cannot_be_checked() -> None:
    with pytest.raises(IllegalEvent, match="no key"):
        Checker().event(create(A) | {"seq": 1}, SHOP.model_copy(update={"key": ()}))


def test_reads_are_counted() -> None:
    counts = check_events(read(A), read(A), create(row(2, "x")), read(row(3, "y"), "true")).counts
    assert (counts["read"], counts["repeated"], counts["c"], counts["r"]) == (2, 1, 1, 3)


@pytest.mark.parametrize("seed", range(2))
def test_a_change_log_is_walked_to_the_state_of_the_tables(tmp_path: Path, seed: int) -> None:
    r, database = Random(seed), MemoryDatabase(f"checker-{seed}")
    # of rows that move over each other, the strict replay of the random tests knows
    work = Workload(database, sparse=("note",) if seed % 2 else (), cross=False)
    connector = memory_connector(database, tmp_path, batch_max_rows=10)
    for _ in range(6):
        for _ in range(12):
            work.step(r)
        connector.capture()
    tables = [table for table in work.tables if not table.endswith(KEYLESS)]
    found = check(connector.changelog, connector.name, {f"test.{t}": database.copy_rows(t) for t in tables})
    assert min(found.counts[op] for op in "curdt") > 0
    assert found.seq == connector.replay.advance().seq
    with pytest.raises(IllegalEvent, match="not as the table is"):
        check(connector.changelog, connector.name, {f"test.{tables[0]}": [{"id": 10_000}]})


def test_a_hole_in_the_numbers_of_a_change_log_is_found(tmp_path: Path) -> None:
    database = MemoryDatabase("checker-hole")
    database.create_table("shop.t", {"id": "int64!", "v": "string"}, key=("id",))
    connector = memory_connector(database, tmp_path)
    for i in range(3):
        with database.transaction() as t:
            t.insert("shop.t", {"id": i, "v": "a"})
        connector.capture()
    assert check(connector.changelog, connector.name, {"test.shop.t": database.copy_rows("shop.t")}).seq > 3
    with pytest.raises(IllegalEvent, match=r"seq \d+ follows 0"):
        Checker().walk(connector.changelog, connector.name, after=1)
