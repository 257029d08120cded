"""Readers of other processes: documents as they were at the moment of the session."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from pymongo.errors import OperationFailure

from airflow_provider_cdc.connector import open_source
from airflow_provider_cdc.core.errors import QueryRejected
from airflow_provider_cdc.core.model.table_schema import TableId
from airflow_provider_cdc.core.spi.remote_readers import RowReader, SnapshotView
from airflow_provider_cdc.core.spi.source import SnapshotChunk, Source
from airflow_provider_cdc.sources.mongodb.log.raw_member_cursor import RawCursor
from airflow_provider_cdc.sources.mongodb.snapshot import collection_snapshot
from tests.support.connectors import Connector
from tests.support.sources.mongodb.mongodb_connectors import mongodb_connector


class _Meeting:
    """A meeting that is not needed."""

    def open_views(self) -> list[dict[str, Any]]:
        raise AssertionError("readers may join at any time")


@pytest.fixture
def connector(uri: str, database: Any, tmp_path: Path) -> Connector:
    database.orders.insert_many([{"_id": n, "n": 0} for n in range(300)])
    return mongodb_connector(uri, tmp_path, database_include_list=database.name, snapshot_fetch_size=20)


def _open_view(source: Source, table: TableId, select: str | None = None) -> tuple[SnapshotView, list[SnapshotChunk]]:
    given = {} if select is None else {table: select}
    with (
        patch.object(collection_snapshot, "PART_DOCUMENTS", 50),
        source.open_shared_snapshot([table], _Meeting(), selects=given) as session,
    ):
        return SnapshotView(session.position, session.ts_us, session.schemas, given), session.split_table(table)


def _read(reader: RowReader, chunks: list[SnapshotChunk], view: SnapshotView) -> dict[int, int]:
    blocks = [block for chunk in chunks for block in reader.read(chunk, view)]
    texts = [row["document"] for block in blocks if block.after is not None for row in block.after.to_pylist()]
    documents = [json.loads(text) for text in texts]
    assert len({d["_id"] for d in documents}) == len(documents)
    return {d["_id"]: d["n"] for d in documents}


def test_readers_that_come_later_see_the_documents_of_the_view_each_once(connector: Connector, database: Any) -> None:
    table = TableId(namespace=database.name, name="orders")
    with open_source(connector.definition(), connector.secrets) as source:
        view, chunks = _open_view(source, table)
        assert len(chunks) > 3
        database.orders.delete_many({"_id": {"$lt": 100}})
        database.orders.insert_one({"_id": 1000, "n": 0})
        database.orders.update_many({}, {"$set": {"n": 1}})
        with source.open_row_reader() as first, source.open_row_reader() as second:
            found = _read(first, chunks[::2], view) | _read(second, chunks[1::2], view)
    assert found == dict.fromkeys(range(300), 0)


def test_a_reader_that_comes_too_late_for_the_moment_reads_on_as_it_is_now(
    connector: Connector, database: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """The stream begins at the moment, so that it has what has changed since."""
    table, more, calls = TableId(namespace=database.name, name="orders"), RawCursor.fetch_reply, []

    def too_old(self: Any, **options: Any) -> Any:
        calls.append(1)
        if len(calls) == 1:
            database.orders.update_many({}, {"$set": {"n": 1}})
            raise OperationFailure("Read timestamp is older than the oldest available timestamp.", 239)
        return more(self, **options)

    with (
        open_source(connector.definition(), connector.secrets) as source,
        source.open_row_reader() as reader,
        patch.object(RawCursor, "fetch_reply", too_old),
    ):
        view, _ = _open_view(source, table)
        found = _read(reader, [SnapshotChunk(table)], view)
    assert "no longer has" in caplog.text
    assert found.keys() == {*range(300)}
    assert {*found.values()} == {0, 1}


def test_filters_of_signals_and_of_the_configuration(connector: Connector, database: Any) -> None:
    table, overrides = TableId(namespace=database.name, name="orders"), "snapshot.collection.filter.overrides"
    connector.properties |= {overrides: str(table), f"{overrides}.{table}": '{"_id": {"$lt": 5}}'}
    with open_source(connector.definition(), connector.secrets) as source, source.open_row_reader() as reader:
        view, chunks = _open_view(source, table)
        assert _read(reader, chunks, view).keys() == {*range(5)}
        view, chunks = _open_view(source, table, '{"_id": {"$gte": 290}}')
        assert _read(reader, chunks, view).keys() == {*range(290, 300)}
        bad = SnapshotView(view.position, view.ts_us, view.schemas, {table: '{"_id": {"$lt": '})
        with pytest.raises(QueryRejected, match="extended JSON"):
            _read(reader, chunks, bad)
