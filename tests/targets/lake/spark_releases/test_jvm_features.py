"""Commits of arrays are used where the table format has the members that they call, and MERGE elsewhere."""

from __future__ import annotations

import importlib
import logging

import pytest
from pyspark.sql import SparkSession

from airflow_provider_cdc.targets.lake.spark_releases import jvm_features
from airflow_provider_cdc.targets.lake.spark_releases.jvm_features import (
    JvmMember,
    count_parameters,
    find_missing_member,
    python_to_scala,
    scala_to_python,
)
from tests.targets.lake.lake import Lake

pytestmark = pytest.mark.spark
FORMATS = "airflow_provider_cdc.targets.lake.formats"


def test_methods_and_constructors_are_counted_by_their_parameters(spark: SparkSession) -> None:
    assert count_parameters(spark, "java.lang.String", "isEmpty") == {0}
    assert {1, 2} <= count_parameters(spark, "java.lang.String", "indexOf")
    assert {1, 2} <= count_parameters(spark, "java.math.BigDecimal")
    assert count_parameters(spark, "java.lang.String", "indexof") == frozenset()
    assert count_parameters(spark, "org.example.Absent") == frozenset()


def test_collections_of_scala_come_and_go_with_each_release_of_scala(spark: SparkSession) -> None:
    assert scala_to_python(spark, python_to_scala(spark, ["a", "b"])) == ["a", "b"]
    assert scala_to_python(spark, spark._jsparkSession.conf().getAll())["spark.app.name"]


@pytest.mark.every_kind
def test_the_formats_that_tests_run_with_commit_arrays(spark: SparkSession, kind: str) -> None:
    needed = importlib.import_module(f"{FORMATS}.{kind}.array_commit").NEEDED
    assert find_missing_member(spark, kind.capitalize(), needed) == ""


@pytest.mark.every_kind
def test_a_release_without_a_member_merges_and_says_so_once(
    lake: Lake, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    facts = jvm_features._facts(lake.spark)
    monkeypatch.setattr(facts, "obstacles", {})
    absent = (JvmMember("org.example.Absent", "commit", 2),)
    for module in ("array_commit", "table"):
        loaded = importlib.import_module(f"{FORMATS}.{lake.kind}.{module}")
        if hasattr(loaded, "NEEDED"):
            monkeypatch.setattr(loaded, "NEEDED", absent)
    database = lake.connector.database
    database.create_table("s.t", {"id": "int64!", "n": "int32"}, key=("id",))
    database.create_table("s.no_key", {"n": "int32"}, key=())
    for n in range(3):
        with database.transaction() as t:
            t.insert("s.t", {"id": n, "n": n})
            t.insert("s.t", {"id": -1, "n": n}) if n == 0 else t.update("s.t", {"id": -1}, {"n": n})
            t.insert("s.no_key", {"n": n})
        with caplog.at_level(logging.WARNING):
            found = lake.follow().tables
    assert {table.topic: table.ways for table in found}["p.s.t"] == {"merge": 1}
    said = [r.getMessage() for r in caplog.records if "org.example.Absent.commit" in r.getMessage()]
    assert len(said) == 1
    assert said[0].startswith(f"Spark merges all batches: this release of {lake.kind.capitalize()} has no ")
    lake.check()
