"""Values that a partition of Delta cannot have. In tables of all kinds: ``tests/cases/test_lake.py``."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from airflow_provider_cdc.core.errors import TargetError
from airflow_provider_cdc.targets.lake.formats.delta.partition_value_check import (
    OF_NULL,
    guard_partition_values,
    unfit_partitions,
)

pytestmark = pytest.mark.spark
SQL = "SELECT 'FR' AS region, CAST(NULL AS STRING) AS empty, '{}' AS other"


@pytest.mark.parametrize("value", ["", OF_NULL], ids=["empty", "hive"])
def test_a_text_that_a_partition_would_lose_is_refused_there_alone(spark: SparkSession, value: str) -> None:
    """R18, R19: Delta stores NULL in its place, and a row with that key would never be found again."""
    rows = spark.sql(SQL.format(value))
    assert guard_partition_values(rows, ["region", "empty"]).collect() == rows.collect()
    with pytest.raises(TargetError, match="in other, a partition column of the table"), unfit_partitions("/lake/t"):
        guard_partition_values(rows, ["OTHER"]).collect()
