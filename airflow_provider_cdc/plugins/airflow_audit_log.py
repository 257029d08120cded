"""Writes actions of pages into Airflow's audit log, beside the connector's records, which every process with the state's login can change."""

from __future__ import annotations

import json

from airflow.api_fastapi.auth.managers.models.base_user import BaseUser
from airflow.models.log import Log
from airflow.utils.session import create_session

from airflow_provider_cdc.core.spi.state_records import ConnectorRecord
from airflow_provider_cdc.plugins.authorization import dag_of
from airflow_provider_cdc.services.actions.action_models import ConnectorAction
from airflow_provider_cdc.services.dashboards.hidden_keys import hide_keys

_MOST = 10_000
"""Characters of the arguments that are kept."""


def log_action(user: BaseUser, record: ConnectorRecord, action: ConnectorAction) -> None:
    """Record an action before it is performed: event ``cdc.<action>``, its DAG, its user, and its arguments as JSON, without parts of rows."""
    document = action.model_dump(mode="json")
    shown = hide_keys({name: value for name, value in document.items() if value})
    extra = {"connector": record.connector, **shown}
    with create_session() as session:
        session.add(
            Log(
                event=f"cdc.{document['action']}", owner=user.get_id(), owner_display_name=user.get_name(), dag_id=dag_of(record),
                extra=json.dumps(extra, ensure_ascii=False)[:_MOST],
            )
        )  # fmt: skip
