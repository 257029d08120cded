"""Why a document does not meet a filter: the ``details`` of the error of a collection's validator.

The form is that of MongoDB's manual ("Specify Validation With Query Operators"), the reasons are the texts of the server's source. No recording has it.
Operators under ``$not``, ``$ne``, ``$nin`` and ``$nor`` are explained the other way round: why they are met.

>>> explain_filter({"a": {"$gt": 5}}, {"a": 1})
{'operatorName': '$gt', 'specifiedAs': {'a': {'$gt': 5}}, 'reason': 'comparison failed', 'consideredValue': 1}
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from bson import Int64

from dev.servers.mongodb.expressions import expressions, operators
from dev.servers.mongodb.query import queries
from dev.servers.mongodb.query.json_schema import Schema
from dev.servers.mongodb.values.documents import Document, Regex
from dev.servers.mongodb.values.errors import MongoError, type_name
from dev.servers.mongodb.values.missing import MISSING

MOST_VALUES = 10
NUMBERS = ("decimal", "double", "int", "long")
BITS = ("$bitsAllSet", "$bitsAllClear", "$bitsAnySet", "$bitsAnyClear")
REASONS: dict[str, tuple[str, str]] = {
    **dict.fromkeys(("$eq", "$gt", "$gte", "$lt", "$lte"), ("comparison failed", "comparison succeeded")),
    "$in": ("no matching value found in array", "matching value found in array"),
    "$type": ("type did not match", "type did match"),
    "$exists": ("path does not exist", "path does exist"),
    "$regex": ("regular expression did not match", "regular expression did match"),
    "$mod": ("$mod did not evaluate to expected remainder", "$mod did evaluate to expected remainder"),
    "$size": ("array length was not equal to given size", "array length was equal to given size"),
    "$elemMatch": ("array did not satisfy the child predicate", "array did satisfy the child predicate"),
    "$all": ("array did not contain all specified values", "array did contain all specified values"),
    **dict.fromkeys(BITS, ("bitwise operator failed to match", "bitwise operator matched successfully")),
}
"""Why an operator is not met, and why it is."""
EXPECTED = {
    **dict.fromkeys(BITS, ("binData", *NUMBERS)),
    "$regex": ("regex", "string", "symbol"),
    "$mod": NUMBERS,
    "$size": ("array",),
    "$elemMatch": ("array",),
}
WHOLE = frozenset({"$size", "$elemMatch", "$all"})
"""Operators that look at an array and not at its elements."""
TURNED = {"$ne": "$eq", "$nin": "$in"}


def explain_filter(query: Document, document: Document, *, met: bool = False) -> Document:
    """Why a document does not meet a filter, or with ``met`` why it does."""
    clauses = list(_clauses(query))
    if len(clauses) == 1:
        return _clause(*clauses[0], document, met=met)
    return _explain_parts("$and", [dict([_single(*clause)]) for clause in clauses], document, met=met)


def _clauses(query: Document) -> Iterator[tuple[str, str, Any]]:
    """A filter's conditions, one operator each: the path or nothing, the operator, its argument."""
    for name, condition in query.items():
        if name == "$comment":
            continue
        if name.startswith("$"):
            yield "", name, condition
        elif isinstance(condition, Regex):
            yield name, "$regex", condition
        elif not queries.is_operators(condition):
            yield name, "", condition
        else:
            options = {"$options": condition["$options"]} if "$options" in condition else {}
            for operator, argument in condition.items():
                if operator != "$options":
                    yield name, operator, {"$regex": argument, **options} if operator == "$regex" else argument


def _single(path: str, operator: str, argument: Any) -> tuple[str, Any]:
    """A condition as a separate filter has it."""
    if not path:
        return operator, argument
    if not operator or operator == "$regex":
        return path, argument
    return path, {operator: argument}


def _clause(path: str, operator: str, argument: Any, document: Document, *, met: bool) -> Document:
    if operator in ("$and", "$or", "$nor"):
        return _explain_parts(operator, argument, document, met=met)
    if operator == "$jsonSchema":
        return _of_schema(argument, document, met=met)
    if operator == "$expr":
        return _of_expression(argument, document, met=met)
    if operator in ("$alwaysTrue", "$alwaysFalse"):
        reason = f"expression always evaluates to {'true' if operator == '$alwaysTrue' else 'false'}"
        return {"operatorName": operator, "specifiedAs": {operator: argument}, "reason": reason}
    if operator == "$not":
        inner = {path: argument}
        return {"operatorName": "$not", "details": explain_filter(inner, document, met=not met)}
    return _of_field(path, operator, argument, document, met=met)


def _explain_parts(operator: str, parts: list[Document], document: Document, *, met: bool) -> Document:
    """``$and``, ``$or`` and ``$nor``: the parts that are to blame, each with its own reason."""
    turned = met if operator != "$nor" else not met
    needed = {"$and": not met, "$or": met, "$nor": not met}[operator]
    clauses = [
        {"index": Int64(index), "details": explain_filter(part, document, met=turned)}
        for index, part in enumerate(parts)
        if not needed or queries.compile_filter(part)(document) == turned
    ]
    return {"operatorName": operator, "clausesSatisfied" if turned else "clausesNotSatisfied": clauses}


def _of_schema(schema: Document, document: Document, *, met: bool) -> Document:
    rules = Schema(schema)
    head: Document = {"operatorName": "$jsonSchema", **rules.about}
    return {**head, "reason": "schema matched"} if met else {**head, "schemaRulesNotSatisfied": rules.broken(document)}


def _of_expression(expression: Any, document: Document, *, met: bool) -> Document:
    head: Document = {"operatorName": "$expr", "specifiedAs": {"$expr": expression}}
    try:
        value = expressions.compile_expression(expression)(document, {})
    except MongoError as error:
        details = {"code": error.code, "codeName": error.name, "errmsg": error.message}
        return {**head, "reason": "failed to evaluate aggregation expression", "details": details}
    out = {**head, "reason": "expression did match" if met else "expression did not match"}
    return out if value is MISSING else {**out, "expressionResult": value}


def _of_field(path: str, operator: str, argument: Any, document: Document, *, met: bool) -> Document:
    """An operator on a field: what it asks for, why it fails, and which values it saw."""
    specified = dict([_single(path, operator, argument)])
    name = operator or "$eq"
    inner = TURNED.get(name, name)
    turned = met if inner == name and not (name == "$exists" and not operators.is_true(argument)) else not met
    out: Document = {"operatorName": name, "specifiedAs": specified}
    reason = REASONS[inner][turned]
    if inner == "$exists":
        return {**out, "reason": reason}
    found = [value for value in queries.values(document, path.split(".")) if value is not MISSING]
    if not found:
        return {**out, "reason": "field was missing"}
    values = [item for value in found for item in (value if isinstance(value, list) and inner not in WHOLE else [value])]  # fmt: skip
    kept = values[:MOST_VALUES]
    types = sorted({type_name(value) for value in kept})
    considered = {"consideredType": types[0]} if len(types) == 1 else {"consideredTypes": types} if types else {}
    expected = EXPECTED.get(inner)
    if expected and not {*types} & {*expected}:
        wanted: Document = {"expectedType": expected[0]} if len(expected) == 1 else {"expectedTypes": list(expected)}
        out |= {"reason": "type did not match", **considered, **wanted}
    else:
        out["reason"] = reason
    out |= {"consideredValue": kept[0]} if len(kept) == 1 else {"consideredValues": kept}
    if len(values) > MOST_VALUES:
        out["consideredValuesTruncated"] = True
    return {**out, **considered} if inner == "$type" else out


__all__ = ["explain_filter"]
