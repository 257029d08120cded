"""Change streams: a place in the oplog, the events from there on, and the tokens to resume after each."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from bson import Timestamp

from dev.servers.mongodb.change_streams import events, tokens
from dev.servers.mongodb.change_streams.events import Change, Maker, Options, Scope
from dev.servers.mongodb.query import queries, stages
from dev.servers.mongodb.storage.versioned_collections import Time
from dev.servers.mongodb.values.documents import Document, are_identical, encode
from dev.servers.mongodb.values.errors import MongoError, type_name

if TYPE_CHECKING:
    from dev.servers.mongodb.storage.node import Node

LARGEST = 16 * 1024 * 1024 + 16 * 1024
BATCH_BYTES = 16 * 1024 * 1024
OPTIONS = {
    "fullDocument": str,
    "fullDocumentBeforeChange": str,
    "resumeAfter": dict,
    "startAfter": dict,
    "startAtOperationTime": Timestamp,
    "allChangesForCluster": bool,
    "showExpandedEvents": bool,
    "showRawUpdateDescription": bool,
    "showMigrationEvents": bool,
    "showSystemEvents": bool,
    "allowToRunOnConfigDB": bool,
    "allowToRunOnSystemNS": bool,
}
ALLOWED = frozenset(
    {
        "$addFields",
        "$match",
        "$project",
        "$replaceRoot",
        "$replaceWith",
        "$redact",
        "$set",
        "$unset",
        "$changeStreamSplitLargeEvent",
    }
)
Stage = Callable[[Any], Iterator[Document]]


def check_options(spec: Any, scope_db: str, collection: str | None) -> None:
    """Raise for options of ``$changeStream`` that are wrong."""
    if not isinstance(spec, dict):
        raise MongoError(50808, "the $changeStream stage must be specified as an object")
    for name, value in spec.items():
        if name not in OPTIONS:
            raise MongoError(40415, f"BSON field '$changeStream.{name}' is an unknown field.")
        if not isinstance(value, OPTIONS[name]):
            raise MongoError(14, f"BSON field '$changeStream.{name}' is the wrong type '{type_name(value)}'")
    if spec.get("fullDocument", "default") not in ("default", "updateLookup", "whenAvailable", "required"):
        raise MongoError(
            2,
            f"Enumeration value '{spec['fullDocument']}' for field '$changeStream.fullDocument' is not a valid value.",
        )
    if spec.get("fullDocumentBeforeChange", "off") not in ("off", "whenAvailable", "required"):
        raise MongoError(
            2, "Enumeration value for field '$changeStream.fullDocumentBeforeChange' is not a valid value."
        )
    if spec.get("allChangesForCluster") and (scope_db != "admin" or collection is not None):
        found = f"{scope_db}.{collection}" if collection else scope_db
        raise MongoError(
            72,
            "A $changeStream with 'allChangesForCluster:true' may only be opened on the 'admin' database, and with no collection name; found "
            + found,
        )
    if sum(name in spec for name in ("resumeAfter", "startAfter", "startAtOperationTime")) > 1:
        raise MongoError(40674, "Only one type of resume option is allowed, but multiple were found")


class ChangeStream:
    """An open stream; ``batch`` returns the next events."""

    def __init__(self, node: Node, scope: Scope, pipeline: list[Document], *, of_router: bool = False) -> None:
        spec = pipeline[0]["$changeStream"]
        self._node, self._scope = node, scope
        self._options = Options(
            spec.get("fullDocument", "default"),
            spec.get("fullDocumentBeforeChange", "off"),
            bool(spec.get("showExpandedEvents")),
            bool(spec.get("showRawUpdateDescription")),
        )
        self._maker = Maker(node, self._options)
        self._filter, self._rest, self._split = _parts(pipeline[1:])
        matches = str([stage["$match"] for stage in pipeline[1:] if "$match" in stage])
        self._early = not any(text in matches for text in ("fullDocument", "$$"))
        """True if the filters are asked before images are looked for."""
        self._resume: tokens.Token | None = None
        self._found = of_router
        """True if the place to go on at was met; a router's place may be at another shard."""
        self._lenient = of_router
        self._from: Time
        self._high: str
        self._begin(spec)
        self._waiting: list[Document] = []
        self._ended = False
        self.over = False

    def _begin(self, spec: Document) -> None:
        node = self._node
        name = next((name for name in ("resumeAfter", "startAfter") if name in spec), None)
        if name:
            self._resume = tokens.parse_token(spec[name], name)
            if self._resume.invalidate and name == "resumeAfter":
                raise MongoError(
                    260,
                    "Attempting to resume a change stream using 'resumeAfter' is not allowed from an invalidate notification",
                )
            if self._resume.fragment is not None and not self._split:
                raise MongoError(
                    280,
                    "To resume from a split event, the $changeStream pipeline must include a $changeStreamSplitLargeEvent stage",
                    ("NonResumableChangeStreamError",),
                )
            self._from, self._high_token = self._resume.time, spec[name]
        elif "startAtOperationTime" in spec:
            stamp = spec["startAtOperationTime"]
            self._from = (stamp.time, stamp.inc)
            self._high_token = tokens.mark(self._from)
        else:
            seconds, increment = node.seen
            self._from = (seconds, increment + 1)
            self._high_token = tokens.mark(self._from)
        self._check_history(exact=name is not None)
        self._place = self._from
        self._done: tuple[Time, int] | None = None

    def _check_history(self, *, exact: bool) -> None:
        lost = self._node.oplog.lost
        if lost != (0, 0) and self._from <= lost:
            raise MongoError(
                286,
                "Resume of change stream was not possible, as the resume point may no longer be in the oplog.",
                ("NonResumableChangeStreamError",),
            )

    @property
    def high(self) -> Document:
        """The token to resume after the events that were returned so far."""
        return self._high_token

    def ready(self) -> bool:
        """Check whether something that was not looked at yet is in the oplog."""
        return (
            bool(self._waiting)
            or self.over
            or (self._node.seen >= self._place and self._node.oplog.index_from(self._place) < self._limit())
        )

    def _limit(self) -> int:
        return self._node.oplog.index_after(self._node.seen)

    def batch(self, count: int | None) -> list[Document]:
        """The next events, as many as go into one reply."""
        out: list[Document] = []
        size = 0
        while count is None or len(out) < count:
            event = self._next()
            if event is None:
                if not self._ended:  # a stream that is over stays behind its last event
                    self._advance()
                break
            length = len(encode(event))
            if length > LARGEST:
                raise MongoError(
                    10334,
                    f"BSONObj size: {length} (0x{length:X}) is invalid. Size must be between 0 and 16793600(16MB)",
                )
            if out and size + length > BATCH_BYTES:
                self._waiting.insert(0, event)
                break
            out.append(event)
            size += length
            self._high_token = event["_id"]
        if self._ended and not self._waiting:
            self.over = True
        return out

    def _advance(self) -> None:
        mark = tokens.mark(self._node.seen)
        if mark["_data"] > self._high_token["_data"]:
            self._high_token = mark

    def _next(self) -> Document | None:
        while not self._waiting:
            if self._ended:
                return None
            oplog = self._node.oplog
            if oplog.lost != (0, 0) and self._place <= oplog.lost:
                raise MongoError(136, "CollectionScan died due to position in capped collection being deleted.")
            place = oplog.index_from(self._place)
            if place >= self._limit():
                return None
            entry = oplog.entries[place]
            self._place = (oplog.times[place][0], oplog.times[place][1] + 1)
            self._take(entry)
        return self._waiting.pop(0)

    def _take(self, entry: Document) -> None:
        for change in events.changes(self._node, entry):
            if not self._belongs(change):
                continue
            if self._maker.shown(change):
                self._offer(change, lambda change=change: self._maker.event(change), change.token)
            if events.ends_stream(change, self._scope):
                self._offer(change, lambda change=change: events.invalidate(change), change.invalidate_token, last=True)
                if self._ended:
                    return

    def _belongs(self, change: Change) -> bool:
        if self._scope.holds(change.db, change.collection):
            return not (
                self._scope.collection is not None and change.kind in ("create",) and not self._options.expanded
            )
        return change.to is not None and self._scope.holds(*change.to)

    def _offer(self, change: Change, make: Callable[[], Document], token: Document, *, last: bool = False) -> None:
        """Take an event unless it is before the place where the stream continues."""
        resume = self._resume
        fragment = None
        if resume is not None and (self._lenient or not self._found):
            own = tokens.parse_token(token)
            exact = own.time == resume.time and _without_fragment(resume) == own.data
            if resume.kind == tokens.EVENT and exact:
                self._found = self._filter is None or last or self._filter(make())
                if not self._found:
                    return
                if resume.fragment is None:
                    return
                fragment = resume.fragment
            elif own.data <= resume.data:
                return
            else:
                self._lenient = False
        if (
            self._filter is not None
            and self._early
            and not last
            and not self._filter(self._maker.event(change, images=False))
        ):
            return
        event = make()
        if self._filter is not None and not self._filter(event) and not last:
            return
        if resume is not None and not self._found and resume.kind == tokens.EVENT:
            raise MongoError(
                280,
                f'cannot resume stream; the resume token was not found. {{_data: "{token["_data"]}"}}',
                ("NonResumableChangeStreamError",),
            )
        self._found = True
        self._waiting += self._finished(event, change, fragment) if not last else [event]
        if last:
            self._ended = True

    def _finished(self, event: Document, change: Change, fragment: int | None) -> list[Document]:
        """The events that a pipeline makes of one."""
        if self._rest is None and not self._split:
            return [event]
        size = len(encode(event)) if self._rest is not None or self._split else 0
        if size > LARGEST and not self._split:
            raise MongoError(
                10334, f"BSONObj size: {size} (0x{size:X}) is invalid. Size must be between 0 and 16793600(16MB)"
            )
        out = [_in_place(made, event) for made in self._rest([event])] if self._rest is not None else [event]
        for made in out:
            if "_id" not in made or not are_identical(made["_id"], event["_id"]):
                raise MongoError(
                    280,
                    "Encountered an event whose _id field, which contains the resume token, was modified by the pipeline.",
                    ("NonResumableChangeStreamError",),
                )
        if self._split:
            out = [part for made in out for part in _fragments(made, change, fragment)]
        return out


