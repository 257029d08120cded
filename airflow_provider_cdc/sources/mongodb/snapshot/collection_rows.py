"""Reads documents of collections as they were at one moment, by any client: the moment alone decides which documents there are.

A reader that comes too late for the moment reads on as the collection is now (:mod:`.collection_snapshot`).
"""

from __future__ import annotations

import base64
import logging
import time
from collections.abc import Iterator, Mapping
from typing import Any

import bson
import numpy as np
import pymongo.errors as driver

from airflow_provider_cdc.core.model.log_items import RowBlock
from airflow_provider_cdc.core.model.table_schema import TableId, TableSchema
from airflow_provider_cdc.core.spi.source import SnapshotChunk
from airflow_provider_cdc.sources.mongodb.collection_tables import is_capped
from airflow_provider_cdc.sources.mongodb.config import MongoDbConfig
from airflow_provider_cdc.sources.mongodb.connect import RAW, Client, translate_driver_errors
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
from airflow_provider_cdc.sources.mongodb.position import ClusterTime
from airflow_provider_cdc.sources.mongodb.snapshot.id_range_queries import BY_ID, LARGEST, filter_of, id_alone
from airflow_provider_cdc.sources.mongodb.snapshot.read_concern import build_read_concern, read_as_it_is, read_too_late
from airflow_provider_cdc.sources.mongodb.snapshot.snapshot_rows import read_rows

log = logging.getLogger(__name__)


class CollectionRows:
    """The rows of collections."""

    def __init__(self, config: MongoDbConfig, metrics: MongoSnapshotMetrics) -> None:
        self._config, self._metrics, self._shaping = config, metrics, FieldRewriter(config)

    def find_filter(self, table: TableId, selects: Mapping[TableId, str]) -> dict[str, Any]:
        """Return the filter of a collection: that of a signal, or that of the configuration.

        :param selects: collection → filter of a signal, as extended JSON
        """
        text = selects.get(table, self._config.snapshot_collection_filter_overrides.get(str(table)))
        return filter_of(text, f"the filter of {table}")

    def read(
        self,
        client: Client,
        schema: TableSchema,
        chunk: SnapshotChunk,
        filter_: dict[str, Any],
        at: ClusterTime,
        ts_us: int,
    ) -> Iterator[RowBlock]:
        """Read the rows of one part of a collection.

        :param at: moment of the cluster's time, which was at ``ts_us``
        """
        ranges = _RangeReader(self._config, client, chunk, at, filter_, self._metrics)
        for documents in ranges.read_documents():
            yield read_rows(schema, documents, at, ts_us, self._shaping)


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


def _bounds(condition: str | None) -> dict[str, Any]:
    if condition is None:
        return {}
    return dict(bson.decode(base64.b64decode(condition), codec_options=RAW))
