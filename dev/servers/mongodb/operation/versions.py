"""Restrictions of versions before 8.0, by MongoDB's manual ("Change Streams", "Read Concern snapshot") and its own tests."""

from __future__ import annotations

from dev.servers.mongodb.storage.node import Settings
from dev.servers.mongodb.storage.versioned_collections import Collection
from dev.servers.mongodb.values.documents import Document
from dev.servers.mongodb.values.errors import MongoError

_WIRE = {(5, 0): 13, (6, 0): 17, (7, 0): 21, (8, 0): 25}
"""Versions of the protocol; drivers ask for it."""


def version_of(settings: Settings) -> tuple[int, ...]:
    """The version that a member says it has."""
    return tuple(map(int, settings.version.split(".")))


def wire_version(settings: Settings) -> int:
    """The newest version of the protocol that it speaks."""
    return _WIRE[version_of(settings)[:2]]


def check_stream(settings: Settings, pipeline: list[Document]) -> None:
    """Raise for options and stages of a change stream that came with a later version."""
    version, spec = version_of(settings), pipeline[0]["$changeStream"]
    if version < (6, 0):
        for name in ("showExpandedEvents", "fullDocumentBeforeChange"):
            if name in spec:
                raise MongoError(40415, f"BSON field '$changeStream.{name}' is an unknown field.")
        if (given := spec.get("fullDocument", "default")) not in ("default", "updateLookup"):
            raise MongoError(40575, f"unrecognized value for the 'fullDocument' option to the $changeStream stage: {given}")  # fmt: skip
    if version < (6, 0, 9) and any("$changeStreamSplitLargeEvent" in stage for stage in pipeline):
        raise MongoError(40324, "Unrecognized pipeline stage name: '$changeStreamSplitLargeEvent'")


def check_snapshot(settings: Settings, collection: Collection | None) -> None:
    """Raise where a collection cannot be read as it was at one moment."""
    if collection is not None and collection.capped and version_of(settings) < (8, 0):
        raise MongoError(246, "Reading from capped collections with readConcern snapshot is not supported")
