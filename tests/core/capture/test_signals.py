"""Signals that a run carries out, and notifications that it sends, on the memory source."""

from __future__ import annotations

import logging
import shutil
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from airflow_provider_cdc.changelog.debezium.record_renderer import DebeziumRenderer
from airflow_provider_cdc.core.incremental.chunks_per_window import WindowSize
from airflow_provider_cdc.core.signals.custom_actions import ACTIONS
from airflow_provider_cdc.sources.memory.chunk_reader import MemoryChunkReader
from airflow_provider_cdc.sources.memory.database import MemoryDatabase
from airflow_provider_cdc.sources.memory.source import MemorySource
from airflow_provider_cdc.state.models import SignalRow
from tests.support.change_log.rendered import of_table, records
from tests.support.connectors import Connector, memory_connector
from tests.support.packages import install_package
from tests.support.signals import list_notifications, scans, send, signal_state, snapshot
from tests.support.workloads.small_tables import equal

COLUMNS = {"id": "int64!", "n": "int64", "note": "string"}
SIGNALS = {"signal_data_collection": "shop.signals"}


@pytest.fixture
def db(request: pytest.FixtureRequest) -> MemoryDatabase:
    """Three tables of 30 rows, one with a dot in its name, and a signal table with its own names."""
    db = MemoryDatabase(request.node.nodeid)
    for table in ("shop.a", "shop.b", "shop.My.Table"):
        db.create_table(table, COLUMNS, key=("id",))
        insert(db, table, *range(30))
    db.create_table("shop.signals", {"the id": "string!", "kind": "string", "text": "string"}, key=("the id",))
    return db


def insert(db: MemoryDatabase, table: str, *ids: int) -> None:
    with db.transaction() as t:
        for i in ids:
            t.insert(table, {"id": i, "n": i, "note": "x"})


def insert_signal(db: MemoryDatabase, id_: str, type_: str, data: str | None = None) -> None:
    """Insert a row into the signal table."""
    with db.transaction() as t:
        t.insert("shop.signals", {"the id": id_, "kind": type_, "text": data})


def streaming(db: MemoryDatabase, folder: Path, **properties: Any) -> Connector:
    """A connector that has begun to stream, and has read no row."""
    options = {"snapshot_mode": "no_data", "incremental_snapshot_chunk_size": 10, "signal_poll_interval_ms": 50}
    connector = memory_connector(db, folder, **options | properties)
    connector.replay.partial = True
    connector.capture()
    return connector


def rows_read(connector: Connector) -> dict[str, int]:
    """Topic → rows that snapshots have read, without the prefix."""
    found: dict[str, int] = {}
    for manifest in connector.changelog.read_manifests("test"):
        for file in manifest.files:
            if count := file.counts.get("r"):
                name = file.topic.removeprefix("test.shop.")
                found[name] = found.get(name, 0) + count
    return found


@pytest.fixture
def asked_for(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, Any, Any, int]]:
    """Table, key behind which, key up to which, and limit of each chunk that is read."""
    found: list[tuple[str, Any, Any, int]] = []
    read = MemoryChunkReader.read

    def record_read(self: MemoryChunkReader, rows: Any, limit: int, *more: Any) -> Any:
        found.append((str(rows.table.id), rows.after, rows.upto, limit))
        return read(self, rows, limit, *more)

    monkeypatch.setattr(MemoryChunkReader, "read", record_read)
    return found


# what is read, and what comes of it


@pytest.mark.parametrize("form", [{}, SIGNALS])
def test_rows_of_chunks_are_reads_of_an_incremental_snapshot_in_the_topic_of_their_table(
    db: MemoryDatabase, tmp_path: Path, form: dict[str, str]
) -> None:
    connector = streaming(db, tmp_path, provide_transaction_metadata=True, **form)
    insert(db, "shop.a", 100)
    snapshot(connector, "shop.a")
    connector.capture()
    values = [r["value"] for r in of_table(records(connector), "a")]
    (created,) = [v for v in values if v["op"] == "c"]
    assert (created["source"]["snapshot"], created["transaction"]["total_order"]) == ("false", 1)
    reads = [v for v in values if v["op"] == "r"]
    assert {v["after"]["id"] for v in reads} >= set(range(30))
    for value in reads:
        assert (value["before"], value["source"]["snapshot"], value["transaction"]) == (None, "incremental", None)
        assert value["after"] == {"id": value["after"]["id"], "n": value["after"]["id"], "note": "x"}
        assert isinstance(value["ts_ms"], int)


