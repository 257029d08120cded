"""Stores the asset events that a task has not emitted, as it has failed and is not retried: its next run emits them.

They are in the change log's folder, since nothing that Airflow stores itself is kept from one run of a DAG to the next.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Iterable

import orjson

from airflow_provider_cdc.changelog.files.storage import Storage
from airflow_provider_cdc.changelog.reports.apply_report import TableApplied
from airflow_provider_cdc.changelog.reports.apply_report_store import merge_by_table

log = logging.getLogger(__name__)

_FOLDER = "unannounced"


class AssetEventOutbox:
    """The tables of one connector that one task has still to report.

    :param task: names the task, the same in all runs
    """

    def __init__(self, storage: Storage, connector: str, task: str) -> None:
        digest = hashlib.sha256(task.encode()).hexdigest()[:16]
        self._storage, self._path = storage, storage.join_path(connector, _FOLDER, f"{digest}.json")

    def read(self) -> list[TableApplied]:
        """Read the tables as :func:`airflow_provider_cdc.changelog.reports.apply_report_store.merge_by_table` gives them.

        None if there is nothing that can be read.
        """
        data = self._storage.read(self._path)
        try:
            return [] if data is None else merge_by_table(orjson.loads(data))
        except (ValueError, TypeError, KeyError) as e:
            log.warning("The pending asset events in %s cannot be read: %s", self._path, e)
            return []

    def add(self, tables: Iterable[TableApplied]) -> None:
        """Add the results of a run on tables."""
        if merged := merge_by_table([*self.read(), *tables]):
            self._storage.replace(self._path, orjson.dumps(merged))

    def delete_all(self) -> None:
        """Delete all entries: their events are emitted."""
        self._storage.delete(self._path)
