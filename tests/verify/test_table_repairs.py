"""From keys that differ to the signal that repairs them: what is sent is always taken, and names each of the keys."""

from __future__ import annotations

import datetime as dt
import json
import re
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from airflow_provider_cdc.changelog.files.storage import Storage
from airflow_provider_cdc.core.errors import CdcError
from airflow_provider_cdc.core.model.connector_signal import Signal
from airflow_provider_cdc.core.model.table_schema import Column, TableId, TableSchema
from airflow_provider_cdc.core.signals.requested_key_ranges import ranges_of
from airflow_provider_cdc.core.signals.signal_request_parser import ExecuteSnapshotRequest, parse_request
from airflow_provider_cdc.core.signals.table_patterns import match_tables
from airflow_provider_cdc.verify.table_repairs import (
    MOST_RANGES,
    DifferingKey,
    TableRepair,
    build_repair,
    read_keys,
    repairs_of,
    signal_text,
)

ORDERS = TableId(namespace="s", name="orders")
ODD = TableId(namespace="s", name='my "odd" table\'s (x)+.*, ')


def _schema(table: TableId = ORDERS, **key: str) -> TableSchema:
    columns = (*(Column(name=n, type=t) for n, t in key.items()), Column(name="note", type="string"))
    return TableSchema(id=table, columns=columns, key=tuple(key))


def _keys(*values: Any, source: int = 1, target: int = 1) -> list[DifferingKey]:
    return [DifferingKey(v if isinstance(v, tuple) else (v,), source, target) for v in values]


def _repair(schema: TableSchema, keys: list[DifferingKey], number: int | None = None) -> TableRepair:
    """The repair; if it has a signal, that is taken and covers all keys."""
    found = build_repair("shop", f"p.{schema.id}", schema, keys, len(keys) if number is None else number)
    if found.signal is not None:
        request = parse_request(Signal(1, "x", "execute-snapshot", signal_text(found)))
        assert isinstance(request, ExecuteSnapshotRequest)
        others = [TableId(namespace="s", name="order"), TableId(namespace="s2", name="orders")]
        assert match_tables(request.collections, [schema.id, *others]) == ([schema.id], [])
        assert all(match_tables([entry.table], [schema.id, *others])[0] == [schema.id] for entry in request.ranges)
        ranges_of(schema, schema.key, request.ranges)
    return found


def _ranges(found: TableRepair) -> list[tuple[Any, Any, list[Any]]]:
    assert found.signal is not None
    ranges = found.signal["key-ranges"]
    return [(r["from"], r["to"], r.get("absent", [])) for r in ranges]


def test_neighbours_are_read_together_and_divided_at_the_largest_distances() -> None:
    few = _repair(_schema(id="int64"), [*_keys(7, 5), *_keys(9, source=0)])
    assert _ranges(few) == [
        ({"id": 5}, {"id": 5}, []), ({"id": 7}, {"id": 7}, []), ({"id": 9}, {"id": 9}, [{"id": 9}]),
    ]  # fmt: skip
    clusters = [c * 1000 + i for c in range(MOST_RANGES) for i in range(9)]
    many = _ranges(_repair(_schema(id="int64"), _keys(*reversed(clusters))))
    assert many == [({"id": c * 1000}, {"id": c * 1000 + 8}, []) for c in range(MOST_RANGES)]
    assert len(_ranges(_repair(_schema(id="int64"), _keys(*range(0, 20_000, 3))))) == MOST_RANGES


def test_keys_of_several_columns_are_divided_by_the_first_one() -> None:
    schema = _schema(a="int32", b="date32[day]")
    days = [dt.date(2024, 1, 1 + i) for i in range(3)]
    found = _ranges(_repair(schema, _keys(*[(a, d) for a in range(MOST_RANGES) for d in days])))
    assert found[0] == ({"a": 0, "b": "2024-01-01"}, {"a": 0, "b": "2024-01-03"}, [])
    assert len(found) == MOST_RANGES


@pytest.mark.parametrize(
    ("type_", "values"),
    [
        ("decimal128(10, 2)", [Decimal("-1.50"), Decimal("2.0000")]), ("decimal128(20, 8)", [Decimal("0E-8"), Decimal("1.5E-7")]), ("double", [-1e300, 0.1]), ("bool", [False, True]),
        ("timestamp[us]", [dt.datetime(1, 1, 1), dt.datetime(2024, 2, 29, 1, 2, 3, 4)]), ("int8", [-128, 127]),
        ("timestamp[us, tz=UTC]", [dt.datetime(1970, 1, 1, tzinfo=dt.UTC), dt.datetime(2024, 2, 29, tzinfo=dt.UTC)]),
        ("timestamp[ns]", ["2024-02-29 12:00:00.123456788", "2024-02-29 12:00:00.123456789"]),
    ],
)  # fmt: skip
def test_every_type_that_has_an_order_is_read_in_ranges(type_: str, values: list[Any]) -> None:
    assert len(_ranges(_repair(_schema(k=type_), _keys(*values, source=0)))) == 2


