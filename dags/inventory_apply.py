"""The tables of two ``inventory`` databases, on MariaDB and on Oracle, in Delta tables, with each change within seconds, by one Spark session.

What captures them is ``inventory_mariadb_capture.py`` and ``inventory_oracle_capture.py``. One worker slot and one JVM are occupied all the time, two
while one run hands over to the next, however many connectors there are. What it needs is the connection ``spark_default``.

What may be set as an environment variable, because it shapes the DAG itself: ``CDC_INVENTORY_RUN_FOR``, the seconds after which a run
hands over to the next one, by default an hour.
"""

from __future__ import annotations

import os

from inventory import SPARK, TABLES, inventory, inventory_oracle

from airflow_provider_cdc.dag import apply_dag

dag = apply_dag(
    [inventory, inventory_oracle],
    dag_id="inventory_apply",
    location=TABLES,
    continuous=True,
    run_for=float(os.environ.get("CDC_INVENTORY_RUN_FOR", "3600")),
    apply=SPARK,
)
