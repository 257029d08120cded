"""JSON Schema as ``$jsonSchema`` has it: a schema says of a value which of its rules are broken, in the form of the server's ``errInfo``.

What the keywords mean is in MongoDB's manual ("$jsonSchema"), what a failure shows in "Specify JSON Schema Validation" and in the texts of the server's
source. No recording has it. ``encrypt`` is refused.

>>> Schema({"required": ["a"], "properties": {"a": {"bsonType": "int"}}}).broken({"a": "x"})[0]["propertiesNotSatisfied"][0]["propertyName"]
'a'
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

from bson import Int64

from dev.servers.mongodb.query import json_schema_leaves as leaves
from dev.servers.mongodb.query.json_schema_leaves import MISMATCH, PARSE, Rule
from dev.servers.mongodb.values.documents import Document
from dev.servers.mongodb.values.errors import MongoError, type_name

ABOUT = ("title", "description")
NOT_SUPPORTED = frozenset({"$ref", "$schema", "default", "definitions", "format", "id"})


class Schema:
    """A schema; making it raises :class:`MongoError` for an invalid one."""

    def __init__(self, given: Any) -> None:
        if not isinstance(given, dict):
            raise MongoError(MISMATCH, f"$jsonSchema must be an object, but found {type_name(given)}")
        for keyword in given:
            if keyword in NOT_SUPPORTED:
                raise MongoError(PARSE, f"$jsonSchema keyword '{keyword}' is not currently supported")
            if keyword not in _MAKERS and keyword not in (*ABOUT, *_BESIDE):
                raise MongoError(PARSE, f"Unknown $jsonSchema keyword: {keyword}")
        if "type" in given and "bsonType" in given:
            raise MongoError(PARSE, "Cannot specify both $jsonSchema keywords 'type' and 'bsonType'")
        for keyword, other in _BESIDE.items():
            if keyword in given and other not in given:
                raise MongoError(PARSE, f"$jsonSchema keyword '{other}' must be present if {keyword} is present")
        self.about = {name: leaves.check_type(name, given[name], str) for name in ABOUT if name in given}
        self._rules = [maker(given[keyword], given) for keyword, maker in _MAKERS.items() if keyword in given]

    def broken(self, value: Any) -> list[Document]:
        """The rules that a value breaks."""
        return [found for rule in self._rules if (found := rule(value)) is not None]


def _schemas(keyword: str, value: Any) -> list[Schema]:
    if not leaves.check_type(keyword, value, list):
        raise MongoError(2, f"$jsonSchema keyword '{keyword}' must be a non-empty array")
    return [Schema(item) for item in value]


def _items(argument: Any, given: Document) -> Rule:
    if isinstance(argument, list):
        return _items_by_place([Schema(item) for item in argument])
    return _items_from(0, "items", Schema(leaves.check_type("items", argument, dict)), "At least one item did not match the sub-schema")  # fmt: skip


def _items_by_place(schemas: list[Schema]) -> Rule:
    def rule(value: Any) -> Document | None:
        if not isinstance(value, list):
            return None
        pairs = enumerate(zip(schemas, value, strict=False))
        details = [{"itemIndex": Int64(i), "details": found} for i, (schema, item) in pairs if (found := schema.broken(item))]  # fmt: skip
        return {"operatorName": "items", "details": details} if details else None

    return rule


def _items_from(start: int, keyword: str, schema: Schema, reason: str) -> Rule:
    def rule(value: Any) -> Document | None:
        for index, item in enumerate(value) if isinstance(value, list) else ():
            if index >= start and (found := schema.broken(item)):
                return {"operatorName": keyword, **schema.about, "reason": reason, "itemIndex": Int64(index), "details": found}  # fmt: skip
        return None

    return rule


def _additional_items(argument: Any, given: Document) -> Rule:
    listed = given.get("items")
    if not isinstance(listed, list) or argument is True:
        return lambda value: None
    if isinstance(argument, dict):
        return _items_from(
            len(listed), "additionalItems", Schema(argument), "At least one additional item did not match the sub-schema"
        )  # fmt: skip
    if argument is not False:
        raise MongoError(MISMATCH, "$jsonSchema keyword 'additionalItems' must be either an object or a boolean")
    reason = {"operatorName": "additionalItems", "specifiedAs": {"additionalItems": False}, "reason": "found additional items"}  # fmt: skip
    return lambda value: (
        {**reason, "additionalItems": value[len(listed) :]}
        if isinstance(value, list) and len(value) > len(listed)
        else None
    )


# objects


def _properties(argument: Any, given: Document) -> Rule:
    schemas = {name: Schema(schema) for name, schema in leaves.check_type("properties", argument, dict).items()}

    def rule(value: Any) -> Document | None:
        if not isinstance(value, dict):
            return None
        details = [
            {"propertyName": name, **schema.about, "details": found}
            for name, schema in schemas.items()
            if name in value and (found := schema.broken(value[name]))
        ]
        return {"operatorName": "properties", "propertiesNotSatisfied": details} if details else None

    return rule


def _additional(value: Document, given: Document) -> Iterator[str]:
    """The fields that neither ``properties`` nor ``patternProperties`` speaks of."""
    patterns = [leaves.regex("patternProperties", pattern) for pattern in given.get("patternProperties", {})]
    for name in value:
        if name not in given.get("properties", {}) and not any(pattern.search(name) for pattern in patterns):
            yield name


def _additional_properties(argument: Any, given: Document) -> Rule:
    if argument is True:
        return lambda value: None
    if argument is False:
        specified: Document = {"operatorName": "additionalProperties", "specifiedAs": {"additionalProperties": False}}
        return lambda value: (
            {**specified, "additionalProperties": more}
            if isinstance(value, dict) and (more := list(_additional(value, given)))
            else None
        )
    if not isinstance(argument, dict):
        raise MongoError(MISMATCH, "$jsonSchema keyword 'additionalProperties' must be an object or a boolean")
    schema = Schema(argument)

    def rule(value: Any) -> Document | None:
        for name in _additional(value, given) if isinstance(value, dict) else ():
            if found := schema.broken(value[name]):
                return {
                    "operatorName": "additionalProperties", **schema.about, "reason": "at least one additional property did not match the subschema",
                    "failingProperty": name, "details": found,
                }  # fmt: skip
        return None

    return rule


def _pattern_properties(argument: Any, given: Document) -> Rule:
    schemas = [
        (pattern, leaves.regex("patternProperties", pattern), Schema(schema))
        for pattern, schema in leaves.check_type("patternProperties", argument, dict).items()
    ]

    def find_first_mismatch(value: Document, pattern: str, matcher: re.Pattern[str], schema: Schema) -> Document | None:
        for name, item in value.items():
            if matcher.search(name) and (found := schema.broken(item)):
                return {"propertyName": name, **schema.about, "regexMatched": pattern, "details": found}
        return None

    def rule(value: Any) -> Document | None:
        if not isinstance(value, dict):
            return None
        details = [found for parts in schemas if (found := find_first_mismatch(value, *parts))]
        return {"operatorName": "patternProperties", "details": details} if details else None

    return rule


def _check_required(argument: Any, given: Document) -> Rule:
    if not leaves.check_type("required", argument, list) or not all(isinstance(name, str) for name in argument):
        raise MongoError(PARSE, "$jsonSchema keyword 'required' must be a non-empty array of strings")
    if len({*argument}) < len(argument):
        raise MongoError(PARSE, "$jsonSchema keyword 'required' cannot contain duplicate values")

    def rule(value: Any) -> Document | None:
        missing = [name for name in argument if isinstance(value, dict) and name not in value]
        return {"operatorName": "required", "specifiedAs": {"required": argument}, "missingProperties": missing} if missing else None  # fmt: skip

    return rule


def _dependencies(argument: Any, given: Document) -> Rule:
    schemas = {
        name: expected if isinstance(expected, list) else Schema(expected)
        for name, expected in leaves.check_type("dependencies", argument, dict).items()
    }

    def find_failure(name: str, expected: list[str] | Schema, value: Document) -> Document | None:
        if isinstance(expected, Schema):
            found = expected.broken(value)
            return {"conditionalProperty": name, "details": found} if found else None
        missing = [other for other in expected if other not in value]
        return {"conditionalProperty": name, "missingProperties": missing} if missing else None

    def rule(value: Any) -> Document | None:
        if not isinstance(value, dict):
            return None
        details = [found for name, expected in schemas.items() if name in value and (found := find_failure(name, expected, value))]  # fmt: skip
        return {"operatorName": "dependencies", "failingDependencies": details} if details else None

    return rule


# schemas together, and types


def _not_satisfied(schemas: list[Schema], value: Any) -> list[Document]:
    return [
        {"index": Int64(index), **schema.about, "details": found}
        for index, schema in enumerate(schemas)
        if (found := schema.broken(value))
    ]


def _of_many(keyword: str) -> Callable[[Any, Document], Rule]:
    def make(argument: Any, given: Document) -> Rule:
        schemas = _schemas(keyword, argument)

        def rule(value: Any) -> Document | None:
            failed = _not_satisfied(schemas, value)
            good = len(schemas) - len(failed)
            if keyword == "oneOf" and good > 1:
                wrong = {int(item["index"]) for item in failed}
                matching = [index for index in range(len(schemas)) if index not in wrong]
                return {"operatorName": keyword, "reason": "more than one subschema matched", "matchingSchemaIndexes": matching}  # fmt: skip
            if not failed or (keyword != "allOf" and good):
                return None
            return {"operatorName": keyword, "schemasNotSatisfied": failed}

        return rule

    return make


def _not(argument: Any, given: Document) -> Rule:
    schema = Schema(leaves.check_type("not", argument, dict))
    return lambda value: None if schema.broken(value) else {"operatorName": "not", "reason": "child expression matched"}


_BESIDE = {"exclusiveMinimum": "minimum", "exclusiveMaximum": "maximum"}
"""Keywords that another one reads."""
_MAKERS: dict[str, Callable[[Any, Document], Rule]] = {
    "multipleOf": leaves.multiple_of,
    "maximum": leaves.bound("maximum", "exclusiveMaximum", -1),
    "minimum": leaves.bound("minimum", "exclusiveMinimum", 1),
    "maxLength": leaves.text_length("maxLength", -1),
    "minLength": leaves.text_length("minLength", 1),
    "pattern": leaves.pattern,
    "maxItems": leaves.item_count("maxItems", -1),
    "minItems": leaves.item_count("minItems", 1),
    "uniqueItems": leaves.unique_items,
    "items": _items,
    "additionalItems": _additional_items,
    "properties": _properties,
    "additionalProperties": _additional_properties,
    "patternProperties": _pattern_properties,
    "required": _check_required,
    "minProperties": leaves.property_count("minProperties", 1),
    "maxProperties": leaves.property_count("maxProperties", -1),
    "dependencies": _dependencies,
    "allOf": _of_many("allOf"),
    "anyOf": _of_many("anyOf"),
    "oneOf": _of_many("oneOf"),
    "not": _not,
    "enum": leaves.enum,
    "type": leaves.types("type"),
    "bsonType": leaves.types("bsonType"),
}
