"""Waits of a connector, and their limits: for events, for members that are gone, and for the storage of the change log."""

from __future__ import annotations

import json
import logging
import re
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from airflow_provider_cdc.connector import open_source
from airflow_provider_cdc.core.errors import SourceUnavailable, StorageUnavailable
from airflow_provider_cdc.core.model.table_schema import TableId
from airflow_provider_cdc.sources.mongodb.config import MongoDbConfig
from airflow_provider_cdc.sources.mongodb.connect import Deployment, open_client
from airflow_provider_cdc.sources.mongodb.log import reconnecting_cursor
from airflow_provider_cdc.sources.mongodb.metrics import MongoStreamMetrics
from airflow_provider_cdc.sources.mongodb.position import ClusterTime, MongoPosition
from dev.servers.mongodb import MongoDb
from tests.support.change_log.rendered import capture_records
from tests.support.sources.mongodb.mongodb_connectors import mongodb_connector


@pytest.fixture(scope="module")
def server() -> Iterator[MongoDb]:
    """Start a server whose commands fail when a test says so."""
    with MongoDb() as started:
        yield started


class _AllCollections:
    """Every collection is captured."""

    def is_captured(self, table: TableId) -> bool:
        return True

    def __getattr__(self, name: str) -> Any:
        raise AssertionError(f"no stream without events asks for {name}")


@pytest.mark.parametrize(
    ("properties", "patience", "least", "most"),
    [
        ({"cursor_max_await_time_ms": 300}, 30.0, 0.25, 10),
        ({"cursor_max_await_time_ms": 30_000}, 0.3, 0.25, 10),
        ({"poll_interval_ms": 1500}, None, 1.4, 10),
    ],
    ids=["the cursor's time", "what the run needs", "the interval"],
)
def test_the_server_waits_for_an_event_for_the_configured_time(
    uri: str, tmp_path: Path, properties: dict[str, Any], patience: float | None, least: float, most: float
) -> None:
    connector = mongodb_connector(uri, tmp_path, collection_include_list="nobody.writes_this", **properties)
    with open_source(connector.definition(), connector.secrets) as source:
        asks = None if patience is None else lambda: patience
        stream = source.stream_log(source.current_position(), _AllCollections(), until=None, patience=asks)
        next(stream)  # what was there when the cursor was opened
        began = time.monotonic()
        next(stream)
        assert least < time.monotonic() - began < most
        stream.close()


def test_timeouts_are_the_drivers() -> None:
    given = {
        "mongodb.connect.timeout.ms": 1_100, "mongodb.socket.timeout.ms": 1_200, "mongodb.server.selection.timeout.ms": 1_300,
        "mongodb.heartbeat.frequency.ms": 1_400,
    }  # fmt: skip
    for properties, expected in (({}, (10, None, 30, 10)), (given, (1.1, 1.2, 1.3, 1.4))):
        config = MongoDbConfig.parse({"topic.prefix": "t", "mongodb.connection.string": "mongodb://a/", **properties})
        with open_client(config, connect=False) as client:
            options = client.options
        pool = options.pool_options
        found = (
            pool.connect_timeout, pool.socket_timeout, options.server_selection_timeout, options.heartbeat_frequency,
        )  # fmt: skip
        assert found == expected


TWENTY_MINUTES = [0, 1, 2, 4, 8, 16, 32, 64, *[120] * 9]
OTHER_TIMES = {
    "connect.backoff.initial.delay.ms": 500,
    "connect.backoff.max.delay.ms": 3_000,
    "connect.max.attempts": 5,
}


