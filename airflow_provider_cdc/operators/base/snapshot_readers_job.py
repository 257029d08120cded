"""The Spark job whose executors read the tables of a snapshot, started and ended by the task that captures."""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from airflow_provider_cdc.core.error_texts import describe_error
from airflow_provider_cdc.core.errors import CdcError, ConfigError, SourceUnavailable
from airflow_provider_cdc.operators.base.spark_job_operator import SparkScriptOperator
from airflow_provider_cdc.services.connectors.connector_handle import ConnectorAccess, storage_options

if TYPE_CHECKING:
    from airflow.sdk import Context

SOURCE_PROPERTIES = "CDC_SOURCE_PROPERTIES"
"""Environment variable in which the job finds the properties from the connection to the source, as a JSON object."""


class _ReadersSubmit(SparkScriptOperator):
    """Submits the job. It is no task: the task that captures runs it."""

    def __init__(self, *, source_properties: Mapping[str, Any], options: Mapping[str, Any], **kwargs: Any) -> None:
        super().__init__(target="", **kwargs)
        self._source_properties, self._options = dict(source_properties), dict(options)

    def run_job(self, context: Context, *arguments: str) -> Exception | None:
        """Run the job until it ends, and return the error that it ended with."""
        self._prepare_job("read_tables.py", *arguments)
        return self._submit(context)

    def _storage_options(self) -> dict[str, Any]:
        return self._options

    def _secret_environment(self) -> dict[str, str]:
        return {SOURCE_PROPERTIES: json.dumps(self._source_properties, default=str), **super()._secret_environment()}


class SnapshotReadersJob:
    """Implements :class:`airflow_provider_cdc.changelog.snapshot_exchange.reader_coordinator.ReaderJob`.

    Most runs take no snapshot: the arguments and the connection are read when the job starts.

    :param arguments: ``conn_id`` of Spark, ``submit``, ``conf`` and others of ``SparkSubmitOperator``
    """

    def __init__(self, access: ConnectorAccess, arguments: Mapping[str, Any], context: Context) -> None:
        self._access, self._arguments, self._context = access, dict(arguments), context
        self._operator: _ReadersSubmit | None = None
        self._thread: threading.Thread | None = None
        self._error: CdcError | None = None

    def _build_operator(self) -> _ReadersSubmit:
        """Build the operator that submits the job.

        :raises ConfigError: the arguments cannot be used, or the readers cannot reach the source
        """
        access = self._access
        definition, properties = access.definition, access.resolve_properties()
        if any(".ssh." in name for name in properties):
            raise ConfigError(
                f"The connection {access.conn_id} has ssh_conn_id in its extra: executors of Spark cannot use the tunnel of this worker.",
                where="snapshot on Spark",
                safe="Nothing was read.",
                remedy="take the snapshot without Spark, or let the executors reach the database, and remove ssh_conn_id",
            )
        return _ReadersSubmit(
            source_properties=properties,
            options={**definition.changelog_options, **storage_options(access.storage_conn_id)},
            **{
                "task_id": "read_tables",
                "name": f"cdc-snapshot-{definition.name}",
                "conn_id": "spark_default",
                **self._arguments,
            },
        )

    def start(self, snapshot: str, readers: int) -> None:
        definition, operator = self._access.definition, self._build_operator()
        arguments = (
            "--changelog", definition.changelog, "--connector", definition.name, "--source", definition.source,
            "--snapshot", snapshot, "--readers", str(readers),
        )  # fmt: skip

        def run() -> None:
            try:
                error = operator.run_job(self._context, *arguments)
                problem = "The Spark job of the snapshot has ended." if error is None else str(error)
            except CdcError as e:
                self._error = e
                return
            except Exception as e:  # of a service, or of Airflow's operator
                problem = describe_error(e)
            self._error = SourceUnavailable(
                f"The tables of the snapshot are not read any more: {problem}",
                where="the Spark job of the snapshot",
                safe="Tables that were complete before are committed; the offset has not moved past the others.",
                remedy="read the log of the job above, mend the cause, and run the capture again",
            )

        self._operator = operator
        self._thread = threading.Thread(target=run, name="cdc-snapshot-job", daemon=True)
        self._thread.start()

    def find_error(self) -> CdcError | None:
        return self._error

    def cancel(self, patience_s: float) -> None:
        if self._thread is None or self._operator is None:
            return
        self._thread.join(patience_s)
        if self._thread.is_alive():
            self._operator.on_kill()
            self._thread.join(patience_s)
