"""The Spark sessions that the jobs run in."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Any

from pyspark.sql import SparkSession

from airflow_provider_cdc.changelog.log import ChangeLog
from airflow_provider_cdc.core.errors import ConfigError

STORAGE_OPTIONS = "CDC_STORAGE_OPTIONS"
"""Environment variable with the fsspec options of the change log's storage as JSON: secrets must not be on a command line."""

REQUIRED = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
}
"""Settings that the jobs need, and that are fixed once a session exists."""
PINNED = {
    # texts and names of the source stay what they are: ${env:…} is no question, a quoted name no pattern, a backslash an escape
    "spark.sql.variable.substitute": "false",
    "spark.sql.parser.escapedStringLiterals": "false",
    "spark.sql.parser.quotedRegexColumnNames": "false",
    "spark.sql.ansi.doubleQuotedIdentifiers": "false",
    "spark.sql.caseSensitive": "false",
    # what cannot be read, cast or stored is an error
    "spark.sql.files.ignoreMissingFiles": "false",
    "spark.sql.files.ignoreCorruptFiles": "false",
    "spark.sql.ansi.enabled": "true",
    "spark.sql.storeAssignmentPolicy": "ANSI",
    "spark.sql.decimalOperations.allowPrecisionLoss": "true",
    # moments, dates and timestamps have one meaning, and all their digits
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.timestampType": "TIMESTAMP_LTZ",
    "spark.sql.legacy.timeParserPolicy": "CORRECTED",
    "spark.sql.parquet.datetimeRebaseModeInRead": "CORRECTED",
    "spark.sql.parquet.datetimeRebaseModeInWrite": "CORRECTED",
    "spark.sql.parquet.int96RebaseModeInRead": "CORRECTED",
    "spark.sql.parquet.int96RebaseModeInWrite": "CORRECTED",
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    # timestamps of nanoseconds, which Spark has no type for, come as numbers
    "spark.sql.legacy.parquet.nanosAsLong": "true",
    # columns of the change log's files are found by their names
    "spark.sql.parquet.fieldId.read.enabled": "false",
    "spark.sql.parquet.binaryAsString": "false",
    "spark.sql.parquet.writeLegacyFormat": "false",
    # who replaces a table means the whole table, with these columns
    "spark.sql.sources.partitionOverwriteMode": "STATIC",
    "spark.databricks.delta.schema.autoMerge.enabled": "false",
    # the table says which connector and topic it belongs to
    "spark.databricks.delta.allowArbitraryProperties.enabled": "true",
    # the files of a batch never change and the last event of a key is unique: no need for a copy of the source
    "spark.databricks.delta.merge.materializeSource": "none",
}
"""Settings without which the jobs would write other values than those of the source. Each session of theirs has them, whatever the
cluster's defaults, ``spark-submit`` or a notebook say."""
UNSET = (
    # a table that only grows cannot follow its source; a marker that expires would have everything applied again
    "spark.databricks.delta.properties.defaults.appendOnly",
    "spark.databricks.delta.properties.defaults.setTransactionRetentionDuration",
    # left in a session, these make every write of an older number a silent no-op
    "spark.databricks.delta.write.txnAppId",
    "spark.databricks.delta.write.txnVersion",
)
"""Settings that no session of the jobs may have."""
ADVISED = {
    "spark.databricks.delta.snapshotPartitions": "2",
    "spark.sql.shuffle.partitions": "8",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.adaptive.coalescePartitions.minPartitionSize": "8MB",
}
"""Settings that suit change batches better than Spark's own defaults; settings of the user win."""


def session(name: str, extra: Mapping[str, str] | None = None) -> SparkSession:
    """The session of this process, made if there is none. Settings of ``spark-submit`` win over :data:`ADVISED`.

    :raises ConfigError: there is one already, and it cannot write the tables
    """
    from pyspark import SparkConf

    given = SparkConf()
    builder = SparkSession.builder.appName(name)
    for key, value in {**ADVISED, **REQUIRED, **(extra or {})}.items():
        if key in REQUIRED or key in (extra or {}) or not given.contains(key):
            builder = builder.config(key, value)
    spark = pinned(builder.getOrCreate())
    for key, value in REQUIRED.items():
        if value not in (spark.conf.get(key) or "").split(","):
            raise ConfigError(
                f"The Spark session that the job was started in has {key}={spark.conf.get(key)}, and needs {value}.",
                safe="Nothing was read or changed.",
                remedy=f"start the job in a session of its own, or with --conf {key}={value}",
            )
    spark.sparkContext.setLogLevel("WARN")
    # Delta logs an error whenever it reads a file with deletion vectors and a filter, though nothing is wrong
    log4j = spark._jvm.org.apache.logging.log4j  # type: ignore[union-attr]
    log4j.core.config.Configurator.setLevel("org.apache.spark.sql.delta.DeltaParquetFileFormat", log4j.Level.OFF)
    return spark


def own_session(spark: SparkSession) -> SparkSession:
    """A session of one's own in the same application, for a thread that works on a table."""
    return pinned(spark.newSession())


def pinned(spark: SparkSession) -> SparkSession:
    """The session, with what the jobs rely on. A new session has the cluster's defaults, whatever the one that made it has."""
    for key, value in PINNED.items():
        if spark.conf.get(key, None) != value:  # some are set with a warning
            spark.conf.set(key, value)
    for key in UNSET:
        spark.conf.unset(key)
    return spark


def open_changelog(url: str) -> ChangeLog:
    """The change log of the job's arguments, with the options from :data:`STORAGE_OPTIONS`.

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
