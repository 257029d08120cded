"""Finds the extensions of users: entry points of their own packages."""

from __future__ import annotations

import importlib.metadata
import logging
from typing import Final

log = logging.getLogger(__name__)

SNAPSHOT_POLICIES: Final = "airflow_provider_cdc.snapshot_policies"
"""See :class:`airflow_provider_cdc.core.snapshot.snapshot_policy.SnapshotPolicy`."""
SNAPSHOT_QUERIES: Final = "airflow_provider_cdc.snapshot_queries"
"""See :data:`airflow_provider_cdc.core.snapshot.snapshot_policy.SnapshotQuery`."""
SNAPSHOT_LOCKS: Final = "airflow_provider_cdc.snapshot_locks"
"""See :data:`airflow_provider_cdc.core.snapshot.snapshot_policy.SnapshotLock`."""

CONVERTERS: Final = "airflow_provider_cdc.converters"
"""See :class:`airflow_provider_cdc.core.converters.column_converter.ColumnConverter`."""


def list_extensions(group: str) -> dict[str, importlib.metadata.EntryPoint]:
    """Entry points of a group, by name, not loaded yet.

    If several packages use the same name, the first one wins, with a warning.
    """
    points: dict[str, importlib.metadata.EntryPoint] = {}
    for point in importlib.metadata.entry_points(group=group):
        first = points.setdefault(point.name, point)
        if first.value != point.value:
            log.warning(
                "Entry point %s of group %s is %s; %s has the same name and is ignored.",
                point.name,
                group,
                first.value,
                point.value,
            )
    return points