def test_a_blocking_snapshot_reads_as_the_initial_one_does_and_takes_the_place_of_what_was_there(
    db: MemoryDatabase, tmp_path: Path
) -> None:
    connector = memory_connector(db, tmp_path, table_include_list="shop.a", signal_poll_interval_ms=50)
    connector.capture()
    snapshot(connector, "shop.a", type="BLOCKING")
    connector.capture()
    text = [(r["value"]["op"], r["value"]["source"]["snapshot"]) for r in of_table(records(connector), "a")]
    whole = [("r", "first"), *[("r", "true")] * 28, ("r", "last")]
    assert text == [*whole, ("t", "true"), *whole]
    assert {r["topic"] for r in records(connector)} == {"test", "test.shop.a"}


def test_chunks_go_through_the_keys_table_by_table_from_the_first_to_the_last_of_the_beginning(
    db: MemoryDatabase, tmp_path: Path, asked_for: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        WindowSize, "compute_chunk_count", lambda *_: 1
    )  # how many chunks are asked for at once is a matter of time
    connector = streaming(db, tmp_path)
    snapshot(connector, "shop.b", "shop.a")
    connector.capture()
    assert asked_for == [
        (table, after, [29], 10) for table in ("shop.b", "shop.a") for after in (None, [9], [19])
    ]  # fmt: skip


@pytest.mark.parametrize(("size", "rows"), [({}, 1024), ({"incremental_snapshot_chunk_size": 7}, 7)])
def test_a_chunk_has_1024_rows_unless_it_is_said_otherwise(
    db: MemoryDatabase, tmp_path: Path, asked_for: list[Any], size: dict[str, int], rows: int
) -> None:
    connector = memory_connector(db, tmp_path, signal_poll_interval_ms=50, **size)
    connector.capture()
    snapshot(connector, "shop.a")
    connector.capture()
    assert {limit for *_, limit in asked_for} == {rows}


@pytest.mark.parametrize(
    ("name", "tables"),
    [
        (r"shop\..*", {"a", "ab", "b", "My.Table"}),
        ("shop.[ab]", {"a", "b"}),
        ('shop."My.Table"', {"My.Table"}),
        ('"shop"."My.Table"', {"My.Table"}),
        ("shop.a", {"a"}),
        ("SHOP.A", set()),
        ("hop.a", set()),
        ("shop.my.table", set()),
        (None, set()),
    ],
)
def test_tables_are_named_whole_by_patterns_or_in_quotes_and_as_they_are_written(
    db: MemoryDatabase, tmp_path: Path, name: str | None, tables: set[str]
) -> None:
    """No table is read where none is named."""
    db.create_table("shop.ab", COLUMNS, key=("id",))
    insert(db, "shop.ab", *range(30))
    connector = streaming(db, tmp_path, **SIGNALS)
    number = snapshot(connector, *([] if name is None else [name]))
    connector.capture()
    assert rows_read(connector) == dict.fromkeys(tables, 30)
    assert signal_state(connector, number)[0] == ("done" if tables or name is None else "refused")


@pytest.mark.parametrize("tables", [("shop.a",), (r"shop\..*",)])
@pytest.mark.parametrize(
    ("type_", "message"), [(None, "incremental"), ("incremental", "incremental"), ("blocking", "first true last")]
)
def test_a_signal_has_tables_or_some_of_their_rows_read_in_chunks_unless_it_says_blocking(
    db: MemoryDatabase, tmp_path: Path, type_: str | None, message: str, tables: tuple[str, ...]
) -> None:
    connector = streaming(db, tmp_path)
    named = ["a"] if tables == ("shop.a",) else ["My.Table", "a", "b", "signals"]
    number = snapshot(connector, *tables, **({} if type_ is None else {"type": type_}))
    connector.capture()
    assert signal_state(connector, number)[0] == "done"
    reads = [r for r in records(connector) if r["value"] and r["value"].get("op") == "r"]
    marks = {r["value"]["source"]["snapshot"].removesuffix("_in_data_collection") for r in reads}
    assert marks == set(message.split())
    assert {r["topic"].removeprefix("test.shop.") for r in reads} == set(named) - {"signals"}
    if message == "incremental":
        some = snapshot(connector, "shop.a", additional_conditions=[{"data-collection": "shop.a", "filter": "n < 5"}])
        connector.capture()
        assert signal_state(connector, some)[0] == "done"
        assert rows_read(connector)["a"] == 30 + 5


