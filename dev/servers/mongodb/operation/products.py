"""Products that speak MongoDB's protocol and are no MongoDB, as far as a client can tell them.

- ``amazon`` (DocumentDB): a replica set whose change streams know no ``startAfter``, have no token behind a batch, and tokens without a cluster time
  (its developer guide, "Using change streams"; estuary/connectors#4592 and #1971).
- ``azure`` (DocumentDB, Cosmos DB vCore, and the open engine of both): a router with ``internal`` in ``hello`` (powersync-ja/powersync-service,
  documentdb/documentdb#672), change streams not before 2026 (documentdb/documentdb#50).
- ``cosmos`` (Cosmos DB, request units): ``buildInfo`` has ``_t``; a stream on a deployment is refused with code 2 (MicrosoftDocs/azure-docs#52077).
- ``ferretdb``: ``buildInfo`` has ``ferretdbVersion`` (its own source), and there are no change streams (FerretDB/FerretDB#175).
"""

from __future__ import annotations

from typing import Any

from dev.servers.mongodb.values.documents import Document
from dev.servers.mongodb.values.errors import MongoError

_HELLO: dict[str, Document] = {
    "azure": {"msg": "isdbgrid", "internal": {"documentdb_versions": ["0.117-0", "0.117.0"], "kind": "azuredocumentdb"}},
    "cosmos": {"setName": "globaldb"},
}  # fmt: skip
_BUILD: dict[str, Document] = {
    "cosmos": {"_t": "BuildInfoResponse"},
    "ferretdb": {"ferretdbVersion": "v2.7.0", "ferretdb": {"version": "v2.7.0", "package": "docker"}},
}
_UNKNOWN = ("topologyVersion", "lastWrite")
"""Fields of ``hello`` that these products do not have."""


def hello(product: str, reply: Document) -> Document:
    """The answer to ``hello`` of a product."""
    if not product:
        return reply
    own = {name: value for name, value in reply.items() if name not in _UNKNOWN}
    if product in ("azure", "ferretdb"):
        own = {name: value for name, value in own.items() if name not in ("setName", "setVersion", "hosts", "me", "primary")}  # fmt: skip
    return {**own, **_HELLO.get(product, {})}


def build_info(product: str, reply: Document) -> Document:
    """The answer to ``buildInfo`` of a product."""
    return {**reply, **_BUILD.get(product, {})}


def check_stream(product: str, spec: Document) -> None:
    """Raise for a change stream that a product does not open."""
    if product == "cosmos":
        raise MongoError(2, "Expected type string but found int.")
    if product in ("azure", "ferretdb"):
        raise MongoError(40324, "Unrecognized pipeline stage name: $changeStream")
    for name in ("startAfter", "showExpandedEvents", "fullDocumentBeforeChange"):
        if product == "amazon" and name in spec:
            raise MongoError(40415, f"BSON field '$changeStream.{name}' is an unknown field.")


def cursor(product: str, reply: Document) -> Document:
    """The reply of a change stream's cursor."""
    if product != "amazon":
        return reply
    found = {name: value for name, value in reply["cursor"].items() if name != "postBatchResumeToken"}
    for name in ("firstBatch", "nextBatch"):
        if name in found:
            found[name] = [_with_token(event) for event in found[name]]
    return {**reply, "cursor": found}


def _with_token(event: Document) -> Document:
    stamp: Any = event["clusterTime"]
    return {**event, "_id": {"_data": f"01{stamp.time:08x}{stamp.inc:08x}01000000{stamp.inc:08x}000090d3"}}
