"""Who may see a connector: whoever may see the DAG that captures it."""

from __future__ import annotations

from typing import Any

from airflow.api_fastapi.app import get_auth_manager
from airflow.api_fastapi.auth.managers.models.base_user import BaseUser
from airflow.api_fastapi.auth.managers.models.resource_details import ConnectionDetails, DagDetails
from airflow.models.dag import DagModel


def may_see(user: BaseUser, row: dict[str, Any]) -> bool:
    """Whether Airflow lets a user see a connector's pages.

    That is who may read the DAG whose task has captured it last. Where no DAG has, those may who may read the connection to its
    source: everybody else would learn of its tables what no right says.

    :param row: of ``StateStore.connectors``
    """
    manager, connections = get_auth_manager(), row["connections"] or {}
    if (dag := connections.get("dag")) is not None:
        details = DagDetails(id=dag, team_name=DagModel.get_team_name(dag))
        return bool(manager.is_authorized_dag(method="GET", details=details, user=user))
    source = ConnectionDetails(conn_id=connections.get("source"))
    return bool(manager.is_authorized_connection(method="GET", details=source, user=user))