def test_a_condition_is_for_the_table_that_it_names_whole(db: MemoryDatabase, tmp_path: Path) -> None:
    connector = streaming(db, tmp_path)
    for wrong in ("a", "SHOP.A", "shop.b"):
        conditions = [{"data-collection": wrong, "filter": "n < 5"}]
        number = snapshot(connector, "shop.a", additional_conditions=conditions)
        connector.capture()
        assert signal_state(connector, number)[0] == "refused"
        assert "is not one of the requested tables" in signal_state(connector, number)[1]
    conditions = [{"data-collection": "shop.a", "filter": "n > 3 and n < 9"}]
    snapshot(connector, "shop.a", "shop.b", additional_conditions=conditions)
    connector.capture()
    assert rows_read(connector) == {"a": 5, "b": 30}


# the signal table


def test_the_columns_of_the_signal_table_count_by_their_order_and_ids_mean_nothing(
    db: MemoryDatabase, tmp_path: Path
) -> None:
    """The table is not in the include list, is no topic, and nothing says that ``source`` is on: it is by default."""
    connector = streaming(db, tmp_path, table_include_list="shop.a", **SIGNALS)
    insert_signal(db, "whatever 1", "execute-snapshot", '{"data-collections": ["shop.a"]}')
    connector.capture()
    insert_signal(db, "whatever 2", "log", '{"message": "at {}"}')
    with db.transaction() as t:
        t.update("shop.signals", {"the id": "whatever 2"}, {"text": "{}"})
        t.delete("shop.signals", {"the id": "whatever 2"})
    connector.capture()
    found = [(s.id, s.type, s.channel, s.state) for s in connector.store.signals_of("test")]
    assert sorted(found) == [
        ("whatever 1", "execute-snapshot", "source", "done"),
        ("whatever 2", "log", "source", "done"),
    ], "insertions are signals, watermarks and other changes are not"
    equal(connector, db, "shop.a")
    assert {r["topic"] for r in records(connector)} == {"test", "test.shop.a"}
    kinds = ("snapshot-window-open", "snapshot-window-close")
    own = {row["the id"]: row["kind"] for row in db.copy_rows("shop.signals") if row["kind"] in kinds}
    opened, closed = (sum(kind == k for kind in own.values()) for k in kinds)
    assert opened == closed >= 2, "two for each window, which may hold several chunks"
    assert not [id_ for id_ in own if "whatever" in id_]


def test_watermarks_come_back_though_the_channel_source_is_off(db: MemoryDatabase, tmp_path: Path) -> None:
    connector = streaming(db, tmp_path, signal_enabled_channels="airflow", **SIGNALS)
    insert_signal(db, "not heard", "execute-snapshot", '{"data-collections": ["shop.b"]}')
    number = snapshot(connector, "shop.a")
    connector.capture()
    assert signal_state(connector, number) == ("done", "")
    assert rows_read(connector) == {"a": 30}
    assert {row["kind"] for row in db.copy_rows("shop.signals")} > {"snapshot-window-open", "snapshot-window-close"}


@pytest.mark.parametrize("id_", ["", "same", "ü" * 500])
def test_an_id_may_be_anything(db: MemoryDatabase, tmp_path: Path, id_: str) -> None:
    connector = streaming(db, tmp_path)
    numbers = [send(connector, "log", {"message": "m"}, id_=id_) for _ in range(2)]
    connector.capture()
    assert [signal_state(connector, number) for number in numbers] == [("done", "m")] * 2


