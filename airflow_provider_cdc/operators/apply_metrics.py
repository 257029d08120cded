"""What an apply reports to the monitor, of each connector that it applies."""

from __future__ import annotations

import hashlib
from functools import partial
from typing import TYPE_CHECKING

from airflow_provider_cdc.core.spi.monitor import Monitor, run_ended
from airflow_provider_cdc.hooks.state import CdcStateHook
from airflow_provider_cdc.hooks.stats import to_airflow

if TYPE_CHECKING:
    from airflow_provider_cdc.core.model.measured import Measured
    from airflow_provider_cdc.operators.connector_tables import ConnectorTables


_COUNTED = {
    "rows_written": "TotalNumberOfRowsWritten",
    "rows_deleted": "TotalNumberOfRowsDeleted",
    "bytes_written": "TotalNumberOfBytesWritten",
    "files_written": "TotalNumberOfFilesWritten",
}


def measure(one: ConnectorTables, *, failed: bool, seconds: float) -> None:
    """Report a run's apply of one connector.

    :param failed: it was not applied, or not all of it
    """
    place = hashlib.sha256(one.location.encode()).hexdigest()[:8]
    monitor = Monitor(
        one.name,
        f"apply {one.target} {place}",
        [to_airflow, partial(_keep, one.access.state_conn_id)],
        {"target": one.target, "place": place},
    )
    _tables(monitor, one)
    run_ended(monitor, "apply", failed=failed, seconds=seconds)


def _keep(state_conn_id: str, found: Measured) -> None:
    """Keep it in the state tables."""
    with CdcStateHook(state_conn_id).opened(patience_s=2) as store:
        store.metrics.add(found)


def _tables(monitor: Monitor, one: ConnectorTables) -> None:
    from airflow_provider_cdc.changelog.applied import merged

    report = one.report
    if report is None:
        return
    if report.get("last_batch"):
        monitor.gauge("apply.LastBatch", report["last_batch"])
    if not one.owner or report.get("owner") not in (None, one.owner):
        return  # it is that of an earlier job, which has told of it
    counted = set()
    for table in merged(report["tables"]):
        topic = table["topic"]
        if topic not in counted:  # tables that a route makes of one topic have read the same events
            monitor.count("apply.TotalNumberOfEventsApplied", sum(table["rows"].values()), topic)
        counted.add(topic)
        for field, name in _COUNTED.items():
            if table.get(field) is not None:
                monitor.count(f"apply.{name}", table[field], topic)
        monitor.gauge("apply.TableDurationInSeconds", table["seconds"], topic)
        if table.get("freshness_s") is not None:
            monitor.observe("apply.FreshnessInSeconds", table["freshness_s"], topic)
    monitor.gauge("apply.FailedTables", len(report["failed"]))
