"""Looks up the connections of Airflow that a connector uses.

A task gets those of its team from Airflow. The API server has no team: there, the team of the connector that a request is about is set first.
"""

from __future__ import annotations

import contextvars

from airflow.sdk import BaseHook, Connection

from airflow_provider_cdc.core.errors import ConfigError, ConnectionUnavailable
from airflow_provider_cdc.hooks.airflow_compat import load_team_connection
from airflow_provider_cdc.hooks.unanswered_lookups import explain_unanswered_connection

_team: contextvars.ContextVar[str | None] = contextvars.ContextVar("cdc_team", default=None)


def set_team(team: str | None) -> None:
    """Set the team whose connections the present context may use, besides those of no team.

    :param team: ``None``: no team
    """
    _team.set(team)


def find_connection(conn_id: str, use: str, setting: str) -> Connection:
    """Return a connection of Airflow.

        >>> find_connection("warehouse", "to the target database", "the connection name of the target").conn_type
        'postgres'

    :param use: of the connection, for the error
    :param setting: that names the connection, for the error
    :raises ConfigError: it does not exist, or belongs to another team
    :raises ConnectionUnavailable: Airflow could not look it up
    """
    from airflow_provider_cdc.hooks.airflow_compat import AirflowNotFoundException

    try:
        return load_connection(conn_id)
    except AirflowNotFoundException:
        raise ConfigError(
            f"Connection {conn_id}, {use}, does not exist.",
            safe="Nothing was read or written; the offset is untouched.",
            remedy=f"create it in Airflow under Admin, Connections, or with `airflow connections add`; or correct {setting}",
        ) from None


def load_connection(conn_id: str) -> Connection:
    """Return a connection.

    :raises AirflowNotFoundException: there is none, or it belongs to another team
    :raises ConnectionUnavailable: Airflow could not look it up
    """
    from airflow_provider_cdc.hooks.airflow_compat import AirflowNotFoundException

    team = _team.get()
    try:
        found: Connection = BaseHook.get_connection(conn_id) if team is None else load_team_connection(conn_id, team)
    except AirflowNotFoundException:
        if (reason := explain_unanswered_connection(conn_id)) is None:
            raise
        raise ConnectionUnavailable(
            f"Airflow could not look up connection {conn_id}: {reason}.",
            safe="Nothing was read or written; the offset is untouched.",
            remedy="check the API server, the metadata database and the secrets backend of Airflow; then run the task again",
        ) from None
    return found


__all__ = ["find_connection", "load_connection", "set_team"]
