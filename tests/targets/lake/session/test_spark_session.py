"""Settings of sessions that follow the size of the work."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from airflow_provider_cdc.targets.lake.formats import load_format
from airflow_provider_cdc.targets.lake.session.spark_session import LITTLE, PARTITION_BYTES, own_session, tune_session

pytestmark = pytest.mark.spark


def test_little_work_is_planned_once_and_more_work_in_more_parts(spark: SparkSession) -> None:
    session = own_session(spark, load_format("delta"))

    def session_settings() -> tuple[str | None, ...]:
        return session.conf.get("spark.sql.shuffle.partitions"), session.conf.get("spark.sql.adaptive.enabled")

    tune_session(session, 0)
    assert session_settings() == ("1", "false")
    tune_session(session, 3 * PARTITION_BYTES)
    assert session_settings() == ("4", "true")
    tune_session(session, 1000 * PARTITION_BYTES)
    assert session_settings() == (str(4 * spark.sparkContext.defaultParallelism), "true")
    tune_session(session, 0)
    assert session_settings() == ("1", "false")


def test_what_the_user_has_set_stays(spark: SparkSession) -> None:
    """The session of the tests was started with code generation off."""
    session = own_session(spark, load_format("delta"))
    tune_session(session, 3 * PARTITION_BYTES)
    assert session.conf.get("spark.sql.codegen.wholeStage") == "false"
    assert session.conf.get("spark.sql.codegen.factoryMode") == "NO_CODEGEN"
    assert set(LITTLE) > {"spark.sql.adaptive.enabled"}
