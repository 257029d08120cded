"""Connections that are lost, readers that stall, slots that are invalidated: nothing is lost or doubled, or an error says what is."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from airflow_provider_cdc.core.errors import PositionLost
from airflow_provider_cdc.core.model.log_items import LogBlock, LogItem, Rollback
from airflow_provider_cdc.sources.postgresql.log.slot_stream import SlotStream
from airflow_provider_cdc.sources.postgresql.position import parse_lsn
from dev.servers import Postgres
from tests.sources.postgresql.log.streamed import Database, Event, open_database

KILL = "SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE active_pid > 0"


@pytest.fixture(scope="module", params=["14", "18"])
def server(request: pytest.FixtureRequest, postgres_factory: Callable[..., Postgres]) -> Iterator[Postgres]:
    options = {"wal_level": "logical", "max_replication_slots": "50", "wal_sender_timeout": "1s"}
    with postgres_factory(request.param, **options) as server:
        yield server


def work(base: Database, chance: random.Random, transactions: int) -> None:
    """Change rows of two tables at random, with savepoints, rollbacks and truncations."""
    with base.server.connect(dbname=base.name) as connection:
        connection.autocommit = False
        for _ in range(transactions):
            for _ in range(chance.choice([1, 1, 3, 40])):
                table, key = chance.choice("tf"), chance.randrange(30)
                statement = chance.choice(
                    [
                        f"INSERT INTO {table} VALUES ({key}, {chance.random()}, repeat(md5('{key}'), {chance.choice([1, 300])})) ON CONFLICT DO NOTHING",
                        f"UPDATE {table} SET n = {chance.random()} WHERE id < {key}",
                        f"UPDATE {table} SET id = id + 100 WHERE id = {key} AND NOT EXISTS (SELECT FROM {table} WHERE id = {key} + 100)",
                        f"DELETE FROM {table} WHERE id % 30 = {key}",
                        "SAVEPOINT s; UPDATE t SET n = 0; ROLLBACK TO SAVEPOINT s",
                        "TRUNCATE f" if chance.random() < 0.1 else "SELECT 1",
                    ]
                )
                connection.execute(statement)  # type: ignore[call-overload]
            (connection.rollback if chance.random() < 0.2 else connection.commit)()


def apply(events: list[Event], rows: dict[str, dict[int, dict[str, Any]]]) -> None:
    """Apply events to tables, as targets do."""
    for event in events:
        table = rows[event.table]
        if event.op == "t":
            table.clear()
            continue
        key = (event.before or event.after or {})["id"]
        old = table.pop(key, None)
        assert (old is None) == (event.op == "c"), event
        if event.after is not None:
            assert event.after["id"] not in table
            lacking = {name: old[name] for name in event.lacking} if old else {}
            table[event.after["id"]] = {**event.after, **lacking}


@pytest.mark.parametrize("seed", range(2))
def test_a_lost_connection_at_any_moment_loses_and_doubles_nothing(server: Postgres, seed: int) -> None:
    lose_connections(server, seed)


@pytest.mark.parametrize("edition", ["", "16", "17"])
def test_other_versions_lose_and_double_nothing(postgres_factory: Callable[..., Postgres], edition: str) -> None:
    with postgres_factory(edition, wal_level="logical") as server:
        lose_connections(server, 7)


def lose_connections(server: Postgres, seed: int) -> None:
    """Read the changes of a random workload, and end the connection again and again."""
    columns = "(id int PRIMARY KEY, n float8, long text)"
    base = open_database(
        server, f"CREATE TABLE t {columns}", f"CREATE TABLE f {columns}", "ALTER TABLE f REPLICA IDENTITY FULL",
        "ALTER TABLE t ALTER long SET STORAGE EXTERNAL", "ALTER TABLE f ALTER long SET STORAGE EXTERNAL",
    )  # fmt: skip
    chance, rows = random.Random(seed), dict[str, dict[int, dict[str, Any]]](t={}, f={})

    def kill(stream: SlotStream, item: LogItem) -> None:
        if chance.random() < 0.1:
            base.sql(KILL)

    for _ in range(3):
        work(base, chance, 25)
        apply(base.capture(block_bytes=chance.choice([3_000, 50_000, 8 << 20]), after_item=kill), rows)
        for table, captured in rows.items():
            found = base.sql(f"SELECT id, n, long FROM {table} ORDER BY id")
            assert found == [tuple(captured[key].values()) for key in sorted(captured)]


def test_a_reader_that_stalls_continues_where_it_was(server: Postgres) -> None:
    base = open_database(server, "CREATE TABLE t (id int PRIMARY KEY, note text)")
    base.sql(
        "INSERT INTO t SELECT n, repeat('x', 2000) FROM generate_series(1, 8000) n", "INSERT INTO t VALUES (0, 'y')"
    )
    stalls = iter(range(1))

    def stall(stream: SlotStream, item: LogItem) -> None:
        if isinstance(item, LogBlock) and next(stalls, None) is not None:
            time.sleep(2.5)  # longer than wal_sender_timeout

    events = base.capture(block_bytes=1 << 20, after_item=stall)
    assert [e.after["id"] for e in events if e.after] == [*range(1, 8001), 0]
    assert base.metrics.disconnects >= 1
    assert any(isinstance(item, Rollback) for item in base.items)


def test_a_new_connection_confirms_no_more_than_is_durable(server: Postgres) -> None:
    base = open_database(server, "CREATE TABLE t (id int PRIMARY KEY)")
    base.sql("INSERT INTO t VALUES (1)", "INSERT INTO t VALUES (2)")
    kills = iter(range(1))

    def kill(stream: SlotStream, item: LogItem) -> None:
        if stream.last_position.lsn > base.start.lsn and next(kills, None) is not None:
            base.sql(KILL)

    began = base.start
    assert len(base.capture(after_item=kill, confirm=False)) == 2
    query = f"SELECT confirmed_flush_lsn FROM pg_replication_slots WHERE slot_name = '{base.name}'"
    assert parse_lsn(base.sql(query)[0][0]) == began.lsn


def test_an_invalidated_slot_is_a_lost_position(postgres_factory: Callable[..., Postgres]) -> None:
    options = {"wal_level": "logical", "max_slot_wal_keep_size": "1MB", "max_wal_size": "64MB", "min_wal_size": "32MB"}
    with postgres_factory("18", **options) as server:
        base = open_database(server, "CREATE TABLE t (id int PRIMARY KEY, note text)")
        for n in range(6):
            base.sql(f"INSERT INTO t SELECT n + {n} * 100000, repeat('x', 100) FROM generate_series(1, 50000) n")
            base.sql("SELECT pg_switch_wal()", "CHECKPOINT")
        with pytest.raises(PositionLost, match="wal_removed"):
            base.capture()
