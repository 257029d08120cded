"""Stores the progress of targets, beside the offsets of their connectors."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Collection
from datetime import UTC, datetime
from typing import Any

import sqlalchemy as sa

from airflow_provider_cdc.core.spi.state_records import RunFailure, TargetProgress
from airflow_provider_cdc.state.desired_state import complete_failure, lock_control_row
from airflow_provider_cdc.state.models import TargetRow
from airflow_provider_cdc.state.state_database import StateDatabase, to_storable_text


def place_of(target: str, location: str) -> str:
    """Return the text that stands for a target in keys: locations may be too long for those.

    >>> len(place_of("delta", "s3a://lake/{database}/{table}"))
    64
    """
    return hashlib.sha256(f"{target}\n{location}".encode()).hexdigest()


class TargetNotes:
    """Stores the progress of targets, as their applies note it.

    A location may be empty, as long as a task does not know where its target is: then its last one is meant.
    """

    def __init__(self, database: StateDatabase) -> None:
        self._database = database

    def record_begin(self, connector: str, target: str, location: str, task: str) -> None:
        """Record that an apply has begun. Another target that the task has applied to before is forgotten: the task applies to this one now."""
        self._write(connector, target, location, task, {"began_at": datetime.now(UTC)})

    def record_end(
        self,
        connector: str,
        target: str,
        location: str,
        task: str,
        batch: int | None,
        error: str | None = None,
        failure: RunFailure | None = None,
    ) -> None:
        """Record how an apply has ended.

        :param batch: that all tables have, but those that have failed; ``None`` if it is not known
        :param error: that it has failed with
        :param failure: the same error
        """
        values: dict[str, Any] = {"ended_at": datetime.now(UTC)} | ({} if batch is None else {"batch": batch})
        self._write(connector, target, location, task, values, error, failure)

    def record_progress(self, connector: str, target: str, location: str, task: str, batch: int) -> None:
        """Record the progress of an apply that continues."""
        self._write(connector, target, location, task, {"batch": batch})

    def _write(
        self,
        connector: str,
        target: str,
        location: str,
        task: str,
        values: dict[str, Any],
        error: str | None = None,
        failure: RunFailure | None = None,
    ) -> None:
        t, place = TargetRow, place_of(target, location)
        mine = (t.connector == connector) & (t.place == place if location else t.task == task)
        for attempt in self._database.iterate_attempts("note the progress of a target"):
            with attempt, self._database.open_transaction() as c:
                control = lock_control_row(c, connector)  # one at a time: a row is read, and then written
                before = c.execute(sa.select(t.failures, t.failure).where(mine)).first()
                if "ended_at" in values:
                    values |= {"failures": 0, "failure": None, "error": None}
                if error is not None:
                    values["failures"] = 1 + (0 if before is None else before.failures)
                    values["error"] = to_storable_text(error, 10_000)
                    if failure is not None:
                        last = None if before is None else before.failure
                        values["failure"] = complete_failure(c, control, failure, last)
                if before is not None:
                    c.execute(sa.update(t).where(mine).values(task=task, **values))
                else:
                    first = {"batch": 0, "failures": 0, "began_at": values.get("ended_at") or datetime.now(UTC)}
                    of = {"connector": connector, "place": place, "target": target, "location": location, "task": task}
                    c.execute(sa.insert(t).values(**{**first, **of, **values}))
                if location:
                    stale = (t.connector == connector) & (t.place != place) & (t.task == task)
                    c.execute(sa.delete(t).where(stale))

    def forget_target(self, connector: str, target: str, location: str) -> None:
        """Delete the note of a target, which gets no changes any more."""
        t = TargetRow
        for attempt in self._database.iterate_attempts("forget a target"):
            with attempt, self._database.open_transaction() as c:
                c.execute(sa.delete(t).where(t.connector == connector, t.place == place_of(target, location)))


def load_targets(c: sa.Connection, connectors: Collection[str] | None) -> dict[str, list[TargetProgress]]:
    """Load the targets of some connectors, or of all, by one query.

    :return: connector → its targets, by kind and location
    """
    statement = sa.select(TargetRow.__table__)
    if connectors is not None:
        statement = statement.where(TargetRow.connector.in_(connectors))
    targets: dict[str, list[TargetProgress]] = defaultdict(list)
    for row in c.execute(statement.order_by(TargetRow.target, TargetRow.place)):
        targets[row.connector].append(
            TargetProgress(
                row.target, row.location, row.task, row.began_at, row.batch, row.failures,
                None if row.failure is None else RunFailure.from_document(row.failure), row.error, row.ended_at,
            )
        )  # fmt: skip
    return targets
