"""Keys that several rows hold for a while, within a transaction: of each key, the last event is about the row that has it in the end."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from airflow_provider_cdc.core.writing import open_transaction_rows
from airflow_provider_cdc.core.writing.key_handovers import KeyChanges, find_key_stays
from airflow_provider_cdc.sources.memory.database import MemoryDatabase, MemoryTransaction
from tests.support.connectors import Connector, memory_connector
from tests.support.pytest_runs.sampled import CaseSample
from tests.support.workloads.key_moves import KeyMoves

_Row = tuple[int, str]


def test_of_any_changes_of_keys_the_last_event_is_about_the_row_that_has_the_key(sampled: CaseSample) -> None:
    for seed in range(30_000 if sampled.all else 1000):
        for values in ("x", "xy", "xyzw"):
            for addressed in (False, True):
                _compare_orders(Random(seed), values, addressed)


def _compare_orders(r: Random, values: str, addressed: bool) -> None:
    before, changes, after = _transaction(r, values)
    of = lambda row, n: hash((row, n if addressed else 0)) & (2**64 - 1)  # noqa: E731
    key = lambda row: hash(("key", row[0])) & (2**64 - 1)  # noqa: E731

    def hashes(image: int, make: Callable[[Any, int], int]) -> Any:
        return np.array([0 if c[image] is None else make(c[image], c[1]) for c in changes], np.uint64)

    leaves, comes = (np.array([c[image] is not None for c in changes]) for image in (2, 3))
    keys = [hashes(image, lambda row, _: key(row)) for image in (2, 3)]
    rows = [hashes(image, of) for image in (2, 3)]
    found = find_key_stays(KeyChanges(np.zeros(len(changes), np.int64), leaves, comes, *keys, *rows))
    events: list[tuple[bool, int, int, str, int, str | None]] = []
    for at, (op, _, old, new) in enumerate(changes):
        late, goes, came = (
            found is not None and bool(mask[at])
            for mask in (() if found is None else (found.late, found.arrives_and_leaves, found.leaves_after_arrival))
            or (0, 0, 0)
        )
        if old is not None and (new is None or new[0] != old[0]) and not came:
            events.append((False, at, 0, "d", old[0], None))
        if new is not None and not goes:
            events.append((late, at, 1, op, new[0], new[1]))
    table = dict(before.values())
    for _, _, _, op, k, value in sorted(events, key=lambda event: event[:3]):
        if op == "d":
            table.pop(k, None)
        else:
            assert value is not None
            table[k] = value
    # the last event of a key alone says the same
    last = {event[4]: event for event in sorted(events, key=lambda event: event[:3])}
    assert {k: e[5] for k, e in last.items() if e[3] != "d"} == {k: v for k, v in after.values() if k in last}
    assert table == dict(after.values())


def _transaction(r: Random, values: str) -> tuple[dict[int, _Row], list[Any], dict[int, _Row]]:
    """Rows, changes of them that keep no key unique on the way, and the rows after them, whose keys are."""
    before = {n: (n, r.choice(values)) for n in range(6) if r.random() < 0.6}
    while True:
        rows, number, changes = dict(before), 6, list[Any]()
        for _ in range(r.randrange(1, 9)):
            kind = r.choice("uuuuuuid")
            if kind == "i" or not rows:
                rows[number] = (r.randrange(6), r.choice(values))
                changes.append(("c", number, None, rows[number]))
                number += 1
                continue
            n = r.choice(list(rows))
            old = rows.pop(n)
            if kind == "u":
                key, value = r.choice([old[0], r.randrange(6), r.randrange(6)]), r.choice([old[1], r.choice(values)])
                rows[n] = (key, value)
            changes.append((kind, n, old, rows.get(n)))
        if len({key for key, _ in rows.values()}) == len(rows):
            return before, changes, rows


@pytest.mark.parametrize("block", [3, 1000])
@pytest.mark.parametrize("sparse", [(), ("note",)])
@pytest.mark.parametrize("spilled", [False, True])
def test_random_moves_replay_to_the_tables(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    block: int,
    sparse: tuple[str, ...],
    spilled: bool,
    sampled: CaseSample,
) -> None:
    if spilled:
        monkeypatch.setattr(open_transaction_rows, "WAITING_BYTES", 200)
    for seed in range(60 if sampled.all else 2):
        db = MemoryDatabase(f"moves-{seed}")
        moves = KeyMoves(db, Random(seed), sparse=sparse, deferred=block > 100)
        connector = memory_connector(
            db, tmp_path / str(seed), memory_block_rows=block, provide_transaction_metadata=True
        )
        connector.capture()
        for _ in range(5):
            for _ in range(3):
                moves.transaction()
            connector.capture()
            for table in moves.tables:
                assert connector.rows(table) == sorted(db.copy_rows(table), key=repr), (seed, table)
                assert _last_events(connector, table) == sorted(db.copy_rows(table), key=repr), (seed, table)
        for orders in connector.replay.transactions.values():
            assert orders == list(range(1, len(orders) + 1))


def _last_events(connector: Connector, table: str) -> list[Any]:
    """The rows of a table by the last event of each key alone, as any reader may do it."""
    last: dict[Any, Any] = {}
    for event in _events(connector, table):
        key, after = tuple(event["key"].values()), event["after"]
        if after is not None and event["unavailable"]:  # the strict replay knows these values
            rows = connector.replay.rows(f"test.{table}")
            there = next((row for row in rows if row["id"] == event["key"]["id"]), None)
            after = None if there is None else after | {name: there[name] for name in event["unavailable"]}
        last[key] = after
    return sorted((row for row in last.values() if row is not None), key=repr)


def _events(connector: Connector, table: str) -> Iterable[Any]:
    for manifest in connector.changelog.read_manifests("test"):
        found = []
        for file in manifest.files:
            if file.topic == f"test.{table}" and not file.passing:
                with connector.changelog.open_file("test", file) as opened:
                    found += pq.read_table(opened).to_pylist()
        yield from sorted(found, key=lambda event: event["seq"])


def test_what_is_taken_back_of_a_transaction_waits_no_more(tmp_path: Path) -> None:
    db = MemoryDatabase("taken-back")
    db.create_table("shop.t", {"id": "int64!", "v": "string"}, key=("id",))
    with db.transaction() as t:
        for i in (1, 2, 3):
            t.insert("shop.t", {"id": i, "v": f"v{i}"})
    connector = memory_connector(db, tmp_path, memory_block_rows=2)
    connector.capture()
    undone = MemoryTransaction(db)
    undone.update_each("shop.t", [({"id": i}, {"id": i + 1}) for i in (1, 2, 3)])
    undone.update_each("shop.t", [({"id": i + 1}, {"id": i}) for i in (1, 2, 3)])
    with db.transaction() as t:
        t.insert("shop.t", {"id": 10, "v": None})
        t.changes, t.void = [*undone.changes, *t.changes], len(undone.changes)
    connector.capture()
    assert connector.rows("shop.t") == sorted(db.copy_rows("shop.t"), key=repr)
    assert connector.replay.operations == {"r": 3, "c": 1}
