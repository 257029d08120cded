"""An idle stream says as often as it is asked that nothing is new, and costs next to nothing."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from airflow_provider_cdc.core.errors import SourceUnavailable
from airflow_provider_cdc.core.model.log_items import Heartbeat, LogBlock
from airflow_provider_cdc.core.model.table_schema import TableId
from airflow_provider_cdc.sources.mysql.log import binlog_connection
from tests.support.sources.mysql.mysql_chunks import FixedTables, source_of
from tests.support.sources.mysql.mysql_server import new_log_file


@pytest.fixture(params=["mariadb", "mysql97", "mysql80"])
def db(request: pytest.FixtureRequest) -> Iterator[Any]:
    with request.getfixturevalue(request.param).database("wait") as database:
        database.sql("CREATE TABLE t (id INT PRIMARY KEY)")
        yield database


RARELY = {"poll_interval_ms": 60_000}
"""The server itself sends one heartbeat a minute."""


def _beats(
    db: Any, seconds: float, patience_s: float | None, least: int = 1, **properties: Any
) -> tuple[list[float], float]:
    """Return the seconds after which heartbeats of an idle stream came, and the CPU seconds that they took.

    :param least: so many are waited for, however long that takes
    """
    with source_of(db.server, **properties) as source:
        start, beats = source.current_position(), list[float]()
        patience = None if patience_s is None else (lambda: patience_s)
        items = source.stream_log(start, FixedTables({}), until=None, patience=patience)
        next(items)
        began, cpu = time.monotonic(), time.thread_time()
        for item in items:
            assert isinstance(item, Heartbeat)
            assert item.position.has_reached(start)
            beats.append(time.monotonic() - began)
            if beats[-1] > seconds and len(beats) >= least:
                break
        return beats, time.thread_time() - cpu


def test_an_idle_stream_waits_for_the_configured_time(db: Any) -> None:
    beats, cpu = _beats(db, 1.5, 0.005, least=51, **RARELY)
    assert beats[50] < 30
    assert cpu < 0.4
    beats, _ = _beats(db, 1.5, 0.3, least=3, **RARELY)
    assert beats[2] < 30
    assert sum(at <= 1.5 for at in beats) < 20
    beats, _ = _beats(db, 1.5, None)
    assert sum(at <= 1.5 for at in beats) <= 10, "by default as poll.interval.ms says, which is 500"
    quick, _ = _beats(db, 1.5, None, least=100, poll_interval_ms=20)
    assert quick[99] < 30, "and at 500 it would take 50 s"
    assert source_of(db.server)._config.poll_interval_ms == 500


def test_transactions_that_are_passed_over_are_no_heartbeats(db: Any) -> None:
    """Asked by GTIDs, a server goes over the log file from its head, and may beat for each transaction there."""
    with db.connect() as connection, connection.cursor() as cursor:
        for i in range(2000):
            cursor.execute("INSERT INTO t VALUES (%s)", (i,))
    beats, _ = _beats(db, 1.5, None, poll_interval_ms=500)
    assert sum(at <= 1.5 for at in beats) < 15


def test_impatience_neither_delays_nor_splits_what_comes(db: Any) -> None:
    with source_of(db.server, **RARELY) as source:
        tables = {t: s for t, s in source.discover_tables().items() if t.namespace == db.name}
        start, committed = source.current_position(), list[float]()

        def write() -> None:
            with db.connect(autocommit=False) as connection, connection.cursor() as cursor:
                for n in range(10):
                    cursor.executemany("INSERT INTO t VALUES (%s)", [(n * 1000 + i,) for i in range(1000)])
                    time.sleep(0.02)
                    connection.commit()
                    committed.append(time.monotonic())

        writer = threading.Thread(target=write)
        writer.start()
        ids: list[int] = []
        late = 0.0
        for item in source.stream_log(start, FixedTables(tables), until=None, patience=lambda: 0.003):
            if isinstance(item, LogBlock):
                assert not item.open
                ids += [i for block in item.rows if block.after for i in block.after.field(0).to_pylist()]
                late = time.monotonic()
                if len(ids) == 10000:
                    break
        writer.join()
        assert ids == list(range(10000))
        assert late - committed[-1] < 30


def test_a_server_that_falls_silent_is_noticed_while_waiting(db: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(binlog_connection, "_QUIET_BEATS", 0.5)  # the server beats once a second
    began = time.monotonic()
    with pytest.raises(SourceUnavailable, match="not even a heartbeat"):
        _beats(db, 30, 0.01, poll_interval_ms=500)
    assert time.monotonic() - began < 20


def test_the_head_of_a_new_file_is_behind_an_idle_stream(db: Any) -> None:
    """Otherwise, without GTIDs, a place there, where nothing was written yet, is never reached; and the offset's file may be purged."""
    with source_of(db.server, poll_interval_ms=100) as source:
        start = source.current_position()
        db.sql("FLUSH BINARY LOGS")
        new_log_file(db)
        end = source.current_position()
        assert end.file != start.file
        for item in source.stream_log(start, FixedTables({}), until=None, patience=lambda: 0.01):
            if not item.position.is_earlier(end):  # type: ignore[union-attr]
                break
        position = item.position  # type: ignore[union-attr]
        assert (position.file, position.pos) == (end.file, end.pos)
        source.verify_position(position)
        db.sql("INSERT INTO t VALUES (1)")
        tables = {t: s for t, s in source.discover_tables().items() if t == TableId(namespace=db.name, name="t")}
        items = source.stream_log(position, FixedTables(tables), until=source.current_position())
        assert sum(item.row_count for item in items if isinstance(item, LogBlock)) == 1
