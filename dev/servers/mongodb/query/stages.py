"""Aggregation stages on documents: ``compiled(pipeline)(documents)``. An unknown stage is refused with the server's error.

Stages that read other collections are in :mod:`dev.servers.mongodb.query.joins`, those that write in :mod:`dev.servers.mongodb.commands.outputs`; those that ask the server
about itself are commands' own (:mod:`dev.servers.mongodb.commands.aggregation`).
"""

from __future__ import annotations

import bisect
import itertools
import random
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from dev.servers.mongodb.expressions import expressions, operators
from dev.servers.mongodb.expressions.expressions import Expression
from dev.servers.mongodb.query import projections, queries
from dev.servers.mongodb.values import order
from dev.servers.mongodb.values.documents import Document
from dev.servers.mongodb.values.errors import MongoError, type_name
from dev.servers.mongodb.values.missing import MISSING

Documents = Iterable[Document]
Stage = Callable[[Documents], Iterator[Document]]
Read = Callable[[str], Documents]
"""The documents of another collection of the database."""
READING: dict[str, Callable[[Any, Document, Read], Stage]] = {}
"""The stages that need other collections."""


def compile_pipeline(pipeline: list[Document], constants: Document | None = None, read: Read | None = None) -> Stage:
    """The pipeline as a function from documents to documents; ``constants`` are variables for all expressions.

    Without ``read`` there are no other collections, and the stages that read them are not known.
    """
    steps = [stage(item, dict(constants or {}), read) for item in pipeline]

    def run(documents: Documents) -> Iterator[Document]:
        for step in steps:
            documents = step(documents)
        return iter(documents)

    return run


def stage(item: Any, variables: Document, read: Read | None = None) -> Stage:
    """Compile a stage of a pipeline."""
    if not isinstance(item, dict) or len(item) != 1:
        raise MongoError(40323, "A pipeline stage specification object must contain exactly one field.")
    name, argument = next(iter(item.items()))
    if name in READING and read is not None:
        return READING[name](argument, variables, read)
    maker = _STAGES.get(name)
    if maker is None:
        raise MongoError(40324, f"Unrecognized pipeline stage name: '{name}'")
    return maker(argument, variables)


def _each(work: Callable[[Document], Document | None]) -> Stage:
    def run(documents: Documents) -> Iterator[Document]:
        for document in documents:
            out = work(document)
            if out is not None:
                yield out

    return run


def _match(argument: Any, variables: Document) -> Stage:
    if not isinstance(argument, dict):
        raise MongoError(15959, "the match filter must be an expression in an object")
    test = queries.compile_filter(argument, variables)
    return _each(lambda document: document if test(document) else None)


def _project(argument: Any, variables: Document) -> Stage:
    if not isinstance(argument, dict) or not argument:
        raise MongoError(
            51272 if isinstance(argument, dict) else 15969,
            "Invalid $project :: caused by :: projection specification must have at least one field",
        )
    work = projections.compile_projection(argument, variables)
    return _each(work)


def _add_fields(argument: Any, variables: Document) -> Stage:
    if not isinstance(argument, dict):
        raise MongoError(40272, "$addFields specification stage must be an object")
    work = projections.adding(argument, variables)
    return _each(work)


def _unset(argument: Any, variables: Document) -> Stage:
    names = argument if isinstance(argument, list) else [argument]
    if not names or not all(isinstance(name, str) for name in names):
        raise MongoError(31002, "$unset specification must be a string or an array")
    return _each(projections.compile_projection(dict.fromkeys(names, 0), variables))


def _replace(expression: Any, variables: Document) -> Stage:
    compute = expressions.compile_expression(expression)

    def replace_document(document: Document) -> Document:
        made = compute(document, {**variables, "ROOT": document})
        if not isinstance(made, dict):
            what = "missing" if made is MISSING else type_name(made)
            raise MongoError(
                40228, f"'newRoot' expression must evaluate to an object, but resulting value was of type: {what}"
            )
        return made

    return _each(replace_document)


def _replace_root(argument: Any, variables: Document) -> Stage:
    if not isinstance(argument, dict) or "newRoot" not in argument:
        raise MongoError(40231, "no newRoot specified for the $replaceRoot stage")
    return _replace(argument["newRoot"], variables)


