"""Requirements of snapshots on demand, tested once for all sources, with the same adapters as the rest of the suite.

The replay of the change log looks at every event: a row of a chunk that is out of date, or of a row that is gone, is an error there.
"""

from __future__ import annotations

import random
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_cdc.core.errors import PositionLost
from tests.sources.suite import INT, TEXT, Adapter, Row, equal
from tests.support.chunk_hook import AtRead, chunk_hook
from tests.support.connectors import Connector
from tests.support.patience import wait_until
from tests.support.signals import scans, send, signal_ended, signal_state, snapshot

FORMS = ("read", "insert_insert", "insert_delete")
ROWS, CHUNK = 120, 20


class Writer:
    """Changes rows of one table until the end of its block.

    :param keys: the first so many rows, at random
    """

    def __init__(self, db: Adapter, table: str, keys: int = ROWS) -> None:
        self._db, self._table, self._keys = db, table, keys
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._write)
        self._error: BaseException | None = None
        self.changes = 0

    def __enter__(self) -> Writer:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join()
        if self._error is not None:
            raise self._error

    def more(self, changes: int) -> None:
        """Wait until the writer has made so many more changes, or is done."""
        enough = self.changes + changes
        wait_until(
            lambda: self.changes >= enough or not self._thread.is_alive(), f"{changes} more changes", every_s=0.001
        )

    def _write(self) -> None:
        r, there = random.Random(3), {row["id"] for row in self._db.rows(self._table)}
        try:
            while not self._end.is_set():
                tried = {*there}
                try:
                    with self._db.transaction() as t:
                        for _ in range(r.randrange(1, 5)):
                            self._change(t, r, tried)
                    there = tried
                except Exception as e:
                    if not self._db.asks_to_try_again(e):
                        raise
                time.sleep(0.01)
        except BaseException as e:  # shown by the process that has started it
            self._error = e

    def _change(self, t: Any, r: random.Random, there: set[int]) -> None:
        key, new = r.randrange(self._keys), r.randrange(self._keys)
        self.changes += 1
        if key not in there:
            t.insert(self._table, {"id": key, "n": self.changes, "note": "new"})
            there.add(key)
        elif r.random() < 0.25:
            t.delete(self._table, {"id": key})
            there.remove(key)
        elif r.random() < 0.25 and new not in there:
            t.update(self._table, {"id": key}, {"id": new})
            there.symmetric_difference_update({key, new})
        else:
            t.update(self._table, {"id": key}, {"n": self.changes})


