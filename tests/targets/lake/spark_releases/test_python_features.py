"""Substitutes of functions that PySpark does not have in every release do the same as those that it has."""

from __future__ import annotations

import datetime as dt
import logging
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from airflow_provider_cdc.core.config.target_table_rules import NO_RULES
from airflow_provider_cdc.core.model.table_schema import TableId
from airflow_provider_cdc.sources.mongodb.collection_tables import collection_schema
from airflow_provider_cdc.targets.lake.rules import projection_builder
from airflow_provider_cdc.targets.lake.spark_releases import python_features
from airflow_provider_cdc.targets.lake.spark_releases.python_features import call_on_arrow, collect_arrow, create_frame
from airflow_provider_cdc.targets.lake.types.spark_types import build_struct_type

pytestmark = pytest.mark.spark
TYPES = {
    "id": "bigint",
    "text": "string",
    "price": "decimal(9,2)",
    "day": "date",
    "at": "timestamp",
    "local": "timestamp_ntz",
    "bytes": "binary",
    "vector": "array<float>",
    "it's `odd`": "struct<wkb:binary,srid:int>",
}
MOMENT = dt.datetime(2026, 3, 1, 2, 30, 0, 123456)
ROW = (
    1, "ä", Decimal("1.25"), dt.date(1, 1, 1), MOMENT.replace(tzinfo=dt.UTC), MOMENT, b"\x00\xff", [1.5, None],
    {"wkb": b"\x01", "srid": 4326},
)  # fmt: skip


def _table(number: int) -> pa.Table:
    rows = [dict(zip(TYPES, ROW, strict=True)), *[{"id": n} for n in range(2, number + 1)]][:number]
    types = [
        pa.int64(), pa.string(), pa.decimal128(9, 2), pa.date32(), pa.timestamp("us", tz="UTC"), pa.timestamp("us"), pa.binary(),
        pa.list_(pa.float32()), pa.struct({"wkb": pa.binary(), "srid": pa.int32()}),
    ]  # fmt: skip
    return pa.Table.from_pylist(rows, pa.schema(dict(zip(TYPES, types, strict=True))))


@pytest.mark.parametrize("takes_arrow", [True, False])
@pytest.mark.parametrize("number", [0, 1, 7])
def test_arrow_tables_come_back_from_spark_as_they_were(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, number: int, *, takes_arrow: bool
) -> None:
    if takes_arrow and not python_features.EXCHANGES_ARROW:
        pytest.skip("this Spark takes no Arrow tables")
    monkeypatch.setattr(python_features, "EXCHANGES_ARROW", takes_arrow)
    table, schema = _table(number), build_struct_type(TYPES)
    frame = create_frame(spark, table, schema)
    assert frame.schema == schema
    assert sorted(collect_arrow(frame).to_pylist(), key=repr) == sorted(table.to_pylist(), key=repr)
    derived = create_frame(spark, table.select(["id", "text", "at"]))
    assert [field.dataType.simpleString() for field in derived.schema] == ["bigint", "string", "timestamp"]


@pytest.mark.parametrize("call", [call_on_arrow, python_features._call_on_pandas])
def test_executors_call_functions_of_arrays(spark: SparkSession, call: Callable[..., Any]) -> None:
    def double(values: pa.Array) -> pa.Array:
        return pa.array([None if value is None else 2 * value for value in values.to_pylist()], pa.string())

    frame = spark.createDataFrame([("a",), (None,), ("",)], "v string")
    found = frame.select(call(double, T.StringType(), F.col("v")).alias("v")).collect()
    assert [row["v"] for row in found] == ["aa", None, ""]


def test_documents_stay_texts_where_spark_has_no_variants(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    schema = collection_schema(TableId(namespace="shop", name="letters"), variant=True)
    monkeypatch.setattr(projection_builder, "VARIANT_TYPE", None)
    projection_builder._log_texts.cache_clear()
    for _ in range(2):
        projection = projection_builder.build_projection(
            spark, NO_RULES.match_table(schema.id), "shop", "shop.letters", schema
        )
        assert projection.map_column_types(schema) == {"_id": "string", "document": "string"}
        assert projection.is_identity
    said = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert said == ["Documents of shop.letters are stored as JSON text (STRING): VARIANT needs Spark 4.0 or newer."]
