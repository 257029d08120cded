"""Round trips through our own JSON form: rows of every type that a source declares, through any changes."""

from __future__ import annotations

import datetime as dt
import json
import shutil
import struct
import tempfile
import uuid
from decimal import Context, Decimal
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from airflow_provider_cdc.changelog.debezium.record_renderer import DebeziumRenderer
from airflow_provider_cdc.core.model.table_schema import GEOMETRY, Column, ColumnDeclaration, TableSchema
from airflow_provider_cdc.sources.memory.database import MemoryDatabase
from tests.sources.debezium.written import connector
from tests.support.connectors import Connector, memory_connector

Row = dict[str, Any]
DEBEZIUM, CONNECT = "io.debezium", "org.apache.kafka.connect.data"
MICROSECONDS = st.integers(-62_135_596_800_000_000, 253_402_300_799_999_999)
_EPOCH = dt.datetime(1970, 1, 1)


def _to_datetime(micros: int) -> dt.datetime:
    return _EPOCH + dt.timedelta(microseconds=micros)


def _decimals(digits: int, scale: int) -> st.SearchStrategy[Decimal]:
    return st.integers(-(10**digits) + 1, 10**digits - 1).map(lambda n: Decimal(n).scaleb(-scale, Context(prec=digits)))


def _decimal(precision: int, scale: int) -> dict[str, Any]:
    return {
        "semantic": f"{CONNECT}.Decimal",
        "parameters": {"scale": str(scale), "connect.decimal.precision": str(precision)},
    }


def _format_wide(number: int) -> str:
    return f"{number // 10**5}.{number % 10**5:05d}"


def _point(at: tuple[float, float]) -> Row:
    return {"wkb": struct.pack("<BIdd", 1, 1, *at), "srid": 4326}


