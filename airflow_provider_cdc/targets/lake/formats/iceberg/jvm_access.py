"""Classes of Iceberg and Spark that have no Python interface."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from py4j.java_gateway import JavaClass
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from airflow_provider_cdc.core.errors import TargetError
from airflow_provider_cdc.targets.lake.formats.jvm_errors import failed_with
from airflow_provider_cdc.targets.lake.formats.table_values import WriteConflict
from airflow_provider_cdc.targets.lake.spark_releases.jvm_features import has_field, load_jvm_class

ICEBERG = "org.apache.iceberg"
FASTER = ("CommitFailedException", "AlreadyExistsException", "NoSuchTableException")
"""Errors of Iceberg's catalogs when another writer was faster; the last one, when it has removed the table."""


def java_map(spark: SparkSession, values: Mapping[str, str]) -> Any:
    linked_map = load_jvm_class(spark, "java.util.LinkedHashMap")()
    for name, value in values.items():
        linked_map.put(name, value)
    return linked_map


@contextlib.contextmanager
def add_snapshot_properties(spark: SparkSession, properties: Mapping[str, str]) -> Iterator[None]:
    """Have Spark's writes of this thread add properties to their snapshots."""
    if has_field(spark, f"{ICEBERG}.spark.SparkSQLProperties", "SNAPSHOT_PROPERTY_PREFIX"):
        settings = {f"spark.sql.iceberg.snapshot-property.{name}": value for name, value in properties.items()}
        for name, value in settings.items():
            spark.conf.set(name, value)
        try:
            yield
        finally:
            for name in settings:
                spark.conf.unset(name)
        return
    # the runtime of Spark 3.5 takes them from this place only, which Java code sets by CommitMetadata.withCommitProperties
    load = load_jvm_class(spark, "java.lang.Thread").currentThread().getContextClassLoader().loadClass
    place = load(f"{ICEBERG}.spark.CommitMetadata").getDeclaredField("COMMIT_PROPERTIES")
    place.setAccessible(True)
    of_thread = place.get(None)
    before = of_thread.get()
    of_thread.set(java_map(spark, properties))
    try:
        yield
    finally:
        of_thread.set(before)


def to_python_dict(java_texts: Any) -> dict[str, str]:
    """Convert a map of texts of the JVM to Python's, in two calls: py4j's own way has several for each entry."""
    mapper = JavaClass("com.fasterxml.jackson.databind.ObjectMapper", java_texts._gateway_client)()
    plain: dict[str, str] = json.loads(mapper.writeValueAsString(java_texts))
    return plain


def java_list(spark: SparkSession, values: Iterable[Any]) -> Any:
    array_list = load_jvm_class(spark, "java.util.ArrayList")()
    for value in values:
        array_list.add(value)
    return array_list


def extract_error_message(error: BaseException) -> str:
    """Return the message of an error of the JVM, without its stack."""
    java = getattr(error, "java_exception", None) or getattr(error, "_origin", None)
    text = str(error) if java is None else str(java.getMessage())
    return text.splitlines()[0] if text else type(error).__name__


@contextlib.contextmanager
def translate_conflicts(*more: str) -> Iterator[None]:
    """Iceberg's ways of saying that another writer was faster.

    :param more: classes of errors that say so, too
    """
    try:
        yield
    except (PySparkException, Py4JJavaError) as e:
        if failed_with(e, *FASTER, *more):
            raise WriteConflict(str(e)) from e
        raise


def refused_by_hive(e: Exception, location: str) -> TargetError | None:
    """Explain a commit that a Hive metastore has refused because the table's columns change, before it did anything.

    Return ``None`` if that is not why.
    """
    if "types incompatible with the existing columns" not in " ".join(str(e).split()):
        return None
    return TargetError(
        "The Hive metastore rejects the column changes of the table.",
        where=location,
        safe="The table was not changed; the change log keeps the batches.",
        remedy="set hive.metastore.disallow.incompatible.col.type.changes=false in the hive-site.xml of the metastore and restart it, then run the apply again",
    )
