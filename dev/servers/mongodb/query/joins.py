"""Stages that read other collections, or run pipelines of their own: ``$lookup``, ``$graphLookup``, ``$unionWith``, ``$facet``.

By MongoDB's manual, each stage's page; no recording has them. Importing this module makes the stages known to :mod:`dev.servers.mongodb.query.stages`.
A ``$lookup`` looks at each document of the other collection once, whatever indexes there are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from dev.servers.mongodb.expressions import expressions, operators
from dev.servers.mongodb.query import projections, queries, stages
from dev.servers.mongodb.query.stages import Documents, Read, Stage
from dev.servers.mongodb.values import order
from dev.servers.mongodb.values.documents import Document
from dev.servers.mongodb.values.errors import MongoError, type_name
from dev.servers.mongodb.values.missing import MISSING

PARSE = 9
NOT_IN_FACET = frozenset(
    {"$facet", "$out", "$merge", "$changeStream", "$collStats", "$indexStats", "$geoNear", "$planCacheStats"}
)
LOOKUP = frozenset({"from", "localField", "foreignField", "let", "pipeline", "as"})
GRAPH = frozenset(
    {
        "from",
        "startWith",
        "connectFromField",
        "connectToField",
        "as",
        "maxDepth",
        "depthField",
        "restrictSearchWithMatch",
    }
)


def list_read_collections(pipeline: Any) -> Iterator[str]:
    """The collections that a pipeline reads beside its own, those of its inner pipelines too."""
    for stage in pipeline if isinstance(pipeline, list) else []:
        for name, argument in stage.items() if isinstance(stage, dict) else ():
            if name in ("$lookup", "$graphLookup") and isinstance(argument, dict):
                yield from [argument["from"]] if isinstance(argument.get("from"), str) else []
                yield from list_read_collections(argument.get("pipeline"))
            elif name == "$unionWith":
                other = argument if isinstance(argument, dict) else {"coll": argument}
                yield from [other["coll"]] if isinstance(other.get("coll"), str) else []
                yield from list_read_collections(other.get("pipeline"))
            elif name == "$facet" and isinstance(argument, dict):
                for inner in argument.values():
                    yield from list_read_collections(inner)


def _check_known_options(name: str, argument: Any, known: frozenset[str]) -> None:
    if not isinstance(argument, dict):
        raise MongoError(PARSE, f"the {name} stage specification must be an object, but found {type_name(argument)}")
    for field, value in argument.items():
        if field not in known:
            raise MongoError(PARSE, f"unknown argument to {name}: {field}: {value}")
    if not isinstance(argument.get("as"), str):
        raise MongoError(PARSE, f"must specify 'as' field for a {name}")


def _source(argument: Document, read: Read) -> tuple[Callable[[], Documents], list[Document]]:
    """Return the documents that an inner pipeline begins with, and its other stages."""
    pipeline = argument.get("pipeline") or []
    name = argument.get("from", argument.get("coll"))
    if name is None:
        if not pipeline or "$documents" not in pipeline[0]:
            raise MongoError(PARSE, "must specify 'from' or 'coll', or begin the pipeline with $documents")
        given = expressions.compile_expression(pipeline[0]["$documents"])({}, {})
        return lambda: iter(given), pipeline[1:]
    if not isinstance(name, str):
        raise MongoError(PARSE, f"a collection's name must be a string, but found {type_name(name)}")
    return lambda: read(name), pipeline


def _lookup(argument: Any, variables: Document, read: Read) -> Stage:
    _check_known_options("$lookup", argument, LOOKUP)
    by_fields = "localField" in argument or "foreignField" in argument
    if by_fields and not ("localField" in argument and "foreignField" in argument):
        raise MongoError(PARSE, "$lookup requires both or neither of 'localField' and 'foreignField' to be specified")
    if not by_fields and "pipeline" not in argument:
        raise MongoError(
            PARSE, "$lookup requires either 'pipeline' or both 'localField' and 'foreignField' to be specified"
        )
    if "let" in argument and "pipeline" not in argument:
        raise MongoError(PARSE, "$lookup with a 'let' argument must also specify 'pipeline'")
    source, pipeline = _source(argument, read)
    let = {name: expressions.compile_expression(value) for name, value in argument.get("let", {}).items()}
    place = argument["as"].split(".")
    stages.compile_pipeline(
        pipeline, {**variables, **dict.fromkeys(let)}, read
    )  # what is wrong is said before anything is read

    def run(documents: Documents) -> Iterator[Document]:
        others = list(source())
        matching = _matching(others, argument) if by_fields else None
        for document in documents:
            found = matching(document) if matching else others
            if pipeline:
                own = {name: value(document, {**variables, "ROOT": document}) for name, value in let.items()}
                found = list(stages.compile_pipeline(pipeline, {**variables, **own}, read)(found))
            yield projections.with_value(document, place, list(found))

    return run


def _matching(others: list[Document], argument: Document) -> Callable[[Document], list[Document]]:
    """Finds the other documents that are equal by the two fields; an array stands for each of its elements, no field for null."""
    local, foreign = argument["localField"].split("."), argument["foreignField"].split(".")
    places: dict[Any, list[int]] = {}
    for index, other in enumerate(others):
        for place in {order.key(value) for value in _values(other, foreign, whole=True)}:
            places.setdefault(place, []).append(index)

    def find(document: Document) -> list[Document]:
        expected = {order.key(value) for value in _values(document, local, whole=False)}
        return [others[index] for index in sorted({index for place in expected for index in places.get(place, ())})]

    return find


def _values(document: Document, path: list[str], *, whole: bool) -> Iterator[Any]:
    for value in queries.values(document, path):
        if isinstance(value, list):
            yield from value
            if whole:
                yield value
        else:
            yield None if operators.is_null(value) else value


def _graph_lookup(argument: Any, variables: Document, read: Read) -> Stage:
    _check_known_options("$graphLookup", argument, GRAPH)
    for field in ("from", "startWith", "connectFromField", "connectToField"):
        if field not in argument:
            raise MongoError(40105, f"$graphLookup requires '{field}' to be specified")
    start = expressions.compile_expression(argument["startWith"])
    deepest = argument.get("maxDepth")
    if deepest is not None and (not order.is_number(deepest) or deepest < 0):
        raise MongoError(40101, f"maxDepth requires a nonnegative argument, found: {deepest}")
    test = queries.compile_filter(argument.get("restrictSearchWithMatch", {}), variables)

    def run(documents: Documents) -> Iterator[Document]:
        others = [other for other in read(argument["from"]) if test(other)]
        for document in documents:
            value = start(document, {**variables, "ROOT": document})
            first = value if isinstance(value, list) else [] if value is MISSING else [value]
            found = list(_find_reached(others, first, argument, deepest))
            yield projections.with_value(document, argument["as"].split("."), found)

    return run


def _find_reached(others: list[Document], values: list[Any], argument: Document, deepest: Any) -> Iterator[Document]:
    """The documents that values lead to, those that these lead to, and so on; each once, with its depth where that is asked for."""
    leave, arrive = argument["connectFromField"].split("."), argument["connectToField"].split(".")
    seen: set[Any] = set()
    depth = 0
    while values and (deepest is None or depth <= deepest):
        expected, values = {order.key(value) for value in values}, []
        for other in others:
            if order.key(other["_id"]) in seen:
                continue
            if any(order.key(value) in expected for value in _values(other, arrive, whole=True)):
                seen.add(order.key(other["_id"]))
                values += _values(other, leave, whole=False)
                at = {argument["depthField"]: depth} if "depthField" in argument else {}
                yield {**other, **at}
        depth += 1


def _union_with(argument: Any, variables: Document, read: Read) -> Stage:
    given = {"coll": argument} if isinstance(argument, str) else argument
    if not isinstance(given, dict) or set(given) - {"coll", "pipeline"}:
        raise MongoError(PARSE, "the $unionWith stage specification must be an object or string with 'coll' and 'pipeline'")  # fmt: skip
    source, pipeline = _source(given, read)
    if refused := {next(iter(stage)) for stage in pipeline} & {"$out", "$merge"}:
        raise MongoError(31441, f"{min(refused)} is not allowed within a $unionWith's sub-pipeline")
    work = stages.compile_pipeline(pipeline, variables, read)

    def run(documents: Documents) -> Iterator[Document]:
        yield from documents
        yield from work(source())

    return run


def _facet(argument: Any, variables: Document, read: Read) -> Stage:
    if not isinstance(argument, dict) or not argument:
        raise MongoError(40169, "the $facet specification must be a non-empty object")
    parts = {}
    for name, pipeline in argument.items():
        if not isinstance(pipeline, list):
            raise MongoError(40170, f"arguments to $facet must be arrays, {name} is type {type_name(pipeline)}")
        if refused := {next(iter(stage)) for stage in pipeline} & NOT_IN_FACET:
            raise MongoError(40600, f"{min(refused)} is not allowed to be used within a $facet stage")
        parts[name] = stages.compile_pipeline(pipeline, variables, read)

    def run(documents: Documents) -> Iterator[Document]:
        found = list(documents)
        yield {name: list(work(iter(found))) for name, work in parts.items()}

    return run


stages.READING.update(
    {"$lookup": _lookup, "$graphLookup": _graph_lookup, "$unionWith": _union_with, "$facet": _facet},
)
