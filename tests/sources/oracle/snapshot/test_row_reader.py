"""Readers of other processes: rows as of the session's SCN, and the errors by which the others know what to do."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from contextlib import closing

import pytest

from airflow_provider_cdc.core.errors import NotGranted, QueryRejected, SourceUnavailable
from airflow_provider_cdc.core.model.table_schema import TableId
from airflow_provider_cdc.core.spi.remote_readers import SnapshotView, TableOutOfView, ViewExpired
from airflow_provider_cdc.core.spi.source import SnapshotChunk
from airflow_provider_cdc.sources.oracle.config import OracleConfig
from airflow_provider_cdc.sources.oracle.snapshot import snapshot
from airflow_provider_cdc.sources.oracle.snapshot.row_reader import OracleRowReader
from airflow_provider_cdc.sources.oracle.snapshot.snapshot import OracleSnapshot
from dev.servers.oracle import Oracle
from tests.sources.oracle.mined import settings

T1 = TableId(catalog="ORCLPDB1", namespace="APP", name="T1")
OTHER = TableId(catalog="ORCLPDB1", namespace="APP", name="OTHER")


@pytest.fixture
def db(schema: Oracle) -> Oracle:
    schema.sql("CREATE TABLE T1 (ID NUMBER(9) PRIMARY KEY, V VARCHAR2(20))", "CREATE TABLE OTHER (ID NUMBER(9))")
    with closing(schema.connect()) as connection, connection.cursor() as cursor:
        cursor.executemany("INSERT INTO T1 VALUES (:1, :2)", [(i, f"row {i}") for i in range(3_000)])
        connection.commit()
    return schema


def _open_view(config: OracleConfig, select: str | None = None) -> tuple[SnapshotView, list[SnapshotChunk]]:
    """Open a view that other processes share, cut the table, and close the session: readers need only the SCN."""
    given = {} if select is None else {T1: select}
    with OracleSnapshot(config, [T1, OTHER], 1, given, shared=True) as session:
        return SnapshotView(session.position, session.ts_us, session.schemas, given), session.split_table(T1)


def _read_ids(reader: OracleRowReader, chunks: Iterable[SnapshotChunk], view: SnapshotView) -> list[int]:
    blocks = [block for chunk in chunks for block in reader.read(chunk, view)]
    return [row["ID"] for block in blocks if block.after is not None for row in block.after.to_pylist()]


def test_readers_that_come_later_see_the_rows_of_the_view_each_once(
    db: Oracle, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(snapshot, "CHUNK_BLOCKS", 4)
    config = settings(db)
    view, chunks = _open_view(config)
    assert len(chunks) > 2
    db.sql("DELETE FROM T1 WHERE ID < 100", "INSERT INTO T1 VALUES (9999, 'new')", "UPDATE T1 SET V = 'changed'")
    with OracleRowReader(config) as first, OracleRowReader(config) as second:
        found = _read_ids(first, chunks[::2], view) + _read_ids(second, chunks[1::2], view)
    assert sorted(found) == [*range(3_000)]


def test_a_large_table_has_few_thousand_chunks_however_large_it_is(db: Oracle, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each chunk is a file, and the storage lists them all."""
    monkeypatch.setattr(snapshot, "CHUNK_BLOCKS", 1)
    monkeypatch.setattr(snapshot, "_MOST_SHARED_PARTS", 3)
    config = settings(db)
    _, chunks = _open_view(config)
    assert 2 <= len(chunks) <= 4
    with OracleSnapshot(config, [T1], 2) as session:
        assert len(session.split_table(T1)) > 4, "parts for threads are as small as before"


@pytest.mark.parametrize(
    "statement",
    ["ALTER TABLE T1 DROP COLUMN V", "DROP TABLE T1 PURGE", "ALTER TABLE T1 RENAME COLUMN V TO W", "TRUNCATE TABLE T1"],
)
def test_a_table_that_was_altered_since_is_out_of_view_and_the_others_are_not(db: Oracle, statement: str) -> None:
    config = settings(db, snapshot__database__errors__max__retries=0)
    view, chunks = _open_view(config)
    db.sql(statement)
    with OracleRowReader(config) as reader:
        with pytest.raises(TableOutOfView):
            _read_ids(reader, chunks, view)
        assert _read_ids(reader, [SnapshotChunk(OTHER)], view) == []


def test_a_table_that_the_account_may_not_read_is_an_error(db: Oracle) -> None:
    """It is there as it was: another view would not help."""
    config = settings(db)
    view, chunks = _open_view(config, "SELECT T1.* FROM APP.T1 JOIN APP.NOWHERE N ON N.ID = T1.ID")
    with OracleRowReader(config) as reader, pytest.raises((NotGranted, QueryRejected)):
        _read_ids(reader, chunks, view)


def test_undo_that_is_gone_ends_the_view_for_all_readers(db: Oracle) -> None:
    config = settings(db, snapshot__database__errors__max__retries=0)
    view, chunks = _open_view(config)
    db.sql("UPDATE T1 SET V = 'changed'")
    db.expire_undo()
    with OracleRowReader(config) as reader, pytest.raises(ViewExpired) as caught:
        _read_ids(reader, chunks, view)
    error = caught.value.error
    assert isinstance(error, SourceUnavailable)
    assert "ORA-01555" in error.message
    assert "UNDO_RETENTION" in str(error.remedy)


def test_the_statement_of_a_signal_gives_the_rows_as_of_the_view(db: Oracle) -> None:
    config = settings(db)
    view, chunks = _open_view(config, "SELECT * FROM APP.T1 WHERE ID < 3")
    db.sql("DELETE FROM T1")
    with OracleRowReader(config) as reader:
        assert [chunk.condition for chunk in chunks] == [None]
        assert sorted(_read_ids(reader, chunks, view)) == [0, 1, 2]
        bad = SnapshotView(view.position, view.ts_us, view.schemas, {T1: "SELECT * FROM APP.T1 WHERE COLOR = 1"})
        with pytest.raises(QueryRejected) as caught:
            _read_ids(reader, chunks, bad)
    assert caught.value.where == "SELECT * FROM APP.T1 WHERE COLOR = 1"


def test_readers_keep_no_writer_and_no_statement_waiting(db: Oracle, monkeypatch: pytest.MonkeyPatch) -> None:
    config = settings(db, snapshot__fetch__size=100)
    view, chunks = _open_view(config)
    with OracleRowReader(config) as reader:
        rows = reader.read(chunks[0], view)
        assert len(next(rows)) == 100
        ended = threading.Thread(target=lambda: db.sql("LOCK TABLE T1 IN EXCLUSIVE MODE NOWAIT", "DELETE FROM T1"))
        ended.start()
        ended.join(20)
        assert not ended.is_alive()
        assert sum(len(block) for block in rows) == 2_900
