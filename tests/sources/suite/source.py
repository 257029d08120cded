"""Requirements of every :class:`~airflow_provider_cdc.core.spi.source.Source`: positions, discovery, snapshot, stream, checks, and
questions beside a run."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from airflow_provider_cdc.core.errors import PositionLost, PrerequisiteError
from airflow_provider_cdc.core.lifecycle.log_gap import find_gap
from airflow_provider_cdc.core.model.log_items import LogBlock
from airflow_provider_cdc.core.spi.source import Source
from tests.sources.suite.adapter import Adapter
from tests.sources.suite.common import (
    Suite,
    equal,
    open_connector_source,
    rows_until,
    source_of,
    start_connector,
    stream_of,
)
from tests.support.connectors import Connector


class SourceContract(Suite):
    """The promises of a source, without a capture around it."""

    def test_positions_grow_with_every_transaction(self, filled_adapter: Adapter, tmp_path: Path) -> None:
        with open_connector_source(filled_adapter, tmp_path) as source:
            places = [source.current_position()]
            for i in range(3):
                with filled_adapter.transaction() as t:
                    t.insert("a", {"id": 80 + i})
                places.append(source.current_position())
            for i, one in enumerate(places):
                assert source.parse_position(one.to_json()).to_json() == one.to_json()
                assert str(one)
                for j, other in enumerate(places):
                    assert one.has_reached(other) == (i >= j)
            oldest = source.oldest_position()
            assert places[0].has_reached(oldest)
            for place in (oldest, *places):
                source.verify_position(place)

    def test_a_position_that_the_log_has_lost_is_an_error(self, filled_adapter: Adapter, tmp_path: Path) -> None:
        connector = start_connector(filled_adapter, tmp_path)
        with filled_adapter.transaction() as t:
            t.insert("a", {"id": 90})
        filled_adapter.purge()
        before = connector.store.load_offset("test")
        with pytest.raises(PositionLost) as caught:
            connector.capture()
        assert caught.value.where
        assert caught.value.remedy
        assert connector.store.load_offset("test") == before
        connector.capture({"snapshot.mode": "when_needed"})
        equal(connector, filled_adapter)

    def test_looking_does_not_disturb_a_stream(self, filled_adapter: Adapter, tmp_path: Path) -> None:
        """Every question that may be asked beside a run, by two who ask at once, again and again: the stream continues."""
        connector = start_connector(filled_adapter, tmp_path)
        stop, threads = threading.Event(), []
        requested: list[int] = [0, 0]
        wrong: list[BaseException] = []

        def ask_questions(who: int) -> None:
            try:
                while not stop.is_set():
                    for question in _QUESTIONS:
                        with source_of(connector) as source:
                            question(source, connector)
                    requested[who] += 1
            except BaseException as e:
                wrong.append(e)

        with _live(connector, filled_adapter) as rows:
            for who in range(2):
                threads.append(threading.Thread(target=ask_questions, args=(who,)))
                threads[-1].start()
            try:
                for i in range(10):
                    with filled_adapter.transaction() as t:
                        t.insert("a", {"id": 700 + i})
                    rows(1 + i)
                while min(requested) < 2 and not wrong:
                    time.sleep(0.05)
            finally:
                stop.set()
                for thread in threads:
                    thread.join()
            assert wrong == []
            with filled_adapter.transaction() as t:
                t.insert("b", {"id": 700})
            rows(11)
        assert connector.capture().events == 11
        equal(connector, filled_adapter)

    def test_discover_finds_tables_with_their_structures(self, filled_adapter: Adapter, tmp_path: Path) -> None:
        with open_connector_source(filled_adapter, tmp_path) as source:
            found = source.discover_tables()
        mine = {t.name: s for t, s in found.items() if t.namespace == filled_adapter.namespace}
        assert {n: (s.column_names, s.key) for n, s in mine.items()} == {
            "a": (("id", "n", "note"), ("id",)), "b": (("id", "n", "note"), ("id",)), "bag": (("n", "note"), ()),
        }  # fmt: skip
        assert [c.type for c in mine["a"].columns] == ["int32", "int32", "string"]
        assert [c.nullable for c in mine["a"].columns] == [False, True, True]

    def test_a_snapshot_shows_one_moment_and_each_row_once(self, filled_adapter: Adapter, tmp_path: Path) -> None:
        with open_connector_source(filled_adapter, tmp_path) as source:
            tables = [filled_adapter.id("a"), filled_adapter.id("bag"), filled_adapter.id("nothing")]
            was = {t: filled_adapter.rows(t) for t in ("a", "bag")}
            with source.open_snapshot(tables, readers=2) as session:
                with filled_adapter.transaction() as t:
                    t.insert("a", {"id": 99})
                    t.delete("bag", {"n": 1})
                assert set(session.schemas) == {filled_adapter.id("a"), filled_adapter.id("bag")}
                for table in session.schemas:
                    blocks = [b for chunk in session.split_table(table) for b in session.read(chunk)]
                    rows = [row for block in blocks for row in (block.after or []).to_pylist()]
                    assert sorted(rows, key=repr) == was[table.name]
                assert source.current_position().has_reached(session.position)
                assert not session.position.has_reached(source.current_position())

    def test_a_stream_gives_nothing_that_was_committed_after_its_end(
        self, filled_adapter: Adapter, tmp_path: Path
    ) -> None:
        """A table that was read there joins there: what a stream went beyond would be lost to it."""
        connector = start_connector(filled_adapter, tmp_path)
        with filled_adapter.transaction() as t:
            t.insert("a", {"id": 80})
        with open_connector_source(filled_adapter, tmp_path / "other") as source:
            end = source.current_position()
            with filled_adapter.transaction() as t:
                t.insert("a", {"id": 81})
            assert rows_until(connector, filled_adapter, end) == 1
            assert rows_until(connector, filled_adapter, source.current_position()) == 2

    def test_a_database_that_is_ready_has_no_finding(self, filled_adapter: Adapter, tmp_path: Path) -> None:
        with open_connector_source(filled_adapter, tmp_path) as source:
            assert [f for f in source.check_prerequisites() if f.fatal] == []

    def test_a_missing_prerequisite_is_reported_with_what_mends_it(
        self, filled_adapter: Adapter, tmp_path: Path
    ) -> None:
        spoiled = filled_adapter.spoil()
        if spoiled is None:
            pytest.skip("this source has no prerequisites")
        with spoiled as fix:
            with pytest.raises(PrerequisiteError) as caught:
                filled_adapter.connector(tmp_path).capture()
            assert fix in str(caught.value)
        assert filled_adapter.connector(tmp_path).capture().events == 13

    def test_a_source_can_be_closed_twice(self, filled_adapter: Adapter, tmp_path: Path) -> None:
        with open_connector_source(filled_adapter, tmp_path) as source:
            source.current_position()
            source.close()


def _look_at_places(source: Source, connector: Connector) -> None:
    """Look at known places, as `airflow cdc gap` and the plan of another offset do."""
    offset = connector.store.load_offset("test").offset
    assert offset is not None
    assert offset.position is not None
    assert find_gap("test", offset, None, source) is None
    for place in (source.parse_position(offset.position), source.oldest_position(), source.current_position()):
        source.position_of(place.to_json())
        source.verify_position(place)


_QUESTIONS: tuple[Callable[[Source, Connector], object], ...] = (
    lambda source, _: source.check_prerequisites(),
    lambda source, _: source.discover_tables(),
    lambda source, _: source.current_position(),
    lambda source, _: source.oldest_position(),
    lambda source, _: source.collect_stream_metrics(),
    _look_at_places,
)
"""Everything that is asked of a source beside a run: by sensors, pages, commands and plans."""


@contextlib.contextmanager
def _live(connector: Connector, db: Adapter) -> Iterator[Callable[[int], None]]:
    """A stream from the connector's offset on that continues for ever; gives what waits until so many rows have come."""
    actual, over = [0], threading.Event()
    wrong: list[BaseException] = []

    def read() -> None:
        try:
            with source_of(connector) as source:
                for item in stream_of(source, connector, db, None):
                    actual[0] += item.row_count if isinstance(item, LogBlock) else 0
                    if over.is_set():
                        return
        except BaseException as e:
            wrong.append(e)

    def wait(rows: int) -> None:
        while actual[0] < rows:
            assert wrong == [], f"the stream has ended: {wrong[0]}"
            assert thread.is_alive()
            time.sleep(0.01)
        assert actual[0] == rows

    thread = threading.Thread(target=read)
    thread.start()
    try:
        yield wait
        assert wrong == []
    finally:
        over.set()
        thread.join()
