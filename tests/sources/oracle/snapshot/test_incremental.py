"""Incremental snapshots of Oracle tables beside a running stream: no event that cannot be, and the table at the end."""

from __future__ import annotations

import itertools
import json
import random
import threading
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_cdc.core.model.connector_signal import SentSignal
from dev.servers.oracle import Oracle
from tests.sources.oracle_adapter import oracle_connector
from tests.support.change_log.incremental_checker import check
from tests.support.connectors import Connector
from tests.support.signals import signal_ended

TOPIC = "test.APP.T1"
LOGGED = "ALTER TABLE {} ADD SUPPLEMENTAL LOG DATA (ALL) COLUMNS"
ROWS = 3000


@pytest.fixture
def db(schema: Oracle) -> Oracle:
    schema.sql("CREATE TABLE T1 (ID NUMBER(9) PRIMARY KEY, V NUMBER(9))", LOGGED.format("T1"))
    with closing(schema.connect()) as connection, connection.cursor() as cursor:
        cursor.executemany("INSERT INTO T1 VALUES (:1, :2)", [(i, 0) for i in range(0, ROWS * 2, 2)])
        connection.commit()
    return schema


class Writer(threading.Thread):
    """Changes rows of the first half of the table until it is stopped."""

    def __init__(self, server: Oracle) -> None:
        super().__init__(daemon=True)
        self._server, self.ended, self.changes = server, threading.Event(), 0
        self.start()

    def run(self) -> None:
        numbers = random.Random(5)
        with closing(self._server.connect()) as connection, connection.cursor() as cursor:
            there = set(range(0, ROWS * 2, 2))
            for i in itertools.count(1):
                id_ = numbers.randrange(ROWS)
                if id_ not in there:
                    cursor.execute("INSERT INTO T1 VALUES (:1, :2)", [id_, i])
                    there.add(id_)
                elif numbers.random() < 0.3:
                    cursor.execute("DELETE FROM T1 WHERE ID = :1", [id_])
                    there.remove(id_)
                else:
                    cursor.execute("UPDATE T1 SET V = :v WHERE ID = :id", {"v": i, "id": id_})
                if numbers.random() < 0.5:
                    connection.commit()
                self.changes += 1
                if self.ended.is_set():
                    connection.commit()
                    return

    def stop(self) -> None:
        self.ended.set()
        self.join()


def rows(server: Oracle, where: str = "1 = 1") -> list[dict[str, Any]]:
    return [{"ID": i, "V": v} for i, v in server.sql(f"SELECT ID, V FROM T1 WHERE {where}")]


def request_snapshot(connector: Connector, **data: Any) -> int:
    signal_data = {"data-collections": ["APP.T1"], **data}
    return connector.store.send(connector.name, SentSignal("one", "execute-snapshot", json.dumps(signal_data)))


FORMS = {
    "read": {},
    # the database leaves out what the lists do not name, but for the signal table
    "insert_insert": {"signal_data_collection": "ORCLPDB1.APP.SIGNALS", "log_mining_query_filter_mode": "in"},
    "insert_delete": {
        "signal_data_collection": "ORCLPDB1.APP.SIGNALS",
        "incremental_snapshot_watermarking_strategy": "insert_delete",
    },
}


@pytest.mark.sampled(3)
@pytest.mark.parametrize("form", FORMS)
def test_chunks_beside_a_writer_on_the_same_keys_are_legal_at_every_event(
    db: Oracle, tmp_path: Path, form: str
) -> None:
    db.sql("CREATE TABLE SIGNALS (ID VARCHAR2(42) PRIMARY KEY, TYPE VARCHAR2(32) NOT NULL, DATA VARCHAR2(2048))")
    db.sql(LOGGED.format("SIGNALS"), f"GRANT ALL ON SIGNALS TO {db.user}")
    connector = oracle_connector(
        db, tmp_path, schema_include_list="APP", table_include_list="APP.T1", snapshot_mode="no_data",
        incremental_snapshot_chunk_size=100, **FORMS[form],
    )  # fmt: skip
    connector.capture()
    writer = Writer(db)
    try:
        done = signal_ended(connector, request_snapshot(connector))
        connector.capture(run_for_s=4)
        connector.capture(run_for_s=120, until=lambda: writer.changes > 100 and done())
    finally:
        writer.stop()
    connector.capture()
    found = check(connector.changelog, connector.name, {TOPIC: rows(db)})
    assert found.counts["read"] >= ROWS / 2, "nobody has changed these"
    assert writer.changes > 100
    assert not connector.store.load_offset(connector.name).offset.incremental.scans  # type: ignore[union-attr]
