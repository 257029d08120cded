"""The base of operators and sensors of a connector: their fields, their exceptions, the sender of signals."""

from __future__ import annotations

import os
import re
import socket
from typing import TYPE_CHECKING, Any, ClassVar

from airflow_provider_cdc.connector import ConnectorDefinition, refuse_secrets
from airflow_provider_cdc.core.error_texts import describe_error
from airflow_provider_cdc.core.errors import CdcError, ConfigError, ConnectorHalted, TerminalError
from airflow_provider_cdc.core.spi.state_records import TaskRun
from airflow_provider_cdc.services.connectors.connector_handle import ConnectorAccess
from airflow_provider_cdc.services.connectors.text_templates import TextTemplates

if TYPE_CHECKING:
    from airflow.sdk import Context


class ConnectorFields(TextTemplates):
    """The fields of a connector, taken from its definition so that Airflow can render them."""

    CONNECTOR_FIELDS: ClassVar[tuple[str, ...]] = (
        "changelog",
        "properties",
        "changelog_options",
        "conn_id",
        "state_conn_id",
        "storage_conn_id",
    )
    """Template fields. The name and the kind of source are fixed: they are part of assets, links and the DAG's form."""

    TEXTS: ClassVar[tuple[str, ...]] = ("changelog", "conn_id", "state_conn_id")
    OPTIONAL_TEXTS: ClassVar[tuple[str, ...]] = ("storage_conn_id",)
    MAPPINGS: ClassVar[tuple[str, ...]] = ("properties", "changelog_options")

    def _set_connector(
        self, definition: ConnectorDefinition, conn_id: str, state_conn_id: str, storage_conn_id: str | None
    ) -> None:
        refuse_secrets(definition)
        self.connector, self.source = definition.name, definition.source
        self.changelog = definition.changelog
        self.properties: dict[str, Any] = dict(definition.properties)
        self.changelog_options: dict[str, Any] = dict(definition.changelog_options)
        self.conn_id, self.state_conn_id, self.storage_conn_id = conn_id, state_conn_id, storage_conn_id
        self.check_parameters()

    @property
    def connector_access(self) -> ConnectorAccess:
        """The connector with rendered fields.

        :raises ConfigError: a template has put a secret into one of them
        """
        definition = ConnectorDefinition(
            self.connector, self.source, self.changelog, self.properties, self.changelog_options
        )
        refuse_secrets(definition)
        return ConnectorAccess(definition, self.conn_id, self.state_conn_id, self.storage_conn_id or None)


class StateFields(TextTemplates):
    """The fields of operators and sensors that need only the state tables, not the source or the change log."""

    STATE_FIELDS: ClassVar[tuple[str, ...]] = ("connector", "state_conn_id")
    """Template fields."""

    TEXTS: ClassVar[tuple[str, ...]] = ("connector", "state_conn_id")

    def _set_connector_name(self, connector: str | ConnectorDefinition, state_conn_id: str) -> None:
        self.connector = connector.name if isinstance(connector, ConnectorDefinition) else connector
        self.state_conn_id = state_conn_id
        self.check_parameters()


def to_airflow_exception(error: CdcError) -> Exception:
    """Build the Airflow exception for an error.

    Transient errors are retried, terminal ones are not, and a connector that is paused or stopped skips the task.
    """
    from airflow_provider_cdc.hooks.airflow_compat import AirflowException, AirflowFailException, AirflowSkipException

    if isinstance(error, ConnectorHalted):
        return AirflowSkipException(describe_error(error))
    return (AirflowFailException if isinstance(error, TerminalError) else AirflowException)(describe_error(error))


def task_run_of(context: Context) -> TaskRun:
    """Return the try of a task, as failures are recorded with it."""
    ti = context["ti"]
    return TaskRun(ti.dag_id, ti.run_id, ti.task_id, getattr(ti, "map_index", -1), ti.try_number)


def owner_of(context: Context) -> str:
    """Return the try of a task, as the owner of a lease or a turn: status and errors name it."""
    run = task_run_of(context)
    mapped = f"[{run.map_index}]" if run.map_index >= 0 else ""
    process = f"{socket.gethostname()}:{os.getpid()}"
    return f"{run.dag_id}.{run.task_id}{mapped} {run.run_id} try {run.try_number} on {process}"[:500]


def parse_owner(owner: str, dag_id: str) -> TaskRun | None:
    """Return the try of a task that is the owner of a lease; ``None`` if it is not one of this DAG.

    >>> parse_owner("cdc_shop.capture manual__2025-01-02 try 1 on worker-1:4711", "cdc_shop")
    TaskRun(dag_id='cdc_shop', run_id='manual__2025-01-02', task_id='capture', map_index=-1, try_number=1)
    """
    found = re.match(rf"{re.escape(dag_id)}\.(\S+?)(?:\[(\d+)\])? (.+) try (\d+) on ", owner)
    return found and TaskRun(dag_id, found[3], found[1], int(found[2] or -1), int(found[4]))


def refuse_backfill(context: Context) -> None:
    """Reject runs of a backfill, for tasks that capture or apply all the time.

    :raises ConfigError: the run belongs to a backfill
    """
    if getattr(context.get("dag_run"), "run_type", None) == "backfill":
        raise ConfigError(
            "A backfill cannot capture or apply changes of the past: runs of this DAG continue from the offset.",
            safe="Nothing was read or written.",
            remedy="cancel the backfill, and use an ad hoc snapshot to read tables again",
        )


def is_last_try(context: Context) -> bool:
    """Check whether Airflow does not try the task again if this try fails."""
    ti = context["ti"]
    return not (ti.max_tries and ti.try_number <= ti.max_tries)


def format_signal_sender(context: Context) -> str:
    """Return the sender of a task's signals: the user who started the DAG run, if there is one, and the run.

    >>> format_signal_sender(context)
    'admin, by cdc_ad_hoc_snapshot manual__2025-01-02T03:04:05+00:00'
    """
    ti = context["ti"]
    run = f"{ti.dag_id} {ti.run_id}"
    user = getattr(context.get("dag_run"), "triggering_user_name", None)
    return (f"{user}, by {run}" if user else run)[:250]


def format_signal_origin(context: Context, number: int = 0) -> str:
    """Return the origin of a task instance's signals.

    It is the same for all of its tries, and another one after it was cleared.

    If a try is killed after it has sent a signal, the next one finds that signal and does not send another.

    :param number: which of several signals of one task it is
    """
    ti = context["ti"]
    retries = getattr(getattr(ti, "task", None), "retries", 0) or 0
    cleared = max(getattr(ti, "max_tries", 0) - retries, 0)
    parts = [ti.dag_id, ti.run_id, ti.task_id, getattr(ti, "map_index", -1), cleared, number]
    return "airflow:" + "/".join(map(str, parts))
