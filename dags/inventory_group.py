"""Two small connectors on one ``inventory`` database, captured by one task, one after the other, and applied in one Spark session.

What it needs is in ``inventory_mariadb_to_delta.py``. A connector that is added to ``CONNECTORS`` costs no further process.

What may be set as an environment variable, because it shapes the DAG itself: ``CDC_INVENTORY_SCHEDULE``, by default ``@continuous``.
"""

from __future__ import annotations

import os

from inventory import CHANGELOG, HOME, SPARK, variable

from airflow_provider_cdc.dag import ConnectorDefinition, GroupedConnector, cdc_group_dag


def connector(table: str, server_id: int) -> GroupedConnector:
    """Return a connector for one table."""
    properties = {"database.server.id": server_id, "table.include.list": rf"inventory\.{table}"}
    definition = ConnectorDefinition(
        name=f"inventory_{table}", source="mariadb", changelog=CHANGELOG, properties=properties
    )
    return GroupedConnector(definition=definition, conn_id="inventory_mariadb")


CONNECTORS = [connector("customers", 223351), connector("products", 223352)]

dag = cdc_group_dag(
    CONNECTORS,
    dag_id="inventory_group",
    location=variable("cdc_lake", f"{HOME}/cdc/lake") + "/{connector}/{table}",
    schedule=os.environ.get("CDC_INVENTORY_SCHEDULE", "@continuous"),
    poll_interval=5.0,
    apply=SPARK,
)
