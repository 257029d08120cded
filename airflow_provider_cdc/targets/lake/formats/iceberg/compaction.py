"""Rewrites the files of a table when small commits have left too many of them.

A commit of a batch costs little because it leaves the table's files as they are: its deletes are in separate files, which each reader
has to apply, and its rows are in small files. Iceberg's own action takes them together.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from itertools import islice
from typing import Any

from pyspark.sql import SparkSession

from airflow_provider_cdc.targets.lake.formats.iceberg.jvm_access import ICEBERG, to_python_dict
from airflow_provider_cdc.targets.lake.spark_releases.jvm_features import activate_session, load_jvm_class

log = logging.getLogger("airflow_provider_cdc.targets.lake.formats.iceberg")

DELETES = 20
"""Commits with deletes since the last compaction after which a small table is compacted."""
SMALL = 50
"""Commits with small files since the last compaction after which a table is compacted."""
BYTES_PER_DELETE = 256 << 20
"""The larger a table, the rarer it is compacted: for this many bytes it takes one commit with deletes more."""
SMALL_BYTES = 8 << 20
_REWRITTEN = "replace"
"""Operation of a snapshot that has changed files, and no rows."""


def is_compaction_due(table: Any) -> bool:
    """Check whether a table (``org.apache.iceberg.Table``) is to be compacted."""
    snapshot = table.currentSnapshot()
    if snapshot is None:
        return False
    total = to_python_dict(snapshot.summary())
    most = DELETES + int(total.get("total-files-size", 0)) // BYTES_PER_DELETE
    if int(total.get("total-delete-files", 0)) < most and int(total.get("total-data-files", 0)) < SMALL:
        return False
    deletes = small = 0
    for summary in islice(_since_compaction(table), most + SMALL):
        deletes += "added-delete-files" in summary
        small += 0 < int(summary.get("added-files-size", 0)) < SMALL_BYTES and "added-data-files" in summary
        if deletes >= most or small >= SMALL:
            return True
    return False


def _since_compaction(table: Any) -> Iterator[dict[str, str]]:
    """Summaries of the snapshots that have led to the current one, from the newest on."""
    snapshot = table.currentSnapshot()
    while snapshot is not None and snapshot.operation() != _REWRITTEN:
        yield to_python_dict(snapshot.summary())
        parent = snapshot.parentId()
        snapshot = None if parent is None else table.snapshot(parent)


def count_files(table: Any) -> tuple[int, int, int]:
    """Count the files of a table, those of deletes, and the small ones."""
    snapshot = table.currentSnapshot()
    if snapshot is None:
        return 0, 0, 0
    total = to_python_dict(snapshot.summary())
    planned, small = table.newScan().planFiles(), 0
    try:
        tasks = planned.iterator()
        while tasks.hasNext():
            small += tasks.next().file().fileSizeInBytes() < SMALL_BYTES
    finally:
        planned.close()
    return int(total.get("total-data-files", 0)), int(total.get("total-delete-files", 0)), small


def compact_files(spark: SparkSession, table: Any) -> Any:
    """Rewrite small files, and files of which rows are deleted; in the table's order, if it has one.

    Rows and markers stay.

    :return: the result (``RewriteDataFiles.Result``)
    """
    activate_session(spark)
    action = (
        load_jvm_class(spark, f"{ICEBERG}.spark.actions.SparkActions").get(spark._jsparkSession).rewriteDataFiles(table)
    )
    if table.sortOrder().isSorted():
        action = action.sort()
    done = action.option("delete-file-threshold", "1").option("remove-dangling-deletes", "true").execute()
    table.refresh()
    remove_unused_deletes(spark, table)
    return done


def remove_unused_deletes(spark: SparkSession, table: Any) -> None:
    """Remove delete files that apply to no data file.

    Iceberg 1.11 leaves one behind at each compaction of a table without partitions, and never removes it. Rows that are written later are
    newer than these deletes.
    """
    snapshot = table.currentSnapshot()
    if snapshot is None or int(to_python_dict(snapshot.summary()).get("total-delete-files", 0)) == 0:
        return
    used = _list_used_deletes(table)
    unused = [file for file in _list_delete_files(spark, table, snapshot) if str(file.location()) not in used]
    if not unused:
        return
    change = table.newRewrite().validateFromSnapshot(snapshot.snapshotId())
    for file in unused:
        change.deleteFile(file)
    change.commit()
    log.info("%d delete files of %s applied to no data file, and were removed.", len(unused), table.location())


def _list_used_deletes(table: Any) -> set[str]:
    """Return the locations of delete files that readers apply."""
    planned, used = table.newScan().planFiles(), set[str]()
    try:
        tasks = planned.iterator()
        while tasks.hasNext():
            used.update(str(file.location()) for file in tasks.next().deletes())
    finally:
        planned.close()
    return used


def _list_delete_files(spark: SparkSession, table: Any, snapshot: Any) -> Iterator[Any]:
    """Read the delete files of a snapshot (``org.apache.iceberg.DeleteFile``)."""
    read_manifest = load_jvm_class(spark, f"{ICEBERG}.ManifestFiles").readDeleteManifest
    for manifest in snapshot.deleteManifests(table.io()):
        reader = read_manifest(manifest, table.io(), table.specs())
        try:
            files = reader.iterator()
            while files.hasNext():
                yield files.next()
        finally:
            reader.close()
