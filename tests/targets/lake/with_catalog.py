"""Child process of ``test_catalogs.py``: random work on tables of a catalog that the session is begun with, two applies at once, and maintenance."""

from __future__ import annotations

import json
import random
import sys
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path

from pyspark.sql import SparkSession

from airflow_provider_cdc.core.errors import TargetError
from airflow_provider_cdc.targets.lake.formats import load_format
from airflow_provider_cdc.targets.lake.jobs.maintain_tables import MaintainTables
from airflow_provider_cdc.targets.lake.session.spark_session import open_spark_session
from airflow_provider_cdc.targets.lake.types.spark_types import quote_name
from dev.bootstrap.jars import ensure
from tests.support.workloads.memory_work import Workload
from tests.targets.lake.lake import Lake, new_lake

ROUNDS, STEPS = 6, 25


def check(lake: Lake, place: str) -> None:
    """The tables are what the change log says."""
    for topic, replayed in lake.replayed().items():
        id_ = replayed.schema.id
        frame = lake.spark.newSession().table(f"{place}.{quote_name(id_.namespace)}.{quote_name(id_.name)}")
        rows = frame.select(*map(quote_name, replayed.schema.column_names)).toArrow().to_pylist()
        assert sorted(rows, key=repr) == replayed.all(), topic


def apply(lake: Lake, location: str) -> int:
    """Apply, though someone else may do so now; returns the number of tables that were written."""
    try:
        return len(lake.job(location=location).run().tables)
    except TargetError as e:
        if "other writers" not in str(e):
            raise
        return 0


def begin(settings: dict[str, str]) -> SparkSession:
    """A session with a catalog ``lake``."""
    catalog = {f"spark.sql.catalog.lake.{key}": value for key, value in settings.items()}
    jars = ensure("iceberg", "sqlite")
    return open_spark_session(
        "catalogs",
        load_format("iceberg"),
        extra={
            "spark.master": "local[2]", "spark.jars": ",".join(map(str, jars)), "spark.ui.enabled": "false",
            "spark.driver.extraClassPath": ":".join(map(str, jars)),
            "spark.sql.catalog.lake": "org.apache.iceberg.spark.SparkCatalog", **catalog,
        },
    )  # fmt: skip


def main(folder: Path, settings: dict[str, str], seed: int) -> None:
    place = "lake" if settings["type"] == "hive" else "lake.all_of_it"  # Hive has no namespaces within others
    location = f"{place}.{{database}}.{{table}}"
    spark = begin(settings)
    lake = new_lake(spark, folder, "iceberg")
    work, r = Workload(lake.connector.database, sparse=("note",)), random.Random(seed)  # type: ignore[attr-defined]
    for _ in range(ROUNDS):
        for _ in range(STEPS):
            work.step(r)
        lake.connector.capture()
        with ThreadPoolExecutor(2) as two:
            list(two.map(lambda _: apply(lake, location), range(2)))
        lake.apply(location=location)
        check(lake, place)
    assert lake.apply(location=location).tables == []
    connector = lake.connector
    done = MaintainTables(
        spark, connector.changelog, connector.name, location=location, target="iceberg", keep=timedelta(0)
    ).run()
    assert not [table.problem for table in done.tables if table.problem], done
    check(lake, place)
    for _ in range(STEPS):
        work.step(r)
    connector.capture()
    lake.apply(location=location)
    check(lake, place)
    print(json.dumps({"tables": len(done.tables)}))


if __name__ == "__main__":
    main(Path(sys.argv[1]), json.loads(sys.argv[2]), int(sys.argv[3]))
