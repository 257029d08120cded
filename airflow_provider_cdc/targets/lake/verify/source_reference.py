"""Source rows of a comparison: the rows that the tables of a topic ought to have at some batch."""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import Any

from pyspark.sql import SparkSession

from airflow_provider_cdc.changelog.files.change_log import ChangeLog
from airflow_provider_cdc.changelog.reading.pending_batches import PendingBatches
from airflow_provider_cdc.targets.lake.verify.expected_rows import ExpectedTableRows, build_expected_rows, of_reference
from airflow_provider_cdc.verify.batches_after_reference import BatchesAfterReference


class SourceReference:
    """The source's side of a topic. Safe for threads.

    :param reference: the source's rows at one position
    :param changelog: where these are
    :param connector: the reference's name
    :param position: of the source's log
    :param later_changes: changes that the connector has captured since then; ``None``: the reference has all of them
    :param at: the position for people
    """

    def __init__(
        self,
        reference: PendingBatches,
        changelog: ChangeLog,
        connector: str,
        position: dict[str, Any],
        later_changes: BatchesAfterReference | None = None,
        at: str = "",
    ) -> None:
        self.reference, self.connector, self.position = reference, connector, position
        self.later_changes, self.at = later_changes, at
        self._changelog = changelog
        self._lock = threading.Lock()
        self._cached: tuple[int, ExpectedTableRows] | None = None

    @property
    def topic(self) -> str:
        return self.reference.topic

    @property
    def reached_batch(self) -> int:
        """The batch by which a table has everything up to the position; 0 if the reference is all there is."""
        return 0 if self.later_changes is None else self.later_changes.required_batch

    def check_files(self) -> None:
        """Check the files of the reference.

        :raises ChangeLogDamaged: a file of the reference differs from its manifest
        """
        for _, file in self.reference.files:
            self._changelog.check_file(self.connector, file)

    def load_rows(self, spark: SparkSession, last: int) -> ExpectedTableRows:
        """Return the rows at some batch, with the source's columns.

        :raises NotComparable: it is not known which they are
        :raises ChangeLogDamaged: a file of the change log differs from its manifest
        """
        if self.later_changes is None:
            return of_reference(spark, self.reference)
        for part in self.later_changes.list_parts(self.topic, last):
            for _, file in part.files:
                self.later_changes.changelog.check_file(self.later_changes.connector, file)
        return build_expected_rows(spark, self.reference, self.later_changes, last)

    def load_cached_rows(self, spark: SparkSession, last: int) -> ExpectedTableRows:
        """Return the same, read once for all the tables that a route makes of the topic; until :meth:`release_cached_rows`."""
        with self._lock:
            if self._cached is None or self._cached[0] != last:
                self._forget()
                expected = self.load_rows(spark, last)
                self._cached = last, replace(expected, rows=expected.rows.persist())
            return self._cached[1]

    def release_cached_rows(self) -> None:
        """Release the cached rows."""
        with self._lock:
            self._forget()

    def _forget(self) -> None:
        if self._cached is not None:
            self._cached[1].rows.unpersist()
        self._cached = None
