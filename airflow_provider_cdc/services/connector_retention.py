"""Removes old data of a connector that is not needed any more: batches of its change log, rows of the state tables.

It serves tasks and commands, without Spark.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from airflow_provider_cdc.core.error_texts import describe_error
from airflow_provider_cdc.core.errors import CdcError

if TYPE_CHECKING:
    from airflow_provider_cdc.changelog.retention.retention_plan import RetentionPlan
    from airflow_provider_cdc.services.connectors.connector_handle import ConnectorAccess
    from airflow_provider_cdc.state.state_store import StateStore

T = TypeVar("T")
INDEX_S = 300.0
"""How long a maintenance brings the index of keys up to date; the next one continues."""

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class RetentionResult:
    """The result of retention for a connector's change log and its rows in the state tables.

    A failure of the one does not stop the other.

    :param plan: the removal of batches, done or planned; ``None`` if that has failed
    :param rows: kind of row of the state tables → how many were removed; ``None`` if that has failed, or was not to be done
    :param log_error: error of the change log
    :param state_error: error of the state tables
    :param not_indexed: batches that the index of keys still lacks, though there was time for the others; ``None`` if it was not to be brought up, or that has failed
    :param index_error: error of the index
    """

    connector: str
    plan: RetentionPlan | None = None
    rows: dict[str, int] | None = None
    log_error: Exception | None = None
    state_error: Exception | None = None
    not_indexed: int | None = None
    index_error: Exception | None = None

    @property
    def step_errors(self) -> list[Exception]:
        """Errors of the steps that have failed."""
        return [error for error in (self.log_error, self.index_error, self.state_error) if error is not None]

    @property
    def problem_texts(self) -> list[str]:
        """Texts about the steps that have failed, for people."""
        return [problem for problem in (self._log_problem, self._index_problem, self._state_problem) if problem]

    def format_lines(self) -> list[str]:
        """Format the results for people."""
        from airflow_provider_cdc.core.lifecycle.state_retention import removed_text

        done = [] if self.plan is None else self.plan.format_lines(self.connector)
        if self.not_indexed:
            done.append(f"Index of keys: {self.not_indexed} batches are left for the next maintenance.")
        return done if self.rows is None else [*done, f"State tables: {removed_text(self.rows)}"]

    def held_back(self) -> list[str]:
        """Return the reasons that hold batches back, for people: the part of :meth:`format_lines` that a person should look at."""
        return [] if self.plan is None else self.plan.format_lines(self.connector)[1:]

    def to_document(self) -> dict[str, Any]:
        """Convert the result to JSON.

        It has ``changelog`` and ``state``, with ``problem``, and the contents of
        :meth:`airflow_provider_cdc.changelog.retention.retention_plan.RetentionPlan.to_document` and ``removed``.
        """
        return {
            "changelog": {"problem": self._log_problem, **({} if self.plan is None else self.plan.to_document())},
            "state": {"problem": self._state_problem, "removed": self.rows},
        }

    @property
    def _log_problem(self) -> str:
        return (
            ""
            if self.log_error is None
            else f"Old batches of {self.connector} could not be removed: {describe_error(self.log_error)}"
        )

    @property
    def _index_problem(self) -> str:
        return (
            ""
            if self.index_error is None
            else f"The index of keys of {self.connector} is not up to date: {describe_error(self.index_error)}"
        )

    @property
    def _state_problem(self) -> str:
        return (
            ""
            if self.state_error is None
            else f"Old rows of {self.connector} in the state tables could not be removed: {describe_error(self.state_error)}"
        )


def run_retention(
    access: ConnectorAccess,
    opened: Callable[[], AbstractContextManager[StateStore]],
    *,
    dry_run: bool = False,
    at_once: bool = False,
) -> RetentionResult:
    """Remove data that ``changelog.retention.*`` and ``state.retention.*`` of the connector's definition do not keep, and bring the index of keys up to date.

    An error is not raised: other maintenance does not depend on it.

    :param opened: opens the state tables
    :param dry_run: only report the batches of the change log that would be removed; the state tables are not read
    :param at_once: remove all batches that every target has applied, however long ago. The index of keys is not brought up to date: it needs space
    """
    plan, log_error = _tried(lambda: _retain_log(access, dry_run=dry_run, at_once=at_once))
    no_index = dry_run or at_once or log_error is not None
    left, index_error = (None, None) if no_index else _tried(lambda: _index(access))
    rows, state_error = (None, None) if dry_run else _tried(lambda: _retain_state(access, opened))
    return RetentionResult(access.definition.name, plan, rows, log_error, state_error, left, index_error)


def _retain_log(access: ConnectorAccess, *, dry_run: bool, at_once: bool) -> RetentionPlan:
    from airflow_provider_cdc.changelog.retention.batch_retention import Retention, RetentionLimits

    definition = access.definition
    limits = RetentionLimits.from_properties(definition.properties)
    retention = Retention(access.open_change_log(), definition.name, limits, at_once=at_once)
    return retention.plan_removal() if dry_run else retention.run()


def _index(access: ConnectorAccess) -> int:
    from airflow_provider_cdc.changelog.row_history.key_index import bring_up_index

    return bring_up_index(access.open_change_log(), access.definition.name, seconds=INDEX_S)


def _retain_state(access: ConnectorAccess, opened: Callable[[], AbstractContextManager[StateStore]]) -> dict[str, int]:
    from airflow_provider_cdc.core.lifecycle.state_retention import prune_state

    with opened() as store:
        return prune_state(store, access.definition.name, access.definition.properties)


def _tried(step: Callable[[], T]) -> tuple[T | None, Exception | None]:
    try:
        return step(), None
    except (CdcError, OSError) as e:
        log.debug("A step of the maintenance has failed.", exc_info=True)
        return None, e
