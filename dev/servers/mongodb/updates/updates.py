"""Update documents: operators applied to a document, with the difference that the server writes to its oplog for them.

The server builds a tree of the paths and applies it in the order of names (numeric names by number), and logs what each operator did: an array that
grew at its end by its new elements, one that changed otherwise as a whole, an operator that changed nothing not at all. Libraries that change
documents (mongomock, montydb) say neither what they changed nor keep the widths of numbers, so this is written here.

>>> updated = parse_update({"$inc": {"a": 1}}).applied({"_id": 1, "a": 1})
>>> updated.document, updated.diff
({'_id': 1, 'a': 2}, {'u': {'a': 2}})
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dev.servers.mongodb.updates.update_tree import Operators, UpdateResult, flatten_conditions
from dev.servers.mongodb.values.documents import Document, are_identical, copy
from dev.servers.mongodb.values.errors import MongoError, type_name


class Replacement:
    """An update by a whole document."""

    def __init__(self, document: Document) -> None:
        for name in document:
            if name.startswith("$"):
                raise MongoError(
                    52,
                    f"The dollar ($) prefixed field '{name}' in '{name}' is not allowed in the context of an update's replacement document.",
                )
        self._document = document

    def applied(self, document: Document, *, inserting: bool = False, query: Document | None = None) -> UpdateResult:
        """The replacement with the ``_id`` of what it replaces."""
        if "_id" in self._document and "_id" in document and not inserting:
            from dev.servers.mongodb.values import order

            if not order.equal(self._document["_id"], document["_id"]):
                raise MongoError(
                    66,
                    f"After applying the update, the (immutable) field '_id' was found to have been altered to _id: {self._document['_id']}",
                )
        head = {"_id": document["_id"]} if "_id" in document else {}
        return UpdateResult(
            {**head, **copy({name: value for name, value in self._document.items() if name != "_id" or not head})},
            None,
            True,
        )


class Pipeline:
    """An update by an aggregation pipeline."""

    STAGES = frozenset({"$addFields", "$set", "$project", "$unset", "$replaceRoot", "$replaceWith"})

    def __init__(self, stages: list[Document], constants: Document | None = None, whole_bytes: int = 0) -> None:
        from dev.servers.mongodb.query import stages as known

        for stage in stages:
            name = next(iter(stage), "")
            if name not in self.STAGES:
                raise MongoError(72, f"{name} is not allowed to be used within an update")
        self._run = known.compile_pipeline(stages, constants or {})
        self._whole_bytes = whole_bytes

    def applied(self, document: Document, *, inserting: bool = False, query: Document | None = None) -> UpdateResult:
        """The document that the pipeline makes, with the shorter of difference and whole document."""
        from dev.servers.mongodb.storage import diffs

        made = self._run([copy(document)])
        after = next(iter(made))
        if "_id" in document and "_id" not in after:
            after = {"_id": document["_id"], **after}
        elif "_id" in document and not inserting and not are_identical(document["_id"], after["_id"]):
            raise MongoError(
                66,
                f"After applying the update, the (immutable) field '_id' was found to have been altered to _id: {after['_id']}",
            )
        check_storable(after)
        if "_id" in after and next(iter(after)) != "_id":  # the event has it as it was written, and the collection not
            return UpdateResult(after, None, True)
        if are_identical(document, after):
            return UpdateResult(after, {}, False)
        return UpdateResult(after, diffs.compute_diff(document, after, self._whole_bytes), True)


def check_storable(document: Document) -> None:
    """Raise when a document has an ``_id`` that cannot be stored."""
    check_id(document.get("_id"))


def check_id(value: Any) -> None:
    """Raise when a value cannot be an ``_id``."""
    if type_name(value) in ("array", "regex", "undefined"):
        raise MongoError(53, f"The '_id' value cannot be of type {type_name(value)}")
    _check_names(value)


def _check_names(value: Any) -> None:
    """Raise when a field within an ``_id``, at whatever depth, begins with a dollar."""
    for name, inner in (
        value.items() if isinstance(value, dict) else enumerate(value if isinstance(value, list) else ())
    ):
        if str(name).startswith("$"):
            raise MongoError(52, f"_id fields may not contain '$'-prefixed fields: {name} is not valid for storage.")
        _check_names(inner)


def parse_update(
    update: Any,
    array_filters: list[Document] | None = None,
    clock: Callable[[], Any] = lambda: None,
    constants: Document | None = None,
    whole_bytes: int = 0,
) -> Operators | Replacement | Pipeline:
    """The update that a command gives: a list is a pipeline, a document with operators or without."""
    if isinstance(update, list):
        if array_filters:
            raise MongoError(9, "arrayFilters may not be specified for pipeline-style updates")
        return Pipeline(update, constants, whole_bytes)
    if not isinstance(update, dict):
        raise MongoError(9, "Update argument must be either an object or an array")
    if next(iter(update), "").startswith("$"):
        return Operators(update, array_filters, clock)
    return Replacement(update)


__all__ = ["Operators", "Pipeline", "Replacement", "UpdateResult", "check_id", "flatten_conditions", "parse_update"]
