"""The tables of an ``inventory`` schema on Db2, kept equal in Delta tables.

What it needs:

- the connection ``inventory_db2`` (type *CDC: db2*): host, port, user and password of an account that may capture, and the name of the database as schema;
- the tables in capture mode, and the ASN capture agent at work: ``airflow cdc check --conn-id inventory_db2`` says what is missing;
- the connection ``spark_default``, for example type *Spark* with host ``local[*]``;
- ``airflow cdc setup``, once, for the connection to the state tables.

The connector, and the Airflow variables that say where things are, are in ``inventory.py``.

What may be set as an environment variable, because it shapes the DAG itself: ``CDC_INVENTORY_SCHEDULE``, by default ``@continuous``.
"""

from __future__ import annotations

import os

from inventory import SPARK, TABLES, inventory_db2

from airflow_provider_cdc.dag import cdc_dag

dag = cdc_dag(
    inventory_db2,
    dag_id="inventory_db2_to_delta",
    conn_id="inventory_db2",
    location=TABLES,
    schedule=os.environ.get("CDC_INVENTORY_SCHEDULE", "@continuous"),
    group={"poll_interval": 5.0, "apply": SPARK},
)
