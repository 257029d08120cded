"""A member's statistics of itself and its collections; sizes are of the BSON, as there is no storage engine."""

from __future__ import annotations

from bson import Int64

from dev.servers.mongodb.storage.versioned_collections import Collection
from dev.servers.mongodb.values.documents import Document, encode

PAGE = 4096


def size_of(collection: Collection) -> int:
    """The bytes of a collection's documents."""
    return sum(len(encode(document)) for document in collection.documents())


def storage(collection: Collection) -> Document:
    """The storage statistics of a collection."""
    size, count = size_of(collection), collection.count()
    out: Document = {"size": size, "count": count}
    if count:
        out["avgObjSize"] = size // count
    return {
        **out,
        "numOrphanDocs": 0,
        "storageSize": PAGE,
        "freeStorageSize": 0,
        "capped": collection.capped,
        "nindexes": len(collection.indexes),
        "indexBuilds": [],
        "totalIndexSize": PAGE * len(collection.indexes),
        "totalSize": PAGE * (1 + len(collection.indexes)),
        "indexSizes": {index["name"]: PAGE for index in collection.indexes},
        "scaleFactor": 1,
    }


def database(name: str, collections: list[Collection]) -> Document:
    """The statistics of a database."""
    real = [collection for collection in collections if collection.kind == "collection"]
    objects = sum(collection.count() for collection in real)
    size = sum(size_of(collection) for collection in real)
    indexes = sum(len(collection.indexes) for collection in real)
    return {
        "db": name,
        "collections": Int64(len(real)),
        "views": Int64(len(collections) - len(real)),
        "objects": Int64(objects),
        "avgObjSize": size / objects if objects else 0.0,
        "dataSize": float(size),
        "storageSize": float(PAGE * len(real)),
        "indexes": Int64(indexes),
        "indexSize": float(PAGE * indexes),
        "totalSize": float(PAGE * (len(real) + indexes)),
        "scaleFactor": Int64(1),
        "ok": 1.0,
    }
