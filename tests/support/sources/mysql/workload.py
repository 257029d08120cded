"""A random writer for MySQL and MariaDB: the same seed makes the same log.

It does what applications do and what breaks readers of logs: transactions over several tables, key changes, key swaps, a key
deleted and inserted again, savepoints and rollbacks, and DDL in between.
"""

from __future__ import annotations

import datetime as dt
import random
import uuid
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

WORDS = {
    "INT1": "small", "TINYINT UNSIGNED": "small", "TINYINT(1)": "small", "BOOL": "small", "BOOLEAN": "small", "INT2": "small",
    "INT3 UNSIGNED": "small", "MIDDLEINT": "small", "MEDIUMINT ZEROFILL": "small", "INT4": "small", "INTEGER(5) ZEROFILL": "small",
    "INT8": "small", "BIGINT UNSIGNED": "small", "YEAR": "year", "YEAR(4)": "year", "BIT": "bit", "BIT(9)": "bit",
    "DEC(12,2)": "cents", "NUMERIC(12,2)": "cents", "FIXED(12,2)": "cents", "DEC": "small", "DECIMAL(40,2)": "cents",
    "FLOAT": "eighths", "FLOAT4": "eighths", "FLOAT(20)": "eighths", "FLOAT(30)": "eighths", "FLOAT8": "eighths", "REAL": "eighths",
    "DOUBLE PRECISION": "eighths", "CHAR": "letter", "CHAR(9)": "text", "CHARACTER(9)": "text", "CHAR VARYING(9)": "text",
    "CHARACTER VARYING(9)": "text", "NCHAR(9)": "ascii", "NVARCHAR(9)": "ascii", "NATIONAL CHAR(9)": "ascii", "NCHAR VARCHAR(9)": "ascii",
    "NATIONAL CHAR VARYING(9)": "ascii", "VARCHARACTER(9)": "text", "VARCHAR(9) ASCII": "ascii", "VARCHAR(9) UNICODE": "ascii",
    "CHAR(9) BINARY": "text", "CHAR(9) BYTE": "bytes", "VARCHAR(9) CHARSET latin1": "ascii", "TEXT(20) CHARACTER SET cp1251": "ascii",
    "LONG": "text", "LONG VARCHAR": "text", "LONG CHAR VARYING": "text", "LONG CHARSET latin1": "ascii", "TINYTEXT": "text",
    "TEXT(100)": "text", "TEXT(20000)": "text", "MEDIUMTEXT": "text", "LONGTEXT": "text", "TEXT BYTE": "bytes", "BINARY": "letter",
    "BINARY(9)": "bytes", "VARBINARY(9)": "bytes", "TINYBLOB": "bytes", "BLOB(100)": "bytes", "BLOB(70000)": "bytes", "LONGBLOB": "bytes",
    "LONG VARBINARY": "bytes", "ENUM('a','b ','it''s')": "member", "SET('a','b','c')": "members", "ENUM('a','b') CHARSET binary": "member",
    "TIME": "time", "TIME(3)": "time", "DATETIME(3)": "moment", "TIMESTAMP NULL": "moment", "TIMESTAMP(3) NULL": "moment",
    "JSON": "json", "INT INVISIBLE": "small",
}  # fmt: skip
"""Other words for types that MySQL and MariaDB know → what kind of literal fits."""
WORDS_OF_MARIADB = WORDS | {
    "UUID": "uuid", "INET4": "inet4", "INET6": "inet6", "TEXT COMPRESSED": "text", "VARCHAR(99) COMPRESSED": "text",
    "JSON COMPRESSED": "json",
}  # fmt: skip
_NO_KEY = (
    "TEXT",
    "BLOB",
    "LONG",
    "JSON",
    "TINYTEXT",
    "TINYBLOB",
    "MEDIUMTEXT",
    "LONGTEXT",
    "LONGBLOB",
    "VARCHAR(99) COMPRESSED",
)
"""How types begin that an index cannot have whole."""


