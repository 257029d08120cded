"""The task that maintains lakehouse tables, by a Spark job."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

from airflow_provider_cdc.core.errors import CdcError
from airflow_provider_cdc.hooks.task_base import failure
from airflow_provider_cdc.operators.spark_job import SparkJobOperator, known_threads

if TYPE_CHECKING:
    from airflow.sdk import Context

    from airflow_provider_cdc.runtime import ConnectorDefinition


class MaintainTablesOperator(SparkJobOperator):
    """Submits the Spark job that maintains the tables which a connector's changes are applied to: files, snapshots, what nobody needs any more.

    Each step looks whether it is needed; the log of the task says what was done to each table, or why there was nothing to do. Rows and the last
    applied batch stay. It may run beside an apply that goes on, and beside readers.

        >>> MaintainTablesOperator(task_id="maintain", definition=shop, location="/lake/{database}/{table}", conn_id="spark_default")

    Returns ``{"connector", "target", "tables", "seconds"}``: topic → the names of the steps that changed something.

    :param definition: the connector; paths are templated
    :param location: where tables are, as the apply has it (templated)
    :param target: kind of the tables, ``delta`` or ``iceberg``
    :param keep: how long files and snapshots stay after they were replaced, in hours or as a timedelta; at least an hour, by default a week. Readers
        and writers that began before are safe, and older states can be read for so long
    :param threads: tables worked on at the same time
    :param storage_conn_id: Airflow connection with secret fsspec options of the change log in its extra (templated)
    :param conn_id: Airflow connection to Spark; this and all others are those of ``SparkSubmitOperator``
    :raises ConfigError: the target is not known, or too short a time
    """

    ui_color = "#fdebd3"

    def __init__(
        self,
        *,
        definition: ConnectorDefinition,
        location: str,
        target: str = "delta",
        keep: float | timedelta = timedelta(days=7),
        threads: int = 2,
        conn_id: str = "spark_default",
        storage_conn_id: str | None = None,
        **kwargs: Any,
    ) -> None:
        from spark_jobs.targets.formats import known_keep

        kwargs.setdefault("name", f"cdc-maintain-{definition.name}")
        super().__init__(
            definition=definition,
            location=location,
            target=target,
            conn_id=conn_id,
            storage_conn_id=storage_conn_id,
            **kwargs,
        )
        self.threads = known_threads(threads)
        self.keep = known_keep(keep.total_seconds() / 3600 if isinstance(keep, timedelta) else keep)

    def execute(self, context: Context) -> dict[str, Any]:  # type: ignore[override]
        try:
            return self._run(context)
        except CdcError as e:
            raise failure(e) from e

    def _run(self, context: Context) -> dict[str, Any]:
        instance = context["ti"]
        report = self.maintain(context, f"{instance.dag_id}/{instance.task_id}/{instance.run_id}/{instance.try_number}")
        changed = {t["topic"]: [n for n, s in t["steps"].items() if s["changed"]] for t in report["tables"]}
        return {
            "connector": self.connector,
            "target": self.target,
            "tables": {topic: names for topic, names in changed.items() if names},
            "seconds": report["seconds"],
        }

    def maintain(self, context: Context, run: str) -> dict[str, Any]:
        """Submit the job.

        :param run: tells its report from those of others
        :return: the report, see :class:`airflow_provider_cdc.changelog.maintained.MaintenanceReports`
        :raises AirflowException: some tables could not be maintained, or the job has failed as a whole
        """
        from airflow.sdk.exceptions import AirflowException

        hours = f"{self.keep.total_seconds() / 3600:g}"
        self._prepare("maintain_tables.py", "--keep-hours", hours, "--threads", str(self.threads), "--run-id", run)
        error = self._submit(context)
        report = self._report(run)
        if report is None:
            raise error or self._no_report()
        if failed := self._tell(report):
            lines = [f"  {topic}: {problem}" for topic, problem in failed.items()]
            raise AirflowException(
                "\n".join(
                    [
                        f"{len(failed)} tables of {self.connector} could not be maintained:",
                        *lines,
                        "  Safe:   rows and last batches are what they were; the other tables are maintained.",
                        "  Repair: fix what the messages name, then run the maintenance again.",
                    ]
                )
            ) from error
        if error is not None:
            raise error
        return report

    def _report(self, run: str) -> dict[str, Any] | None:
        """What this run's job has written beside the change log."""
        from airflow_provider_cdc.changelog.maintained import MaintenanceReports

        found = MaintenanceReports(self.access.changelog().storage, self.connector).read(self.target, self.location)
        return found if found is not None and found["run"] == run else None

    def _tell(self, report: dict[str, Any]) -> dict[str, str]:
        """Log what was done.

        :return: topic → what has failed
        """
        for table in report["tables"]:
            self.log.info("%s → %s", table["topic"], table["location"])
            for name, step in table["steps"].items():
                self.log.info("  %s: %s%s", name, step["said"], "" if step["changed"] else " (nothing to do)")
        return {table["topic"]: table["problem"] for table in report["tables"] if table["problem"]}
