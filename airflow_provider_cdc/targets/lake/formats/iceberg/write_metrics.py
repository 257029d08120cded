"""What Iceberg says of a write in the snapshot that it made."""

from __future__ import annotations

from typing import Any

from airflow_provider_cdc.targets.lake.formats.iceberg.jvm_classes import texts
from airflow_provider_cdc.targets.lake.formats.target import Written


def written(way: str, table: Any) -> Written:
    """What a write of Spark's has written.

    :param way: one of :data:`airflow_provider_cdc.targets.lake.formats.target.WAYS`
    :param table: within the transaction, after the write (``org.apache.iceberg.Table``)
    """
    summary = texts(table.currentSnapshot().summary())

    def told(name: str) -> int:
        return int(summary.get(name) or 0)

    copied = way == "merge" and told("deleted-data-files") > 0
    files = told("added-data-files") + told("added-delete-files")
    return Written(
        way,
        rows=None if copied else told("added-records"),
        # a delete of a position may be that of a row that was written anew
        deleted=0 if way in ("create", "append") else None,
        bytes=told("added-files-size"),
        files=files,
    )
