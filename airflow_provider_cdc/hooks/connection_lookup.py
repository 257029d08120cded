"""Looks up the connections of Airflow that a connector uses."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow.sdk import BaseHook

from airflow_provider_cdc.core.errors import ConfigError

if TYPE_CHECKING:
    from airflow.sdk import Connection


def find_connection(conn_id: str, use: str, setting: str) -> Connection:
    """Return a connection of Airflow.

        >>> find_connection("warehouse", "to the target database", "the connection name of the target").conn_type
        'postgres'

    :param use: of the connection, for the error
    :param setting: that names the connection, for the error
    :raises ConfigError: it does not exist
    """
    from airflow_provider_cdc.hooks.airflow_compat import AirflowNotFoundException

    try:
        return BaseHook.get_connection(conn_id)
    except AirflowNotFoundException:
        raise ConfigError(
            f"Connection {conn_id}, {use}, does not exist.",
            safe="Nothing was read or written; the offset is untouched.",
            remedy=f"create it in Airflow under Admin, Connections, or with `airflow connections add`; or correct {setting}",
        ) from None
