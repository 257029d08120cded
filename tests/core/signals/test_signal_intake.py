"""Limits on the signals that a channel brings: further ones are refused, and their data is not stored."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from airflow_provider_cdc.core.config.connector_config import ConnectorConfig
from airflow_provider_cdc.core.model.connector_signal import SentSignal
from airflow_provider_cdc.core.signals import signal_intake
from airflow_provider_cdc.core.signals.signal_intake import STORED_CHARACTERS
from airflow_provider_cdc.sources.memory.database import MemoryDatabase
from airflow_provider_cdc.state.models import SignalRow
from tests.support.connectors import Connector, memory_connector

LONG = '{"message": "' + "x" * 3000 + '"}'


@pytest.fixture
def db(request: pytest.FixtureRequest) -> MemoryDatabase:
    db = MemoryDatabase(request.node.nodeid)
    db.create_table("shop.a", {"id": "int64!", "n": "int64"}, key=("id",))
    db.create_table("shop.signals", {"id": "string!", "type": "string", "data": "string"}, key=("id",))
    return db


def make_connector(db: MemoryDatabase, folder: Path, **more: Any) -> Connector:
    named = {"signal_data_collection": "shop.signals", "signal_poll_interval_ms": 50, **more}
    connector = memory_connector(db, folder, **named)
    connector.capture()
    return connector


def flood(db: MemoryDatabase, first: int, count: int, type_: str = "log", data: str = LONG) -> None:
    """Insert signals, all in one transaction, with a row of a captured table behind them."""
    with db.transaction() as t:
        for i in range(first, first + count):
            t.insert("shop.signals", {"id": str(i), "type": type_, "data": data})
        t.insert("shop.a", {"id": first, "n": 1})


def states(connector: Connector) -> dict[str, str]:
    return {s.id: s.state.value for s in connector.store.signals_of("test", limit=100)}


def test_beyond_the_limit_of_an_hour_rows_of_the_signal_table_are_refused_and_capture_continues(
    db: MemoryDatabase, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    connector = make_connector(db, tmp_path, signal_limit_per_hour=3)
    flood(db, 0, 20)
    connector.capture()
    assert states(connector) == {str(i): "done" if i < 3 else "refused" for i in range(6)}
    assert "17 signals of the channel source were refused" in caplog.text
    assert "14 of them are not recorded" in caplog.text
    (refused,) = connector.store.signals_of("test", number=connector.store.signals_of("test", limit=1)[0].number)
    assert refused.data == LONG[:STORED_CHARACTERS]
    assert "signal.limit.per.hour" in refused.message
    assert f"SHA-256 {hashlib.sha256(LONG.encode()).hexdigest()}" in refused.message
    flood(db, 20, 5)
    connector.capture()  # another run has the same limit
    assert len(states(connector)) == 6
    assert sorted(row["id"] for row in connector.rows("shop.a")) == [0, 20]
    with connector.store.database.open_transaction() as c:  # an hour later
        c.execute(sa.update(SignalRow).values(received_at=sa.text("'2020-01-01 00:00:00.000000'")))
    flood(db, 30, 1)
    connector.capture()
    assert states(connector)["30"] == "done"


def test_no_more_signals_wait_than_the_limit(db: MemoryDatabase, tmp_path: Path) -> None:
    connector = make_connector(db, tmp_path, signal_limit_waiting=2)
    flood(db, 0, 4, "execute-snapshot", '{"data-collections": ["shop.a"]}')
    connector.capture()
    assert [state for _, state in sorted(states(connector).items())][2:] == ["refused", "refused"]
    connector.capture()
    assert [state for _, state in sorted(states(connector).items())][:2] == ["done", "done"]
    flood(db, 4, 1)
    connector.capture()
    assert states(connector)["4"] == "done"


def test_the_data_of_an_hour_has_a_limit_in_memory_and_in_the_state(
    db: MemoryDatabase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(signal_intake, "MOST_CHARACTERS", 2 * len(LONG))
    connector = make_connector(db, tmp_path)
    flood(db, 0, 4)
    flood(db, 4, 1)
    connector.capture()
    found = {s.id: s for s in connector.store.signals_of("test", limit=10)}
    assert [found[str(i)].state.value for i in range(5)] == ["done", "done", "refused", "refused", "refused"]
    assert "characters of data" in found["2"].message
    assert hashlib.sha256(LONG.encode()).hexdigest() in found["2"].message


def test_a_rolled_back_flood_counts_nothing(db: MemoryDatabase, tmp_path: Path) -> None:
    connector = make_connector(db, tmp_path)
    config = ConnectorConfig.parse({"topic.prefix": "test", "signal.limit.per.hour": 3})
    intake = signal_intake.SignalIntake("test", "source", config, connector.store)
    intake.add([SentSignal("a", "log", "{}", "source", f"o{i}") for i in range(50)])
    intake.discard()
    assert not intake.has_unrecorded_signals
    intake.record()
    assert states(connector) == {}
