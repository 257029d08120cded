"""Positions: which ones the slot still has, and why not."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from airflow_provider_cdc.core.errors import PositionLost, PrerequisiteError
from airflow_provider_cdc.sources.postgresql.config import PostgresConfig
from airflow_provider_cdc.sources.postgresql.connect import connect
from airflow_provider_cdc.sources.postgresql.log_range import (
    parse_timeline_history,
    read_slot,
    window_around,
)
from airflow_provider_cdc.sources.postgresql.position import PostgresPosition
from airflow_provider_cdc.sources.postgresql.source import PostgresSource
from dev.servers.postgres import Postgres
from tests.sources.postgresql.conftest import Database


@pytest.fixture
def source(database: Database) -> Iterator[PostgresSource]:
    """A source with a table, a publication and a slot."""
    config = database.config
    database.sql("CREATE TABLE a (id int PRIMARY KEY)", f"CREATE PUBLICATION {config.publication_name} FOR TABLE a")
    database.create_slot(config)
    with PostgresSource(config) as source:
        yield source


def lost(source: PostgresSource, position: PostgresPosition) -> str:
    with pytest.raises(PositionLost) as caught:
        source.verify_position(position)
    assert caught.value.where
    assert caught.value.safe
    assert caught.value.remedy
    return caught.value.message


def test_a_position_in_the_slot_can_be_read(database: Database, source: PostgresSource) -> None:
    oldest, end = source.oldest_position(), source.current_position()
    database.sql("INSERT INTO a VALUES (1)")
    assert not end.has_reached(source.current_position())
    for position in (oldest, end, source.current_position()):
        source.verify_position(position)


def test_without_its_slot_a_position_is_lost(database: Database, source: PostgresSource) -> None:
    position = source.oldest_position()
    database.sql(f"SELECT pg_drop_replication_slot('{database.config.slot_name}')")
    assert "does not exist" in lost(source, position)


def test_a_position_before_that_of_the_slot_is_lost(database: Database, source: PostgresSource) -> None:
    position = source.oldest_position()
    database.sql(
        "INSERT INTO a VALUES (1)",
        f"SELECT pg_replication_slot_advance('{database.config.slot_name}', pg_current_wal_lsn())",
    )
    assert "another reader" in lost(source, position)
    source.verify_position(source.oldest_position())


def test_a_position_beyond_the_log_is_lost(source: PostgresSource) -> None:
    end = source.current_position()
    assert "restored" in lost(source, replace(end, lsn=end.lsn + (1 << 30)))


def test_a_position_of_another_cluster_or_timeline_is_lost(source: PostgresSource) -> None:
    end = source.current_position()
    assert "another cluster" in lost(source, replace(end, system="1"))
    assert "timeline" in lost(source, replace(end, timeline=end.timeline + 1))


def test_without_its_publication_a_position_is_lost(database: Database, source: PostgresSource) -> None:
    database.sql(f"DROP PUBLICATION {database.config.publication_name}")
    assert "publication" in lost(source, source.oldest_position())


def test_a_slot_of_another_plugin_is_no_lost_position(database: Database, source: PostgresSource) -> None:
    config = database.configure(slot_name=f"other_{database.config.slot_name}")
    database.sql(f"SELECT pg_create_physical_replication_slot('{config.slot_name}')")
    try:
        with PostgresSource(config) as other, pytest.raises(PrerequisiteError, match="not this connector's"):
            other.verify_position(source.current_position())
    finally:
        database.sql(f"SELECT pg_drop_replication_slot('{config.slot_name}')")


def test_the_window_has_the_bytes_behind_and_the_metrics_those_that_are_held(
    database: Database, source: PostgresSource
) -> None:
    position = source.current_position()
    database.sql("INSERT INTO a SELECT generate_series(1, 1000)")
    window = source.log_window(position)
    assert window.behind_bytes == source.current_position().lsn - position.lsn
    assert window.gone_at_s is None
    held = source.collect_stream_metrics()["SlotHeldLogBytes"]
    assert isinstance(held, int)
    assert held >= window.behind_bytes


def test_a_slot_that_the_server_has_invalidated_is_lost() -> None:
    """The log grows beyond its limit, and a checkpoint removes it."""
    options = {"wal_level": "logical", "max_slot_wal_keep_size": "1MB", "min_wal_size": "32MB", "max_wal_size": "32MB"}
    with Postgres(options, edition="17") as server:
        database = Database(server, "postgres")
        config: PostgresConfig = database.config
        server.sql("CREATE TABLE a (id int PRIMARY KEY)", f"CREATE PUBLICATION {config.publication_name} FOR TABLE a")
        database.create_slot(config)
        with PostgresSource(config) as source, connect(config) as connection:
            position = source.oldest_position()
            window, _ = window_around(connection, config, position)
            assert window.gone_at_s is not None
            for _ in range(3):
                server.sql(
                    "SELECT pg_switch_wal()", "INSERT INTO a SELECT coalesce(max(id), 0) + 1 FROM a", "CHECKPOINT"
                )
            slot = read_slot(connection, config)
            assert slot is not None
            assert slot.is_lost
            assert "invalidated" in lost(source, position)
            assert source.oldest_position() == source.current_position()


def test_a_history_of_timelines_is_parsed() -> None:
    text = "1\t0/3000000\tno recovery target specified\n\n# comment\n2\t1/A0\tbefore x\n"
    assert parse_timeline_history(text) == {1: 0x3000000, 2: 0x1000000A0}
