"""Conditions under which a sensor begins a run, besides changes at the source, and its records about that.

The decisions are in :mod:`airflow_provider_cdc.core.lifecycle.next_run`.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from airflow_provider_cdc.core.lifecycle.next_run import RETRY_AFTER_S, RunHold, find_due_apply, find_hold
from airflow_provider_cdc.core.spi.state_records import RunFailure
from airflow_provider_cdc.hooks.state import CdcStateHook, records_of
from airflow_provider_cdc.services.tasks.apply_notes import format_task_key
from airflow_provider_cdc.services.text.status_texts import format_wait

if TYPE_CHECKING:
    from airflow.sdk import Context

    from airflow_provider_cdc.core.spi.state_records import ConnectorRecord, TaskRun
    from airflow_provider_cdc.services.connectors.connector_handle import ConnectorAccess

log = logging.getLogger(__name__)

_PATIENCE_S = 5
"""Seconds that a record is tried while the state database cannot be reached."""


@dataclass(frozen=True, slots=True)
class RunStart:
    """Conditions of a sensor.

    :param tasks: that apply in the run, as :func:`~airflow_provider_cdc.services.tasks.apply_notes.format_task_key` names them
    :param retry_after_s: seconds after a failure that needs a person before a run is tried without a sign of a repair; 0: at once
    :param persons_only: there is no wait after other failures
    """

    tasks: tuple[str, ...] = ()
    retry_after_s: float = RETRY_AFTER_S
    persons_only: bool = False

    @classmethod
    def from_context(cls, context: Context, task_ids: Sequence[str], retry_after_s: float) -> RunStart:
        """Build the conditions of a sensor.

        :param task_ids: tasks of the same DAG that apply
        """
        dag_id = context["ti"].dag_id if task_ids else ""
        return cls(tuple(format_task_key(dag_id, task_id) for task_id in task_ids), retry_after_s)

    def to_document(self) -> dict[str, Any]:
        """Convert it to JSON; :meth:`from_document` is the way back."""
        return {"tasks": list(self.tasks), "retry_after_s": self.retry_after_s}

    @classmethod
    def from_document(cls, document: dict[str, Any] | None) -> RunStart:
        """Build the conditions again; ``None`` stands for the default ones."""
        return cls() if document is None else cls(tuple(document["tasks"]), document["retry_after_s"])

    def decide(self, record: ConnectorRecord | None, access: ConnectorAccess) -> str | RunHold | None:
        """Decide whether a run begins, whatever the source says.

        :return: the reason for a run; the wait after a failure; ``None``: the source decides
        """
        now = datetime.now(UTC)
        due = find_due_apply(record, self.tasks, now, retry_after_s=self.retry_after_s)
        if due is not None:
            return due
        hold = find_hold(record, access.definition.compute_digest(), now, retry_after_s=self.retry_after_s)
        return None if hold is None or (self.persons_only and not hold.failure.needs_person) else hold

    def decide_now(self, access: ConnectorAccess) -> str | RunHold | None:
        """Read the state of a connector, and decide.

        :raises CdcError: the state tables cannot be queried
        """
        name = access.definition.name
        with CdcStateHook(access.state_conn_id).open_store() as store:
            record = records_of(store, [name])[name]
            if isinstance(record, Exception):
                raise record
            decision = self.decide(record, access)
            if isinstance(decision, RunHold):
                store.record_wait(name, decision.until)
        return decision


def format_hold(connector: str, hold: RunHold) -> str:
    """Format a wait, with the command that ends it."""
    return format_wait(connector, hold.failure.name, hold.until)


def record_failure(
    access: ConnectorAccess, text: str, name: str, task_run: TaskRun | None = None, *, needs_person: bool = True
) -> None:
    """Record a failure that came before a capture could begin, for pages, alerts, and the sensor of the next run, which waits after it.

    An error of the record fails nothing.

    :param name: class of the error
    :param task_run: the try that fails
    """
    try:
        with CdcStateHook(access.state_conn_id).open_store(patience_s=_PATIENCE_S) as store:
            digest = access.definition.compute_digest()
            failure = RunFailure(name, needs_person=needs_person, definition=digest, task_run=task_run)
            store.record_run_end(access.definition.name, text, None, failure)
    except Exception as e:  # the task fails anyway, with the error that matters more
        log.warning("The error of connector %s could not be recorded: %s", access.definition.name, e)
