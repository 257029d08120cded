"""Rows and transactions in the stream of a slot, of real servers of the oldest and the newest version."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import pytest

from airflow_provider_cdc.core.errors import PositionLost, PrerequisiteError, SourceBusy
from airflow_provider_cdc.core.model.log_items import Heartbeat, LogBlock
from airflow_provider_cdc.sources.postgresql.position import PostgresPosition, parse_lsn
from dev.servers import Postgres
from tests.sources.postgresql.log.streamed import Event, open_database

T = "CREATE TABLE t (id int PRIMARY KEY, note text)"


@pytest.fixture(scope="module", params=["14", "18"])
def server(request: pytest.FixtureRequest, postgres_factory: Callable[..., Postgres]) -> Iterator[Postgres]:
    options = {"wal_level": "logical", "max_prepared_transactions": "10", "max_replication_slots": "50"}
    with postgres_factory(request.param, **options) as server:
        yield server


def shorts(events: list[Event]) -> list[tuple[object, ...]]:
    return [event.short for event in events]


def test_rows_come_with_the_images_that_their_replica_identity_has(server: Postgres) -> None:
    base = open_database(
        server, T, "CREATE TABLE f (id int PRIMARY KEY, note text)", "ALTER TABLE f REPLICA IDENTITY FULL",
        "CREATE TABLE i (id int, code text NOT NULL UNIQUE, note text)", "ALTER TABLE i REPLICA IDENTITY USING INDEX i_code_key",
    )  # fmt: skip
    base.sql(
        "INSERT INTO t VALUES (1, 'a')", "UPDATE t SET note = 'b'", "UPDATE t SET id = 2", "DELETE FROM t",
        "INSERT INTO f VALUES (1, 'a')", "UPDATE f SET note = NULL", "DELETE FROM f",
        "INSERT INTO i VALUES (1, 'c', 'a')", "UPDATE i SET code = 'd'", "DELETE FROM i",
    )  # fmt: skip
    events = base.capture()
    assert shorts(events) == [
        ("c", "t", None, {"id": 1, "note": "a"}),
        ("u", "t", None, {"id": 1, "note": "b"}),
        ("u", "t", {"id": 1, "note": None}, {"id": 2, "note": "b"}),
        ("d", "t", {"id": 2, "note": None}, None),
        ("c", "f", None, {"id": 1, "note": "a"}),
        ("u", "f", {"id": 1, "note": "a"}, {"id": 1, "note": None}),
        ("d", "f", {"id": 1, "note": None}, None),
        ("c", "i", None, {"id": 1, "code": "c", "note": "a"}),
        ("u", "i", {"id": None, "code": "c", "note": None}, {"id": 1, "code": "d", "note": "a"}),
        ("d", "i", {"id": None, "code": "d", "note": None}, None),
    ]
    assert [e.lacking_before for e in events[2:4]] == [("note",)] * 2
    assert [e.lacking_before for e in events[4:]] == [(), (), (), (), ("id", "note"), ("id", "note")]
    assert len({e.transaction for e in events}) == 10
    assert not base.take_changes()


@pytest.mark.parametrize("identity", ["DEFAULT", "FULL"])
def test_an_unchanged_value_beside_the_row_is_unavailable_unless_the_old_image_has_it(
    server: Postgres, identity: str
) -> None:
    base = open_database(
        server, "CREATE TABLE t (id int PRIMARY KEY, n int, long text)", "ALTER TABLE t ALTER long SET STORAGE EXTERNAL",
        f"ALTER TABLE t REPLICA IDENTITY {identity}",
    )  # fmt: skip
    text = "x" * 10_000
    base.sql(f"INSERT INTO t VALUES (1, 1, '{text}')", "UPDATE t SET n = 2", "UPDATE t SET long = 'y'")
    _, event, last = base.capture()
    assert last.after == {"id": 1, "n": 2, "long": "y"}
    assert not last.lacking
    if identity == "FULL":
        assert event.after == {"id": 1, "n": 2, "long": text}
        assert not event.lacking
    else:
        assert event.after == {"id": 1, "n": 2, "long": None}
        assert event.lacking == ("long",)


def test_only_what_was_committed_comes_in_the_order_of_commits(server: Postgres) -> None:
    base = open_database(server, T)
    with server.connect(dbname=base.name) as one, server.connect(dbname=base.name) as other:
        one.autocommit = other.autocommit = False
        one.execute("INSERT INTO t VALUES (1, 'one')")
        other.execute("INSERT INTO t VALUES (2, 'other')")
        other.execute("SAVEPOINT s")
        other.execute("INSERT INTO t VALUES (3, 'void')")
        other.execute("ROLLBACK TO SAVEPOINT s")
        other.execute("INSERT INTO t VALUES (4, 'other')")
        other.commit()
        one.execute("INSERT INTO t VALUES (5, 'one')")
        one.commit()
        one.execute("INSERT INTO t VALUES (6, 'void')")
        one.rollback()
    base.sql("BEGIN; INSERT INTO t VALUES (7, 'prepared'); PREPARE TRANSACTION 'p'")
    base.sql("INSERT INTO t VALUES (8, 'between')")
    events = base.capture()
    assert [e.after["id"] for e in events if e.after] == [2, 4, 1, 5, 8]
    assert len({e.transaction for e in events}) == 3
    base.sql("COMMIT PREPARED 'p'")
    assert [e.after["id"] for e in base.capture() if e.after] == [7]


def test_a_large_transaction_comes_in_parts(server: Postgres) -> None:
    base = open_database(server, T)
    base.sql("INSERT INTO t VALUES (0, 'before')")
    base.sql("INSERT INTO t SELECT n, repeat('x', 50) FROM generate_series(1, 150000) n")
    base.sql("INSERT INTO t VALUES (-1, 'behind')")
    events = base.capture(block_bytes=100_000)
    assert [e.after["id"] for e in events if e.after] == [0, *range(1, 150001), -1]
    blocks = [item for item in base.items if isinstance(item, LogBlock)]
    assert sum(block.open for block in blocks) >= 3
    assert all(len(block.transactions) == 1 for block in blocks if block.open)
    assert base.metrics.large == 1


def test_a_stream_ends_promptly_at_its_end(server: Postgres) -> None:
    base = open_database(server, T)
    base.sql("INSERT INTO t VALUES (1, 'a')")
    assert len(base.capture()) == 1
    base.sql("SELECT pg_switch_wal()")
    began = time.monotonic()
    assert not base.capture()
    assert time.monotonic() - began < 1


def test_nothing_that_was_committed_behind_the_end_comes(server: Postgres) -> None:
    base = open_database(server, T)
    base.sql("INSERT INTO t VALUES (1, 'a')")
    end = base.end
    base.sql("INSERT INTO t VALUES (2, 'b')", "ALTER TABLE t ADD x int", "INSERT INTO t VALUES (3, 'c')")
    stream = base.open_stream(end)
    items = list(stream.read_items())
    stream.close()
    assert sum(item.row_count for item in items if isinstance(item, LogBlock)) == 1
    assert stream.last_position.lsn == end.lsn
    base.start = stream.last_position
    assert [e.after["id"] for e in base.capture() if e.after] == [2, 3]


def test_heartbeats_follow_the_log_of_other_databases(server: Postgres) -> None:
    base, busy = open_database(server, T), open_database(server, T)
    stream = base.open_stream(None)
    positions = []
    try:
        for n, item in enumerate(stream.read_items()):
            assert isinstance(item, Heartbeat)
            positions.append(item.position)
            if n == 1:
                busy.sql("INSERT INTO t SELECT n, 'x' FROM generate_series(1, 1000) n")
                target = base.end
            if n > 1 and item.position.has_reached(target):  # type: ignore[attr-defined]
                break
            assert n < 200
    finally:
        stream.close()
    assert positions == sorted(positions, key=lambda p: p.lsn)  # type: ignore[attr-defined]


def test_the_slot_is_confirmed_up_to_durable_positions_only(server: Postgres) -> None:
    base = open_database(server, T)

    def confirmed() -> int:
        ((lsn,),) = base.sql(f"SELECT confirmed_flush_lsn FROM pg_replication_slots WHERE slot_name = '{base.name}'")
        return parse_lsn(lsn)

    began = base.start
    base.sql("INSERT INTO t VALUES (1, 'a')")
    assert len(base.capture(confirm=False)) == 1
    assert confirmed() == began.lsn
    older, base.start = base.start, began
    assert len(base.capture(confirm=False)) == 1, "what is not confirmed comes again from an older position"
    base.start = older
    assert not base.capture(confirm=True), "a newer position than the slot's decides"
    assert confirmed() >= older.lsn
    base.start = began
    base.sql("INSERT INTO t VALUES (2, 'a')")
    with pytest.raises(PositionLost, match="which is after the position"):
        base.capture()


def test_a_slot_that_cannot_be_read_says_why(server: Postgres) -> None:
    base = open_database(server, T)
    first = base.open_stream(None)
    next(iter(first.read_items()))
    with pytest.raises(SourceBusy, match=r"process \d+"):
        base.capture()
    first.close()
    base.sql('DROP PUBLICATION "Cdc"', "INSERT INTO t VALUES (1, 'a')")
    if not server.sql("SELECT current_setting('server_version_num')::int >= 180000")[0][0]:
        with pytest.raises(PrerequisiteError, match="publication"):
            base.capture()
    base.sql(f"SELECT pg_drop_replication_slot('{base.name}')")
    with pytest.raises(PositionLost, match="does not exist"):
        base.capture()


def test_a_lost_connection_loses_and_doubles_nothing(server: Postgres) -> None:
    base = open_database(server, T)
    base.sql(
        *(f"INSERT INTO t SELECT n, 'x' FROM generate_series({i * 1000 + 1}, {i * 1000 + 1000}) n" for i in range(8))
    )
    kills = iter(range(6))

    def kill(stream: object, item: object) -> None:
        if isinstance(item, LogBlock) and next(kills, None) is not None:
            base.sql("SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE active_pid > 0")

    events = base.capture(block_bytes=20_000, after_item=kill)
    assert [e.after["id"] for e in events if e.after] == list(range(1, 8001))
    assert base.metrics.disconnects


def test_truncations_come_in_their_place(server: Postgres) -> None:
    base = open_database(
        server, T, "CREATE TABLE c (id int PRIMARY KEY, t int REFERENCES t)", "INSERT INTO t VALUES (1, 'a')",
    )  # fmt: skip
    base.sql("TRUNCATE t CASCADE", "INSERT INTO t VALUES (5, 'x')")
    base.run_together("INSERT INTO t VALUES (2, 'b')", "TRUNCATE t, c", "INSERT INTO t VALUES (3, 'c')")
    base.run_together("TRUNCATE t, c", "INSERT INTO t VALUES (4, 'd')")
    events = base.capture()
    assert [(e.op, e.table, e.after and e.after["id"]) for e in events] == [
        ("t", "t", None), ("t", "c", None), ("c", "t", 5),
        ("c", "t", 2), ("t", "t", None), ("t", "c", None), ("c", "t", 3),
        ("t", "t", None), ("t", "c", None), ("c", "t", 4),
    ]  # fmt: skip
    assert [e.transaction is not None for e in events if e.op == "t"] == [True, True, False, False, False, False]


@pytest.mark.parametrize("via_root", [False, True])
def test_partitions_are_tables_or_parts_of_one(server: Postgres, via_root: bool) -> None:
    base = open_database(
        server, "CREATE TABLE p (id int PRIMARY KEY, note text) PARTITION BY RANGE (id)", "CREATE TABLE p1 PARTITION OF p FOR VALUES FROM (0) TO (10)",
        "CREATE TABLE p2 (note text, id int NOT NULL)", "ALTER TABLE p ATTACH PARTITION p2 FOR VALUES FROM (10) TO (20)",
        publication=f"FOR ALL TABLES WITH (publish_via_partition_root = {via_root})",
    )  # fmt: skip
    base.sql("INSERT INTO p VALUES (1, 'a'), (11, 'b')", "UPDATE p SET id = 12 WHERE id = 1")
    events = base.capture()
    tables = [e.table for e in events]
    assert tables == (["p"] * 4 if via_root else ["p1", "p2", "p1", "p2"])
    assert [(e.op, (e.after or e.before or {})["id"]) for e in events] == [("c", 1), ("c", 11), ("d", 1), ("c", 12)]
    assert not base.take_changes()


def test_a_table_that_is_not_captured_is_not_decoded(server: Postgres) -> None:
    base = open_database(server, T, "CREATE TABLE o (id int PRIMARY KEY)")
    base.known.left_out.add("o")
    base.sql(
        "INSERT INTO o VALUES (1)",
        "ALTER TABLE o ADD x int",
        "INSERT INTO o VALUES (2)",
        "INSERT INTO t VALUES (1)",
        "TRUNCATE o",
    )
    assert [e.table for e in base.capture()] == ["t"]
    assert not base.take_changes()


def test_a_position_beyond_the_log_waits(server: Postgres) -> None:
    base = open_database(server, T)
    end = base.end
    stream = base.open_stream(PostgresPosition(end.lsn + (1 << 20)))
    items = iter(stream.read_items())
    assert all(isinstance(next(items), Heartbeat) for _ in range(5))
    stream.close()