def _redact(argument: Any, variables: Document) -> Stage:
    compute = expressions.compile_expression(argument)

    def redact_document(document: Document) -> Document | None:
        verdict = compute(document, {**variables, "ROOT": document})
        if verdict == "$$PRUNE":
            return None
        if verdict == "$$KEEP":
            return document
        if verdict != "$$DESCEND":
            raise MongoError(
                17053,
                "$redact's expression should not return anything aside from the variables $$KEEP, $$DESCEND, and $$PRUNE",
            )
        out: Document = {}
        for name, value in document.items():
            if isinstance(value, dict):
                if (kept := redact_document(value)) is not None:
                    out[name] = kept
            elif isinstance(value, list):
                items = [redact_document(item) if isinstance(item, dict) else item for item in value]
                out[name] = [item for item, old in zip(items, value, strict=True) if item is not None or old is None]
            else:
                out[name] = value
        return out

    return _each(redact_document)


def sorted_by(documents: Documents, spec: Document) -> list[Document]:
    """Documents in the order of a sort specification; arrays by their smallest or largest element."""
    out = list(documents)
    for path, direction in reversed(spec.items()):
        down = order.number(direction) < 0
        parts = path.split(".")
        out.sort(key=lambda document: _find_places(document, parts, down=down), reverse=down)
    return out


def _find_places(document: Document, parts: list[str], *, down: bool) -> tuple[Any, ...]:
    places = []
    for value in queries.values(document, parts):
        if isinstance(value, list):
            places += [order.key(item) for item in value] or [(0.5,)]
        else:
            places.append(order.key(None if value is MISSING else value))
    return (max if down else min)(places) if places else order.key(None)


def _sort(argument: Any, variables: Document) -> Stage:
    return lambda documents: iter(sorted_by(documents, argument))


def _limit(argument: Any, variables: Document) -> Stage:
    if not order.is_number(argument) or argument <= 0:
        raise MongoError(15958, "the limit must be positive")

    def run(documents: Documents) -> Iterator[Document]:
        for index, document in enumerate(documents):
            if index >= argument:
                return
            yield document

    return run


def _skip(argument: Any, variables: Document) -> Stage:
    return lambda documents: (document for index, document in enumerate(documents) if index >= argument)


def _count(argument: Any, variables: Document) -> Stage:
    if not isinstance(argument, str) or not argument:
        raise MongoError(40156, "the count field must be a non-empty string")

    def run(documents: Documents) -> Iterator[Document]:
        number = sum(1 for _ in documents)
        if number:
            yield {argument: number}

    return run


def _sample(argument: Any, variables: Document) -> Stage:
    size = int(argument["size"])

    def run(documents: Documents) -> Iterator[Document]:
        found = list(documents)
        return iter(random.sample(found, min(size, len(found))))

    return run


def _unwind(argument: Any, variables: Document) -> Stage:
    options = {"path": argument} if isinstance(argument, str) else argument
    parts = options["path"][1:].split(".")

    def run(documents: Documents) -> Iterator[Document]:
        for document in documents:
            value = operators.walk_path(document, parts)
            if isinstance(value, list) and value:
                for item in value:
                    yield projections.with_value(document, parts, item)
            elif (not isinstance(value, list) and not operators.is_null(value)) or options.get(
                "preserveNullAndEmptyArrays"
            ):
                yield document

    return run


_ACCUMULATORS: dict[str, Callable[[list[Any]], Any]] = {
    "$sum": lambda items: operators._sum(items),
    "$avg": lambda items: operators._avg(items),
    "$min": lambda items: operators._extreme(min)(items),
    "$max": lambda items: operators._extreme(max)(items),
    "$first": lambda items: items[0] if items else None,
    "$last": lambda items: items[-1] if items else None,
    "$push": list,
    "$addToSet": lambda items: list({order.key(item): item for item in items}.values()),
    "$count": len,
    "$mergeObjects": lambda items: operators._merge_objects(items),
}


def _fields(argument: Document) -> dict[str, tuple[str, Expression]]:
    out = {}
    for name, spec in argument.items():
        if name == "_id":
            continue
        operator = next(iter(spec)) if isinstance(spec, dict) and spec else ""
        if operator not in _ACCUMULATORS:
            raise MongoError(15952, f"unknown group operator '{operator}'")
        out[name] = (operator, expressions.compile_expression(spec[operator] if operator != "$count" else 1))
    return out


