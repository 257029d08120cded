"""The Spark sessions that the jobs run in."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Mapping, Sequence
from typing import Any
from weakref import WeakKeyDictionary

from pyspark.sql import SparkSession

from airflow_provider_cdc.changelog.files.change_log import ChangeLog
from airflow_provider_cdc.core.errors import CdcError, ConfigError
from airflow_provider_cdc.targets.lake.formats.format_descriptor import TableFormat
from airflow_provider_cdc.targets.lake.spark_releases.jvm_features import scala_to_python

log = logging.getLogger("airflow_provider_cdc.targets.lake.session.spark_session")

STORAGE_OPTIONS = "CDC_STORAGE_OPTIONS"
"""Environment variable with the fsspec options of the change log's storage as JSON: secrets must not be on a command line."""

EXTENSIONS = "spark.sql.extensions"
PINNED = {
    # texts and names of the source stay as they are: ${env:…} is no question, a quoted name no pattern, a backslash an escape
    "spark.sql.variable.substitute": "false",
    "spark.sql.parser.escapedStringLiterals": "false",
    "spark.sql.parser.quotedRegexColumnNames": "false",
    "spark.sql.ansi.doubleQuotedIdentifiers": "false",
    "spark.sql.caseSensitive": "false",
    # values that cannot be read, cast or stored are an error
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
}
"""Settings without which the jobs would write other values than those of the source. Each session of theirs has them, whatever the
cluster's defaults, ``spark-submit`` or a notebook say. Each kind of target has further ones."""
ADVISED = {
    "spark.sql.shuffle.partitions": "8",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.adaptive.coalescePartitions.minPartitionSize": "8MB",
    # finished queries are kept for a page that no one opens, with plans of thousands of columns
    "spark.sql.ui.retainedExecutions": "5",
    "spark.ui.retainedJobs": "20",
    "spark.ui.retainedStages": "20",
    "spark.ui.retainedTasks": "200",
}
"""Settings that suit change batches better than Spark's own defaults; settings of the user win."""
PARTITION_BYTES = 32 << 20
"""Compressed bytes that one shuffle partition is to have, and below which work is little."""
LITTLE = {
    # each of them takes longer than little work does: classes for each plan that the JVM compiles, and plans made again half way
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.adaptive.enabled": "false",
}
"""Settings for little work; settings of the user win."""
MUCH = {
    "spark.sql.codegen.wholeStage": "true",
    "spark.sql.codegen.factoryMode": "FALLBACK",
    "spark.sql.adaptive.enabled": "true",
}
"""The same for more."""


def open_spark_session(name: str, *formats: TableFormat, extra: Mapping[str, str] | None = None) -> SparkSession:
    """Return the session of this process, made if there is none.

    Settings of ``spark-submit`` win over those that are advised.

    :param formats: kinds of targets that it reads and writes
    :param extra: further settings
    :raises ConfigError: there is one already, and it cannot write such tables
    """
    from pyspark import SparkConf

    submitted_conf, required = SparkConf(), _required(formats, extra or {})
    builder = SparkSession.builder.appName(name)
    advised = {**ADVISED, **{key: value for kind in formats for key, value in kind.advised.items()}}
    for key, value in {**advised, **(extra or {}), **required}.items():
        if key in required or key in (extra or {}) or not submitted_conf.contains(key):
            builder = builder.config(key, value)
    spark = configure_session(builder.getOrCreate(), *formats)
    for key, value in required.items():
        present = spark.conf.get(key, None)
        if not set(value.split(",")) <= set((present or "").split(",")):
            raise ConfigError(
                f"The Spark session of the job has {key}={present}, but needs {value}.",
                safe="Nothing was read or changed.",
                remedy=f"start the job in a separate session, or with --conf {key}={value}",
            )
    _name_s3(spark)
    spark.sparkContext.setLogLevel("WARN")
    log4j = spark._jvm.org.apache.logging.log4j  # type: ignore[union-attr]
    for logger in (logger for kind in formats for logger in kind.silenced):
        log4j.core.config.Configurator.setLevel(logger, log4j.Level.OFF)
    return spark


def _name_s3(spark: SparkSession) -> None:
    """Have ``s3://`` read by the reader of ``s3a://``, unless a separate implementation reads it, as on EMR.

    To most programs it is S3's only name.
    """
    hadoop = spark.sparkContext._jsc.hadoopConfiguration()
    if hadoop.get("fs.s3.impl") is None:
        hadoop.set("fs.s3.impl", "org.apache.hadoop.fs.s3a.S3AFileSystem")


def _required(formats: Sequence[TableFormat], extra: Mapping[str, str]) -> dict[str, str]:
    """Return the settings that the formats need.

    Where a setting is a list (``spark.sql.extensions``), they are added to the user's entries.
    """
    from pyspark import SparkConf

    needed: dict[str, list[str]] = {}
    for key, value in ((key, value) for kind in formats for key, value in kind.required.items()):
        needed.setdefault(key, []).append(value)
    submitted_conf = SparkConf()
    if EXTENSIONS in needed:
        own = extra.get(EXTENSIONS) or submitted_conf.get(EXTENSIONS, None) or ""
        needed[EXTENSIONS] = [name for name in own.split(",") if name] + needed[EXTENSIONS]
    return {key: ",".join(dict.fromkeys(values)) for key, values in needed.items()}


