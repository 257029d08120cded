"""A state database whose disk is full: one error with a name, at once, and no statement in the log."""

from __future__ import annotations

import logging
import os
import shutil
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy.exc import OperationalError

from airflow_provider_cdc.connector import open_capture
from airflow_provider_cdc.core.errors import StateUnavailable, StorageFull
from airflow_provider_cdc.core.model.connector_offset import Offset
from airflow_provider_cdc.state.state_database import StateDatabase
from airflow_provider_cdc.state.state_store import StateStore
from tests.support.airflow.airflow_connector import make_shop
from tests.support.processes.small_disk import fill_disk, mount_small_disk


@pytest.fixture(params=["sqlite", "postgresql"])
def small_store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[StateStore, Path]]:
    """A store with tables on a small disk, and the disk."""
    if request.param == "sqlite":
        with mount_small_disk(tmp_path / "disk", "1m") as disk:
            store = StateStore(f"sqlite:///{disk}/state.db")
            store.create_tables()
            yield store, disk
            store.close()
        return
    postgres = request.getfixturevalue("postgres")
    # the server's own account must reach the folder: pytest's are closed to it
    with mount_small_disk(Path("/dev/shm") / f"cdc-small-{os.getpid()}", "24m") as disk:
        owner = postgres.data.stat()
        os.chown(disk, owner.st_uid, owner.st_gid)
        postgres.sql(f"CREATE TABLESPACE small LOCATION '{disk}'", "CREATE DATABASE full_disk TABLESPACE small")
        store = StateStore(postgres.url("full_disk"))
        store.create_tables()
        yield store, disk
        store.close()
        postgres.sql("DROP DATABASE full_disk WITH (FORCE)", "DROP TABLESPACE small")
    shutil.rmtree(disk)


def test_a_full_disk_is_an_error_at_once_that_names_it_and_the_next_run_continues(
    small_store: tuple[StateStore, Path], caplog: pytest.LogCaptureFixture
) -> None:
    store, disk = small_store
    with store.acquire_lease("c", "me", wait_s=0) as lease:
        stored = store.load_offset("c")
        filler = fill_disk(disk)
        began = time.monotonic()
        error: StorageFull | None = None
        while error is None:  # what is free within the database itself is used first
            try:
                stored = store.advance_offset(lease, stored, Offset(position={"text": os.urandom(20_000).hex()}))
            except StorageFull as e:
                error = e
        assert time.monotonic() - began < 20
        assert "No space is left where the state database is written" in error.message
        assert "/disk/state.db" in str(error.where) or "the database server" in str(error.where)
        assert "offset was not moved" in str(error.safe)
        assert "airflow cdc maintain CONNECTOR --only retention" in str(error.remedy)
        assert "INSERT" not in str(error)
        filler.unlink()
        assert store.load_offset("c") == stored  # that of the last commit which succeeded
        store.advance_offset(lease, stored, Offset(position={"entry": 1}))
    assert "Retrying" not in caplog.text
    assert "INSERT" not in caplog.text


def test_a_capture_on_a_full_state_disk_ends_soon_with_few_lines_and_captures_the_rest_later(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    with mount_small_disk(tmp_path / "disk", "2m") as disk:
        shop = make_shop(monkeypatch, disk, "full state")
        url, definition = f"sqlite:///{disk}/state.db", replace(shop.definition, changelog=f"{tmp_path}/changelog")

        def run() -> None:
            with open_capture(definition, url, secrets={"memory.database": "full state"}) as capture:
                capture.run()

        run()
        shop.order(1)
        filler = fill_disk(disk)
        caplog.clear()
        began = time.monotonic()
        with pytest.raises(StorageFull, match="No space is left where the state database"):
            run()
        assert time.monotonic() - began < 20
        assert "Retrying" not in caplog.text
        assert "INSERT" not in caplog.text
        assert "UPDATE cdc" not in caplog.text
        filler.unlink()
        run()
        assert shop.store.list_connectors()[0].last_batch == 2
        shop.store.close()


def test_a_retried_operation_is_named_and_logged_once_in_ten_seconds_without_its_statement(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    database = StateDatabase(f"sqlite:///{tmp_path}/state.db", patience_s=1.5)
    tries = list[int]()

    def load() -> None:
        for attempt in database.iterate_attempts("load the offset"):
            with attempt:
                tries.append(1)
                raise OperationalError("SELECT secret FROM cdc_offset", {}, Exception("the disk sleeps"))

    with pytest.raises(StateUnavailable, match=r"or is locked, for 1\.5 s: the disk sleeps") as caught:
        load()
    assert len(tries) > 3
    (line,) = [record.message for record in caplog.records]
    assert line.startswith(
        "The state database does not answer: the disk sleeps. Trying to load the offset again for up to"
    )
    assert "SELECT" not in f"{caught.value}{caught.value.__cause__}"
    database.close()


def test_an_error_that_is_no_full_disk_stays_one_of_the_database(tmp_path: Path) -> None:
    database: Any = StateDatabase(f"sqlite:///{tmp_path}/state.db")
    with pytest.raises(OperationalError), database.engine.connect() as c:
        c.execute(sa.text("SELECT * FROM nothing"))
    database.close()
