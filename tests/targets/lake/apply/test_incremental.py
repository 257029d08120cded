"""The proof of the watermarks: a writer changes the very keys that are read in chunks, and the capture is killed again and again.

Afterwards the source, the replay of the change log and the Delta table are equal, and no event of any key was an illegal step:
:class:`tests.support.change_log.replay.Replay` looks at each, and finds a row of a chunk that is out of date or that brings back a deleted one.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from airflow_provider_cdc.core.incremental.chunks_per_window import CHUNKS
from tests.support.connectors import Connector, mysql_connector
from tests.support.processes.fork import Forks
from tests.support.signals import list_notifications, scans, signal_state, snapshot
from tests.targets.lake.lake import Lake

pytestmark = [pytest.mark.spark, pytest.mark.crash]

KEYS, CHUNK, KILLS = 12_000, 3, 10
FORMS: dict[str, dict[str, Any]] = {
    "insert_insert": {"signal_data_collection": "{db}.signals"},
    "insert_delete": {
        "signal_data_collection": "{db}.signals",
        "incremental_snapshot_watermarking_strategy": "insert_delete",
    },
    "read_only": {"read_only": True},
}


class HotKeyWriter:
    """Writes to the keys that are being read: inserts, updates, deletes, key changes, in transactions of ten changes."""

    def __init__(self, server: Any, database: str, connector: Connector) -> None:
        self._server, self._db, self._connector = server, database, connector
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._write)
        self.changes = 0
        self.seconds = 0.0

    def __enter__(self) -> HotKeyWriter:
        self._began = time.monotonic()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        self.seconds += time.monotonic() - self._began

    def _place(self) -> int:
        offset = self._connector.store.load_offset("test").offset
        found = offset.incremental.scans if offset is not None else []
        return int(found[0].after[0]) if found and found[0].after else 0

    def _write(self) -> None:
        r, place, looked = random.Random(9), 0, 0.0
        with self._server.connect(autocommit=False) as connection, connection.cursor() as cursor:
            cursor.execute(f"USE {self._db}")
            while not self._stop.is_set():
                if time.monotonic() - looked > 0.05:
                    place, looked = self._place(), time.monotonic()
                for _ in range(10):
                    near = r.random() < 0.7
                    key = (place + r.randrange(20 * CHUNK)) % KEYS if near else r.randrange(KEYS)
                    self.changes += self._change(cursor, r, key)
                connection.commit()
                time.sleep(0.005)

    def _change(self, cursor: Any, r: random.Random, key: int) -> int:
        match r.randrange(5):
            case 0:
                cursor.execute("DELETE FROM hot WHERE id BETWEEN %s AND %s", (key, key + r.randrange(2)))
            case 1:
                rows = [(key + i, r.randrange(10**6), "inserted") for i in range(r.randrange(1, 7))]
                cursor.executemany("INSERT IGNORE INTO hot (id, n, s) VALUES (%s, %s, %s)", rows)
            case 2:
                cursor.execute("UPDATE IGNORE hot SET id = %s WHERE id = %s", (r.randrange(KEYS), key))
            case _:
                text = f"x{r.randrange(1000)}"
                cursor.execute("UPDATE hot SET n = n + 1, s = %s WHERE id BETWEEN %s AND %s", (text, key, key + 9))
        return int(cursor.rowcount)


def _proves(server: Any, kind: str, form: str, folder: Path, forks: Forks, spark: SparkSession) -> None:
    with server.database() as database, contextlib.ExitStack() as after:
        name = database.name
        server.sql(f"CREATE TABLE {name}.signals (id VARCHAR(64) PRIMARY KEY, type VARCHAR(32) NOT NULL, data TEXT)")
        server.sql(f"CREATE TABLE {name}.hot (id INT PRIMARY KEY, n INT NOT NULL, s VARCHAR(30))")
        # a right to a table outlives the table
        server.sql(f"GRANT SELECT, INSERT, DELETE ON {name}.signals TO '{server.user}'@'%'")
        after.callback(server.sql, f"REVOKE SELECT, INSERT, DELETE ON {name}.signals FROM '{server.user}'@'%'")
        for lo in range(0, KEYS, 2000):
            values = ", ".join(f"({i}, {i}, 'begin')" for i in range(lo, lo + 2000))
            server.sql(f"INSERT INTO {name}.hot VALUES {values}")
        given = {k: v.format(db=name) if isinstance(v, str) else v for k, v in FORMS[form].items()}
        connector = mysql_connector(
            server, folder, kind, table_include_list=f"{name}.hot", snapshot_mode="no_data", batch_max_ms=250,
            incremental_snapshot_chunk_size=CHUNK, signal_poll_interval_ms=50, **given,
        )  # fmt: skip
        connector.replay.partial = True
        connector.capture()
        lake = Lake(spark, folder, connector)
        with HotKeyWriter(server, name, connector) as hot:
            signal_numbers = _killed(connector, forks, folder, kind)
        connector.capture()
        print(f"{hot.changes} changes in {hot.seconds:.0f} s")
        assert hot.changes > 2000, "too few changes for a proof"
        rows = {row["id"]: row for row in connector.rows(f"{name}.hot")}
        with server.connect() as connection, connection.cursor() as cursor:
            cursor.execute(f"SELECT id, n, s FROM {name}.hot")
            there = {i: {"id": i, "n": n, "s": s} for i, n, s in cursor.fetchall()}
        assert rows == there
        lake.apply()
        assert {row["id"]: row for row in lake.rows(f"{name}.hot", "id", "n", "s")} == there
        assert all(signal_state(connector, number) == ("done", "") for number in signal_numbers)
        assert scans(connector) == {f"{name}.hot": "SUCCEEDED"}
        scanned = sum(
            int(d.get("total_rows_scanned", 0)) for t, d in list_notifications(connector) if t == "TABLE_SCAN_COMPLETED"
        )
        assert scanned / (CHUNK * CHUNKS) >= 200, "too few windows for a proof"
        assert scanned - connector.replay.operations["r"] >= 20, "too few rows were superseded by events for a proof"
        if form == "insert_delete":
            left = server.sql(f"SELECT COUNT(*) FROM {name}.signals")[0][0]
            assert left <= 5 * KILLS  # of windows that were open when a run was killed


def _killed(connector: Connector, forks: Forks, folder: Path, kind: str) -> list[int]:
    """Runs that are killed in the middle of incremental snapshots, and one that is not; the numbers of the requests."""
    r, kills, signal_number = random.Random(5), 0, [snapshot(connector, ".*hot")]
    while kills < KILLS:
        run = forks.start(
            "tests.support.processes.crash:capture", folder=str(folder), kind=kind, options=connector.properties,
            secrets=connector.secrets, lease_s=1.0,
        )  # fmt: skip
        _until(lambda: _reads(connector), 20)
        time.sleep(r.random() * 0.7)
        if not _reads(connector):
            signal_number.append(snapshot(connector, ".*hot"))
        os.kill(run.pid, signal.SIGKILL)
        assert run_ended(run.wait())
        kills += 1
    connector.capture()
    return signal_number


def run_ended(ended: Any) -> bool:
    """Killed, or at its end just before."""
    return ended.signal == signal.SIGKILL or not ended.error


def _reads(connector: Connector) -> bool:
    offset = connector.store.load_offset("test").offset
    return offset is not None and bool(offset.incremental.scans)


def _until(true: Callable[[], bool], seconds: float) -> None:
    end = time.monotonic() + seconds
    while not true() and time.monotonic() < end:
        time.sleep(0.02)


def _but_long(*names: str) -> list[Any]:
    """All forms. What a form does is tested on each server beside its source; here each form runs, and each server's read-only one."""
    return [pytest.param(form, marks=[pytest.mark.long] if form in names else []) for form in FORMS]


@pytest.mark.sampled(2)
@pytest.mark.parametrize("form", _but_long("insert_insert", "read_only"))
def test_no_row_of_a_chunk_is_ever_out_of_date_on_mariadb(
    mariadb: Any, form: str, tmp_path: Path, mysql_forks: Forks, spark: SparkSession
) -> None:
    _proves(mariadb, "mariadb", form, tmp_path, mysql_forks, spark)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("form", _but_long("insert_delete", "insert_insert"))
def test_no_row_of_a_chunk_is_ever_out_of_date_on_mysql(
    mysql97: Any, form: str, tmp_path: Path, mysql_forks: Forks, spark: SparkSession
) -> None:
    _proves(mysql97, "mysql", form, tmp_path, mysql_forks, spark)
