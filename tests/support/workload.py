"""A random writer for MySQL and MariaDB: the same seed makes the same log.

It does what applications do and what breaks readers of logs: transactions over several tables, key changes, key swaps, a key
deleted and inserted again, savepoints and rollbacks, and DDL in between.
"""

from __future__ import annotations

import datetime as dt
import random
from decimal import Decimal
from typing import Any

TYPES = ("INT", "BIGINT", "DECIMAL(10,2)", "VARCHAR(20)", "DATETIME(6)", "DOUBLE", "DATE", "TEXT", "SMALLINT UNSIGNED")
DEFAULTS = {"INT": "7", "BIGINT": "-8", "DECIMAL(10,2)": "1.25", "VARCHAR(20)": "'x y'", "SMALLINT UNSIGNED": "65535"}
WIDER = {
    "INT": "BIGINT",
    "SMALLINT UNSIGNED": "INT UNSIGNED",
    "VARCHAR(20)": "VARCHAR(200)",
    "DECIMAL(10,2)": "DECIMAL(14,4)",
}
OTHER = {"INT": "VARCHAR(20)", "BIGINT": "DECIMAL(20,0)", "DATE": "DATETIME", "DOUBLE": "FLOAT"}


class Writer:
    """Writes into ``database`` over one connection.

    :param ddl: how likely a schema change is between two transactions
    """

    def __init__(self, connection: Any, database: str, seed: int, *, ddl: float = 0.01) -> None:
        self.random, self.database, self.ddl = random.Random(seed), database, ddl
        self._connection = connection
        self._cursor = connection.cursor()
        self.columns: dict[str, dict[str, str]] = {}
        self.keys: dict[str, set[Any]] = {}
        self.transactions = self.changes = self._names = 0
        self.rereads = 0

    def prepare(self) -> None:
        """Create the tables: an integer key, a composite text key, and no key at all."""
        self.run(f"CREATE DATABASE {self.database}")
        self.run(f"USE {self.database}")
        value = {"n": "INT", "d": "DECIMAL(10,2)", "s": "VARCHAR(20)", "at": "DATETIME(6)"}
        body = ", ".join(f"{c} {t}" for c, t in value.items())
        self.run(f"CREATE TABLE one (id INT PRIMARY KEY, {body})")
        self.run(f"CREATE TABLE two (a VARCHAR(10) NOT NULL, b INT NOT NULL, {body}, PRIMARY KEY (b, a))")
        self.run(f"CREATE TABLE bag ({body})")
        self.columns = {"one": dict(value), "two": dict(value), "bag": dict(value)}
        self.keys = {"one": set(), "two": set()}

    def run(self, sql: str) -> None:
        self._cursor.execute(sql)

    def write(self, transactions: int) -> None:
        """So many transactions, with DDL in between."""
        for _ in range(transactions):
            if self.random.random() < self.ddl:
                self.change_schema()
            self.transaction()

    # -- transactions -------------------------------------------------------------------------------------------------

    def transaction(self) -> None:
        """A few changes of one or more tables, committed or rolled back."""
        saved = {t: set(k) for t, k in self.keys.items()}
        self.run("BEGIN")
        for _ in range(self.random.choice((1, 1, 2, 3, 8))):
            self.step()
            if self.random.random() < 0.05:
                self.part_rolled_back()
        if self.random.random() < 0.1:
            self.run("ROLLBACK")
            self.keys = saved
        else:
            self.run("COMMIT")
        self.transactions += 1

    def part_rolled_back(self) -> None:
        saved = {t: set(k) for t, k in self.keys.items()}
        self.run("SAVEPOINT here")
        self.step()
        self.step()
        if self.random.random() < 0.7:
            self.run("ROLLBACK TO here")
            self.keys = saved

    def step(self) -> None:
        """One or more statements that belong together."""
        table = self.random.choice(("one", "one", "two", "bag"))
        kinds = [self.insert, self.insert, self.update]
        if table != "bag":
            kinds += [self.delete, self.move, self.swap, self.again, self.insert_many]
        else:
            kinds += [self.delete_bag]
        self.random.choice(kinds)(table)
        self.changes += 1

    def insert(self, table: str) -> None:
        key = self.new_key(table)
        self._insert(table, key)

    def insert_many(self, table: str) -> None:
        keys = [self.new_key(table) for _ in range(self.random.randint(2, 30))]
        rows = ", ".join(self._row(table, k) for k in keys)
        self.run(f"INSERT INTO {table} ({self._names_of(table)}) VALUES {rows}")

    def update(self, table: str) -> None:
        columns = self.columns[table]
        if not columns:
            return
        some = self.random.sample(sorted(columns), min(len(columns), self.random.randint(1, 3)))
        sets = ", ".join(f"{c} = {self.value(columns[c])}" for c in some)
        if table == "bag":
            self.run(f"UPDATE bag SET {sets} LIMIT 2")
        elif self.keys[table]:
            self.run(f"UPDATE {table} SET {sets} WHERE {self._where(table, self.old_key(table))}")

    def delete(self, table: str) -> None:
        if self.keys[table]:
            key = self.old_key(table)
            self.keys[table].discard(key)
            self.run(f"DELETE FROM {table} WHERE {self._where(table, key)}")

    def delete_bag(self, table: str) -> None:
        self.run("DELETE FROM bag LIMIT 1")

    def move(self, table: str) -> None:
        """Change a key."""
        if self.keys[table]:
            old, new = self.old_key(table), self.new_key(table)
            self.keys[table].discard(old)
            self.run(f"UPDATE {table} SET {self._set_key(table, new)} WHERE {self._where(table, old)}")

    def swap(self, table: str) -> None:
        """Two rows exchange their keys."""
        if len(self.keys[table]) >= 2:
            a, b = self.random.sample(sorted(self.keys[table]), 2)
            away = (-1, "away") if table == "two" else -1
            for old, new in ((a, away), (b, a), (away, b)):
                self.run(f"UPDATE {table} SET {self._set_key(table, new)} WHERE {self._where(table, old)}")

    def again(self, table: str) -> None:
        """Delete a key and insert it again."""
        if self.keys[table]:
            key = self.old_key(table)
            self.run(f"DELETE FROM {table} WHERE {self._where(table, key)}")
            self._insert(table, key)

    # -- keys and values ----------------------------------------------------------------------------------------------

    def old_key(self, table: str) -> Any:
        return self.random.choice(sorted(self.keys[table]))

    def new_key(self, table: str) -> Any:
        while True:
            n = self.random.randint(0, 5000)
            key = (n % 70, f"k{n}") if table == "two" else n
            if table == "bag" or key not in self.keys[table]:
                self.keys.get(table, set()).add(key)
                return key

    def value(self, type_: str) -> str:
        """A literal of a type, NULL now and then."""
        r = self.random
        if r.random() < 0.1:
            return "NULL"
        base = type_.split("(")[0]
        match base:
            case "SMALLINT UNSIGNED" | "INT UNSIGNED":
                return str(r.choice((0, 65535, r.randint(0, 65535))))
            case "INT" | "BIGINT":
                return str(r.choice((0, -1, 2**31 - 1, -(2**31), r.randint(-(10**6), 10**6))))
            case "DECIMAL":
                return f"{r.randint(-(10**7), 10**7) / 100:.2f}"
            case "DOUBLE":
                return repr(r.uniform(-1e6, 1e6))
            case "FLOAT":
                return str(r.randint(-1000, 1000) / 8)
            case "DATE" | "DATETIME":
                at = dt.datetime(2000, 1, 1) + dt.timedelta(
                    seconds=r.randint(0, 10**9), microseconds=r.randint(0, 999999)
                )
                return f"'{at.date()}'" if base == "DATE" else f"'{at}'"
        return (
            "'"
            + "".join(r.choice("abc é€'😀\\ ") for _ in range(r.randint(0, 9))).replace("\\", "\\\\").replace("'", "''")
            + "'"
        )

    def _key_columns(self, table: str) -> tuple[str, ...]:
        return {"one": ("id",), "two": ("b", "a"), "bag": ()}[table]

    def _parts(self, table: str, key: Any) -> list[str]:
        return [repr(part) for part in (key if table == "two" else (key,))] if table != "bag" else []

    def _where(self, table: str, key: Any) -> str:
        return " AND ".join(
            f"{c} = {v}" for c, v in zip(self._key_columns(table), self._parts(table, key), strict=True)
        )

    def _set_key(self, table: str, key: Any) -> str:
        return ", ".join(f"{c} = {v}" for c, v in zip(self._key_columns(table), self._parts(table, key), strict=True))

    def _names_of(self, table: str) -> str:
        return ", ".join((*self._key_columns(table), *self.columns[table]))

    def _row(self, table: str, key: Any) -> str:
        return "(" + ", ".join([*self._parts(table, key), *(self.value(t) for t in self.columns[table].values())]) + ")"

    def _insert(self, table: str, key: Any) -> None:
        self.run(f"INSERT INTO {table} ({self._names_of(table)}) VALUES {self._row(table, key)}")

    # -- schema changes -----------------------------------------------------------------------------------------------

    def change_schema(self) -> None:
        table = self.random.choice(("one", "two", "bag"))
        self.random.choice(
            (self.add, self.add, self.drop, self.widen, self.rename, self.other, self.index, self.empty)
        )(table)

    def add(self, table: str) -> None:
        self._names += 1
        name, type_ = f"c{self._names}", self.random.choice(TYPES)
        default = f" DEFAULT {DEFAULTS[type_]}" if type_ in DEFAULTS and self.random.random() < 0.5 else ""
        place = self.random.choice(("", " FIRST", *(f" AFTER {c}" for c in self.columns[table])))
        self.run(f"ALTER TABLE {table} ADD COLUMN {name} {type_}{default}{place}")
        self.columns[table][name] = type_

    def drop(self, table: str) -> None:
        if len(self.columns[table]) > 2:
            name = self.random.choice(sorted(self.columns[table]))
            self.run(f"ALTER TABLE {table} DROP COLUMN {name}")
            del self.columns[table][name]

    def widen(self, table: str) -> None:
        self._modify(table, WIDER)

    def other(self, table: str) -> None:
        """A type whose values are others, so that the table has to be read again."""
        self._modify(table, OTHER)
        self.rereads += 1

    def _modify(self, table: str, to: dict[str, str]) -> None:
        able = [c for c, t in sorted(self.columns[table].items()) if t in to]
        if able:
            name = self.random.choice(able)
            type_ = to[self.columns[table][name]]
            self.run(f"ALTER TABLE {table} MODIFY COLUMN {name} {type_}")
            self.columns[table][name] = type_

    def rename(self, table: str) -> None:
        self._names += 1
        old, new = self.random.choice(sorted(self.columns[table])), f"c{self._names}"
        type_ = self.columns[table].pop(old)
        self.run(f"ALTER TABLE {table} CHANGE COLUMN {old} {new} {type_}")
        self.columns[table][new] = type_

    def index(self, table: str) -> None:
        self._names += 1
        self.run(f"ALTER TABLE {table} COMMENT 'c{self._names}', ADD INDEX i{self._names} ({self._indexable(table)})")

    def _indexable(self, table: str) -> str:
        """A column that an index can have without a length."""
        able = [c for c, t in sorted(self.columns[table].items()) if t != "TEXT"]
        return self.random.choice(able) if able else "s"

    def empty(self, table: str) -> None:
        if self.random.random() < 0.3:
            self.run(f"TRUNCATE TABLE {table}")
            self.keys.get(table, set()).clear()


def source_rows(server: Any, database: str, table: str) -> list[dict[str, Any]]:
    """A table's rows by a plain SELECT, in the change log's types, in the order of their values."""
    with server.connect(database=database) as connection, connection.cursor() as cursor:
        cursor.execute("SET time_zone = '+00:00'")
        cursor.execute(f"SHOW COLUMNS FROM `{table}`")
        # the text protocol rounds a FLOAT to six digits; as a DOUBLE it comes whole
        columns = [f"`{c}` + 0e0 AS `{c}`" if t == "float" else f"`{c}`" for c, t, *_ in cursor.fetchall()]
        cursor.execute(f"SELECT {', '.join(columns)} FROM `{table}`")
        names = [d[0] for d in cursor.description]
        rows = [dict(zip(names, map(_plain, row), strict=True)) for row in cursor.fetchall()]
    return sorted(rows, key=repr)


def _plain(value: Any) -> Any:
    if isinstance(value, dt.timedelta):
        return value // dt.timedelta(microseconds=1)
    return Decimal(value) if isinstance(value, Decimal) else value
