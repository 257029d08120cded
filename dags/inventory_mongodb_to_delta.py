"""The collections of an ``inventory`` database on MongoDB, kept equal in Delta tables.

What it needs:

- the connection ``inventory_mongodb`` (type *CDC: mongodb*): the connection string as host, and user and password of an account that may read change streams;
- a replica set or a sharded cluster: ``airflow cdc check --conn-id inventory_mongodb`` says what is missing;
- the connection ``spark_default``, for example type *Spark* with host ``local[*]``;
- ``airflow cdc setup``, once, for the connection to the state tables.

The connector, and the Airflow variables that say where things are, are in ``inventory.py``.

What may be set as an environment variable, because it shapes the DAG itself: ``CDC_INVENTORY_SCHEDULE``, by default ``@continuous``.
"""

from __future__ import annotations

import os

from inventory import SPARK, TABLES, inventory_mongodb

from airflow_provider_cdc.dag import cdc_dag

dag = cdc_dag(
    inventory_mongodb,
    dag_id="inventory_mongodb_to_delta",
    conn_id="inventory_mongodb",
    location=TABLES,
    schedule=os.environ.get("CDC_INVENTORY_SCHEDULE", "@continuous"),
    group={"poll_interval": 5.0, "apply": SPARK},
)
