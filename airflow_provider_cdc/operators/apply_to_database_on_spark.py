"""The task that brings relational tables up to the change log by a Spark job, for loads that outgrow one machine."""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from airflow_provider_cdc.core.config.secret_redaction import find_credentials
from airflow_provider_cdc.core.errors import CdcError, ConfigError
from airflow_provider_cdc.hooks.state import DEFAULT_CONN_ID
from airflow_provider_cdc.hooks.target_database import TARGET, CdcDatabaseHook, describe_database
from airflow_provider_cdc.operators.apply_to_database import (
    emit_asset_events,
    left_to_next_run,
    report_database_metrics,
)
from airflow_provider_cdc.operators.base.connector_apply_report import build_connector_alias
from airflow_provider_cdc.operators.base.spark_job_operator import SparkScriptOperator
from airflow_provider_cdc.services.connectors.connector_handle import storage_options
from airflow_provider_cdc.services.connectors.parameter_checks import parse_optional_seconds
from airflow_provider_cdc.services.tasks.apply_notes import ApplyNotes
from airflow_provider_cdc.services.tasks.connector_fields import ConnectorFields, refuse_backfill, to_airflow_exception
from airflow_provider_cdc.targets.database.config import EQUAL, DatabaseTargetConfig

if TYPE_CHECKING:
    from airflow.sdk import Context

    from airflow_provider_cdc.connector import ConnectorDefinition

PROPERTIES = "CDC_SINK_PROPERTIES"
"""Environment variable in which the job finds the properties of the sink, the login of the database among them, as a JSON object."""


