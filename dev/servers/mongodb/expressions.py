"""Aggregation expressions: ``compiled(expression)(document, variables)`` computes one. An unknown operator is refused with the server's error.

A value that is not there is :data:`MISSING`; most operators take it for null.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from bson import Decimal128, Int64, ObjectId, Timestamp
from bson.datetime_ms import DatetimeMS

from dev.servers.mongodb import numbers, order
from dev.servers.mongodb.documents import INT32, Document, Symbol, Undefined
from dev.servers.mongodb.errors import MongoError, type_name
from dev.servers.mongodb.queries import MISSING, Missing

Variables = dict[str, Any]
Expression = Callable[[Any, Variables], Any]


def compiled(expression: Any) -> Expression:
    """The function that computes an expression."""
    if isinstance(expression, str) and expression.startswith("$$"):
        return _variable(expression[2:])
    if isinstance(expression, str) and expression.startswith("$"):
        if len(expression) == 1:
            raise MongoError(16872, "'$' by itself is not a valid FieldPath")
        parts = expression[1:].split(".")
        return lambda document, variables: walked(document, parts)
    if isinstance(expression, list):
        items = [compiled(item) for item in expression]
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
    fields = {field: compiled(value) for field, value in expression.items()}

    def build(document: Any, variables: Variables) -> Document:
        computed = {field: value(document, variables) for field, value in fields.items()}
        return {field: value for field, value in computed.items() if value is not MISSING}

    return build


def _variable(path: str) -> Expression:
    name, *parts = path.split(".")

    def get(document: Any, variables: Variables) -> Any:
        if name in ("ROOT", "CURRENT"):
            return walked(variables.get("ROOT", document) if name == "ROOT" else document, parts)
        if name == "REMOVE":
            return MISSING
        if name == "NOW":
            import time

            return variables.get("NOW", DatetimeMS(time.time_ns() // 1_000_000))
        if name in ("KEEP", "PRUNE", "DESCEND"):
            return "$$" + name
        if name not in variables:
            raise MongoError(17276, f"Use of undefined variable: {name}")
        return walked(variables[name], parts)

    return get


def walked(value: Any, parts: list[str]) -> Any:
    """The value of a path; an array on the way gives the array of what its documents have there."""
    for i, part in enumerate(parts):
        if isinstance(value, dict):
            if part not in value:
                return MISSING
            value = value[part]
        elif isinstance(value, list):
            found = [walked(item, parts[i:]) for item in value if isinstance(item, dict | list)]
            return [item for item in found if item is not MISSING]
        else:
            return MISSING
    return value


def truth(value: Any) -> bool:
    """Whether a value counts as true: all but false, zero, null, undefined and what is missing."""
    if isinstance(value, bool):
        return value
    if order.is_number(value):
        return bool(order.number(value) != 0)
    return not (value is None or value is MISSING or isinstance(value, Undefined))


def is_null(value: Any) -> bool:
    """Whether a value is null, undefined or missing."""
    return value is None or value is MISSING or isinstance(value, Undefined)


def _null(value: Any) -> Any:
    return None if value is MISSING else value


def place(value: Any) -> tuple[Any, ...]:
    """What to compare a value by; missing comes before everything but the smallest key."""
    return (-0.5,) if isinstance(value, Missing) else order.key(value)


def _arguments(argument: Any) -> list[Expression]:
    return [compiled(item) for item in (argument if isinstance(argument, list) else [argument])]


def _eager(
    work: Callable[..., Any], *, count: tuple[int, int] | None = None, name: str = ""
) -> Callable[[Any], Expression]:
    """An operator that computes all its arguments first."""

    def maker(argument: Any) -> Expression:
        parts = _arguments(argument)
        if count and not count[0] <= len(parts) <= count[1]:
            raise MongoError(
                16020, f"Expression {name} takes exactly {count[0]} arguments. {len(parts)} were passed in."
            )
        return lambda document, variables: work(*[part(document, variables) for part in parts])

    return maker


def _compare(check: Callable[[Any, Any], Any]) -> Callable[..., Any]:
    return lambda one, other: check(place(one), place(other))


def _folded(work: Callable[[Any, Any], Any], start: Any, code: int, name: str) -> Callable[..., Any]:
    def run(*values: Any) -> Any:
        out = start
        if any(is_null(value) for value in values):
            return None
        for value in values:
            if not order.is_number(value):
                if name == "$add" and isinstance(value, DatetimeMS):
                    out = DatetimeMS(int(value) + int(order.number(out)))
                    continue
                raise MongoError(14, f"{name} only supports numeric types, not {type_name(value)}")
            if isinstance(out, DatetimeMS):
                out = DatetimeMS(int(out) + int(order.number(value)))
            else:
                out = numbers.calculated(out, value, work, overflow_to_double=True)
        return out

    return run


def _subtract(one: Any, other: Any) -> Any:
    if is_null(one) or is_null(other):
        return None
    if isinstance(one, DatetimeMS):
        return (
            Int64(int(one) - int(other))
            if isinstance(other, DatetimeMS)
            else DatetimeMS(int(one) - int(order.number(other)))
        )
    if not order.is_number(one) or not order.is_number(other):
        raise MongoError(14, f"can't $subtract {type_name(other)} from {type_name(one)}")
    return numbers.calculated(one, other, lambda a, b: a - b, overflow_to_double=True)


def _divide(one: Any, other: Any) -> Any:
    if is_null(one) or is_null(other):
        return None
    if not order.is_number(one) or not order.is_number(other):
        raise MongoError(14, f"$divide only supports numeric types, not {type_name(one)} and {type_name(other)}")
    if order.number(other) == 0:
        raise MongoError(2, "can't $divide by zero")
    if isinstance(one, Decimal128) or isinstance(other, Decimal128):
        return numbers.calculated(one, other, lambda a, b: a / b)
    return float(order.number(one)) / float(order.number(other))


def _mod(one: Any, other: Any) -> Any:
    if is_null(one) or is_null(other):
        return None
    if not order.is_number(one) or not order.is_number(other):
        raise MongoError(16611, f"$mod only supports numeric types, not {type_name(one)} and {type_name(other)}")
    if order.number(other) == 0:
        raise MongoError(16610, "can't $mod by zero")
    return numbers.calculated(
        one,
        other,
        lambda a, b: math.fmod(a, b) if isinstance(a, float) else int(math.copysign(1, a)) * (abs(a) % abs(b)),
    )


def _numeric(name: str, work: Callable[[Any], Any]) -> Callable[..., Any]:
    def run(value: Any) -> Any:
        if is_null(value):
            return None
        if not order.is_number(value):
            raise MongoError(28765, f"{name} only supports numeric types, not {type_name(value)}")
        result = work(value.to_decimal() if isinstance(value, Decimal128) else value)
        if isinstance(value, Decimal128):
            return Decimal128(numbers.as_decimal(result) if isinstance(result, int | float) else result)
        if isinstance(value, float):
            return float(result)
        return Int64(result) if isinstance(value, Int64) or result not in INT32 else int(result)

    return run


def _concat(*values: Any) -> Any:
    if any(is_null(value) for value in values):
        return None
    for value in values:
        if not isinstance(value, str):
            raise MongoError(16702, f"$concat only supports strings, not {type_name(value)}")
    return "".join(values)


def _concat_arrays(*values: Any) -> Any:
    if any(is_null(value) for value in values):
        return None
    for value in values:
        if not isinstance(value, list):
            raise MongoError(28664, f"$concatArrays only supports arrays, not {type_name(value)}")
    return [item for value in values for item in value]


def _slice(items: Any, *bounds: Any) -> Any:
    if is_null(items) or any(is_null(bound) for bound in bounds):
        return None
    if not isinstance(items, list):
        raise MongoError(28724, f"First argument to $slice must be an array, but is of type: {type_name(items)}")
    counts = [_whole(bound, "$slice") for bound in bounds]
    if len(counts) == 1:
        return items[: counts[0]] if counts[0] >= 0 else items[counts[0] :]
    start, length = counts
    if length <= 0:
        raise MongoError(28729, f"Third argument to $slice must be positive: {length}")
    start = start if start >= 0 else max(len(items) + start, 0)
    return items[start : start + length]


def _whole(value: Any, name: str) -> int:
    if not order.is_number(value) or order.number(value) != int(order.number(value)):
        raise MongoError(28725, f"argument to {name} must be a whole number, but is: {value}")
    return int(order.number(value))


def _element(items: Any, index: Any) -> Any:
    if is_null(items) or is_null(index):
        return None
    if not isinstance(items, list):
        raise MongoError(28689, f"$arrayElemAt's first argument must be an array, but is {type_name(items)}")
    at = _whole(index, "$arrayElemAt")
    return items[at] if -len(items) <= at < len(items) else MISSING


def _size(items: Any) -> Any:
    if not isinstance(items, list):
        raise MongoError(
            17124,
            f"The argument to $size must be an array, but was of type: {'missing' if items is MISSING else type_name(items)}",
        )
    return len(items)


def _merge_objects(*values: Any) -> Any:
    out: Document = {}
    given = values[0] if len(values) == 1 and isinstance(values[0], list) else values
    for value in given:
        if is_null(value):
            continue
        if not isinstance(value, dict):
            raise MongoError(
                40400, f"$mergeObjects requires object inputs, but input {value} is of type {type_name(value)}"
            )
        out |= value
    return out


def _in(value: Any, items: Any) -> Any:
    if not isinstance(items, list):
        raise MongoError(
            40081,
            f"$in requires an array as a second argument, found: {'missing' if items is MISSING else type_name(items)}",
        )
    return any(place(value) == place(item) for item in items)


def _set_union(*values: Any) -> Any:
    if any(is_null(value) for value in values):
        return None
    out: dict[Any, Any] = {}
    for value in values:
        for item in value:
            out.setdefault(order.key(item), item)
    return [out[key] for key in sorted(out)]


def _set_intersection(*values: Any) -> Any:
    if any(is_null(value) for value in values):
        return None
    first, *rest = [{order.key(item): item for item in value} for value in values]
    return [first[key] for key in sorted(first) if all(key in other for other in rest)]


def _set_difference(one: Any, other: Any) -> Any:
    if is_null(one) or is_null(other):
        return None
    seen = {order.key(item) for item in other}
    return [item for item in one if order.key(item) not in seen and not seen.add(order.key(item))]  # type: ignore[func-returns-value]


def _object_to_array(value: Any) -> Any:
    if is_null(value):
        return None
    if not isinstance(value, dict):
        raise MongoError(40390, f"$objectToArray requires a document input, found: {type_name(value)}")
    return [{"k": name, "v": item} for name, item in value.items()]


def _array_to_object(value: Any) -> Any:
    if is_null(value):
        return None
    if not isinstance(value, list):
        raise MongoError(40386, f"$arrayToObject requires an array input, found: {type_name(value)}")
    return {item["k"]: item["v"] if isinstance(item, dict) else item[1] for item in value if isinstance(item, dict)} | {
        item[0]: item[1] for item in value if isinstance(item, list)
    }


def _text(value: Any) -> str:
    if is_null(value):
        return ""
    return value.text if isinstance(value, Symbol) else str(value)


def _substr(value: Any, start: Any, length: Any) -> str:
    text, begin, count = _text(value), int(order.number(start)), int(order.number(length))
    return text[begin:] if count < 0 else text[begin : begin + count]


def _split(value: Any, separator: Any) -> Any:
    return None if is_null(value) or is_null(separator) else value.split(separator)


def _extreme(pick: Callable[..., Any]) -> Callable[..., Any]:
    def run(*values: Any) -> Any:
        items = values[0] if len(values) == 1 and isinstance(values[0], list) else values
        real = [item for item in items if not is_null(item)]
        return pick(real, key=order.key) if real else None

    return run


def _sum(*values: Any) -> Any:
    items = values[0] if len(values) == 1 and isinstance(values[0], list) else values
    out: Any = 0
    for item in items:
        if order.is_number(item):
            out = numbers.calculated(out, item, numbers.add, overflow_to_double=True)
    return out


def _avg(*values: Any) -> Any:
    items = [
        item
        for item in (values[0] if len(values) == 1 and isinstance(values[0], list) else values)
        if order.is_number(item)
    ]
    return _divide(_sum(items), len(items)) if items else None


def _cond(argument: Any) -> Expression:
    if isinstance(argument, dict):
        if missing := [part for part in ("if", "then", "else") if part not in argument]:
            raise MongoError(17080, f"Missing '{missing[0]}' parameter to $cond")
        parts = [argument["if"], argument["then"], argument["else"]]
    else:
        parts = argument
    test, yes, no = (compiled(part) for part in parts)
    return lambda document, variables: (yes if truth(test(document, variables)) else no)(document, variables)


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
    branches = [(compiled(branch["case"]), compiled(branch["then"])) for branch in argument["branches"]]
    default = compiled(argument["default"]) if "default" in argument else None

    def run(document: Any, variables: Variables) -> Any:
        for case, then in branches:
            if truth(case(document, variables)):
                return then(document, variables)
        if default is None:
            raise MongoError(
                40066, "$switch could not find a matching branch for an input, and no default was specified."
            )
        return default(document, variables)

    return run


def _and(argument: Any) -> Expression:
    parts = _arguments(argument)
    return lambda document, variables: all(truth(part(document, variables)) for part in parts)


def _or(argument: Any) -> Expression:
    parts = _arguments(argument)
    return lambda document, variables: any(truth(part(document, variables)) for part in parts)


def _map(argument: Document) -> Expression:
    items, work, name = compiled(argument["input"]), compiled(argument["in"]), argument.get("as", "this")

    def run(document: Any, variables: Variables) -> Any:
        found = items(document, variables)
        if is_null(found):
            return None
        if not isinstance(found, list):
            raise MongoError(16883, f"input to $map must be an array not {type_name(found)}")
        return [_null(work(document, {**variables, name: item})) for item in found]

    return run


def _filter(argument: Document) -> Expression:
    items, test, name = compiled(argument["input"]), compiled(argument["cond"]), argument.get("as", "this")

    def run(document: Any, variables: Variables) -> Any:
        found = items(document, variables)
        if is_null(found):
            return None
        if not isinstance(found, list):
            raise MongoError(28651, f"input to $filter must be an array not {type_name(found)}")
        return [item for item in found if truth(test(document, {**variables, name: item}))]

    return run


def _reduce(argument: Document) -> Expression:
    items, start, work = (compiled(argument[part]) for part in ("input", "initialValue", "in"))

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
    defined, work = {name: compiled(value) for name, value in argument["vars"].items()}, compiled(argument["in"])
    return lambda document, variables: work(
        document, {**variables, **{name: value(document, variables) for name, value in defined.items()}}
    )


def _get_field(argument: Any) -> Expression:
    name, source = (
        (argument["field"], argument.get("input", "$$CURRENT"))
        if isinstance(argument, dict) and "field" in argument
        else (argument, "$$CURRENT")
    )
    field, holder = compiled(name), compiled(source)

    def run(document: Any, variables: Variables) -> Any:
        found = holder(document, variables)
        if isinstance(found, dict):
            return found.get(field(document, variables), MISSING)
        return None if is_null(found) and found is not MISSING else MISSING

    return run


def _set_field(argument: Document) -> Expression:
    if not isinstance(argument, dict) or "field" not in argument or "input" not in argument:
        raise MongoError(4161100, "$setField requires 'field', 'input' and 'value' to be specified")
    field = compiled(argument["field"])
    holder, value = compiled(argument["input"]), compiled(argument.get("value", "$$REMOVE"))

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


def _to_int(value: Any) -> Any:
    if is_null(value):
        return None
    return (
        int(float(value)) if isinstance(value, str) else int(value if isinstance(value, bool) else order.number(value))
    )


def _to_string(value: Any) -> Any:
    if is_null(value):
        return None
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, ObjectId | Decimal128):
        return str(value)
    return (
        repr(value).removesuffix(".0")
        if isinstance(value, float)
        else str(int(value))
        if isinstance(value, int)
        else str(value)
    )


def _to_date(value: Any) -> Any:
    if is_null(value):
        return None
    if isinstance(value, ObjectId):
        return DatetimeMS(int(value.generation_time.timestamp() * 1000))
    if isinstance(value, Timestamp):
        return DatetimeMS(value.time * 1000)
    return value if isinstance(value, DatetimeMS) else DatetimeMS(int(order.number(value)))


def _reverse(value: Any) -> Any:
    return None if is_null(value) else value[::-1]


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
    "$not": _eager(lambda value: not truth(value), count=(1, 1), name="$not"),
    "$cond": _cond,
    "$ifNull": _if_null,
    "$switch": _switch,
    "$add": _eager(_folded(numbers.add, 0, 16554, "$add")),
    "$multiply": _eager(_folded(numbers.multiply, 1, 16555, "$multiply")),
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
    "$in": _eager(_in, count=(2, 2), name="$in"),
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
    "$toLower": _eager(lambda value: _text(value).lower(), count=(1, 1), name="$toLower"),
    "$toUpper": _eager(lambda value: _text(value).upper(), count=(1, 1), name="$toUpper"),
    "$substrCP": _eager(_substr, count=(3, 3), name="$substrCP"),
    "$split": _eager(_split, count=(2, 2), name="$split"),
    "$strLenCP": _eager(lambda value: len(_text(value)), count=(1, 1), name="$strLenCP"),
    "$toInt": _eager(_to_int, count=(1, 1), name="$toInt"),
    "$toLong": _eager(lambda value: None if is_null(value) else Int64(_to_int(value)), count=(1, 1), name="$toLong"),
    "$toDouble": _eager(
        lambda value: None if is_null(value) else float(order.number(value)), count=(1, 1), name="$toDouble"
    ),
    "$toDecimal": _eager(
        lambda value: None if is_null(value) else Decimal128(numbers.as_decimal(value)), count=(1, 1), name="$toDecimal"
    ),
    "$toString": _eager(_to_string, count=(1, 1), name="$toString"),
    "$toBool": _eager(lambda value: None if is_null(value) else truth(value), count=(1, 1), name="$toBool"),
    "$toDate": _eager(_to_date, count=(1, 1), name="$toDate"),
}
