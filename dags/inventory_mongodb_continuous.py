"""The collections of an ``inventory`` database on MongoDB in Delta tables, with each change within seconds.

Capture and apply run side by side, all the time: two worker slots, and four while one run hands over to the next. What it needs is in
``inventory_mongodb_to_delta.py``, which follows the same collections: switch on one of the two.

What may be set as an environment variable, because it shapes the DAG itself: ``CDC_INVENTORY_RUN_FOR``, the seconds after which a run
hands over to the next one, by default an hour.
"""

from __future__ import annotations

import os

from inventory import SPARK, TABLES, inventory_mongodb

from airflow_provider_cdc.dag import cdc_dag

dag = cdc_dag(
    inventory_mongodb,
    dag_id="inventory_mongodb_continuous",
    conn_id="inventory_mongodb",
    location=TABLES,
    continuous=True,
    group={"run_for": float(os.environ.get("CDC_INVENTORY_RUN_FOR", "3600")), "apply": SPARK},
)
