"""The shared suite on MongoDB's stand-in, or on a real deployment where ``MONGODB_URI`` names one.

The connectors of this suite record what documents were and are (images), so that each event can be checked against the one before it. What documents
have not, such as columns, is left out here, each with its reason.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pymongo
import pytest

from dev.servers.mongodb import MongoDb
from tests.sources.mongodb_adapter import MongoAdapter
from tests.sources.suite import Adapter, Row, SourceSuite
from tests.sources.suite.common import events, open_connector_source
from tests.sources.suite.incremental import IncrementalSuite
from tests.sources.suite.on_demand import OnDemandSuite
from tests.support.sources.mongodb import mongodb_connectors

OPLOG_BYTES = 3_000_000
IMAGES = {
    "capture_mode": "change_streams_update_full_with_pre_image", "capture_mode_full_update_type": "post_image",
}  # fmt: skip


@pytest.fixture(scope="module")
def server() -> Iterator[tuple[str, Callable[[], None] | None]]:
    """Connection string, and what has the deployment forget its oplog."""
    if (uri := mongodb_connectors.real_deployment_uri()) is not None:
        yield uri, None
        return
    with MongoDb({"oplog_bytes": OPLOG_BYTES}) as started, started.connect() as client:

        def purge() -> None:
            for _ in range(12):
                client.filler.pads.insert_one({"pad": "x" * (OPLOG_BYTES // 10)})

        yield started.url(), purge


@pytest.fixture(scope="module")
def client(server: tuple[str, Any]) -> Iterator[Any]:
    with pymongo.MongoClient(server[0]) as connected:
        yield connected


class _MongoDb:
    @pytest.fixture
    def db(self, server: tuple[str, Any], client: Any) -> Iterator[MongoAdapter]:
        adapter = MongoAdapter(client, server[0], server[1], **IMAGES)
        yield adapter
        client.drop_database(adapter.namespace)


class TestMongoDb(_MongoDb, SourceSuite):
    """Documents with images."""

    # these are about columns, which documents have not: what a statement does to many documents comes as changes of each of them
    test_columns_added_and_dropped = None  # type: ignore[assignment]
    test_a_column_renamed_and_widened = None  # type: ignore[assignment]
    test_a_column_of_another_kind_has_its_table_read_again = None  # type: ignore[assignment]
    test_a_part_of_a_table_that_was_asked_for_is_all_of_it_where_its_rows_are_rewritten = None  # type: ignore[assignment]
    test_what_happens_before_a_table_is_read_again_is_captured = None  # type: ignore[assignment]

    def test_filters_by_column(self, filled_adapter: Adapter, tmp_path: Path) -> None:
        """Fields are left out, and called otherwise, in whole documents and in what updates say."""
        connector = filled_adapter.connector(
            tmp_path, field_exclude_list="*.a.note,*.bag.note", field_renames="*.a.n:number"
        )
        connector.capture()
        with filled_adapter.transaction() as t:
            t.insert("a", {"id": 10, "n": 1, "note": "x"})
            t.update("a", {"id": 1}, {"n": 5, "note": "y"})
            t.update("a", {"id": 2}, {"note": "z"})
        found = events(connector, connector.capture())
        shown = [
            {("number" if n == "n" else n): v for n, v in row.items() if n != "note"}
            for row in filled_adapter.rows("a")
        ]
        assert connector.rows(f"{filled_adapter.namespace}.a") == sorted(shown, key=repr)
        assert connector.rows(f"{filled_adapter.namespace}.b") == filled_adapter.rows("b")
        text = [json.loads(e["updateDescription"]["updatedFields"]) for e in found if e["op"] == "u"]
        assert text == [{"number": 5}, {}]

    def test_a_run_of_an_existing_connector_loads_nothing_that_it_does_not_need(
        self, filled_adapter: Adapter, tmp_path: Path
    ) -> None:
        """Events of the moment at which a snapshot was made would come again, and be passed over: it is made later."""
        assert isinstance(filled_adapter, MongoAdapter)
        filled_adapter.elsewhere()
        super().test_a_run_of_an_existing_connector_loads_nothing_that_it_does_not_need(filled_adapter, tmp_path)

    def test_discover_finds_tables_with_their_structures(self, filled_adapter: Adapter, tmp_path: Path) -> None:
        with open_connector_source(filled_adapter, tmp_path) as source:
            found = source.discover_tables()
        mine = {t.name: (s.column_names, s.key) for t, s in found.items() if t.namespace == filled_adapter.namespace}
        assert mine == dict.fromkeys(("a", "b", "bag"), (("_id", "document"), ("_id",)))

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
                    rows = [json.loads(row["document"]) for block in blocks for row in (block.after or []).to_pylist()]
                    assert sorted(map(mongodb_connectors.flatten_document, rows), key=repr) == was[table.name]
                assert source.current_position().has_reached(session.position)
                assert not session.position.has_reached(source.current_position())


class TestIncremental(_MongoDb, IncrementalSuite):
    """Chunks beside the stream."""

    # these name columns of keys; keys of documents are in mongodb/test_row.py and test_snapshots.py
    test_ranges_of_keys_are_repaired_beside_a_writer = None  # type: ignore[assignment]
    test_ranges_of_composite_keys = None  # type: ignore[assignment]


class TestOnDemand(_MongoDb, OnDemandSuite):
    """Signals that begin and stop snapshots."""

    # what a signalling collection holds is documents, and the subject of mongodb/captures/test_signals.py
    test_rows_of_the_signal_table_are_signals_whatever_their_ids_and_a_wrong_one_harms_nothing = None  # type: ignore[assignment]

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
