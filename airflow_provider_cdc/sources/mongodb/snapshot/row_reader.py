"""Reads parts of collections in another process, at the moment of a snapshot session."""

from __future__ import annotations

from collections.abc import Iterator

from airflow_provider_cdc.core.model.log_items import RowBlock
from airflow_provider_cdc.core.spi.remote_readers import RowReader, SnapshotView
from airflow_provider_cdc.core.spi.source import SnapshotChunk
from airflow_provider_cdc.sources.mongodb.config import MongoDbConfig
from airflow_provider_cdc.sources.mongodb.connect import deployment_of, open_client, translate_driver_errors
from airflow_provider_cdc.sources.mongodb.metrics import MongoSnapshotMetrics
from airflow_provider_cdc.sources.mongodb.position import MongoPosition
from airflow_provider_cdc.sources.mongodb.snapshot.collection_rows import CollectionRows


class MongoRowReader(RowReader):
    """Implements :class:`airflow_provider_cdc.core.spi.remote_readers.RowReader`."""

    def __init__(self, config: MongoDbConfig) -> None:
        self._rows, self._client = CollectionRows(config, MongoSnapshotMetrics()), open_client(config)
        try:
            with translate_driver_errors(config):
                deployment_of(self._client)
        except BaseException:
            self._client.close()
            raise

    def read(self, chunk: SnapshotChunk, view: SnapshotView) -> Iterator[RowBlock]:
        assert isinstance(view.position, MongoPosition)
        table, at = chunk.table, view.position.time
        filter_ = self._rows.find_filter(table, view.selects)
        return self._rows.read(self._client, view.schemas[table], chunk, filter_, at, view.ts_us)

    def close(self) -> None:
        self._client.close()