_TEXT = st.text(max_size=12)
_FLOAT = st.floats(width=32) | st.just(float("nan"))
_TIMES = st.integers(-3_020_399, 3_020_399)
_TYPES: dict[str, tuple[str, dict[str, Any], st.SearchStrategy[Any]]] = {
    "bool": ("bool", {}, st.booleans()),
    **{f"int{n}": (f"int{n}", {}, st.integers(-(2 ** (n - 1)), 2 ** (n - 1) - 1)) for n in (8, 16, 32, 64)},
    "float": ("float", {}, _FLOAT),
    "double": ("double", {}, st.floats()),
    "string": ("string", {}, _TEXT),
    "binary": ("binary", {}, st.binary(max_size=9)),
    "decimal": ("decimal128(12, 2)", _decimal(12, 2), _decimals(12, 2)),
    "decimal38": ("decimal128(38, 9)", _decimal(38, 9), _decimals(38, 9)),
    "unsigned": ("decimal128(20, 0)", _decimal(20, 0), st.integers(0, 2**64 - 1).map(Decimal)),
    "hundreds": ("decimal128(8, 0)", _decimal(6, -2), st.integers(-999_999, 999_999).map(lambda n: Decimal(n * 100))),
    "decimal65": ("string", _decimal(65, 5), st.integers(0, 10**65 - 1).map(_format_wide)),
    "number": ("string", {"semantic": f"{DEBEZIUM}.data.VariableScaleDecimal"}, _decimals(30, 4).map(lambda d: f"{d:f}")),
    "date": ("date32[day]", {"semantic": f"{DEBEZIUM}.time.Date"}, st.dates()),
    "connect_date": ("date32[day]", {"semantic": f"{CONNECT}.Date"}, st.dates()),
    "timestamp": ("timestamp[us]", {"semantic": f"{DEBEZIUM}.time.Timestamp"}, MICROSECONDS.map(lambda n: _to_datetime(n // 1000 * 1000))),
    "connect_timestamp": ("timestamp[us]", {"semantic": f"{CONNECT}.Timestamp"}, MICROSECONDS.map(lambda n: _to_datetime(n // 1000 * 1000))),
    "micros": ("timestamp[us]", {"semantic": f"{DEBEZIUM}.time.MicroTimestamp"}, MICROSECONDS.map(_to_datetime)),
    "nanos": ("timestamp[ns]", {"semantic": f"{DEBEZIUM}.time.NanoTimestamp"}, st.integers(0, 4 * 10**15).map(_to_datetime)),
    "zoned": ("timestamp[us, tz=UTC]", {"semantic": f"{DEBEZIUM}.time.ZonedTimestamp", "declared": ColumnDeclaration(length=6)}, MICROSECONDS.map(lambda n: _to_datetime(n).replace(tzinfo=dt.UTC))),
    "time": ("int64", {"semantic": f"{DEBEZIUM}.time.Time"}, _TIMES.map(lambda n: n * 1000)),
    "connect_time": ("int64", {"semantic": f"{CONNECT}.Time"}, _TIMES.map(lambda n: n * 1000)),
    "micro_time": ("int64", {"semantic": f"{DEBEZIUM}.time.MicroTime"}, _TIMES),
    "nano_time": ("int64", {"semantic": f"{DEBEZIUM}.time.NanoTime"}, _TIMES),
    "duration": ("int64", {"semantic": f"{DEBEZIUM}.time.MicroDuration"}, st.integers(-(2**62), 2**62)),
    "interval": ("string", {"semantic": f"{DEBEZIUM}.time.Interval"}, st.just("P1Y2M0DT0H0M0S")),
    "zoned_time": ("string", {"semantic": f"{DEBEZIUM}.time.ZonedTime"}, st.just("10:11:12Z")),
    "year": ("int32", {"semantic": f"{DEBEZIUM}.time.Year"}, st.integers(1901, 2155)),
    "bits": ("binary", {"semantic": f"{DEBEZIUM}.data.Bits", "parameters": {"length": "12"}}, st.binary(min_size=2, max_size=2)),
    "enum": ("string", {"semantic": f"{DEBEZIUM}.data.Enum", "parameters": {"allowed": "a,b"}}, st.sampled_from("ab")),
    "set": ("string", {"semantic": f"{DEBEZIUM}.data.EnumSet", "parameters": {"allowed": "a,b"}}, st.sampled_from(["a", "a,b", ""])),
    "json": ("string", {"semantic": f"{DEBEZIUM}.data.Json"}, st.just('{"a": [1, null]}')),
    "xml": ("string", {"semantic": f"{DEBEZIUM}.data.Xml"}, st.just("<a/>")),
    "uuid": ("string", {"semantic": f"{DEBEZIUM}.data.Uuid"}, st.uuids().map(str)),
    "vector": ("list<item: float>", {"semantic": f"{DEBEZIUM}.data.FloatVector"}, st.lists(st.floats(width=32, allow_nan=False), min_size=1, max_size=3)),
    "geometry": (GEOMETRY, {"semantic": f"{DEBEZIUM}.data.geometry.Geometry"}, st.builds(lambda b, s: {"wkb": b, "srid": s}, st.binary(max_size=9), st.none() | st.integers(0, 9999))),
    "point": (GEOMETRY, {"semantic": f"{DEBEZIUM}.data.geometry.Point"}, st.tuples(st.floats(-180, 180), st.floats(-90, 90)).map(_point)),
}  # fmt: skip
"""Column → type, what else describes it, and its values: everything that a source makes of some type of its database."""
_KEYS = ("int32", "int64", "string", "binary", "decimal", "date", "micros", "uuid", "bits", "zoned")


def _columns(key: str, names: list[str]) -> tuple[Column, ...]:
    made = [Column(name="id", type=_TYPES[key][0], nullable=False, **_TYPES[key][1])]
    return (*made, *(Column(name=name, type=_TYPES[name][0], **_TYPES[name][1]) for name in names))


def _table(db: MemoryDatabase, columns: tuple[Column, ...], *, keyed: bool, sparse: tuple[str, ...]) -> None:
    """A table of these columns, which the database does not make by itself."""
    db.create_table("inventory.t", {c.name: "string" for c in columns}, ("id",) if keyed else (), sparse=sparse)
    schema = TableSchema(id=db.resolve_table_id("inventory.t"), columns=columns, key=("id",) if keyed else ())
    db._schemas[schema.id] = schema
    db.log[-1].changes[0] = db.log[-1].changes[0].model_copy(update={"table": schema})


def _render(ours: Connector, file: Path, *, schemas: bool = True) -> None:
    records = DebeziumRenderer(ours.changelog, ours.name, schemas=schemas).render_records()
    file.parent.mkdir(exist_ok=True)
    file.write_text("".join(json.dumps(r.to_document(schemas=schemas)) + "\n" for r in records))


def _comparable(rows: list[Row]) -> list[str]:
    return sorted(repr(sorted(row.items())) for row in rows)


@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(data=st.data(), keyed=st.booleans(), seed=st.integers(0, 10**6))
def test_rows_of_every_type_are_those_that_were_rendered(data: st.DataObject, keyed: bool, seed: int) -> None:
    folder = Path(tempfile.mkdtemp(prefix="round-trip-"))
    try:
        _round_trip(folder, data, keyed=keyed, seed=seed)
    finally:
        shutil.rmtree(folder)


def _round_trip(folder: Path, data: st.DataObject, *, keyed: bool, seed: int) -> None:
    key = data.draw(st.sampled_from(_KEYS), "key")
    names = data.draw(st.lists(st.sampled_from(sorted(_TYPES)), min_size=1, max_size=12, unique=True), "columns")
    texts = [name for name in names if _TYPES[name][0] in ("string", "binary") and name in ("string", "binary", "json")]
    sparse = tuple(texts) if keyed and data.draw(st.booleans(), "sparse") else ()
    db, r = MemoryDatabase(f"round-trip-{uuid.uuid4()}"), Random(seed)
    _table(db, _columns(key, names), keyed=keyed, sparse=sparse)

    def row() -> Row:
        found = {name: data.draw(st.none() | _TYPES[name][2], name) for name in names}
        # of a bag, a row that is not equal to itself cannot be followed
        return found if keyed else {name: 0.0 if value != value else value for name, value in found.items()}

    ids = data.draw(st.lists(_TYPES[key][2], min_size=2, max_size=6, unique_by=repr), "ids")
    there: list[Any] = []
    with db.transaction() as t:
        for one in ids[:-1]:
            t.insert("inventory.t", {"id": one, **row()})
            there.append(one)
    for _ in range(6):
        with db.transaction() as t:
            some = r.choice(there or ids)
            match r.choice(("update", "delete", "move", "insert")):
                case "update" if some in there:
                    values = row()
                    t.update("inventory.t", {"id": some}, {name: values[name] for name in r.sample(names, 1)}, limit=1)
                case "delete" if some in there:
                    t.delete("inventory.t", {"id": some}, limit=1)
                    there.remove(some)
                case "move" if some in there and ids[-1] not in there:
                    t.update("inventory.t", {"id": some}, {"id": ids[-1]}, limit=1)
                    there[there.index(some)] = ids[-1]
                case "insert" if some not in there:
                    t.insert("inventory.t", {"id": some, **row()})
                    there.append(some)
    db.truncate_table("inventory.t") if r.random() < 0.1 else None
    ours = memory_connector(db, folder / "ours", topic_prefix="shop", snapshot_mode="never", skipped_operations="")
    ours.capture()
    _render(ours, folder / "in" / "a.jsonl")
    theirs = connector(folder)
    theirs.capture()
    assert _comparable(theirs.rows("inventory.t")) == _comparable(ours.rows("inventory.t"))
    expected, found = (_schema(c) for c in (ours, theirs))
    assert [(c.name, c.type, c.semantic, c.parameters) for c in found.columns] == [
        (c.name, c.type, c.semantic, c.parameters) for c in expected.columns
    ]
    assert found.key == expected.key
    ours.store.close()
    theirs.store.close()


def _schema(some: Connector) -> TableSchema:
    return max(
        (
            s
            for m in some.changelog.read_manifests(some.name, after=0)
            for s in m.schemas.get("shop.inventory.t", {}).values()
        ),
        key=lambda s: s.version,
    )


@pytest.mark.parametrize("schemas", [True, False])
def test_what_is_rendered_again_is_the_same_text(tmp_path: Path, schemas: bool) -> None:
    """Read, captured and rendered again: keys and images are, character by character, what they were."""
    db = MemoryDatabase(str(tmp_path))
    names = [n for n in _TYPES if schemas or n in ("bool", "int64", "double", "string", "json", "uuid", "micro_time")]
    _table(db, _columns("int64", names), keyed=True, sparse=())
    examples = {name: _example(_TYPES[name][2]) for name in names}
    with db.transaction() as t:
        t.insert("inventory.t", {"id": 1, **examples})
        t.update("inventory.t", {"id": 1}, {"string": "other"})
        t.delete("inventory.t", {"id": 1})
    ours = memory_connector(db, tmp_path / "ours", topic_prefix="shop", snapshot_mode="never")
    ours.capture()
    _render(ours, tmp_path / "in" / "a.jsonl", schemas=schemas)
    theirs = connector(tmp_path)
    theirs.capture()

    def images(some: Connector) -> list[Any]:
        found = [
            r
            for r in DebeziumRenderer(some.changelog, some.name).render_records()
            if r.topic == "shop.inventory.t" and r.value is not None
        ]
        return [(r.key, r.value and {k: r.value[k] for k in ("before", "after", "op")}) for r in found]

    assert images(theirs) == images(ours)
    assert len(images(ours)) == 3


def _example(strategy: st.SearchStrategy[Any]) -> Any:
    """Return a value of the strategy, always the same."""
    found: list[Any] = []

    @settings(max_examples=1, database=None, derandomize=True)
    @given(strategy)
    def record_value(value: Any) -> None:
        found.append(value)

    record_value()
    return found[0]
