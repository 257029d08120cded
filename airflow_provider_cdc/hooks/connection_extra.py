"""The extra of an Airflow connection."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from airflow_provider_cdc.core.errors import ConfigError

if TYPE_CHECKING:
    from airflow.sdk import Connection


def extra_of(connection: Connection, remedy: str) -> dict[str, Any]:
    """Return the extra as an object.

    It may contain secrets; Airflow masks those whose names it knows.

    :param remedy: of the error
    :raises ConfigError: it is not a JSON object
    """
    connection.extra_dejson  # noqa: B018  # registers the values to mask in logs
    try:
        extra = json.loads(connection.extra or "{}")
    except ValueError:
        extra = None
    if not isinstance(extra, dict):
        raise ConfigError(f"The extra of connection {connection.conn_id} is not a JSON object.", remedy=remedy)
    return extra
