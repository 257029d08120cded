"""Waits of the stream when there is nothing new."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from airflow_provider_cdc.core.model.log_items import Heartbeat, LogItem
from airflow_provider_cdc.core.model.table_schema import TableId, TableSchema
from airflow_provider_cdc.sources.oracle.mining import logminer_stream
from airflow_provider_cdc.sources.oracle.position import OraclePosition
from airflow_provider_cdc.sources.oracle.source import OracleSource
from dev.servers.oracle import Oracle
from tests.sources.oracle.mined import settings


class NoTables:
    def find_schema(self, table: TableId) -> TableSchema | None:
        return None

    def is_captured(self, table: TableId) -> bool:
        return False

    def read_again(self, table: TableId) -> bool:
        return False

    def list_known_tables(self) -> list[TableId]:
        return []


def _read_until_look(items: Iterator[LogItem]) -> None:
    """Read on until the log has just been looked at."""
    seen = set()
    while len(seen) < 2:
        item = next(items)
        assert isinstance(item, Heartbeat)
        seen.add(str(item.position))


def _seconds_to_reach(items: Iterator[LogItem], scn: int) -> float:
    began = time.monotonic()
    for item in items:
        assert isinstance(item, Heartbeat)
        if item.position.has_reached(OraclePosition(scn, scn)):
            return time.monotonic() - began
    raise AssertionError


SLOW = {"log__mining__sleep__time__default__ms": 3000, "log__mining__sleep__time__min__ms": 0}


def test_the_stream_is_looked_at_sooner_when_someone_waits_for_it(schema: Oracle) -> None:
    patience = 10.0
    with OracleSource(settings(schema, **SLOW)) as source:
        items = source.stream_log(source.current_position(), NoTables(), until=None, patience=lambda: patience)
        _read_until_look(items)
        slow = _seconds_to_reach(items, schema.scn())
        _read_until_look(items)
        patience = 0.01
        quick = _seconds_to_reach(items, schema.scn())
    assert slow > 1.5
    assert quick < slow


def test_heartbeats_come_as_often_as_is_asked_for(schema: Oracle) -> None:
    patience = 0.02
    with OracleSource(settings(schema, **SLOW, poll__interval__ms=10)) as source:
        items = source.stream_log(source.current_position(), NoTables(), until=None, patience=lambda: patience)
        _read_until_look(items)
        began = time.monotonic()
        for _ in range(20):
            next(items)
        assert time.monotonic() - began < 20 * 3.0 / 2, "the pause that is set is three seconds"
        patience = 0.5
        next(items)
        began = time.monotonic()
        for _ in range(3):
            next(items)
        assert time.monotonic() - began > 0.9


def test_the_shortest_pause_that_is_set_is_kept(schema: Oracle) -> None:
    shortest = {**SLOW, "log__mining__sleep__time__min__ms": 1500}
    with OracleSource(settings(schema, **shortest)) as source:
        items = source.stream_log(source.current_position(), NoTables(), until=None, patience=lambda: 0.01)
        _read_until_look(items)
        assert _seconds_to_reach(items, schema.scn()) > 0.5


def test_leaving_the_stream_ends_the_call_that_it_waits_for(schema: Oracle, monkeypatch: pytest.MonkeyPatch) -> None:
    """LogMiner may take minutes for the next rows."""
    monkeypatch.setattr(logminer_stream, "PIECE_ROWS", 250)
    with OracleSource(settings(schema, query__fetch__size=1000)) as source:
        start = source.current_position()
        schema.serve_rows(4000, pace=250)
        try:
            items = source.stream_log(start, NoTables(), until=None)
            next(items)
            began = time.monotonic()
            items.close()  # type: ignore[attr-defined]
            assert time.monotonic() - began < 2
        finally:
            schema.serve_rows(0)
