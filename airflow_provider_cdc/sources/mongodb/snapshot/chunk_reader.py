"""Reads collections in chunks, in the order of ``_id``, for incremental snapshots.

Each chunk is read as the collection was at one moment, which is both its low and its high watermark.
"""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np
import pymongo.errors as driver
from pymongo.write_concern import WriteConcern

from airflow_provider_cdc.core.config.property_enums import CHUNK_BYTES
from airflow_provider_cdc.core.model.key_json import Key
from airflow_provider_cdc.core.model.log_items import RowBlock
from airflow_provider_cdc.core.model.position import Position
from airflow_provider_cdc.core.model.table_schema import TableId, TableSchema
from airflow_provider_cdc.core.spi.chunk_reader import ChunkReader, ChunkRows, KeyRange
from airflow_provider_cdc.sources.mongodb.collection_tables import is_capped
from airflow_provider_cdc.sources.mongodb.config import MongoDbConfig
from airflow_provider_cdc.sources.mongodb.connect import deployment_of, now_of, open_client, translate_driver_errors
from airflow_provider_cdc.sources.mongodb.documents.bson_spans import BsonDocuments
from airflow_provider_cdc.sources.mongodb.errors import (
    NOTHING_BETWEEN,
    SNAPSHOT_TOO_OLD,
    SNAPSHOT_UNAVAILABLE,
    code_of,
)
from airflow_provider_cdc.sources.mongodb.field_rewriter import FieldRewriter
from airflow_provider_cdc.sources.mongodb.log.raw_member_cursor import DeploymentMember, RawCursor
from airflow_provider_cdc.sources.mongodb.position import ClusterTime, MongoPosition
from airflow_provider_cdc.sources.mongodb.snapshot.id_range_queries import (
    LARGEST,
    build_range_options,
    event_key,
    filter_of,
    key_text,
    key_value,
)
from airflow_provider_cdc.sources.mongodb.snapshot.read_concern import build_read_concern, read_as_it_is, read_too_late
from airflow_provider_cdc.sources.mongodb.snapshot.snapshot_rows import read_rows, source_values

log = logging.getLogger(__name__)

_LAST_FIRST: Final = {"_id": -1}


