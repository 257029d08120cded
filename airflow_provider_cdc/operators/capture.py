"""The task that captures."""

from __future__ import annotations

import os
import socket
from collections.abc import Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseOperator

from airflow_provider_cdc.core.errors import CdcError
from airflow_provider_cdc.core.model.metrics import shortened
from airflow_provider_cdc.hooks.state import DEFAULT_CONN_ID
from airflow_provider_cdc.hooks.task_base import ConnectorFields, failure
from airflow_provider_cdc.operators.links import BatchLink

if TYPE_CHECKING:
    from airflow.sdk import Context

    from airflow_provider_cdc.core.capture.capture import Capture, CaptureResult
    from airflow_provider_cdc.runtime import ConnectorDefinition

_SHOWN = 50
"""Topics that are named in the result and in the log, those with the most events."""


class CaptureOperator(ConnectorFields, BaseOperator):
    """Captures the changes of one connector into its change log, up to the end of the source's log as it is now.

    The first run reads whole tables first. A run that is ended (SIGTERM) commits what it has at the next boundary between
    two transactions; one that is killed loses nothing either, the next run goes on from the offset. While the connector is
    paused or stopped, the task is skipped, and its log says by whom and why.

        >>> CaptureOperator(task_id="capture", definition=shop, conn_id="shop_mariadb")

    Returns ``{"connector", "topic_prefix", "position", "seq", "events", "topics", "batches", "seconds", "metrics"}``, where
    ``topics`` names the 50 topics with the most events, ``batches`` is the first and the last batch of the run, if there is any, and
    ``metrics`` has the documented ones by context, lists and maps of them with 50 entries. A run that fails has no result: its metrics are
    in its log, on the connector's page and in ``airflow cdc status``, as those of every run are.

    :param definition: the connector; its properties and paths are templated
    :param conn_id: Airflow connection to the source database (templated)
    :param state_conn_id: Airflow connection to the state tables (templated)
    :param storage_conn_id: Airflow connection with secret fsspec options of the change log in its extra (templated)
    :param run_for: capture for this long instead of up to the present end of the log; seconds or a timedelta
    :param lease_ttl: seconds after which the lease of a run that died is free
    :param lease_wait: seconds to wait for the lease of another run
    """

    template_fields: Sequence[str] = ConnectorFields.CONNECTOR_FIELDS
    template_fields_renderers = {"properties": "json", "changelog_options": "json"}
    operator_extra_links = (BatchLink(),)
    ui_color = "#e3f2e1"

    def __init__(
        self,
        *,
        definition: ConnectorDefinition,
        conn_id: str,
        state_conn_id: str = DEFAULT_CONN_ID,
        storage_conn_id: str | None = None,
        run_for: float | timedelta | None = None,
        lease_ttl: float = 30.0,
        lease_wait: float = 60.0,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self._set_connector(definition, conn_id, state_conn_id, storage_conn_id)
        self.run_for = run_for.total_seconds() if isinstance(run_for, timedelta) else run_for
        self.lease_ttl, self.lease_wait = lease_ttl, lease_wait
        self.batch: int | None = None
        self._capture: Capture | None = None
        self._ended = False

    def execute(self, context: Context) -> dict[str, Any]:
        try:
            access = self.access
            self.log.info("Capturing connector %s (%s) into %s.", self.connector, self.source, self.changelog)
            with access.capture(
                owner=_owner(context),
                lease_ttl_s=self.lease_ttl,
                lease_wait_s=self.lease_wait,
                dag=context["ti"].dag_id,
            ) as self._capture:
                if self._ended:
                    self._capture.stop()
                result = self._capture.run(run_for_s=self.run_for)
        except CdcError as e:
            raise failure(e) from e
        finally:
            self._capture = None
        self.batch = result.batches[-1] if result.batches else None
        return self._report(result)

    def on_kill(self) -> None:
        self._ended = True
        if (capture := self._capture) is not None:
            self.log.warning("Ending at the next transaction boundary.")
            capture.stop()

    def _report(self, result: CaptureResult) -> dict[str, Any]:
        """Log the result, and return it for downstream tasks."""
        topics = dict(sorted(result.topics.items(), key=lambda item: (-item[1], item[0]))[:_SHOWN])
        for topic, events in topics.items():
            self.log.info("  %s: %s events", topic, f"{events:,}")
        batches = [result.batches[0], result.batches[-1]] if result.batches else []
        written = f"batches {batches[0]} to {batches[1]}" if batches else "no batch"
        self.log.info(
            "Captured %s events of %d topics, %s, in %.1f s. Now at %s, seq %d.",
            f"{result.events:,}", len(result.topics), written, result.seconds, result.position, result.seq,
        )  # fmt: skip
        return {
            "connector": result.connector,
            "position": result.position,
            "seq": result.seq,
            "events": result.events,
            "topics": topics,
            "batches": batches,
            "seconds": round(result.seconds, 3),
            "topic_prefix": str(self.access.definition.properties.get("topic.prefix", result.connector)),
            "metrics": shortened(result.metrics, _SHOWN),
        }


def _owner(context: Context) -> str:
    """The owner of the lease, as status and errors name it."""
    ti = context["ti"]
    return f"{ti.dag_id}.{ti.task_id} {ti.run_id} try {ti.try_number} on {socket.gethostname()}:{os.getpid()}"[:500]
