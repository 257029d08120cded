"""The task that builds lakehouse tables again from the change log, by a Spark job."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from airflow_provider_cdc.core.errors import CdcError, ConfigError
from airflow_provider_cdc.hooks.state import DEFAULT_CONN_ID
from airflow_provider_cdc.operators.base.spark_job_operator import SparkJobOperator
from airflow_provider_cdc.services.tasks.connector_fields import to_airflow_exception

if TYPE_CHECKING:
    from airflow.sdk import Context

    from airflow_provider_cdc.changelog.reports.table_job_reports import RebuildReport
    from airflow_provider_cdc.connector import ConnectorDefinition


class RebuildTablesOperator(SparkJobOperator):
    """Builds tables again from the change log.

    They are built in their places, as of their own last batch, by one commit each; or beside, as of any batch.

    Capture and apply may continue.

        >>> RebuildTablesOperator(
        ...     task_id="rebuild", definition=shop, location="/lake/{database}/{table}", tables=["inventory.orders"])

    Tables that are kept by rules are built by those of the last apply. Of a table that a route divides, all tables are built, each by its own commit, or the one
    whose location is named.

    Returns ``{"connector", "target", "tables", "seconds"}``: topic, or ``topic → location`` of a route's table → the batch as of which it is built.

    :param definition: the connector; paths are templated
    :param location: where tables are, as the apply has it (templated)
    :param tables: ``<database>.<table>`` or topics of the tables to build, or locations of single tables of a route (templated)
    :param to: build them there, beside those at ``location``; ``{place}`` in it separates the tables of a route (templated)
    :param batch: with ``to``: the last batch to build from, by default the newest one
    :param time: with ``to``: the same, as the time by which it was committed to the change log, such as ``2026-03-01T12:00:00+00:00`` (templated)
    :param target: kind of the tables, ``delta`` or ``iceberg``
    :param state_conn_id: Airflow connection to the state tables, which get the metrics (templated)
    :param storage_conn_id: Airflow connection with secret fsspec options of the change log in its extra (templated)
    :param spark_version: release of Spark that runs the job, such as ``4.0``; by default that of the PySpark beside Airflow. The packages of the
        table format follow it, unless ``jars`` or ``packages`` are set
    :param conn_id: Airflow connection to Spark; this and all others are those of ``SparkSubmitOperator``
    :raises ConfigError: the target is not known
    """

    template_fields: Sequence[str] = (*SparkJobOperator.template_fields, "state_conn_id", "tables", "to", "time")
    URLS = (*SparkJobOperator.URLS, "to")
    TEXTS = ("location",)
    OPTIONAL_TEXTS = ("to", "time")
    NAME_LISTS = ("tables",)
    ui_color = "#fdebd3"

    def __init__(
        self,
        *,
        definition: ConnectorDefinition,
        location: str,
        tables: Sequence[str] | str,
        to: str = "",
        batch: int | None = None,
        time: str = "",
        target: str = "delta",
        conn_id: str = "spark_default",
        state_conn_id: str = DEFAULT_CONN_ID,
        storage_conn_id: str | None = None,
        **kwargs: Any,
    ) -> None:
        kwargs.setdefault("name", f"cdc-rebuild-{definition.name}")
        super().__init__(
            definition=definition,
            location=location,
            target=target,
            conn_id=conn_id,
            storage_conn_id=storage_conn_id,
            **kwargs,
        )
        self.state_conn_id = state_conn_id
        self.tables, self.to, self.batch, self.time = tables, to, batch, time
        number: Any = batch
        if number is not None and (isinstance(number, bool) or not isinstance(number, int) or number < 1):
            raise ConfigError(f"batch must be the number of a batch, but is {batch!r}.")
        self.check_parameters()

    def execute(self, context: Context) -> dict[str, Any]:  # type: ignore[override]
        try:
            report = self.run_rebuild(context)
        except CdcError as e:
            raise to_airflow_exception(e) from e
        built = {table.get("name") or table["topic"]: table["batch"] for table in report["tables"]}
        return {"connector": self.connector, "target": self.target, "tables": built, "seconds": report["seconds"]}

    def run_rebuild(self, context: Context) -> RebuildReport:
        """Submit the job.

        :return: the report, see :class:`airflow_provider_cdc.changelog.reports.table_job_reports.RebuildReport`
        :raises ConfigError: no table is named, or the time is none
        :raises AirflowException: some tables could not be built, or the job has failed as a whole
        """
        from airflow_provider_cdc.hooks.airflow_compat import AirflowException

        names = [self.tables] if isinstance(self.tables, str) else list(self.tables)
        if not names:
            raise ConfigError(
                "No table to rebuild is named.",
                safe="No table was changed.",
                remedy="name tables as <database>.<table>",
            )
        self._refuse_no_time()
        run = str(uuid.uuid4())
        self._prepare(
            "rebuild_tables.py", *[part for name in names for part in ("--topic", name)], *(["--to", self.to] if self.to else []),
            *(["--batch", str(self.batch)] if self.batch is not None else []), *(["--time", self.time] if self.time else []), "--run-id", run,
        )  # fmt: skip
        error = self._submit(context)
        report = self._report(run)
        if report is not None and report["problem"]:
            built = ", ".join(table.get("name") or table["topic"] for table in report["tables"])
            raise AirflowException(
                report["problem"] + (f"\n  Rebuilt before the error: {built}" if built else "")
            ) from error
        if error is not None or report is None:
            raise error or self._no_report()
        for table in report["tables"]:
            self.log.info("%s is rebuilt as of batch %d at %s.", table["topic"], table["batch"], table["location"])
        return report

    def _refuse_no_time(self) -> None:
        try:
            if self.time:
                datetime.fromisoformat(self.time)
        except ValueError as e:
            raise ConfigError(
                f"{self.time!r} is not a time.",
                safe="No table was changed.",
                remedy="write it as 2026-03-01T12:00:00+00:00",
            ) from e

    def _report(self, run: str) -> RebuildReport | None:
        """Read the report that this run's job has written beside the change log."""
        from airflow_provider_cdc.changelog.reports.rebuild_report_store import RebuildReports

        report = RebuildReports(self.connector_access.open_change_log().storage, self.connector).read(
            self.target, self.location
        )
        return report if report is not None and report["run"] == run else None
