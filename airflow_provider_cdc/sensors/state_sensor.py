"""The base of all sensors that wait for something in the state tables."""

from __future__ import annotations

import abc
from collections.abc import Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from airflow.sdk.bases.sensor import PokeReturnValue

from airflow_provider_cdc.core.errors import CdcError
from airflow_provider_cdc.hooks.airflow_compat import AirflowException, AirflowFailException
from airflow_provider_cdc.hooks.page_links import ConnectorLink
from airflow_provider_cdc.hooks.state import DEFAULT_CONN_ID, CdcStateHook
from airflow_provider_cdc.sensors.waiting_sensor import WaitingSensor
from airflow_provider_cdc.services.tasks.connector_fields import StateFields, to_airflow_exception
from airflow_provider_cdc.triggers.state_table_trigger import PollResult, StateTrigger

if TYPE_CHECKING:
    from airflow.sdk import Context

    from airflow_provider_cdc.connector import ConnectorDefinition


class StateSensor(StateFields, WaitingSensor):
    """Waits with a :class:`~airflow_provider_cdc.triggers.state_table_trigger.StateTrigger`; meanwhile it occupies no worker.

    :param connector: the connector, or its name (templated)
    :param state_conn_id: Airflow connection to the state tables (templated)
    :param poll_interval: seconds between two polls
    :param deferrable: wait in the triggerer; otherwise in a worker, in the ``mode`` that sensors have
    """

    template_fields: Sequence[str] = StateFields.STATE_FIELDS
    operator_extra_links = (ConnectorLink(),)
    ui_color = "#e6f1f2"

    def __init__(
        self,
        *,
        connector: str | ConnectorDefinition,
        state_conn_id: str = DEFAULT_CONN_ID,
        poll_interval: float | timedelta = 5.0,
        deferrable: bool = True,
        **kwargs: Any,
    ) -> None:
        super().__init__(poll_interval=poll_interval, deferrable=deferrable, **kwargs)
        self._set_connector_name(connector, state_conn_id)

    @abc.abstractmethod
    def build_trigger(self) -> StateTrigger:
        """Build the trigger from rendered fields."""

    def build_result(self, event: dict[str, Any]) -> Any:
        """Return the task's result for the trigger's event. Raises if the event is a failure."""
        return event

    def poke(self, context: Context) -> bool | PokeReturnValue:
        answer = self._ask(self.build_trigger())
        return False if answer.event is None else PokeReturnValue(True, self.build_result(answer.event))

    def start_waiting(self, context: Context) -> Any:
        trigger = self.build_trigger()
        try:
            answer = self._ask(trigger)
            if answer.event is not None:
                return self.build_result(answer.event)
        except AirflowFailException:
            raise
        except AirflowException as e:
            self.log.warning("The state tables cannot be queried now; the triggerer tries again: %s", e)
        self.defer_to(trigger)

    def execute_complete(self, context: Context, event: dict[str, Any]) -> Any:
        """Take the event of the trigger."""
        if "error" in event:
            raise AirflowFailException(event["error"])
        return self.build_result(event)

    def _ask(self, trigger: StateTrigger) -> PollResult:
        try:
            with CdcStateHook(self.state_conn_id).open_store() as store:
                answer = trigger.poll_once(store)
        except CdcError as e:
            raise to_airflow_exception(e) from e
        self.log.info("%s", answer.text)
        return answer
