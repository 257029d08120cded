"""Change events out of entries of the oplog."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from bson.binary import Binary

from dev.servers.mongodb.change_streams import tokens
from dev.servers.mongodb.storage import diffs
from dev.servers.mongodb.storage.versioned_collections import Time, key_of, time_of
from dev.servers.mongodb.values.documents import Document
from dev.servers.mongodb.values.errors import MongoError

if TYPE_CHECKING:
    from dev.servers.mongodb.storage.node import Node

PLAIN = frozenset({"insert", "update", "replace", "delete", "drop", "rename", "dropDatabase"})
INTERNAL = frozenset({"admin", "config", "local"})


@dataclass(frozen=True)
class Scope:
    """The scope that a stream watches: the deployment, a database, or a collection of it."""

    db: str | None = None
    collection: str | None = None

    def holds(self, db: str, collection: str | None) -> bool:
        """Check whether an event of this database and collection belongs to the stream."""
        if self.collection is not None:
            return db == self.db and collection == self.collection
        if self.db is not None:
            return db == self.db
        return db not in INTERNAL


@dataclass
class Change:
    """A change, with everything that a stream needs to make its event from it."""

    kind: str
    operation: Document
    entry: Document
    time: Time
    index: int
    db: str
    collection: str | None
    uuid: Binary | None
    about: Document
    more: Document
    to: tuple[str, str] | None = None

    @property
    def token(self) -> Document:
        """The resume token of the event."""
        return tokens.encode_token(self.time, tokens.EVENT, self.index, False, self.uuid, self.about)

    @property
    def invalidate_token(self) -> Document:
        """The resume token of the ``invalidate`` that follows."""
        return tokens.encode_token(self.time, tokens.EVENT, self.index, True, self.uuid, self.about)


def changes(node: Node, entry: Document) -> Iterator[Change]:
    """The changes that an entry makes, in their order."""
    if entry["op"] == "n":
        return
    time = time_of(entry["ts"])
    if entry["op"] == "c" and "applyOps" in entry["o"]:
        if entry["o"].get("partialTxn"):
            return
        for index, operation in enumerate(node.operations(entry)):
            yield from _changes(operation, entry, time, index)
    else:
        yield from _changes(entry, entry, time, 0)


def _changes(operation: Document, entry: Document, time: Time, index: int) -> Iterator[Change]:
    db, _, name = operation["ns"].partition(".")
    if operation.get("fromMigrate"):
        return
    if operation["op"] == "c":
        change = _command(db, operation, entry, time, index)
        if change is not None and not (change.collection or "").startswith("system."):
            yield change
        return
    if name.startswith("system.") or operation.get("fromMigrate"):
        return
    kind = {"i": "insert", "d": "delete"}.get(operation["op"]) or (
        "update" if operation["o"].get("$v") == 2 else "replace"
    )
    key = _document_key(operation, kind)
    about = {"operationType": kind, "documentKey": key}
    yield Change(kind, operation, entry, time, index, db, name, operation["ui"], about, {"documentKey": key})


def _document_key(operation: Document, kind: str) -> Document:
    if kind == "delete":
        return dict(operation["o"])
    if "o2" in operation:
        return dict(operation["o2"])
    return {"_id": operation["o"]["_id"]}


def _command(db: str, operation: Document, entry: Document, time: Time, index: int) -> Change | None:
    command, uuid = operation["o"], operation.get("ui")
    name = next(iter(command))
    rest = {option: value for option, value in command.items() if option != name}
    kind, collection, described, more, to = name, command[name], None, {}, None
    if name == "create":
        described = rest
        more = {"nsType": operation.get("nsType", "view" if "viewOn" in rest else "collection")}
    elif name == "createIndexes":
        described = {"indexes": [rest]}
    elif name == "commitIndexBuild":
        kind, described = "createIndexes", {"indexes": command["indexes"]}
    elif name == "dropIndexes":
        described = {"indexes": [operation["o2"]]}
    elif name == "collMod":
        kind, described = "modify", rest
        if "o2" in operation:
            more = {"stateBeforeChange": operation["o2"]}
    elif name == "renameCollection":
        kind = "rename"
        db, _, collection = command["renameCollection"].partition(".")
        target, _, target_name = command["to"].partition(".")
        to = (target, target_name)
        described = {"to": {"db": target, "coll": target_name}}
        if isinstance(command.get("dropTarget"), Binary):
            described["dropTarget"] = command["dropTarget"]
    elif name in ("shardCollection", "reshardCollection", "refineCollectionShardKey"):
        described = rest
    elif name == "dropDatabase":
        collection = None
    elif name != "drop":
        return None
    about: Document = {"operationType": kind}
    if described is not None:
        about["operationDescription"] = described
    return Change(
        kind,
        operation,
        entry,
        time,
        index,
        db,
        collection,
        uuid,
        about,
        {**({"operationDescription": described} if described is not None else {}), **more},
        to,
    )


@dataclass(frozen=True)
class Options:
    """The options of a stream."""

    full_document: str = "default"
    before: str = "off"
    expanded: bool = False
    raw: bool = False


class Maker:
    """Makes the events of one stream."""

    def __init__(self, node: Node, options: Options) -> None:
        self._node, self._options = node, options

    def shown(self, change: Change) -> bool:
        """Check whether the stream has events of this kind."""
        if change.kind in ("drop", "rename") and change.uuid is None and not self._options.expanded:
            return False
        return self._options.expanded or change.kind in PLAIN

    def event(self, change: Change, *, images: bool = True) -> Document:
        """The event of a change. Raises :class:`MongoError` when a required image is missing.

        :param images: with the documents; filters that ask for none of them come before these are looked for
        """
        expanded = self._options.expanded
        out: Document = {}
        if "txnNumber" in change.entry and "stmtId" not in change.entry:
            out |= {"txnNumber": change.entry["txnNumber"], "lsid": change.entry["lsid"]}
        if change.to is not None:
            out["to"] = {"db": change.to[0], "coll": change.to[1]}
        out |= {"_id": change.token, "operationType": change.kind, "clusterTime": change.entry["ts"]}
        if expanded and change.uuid is not None and change.kind != "dropDatabase":
            out["collectionUUID"] = change.uuid
        out["wallTime"] = change.entry["wall"]
        full = self._full(change) if images else _NONE
        if full is not _NONE:
            out["fullDocument"] = full
        out["ns"] = {"db": change.db} if change.collection is None else {"db": change.db, "coll": change.collection}
        out |= {name: value for name, value in change.more.items() if expanded or name == "documentKey"}
        if change.kind == "update":
            operation = change.operation["o"]
            if self._options.raw:
                out["rawUpdateDescription"] = {"$v": operation["$v"], "diff": operation["diff"]}
            else:
                out["updateDescription"] = diffs.describe_diff(operation["diff"], expanded=expanded)
        before = self._before(change) if images else _NONE
        if before is not _NONE:
            out["fullDocumentBeforeChange"] = before
        return out

    def _image(self, change: Change) -> Document | None:
        assert change.uuid is not None
        return self._node.image(change.time, change.index, change.uuid)

    def _full(self, change: Change) -> Any:
        mode = self._options.full_document
        if change.kind in ("insert", "replace"):
            return change.operation["o"]
        if change.kind != "update" or mode == "default":
            return _NONE
        if mode == "updateLookup":
            assert change.uuid is not None
            collection = self._node.catalog.by_uuid(change.uuid)
            if collection is None or collection.name != change.collection:
                return None
            return collection.get(key_of(change.more["documentKey"]), self._node.seen if self._node.majority else None)
        before = self._image(change)
        if before is not None:
            return diffs.apply_diff(before, change.operation["o"]["diff"])
        if mode == "required":
            raise MongoError(
                47,
                "Change stream was configured to require a post-image for all update events, but the post-image was not found for event: "
                + _describe_change(change),
            )
        return None

    def _before(self, change: Change) -> Any:
        mode = self._options.before
        if mode == "off" or change.kind not in ("update", "replace", "delete"):
            return _NONE
        before = self._image(change)
        if before is None and mode == "required":
            raise MongoError(
                47,
                "Change stream was configured to require a pre-image for all update, delete and replace events, but the pre-image was not found "
                f"for event: {_describe_change(change)}",
            )
        return before


class _None:
    """No such field in the event."""


_NONE = _None()


def _describe_change(change: Change) -> str:
    return (
        f'{{operationType: "{change.kind}", ns: {{db: "{change.db}", coll: "{change.collection}"}}, '
        f"clusterTime: Timestamp({change.time[0]}, {change.time[1]})}}"
    )


def invalidate(change: Change) -> Document:
    """The last event of a stream whose scope is gone."""
    return {
        "_id": change.invalidate_token,
        "operationType": "invalidate",
        "clusterTime": change.entry["ts"],
        "wallTime": change.entry["wall"],
    }


def ends_stream(change: Change, scope: Scope) -> bool:
    """Check whether a change ends a stream of this scope."""
    if scope.collection is not None:
        return change.kind in ("drop", "rename")
    return scope.db is not None and change.kind == "dropDatabase"
