"""A task that has something done at a source so that tables can be captured."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseOperator

from airflow_provider_cdc.connector import ConnectorDefinition
from airflow_provider_cdc.core.errors import CdcError
from airflow_provider_cdc.hooks.airflow_compat import AirflowFailException
from airflow_provider_cdc.hooks.page_links import ConnectorLink
from airflow_provider_cdc.hooks.state import DEFAULT_CONN_ID, CdcStateHook
from airflow_provider_cdc.services.connectors.connector_handle import access_of, find_connector
from airflow_provider_cdc.services.tasks.connector_fields import StateFields, format_signal_sender, to_airflow_exception

if TYPE_CHECKING:
    from airflow.sdk import Context


class SourceProcedureOperator(StateFields, BaseOperator):
    """Has a procedure carried out at the source of a connector, as ``airflow cdc db2 add-table`` does.

    It must be confirmed with the connector's name; with ``plan_only`` it changes nothing.

        >>> SourceProcedureOperator(
        ...     task_id="capture_orders", connector="shop", procedure="add-table", table="SHOP.ORDERS", confirm="shop")

    Returns the plan (``procedure``, ``table``, ``flags``, ``steps``, ``consequences``, ``problems``), with ``plan_only`` or with ``signal``:
    the number of the signal that has the table read again, if one was sent.

    :param connector: the connector, or its name (templated)
    :param procedure: the procedure: for Db2 ``add-table``, ``remove-table`` or ``switch-capture-instance`` (templated)
    :param table: name of the table, as ``signal.data.collection`` has it (templated)
    :param flags: names of flags to set, as ``writers-stopped`` (templated)
    :param confirm: the connector's name (templated)
    :param plan_only: change nothing
    :param state_conn_id: Airflow connection to the state tables (templated)
    """

    template_fields: Sequence[str] = (*StateFields.STATE_FIELDS, "procedure", "table", "flags", "confirm")
    TEXTS = ("procedure", "table")
    OPTIONAL_TEXTS = ("confirm",)
    NAME_LISTS = ("flags",)
    FLAGS = ("plan_only",)
    operator_extra_links = (ConnectorLink(),)
    ui_color = "#f7e3e3"

    def __init__(
        self,
        *,
        connector: str | ConnectorDefinition,
        procedure: str,
        table: str,
        flags: Sequence[str] = (),
        confirm: str | None = None,
        plan_only: bool = False,
        state_conn_id: str = DEFAULT_CONN_ID,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self._set_connector_name(connector, state_conn_id)
        self.procedure, self.table, self.flags = procedure, table, flags
        self.confirm, self.plan_only = confirm, plan_only
        self.check_parameters()

    def execute(self, context: Context) -> dict[str, Any]:
        try:
            return self._carry_out(format_signal_sender(context))
        except CdcError as e:
            raise to_airflow_exception(e) from e

    def _carry_out(self, by: str) -> dict[str, Any]:
        with CdcStateHook(self.state_conn_id).open_store() as store:
            access = access_of(find_connector(store, self.connector), self.state_conn_id)
        if access is None:
            raise AirflowFailException(
                f"The source connection of {self.connector} is not recorded, because the connector has never run. Run it once."
            )
        with access.use_current_connection().prepare_lifecycle() as lifecycle:
            plan = lifecycle.plan_procedure(self.procedure, self.table, self.flags)
            for line in (*plan.steps, *plan.consequences):
                self.log.info("  %s", line)
            for line in plan.problems:
                self.log.warning("  %s", line)
            if self.plan_only:
                return {"plan_only": True, **plan.to_document()}
            signal = lifecycle.carry_out(plan, self.confirm, by, lambda line: self.log.info("%s", line))
        return {**plan.to_document(), "signal": signal}
