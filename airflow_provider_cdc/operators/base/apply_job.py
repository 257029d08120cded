"""The base of the tasks that submit the apply, of one connector or of several.

It has a job that ends, one that continues, and the use of its reports.
"""

from __future__ import annotations

import time
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

from airflow_provider_cdc.core.error_texts import describe_error
from airflow_provider_cdc.core.errors import CdcError
from airflow_provider_cdc.operators.base.continuous_job_control import ContinuousApplyJob
from airflow_provider_cdc.operators.base.jvm_class_archive import ClassArchive
from airflow_provider_cdc.operators.base.openlineage_events import build_apply_lineage
from airflow_provider_cdc.operators.base.spark_job_operator import SparkScriptOperator
from airflow_provider_cdc.services.connectors.parameter_checks import parse_optional_seconds
from airflow_provider_cdc.services.submit.spark_job import JobStatus
from airflow_provider_cdc.services.tasks.apply_notes import ApplyNotes, load_notes
from airflow_provider_cdc.services.tasks.connector_fields import (
    is_last_try,
    owner_of,
    refuse_backfill,
    to_airflow_exception,
)

if TYPE_CHECKING:
    from airflow.providers.openlineage.extractors import OperatorLineage
    from airflow.sdk import Context

    from airflow_provider_cdc.core.spi.state_records import TargetProgress
    from airflow_provider_cdc.hooks.airflow_compat import AirflowException
    from airflow_provider_cdc.operators.base.connector_apply_report import ConnectorTables


