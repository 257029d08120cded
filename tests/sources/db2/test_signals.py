"""Snapshots on demand as the document of Db2 describes them, and their notifications."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from dev.servers.db2 import Db2
from tests.sources.db2_adapter import Db2Adapter
from tests.support.change_log.rendered import capture_records, of_table
from tests.support.connectors import Connector
from tests.support.signals import scans, send, signal_state, snapshot

ConnectorFactory = Callable[..., Connector]


@pytest.fixture(scope="module")
def adapter(db2: Db2) -> Iterator[Db2Adapter]:
    """A table of 25 products, and the signal table of the document."""
    with ExitStack() as stack:
        adapter = Db2Adapter(db2, stack)
        adapter._create("PRODUCTS", {"ID": "INTEGER", "COLOR": "VARCHAR(9)", "QUANTITY": "INTEGER"}, ("ID",))
        rows = ", ".join(f"({i}, '{'blue' if i % 2 else 'red'}', {i})" for i in range(25))
        adapter.sql(f"INSERT INTO {adapter.name('PRODUCTS')} VALUES {rows}")
        columns = {"ID": "VARCHAR(42)", "TYPE": "VARCHAR(32) NOT NULL", "DATA": "VARCHAR(2048)"}
        adapter._create("DEBEZIUM_SIGNAL", columns, ("ID",))
        adapter.sql(f"GRANT INSERT, DELETE ON TABLE {adapter.name('DEBEZIUM_SIGNAL')} TO USER {db2.user}")
        db2.catch_up()
        yield adapter


@pytest.fixture
def db(adapter: Db2Adapter) -> Db2Adapter:
    """Its signal table has no signals."""
    adapter.sql(f"DELETE FROM {adapter.name('DEBEZIUM_SIGNAL')}")
    adapter.server.catch_up()
    return adapter


@pytest.fixture
def connector_factory(db: Db2Adapter, tmp_path: Path) -> ConnectorFactory:
    """A connector that has begun to stream, and has read no row."""

    def make(**properties: Any) -> Connector:
        options = {
            "table_include_list": rf"{db.namespace}\.PRODUCTS", "snapshot_mode": "no_data", "incremental_snapshot_chunk_size": 10,
            "signal_poll_interval_ms": 50,
        }  # fmt: skip
        connector = db.connector(tmp_path, **options | properties)
        connector.replay.partial = True
        connector.capture()
        return connector

    return make


@pytest.mark.parametrize("form", ["{}.DEBEZIUM_SIGNAL", "{}.debezium_signal", 'TESTDB.{}."DEBEZIUM_SIGNAL"'])
def test_the_statement_of_the_document_has_a_table_read(
    db: Db2Adapter, connector_factory: ConnectorFactory, form: str
) -> None:
    allowed = "source:execute-snapshot,additional-conditions"
    connector = connector_factory(signal_data_collection=form.format(db.namespace), signal_allowed_types=allowed)
    data = f'{{"data-collections": ["{db.namespace}.PRODUCTS"],"type":"incremental", "additional-condition":"COLOR=\'\'blue\'\' AND QUANTITY > 20"}}'
    db.sql(
        f"INSERT INTO {db.name('DEBEZIUM_SIGNAL')} (id, type, data) VALUES('ad-hoc-1', 'execute-snapshot', '{data}')"
    )
    db.server.catch_up()
    connector.capture()
    connector.capture()
    assert [row["ID"] for row in connector.rows(f"{db.namespace}.PRODUCTS")] == [21, 23]
    (signal,) = connector.store.signals_of("test", limit=5)
    assert (signal.id, signal.channel, signal.state) == ("ad-hoc-1", "source", "done")


def test_the_statement_that_stops_a_snapshot(db: Db2Adapter, connector_factory: ConnectorFactory) -> None:
    connector = connector_factory(signal_data_collection=f"{db.namespace}.DEBEZIUM_SIGNAL")
    number = snapshot(connector, f"{db.namespace}.PRODUCTS")
    send(connector, "pause-snapshot")
    connector.capture()
    data = f'{{"data-collections": ["{db.namespace}.PRODUCTS"], "type":"incremental"}}'
    db.sql(f"INSERT INTO {db.name('DEBEZIUM_SIGNAL')} (id, type, data) values ('ad-hoc-1', 'stop-snapshot', '{data}')")
    db.server.catch_up()
    connector.capture()
    assert signal_state(connector, number) == ("failed", f"{db.namespace}.PRODUCTS stopped by signal ad-hoc-1")


def test_rows_of_a_condition_are_reads(db: Db2Adapter, connector_factory: ConnectorFactory) -> None:
    connector, table = connector_factory(), f"{db.namespace}.PRODUCTS"
    snapshot(
        connector,
        table,
        additional_conditions=[{"data-collection": table, "filter": "COLOR = 'blue' AND QUANTITY > 20"}],
    )
    found = of_table(capture_records(connector), "PRODUCTS")
    assert [r["value"]["after"]["ID"] for r in found] == [21, 23]
    for record in found:
        value = record["value"]
        assert (value["op"], value["before"], value["transaction"], value["source"]["snapshot"]) == (
            "r",
            None,
            None,
            "incremental",
        )
        assert value["source"]["change_lsn"] is None
        assert value["source"]["commit_lsn"]


def test_a_surrogate_key_orders_the_rows_in_place_of_the_key(
    db: Db2Adapter, connector_factory: ConnectorFactory
) -> None:
    db.create_as("TURNED", "ID INTEGER NOT NULL PRIMARY KEY, U INTEGER NOT NULL, V INTEGER")
    try:
        rows = ", ".join(f"({i}, {-i}, 0)" for i in range(25))
        db.sql(f"INSERT INTO {db.name('TURNED')} VALUES {rows}")
        db.server.catch_up()
        connector, table = connector_factory(table_include_list=rf"{db.namespace}\.TURNED"), f"{db.namespace}.TURNED"
        number = snapshot(connector, table, surrogate_key="U")
        assert [r["key"]["ID"] for r in of_table(capture_records(connector), "TURNED")] == [*range(24, -1, -1)]
        assert signal_state(connector, number) == ("done", "")
        snapshot(connector, table, surrogate_key="V")
        assert of_table(capture_records(connector), "TURNED") == []
        assert scans(connector) == {table: "SKIPPED"}
    finally:
        db.drop_table("TURNED")


def test_chunks_report_the_progress_of_their_table_and_its_pauses(
    db: Db2Adapter, connector_factory: ConnectorFactory
) -> None:
    connector, table = connector_factory(), f"{db.namespace}.PRODUCTS"
    number = snapshot(connector, table)
    send(connector, "pause-snapshot")
    paused = connector.capture(run_for_s=3).metrics["incremental-snapshot"]  # the start of a run takes a part of them
    assert paused["SnapshotPaused"] is True
    assert 1 <= int(str(paused["SnapshotPausedDurationInSeconds"])) < 60
    send(connector, "resume-snapshot")
    found = connector.capture().metrics["incremental-snapshot"]
    assert signal_state(connector, number) == ("done", "")
    # the last two chunks may share a window
    assert (found["ChunkId"], found["ChunkFrom"], found["ChunkTo"]) in (("3", "[19]", "[24]"), ("2", "[9]", "[24]"))
    assert (found["TableFrom"], found["TableTo"]) == ("[0]", "[24]")
    assert (found["SnapshotPaused"], found["RowsScanned"]) == (False, {table: 25})
