"""The task that maintains lakehouse tables, by a Spark job."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from airflow_provider_cdc.core.errors import CdcError
from airflow_provider_cdc.hooks.state import DEFAULT_CONN_ID, CdcStateHook
from airflow_provider_cdc.operators.base.spark_job_operator import SparkJobOperator, known_threads
from airflow_provider_cdc.operators.retention import failure_of, log_retention
from airflow_provider_cdc.services.connector_retention import RetentionResult, run_retention
from airflow_provider_cdc.services.connectors.parameter_checks import parse_seconds
from airflow_provider_cdc.services.tasks.connector_fields import to_airflow_exception

if TYPE_CHECKING:
    from airflow.sdk import Context

    from airflow_provider_cdc.changelog.reports.table_job_reports import MaintenanceReport
    from airflow_provider_cdc.connector import ConnectorDefinition
    from airflow_provider_cdc.services.submit.spark_job import SparkJob


class MaintainTablesOperator(SparkJobOperator):
    """Submits the Spark job that maintains the tables which a connector's changes are applied to.

    It maintains files and snapshots, and removes those that are not needed any more.

    Each step checks whether it is needed; the log of the task has the work on each table, or why there was nothing to do. Rows and the last
    applied batch stay. It may run beside a continuous apply, and beside readers.

    Before that, batches of the change log go that no target needs any more, and old rows of the state tables, as ``changelog.retention.*`` and
    ``state.retention.*`` of the definition say; without Spark. A failure of the one does not stop the other.

        >>> MaintainTablesOperator(task_id="maintain", definition=shop, location="/lake/{database}/{table}", conn_id="spark_default")

    Returns ``{"connector", "target", "tables", "seconds", "changelog", "state"}``: topic → the names of the steps that changed something; and the removed parts
    of change log and state tables, as :class:`~airflow_provider_cdc.operators.retention.RetentionOperator` returns it.

    :param definition: the connector; paths are templated
    :param location: where tables are, as the apply has it (templated)
    :param target: kind of the tables, ``delta`` or ``iceberg``
    :param keep: how long files and snapshots stay after they were replaced, in hours or as a timedelta; at least an hour, by default a week. Readers
        and writers that began before are safe, and older states can be read for so long
    :param threads: tables worked on at the same time
    :param retention: whether batches of the change log and rows of the state tables are removed, too
    :param state_conn_id: Airflow connection to the state tables (templated)
    :param storage_conn_id: Airflow connection with secret fsspec options of the change log in its extra (templated)
    :param spark_version: release of Spark that runs the job, such as ``4.0``; by default that of the PySpark beside Airflow. The packages of the
        table format follow it, unless ``jars`` or ``packages`` are set
    :param conn_id: Airflow connection to Spark; this and all others are those of ``SparkSubmitOperator``
    :raises ConfigError: the target is not known, or too short a time
    """

    template_fields: Sequence[str] = (*SparkJobOperator.template_fields, "properties", "state_conn_id")
    TEXTS = ("location",)
    FLAGS = ("retention",)
    ui_color = "#fdebd3"

    def __init__(
        self,
        *,
        definition: ConnectorDefinition,
        location: str,
        target: str = "delta",
        keep: float | timedelta = timedelta(days=7),
        threads: int = 2,
        retention: bool = True,
        conn_id: str = "spark_default",
        state_conn_id: str = DEFAULT_CONN_ID,
        storage_conn_id: str | None = None,
        **kwargs: Any,
    ) -> None:
        from airflow_provider_cdc.targets.lake.formats.format_descriptor import known_keep

        kwargs.setdefault("name", f"cdc-maintain-{definition.name}")
        super().__init__(
            definition=definition,
            location=location,
            target=target,
            conn_id=conn_id,
            storage_conn_id=storage_conn_id,
            **kwargs,
        )
        self.state_conn_id = state_conn_id
        self.threads, self.retention = known_threads(threads), retention
        self.report: MaintenanceReport | None = None
        """Report on the tables, also if some could not be maintained."""
        self.keep = known_keep(parse_seconds("keep", keep) / (3600 if isinstance(keep, timedelta) else 1))
        self.check_parameters()

    def execute(self, context: Context) -> dict[str, Any]:  # type: ignore[override]
        try:
            return self._run(context)
        except CdcError as e:
            raise to_airflow_exception(e) from e

    def _run(self, context: Context) -> dict[str, Any]:
        self._refuse_secrets()  # before anything is done
        instance = context["ti"]
        retained = RetentionResult(self.connector)
        if self.retention:
            retained = run_retention(self.connector_access, CdcStateHook(self.state_conn_id).open_store)
            log_retention(retained, self.log)
        run = f"{instance.dag_id}/{instance.task_id}/{instance.run_id}/{instance.try_number}"
        report = self._maintained(context, run, retained)
        if retained.step_errors:
            raise failure_of(retained) from retained.step_errors[0]
        changed = {t["topic"]: [n for n, s in t["steps"].items() if s["changed"]] for t in report["tables"]}
        return {
            "connector": self.connector,
            "target": self.target,
            "tables": {topic: names for topic, names in changed.items() if names},
            "seconds": report["seconds"],
            **(retained.to_document() if self.retention else {"changelog": None, "state": None}),
        }

    def _maintained(self, context: Context, run: str, retained: RetentionResult) -> MaintenanceReport:
        """Run the maintenance.

        :raises AirflowException: some tables could not be maintained; the text also has the errors of change log and state tables
        """
        from airflow_provider_cdc.hooks.airflow_compat import AirflowException

        try:
            return self.run_maintenance(context, run)
        except (AirflowException, CdcError) as e:
            if not retained.step_errors:
                raise
            raise AirflowException("\n".join([str(e), *retained.problem_texts])) from e

    def run_maintenance(self, context: Context, run: str) -> MaintenanceReport:
        """Submit the job.

        :param run: separates its report from those of others
        :return: the report, see :class:`airflow_provider_cdc.changelog.reports.table_job_reports.MaintenanceReport`
        :raises AirflowException: some tables could not be maintained, or the job has failed as a whole
        """
        from airflow_provider_cdc.hooks.airflow_compat import AirflowException

        self.build_job("--run-id", run)
        error = self._submit(context)
        self.report = report = self._report(run)
        if report is None:
            raise error or self._no_report()
        if failed := self._tell(report):
            lines = [f"  {topic}: {problem}" for topic, problem in failed.items()]
            raise AirflowException(
                "\n".join(
                    [
                        f"{len(failed)} tables of {self.connector} could not be maintained:",
                        *lines,
                        "  Safe:   rows and last batches are unchanged; the maintenance of the other tables succeeded.",
                        "  Repair: fix the errors above, then run the maintenance again.",
                    ]
                )
            ) from error
        if error is not None:
            raise error
        return report

    def build_job(self, *more: str) -> SparkJob:
        """Return the job, without its secrets.

        :param more: further arguments
        :raises ConfigError: a secret would be in it
        """
        hours = f"{self.keep.total_seconds() / 3600:g}"
        return self._prepare("maintain_tables.py", "--keep-hours", hours, "--threads", str(self.threads), *more)

    def _report(self, run: str) -> MaintenanceReport | None:
        """Read the report that this run's job has written beside the change log."""
        from airflow_provider_cdc.changelog.reports.table_maintenance_report import MaintenanceReports

        report = MaintenanceReports(self.connector_access.open_change_log().storage, self.connector).read(
            self.target, self.location
        )
        return report if report is not None and report["run"] == run else None

    def _tell(self, report: MaintenanceReport) -> dict[str, str]:
        """Log the results.

        :return: topic → error
        """
        for table in report["tables"]:
            self.log.info("%s → %s", table["topic"], table["location"])
            for name, step in table["steps"].items():
                self.log.info("  %s: %s%s", name, step["said"], "" if step["changed"] else " (nothing to do)")
        return {table["topic"]: table["problem"] for table in report["tables"] if table["problem"]}
