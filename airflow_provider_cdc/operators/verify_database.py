"""The task that compares the tables of a relational database with their source, while capture and apply continue."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseOperator

from airflow_provider_cdc.core.errors import CdcError
from airflow_provider_cdc.hooks.state import DEFAULT_CONN_ID
from airflow_provider_cdc.hooks.target_database import TARGET, open_database
from airflow_provider_cdc.operators.base.apply_metrics import measure_comparison
from airflow_provider_cdc.operators.base.verify_result_and_repairs import result_of, send_repairs
from airflow_provider_cdc.services.connectors.parameter_checks import parse_seconds
from airflow_provider_cdc.services.tasks.connector_fields import (
    ConnectorFields,
    format_signal_sender,
    to_airflow_exception,
)

if TYPE_CHECKING:
    from airflow.sdk import Context

    from airflow_provider_cdc.connector import ConnectorDefinition
    from airflow_provider_cdc.verify.verification_report import VerificationReport


class VerifyDatabaseOperator(ConnectorFields, BaseOperator):
    """Compares the tables of a connector in a relational database with the source, row by row and value by value.

    They are the tables that the connector's changes are applied to. Nothing has to stand still, and Spark is not needed.

    It works as :class:`~airflow_provider_cdc.operators.verify_tables.VerifyTablesOperator`: the source is read once more, at one position of its log, into a scratch change log; each table
    is compared as of its last batch, in one transaction there. The task fails if a table is not equal, and is tried again if one could not be compared. Tables whose rows need not
    be those of the source, by the properties of the sink, are named and do not count, unless ``tables`` means them.

        >>> VerifyDatabaseOperator(task_id="verify", definition=shop, source_conn_id="shop_mariadb", conn_id="warehouse")

    Returns ``{"connector", "target", "position", "tables", "not_compared", "seconds"}``: topic → the number of its rows, and topic → why it can never be compared.

    :param definition: the connector; properties and paths are templated
    :param source_conn_id: Airflow connection to the source (templated)
    :param conn_id: Airflow connection to the target database, as the apply has it (templated)
    :param sink: properties, as the apply has them (templated)
    :param tables: patterns of the tables to compare, as in ``table.include.list``; by default all that can be compared (templated)
    :param values: whether the log shows values of rows that differ; they may be personal data
    :param keys: folder for the keys of the rows that differ, as Parquet; it has to be empty (templated)
    :param repair: have the rows that differ read again, by signals to the connector; the next capture and apply repair the tables. The task fails all the same, as they did differ
    :param wait: how long to wait for the capture, and then for the apply, to come to the position
    :param scratch: folder or prefix for the scratch change log, by default one below the change log (templated)
    :param keep_scratch: leave the scratch change log there
    :param state_conn_id: Airflow connection to the state tables (templated)
    :param storage_conn_id: Airflow connection with secret fsspec options of the change log in its extra (templated)
    """

    template_fields: Sequence[str] = (
        *ConnectorFields.CONNECTOR_FIELDS,
        "target_conn_id",
        "sink",
        "tables",
        "keys",
        "scratch",
    )
    TEXTS = ("target_conn_id",)
    OPTIONAL_TEXTS = ("keys", "scratch")
    NAME_LISTS = ("tables",)
    MAPPINGS = ("sink",)
    FLAGS = ("values", "repair", "keep_scratch")
    ui_color = "#fdebd3"

    def __init__(
        self,
        *,
        definition: ConnectorDefinition,
        source_conn_id: str,
        conn_id: str,
        sink: Mapping[str, Any] | None = None,
        tables: Sequence[str] | str = (),
        values: bool = False,
        keys: str = "",
        repair: bool = False,
        wait: float | timedelta = timedelta(minutes=10),
        scratch: str | None = None,
        keep_scratch: bool = False,
        state_conn_id: str = DEFAULT_CONN_ID,
        storage_conn_id: str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self._set_connector(definition, source_conn_id, state_conn_id, storage_conn_id)
        self.target_conn_id, self.sink = conn_id, sink if sink is not None else {}
        self.tables, self.values, self.keys = tables, values, keys
        self.repair, self.wait = repair, timedelta(seconds=parse_seconds("wait", wait, zero=True))
        self.scratch, self.keep_scratch = scratch, keep_scratch
        self.repaired: list[str] = []
        self.check_parameters()

    def execute(self, context: Context) -> dict[str, Any]:
        try:
            verified = self.run_verification(format_signal_sender(context))
        except CdcError as e:
            raise to_airflow_exception(e) from e
        self.log.info("%s", verified.format_text())
        return result_of(verified, TARGET, self.repaired)

    def run_verification(self, by: str) -> VerificationReport:
        """Read the source, and compare. The repairs are in :attr:`repaired`.

        :param by: who sends signals
        :raises CdcError: the source or the target cannot be read, or the capture does not come to the position
        """
        from airflow_provider_cdc.targets.database.target_engine import place_of
        from airflow_provider_cdc.targets.database.verify.verify_database import VerifyDatabase, why_not

        with (
            open_database(self.target_conn_id, self.sink) as (engine, config),
            self.connector_access.prepare_verification(
                scratch=self.scratch or None, keep=self.keep_scratch
            ) as verification,
        ):
            plan = verification.prepare_plan(
                self.tables, wait_s=self.wait.total_seconds(), never=lambda topic: why_not(config, topic)
            )
            scratch = verification.scratch
            keys = self.keys or (scratch.storage.build_uri("keys") if self.repair else "")
            changelog = self.connector_access.open_change_log()
            report = VerifyDatabase(engine, config, plan, scratch, changelog, values=self.values, keys=keys).run()
            self.repaired = send_repairs(verification, report.to_document(), by) if self.repair else []
            measure_comparison(self.connector_access, TARGET, place_of(engine, config), report)
        return report
