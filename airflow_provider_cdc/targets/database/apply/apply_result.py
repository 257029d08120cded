"""Results of runs of the sink, as reports and tasks show them."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any

from airflow_provider_cdc.changelog.reading.pending_batches import PendingBatches
from airflow_provider_cdc.changelog.reports.apply_report import TableApplied
from airflow_provider_cdc.changelog.reports.apply_report_store import merge_steps


@dataclass(slots=True)
class DatabaseApplyResult:
    """The result of a run.

    :param place: of the tables, see :func:`~airflow_provider_cdc.targets.database.target_engine.place_of`
    :param batch: that all tables have now, but those that are behind
    :param tables: topic → the work on its table, as reports have it
    :param failed: topic → why its table stays behind
    :param behind: topic → the last batch of its table
    """

    place: str
    batch: int = 0
    tables: dict[str, TableApplied] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)
    behind: dict[str, int] = field(default_factory=dict)
    seconds: float = 0.0

    @property
    def event_count(self) -> int:
        """Change events that were applied."""
        return sum(sum(table["rows"].values()) for table in self.tables.values())

    def to_document(self) -> dict[str, Any]:
        """Build the document that tasks and jobs report."""
        return {
            "place": self.place, "batch": self.batch, "events": self.event_count, "tables": self.tables, "failed": self.failed,
            "lagging": self.behind, "seconds": self.seconds,
        }  # fmt: skip

    def merge_result(self, later: DatabaseApplyResult) -> None:
        """Add the result of the next work."""
        for topic, table in later.tables.items():
            self.tables[topic] = merge_steps(self.tables[topic], table) if topic in self.tables else table
        self.batch = later.batch or self.batch  # 0 if it has not come to an end
        self.failed, self.behind = later.failed, later.behind
        self.seconds = round(self.seconds + later.seconds, 3)

    def record_table(self, pending: PendingBatches, table: str, began: float, committed_ms: int) -> None:
        """Add the work on one table.

        :param committed_ms: when the newest of its events was committed at the source, in ms since 1970; 0 if that is not known
        """
        fresh = round(max(time.time() - committed_ms / 1000, 0.0), 3) if committed_ms else None
        earlier = self.tables.get(pending.topic)
        entry: TableApplied = {
            "topic": pending.topic, "location": table, "first_batch": pending.first, "last_batch": pending.last, "rows": pending.count_operations(),
            "position": pending.position, "seconds": round(time.monotonic() - began, 3), "committed_ms": committed_ms, "freshness_s": fresh,
        }  # fmt: skip
        self.tables[pending.topic] = entry if earlier is None else merge_steps(earlier, entry)
