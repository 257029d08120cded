"""Deletion vectors that the driver writes for large Delta tables: what they take away, and what is left to Spark."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from airflow_provider_cdc.targets.lake.formats import parquet_key_lookup
from airflow_provider_cdc.targets.lake.formats.delta import deletion_vectors
from airflow_provider_cdc.targets.lake.formats.delta.array_commit import DeltaClasses
from airflow_provider_cdc.targets.lake.formats.delta.file_reader import DeltaDataFile, DeltaFileReader
from airflow_provider_cdc.targets.lake.formats.parquet_key_lookup import ArrowUnsupported
from tests.targets.lake.apply.test_readers import READERS, _agree
from tests.targets.lake.lake import Lake

pytestmark = [pytest.mark.spark, pytest.mark.only_kind("delta")]
ROWS = 140_000
"""More than two containers of a bitmap."""


@pytest.fixture
def large_table(lake: Lake, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> Lake:
    """A table of one file, in which nothing is replaced by writing files again."""
    caplog.set_level(logging.INFO, "airflow_provider_cdc.targets.lake")
    monkeypatch.setattr("airflow_provider_cdc.targets.lake.formats.delta.array_commit.MOST_BYTES", -1)
    db = lake.connector.database  # type: ignore[attr-defined]
    db.create_table("s.t", {"id": "int64!", "n": "int32"}, key=("id",))
    with db.transaction() as t:
        for i in range(300):
            t.insert("s.t", {"id": i, "n": i})
    lake.connector.capture()
    lake.apply(profile="fast")
    return lake


def _update(lake: Lake, *ids: int) -> None:
    with lake.connector.database.transaction() as t:  # type: ignore[attr-defined]
        for i in ids:
            t.update("s.t", {"id": i}, {"n": i + 1000})
    lake.connector.capture()


def _delete(lake: Lake, *ids: int) -> None:
    with lake.connector.database.transaction() as t:  # type: ignore[attr-defined]
        for i in ids:
            t.delete("s.t", {"id": i})
    lake.connector.capture()


def _actions(lake: Lake) -> list[dict[str, Any]]:
    """Return the actions of the newest commit."""
    newest = max((Path(lake.path("s.t")) / "_delta_log").glob("*.json"))
    return [json.loads(line) for line in newest.read_text().splitlines()]


def _rows(number: int, often: float) -> Callable[[Random], list[int]]:
    return lambda r: [n for n in range(number) if r.random() < often]


@pytest.mark.parametrize(
    "numbers",
    [
        lambda _: [0],
        lambda _: [65_535, 65_536, 2**31, 2**32 - 1],
        lambda _: list(range(4096)),
        lambda _: list(range(4097)),
        lambda _: list(range(70_000)),
        _rows(200_000, 0.01),
        _rows(200_000, 0.5),
    ],
)
def test_a_bitmap_is_written_as_delta_writes_it(spark: SparkSession, numbers: Callable[[Random], list[int]]) -> None:
    delta, expected = DeltaClasses(spark), numbers(Random(7))
    found = delta.load_class(deletion_vectors._BITMAP).readFrom(
        deletion_vectors.serialize_row_numbers(np.array(expected, np.int64))
    )
    assert int(found.cardinality()) == len(expected)
    assert (int(found.first().get()), int(found.last().get())) == (expected[0], expected[-1])
    assert all(found.contains(number) for number in Random(3).sample(expected, min(50, len(expected))))
    portable = delta.load_scala_object(f"{deletion_vectors._BITMAP}Format").Portable()
    assert bytes(found.serializeAsByteArray(portable)) == deletion_vectors.serialize_row_numbers(
        np.array(expected, np.int64)
    )


def test_a_row_number_that_no_vector_holds_is_left_to_spark() -> None:
    with pytest.raises(ArrowUnsupported, match="4 billion"):
        deletion_vectors.serialize_row_numbers(np.array([2**32], np.int64))


def test_rows_that_delta_has_deleted_stay_deleted(large_table: Lake) -> None:
    """The vectors of Delta's own statements, with runs and without, are gone on with."""
    large_table.spark.sql(f"DELETE FROM delta.`{large_table.path('s.t')}` WHERE id BETWEEN 100 AND 180 OR id % 7 = 0")
    gone = [i for i in range(300) if 100 <= i <= 180 or i % 7 == 0]
    _delete(large_table, *gone[::2])  # some of them are gone in the source, too; the others stay different
    _update(large_table, 1, 2, 181, 299)
    large_table.apply()
    found = {row.id: row.n for row in large_table.frame("s.t").collect()}
    assert found == {i: i + 1000 if i in (1, 2, 181, 299) else i for i in range(300) if i not in gone}
    large_table.spark.sql(f"DELETE FROM delta.`{large_table.path('s.t')}` WHERE id = 3")
    assert large_table.frame("s.t").where("id = 3").isEmpty()
    large_table.spark.sql(f"OPTIMIZE delta.`{large_table.path('s.t')}`")
    assert {row.id: row.n for row in large_table.frame("s.t").collect()} == {i: n for i, n in found.items() if i != 3}


def test_a_file_whose_rows_are_all_gone_goes_and_others_say_what_they_still_hold(large_table: Lake) -> None:
    _update(large_table, *range(150))
    large_table.apply()
    added = [line["add"] for line in _actions(large_table) if "add" in line]
    (vector,) = (file for file in added if "deletionVector" in file)
    text = json.loads(vector["stats"])
    assert (vector["deletionVector"]["cardinality"], text["numRecords"], text["tightBounds"]) == (150, 300, False)

    _delete(large_table, *range(150, 300))
    large_table.apply()
    assert [line["remove"]["path"] for line in _actions(large_table) if "remove" in line] == [vector["path"]]
    assert not any("add" in line for line in _actions(large_table))
    large_table.check()
    _agree(large_table, "s.t", *READERS)


