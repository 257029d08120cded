"""Maintains the tables of the ``inventory`` database once a day.

Small files become large ones, and old states of the tables go. Before that, batches of the change log go that every target has had for as long as
``changelog.retention.ms`` of the definition says, by default a week; and rows of the state tables older than ``state.retention.*``.

It runs beside the DAG that captures and applies, whichever of the two that is; what it needs are the connections
``spark_default`` and ``cdc_state_default``, and that changes were applied before.
"""

from __future__ import annotations

from inventory import SPARK, TABLES, inventory

from airflow_provider_cdc.dag import maintenance_dag

dag = maintenance_dag([inventory], dag_id="inventory_maintain_tables", location=TABLES, maintain=SPARK)
