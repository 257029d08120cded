"""The shared suite on Oracle's test server.

All of it on the two databases that are least alike, in each run a test on one of them; on the others what depends on how the log is read.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_cdc.core.errors import SchemaConflict
from dev.servers import Oracle
from tests.sources.oracle_adapter import OracleAdapter
from tests.sources.suite import INT, TEXT, Adapter, Row, SourceSuite, equal, start_connector
from tests.sources.suite.incremental import IncrementalSuite
from tests.sources.suite.on_demand import OnDemandSuite
from tests.support.chunk_hook import AtRead
from tests.support.signals import signal_state, snapshot_as_advised
from tests.support.workloads.small_tables import operations


@contextmanager
def server_with(**options: Any) -> Iterator[Oracle]:
    """A server whose logs are purged and whose settings are spoiled: it is no one else's."""
    with Oracle(options) as server:
        yield server


@pytest.fixture(scope="module")
def container() -> Iterator[Oracle]:
    with server_with() as server:
        yield server


@pytest.fixture(scope="module")
def plain_server() -> Iterator[Oracle]:
    with server_with(cdb=False) as server:
        yield server


@pytest.fixture(scope="module")
def cluster() -> Iterator[Oracle]:
    """Two instances; transactions are written by one and the other in turn."""
    with server_with(cdb=False, threads=2) as server:
        yield server


@pytest.fixture(scope="module")
def container_cluster() -> Iterator[Oracle]:
    with server_with(threads=2) as server:
        yield server


@pytest.fixture(scope="module")
def autonomous() -> Iterator[Oracle]:
    """Mined inside its pluggable database, without views of the logs."""
    with server_with(local=True, autonomous=True) as server:
        yield server


@pytest.mark.sampled(2, among="Oracle")
class TestRedoLogCatalog(SourceSuite):
    """A container database, with the dictionary in the redo log."""

    # lists have nothing to do with how the log is mined: they are widened where a run begins soonest
    test_whatever_list_is_widened_nothing_is_missing_without_a_word = None  # type: ignore[assignment]

    @pytest.fixture
    def db(self, container: Oracle) -> Iterator[OracleAdapter]:
        with ExitStack() as stack:
            yield OracleAdapter(container, stack, log_mining_strategy="redo_log_catalog")


