"""The last event of each key, on arrays: compared with what replaying the events one by one gives."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from airflow_provider_cdc.changelog.reading.last_events import (
    EVENT_FACTS,
    LastEvents,
    arrow_schema,
    not_on_arrays,
    reduce_to_last_events,
)
from airflow_provider_cdc.changelog.reading.pending_batches import PendingBatches, collect_topics
from airflow_provider_cdc.core.errors import ChangeLogDamaged
from airflow_provider_cdc.sources.memory.database import MemoryDatabase
from tests.support.connectors import Connector, memory_connector

KEYS: dict[str, list[Any]] = {
    "int64": [-1, 0, 1, 2**40, -(2**62)],
    "int8": [-128, 0, 1, 127],
    "string": ["", " ", "a", "A", "a ", "ä", "${user.home}", "it's `odd`", "\0"],
    "binary": [b"", b"\0", b"\0\0", b"a", b"A"],
    "bool": [True, False],
    "decimal128(12, 2)": [Decimal("0.00"), Decimal("-1.50"), Decimal("1.50")],
    "date32[day]": [dt.date(1066, 10, 14), dt.date(2024, 2, 29)],
    "timestamp[us]": [dt.datetime(1500, 1, 1), dt.datetime(2024, 2, 29, 12, 0, 0, 1)],
}
"""Type of a key column → values that are not equal."""


def _random(key: dict[str, str], folder: Path, r: Random, steps: int = 25) -> Connector:
    """A connector whose change log holds random work on one table, in several batches."""
    db = MemoryDatabase(str(folder))
    connector = memory_connector(db, folder, topic_prefix="p", batch_max_rows=r.choice([3, 1000]))
    db.create_table("s.t", {**{k: f"{t}!" for k, t in key.items()}, "n": "int32", "${x}": "string"}, key=tuple(key))

    def draw_row(where: dict[str, Any] | None = None) -> dict[str, Any]:
        return {**(where or {}), "n": r.randrange(100), "${x}": r.choice([None, "x", "a" * 30])}

    for _ in range(steps):
        with db.transaction() as t:
            for _ in range(r.randrange(1, 5)):
                where = {name: r.choice(KEYS[type_]) for name, type_ in key.items()}
                there = [row for row in db.copy_rows("s.t") if all(row[k] == v for k, v in where.items())]
                if t.update("s.t", where, draw_row()) == 0:
                    t.insert("s.t", draw_row(where))
                elif there and r.random() < 0.4:
                    t.delete("s.t", where)
        if r.random() < 0.3:
            connector.capture()
    connector.capture()
    return connector


def _pending(connector: Connector, after: int = 0) -> PendingBatches:
    contents = [one.batch_contents for one in connector.changelog.read_manifests(connector.name, after=after)]
    return collect_topics(connector.changelog, contents)["p.s.t"]


def _first_and_last_events(
    connector: Connector, pending: PendingBatches
) -> dict[tuple[Any, ...], tuple[bool, bool, dict[str, Any]]]:
    """Key → whether its first event is a create, whether its last one is a delete, and the row: one event after the other."""
    found: dict[tuple[Any, ...], tuple[bool, bool, dict[str, Any]]] = {}
    events = [e for _, f in pending.files for e in pq.read_table(connector.changelog.open_file("test", f)).to_pylist()]
    for event in sorted(events, key=lambda e: int(e["seq"])):
        key = tuple(event["key"][name] for name in pending.schema.key)
        created = found[key][0] if key in found else event["op"] == "c"
        found[key] = created, event["op"] == "d", event["after"]
    return found


def _reduced_rows(reduction: LastEvents) -> dict[tuple[Any, ...], tuple[bool, bool, dict[str, Any]]]:
    key = reduction.schema.key
    rows = pa.concat_tables([arrow_schema(reduction.schema).empty_table(), *reduction.read_rows()])
    by_key = {tuple(row[k] for k in key): row for row in rows.to_pylist()}
    assert len(by_key) == rows.num_rows == reduction.number_of_rows()
    keys = [tuple(row[k] for k in key) for row in reduction.keys.to_pylist()]
    assert len(set(keys)) == len(keys) == len(reduction.created)
    flags = zip(keys, reduction.created.tolist(), reduction.deleted.tolist(), strict=True)
    return {k: (created, deleted, by_key.get(k)) for k, created, deleted in flags}  # type: ignore[misc]


@pytest.mark.sampled(3)
@pytest.mark.parametrize("key", [(t,) for t in KEYS] + [("int64", "string"), ("string", "decimal128(12, 2)", "bool")])
@pytest.mark.parametrize("seed", range(3))
def test_each_key_has_its_last_event(key: tuple[str, ...], seed: int, tmp_path: Path) -> None:
    connector = _random({f"k{i}": type_ for i, type_ in enumerate(key)}, tmp_path, Random(seed))
    last = connector.changelog.list_batches("test")[-1]
    for after in {0, last // 2, last - 1}:
        pending = _pending(connector, after)
        assert not_on_arrays(pending) == ""
        found = reduce_to_last_events(connector.changelog, "test", pending)
        assert _reduced_rows(found) == _first_and_last_events(connector, pending)
        assert found.inserts_only == all(
            created for created, _, _ in _first_and_last_events(connector, pending).values()
        )


def test_files_may_come_in_any_order(tmp_path: Path) -> None:
    connector = _random({"k": "int64"}, tmp_path, Random(5))
    pending = _pending(connector)
    assert len(pending.files) > 2
    expected = _first_and_last_events(connector, pending)
    pending.files.reverse()
    assert _reduced_rows(reduce_to_last_events(connector.changelog, "test", pending)) == expected


def test_deleted_rows_have_the_image_of_their_deletes_and_facts_of_events(tmp_path: Path) -> None:
    connector = _random({"k": "int64", "b": "string"}, tmp_path, Random(6))
    pending = _pending(connector)
    found = reduce_to_last_events(connector.changelog, "test", pending)
    parts = list(found.read_images(list(EVENT_FACTS), deleted=True))
    rows, reported = (pa.concat_tables(of).to_pylist() for of in zip(*parts, strict=True))
    events = {
        int(e["seq"]): e
        for _, f in pending.files
        for e in pq.read_table(connector.changelog.open_file("test", f)).to_pylist()
    }
    assert len(rows) == len(reported) == found.keys.num_rows
    assert {"d", "c", "u"} <= {one["op"] for one in reported}
    for row, one in zip(rows, reported, strict=True):
        event = events[one["seq"]]
        assert row == event["before" if event["op"] == "d" else "after"]
        assert (one["op"], one["snapshot"]) == (event["op"], event["source"]["snapshot"])
        times = [int(one[name].timestamp() * 1_000_000) for name in ("commit_ts", "captured_ts")]
        assert times == pytest.approx([event["source"]["ts_us"], event["ts_us"]], abs=1)
        assert one["transaction_id"] == (event.get("transaction") or {}).get("id")
    live, _ = (pa.concat_tables(of) for of in zip(*found.read_images(), strict=True))
    assert live.to_pylist() == [row for row, one in zip(rows, reported, strict=True) if one["op"] != "d"]


def test_no_events_leave_no_rows(tmp_path: Path) -> None:
    connector = _random({"k": "int64"}, tmp_path, Random(5))
    pending = _pending(connector)
    pending.files.clear()
    found = reduce_to_last_events(connector.changelog, "test", pending)
    assert (found.keys.num_rows, found.number_of_rows(), list(found.read_rows())) == (0, 0, [])
    assert found.keys.column_names == ["k"]


def _why_not(connector: Connector, **table: Any) -> str:
    db = connector.database  # type: ignore[attr-defined]
    db.create_table("s.t", **table)
    connector.capture()
    with db.transaction() as t:
        t.insert("s.t", {"id": 1, "n": 2})
    connector.capture()
    return not_on_arrays(_pending(connector))


@pytest.fixture
def connector(tmp_path: Path) -> Connector:
    db = MemoryDatabase(str(tmp_path))
    connector = memory_connector(db, tmp_path, topic_prefix="p")
    connector.database = db  # type: ignore[attr-defined]
    return connector


def test_what_arrays_cannot_do_is_named(connector: Connector) -> None:
    assert _why_not(connector, columns={"id": "int64", "n": "int32"}) == "the table has no key"


def test_floating_point_keys_are_left_to_others(connector: Connector) -> None:
    why = _why_not(connector, columns={"id": "double!", "n": "int32"}, key=("id",))
    assert "the key has columns of types other" in why
    assert why.endswith(": id")
    with pytest.raises(ValueError, match=r"p\.s\.t: the key has"):
        reduce_to_last_events(connector.changelog, "test", _pending(connector))


def test_changes_of_columns_and_truncations_are_left_to_others(connector: Connector) -> None:
    assert _why_not(connector, columns={"id": "int64!", "n": "int32"}, key=("id",)) == ""
    last = connector.changelog.list_batches("test")[-1]
    db = connector.database  # type: ignore[attr-defined]
    db.truncate_table("s.t")
    with db.transaction() as t:
        t.insert("s.t", {"id": 1, "n": 2})
    connector.capture()
    assert not_on_arrays(_pending(connector, last)) == "the table is emptied within the batches"
    last = connector.changelog.list_batches("test")[-1]
    for n in (3, 4):
        with db.transaction() as t:
            t.update("s.t", {"id": 1}, {"n": n})
        if n == 3:
            db.add_column("s.t", "c", "string", "x")
    connector.capture()
    assert not_on_arrays(_pending(connector, last)) == "the table's columns change within the batches"


def test_values_that_events_leave_out_are_left_to_others(connector: Connector) -> None:
    db = connector.database  # type: ignore[attr-defined]
    assert _why_not(connector, columns={"id": "int64!", "n": "int32"}, key=("id",)) == ""
    last = connector.changelog.list_batches("test")[-1]
    db.make_sparse("s.t", "n")
    with db.transaction() as t:
        t.update("s.t", {"id": 1}, {"id": 2})
    connector.capture()
    assert not_on_arrays(_pending(connector, last)) == "events omit values of n"


@pytest.mark.parametrize("damage", ["missing", "shorter", "not Parquet"])
def test_a_damaged_file_is_an_error_that_names_it(connector: Connector, damage: str) -> None:
    assert _why_not(connector, columns={"id": "int64!", "n": "int32"}, key=("id",)) == ""
    pending = _pending(connector)
    path = Path(pending.files[-1][0].removeprefix("file://"))
    data = path.read_bytes()
    path.unlink()
    if damage != "missing":
        path.write_bytes(data[:-1] if damage == "shorter" else bytes(len(data)))
    with pytest.raises(ChangeLogDamaged) as error:
        reduce_to_last_events(connector.changelog, "test", pending)
    assert path.name in str(error.value)