def own_session(spark: SparkSession, *formats: TableFormat) -> SparkSession:
    """Return a separate session in the same application, for a thread that works on a table."""
    return configure_session(spark.newSession(), *formats)


def configure_session(spark: SparkSession, *formats: TableFormat) -> SparkSession:
    """Return the session, with the settings that the jobs rely on.

    A new session has the cluster's defaults, not the settings of the one that made it.
    """
    settings = {**PINNED, **{key: value for kind in formats for key, value in kind.pinned.items()}}
    there = _settings(spark)
    for key, value in settings.items():
        if there.get(key) != value:  # some are set with a warning
            spark.conf.set(key, value)
    for key in (key for kind in formats for key in kind.unset):
        spark.conf.unset(key)
    return spark


FAIR = {"spark.scheduler.mode": "FAIR"}
"""For a session of several connectors: the tasks of one of them do not wait for all those that another one has begun with; settings of the
user win."""


def assign_scheduler_pool(spark: SparkSession, name: str) -> None:
    """Have the work of this thread share the cores evenly with that of other names, where the session is a :data:`FAIR` one."""
    spark.sparkContext.setLocalProperty("spark.scheduler.pool", name)


def refuse_ended(spark: SparkSession) -> None:
    """Raise an error if Spark has ended.

    :raises CdcError: Spark has ended: no table can be worked on any more
    """
    try:
        stopped = spark.sparkContext._jsc.sc().isStopped()
    except Exception as e:  # py4j's own errors, and those of the system, show that the JVM is gone
        log.warning("Spark does not respond: %s", e)
        stopped = True
    if stopped:
        raise CdcError(
            "The Spark session of the apply has ended.",
            safe="Each table has all changes that were committed to it; the change log keeps the rest.",
            remedy="run the apply again: each table continues from its last batch",
        )


def tune_session(spark: SparkSession, size: int) -> None:
    """Set the settings of a session by the size of the work that comes next.

    :param size: compressed bytes of the input: at most four shuffle partitions for each core
    """
    own = _OWN.setdefault(spark, {})
    if not own:
        conf = spark.sparkContext.getConf()
        own |= {key: "" for key in LITTLE if conf.contains(key)}
        own["cores"] = str(spark.sparkContext.defaultParallelism)
    partitions = min(size // PARTITION_BYTES + 1, 4 * int(own["cores"]))
    settings = {"spark.sql.shuffle.partitions": str(partitions), **(MUCH if size >= PARTITION_BYTES else LITTLE)}
    for key, value in settings.items():
        if own.get(key, None) not in ("", value):
            spark.conf.set(key, value)
            own[key] = value


_OWN: WeakKeyDictionary[SparkSession, dict[str, str]] = WeakKeyDictionary()
"""Session → settings that were set by :func:`tune_session`; empty where the user has set it. Each question into the JVM takes as long as some work."""


def _settings(spark: SparkSession) -> dict[str, str]:
    """Return the settings of a session, in few calls into the JVM."""
    settings: dict[str, str] = scala_to_python(spark, spark._jsparkSession.conf().getAll())
    return settings


def open_changelog(url: str) -> ChangeLog:
    """Open the change log of the job's arguments, with the options from :data:`STORAGE_OPTIONS`.

    :raises ConfigError: the options cannot be read
    """
    return ChangeLog(url, _options('{"key": "…", "secret": "…"}'))


def options_by_connector(connectors: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Read the storage options of a job for several connectors: connector → options.

    :raises ConfigError: they cannot be read, or are of a connector that is not applied
    """
    example = '{"shop": {"key": "…", "secret": "…"}}'
    options = _options(example)
    wrong = sorted(name for name, options in options.items() if name not in connectors or not isinstance(options, dict))
    if wrong:
        raise ConfigError(
            f"The environment variable {STORAGE_OPTIONS} must hold options by connector, but the job does not apply {wrong[0]!r}.",
            where=f"connectors: {', '.join(connectors)}",
            safe="Nothing was read or changed.",
            remedy=f"for example {STORAGE_OPTIONS}='{example}'",
        )
    return options


def _options(example: str) -> dict[str, Any]:
    text = os.environ.get(STORAGE_OPTIONS) or "{}"
    try:
        options: Any = json.loads(text)
    except ValueError:
        options = None
    if not isinstance(options, dict):
        raise ConfigError(
            f"The environment variable {STORAGE_OPTIONS} does not hold a JSON object.",
            safe="Nothing was read or changed.",
            remedy=f"for example {STORAGE_OPTIONS}='{example}'",
        )
    return options
