"""Transactions that move keys over each other, as databases take them that look at the end of a statement, or of the transaction, whether keys are unique."""

from __future__ import annotations

from random import Random
from typing import Any

from airflow_provider_cdc.sources.memory.database import MemoryDatabase, MemoryTransaction

COLUMNS = {"id": "int64!", "n": "int32", "note": "string"}
ONLY_KEYS = {"id": "int64!", "part": "int64!"}


class KeyMoves:
    """Shifts, swaps, cycles and permutations of keys, in one statement or several, also by spare keys and by keys that other rows have, beside creates, deletes and
    other updates of the same rows.

    :param sparse: columns whose values the log has only where a statement sets them
    :param deferred: keys are unique at the end of the transaction, otherwise at the end of each statement
    """

    def __init__(
        self, database: MemoryDatabase, random: Random, *, sparse: tuple[str, ...] = (), deferred: bool = True
    ) -> None:
        self.db, self.r, self._deferred = database, random, deferred
        self._sparse, self._numbers = bool(sparse), 0
        self.tables = ("shop.moved", "shop.equal", "shop.bare")
        database.create_table(self.tables[0], COLUMNS, key=("id",), sparse=sparse)
        database.create_table(self.tables[1], COLUMNS, key=("id",))  # all rows are equal but for the key
        database.create_table(self.tables[2], ONLY_KEYS, key=("id", "part"))
        with database.transaction() as t:
            for table in self.tables:
                for i in range(1, 7):
                    t.insert(table, self._row(table, i))

    def transaction(self) -> None:
        """Run a transaction of a few statements; after it, each key is unique."""
        while True:
            try:
                with self.db.transaction() as t:
                    for _ in range(self.r.randrange(1, 5)):
                        self._statement(t, self.r.choice(self.tables))
                        if not self._deferred:
                            self._check()
                    self._check()
                return
            except _DuplicateKey:
                continue

    def _check(self) -> None:
        for table in self.tables:
            keys = [self._key(row) for row in self.db.copy_rows(table)]
            if len(set(keys)) != len(keys):
                raise _DuplicateKey

    def _statement(self, t: MemoryTransaction, table: str) -> None:
        rows, r = self.db.copy_rows(table), self.r
        ids = sorted({row["id"] for row in rows})
        kind = r.choice(
            ["shift", "shift", "swap", "cycle", "permute", "spare", "through", "insert", "delete", "update"]
        )
        if not rows or kind == "insert":
            t.insert(table, self._row(table, r.randrange(1, 10)))
        elif kind == "delete":
            t.delete(table, dict(r.choice(rows)), limit=1)
        elif kind == "update":
            t.update(table, dict(r.choice(rows)), {} if table == self.tables[2] else self._values(table), limit=1)
        elif kind == "shift":
            by = r.choice([-2, -1, 1, 2])
            self._moved(t, table, {i: i + by for i in ids}, rows)
        elif kind == "swap":
            a, b = r.choice(ids), r.choice(ids)
            self._moved(t, table, {a: b, b: a}, rows)
        elif kind == "cycle":
            some = r.sample(ids, min(len(ids), 3))
            self._moved(t, table, dict(zip(some, [*some[1:], some[0]], strict=True)), rows)
        elif kind == "permute":
            self._moved(t, table, dict(zip(ids, r.sample(ids, len(ids)), strict=True)), rows)
        elif kind == "spare":
            a, b, spare = r.choice(ids), r.choice(ids), r.randrange(100, 103)
            for old, new in ((a, spare), (b, a), (spare, b)):
                self._moved(t, table, {old: new}, self.db.copy_rows(table))
        else:  # a row passes a key that another one has all the time
            row, way = r.choice(rows), [r.choice(ids), r.choice([*ids, 50])]
            for new in way:
                t.update(table, row, {"id": new}, limit=1)
                row = row | {"id": new}
                if not self._deferred:
                    self._check()

    def _moved(self, t: MemoryTransaction, table: str, to: dict[int, int], rows: list[dict[str, Any]]) -> None:
        """Run a statement that moves keys: each row is changed once, in any order."""
        rows = [row for row in rows if to.get(row["id"], row["id"]) != row["id"]]
        self.r.shuffle(rows)
        more = self.r.random() < 0.3 and table == self.tables[0]
        t.update_each(table, [(row, {"id": to[row["id"]]} | ({"n": self._number()} if more else {})) for row in rows])

    def _row(self, table: str, i: int) -> dict[str, Any]:
        if table == self.tables[2]:
            return {"id": i, "part": self.r.randrange(2)}
        return {"id": i} | ({"n": 1, "note": "same"} if table == self.tables[1] else self._values(table))

    def _values(self, table: str) -> dict[str, Any]:
        if table == self.tables[1]:
            return {"n": 1}
        return {"n": self._number()} | ({"note": self.r.choice("abc") * 3} if self.r.random() < 0.5 else {})

    def _number(self) -> int:
        """Return a value; it is unique if the log leaves out values, because rows are then distinguished by the rest."""
        self._numbers += 1
        return self._numbers if self._sparse else self.r.randrange(9)

    def _key(self, row: dict[str, Any]) -> tuple[int, int]:
        return row["id"], row.get("part", 0)


class _DuplicateKey(Exception):
    """Two rows have one key at the end of the transaction, which databases refuse."""
