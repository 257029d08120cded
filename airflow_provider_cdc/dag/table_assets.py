"""Assets for captured tables, for DAGs that start when a table changes.

They differ from the assets of :class:`~airflow_provider_cdc.operators.apply_changes.ApplyChangesOperator`, which are for tables of a
target: a change is captured first and applied after that.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from urllib.parse import quote

from airflow.sdk import Asset, AssetWatcher

from airflow_provider_cdc.connector import ConnectorDefinition
from airflow_provider_cdc.core.config.topic_names import sanitize_name
from airflow_provider_cdc.core.errors import ConfigError
from airflow_provider_cdc.hooks.state import DEFAULT_CONN_ID
from airflow_provider_cdc.services.connectors.parameter_checks import parse_seconds
from airflow_provider_cdc.triggers.asset_changes import CdcChangeTrigger


def build_topic(connector: ConnectorDefinition, table: str) -> str:
    """Return the topic of a table.

    >>> build_topic(ConnectorDefinition("shop", "mariadb", "/lake", {"build_topic.prefix": "eu"}), "inventory.orders")
    'eu.inventory.orders'
    """
    prefix = str(connector.properties.get("topic.prefix", connector.name))
    delimiter = str(connector.properties.get("topic.delimiter", "."))
    return sanitize_name(delimiter.join((prefix, *table.split(".", 1))))


def table_asset(connector: ConnectorDefinition, table: str | None = None) -> Asset:
    """Build the asset for a captured table; without a table, for all tables of the connector.

    It has no watcher: see :func:`watched_table_asset`.

    >>> table_asset(ConnectorDefinition("shop", "mariadb", "/lake"), "inventory.orders").uri
    'cdc://shop/shop.inventory.orders/captured'

    :raises ConfigError: the connector is no definition, or the table is no name
    """
    return Asset(_uri(connector, table))


def watched_table_asset(
    connector: ConnectorDefinition,
    table: str | None = None,
    *,
    poll_interval: float | timedelta = 5.0,
    state_conn_id: str = DEFAULT_CONN_ID,
) -> Asset:
    """Build the same asset with a watcher.

    An event for it comes with each batch that holds events of the table.

        >>> with DAG("on_orders", schedule=[watched_table_asset(shop, "inventory.orders")]): ...

    The event's ``extra["payload"]`` is the event that :class:`~airflow_provider_cdc.triggers.asset_changes.CdcChangeTrigger` fires. All that is
    watched of one connector shares one poll of the state tables, of one row if nothing is new.

    :param table: as ``database.table``; without one, all tables
    :param poll_interval: seconds between two polls, the same for all tables of a connector that are to share them
    :raises ConfigError: an argument has another kind
    """
    uri = _uri(connector, table)
    trigger = CdcChangeTrigger(
        connector.name,
        [] if table is None else [build_topic(connector, table)],
        asset=uri,
        state_conn_id=state_conn_id,
        poll_interval=parse_seconds("poll_interval", poll_interval),
    )
    return Asset(uri, watchers=[AssetWatcher(name="captured", trigger=trigger)])


def _uri(connector: ConnectorDefinition, table: str | None) -> str:
    if not isinstance(connector, ConnectorDefinition):
        raise ConfigError(f"connector must be a ConnectorDefinition, but is {connector!r}.")
    if not (table is None or isinstance(table, str)):
        raise ConfigError(f"table must be a text such as 'inventory.orders', but is {table!r}.")
    parts: list[Any] = [connector.name, *([] if table is None else [build_topic(connector, table)]), "captured"]
    return "cdc://" + "/".join(quote(str(part), safe="$") for part in parts)
