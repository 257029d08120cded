"""Events of structure: the effect on the target when a collection is dropped, renamed, or otherwise altered.

``drop``, and with it ``dropDatabase``, which drops collection by collection: the target is emptied. ``rename``: the old name's target is emptied, and the
collection of the new name is read again. All others change no document: indexes, validators, images, sharding, moved chunks.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any, Final

import bson

from airflow_provider_cdc.core.errors import UnknownLogEvent
from airflow_provider_cdc.core.model.log_items import LogItem, SchemaChange, Truncate
from airflow_provider_cdc.core.model.table_schema import TableId
from airflow_provider_cdc.core.spi.source import CapturedTableSchemas
from airflow_provider_cdc.sources.mongodb.position import MongoPosition

log = logging.getLogger(__name__)

WITHOUT_DOCUMENTS: Final = frozenset(
    {
        "create", "createIndexes", "dropIndexes", "startIndexBuild", "startIndexBuilds", "abortIndexBuild", "abortIndexBuilds", "modify", "dropDatabase",
        "shardCollection", "refineCollectionShardKey", "reshardCollection", "migrateChunkToNewShard", "migrateLastChunkFromShard",
        "newShardDetected", "reshardBegin", "reshardDoneCatchUp", "reshardBlockingWrites", "endOfTransaction", "namespacePlacementChanged",
        "movePrimary", "databaseCreated",
    }
)  # fmt: skip
"""Events that change no document."""
INVALIDATE: Final = "invalidate"


def build_items(event: dict[str, Any], tables: CapturedTableSchemas, position: MongoPosition) -> Iterator[LogItem]:
    """Yield the items of an event that changes no single document.

    :param position: behind it
    :raises UnknownLogEvent: the meaning of the event is not known
    """
    operation = event.get("operationType")
    if operation == "drop":
        yield from _dropped(_table(event["ns"]), tables, position, event)
    elif operation == "rename":
        old, new = _table(event["ns"]), _table(event["to"])
        yield from _renamed(old, new, tables, position, event)
    elif operation in WITHOUT_DOCUMENTS or operation == INVALIDATE:
        log.debug("%s at %s changes no document", operation, position)
    else:
        raise UnknownLogEvent(
            f"The change stream contains an event {operation!r}, and the connector does not know whether it "
            "changes documents.",
            where=str(position),
            safe="Everything before this event is captured.",
            remedy=(
                'if the event changes no documents, exclude it: cursor.pipeline=[{"$match": {"operationType": {"$ne": "'
            )
            + str(operation)
            + '"}}}]',
        )


def _dropped(
    table: TableId, tables: CapturedTableSchemas, position: MongoPosition, event: dict[str, Any]
) -> Iterator[LogItem]:
    if tables.is_captured(table) and tables.find_schema(table) is not None:
        yield Truncate([table], position, position.time.ts_us, source=_source(event, position))


def _renamed(
    old: TableId, new: TableId, tables: CapturedTableSchemas, position: MongoPosition, event: dict[str, Any]
) -> Iterator[LogItem]:
    if old == new:
        return
    yield from _dropped(old, tables, position, event)
    if tables.is_captured(new):
        command = f'{{"renameCollection": "{old}", "to": "{new}"}}'
        source = _source(event, position)
        yield SchemaChange(command, new.namespace, [], position, position.time.ts_us, source, structure_unknown=[new])


def _source(event: dict[str, Any], position: MongoPosition) -> dict[str, object]:
    wall = event.get("wallTime")
    return {
        "ord": position.time.ordinal,
        "lsid": None,
        "txnNumber": None,
        "wallTime": None if wall is None else int(wall),
    }


def _table(name: dict[str, str]) -> TableId:
    return TableId(namespace=name["db"], name=name["coll"])


def decode_event(raw: bytes) -> dict[str, Any]:
    """Decode an event as a dictionary, its dates as milliseconds."""
    from airflow_provider_cdc.sources.mongodb.connect import ORDERED

    return bson.decode(raw, codec_options=ORDERED)
