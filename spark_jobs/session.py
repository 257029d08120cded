"""The Spark session that the jobs run in."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Any

from pyspark.sql import SparkSession

from airflow_provider_cdc.changelog.log import ChangeLog
from airflow_provider_cdc.core.errors import ConfigError

STORAGE_OPTIONS = "CDC_STORAGE_OPTIONS"
"""Environment variable with the fsspec options of the change log's storage as JSON: what is secret is on no command line."""

REQUIRED = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    "spark.sql.session.timeZone": "UTC",
    # dates before 1582 are those of the files, in both directions
    "spark.sql.parquet.datetimeRebaseModeInRead": "CORRECTED",
    "spark.sql.parquet.datetimeRebaseModeInWrite": "CORRECTED",
    "spark.sql.parquet.int96RebaseModeInRead": "CORRECTED",
    "spark.sql.parquet.int96RebaseModeInWrite": "CORRECTED",
    # timestamps of nanoseconds, which Spark has no type for, come as numbers
    "spark.sql.legacy.parquet.nanosAsLong": "true",
    # the files of a batch never change and the last event of a key is unique: no need for a copy of the source
    "spark.databricks.delta.merge.materializeSource": "none",
}
"""Settings that the jobs cannot do without."""
ADVISED = {
    "spark.databricks.delta.snapshotPartitions": "2",
    "spark.sql.shuffle.partitions": "8",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.adaptive.coalescePartitions.minPartitionSize": "8MB",
}
"""Settings that suit change batches better than Spark's own defaults; what the user sets wins."""


def session(name: str, extra: Mapping[str, str] | None = None) -> SparkSession:
    """The session of this process, made if there is none. What ``spark-submit`` was given wins over :data:`ADVISED`."""
    from pyspark import SparkConf

    given = SparkConf()
    builder = SparkSession.builder.appName(name)
    for key, value in {**ADVISED, **REQUIRED, **(extra or {})}.items():
        if key in REQUIRED or key in (extra or {}) or not given.contains(key):
            builder = builder.config(key, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("WARN")
    # Delta logs an error whenever it reads a file with deletion vectors and a filter, though nothing is wrong
    log4j = spark._jvm.org.apache.logging.log4j  # type: ignore[union-attr]
    log4j.core.config.Configurator.setLevel("org.apache.spark.sql.delta.DeltaParquetFileFormat", log4j.Level.OFF)
    return spark


def open_changelog(url: str) -> ChangeLog:
    """The change log that a job was told of, with the options from :data:`STORAGE_OPTIONS`.

    :raises ConfigError: the options cannot be read
    """
    text = os.environ.get(STORAGE_OPTIONS) or "{}"
    try:
        options: Any = json.loads(text)
    except ValueError:
        options = None
    if not isinstance(options, dict):
        raise ConfigError(
            f"The environment variable {STORAGE_OPTIONS} does not hold a JSON object.",
            safe="Nothing was read or changed.",
            remedy=f'for example {STORAGE_OPTIONS}=\'{{"key": "…", "secret": "…"}}\'',
        )
    return ChangeLog(url, options)