class IncrementalSuite:
    """All that every source with a chunk reader must do. Subclasses give the fixture ``db``."""

    @pytest.fixture(params=FORMS)
    def watermark_form(self, request: pytest.FixtureRequest, db: Adapter) -> dict[str, Any]:
        """Return the properties of a way in which watermarks come about."""
        if request.param == "read":
            return {"read_only": True}
        return {
            "signal_data_collection": db.signals(),
            "incremental_snapshot_watermarking_strategy": request.param,
        }

    @pytest.fixture
    def at_read(self, monkeypatch: pytest.MonkeyPatch) -> AtRead:
        return chunk_hook(monkeypatch)

    @pytest.fixture
    def three_table_adapter(self, db: Adapter) -> Adapter:
        """Three tables with a key and some rows."""
        for table in ("a", "b", "c"):
            db.create(table, {"id": INT, "n": INT, "note": TEXT}, key=("id",))
            with db.transaction() as t:
                t.insert(table, *({"id": i, "n": i, "note": f"ä{i}"} for i in range(ROWS)))
        return db

    @pytest.mark.sampled(3)
    def test_rows_that_change_while_they_are_read_are_never_out_of_date(
        self, three_table_adapter: Adapter, tmp_path: Path, watermark_form: dict[str, Any], at_read: AtRead
    ) -> None:
        connector = streaming(three_table_adapter, tmp_path, **watermark_form)
        writer = Writer(three_table_adapter, "a", keys=ROWS // 2)
        for n in range(1, 20):
            at_read(n, lambda: writer.more(4))
        number = request_snapshot(connector, three_table_adapter, "a")
        with writer:
            connector.capture()
        connector.capture()
        equal(connector, three_table_adapter, "a")
        assert writer.changes > 10
        assert signal_state(connector, number) == ("done", "")
        assert connector.replay.operations["r"] >= ROWS // 2, "nobody has changed these"

    @pytest.mark.sampled(3)
    def test_chunks_that_end_by_their_bytes_lose_nothing_beside_a_writer(
        self, three_table_adapter: Adapter, tmp_path: Path, watermark_form: dict[str, Any], at_read: AtRead
    ) -> None:
        """A request for a thousand rows at a time of a table whose rows are wide."""
        with three_table_adapter.transaction() as t:
            for i in range(0, ROWS, 2):
                t.update("a", {"id": i}, {"note": f"{i:03}" + "w" * 190})
        with three_table_adapter.small_fetches() as properties:
            connector = streaming(
                three_table_adapter, tmp_path, incremental_snapshot_chunk_max_bytes=2048, **watermark_form, **properties
            )
            writer = Writer(three_table_adapter, "a")
            for n in range(1, 20):
                at_read(n, lambda: writer.more(4))
            number = snapshot(connector, name(three_table_adapter, "a"), chunk_size=1000)
            with writer:
                result = connector.capture()
        connector.capture()
        equal(connector, three_table_adapter, "a")
        assert writer.changes > 10
        assert signal_state(connector, number) == ("done", "")
        chunks = int(str(result.metrics["incremental-snapshot"]["ChunkId"]))
        assert chunks > 4, f"{chunks} chunks: their borders were not by bytes"

    @pytest.mark.sampled(3)
    def test_a_statement_in_the_middle_changes_what_is_read_from_there(
        self, three_table_adapter: Adapter, tmp_path: Path, watermark_form: dict[str, Any], at_read: AtRead
    ) -> None:
        connector = streaming(three_table_adapter, tmp_path, **watermark_form)
        at_read(2, lambda: three_table_adapter.add_column("a", "late", INT, 7))
        number = request_snapshot(connector, three_table_adapter, "a")
        connector.capture()
        connector.capture()
        equal(connector, three_table_adapter, "a")
        assert signal_state(connector, number) == ("done", "")

    @pytest.mark.sampled(3)
    def test_a_table_emptied_in_the_middle_stays_so(
        self, three_table_adapter: Adapter, tmp_path: Path, watermark_form: dict[str, Any], at_read: AtRead
    ) -> None:
        connector = streaming(three_table_adapter, tmp_path, **watermark_form)

        def empty_table() -> None:
            three_table_adapter.truncate("a")
            with three_table_adapter.transaction() as t:
                t.insert("a", {"id": 50, "n": 1, "note": "after"})

        at_read(2, empty_table)
        number = request_snapshot(connector, three_table_adapter, "a")
        connector.capture()
        connector.capture()
        equal(connector, three_table_adapter, "a")
        assert signal_state(connector, number) == ("done", "")

    @pytest.mark.sampled(3)
    def test_a_signal_table_emptied_in_the_middle_keeps_no_window_open(
        self, three_table_adapter: Adapter, tmp_path: Path, watermark_form: dict[str, Any], at_read: AtRead
    ) -> None:
        """No deletion comes back of a row that is gone already."""
        if "signal_data_collection" not in watermark_form:
            return
        connector = streaming(three_table_adapter, tmp_path, **watermark_form)
        table = str(watermark_form["signal_data_collection"]).rpartition(".")[2].strip('"')

        def empty_table() -> None:
            three_table_adapter.truncate(table)
            with three_table_adapter.transaction() as t:
                t.update("a", {"id": 25}, {"n": -25})

        at_read(2, empty_table)
        number = request_snapshot(connector, three_table_adapter, "a")
        connector.capture(run_for_s=60, until=signal_ended(connector, number))
        equal(connector, three_table_adapter, "a")
        assert signal_state(connector, number) == ("done", "")

    @pytest.mark.sampled(3)
    def test_pause_resume_and_stop_of_one_table_of_three(
        self, three_table_adapter: Adapter, tmp_path: Path, watermark_form: dict[str, Any], at_read: AtRead
    ) -> None:
        connector = streaming(three_table_adapter, tmp_path, **watermark_form)
        pause: list[int] = []
        at_read(2, lambda: pause.append(send(connector, "pause-snapshot", id_="pause")))
        at_read(
            3,
            lambda: wait_until(lambda: signal_state(connector, pause[0])[0] == "done", "the signal to pause is taken"),
        )
        number = request_snapshot(connector, three_table_adapter, "a", "b", "c")
        connector.capture()
        assert signal_state(connector, number)[0] == "running"
        send(
            connector,
            "stop-snapshot",
            {"type": "incremental", "data-collections": [name(three_table_adapter, "b")]},
            id_="enough",
        )
        send(connector, "resume-snapshot")
        with Writer(three_table_adapter, "c"):
            connector.capture()
        connector.capture()
        equal(connector, three_table_adapter, "a", "c")
        assert connector.rows(f"{three_table_adapter.namespace}.b") == []
        assert signal_state(connector, number) == (
            "failed",
            f"{three_table_adapter.namespace}.b stopped by signal enough",
        )

    @pytest.mark.sampled(3)
    def test_two_requests_at_once(
        self, three_table_adapter: Adapter, tmp_path: Path, watermark_form: dict[str, Any], at_read: AtRead
    ) -> None:
        connector = streaming(three_table_adapter, tmp_path, **watermark_form)
        later: list[int] = []
        at_read(2, lambda: later.append(request_snapshot(connector, three_table_adapter, "a", "b")))
        for n in range(3, 8):
            at_read(n, lambda: time.sleep(0.05))
        first = request_snapshot(connector, three_table_adapter, "a")
        with Writer(three_table_adapter, "a"):
            connector.capture()
        connector.capture()
        equal(connector, three_table_adapter, "a", "b")
        assert [signal_state(connector, number) for number in (first, *later)] == [("done", ""), ("done", "")]

    @pytest.mark.sampled(3)
    def test_tables_of_few_rows_and_filters_that_match_little(
        self, db: Adapter, tmp_path: Path, watermark_form: dict[str, Any]
    ) -> None:
        for table, rows in (("a", 0), ("b", 1), ("c", CHUNK), ("d", 30)):
            db.create(table, {"id": INT, "n": INT, "note": TEXT}, key=("id",))
            with db.transaction() as t:
                for i in range(rows):
                    t.insert(table, {"id": i, "n": i, "note": "x"})
        connector = streaming(db, tmp_path, **watermark_form)
        filters = [{"data-collection": name(db, "d"), "filter": db.condition("n", "<", 0)}]
        number = request_snapshot(connector, db, "a", "b", "c", "d", additional_conditions=filters)
        connector.capture()
        equal(connector, db, "a", "b", "c")
        assert connector.rows(f"{db.namespace}.d") == []
        ended = {table.rpartition(".")[2]: status for table, status in scans(connector).items()}
        assert ended == {"a": "EMPTY", "b": "SUCCEEDED", "c": "SUCCEEDED", "d": "EMPTY"}
        assert signal_state(connector, number) == ("done", "")

    @pytest.mark.sampled(3)
    def test_a_filter_that_is_bad_sql_harms_neither_other_tables_nor_the_capture(
        self, three_table_adapter: Adapter, tmp_path: Path, watermark_form: dict[str, Any]
    ) -> None:
        connector = streaming(three_table_adapter, tmp_path, **watermark_form)
        filters = [{"data-collection": name(three_table_adapter, "a"), "filter": "this is <> not SQL"}]
        number = request_snapshot(connector, three_table_adapter, "a", "b", additional_conditions=filters)
        connector.capture()
        state, message = signal_state(connector, number)
        assert state == "failed"
        assert f"{three_table_adapter.namespace}.a" in message
        assert scans(connector)[f"{three_table_adapter.namespace}.a"] == "SQL_EXCEPTION"
        equal(connector, three_table_adapter, "b")
        with three_table_adapter.transaction() as t:
            t.insert("c", {"id": 5000, "n": 1, "note": "x"})
        assert connector.capture().events == 1

    @pytest.mark.sampled(3)
    def test_ranges_of_keys_are_repaired_beside_a_writer(
        self, three_table_adapter: Adapter, tmp_path: Path, watermark_form: dict[str, Any], at_read: AtRead
    ) -> None:
        """Rows that are wrong, missing or too many in the target; with a key that the writer may insert at any time."""
        connector = start_connector(three_table_adapter, tmp_path, **watermark_form)
        topic, wrong = f"{connector.name}.{three_table_adapter.namespace}.a", {"n": -7, "note": "planted"}
        connector.replay.plant(topic, *({"id": i} | wrong for i in (*range(10, 100, 7), *range(300, 330))))
        connector.replay.lose(topic, *((i,) for i in range(50, 60)))
        writer = Writer(three_table_adapter, "a")
        for n in range(1, 20):
            at_read(n, lambda: writer.more(4))
        ranges = [
            key_range(three_table_adapter, "a", None, {"id": 40}, *({"id": i} for i in range(0, 41, 5))),
            key_range(three_table_adapter, "a", {"id": 45}, {"id": 99}, *({"id": i} for i in range(45, 100))),
            key_range(three_table_adapter, "a", {"id": 250}, None, *({"id": i} for i in range(290, 340))),
        ]
        number = request_snapshot(connector, three_table_adapter, "a", "b", key_ranges=ranges)
        with writer:
            connector.capture()
        connector.capture()
        equal(connector, three_table_adapter, "a", "b")
        assert connector.replay.operations["d"] >= 30
        assert signal_state(connector, number) == ("done", "")

    @pytest.mark.sampled(3)
    def test_ranges_of_composite_keys(self, db: Adapter, tmp_path: Path, watermark_form: dict[str, Any]) -> None:
        db.create("a", {"x": TEXT, "y": INT, "n": INT}, key=("x", "y"))
        with db.transaction() as t:
            for x in ("a", "B", "b b", "é", "z'z", 'q"${x}'):
                t.insert("a", *({"x": x, "y": y, "n": y} for y in range(-5, 20)))
        connector = start_connector(db, tmp_path, **watermark_form)
        topic = f"{connector.name}.{db.namespace}.a"
        gone = [{"x": x, "y": 99} for x in ("B", "b b", "ü", "z'z", "z''z")]
        connector.replay.plant(topic, *(key | {"n": -7} for key in gone), {"x": "é", "y": 3, "n": -7})
        before = connector.replay.operations["d"]
        number = request_snapshot(connector, db, "a", key_ranges=[
            key_range(db, "a", {"x": "é", "y": 0}, {"x": "é", "y": 7}, *gone, {"x": 'q"${x}', "y": 4}),
            key_range(db, "a", {"x": "B", "y": 18}, {"x": "B", "y": 19}),
        ])  # fmt: skip
        connector.capture()
        equal(connector, db, "a")
        assert connector.replay.operations["d"] - before == len(gone)
        assert connector.replay.operations["r"] == 6 * 25 + 8 + 2 + 1
        assert signal_state(connector, number) == ("done", "")

    @pytest.mark.sampled(3)
    def test_a_filter_and_a_composite_key(self, db: Adapter, tmp_path: Path, watermark_form: dict[str, Any]) -> None:
        db.create("a", {"x": TEXT, "y": INT, "n": INT}, key=("x", "y"))
        with db.transaction() as t:
            for x in ("a", "B", "b b", "é", "z'z"):
                t.insert("a", *({"x": x, "y": y, "n": y} for y in range(-5, 20)))
        connector = streaming(db, tmp_path, **watermark_form)
        filters = [{"data-collection": name(db, "a"), "filter": db.condition("n", "<", 10)}]
        request_snapshot(connector, db, "a", additional_conditions=filters)
        connector.capture()
        assert connector.rows(f"{db.namespace}.a") == [row for row in db.rows("a") if row["n"] < 10]
        request_snapshot(connector, db, "a")
        connector.capture()
        equal(connector, db, "a")

    def test_a_blocking_snapshot_beside_a_writer(self, three_table_adapter: Adapter, tmp_path: Path) -> None:
        connector = streaming(three_table_adapter, tmp_path)
        number = request_snapshot(connector, three_table_adapter, "a", "b", type="blocking")
        with Writer(three_table_adapter, "a"):
            connector.capture()
        connector.capture()
        equal(connector, three_table_adapter, "a", "b")
        assert signal_state(connector, number)[0] == "done"

    def test_a_blocking_snapshot_with_a_select_and_one_that_is_bad_sql(
        self, three_table_adapter: Adapter, tmp_path: Path
    ) -> None:
        connector = streaming(three_table_adapter, tmp_path)
        select = {
            "data-collection": name(three_table_adapter, "a"),
            "filter": three_table_adapter.select("a", three_table_adapter.condition("n", "<", 10)),
        }
        good = request_snapshot(connector, three_table_adapter, "a", type="blocking", additional_conditions=[select])
        connector.capture()
        assert signal_state(connector, good)[0] == "done"
        assert sorted(row["id"] for row in connector.rows(f"{three_table_adapter.namespace}.a")) == list(range(10))
        bad = request_snapshot(
            connector,
            three_table_adapter,
            "b",
            type="blocking",
            additional_conditions=[
                {**select, "data-collection": name(three_table_adapter, "b"), "filter": "this is <> not SQL"}
            ],
        )
        with three_table_adapter.transaction() as t:
            t.insert("c", {"id": 5000, "n": 1, "note": "x"})
        connector.capture()
        assert signal_state(connector, bad)[0] == "failed"
        assert len(connector.rows(f"{three_table_adapter.namespace}.c")) == 1

    @pytest.mark.parametrize("mode", ["incremental", "snapshot"])
    def test_a_gap_in_the_log_is_repaired(self, three_table_adapter: Adapter, tmp_path: Path, mode: str) -> None:
        """Rows were changed, deleted and inserted in it, a column was added and a table was emptied."""
        connector = three_table_adapter.connector(
            tmp_path, incremental_snapshot_chunk_size=CHUNK, signal_poll_interval_ms=50
        )
        connector.capture()
        connector.replay.gap()
        with three_table_adapter.transaction() as t:
            t.delete("a", {"id": 1})
            t.update("a", {"id": 2}, {"n": -2})
            t.insert("b", {"id": 5000, "n": 1, "note": "in the gap"})
        three_table_adapter.add_column("b", "late", INT, 7)
        three_table_adapter.truncate("c")
        three_table_adapter.purge()
        with three_table_adapter.transaction() as t:
            t.insert("c", {"id": 6000, "n": 1, "note": "after it"})
            t.delete("b", {"id": 3})
        with pytest.raises(PositionLost):
            connector.capture()
        with Writer(three_table_adapter, "a") as writer:
            connector.capture({"position.lost.mode": mode})
            assert connector.capture().events < 10 * writer.changes, "the tables are not read a second time"
        connector.capture()
        equal(connector, three_table_adapter)
        if mode == "incremental":
            requested = [(s.type, s.channel, s.state) for s in connector.store.signals_of("test", limit=5)]
            assert requested == [("execute-snapshot", "repair", "done")] * (
                2 if three_table_adapter.structured else 1
            ), "in chunks, and whole where the structure is another one"

    def test_a_row_of_the_signal_table_asks_for_a_snapshot(self, three_table_adapter: Adapter, tmp_path: Path) -> None:
        table = three_table_adapter.signals()
        connector = streaming(three_table_adapter, tmp_path, signal_data_collection=table)
        three_table_adapter.insert_signal(
            "row", "execute-snapshot", f'{{"data-collections": ["{name(three_table_adapter, "a")}"]}}'
        )
        connector.capture()
        connector.capture()
        equal(connector, three_table_adapter, "a")
        (signal,) = connector.store.signals_of("test", limit=5)
        assert (signal.id, signal.channel, signal.state) == ("row", "source", "done")


def streaming(db: Adapter, folder: Path, **properties: Any) -> Connector:
    """A connector that streams and has read no row."""
    connector = db.connector(
        folder, snapshot_mode="no_data", incremental_snapshot_chunk_size=CHUNK, signal_poll_interval_ms=50, **properties
    )  # fmt: skip
    connector.replay.partial = True
    connector.capture()
    return connector


def start_connector(db: Adapter, folder: Path, **properties: Any) -> Connector:
    """A connector that has read all tables and streams."""
    connector = db.connector(folder, incremental_snapshot_chunk_size=CHUNK, signal_poll_interval_ms=50, **properties)
    connector.capture()
    connector.replay.advance()
    return connector


def key_range(db: Adapter, table: str, first: Row | None, last: Row | None, *absent: Row) -> Row:
    found = {"data-collection": name(db, table), "from": first, "to": last, "absent": [*absent]}
    return {key: value for key, value in found.items() if value is not None}


def name(db: Adapter, table: str) -> str:
    return f"{db.namespace}.{table}"


def request_snapshot(connector: Connector, db: Adapter, *tables: str, **more: Any) -> int:
    return snapshot(connector, *(name(db, table) for table in tables), **more)
