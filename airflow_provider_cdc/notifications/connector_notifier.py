"""Callbacks that report the state of a connector when a DAG run or a task ends."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from html import escape
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseNotifier

from airflow_provider_cdc.hooks.state import DEFAULT_CONN_ID, CdcStateHook
from airflow_provider_cdc.services.text import status_texts
from airflow_provider_cdc.services.text.pause_gap_signal_texts import format_halt

if TYPE_CHECKING:
    from airflow.sdk import Context

    from airflow_provider_cdc.connector import ConnectorDefinition
    from airflow_provider_cdc.core.spi.state_records import NotificationRecord
    from airflow_provider_cdc.state.state_store import StateStore


class CdcNotifier(BaseNotifier):
    """Passes a text about a connector to another notifier, or to any callback: its state and its newest notifications.

        >>> mail = SmtpNotifier(to="ann@example.com", subject="{{ dag.dag_id }}", html_content="{{ cdc_html }}")
        >>> cdc_dag(shop, ..., default_args={"on_failure_callback": CdcNotifier(shop, callback=mail)})

    In its templates ``cdc_text`` is the text, ``cdc_html`` the same for HTML and ``cdc_notifications`` the notifications in their
    documented form. Errors and notifications hold texts from the source, such as names of tables: do not put ``cdc_text`` into HTML. Without
    a callback, the text is written to the log.

    :param connector: the connector, or its name (templated)
    :param callback: a notifier or a function, called with the context
    :param limit: how many notifications, those since the DAG run began
    :param state_conn_id: Airflow connection to the state tables (templated)
    """

    template_fields: Sequence[str] = ("connector", "state_conn_id")

    def __init__(
        self,
        connector: str | ConnectorDefinition,
        *,
        callback: Callable[[Any], Any] | None = None,
        limit: int = 20,
        state_conn_id: str = DEFAULT_CONN_ID,
    ) -> None:
        super().__init__()
        self.connector: str = connector if isinstance(connector, str) else connector.name
        self.callback, self.limit, self.state_conn_id = callback, limit, state_conn_id

    def notify(self, context: Context) -> None:
        began = getattr(context.get("dag_run"), "start_date", None)
        with CdcStateHook(self.state_conn_id).open_store(patience_s=10) as store:
            rows = _since(store.list_notifications(self.connector, limit=self.limit), began)
            text = _text(store, self.connector, rows)
        if self.callback is None:
            self.log.info("%s", text)
            return
        html = f"<pre>{escape(text)}</pre>"
        self.callback(
            {
                **context,
                "cdc_text": text,
                "cdc_html": html,
                "cdc_notifications": [row.notification.to_document() for row in rows],
            }
        )


def _since(rows: list[NotificationRecord], began: datetime | None) -> list[NotificationRecord]:
    return rows if began is None else [row for row in rows if row.created_at >= began]


def _text(store: StateStore, connector: str, notifications: Sequence[NotificationRecord]) -> str:
    record = store.find_connector(connector)
    if record is None:
        return f"Connector {connector} has not run yet."
    lines = [
        f"Connector {connector} is at {status_texts.position_text(record.offset_position)}, batch {record.last_batch}."
    ]
    if text := format_halt(record.control):
        lines.append(f"It is {text}.")
    elif record.last_error and record.last_error_at == record.run_ended_at:
        lines.append(f"Its last run failed: {record.last_error}")
    lines += [f"{row.created_at:%H:%M:%S} {row.notification}" for row in notifications]
    return "\n".join(lines)
