"""The tables of an ``inventory`` database, kept equal in Delta tables by the events that some Debezium writes as JSON lines.

What it needs:

- files of events in the folder of the Airflow variable ``cdc_events``: ``docs/sources/debezium.md`` says what is in them;
- the connection ``inventory_events`` (type *CDC: debezium*), which is empty for files in a local folder;
- the connection ``spark_default``, for example type *Spark* with host ``local[*]``;
- ``airflow cdc setup``, once, for the connection to the state tables.

The connector, and the Airflow variables that say where things are, are in ``inventory.py``.

What may be set as an environment variable, because it shapes the DAG itself: ``CDC_INVENTORY_SCHEDULE``, by default ``@continuous``.
"""

from __future__ import annotations

import os

from inventory import SPARK, TABLES, inventory_events

from airflow_provider_cdc.dag import cdc_dag

dag = cdc_dag(
    inventory_events,
    dag_id="inventory_events_to_delta",
    conn_id="inventory_events",
    location=TABLES,
    schedule=os.environ.get("CDC_INVENTORY_SCHEDULE", "@continuous"),
    group={"poll_interval": 5.0, "apply": SPARK},
)
