"""A page of the schema history: what each change has changed, without the whole history being read."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Any

import pytest
import sqlalchemy as sa

from airflow_provider_cdc.core.model.batch_manifest import SchemaChangeRecord
from airflow_provider_cdc.core.model.schema_history import SchemaHistory
from airflow_provider_cdc.core.model.table_schema import Column, TableChange, TableId, TableSchema
from airflow_provider_cdc.services.dashboards.schema_diff import format_difference, newest_differences
from airflow_provider_cdc.state.models import SchemaHistoryRow
from airflow_provider_cdc.state.state_store import StateStore

NAMES = (
    "orders",
    "Orders",
    "order",
    "a.b",
    "b",
    "x_y",
    "x%y",
    "xzy",
    'quo"te',
    "back\\slash",
    "名前",
    "é1",
    "\n",
    "${x}",
)
"""Some are parts of others, some have no letter that JSON writes as it is."""


def columns(*names: str) -> tuple[Column, ...]:
    return tuple(Column(name=name, type="int64") for name in names)


class History:
    """Changes of tables, recorded as a capture records them."""

    def __init__(self, store: StateStore, connector: str = "c") -> None:
        self.store, self.connector = store, connector
        self.history, self.records = SchemaHistory(), list[SchemaChangeRecord]()

    def record(self, *changes: TableChange) -> None:
        self.history.remove_renamed(changes)
        applied = [one for change in changes if (one := self.history.apply_change(change)) is not None]
        number = len(self.records) + 1
        self.records.append(SchemaChangeRecord(seq=number, ddl=f"statement {number}", database="d", position={"n": number}, ts_us=number, captured_us=number, changes=applied))  # fmt: skip

    def create(self, name: str, *more: str) -> TableChange:
        id_ = TableId(namespace="d", name=name)
        return TableChange(type="CREATE", id=id_, table=TableSchema(id=id_, columns=columns("id", *more), key=("id",)))

    def alter(self, name: str, *more: str) -> TableChange:
        return self.create(name, *more).model_copy(update={"type": "ALTER"})

    def drop(self, name: str) -> TableChange:
        return TableChange(type="DROP", id=TableId(namespace="d", name=name))

    def rename(self, old: str, new: str) -> TableChange:
        known = self.history.find_schema(TableId(namespace="d", name=old))
        assert known is not None
        id_ = TableId(namespace="d", name=new)
        return TableChange(type="ALTER", id=id_, previous_id=known.id, table=known.model_copy(update={"id": id_}))

    def names(self) -> list[str]:
        """Return the names of the current tables."""
        return [id_.name for id_ in self.history.current_tables]

    def any_change(self, chance: random.Random) -> None:
        there = self.names()
        free = [name for name in NAMES if name not in there]
        kinds = [*(["create"] if free else []), *(["alter", "alter", "drop"] if there else [])]
        kinds += [*(["rename"] if there and free else []), *(["swap", "both"] if len(there) > 1 else [])]
        kind = chance.choice(kinds)
        more = chance.sample(["u", "v", "w"], chance.randrange(4))
        if kind == "create":
            self.record(self.create(chance.choice(free), *more))
        elif kind in ("swap", "both"):
            one, two = chance.sample(there, 2)
            swapped = self.rename(one, two), self.rename(two, one)
            self.record(*(swapped if kind == "swap" else (self.alter(one, *more), self.drop(two))))
        elif kind == "rename":
            self.record(self.rename(chance.choice(there), chance.choice(free)))
        else:
            self.record(self.drop(chance.choice(there)) if kind == "drop" else self.alter(chance.choice(there), *more))

    def keep(self) -> None:
        now = datetime.now(UTC)
        rows = [
            {"connector": self.connector, "seq": one.seq, "batch": 1, "record": one.model_dump(mode="json"), "created_at": now}
            for one in self.records
        ]  # fmt: skip
        with self.store.database.engine.begin() as c:
            c.execute(sa.insert(SchemaHistoryRow), rows)


def by_the_whole(records: Sequence[SchemaChangeRecord]) -> Iterator[dict[str, list[str]]]:
    """Yield the differences that each change makes, by a replay of all of them, oldest first."""
    known: dict[TableId, TableSchema] = {}
    for record in records:
        ids = [(change.previous_id or change.id, change) for change in record.changes]
        yield {str(change.id): format_difference(known.get(id_), change) for id_, change in ids}
        for id_, _ in ids:
            known.pop(id_, None)
        known.update((change.id, change.table) for _, change in ids if change.table is not None)


class CountedStore:
    """The store, with the number of changes that were read of it, and of questions."""

    def __init__(self, store: StateStore) -> None:
        self.store, self.read, self.asked = store, 0, 0

    def newest_schema_changes(self, connector: str, most: int, **options: Any) -> list[tuple[int, SchemaChangeRecord]]:
        found = self.store.newest_schema_changes(connector, most, **options)
        self.read, self.asked = self.read + len(found), self.asked + 1
        return found


@pytest.mark.parametrize("seed", range(4))
def test_each_page_says_what_the_whole_history_says(store: StateStore, seed: int) -> None:
    chance = random.Random(seed)
    of, other = History(store), History(store, "another")
    for _ in range(60):
        of.any_change(chance)
        other.any_change(chance)
    other.keep()
    of.keep()
    other.keep()
    whole = [(one.seq, changed) for one, changed in zip(of.records, by_the_whole(of.records), strict=True)][::-1]
    for most in (1, 7, 60, 100):
        pages, before = [], None
        while page := newest_differences(store, "c", most, before=before):
            assert len(page) <= most
            pages += [(one.record.seq, one.tables) for one in page]
            before = page[-1].number
        assert pages == whole
    for name in NAMES:
        table = f"d.{name}"
        expected = [(seq, changed) for seq, changed in whole if table in changed]
        found = newest_differences(store, "c", 100, table=table)
        assert [(one.record.seq, one.tables) for one in found] == expected
        page = newest_differences(store, "c", 2, before=found[0].number if found else None, table=table)
        assert [(one.record.seq, one.tables) for one in page] == expected[1:3]


def test_a_page_of_a_long_history_reads_little_of_it(store: StateStore) -> None:
    of = History(store)
    for n in range(1000):
        of.record(of.create(f"t{n}"))
    for n in range(1000, 40, -1):
        of.record(of.alter(f"t{n % 1000}", "more"))
    of.keep()
    counted = CountedStore(store)
    page = newest_differences(counted, "c", 50)
    assert [one.tables for one in page][:2] == [{"d.t41": ["+ more int64"]}, {"d.t42": ["+ more int64"]}]
    assert (counted.read, counted.asked) == (100, 2)  # the page, and what the 50 tables were before
    counted = CountedStore(store)
    (last, first) = newest_differences(counted, "c", 10, table="d.t999")
    assert (last.tables, len(first.tables["d.t999"])) == ({"d.t999": ["+ more int64"]}, 2)
    assert (counted.read, counted.asked) == (2, 1)
    counted = CountedStore(store)
    oldest = newest_differences(counted, "c", 50, before=page[-1].number - 1500)
    assert len(oldest) == 50
    assert (counted.read, counted.asked) == (50, 1)  # tables that are new were nothing before
