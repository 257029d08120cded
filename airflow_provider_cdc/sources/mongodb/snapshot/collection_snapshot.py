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
from typing import Any, Final

import bson
import numpy as np
import pymongo.errors as driver
from bson.raw_bson import RawBSONDocument

from airflow_provider_cdc.core.model.log_items import RowBlock
from airflow_provider_cdc.core.model.table_schema import TableId, TableSchema
from airflow_provider_cdc.core.spi.source import SnapshotChunk, SnapshotSession
from airflow_provider_cdc.sources.mongodb.collection_tables import is_capped, list_visible_collections
from airflow_provider_cdc.sources.mongodb.config import MongoDbConfig
from airflow_provider_cdc.sources.mongodb.connect import (
    RAW,
    Client,
    deployment_of,
    now_of,
    open_client,
    translate_driver_errors,
)
from airflow_provider_cdc.sources.mongodb.documents.bson_spans import BsonDocuments
from airflow_provider_cdc.sources.mongodb.errors import (
    NOTHING_BETWEEN,
    SNAPSHOT_TOO_OLD,
    SNAPSHOT_UNAVAILABLE,
    code_of,
    is_resumable,
    translate_error,
)
from airflow_provider_cdc.sources.mongodb.field_rewriter import FieldRewriter
from airflow_provider_cdc.sources.mongodb.log.raw_member_cursor import BATCH_DOCUMENTS, DeploymentMember, RawCursor
from airflow_provider_cdc.sources.mongodb.metrics import MongoSnapshotMetrics
from airflow_provider_cdc.sources.mongodb.position import ClusterTime, MongoPosition
from airflow_provider_cdc.sources.mongodb.snapshot.id_range_queries import BY_ID, LARGEST, filter_of, id_alone
from airflow_provider_cdc.sources.mongodb.snapshot.read_concern import build_read_concern, read_as_it_is, read_too_late
from airflow_provider_cdc.sources.mongodb.snapshot.snapshot_rows import read_rows, source_values

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
        readers: int,
        selects: Mapping[TableId, str],
        metrics: MongoSnapshotMetrics,
        schema: Callable[[TableId], TableSchema],
    ) -> None:
        self._config, self._readers, self._shaping, self._metrics = config, readers, FieldRewriter(config), metrics
        filters = {table: config.snapshot_collection_filter_overrides.get(str(table)) for table in tables} | dict(
            selects
        )
        self._filters = {table: filter_of(text, f"the filter of {table}") for table, text in filters.items()}
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
        for documents in _RangeReader(
            self._config, self._client, chunk, self._at, filter_, self._metrics
        ).read_documents():
            yield read_rows(self.schemas[chunk.table], documents, self._at, self.ts_us, self._shaping)

    def close(self) -> None:
        self._client.close()