class ApplyJobOperator(SparkScriptOperator):
    """A task that applies change logs. Connectors are independent: an error of one does not stop the others."""

    run_for: float | None
    state_conn_id: str
    _applied: Sequence[ConnectorTables] = ()
    _warm: ContinuousApplyJob | None = None
    _ended_by_airflow = False
    _noted: Mapping[str, Sequence[TargetProgress]] = {}

    # -- for those who inherit ----------------------------------------------------------------------------------------

    @abstractmethod
    def _connectors(self) -> list[ConnectorTables]:
        """Return the connectors to apply, by the rendered fields."""

    @abstractmethod
    def _connector_names(self) -> list[str]:
        """Return the names of the connectors to apply."""

    @abstractmethod
    def _tell_job(self, connectors: Sequence[ConnectorTables], *more: str) -> None:
        """Set the job and its arguments.

        :param more: arguments that are those of any apply
        """

    @abstractmethod
    def _result(self, done: Sequence[dict[str, Any]]) -> dict[str, Any]:
        """Build the result that the task returns.

        :param done: the results of its connectors
        """

    # -- the task -----------------------------------------------------------------------------------------------------

    def execute(self, context: Context) -> dict[str, Any]:  # type: ignore[override]
        from airflow_provider_cdc.hooks.airflow_compat import TaskDeferred

        began = time.monotonic()
        try:
            if self.run_for is not None:
                refuse_backfill(context)
            self._refuse_secrets()  # also if there is nothing to submit
            self._applied = self._connectors()
            self._noted = load_notes(self.state_conn_id, self._connector_names())
            done = self._once(context) if self.run_for is None else self._go_on(context)
        except TaskDeferred:  # the task is not over
            raise
        except BaseException as e:
            self._record_end(context, time.monotonic() - began, e)
            if isinstance(e, CdcError):
                raise to_airflow_exception(e) from e
            raise
        self._record_end(context, time.monotonic() - began, None)
        return done

    def resume(
        self, context: Context, event: dict[str, Any], connectors: list[str], owner: str, began: float
    ) -> dict[str, Any]:
        """Continue after the triggerer has waited for the job.

        :param event: of :class:`~airflow_provider_cdc.triggers.spark_job.SparkJobTrigger`
        :param connectors: names of those that were submitted
        :param owner: of the job
        :param began: Unix time of the task's begin
        """
        from airflow_provider_cdc.hooks.airflow_compat import AirflowException

        try:
            self._applied = self._connectors()
            todo = [connector for connector in self._applied if connector.connector_name in connectors]
            for connector in self._applied:
                self._tried(connector, partial(connector.attach_report, owner if connector in todo else ""))
            error = self._build_end_error(JobStatus(**event)) if "stage" in event else AirflowException(event["error"])
            done = self._finish(context, todo, error)
        except BaseException as e:
            self._record_end(context, time.time() - began, e)
            if isinstance(e, CdcError):
                raise to_airflow_exception(e) from e
            raise
        self._record_end(context, time.time() - began, None)
        return done

    def _record_end(self, context: Context, seconds: float, error: BaseException | None) -> None:
        """Record how the task has ended: its metrics, and what each target has now.

        :param error: that it fails with
        """
        self._measure(seconds, failed=error is not None)
        blamed = [connector for connector in self._applied if connector.trouble] or self._applied
        for connector in self._applied:
            try:
                noted = self._noted.get(connector.connector_name, ())
                connector.record_end(context, error if connector in blamed else None, noted)
            except CdcError as e:  # the result of the apply matters more
                self.log.warning("The progress of connector %s could not be noted: %s", connector.connector_name, e)
        for name in self._connector_names() if not self._applied else ():  # their fields cannot be used
            ApplyNotes.from_context(context, name, self.state_conn_id, self.target, "").record_failure(error)

    def _measure(self, seconds: float, *, failed: bool) -> None:
        """Report metrics; an error of the report does not fail the task.

        The failure of one connector does not count for the others. A run that Airflow has ended counts as ended, unless the job has reported an error.
        """
        from airflow_provider_cdc.operators.base.apply_metrics import report_apply_metrics

        blamed: Sequence[ConnectorTables] = [connector for connector in self._applied if connector.trouble]
        if self._ended_by_airflow:
            blamed = [connector for connector in blamed if connector.has_reported_error()]
        else:
            blamed = blamed or self._applied
        for connector in self._applied:
            try:
                report_apply_metrics(connector, failed=failed and connector in blamed, seconds=seconds)
            except Exception:
                self.log.warning(
                    "The metrics of connector %s could not be reported.", connector.connector_name, exc_info=True
                )

    def _once(self, context: Context) -> dict[str, Any]:
        todo = [connector for connector in self._applied if self._tried(connector, connector.needs_apply)]
        if not todo:
            self.log.info("Spark is not started.")
            return self._end(context, todo, None)
        owner = owner_of(context)
        for connector in todo:
            connector.owner = owner
            connector.build_notes(context).record_begin()
        archive = self._complete(todo, "--owner", owner, little=all(connector.little for connector in todo))
        names = [connector.connector_name for connector in todo]
        self._defer_submission(context, "resume", connectors=names, owner=owner, began=time.time())
        return self._finish(context, todo, self._submit(context), archive)

    def _finish(
        self,
        context: Context,
        todo: Sequence[ConnectorTables],
        error: AirflowException | None,
        archive: ClassArchive | None = None,
    ) -> dict[str, Any]:
        """Read the reports of a job that has ended.

        :param todo: connectors that were submitted
        """
        for connector in todo:
            self._tried(connector, partial(connector.read_job_report, error))
        if archive is not None and error is None:
            archive.store_new_archive()
        elif archive is not None:
            archive.discard_new_archive()
        making = archive is not None and archive.making
        if error is not None and making and not any(connector.trouble for connector in todo):
            self.log.warning(
                "All tables are up to date; only the archive of the job's classes could not be created: %s", error
            )
            error = None
        return self._end(context, todo, error)

    def _go_on(self, context: Context) -> dict[str, Any]:
        warm = ContinuousApplyJob(context)
        todo = [
            connector
            for connector in self._applied
            if self._tried(connector, partial(connector.attach_job, warm.owner))
        ]
        warm.tasks = [connector.warm for connector in todo if connector.warm is not None]
        self._warm = warm
        error: AirflowException | None = None
        for connector in todo:
            connector.build_notes(context).record_begin()
        if todo:
            self._complete(todo, "--run-for", f"{self.run_for:g}", "--owner", warm.owner)
            with warm.track_submission():
                error = self._submit(context)
            for connector in todo:
                self._tried(connector, partial(connector.read_last_report, error))
        # a retry would only take over from the continuing job, which has the same trouble
        troubled = [connector for connector in self._applied if connector.trouble]
        given_up = bool(troubled) and all(self._tried(connector, connector.is_superseded) for connector in troubled)
        if warm.killed and error is None and not troubled:
            return self._ended_early(context, todo)
        return self._end(context, todo, error, given_up=given_up)

    def _ended_early(self, context: Context, todo: Sequence[ConnectorTables]) -> dict[str, Any]:
        """Return the result of a task that was ended from outside, and whose job has ended well.

        :raises AirflowException: no other job has taken over: a success would leave the tables without a job until the next run begins
        """
        from airflow_provider_cdc.hooks.airflow_compat import AirflowException

        if not all(self._tried(connector, connector.is_superseded) for connector in todo):
            self._remember(context)
            raise AirflowException(
                "The task was stopped before run_for ended: its job has finished its last commit, and the next try continues."
            )
        done = self._end(context, todo, None)
        for connector in todo:  # the state may be decided already, and then these events are dropped
            self._tried(connector, partial(connector.record_pending_events, context, for_good=False))
        return done

    def _tried(self, connector: ConnectorTables, action: Callable[[], bool]) -> bool:
        """Run an action on a connector, and return its result.

        If it fails, this connector alone has the trouble, if there are others.
        """
        try:
            return action()
        except Exception as e:
            if len(self._applied) == 1:
                raise
            self.log.warning(
                "Connector %s: %s", connector.connector_name, describe_error(e), exc_info=not isinstance(e, CdcError)
            )
            connector.trouble = connector.trouble or f"Connector {connector.connector_name}: {describe_error(e)}"
            return False

    def _end(
        self,
        context: Context,
        todo: Sequence[ConnectorTables],
        error: AirflowException | None,
        *,
        given_up: bool = False,
    ) -> dict[str, Any]:
        """Emit the events; or if something has failed, remember them for the next try.

        :param todo: connectors that were submitted
        :param error: that the job has ended with
        :param given_up: another try would be of no use
        """
        from airflow_provider_cdc.hooks.airflow_compat import AirflowException, AirflowFailException

        troubled = [connector for connector in self._applied if connector.trouble]
        if not troubled and error is None:
            done = [connector.emit_asset_events(context) for connector in self._applied]
            for connector in self._applied:
                connector.record_emitted_events()
            return self._result(done)
        self._remember(context, for_good=given_up)
        if (
            error is not None
            and all(connector.lost for connector in troubled)
            and (not troubled or all(connector.lost for connector in todo))
        ):
            raise error  # nothing else is known
        raise (AirflowFailException if given_up else AirflowException)(
            "\n".join(connector.trouble for connector in troubled)
        ) from error

    def _remember(self, context: Context, *, for_good: bool = False) -> None:
        for_good = for_good or is_last_try(context)
        for connector in self._applied:
            self._tried(connector, partial(connector.record_pending_events, context, for_good=for_good))

    def on_kill(self) -> None:
        """End the job; a continuous one ends after its present commit, if it can."""
        warm, self._ended_by_airflow = self._warm, True
        # no process waits for the job any more and reads its report
        alone = warm is not None and not warm.running
        if warm is None or not warm.stop_job(self._wait, self.log):
            super().on_kill()
        if warm is not None and alone:
            for connector in (connector for connector in self._applied if connector.warm is not None):
                self._tried(connector, partial(connector.read_last_report, None))
            self._remember(warm.context)

    def get_openlineage_facets_on_complete(self, task_instance: Any) -> OperatorLineage[Any, Any]:
        """Return the applied tables of the run, for Airflow's OpenLineage provider; also if the run has failed."""
        return build_apply_lineage(
            [connector.lineage for connector in self._applied if connector.lineage is not None], self.target
        )

    # -- the submit ---------------------------------------------------------------------------------------------------

    def _set_run_for(self, run_for: float | timedelta | None) -> None:
        """Set the time for which the job runs.

        :raises ConfigError: it is no time
        """
        self.run_for = parse_optional_seconds("run_for", run_for)

    def _complete(self, connectors: Sequence[ConnectorTables], *more: str, little: bool = False) -> ClassArchive | None:
        """Add the job's needs to the user's settings.

        :param connectors: that are submitted
        :param little: it is little work
        """
        self._tell_job(connectors, *more)
        if not self._default_submit:
            return None
        # a continuous job has its own time to get fast, and ends when no task waits for it
        return self._program.tune_jvm(little=little, make=self.run_for is None)
