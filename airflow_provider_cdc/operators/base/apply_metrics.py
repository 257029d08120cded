"""Metrics that an apply reports to the monitor for each connector, and those of a comparison with the source."""

from __future__ import annotations

from collections import defaultdict
from functools import partial
from typing import TYPE_CHECKING, Literal

from airflow_provider_cdc.core.config.property_enums import find_metric_tags
from airflow_provider_cdc.core.reporting.metrics_monitor import MetricsMonitor, Sink, run_ended
from airflow_provider_cdc.hooks.airflow_stats import to_airflow
from airflow_provider_cdc.hooks.state import CdcStateHook
from airflow_provider_cdc.services.dashboards.late_tables import LAGGING
from airflow_provider_cdc.services.text.status_texts import format_target_name, target_place

if TYPE_CHECKING:
    from airflow_provider_cdc.changelog.reports.apply_report import ApplyOutcome
    from airflow_provider_cdc.core.model.metric_samples import MetricSamples
    from airflow_provider_cdc.operators.base.connector_apply_report import ConnectorTables
    from airflow_provider_cdc.services.connectors.connector_handle import ConnectorAccess
    from airflow_provider_cdc.verify.verification_report import TableVerification, VerificationReport


_Counted = Literal["rows_written", "rows_deleted", "bytes_written", "files_written"]
_COUNTED: dict[_Counted, str] = {
    "rows_written": "TotalNumberOfRowsWritten",
    "rows_deleted": "TotalNumberOfRowsDeleted",
    "bytes_written": "TotalNumberOfBytesWritten",
    "files_written": "TotalNumberOfFilesWritten",
}


def report_apply_metrics(connector: ConnectorTables, *, failed: bool, seconds: float) -> None:
    """Report a run's apply of one connector.

    :param failed: it was not applied, or not all of it
    """
    # otherwise the report is that of an earlier job, which has reported its metrics
    report = connector.report
    own = bool(connector.owner) and (report is None or report.get("owner") in (None, connector.owner))
    measure_report(
        connector.access,
        connector.target,
        connector.location,
        report,
        own=own,
        failed=failed,
        seconds=seconds,
    )


def measure_report(
    access: ConnectorAccess,
    target: str,
    location: str,
    report: ApplyOutcome | None,
    *,
    own: bool = True,
    failed: bool = False,
    seconds: float = 0.0,
    ended: bool = True,
    conn_id: str = "",
) -> None:
    """Report a run's apply of one connector.

    :param report: of an apply, with ``last_batch``, ``tables`` and ``failed``; ``None``: it has left none
    :param own: whether it is this run's
    :param failed: it was not applied, or not all of it
    :param conn_id: the connection of a target database
    :param ended: the run has ended; otherwise it continues, and the report has its work since the last one
    """
    monitor = _monitor(access, "apply", target, location)
    monitor.set_text("apply.TargetName", format_target_name(target, location, conn_id))
    _tables(monitor, report, own=own)
    if ended:
        run_ended(monitor, "apply", failed=failed, seconds=seconds)
    else:
        monitor.flush()


def measure_comparison(access: ConnectorAccess, target: str, location: str, verified: VerificationReport) -> None:
    """Report how the tables of a target compare with the source; tables that could not be compared keep their last values."""
    monitor = _monitor(access, "verify", target, location)
    topics: dict[str, list[TableVerification]] = defaultdict(list)
    for table in verified.tables:
        topics[table.topic].append(table)
    for topic, tables in topics.items():  # of a topic with a route there are several
        if any(table.not_compared for table in tables):
            continue
        monitor.set_gauge("verify.TableDiffers", int(not all(table.is_equal for table in tables)), topic)
        monitor.set_gauge("verify.RowsMissing", sum(table.missing for table in tables), topic)
        monitor.set_gauge("verify.RowsSurplus", sum(table.surplus for table in tables), topic)
        monitor.set_gauge("verify.RowsDifferent", sum(table.different for table in tables), topic)
    monitor.flush()


def _monitor(access: ConnectorAccess, producer: str, target: str, location: str) -> MetricsMonitor:
    place = target_place(location)
    sinks: list[Sink] = [to_airflow, partial(_keep, access.state_conn_id)]
    tags = {**find_metric_tags(access.definition.properties), "target": target, "place": place}
    return MetricsMonitor(access.definition.name, f"{producer} {target} {place}", sinks, tags)


def _keep(state_conn_id: str, samples: MetricSamples) -> None:
    """Keep it in the state tables."""
    with CdcStateHook(state_conn_id).open_store(patience_s=2) as store:
        store.metrics.add_measurements(samples)


def _tables(monitor: MetricsMonitor, report: ApplyOutcome | None, *, own: bool) -> None:
    from airflow_provider_cdc.changelog.reports.apply_report_store import merge_by_table

    if report is None:
        return
    if report.get("last_batch"):
        monitor.set_gauge("apply.LastBatch", report["last_batch"])
    for name, batch in report["lagging"].items():
        monitor.set_gauge(LAGGING, batch, _topic_of(report, name))
    if not own:
        return
    counted = set()
    for table in merge_by_table(report["tables"]):
        topic = table["topic"]
        if topic not in counted:  # tables that a route makes of one topic have read the same events
            monitor.add_count("apply.TotalNumberOfEventsApplied", sum(table["rows"].values()), topic)
        counted.add(topic)
        for field, name in _COUNTED.items():
            if (count := table.get(field)) is not None:
                monitor.add_count(f"apply.{name}", count, topic)
        monitor.set_gauge("apply.TableDurationInSeconds", table["seconds"], topic)
        if (freshness := table.get("freshness_s")) is not None:
            monitor.observe_value("apply.FreshnessInSeconds", freshness, topic)
    monitor.set_gauge("apply.FailedTables", len(report["failed"]))


def _topic_of(report: ApplyOutcome, name: str) -> str:
    """Return the topic of a table, by its name in the report: a route makes several tables of one topic."""
    state = report["table_states"].get(name)
    return name if state is None else state.get("topic", name)
