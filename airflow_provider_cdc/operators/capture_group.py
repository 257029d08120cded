"""The task that captures several small connectors, one after the other."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseOperator

from airflow_provider_cdc.core.error_texts import describe_error
from airflow_provider_cdc.core.errors import (
    CdcError,
    ConnectorHalted,
    LeaseHeld,
    LeaseLost,
    SourceUnavailable,
    TerminalError,
)
from airflow_provider_cdc.core.spi.state_records import RunFailure
from airflow_provider_cdc.hooks.state import DEFAULT_CONN_ID, CdcStateHook
from airflow_provider_cdc.operators.base.openlineage_events import build_capture_lineage
from airflow_provider_cdc.operators.base.operator_links import ConnectorsLink
from airflow_provider_cdc.operators.capture import report_result
from airflow_provider_cdc.services.connectors.grouped_connectors import (
    ChangeInspection,
    GroupedConnector,
    GroupFields,
    inspect_changes,
)
from airflow_provider_cdc.services.connectors.parameter_checks import parse_optional_seconds, parse_seconds
from airflow_provider_cdc.services.tasks.connector_fields import owner_of, task_run_of, to_airflow_exception
from airflow_provider_cdc.services.tasks.run_start import RunStart, format_hold
from airflow_provider_cdc.targets.task_watch import end_with_supervisor

if TYPE_CHECKING:
    from airflow.providers.openlineage.extractors import OperatorLineage
    from airflow.sdk import Context

    from airflow_provider_cdc.core.capture.connector_capture import Capture, TableCaptureResult
    from airflow_provider_cdc.services.connectors.connector_handle import ConnectorAccess

_SHOWN = 10


class CaptureGroupOperator(GroupFields, BaseOperator):
    """Captures several connectors by one process, one after the other, each up to the end of its source's log.

    It is for many small ones, of which each would need less than the start of a process.

    Each has its own lease, offset and change log, as with a :class:`~airflow_provider_cdc.operators.capture.CaptureOperator` for itself, and the
    state, the page and the commands know no difference. One that fails keeps none of the others from being captured; the task fails at its end, and
    names it. It is tried again unless a person must act for each that has failed. Those that are paused or stopped are left out.

    A connector with much to do, such as a first snapshot of large tables, holds up those behind it: give it a separate task.

        >>> CaptureGroupOperator(task_id="capture", connectors=[GroupedConnector(definition=shop, conn_id="shop_mariadb"), …])

    Returns ``{"connectors", "quiet", "unreachable"}``: by name the result of ``CaptureOperator``, with 10 topics instead of 50; how many had nothing to
    capture; and the names of those that were left out by ``skip_unreachable``.

    :param connectors: properties, paths and ids of connections are templated
    :param state_conn_id: Airflow connection to the state tables (templated)
    :param check_first: check all of them first, as the sensor does, and begin a capture only where there is something to do. Each source is queried
        once, however many connectors it has; connectors whose sources answer late are captured last
    :param skip_unreachable: leave out a connector whose source cannot be reached at that check, with a warning, instead of failing at the end: for a task
        behind a sensor, which continues to ask it. If nothing else is captured, it is a failure all the same, as one during its capture is
    :param retry_after: leave out a connector that waits after a failure, with a warning: it fails once in so long a time, unless something is repaired before,
        and others are captured meanwhile. Without it, each run tries it. It needs ``check_first``
    :param lease_ttl: seconds after which the lease of a run that died is free
    :param lease_wait: seconds to wait for the lease of another run, for each connector
    :raises ConfigError: there are no connectors, or one is there twice
    """

    template_fields: Sequence[str] = GroupFields.GROUP_FIELDS
    template_fields_renderers = {"connectors": "json"}
    FLAGS = ("check_first", "skip_unreachable")
    operator_extra_links = (ConnectorsLink(),)
    ui_color = "#e3f2e1"

    def __init__(
        self,
        *,
        connectors: Sequence[GroupedConnector],
        state_conn_id: str = DEFAULT_CONN_ID,
        check_first: bool = True,
        skip_unreachable: bool = False,
        retry_after: float | timedelta | None = None,
        lease_ttl: float | timedelta = 30.0,
        lease_wait: float | timedelta = 10.0,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self._set_group(connectors, state_conn_id)
        self.check_first, self.skip_unreachable = check_first, skip_unreachable
        self.retry_after = parse_optional_seconds("retry_after", retry_after)
        self.lease_ttl = parse_seconds("lease_ttl", lease_ttl)
        self.lease_wait = parse_seconds("lease_wait", lease_wait, zero=True)
        self.check_parameters()
        self._capture: Capture | None = None
        self._captured: list[tuple[ConnectorAccess, dict[str, TableCaptureResult]]] = []
        self._ended = False

    def execute(self, context: Context) -> dict[str, Any]:
        from airflow_provider_cdc.hooks.airflow_compat import AirflowException

        try:
            looked = self._looked(context)
        except CdcError as e:
            raise to_airflow_exception(e) from e
        results = _GroupResult()
        with end_with_supervisor(self.on_kill):
            for inspection in looked:
                if self._ended:
                    break
                self._attempt(inspection, context, results)
        if self._ended:
            earlier_failures = f" Earlier failures: {_texts(results.failed)}" if results.failed else ""
            raise AirflowException(
                f"The task was stopped before all connectors were captured: the captured changes are committed, and the next try continues.{earlier_failures}"
            )
        # the sensor could reach these sources, but this task cannot: the sensor would start the next run at once
        if not results.done:
            results.failed |= results.unreachable
        if results.failed:
            self._record(results.failed, context)
            raise _failure(results.failed, len(self.connectors))
        quiet = len(self.connectors) - len(results.done) - len(results.unreachable)
        self.log.info("Captured %d connectors; %d had nothing to capture.", len(results.done), quiet)
        return {"connectors": results.done, "quiet": quiet, "unreachable": list(results.unreachable)}

    def _looked(self, context: Context) -> Iterable[ChangeInspection]:
        accesses = self.connector_accesses
        decide = None
        if (
            self.retry_after is not None and context["ti"].try_number == 1
        ):  # a retry has to capture what has failed before it
            decide = RunStart(retry_after_s=self.retry_after, persons_only=True).decide
        return (
            inspect_changes(accesses, decide)
            if self.check_first
            else [ChangeInspection(access, "a run was requested") for access in accesses]
        )

    def get_openlineage_facets_on_complete(self, task_instance: Any) -> OperatorLineage[Any, Any]:
        """Return the captured tables of the run, for Airflow's OpenLineage provider."""
        from airflow.providers.openlineage.extractors import OperatorLineage

        lineages = [
            build_capture_lineage(tables, access.definition.changelog, access.definition.name)
            for access, tables in self._captured
        ]
        return OperatorLineage(
            inputs=[data for lineage in lineages for data in lineage.inputs],
            outputs=[data for lineage in lineages for data in lineage.outputs],
        )

    def get_openlineage_facets_on_failure(self, task_instance: Any) -> OperatorLineage[Any, Any]:
        """Return the captured tables of the connectors that have not failed: the next try does not capture them again."""
        return self.get_openlineage_facets_on_complete(task_instance)

    def on_kill(self) -> None:
        self._ended = True
        if (capture := self._capture) is not None:
            self.log.warning("Ending at the next transaction boundary.")
            capture.stop()

    def _attempt(self, inspection: ChangeInspection, context: Context, results: _GroupResult) -> None:
        """Capture a connector if there is anything to do, and record its result."""
        name = inspection.access.definition.name
        try:
            if inspection.hold is not None:
                self.log.warning("Skipped connector %s. %s", name, format_hold(name, inspection.hold))
                return
            if inspection.error is not None:
                if self.skip_unreachable and isinstance(inspection.error, SourceUnavailable):
                    results.unreachable[name] = inspection.error
                    self.log.warning(
                        "Skipped connector %s, because its source cannot be reached. %s",
                        name,
                        describe_error(inspection.error),
                    )
                    return
                raise inspection.error
            if inspection.reason is not None:
                results.done[name] = self._capture_connector(inspection.access, inspection.reason, context)
        except ConnectorHalted as e:
            self.log.warning("Skipped: %s", describe_error(e))
        except CdcError as e:
            results.failed[name] = e
            self.log.error("Connector %s failed; the other connectors continue. %s", name, describe_error(e))
        except Exception as e:
            # no error may keep the others from being captured; the task fails with it
            results.failed[name] = e
            self.log.exception("Connector %s failed; the other connectors continue.", name)

    def _record(self, failed: dict[str, Exception], context: Context) -> None:
        """Record failures for the page, the commands, and the sensor of the next run, also of those that have failed before a capture could begin."""
        digests = {access.definition.name: access.definition.compute_digest() for access in self.connector_accesses}
        try:
            with CdcStateHook(self.state_conn_id).open_store() as store:
                for name, error in failed.items():
                    if not isinstance(error, LeaseHeld | LeaseLost):  # the run that has the lease records how it ends
                        failure = RunFailure.from_error(error, digests[name], task_run_of(context))
                        store.record_run_end(name, describe_error(error), None, failure)
        except Exception as e:  # the task fails anyway, with errors that matter more
            self.log.warning("The errors of the captures could not be recorded: %s", e)

    def _capture_connector(self, access: ConnectorAccess, reason: str, context: Context) -> dict[str, Any]:
        definition = access.definition
        self.log.info(
            "Capturing connector %s (%s) into %s: %s.", definition.name, definition.source, definition.changelog, reason
        )
        try:
            with access.prepare_capture(
                owner=owner_of(context),
                lease_ttl_s=self.lease_ttl,
                lease_wait_s=self.lease_wait,
                dag=context["ti"].dag_id,
                task_run=task_run_of(context),
            ) as self._capture:
                if self._ended:
                    self._capture.stop()
                result = self._capture.run()
        finally:
            self._capture = None
        self._captured.append((access, result.tables))
        return report_result(result, definition, _SHOWN, self.log)


@dataclass
class _GroupResult:
    """The results of a run, by connector.

    :ivar done: results of captures
    :ivar unreachable: those left out, as their source cannot be reached
    """

    done: dict[str, dict[str, Any]] = field(default_factory=dict)
    failed: dict[str, Exception] = field(default_factory=dict)
    unreachable: dict[str, Exception] = field(default_factory=dict)


def _failure(failed: dict[str, Exception], of: int) -> Exception:
    """Build the error of the task: it is tried again, unless a person must act for each connector."""
    from airflow_provider_cdc.hooks.airflow_compat import AirflowException, AirflowFailException

    terminal = all(isinstance(e, TerminalError) for e in failed.values())
    others = "; the other connectors were not affected" if len(failed) < of else ""
    return (AirflowFailException if terminal else AirflowException)(
        f"{len(failed)} of {of} connectors failed{others}.\n\n{_texts(failed)}"
    )


def _texts(failed: dict[str, Exception]) -> str:
    return "\n\n".join(f"{name}: {describe_error(e)}" for name, e in failed.items())
