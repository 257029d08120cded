"""Waits until there is something to capture."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from airflow_provider_cdc.core.errors import CdcError, TransientError
from airflow_provider_cdc.hooks.airflow_compat import AirflowFailException
from airflow_provider_cdc.hooks.state import DEFAULT_CONN_ID
from airflow_provider_cdc.sensors.waiting_sensor import WaitingSensor
from airflow_provider_cdc.services.tasks.connector_fields import ConnectorFields, to_airflow_exception
from airflow_provider_cdc.triggers.changes_available import ChangesAvailableTrigger

if TYPE_CHECKING:
    from airflow.sdk import Context

    from airflow_provider_cdc.connector import ConnectorDefinition


class ChangesAvailableSensor(ConnectorFields, WaitingSensor):
    """Succeeds when a capture of the connector would find something.

    That is at once before the first capture, afterwards when the source's log has moved past the offset or the connector's properties were changed.
    Meanwhile it occupies no worker.

        >>> ChangesAvailableSensor(task_id="wait", definition=shop, conn_id="shop_mariadb")

    :param definition: the connector; its properties and paths are templated
    :param conn_id: Airflow connection to the source database (templated)
    :param state_conn_id: Airflow connection to the state tables (templated)
    :param poll_interval: seconds between two polls
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
        deferrable: bool = True,
        **kwargs: Any,
    ) -> None:
        super().__init__(poll_interval=poll_interval, deferrable=deferrable, **kwargs)
        self._set_connector(definition, conn_id, state_conn_id, None)

    def poke(self, context: Context) -> bool:
        try:
            return self._look()
        except CdcError as e:
            raise to_airflow_exception(e) from e

    def start_waiting(self, context: Context) -> None:
        try:
            if self._look():
                return
            self.log.info("Nothing to capture from %s yet; waiting in the triggerer.", self.connector)
        except TransientError as e:
            self.log.warning("Connector %s cannot be checked now; the triggerer tries again: %s", self.connector, e)
        except CdcError as e:
            raise to_airflow_exception(e) from e
        self.defer_to(ChangesAvailableTrigger(self.connector_access.to_document(), self.poll_interval))

    def execute_complete(self, context: Context, event: dict[str, Any]) -> None:
        """Take the event of the trigger."""
        if "error" in event:
            raise AirflowFailException(event["error"])
        self._log_reason(str(event["reason"]))

    def _look(self) -> bool:
        probe = self.connector_access.open_probe()
        try:
            reason = probe.explain_changes()
        finally:
            probe.close()
        if reason is not None:
            self._log_reason(reason)
        return reason is not None

    def _log_reason(self, reason: str) -> None:
        self.log.info("Connector %s needs a capture run: %s.", self.connector, reason)
