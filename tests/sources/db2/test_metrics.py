"""Metrics of the stream."""

from __future__ import annotations

import logging

import pytest

from airflow_provider_cdc.sources.db2.asn.agent_progress import AgentProgress
from airflow_provider_cdc.sources.db2.metrics import AsnStreamMetrics
from airflow_provider_cdc.sources.db2.position import Db2Position


def make_progress(lsn: bytes = b"\1", synch_us: int = 1_000_000) -> AgentProgress:
    return AgentProgress(lsn, synch_us, 4_000_000, 0, 7, 6, b"", lsn)


def test_the_agents_place_and_latency_are_reported() -> None:
    metrics = AsnStreamMetrics()
    metrics.record_poll(make_progress())
    metrics.record_position(Db2Position(bytes.fromhex("0000002500000d080025")))
    metrics.record_window(0.5)
    metrics.record_window(0.25)
    document = metrics.build_metrics()
    assert document["SourceEventPosition"] == {"commit_lsn": "00000025:00000d08:0025"}
    assert (document["PublishedLsn"], document["AgentLatencyInMilliseconds"]) == ("01", 3000)
    assert (document["RegisteredTables"], document["ActiveRegistrations"]) == (7, 6)
    assert (document["NumberOfPolls"], document["NumberOfWindows"]) == (1, 2)
    assert (document["LastWindowDurationInMilliseconds"], document["MaxWindowDurationInMilliseconds"]) == (250, 500)


def test_before_the_first_look_nothing_is_known_of_the_agent() -> None:
    document = AsnStreamMetrics().build_metrics()
    assert (document["AgentLatencyInMilliseconds"], document["AgentSilentInMilliseconds"]) == (-1, -1)


def test_an_agent_that_does_not_move_is_silent_and_one_whose_clock_goes_on_is_not() -> None:
    now = 100.0
    metrics = AsnStreamMetrics(clock=lambda: now)
    metrics.record_poll(make_progress())
    now = 130.0
    metrics.record_poll(make_progress())
    assert metrics.silent_s == 30
    metrics.record_poll(make_progress(synch_us=2_000_000))
    assert metrics.silent_s == 0


def test_a_line_is_logged_once_a_minute_and_at_the_end(caplog: pytest.LogCaptureFixture) -> None:
    now = 0.0
    metrics = AsnStreamMetrics(clock=lambda: now)
    with caplog.at_level(logging.INFO):
        for seconds in (0, 30, 61, 90, 122):
            now = float(seconds)
            metrics.record_poll(make_progress())
        assert len(caplog.records) == 2
        metrics.record_end()
    assert "6 of 7 registered tables" in caplog.text
    assert len(caplog.records) == 3
