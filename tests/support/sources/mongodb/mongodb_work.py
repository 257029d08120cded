"""Random work on a collection: documents of all types, nested, with keys of several types, in and out of transactions."""

from __future__ import annotations

import datetime
import json
from collections.abc import Iterable
from random import Random
from typing import Any

from bson import Binary, Code, Decimal128, Int64, MaxKey, MinKey, ObjectId, Regex, Timestamp, json_util
from pymongo.errors import NotPrimaryError, OperationFailure, WriteError

PATH_NOT_VIABLE = 28
STATES = json_util.JSONOptions(
    json_mode=json_util.JSONMode.CANONICAL, datetime_representation=json_util.DatetimeRepresentation.NUMBERLONG
)
NAMES = ("a", "b", "né", "with space", 'quote"d', "x${y}")


class CollectionWork:
    """Changes a collection; what it does follows from the seed.

    :param client: of the deployment
    :param drops: whether it is dropped now and then; with it go the images that it records
    :param images: the collection keeps images of documents, also when it is made again
    """

    def __init__(self, client: Any, database: str, seed: int, *, drops: bool = True, images: bool = False) -> None:
        self._drops = drops
        self.client, self.collection, self.random = client, client[database].letters, Random(seed)
        self._images = images
        self._make()
        self._ids: list[Any] = []
        self._next = 0

    def _make(self) -> None:
        if self._images:
            self.collection.database.create_collection(
                self.collection.name, changeStreamPreAndPostImages={"enabled": True}
            )

    def write(self, times: int) -> None:
        """So many steps; some are transactions, of which some are taken back."""
        for _ in range(times):
            r = self.random
            if r.random() < 0.25:
                with self.client.start_session() as session:
                    session.start_transaction()
                    before = list(self._ids)
                    for _ in range(r.randint(1, 6)):
                        self._change(session)
                    if r.random() < 0.3:
                        session.abort_transaction()
                        self._ids = before
                    else:
                        session.commit_transaction()
            elif r.random() < 0.02 and self._drops:
                self._drop()
                self._ids.clear()
                self._make()
            else:
                self._change(None)

    def _drop(self) -> None:
        self.collection.drop()

    def _change(self, session: Any) -> None:
        r = self.random
        kind = r.random() if self._ids else 0.0
        if kind < 0.4:
            self._next += 1
            id_ = r.choice(self._keys(self._next))
            self.collection.insert_one({"_id": id_, **self._document()}, session=session)
            self._ids.append(id_)
        elif kind < 0.7:
            self._update(r.choice(self._ids), session)
        elif kind < 0.85:
            self.collection.replace_one({"_id": r.choice(self._ids)}, self._document(), session=session)
        else:
            self.collection.delete_one({"_id": self._ids.pop(r.randrange(len(self._ids)))}, session=session)

    def _update(self, id_: Any, session: Any) -> None:
        r = self.random
        one, other = r.sample(("a", "b", "deep.er", "list.1", "list.0.x"), 2)
        try:
            # a path may lead through a value that has no fields; within a transaction that would end it
            path = one if session is None else "a"
            first = [{"$replaceWith": {"$mergeObjects": [{"first": r.random()}, "$$ROOT"]}}]
            within = [{"$unset": ["b.a"]}]
            change: Any = r.choice(
                [
                    {"$set": {path: self._value()}},
                    {"$unset": {path: ""}},
                    [{"$set": {"touched": r.random()}}],
                    first,
                    within,
                ]
            )
            if session is None and r.random() < 0.2:
                change = {"$set": {other: self._value()}, "$inc": {"counter": 1}}
            self.collection.update_one({"_id": id_}, change, session=session)
        except WriteError as error:
            if error.code != PATH_NOT_VIABLE:
                raise

    def _keys(self, number: int) -> list[Any]:
        moment = datetime.datetime(2024, 1, 1) + datetime.timedelta(seconds=number)
        return [
            number,
            str(number),
            Int64(2**40 + number),
            number + 0.5,
            ObjectId(),
            moment,
            {"n": number, "s": "é"},
            Binary(b"%d" % number),
        ]

    def _document(self) -> dict[str, Any]:
        names = self.random.sample(NAMES, self.random.randint(0, 4))
        return {name: self._value() for name in names} | {
            "list": [self._value() for _ in range(self.random.randint(0, 3))]
        }

    def _value(self, depth: int = 0) -> Any:
        r = self.random
        if depth < 2 and r.random() < 0.3:
            inner = [self._value(depth + 1) for _ in range(r.randint(0, 3))]
            return inner if r.random() < 0.5 else dict(zip(NAMES, inner, strict=False))
        return r.choice(
            [
                None, True, 7, -1, Int64(7), Int64(2**62), 1.5, -0.0, 1e300, float("nan"), float("inf"), "", "ä'\"\\\n\0${x}", "🐘", Decimal128("1.50"), Decimal128("-0E-10"), Decimal128("NaN"),
                ObjectId(b"twelve bytes"), datetime.datetime(1969, 12, 31, 23, 59, 59, 999000), datetime.datetime(2024, 2, 29), Timestamp(5, 6), Regex("^a/b", "im"), Binary(b"\0\xff", 0),
                Binary(b"x", 128), Code("f()"), MinKey(), MaxKey(),
            ]
        )  # fmt: skip


VERSIONS = ("5.0.31", "6.0.4", "7.0.14", "8.0.10")


def draw_deployment_options(random: Random) -> dict[str, Any]:
    """Draw options of the stand-in: how deployments differ from each other."""
    return {
        "version": random.choice(VERSIONS), "gather_ms": random.choice((0, 0, 30)), "commit_lag_ms": random.choice((0, 0, 60)),
        "whole_bytes": random.choice((0, 60, 400)),
    }  # fmt: skip


def states(documents: Iterable[Any]) -> dict[str, str]:
    """Documents by the texts of their keys, in a form in which every value and its type is visible."""
    return {text(document["_id"]): text(document) for document in documents}


def text(value: Any) -> str:
    """A value in canonical extended JSON, by the driver's own writer."""
    return json_util.dumps(value, json_options=STATES, allow_nan=True)


def parse_text(document: str) -> Any:
    """Parse a text of ours with the driver's own reader."""
    return json_util.loads(document, json_options=STATES)


def assert_same_documents(ours: Iterable[str], source: Iterable[Any]) -> None:
    """Assert that texts of ours are the documents of the source, with the type of every value."""
    found, expected = states(map(parse_text, ours)), states(source)
    differing = {
        key: (found.get(key), expected.get(key))
        for key in found.keys() | expected.keys()
        if found.get(key) != expected.get(key)
    }
    assert differing == {}, json.dumps(list(differing.items())[:3], ensure_ascii=False, indent=1)


def code_of(database: Any, command: dict[str, Any]) -> int:
    """The code that a command fails with; 0 when it does not."""
    try:
        database.command(command)
    except (OperationFailure, NotPrimaryError) as error:
        return int(error.details["code"])  # type: ignore[index] - the server has answered
    return 0
