"""Other readers of the tables: delta-rs, PyIceberg, DuckDB and Polars get the rows that Spark gets, as long as no change needed a feature that
they lack."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import deltalake
import duckdb
import polars
import pyarrow as pa
import pytest
from duckdb_extensions import import_extension
from pyiceberg.table import StaticTable

from airflow_provider_cdc.core.errors import ConfigError
from tests.targets.lake.lake import Lake

pytestmark = [pytest.mark.spark, pytest.mark.only_kind("delta")]
Row = dict[str, Any]
Reader = Callable[[str], list[Row]]
COLUMNS = {
    "id": "int64!", "i8": "int8", "i32": "int32", "flag": "bool", "x": "double", "f": "float", "price": "decimal128(12, 2)",
    "note": "string", "raw": "binary", "day": "date32[day]", "at": "timestamp[us, tz=UTC]", "local": "timestamp[us]",
    "exact": "timestamp[ns]", "vector": "list<item: float>",
}  # fmt: skip
FULL = {
    "i8": -128, "i32": 7, "flag": True, "x": 1.5, "f": 0.25, "price": Decimal("-12.30"), "note": "${env:HOME} 'ä' \\ \n", "raw": b"\0\xff",
    "day": dt.date(2024, 2, 29), "at": dt.datetime(2024, 2, 29, 12, 0, 0, 123456, dt.UTC), "local": dt.datetime(1999, 12, 31, 23, 59, 59, 999999),
    "exact": None, "vector": [1.0, -0.5],
}  # fmt: skip


def _delta_rs(path: str) -> list[Row]:
    found = deltalake.QueryBuilder().register("t", deltalake.DeltaTable(path)).execute("SELECT * FROM t")
    return pa.table(found.read_all()).to_pylist()


def _duckdb(kind: str, *extensions: str) -> Reader:
    def read(path: str) -> list[Row]:
        for extension in extensions:
            import_extension(extension)
        with duckdb.connect() as connection:
            connection.execute(f"{''.join(f'LOAD {name};' for name in extensions)} SET TimeZone = 'UTC'")
            return connection.execute(f"SELECT * FROM {kind}_scan('{path}')").to_arrow_table().to_pylist()

    return read


def _metadata(path: str) -> str:
    """The file with the newest metadata of an Iceberg table."""
    (number,) = Path(path, "metadata", "version-hint.text").read_text().split()
    return f"{path}/metadata/v{number}.metadata.json"


READERS: dict[str, Reader] = {
    "delta-rs": _delta_rs,
    "DuckDB": _duckdb("delta", "delta"),
    "Polars": lambda path: polars.read_delta(path).to_dicts(),
}
OF_ICEBERG: dict[str, Reader] = {
    "PyIceberg": lambda path: StaticTable.from_metadata(_metadata(path)).scan().to_arrow().to_pylist(),
    "DuckDB": _duckdb("iceberg", "avro", "iceberg"),
    "Polars": lambda path: polars.scan_iceberg(_metadata(path)).collect().to_dicts(),
}


def _agree(lake: Lake, table: str, *readers: str) -> None:
    expected = lake.rows(table)
    assert expected
    for name in readers:
        found = (READERS if lake.kind == "delta" else OF_ICEBERG)[name](lake.path(table))
        assert sorted(map(_comparable, found), key=repr) == sorted(map(_comparable, expected), key=repr), name


def _comparable(row: Row) -> Row:
    return {k: v.astimezone(dt.UTC) if isinstance(v, dt.datetime) and v.tzinfo else v for k, v in row.items()}


def _features(lake: Lake, table: str) -> set[str]:
    """Return the features that a reader or writer of the table has to know, beyond those that all know."""
    found = lake.spark.sql(f"DESCRIBE DETAIL delta.`{lake.path(table)}`").first()
    assert found is not None
    return set(found["tableFeatures"]) - {"appendOnly", "invariants"}


@pytest.fixture
def filled_lake(lake: Lake) -> Lake:
    """Tables after an insert, an update and a delete each, with batches of several runs."""
    db = lake.connector.database  # type: ignore[attr-defined]
    db.create_table("s.plain", {k: t for k, t in COLUMNS.items() if k != "local"}, key=("id",))
    db.create_table("s.all", COLUMNS, key=("id",))
    db.create_table("s.bag", {"a": "int32", "b": "string"})
    for run in range(2):
        with db.transaction() as t:
            for table, columns in (("s.plain", {**COLUMNS, "local": ""}), ("s.all", COLUMNS)):
                for i in range(5):
                    row = {"id": 10 * run + i, **(FULL if i % 2 else dict.fromkeys(FULL))}
                    t.insert(
                        table,
                        {k: v for k, v in row.items() if k in columns and not (table == "s.plain" and k == "local")},
                    )
                if run:
                    t.update(table, {"id": 10 * run - 9}, {"note": f"run {run}"})
                    t.delete(table, {"id": 10 * run - 8})
            t.insert("s.bag", {"a": run % 2, "b": "x"})
        lake.follow()
    return lake


def test_every_reader_gets_the_same_rows(filled_lake: Lake) -> None:
    assert _features(filled_lake, "s.plain") == _features(filled_lake, "s.bag") == set()
    assert _features(filled_lake, "s.all") == {"timestampNtz"}, "times without a zone are a feature of their own"
    for table in ("s.plain", "s.all", "s.bag"):
        _agree(filled_lake, table, *READERS)
    # what old readers look at first
    log = Path(filled_lake.path("s.plain")) / "_delta_log" / f"{0:020d}.json"
    (protocol,) = (json.loads(line)["protocol"] for line in log.read_text().splitlines() if "protocol" in line[:12])
    assert protocol == {"minReaderVersion": 1, "minWriterVersion": 2}


def test_a_feature_is_switched_on_by_the_change_that_needs_it(filled_lake: Lake) -> None:
    db = filled_lake.connector.database  # type: ignore[attr-defined]
    db.add_column("s.plain", "more", "string", "text")
    filled_lake.follow()
    assert _features(filled_lake, "s.plain") == set(), "a new column needs none"
    _agree(filled_lake, "s.plain", *READERS)
    db.add_column("s.plain", "a b", "int32", 7)
    filled_lake.follow()
    assert _features(filled_lake, "s.plain") == {"columnMapping"}
    _agree(filled_lake, "s.plain", "delta-rs", "DuckDB")
    db.change_column("s.plain", "i32", "int64", int)
    filled_lake.follow()
    assert _features(filled_lake, "s.plain") == {"columnMapping", "typeWidening"}
    _agree(filled_lake, "s.plain", "DuckDB")
    db.rename_column("s.bag", "b", "c")
    db.add_column("s.bag", "t", "timestamp[us]", None)
    filled_lake.follow()
    assert _features(filled_lake, "s.bag") >= {"timestampNtz"}
    filled_lake.check()


@pytest.mark.only_kind("iceberg")
def test_every_reader_of_iceberg_gets_the_same_rows(filled_lake: Lake) -> None:
    for table in ("s.plain", "s.all", "s.bag"):
        _agree(filled_lake, table, *OF_ICEBERG)
    db = filled_lake.connector.database  # type: ignore[attr-defined]
    db.rename_column("s.plain", "note", "a b")
    db.add_column("s.plain", "more", "string", "text")
    db.change_column("s.plain", "i32", "int64", int)
    db.change_column("s.all", "i32", "string", str)  # the table is written again
    filled_lake.follow()
    for table in ("s.plain", "s.all"):
        _agree(filled_lake, table, *OF_ICEBERG)


def test_odd_names_of_columns_need_column_mapping_from_the_start(lake: Lake) -> None:
    db = lake.connector.database  # type: ignore[attr-defined]
    db.create_table("s.odd", {"id": "int64!", "a;b = {c}": "string"}, key=("id",))
    with db.transaction() as t:
        t.insert("s.odd", {"id": 1, "a;b = {c}": "x"})
    lake.follow()
    assert _features(lake, "s.odd") == {"columnMapping"}
    _agree(lake, "s.odd", "delta-rs", "DuckDB")


def test_a_truncated_table_may_come_back_with_columns_that_need_features(lake: Lake) -> None:
    db = lake.connector.database  # type: ignore[attr-defined]
    db.create_table("s.plain", {"id": "int64!"}, key=("id",))
    lake.follow()
    db.truncate_table("s.plain")
    db.add_column("s.plain", "when it was", "timestamp[us]", None)
    with db.transaction() as t:
        t.insert("s.plain", {"id": 1, "when it was": dt.datetime(2024, 1, 1)})
    lake.follow()
    lake.check()
    assert _features(lake, "s.plain") == {"columnMapping", "timestampNtz"}


def test_the_fast_profile_begins_with_deletion_vectors_and_keeps_old_tables_as_they_are(lake: Lake) -> None:
    db = lake.connector.database  # type: ignore[attr-defined]
    for name, profile in (("old", "compatible"), ("new", "fast")):
        db.create_table(f"s.{name}", {"id": "int64!", "n": "int32"}, key=("id",))
        for table in {"s.old", f"s.{name}"}:
            with db.transaction() as t:
                t.insert(table, {"id": len(profile), "n": 1})
        lake.connector.capture()
        lake.apply(profile=profile)
    assert _features(lake, "s.old") == set()
    assert _features(lake, "s.new") == {"deletionVectors"}
    with db.transaction() as t:
        t.update("s.new", {"id": len("fast")}, {"n": 2})
    lake.follow()
    lake.check()
    _agree(lake, "s.new", *READERS)


def test_an_unknown_profile_is_refused_with_those_that_there_are(lake: Lake) -> None:
    with pytest.raises(ConfigError, match=r"'quick' is not a table profile\. Valid values are: compatible, fast"):
        lake.apply(profile="quick")
