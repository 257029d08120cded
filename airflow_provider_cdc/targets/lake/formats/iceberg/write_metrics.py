"""Metrics that Iceberg has of a write in the snapshot that it made."""

from __future__ import annotations

from typing import Any

from airflow_provider_cdc.targets.lake.formats.iceberg.jvm_access import to_python_dict
from airflow_provider_cdc.targets.lake.formats.table_values import WriteMetrics


def read_write_metrics(way: str, table: Any) -> WriteMetrics:
    """Return the metrics of a write by Spark.

    :param way: one of :data:`airflow_provider_cdc.targets.lake.formats.target_interface.WAYS`
    :param table: within the transaction, after the write (``org.apache.iceberg.Table``)
    """
    summary = to_python_dict(table.currentSnapshot().summary())

    def count(name: str) -> int:
        return int(summary.get(name) or 0)

    copied = way == "merge" and count("deleted-data-files") > 0
    files = count("added-data-files") + count("added-delete-files")
    return WriteMetrics(
        way,
        rows=None if copied else count("added-records"),
        # a delete of a position may be that of a row that was rewritten
        deleted=0 if way in ("create", "append") else None,
        bytes=count("added-files-size"),
        files=files,
    )
