"""Where the table of a topic is."""

from __future__ import annotations

from airflow_provider_cdc.core.errors import ConfigError
from airflow_provider_cdc.core.model.schema import TableId


def table_location(location: str, connector: str, topic: str, table: TableId) -> str:
    """The location of a topic's table.

    >>> table_location("/lake/{database}/{table}", "shop", "shop.inventory.orders", TableId(namespace="inventory", name="orders"))
    '/lake/inventory/orders'

    :raises ConfigError: the location has a name in braces that is not known, or would lead out of the lake
    """
    names = {"connector": connector, "topic": topic, "database": table.namespace, "table": table.name}
    try:
        found = location.format(**{k: v.replace("%", "%25").replace("/", "%2F") for k, v in names.items()})
    except (KeyError, IndexError, ValueError) as e:
        raise ConfigError(
            f"The location {location!r} cannot be used: {e} is not a name that it may have in braces. "
            f"Valid names are: {', '.join(names)}.",
            remedy="for example --location /lake/{database}/{table}",
        ) from e
    first, *others = found.rpartition("://")[2].rstrip("/").split("/")
    if {"", ".", ".."} & set(others) or first in (".", ".."):
        raise ConfigError(
            f"The table of {topic} would be at {found!r}: no part of a location may be empty, '.' or '..'.",
            safe="No table was changed.",
            remedy="leave the table out with table.exclude.list, or give names another place, for example --location /lake/{topic}",
        )
    return found
