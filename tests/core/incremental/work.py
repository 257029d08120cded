"""Tables, connectors and writers of the tests of incremental snapshots on the memory source."""

from __future__ import annotations

import random
import threading
import time
from pathlib import Path
from typing import Any

from airflow_provider_cdc.sources.memory.database import MemoryDatabase
from tests.support.connectors import Connector, memory_connector
from tests.support.patience import wait_until
from tests.support.signals import send, signal_state

FORMS = {
    "read": {},
    "insert_insert": {"signal_data_collection": "shop.signals"},
    "insert_delete": {
        "signal_data_collection": "shop.signals",
        "incremental_snapshot_watermarking_strategy": "insert_delete",
    },
}


COLUMNS = {"id": "int64!", "n": "int64", "note": "string"}


def fill(db: MemoryDatabase, table: str, ids: range) -> None:
    with db.transaction() as t:
        for i in ids:
            t.insert(table, {"id": i, "n": i, "note": "begin"})


def partial(db: MemoryDatabase, folder: Path, **properties: Any) -> Connector:
    """A connector that has begun to stream, and has read no row."""
    options = {"table_include_list": "shop.[a-z]", "snapshot_mode": "no_data", "incremental_snapshot_chunk_size": 50}
    connector = memory_connector(db, folder, signal_poll_interval_ms=50, **options | properties)
    connector.replay.partial = True
    connector.capture()
    return connector


class BusyWriter:
    """A writer beside the capture: updates, deletes, insertions of the same keys, and key changes."""

    def __init__(self, db: MemoryDatabase, table: str = "shop.a", keys: int = 1000, pause_s: float = 0.01) -> None:
        self._db, self._table, self._keys, self._pause_s = db, table, keys, pause_s
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._write)
        self.changes = 0

    def __enter__(self) -> BusyWriter:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def more(self, changes: int) -> None:
        """Wait until the writer has made so many more changes, or is done."""
        enough = self.changes + changes
        wait_until(
            lambda: self.changes >= enough or not self._thread.is_alive(), f"{changes} more changes", every_s=0.001
        )

    def _write(self) -> None:
        r = random.Random(4)
        while not self._stop.is_set():
            with self._db.lock, self._db.transaction() as t:
                for _ in range(r.randrange(1, 6)):
                    self._change(t, r)
                    self.changes += 1
            time.sleep(self._pause_s)

    def _change(self, t: Any, r: random.Random) -> None:
        key, table = r.randrange(self._keys), self._table
        there = {row["id"] for row in self._db._rows[self._db.resolve_table_id(table)]}
        new = r.randrange(self._keys)
        match r.randrange(4):
            case 0 if key in there:
                t.delete(table, {"id": key})
            case 1 if key in there and new not in there:
                t.update(table, {"id": key}, {"id": new, "n": r.randrange(10**6)})
            case _ if key in there:
                t.update(table, {"id": key}, {"n": r.randrange(10**6)})
            case _:
                t.insert(table, {"id": key, "n": r.randrange(10**6), "note": "new"})


def pause_snapshots(connector: Connector) -> None:
    """Pause incremental snapshots, and wait until they are."""
    number = send(connector, "pause-snapshot")
    wait_until(lambda: signal_state(connector, number)[0] == "done", "incremental snapshots are paused")
