"""Child process of ``test_delta_names.py``: applies to tables that a Hive metastore has names for, and prints what people find there then."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from pyspark.sql import SparkSession

from airflow_provider_cdc.targets.lake.formats import load_format
from airflow_provider_cdc.targets.lake.session.spark_session import open_spark_session
from dev.bootstrap.jars import ensure
from tests.targets.lake.lake import new_lake


def _session(folder: Path) -> SparkSession:
    return open_spark_session(
        "hive",
        load_format("delta"),
        extra={
            "spark.master": "local[2]",
            "spark.jars": ",".join(map(str, ensure("delta"))),
            "spark.ui.enabled": "false",
            "spark.sql.catalogImplementation": "hive",
            "spark.sql.warehouse.dir": f"{folder}/warehouse",
            "spark.hadoop.javax.jdo.option.ConnectionURL": f"jdbc:derby:;databaseName={folder}/metastore;create=true",
            "spark.hadoop.datanucleus.schema.autoCreateAll": "true",
            "spark.hadoop.hive.metastore.schema.verification": "false",
        },
    )


def main(folder: Path) -> None:
    os.chdir(folder)  # Derby writes its log to the present folder
    spark = _session(folder)
    lake = new_lake(spark, folder, "delta")
    database = lake.connector.database  # type: ignore[attr-defined]
    database.create_table("Shop.Orders", {"id": "int64!", "at": "timestamp[us]"}, key=("id",))
    database.comment("Shop.Orders", "all orders", id="the number")
    for number in range(3):
        with database.transaction() as t:
            t.insert("Shop.Orders", {"id": number, "at": None})
        lake.connector.capture()
        lake.apply(location="spark_catalog.{database}.{table}")
    spark.stop()
    spark = _session(folder)  # only the metastore knows the name now
    shown = {row[0]: row for row in spark.sql("DESCRIBE TABLE EXTENDED shop.orders").collect()}
    found = {
        "rows": sorted(row[0] for row in spark.table("shop.orders").collect()),
        "comments": [shown["Comment"][1], shown["id"][2]],
        "tables": [row.tableName for row in spark.sql("SHOW TABLES IN shop").collect()],
    }
    print(json.dumps(found))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
