"""Says how far a job is, while it works: tables, and of each table that is at work, which of its batches."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Any, Self

from airflow_provider_cdc.changelog.files.change_log import ChangeLog
from airflow_provider_cdc.core.reporting.progress_reporter import ProgressBoard, ProgressReporter, ProgressTicker

log = logging.getLogger("airflow_provider_cdc.targets.lake.apply.job_progress_reporter")

SHOWN = 8
"""Tables at work that a line names."""


@dataclass(frozen=True, slots=True)
class TableInProgress:
    """A table that is worked on.

    :param after: its last batch when the work began
    :param first: the batches that are applied now; 0 where the work has no batches
    """

    after: int = 0
    first: int = 0
    last: int = 0


class JobTableProgress:
    """The progress of the tables of a job, or of one round of it.

    Tables report from their threads; another one writes the progress, in a ``with`` block.

        >>> with JobTableProgress(200, 523, name="Apply", board=changelog.board("shop"), where="delta at /lake") as progress:
        ...     progress.start_table("shop.orders", 0)
        ...     progress.record_batch_range("shop.orders", 1, 20)
        ...     progress.release_table("shop.orders")

    :param tables: that are worked on
    :param last: the batch that all of them will have
    """

    def __init__(
        self,
        tables: int = 0,
        last: int = 0,
        *,
        name: str = "Apply",
        board: ProgressBoard | None = None,
        where: str = "",
    ) -> None:
        self.tables = tables
        self._last, self._done = last, 0
        self._at_work: dict[str, TableInProgress] = {}
        self._ticker = ProgressTicker(
            ProgressReporter(name, "tables", where=where, board=board, logger=log), self.to_document
        )

    @classmethod
    def from_job(
        cls, name: str, tables: int, changelog: ChangeLog, connector: str, target: str, location: str, last: int = 0
    ) -> JobTableProgress:
        """Build the progress of a job for the tables of a connector at a location."""
        board = changelog.open_progress_board(connector)
        return cls(tables, last, name=name, board=board, where=f"{target} at {location}")

    def __enter__(self) -> Self:
        self._ticker.__enter__()
        return self

    def __exit__(self, *e: object) -> None:
        self._ticker.__exit__(*e)

    def start_table(self, table: str, after: int | None = None) -> None:
        """Record that a table is worked on from now on.

        :param after: its last batch, where the work is on its batches
        """
        self._at_work[table] = TableInProgress() if after is None else TableInProgress(after, after + 1, after + 1)

    def record_batch_range(self, table: str, first: int, last: int) -> None:
        """Record that a table is brought from one batch to another, in one commit."""
        in_progress = self._at_work.get(table)
        self._at_work[table] = TableInProgress(first - 1 if in_progress is None else in_progress.after, first, last)

    def release_table(self, table: str) -> None:
        """Record that no thread works on a table any more, for now."""
        self._at_work.pop(table, None)

    def count_finished_table(self) -> None:
        """Record that one of the tables is finished."""
        self._done += 1

    def to_document(self) -> dict[str, Any]:
        """Return how far the job is, as :meth:`ProgressReporter.report_progress` has it."""
        at_work = sorted(self._at_work.copy().items())
        shown = [f"{table}{self._batches(at)}" for table, at in at_work[:SHOWN]]
        more = f" and {len(at_work) - SHOWN} more" if len(at_work) > SHOWN else ""
        begun = sum((at.first - 1 - at.after) / self._total(at) for _, at in at_work if at.first)
        way = min(self._done + begun, float(self.tables))
        now = f"at work: {', '.join(shown)}{more}" if shown else ""
        return {"done": self._done, "total": self.tables, "span": (way, self.tables), "now": now}

    def _total(self, at: TableInProgress) -> int:
        return max(self._last - at.after, at.last - at.after, 1)

    def _batches(self, at: TableInProgress) -> str:
        first, last, total = at.first - at.after, at.last - at.after, self._total(at)
        if not at.first:
            return ""
        return f" (batch {first} of {total})" if first == last else f" (batches {first} to {last} of {total})"
