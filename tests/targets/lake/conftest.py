"""Fixtures of lake tables, with a single Spark session for all tests of this folder."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from py4j.protocol import Py4JError
from pyspark.sql import DataFrame, SparkSession

from airflow_provider_cdc.targets.lake.formats.memory_table import STORED
from airflow_provider_cdc.targets.lake.spark_releases.python_features import (
    EXCHANGES_ARROW,
    collect_arrow,
    create_frame,
)
from tests.support.patience import LONGEST_S
from tests.targets.lake.lake import KINDS, SECRET, Child, Lake, new_lake, start_spark

if not EXCHANGES_ARROW:  # tests exchange tables by the methods that PySpark has since 4.0
    DataFrame.toArrow = collect_arrow  # type: ignore[attr-defined]
    _create = SparkSession.createDataFrame

    def _create_any(spark: SparkSession, data: Any, schema: Any = None, **more: Any) -> DataFrame:
        return create_frame(spark, data, schema) if isinstance(data, pa.Table) else _create(spark, data, schema, **more)

    SparkSession.createDataFrame = _create_any  # type: ignore[method-assign]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Whatever works on tables is tested for each kind of them: what a kind can get wrong always (``every_kind``), the rest with ``--long``
    for all but the first kind."""
    if "kind" not in metafunc.fixturenames:
        return
    if only := metafunc.definition.get_closest_marker("only_kind"):
        kinds = list(only.args)
    else:
        marks = [] if metafunc.definition.get_closest_marker("every_kind") else [pytest.mark.long]
        kinds = [KINDS[0], *(pytest.param(kind, marks=marks) for kind in KINDS[1:])]
    metafunc.parametrize("kind", kinds, scope="module")


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    spark = start_spark()
    yield spark
    process = spark.sparkContext._gateway.proc  # type: ignore[union-attr]
    try:
        spark.stop()
    except (Py4JError, OSError) as e:
        raise AssertionError(f"Spark's JVM has ended before the tests, with {process.wait(LONGEST_S)}.") from e


@pytest.fixture
def secret(spark: SparkSession) -> str:
    """Return the secret that the environment of the driver hides."""
    return os.environ[SECRET]


@pytest.fixture
def lake(spark: SparkSession, tmp_path: Path, kind: str) -> Lake:
    """Tables that follow a memory database, which is ``lake.connector.database``."""
    return new_lake(spark, tmp_path, kind)


@pytest.fixture
def memory(spark: SparkSession, tmp_path: Path) -> Lake:
    """Tables in memory: fast enough for many batches."""
    STORED.clear()
    return new_lake(spark, tmp_path, "memory")


@pytest.fixture
def make_lake(spark: SparkSession, kind: str) -> Callable[..., Lake]:
    """Makes a lake below a folder: ``make_lake(tmp_path, snapshot_mode="no_data")``."""
    return lambda folder, **properties: new_lake(spark, folder, kind, **properties)


@pytest.fixture
def child(tmp_path: Path) -> Iterator[Callable[[], Child]]:
    """Makes processes with a Spark session each."""
    started: list[Child] = []

    def make() -> Child:
        started.append(Child(tmp_path / f"{len(started)}.log"))
        return started[-1]

    yield make
    for each in started:
        each.close()
