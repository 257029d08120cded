"""Requirements of signals that begin and stop snapshots, tested once for several sources: names, chunks, stops, and repeats.

What changes meanwhile is the subject of :mod:`.incremental`.
"""

from __future__ import annotations

import json
import logging
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_cdc.core.incremental.chunk_reader_thread import ChunkReaderThread
from airflow_provider_cdc.core.incremental.chunks_per_window import WindowSize
from tests.sources.suite.adapter import INT, TEXT, Adapter, Row
from tests.sources.suite.common import equal
from tests.support.change_log.rendered import Record, capture_records, of_table
from tests.support.chunk_hook import chunk_hook
from tests.support.connectors import Connector
from tests.support.patience import wait_until
from tests.support.signals import send, signal_state, snapshot

DOTTED = "My.Table"
COLUMNS = {"id": INT, "n": INT, "note": TEXT}
ROWS = {"a": 25, "b": 5, DOTTED: 3}


class OnDemandSuite:
    """All that a source with a chunk reader must do when it is asked for tables. Subclasses give the fixture ``db``."""

    @pytest.fixture
    def three_tables(self, db: Adapter) -> Adapter:
        """Three tables of :data:`ROWS`, one with a dot in its name."""
        for table, rows in ROWS.items():
            _fill(db, table, rows)
        return db

    def test_rows_of_chunks_are_reads_in_the_order_of_their_keys_in_the_topic_of_their_table(
        self, three_tables: Adapter, tmp_path: Path
    ) -> None:
        connector = _streaming(three_tables, tmp_path, provide_transaction_metadata=True)
        with three_tables.transaction() as t:
            t.insert("b", {"id": 100, "n": 100, "note": "x"})
        snapshot(connector, _name(three_tables, "a"))
        found = capture_records(connector)
        (created,) = [r["value"] for r in of_table(found, "b")]
        assert (created["op"], created["source"]["snapshot"]) == ("c", "false")
        assert created["transaction"]["total_order"] == 1
        reads = of_table(found, "a")
        assert {r["topic"] for r in reads} == {f"test.{three_tables.namespace}.a"}
        assert [_after(r)["n"] for r in reads] == list(range(25))
        for value in (r["value"] for r in reads):
            assert (value["op"], value["before"], value["transaction"]) == ("r", None, None)
            assert value["source"]["snapshot"] == "incremental"
        equal(connector, three_tables, "a")

    @pytest.mark.parametrize(
        ("properties", "rows", "chunks"),
        [
            ({"incremental_snapshot_chunk_size": None}, 1030, [1024, 6]),
            ({"incremental_snapshot_chunk_size": 7}, 25, [7, 7, 7, 4]),
        ],
    )
    def test_a_chunk_has_1024_rows_unless_configured(
        self,
        db: Adapter,
        tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
        properties: Row,
        rows: int,
        chunks: list[int],
    ) -> None:
        _fill(db, "a", rows)
        read, limits, sizes = ChunkReaderThread._visible, [], []

        def record_chunk(thread: ChunkReaderThread, *given: Any) -> Any:
            limits.append(given[-2])
            chunk = read(thread, *given)
            sizes.append(len(chunk or ()))
            return chunk

        monkeypatch.setattr(ChunkReaderThread, "_visible", record_chunk)
        # how many chunks are read at once is a matter of time
        monkeypatch.setattr(WindowSize, "compute_chunk_count", lambda *_: 1)
        connector = _streaming(db, tmp_path, **properties)
        number = snapshot(connector, _name(db, "a"))
        connector.capture()
        assert signal_state(connector, number) == ("done", "")
        assert (sizes, set(limits)) == (chunks, {chunks[0]})
        equal(connector, db, "a")

    def test_tables_are_named_whole_by_patterns_or_in_quotes_and_read_in_part(
        self, three_tables: Adapter, tmp_path: Path
    ) -> None:
        """No table is read where none is named."""
        connector, namespace = _streaming(three_tables, tmp_path), three_tables.namespace
        for name, tables in (
            (rf"{namespace}\..*", {*ROWS}),
            (f"{namespace}.[ab]", {"a", "b"}),
            (f'{namespace}."{DOTTED}"', {DOTTED}),
            (f'"{namespace}"."{DOTTED}"', {DOTTED}),
            (f"{namespace}.a", {"a"}),
            (f"{namespace}.", set()),
            (f"{namespace[1:]}.a", set()),
            (f"{namespace}.{DOTTED.lower()}", set()),
            (None, set()),
        ):
            number = snapshot(connector, *([] if name is None else [name]))
            assert _count_reads(capture_records(connector)) == {table: ROWS[table] for table in tables}, name
            assert signal_state(connector, number)[0] == ("done" if tables or name is None else "refused")
        part = {"data-collection": f"{namespace}.a", "filter": three_tables.condition("n", "<", 3)}
        snapshot(connector, rf"{namespace}\.[ab]", additional_conditions=[part])
        assert _count_reads(capture_records(connector)) == {"a": 3, "b": 5}

    def test_a_run_that_ends_early_is_followed_by_one_that_reads_behind_the_last_row(
        self, three_tables: Adapter, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(WindowSize, "compute_chunk_count", lambda *_: 1)
        connector, ended = _streaming(three_tables, tmp_path, batch_max_rows=1), threading.Event()

        def end_run() -> None:
            wait_until(lambda: _last_key(connector) is not None, "the first chunk is written")
            ended.set()
            time.sleep(1)

        chunk_hook(monkeypatch)(2, end_run)
        number = snapshot(connector, _name(three_tables, "a"), _name(three_tables, "b"))
        connector.capture(run_for_s=60, until=ended.is_set)
        assert signal_state(connector, number)[0] == "running"
        assert _last_key(connector) is not None
        connector.capture()
        equal(connector, three_tables, "a", "b")
        assert connector.replay.operations["r"] == 30, "none twice"
        assert signal_state(connector, number) == ("done", "")

    def test_a_stop_needs_its_type_and_stops_the_tables_that_it_lists_or_all(
        self, three_tables: Adapter, tmp_path: Path
    ) -> None:
        connector = _streaming(three_tables, tmp_path)
        named = {"type": "INCREMENTAL", "data-collections": [_name(three_tables, "a")]}
        for data, read in (({}, {"a": 25, "b": 5}), (named, {"b": 5}), ({"type": "incremental"}, {})):
            snapshot(connector, _name(three_tables, "a"), _name(three_tables, "b"))
            send(connector, "pause-snapshot")
            assert _count_reads(capture_records(connector)) == {}
            stop = send(connector, "stop-snapshot", data)
            send(connector, "resume-snapshot")
            assert _count_reads(capture_records(connector)) == read
            assert signal_state(connector, stop)[0] == ("done" if data else "refused")
        late = send(connector, "stop-snapshot", named)
        with three_tables.transaction() as t:
            t.insert("a", {"id": 100, "n": 100, "note": "x"})
        assert connector.capture().events == 1
        assert signal_state(connector, late) == ("done", "no incremental snapshot is running")

    def test_a_table_is_read_as_often_as_asked_for_and_its_rows_are_right_again(
        self, three_tables: Adapter, tmp_path: Path
    ) -> None:
        """A connector that has captured the table. Its target has lost rows."""
        connector = three_tables.connector(tmp_path, incremental_snapshot_chunk_size=10, signal_poll_interval_ms=50)
        connector.capture()
        topic = f"{connector.name}.{three_tables.namespace}.a"
        for lost in ([0, 7], [24]):
            connector.replay.advance().lose(topic, *((key,) for key in _keys(three_tables, lost)))
            number = snapshot(connector, _name(three_tables, "a"))
            connector.capture()
            assert signal_state(connector, number) == ("done", "")
            equal(connector, three_tables, *ROWS)

    def test_rows_of_the_signal_table_are_signals_whatever_their_ids_and_a_wrong_one_harms_nothing(
        self, three_tables: Adapter, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        connector = _streaming(three_tables, tmp_path, signal_data_collection=three_tables.signals())
        data = json.dumps({"data-collections": [_name(three_tables, "a")]})
        rows = [("whatever, ü", "execute-snapshot", data), ("unknown", "unheard-of", "{}")]
        if three_tables.structured:
            rows.append(("no json", "execute-snapshot", f'{data}, "type": "incremental"'))
        for row in rows:
            three_tables.insert_signal(*row)
        connector.capture()
        with three_tables.transaction() as t:
            t.delete("signals", {"id": "unknown"})
            t.insert("b", {"id": 100, "n": 100, "note": "x"})
        with caplog.at_level(logging.WARNING):
            connector.capture()
        states = {s.id: (s.type, s.channel, s.state.value) for s in connector.store.signals_of("test", limit=9)}
        assert states == {
            id_: (type_, "source", "refused" if id_ != rows[0][0] else "done") for id_, type_, _ in rows
        }, "insertions are signals, watermarks and deletions are none"
        assert "Signal unknown is refused" in caplog.text
        assert connector.rows(f"{three_tables.namespace}.a") == three_tables.rows("a")
        assert [row["id"] for row in connector.rows(f"{three_tables.namespace}.b")] == [100]
        kinds = Counter(row["type"] for row in three_tables.rows("signals") if row["id"] not in {r[0] for r in rows})
        assert kinds.keys() == {"snapshot-window-open", "snapshot-window-close"}
        # the first run may have ended, with its log, while a window was open
        assert kinds["snapshot-window-open"] - kinds["snapshot-window-close"] in (0, 1)

    def test_a_log_signal_writes_its_message_with_the_position(
        self, three_tables: Adapter, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        connector = _streaming(three_tables, tmp_path)
        number = send(connector, "log", {"message": "Signal message at offset {}"}, id_="ad-hoc-7")
        nothing = send(connector, "log", {}, id_="ad-hoc-8")
        with caplog.at_level(logging.INFO):
            connector.capture()
        state, message = signal_state(connector, number)
        assert (state, signal_state(connector, nothing)[0]) == ("done", "refused")
        assert message in caplog.text
        text, _, position = message.rpartition(" ")
        assert text.startswith("Signal message at offset")
        assert any(character.isdigit() for character in position)


def _fill(db: Adapter, table: str, rows: int) -> None:
    db.create(table, COLUMNS, key=("id",))
    with db.transaction() as t:
        t.insert(table, *({"id": i, "n": i, "note": "x"} for i in range(rows)))


def _streaming(db: Adapter, folder: Path, **properties: Any) -> Connector:
    """A connector that has begun to stream, and has read no row."""
    options = {"snapshot_mode": "no_data", "incremental_snapshot_chunk_size": 10, "signal_poll_interval_ms": 50}
    given = {name: value for name, value in (options | properties).items() if value is not None}
    connector = db.connector(folder, **given)
    connector.replay.partial = True
    connector.capture()
    return connector


def _name(db: Adapter, table: str) -> str:
    return f"{db.namespace}.{table}"


def _after(record: Record) -> Row:
    """Return the row of a record; that of MongoDB is a text."""
    after = record["value"]["after"]
    row: Row = json.loads(after) if isinstance(after, str) else after
    return row


def _keys(db: Adapter, ids: list[int]) -> list[Any]:
    """Keys as the change log has them."""
    return ids if db.structured else [json.dumps(id_) for id_ in ids]


def _last_key(connector: Connector) -> Any:
    """Return the last key of the table that is read in chunks; ``None`` before its first chunk."""
    offset = connector.store.load_offset("test").offset
    scans = offset.incremental.scans if offset is not None else []
    return scans[0].after if scans else None


def _count_reads(found: list[Record]) -> dict[str, int]:
    """Count the rows that were read, by table."""
    reads = [r["topic"] for r in found if r["value"] is not None and r["value"].get("op") == "r"]
    return dict(Counter(topic.split(".", 2)[2] for topic in reads))
