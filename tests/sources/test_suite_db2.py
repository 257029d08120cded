"""The shared suite on Db2's test server, or on a real Db2 where ``DB2_DSN`` names one (see ``db2_real``).

What a Db2 has not, or SQL Replication does not capture, is left out here, each with its reason.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from dev.servers.db2 import Db2
from tests.sources.db2_adapter import Db2Adapter
from tests.sources.suite import INT, LONG, TEXT, Adapter, Row, SourceSuite, equal, start_connector
from tests.sources.suite.common import events, open_connector_source
from tests.sources.suite.incremental import IncrementalSuite
from tests.sources.suite.on_demand import OnDemandSuite
from tests.support.change_log.log_consistency import consistent
from tests.support.chunk_hook import AtRead
from tests.support.patience import LONGEST_S
from tests.support.sources.db2 import db2_real
from tests.support.sources.db2.db2_real import RealDb2
from tests.support.workloads.small_tables import operations


@pytest.fixture(scope="module")
def server() -> Iterator[Db2 | RealDb2]:
    """A server whose log is pruned and whose registrations are spoiled: it is no one else's. A real one where ``DB2_DSN`` is set."""
    with db2_real.open_real_server() if db2_real.is_real_server_given() else Db2() as server:
        yield server


class _Db2:
    @pytest.fixture
    def db(self, server: Db2 | RealDb2) -> Iterator[Db2Adapter]:
        with ExitStack() as stack:
            yield Db2Adapter(server, stack)


class TestDb2(_Db2, SourceSuite):
    """Updates as pairs of rows, as ``ASNCDC.ADDTABLE`` registers tables."""

    # SQL Replication does not capture TRUNCATE
    test_a_table_emptied = None  # type: ignore[assignment]
    # Db2 does not rename tables in capture mode, and these stories are about renamed, swapped and truncated tables
    test_what_happens_before_a_table_is_read_again_is_captured = None  # type: ignore[assignment]

    def test_a_snapshot_shows_one_moment_and_each_row_once(self, filled_adapter: Adapter, tmp_path: Path) -> None:
        """Db2 has no view of the past: a writer waits until the snapshot is closed."""
        with open_connector_source(filled_adapter, tmp_path) as source:
            tables = [filled_adapter.id("a"), filled_adapter.id("bag"), filled_adapter.id("nothing")]
            was = {t: filled_adapter.rows(t) for t in ("a", "bag")}
            started, done = threading.Event(), threading.Event()

            def write() -> None:
                with filled_adapter.transaction() as t:
                    started.set()
                    t.insert("a", {"id": 99})
                    t.delete("bag", {"n": 1})
                done.set()

            writer = threading.Thread(target=write)
            with source.open_snapshot(tables, readers=2) as session:
                assert set(session.schemas) == {filled_adapter.id("a"), filled_adapter.id("bag")}
                writer.start()
                assert started.wait(LONGEST_S)
                for table in session.schemas:
                    blocks = [b for chunk in session.split_table(table) for b in session.read(chunk)]
                    rows = [row for block in blocks for row in (block.after or []).to_pylist()]
                    assert sorted(rows, key=repr) == was[table.name]
                assert not done.is_set()
                assert source.current_position().has_reached(session.position)
            writer.join()
            assert done.is_set()
            assert not session.position.has_reached(source.current_position())

    @pytest.mark.parametrize("looks", [1, 2])
    def test_columns_added_and_dropped(self, filled_adapter: Adapter, tmp_path: Path, looks: int) -> None:
        """A last column that is gone, and new ones behind it, may be the same: unless it is seen in between, the table is read again."""
        connector = start_connector(filled_adapter, tmp_path)
        filled_adapter.add_column("a", "more", INT, 7)
        filled_adapter.add_column("a", "late", TEXT)
        with filled_adapter.transaction() as t:
            t.insert("a", {"id": 10, "more": 1, "late": "x"})
        if looks == 2:
            assert operations(connector, connector.capture()) == {"a": {"c": 1}}
        filled_adapter.drop_column("a", "note")
        with filled_adapter.transaction() as t:
            t.update("a", {"id": 1}, {"more": 2})
        seen = operations(connector, connector.capture())
        assert seen == ({"a": {"u": 1}} if looks == 2 else {"a": {"c": 1, "u": 1, "t": 1, "r": 6}})
        equal(connector, filled_adapter)

    def test_a_column_renamed_and_widened(self, filled_adapter: Adapter, tmp_path: Path) -> None:
        """The engine of the test server widens texts only."""
        connector = start_connector(filled_adapter, tmp_path)
        filled_adapter.rename_column("a", "n", "amount", INT)
        with filled_adapter.transaction() as t:
            t.update("a", {"id": 1}, {"amount": 5})
        assert isinstance(filled_adapter, Db2Adapter)
        filled_adapter.lengthen("a", "note", 300)
        with filled_adapter.transaction() as t:
            t.update("a", {"id": 2}, {"note": "x" * 300})
        assert operations(connector, connector.capture()) == {"a": {"u": 2}}
        equal(connector, filled_adapter)

    def test_key_changes_and_swaps(self, filled_adapter: Adapter, tmp_path: Path) -> None:
        """A row that is deleted and inserted again in one transaction looks as an update does, and is one."""
        connector = start_connector(filled_adapter, tmp_path)
        with filled_adapter.transaction() as t:
            t.update("a", {"id": 1}, {"id": 100})
            for old, new in ((2, -1), (3, 2), (-1, 3)):
                t.update("a", {"id": old}, {"id": new})
        with filled_adapter.transaction() as t:
            t.delete("b", {"id": 1})
            t.insert("b", {"id": 1, "n": 5, "note": "again"})
        assert operations(connector, connector.capture()) == {"a": {"d": 4, "c": 4}, "b": {"u": 1}}
        equal(connector, filled_adapter)

    def test_values_that_the_log_leaves_out_stay_as_they_were(self, db: Adapter, tmp_path: Path) -> None:
        """Values of LOBs are never in change tables: those that may have been set are read from the table, as they are by then."""
        assert db.create_sparse("t", {"id": INT, "n": INT, "big": TEXT}, ("id",), ("big",))
        with db.transaction() as t:
            t.insert("t", *({"id": i, "n": i, "big": f"long {i}"} for i in range(1, 6)))
        connector = db.connector(tmp_path)
        connector.capture()
        with db.transaction() as t:
            t.insert("t", {"id": 6, "n": 6, "big": "long 6"})
            t.update("t", {"id": 1}, {"n": 10})
            t.update("t", {"id": 2}, {"big": None})
            t.update("t", {"id": 2}, {"n": 20})
            t.update("t", {"id": 3}, {"id": 30})
            t.update("t", {"id": 30}, {"n": 30})
            t.delete("t", {"id": 4})
            t.update("t", {"id": 6}, {"n": 60})
        found = events(connector, connector.capture())
        equal(connector, db, "t")
        lists = [(e["op"], e["unavailable"], e["unavailable_before"]) for e in found]
        big = ["big"]
        assert lists == [
            ("c", None, None), ("u", None, big), ("u", None, big), ("u", None, big), ("d", big, None), ("c", None, None),
            ("u", None, big), ("d", big, None), ("u", None, big),
        ]  # fmt: skip

    def test_tables_created_dropped_and_created_again(self, filled_adapter: Adapter, tmp_path: Path) -> None:
        connector = start_connector(filled_adapter, tmp_path)
        filled_adapter.create("new", {"id": INT, "note": TEXT}, key=("id",))
        with filled_adapter.transaction() as t:
            t.insert("new", {"id": 1, "note": "x"})
        with filled_adapter.transaction() as t:
            t.insert("b", {"id": 30})
        connector.capture()
        filled_adapter.drop_table("a")
        connector.capture()
        filled_adapter.create("a", {"other": TEXT, "id": LONG}, key=("id",))
        with filled_adapter.transaction() as t:
            t.insert("a", {"id": 1, "other": "y"})
        connector.capture()
        equal(connector, filled_adapter, "new", "a", "b", "bag")
        consistent(connector)

    test_tables_created_renamed_dropped_and_created_again = None  # type: ignore[assignment]