@pytest.mark.parametrize(("type_", "values"), [("string", ["b", "A", "ä"]), ("binary", [b"\xff", b"", b"\0"])])
def test_texts_and_bytes_are_looked_up_one_by_one(type_: str, values: list[Any]) -> None:
    ((first, last, absent),) = _ranges(_repair(_schema(n="int32", k=type_), _keys(*[(1, v) for v in values])))
    assert first == last == absent[0]
    assert len(absent) == 3


def test_a_table_of_any_name_is_meant_alone() -> None:
    found = _repair(_schema(ODD, id="int64"), _keys(1))
    assert json.loads(signal_text(found)) == found.signal


def test_what_no_signal_repairs_is_said_with_the_command_that_does() -> None:
    nothing: list[DifferingKey] = []
    for schema, keys, number, message in (
        (_schema(), nothing, 3, "no key.*airflow cdc rebuild shop s.orders"),
        (_schema(id="int64"), nothing, 10_001, "10,001 keys differ.*airflow cdc snapshot shop s.orders --replace"),
        (_schema(id="int64"), _keys(1, target=2), 1, "1 duplicate keys.*rebuild"),
        (_schema(id="int8"), _keys(1000), 1, "not a key of the source.*rebuild"),
    ):
        found = _repair(schema, keys, number)
        assert found.signal is None
        assert re.search(message, found.advice), found.advice


def test_keys_are_read_as_the_comparison_has_written_them(tmp_path: Path) -> None:
    folder = tmp_path / "p.s.orders"
    folder.mkdir()
    rows = [
        {"key": {"b": "x", "a": i}, "difference": "missing", "columns": [], "source": 1, "target": 0} for i in range(3)
    ]
    pq.write_table(pa.Table.from_pylist(rows[:2]), folder / "part-0.snappy.parquet")
    pq.write_table(pa.Table.from_pylist(rows[2:]), folder / "part-1.snappy.parquet")
    (folder / "_SUCCESS").touch()
    storage = Storage(str(tmp_path))
    assert read_keys(storage, f"file://{folder}", ("a", "b")) == _keys((0, "x"), (1, "x"), (2, "x"), target=0)
    with pytest.raises(CdcError, match="cannot be read"):
        read_keys(storage, f"{tmp_path}/none", ("a",))


def test_tables_that_a_route_makes_of_one_topic_are_repaired_by_one_signal(tmp_path: Path) -> None:
    def table(place: str, *rows: tuple[int, int, int], number: int = 0, problem: str = "") -> dict[str, Any]:
        """:param rows: key, and how many rows source and table have of it"""
        folder = tmp_path / place
        folder.mkdir()
        keys = [{"key": {"id": k}, "difference": "", "columns": [], "source": s, "target": t} for k, s, t in rows]
        pq.write_table(pa.Table.from_pylist(keys), folder / "part-0.snappy.parquet")
        counts = {"missing": number or len(rows), "surplus": 0, "different": 0, "problem": problem}
        at = f"/lake/{place}"
        return {"topic": "p.s.orders", "name": f"p.s.orders → {at}", "location": at, "keys": str(folder), **counts}

    found = repairs_of(
        "shop",
        [
            table("eu", (1, 1, 0), (2, 0, 1)),
            table("us", (1, 0, 1), (3, 1, 1)),
            table("twice", (9, 1, 2)),
            table("many", number=10_001),
            table("gone", problem="there is no such table"),
            table("equal", number=0),
        ],
        {"p.s.orders": _schema(id="int64")},
        Storage(str(tmp_path)),
    )
    several, *each = found
    assert several.topic == "p.s.orders"
    # row 1 is in the wrong table: the source has it
    assert _ranges(several) == [
        ({"id": 1}, {"id": 1}, []),
        ({"id": 2}, {"id": 2}, [{"id": 2}]),
        ({"id": 3}, {"id": 3}, []),
    ]
    text = {one.topic.rpartition("/")[2]: (one.signal, one.advice) for one in each}
    assert text.keys() == {"twice", "many", "gone"}
    assert all(signal is None for signal, _ in text.values())
    assert "airflow cdc rebuild shop /lake/twice" in text["twice"][1]
    assert "airflow cdc snapshot shop s.orders --replace" in text["many"][1]
    assert "airflow cdc snapshot shop s.orders --replace" in text["gone"][1]
