"""The state of a running installation moves to another database, whole, and the old tables cannot be used any more."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from airflow_provider_cdc.core.errors import LeaseHeld, StateError, StateUnavailable
from airflow_provider_cdc.core.model.connector_signal import SentSignal
from airflow_provider_cdc.sources.memory.database import MemoryDatabase
from airflow_provider_cdc.state import state_copy
from airflow_provider_cdc.state.models import Base, NotificationRow
from airflow_provider_cdc.state.state_copy import copy_state
from airflow_provider_cdc.state.state_database import StateDatabase
from airflow_provider_cdc.state.state_store import StateStore
from airflow_provider_cdc.state.table_migration import migrate_tables
from tests.support.connectors import Connector, memory_connector
from tests.support.signals import send

MOVED = "to the connection cdc_state_own"
DIRECTIONS = [("sqlite", "postgresql"), ("postgresql", "mysql"), ("mysql", "postgresql"), ("postgresql", "sqlite")]


def _url(request: pytest.FixtureRequest, kind: str, stack: contextlib.ExitStack, folder: Path, label: str) -> str:
    if kind == "sqlite":
        return f"sqlite:///{folder}/{label}.db"
    server: Any = request.getfixturevalue({"postgresql": "postgres", "mysql": "mysql97"}[kind])
    name = stack.enter_context(server.database(label))
    return str(server.url(getattr(name, "name", name)))


@pytest.fixture(params=DIRECTIONS, ids="-".join)
def urls(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[str, str]]:
    """Two databases with state tables."""
    with contextlib.ExitStack() as stack:
        made = [_url(request, kind, stack, tmp_path, f"state{i}") for i, kind in enumerate(request.param)]
        for url in made:
            with contextlib.closing(StateDatabase(url)) as database:
                migrate_tables(database)
        yield made[0], made[1]


@pytest.fixture
def two_files(tmp_path: Path) -> tuple[StateDatabase, StateDatabase]:
    """Two databases of the cheapest kind."""
    databases = [StateDatabase(f"sqlite:///{tmp_path}/{name}.db", patience_s=0) for name in ("old", "new")]
    for database in databases:
        migrate_tables(database)
    return databases[0], databases[1]


@contextlib.contextmanager
def _opened(*urls: str) -> Iterator[list[StateDatabase]]:
    with contextlib.ExitStack() as stack:
        yield [stack.enter_context(contextlib.closing(StateDatabase(url, patience_s=5))) for url in urls]


def _connector(folder: Path, url: str) -> tuple[MemoryDatabase, Connector]:
    database = MemoryDatabase(folder.name)
    database.create_table("shop.a", {"id": "int64!", "n": "int64"}, key=("id",))
    connector = memory_connector(database, folder)
    connector.store.close()
    connector.state_url = url
    connector.store = StateStore(url, lease_ttl_s=5, patience_s=5)
    return database, connector


def _insert(database: MemoryDatabase, *ids: int) -> None:
    with database.transaction() as t:
        for i in ids:
            t.insert("shop.a", {"id": i, "n": i})


def test_a_connector_continues_in_the_new_database_and_fails_in_the_old_one(
    urls: tuple[str, str], tmp_path: Path
) -> None:
    database, connector = _connector(tmp_path, urls[0])
    _insert(database, 1, 2)
    numbers = [send(connector, "log", {"message": "naïve ☃"}) for _ in range(3)]
    connector.capture()
    _insert(database, 3)
    connector.capture()
    with connector.store.database.open_transaction() as c:  # a number that was given out, and whose row is gone
        key = c.execute(sa.insert(NotificationRow).values(_notification())).inserted_primary_key
        c.execute(sa.delete(NotificationRow).where(NotificationRow.id == key[0]))
    before = connector.store.find_connector("test")
    with _opened(*urls) as (old, new):
        copy = copy_state(old, new, moved=MOVED)
        assert not copy.existed
        assert copy.rows["cdc_offset"] == 1
        assert copy.rows["cdc_signal"] == 3
        with pytest.raises(StateError, match=MOVED):
            connector.store.check_tables()
        with pytest.raises(StateError, match=MOVED):
            connector.store.send("test", SentSignal("x", "log", "{}", "airflow"))
        with pytest.raises(StateError, match=MOVED):
            connector.capture()
        assert copy_state(old, new, moved=MOVED).existed, "a copy whose end is unknown may be repeated"
    connector.store.close()

    connector.state_url, connector.store = urls[1], StateStore(urls[1], lease_ttl_s=5)
    after = connector.store.find_connector("test")
    assert before is not None
    assert after is not None
    assert (after.offset, after.version, after.registration) == (before.offset, before.version, before.registration)
    assert after.last_signal == numbers[-1]
    _insert(database, 4)
    assert connector.capture().events == 1
    assert send(connector, "log", {"message": "x"}) > numbers[-1]
    with connector.store.database.open_transaction() as c:
        inserted = c.execute(sa.insert(NotificationRow).values(_notification())).inserted_primary_key
        assert inserted[0] > key[0], "no number is given out twice"
    connector.store.close()


def _notification() -> dict[str, Any]:
    from datetime import UTC, datetime

    return {
        "connector": "test", "notification_id": "n", "aggregate_type": "a", "type": "t", "additional_data": {},
        "created_at": datetime.now(UTC),
    }  # fmt: skip


def test_a_copy_is_rejected_while_a_run_is_alive(two_files: tuple[StateDatabase, StateDatabase]) -> None:
    old, new = two_files
    store = StateStore(old.engine.url.render_as_string(hide_password=False))
    with store.acquire_lease("shop", "dag.capture", wait_s=0), pytest.raises(LeaseHeld, match=r"shop by dag\.capture"):
        copy_state(old, new, moved=MOVED)
    assert not _rows(new)
    store.check_tables()
    copy_state(old, new, moved=MOVED)
    store.close()


def test_other_rows_in_the_target_are_kept(two_files: tuple[StateDatabase, StateDatabase]) -> None:
    old, new = two_files
    for database, name in ((old, "shop"), (new, "billing")):
        store = StateStore(database.engine.url.render_as_string(hide_password=False))
        with store.acquire_lease(name, "a run", wait_s=0):
            pass
        store.close()
    before = _rows(new)
    with pytest.raises(StateError, match="already have rows"):
        copy_state(old, new, moved=MOVED)
    assert _rows(new) == before
    old.check_tables()


def test_rows_that_arrive_changed_undo_the_copy(
    two_files: tuple[StateDatabase, StateDatabase], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stand-in for a database that changes values: what it reads back of the lease has another epoch."""
    old, new = two_files
    store = StateStore(old.engine.url.render_as_string(hide_password=False))
    with store.acquire_lease("shop", "a run", wait_s=0):
        pass
    store.close()
    read = state_copy._read

    def changed(c: sa.Connection, table: sa.Table) -> Iterator[list[dict[str, Any]]]:
        for rows in read(c, table):
            yield [row | {"epoch": 7} if "epoch" in row and c.engine is new.engine else row for row in rows]

    monkeypatch.setattr(state_copy, "_read", changed)
    with pytest.raises(StateError, match=r"other rows than it received: cdc_lease"):
        copy_state(old, new, moved=MOVED)
    assert not _rows(new)
    old.check_tables()


