"""The task that removes batches of a change log which no target needs any more. It needs no Spark."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseOperator

from airflow_provider_cdc.core.errors import CdcError
from airflow_provider_cdc.hooks.changelog_retention import LogMaintenance, maintain_log
from airflow_provider_cdc.hooks.state import DEFAULT_CONN_ID
from airflow_provider_cdc.hooks.task_base import ConnectorFields, failure

if TYPE_CHECKING:
    from airflow.sdk import Context

    from airflow_provider_cdc.runtime import ConnectorDefinition


class RetainChangeLogOperator(ConnectorFields, BaseOperator):
    """Removes batches that every target has had for ``changelog.retention.ms``, or before that if the change log is larger than ``changelog.retention.bytes``.

    ``MaintainTablesOperator`` does the same before it maintains tables; this is for connectors whose tables are maintained elsewhere, or more rarely.
    It may run beside captures, applies, and other tasks like it.

        >>> RetainChangeLogOperator(task_id="retain", definition=shop)

    Returns ``first``, ``last``, ``keep``, ``removed``, ``why``, ``applied``, ``targets`` and ``holds``, see :class:`airflow_provider_cdc.changelog.retention.Plan`.

    :param definition: the connector, whose properties say how long batches are kept; paths are templated
    :param dry_run: only say what would be removed
    :param storage_conn_id: Airflow connection with secret fsspec options of the change log in its extra (templated)
    """

    template_fields: Sequence[str] = ("changelog", "properties", "changelog_options", "storage_conn_id")
    ui_color = "#fdebd3"

    def __init__(
        self,
        *,
        definition: ConnectorDefinition,
        dry_run: bool = False,
        storage_conn_id: str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self._set_connector(definition, "", DEFAULT_CONN_ID, storage_conn_id)
        self.only_plan = dry_run

    def execute(self, context: Context) -> dict[str, Any]:
        try:
            found = maintain_log(self.access, dry_run=self.only_plan)
        except CdcError as e:
            raise failure(e) from e
        tell(found, self.log)
        if found.error is not None:
            raise failure_of(found) from found.error
        assert found.plan is not None
        return found.plan.document()


def tell(found: LogMaintenance, log: Any) -> None:
    """Log what became of a change log; what holds batches back is a warning."""
    for number, line in enumerate(found.lines()):
        (log.info if number == 0 and found.error is None else log.warning)("%s", line)


def failure_of(found: LogMaintenance) -> Exception:
    """The Airflow exception for what has failed."""
    from airflow.sdk.exceptions import AirflowException

    assert found.error is not None
    return failure(found.error) if isinstance(found.error, CdcError) else AirflowException(found.problem)