def _group(argument: Any, variables: Document) -> Stage:
    if not isinstance(argument, dict) or "_id" not in argument:
        raise MongoError(15955, "a group specification must include an _id")
    key, fields = expressions.compile_expression(argument["_id"]), _fields(argument)

    def run(documents: Documents) -> Iterator[Document]:
        groups: dict[Any, tuple[Any, list[Document]]] = {}
        for document in documents:
            value = key(document, {**variables, "ROOT": document})
            value = None if value is MISSING else value
            groups.setdefault(order.key(value), (value, []))[1].append(document)
        for value, members in groups.values():
            yield {"_id": value, **_accumulate_fields(fields, members, variables)}

    return run


def _accumulate_fields(
    fields: dict[str, tuple[str, Expression]], members: list[Document], variables: Document
) -> Document:
    out: Document = {}
    for name, (operator, compute) in fields.items():
        items = [compute(document, {**variables, "ROOT": document}) for document in members]
        kept = (
            [item for item in items if item is not MISSING]
            if operator in ("$push", "$addToSet")
            else [None if item is MISSING else item for item in items]
        )
        out[name] = _ACCUMULATORS[operator](kept)
    return out


def _bucket_auto(argument: Any, variables: Document) -> Stage:
    key, count = expressions.compile_expression(argument["groupBy"]), int(argument["buckets"])
    fields = _fields(argument.get("output", {"count": {"$sum": 1}}))

    def run(documents: Documents) -> Iterator[Document]:
        keyed = sorted(
            ((key(document, variables), document) for document in documents),
            key=lambda item: operators.sort_key(item[0]),
        )
        start, size = 0, max(round(len(keyed) / count), 1)
        made = 0
        while start < len(keyed):
            made += 1
            end = len(keyed) if made == count else min(start + size, len(keyed))
            while end < len(keyed) and operators.sort_key(keyed[end][0]) == operators.sort_key(keyed[end - 1][0]):
                end += 1
            upper = keyed[end][0] if end < len(keyed) else keyed[-1][0]
            yield {
                "_id": {"min": keyed[start][0], "max": upper},
                **_accumulate_fields(fields, [document for _, document in keyed[start:end]], variables),
            }
            start = end

    return run


def _bucket(argument: Any, variables: Document) -> Stage:
    if not isinstance(argument, dict) or "groupBy" not in argument or "boundaries" not in argument:
        raise MongoError(40198, "$bucket requires 'groupBy' and 'boundaries' to be specified.")
    key, bounds = expressions.compile_expression(argument["groupBy"]), argument["boundaries"]
    places = [order.key(bound) for bound in bounds] if isinstance(bounds, list) else []
    if len(places) < 2:
        raise MongoError(40192, "The $bucket 'boundaries' field must have at least 2 values")
    if any(one >= other for one, other in itertools.pairwise(places)):
        raise MongoError(40194, "The 'boundaries' option to $bucket must be sorted")
    fields = _fields(argument.get("output", {"count": {"$sum": 1}}))

    def run(documents: Documents) -> Iterator[Document]:
        buckets: dict[Any, tuple[Any, list[Document]]] = {}
        for document in documents:
            value = key(document, {**variables, "ROOT": document})
            number = bisect.bisect_right(places, operators.sort_key(value)) - 1
            inside = 0 <= number < len(places) - 1 and value is not MISSING
            if not inside and "default" not in argument:
                raise MongoError(40066, "$switch could not find a matching branch for an input, and no default was specified.")  # fmt: skip
            name = bounds[number] if inside else argument["default"]
            buckets.setdefault(order.key(name), (name, []))[1].append(document)
        for _, (name, members) in sorted(buckets.items()):
            yield {"_id": name, **_accumulate_fields(fields, members, variables)}

    return run


def _sort_by_count(argument: Any, variables: Document) -> Stage:
    group = _group({"_id": argument, "count": {"$sum": 1}}, variables)
    return lambda documents: iter(sorted_by(group(documents), {"count": -1}))


_STAGES: dict[str, Callable[[Any, Document], Stage]] = {
    "$match": _match,
    "$project": _project,
    "$addFields": _add_fields,
    "$set": _add_fields,
    "$unset": _unset,
    "$replaceRoot": _replace_root,
    "$replaceWith": _replace,
    "$redact": _redact,
    "$sort": _sort,
    "$limit": _limit,
    "$skip": _skip,
    "$count": _count,
    "$sample": _sample,
    "$unwind": _unwind,
    "$group": _group,
    "$bucket": _bucket,
    "$bucketAuto": _bucket_auto,
    "$sortByCount": _sort_by_count,
}
KNOWN = frozenset({*_STAGES, "$lookup", "$graphLookup", "$unionWith", "$facet", "$out", "$merge"})
"""The stages that there are."""
