"""Writes at random to the sources, through restarts of their servers, and the rows that sources and tables have in the end."""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pymysql
from pymongo.errors import PyMongoError

from dev.servers import MariaDb
from dev.servers.mongodb import MongoDb

KEYS = 200
"""Rows of a table have keys up to this: the same row changes again and again."""
Rows = Counter[tuple[Any, ...]]

KEYED = ("flow", "first", "second")
"""Databases with a table ``t`` that has a key; ``flow`` has a table ``entries`` without one beside it."""


def make_tables(server: MariaDb) -> None:
    """Make the databases."""
    for name in KEYED:
        server.sql(f"CREATE DATABASE {name}", f"CREATE TABLE {name}.t (id INT PRIMARY KEY, n INT, note VARCHAR(50))")
    server.sql("CREATE TABLE flow.entries (n INT, note VARCHAR(50))")


class Writers:
    """Threads, one for each source, that write small transactions until the block ends.

    :param seed: of the writes
    """

    def __init__(self, seed: int, mariadb: MariaDb, mongodb: MongoDb) -> None:
        self._mariadb, self._mongodb = mariadb, mongodb
        self._ended = threading.Event()
        self.written: Counter[str] = Counter()
        work: list[tuple[str, Callable[[Random], None]]] = [
            ("mariadb", self._write_rows),
            ("mongodb", self._write_documents),
        ]
        self._threads = [
            threading.Thread(target=self._repeat, args=(name, write, Random(f"{seed} {name}")), daemon=True)
            for name, write in work
        ]

    def __enter__(self) -> Writers:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        for thread in self._threads:
            thread.join()

    def _repeat(self, name: str, write: Callable[[Random], None], random: Random) -> None:
        while not self._ended.wait(random.uniform(0.05, 0.6)):
            try:
                write(random)
                self.written[name] += 1
            except (OSError, pymysql.MySQLError, PyMongoError):  # the server is away
                self._ended.wait(0.5)

    def _write_rows(self, random: Random) -> None:
        name = random.choice(KEYED)
        with self._mariadb.connect(autocommit=False) as connection, connection.cursor() as cursor:
            for _ in range(random.randint(1, 6)):
                key, n = random.randint(1, KEYS), random.randint(0, 10**6)
                if random.random() < 0.25:
                    cursor.execute(f"DELETE FROM {name}.t WHERE id = %s", (key,))
                else:
                    cursor.execute(f"REPLACE INTO {name}.t VALUES (%s, %s, %s)", (key, n, f"note {n}"))
            if name == "flow":
                cursor.execute("INSERT INTO flow.entries VALUES (%s, %s)", (random.randint(0, 50), "entry"))
            (connection.rollback if random.random() < 0.1 else connection.commit)()

    def _write_documents(self, random: Random) -> None:
        with self._mongodb.connect(serverSelectionTimeoutMS=2000) as client:
            for _ in range(random.randint(1, 6)):
                key, n = random.randint(1, KEYS), random.randint(0, 10**6)
                if random.random() < 0.25:
                    client.documents.t.delete_one({"_id": key})
                else:
                    client.documents.t.replace_one({"_id": key}, {"n": n, "note": f"note {n}"}, upsert=True)


def source_rows(mariadb: MariaDb, mongodb: MongoDb) -> dict[str, Rows]:
    """Return the rows of each table, by connector and table."""
    found: dict[str, Rows] = {f"{name}/t": Counter(mariadb.sql(f"SELECT * FROM {name}.t")) for name in KEYED}
    found["flow/entries"] = Counter(mariadb.sql("SELECT * FROM flow.entries"))
    with mongodb.connect() as client:
        found["documents/t"] = Counter((d["_id"], d["n"], d["note"]) for d in client.documents.t.find())
    return found


def lake_rows(lake: Path) -> dict[str, Rows]:
    """Return the rows of each table of the lake, read without Spark."""
    import deltalake
    import pyarrow as pa

    found: dict[str, Rows] = {}
    for log in lake.glob("*/*/_delta_log"):
        try:
            table = deltalake.DeltaTable(log.parent)
        except deltalake.exceptions.TableNotFoundError:  # its first commit is still to come
            continue
        rows = pa.table(deltalake.QueryBuilder().register("t", table).execute("SELECT * FROM t").read_all()).to_pylist()
        name = str(log.parent.relative_to(lake))
        if name.startswith("documents/"):
            documents = [json.loads(row["document"]) for row in rows]
            found[name] = Counter((d["_id"], d["n"], d["note"]) for d in documents)
        else:
            found[name] = Counter(tuple(row[column] for column in ("id", "n", "note") if column in row) for row in rows)
    return found
