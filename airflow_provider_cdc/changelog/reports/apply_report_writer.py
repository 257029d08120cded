"""Writes the reports of one job, one after the other, at a cost by what has changed since."""

from __future__ import annotations

import time
from typing import Final

from airflow_provider_cdc.changelog.reports.apply_report import ApplyReport
from airflow_provider_cdc.changelog.reports.apply_report_changes import count_changes, count_entries, find_changes
from airflow_provider_cdc.changelog.reports.apply_report_store import ApplyReports

MANY: Final = 500
"""Entries of tables from which on a report is written in two files."""
_LONGEST_S: Final = 12 * 3600.0
"""Age at which a base is replaced: other writers delete bases that are older than :data:`~airflow_provider_cdc.changelog.reports.apply_report_store.LEFT_S`."""


class ApplyReportWriter:
    """Replaces the report of a target again and again.

    The first report, and one with few tables, is one file. From then on a base has all entries, and the report those that changed since. A new base
    is written as soon as these were as many, over all reports, as the entries of the base: so the cost of a report is, on the average,
    that of the square root of the entries.
    """

    def __init__(self, reports: ApplyReports) -> None:
        self._reports = reports
        self._base: ApplyReport | None = None
        self._name, self._written, self._since = "", 0, 0.0
        self._is_first = True

    def write(self, report: ApplyReport) -> None:
        """Replace the report atomically."""
        first, self._is_first = self._is_first, False
        if first or count_entries(report) < MANY:
            self._reports.write(report)
            self._discard_base(report)
            return
        if self._base is not None and time.monotonic() - self._since < _LONGEST_S:
            changes = find_changes(self._base, report)
            self._written += count_changes(changes)
            if self._written <= count_entries(self._base):
                self._reports.write_changes(report, self._name, changes)
                return
        earlier = self._name
        self._name = self._reports.write_base(report)
        # the caller's own lists go on to change
        self._base = {**report, "table_states": {**report["table_states"]}, "tables": [*report["tables"]]}
        self._written, self._since = 0, time.monotonic()
        self._reports.write_changes(report, self._name, find_changes(report, report))
        self._reports.delete_bases(report, earlier)

    def _discard_base(self, report: ApplyReport) -> None:
        if self._name:
            self._reports.delete_bases(report, self._name)
        self._base, self._name = None, ""