def test_a_file_without_any_of_the_keys_stays_as_it_is(large_table: Lake) -> None:
    with large_table.connector.database.transaction() as t:  # type: ignore[attr-defined]
        for i in range(1000, 1010):
            t.insert("s.t", {"id": i, "n": i})
    large_table.connector.capture()
    large_table.apply()
    _update(large_table, 1003)
    large_table.apply()
    touched = [line["add"] for line in _actions(large_table) if "add" in line]
    assert sorted(file.get("deletionVector", {}).get("cardinality", 0) for file in touched) == [0, 1]
    large_table.check()


@pytest.mark.parametrize(
    ("limit", "value", "message"),
    [("MOST_FILES", 0, "the table has 1 files"), ("MOST_BYTES", 100, "the keys may be in files of 0 GB")],
)
def test_what_is_too_much_for_the_driver_is_left_to_spark(
    large_table: Lake,
    limit: str,
    value: int,
    message: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(parquet_key_lookup, limit, value)
    _update(large_table, 5, 6)
    large_table.apply()
    assert f"Spark searches for the rows to remove: {message}." in caplog.messages
    large_table.check()


@pytest.mark.parametrize("scheme", ["file", "viewfs"])
def test_rows_are_found_where_they_are_whatever_the_filesystem(
    spark: SparkSession, tmp_path: Path, scheme: str
) -> None:
    """Several row groups, some of which cannot have a key; ``viewfs`` stands for all that is no local disk: it is read by ranges."""
    r = Random(1)
    ids = list(range(ROWS))
    r.shuffle(ids)
    ids[70_000:] = sorted(ids[70_000:])
    rows = pa.table(
        {"id": pa.array(ids, pa.int32()), "a.b": [f"it's {i % 5}" for i in ids], "a": [{"b": i} for i in ids]}
    )
    pq.write_table(rows, tmp_path / "part.parquet", row_group_size=20_000)
    jvm: Any = spark._jvm
    conf = spark._jsparkSession.sessionState().newHadoopConf()
    conf.set("fs.viewfs.mounttable.default.link./here", tmp_path.as_uri())
    folder = {"file": tmp_path.as_uri(), "viewfs": "viewfs:///here"}[scheme]
    path = jvm.org.apache.hadoop.fs.Path(f"{folder}/part.parquet")
    columns = SimpleNamespace(as_now=lambda found: found.cast(pa.schema([("a.b", pa.string()), ("id", pa.int64())])))
    files = DeltaFileReader(columns, path.getFileSystem(conf), jvm.org.apache.hadoop.fs.Path)  # type: ignore[arg-type]
    size = (tmp_path / "part.parquet").stat().st_size

    expected = {r.randrange(ROWS) for _ in range(500)}
    keys = pa.table({"a.b": [f"it's {i % 5}" if i % 3 else "other" for i in sorted(expected)], "id": sorted(expected)})
    found = files.find_row_numbers(DeltaDataFile(None, path, size, "", has_vector=False), keys)
    assert list(found) == [n for n, i in enumerate(ids) if i in expected and i % 3]
    none = pa.table({"a.b": ["it's 0"], "id": [ROWS + 5]})
    assert list(files.find_row_numbers(DeltaDataFile(None, path, size, "", has_vector=False), none)) == []


def test_another_writer_of_the_table_makes_the_commit_begin_again(
    large_table: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Vectors are of one version of the table: a writer that has changed a file since then is not overwritten."""
    _update(large_table, 7)
    made, statement = (
        deletion_vectors.DeletionVectorWriter.build_key_removals,
        f"DELETE FROM delta.`{large_table.path('s.t')}` WHERE id = 200",
    )
    others = [statement]

    def write_and_act(self: deletion_vectors.DeletionVectorWriter, *of: Any) -> list[Any]:
        found = made(self, *of)
        if others:
            large_table.spark.sql(others.pop())
        return found

    monkeypatch.setattr(deletion_vectors.DeletionVectorWriter, "build_key_removals", write_and_act)
    large_table.apply()
    assert others == []
    assert {row.id: row.n for row in large_table.frame("s.t").collect()} == {
        i: i + 1000 if i == 7 else i for i in range(300) if i != 200
    }


def test_of_a_table_without_a_key_spark_writes_the_vectors_if_the_files_are_too_many(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "airflow_provider_cdc.targets.lake")
    db = lake.connector.database  # type: ignore[attr-defined]
    db.create_table("s.bag", {"n": "int32", "note": "string"}, key=())
    with db.transaction() as t:
        for i in range(20):
            t.insert("s.bag", {"n": i % 7, "note": "it's"})
    lake.connector.capture()
    lake.apply(profile="fast")
    for limit in (parquet_key_lookup.MOST_FILES, 0):
        monkeypatch.setattr(parquet_key_lookup, "MOST_FILES", limit)
        with db.transaction() as t:
            t.delete("s.bag", {"n": limit % 7})
            t.update("s.bag", {"n": 1}, {"note": f"{limit}"})
        lake.connector.capture()
        caplog.clear()
        lake.apply()
        messages = [text for text in caplog.messages if text.startswith("Spark writes the deletion vectors")]
        assert messages == ([] if limit else ["Spark writes the deletion vectors: the table has 2 files."])
        lake.check("s.bag")
