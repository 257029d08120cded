"""One Spark session for all tests of this folder."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.spark.lake import SECRET, Lake, new_lake, start_spark


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    spark = start_spark()
    yield spark
    spark.stop()


@pytest.fixture
def secret(spark: SparkSession) -> str:
    """What the environment of the driver hides."""
    return os.environ[SECRET]


@pytest.fixture
def lake(spark: SparkSession, tmp_path: Path) -> Lake:
    """Tables that follow a memory database, which is ``lake.connector.database``."""
    return new_lake(spark, tmp_path)


@pytest.fixture
def make_lake(spark: SparkSession) -> Callable[..., Lake]:
    """Makes a lake below a folder: ``make_lake(tmp_path, snapshot_mode="no_data")``."""
    return lambda folder, **properties: new_lake(spark, folder, **properties)
