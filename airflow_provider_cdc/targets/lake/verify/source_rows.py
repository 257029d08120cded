"""What the tables of a topic are compared with: the rows that they ought to have at some batch."""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import Any

from pyspark.sql import SparkSession

from airflow_provider_cdc.changelog.files.change_log import ChangeLog
from airflow_provider_cdc.changelog.reading.pending_batches import Pending
from airflow_provider_cdc.targets.lake.verify.expected_rows import Expected, expected, of_reference
from airflow_provider_cdc.verify.captured_since import Since


class Wanted:
    """The source's side of a topic. Safe for threads.

    :param reference: the source's rows at one position
    :param changelog: where these are
    :param connector: the reference's name
    :param position: of the source's log
    :param since: what the connector has captured since then; ``None``: the reference is all there is
    :param at: the position for people
    """

    def __init__(
        self,
        reference: Pending,
        changelog: ChangeLog,
        connector: str,
        position: dict[str, Any],
        since: Since | None = None,
        at: str = "",
    ) -> None:
        self.reference, self.connector, self.position = reference, connector, position
        self.since, self.at = since, at
        self._changelog = changelog
        self._lock = threading.Lock()
        self._kept: tuple[int, Expected] | None = None

    @property
    def topic(self) -> str:
        return self.reference.topic

    @property
    def reached(self) -> int:
        """The batch by which a table has everything up to the position; 0 if the reference is all there is."""
        return 0 if self.since is None else self.since.reached

    def check(self) -> None:
        """
        :raises ChangeLogDamaged: a file of the reference is not what its manifest says
        """
        for _, file in self.reference.files:
            self._changelog.check(self.connector, file)

    def rows(self, spark: SparkSession, last: int) -> Expected:
        """The rows at some batch, with the source's columns.

        :raises NotComparable: nobody can say which they are
        :raises ChangeLogDamaged: a file of the change log is not what its manifest says
        """
        if self.since is None:
            return of_reference(spark, self.reference)
        for part in self.since.parts(self.topic, last):
            for _, file in part.files:
                self.since.changelog.check(self.since.connector, file)
        return expected(spark, self.reference, self.since, last)

    def kept(self, spark: SparkSession, last: int) -> Expected:
        """The same, read once for all the tables that a route makes of the topic; until :meth:`forget`."""
        with self._lock:
            if self._kept is None or self._kept[0] != last:
                self._forget()
                found = self.rows(spark, last)
                self._kept = last, replace(found, rows=found.rows.persist())
            return self._kept[1]

    def forget(self) -> None:
        """Give back what is kept."""
        with self._lock:
            self._forget()

    def _forget(self) -> None:
        if self._kept is not None:
            self._kept[1].rows.unpersist()
        self._kept = None
