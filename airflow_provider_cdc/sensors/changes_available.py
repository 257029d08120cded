"""Waits until there is something to capture."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from airflow_provider_cdc.core.error_texts import describe_error
from airflow_provider_cdc.core.errors import CdcError, TerminalError, TransientError
from airflow_provider_cdc.core.lifecycle.next_run import RETRY_AFTER_S, RunHold
from airflow_provider_cdc.hooks.airflow_compat import AirflowFailException
from airflow_provider_cdc.hooks.state import DEFAULT_CONN_ID
from airflow_provider_cdc.sensors.waiting_sensor import WaitingSensor
from airflow_provider_cdc.services.connectors.parameter_checks import parse_names, parse_seconds
from airflow_provider_cdc.services.tasks.connector_fields import ConnectorFields, task_run_of, to_airflow_exception
from airflow_provider_cdc.services.tasks.run_start import RunStart, format_hold, record_failure
from airflow_provider_cdc.triggers.changes_available import ChangesAvailableTrigger

if TYPE_CHECKING:
    from airflow.sdk import Context

    from airflow_provider_cdc.connector import ConnectorDefinition


class ChangesAvailableSensor(ConnectorFields, WaitingSensor):
    """Succeeds when a capture of the connector would find something.

    That is at once before the first capture, afterwards when the source's log has moved past the offset or the connector's properties were changed.
    Meanwhile it occupies no worker.

    It also succeeds when a target lacks what was captured: a task of ``applied_by`` has failed, and is due to be tried again. After a failure of the capture,
    it waits until a person has repaired the cause, or for ``retry_after``.

        >>> ChangesAvailableSensor(task_id="wait", definition=shop, conn_id="shop_mariadb", applied_by=["apply"])

    :param definition: the connector; its properties and paths are templated
    :param conn_id: Airflow connection to the source database (templated)
    :param state_conn_id: Airflow connection to the state tables (templated)
    :param poll_interval: seconds between two polls
    :param applied_by: ids of tasks of the same DAG that apply the changes
    :param retry_after: how long to wait after a failure that needs a person, unless something is repaired before
    :param deferrable: wait in the triggerer; otherwise in a worker, in the ``mode`` that sensors have
    """

    template_fields: Sequence[str] = ConnectorFields.CONNECTOR_FIELDS
    template_fields_renderers = {"properties": "json", "changelog_options": "json"}
    ui_color = "#e6f1f2"

    def __init__(
        self,
        *,
        definition: ConnectorDefinition,
        conn_id: str,
        state_conn_id: str = DEFAULT_CONN_ID,
        poll_interval: float | timedelta = 10.0,
        applied_by: Sequence[str] = (),
        retry_after: float | timedelta = timedelta(seconds=RETRY_AFTER_S),
        deferrable: bool = True,
        **kwargs: Any,
    ) -> None:
        super().__init__(poll_interval=poll_interval, deferrable=deferrable, **kwargs)
        self._set_connector(definition, conn_id, state_conn_id, None)
        self.applied_by = parse_names("applied_by", applied_by)
        self.retry_after = parse_seconds("retry_after", retry_after, zero=True)

    def poke(self, context: Context) -> bool:
        try:
            found = self._look(context)
        except CdcError as e:
            raise self._to_exception(e, context) from e
        if isinstance(found, RunHold):
            self.log.info("%s", format_hold(self.connector, found))
        return isinstance(found, str)

    def poke_at_timeout(self, context: Context) -> bool:
        """Ask once more. A connector that waits after a failure is no run in which nothing changes.

        :raises AirflowFailException: it still waits
        """
        try:
            found = self._look(context)
        except CdcError as e:
            raise self._to_exception(e, context) from e
        if isinstance(found, RunHold):
            raise AirflowFailException(format_hold(self.connector, found))
        return found is not None

    def start_waiting(self, context: Context) -> None:
        found: str | RunHold | None = None
        try:
            found = self._look(context)
            if isinstance(found, str):
                return
            if found is None:
                self.log.info("Nothing to capture from %s yet; waiting in the triggerer.", self.connector)
        except TransientError as e:
            self.log.warning(
                "Connector %s cannot be checked now; the triggerer tries again: %s", self.connector, describe_error(e)
            )
        except CdcError as e:
            raise self._to_exception(e, context) from e
        start = self._start(context).to_document()
        trigger = ChangesAvailableTrigger(self.connector_access.to_document(), self.poll_interval, start)
        if isinstance(found, RunHold):
            self.log.warning("%s", format_hold(self.connector, found))
            self.defer_to(trigger, at_least=found.until)
        self.defer_to(trigger)

    def execute_complete(self, context: Context, event: dict[str, Any]) -> None:
        """Take the event of the trigger."""
        if "error" in event:
            record_failure(
                self.connector_access, event["error"], event.get("name") or "TerminalError", task_run_of(context)
            )
            raise AirflowFailException(event["error"])
        if "recheck" in event:  # the DAG's definition may be another one now
            self.start_waiting(context)
            return
        self._log_reason(str(event["reason"]))

    def _start(self, context: Context) -> RunStart:
        return RunStart.from_context(context, self.applied_by, self.retry_after)

    def _look(self, context: Context) -> str | RunHold | None:
        """Return the reason for a run, or the wait after a failure; ``None`` if there is nothing to do."""
        found = self._start(context).decide_now(self.connector_access)
        if found is None:
            probe = self.connector_access.open_probe()
            try:
                found = probe.explain_changes()
            finally:
                probe.close()
        if isinstance(found, str):
            self._log_reason(found)
        return found

    def _to_exception(self, error: CdcError, context: Context) -> Exception:
        """Build the Airflow exception; after an error that a person must repair, the sensor of the next run waits."""
        if isinstance(error, TerminalError):
            record_failure(self.connector_access, describe_error(error), type(error).__name__, task_run_of(context))
        return to_airflow_exception(error)

    def _log_reason(self, reason: str) -> None:
        self.log.info("Connector %s needs a run: %s.", self.connector, reason)
