"""Snapshots of Db2: what each isolation mode locks, when the position is known, and how a table is read."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from airflow_provider_cdc.connector import open_source
from airflow_provider_cdc.core.errors import PrerequisiteError, QueryRejected, SourceBusy
from airflow_provider_cdc.core.model.log_items import RowBlock
from airflow_provider_cdc.core.spi.source import SnapshotSession
from airflow_provider_cdc.sources.db2.connect import Db2Connection
from airflow_provider_cdc.sources.db2.snapshot import key_partitions
from dev.servers.db2 import Db2
from tests.sources.db2_adapter import Db2Adapter
from tests.sources.suite import INT, TEXT
from tests.support.sources.db2.db2_settings import CONTROL_GRANTS


@pytest.fixture
def db(db2: Db2) -> Iterator[Db2Adapter]:
    with ExitStack() as stack:
        db2_adapter = Db2Adapter(db2, stack)
        db2_adapter.create("t", {"id": INT, "note": TEXT}, ("id",))
        with db2_adapter.transaction() as t:
            t.insert("t", *({"id": i, "note": f"ä{i}"} for i in range(100)))
        yield db2_adapter


def open_snapshot(
    db: Db2Adapter, folder: Path, stack: ExitStack, *, readers: int = 2, selects: Any = None, **properties: Any
) -> SnapshotSession:
    connector = db.connector(folder, **properties)
    source = stack.enter_context(open_source(connector.definition(), connector.secrets))
    return stack.enter_context(source.open_snapshot([db.id("t")], readers=readers, selects=selects or {}))


def ids(session: SnapshotSession, db: Db2Adapter) -> list[int]:
    blocks: list[RowBlock] = [b for chunk in session.split_table(db.id("t")) for b in session.read(chunk)]
    return sorted(row["id"] for block in blocks for row in (block.after or []).to_pylist())


def write(db: Db2Adapter) -> bool:
    """Check whether a row can be written at once."""
    with db.server.connect() as connection:
        connection.execute("SET CURRENT LOCK TIMEOUT NOT WAIT")
        try:
            connection.execute(f"INSERT INTO {db.name('t')} VALUES (1000, NULL)")
        except Exception as e:
            if "SQL0911N" not in str(e):
                raise
            return False
        connection.rollback()
        return True


@pytest.mark.parametrize(
    ("mode", "writes"),
    [("exclusive", False), ("repeatable_read", False), ("read_committed", True), ("read_uncommitted", True)],
)
def test_who_may_write_meanwhile(db: Db2Adapter, tmp_path: Path, mode: str, writes: bool) -> None:
    with ExitStack() as stack:
        session = open_snapshot(db, tmp_path, stack, snapshot_isolation_mode=mode)
        assert write(db) == writes
        assert ids(session, db) == list(range(100))
        assert write(db) == writes
        session.close()
        session.close()
        assert write(db)


@pytest.mark.parametrize("mode", ["exclusive", "repeatable_read"])
def test_readers_are_not_held_up_by_writers_that_wait(db: Db2Adapter, tmp_path: Path, mode: str) -> None:
    done = threading.Event()

    def insert() -> None:
        with db.server.connect() as connection:
            connection.execute(f"INSERT INTO {db.name('t')} VALUES (1000, NULL)")
            connection.commit()
        done.set()

    writer = threading.Thread(target=insert)
    with ExitStack() as stack:
        session = open_snapshot(db, tmp_path, stack, readers=3, snapshot_isolation_mode=mode)
        writer.start()
        assert not done.wait(0.5)
        for _ in range(4):
            assert ids(session, db) == list(range(100))
    writer.join()
    assert done.is_set()


def test_the_position_is_behind_what_had_committed_before(db: Db2Adapter, tmp_path: Path) -> None:
    with ExitStack() as stack:
        session = open_snapshot(db, tmp_path, stack)
        at = session.position.commit_lsn  # type: ignore[attr-defined]
        assert len(db.server.table_at(db.namespace, "t", at)) == 100
    with db.transaction() as t:
        t.delete("t", {"id": 5})
    with ExitStack() as stack:
        session = open_snapshot(db, tmp_path, stack)
        assert session.position.commit_lsn > at  # type: ignore[attr-defined]
        assert ids(session, db) == [i for i in range(100) if i != 5]


def test_a_lock_that_is_not_granted_ends_the_snapshot(db: Db2Adapter, tmp_path: Path) -> None:
    with db.server.connect() as connection, ExitStack() as stack:
        connection.execute(f'UPDATE {db.name("t")} SET "note" = NULL WHERE "id" = 1')
        with pytest.raises(SourceBusy) as caught:
            open_snapshot(db, tmp_path, stack, snapshot_lock_timeout_ms=0)
        assert "snapshot.lock.timeout.ms" in str(caught.value.remedy)
        connection.rollback()
        assert ids(open_snapshot(db, tmp_path, stack, snapshot_lock_timeout_ms=0), db) == list(range(100))


def test_an_agent_that_does_not_run_is_named(db2_factory: Any, tmp_path: Path) -> None:
    server = db2_factory()
    with ExitStack() as stack:
        db = Db2Adapter(server, stack)
        db.create("t", {"id": INT, "note": TEXT}, ("id",))
        server.agent("pause")
        locked: list[str] = []
        execute = Db2Connection.execute

        def record_and_execute(self: Db2Connection, sql: str, *params: Any) -> int:
            locked.extend([sql] if sql.startswith("LOCK") else [])
            return execute(self, sql, *params)

        with patch.object(Db2Connection, "execute", record_and_execute):
            with pytest.raises(PrerequisiteError, match="does not run") as caught:
                open_snapshot(db, tmp_path, stack, snapshot_agent_timeout_ms=300)
            assert "ASNCDCSERVICES('start','asncdc')" in str(caught.value.remedy)
            assert locked == [], "no lock waits for an agent that does not run"
        assert ids(open_snapshot(db, tmp_path, stack, snapshot_isolation_mode="read_committed"), db) == []
        server.agent("resume")
        assert ids(open_snapshot(db, tmp_path, stack), db) == []


def test_the_error_of_an_account_without_signals_names_the_grant_before_anything_is_locked(
    db2_factory: Any, tmp_path: Path
) -> None:
    server = db2_factory(authorize=True)
    server.sql(*CONTROL_GRANTS)
    with ExitStack() as stack:
        db = Db2Adapter(server, stack)
        db.create("t", {"id": INT, "note": TEXT}, ("id",))
        with server.connect() as writer:
            writer.execute(f"INSERT INTO {db.name('t')} VALUES (1, 'would be waited for')")
            with pytest.raises(PrerequisiteError) as caught:
                open_snapshot(db, tmp_path, stack)
            writer.rollback()
        grant, _, other = str(caught.value.remedy).partition("; ")
        assert grant == 'GRANT SELECT, INSERT ON TABLE "ASNCDC".IBMSNAP_SIGNAL TO USER CDC'
        assert "snapshot.isolation.mode=read_committed" in other
        assert ids(open_snapshot(db, tmp_path, stack, snapshot_isolation_mode="read_committed"), db) == []
        server.sql(grant)
        assert ids(open_snapshot(db, tmp_path, stack), db) == []


def test_a_snapshot_of_a_quiet_database_does_not_wait(db: Db2Adapter, tmp_path: Path) -> None:
    db.server.catch_up()
    before = db.server.published()
    with ExitStack() as stack:
        session = open_snapshot(db, tmp_path, stack, snapshot_agent_timeout_ms=20_000)
        assert session.position.commit_lsn > before, "the signal moved the log"  # type: ignore[attr-defined]
        assert len(ids(session, db)) == 100


def test_a_table_without_a_key_is_not_read_without_locks(db: Db2Adapter, tmp_path: Path) -> None:
    db.create("bag", {"n": INT})
    connector = db.connector(tmp_path, snapshot_isolation_mode="read_committed")
    with open_source(connector.definition(), connector.secrets) as source:
        with pytest.raises(PrerequisiteError, match="cannot be read without locks") as caught:
            source.open_snapshot([db.id("bag")], readers=1)
        assert "repeatable_read" in str(caught.value.remedy)


def test_a_large_table_is_cut_into_parts_that_have_each_row_once(
    db: Db2Adapter, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(key_partitions, "PART_ROWS", 20)
    with ExitStack() as stack:
        session = open_snapshot(db, tmp_path, stack)
        chunks = session.split_table(db.id("t"))
        assert len(chunks) == 5
        assert ids(session, db) == list(range(100))


def test_a_statement_of_ones_own_gives_the_rows(db: Db2Adapter, tmp_path: Path) -> None:
    name = f"{db.namespace}.t"
    overrides = {
        "snapshot.select.statement.overrides": name,
        f"snapshot.select.statement.overrides.{name}": f'SELECT * FROM {db.name("t")} WHERE "id" < 7 ORDER BY "id" DESC;',
    }
    connector = db.connector(tmp_path)
    connector.properties |= overrides
    with (
        open_source(connector.definition(), connector.secrets) as source,
        source.open_snapshot([db.id("t")], readers=2) as session,
    ):
        assert ids(session, db) == list(range(7))


def test_a_statement_of_a_signal_that_is_no_sql_is_refused(db: Db2Adapter, tmp_path: Path) -> None:
    with ExitStack() as stack:
        session = open_snapshot(db, tmp_path, stack, selects={db.id("t"): "this is <> not SQL"})
        with pytest.raises(QueryRejected, match="rejects the statement"):
            ids(session, db)


def test_every_type_that_the_engine_has(db: Db2Adapter, tmp_path: Path) -> None:
    columns = {
        "id": "INTEGER", "s": "SMALLINT", "l": "BIGINT", "d": "DECIMAL(31,5)", "r": "REAL", "f": "DOUBLE", "c": "CHAR(4)", "v": "VARCHAR(40)",
        "b": "VARCHAR(8) FOR BIT DATA", "day": "DATE", "tm": "TIME", "ts": "TIMESTAMP", "big": "CLOB(1M)", "blob": "BLOB(1M)", "ok": "BOOLEAN",
    }  # fmt: skip
    db.drop_table("t")
    db._create("t", columns, ("id",))
    db.sql(
        f"INSERT INTO {db.name('t')} VALUES (1, -32768, 9223372036854775807, 12345678901234567890.12345, 0.5, 0.1, 'ab', 'žluť', X'00FF10', "
        "'2024-02-29', '23:59:58', '2024-02-29 01:02:03.456789', 'long', NULL, TRUE)",
        f'INSERT INTO {db.name("t")} ("id") VALUES (2)',
    )
    with ExitStack() as stack:
        session = open_snapshot(db, tmp_path, stack)
        rows = [
            row for c in session.split_table(db.id("t")) for b in session.read(c) for row in (b.after or []).to_pylist()
        ]
    first, second = sorted(rows, key=lambda row: int(row["id"]))
    assert {n: str(v) for n, v in first.items()} == {
        "id": "1", "s": "-32768", "l": "9223372036854775807", "d": "12345678901234567890.12345", "r": "0.5", "f": "0.1", "c": "ab  ", "v": "žluť",
        "b": "b'\\x00\\xff\\x10'", "day": "2024-02-29", "tm": "86398000000", "ts": "2024-02-29 01:02:03.456789", "big": "long", "blob": "None",
        "ok": "True",
    }  # fmt: skip
    assert {n for n, v in second.items() if v is not None} == {"id"}
