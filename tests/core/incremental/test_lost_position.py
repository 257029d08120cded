"""Paused connectors, and positions that are lost and repaired beside the stream."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_cdc.core.errors import (
    ConnectorHalted,
    PrerequisiteError,
)
from airflow_provider_cdc.core.spi.store_interfaces import DesiredState
from airflow_provider_cdc.sources.memory.database import MemoryDatabase
from tests.core.incremental.work import COLUMNS, fill, partial
from tests.support.connectors import memory_connector
from tests.support.signals import list_notifications, scans, send, snapshot
from tests.support.workloads.small_tables import equal


def test_a_paused_connector_ends_within_seconds_and_starts_no_more(db: MemoryDatabase, tmp_path: Path) -> None:
    connector = partial(db, tmp_path)
    timer = threading.Timer(0.3, lambda: connector.store.set_control("test", DesiredState.PAUSED, "ann", "maintenance"))
    timer.start()
    began = time.monotonic()
    connector.capture(run_for_s=120)
    assert time.monotonic() - began < 60
    with pytest.raises(ConnectorHalted, match=r"paused since .*, by ann: maintenance"):
        connector.capture()
    connector.store.set_control("test", DesiredState.RUNNING, "ann", "")
    fill(db, "shop.b", range(5000, 5003))
    assert connector.capture().events == 3


def test_a_lost_position_is_repaired_beside_the_stream(
    db: MemoryDatabase, tmp_path: Path, watermark_form: dict[str, Any]
) -> None:
    connector = memory_connector(
        db, tmp_path, table_include_list="shop.[a-z]", signal_poll_interval_ms=50, **watermark_form
    )
    connector.capture()
    connector.replay.partial = True
    with db.transaction() as t:
        t.delete("shop.a", {"id": 1})
        t.update("shop.b", {"id": 2}, {"n": -2})
    db.purge_log()
    fill(db, "shop.c", range(5000, 5003))
    connector.capture({"position.lost.mode": "incremental"})
    equal(connector, db, "shop.a", "shop.b", "shop.c")
    (signal,) = connector.store.signals_of("test", limit=10)
    assert (signal.channel, signal.state) == ("repair", "done")
    assert connector.store.load_offset("test").offset.incremental.scans == []  # type: ignore[union-attr]


def test_a_lost_position_is_not_repaired_in_part(db: MemoryDatabase, tmp_path: Path) -> None:
    """A table that cannot be read in chunks would keep its gap in a run that says that all is well."""
    db.create_table("shop.d", COLUMNS)
    fill(db, "shop.d", range(3))
    connector = memory_connector(db, tmp_path, table_include_list="shop.[a-z]", signal_poll_interval_ms=50)
    connector.capture()
    before = connector.store.load_offset("test").offset
    fill(db, "shop.d", range(3, 6))
    db.purge_log()
    fill(db, "shop.d", range(6, 9))
    with pytest.raises(PrerequisiteError, match=r"or with a nullable key: shop\.d has no key\."):
        connector.capture({"position.lost.mode": "incremental"})
    assert connector.store.load_offset("test").offset == before
    connector.capture({"position.lost.mode": "snapshot"})
    equal(connector, db, "shop.a", "shop.d")


@pytest.mark.parametrize("changed", ["in the gap", "behind it", "on both sides"])
@pytest.mark.parametrize("busy", [False, True])
def test_a_lost_position_is_repaired_where_tables_were_changed(
    db: MemoryDatabase, tmp_path: Path, changed: str, busy: bool
) -> None:
    """No one knows under which structure the rows in between were written: the table is read whole, the others are not. Rows that
    cannot be decoded with the current structure are left out, and the batch says so."""
    connector = memory_connector(db, tmp_path, table_include_list="shop.[a-z]", signal_poll_interval_ms=50)
    connector.capture()
    with db.transaction() as t:
        t.delete("shop.b", {"id": 1})
    if changed != "behind it":
        db.add_column("shop.b", "early", "int64", 7)
    db.purge_log()
    if busy:
        fill(db, "shop.b", range(5000, 5003))
    if changed != "in the gap":
        db.add_column("shop.b", "late", "int64", 8)
    if busy:
        fill(db, "shop.b", range(6000, 6003))
    connector.capture({"position.lost.mode": "incremental"})
    equal(connector, db, "shop.a", "shop.b", "shop.c")
    signals = connector.store.signals_of("test", limit=10)
    assert [(s.channel, s.state) for s in signals] == [("repair", "done")] * 2
    assert scans(connector).keys() == {"shop.a", "shop.c"}
    assert [data["scanned_collection"] for _, data in list_notifications(connector, "Blocking Snapshot")[1:2]] == [
        "shop.b"
    ]
    left = [record for manifest in connector.changelog.read_manifests("test") for record in manifest.left_out]
    undecoded = [("shop.b", {"entry": 9}, {"entry": 10}, 3)] if busy and changed == "on both sides" else []
    assert [(record.table, record.start, record.end, record.events) for record in left] == undecoded


def test_a_lost_position_is_repaired_though_incremental_snapshots_are_paused(
    db: MemoryDatabase, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    connector = memory_connector(db, tmp_path, table_include_list="shop.[a-z]", signal_poll_interval_ms=50)
    connector.capture()
    snapshot(connector, "shop.a")
    send(connector, "pause-snapshot")
    connector.capture()
    with db.transaction() as t:
        t.delete("shop.a", {"id": 1})
    db.purge_log()
    result = connector.capture({"position.lost.mode": "incremental"})
    equal(connector, db, "shop.a", "shop.b", "shop.c")
    assert {s.state for s in connector.store.signals_of("test", limit=10)} == {"done"}
    assert "RESUMED" in [type_ for type_, _ in list_notifications(connector, "Incremental Snapshot")]
    assert "were paused; they resume" in caplog.text
    assert result.metrics["incremental-snapshot"]["SnapshotPaused"] is False
