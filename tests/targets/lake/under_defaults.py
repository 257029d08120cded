"""Behaviour that must hold whatever a cluster's defaults say. ``test_cluster_defaults.py`` runs this with :data:`HOSTILE` in ``spark-defaults.conf``."""

from __future__ import annotations

from datetime import UTC, date, datetime
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from airflow_provider_cdc.core.errors import TargetError
from airflow_provider_cdc.targets.lake.formats import load_format
from airflow_provider_cdc.targets.lake.session.spark_session import PINNED, own_session
from tests.targets.lake.lake import Lake

pytestmark = pytest.mark.spark
_DEFAULTS = "spark.databricks.delta.properties.defaults"
HOSTILE = {
    "spark.sql.parser.escapedStringLiterals": "true",
    "spark.sql.parser.quotedRegexColumnNames": "true",
    "spark.sql.ansi.doubleQuotedIdentifiers": "true",
    "spark.sql.caseSensitive": "true",
    "spark.sql.files.ignoreMissingFiles": "true",
    "spark.sql.files.ignoreCorruptFiles": "true",
    "spark.sql.ansi.enabled": "false",
    "spark.sql.storeAssignmentPolicy": "LEGACY",
    "spark.sql.decimalOperations.allowPrecisionLoss": "false",
    "spark.sql.session.timeZone": "Asia/Kathmandu",
    "spark.sql.timestampType": "TIMESTAMP_NTZ",
    "spark.sql.legacy.timeParserPolicy": "LEGACY",
    "spark.sql.parquet.datetimeRebaseModeInRead": "LEGACY",
    "spark.sql.parquet.datetimeRebaseModeInWrite": "LEGACY",
    "spark.sql.parquet.int96RebaseModeInRead": "LEGACY",
    "spark.sql.parquet.int96RebaseModeInWrite": "LEGACY",
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MILLIS",
    "spark.sql.legacy.parquet.nanosAsLong": "false",
    "spark.sql.parquet.fieldId.read.enabled": "true",
    "spark.sql.parquet.binaryAsString": "true",
    "spark.sql.parquet.writeLegacyFormat": "true",
    "spark.sql.sources.partitionOverwriteMode": "DYNAMIC",
    "spark.databricks.delta.allFilesInCrc.verificationMode.forceOnNonUTC.enabled": "true",
    "spark.databricks.delta.schema.autoMerge.enabled": "true",
    "spark.databricks.delta.merge.materializeSource": "all",
    f"{_DEFAULTS}.appendOnly": "true",
    f"{_DEFAULTS}.setTransactionRetentionDuration": "interval 1 second",
}
"""Settings that a cluster may have for everybody."""


def test_the_defaults_are_hostile_and_sessions_of_ours_are_not(spark: SparkSession) -> None:
    delta = load_format("delta")
    plain, own = spark.newSession(), own_session(spark, delta)
    expected = {**PINNED, **delta.pinned}
    assert {key: plain.conf.get(key) for key in HOSTILE} == HOSTILE
    assert {key: own.conf.get(key) for key in expected} == expected
    assert set(expected) - set(HOSTILE) == {
        "spark.sql.variable.substitute", "spark.databricks.delta.allowArbitraryProperties.enabled",
    }  # fmt: skip
    assert [own.conf.get(key, None) for key in delta.unset] == [None] * len(delta.unset)


def test_moments_dates_and_casts_mean_the_same(lake: Lake) -> None:
    db = lake.connector.database
    columns = {
        "id": "int64!",
        "at": "timestamp[us, tz=UTC]",
        "local": "timestamp[us]",
        "day": "date32[day]",
        "x": "timestamp[ns]",
    }
    db.create_table("s.t", columns, key=("id",))
    row = {
        "id": 1, "at": datetime(1500, 1, 2, 3, 4, 5, 678901, UTC), "local": datetime(1400, 2, 28, 23, 59, 59, 999999),
        "day": date(1066, 10, 14), "x": None,
    }  # fmt: skip
    with db.transaction() as t:
        t.insert("s.t", row)
    lake.follow()
    db.add_column(
        "s.t",
        "y",
        "timestamp[us, tz=UTC]",
        datetime(2024, 2, 29, 1, 2, 3, 456789, UTC),
        text="2024-02-29 01:02:03.456789",
    )
    with db.transaction() as t:
        t.update("s.t", {"id": 1}, {"day": date(1, 1, 1)})
    lake.follow()
    assert lake.rows("s.t") == db.copy_rows("s.t")


def test_a_table_that_is_written_again_is_written_whole(lake: Lake) -> None:
    db = lake.connector.database
    db.create_table("s.bag", {"a": "int32", "b": "string"})
    with db.transaction() as t:
        for i in range(4):
            t.insert("s.bag", {"a": i, "b": "x"})
    lake.follow()
    rows = lake.frame("s.bag").localCheckpoint()
    rows.write.format("delta").mode("overwrite").option("overwriteSchema", "true").partitionBy("a").save(
        lake.path("s.bag")
    )
    with db.transaction() as t:
        t.delete("s.bag", {"a": 2})
    lake.follow()
    lake.check()


def test_a_file_of_a_table_that_is_gone_is_an_error(lake: Lake) -> None:
    db = lake.connector.database
    db.create_table("s.bag", {"a": "int32"})
    with db.transaction() as t:
        for i in range(4):
            t.insert("s.bag", {"a": i})
    lake.follow()
    for file in Path(lake.path("s.bag")).rglob("*.parquet"):
        if "_delta_log" not in file.parts:
            file.unlink()
    at = lake.version("s.bag")
    with db.transaction() as t:
        t.update("s.bag", {"a": 2}, {"a": 3})
    lake.connector.capture()
    with pytest.raises(TargetError):
        lake.apply()
    assert lake.version("s.bag") == at


def test_names_are_names_and_their_case_does_not_matter(lake: Lake) -> None:
    db = lake.connector.database
    db.create_table("s.t", {"ID": "int64!", "a.*": "int32", 'it\'s \\ "odd"': "string"}, key=("ID",))
    with db.transaction() as t:
        t.insert("s.t", {"ID": 1, "a.*": 2, 'it\'s \\ "odd"': "'\\"})
    lake.follow()
    db.rename_columns("s.t", ID="id")
    db.add_column("s.t", "(a)?+.+", "string", "\\'")
    with db.transaction() as t:
        t.update("s.t", {"id": 1}, {"a.*": 3})
    lake.follow()
    (row,) = lake.frame("s.t").toArrow().to_pylist()
    assert list(row.values()) == [1, 3, "'\\", "\\'"]
