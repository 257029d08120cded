"""Metrics that Delta has of a write in the commit that it made."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from airflow_provider_cdc.targets.lake.formats.owners_and_markers import Marker
from airflow_provider_cdc.targets.lake.formats.table_values import WriteMetrics

_MERGE = {
    "rows": ("numTargetRowsInserted", "numTargetRowsUpdated"),
    "deleted": ("numTargetRowsDeleted",),
    "bytes": ("numTargetBytesAdded",),
    "files": ("numTargetFilesAdded",),
}
_WRITE = {"rows": ("numOutputRows",), "bytes": ("numOutputBytes",), "files": ("numFiles",)}


def read_write_metrics(way: str, actions: Sequence[Mapping[str, Any]], marker: Marker) -> WriteMetrics | None:
    """Return the metrics of a write by Spark.

    :param way: one of :data:`airflow_provider_cdc.targets.lake.formats.target_interface.WAYS`
    :param actions: of the table's last commit, as its log has them
    :return: ``None`` if that commit is not the one of the marker
    """
    mine = any(
        (a["txn"]["appId"], a["txn"]["version"]) == (marker.application_name, marker.batch)
        for a in actions
        if "txn" in a
    )
    if not mine:
        return None
    metrics = next((a["commitInfo"].get("operationMetrics") or {} for a in actions if "commitInfo" in a), {})
    numbers = {
        name: sum(int(metrics[metric]) for metric in names)
        for name, names in (_MERGE if way == "merge" else _WRITE).items()
        if all(metric in metrics for metric in names)
    }
    return WriteMetrics(way, **numbers)
