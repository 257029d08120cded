"""The pipeline of a change stream: the events that the server sends, and those that it leaves out.

The events that the server leaves out must be a part of those that the filters of the connector leave out: patterns are pushed down only where they mean
the same there as here. The connector looks at each event again.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Final

from bson import Timestamp, json_util

from airflow_provider_cdc.core.config.property_enums import Patterns
from airflow_provider_cdc.sources.mongodb.config import MongoDbConfig
from airflow_provider_cdc.sources.mongodb.config_enums import (
    CaptureScope,
    FullUpdateType,
    OversizeHandling,
    PipelineOrder,
)
from airflow_provider_cdc.sources.mongodb.connect import Deployment
from airflow_provider_cdc.sources.mongodb.field_rules import parts_of
from airflow_provider_cdc.sources.mongodb.position import MongoPosition

ROWS: Final = ("insert", "update", "replace", "delete")
"""Operations that change one document."""

_PORTABLE: Final = re.compile(r"(?:[A-Za-z0-9_ ,;:@%&=<>~/#!-]|\.|\*|\+|\?|\[[A-Za-z0-9_.-]+\]|\\[.$*+?()\[\]-])+")
"""Patterns without groups, of which Python and the server understand the same."""
_PLAIN: Final = re.compile(r"([A-Za-z0-9_-]+)\.([A-Za-z0-9_-]+)")
"""As many write it: its only dot can be nothing but the one between database and collection."""
_DOT: Final = re.compile(r"\\\.|\[\.\]")


def change_stream(config: MongoDbConfig, deployment: Deployment) -> dict[str, Any]:
    """Options of the stage ``$changeStream``, without where it begins."""
    options: dict[str, Any] = {}
    if config.capture_scope is CaptureScope.DEPLOYMENT:
        options["allChangesForCluster"] = True
    if deployment.has_expanded_events:
        options["showExpandedEvents"] = True
    mode = config.capture_mode
    if mode.has_full_document:
        from_image = config.capture_mode_full_update_type is FullUpdateType.POST_IMAGE
        options["fullDocument"] = "whenAvailable" if from_image else "updateLookup"
    if mode.pre_image:
        options["fullDocumentBeforeChange"] = "whenAvailable"  # one collection without images ends no stream of all
    return options


def build_start_option(position: MongoPosition, *, by_time: bool = False) -> dict[str, Any]:
    """Build the option that has a stream begin at a position.

    Where it begins at a moment, events of that moment that are behind the position come again.

    A stream that began one moment later would say the same of that moment before and after it has seen it.

    :param by_time: begin at the moment of the position's event, whether the stream has that event or not
    """
    if position.token is None or by_time:
        return {"startAtOperationTime": Timestamp(position.time.seconds, position.time.ordinal)}
    token: dict[str, Any] = {"_data": position.token}
    if position.type_bits:
        token["_typeBits"] = bytes.fromhex(position.type_bits)
    return {"startAfter": token}


def resolve_aggregate_scope(config: MongoDbConfig) -> tuple[str, str | int]:
    """Return the database, and the value that its command ``aggregate`` gets."""
    if config.capture_scope is CaptureScope.DEPLOYMENT:
        return "admin", 1
    assert config.capture_target is not None
    if config.capture_scope is CaptureScope.DATABASE:
        return config.capture_target, 1
    return parts_of(config.capture_target)


def build_stages(config: MongoDbConfig, deployment: Deployment, start: dict[str, Any]) -> list[dict[str, Any]]:
    """Build the whole pipeline.

    :param start: from :func:`build_start_option`
    """
    internal = [*_build_captured_stage(config), *_of_size(config)]
    own = [json_util.loads(json_util.dumps(stage)) for stage in config.cursor_pipeline]
    order = config.cursor_pipeline_order
    if order is PipelineOrder.USER_ONLY:
        internal = []
    behind = [*own, *internal] if order is PipelineOrder.USER_FIRST else [*internal, *own]
    if config.cursor_oversize_handling_mode is OversizeHandling.SPLIT:
        behind.append({"$changeStreamSplitLargeEvent": {}})  # has to be the last one
    return [{"$changeStream": change_stream(config, deployment) | start}, *behind]


def _build_captured_stage(config: MongoDbConfig) -> list[dict[str, Any]]:
    """Leave out changes of documents of collections that are not captured; changes of structure come all."""
    if config.capture_scope is CaptureScope.COLLECTION:
        return []
    include, exclude = _collections(config), _left_out(config)
    if include is None and not exclude:
        return []
    conditions = include or []
    if exclude:
        conditions = [{"$nor": exclude} if include is None else {"$or": include, "$nor": exclude}]
    if config.signal_data_collection:
        database, collection = parts_of(config.signal_data_collection)
        conditions = [*conditions, {"ns.db": database, "ns.coll": collection}]
    return [{"$match": {"$or": [{"operationType": {"$nin": [*ROWS]}}, *conditions]}}]


def _collections(config: MongoDbConfig) -> list[dict[str, Any]] | None:
    """Conditions, one of which each captured collection fulfils; ``None``: that cannot be said to the server."""
    if config.collection_include_list:
        conditions = [_of_pattern(pattern) for pattern in config.collection_include_list]
        return (
            None
            if any(condition is None for condition in conditions)
            else [condition for condition in conditions if condition is not None]
        )
    databases: Patterns = config.database_include_list
    if databases and all(_PORTABLE.fullmatch(pattern) for pattern in databases):
        return [{"ns.db": _whole(pattern)} for pattern in databases]
    return None


def _left_out(config: MongoDbConfig) -> list[dict[str, Any]]:
    """Conditions that only collections fulfil that exclude lists name: an image that one of these lacks has to end no stream."""
    conditions = [_of_pattern(pattern, _exactly) for pattern in config.collection_exclude_list]
    databases = [
        {"ns.db": _exactly(pattern)} for pattern in config.database_exclude_list if _PORTABLE.fullmatch(pattern)
    ]
    return [*databases, *(condition for condition in conditions if condition is not None)]


def _of_pattern(pattern: str, whole: Callable[[str], dict[str, Any]] | None = None) -> dict[str, Any] | None:
    """Build the condition of a pattern on ``database.collection``, where it can be cut at a dot that is just a dot."""
    whole = whole or _whole
    if plain := _PLAIN.fullmatch(pattern):
        return {"ns.db": whole(plain[1]), "ns.coll": whole(plain[2])}
    dot = _DOT.search(pattern)
    if dot is None or not _PORTABLE.fullmatch(pattern):
        return None
    database, collection = pattern[: dot.start()], pattern[dot.end() :]
    if not database or not collection or collection[0] in "*+?" or "." in database:
        return None  # the part before the dot could have dots itself, and so reach into the collection's name
    return {"ns.db": whole(database), "ns.coll": whole(collection)}


def _whole(pattern: str) -> dict[str, Any]:
    """Build a condition that all names fulfil that the pattern matches here, and maybe others."""
    return {"$regex": f"^(?:{pattern})$", "$options": "is"}


def _exactly(pattern: str) -> dict[str, Any]:
    """Build a condition that no name fulfils that the pattern does not match here: none with a line feed, either."""
    return {"$regex": f"^(?:{pattern})(?![\\s\\S])", "$options": "i"}


def _of_size(config: MongoDbConfig) -> list[dict[str, Any]]:
    if config.cursor_oversize_handling_mode is not OversizeHandling.SKIP:
        return []
    most = config.cursor_oversize_skip_threshold
    images = ("$fullDocument", "$fullDocumentBeforeChange")
    sizes = [{"$lte": [{"$bsonSize": {"$ifNull": [image, {}]}}, most]} for image in images]
    return [{"$match": {"$expr": {"$and": sizes}}}]
