"""The times at which each target has got each change of a row: by the reports of applies, and by their metrics."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from airflow_provider_cdc.changelog.row_history.row_history_models import RowChange, RowHistory, TargetOutcome

if TYPE_CHECKING:
    from airflow_provider_cdc.changelog.reports.apply_report import ApplyReport
    from airflow_provider_cdc.services.connectors.connector_handle import ConnectorAccess
    from airflow_provider_cdc.state.state_store import StateStore

Runs = Sequence[tuple[datetime, int]]
"""When runs have ended, and the last batch that the target had then; oldest first."""


def applied_at(story: RowHistory, access: ConnectorAccess, store: StateStore) -> None:
    """Add to each change its outcome at each target."""
    from airflow_provider_cdc.changelog.reports.apply_report_store import ApplyReports

    for report in ApplyReports(access.open_change_log().storage, story.connector).list_reports():
        runs = _runs(store, story.connector, report)
        for change in story.changes:
            if change.operation != "schema change":
                change.applied.append(_applied(report, runs, change))


def batch_of(report: ApplyReport, topic: str) -> int:
    """Return the last batch that the table of a topic has, by its report; 0 if there is none."""
    lagging = report["lagging"].get(topic)
    return int(report["last_batch"] if lagging is None else min(lagging, report["last_batch"]))


def _applied(report: ApplyReport, runs: Runs, change: RowChange) -> TargetOutcome:
    target, location = str(report["target"]), str(report["location"])
    if change.topic is None:
        return TargetOutcome(target=target, location=location, state="unknown")
    if batch_of(report, change.topic) < change.batch:
        return TargetOutcome(target=target, location=location, state="waits")
    number = next((n for n, (_, batch) in enumerate(runs) if batch >= change.batch), None)
    if number is None or change.topic in report["lagging"]:
        return TargetOutcome(target=target, location=location, state="applied", at=report.get("at"), at_latest=True)
    at = runs[number][0].isoformat(timespec="seconds")
    return TargetOutcome(target=target, location=location, state="applied", at=at, at_latest=number == 0)


def _runs(store: StateStore, connector: str, report: ApplyReport) -> Runs:
    place = hashlib.sha256(str(report["location"]).encode()).hexdigest()[:8]
    run_history = store.metrics.load_run_history(connector, f"apply {report['target']} {place}")
    batches = ((at, (metrics.get("gauges") or {}).get("apply.LastBatch")) for at, metrics in run_history)
    return [(at, int(batch)) for at, batch in batches if batch is not None]
