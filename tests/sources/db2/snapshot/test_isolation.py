"""Isolation modes of snapshots: who waits for whom and for how long, and the rows that are read."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import ibm_db_dbi
import pytest

from airflow_provider_cdc.connector import open_source
from airflow_provider_cdc.core.errors import CdcError, SourceBusy
from airflow_provider_cdc.core.spi.source import SnapshotSession
from airflow_provider_cdc.sources.db2.connect import Db2Connection
from dev.servers.db2 import Db2
from dev.servers.db2.settings import Settings
from tests.sources.db2_adapter import Db2Adapter
from tests.sources.suite import INT, TEXT, equal
from tests.support.change_log.rendered import of_table, records
from tests.support.connectors import Connector
from tests.support.sources.db2.db2_real import RealDb2
from tests.support.sources.db2.db2_settings import config

ConnectorFactory = Callable[..., Connector]
LOCKED = re.compile("SQL091[13]N|SQLSTATE=40XL1")
"""With the first rows of a query, the test server's errors have the engine's own SQLSTATE."""


@pytest.fixture(scope="module")
def adapter(db2: Db2) -> Iterator[Db2Adapter]:
    with ExitStack() as stack:
        adapter = Db2Adapter(db2, stack)
        adapter.create("t", {"id": INT, "note": TEXT}, ("id",))
        yield adapter


@pytest.fixture
def db(adapter: Db2Adapter) -> Iterator[Db2Adapter]:
    """A table of five rows."""
    with adapter.transaction() as t:
        t.delete("t", {})
        t.insert("t", *({"id": i, "note": "x"} for i in range(5)))
    yield adapter
    adapter.server.agent("resume")


@pytest.fixture
def connector_factory(db: Db2Adapter, tmp_path: Path) -> ConnectorFactory:
    return lambda **properties: db.connector(tmp_path, **properties)


def rows_of(session: SnapshotSession, db: Db2Adapter, table: str = "t") -> list[dict[str, Any]]:
    blocks = [b for chunk in session.split_table(db.id(table)) for b in session.read(chunk)]
    return sorted((row for block in blocks for row in (block.after or []).to_pylist()), key=repr)


def _has_to_wait(db: Db2Adapter, statement: str, timeout: str = "NOT WAIT") -> bool:
    """Check whether a statement of another session has to wait for a lock."""
    with db.server.connect("DB2INST1") as other:
        other.execute(f"SET CURRENT LOCK TIMEOUT {timeout}")
        try:
            other.rows(statement)
        except ibm_db_dbi.Error as e:
            if LOCKED.search(str(e)):
                return True
            raise
        finally:
            other.rollback()
    return False


@pytest.mark.parametrize(
    ("mode", "readers_wait", "writers_wait"),
    [
        ("exclusive", True, True),
        ("repeatable_read", False, True),
        (None, False, True),
        ("read_committed", False, False),
        ("read_uncommitted", False, False),
    ],
)
def test_others_wait_as_the_isolation_mode_says_until_the_last_row_was_read(
    db: Db2Adapter, connector_factory: ConnectorFactory, mode: str | None, readers_wait: bool, writers_wait: bool
) -> None:
    connector = connector_factory(**({} if mode is None else {"snapshot_isolation_mode": mode}))
    read, write = (
        f"SELECT COUNT(*) FROM {db.name('t')} WITH CS",
        f'UPDATE {db.name("t")} SET "note" = \'y\' WHERE "id" = 1',
    )
    with open_source(connector.definition(), connector.secrets) as source:
        with source.open_snapshot([db.id("t")], readers=2) as session:
            assert len(rows_of(session, db)) == 5
            assert (_has_to_wait(db, read), _has_to_wait(db, write)) == (readers_wait, writers_wait)
        assert (_has_to_wait(db, read, "5"), _has_to_wait(db, write, "5")) == (False, False), (
            "the locks end with the snapshot"
        )


@pytest.mark.parametrize(("timeout_ms", "least_s", "most_s"), [(0, 0, 8), (2000, 1.5, 9)])
def test_a_lock_that_is_not_granted_in_time_fails_the_snapshot(
    db: Db2Adapter,
    connector_factory: ConnectorFactory,
    monkeypatch: pytest.MonkeyPatch,
    timeout_ms: int,
    least_s: float,
    most_s: float,
) -> None:
    """Only the wait of the statement counts: a capture has more to do, and the machine may be slow."""
    assert config().snapshot_lock_timeout_ms == 10_000
    waited = _times_of_locks(monkeypatch)
    connector = connector_factory(snapshot_lock_timeout_ms=timeout_ms)
    with db.server.connect("DB2INST1") as writer:
        writer.execute(f"INSERT INTO {db.name('t')} VALUES (9, 'open')")
        with pytest.raises(SourceBusy) as caught:
            connector.capture()
        assert least_s <= waited[-1] < most_s
        assert "snapshot.lock.timeout.ms" in str(caught.value.remedy)
        assert connector.store.load_offset("test").offset is None
        writer.rollback()
    connector.capture()
    equal(connector, db, "t")


def _times_of_locks(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Gets the seconds of each LOCK TABLE, also of one that fails."""
    found: list[float] = []
    execute = Db2Connection.execute

    def time_statement(connection: Db2Connection, sql: str, *params: Any) -> int:
        began = time.monotonic()
        try:
            return execute(connection, sql, *params)
        finally:
            if sql.startswith("LOCK TABLE"):
                found.append(time.monotonic() - began)

    monkeypatch.setattr(Db2Connection, "execute", time_statement)
    return found