def test_the_state_moves_back_and_the_fence_moves_along(two_files: tuple[StateDatabase, StateDatabase]) -> None:
    old, new = two_files
    store = StateStore(old.engine.url.render_as_string(hide_password=False))
    with store.acquire_lease("shop", "a run", wait_s=0):
        pass
    copy_state(old, new, moved=MOVED)
    with pytest.raises(StateError, match=MOVED):
        copy_state(old, new, moved="elsewhere")
    copy_state(new, old, moved="to cdc_state_default")
    store.check_tables()
    with pytest.raises(StateError, match="to cdc_state_default"):
        new.check_tables()
    store.close()


def test_a_process_that_dies_between_the_commits_leaves_a_copy_that_can_be_repeated(
    two_files: tuple[StateDatabase, StateDatabase], monkeypatch: pytest.MonkeyPatch
) -> None:
    old, new = two_files
    store = StateStore(old.engine.url.render_as_string(hide_password=False))
    with store.acquire_lease("shop", "a run", wait_s=0):
        pass
    fill = state_copy._fill

    def die(*arguments: Any) -> bool:
        fill(*arguments)
        raise KeyboardInterrupt

    monkeypatch.setattr(state_copy, "_fill", die)
    with pytest.raises(KeyboardInterrupt):
        copy_state(old, new, moved=MOVED)
    monkeypatch.undo()
    store.check_tables()
    assert copy_state(old, new, moved=MOVED).existed
    with pytest.raises(StateError, match=MOVED):
        store.check_tables()
    store.close()


@pytest.mark.parametrize("kind", ["postgresql", "mysql"])
def test_a_writer_that_waits_for_the_copy_fails_and_writes_nothing(
    kind: str, request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with contextlib.ExitStack() as stack:
        urls = [_url(request, kind, stack, tmp_path, "state"), f"sqlite:///{tmp_path}/new.db"]
        old, new = stack.enter_context(_opened(*urls))
        for database in (old, new):
            migrate_tables(database)
        store = stack.enter_context(contextlib.closing(StateStore(urls[0], patience_s=5)))
        store.check_tables()
        outcome: list[object] = []

        def send_one() -> None:
            try:
                outcome.append(store.send("shop", SentSignal("x", "log", "{}", "airflow")))
            except (StateError, StateUnavailable) as e:
                outcome.append(str(e))

        sender = threading.Thread(target=send_one)
        fill = state_copy._fill

        def slow(*arguments: Any) -> bool:
            sender.start()
            sender.join(1)
            assert sender.is_alive(), "the writer waits for the copy's locks"
            return fill(*arguments)

        monkeypatch.setattr(state_copy, "_fill", slow)
        copy_state(old, new, moved=MOVED)
        sender.join(30)
        assert MOVED in str(outcome[0])
        with old.engine.connect() as c:
            assert c.scalar(sa.select(sa.func.count()).select_from(Base.metadata.tables["cdc_signal"])) == 0


def _rows(database: StateDatabase) -> list[Any]:
    with database.engine.connect() as c:
        return [row for table in Base.metadata.sorted_tables for row in c.execute(sa.select(table))]
