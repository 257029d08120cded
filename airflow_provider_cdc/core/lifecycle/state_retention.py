"""Removes rows of the state tables that are older than ``state.retention.*`` and that nothing needs any more.

>>> prune_state(store, "shop", {"state.retention.notifications.ms": 86_400_000})
{'offset_history': 1204, 'batches': 1180, 'notifications': 88, 'signals': 2}
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from airflow_provider_cdc.core.config.connector_config import ConnectorConfig
from airflow_provider_cdc.core.lifecycle.lifecycle_stores import LifecycleStore
from airflow_provider_cdc.core.spi.state_row_retention import StateRetention

log = logging.getLogger(__name__)

_PREFIX = "state.retention."


def retention_of(connector: str, properties: Mapping[str, Any]) -> StateRetention:
    """Return the limits that a connector's properties set.

    :raises ConfigError: one of ``state.retention.*`` cannot be used
    """
    own = {name: value for name, value in properties.items() if name.startswith(_PREFIX)}
    config = ConnectorConfig.parse({"topic.prefix": connector, **own})
    return StateRetention(
        offset_history=_time(config.state_retention_offset_history_ms),
        batches=_time(config.state_retention_batches_ms),
        notifications=_time(config.state_retention_notifications_ms),
        signals=_time(config.state_retention_signals_ms),
        signal_bytes=None if config.state_retention_signals_bytes < 0 else config.state_retention_signals_bytes,
    )


def prune_state(
    store: LifecycleStore, connector: str, properties: Mapping[str, Any], *, now: datetime | None = None
) -> dict[str, int]:
    """Remove the rows that are older than a connector's retention. A run may be alive meanwhile.

    :return: kind of row → how many were removed
    :raises ConfigError: one of ``state.retention.*`` cannot be used
    :raises StateUnavailable: the state database cannot be reached; rows that were removed stay removed
    """
    removed = store.prune_rows(connector, retention_of(connector, properties), now or datetime.now(UTC))
    log.info("State of %s: %s", connector, removed_text(removed))
    return removed


def removed_text(removed: Mapping[str, int]) -> str:
    """Format the numbers of removed rows, for people."""
    counts = ", ".join(f"{rows:,} of {kind.replace('_', ' ')}" for kind, rows in removed.items() if rows)
    return f"rows removed: {counts}." if counts else "no rows are older than state.retention.* allows."


def _time(ms: int) -> timedelta | None:
    return None if ms < 0 else timedelta(milliseconds=ms)
