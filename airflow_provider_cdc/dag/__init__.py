"""DAGs from connector definitions.

from airflow_provider_cdc.dag import ConnectorDefinition, ad_hoc_snapshot_dag, cdc_dag

shop = ConnectorDefinition(
    name="shop",
    source="mariadb",
    changelog="s3://lake/changelog",
    properties={"database.server.id": 4711, "table.include.list": "shop\\\\.(orders|lines)"},
)
dag = cdc_dag(shop, conn_id="shop_mariadb", location="s3a://lake/{database}/{table}")
again = ad_hoc_snapshot_dag([shop])
"""

from __future__ import annotations

from airflow_provider_cdc.connector import ConnectorDefinition
from airflow_provider_cdc.dag.alerts_dag import alerts_dag
from airflow_provider_cdc.dag.apply_dag import apply_dag
from airflow_provider_cdc.dag.connector_dag import cdc_dag, cdc_task_group
from airflow_provider_cdc.dag.dag_factory import ConnectorDags, cdc_dags
from airflow_provider_cdc.dag.group_dag import cdc_group_dag
from airflow_provider_cdc.dag.lifecycle_dag import lifecycle_dag
from airflow_provider_cdc.dag.maintenance_dag import maintenance_dag
from airflow_provider_cdc.dag.snapshot_dags import ad_hoc_snapshot_dag, signal_dag
from airflow_provider_cdc.dag.table_assets import table_asset, watched_table_asset
from airflow_provider_cdc.dag.tables_dag import tables_dag
from airflow_provider_cdc.operators.apply_connectors import ConnectorApplyOptions
from airflow_provider_cdc.operators.job_documents import cdc_job
from airflow_provider_cdc.services.connectors.grouped_connectors import GroupedConnector

__all__ = [
    "ConnectorApplyOptions",
    "ConnectorDags",
    "ConnectorDefinition",
    "GroupedConnector",
    "ad_hoc_snapshot_dag",
    "alerts_dag",
    "apply_dag",
    "cdc_dag",
    "cdc_dags",
    "cdc_group_dag",
    "cdc_job",
    "cdc_task_group",
    "lifecycle_dag",
    "maintenance_dag",
    "signal_dag",
    "table_asset",
    "tables_dag",
    "watched_table_asset",
]
