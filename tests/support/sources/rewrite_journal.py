"""The events of tables between a statement that rewrites rows and the next read of them, with a journal.

Each :class:`RewriteStory` has its own two tables and one that is not captured. It journals every row event and every statement that the
log gets for captured tables; :func:`compare` holds the change log to that.
"""

from __future__ import annotations

import itertools
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from copy import deepcopy
from dataclasses import dataclass, field
from random import Random
from typing import Any

import pyarrow.parquet as pq

from airflow_provider_cdc.core.model.batch_manifest import SchemaChangeRecord
from tests.support.connectors import Connector

Row = dict[str, Any]
Event = tuple[str, Row | None, Row | None]
INT, LONG, TEXT = "int", "long", "text"
BETWEEN = (
    "rows", "rewrite", "add", "drop column", "rename column", "widen", "rename", "rename back", "swap", "drop", "create again",
    "truncate", "out", "out and in", "into", "new table", "like",
)  # fmt: skip


@dataclass
class Table:
    """A table as it is at this place of the log."""

    columns: dict[str, str]
    rows: dict[int, Row] = field(default_factory=dict)


@dataclass
class RowJournal:
    """The journal of the log's contents.

    :ivar events: table → (operation, image before, image after), in order; an update may change the key
    :ivar changes: each statement: the tables that it leaves (``True``) and takes away (``False``)
    :ivar readable: whether the log has what is needed to read the rows that come now; the test says it
    :ivar unreadable: table → number of row events that cannot be read
    """

    events: dict[str, list[Event]] = field(default_factory=lambda: defaultdict(list))
    changes: list[set[tuple[str, bool]]] = field(default_factory=list)
    readable: bool = True
    unreadable: Counter[str] = field(default_factory=Counter)


