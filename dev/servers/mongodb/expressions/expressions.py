"""Aggregation expressions: ``compiled(expression)(document, variables)`` computes one. An unknown operator is refused with the server's error.

A value that is not there is :data:`MISSING`; most operators take it for null.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from bson.datetime_ms import DatetimeMS

from dev.servers.mongodb.expressions import array_and_number_operators, conversions, dates, text_operators
from dev.servers.mongodb.expressions.operators import (
    _array_to_object,
    _avg,
    _compare,
    _concat,
    _concat_arrays,
    _contains_value,
    _divide,
    _element,
    _extreme,
    _make_fold_operator,
    _merge_objects,
    _mod,
    _null,
    _numeric,
    _object_to_array,
    _reverse,
    _set_difference,
    _set_intersection,
    _set_union,
    _size,
    _slice,
    _substr,
    _subtract,
    _sum,
    is_null,
    is_true,
    walk_path,
)
from dev.servers.mongodb.values import numbers, order
from dev.servers.mongodb.values.documents import Document
from dev.servers.mongodb.values.errors import MongoError, type_name
from dev.servers.mongodb.values.missing import MISSING

Variables = dict[str, Any]
Expression = Callable[[Any, Variables], Any]


def compile_expression(expression: Any) -> Expression:
    """The function that computes an expression."""
    if isinstance(expression, str) and expression.startswith("$$"):
        return _variable(expression[2:])
    if isinstance(expression, str) and expression.startswith("$"):
        if len(expression) == 1:
            raise MongoError(16872, "'$' by itself is not a valid FieldPath")
        parts = expression[1:].split(".")
        return lambda document, variables: walk_path(document, parts)
    if isinstance(expression, list):
        items = [compile_expression(item) for item in expression]
        return lambda document, variables: [_null(item(document, variables)) for item in items]
    if isinstance(expression, dict):
        return _of_document(expression)
    return lambda document, variables: expression


def _of_document(expression: Document) -> Expression:
    name = next(iter(expression), "")
    if name.startswith("$"):
        if len(expression) != 1:
            raise MongoError(15983, f"an object representing an expression must have exactly one field: {expression}")
        maker = _MAKERS.get(name)
        if maker is None:
            raise MongoError(168, f"Unrecognized expression '{name}'")
        return maker(expression[name])
    fields = {field: compile_expression(value) for field, value in expression.items()}

    def build(document: Any, variables: Variables) -> Document:
        computed = {field: value(document, variables) for field, value in fields.items()}
        return {field: value for field, value in computed.items() if value is not MISSING}

    return build


def _variable(path: str) -> Expression:
    name, *parts = path.split(".")

    def get(document: Any, variables: Variables) -> Any:
        if name in ("ROOT", "CURRENT"):
            return walk_path(variables.get("ROOT", document) if name == "ROOT" else document, parts)
        if name == "REMOVE":
            return MISSING
        if name == "NOW":
            import time

            return variables.get("NOW", DatetimeMS(time.time_ns() // 1_000_000))
        if name in ("KEEP", "PRUNE", "DESCEND"):
            return "$$" + name
        if name not in variables:
            raise MongoError(17276, f"Use of undefined variable: {name}")
        return walk_path(variables[name], parts)

    return get


def _arguments(argument: Any) -> list[Expression]:
    return [compile_expression(item) for item in (argument if isinstance(argument, list) else [argument])]


def _eager(
    work: Callable[..., Any], *, count: tuple[int, int] | None = None, name: str = ""
) -> Callable[[Any], Expression]:
    """An operator that computes all its arguments first."""

    def maker(argument: Any) -> Expression:
        parts = _arguments(argument)
        if count and not count[0] <= len(parts) <= count[1]:
            expected = (
                f"exactly {count[0]}"
                if count[0] == count[1]
                else f"at least {count[0]} arguments, and at most {count[1]}"
            )
            raise MongoError(
                16020 if count[0] == count[1] else 28667,
                f"Expression {name} takes {expected} arguments. {len(parts)} were passed in.",
            )
        return lambda document, variables: work(*[part(document, variables) for part in parts])

    return maker


def _cond(argument: Any) -> Expression:
    if isinstance(argument, dict):
        if missing := [part for part in ("if", "then", "else") if part not in argument]:
            raise MongoError(17080, f"Missing '{missing[0]}' parameter to $cond")
        parts = [argument["if"], argument["then"], argument["else"]]
    else:
        parts = argument
    test, yes, no = (compile_expression(part) for part in parts)
    return lambda document, variables: (yes if is_true(test(document, variables)) else no)(document, variables)


def _if_null(argument: Any) -> Expression:
    parts = _arguments(argument)

    def run(document: Any, variables: Variables) -> Any:
        value: Any = None
        for part in parts:
            value = part(document, variables)
            if not is_null(value):
                break
        return value

    return run


def _switch(argument: Document) -> Expression:
    branches = [
        (compile_expression(branch["case"]), compile_expression(branch["then"])) for branch in argument["branches"]
    ]
    default = compile_expression(argument["default"]) if "default" in argument else None

    def run(document: Any, variables: Variables) -> Any:
        for case, then in branches:
            if is_true(case(document, variables)):
                return then(document, variables)
        if default is None:
            raise MongoError(
                40066, "$switch could not find a matching branch for an input, and no default was specified."
            )
        return default(document, variables)

    return run


def _and(argument: Any) -> Expression:
    parts = _arguments(argument)
    return lambda document, variables: all(is_true(part(document, variables)) for part in parts)


def _or(argument: Any) -> Expression:
    parts = _arguments(argument)
    return lambda document, variables: any(is_true(part(document, variables)) for part in parts)


def _map(argument: Document) -> Expression:
    items, work, name = (
        compile_expression(argument["input"]),
        compile_expression(argument["in"]),
        argument.get("as", "this"),
    )

    def run(document: Any, variables: Variables) -> Any:
        found = items(document, variables)
        if is_null(found):
            return None
        if not isinstance(found, list):
            raise MongoError(16883, f"input to $map must be an array not {type_name(found)}")
        return [_null(work(document, {**variables, name: item})) for item in found]

    return run


def _filter(argument: Document) -> Expression:
    items, test, name = (
        compile_expression(argument["input"]),
        compile_expression(argument["cond"]),
        argument.get("as", "this"),
    )

    def run(document: Any, variables: Variables) -> Any:
        found = items(document, variables)
        if is_null(found):
            return None
        if not isinstance(found, list):
            raise MongoError(28651, f"input to $filter must be an array not {type_name(found)}")
        return [item for item in found if is_true(test(document, {**variables, name: item}))]

    return run


def _reduce(argument: Document) -> Expression:
    items, start, work = (compile_expression(argument[part]) for part in ("input", "initialValue", "in"))

    def run(document: Any, variables: Variables) -> Any:
        found = items(document, variables)
        if is_null(found):
            return None
        value = start(document, variables)
        for item in found:
            value = work(document, {**variables, "value": value, "this": item})
        return value

    return run


def _let(argument: Document) -> Expression:
    defined, work = (
        {name: compile_expression(value) for name, value in argument["vars"].items()},
        compile_expression(argument["in"]),
    )
    return lambda document, variables: work(
        document, {**variables, **{name: value(document, variables) for name, value in defined.items()}}
    )


def _get_field(argument: Any) -> Expression:
    name, source = (
        (argument["field"], argument.get("input", "$$CURRENT"))
        if isinstance(argument, dict) and "field" in argument
        else (argument, "$$CURRENT")
    )
    field, holder = compile_expression(name), compile_expression(source)

    def run(document: Any, variables: Variables) -> Any:
        found = holder(document, variables)
        if isinstance(found, dict):
            return found.get(field(document, variables), MISSING)
        return None if is_null(found) and found is not MISSING else MISSING

    return run


def _set_field(argument: Document) -> Expression:
    if not isinstance(argument, dict) or "field" not in argument or "input" not in argument:
        raise MongoError(4161100, "$setField requires 'field', 'input' and 'value' to be specified")
    field = compile_expression(argument["field"])
    holder, value = compile_expression(argument["input"]), compile_expression(argument.get("value", "$$REMOVE"))

    def run(document: Any, variables: Variables) -> Any:
        found = holder(document, variables)
        if is_null(found):
            return None
        if not isinstance(found, dict):
            raise MongoError(4161105, "$setField requires 'input' to evaluate to type Object")
        name, new = field(document, variables), value(document, variables)
        if new is MISSING:
            return {key: item for key, item in found.items() if key != name}
        return {**found, name: new}

    return run


def _make_named_operator(
    name: str, work: Callable[..., Any], needed: tuple[str, ...], more: tuple[str, ...]
) -> Callable[[Any], Expression]:
    """An operator whose arguments have names."""

    def maker(argument: Any) -> Expression:
        if not isinstance(argument, dict):
            raise MongoError(9, f"{name} requires an object as an argument, found: {type_name(argument)}")
        for field in argument:
            if field not in (*needed, *more):
                raise MongoError(9, f"{name} found an unknown argument: {field}")
        if missing := [field for field in needed if field not in argument]:
            raise MongoError(9, f"{name} requires '{missing[0]}' to be specified")
        parts = {field: compile_expression(value) for field, value in argument.items()}
        return lambda document, variables: work(**{field: part(document, variables) for field, part in parts.items()})

    return maker


_MAKERS: dict[str, Callable[[Any], Expression]] = {
    "$literal": lambda argument: lambda document, variables: argument,
    "$const": lambda argument: lambda document, variables: argument,
    "$eq": _eager(_compare(lambda a, b: a == b), count=(2, 2), name="$eq"),
    "$ne": _eager(_compare(lambda a, b: a != b), count=(2, 2), name="$ne"),
    "$gt": _eager(_compare(lambda a, b: a > b), count=(2, 2), name="$gt"),
    "$gte": _eager(_compare(lambda a, b: a >= b), count=(2, 2), name="$gte"),
    "$lt": _eager(_compare(lambda a, b: a < b), count=(2, 2), name="$lt"),
    "$lte": _eager(_compare(lambda a, b: a <= b), count=(2, 2), name="$lte"),
    "$cmp": _eager(_compare(lambda a, b: (a > b) - (a < b)), count=(2, 2), name="$cmp"),
    "$and": _and,
    "$or": _or,
    "$not": _eager(lambda value: not is_true(value), count=(1, 1), name="$not"),
    "$cond": _cond,
    "$ifNull": _if_null,
    "$switch": _switch,
    "$add": _eager(_make_fold_operator(numbers.add, 0, 16554, "$add")),
    "$multiply": _eager(_make_fold_operator(numbers.multiply, 1, 16555, "$multiply")),
    "$subtract": _eager(_subtract, count=(2, 2), name="$subtract"),
    "$divide": _eager(_divide, count=(2, 2), name="$divide"),
    "$mod": _eager(_mod, count=(2, 2), name="$mod"),
    "$abs": _eager(_numeric("$abs", abs), count=(1, 1), name="$abs"),
    "$ceil": _eager(_numeric("$ceil", math.ceil), count=(1, 1), name="$ceil"),
    "$floor": _eager(_numeric("$floor", math.floor), count=(1, 1), name="$floor"),
    "$sum": _eager(_sum),
    "$avg": _eager(_avg),
    "$min": _eager(_extreme(min)),
    "$max": _eager(_extreme(max)),
    "$concat": _eager(_concat),
    "$concatArrays": _eager(_concat_arrays),
    "$slice": _eager(_slice, count=(2, 3), name="$slice"),
    "$arrayElemAt": _eager(_element, count=(2, 2), name="$arrayElemAt"),
    "$first": _eager(lambda items: _element(items, 0), count=(1, 1), name="$first"),
    "$last": _eager(lambda items: _element(items, -1), count=(1, 1), name="$last"),
    "$size": _eager(_size, count=(1, 1), name="$size"),
    "$isArray": _eager(lambda value: isinstance(value, list), count=(1, 1), name="$isArray"),
    "$isNumber": _eager(order.is_number, count=(1, 1), name="$isNumber"),
    "$in": _eager(_contains_value, count=(2, 2), name="$in"),
    "$reverseArray": _eager(_reverse, count=(1, 1), name="$reverseArray"),
    "$setUnion": _eager(_set_union),
    "$setIntersection": _eager(_set_intersection),
    "$setDifference": _eager(_set_difference, count=(2, 2), name="$setDifference"),
    "$mergeObjects": _eager(_merge_objects),
    "$objectToArray": _eager(_object_to_array, count=(1, 1), name="$objectToArray"),
    "$arrayToObject": _eager(_array_to_object, count=(1, 1), name="$arrayToObject"),
    "$map": _map,
    "$filter": _filter,
    "$reduce": _reduce,
    "$let": _let,
    "$getField": _get_field,
    "$setField": _set_field,
    "$unsetField": lambda argument: _set_field({**argument, "value": "$$REMOVE"}),
    "$type": _eager(lambda value: "missing" if value is MISSING else type_name(value), count=(1, 1), name="$type"),
    "$substrCP": _eager(_substr, count=(3, 3), name="$substrCP"),
}
_MAKERS |= {
    f"$to{to[0].upper()}{to[1:]}": _eager(conversions.shortly(to), count=(1, 1), name=f"$to{to}")
    for to in conversions.BY_NAME
}
_MAKERS |= {
    name: _eager(work, count=count, name=name)
    for name, (work, count) in (array_and_number_operators.EAGER | text_operators.EAGER).items()
}
_MAKERS |= {name: _eager(work, count=(1, 1), name=name) for name, work in dates.PARTS.items()}
_MAKERS |= {
    name: _make_named_operator(name, *given)
    for name, given in {
        **array_and_number_operators.NAMED,
        **text_operators.NAMED,
        **dates.NAMED,
        "$convert": (conversions.convert, ("input", "to"), ("onError", "onNull", "format", "byteOrder")),
    }.items()
}
