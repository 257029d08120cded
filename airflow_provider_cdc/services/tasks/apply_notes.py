"""Notes of the progress of targets in the state tables: a sensor begins a run as long as a connector owes its targets anything.

>>> notes = ApplyNotes.from_context(context, "shop", "cdc_state_default", "delta", "/lake/{table}")
>>> notes.record_begin()
>>> notes.record_end(12)

A note that cannot be written is no error of the apply. The connector owes the target then, and the next apply, which finds nothing to do, writes it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

from airflow_provider_cdc.core.error_texts import describe_error
from airflow_provider_cdc.core.errors import CdcError, TerminalError
from airflow_provider_cdc.core.spi.state_records import RunFailure
from airflow_provider_cdc.hooks.state import CdcStateHook
from airflow_provider_cdc.services.tasks.connector_fields import task_run_of

if TYPE_CHECKING:
    from airflow.sdk import Context

    from airflow_provider_cdc.core.spi.state_records import TargetProgress, TaskRun
    from airflow_provider_cdc.state.target_notes import TargetNotes

log = logging.getLogger(__name__)

_PATIENCE_S = 5
"""Seconds that a note is tried while the state database cannot be reached."""


def format_task_key(dag_id: str, task_id: str, map_index: int = -1) -> str:
    """Return the text that stands for a task in notes.

    >>> format_task_key("cdc_shop", "apply")
    'cdc_shop.apply.-1'
    """
    return f"{dag_id}.{task_id}.{map_index}"


def task_key(context: Context) -> str:
    """Return the text that stands for the task that is running."""
    ti = context["ti"]
    return format_task_key(ti.dag_id, ti.task_id, getattr(ti, "map_index", -1))


def load_notes(state_conn_id: str, connectors: Collection[str]) -> dict[str, tuple[TargetProgress, ...]]:
    """Load the notes about the targets of connectors by one query, so that those that are right need not be written again.

    :return: connector → its targets; empty if the state tables cannot be read
    """
    try:
        with CdcStateHook(state_conn_id).open_store(patience_s=_PATIENCE_S) as store:
            records = store.load_records(connectors)
    except Exception as e:  # the notes are written then
        log.warning("The notes about targets cannot be read from the state tables: %s", e)
        return {}
    return {name: record.targets for name, record in records.items()}


@dataclass(frozen=True, slots=True)
class ApplyNotes:
    """The notes of one task about one target of a connector.

    :param location: of the tables; empty, as long as it is not known
    :param task: as :func:`task_key` names it
    :param task_run: its try, which is recorded with a failure
    """

    connector: str
    state_conn_id: str
    target: str
    location: str
    task: str
    task_run: TaskRun | None = None

    @classmethod
    def from_context(cls, context: Context, connector: str, state_conn_id: str, target: str, location: str) -> Self:
        """Make the notes of the task that is running."""
        return cls(connector, state_conn_id, target, location, task_key(context), task_run_of(context))

    def is_right(self, targets: Collection[TargetProgress], batch: int) -> bool:
        """Check whether the last apply of this task has ended well and has noted this batch.

        :param targets: as :func:`load_notes` returns them
        """
        place = self.target, self.location, self.task
        return any(
            (noted.target, noted.location, noted.task) == place
            and noted.batch == batch and not noted.failures and not noted.is_at_work
            for noted in targets
        )  # fmt: skip

    def record_begin(self) -> None:
        """Record that an apply has begun."""
        self._write(lambda notes: notes.record_begin(self.connector, self.target, self.location, self.task))

    def record_progress(self, batch: int) -> None:
        """Record the progress of an apply that continues.

        :param batch: that all tables have
        """
        self._write(lambda notes: notes.record_progress(self.connector, self.target, self.location, self.task, batch))

    def record_end(self, batch: int | None) -> None:
        """Record that an apply has ended well.

        :param batch: that all tables have; ``None`` if it is not known
        """
        self._write(lambda notes: notes.record_end(self.connector, self.target, self.location, self.task, batch))

    def record_failure(
        self, error: BaseException | None, batch: int | None = None, *, text: str = "", needs_person: bool = False
    ) -> None:
        """Record that an apply has failed.

        :param error: that the task fails with
        :param batch: that all tables have, but those that have failed; ``None`` if it is not known
        :param text: the error of this target alone, if it has one
        :param needs_person: the report of the job says that a person must act; of an error of this process, its class says it
        """
        failure = RunFailure(
            type(error).__name__ if isinstance(error, CdcError) else "TargetError",
            needs_person or isinstance(error, TerminalError),
            task_run=self.task_run,
        )
        text = text or (describe_error(error) if isinstance(error, CdcError) else str(error) or repr(error))
        self._write(
            lambda notes: notes.record_end(self.connector, self.target, self.location, self.task, batch, text, failure)
        )

    def _write(self, note: Callable[[TargetNotes], None]) -> None:
        try:
            with CdcStateHook(self.state_conn_id).open_store(patience_s=_PATIENCE_S) as store:
                note(store.targets)
        except Exception as e:  # the apply itself matters more
            log.warning(
                "The progress of target %s of %s could not be noted in the state tables: %s",
                self.target,
                self.connector,
                e,
            )
