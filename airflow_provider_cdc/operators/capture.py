"""The task that captures."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseOperator

from airflow_provider_cdc.core.error_texts import describe_error
from airflow_provider_cdc.core.errors import CdcError, ConfigError, ConnectorHalted, StateUnavailable, TerminalError
from airflow_provider_cdc.core.model.run_metrics import shorten_metrics
from airflow_provider_cdc.hooks.state import DEFAULT_CONN_ID
from airflow_provider_cdc.operators.base.openlineage_events import build_capture_lineage
from airflow_provider_cdc.operators.base.operator_links import BatchLink
from airflow_provider_cdc.services.connectors.parameter_checks import parse_optional_seconds, parse_seconds
from airflow_provider_cdc.services.tasks.capture_turn import CaptureTurn, began_at
from airflow_provider_cdc.services.tasks.connector_fields import (
    ConnectorFields,
    owner_of,
    refuse_backfill,
    task_run_of,
    to_airflow_exception,
)
from airflow_provider_cdc.services.tasks.run_start import record_failure
from airflow_provider_cdc.targets.task_watch import end_with_supervisor

if TYPE_CHECKING:
    from airflow.providers.openlineage.extractors import OperatorLineage
    from airflow.sdk import Context

    from airflow_provider_cdc.changelog.snapshot_exchange.reader_coordinator import ReaderJob
    from airflow_provider_cdc.connector import ConnectorDefinition
    from airflow_provider_cdc.core.capture.connector_capture import Capture, CaptureResult, TableCaptureResult
    from airflow_provider_cdc.services.connectors.connector_handle import ConnectorAccess

_SHOWN = 50
"""Topics that are named in the result and in the log, those with the most events."""
_LETTERS = 100
"""Of a text among the metrics in the result: statements of schema changes may be long, and Airflow keeps every result."""


_PAUSED_S = 5
"""Seconds between two looks whether a paused connector is resumed."""


class CaptureOperator(ConnectorFields, BaseOperator):
    """Captures the changes of one connector into its change log, up to the end of the source's log as it is now.

    The first run reads whole tables first. A run that is ended (SIGTERM) commits its changes at the next boundary between
    two transactions; one that is killed loses nothing either, the next run continues from the offset. While the connector is
    paused or stopped, the task is skipped, and its log names the user and the reason.

        >>> CaptureOperator(task_id="capture", definition=shop, conn_id="shop_mariadb")

    Returns ``{"connector", "topic_prefix", "position", "seq", "events", "topics", "batches", "seconds", "metrics"}``.
    ``topics`` names the 50 topics with the most events. ``batches`` is the first and the last batch of the run, if there is any.
    ``metrics`` has the documented ones by context: lists and maps of them with 50 entries, texts with 100 letters. A run that fails has no result: its metrics are
    in its log, on the connector's page and in ``airflow cdc status``, as those of every run are.

    :param definition: the connector; its properties and paths are templated
    :param conn_id: Airflow connection to the source database (templated)
    :param state_conn_id: Airflow connection to the state tables (templated)
    :param storage_conn_id: Airflow connection with secret fsspec options of the change log in its extra (templated)
    :param run_for: capture for this long instead of up to the present end of the log; seconds or a timedelta
    :param hand_over: with ``run_for``: capture until the next run of the DAG takes over, also one that a user triggers. ``run_for`` counts from the
        beginning of the DAG run then, also after a retry; a connector that is paused is waited for, one that is restarted begins again
    :param adopt: take over the connector of this name, although it has another source or change log: set it until a run has succeeded
    :param snapshot_job: how the Spark job is submitted that reads the tables of snapshots on Spark (templated): ``conn_id``
        of Spark, ``submit``, ``conf`` and other arguments of ``SparkSubmitOperator``; see docs/run/snapshots-on-spark.md
    :param lease_ttl: seconds, or a timedelta, after which the lease of a run that died is free
    :param lease_wait: seconds, or a timedelta, to wait for the lease of another run
    """

    template_fields: Sequence[str] = (*ConnectorFields.CONNECTOR_FIELDS, "snapshot_job")
    template_fields_renderers = {"properties": "json", "changelog_options": "json", "snapshot_job": "json"}
    MAPPINGS = (*ConnectorFields.MAPPINGS, "snapshot_job")
    FLAGS = ("hand_over", "adopt")
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
        hand_over: bool = False,
        adopt: bool = False,
        lease_ttl: float | timedelta = 30.0,
        lease_wait: float | timedelta = 60.0,
        snapshot_job: Mapping[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.snapshot_job = snapshot_job if snapshot_job is not None else {}
        self._set_connector(definition, conn_id, state_conn_id, storage_conn_id)
        self.run_for = parse_optional_seconds("run_for", run_for)
        if hand_over and self.run_for is None:
            raise ConfigError("hand_over needs run_for: a run without run_for has nothing to hand over.")
        self.hand_over, self.lease_ttl = hand_over, parse_seconds("lease_ttl", lease_ttl)
        self.lease_wait = parse_seconds("lease_wait", lease_wait, zero=True)
        self.adopt = adopt
        self.check_parameters()
        self.batch: int | None = None
        self._capture: Capture | None = None
        self._captured: dict[str, TableCaptureResult] = {}
        self._ended = self._passed_on = self._over_early = False

    def execute(self, context: Context) -> dict[str, Any]:
        from airflow_provider_cdc.hooks.airflow_compat import AirflowException

        try:
            with end_with_supervisor(self.on_kill):
                result = (
                    self._until_the_next(context)
                    if self.hand_over
                    else self._capture_for(self.run_for, context, owner_of(context))
                )
        except CdcError as e:
            raise to_airflow_exception(e) from e
        self.batch = result.batches[-1] if result.batches else None
        self._captured = result.tables
        summary = report_result(result, self.connector_access.definition, _SHOWN, self.log)
        if self._over_early:
            # a success would leave the source without a run until the next one begins; if the state is decided already, this changes nothing
            raise AirflowException(
                "The task was stopped before run_for ended: the captured changes are committed, and the next try continues."
            )
        return summary

    def get_openlineage_facets_on_complete(self, task_instance: Any) -> OperatorLineage[Any, Any]:
        """Return the captured tables of the run, for Airflow's OpenLineage provider."""
        return build_capture_lineage(self._captured, self.changelog, self.connector)

    def _until_the_next(self, context: Context) -> CaptureResult:
        """Capture until the time of the DAG run is over, even if a capture ends before that, or until a later DAG run takes over."""
        from airflow_provider_cdc.hooks.airflow_compat import AirflowSkipException

        refuse_backfill(context)
        began = began_at(context)
        end = began + timedelta(seconds=self.run_for or 0)
        turn = CaptureTurn(context, began, self.connector, self.state_conn_id, self.log)
        result: CaptureResult | None = None
        while result is None or not (self._ended or datetime.now(UTC) >= end):
            if not turn.claim_turn():
                if result is None:
                    raise AirflowSkipException(f"A later run of the DAG captures connector {self.connector}.")
                self.log.info("A later run of the DAG captures the connector from here on.")
                self._passed_on = True
                break
            left = (end - datetime.now(UTC)).total_seconds()
            try:
                # a retry after the end of its time still captures pending changes
                done = self._capture_for(left if left > 0 else None, context, turn.owner)
                result = done if result is None else result.merge_later_result(done)
            except ConnectorHalted as e:
                if left <= 0 or self._ended:
                    raise
                self.log.warning("Waiting until the connector is resumed. %s", describe_error(e))
                for _ in range(_PAUSED_S):
                    if not self._ended:
                        time.sleep(1)
        self._over_early = self._ended and not self._passed_on and datetime.now(UTC) < end
        return result

    def _capture_for(self, seconds: float | None, context: Context, owner: str) -> CaptureResult:
        access = self.connector_access
        self.log.info("Capturing connector %s (%s) into %s.", self.connector, self.source, self.changelog)
        began = False
        try:
            with access.prepare_capture(
                owner=owner,
                lease_ttl_s=self.lease_ttl,
                lease_wait_s=self.lease_wait,
                dag=context["ti"].dag_id,
                adopt=self.adopt,
                reader_job=self._build_reader_job(access, context),
                task_run=task_run_of(context),
            ) as self._capture:
                if self._ended:
                    self._capture.stop()
                began = True
                return self._capture.run(run_for_s=seconds)
        except CdcError as e:
            if not began and not isinstance(e, StateUnavailable):  # otherwise the capture has recorded it
                record_failure(
                    access,
                    describe_error(e),
                    type(e).__name__,
                    task_run_of(context),
                    needs_person=isinstance(e, TerminalError),
                )
            raise
        finally:
            self._capture = None

    def _build_reader_job(self, access: ConnectorAccess, context: Context) -> ReaderJob | None:
        """Build the job that reads the tables of snapshots which are taken on Spark."""
        if not self.snapshot_job:
            return None
        from airflow_provider_cdc.operators.base.snapshot_readers_job import SnapshotReadersJob

        return SnapshotReadersJob(access, self.snapshot_job, context)

    def on_kill(self) -> None:
        self._ended = True
        if (capture := self._capture) is not None:
            self.log.warning("Ending at the next transaction boundary.")
            capture.stop()


def report_result(result: CaptureResult, definition: ConnectorDefinition, shown: int, log: Any) -> dict[str, Any]:
    """Log the result of a run, and give it as downstream tasks get it.

    :param shown: topics, and entries of lists and maps in metrics, that are named
    """
    topics = dict(sorted(result.topics.items(), key=lambda item: (-item[1], item[0]))[:shown])
    for topic, events in topics.items():
        log.info("  %s: %s events", topic, f"{events:,}")
    batches = [result.batches[0], result.batches[-1]] if result.batches else []
    written = f"batches {batches[0]} to {batches[1]}" if batches else "no batch"
    log.info(
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
        "topic_prefix": str(definition.properties.get("topic.prefix", result.connector)),
        "metrics": shorten_metrics(result.metrics, shown, _LETTERS),
    }
