"""The outcome of a run of a form for a connector, recorded for its pages beside who has asked for it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from airflow_provider_cdc.core.error_texts import describe_error
from airflow_provider_cdc.core.errors import CdcError
from airflow_provider_cdc.hooks.state import CdcStateHook
from airflow_provider_cdc.services.tasks.connector_fields import format_signal_sender

if TYPE_CHECKING:
    from airflow.sdk import Context

    from airflow_provider_cdc.core.model.notifications import NotificationType

_MOST = 10_000
"""Characters of an outcome that are kept."""


@contextmanager
def record_outcome(connector: str, state_conn_id: str, action: str, context: Context, log: Any) -> Iterator[list[str]]:
    """Record the outcome of a task's work on a connector, for pages: the lines that it adds, or the error.

    :raises StateUnavailable: it could not be recorded
    """
    from airflow_provider_cdc.core.model.notifications import ACTION, Notification, NotificationType
    from airflow_provider_cdc.hooks.airflow_compat import AirflowException

    ti, lines = context["ti"], list[str]()
    data = {
        "connector_name": connector,
        "by": format_signal_sender(context),
        "action": action,
        "dag": ti.dag_id,
        "run": ti.run_id,
    }

    def note(type_: NotificationType, text: str) -> None:
        more: dict[str, Any] = {"outcome": text[:_MOST]} if text else {}
        with CdcStateHook(state_conn_id).open_store() as store:
            if store.find_connector(connector) is not None:
                store.add_notification(
                    connector, Notification(aggregate_type=ACTION, type=type_, additional_data={**data, **more})
                )

    try:
        yield lines
    except Exception as e:
        try:
            # an exception of Airflow has the name of our error in its text
            note(NotificationType.FAILED, str(e) if isinstance(e, AirflowException) else describe_error(e))
        except CdcError as record_error:  # the task itself reports its failure
            log.warning("The outcome could not be recorded for the pages: %s", record_error)
        raise
    note(NotificationType.COMPLETED, "\n".join(lines))


__all__ = ["record_outcome"]
