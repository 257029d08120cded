"""The task that builds tables of a relational database again from the change log."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseOperator

from airflow_provider_cdc.core.errors import CdcError, ConfigError
from airflow_provider_cdc.hooks.state import DEFAULT_CONN_ID
from airflow_provider_cdc.hooks.target_database import TARGET, describe_database, open_database
from airflow_provider_cdc.services.tasks.connector_fields import ConnectorFields, to_airflow_exception

if TYPE_CHECKING:
    from airflow.sdk import Context

    from airflow_provider_cdc.changelog.reports.table_job_reports import RebuildReport
    from airflow_provider_cdc.connector import ConnectorDefinition


class RebuildDatabaseOperator(ConnectorFields, BaseOperator):
    """Builds tables of a relational database again from the change log.

    They are tables that are lost, or that were emptied or changed by others. Capture and apply may continue; readers see a table fill up. The next apply finishes a rebuild that was killed.

        >>> RebuildDatabaseOperator(task_id="rebuild", definition=shop, conn_id="warehouse", tables=["inventory.orders"])

    Returns ``{"connector", "target", "tables", "seconds"}``: topic → the batch as of which it is built.

    :param definition: the connector; paths are templated
    :param conn_id: Airflow connection to the target database, as the apply has it (templated)
    :param tables: ``<database>.<table>`` or topics of the tables to build (templated)
    :param sink: properties, as the apply has them (templated)
    :param state_conn_id: Airflow connection to the state tables, which get the metrics (templated)
    :param storage_conn_id: Airflow connection with secret fsspec options of the change log in its extra (templated)
    """

    template_fields: Sequence[str] = (
        "changelog",
        "changelog_options",
        "sink",
        "conn_id",
        "state_conn_id",
        "storage_conn_id",
        "tables",
    )
    NAME_LISTS = ("tables",)
    MAPPINGS = ("sink",)
    ui_color = "#fdebd3"

    def __init__(
        self,
        *,
        definition: ConnectorDefinition,
        conn_id: str,
        tables: Sequence[str] | str,
        sink: Mapping[str, Any] | None = None,
        state_conn_id: str = DEFAULT_CONN_ID,
        storage_conn_id: str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self._set_connector(definition, conn_id, state_conn_id, storage_conn_id)
        self.sink, self.tables = sink if sink is not None else {}, tables
        self.check_parameters()

    def execute(self, context: Context) -> dict[str, Any]:
        try:
            report = self.run_rebuild()
        except CdcError as e:
            raise to_airflow_exception(e) from e
        built = {table["topic"]: table["batch"] for table in report["tables"]}
        return {"connector": self.connector, "target": TARGET, "tables": built, "seconds": report["seconds"]}

    def run_rebuild(self) -> RebuildReport:
        """Build the tables.

        :return: the report, see :class:`airflow_provider_cdc.changelog.reports.table_job_reports.RebuildReport`
        :raises ConfigError: no table is named, or one that does not exist
        :raises CdcError: the tables could not be built
        :raises AirflowException: some tables could not be built
        """
        from airflow_provider_cdc.hooks.airflow_compat import AirflowException
        from airflow_provider_cdc.targets.database.rebuild_database import RebuildDatabase

        names = [self.tables] if isinstance(self.tables, str) else list(self.tables)
        if not names:
            raise ConfigError(
                "No table to rebuild is named.",
                safe="No table was changed.",
                remedy="name tables as <database>.<table>",
            )
        with open_database(self.conn_id, self.sink) as (engine, config):
            note = describe_database(self.conn_id, self.sink)
            job = RebuildDatabase(engine, config, self.connector_access.open_change_log(), self.connector, noted=note)
            report = job.run(names, str(uuid.uuid4()))
        if report["problem"]:
            built = ", ".join(table["topic"] for table in report["tables"])
            raise AirflowException(report["problem"] + (f"\n  Rebuilt: {built}" if built else ""))
        for table in report["tables"]:
            self.log.info("%s is rebuilt as of batch %d at %s.", table["topic"], table["batch"], table["location"])
        return report