class TestIncremental(IncrementalSuite, OnDemandSuite):
    """A database without containers, two instances, and the hybrid strategy."""

    @pytest.fixture
    def db(self, cluster: Oracle) -> Iterator[OracleAdapter]:
        with ExitStack() as stack:
            yield OracleAdapter(cluster, stack, traceable=True, log_mining_strategy="hybrid")

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

    def test_a_log_signal_writes_its_message_with_the_position(
        self, three_tables: Adapter, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        super().test_a_log_signal_writes_its_message_with_the_position(three_tables, tmp_path, caplog)


@pytest.mark.sampled(2, among="Oracle")
class TestHybridOnCluster(SourceSuite):
    """A database without containers, two instances, and the hybrid strategy."""

    # lists have nothing to do with how the log is mined
    test_whatever_list_is_widened_nothing_is_missing_without_a_word = None  # type: ignore[assignment]
    # rows of several tables that are gone have no names in the dictionary of now: an error, as the last test here shows
    test_what_happens_before_a_table_is_read_again_is_captured = None  # type: ignore[assignment]
    # where the column is made again, nothing has to be read again
    test_a_part_of_a_table_that_was_asked_for_is_all_of_it_where_its_rows_are_rewritten = None  # type: ignore[assignment]

    @pytest.fixture
    def db(self, cluster: Oracle) -> Iterator[OracleAdapter]:
        with ExitStack() as stack:
            yield OracleAdapter(cluster, stack, traceable=True, log_mining_strategy="hybrid")

    def test_a_column_of_another_kind_has_its_table_read_again(self, filled_adapter: Adapter, tmp_path: Path) -> None:
        """Nothing has to be read again, as the column is made again."""
        connector = start_connector(filled_adapter, tmp_path)
        with filled_adapter.transaction() as t:
            t.insert("a", {"id": 20, "n": 1})
        filled_adapter.change_column("a", "n", TEXT)
        with filled_adapter.transaction() as t:
            t.insert("a", {"id": 21, "n": "one"})
        assert operations(connector, connector.capture()) == {"a": {"c": 2, "u": 6}}
        equal(connector, filled_adapter)

    @pytest.mark.parametrize("repair", ["snapshot.mode=always", "the command"])
    def test_a_table_that_took_the_place_of_another_is_an_error_whose_repair_helps(
        self, cluster: Oracle, tmp_path: Path, repair: str
    ) -> None:
        """Rows from before have no names any more, in no dictionary."""
        with ExitStack() as stack:
            db = OracleAdapter(cluster, stack, log_mining_strategy="hybrid")
            db.create("a", {"id": INT, "n": INT}, key=("id",))
            with db.transaction() as t:
                t.insert("a", {"id": 1, "n": 1}, {"id": 2, "n": None})
            connector = start_connector(db, tmp_path)
            with db.transaction() as t:
                t.insert("a", {"id": 20, "n": 1})
            db.change_column("a", "n", TEXT)
            with pytest.raises(SchemaConflict) as caught:
                connector.capture()
            if repair == "the command":
                number = snapshot_as_advised(connector, str(caught.value))
                connector.capture()
                assert signal_state(connector, number)[0] == "done"
            else:
                connector.capture({"snapshot.mode": "always"})
            with db.transaction() as t:
                t.insert("a", {"id": 21, "n": "one"})
            connector.capture()
            equal(connector, db, "a")


FORMS = [
    ("container", "hybrid"), ("plain_server", "redo_log_catalog"), ("cluster", "redo_log_catalog"),
    ("container_cluster", "redo_log_catalog"), ("container_cluster", "hybrid"),
]  # fmt: skip


class TestOtherForms:
    """The tests that depend on the strategy, on containers and on threads."""

    @pytest.fixture(params=FORMS, ids="-".join)
    def db(self, request: pytest.FixtureRequest) -> Iterator[OracleAdapter]:
        server, strategy = request.param
        with ExitStack() as stack:
            yield OracleAdapter(
                request.getfixturevalue(server), stack, traceable=strategy == "hybrid", log_mining_strategy=strategy
            )

    filled_adapter = SourceSuite.filled_adapter
    test_snapshot_then_stream = SourceSuite.test_snapshot_then_stream
    test_a_transaction_over_several_tables_keeps_its_order = (
        SourceSuite.test_a_transaction_over_several_tables_keeps_its_order
    )
    test_columns_added_and_dropped = SourceSuite.test_columns_added_and_dropped
    test_a_column_renamed_and_widened = SourceSuite.test_a_column_renamed_and_widened
    test_a_table_emptied = SourceSuite.test_a_table_emptied
    test_tables_created_renamed_dropped_and_created_again = (
        SourceSuite.test_tables_created_renamed_dropped_and_created_again
    )
    test_positions_grow_with_every_transaction = SourceSuite.test_positions_grow_with_every_transaction
    test_a_position_that_the_log_has_lost_is_an_error = SourceSuite.test_a_position_that_the_log_has_lost_is_an_error


class TestInside(TestOtherForms):
    """The search for logs, where LogMiner does it inside a pluggable database."""

    @pytest.fixture
    def db(self, autonomous: Oracle) -> Iterator[OracleAdapter]:
        with ExitStack() as stack:
            yield OracleAdapter(autonomous, stack, traceable=True, log_mining_strategy="hybrid")

    test_a_transaction_larger_than_a_block = SourceSuite.test_a_transaction_larger_than_a_block


class TestOnlineCatalog:
    """The dictionary of now is enough where no structure changes."""

    @pytest.fixture
    def db(self, container: Oracle) -> Iterator[OracleAdapter]:
        with ExitStack() as stack:
            yield OracleAdapter(container, stack, log_mining_strategy="online_catalog")

    filled_adapter = SourceSuite.filled_adapter
    test_snapshot_then_stream = SourceSuite.test_snapshot_then_stream
    test_key_changes_and_swaps = SourceSuite.test_key_changes_and_swaps
    test_a_transaction_larger_than_a_block = SourceSuite.test_a_transaction_larger_than_a_block
    test_positions_grow_with_every_transaction = SourceSuite.test_positions_grow_with_every_transaction
    test_whatever_list_is_widened_nothing_is_missing_without_a_word = (
        SourceSuite.test_whatever_list_is_widened_nothing_is_missing_without_a_word
    )