class Writer:
    """Writes into ``database`` over one connection.

    :param ddl: how likely a schema change is between two transactions
    :param words: further types, with the kind of their literals; with them tables are also made again, and changed several times in a row
    """

    def __init__(
        self, connection: Any, database: str, seed: int, *, ddl: float = 0.01, words: dict[str, str] | None = None
    ) -> None:
        self.random, self.database, self.ddl = random.Random(seed), database, ddl
        self.words = words or {}
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
                for _ in range(self.random.choice((1, 2, 4)) if self.words else 1):
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
        """Run one or more statements that belong together."""
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
        # however much is written on a slow machine, there is a key left
        most = max(5000, 2 * len(self.keys.get(table, ())))
        while True:
            n = self.random.randint(0, most)
            key = (n % 70, f"k{n}") if table == "two" else n
            if table == "bag" or key not in self.keys[table]:
                self.keys.get(table, set()).add(key)
                return key

    def value(self, type_: str) -> str:
        """A literal of a type, NULL now and then."""
        r = self.random
        if r.random() < 0.1:
            return "NULL"
        if type_ in self.words:
            return self._literal(self.words[type_])
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

    def _literal(self, kind: str) -> str:
        """A literal of one of the kinds of :data:`WORDS`."""
        r = self.random
        text = "".join(r.choice("abc z") for _ in range(r.randint(0, 9)))
        kinds: dict[str, Any] = {
            "small": lambda: str(r.randint(0, 99)),
            "year": lambda: str(r.choice((1901, 2024, 2155))),
            "bit": lambda: f"b'{r.randint(0, 1)}'",
            "cents": lambda: f"{r.randint(-(10**7), 10**7) / 100:.2f}",
            "eighths": lambda: str(r.randint(-1000, 1000) / 8),
            "letter": lambda: r.choice(("'a'", "'b'")),
            "ascii": lambda: f"'{text}'",
            "text": lambda: r.choice((f"'{text}'", "'é€'", "'it''s ${x}'", "'\\\\ `\"'")),
            "bytes": lambda: f"x'{r.randbytes(r.randint(0, 9)).hex()}'",
            "member": lambda: r.choice(("'a'", "'b'")),
            "members": lambda: r.choice(("''", "'a'", "'b,c'")),
            "time": lambda: r.choice(("'-12:34:56'", "'838:59:59'", "'00:00:00.5'")),
            "moment": lambda: (
                f"'{dt.datetime(2001, 2, 3) + dt.timedelta(seconds=r.randint(0, 10**8), milliseconds=125)}'"
            ),
            "json": lambda: r.choice(("'{\"a\": 1}'", "'[1, \"x\"]'", "'null'")),
            "uuid": lambda: f"'{uuid.UUID(int=r.getrandbits(128), version=4)}'",
            "inet4": lambda: f"'10.0.{r.randint(0, 255)}.0'",
            "inet6": lambda: f"'2001:db8::{r.randint(1, 9)}'",
        }
        literal: str = kinds[kind]()
        return literal

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
        kinds = [self.add, self.add, self.drop, self.widen, self.rename, self.other, self.index, self.empty]
        self.random.choice([*kinds, self.add_many, self.make_anew] if self.words else kinds)(table)

    def add(self, table: str) -> None:
        self._names += 1
        name, type_ = f"c{self._names}", self.random.choice((*TYPES, *self.words))
        default = f" DEFAULT {DEFAULTS[type_]}" if type_ in DEFAULTS and self.random.random() < 0.5 else ""
        place = self.random.choice(("", " FIRST", *(f" AFTER {c}" for c in self.columns[table])))
        self.run(f"ALTER TABLE {table} ADD COLUMN {name} {type_}{default}{place}")
        self.columns[table][name] = type_

    def add_many(self, table: str) -> None:
        """Several columns at once, of types by other words."""
        made = self._some_columns(self.random.randint(2, 5))
        if len(self.columns[table]) + len(made) <= 40:
            self.run(f"ALTER TABLE {table} ADD ({', '.join(f'{c} {t}' for c, t in made.items())})")
            self.columns[table] |= made

    def make_anew(self, table: str) -> None:
        """Drop a table and create it again with other columns."""
        if self.random.random() < 0.5:
            return
        keys = {"one": "id INT PRIMARY KEY, ", "bag": ""}
        key = keys.get(table, "a VARCHAR(10) NOT NULL, b INT NOT NULL, PRIMARY KEY (b, a), ")
        self.columns[table] = {"s": "VARCHAR(20)"} | self._some_columns(self.random.randint(3, 10))
        self.run(f"DROP TABLE {table}")
        self.run(f"CREATE TABLE {table} ({key}{', '.join(f'{c} {t}' for c, t in self.columns[table].items())})")
        self.keys.get(table, set()).clear()

    def _some_columns(self, count: int) -> dict[str, str]:
        found = {}
        for _ in range(count):
            self._names += 1
            found[f"c{self._names}"] = self.random.choice(sorted(self.words))
        return found

    def drop(self, table: str) -> None:
        if len(self.columns[table]) > 2:
            name = self.random.choice(sorted(self.columns[table]))
            self.run(f"ALTER TABLE {table} DROP COLUMN {name}")
            del self.columns[table][name]

    def widen(self, table: str) -> None:
        self._modify(table, WIDER)

    def other(self, table: str) -> None:
        """A type whose values are others, so that the table has to be read again."""
        self.rereads += self._modify(table, OTHER)

    def _modify(self, table: str, to: dict[str, str]) -> bool:
        able = [c for c, t in sorted(self.columns[table].items()) if t in to]
        if able:
            name = self.random.choice(able)
            type_ = to[self.columns[table][name]]
            self.run(f"ALTER TABLE {table} MODIFY COLUMN {name} {type_}")
            self.columns[table][name] = type_
        return bool(able)

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
        able = [c for c, t in sorted(self.columns[table].items()) if not t.startswith(_NO_KEY)]
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
        types = {c: t for c, t, *_ in cursor.fetchall()}
        columns = [f"`{c}` + 0e0 AS `{c}`" if t == "float" else f"`{c}`" for c, t in types.items()]
        cursor.execute(f"SELECT {', '.join(columns)} FROM `{table}`")
        rows = [
            {c: _plain_value(v, t) for v, (c, t) in zip(row, types.items(), strict=True)} for row in cursor.fetchall()
        ]
    return sorted(rows, key=repr)


def _plain_value(value: Any, type_: str) -> Any:
    """A value as the change log has it."""
    if value is None:
        return None
    if isinstance(value, dt.timedelta):
        return value // dt.timedelta(microseconds=1)
    if type_ == "bit(1)":
        return value == b"\1"
    if type_.startswith("bit"):
        return bytes(reversed(value))
    if type_.startswith("timestamp"):
        return value.replace(tzinfo=dt.UTC)
    if type_.startswith(("enum", "set")) and isinstance(value, bytes):  # with the character set binary
        return value.decode()
    # more digits than a decimal of Arrow, Parquet and Spark has
    return str(value) if type_ == "decimal(40,2)" else value
