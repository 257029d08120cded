"""The state of a connector, and commands to one that is alive."""

from __future__ import annotations

import json
import threading
import time
from typing import Any

import pytest

from airflow_provider_cdc.core.capture.capture_run import CaptureRun
from airflow_provider_cdc.core.errors import (
    ConfigError,
    ConnectorHalted,
)
from airflow_provider_cdc.core.lifecycle.connector_lifecycle import ConnectorLifecycle
from airflow_provider_cdc.core.lifecycle.connector_status import ConnectorState
from airflow_provider_cdc.core.model.connector_signal import SentSignal, SignalState
from airflow_provider_cdc.core.spi.store_interfaces import DesiredState
from airflow_provider_cdc.sources.memory.database import MemoryDatabase
from tests.support.connectors import Connector
from tests.support.workloads.small_tables import equal, insert

# how it stands


def test_states_follow_what_runs_and_people_do(connector: Connector, lifecycle: ConnectorLifecycle) -> None:
    assert lifecycle.inspect_status().state is ConnectorState.UNASSIGNED
    with connector.store.acquire_lease("test", "worker-1", wait_s=0):
        running = lifecycle.inspect_status()
        assert (running.state, running.owner) == (ConnectorState.RUNNING, "worker-1")
        assert running.state_since is not None
        lifecycle.pause("ada", "upgrade")
        ending = lifecycle.inspect_status()
        assert (ending.state, ending.desired_state, ending.requested_by, ending.reason) == (
            "running",
            "paused",
            "ada",
            "upgrade",
        )
    connector.store.record_run_end("test", None)
    paused = lifecycle.inspect_status()
    assert paused.state is ConnectorState.PAUSED
    assert paused.state_since == paused.run_ended_at
    lifecycle.stop("ada")
    assert lifecycle.inspect_status().state is ConnectorState.STOPPED
    lifecycle.resume("ada")
    assert lifecycle.inspect_status().state is ConnectorState.UNASSIGNED
    connector.store.record_run_end("test", "the log is gone")
    failed = lifecycle.inspect_status()
    assert (failed.state, failed.last_error, failed.state_since) == (
        ConnectorState.FAILED,
        "the log is gone",
        failed.run_ended_at,
    )
    connector.store.record_run_end("test", None)
    again = lifecycle.inspect_status()
    assert (again.state, again.last_error, again.last_error_at) == ("unassigned", "the log is gone", failed.state_since)


def test_a_run_that_was_killed_is_a_failure(connector: Connector, lifecycle: ConnectorLifecycle) -> None:
    connector.store.leases._ttl_ms = 50
    connector.store.leases.acquire("test", "worker-1", 0)
    while (status := lifecycle.inspect_status()).owner is not None:
        pass
    assert status.state is ConnectorState.FAILED
    assert status.last_error is not None
    assert "worker-1 did not release its lease" in status.last_error


def test_a_status_reports_what_is_captured_and_what_is_under_way(
    connector: Connector, lifecycle: ConnectorLifecycle
) -> None:
    number = connector.store.send("test", SentSignal("ad-hoc", "execute-snapshot", "{}"))
    done = connector.store.send("test", SentSignal("old", "log"))
    connector.store.set_signal_state("test", done, SignalState.DONE)
    connector.store.set_signal_state("test", number, SignalState.RUNNING, progress={"tables": 2, "left": 1})
    status = lifecycle.inspect_status()
    assert (status.position, status.seq, status.batch, status.source) == ({"entry": 6}, 8, 3, "memory")
    assert [s.number for s in status.signals] == [number]
    document = json.loads(json.dumps(status.to_document()))
    assert document["state"] == "unassigned"
    assert document["signals"][0]["progress"] == {"tables": 2, "left": 1}
    assert document["moved_at"].endswith("+00:00")


def test_a_restart_is_asked_for_and_what_is_wanted_stays(connector: Connector, lifecycle: ConnectorLifecycle) -> None:
    lifecycle.pause("ada")
    assert lifecycle.restart("bob").restarts == 1
    assert connector.store.load_control("test").desired_state is DesiredState.PAUSED


def test_a_connector_that_never_ran_is_not_steered(connector: Connector) -> None:
    unknown = ConnectorLifecycle("tset", connector.store)
    for ask in (unknown.inspect_status, lambda: unknown.pause("ada"), lambda: unknown.delete("tset", "ada")):
        with pytest.raises(ConfigError, match="No connector 'tset' has run yet"):
            ask()
    assert connector.store.load_control("tset").changed_at is None


# with a run that is alive


def test_a_run_that_is_alive_ends_within_seconds_of_a_pause_and_nothing_runs_until_resume(
    db: MemoryDatabase, connector: Connector, lifecycle: ConnectorLifecycle
) -> None:
    ended: list[float] = []
    run = threading.Thread(target=lambda: (connector.capture(run_for_s=60), ended.append(time.monotonic())))
    run.start()
    while lifecycle.inspect_status().state is not ConnectorState.RUNNING:
        time.sleep(0.05)
    insert(db, "shop.a", 5)
    requested_at = time.monotonic()
    lifecycle.pause("ada", "upgrade")
    run.join()
    assert ended[0] - requested_at < 30, "it was to run for a minute"
    assert lifecycle.inspect_status().state is ConnectorState.PAUSED
    with pytest.raises(ConnectorHalted, match="ada"):
        connector.capture()
    insert(db, "shop.a", 6)
    lifecycle.resume("ada")
    connector.capture()
    equal(connector, db)


def test_a_restart_that_is_asked_for_while_a_run_begins_ends_it(
    connector: Connector,
    lifecycle: ConnectorLifecycle,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The run has its lease, so that people see it running, and has not looked yet at what they want."""
    begin = CaptureRun.__init__

    def restart_and_begin(run: CaptureRun, *args: Any) -> None:
        lifecycle.restart("ada")
        begin(run, *args)

    monkeypatch.setattr(CaptureRun, "__init__", restart_and_begin)
    connector.capture(run_for_s=3)
    assert "A restart of the connector was requested by ada: the run ends." in caplog.text


def test_a_run_that_is_alive_ends_when_a_restart_is_asked_for(
    connector: Connector, lifecycle: ConnectorLifecycle
) -> None:
    run = threading.Thread(target=lambda: connector.capture(run_for_s=60))
    run.start()
    while lifecycle.inspect_status().state is not ConnectorState.RUNNING:
        time.sleep(0.05)
    lifecycle.restart("ada")
    run.join(50)  # it was to run for a minute
    assert not run.is_alive()
    assert connector.capture().events == 0
