"""``key-ranges`` of a signal: read as they are, or refused with what is wrong with them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_cdc.core.model.connector_offset import ScanRange, TableScan
from airflow_provider_cdc.core.model.table_schema import Column, TableId, TableSchema
from airflow_provider_cdc.core.signals.requested_key_ranges import (
    MOST_ABSENT,
    MOST_RANGES,
    MOST_WAITING,
    InvalidKeyRange,
    check_number,
    parse_range,
    ranges_of,
)
from airflow_provider_cdc.sources.memory.database import MemoryDatabase
from tests.support.connectors import memory_connector
from tests.support.signals import signal_state, snapshot

Row = dict[str, Any]
SCHEMA = TableSchema(
    id=TableId(namespace="shop", name="orders"),
    columns=(
        Column(name="id", type="int64"), Column(name="Name", type="string"), Column(name="at", type="timestamp[us]"),
    ),
)  # fmt: skip


def entry(first: Row | None, last: Row | None, *absent: Row) -> Row:
    return {"data-collection": "shop.orders", "from": first, "to": last, "absent": [*absent]}


def read(*entries: Row, key: tuple[str, ...] = ("id",)) -> list[ScanRange]:
    return ranges_of(SCHEMA, key, [parse_range(e) for e in entries])


def test_ranges_that_overlap_are_one_and_all_are_in_order() -> None:
    found = read(
        entry({"id": 50}, {"id": 90}, {"id": 55}, {"id": 88}),
        entry({"id": 5}, {"id": 60}, {"id": 7}, {"id": 55}),
        entry({"id": 200}, None),
        entry({"id": 80}, {"id": 80}),
        entry(None, {"id": 1}),
        entry({"id": 300}, {"id": 310}, {"id": 301}),
    )
    assert found == [
        ScanRange(first=None, last=[1]),
        ScanRange(first=[5], last=[90], absent=[[7], [55], [88]]),
        ScanRange(first=[200], last=None, absent=[[301]]),
    ]


def test_ranges_of_texts_stay_as_they_are_since_databases_order_texts_differently() -> None:
    found = read(
        entry({"Name": "b"}, {"Name": "a"}, {"Name": "zz"}),
        entry({"Name": "a"}, {"Name": "c"}),
        entry({"Name": "b"}, {"Name": "a"}, {"Name": "é"}, {"Name": "zz"}),
        key=("Name",),
    )
    assert found == [ScanRange(first=["b"], last=["a"], absent=[["zz"], ["é"]]), ScanRange(first=["a"], last=["c"])]


def test_composite_keys_are_in_the_order_of_the_key_and_compare_column_by_column() -> None:
    low, high = {"at": "2024-01-01T00:00:00", "id": 5}, {"id": 1, "at": "2024-01-02T00:00:00"}
    (found,) = read(entry(low, high, {"id": 9, "at": "2024-01-01 12:00:00.5"}), key=("at", "id"))
    assert found == ScanRange(
        first=["2024-01-01T00:00:00", 5], last=["2024-01-02T00:00:00", 1], absent=[["2024-01-01T12:00:00.500000", 9]]
    )
    with pytest.raises(InvalidKeyRange, match="comes before"):
        read(entry(high, low), key=("at", "id"))


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        (entry({"ID": 1}, None), '"ID" is not a key column (did you mean id?); the key columns are id'),
        (entry({"Name": "x"}, None), '"Name" is not a key column; the key columns are id'),
        (entry({}, None), "a key lacks id; the key columns are id"),
        (entry({"id": "1"}, None), '"id" is "1"; a int64 is a whole JSON number'),
        (entry({"id": None}, None), '"id" is null'),
        (entry({"id": 9}, {"id": 3}), "a range from [9] to [3] is in the wrong order"),
        (entry({"id": 1}, {"id": 3}, {"id": 4}), '[4] of "absent" is in none of the ranges'),
        (entry(None, {"id": 3}, {"id": 4}), '[4] of "absent" is in none of the ranges'),
        (entry(None, None, {"id": 4, "x": 1}), '"x" is not a key column'),
    ],
)
def test_wrong_keys(wrong: Row, reason: str) -> None:
    with pytest.raises(InvalidKeyRange) as caught:
        read(wrong)
    assert reason in str(caught.value)
    assert "shop.orders" in str(caught.value)


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        ("shop.orders", 'has no string "data-collection"'),
        ({"from": {"id": 1}}, 'has no string "data-collection"'),
        (entry(None, None) | {"absnet": []}, '"absnet" (did you mean absent?)'),
        (entry(7, None), '"from" of a range of shop.orders is not an object'),  # type: ignore[arg-type]
        (entry(None, None) | {"absent": {"id": 7}}, "is not a list of objects"),
        (entry(None, None) | {"absent": [7]}, "is not a list of objects"),
    ],
)
def test_wrong_forms(wrong: Any, reason: str) -> None:
    with pytest.raises(InvalidKeyRange) as caught:
        parse_range(wrong)
    assert reason in str(caught.value)


def test_there_is_a_bound_to_what_an_offset_holds() -> None:
    check_number(MOST_RANGES, MOST_ABSENT, [])
    with pytest.raises(InvalidKeyRange, match="a signal may have at most 1,000: send several"):
        check_number(MOST_RANGES + 1, 0, [])
    with pytest.raises(InvalidKeyRange, match="a signal may have at most 10,000: send several"):
        check_number(1, MOST_ABSENT + 1, [])
    there = ScanRange(absent=[[i] for i in range(MOST_ABSENT)])
    waiting = [TableScan(table="shop.orders", request=i, key=["id"], ranges=[there]) for i in range(MOST_WAITING)]
    check_number(1, 0, waiting)
    with pytest.raises(InvalidKeyRange, match="50,000 of other signals are waiting"):
        check_number(1, 1, waiting)


@pytest.mark.parametrize(
    ("more", "reason"),
    [
        ({"key_ranges": {}}, '"key-ranges" is not a list'),
        (
            {"key_ranges": [{"data-collection": "shop.b"}]},
            "has a range for shop.b, which is not one of the requested tables",
        ),
        (
            {"key_ranges": [{"data-collection": "shop.[ac]"}]},
            "which matches several tables: shop.a, shop.c. Name one of them",
        ),
        ({"key_ranges": [{"data-collection": "shop.a"}], "type": "blocking"}, "a blocking snapshot exclude each other"),
        ({"key_ranges": [{"data-collection": "shop.a"}], "replace": True}, '"replace" exclude each other'),
        ({"key_ranges": [{"data-collection": "shop.a"}], "surrogate-key": "n"}, '"surrogate-key" exclude each other'),
        (
            {
                "key_ranges": [{"data-collection": "shop.a"}],
                "additional-conditions": [{"data-collection": "shop.a", "filter": "n > 1"}],
            },
            "cannot both select rows of shop.a",
        ),
        ({"key_ranges": [{"data-collection": "shop.a", "from": {"n": 1}}]}, 'shop.a: "n" is not a key column'),
        ({"key_ranges": [{"data-collection": "shop.bag"}]}, "shop.bag has no key"),
        ({"key_ranges": [{"data-collection": "shop.("}]}, "not a regular expression"),
    ],
)
def test_signals_that_are_refused(request: pytest.FixtureRequest, tmp_path: Path, more: Row, reason: str) -> None:
    db = MemoryDatabase(request.node.nodeid)
    for name, key in (("a", ("id",)), ("c", ("id",)), ("b", ("id",)), ("bag", ())):
        db.create_table(f"shop.{name}", {"id": "int64!", "n": "int64"}, key=key)
    connector = memory_connector(db, tmp_path)
    connector.capture()
    number = snapshot(connector, "shop.a", "shop.c", "shop.bag", **more)
    connector.capture()
    state, message = signal_state(connector, number)
    assert (state, reason in message) == ("refused", True), message


def test_deletes_that_are_left_out_are_not_asked_for(request: pytest.FixtureRequest, tmp_path: Path) -> None:
    db = MemoryDatabase(request.node.nodeid)
    db.create_table("shop.a", {"id": "int64!", "n": "int64"}, key=("id",))
    connector = memory_connector(db, tmp_path, skipped_operations="d")
    connector.capture()
    number = snapshot(connector, "shop.a", key_ranges=[{"data-collection": "shop.a", "absent": [{"id": 1}]}])
    connector.capture()
    assert signal_state(connector, number) == (
        "refused", '"absent" requires delete events, which skipped.operations leaves out',
    )  # fmt: skip


def test_an_offset_with_ranges_is_compact_json() -> None:
    scan = TableScan(table="shop.orders", request=7, key=["id"], ranges=[ScanRange(first=[5], absent=[[7], [8]])])
    text = json.dumps(scan.model_dump(mode="json", exclude_defaults=True))
    assert (
        text
        == '{"table": "shop.orders", "request": 7, "key": ["id"], "ranges": [{"first": [5], "absent": [[7], [8]]}]}'
    )
    assert TableScan.model_validate_json(text) == scan
