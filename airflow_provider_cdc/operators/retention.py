"""The task that removes old data of a change log and of the state tables that is not needed any more. It needs no Spark."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseOperator

from airflow_provider_cdc.core.errors import CdcError
from airflow_provider_cdc.hooks.state import DEFAULT_CONN_ID, CdcStateHook
from airflow_provider_cdc.services.connector_retention import RetentionResult, run_retention
from airflow_provider_cdc.services.connectors.parameter_checks import parse_flag
from airflow_provider_cdc.services.tasks.connector_fields import ConnectorFields, to_airflow_exception

if TYPE_CHECKING:
    from airflow.sdk import Context

    from airflow_provider_cdc.connector import ConnectorDefinition


class RetentionOperator(ConnectorFields, BaseOperator):
    """Removes batches of the change log and rows of the state tables that are old enough.

    It removes batches that every target has had for ``changelog.retention.ms``, or before that if the change log is larger than
    ``changelog.retention.bytes``, and rows of the state tables that are older than ``state.retention.*``.

    ``MaintainTablesOperator`` does the same before it maintains tables; this is for connectors whose tables are maintained elsewhere, or more rarely,
    or that have none. It may run beside captures, applies, and other tasks like it.

        >>> RetentionOperator(task_id="retention", definition=shop)

    Returns ``changelog`` with ``first``, ``last``, ``keep``, ``removed``, ``why``, ``applied``, ``targets`` and ``holds``, see
    :class:`airflow_provider_cdc.changelog.retention.retention_plan.RetentionPlan`; and ``state`` with ``removed``: kind of row → how many. A failure of the one does
    not stop the other.

    :param definition: the connector, whose properties say how long everything is kept; paths are templated
    :param dry_run: only report the batches of the change log that would be removed; the state tables are not read
    :param state_conn_id: Airflow connection to the state tables (templated)
    :param storage_conn_id: Airflow connection with secret fsspec options of the change log in its extra (templated)
    """

    template_fields: Sequence[str] = (
        "changelog",
        "properties",
        "changelog_options",
        "state_conn_id",
        "storage_conn_id",
    )
    ui_color = "#fdebd3"

    def __init__(
        self,
        *,
        definition: ConnectorDefinition,
        dry_run: bool = False,
        state_conn_id: str = DEFAULT_CONN_ID,
        storage_conn_id: str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self._set_connector(definition, "", state_conn_id, storage_conn_id)
        self.only_plan = parse_flag("dry_run", dry_run)

    def execute(self, context: Context) -> dict[str, Any]:
        try:
            result = run_retention(
                self.connector_access, CdcStateHook(self.state_conn_id).open_store, dry_run=self.only_plan
            )
        except CdcError as e:
            raise to_airflow_exception(e) from e
        log_retention(result, self.log)
        if result.step_errors:
            raise failure_of(result) from result.step_errors[0]
        return result.to_document()


def log_retention(result: RetentionResult, log: Any) -> None:
    """Log the result for change log and state tables; failures, and holds of batches, are warnings."""
    held_back = result.held_back()
    for line in [*result.problem_texts, *result.format_lines()]:
        (log.warning if line in held_back or line in result.problem_texts else log.info)("%s", line)


def failure_of(result: RetentionResult) -> Exception:
    """Build the Airflow exception for failed steps: with a retry, if any of them may succeed then."""
    from airflow_provider_cdc.hooks.airflow_compat import AirflowException

    (first, *others) = result.step_errors
    return (
        to_airflow_exception(first)
        if isinstance(first, CdcError) and not others
        else AirflowException("\n".join(result.problem_texts))
    )
