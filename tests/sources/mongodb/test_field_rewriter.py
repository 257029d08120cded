"""Fields that are left out and called otherwise: in bytes, of every type, without changing any other byte."""

from datetime import datetime
from typing import Any

import bson
import pytest
from bson import DBRef, Decimal128, Int64, MaxKey, MinKey, ObjectId, Regex, Timestamp
from bson.binary import Binary
from bson.code import Code

from airflow_provider_cdc.sources.mongodb.field_rewriter import rewrite_document
from airflow_provider_cdc.sources.mongodb.field_rules import parse_excluded_fields, parse_renamed_fields

EVERY: dict[str, Any] = {
    "double": 1.5, "text": "ä\0b", "document": {"a": 1, "b": {"c": 2}}, "array": [1, {"a": 1, "b": 2}, [{"a": 3}]], "binary": Binary(b"x", 5),
    "oid": ObjectId(), "bool": True, "date": datetime(2026, 1, 1), "null": None, "regex": Regex("a.*", "i"), "ref": DBRef("c", 1),
    "code": Code("f"), "scoped": Code("f", {"x": 1}), "int": 1, "stamp": Timestamp(1, 2), "long": Int64(2), "decimal": Decimal128("1.10"),
    "min": MinKey(), "max": MaxKey(), "old": Binary(b"abc", 2),
}  # fmt: skip


@pytest.mark.parametrize("name", [*EVERY])
def test_each_field_is_left_out_and_renamed_and_the_others_stay_as_they_are(name: str) -> None:
    document = bson.encode({"_id": 1, **EVERY})
    assert rewrite_document(document, parse_excluded_fields(f"shop.orders.{name}")) == bson.encode(
        {"_id": 1, **{n: v for n, v in EVERY.items() if n != name}}
    )
    assert rewrite_document(document, parse_renamed_fields(f"shop.orders.{name}:new")) == bson.encode(
        {"_id": 1, **{("new" if n == name else n): v for n, v in EVERY.items()}}
    )
    assert rewrite_document(document, parse_excluded_fields("shop.orders.nothing")) == document


@pytest.mark.parametrize(
    ("rules", "expected"),
    [
        (parse_excluded_fields("a.b.document.a"), {"document": {"b": {"c": 2}}}),
        (parse_excluded_fields("a.b.document.b.c"), {"document": {"a": 1, "b": {}}}),
        (parse_excluded_fields("a.b.array.a"), {"array": [1, {"b": 2}, [{}]]}),
        (parse_renamed_fields("a.b.document.b.c:d,a.b.document.b:e"), {"document": {"a": 1, "e": {"d": 2}}}),
        (
            parse_renamed_fields("a.b.document:other,a.b.other.a:z"),
            {"document": None, "other": {"z": 1, "b": {"c": 2}}},
        ),
    ],
)
def test_nested_fields_one_rule_after_the_other(rules: Any, expected: dict[str, Any]) -> None:
    given = {name: EVERY[name] for name in ("document", "array")}
    found = bson.decode(rewrite_document(bson.encode(given), rules))
    assert {name: found.get(name) for name in expected} == expected


@pytest.mark.parametrize(
    ("rules", "expected"),
    [
        (parse_excluded_fields("a.b.years.2024"), {"years.2025": 2, "items.3.years.2024.n": 3, "2024.0.x": 4}),
        (parse_excluded_fields("a.b.items.years.2024"), {"years.2024": 1, "years.2025": 2, "2024.0.x": 4}),
        (parse_excluded_fields("a.b.2024.x"), {"years.2024": 1, "years.2025": 2, "items.3.years.2024.n": 3}),
        (parse_renamed_fields("a.b.years.2024:x,a.b.items.years.2024.n:m"), {"years.x": 1, "years.2025": 2, "items.3.years.2024.m": 3, "2024.0.x": 4}),
    ],
)  # fmt: skip
def test_digits_of_a_rule_are_a_name_and_others_places_in_arrays(rules: Any, expected: dict[str, Any]) -> None:
    given = {"years.2024": 1, "years.2025": 2, "items.3.years.2024.n": 3, "2024.0.x": 4}
    assert bson.decode(rewrite_document(bson.encode(given), rules, dotted=True)) == expected


@pytest.mark.parametrize(
    ("rules", "expected"),
    [
        (parse_excluded_fields("a.b.card"), {"n": 1, "items.0.price": 2}),
        (parse_excluded_fields("a.b.card.number"), {"card": {"x": 1}, "n": 1, "items.0.price": 2}),
        (parse_excluded_fields("a.b.items.price"), {"card": {"x": 1, "number": 5}, "card.number": 6, "n": 1}),
        (
            parse_renamed_fields("a.b.items.price:cost"),
            {"card": {"x": 1, "number": 5}, "card.number": 6, "n": 1, "items.0.cost": 2},
        ),
    ],
)
def test_paths_of_updates(rules: Any, expected: dict[str, Any]) -> None:
    given = {"card": {"x": 1, "number": 5}, "card.number": 6, "n": 1, "items.0.price": 2}
    assert bson.decode(rewrite_document(bson.encode(given), rules, dotted=True)) == expected
