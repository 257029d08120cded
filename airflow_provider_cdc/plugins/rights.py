"""Decides who may see a connector: users who may see the DAG that captures it."""

from __future__ import annotations

from airflow.api_fastapi.app import get_auth_manager
from airflow.api_fastapi.auth.managers.models.base_user import BaseUser
from airflow.api_fastapi.auth.managers.models.resource_details import ConnectionDetails, DagDetails
from airflow.models.dag import DagModel

from airflow_provider_cdc.core.spi.records import ConnectorRecord


def may_see(user: BaseUser, connector: ConnectorRecord) -> bool:
    """Whether Airflow lets a user see a connector's pages.

    Users who may read the DAG whose task has captured it last. If no DAG has captured it, users who may read the connection to its
    source: other users would learn about its tables without any right to.
    """
    manager, known = get_auth_manager(), connector.registration
    connections = {} if known is None else known.connections
    if (dag := connections.get("dag")) is not None:
        details = DagDetails(id=dag, team_name=DagModel.get_team_name(dag))
        return bool(manager.is_authorized_dag(method="GET", details=details, user=user))
    source = ConnectionDetails(conn_id=connections.get("source"))
    return bool(manager.is_authorized_connection(method="GET", details=source, user=user))
