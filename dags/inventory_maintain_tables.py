"""Maintains the tables of the ``inventory`` database once a day.

Small files become large ones, and old states of the tables go. Before that, batches of the change log go that every target has had for as long as
``changelog.retention.ms`` of the definition says, by default a week; and rows of the state tables older than ``state.retention.*``.

It runs beside the DAG that captures and applies, whichever of the two that is; what it needs are the connections
``spark_default`` and ``cdc_state_default``, and that changes were applied before.

What may be set as an environment variable, because it shapes the DAG itself: ``CDC_INVENTORY_MAINTENANCE``, by default ``@daily``.
"""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta

from airflow.sdk import DAG
from inventory import SPARK, TABLES, inventory

from airflow_provider_cdc.operators.maintain_tables import MaintainTablesOperator

with DAG(
    "inventory_maintain_tables",
    schedule=os.environ.get("CDC_INVENTORY_MAINTENANCE", "@daily"),
    start_date=datetime(2024, 1, 1, tzinfo=UTC),
    catchup=False,
    max_active_runs=1,
    default_args={"retries": 1, "retry_delay": timedelta(minutes=5)},
    tags=["cdc"],
) as dag:
    MaintainTablesOperator(
        task_id="maintain",
        definition=inventory,
        location=TABLES,
        keep=timedelta(days=7),
        **SPARK,
    )