def _in_place(made: Document, event: Document) -> Document:
    """The event with a full document that the pipeline made where a full document stands."""
    if "fullDocument" not in made or "fullDocument" in event or "ns" not in made:
        return made
    out: Document = {}
    for name, value in made.items():
        if name == "ns":
            out["fullDocument"] = made["fullDocument"]
        if name != "fullDocument":
            out[name] = value
    return out


def _without_fragment(token: tokens.Token) -> str:
    if token.fragment is None:
        return token.data
    cut = 2 if token.fragment == 0 else 2 + 2 * ((token.fragment * 2).bit_length() + 7 >> 3)
    return token.data[: -2 - cut] + "04"


def _parts(pipeline: list[Document]) -> tuple[Callable[[Document], bool] | None, Stage | None, bool]:
    """The leading filters, the other stages, and whether large events are split."""
    split = False
    for index, stage in enumerate(pipeline):
        name = next(iter(stage), "")
        if name == "$changeStreamSplitLargeEvent":
            if index != len(pipeline) - 1:
                raise MongoError(7182802, "$changeStreamSplitLargeEvent must be the last stage in the pipeline")
            split = True
        elif name == "$changeStream":
            raise MongoError(40602, "$changeStream is only valid as the first stage in a pipeline")
        elif name in stages.KNOWN and name not in ALLOWED:
            raise MongoError(20, f"{name} is not permitted in a $changeStream pipeline")
        elif name not in ALLOWED:
            raise MongoError(40324, f"Unrecognized pipeline stage name: '{name}'")
    rest = pipeline[:-1] if split else list(pipeline)
    tests = []
    while rest and "$match" in rest[0]:
        condition = rest.pop(0)["$match"]
        if not isinstance(condition, dict):
            raise MongoError(15959, "the match filter must be an expression in an object")
        tests.append(queries.compile_filter(condition))
    combined = (lambda event: all(test(event) for test in tests)) if tests else None
    return combined, stages.compile_pipeline(rest) if rest else None, split


def _fragments(event: Document, change: Change, after: int | None) -> list[Document]:
    if len(encode(event)) <= LARGEST and after is None:
        return [event]
    fields = sorted(
        ((name, value) for name, value in event.items() if name != "_id"),
        key=lambda item: len(encode({item[0]: item[1]})),
    )
    groups: list[Document] = [{}]
    size = 200 + len(encode({"_id": event["_id"]}))
    room = size
    for name, value in fields:
        length = len(encode({name: value}))
        if groups[-1] and room + length > LARGEST:
            groups.append({})
            room = size
        groups[-1][name] = value
        room += length
    out = []
    for number, group in enumerate(groups):
        token = tokens.encode_token(change.time, tokens.EVENT, change.index, False, change.uuid, change.about, number)
        out.append({"_id": token, "splitEvent": {"fragment": number + 1, "of": len(groups)}, **group})
    return out if after is None else out[after + 1 :]
