"""Replication slots with an exported view, on real servers."""

from __future__ import annotations

import pytest

from airflow_provider_cdc.core.errors import SourceBusy
from airflow_provider_cdc.sources.postgresql.connect import connect
from airflow_provider_cdc.sources.postgresql.slots import create_slot, drop_slot, slot_exists
from tests.sources.postgresql.conftest import Database


def test_a_slot_exports_the_view_of_its_consistent_point(database: Database) -> None:
    database.sql("CREATE TABLE items (id int)", "INSERT INTO items VALUES (1)")
    slot = create_slot(database.config, database.config.slot_name, temporary=False)
    database.sql("INSERT INTO items VALUES (2)")
    with connect(database.config) as reader:
        reader.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
        reader.execute(f"SET TRANSACTION SNAPSHOT '{slot.snapshot}'")
        slot.close()
        assert reader.execute("SELECT id FROM public.items").fetchall() == [(1,)]
        reader.execute("COMMIT")
        assert slot_exists(reader, slot.name)
        confirmed = reader.execute("SELECT confirmed_flush_lsn::text FROM pg_replication_slots").fetchone()
        assert confirmed == (str(slot.position),)
        assert slot.position.system
        assert slot.position.timeline == 1
        drop_slot(reader, slot.name)
        drop_slot(reader, slot.name)
        assert not slot_exists(reader, slot.name)


def test_a_temporary_slot_ends_with_its_connection(database: Database) -> None:
    slot = create_slot(database.config, "passing", temporary=True)
    with connect(database.config) as other:
        assert slot_exists(other, "passing")
        slot.close()
        for _ in range(200):
            if not slot_exists(other, "passing"):
                return
            other.execute("SELECT pg_sleep(0.02)")
    pytest.fail("the temporary slot is still there")


def test_a_slot_that_waits_for_a_transaction_says_for_which(database: Database) -> None:
    config = database.configure(database_query_timeout_ms=1500)
    database.sql("CREATE TABLE items (id int)")
    with connect(database.config) as writer, connect(database.config) as other:
        writer.execute("BEGIN")
        writer.execute("INSERT INTO public.items VALUES (1)")
        with pytest.raises(SourceBusy, match=f"pid {writer.info.backend_pid} for"):
            create_slot(config, "waiting", temporary=False)
        assert not slot_exists(other, "waiting")