class RewriteStory:
    """A case with its tables, rewritten step by step.

    :param db: an adapter of the shared suite
    :param prefix: prefix of the names of its tables; ``out_`` is put before the names of tables that are not captured
    """

    def __init__(self, db: Any, journal: RowJournal, prefix: str, random: Random) -> None:
        self.db, self.journal, self.prefix, self.random = db, journal, prefix, random
        self.tables: dict[str, Table] = {}
        self._names = 0
        self._next = 100
        for name in (f"{prefix}a", f"{prefix}b", f"out_{prefix}"):
            self.create(name)
            self.insert(name, 3)
        journal.changes.clear()
        journal.events.clear()

    @property
    def main(self) -> str | None:
        """The table that the story is about: the one that was rewritten, wherever it is by now."""
        return self._main if self._main in self.tables else None

    _main = ""

    def tell(self, rewrite: str, between: list[str]) -> Iterator[None]:
        """Do it all, step by step."""
        self._main = f"{self.prefix}a"
        self.work(3)
        self.rewrite(rewrite)
        yield
        for what in between:
            self.work(3)
            self.step(what)
            yield
        self.work(4)

    def step(self, what: str) -> None:
        table = self.main if self.main is not None else f"{self.prefix}b"
        if table not in self.tables:
            return self.new_table()
        steps: dict[str, Callable[[str], None]] = {
            "add": self.add, "drop column": self.drop_column, "rename column": self.rename_column, "widen": self.widen,
            "rename": lambda t: self.rename(t, self.name()), "rename back": self.there_and_back, "swap": self.swap,
            "drop": self.drop, "create again": self.create_again, "truncate": self.truncate,
            "rewrite": lambda t: self.rewrite("kind" if self.db.changes_kinds else "computed"), "out": lambda t: self.rename(t, f"out_{self.name()}"),
            "out and in": lambda t: self.there_and_back(t, "out_"), "into": lambda t: self.into(),
            "like": self.like, "new table": lambda t: self.new_table(), "rows": lambda t: self.work(3),
        }  # fmt: skip
        steps[what](table)

    def there_and_back(self, table: str, prefix: str = "") -> None:
        away = f"{prefix}{self.name()}"
        self.rename(table, away)
        self.work(3)
        self.rename(away, table)

    def create_again(self, table: str) -> None:
        self.drop(table)
        self.work(2)
        self.create(table)
        self.insert(table, 2)

    def into(self) -> None:
        """A table comes into sight."""
        outside = next((t for t in self.tables if t.startswith("out_")), None)
        if outside is not None:
            self.rename(outside, self.name())

    # -- rows ---------------------------------------------------------------------------------------------------------

    def work(self, times: int) -> None:
        """Row events of all kinds, most of them in the table that the story is about."""
        for _ in range(times):
            names = sorted(self.tables)
            if not names:
                return
            table = self.main if self.main is not None and self.random.random() < 0.6 else self.random.choice(names)
            self.write(table)

    def write(self, table: str) -> None:
        """A row event or two."""
        rows = self.tables[table].rows
        kind = self.random.choice(("insert", "update", "update", "delete", "move")) if rows else "insert"
        if kind == "insert":
            self.insert(table, self.random.randint(1, 2))
        elif kind == "update":
            self.update(table)
        elif kind == "move":
            self.move(table)
        else:
            self.delete(table)

    def insert(self, table: str, count: int) -> None:
        with self.db.transaction() as t:
            for _ in range(count):
                row = self.row(table)
                t.insert(table, dict(row))
                self.tables[table].rows[row["id"]] = row
                self.event(table, "c", None, row)

    def update(self, table: str) -> None:
        rows = self.tables[table].rows
        before = rows[self.random.choice(sorted(rows))]
        values = {n: self.value(k) for n, k in self.tables[table].columns.items() if n != "id"}
        if not values or before | values == before:
            return
        with self.db.transaction() as t:
            t.update(table, {"id": before["id"]}, values)
        rows[before["id"]] = before | values
        self.event(table, "u", before, before | values)

    def move(self, table: str) -> None:
        rows = self.tables[table].rows
        before = rows.pop(self.random.choice(sorted(rows)))
        after = before | {"id": self.key()}
        with self.db.transaction() as t:
            t.update(table, {"id": before["id"]}, {"id": after["id"]})
        rows[after["id"]] = after
        self.event(table, "u", before, after)

    def delete(self, table: str) -> None:
        rows = self.tables[table].rows
        before = rows.pop(self.random.choice(sorted(rows)))
        with self.db.transaction() as t:
            t.delete(table, {"id": before["id"]})
        self.event(table, "d", before, None)

    def event(self, table: str, op: str, before: Row | None, after: Row | None) -> None:
        if table.startswith("out_"):
            return
        if self.journal.readable:
            self.journal.events[table].append((op, deepcopy(before), deepcopy(after)))
        else:
            self.journal.unreadable[table] += 1

    def row(self, table: str) -> Row:
        columns = self.tables[table].columns
        return {n: self.key() if n == "id" else self.value(k) for n, k in columns.items()}

    def value(self, kind: str) -> Any:
        if self.random.random() < 0.1:
            return None
        n = self.random.randint(0, 10**6)
        return f"v{n}" if kind == TEXT else n

    def key(self) -> int:
        self._next += 1
        return self._next

    # -- statements ---------------------------------------------------------------------------------------------------

    def name(self) -> str:
        self._names += 1
        return f"{self.prefix}n{self._names}"

    def said(self, *changes: tuple[str, bool]) -> None:
        if kept := {(t, there) for t, there in changes if not t.startswith("out_")}:
            self.journal.changes.append(kept)

    def rewrite(self, how: str) -> None:
        """A statement after which no one knows the rows from the log."""
        if self.main is None:
            return None
        table = self.tables[self.main]
        own: dict[str, Callable[[str, Table, str], str]] = self.db.rewrites()
        if how == "kind":
            column = next((n for n, k in table.columns.items() if k == INT and n != "id"), None)
            if column is None:
                self.add(self.main)
                return self.rewrite(how)
            self.db.change_column(self.main, column, TEXT)
            table.columns[column] = TEXT
            for row in table.rows.values():
                row[column] = None if row[column] is None else str(row[column])
        else:
            now = own[how](self.main, table, self.name())
            self.tables[now] = self.tables.pop(self.main)
            self._main = now
        self.said((self._main, True))

    def create(self, table: str) -> None:
        columns = {"id": INT, "n": INT, "m": INT, "note": TEXT}
        self.db.create(table, columns, key=("id",))
        self.tables[table] = Table(columns)
        self.said((table, True))

    def like(self, table: str) -> None:
        new = self.name()
        if not self.db.create_like(new, table):
            return self.new_table()
        self.tables[new] = Table(dict(self.tables[table].columns))
        self.said((new, True))
        self.insert(new, 2)

    def new_table(self) -> None:
        table = self.name()
        self.create(table)
        self.insert(table, 2)
        if self.main is None:
            self._main = table

    def add(self, table: str) -> None:
        column = f"c{self.random.randint(0, 10**9)}"
        self.db.add_column(table, column, INT)
        self.tables[table].columns[column] = INT
        for row in self.tables[table].rows.values():
            row[column] = None
        self.said((table, True))

    def drop_column(self, table: str) -> None:
        column = next((n for n in self.tables[table].columns if n != "id"), None)
        if column is None:
            return
        self.db.drop_column(table, column)
        del self.tables[table].columns[column]
        for row in self.tables[table].rows.values():
            del row[column]
        self.said((table, True))

    def rename_column(self, table: str) -> None:
        column = next((n for n in self.tables[table].columns if n != "id"), None)
        if column is None:
            return
        new, columns = f"d{self.random.randint(0, 10**9)}", self.tables[table].columns
        self.db.rename_column(table, column, new, columns[column])
        self.tables[table].columns = {new if n == column else n: k for n, k in columns.items()}
        for row in self.tables[table].rows.values():
            row[new] = row.pop(column)
        self.said((table, True))

    def widen(self, table: str) -> None:
        columns = self.tables[table].columns
        column = next((n for n, k in columns.items() if k == INT and n != "id"), None)
        if column is None:
            return
        self.db.change_column(table, column, LONG)
        columns[column] = LONG
        self.said((table, True))

    def rename(self, old: str, new: str) -> None:
        self.db.rename_table(old, new)
        self.tables[new] = self.tables.pop(old)
        if old == self._main:
            self._main = new
        if new.startswith("out_"):
            self.said((old, False))
        else:
            self.said((new, True))

    def swap(self, table: str) -> None:
        other = next((t for t in sorted(self.tables) if t != table and not t.startswith("out_")), None)
        if other is None or table.startswith("out_"):
            return self.rename(table, self.name())
        if not self.db.swap_tables(table, other):
            away = self.name()
            for old, new in ((table, away), (other, table), (away, other)):
                self.rename(old, new)
            return None
        self.tables[table], self.tables[other] = self.tables[other], self.tables[table]
        self._main = other if table == self._main else self._main
        self.said((table, True), (other, True))

    def drop(self, table: str) -> None:
        self.db.drop_table(table)
        del self.tables[table]
        self.said((table, False))

    def truncate(self, table: str) -> None:
        self.db.truncate(table)
        self.tables[table].rows.clear()