class _RangeReader:
    """Reads one part, over elections: the next try begins behind the last document that was read."""

    def __init__(
        self,
        config: MongoDbConfig,
        client: Client,
        chunk: SnapshotChunk,
        at: ClusterTime,
        filter_: dict[str, Any],
        metrics: MongoSnapshotMetrics,
    ) -> None:
        self._config, self._client, self._table, self._filter = config, client, chunk.table, filter_
        self._metrics = metrics
        self._bounds = _bounds(chunk.condition)
        self._at, self._late = at, False
        self._last: bytes | None = None
        self._read: set[bytes] = set()
        """Documents that were read with the last key: several shards may have one each."""
        size = config.snapshot_fetch_size
        self._documents = max(size, 2) if size else None  # one may be the last of the try before
        self._attempts = 0

    def read_documents(self) -> Iterator[BsonDocuments]:
        """Yield the documents, reply by reply."""
        while True:
            try:
                command = self._command()
                yield from self._between(command)
                if "min" in command and "max" not in command:
                    yield from self._try(self._largest())
                return
            except driver.PyMongoError as e:
                self._failed(e)

    def _between(self, command: dict[str, Any]) -> Iterator[BsonDocuments]:
        """Read the documents between two keys: none, where one of them is the smallest or the largest of all."""
        try:
            yield from self._try(command)
        except driver.OperationFailure as e:
            if code_of(e) not in NOTHING_BETWEEN:
                raise

    def _try(self, command: dict[str, Any]) -> Iterator[BsonDocuments]:
        with (
            DeploymentMember(self._config, self._client) as member,
            RawCursor(member, self._table.namespace, command) as cursor,
        ):
            answer = cursor.first
            while True:
                documents = None if answer.documents is None else self._new(answer.documents)
                if documents is not None and len(documents):
                    self._remember(documents)
                    self._attempts = 0
                    yield documents
                if not cursor.is_open:
                    return
                answer = cursor.fetch_reply(documents=self._documents or BATCH_DOCUMENTS)

    def _command(self) -> dict[str, Any]:
        command: dict[str, Any] = {
            "find": self._table.name,
            "filter": self._filter,
            "hint": BY_ID,
            "sort": BY_ID,
            **self._bounds,
        }
        if self._last is not None:
            command["min"] = id_alone(self._last)
        command["readConcern"] = build_read_concern(self._at, as_it_is=self._late)
        if self._documents is not None:
            command["batchSize"] = self._documents
        command["noCursorTimeout"] = False
        return command

    def _largest(self) -> dict[str, Any]:
        """Build the query for the one key that a range without an end does not reach."""
        command = {name: value for name, value in self._command().items() if name not in ("min", "hint", "sort")}
        return command | {"filter": {"$and": [LARGEST, self._filter]}}

    def _new(self, documents: BsonDocuments) -> BsonDocuments:
        """Without the documents that were read with the last key, which the next try begins with."""
        if self._last is None or not len(documents):
            return documents
        ids, key, read_before = (
            documents.read_field(b"_id"),
            BsonDocuments.of_list([self._last]).read_field(b"_id").read_bytes(0),
            [],
        )
        for i in range(len(documents)):
            if ids.read_bytes(i) != key:
                break
            # without shards it is the same document, which may have changed if it is read as it is now
            if not self._client.is_mongos or documents.read_bytes(i) in self._read:
                read_before.append(i)
        if not read_before:
            return documents
        return BsonDocuments(
            documents.buf, np.delete(documents.starts, read_before), np.delete(documents.ends, read_before)
        )

    def _remember(self, documents: BsonDocuments) -> None:
        """Keep the last document, and those before it that have the same key."""
        ids, i = documents.read_field(b"_id"), len(documents) - 1
        key = ids.read_bytes(i)
        if self._last is None or BsonDocuments.of_list([self._last]).read_field(b"_id").read_bytes(0) != key:
            self._read.clear()
        self._last = documents.read_bytes(i)
        while i >= 0 and ids.read_bytes(i) == key:
            self._read.add(documents.read_bytes(i))
            i -= 1

    def _failed(self, e: driver.PyMongoError) -> None:
        """Record that a try has failed, and raise the error if it makes another one useless.

        :raises CdcError: another try would be of no use
        """
        if code_of(e) in SNAPSHOT_TOO_OLD and not self._late:
            with translate_driver_errors(self._config, str(self._table)):
                capped = code_of(e) == SNAPSHOT_UNAVAILABLE and is_capped(self._client, self._table)
            log.warning("%s", read_as_it_is(self._table) if capped else read_too_late(self._table))
            self._late = True
            return
        self._attempts += 1
        if not is_resumable(e) or self._attempts > self._config.connect_max_attempts:
            raise translate_error(e, self._config, str(self._table)) from None
        wait_ms = min(
            self._config.connect_backoff_initial_delay_ms * 2 ** (self._attempts - 1),
            self._config.connect_backoff_max_delay_ms,
        )
        log.warning(
            "The read of %s was interrupted, and continues in %g s: %s",
            self._table,
            wait_ms / 1000,
            translate_error(e, self._config).message,
        )
        self._metrics.count_interruption(str(self._table))
        time.sleep(wait_ms / 1000)


def _condition(low: RawBSONDocument | None, high: RawBSONDocument | None) -> str | None:
    """Two keys as a text, in which no type is lost."""
    ends = {name: key for name, key in (("min", low), ("max", high)) if key is not None}
    return base64.b64encode(bson.encode(ends, codec_options=RAW)).decode() if ends else None


def _bounds(condition: str | None) -> dict[str, Any]:
    if condition is None:
        return {}
    return dict(bson.decode(base64.b64decode(condition), codec_options=RAW))
