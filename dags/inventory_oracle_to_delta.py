"""The tables of an ``inventory`` schema on Oracle, kept equal in Delta tables.

What it needs:

- the connection ``inventory_oracle`` (type *CDC: oracle*): host, port, user and password of an account that may capture, the name
  of the database as schema, and where there are containers in the extra: ``{"database.pdb.name": "ORCLPDB1"}``;
- the connection ``spark_default``, for example type *Spark* with host ``local[*]``;
- ``airflow cdc setup``, once, for the connection to the state tables.

The connector, and the Airflow variables that say where things are, are in ``inventory.py``.

What may be set as an environment variable, because it shapes the DAG itself: ``CDC_INVENTORY_SCHEDULE``, by default ``@continuous``.
"""

from __future__ import annotations

import os

from inventory import SPARK, TABLES, inventory_oracle

from airflow_provider_cdc.dag import cdc_dag

dag = cdc_dag(
    inventory_oracle,
    dag_id="inventory_oracle_to_delta",
    conn_id="inventory_oracle",
    location=TABLES,
    schedule=os.environ.get("CDC_INVENTORY_SCHEDULE", "@continuous"),
    group={"poll_interval": 5.0, "apply": SPARK},
)