def cases(rewrites: list[str], random: Random, *, each: int, longer: int) -> list[tuple[str, list[str]]]:
    """Each thing that may happen, after some kinds of rewriting; and longer stories by chance.

    :param each: kinds that each thing happens after
    """
    turns = itertools.cycle(rewrites)
    pairs = [(next(turns), [what]) for _ in range(min(each, len(rewrites))) for what in BETWEEN]
    return pairs + [(random.choice(rewrites), random.choices(BETWEEN, k=random.randint(2, 5))) for _ in range(longer)]


def compare(connector: Connector, journal: RowJournal, after: int) -> None:
    """Every event and every statement of the journal is in the change log once, in its order, and nothing else is. Events that
    cannot be read are identified by their number.

    :param after: batches up to this one are of the time before
    """
    events: dict[str, list[Event]] = defaultdict(list)
    left_out: Counter[str] = Counter()
    changes = []
    for manifest in connector.changelog.read_manifests("test", after=after):
        # a record without a statement corrects the structure of a table that came into sight, as the catalog of now had it
        changes += [r for r in manifest.schema_changes if not r.snapshot and r.ddl]
        for left in manifest.left_out:
            left_out[left.table.rpartition(".")[2]] += left.events
        found: list[tuple[int, str, Row]] = []
        for file in manifest.files:
            rows = pq.read_table(connector.changelog.storage.join_path("test", file.path)).to_pylist()
            found += [(row["seq"], file.topic.rpartition(".")[2], row) for row in rows]
        for _, table, row in sorted(found, key=lambda f: f[0]):
            if row["op"] in ("c", "u", "d"):
                before = row["before"] if row["op"] != "c" else None
                events[table].append((row["op"], before, row["after"]))
    for table in sorted({*events, *journal.events}):
        there, expected = events[table], list(_split_key_changes(journal.events[table]))
        n = next(
            (i for i, (a, b) in enumerate(zip(there, expected, strict=False)) if a != b), min(len(there), len(expected))
        )
        assert there == expected, (
            f"{table}, event {n} of {len(expected)}: {there[n : n + 1]} instead of {expected[n : n + 1]}"
        )
    assert left_out == journal.unreadable
    reported = [_left(record) for record in sorted(changes, key=lambda r: r.seq)]
    n = next(
        (i for i, (a, b) in enumerate(zip(reported, journal.changes, strict=False)) if a and a != b), len(reported)
    )
    assert n == len(journal.changes), f"statement {n}: {reported[n : n + 2]} instead of {journal.changes[n : n + 2]}"


def _split_key_changes(events: list[Event]) -> Iterator[Event]:
    """A change of the key is a delete and a create."""
    for op, before, after in events:
        if before is not None and after is not None and before["id"] != after["id"]:
            yield "d", before, None
            yield "c", None, after
        else:
            yield op, before, after


def _left(record: SchemaChangeRecord) -> set[tuple[str, bool]]:
    found = set()
    for change in record.changes:
        if not change.id.name.startswith("out_"):
            found.add((change.id.name, change.table is not None))
        elif change.previous_id is not None:
            found.add((change.previous_id.name, False))
    return found