class MongoChunkReader(ChunkReader):
    """Reads chunks; see :class:`airflow_provider_cdc.core.spi.chunk_reader.ChunkReader`.

    :param signals: the signalling collection, for written watermarks
    :param schema: collection → its table
    """

    def __init__(
        self,
        config: MongoDbConfig,
        signals: TableId | None,
        schema: Callable[[TableId], TableSchema],
    ) -> None:
        self._schema = schema
        self._config, self._signals, self._shaping = config, signals, FieldRewriter(config)
        self._as_it_is: set[TableId] = set()
        """Collections that the server does not show as they were at one moment: capped ones, before 8.0."""
        self._client = open_client(config)
        try:
            with translate_driver_errors(config):
                deployment_of(self._client)
                self._member = DeploymentMember(config, self._client)
        except BaseException:
            self._client.close()
            raise

    def read_table_schema(self, table: TableId) -> TableSchema | None:
        with translate_driver_errors(self._config, str(table)):
            names = self._client[table.namespace].list_collection_names(
                filter={"name": table.name, "type": "collection"}, authorizedCollections=True
            )
        return self._schema(table) if names else None

    def read_last_key(self, rows: KeyRange) -> Key | None:
        at = self._now(rows)
        end = rows.end or rows.upto
        for condition in _last_of(rows, end):
            if (documents := self._find(rows, at, [condition], {}, limit=1)) is not None:
                return _key(documents, 0)
        documents = self._find(rows, at, [], _bounds(rows), limit=1, sort=_LAST_FIRST)
        return None if documents is None else _key(documents, 0)

    def read(self, rows: KeyRange, limit: int, queries: int = 1, max_bytes: int = CHUNK_BYTES) -> ChunkRows:
        began, most = time.monotonic(), limit * queries
        at = self._now(rows)
        parts: list[tuple[BsonDocuments, bool]]
        if rows.keys is not None:
            keys = {"_id": {"$in": [key_value(str(key[0])) for key in rows.keys]}}
            parts = [self._some(rows, at, [keys], build_range_options(), most, max_bytes)]
        else:
            parts = [self._some(rows, at, [], _bounds(rows), most, max_bytes)]
            end = rows.end or rows.upto
            left = most - len(parts[0][0])
            for condition in _last_of(rows, end) if parts[0][1] and left > 0 else ():
                parts.append(self._some(rows, at, [condition], {}, left, max_bytes))
        now, blocks, count = time.time_ns() // 1000, [], 0
        last: Key | None = None
        for documents, _ in parts:
            if len(documents):
                blocks.append(read_rows(rows.table, documents, at, now, self._shaping, count))
                count += len(documents)
                last = _key(documents, len(documents) - 1)
        complete = all(whole for _, whole in parts) and count < most
        low = high = None
        if self._signals is None:
            low = MongoPosition(at)
            high = self.end_of_log() if rows.table.id in self._as_it_is else low
        return ChunkRows(blocks, last, low, high, complete, time.monotonic() - began, now, source_values(at))

    def read_at_position(self, rows: KeyRange, position: Position) -> list[RowBlock] | None:
        assert isinstance(position, MongoPosition)
        keys = [key_value(str(key[0])) for key in rows.keys or ()]
        with translate_driver_errors(self._config, str(rows.table.id)):
            query: tuple[Any, ...] = ([{"_id": {"$in": keys}}], build_range_options(), len(keys), sys.maxsize)
            try:
                documents, _ = self._find_documents(rows, position.time, *query)
            except driver.OperationFailure as e:
                if code_of(e) not in SNAPSHOT_TOO_OLD:
                    raise
                if code_of(e) != SNAPSHOT_UNAVAILABLE or not is_capped(self._client, rows.table.id):
                    log.warning(
                        "The server no longer has the documents of %s at %s: they are read later, when the "
                                "stream is closer to the end of the log.",
                        rows.table.id, position,
                    )  # fmt: skip
                    return None
                self._as_it_is.add(rows.table.id)
                documents, _ = self._find_documents(rows, position.time, *query)
        now = time.time_ns() // 1000
        return [read_rows(rows.table, documents, position.time, now, self._shaping)] if len(documents) else []

    def to_source_keys(self, table: TableSchema, columns: Sequence[str], keys: Sequence[Key]) -> list[Key]:
        return [[_parse_signal_key(key[0])] for key in keys]

    def as_events(self, keys: Sequence[Key]) -> list[Key]:
        return [[event_key(str(key[0]))] for key in keys]

    def insert_signal_row(self, id_: str, type_: str, data: str | None = None) -> None:
        with translate_driver_errors(self._config, str(self._signals)):
            self._writing.insert_one({"_id": id_, "type": type_, "data": data})

    def delete_signal_row(self, id_: str) -> None:
        with translate_driver_errors(self._config, str(self._signals)):
            self._writing.delete_one({"_id": id_})

    def end_of_log(self) -> MongoPosition:
        with translate_driver_errors(self._config, "the end of the log"):
            return MongoPosition(now_of(self._client))

    def close(self) -> None:
        self._member.close()
        self._client.close()

    @property
    def _writing(self) -> Any:
        assert self._signals is not None
        database = self._client[self._signals.namespace]
        return database.get_collection(self._signals.name, write_concern=WriteConcern("majority"))

    def _now(self, rows: KeyRange) -> ClusterTime:
        with translate_driver_errors(self._config, str(rows.table.id)):
            return now_of(self._client)

    def _find(
        self,
        rows: KeyRange,
        at: ClusterTime,
        also: list[dict[str, Any]],
        options: dict[str, Any],
        *,
        limit: int,
        sort: dict[str, int] | None = None,
    ) -> BsonDocuments | None:
        """Read the first documents of a query; ``None``: there is none."""
        documents, _ = self._some(rows, at, also, options | ({"sort": sort} if sort else {}), limit, CHUNK_BYTES)
        return documents if len(documents) else None

    def _some(
        self,
        rows: KeyRange,
        at: ClusterTime,
        also: list[dict[str, Any]],
        options: dict[str, Any],
        limit: int,
        max_bytes: int,
    ) -> tuple[BsonDocuments, bool]:
        """Documents up to a number and a size, and whether the query has no more."""
        with translate_driver_errors(self._config, str(rows.table.id)):
            try:
                return self._find_documents(rows, at, also, options, limit, max_bytes)
            except driver.OperationFailure as e:
                if code_of(e) not in SNAPSHOT_TOO_OLD or rows.table.id in self._as_it_is:
                    raise
                self._read_as_it_is(rows.table.id, e)
            return self._find_documents(rows, at, also, options, limit, max_bytes)

    def _read_as_it_is(self, table: TableId, e: driver.OperationFailure) -> None:
        """Read a collection from now on as it is, not as it was: its chunks have two watermarks."""
        capped = code_of(e) == SNAPSHOT_UNAVAILABLE and is_capped(self._client, table)
        log.warning("%s", read_as_it_is(table) if capped else read_too_late(table))
        self._as_it_is.add(table)

    def _find_documents(
        self,
        rows: KeyRange,
        at: ClusterTime,
        also: list[dict[str, Any]],
        options: dict[str, Any],
        limit: int,
        max_bytes: int,
    ) -> tuple[BsonDocuments, bool]:
        table = rows.table.id
        skips = rows.after is not None and "min" in options
        conditions = [*also, *([filter_of(rows.condition, "additional-conditions")] if rows.condition else [])]
        command = {
            "find": table.name, "filter": {"$and": conditions} if conditions else {}, **options, "limit": limit + skips,
            "readConcern": build_read_concern(at, as_it_is=table in self._as_it_is),
        }  # fmt: skip
        taken = _CollectedDocuments(limit, max_bytes, rows.after if skips else None)
        try:
            with RawCursor(self._member, table.namespace, command) as cursor:
                answer = cursor.first
                while not taken.add_documents(answer.documents) and cursor.is_open:
                    answer = cursor.fetch_reply()
        except driver.OperationFailure as e:
            if code_of(e) not in NOTHING_BETWEEN:
                raise
        return taken.collected_documents, taken.whole


