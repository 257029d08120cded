"""Waits until there is something to capture of any of several connectors."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from airflow_provider_cdc.core.errors import CdcError, TransientError
from airflow_provider_cdc.core.lifecycle.next_run import RETRY_AFTER_S
from airflow_provider_cdc.hooks.airflow_compat import AirflowFailException
from airflow_provider_cdc.hooks.state import DEFAULT_CONN_ID
from airflow_provider_cdc.sensors.waiting_sensor import WaitingSensor
from airflow_provider_cdc.services.connectors.grouped_connectors import (
    ChangeInspection,
    GroupedConnector,
    GroupFields,
    inspect_changes,
)
from airflow_provider_cdc.services.connectors.parameter_checks import parse_names, parse_seconds
from airflow_provider_cdc.services.tasks.connector_fields import to_airflow_exception
from airflow_provider_cdc.services.tasks.run_start import RunStart, format_hold
from airflow_provider_cdc.triggers.any_changes import AnyChangesTrigger

if TYPE_CHECKING:
    from airflow.sdk import Context


class AnyChangesSensor(GroupFields, WaitingSensor):
    """Succeeds when a capture of any of several connectors would find something.

    :class:`~airflow_provider_cdc.sensors.changes_available.ChangesAvailableSensor` does it for one. Meanwhile it occupies no worker. A connector that cannot be
    checked does not hold up the others. If a person must act for it, the sensor succeeds, in the triggerer after five minutes in which no other has
    changes, and the task that captures the connector fails with the reason. One of which the last run has failed waits after that, as with
    :class:`~airflow_provider_cdc.sensors.changes_available.ChangesAvailableSensor`. So one that stays broken does not make one failed run after the other.

        >>> AnyChangesSensor(task_id="wait", connectors=[GroupedConnector(definition=shop, conn_id="shop_mariadb"), …], applied_by=["apply"])

    :param connectors: those to wait for; properties, paths and ids of connections are templated
    :param state_conn_id: Airflow connection to the state tables (templated)
    :param poll_interval: seconds between two polls
    :param applied_by: ids of tasks of the same DAG that apply the changes
    :param retry_after: how long a connector waits after a failure that needs a person, unless something is repaired before
    :param deferrable: wait in the triggerer; otherwise in a worker, in the ``mode`` that sensors have
    """

    template_fields: Sequence[str] = GroupFields.GROUP_FIELDS
    template_fields_renderers = {"connectors": "json"}
    ui_color = "#e6f1f2"

    def __init__(
        self,
        *,
        connectors: Sequence[GroupedConnector],
        state_conn_id: str = DEFAULT_CONN_ID,
        poll_interval: float | timedelta = 10.0,
        applied_by: Sequence[str] = (),
        retry_after: float | timedelta = timedelta(seconds=RETRY_AFTER_S),
        deferrable: bool = True,
        **kwargs: Any,
    ) -> None:
        super().__init__(poll_interval=poll_interval, deferrable=deferrable, **kwargs)
        self._set_group(connectors, state_conn_id)
        self.applied_by = parse_names("applied_by", applied_by)
        self.retry_after = parse_seconds("retry_after", retry_after, zero=True)

    def poke(self, context: Context) -> bool:
        return any(
            inspection.reason is not None or _not_by_itself(inspection.error) for inspection in self._looked(context)
        )

    def poke_at_timeout(self, context: Context) -> bool:
        """Have a connector that cannot be checked captured, too: the capture fails and names it.

        :raises AirflowFailException: there is nothing else, and a connector still waits after a failure
        """
        looked = self._looked(context)
        if any(inspection.reason is not None or inspection.error is not None for inspection in looked):
            return True
        waits = [
            format_hold(inspection.access.definition.name, inspection.hold)
            for inspection in looked
            if inspection.hold is not None
        ]
        if waits:
            raise AirflowFailException("\n".join(waits))
        return False

    def start_waiting(self, context: Context) -> None:
        try:
            accesses = self.connector_accesses
        except CdcError as e:
            raise to_airflow_exception(e) from e
        start = RunStart.from_context(context, self.applied_by, self.retry_after)
        self.defer_to(AnyChangesTrigger.from_accesses(accesses, self.poll_interval, start))

    def execute_complete(self, context: Context, event: dict[str, Any]) -> None:
        """Take the event of the trigger."""
        if "recheck" in event:  # the DAG's definitions may be other ones now
            self.start_waiting(context)
            return
        self._log_reason(event["connector"], event["reason"])

    def _looked(self, context: Context) -> list[ChangeInspection]:
        start = RunStart.from_context(context, self.applied_by, self.retry_after)
        try:
            looked = list(inspect_changes(self.connector_accesses, start.decide))
        except CdcError as e:
            raise to_airflow_exception(e) from e
        for inspection in looked:
            if inspection.reason is not None:
                self._log_reason(inspection.access.definition.name, inspection.reason)
            if inspection.hold is not None:
                self.log.info("%s", format_hold(inspection.access.definition.name, inspection.hold))
            if inspection.error is not None:
                self.log.warning(
                    "Connector %s cannot be checked: %s", inspection.access.definition.name, inspection.error
                )
        return looked

    def _log_reason(self, connector: str, reason: str) -> None:
        self.log.info("Connector %s needs a run: %s.", connector, reason)


def _not_by_itself(error: Exception | None) -> bool:
    """Check whether an error does not pass by itself."""
    return error is not None and not isinstance(error, TransientError)
