"""Reads collections as they were at one moment of the cluster's time, by several readers at once.

Servers keep the past for some minutes only (``minSnapshotHistoryWindowInSeconds``). A reader that comes later than that reads on from where it is, as the
collection is now, and the log says so: the stream begins at the snapshot's moment, so that whatever has changed since comes after it.
"""

from __future__ import annotations

import base64
import itertools
import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

import bson
from bson.raw_bson import RawBSONDocument

from airflow_provider_cdc.core.model.log_items import RowBlock
from airflow_provider_cdc.core.model.table_schema import TableId, TableSchema
from airflow_provider_cdc.core.spi.source import SnapshotChunk, SnapshotSession
from airflow_provider_cdc.sources.mongodb.collection_tables import list_visible_collections
from airflow_provider_cdc.sources.mongodb.config import MongoDbConfig
from airflow_provider_cdc.sources.mongodb.connect import (
    RAW,
    deployment_of,
    now_of,
    open_client,
    translate_driver_errors,
)
from airflow_provider_cdc.sources.mongodb.metrics import MongoSnapshotMetrics
from airflow_provider_cdc.sources.mongodb.position import MongoPosition
from airflow_provider_cdc.sources.mongodb.snapshot.collection_rows import CollectionRows
from airflow_provider_cdc.sources.mongodb.snapshot.id_range_queries import BY_ID
from airflow_provider_cdc.sources.mongodb.snapshot.snapshot_rows import source_values

log = logging.getLogger(__name__)

PART_DOCUMENTS: Final = 100_000
"""About how many documents one part of a collection has."""
MOST_PARTS: Final = 256
SAMPLES: Final = 10
"""Documents that are looked at for each part."""


class MongoSnapshot(SnapshotSession):
    """A view of some collections at one moment.

    :param selects: collection → filter, as extended JSON
    :param schema: collection → its table
    """

    def __init__(
        self,
        config: MongoDbConfig,
        tables: Sequence[TableId],
        selects: Mapping[TableId, str],
        metrics: MongoSnapshotMetrics,
        schema: Callable[[TableId], TableSchema],
    ) -> None:
        self._rows = CollectionRows(config, metrics)
        self._config = config
        self._filters = {table: self._rows.find_filter(table, selects) for table in tables}
        self._client = open_client(config)
        try:
            with translate_driver_errors(config):
                deployment_of(self._client)
                self._at = now_of(self._client)
                there = dict(list_visible_collections(self._client))
        except BaseException:
            self._client.close()
            raise
        self.position = MongoPosition(self._at)
        self.schemas = {table: schema(table) for table in tables if table in there}
        # the rows that were written before decide which columns such a table has
        self.own = {table for table, known in self.schemas.items() if known.documents is None}
        self.ddl = {}
        self.ts_us = time.time_ns() // 1000
        self.source = source_values(self._at)

    def split_table(self, table: TableId) -> list[SnapshotChunk]:
        """Parts of a collection between keys that a sample of it has shown. Keys need not be exact: the parts are, as one ends where the next begins."""
        with translate_driver_errors(self._config, str(table)):
            collection = self._client[table.namespace][table.name]
            documents = collection.estimated_document_count()
            parts = min(max(documents // PART_DOCUMENTS, 1), MOST_PARTS)
            cuts = self._cuts(table, parts) if parts > 1 else []
        rows = documents // (len(cuts) + 1)
        ends = [None, *cuts, None]
        return [SnapshotChunk(table, _condition(low, high), rows) for low, high in itertools.pairwise(ends)]

    def _cuts(self, table: TableId, parts: int) -> list[RawBSONDocument]:
        """Keys, in their order, that cut a collection into about so many parts; each is a document with nothing else."""
        collection = self._client[table.namespace].get_collection(table.name, codec_options=RAW)
        pipeline = [{"$sample": {"size": parts * SAMPLES}}, {"$project": {"_id": 1}}, {"$sort": BY_ID}]
        samples = [document.raw for document in collection.aggregate(pipeline)]
        return [RawBSONDocument(raw, RAW) for raw in dict.fromkeys(samples[SAMPLES::SAMPLES])]

    def read(self, chunk: SnapshotChunk) -> Iterator[RowBlock]:
        filter_ = self._filters.get(chunk.table, {})
        yield from self._rows.read(self._client, self.schemas[chunk.table], chunk, filter_, self._at, self.ts_us)

    def close(self) -> None:
        self._client.close()


def _condition(low: RawBSONDocument | None, high: RawBSONDocument | None) -> str | None:
    """Two keys as a text, in which no type is lost."""
    ends = {name: key for name, key in (("min", low), ("max", high)) if key is not None}
    return base64.b64encode(bson.encode(ends, codec_options=RAW)).decode() if ends else None
