"""Finds which batches of a change log the targets of a connector still need, by their reports.

A target is known from the moment its first apply begins (:meth:`~airflow_provider_cdc.changelog.reports.apply_report_store.ApplyReports.register_target`) until a user removes it.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from airflow_provider_cdc.changelog.files.storage import Storage
from airflow_provider_cdc.changelog.reports.apply_report import ApplyReport
from airflow_provider_cdc.changelog.reports.apply_report_store import ApplyReports


@dataclass(frozen=True, slots=True)
class TargetProgress:
    """The batches that one target needs.

    :param after: all of its tables have everything up to this batch; it needs those after it
    :param last: the batch up to which its other tables are, if some are behind
    :param applied_at: when its last apply wrote its report, in ISO form; empty if that is not known
    :param tables: those that are behind the others, or have failed
    :param trouble: why its needs are unknown; empty if they are known
    """

    target: str
    location: str
    after: int
    last: int
    applied_at: str = ""
    tables: tuple[str, ...] = ()
    trouble: str = ""

    @property
    def display_name(self) -> str:
        """For people."""
        return f"{self.target} at {self.location}"

    def to_document(self) -> dict[str, Any]:
        """Return the need as JSON."""
        return {**asdict(self), "tables": list(self.tables)}


def needs_of(storage: Storage, connector: str) -> list[TargetProgress]:
    """List the batches that each target needs, the one that needs most first. One whose report cannot be read needs all."""
    reports = ApplyReports(storage, connector)
    needs = [_need(report) for report in reports.list_reports()]
    needs += [
        TargetProgress("a target", f"({name} cannot be read)", 0, 0, trouble=f"its report {name} cannot be read")
        for name in reports.list_unreadable()
    ]
    return sorted(needs, key=lambda need: (need.after, need.display_name))


def _need(report: ApplyReport) -> TargetProgress:
    last, table_states = int(report["last_batch"]), report["table_states"]
    behind = {name: int(batch) for name, batch in report["lagging"].items()}
    for name in report["failed"]:
        state = table_states.get(name)
        behind.setdefault(name, 0 if state is None else max(int(state.get("batch", 0)), 0))
    after = min([last, *behind.values()])
    tables = tuple(sorted(name for name, batch in behind.items() if batch < last))
    return TargetProgress(report["target"], report["location"], after, last, str(report.get("at", "")), tables)
