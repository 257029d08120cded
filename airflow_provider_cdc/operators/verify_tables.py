"""The task that compares lakehouse tables with their source, while capture and apply continue."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, ClassVar

from airflow_provider_cdc.core.errors import CdcError
from airflow_provider_cdc.hooks.state import DEFAULT_CONN_ID
from airflow_provider_cdc.operators.base.apply_metrics import measure_comparison
from airflow_provider_cdc.operators.base.spark_job_operator import SparkJobOperator, known_threads
from airflow_provider_cdc.operators.base.verify_result_and_repairs import result_of, send_repairs
from airflow_provider_cdc.services.connectors.connector_handle import ConnectorAccess
from airflow_provider_cdc.services.connectors.parameter_checks import parse_seconds
from airflow_provider_cdc.services.tasks.connector_fields import format_signal_sender, to_airflow_exception

if TYPE_CHECKING:
    from airflow.sdk import Context

    from airflow_provider_cdc.connector import ConnectorDefinition
    from airflow_provider_cdc.core.config.target_table_rules import TableRules
    from airflow_provider_cdc.verify.verification_report import VerificationReport


class VerifyTablesOperator(SparkJobOperator):
    """Compares the tables that a connector's changes are applied to with the source, row by row and value by value. Nothing has to stand still.

    The source is read once more, at one position of its log, into a scratch change log. Each table is compared at its own last batch, with these
    rows and the changes captured since. The task fails if a table is not equal, and is tried again if one could not be compared. Tables that can never be
    compared, as their rows are events (mode ``log``, outboxes), are named and do not count, unless ``tables`` means them.

        >>> VerifyTablesOperator(
        ...     task_id="verify", definition=shop, source_conn_id="shop_mariadb", location="/lake/{database}/{table}")

    Returns ``{"connector", "target", "position", "tables", "not_compared", "seconds"}``: table → the number of its rows, and table → why it can never
    be compared. A table is called by its topic, or ``<topic> → <location>`` where a route makes several of a topic.

    :param definition: the connector; properties and paths are templated
    :param source_conn_id: Airflow connection to the database (templated)
    :param location: where tables are, as the apply has it (templated)
    :param target: kind of the tables, ``delta`` or ``iceberg``
    :param tables: patterns of the tables to compare, as in ``table.include.list``; by default all that can be compared (templated)
    :param values: whether the log shows values of rows that differ; they may be personal data
    :param keys: folder for the keys of the rows that differ, as Parquet; it has to be empty (templated)
    :param repair: have the rows that differ read again, by signals to the connector; the next capture and apply repair the tables. The task fails all
        the same, as they did differ
    :param wait: how long to wait for the capture, and then for the apply, to come to the position
    :param scratch: folder or prefix for the scratch change log, by default one below the change log (templated)
    :param keep_scratch: leave the scratch change log there
    :param threads: tables compared at the same time
    :param state_conn_id: Airflow connection to the state tables (templated)
    :param storage_conn_id: Airflow connection with secret fsspec options of the change log in its extra (templated)
    :param spark_version: release of Spark that runs the job, such as ``4.0``; by default that of the PySpark beside Airflow. The packages of the
        table format follow it, unless ``jars`` or ``packages`` are set
    :param conn_id: Airflow connection to Spark; this and all others are those of ``SparkSubmitOperator``
    :raises ConfigError: the target is not known
    """

    template_fields: Sequence[str] = (
        *SparkJobOperator.template_fields, "properties", "source_conn_id", "state_conn_id", "tables", "keys", "scratch",
    )  # fmt: skip
    template_fields_renderers: ClassVar[dict[str, str]] = {
        **SparkJobOperator.template_fields_renderers, "properties": "json",
    }  # fmt: skip
    URLS = (*SparkJobOperator.URLS, "keys", "scratch")
    TEXTS = ("location", "source_conn_id")
    OPTIONAL_TEXTS = ("keys", "scratch")
    NAME_LISTS = ("tables",)
    FLAGS = ("values", "repair", "keep_scratch")
    ui_color = "#fdebd3"

    def __init__(
        self,
        *,
        definition: ConnectorDefinition,
        source_conn_id: str,
        location: str,
        target: str = "delta",
        tables: Sequence[str] | str = (),
        values: bool = False,
        keys: str = "",
        repair: bool = False,
        wait: float | timedelta = timedelta(minutes=10),
        scratch: str | None = None,
        keep_scratch: bool = False,
        threads: int = 4,
        conn_id: str = "spark_default",
        state_conn_id: str = DEFAULT_CONN_ID,
        storage_conn_id: str | None = None,
        **kwargs: Any,
    ) -> None:
        kwargs.setdefault("name", f"cdc-verify-{definition.name}")
        super().__init__(
            definition=definition,
            location=location,
            target=target,
            conn_id=conn_id,
            storage_conn_id=storage_conn_id,
            **kwargs,
        )
        self.source_conn_id, self.state_conn_id = source_conn_id, state_conn_id
        self.tables, self.values, self.keys = tables, values, keys
        self.repair, self.threads = repair, known_threads(threads)
        self.wait = timedelta(seconds=parse_seconds("wait", wait, zero=True))
        self.scratch, self.keep_scratch = scratch, keep_scratch
        self.repaired: list[str] = []
        self.check_parameters()

    def execute(self, context: Context) -> dict[str, Any]:  # type: ignore[override]
        try:
            verified = self.run_verification(context, format_signal_sender(context))
        except CdcError as e:
            raise to_airflow_exception(e) from e
        self.log.info("%s", verified.format_text())
        return result_of(verified, self.target, self.repaired)

    def run_verification(self, context: Context, by: str) -> VerificationReport:
        """Read the source, submit the job, and return its report. The repairs are in :attr:`repaired`.

        :param by: who sends signals
        :raises CdcError: the source cannot be read, or the capture does not come to its position
        :raises AirflowException: the job has failed as a whole
        """
        from airflow_provider_cdc.verify.verification_documents import read_report
        from airflow_provider_cdc.verify.verification_report import VerificationReport

        self._refuse_secrets()
        connector = ConnectorAccess(
            self.connector_access.definition, self.source_conn_id, self.state_conn_id, self.storage_conn_id or None
        )
        with connector.prepare_verification(scratch=self.scratch or None, keep=self.keep_scratch) as verification:
            verification.prepare_plan(self.tables, wait_s=self.wait.total_seconds(), rules=self._rules())
            scratch = verification.scratch.storage
            keys = self.keys or (scratch.build_uri("keys") if self.repair else "")
            self._prepare(
                "verify_tables.py", "--threads", str(self.threads), "--plan", *(["--values"] if self.values else []),
                *(["--keys", keys] if keys else []), changelog=scratch.url,
            )  # fmt: skip
            error = self._submit(context)  # it ends with one if something differs, too
            report = read_report(scratch)
            self.repaired = send_repairs(verification, report, by) if self.repair and report is not None else []
        if report is None:
            raise error or self._no_report(scratch.url)
        verified = VerificationReport.from_document(report)
        measure_comparison(connector, self.target, self.location, verified)
        return verified

    def _rules(self) -> TableRules:
        """By which the last apply has kept the tables."""
        from airflow_provider_cdc.changelog.reports.apply_report_store import ApplyReports, rules_of
        from airflow_provider_cdc.core.config.target_table_rules import NO_RULES

        report = ApplyReports(self.connector_access.open_change_log().storage, self.connector).read(
            self.target, self.location
        )
        return NO_RULES if report is None else rules_of(report)