class ApplyToDatabaseOnSparkOperator(ConnectorFields, SparkScriptOperator):
    """Applies the batches of a connector's change log to tables of a relational database by a Spark job.

    It does what :class:`~airflow_provider_cdc.operators.apply_to_database.ApplyToDatabaseOperator` does: executors read the change log and fill staging tables of
    the database, and one transaction takes their rows, with the marker. Either operator continues where the other one has ended.

        >>> ApplyToDatabaseOnSparkOperator(task_id="apply", definition=shop, database_conn_id="warehouse", conn_id="spark_default")

    The login of the database reaches the driver by its environment, and executors with the code of their tasks: it is on no command line, in no setting and on no page
    of Spark. There is no such way in cluster mode, which is rejected.

    :param definition: the connector; paths are templated
    :param database_conn_id: Airflow connection to the target database (templated): PostgreSQL, MySQL or MariaDB
    :param sink: properties of the Debezium JDBC sink connector that say otherwise (templated); see docs/targets/databases.md
    :param run_for: continue for so long, as batches come
    :param state_conn_id: Airflow connection to the state tables, which get the metrics (templated)
    :param storage_conn_id: Airflow connection with secret fsspec options of the change log in its extra (templated)
    :param conn_id: Airflow connection to Spark; this and all others are those of ``SparkSubmitOperator``
    """

    template_fields: Sequence[str] = (
        *SparkScriptOperator.template_fields, "changelog", "changelog_options", "sink", "database_conn_id", "state_conn_id",
        "storage_conn_id",
    )  # fmt: skip
    template_fields_renderers: ClassVar[dict[str, str]] = {
        **SparkScriptOperator.template_fields_renderers, "changelog_options": "json", "sink": "json",
    }  # fmt: skip
    TEXTS = ("database_conn_id",)
    MAPPINGS = ("sink",)
    ui_color = "#fdebd3"

    def __init__(
        self,
        *,
        definition: ConnectorDefinition,
        database_conn_id: str,
        sink: Mapping[str, Any] | None = None,
        run_for: float | timedelta | None = None,
        conn_id: str = "spark_default",
        state_conn_id: str = DEFAULT_CONN_ID,
        storage_conn_id: str | None = None,
        **kwargs: Any,
    ) -> None:
        kwargs.setdefault("name", f"cdc-sink-{definition.name}")
        kwargs["outlets"] = [*(kwargs.get("outlets") or []), build_connector_alias(definition.name)]
        super().__init__(target="", conn_id=conn_id, **kwargs)
        if not self._default_submit:
            raise ConfigError(
                f"ApplyToDatabaseOnSparkOperator cannot use submit={self._submit_name}: the job reports to a file of this machine.",
                remedy="omit submit, and use a Spark connection with deploy mode client",
            )
        self._set_connector(definition, conn_id, state_conn_id, storage_conn_id)
        self.database_conn_id, self.sink = database_conn_id, sink if sink is not None else {}
        self.run_for = parse_optional_seconds("run_for", run_for)
        self.check_parameters()

    def execute(self, context: Context) -> dict[str, Any]:  # type: ignore[override]
        began, report = time.monotonic(), dict[str, Any]()
        failed, notes = True, ApplyNotes.from_context(context, self.connector, self.state_conn_id, TARGET, "")
        try:
            if self.run_for is not None:
                refuse_backfill(context)
            notes.record_begin()
            self._run(context, report)
            failed = False
        except BaseException as e:
            notes = replace(notes, location=report.get("place", ""))
            notes.record_failure(e, report.get("batch") or None, needs_person=bool(report.get("terminal")))
            if isinstance(e, CdcError):
                raise to_airflow_exception(e) from e
            raise
        finally:
            if "place" in report:
                report_database_metrics(
                    self.connector_access,
                    report,
                    self.log,
                    seconds=time.monotonic() - began,
                    failed=failed,
                    conn_id=self.database_conn_id,
                )
                if failed:
                    left_to_next_run(context, self.connector_access, report, self.log)
        replace(notes, location=report["place"]).record_end(report["batch"])
        return emit_asset_events(context, self.connector_access, report, self.log)

    def _run(self, context: Context, report: dict[str, Any]) -> None:
        """Run the job.

        :param report: gets the contents of the job's report, also if the job fails or is killed
        :raises AirflowException: it has failed
        """
        from airflow_provider_cdc.hooks.airflow_compat import AirflowException, AirflowFailException

        DatabaseTargetConfig.parse({**EQUAL, **self._properties()})
        with tempfile.TemporaryDirectory(prefix="cdc-sink-") as folder:
            file = Path(folder) / "result.json"
            more = [] if self.run_for is None else ["--run-for", f"{self.run_for:g}"]
            self._prepare_job(
                "apply_to_database.py", "--changelog", self.changelog, "--connector", self.connector, "--result", str(file),
                "--noted", json.dumps(describe_database(self.database_conn_id, self.sink)), *more,
            )  # fmt: skip
            try:
                error = self._submit(context)
            finally:
                if file.exists():
                    report |= json.loads(file.read_text())
        if not report.get("ended"):
            raise error or AirflowException("The Spark job succeeded, but reported no result.")
        if "error" in report:
            raise (AirflowFailException if report["terminal"] else AirflowException)(report["error"]) from error

    def _properties(self) -> dict[str, Any]:
        properties = {**self.sink, **CdcDatabaseHook(self.database_conn_id).resolve_properties()}
        if "connection.ssh.conn_id" in properties:
            raise ConfigError(
                f"The connection {self.database_conn_id} has ssh_conn_id in its extra: executors of Spark cannot use the tunnel of this worker.",
                safe="Nothing was read or written.",
                remedy="apply without Spark (ApplyToDatabaseOperator), or let the executors reach the database, and remove ssh_conn_id",
            )
        return properties

    def _with_secrets(self) -> list[str]:
        return super()._with_secrets() + (["changelog"] if find_credentials("url", self.changelog) else [])

    def _storage_options(self) -> dict[str, Any]:
        return {**self.changelog_options, **storage_options(self.storage_conn_id)}

    def _secret_environment(self) -> dict[str, str]:
        return {PROPERTIES: json.dumps(self._properties()), **super()._secret_environment()}
