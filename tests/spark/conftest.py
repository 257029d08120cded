"""One Spark session for all tests of this folder."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.spark.lake import SECRET, Database, Lake, start_spark
from tests.support.connectors import memory_connector


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
    return _lake(spark, tmp_path)


@pytest.fixture
def make_lake(spark: SparkSession) -> Callable[..., Lake]:
    """Makes a lake below a folder: ``make_lake(tmp_path, snapshot_mode="no_data")``."""
    return lambda folder, **properties: _lake(spark, folder, **properties)


def _lake(spark: SparkSession, folder: Path, **properties: Any) -> Lake:
    database = Database(str(folder))
    connector = memory_connector(database, folder, topic_prefix="p", **properties)
    connector.database = database  # type: ignore[attr-defined]
    return Lake(spark, folder, connector)
