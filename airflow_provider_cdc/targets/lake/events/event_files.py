"""Files of the change log as Spark reads them: which ones, and with which columns."""

from __future__ import annotations

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from airflow_provider_cdc.changelog.reading.pending_batches import PendingBatches
from airflow_provider_cdc.core.model.table_schema import Column, TableSchema
from airflow_provider_cdc.targets.lake.rows.last_event_per_key import OURS
from airflow_provider_cdc.targets.lake.types.spark_types import build_struct_type, file_type, quote_name


def list_schema_versions(pending: PendingBatches, after: int) -> list[int]:
    """List the versions of the schemas that events after a number have."""
    return sorted({f.schema_version for _, f in pending.files if f.last_seq > after})


def files_after(pending: PendingBatches, version: int, after: int) -> list[str]:
    """Return the files of a schema version that have events after a number."""
    return [path for path, f in pending.files if f.schema_version == version and f.last_seq > after]


_UNKNOWN_VARIABLE = f"${{{OURS}none}}"


def open_event_files(spark: SparkSession, schema: T.StructType, files: list[str]) -> DataFrame:
    """Files of the change log by a schema.

    Parquet's reader gets the schema as a setting of Hadoop, which expands variables in settings: a column called ``${user.home}``
    would be read under another name, and be NULL. Hadoop stops expanding at the first unknown variable, so one is put in front of
    all names.
    """
    if "${" not in schema.json():
        return spark.read.schema(schema).parquet(*files)
    first = T.StructType([T.StructField(_UNKNOWN_VARIABLE, T.BooleanType()), *schema.fields])
    # no file has it; it has to be selected to be in front
    rows = spark.read.schema(first).parquet(*files).where(F.col(quote_name(_UNKNOWN_VARIABLE)).isNull())
    return rows.select(*map(quote_name, schema.names))


def event_schema(schema: TableSchema) -> T.StructType:
    """Return the schema by which a file is read.

    Spark reads by name, so columns that the file does not have come as NULL.
    """
    image = struct_of(list(schema.columns))
    key = struct_of([schema.get_column(k) for k in schema.key])
    keys = {"key": key, "previous_key": key} if schema.key else {}
    return build_struct_type(
        {"seq": "bigint", "op": "string", "before": image, "after": image, "unavailable": "array<string>", **keys}
    )


def struct_of(columns: list[Column]) -> T.StructType:
    """Return the columns of an image or a key, as files have them."""
    return build_struct_type({c.name: file_type(c.type) for c in columns})
