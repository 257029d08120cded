"""The task that brings relational tables up to the change log."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseOperator

from airflow_provider_cdc.core.errors import CdcError
from airflow_provider_cdc.core.reporting.metrics_monitor import EVERY_S
from airflow_provider_cdc.hooks.state import DEFAULT_CONN_ID
from airflow_provider_cdc.hooks.target_database import TARGET, describe_database, open_database
from airflow_provider_cdc.operators.base.connector_apply_report import build_connector_alias, build_topic_asset
from airflow_provider_cdc.services.connectors.parameter_checks import parse_optional_seconds
from airflow_provider_cdc.services.tasks.apply_notes import ApplyNotes
from airflow_provider_cdc.services.tasks.connector_fields import ConnectorFields, refuse_backfill, to_airflow_exception

if TYPE_CHECKING:
    from airflow.sdk import Context

    from airflow_provider_cdc.changelog.reports.apply_report import ApplyOutcome
    from airflow_provider_cdc.changelog.reports.asset_event_outbox import AssetEventOutbox
    from airflow_provider_cdc.connector import ConnectorDefinition
    from airflow_provider_cdc.services.connectors.connector_handle import ConnectorAccess
    from airflow_provider_cdc.targets.database.apply.apply_result import DatabaseApplyResult
    from airflow_provider_cdc.targets.database.apply.database_apply import DatabaseApply


class ApplyToDatabaseOperator(ConnectorFields, BaseOperator):
    """Applies the batches of a connector's change log to tables of a relational database, each exactly once.

    Rows, DDL and the marker that says which batch they have are one transaction there. Repeated, killed or concurrent runs give the same result.

        >>> ApplyToDatabaseOperator(task_id="apply", definition=shop, conn_id="warehouse")

    Without ``sink``, tables equal the source: they are made and get columns, and have the source's keys. Returns ``{"connector", "target", "last_batch",
    "events", "tables", "seconds"}``, and emits an event of the asset ``cdc://<connector>/<topic>`` for each table that was changed. The changes of a run that fails
    in the end are reported by the next run that succeeds.

    :param definition: the connector; paths are templated
    :param conn_id: Airflow connection to the target database (templated)
    :param run_for: continue for so long, as batches come: they are in the tables within seconds of their capture. Another task may begin before: each batch is applied
        once, whichever task does it. Without it, the present batches of the change log are applied
    :param sink: properties of the Debezium JDBC sink connector that say otherwise (templated); see docs/targets/databases.md
    :param state_conn_id: Airflow connection to the state tables, which get the metrics (templated)
    :param storage_conn_id: Airflow connection with secret fsspec options of the change log in its extra (templated)
    """

    template_fields: Sequence[str] = (
        "changelog",
        "changelog_options",
        "sink",
        "conn_id",
        "state_conn_id",
        "storage_conn_id",
    )
    MAPPINGS = ("sink",)
    ui_color = "#fdebd3"

    def __init__(
        self,
        *,
        definition: ConnectorDefinition,
        conn_id: str,
        sink: Mapping[str, Any] | None = None,
        run_for: float | timedelta | None = None,
        state_conn_id: str = DEFAULT_CONN_ID,
        storage_conn_id: str | None = None,
        **kwargs: Any,
    ) -> None:
        kwargs["outlets"] = [*(kwargs.get("outlets") or []), build_connector_alias(definition.name)]
        super().__init__(**kwargs)
        self._set_connector(definition, conn_id, state_conn_id, storage_conn_id)
        self.sink = sink if sink is not None else {}
        self.run_for = parse_optional_seconds("run_for", run_for)
        self.check_parameters()
        self._ended = threading.Event()
        self._done: DatabaseApplyResult
        self._notes: ApplyNotes

    def execute(self, context: Context) -> dict[str, Any]:
        from airflow_provider_cdc.targets.database.apply.apply_result import DatabaseApplyResult
        from airflow_provider_cdc.targets.database.apply.database_apply import DatabaseApply
        from airflow_provider_cdc.targets.database.target_engine import place_of

        began, sink, failed = time.monotonic(), None, True
        self._notes = ApplyNotes.from_context(context, self.connector, self.state_conn_id, TARGET, "")
        try:
            if self.run_for is not None:
                refuse_backfill(context)
            with open_database(self.conn_id, self.sink) as (engine, config):
                self._notes = replace(self._notes, location=place_of(engine, config))
                self._notes.record_begin()
                described = describe_database(self.conn_id, self.sink)
                sink = DatabaseApply(
                    engine, config, self.connector_access.open_change_log(), self.connector, noted=described
                )
                self._done = DatabaseApplyResult(sink.done.place)
                if self.run_for is None:
                    sink.apply()
                else:
                    sink.apply_continuously(self._over(self.run_for, sink))
            failed = False
        except BaseException as e:
            self._notes.record_failure(e, None if sink is None else sink.done.batch or None)
            if isinstance(e, CdcError):
                raise to_airflow_exception(e) from e
            raise
        finally:
            if sink is not None:
                self._measure(sink.pop_result(), seconds=time.monotonic() - began, failed=failed)
                if failed:
                    left_to_next_run(context, self.connector_access, self._done.to_document(), self.log)
        done, ended = self._done.to_document(), self._ended.is_set()
        self._notes.record_end(done["batch"])
        result = emit_asset_events(context, self.connector_access, done, self.log, keep=ended)
        if ended:  # Airflow may take no events any more of a task that it has ended: rather twice than never
            left_to_next_run(context, self.connector_access, done, self.log)
        return result

    def _measure(self, done: DatabaseApplyResult, **more: Any) -> None:
        self._done.merge_result(done)
        report_database_metrics(self.connector_access, done.to_document(), self.log, conn_id=self.conn_id, **more)

    def on_kill(self) -> None:
        """End after the present commit."""
        self._ended.set()

    def _over(self, run_for: float, sink: DatabaseApply) -> Callable[[float], bool]:
        """Build the check for the end of the time; it reports metrics meanwhile."""
        until = time.monotonic() + run_for
        reported_at = time.monotonic()

        def over(seconds: float) -> bool:
            nonlocal reported_at
            if time.monotonic() - reported_at >= EVERY_S and sink.done.tables:
                reported_at = time.monotonic()
                self._measure(sink.pop_result(), ended=False)
                self._notes.record_progress(self._done.batch)
            left = until - time.monotonic()
            return self._ended.wait(max(min(seconds, left), 0)) or left <= 0

        return over


def report_database_metrics(access: ConnectorAccess, done: Mapping[str, Any], log: Any, **more: Any) -> None:
    """Report metrics; an error of the report does not fail the task.

    :param done: as of :meth:`airflow_provider_cdc.targets.database.apply.apply_result.DatabaseApplyResult.to_document`
    :param more: of :func:`~airflow_provider_cdc.operators.base.apply_metrics.measure_report`
    """
    from airflow_provider_cdc.operators.base.apply_metrics import measure_report

    report: ApplyOutcome = {
        "last_batch": done["batch"], "tables": [*done["tables"].values()], "failed": done["failed"],
        "lagging": done.get("lagging", {}), "table_states": {},
    }  # fmt: skip
    try:
        measure_report(access, TARGET, done["place"], report, **more)
    except Exception:
        log.warning("The metrics of connector %s could not be reported.", access.definition.name, exc_info=True)


def emit_asset_events(
    context: Context, access: ConnectorAccess, done: Mapping[str, Any], log: Any, *, keep: bool = False
) -> dict[str, Any]:
    """Emit the events of changed assets, also for failed earlier runs of the task, and return the task's result.

    :param done: as of :meth:`airflow_provider_cdc.targets.database.apply.apply_result.DatabaseApplyResult.to_document`
    :param keep: events that earlier runs have left stay for the next one, too
    """
    from airflow_provider_cdc.changelog.reports.apply_report_store import merge_by_table

    connector, left = access.definition.name, _unannounced(context, access)
    try:
        older = left.read()
    except CdcError as e:  # they stay where they are
        older = []
        log.warning(
            "The pending asset events of earlier runs of the task cannot be read; the next run tries again: %s", e
        )
    tables = merge_by_table([*older, *done["tables"].values()])
    for table in tables:
        topic, batch = table["topic"], max(done["batch"], table["last_batch"])
        extra: dict[str, Any] = {"rows": table["rows"], "last_batch": batch, "location": table["location"]}
        events = context["outlet_events"][build_connector_alias(connector)]
        events.add(build_topic_asset(connector, topic), extra=extra)
        log.info("%s: %d events.", topic, sum(table["rows"].values()))
    try:
        if older and not keep:
            left.delete_all()
    except CdcError as e:  # rather twice than never
        log.warning("The pending asset events of earlier runs of the task are emitted, but cannot be deleted: %s", e)
    return {
        "connector": connector, "target": done["place"], "last_batch": done["batch"], "events": sum(sum(table["rows"].values()) for table in tables),
        "tables": [table["topic"] for table in tables], "seconds": done["seconds"],
    }  # fmt: skip


def left_to_next_run(context: Context, access: ConnectorAccess, done: Mapping[str, Any], log: Any) -> None:
    """Record the changes of a run that has failed or was ended: Airflow takes no events of it, and the next run of the task emits them.

    :param done: as of :meth:`airflow_provider_cdc.targets.database.apply.apply_result.DatabaseApplyResult.to_document`
    """
    if not done["tables"]:
        return
    try:
        _unannounced(context, access).add(done["tables"].values())
    except CdcError as e:
        log.warning("The asset events of this run cannot be stored for the next run of the task: %s", e)


def _unannounced(context: Context, access: ConnectorAccess) -> AssetEventOutbox:
    from airflow_provider_cdc.changelog.reports.asset_event_outbox import AssetEventOutbox

    ti = context["ti"]
    task = f"{ti.dag_id}.{ti.task_id}.{getattr(ti, 'map_index', -1)}"
    return AssetEventOutbox(access.open_change_log().storage, access.definition.name, task)