def test_signals_are_in_the_log_of_the_run_by_their_ids(
    db: MemoryDatabase, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    connector = streaming(db, tmp_path)
    number = send(connector, "log", {"message": "Signal message at offset {}"}, id_="ad-hoc-7")
    with caplog.at_level(logging.INFO):
        connector.capture()
    assert f"Signal ad-hoc-7 (number {number}) from airflow: log." in caplog.text
    assert "Signal message at offset entry 7" in caplog.text


def test_the_log_of_a_run_reports_a_snapshot_with_its_place(
    db: MemoryDatabase, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    connector = memory_connector(db, tmp_path, table_include_list="shop.a")
    with caplog.at_level(logging.INFO):
        connector.capture()
    assert "Snapshot of 1 tables at entry" in caplog.text


@pytest.mark.parametrize(
    ("type_", "data", "message"),
    [
        ("unheard-of", "{}", "'unheard-of' is not a signal type"),
        ("execute-snapshot", '{"data-collections": ["shop.a"]}, "type": "incremental"', "its data is not JSON"),
        ("log", "{}", "message"),
        ("schema-changes", '{"changes": [{}]}', "database"),
        ("schema-changes", '{"database": "shop", "changes": []}', "changes"),
    ],
)
def test_a_row_that_cannot_be_carried_out_is_logged_and_capture_goes_on(
    db: MemoryDatabase, tmp_path: Path, caplog: pytest.LogCaptureFixture, type_: str, data: str, message: str
) -> None:
    connector = streaming(db, tmp_path, table_include_list="shop.a", **SIGNALS)
    insert_signal(db, "wrong", type_, data)
    insert(db, "shop.a", 100, 101)
    assert connector.capture().events == 2
    assert "Signal wrong is refused" in caplog.text
    assert message in caplog.text
    assert signal_state(connector, 1)[0] == "refused"


# stopping, pausing


def test_a_stop_without_its_type_stops_nothing(db: MemoryDatabase, tmp_path: Path) -> None:
    connector = streaming(db, tmp_path)
    signal_number = snapshot(connector, "shop.a")
    stop = send(connector, "stop-snapshot", {"data-collections": ["shop.a"]})
    connector.capture()
    assert (signal_state(connector, signal_number), signal_state(connector, stop)[0]) == (("done", ""), "refused")
    equal(connector, db, "shop.a")


def test_a_stop_needs_its_type_and_stops_the_tables_that_it_lists_or_all(db: MemoryDatabase, tmp_path: Path) -> None:
    connector = streaming(db, tmp_path)
    for data, read in (({}, {"a": 30, "b": 30}), ({"type": "INCREMENTAL", "data-collections": ["shop.a"]}, {"b": 30}), ({"type": "incremental"}, {})):  # fmt: skip
        before = rows_read(connector)
        snapshot(connector, "shop.a", "shop.b")
        send(connector, "pause-snapshot")
        connector.capture()
        send(connector, "stop-snapshot", data)
        send(connector, "resume-snapshot")
        connector.capture()
        assert {
            name: n - before.get(name, 0) for name, n in rows_read(connector).items() if n > before.get(name, 0)
        } == read


def test_tables_are_stopped_by_patterns_and_the_others_go_on(db: MemoryDatabase, tmp_path: Path) -> None:
    connector = streaming(db, tmp_path, **SIGNALS)
    snapshot(connector, "shop.a", "shop.b", 'shop."My.Table"')
    send(connector, "stop-snapshot", {"type": "Incremental", "data-collections": ["shop.[xb]", 'shop."My.Table"']})
    connector.capture()
    assert rows_read(connector) == {"a": 30}


@pytest.mark.parametrize(
    ("type_", "data", "message"),
    [
        ("stop-snapshot", {"type": "incremental"}, "no incremental snapshot is running"),
        (
            "stop-snapshot",
            {"type": "incremental", "data-collections": ["shop.a"]},
            "no incremental snapshot is running",
        ),
        ("pause-snapshot", None, "no incremental snapshot is running"),
        ("resume-snapshot", None, "no incremental snapshot is paused"),
    ],
)
def test_where_nothing_is_read_there_is_nothing_to_stop(
    db: MemoryDatabase, tmp_path: Path, type_: str, data: Any, message: str
) -> None:
    connector = streaming(db, tmp_path)
    number = send(connector, type_, data)
    insert(db, "shop.a", 100)
    assert connector.capture().events == 1
    assert signal_state(connector, number) == ("done", message)


# types of one's own

_OWN = """
from airflow_provider_cdc.core.signals.signal_request_parser import SignalRejected

def count(context, data):
    context.log(f"counting for {context.connector}")
    return f"{data['n'] + 1} at {context.position}"

def fail(context, data):
    raise KeyError("n")
"""


def test_a_type_of_ones_own_is_carried_out_and_its_errors_are_states_of_the_signal(
    db: MemoryDatabase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    install_package(tmp_path, monkeypatch, {ACTIONS: {"count": "{module}:count", "fail": "{module}:fail"}}, _OWN)
    connector = streaming(db, tmp_path / "c")
    numbers = [send(connector, "count", {"n": 1}), send(connector, "fail", {})]
    insert(db, "shop.a", 100)
    with caplog.at_level(logging.INFO):
        assert connector.capture().events == 1
    assert signal_state(connector, numbers[0]) == ("done", "2 at entry 7")
    assert signal_state(connector, numbers[1]) == ("failed", "KeyError: 'n'")
    assert "counting for test" in caplog.text


# notifications


def _data_of(connector: Connector, kind: str) -> list[tuple[str, dict[str, str]]]:
    found = connector.store.list_notifications("test", after=0, limit=1000)
    return [(n.type, n.additional_data) for n in (row.notification for row in found) if n.aggregate_type == kind]


def test_an_initial_snapshot_is_notified_from_its_start_to_its_end(db: MemoryDatabase, tmp_path: Path) -> None:
    connector = memory_connector(db, tmp_path / "read", table_include_list="shop.[ab]", snapshot_max_threads=1)
    connector.capture()
    found = [(type_, data) for type_, data in _data_of(connector, "Initial Snapshot") if type_ != "IN_PROGRESS"]
    name = {"connector_name": "test"}
    scan = {"total_rows_scanned": "30", "status": "SUCCEEDED"}
    both = {"data_collections": "shop.a, shop.b"}
    assert found == [
        ("STARTED", name | both),
        ("TABLE_SCAN_COMPLETED", name | {"scanned_collection": "shop.a"} | scan),
        ("TABLE_SCAN_COMPLETED", name | {"scanned_collection": "shop.b"} | scan),
        ("COMPLETED", name | both),
    ]
    none = memory_connector(db, tmp_path / "not", snapshot_mode="never")
    none.capture()
    assert _data_of(none, "Initial Snapshot") == [("SKIPPED", name)]


def test_an_incremental_snapshot_is_notified_under_the_id_of_its_signal(db: MemoryDatabase, tmp_path: Path) -> None:
    connector = streaming(db, tmp_path, batch_max_rows=1)
    snapshot(connector, "shop.a", "shop.b", id_="ad-hoc-1", additional_conditions=[{"data-collection": "shop.b", "filter": "n < 0"}])  # fmt: skip
    send(connector, "pause-snapshot", id_="ad-hoc-2")
    send(connector, "resume-snapshot", id_="ad-hoc-3")
    connector.capture()
    name = {"connector_name": "test"}
    both = {"data_collections": "shop.a, shop.b"}
    progress = name | both | {"current_collection_in_progress": "shop.a", "maximum_key": "[29]"}
    assert _data_of(connector, "Incremental Snapshot") == [
        ("STARTED", name | both),
        ("PAUSED", name),
        ("RESUMED", name),
        ("IN_PROGRESS", progress | {"last_processed_key": "[9]", "total_rows_scanned": "10"}),
        ("IN_PROGRESS", progress | {"last_processed_key": "[19]", "total_rows_scanned": "20"}),
        ("TABLE_SCAN_COMPLETED", name | {"scanned_collection": "shop.a", "total_rows_scanned": "30", "status": "SUCCEEDED"}),
        ("TABLE_SCAN_COMPLETED", name | {"scanned_collection": "shop.b", "total_rows_scanned": "0", "status": "EMPTY"}),
        ("COMPLETED", name),
    ]  # fmt: skip
    ids = {
        n.id
        for n in (row.notification for row in connector.store.list_notifications("test", after=0, limit=1000))
        if n.type != "SKIPPED"
    }
    assert {i for i in ids if not i.count("-") > 2} == {"ad-hoc-1"}


def test_a_table_that_is_not_read_says_why_by_its_status(db: MemoryDatabase, tmp_path: Path) -> None:
    db.create_table("shop.keyless", COLUMNS)
    db.create_table("shop.gone", COLUMNS, key=("id",))
    connector = streaming(db, tmp_path)
    number = snapshot(connector, "shop.keyless", "shop.gone", "shop.a", "shop.b", additional_conditions=[
        {"data-collection": "shop.b", "filter": "n <> <>"},
    ])  # fmt: skip
    other = snapshot(connector, "shop.My.Table", surrogate_key="note")
    db.drop_table("shop.gone")
    connector.capture()
    assert scans(connector) == {
        "shop.keyless": "NO_PRIMARY_KEY", "shop.gone": "UNKNOWN_SCHEMA", "shop.a": "SUCCEEDED", "shop.b": "SQL_EXCEPTION",
        "shop.My.Table": "SKIPPED",
    }  # fmt: skip
    assert signal_state(connector, number)[0] == signal_state(connector, other)[0] == "failed"
    messages = {
        d["scanned_collection"]: d.get("message", "")
        for t, d in list_notifications(connector)
        if "scanned_collection" in d
    }
    assert "shop.keyless has no key" in messages["shop.keyless"]
    assert messages["shop.a"] == ""


def test_nothing_is_sent_anywhere_by_default_and_all_is_kept(
    db: MemoryDatabase, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO):
        for name, channels in (("none", {}), ("log", {"notification_enabled_channels": "log"})):
            caplog.clear()
            connector = memory_connector(db, tmp_path / name, **channels)
            connector.capture()
            assert ("Initial Snapshot: COMPLETED" in caplog.text) == bool(channels)
            assert _data_of(connector, "Initial Snapshot")[-1][0] == "COMPLETED"
            topics = {r.topic for r in DebeziumRenderer(connector.changelog, "test").render_records()}
            assert all(topic == "test" or topic.startswith("test.shop.") for topic in topics)


def test_a_source_that_takes_no_structures_refuses_them(db: MemoryDatabase, tmp_path: Path) -> None:
    assert MemorySource.POSITION_SIGNAL == "set-memory-position"
    connector = streaming(db, tmp_path)
    number = send(connector, "schema-changes", {"database": "shop", "changes": [{"type": "DROP", "id": "shop.a"}]})
    connector.capture()
    assert signal_state(connector, number)[0] == "refused"


@pytest.mark.parametrize("minutes", [-1, 2])
def test_a_signal_that_has_the_number_of_another_one_after_a_restore_does_not_end_as_that_one_has(
    db: MemoryDatabase, tmp_path: Path, minutes: int
) -> None:
    """The state tables were put back, and the change log continues with batches that have taken a signal.

    :param minutes: when the signal of this number was sent, after the batch that took it
    """
    connector = streaming(db, tmp_path)
    connector.store.close()
    shutil.copy(tmp_path / "state.db", tmp_path / "backup.db")
    number = snapshot(connector, "shop.a")
    connector.capture()
    assert signal_state(connector, number) == ("done", "")
    connector.store.close()
    (tmp_path / "backup.db").rename(tmp_path / "state.db")
    connector = memory_connector(db, tmp_path, **connector.properties)
    assert snapshot(connector, "shop.b") == number
    with connector.store.database.open_transaction() as c:
        c.execute(sa.update(SignalRow).values(received_at=datetime.now(UTC) + timedelta(minutes=minutes)))
    connector.capture()
    if minutes < 0:  # as after a kill: it is the one that the batch has taken
        assert signal_state(connector, number) == ("done", "")
        return
    state, message = signal_state(connector, number)
    assert state == "failed"
    assert "Nothing was done" in message
    assert rows_read(connector) == {"a": 30}
    again = snapshot(connector, "shop.b")
    connector.capture()
    assert again > number
    assert signal_state(connector, again) == ("done", "")
    assert rows_read(connector) == {"a": 30, "b": 30}


@pytest.mark.parametrize("kind", ["INCREMENTAL", "BLOCKING"])
def test_a_signal_without_work_in_the_offset_fails_and_one_with_work_is_carried_out(
    db: MemoryDatabase, tmp_path: Path, kind: str
) -> None:
    """State tables that were put back may have a signal run whose end was in an offset that is gone."""
    connector = streaming(db, tmp_path)
    lost, ended = snapshot(connector, "shop.a", type=kind), snapshot(connector, "shop.b", type=kind)
    connector.capture()
    with connector.store.database.open_transaction() as c:
        c.execute(sa.update(SignalRow).where(SignalRow.id == lost).values(state="running", ended_at=None))
    insert(db, "shop.a", 100)
    waiting = snapshot(connector, "shop.b", type=kind)
    connector.capture()
    state, message = signal_state(connector, lost)
    assert (state, "its tables were not read, send the signal again" in message) == ("failed", True)
    assert [signal_state(connector, number)[0] for number in (ended, waiting)] == ["done", "done"]
