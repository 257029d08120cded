"""How a connector stands, and steering one that is alive."""

from __future__ import annotations

import json
import threading
import time
from typing import Any

import pytest

from airflow_provider_cdc.core.capture.capture_run import Run
from airflow_provider_cdc.core.errors import (
    ConfigError,
    ConnectorHalted,
)
from airflow_provider_cdc.core.lifecycle.connector_lifecycle import Lifecycle
from airflow_provider_cdc.core.lifecycle.status import RunState
from airflow_provider_cdc.core.model.signal import SentSignal, SignalState
from airflow_provider_cdc.core.spi.stores import DesiredState
from airflow_provider_cdc.sources.memory.database import MemoryDatabase
from tests.support.connectors import Connector
from tests.support.shop import equal, insert

# how it stands


def test_states_follow_what_runs_and_people_do(connector: Connector, life: Lifecycle) -> None:
    assert life.status().state is RunState.UNASSIGNED
    with connector.store.lease("test", "worker-1", wait_s=0):
        running = life.status()
        assert (running.state, running.owner) == (RunState.RUNNING, "worker-1")
        assert running.since is not None
        life.pause("ada", "upgrade")
        ending = life.status()
        assert (ending.state, ending.wanted, ending.asked_by, ending.reason) == ("running", "paused", "ada", "upgrade")
    connector.store.ended("test", None)
    paused = life.status()
    assert paused.state is RunState.PAUSED
    assert paused.since == paused.run_ended_at
    life.stop("ada")
    assert life.status().state is RunState.STOPPED
    life.resume("ada")
    assert life.status().state is RunState.UNASSIGNED
    connector.store.ended("test", "the log is gone")
    failed = life.status()
    assert (failed.state, failed.last_error, failed.since) == (RunState.FAILED, "the log is gone", failed.run_ended_at)
    connector.store.ended("test", None)
    again = life.status()
    assert (again.state, again.last_error, again.last_error_at) == ("unassigned", "the log is gone", failed.since)


def test_a_run_that_was_killed_is_a_failure(connector: Connector, life: Lifecycle) -> None:
    connector.store.leases._ttl_ms = 50
    connector.store.leases.acquire("test", "worker-1", 0)
    while (status := life.status()).owner is not None:
        pass
    assert status.state is RunState.FAILED
    assert status.last_error is not None
    assert "worker-1 did not give its lease back" in status.last_error


def test_a_status_tells_what_is_captured_and_what_is_under_way(connector: Connector, life: Lifecycle) -> None:
    number = connector.store.send("test", SentSignal("ad-hoc", "execute-snapshot", "{}"))
    done = connector.store.send("test", SentSignal("old", "log"))
    connector.store.set_signal_state("test", done, SignalState.DONE)
    connector.store.set_signal_state("test", number, SignalState.RUNNING, progress={"tables": 2, "left": 1})
    status = life.status()
    assert (status.position, status.seq, status.batch, status.source) == ({"entry": 6}, 8, 3, "memory")
    assert [s.number for s in status.signals] == [number]
    document = json.loads(json.dumps(status.document()))
    assert document["state"] == "unassigned"
    assert document["signals"][0]["progress"] == {"tables": 2, "left": 1}
    assert document["moved_at"].endswith("+00:00")


def test_a_restart_is_asked_for_and_what_is_wanted_stays(connector: Connector, life: Lifecycle) -> None:
    life.pause("ada")
    assert life.restart("bob").restarts == 1
    assert connector.store.control("test").wanted is DesiredState.PAUSED


def test_a_connector_that_never_ran_is_not_steered(connector: Connector) -> None:
    unknown = Lifecycle("tset", connector.store)
    for ask in (unknown.status, lambda: unknown.pause("ada"), lambda: unknown.delete("tset")):
        with pytest.raises(ConfigError, match="No connector 'tset' has run yet"):
            ask()
    assert connector.store.control("tset").since is None


# with a run that is alive


def test_a_run_that_is_alive_ends_within_seconds_of_a_pause_and_nothing_runs_until_resume(
    db: MemoryDatabase, connector: Connector, life: Lifecycle
) -> None:
    ended: list[float] = []
    run = threading.Thread(target=lambda: (connector.capture(run_for_s=60), ended.append(time.monotonic())))
    run.start()
    while life.status().state is not RunState.RUNNING:
        time.sleep(0.05)
    insert(db, "shop.a", 5)
    asked = time.monotonic()
    life.pause("ada", "upgrade")
    run.join()
    assert ended[0] - asked < 30, "it was to run for a minute"
    assert life.status().state is RunState.PAUSED
    with pytest.raises(ConnectorHalted, match="ada"):
        connector.capture()
    insert(db, "shop.a", 6)
    life.resume("ada")
    connector.capture()
    equal(connector, db)


def test_a_restart_that_is_asked_for_while_a_run_begins_ends_it(
    connector: Connector, life: Lifecycle, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The run has its lease, so that people see it running, and has not looked yet at what they want."""
    begin = Run.__init__

    def asked(run: Run, *args: Any) -> None:
        life.restart("ada")
        begin(run, *args)

    monkeypatch.setattr(Run, "__init__", asked)
    connector.capture(run_for_s=3)
    assert "The connector is to be restarted by ada: ending." in caplog.text


def test_a_run_that_is_alive_ends_when_a_restart_is_asked_for(connector: Connector, life: Lifecycle) -> None:
    run = threading.Thread(target=lambda: connector.capture(run_for_s=60))
    run.start()
    while life.status().state is not RunState.RUNNING:
        time.sleep(0.05)
    life.restart("ada")
    run.join(50)  # it was to run for a minute
    assert not run.is_alive()
    assert connector.capture().events == 0