class TestIncremental(_Db2, IncrementalSuite):
    """Chunks beside the stream."""

    @pytest.mark.sampled(3)
    def test_rows_that_change_while_they_are_read_are_never_out_of_date(
        self, three_table_adapter: Adapter, tmp_path: Path, watermark_form: dict[str, Any], at_read: AtRead
    ) -> None:
        super().test_rows_that_change_while_they_are_read_are_never_out_of_date(
            three_table_adapter, tmp_path, watermark_form, at_read
        )

    @pytest.mark.sampled(3)
    def test_pause_resume_and_stop_of_one_table_of_three(
        self, three_table_adapter: Adapter, tmp_path: Path, watermark_form: dict[str, Any], at_read: AtRead
    ) -> None:
        super().test_pause_resume_and_stop_of_one_table_of_three(three_table_adapter, tmp_path, watermark_form, at_read)

    @pytest.mark.sampled(3)
    def test_two_requests_at_once(
        self, three_table_adapter: Adapter, tmp_path: Path, watermark_form: dict[str, Any], at_read: AtRead
    ) -> None:
        super().test_two_requests_at_once(three_table_adapter, tmp_path, watermark_form, at_read)


class TestOnDemand(_Db2, OnDemandSuite):
    """Signals that begin and stop snapshots."""

    def test_rows_of_chunks_are_reads_in_the_order_of_their_keys_in_the_topic_of_their_table(
        self, three_tables: Adapter, tmp_path: Path
    ) -> None:
        super().test_rows_of_chunks_are_reads_in_the_order_of_their_keys_in_the_topic_of_their_table(
            three_tables, tmp_path
        )

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
        super().test_a_chunk_has_1024_rows_unless_configured(db, tmp_path, monkeypatch, properties, rows, chunks)

    def test_tables_are_named_whole_by_patterns_or_in_quotes_and_read_in_part(
        self, three_tables: Adapter, tmp_path: Path
    ) -> None:
        super().test_tables_are_named_whole_by_patterns_or_in_quotes_and_read_in_part(three_tables, tmp_path)

    def test_a_run_that_ends_early_is_followed_by_one_that_reads_behind_the_last_row(
        self, three_tables: Adapter, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        super().test_a_run_that_ends_early_is_followed_by_one_that_reads_behind_the_last_row(
            three_tables, tmp_path, monkeypatch
        )

    def test_a_stop_needs_its_type_and_stops_the_tables_that_it_lists_or_all(
        self, three_tables: Adapter, tmp_path: Path
    ) -> None:
        super().test_a_stop_needs_its_type_and_stops_the_tables_that_it_lists_or_all(three_tables, tmp_path)

    def test_a_table_is_read_as_often_as_asked_for_and_its_rows_are_right_again(
        self, three_tables: Adapter, tmp_path: Path
    ) -> None:
        super().test_a_table_is_read_as_often_as_asked_for_and_its_rows_are_right_again(three_tables, tmp_path)

    def test_rows_of_the_signal_table_are_signals_whatever_their_ids_and_a_wrong_one_harms_nothing(
        self, three_tables: Adapter, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        super().test_rows_of_the_signal_table_are_signals_whatever_their_ids_and_a_wrong_one_harms_nothing(
            three_tables, tmp_path, caplog
        )
