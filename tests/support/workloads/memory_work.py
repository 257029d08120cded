"""Random work on a memory database, the same for the same random numbers."""

from __future__ import annotations

from random import Random
from typing import Any

from airflow_provider_cdc.sources.memory.database import MemoryDatabase, MemoryTransaction

NAMESPACE = "shop"
TABLES = ("orders", "lines", "people", "events")
KEYLESS = "events"
COLUMNS = {"id": "int64!", "n": "int32", "note": "string"}


class _UndoTransaction(Exception):
    """Rolls a transaction back."""


class Workload:
    """Changes of every kind to a few small tables. One of them has no key; tables come and go, columns too.

    :param ddl: how likely a step is a DDL statement instead of a transaction
    :param cross: rows exchange their keys by one statement, too
    :param sparse: columns of the tables with a key whose values the log has only where a statement sets them
    """

    def __init__(
        self, database: MemoryDatabase, *, ddl: float = 0.15, sparse: tuple[str, ...] = (), cross: bool = True
    ) -> None:
        self.db, self._ddl, self._sparse = database, ddl, sparse
        self._cross = cross and not sparse  # rows of which the log leaves values out could not be distinguished
        self._ids = 0
        self._columns = 0
        for name in TABLES:
            self._create(name)

    @property
    def tables(self) -> list[str]:
        """Names of the tables that exist now."""
        return [str(t) for t in sorted(self.db.read_consistent_view()[1], key=str)]

    def step(self, r: Random) -> None:
        """Run a transaction or a DDL statement."""
        missing = [name for name in TABLES if f"{NAMESPACE}.{name}" not in self.tables]
        if r.random() >= self._ddl:
            self._transaction(r)
        elif missing and r.random() < 0.6:
            self._create(r.choice(missing))
        else:
            self._statement(r)

    # -- rows ---------------------------------------------------------------------------------------------------------

    def _transaction(self, r: Random) -> None:
        tables = self.tables
        if not tables:
            return
        undo = r.random() < 0.1
        try:
            with self.db.transaction() as t:
                for _ in range(r.randrange(3) if r.random() < 0.2 else 0):
                    table = r.choice(tables)
                    t.log_void(table, self._row(r, table))
                for _ in range(r.randrange(1, 7)):
                    self._change(r, t, r.choice(tables))
                if undo:
                    raise _UndoTransaction
        except _UndoTransaction:
            pass

    def _change(self, r: Random, t: MemoryTransaction, table: str) -> None:
        rows = self.db.copy_rows(table)
        kind = r.choice(["insert", "insert", "update", "update", "rekey", "swap", "cross", "delete", "replace"])
        if not rows or kind == "insert":
            t.insert(table, self._row(r, table))
            return
        row = r.choice(rows)
        where = dict(row) if table.endswith(KEYLESS) else {"id": row["id"]}
        if kind == "update":
            t.update(table, where, self._values(r, table))
        elif kind == "rekey":
            t.update(table, where, {**self._values(r, table), "id": self._new_id()})
        elif kind == "swap" and not table.endswith(KEYLESS):
            other, spare = r.choice(rows)["id"], self._new_id()
            if other != row["id"]:
                for old, new in ((row["id"], spare), (other, row["id"]), (spare, other)):
                    t.update(table, {"id": old}, {"id": new})
        elif kind == "cross" and not table.endswith(KEYLESS):
            some = [] if not self._cross else r.sample(rows, min(len(rows), r.randrange(2, 5)))
            ids = [one["id"] for one in some]
            t.update_each(
                table, [({"id": a}, {"id": b}) for a, b in zip(ids, [*ids[1:], *ids[:1]], strict=True) if a != b]
            )
        else:
            t.delete(table, where)
            if kind == "replace":
                t.insert(table, {**self._row(r, table), "id": row["id"]})

    def _row(self, r: Random, table: str) -> dict[str, Any]:
        few = r.randrange(3) == 0 and table.endswith(KEYLESS)  # rows that are equal in everything
        return {"id": 0 if few else self._new_id(), **({} if few else self._values(r, table))}

    def _values(self, r: Random, table: str) -> dict[str, Any]:
        schema = next(s for t, s in self.db.read_consistent_view()[1].items() if str(t) == table)
        return {c.name: self._value(r, c.type) for c in schema.columns if c.name != "id" and r.random() < 0.8}

    def _value(self, r: Random, type_: str) -> Any:
        if r.random() < 0.2:
            return None
        return r.choice(["", "ö", "x" * r.randrange(40)]) if type_ == "string" else r.randrange(-5, 100)

    def _new_id(self) -> int:
        self._ids += 1
        return self._ids

    # -- structure ----------------------------------------------------------------------------------------------------

    def _create(self, name: str) -> None:
        keyless = name == KEYLESS
        sparse = () if keyless else self._sparse
        self.db.create_table(f"{NAMESPACE}.{name}", COLUMNS, key=() if keyless else ("id",), sparse=sparse)

    def _statement(self, r: Random) -> None:
        if not self.tables:
            return
        table = r.choice(self.tables)
        schema = next(s for t, s in self.db.read_consistent_view()[1].items() if str(t) == table)
        others = [c for c in schema.columns if c.name != "id"]
        column = r.choice(others) if others else None
        kind = r.choice(["add", "add", "drop column", "change", "truncate", "drop", "swap names"])
        if kind == "drop column" and column is not None:
            self.db.drop_column(table, column.name)
        elif kind == "change" and column is not None and column.type in ("int32", "int64"):
            wider = column.type == "int32" and r.random() < 0.5
            self.db.change_column(table, column.name, "int64" if wider else "string", int if wider else str)
        elif kind == "truncate":
            self.db.truncate_table(table)
        elif kind == "drop":
            self.db.drop_table(table)
        elif kind == "swap names" and len(self.tables) > 1 and not table.endswith(KEYLESS):
            other = r.choice([t for t in self.tables if t != table])
            if not other.endswith(KEYLESS):
                self.db.rename_tables((table, other), (other, table))
        else:
            self._columns += 1
            type_ = r.choice(["int64", "string"])
            self.db.add_column(table, f"c{self._columns}", type_, self._value(r, type_))