@pytest.mark.parametrize(
    ("properties", "expected"), [({}, TWENTY_MINUTES), (OTHER_TIMES, [0, 0.5, 1, 2, 3, 3])], ids=["default", "others"]
)
def test_a_lost_stream_is_opened_at_once_and_then_after_ever_longer_times_until_it_fails(
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    properties: dict[str, int],
    expected: list[float],
) -> None:
    """By default 1, 2, 4 … 64 seconds and nine times 120: about twenty minutes, here by a separate clock."""
    clock = [0.0]

    def sleep(seconds: float) -> None:
        clock[0] += seconds

    monkeypatch.setattr(reconnecting_cursor, "time", SimpleNamespace(monotonic=lambda: clock[0], sleep=sleep))
    monkeypatch.setattr("pymongo.common.MIN_HEARTBEAT_INTERVAL", 0.01)  # a refused connection is found out at once
    config = MongoDbConfig.parse(
        {
            "topic.prefix": "t", "mongodb.connection.string": "mongodb://127.0.0.1:1/", "mongodb.server.selection.timeout.ms": 1,
            **properties,
        }
    )  # fmt: skip
    with open_client(config) as client, caplog.at_level(logging.WARNING):
        reader = reconnecting_cursor.ChangeStreamFeed(
            config,
            client,
            Deployment("rs0", (8, 0, 0)),
            MongoPosition(ClusterTime(1, 1)),
            metrics := MongoStreamMetrics(),
        )
        with pytest.raises(SourceUnavailable):
            [*iter(lambda: reader.fetch_reply(1000), "a batch")]
    waits = [float(wait or 0) for wait in re.findall(r"is opened again(?: in ([\d.]+) s)?:", caplog.text)]
    assert waits == expected
    assert clock[0] == sum(waits)
    assert metrics.disconnects == len(waits)


def fail_commands(server: MongoDb, command: str, times: int) -> None:
    """Have a command fail some times as it does when a member goes down."""
    data = {"failCommands": [command], "errorCode": 91, "closeConnection": False}
    with server.connect() as client:
        client.admin.command({"configureFailPoint": "failCommand", "mode": {"times": times}, "data": data})


def test_lost_connections_are_counted_where_they_were_lost(
    server: MongoDb, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    quick = {
        "connect_backoff_initial_delay_ms": 10,
        "snapshot_max_threads": 1,
        "snapshot_fetch_size": 5,
        "batch_max_ms": 100,
    }
    secrets = {"mongodb.heartbeat.frequency.ms": 500}
    with server.connect() as client:
        client.counted.orders.insert_many([{"_id": n} for n in range(20)])
        connector = mongodb_connector(server.url(), tmp_path, database_include_list="counted", **quick)
        connector.secrets |= secrets
        fail_commands(server, "getMore", 2)
        found: Any = connector.capture().metrics
        assert found["snapshot"]["NumberOfDisconnects"] == 2
        assert "continues in 0.01 s: No available member" in caplog.text
        assert "RawBSONDocument" not in caplog.text
        client.counted.orders.insert_one({"_id": 100})
        fail_commands(server, "getMore", 1)
        found = connector.capture(run_for_s=30, until=lambda: "opened again" in caplog.text).metrics
        assert "snapshot" not in found
        assert (found["streaming"]["NumberOfDisconnects"], found["streaming"]["NumberOfPrimaryElections"]) == (1, 0)
        connector.capture()
    assert sorted(d["_id"] for d in connector.documents("counted.orders")) == [*range(20), 100]


def test_while_the_storage_is_gone_nothing_is_captured_and_then_everything_once(
    uri: str, tmp_path: Path, database: Any
) -> None:
    connector = mongodb_connector(uri, tmp_path, database_include_list=database.name, batch_max_ms=100)
    database.orders.insert_one({"_id": 0})
    connector.capture()
    folder, away = connector.folder / "changelog", connector.folder / "away"
    gone: list[int] = []

    def storage_goes() -> bool:
        if not gone:
            gone.append(1)
            folder.rename(away)
            folder.write_text("no folder")
            database.orders.insert_many([{"_id": n} for n in range(1, 20)])
        return False

    with pytest.raises(StorageUnavailable):
        connector.capture(run_for_s=30, until=storage_goes)
    with pytest.raises(StorageUnavailable):
        connector.capture()
    database.orders.update_one({"_id": 3}, {"$set": {"n": 1}})
    folder.unlink()
    away.rename(folder)
    found = capture_records(connector)
    assert [(r["value"]["op"], json.loads(r["key"]["id"])) for r in found] == [
        *(("c", n) for n in range(1, 20)),
        ("u", 3),
    ]
    assert capture_records(connector) == []