class _CollectedDocuments:
    """Collects documents up to a number and a size.

    :param without: key of a document that is left out if it is the first one
    :ivar whole: it took everything that came
    """

    def __init__(self, limit: int, max_bytes: int, without: Key | None) -> None:
        self._limit, self._bytes, self._without = limit, max_bytes, without
        self._parts: list[BsonDocuments] = []
        self.whole = True

    def add_documents(self, documents: BsonDocuments | None) -> bool:
        """Take some more; gives whether that is enough."""
        if documents is None:
            return False
        if self._without is not None and len(documents):
            if _key(documents, 0) == self._without:
                documents = _part(documents, 1, len(documents))
            self._without = None
        sizes = np.cumsum(documents.ends - documents.starts)
        room = int(np.searchsorted(sizes, self._bytes)) + 1  # the document that reaches the size is the last one
        count = min(len(documents), room, self._limit)
        if count < len(documents):
            self.whole = False
        self._parts.append(_part(documents, 0, count))
        self._limit -= count
        self._bytes -= int(sizes[count - 1]) if count else 0
        if self._bytes <= 0:
            self.whole = False
        return self._limit <= 0 or self._bytes <= 0

    @property
    def collected_documents(self) -> BsonDocuments:
        """Documents that were taken."""
        if not self._parts:
            return BsonDocuments.of_list([])
        if len(self._parts) == 1:
            return self._parts[0]
        return BsonDocuments.of_list([part.read_bytes(i) for part in self._parts for i in range(len(part))])


def _part(documents: BsonDocuments, start: int, end: int) -> BsonDocuments:
    return BsonDocuments(documents.buf, documents.starts[start:end], documents.ends[start:end])


def _bounds(rows: KeyRange) -> dict[str, Any]:
    """Return the range without the document of its last key."""
    low = rows.after if rows.after is not None else rows.first
    high = rows.upto if rows.upto is not None else rows.end
    return build_range_options(
        None if low is None else key_value(str(low[0])),
        None if high is None else key_value(str(high[0])),
        has_low=low is not None,
        has_high=high is not None,
    )


def _last_of(rows: KeyRange, end: Key | None) -> list[dict[str, Any]]:
    """Conditions of the last document of a range, which its bounds do not reach; a range without bounds has all."""
    if end is not None:
        return [_only(end)]
    return [LARGEST] if rows.after is not None or rows.first is not None else []


def _only(key: Key) -> dict[str, Any]:
    return {"_id": {"$eq": key_value(str(key[0]))}}


def _key(documents: BsonDocuments, i: int) -> Key:
    return [key_text(documents.read_field(b"_id"), i)]


def _parse_signal_key(key: Any) -> str:
    """Parse a key of a signal: the text that events have; a bare number or ``null`` is one, too."""
    import json

    text = key if isinstance(key, str) else json.dumps(key)
    key_value(text)
    return text