def test_a_lock_may_be_waited_for_for_ever(db: Db2Adapter, connector_factory: ConnectorFactory) -> None:
    connector = connector_factory(snapshot_lock_timeout_ms=-1)
    with db.server.connect("DB2INST1") as writer:
        writer.execute(f"INSERT INTO {db.name('t')} VALUES (9, 'late')")
        threading.Timer(1.5, writer.commit).start()
        connector.capture()
        assert len(connector.rows(f"{db.namespace}.t")) == 6


def test_the_position_is_what_the_agent_has_published_of_the_time_before_the_locks(
    db: Db2Adapter, connector_factory: ConnectorFactory
) -> None:
    """Changes committed before are in the rows and behind the position, though the agent had not come to them yet."""
    connector = connector_factory()
    db.server.agent("pause")
    db.sql(f"INSERT INTO {db.name('t')} VALUES (7, 'before the snapshot')")
    began = time.monotonic()
    threading.Timer(1.0, lambda: db.server.agent("resume")).start()
    result = connector.capture()
    assert time.monotonic() - began > 0.8, "it did not wait for the agent"
    assert result.events == 6
    db.server.catch_up()
    assert connector.capture().events == 0, "what the snapshot has is streamed again"
    with db.transaction() as t:
        t.update("t", {"id": 7}, {"note": "after it"})
    assert connector.capture().events == 1
    equal(connector, db, "t")


@pytest.mark.parametrize("mode", ["read_committed", "read_uncommitted"])
def test_without_locks_rows_may_be_newer_than_the_position_and_the_stream_makes_that_good(
    db: Db2Adapter, connector_factory: ConnectorFactory, mode: str
) -> None:
    connector = connector_factory(snapshot_isolation_mode=mode)
    db.server.agent("pause")
    db.sql(f"INSERT INTO {db.name('t')} VALUES (7, 'new')", f'DELETE FROM {db.name("t")} WHERE "id" = 0')
    assert connector.capture().events == 5
    db.server.agent("resume")
    db.server.catch_up()
    connector.capture()
    last = {r["key"]["id"]: r["value"] and r["value"]["after"] for r in of_table(records(connector), "t")}
    assert sorted((row for row in last.values() if row), key=repr) == db.rows("t")


@pytest.mark.parametrize("mode", ["read_uncommitted", "read_committed"])
def test_uncommitted_rows_are_read_with_read_uncommitted_only(
    db: Db2Adapter, connector_factory: ConnectorFactory, mode: str
) -> None:
    connector = connector_factory(snapshot_isolation_mode=mode)
    # the engine of the test server waits for the writer, where Db2 reads what was there before
    waits = mode == "read_committed" and not isinstance(db.server, RealDb2)
    with ExitStack() as stack:
        if waits:
            db.server.configure(lock_timeout=0.3)
            stack.callback(db.server.configure, lock_timeout=Settings.lock_timeout)
        writer = stack.enter_context(db.server.connect("DB2INST1"))
        writer.execute(f'UPDATE {db.name("t")} SET "note" = \'open\' WHERE "id" = 1')
        source = stack.enter_context(open_source(connector.definition(), connector.secrets))
        session = stack.enter_context(source.open_snapshot([db.id("t")], readers=1))
        if waits:
            with pytest.raises(CdcError, match=r"40XL1|SQL0911N"):
                rows_of(session, db)
        else:
            note = next(row["note"] for row in rows_of(session, db) if row["id"] == 1)
            assert note == ("open" if mode == "read_uncommitted" else "x")
        writer.rollback()


def test_a_statement_of_ones_own_says_which_rows_a_snapshot_reads_and_the_stream_is_whole(
    db: Db2Adapter, connector_factory: ConnectorFactory
) -> None:
    name = db.collection("t")
    connector = connector_factory()
    connector.properties |= {
        "snapshot.select.statement.overrides": name,
        f"snapshot.select.statement.overrides.{name}": f'SELECT * FROM {db.name("t")} WHERE "id" > 2 ORDER BY "id" DESC',
    }
    assert connector.capture().events == 2
    assert [row["id"] for row in connector.rows(f"{db.namespace}.t")] == [3, 4]
    with db.transaction() as t:
        t.insert("t", {"id": -1, "note": "streamed"})
    assert connector.capture().events == 1
