"""A record whose schema differs from the one before is a new version of its table; types without schemas are widened."""

from __future__ import annotations

import base64
from decimal import Context, Decimal
from pathlib import Path

from tests.sources.debezium.written import Row, Topic, connector, node, write
from tests.support.connectors import Connector

DECIMAL = "org.apache.kafka.connect.data.Decimal"
ID, NAME = node("id", "int32", optional=False), node("name", "string")


def _versions(some: Connector) -> list[dict[str, str]]:
    found: dict[int, dict[str, str]] = {}
    for manifest in some.changelog.read_manifests(some.name, after=0):
        for schema in manifest.schemas.get("shop.inventory.orders", {}).values():
            found[schema.version] = {c.name: c.type for c in schema.columns}
    return [found[version] for version in sorted(found)]


def test_columns_come_go_and_get_other_types_with_the_records_that_have_them(tmp_path: Path) -> None:
    first = Topic([ID, NAME])
    added = Topic([ID, NAME, node("size", "int32", default=3, optional=False), node("color", "string")])
    wider = Topic([ID, NAME, node("size", "int64", default=3, optional=False), node("color", "string")])
    fewer = Topic([ID, node("size", "int64", default=3, optional=False)])
    write(
        tmp_path / "in" / "a.jsonl",
        [
            first.event("c", None, {"id": 1, "name": "a"}),
            first.event("c", None, {"id": 2, "name": "b"}),
            added.event("c", None, {"id": 3, "name": "c", "size": 7, "color": "red"}),
            added.event(
                "u",
                {"id": 1, "name": "a", "size": 3, "color": None},
                {"id": 1, "name": "a", "size": 4, "color": "blue"},
            ),
            wider.event("c", None, {"id": 4, "name": "d", "size": 2**40, "color": None}),
            fewer.event("c", None, {"id": 5, "size": 1}),
            fewer.event("d", {"id": 3, "size": 7}, None),
        ],
    )
    found = connector(tmp_path)
    found.capture()
    assert _versions(found) == [
        {"id": "int32", "name": "string"},
        {"id": "int32", "name": "string", "size": "int32", "color": "string"},
        {"id": "int32", "name": "string", "size": "int64", "color": "string"},
        {"id": "int32", "size": "int64"},
    ]
    assert found.rows("inventory.orders") == [
        {"id": 1, "size": 4},
        {"id": 2, "size": 3},  # the default of the new column
        {"id": 4, "size": 2**40},
        {"id": 5, "size": 1},
    ]


def test_a_default_of_more_digits_than_python_calculates_with_is_exact(tmp_path: Path) -> None:
    number = 10**37 + 7
    wire = base64.b64encode(number.to_bytes(16, "big")).decode()
    amount = node(
        "amount", "bytes", DECIMAL, parameters={"scale": "5", "connect.decimal.precision": "38"}, default=wire
    )
    first, added = Topic([ID]), Topic([ID, amount])
    write(
        tmp_path / "in" / "a.jsonl",
        [first.event("c", None, {"id": 1}), added.event("c", None, {"id": 2, "amount": wire})],
    )
    found = connector(tmp_path)
    found.capture()
    exact = Decimal(number).scaleb(-5, Context(prec=38))
    assert found.rows("inventory.orders") == [{"id": 1, "amount": exact}, {"id": 2, "amount": exact}]


def test_a_run_goes_on_with_the_schema_that_the_last_one_had(tmp_path: Path) -> None:
    topic = Topic([ID, NAME])
    found = connector(tmp_path)
    for n in range(3):
        write(tmp_path / "in" / "a.jsonl", [topic.event("c", None, {"id": n, "name": "a"})])
        found.capture()
    assert _versions(found) == [{"id": "int32", "name": "string"}]
    changes = [c for m in found.changelog.read_manifests(found.name, after=0) for c in m.schema_changes]
    assert len(changes) == 1


def _capture_bare_records(folder: Path, *runs: list[Row]) -> Connector:
    topic, found = Topic(None), connector(folder)
    for rows in runs:
        write(folder / "in" / "a.jsonl", [topic.event("c", None, row) for row in rows])
        found.capture()
    return found


def test_types_without_schemas_are_inferred_and_widened(tmp_path: Path) -> None:
    found = _capture_bare_records(
        tmp_path,
        [{"id": 1, "n": None, "x": 1, "s": True, "j": {"a": [1]}}],
        [{"id": 2, "n": 5, "x": 2.5, "s": True, "j": [1, 2]}, {"id": 3, "n": 2**63, "x": 1, "s": "text", "j": None}],
        [{"id": 4, "n": None, "x": 3, "s": 7, "j": "text"}],
    )
    assert _versions(found) == [
        {"id": "int64", "x": "int64", "s": "bool", "j": "string"},
        {"id": "int64", "x": "double", "s": "string", "j": "string", "n": "decimal128(20, 0)"},
        {"id": "int64", "x": "double", "s": "string", "j": "string", "n": "decimal128(20, 0)"},
    ]
    rows = {row["id"]: row for row in found.rows("inventory.orders")}
    assert [rows[n]["n"] for n in (1, 2, 3, 4)] == [None, 5, 2**63, None]
    assert [rows[n]["s"] for n in (2, 3, 4)] == ["true", "text", "7"]
    assert [rows[n]["j"] for n in (1, 2, 4)] == ['{"a":[1]}', "[1,2]", "text"]


def test_a_field_that_a_bare_record_does_not_have_leaves_its_value(tmp_path: Path) -> None:
    topic = Topic(None)
    write(
        tmp_path / "in" / "a.jsonl",
        [
            topic.event("c", None, {"id": 1, "name": "a", "size": 1}),
            topic.event("u", None, {"id": 1, "name": "b"}),
        ],
    )
    found = connector(tmp_path)
    found.capture()
    assert found.rows("inventory.orders") == [{"id": 1, "name": "b", "size": 1}]


def test_schemas_may_be_switched_off_and_on(tmp_path: Path) -> None:
    """Columns keep the types that schemas have given them: without schemas, values are read by these."""
    date = node("day", "int32", "io.debezium.time.Date")
    described, bare = Topic([ID, NAME, date]), Topic(None)
    found = connector(tmp_path)
    for n, topic in enumerate((described, bare, described, bare)):
        write(
            tmp_path / "in" / "a.jsonl",
            [
                topic.event("c", None, {"id": n, "name": "a", "day": 19_000 + n}),
                topic.event("c", None, {"id": 10 + n, "name": "b", "day": 1}),
            ],
        )
        write(
            tmp_path / "in" / "a.jsonl",
            [topic.event("d", {"id": 10 + n, "name": "b", "day": 1}, None), topic.end({"id": 10 + n})],
        )
        found.capture()
    assert _versions(found) == [{"id": "int32", "name": "string", "day": "date32[day]"}]
    assert [str(row["day"]) for row in found.rows("inventory.orders")] == [
        "2022-01-08",
        "2022-01-09",
        "2022-01-10",
        "2022-01-11",
    ]
