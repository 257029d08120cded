"""Decides when the next run of a connector begins: what is owed to its targets, and how long it waits after a failure.

Plain functions over the connector's record in the state tables, so that sensors, triggers, pages and commands decide alike.

>>> find_due_apply(record, ["cdc_shop.apply.-1"], now)
'batches up to 12 are not applied to delta at /lake/{table}'
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from airflow_provider_cdc.core.spi.desired_state import DesiredState
from airflow_provider_cdc.core.spi.state_records import ConnectorRecord, RunFailure, TargetProgress, marks_of

RETRY_AFTER_S = 3600.0
"""Seconds after a failure that needs a person before a run is tried without a sign of a repair."""
FIRST_PAUSE_S = 15.0
"""Pause after a first failure that may pass by itself; each further one doubles it."""
LONGEST_PAUSE_S = {"apply": 30.0, "capture": 60.0}
"""Longest of these pauses. A run and its Spark session take their time, too: a target that is back is up to date within a minute."""
AT_WORK_S = 60.0
"""Seconds after which an apply that has begun and not ended counts as killed. A run that begins too early only waits for it, or finds nothing to do."""


@dataclass(frozen=True, slots=True)
class OwedApply:
    """Batches that are captured and not applied.

    :param target: ``None``: no apply of the task has noted its target yet
    :param due: when an apply is tried next
    """

    batch: int
    target: TargetProgress | None
    due: datetime | None

    @property
    def text(self) -> str:
        """Describe the batches and their target in words."""
        if self.target is None:
            return f"no apply has confirmed the batches up to {self.batch} yet"
        where = f"{self.target.target} at {self.target.location}"
        if self.target.batch < self.batch:
            return f"batches up to {self.batch} are not applied to {where}"
        return f"the last apply to {where} has failed"

    @property
    def full_text(self) -> str:
        """Describe them with the error of the last apply, if it has failed."""
        error = self.target.error if self.target is not None and self.target.failures else None
        return f"{self.text}: {error}" if error else self.text


@dataclass(frozen=True, slots=True)
class RunHold:
    """The wait of a connector after a failure.

    :param failure: after which it waits
    :param until: when a run is tried without a sign of a repair
    """

    failure: RunFailure
    until: datetime


def is_owed(batch: int, target: TargetProgress) -> bool:
    """Check whether a target lacks something that was captured.

    :param batch: the last one that was captured
    """
    return batch > target.batch or (batch > 0 and target.failures > 0)


def list_owed_applies(
    record: ConnectorRecord, tasks: Collection[str] | None = None, *, retry_after_s: float = RETRY_AFTER_S
) -> Iterator[OwedApply]:
    """List what a connector owes its targets.

    :param tasks: only what these tasks apply. One without a note owes everything that is captured, until its first apply proves otherwise
    """
    batch = record.last_batch
    if not batch:
        return
    noted = [target for target in record.targets if tasks is None or target.task in tasks]
    for target in noted:
        if is_owed(batch, target):
            yield OwedApply(batch, target, _find_due_time(record, target, retry_after_s))
    for _ in {*(tasks or ())} - {target.task for target in noted}:
        # an apply that ends before it can note anything is no reason to begin one run after the other
        due = None if record.run_ended_at is None else record.run_ended_at + timedelta(seconds=LONGEST_PAUSE_S["apply"])
        yield OwedApply(batch, None, due)


def find_due_apply(
    record: ConnectorRecord | None,
    tasks: Collection[str],
    now: datetime,
    *,
    retry_after_s: float = RETRY_AFTER_S,
    tried_at: datetime | None = None,
    grace_s: float = 0.0,
) -> str | None:
    """Explain why an apply is to begin now, although nothing changes at the source; ``None`` if none is.

    Nothing is due of a connector that people have paused or stopped.

    :param tasks: that apply
    :param tried_at: when a run was begun for the same reason; its apply may not have noted that yet
    :param grace_s: seconds that another run has to apply a new batch
    """
    if record is None or record.control.desired_state is not DesiredState.RUNNING:
        return None
    fresh_until = None if record.moved_at is None else record.moved_at + timedelta(seconds=grace_s)
    retried = None if tried_at is None else tried_at + timedelta(seconds=AT_WORK_S)
    for owed in list_owed_applies(record, tasks, retry_after_s=retry_after_s):
        fresh = fresh_until if owed.target is None or not owed.target.failures else None
        if all(moment is None or moment <= now for moment in (owed.due, fresh, retried)):
            return owed.text
    return None


def find_hold(
    record: ConnectorRecord | None, definition: str, now: datetime, *, retry_after_s: float = RETRY_AFTER_S
) -> RunHold | None:
    """Return the wait of a connector after a failure; ``None`` if a run may begin.

    The wait ends with a sign of a repair: another definition, offset or signal, a restart, a pause that has ended. It ends without one after
    ``retry_after_s`` if a person must act, and otherwise after a pause that grows with each failure.

    :param definition: digest of the present definition
    """
    if record is None or record.failure is None or record.failed_at is None:
        return None
    failure = record.failure
    if failure.definition != definition or _find_marks(record) != dict(failure.marks):
        return None
    until = record.failed_at + timedelta(seconds=_pause_s(failure, "capture", failure.failures, retry_after_s))
    return RunHold(failure, until) if now < until else None


def _find_due_time(record: ConnectorRecord, target: TargetProgress, retry_after_s: float) -> datetime | None:
    if target.is_at_work:
        return target.began_at + timedelta(seconds=AT_WORK_S)
    if not target.failures or target.ended_at is None:
        return None
    failure = target.failure
    if failure is not None and failure.needs_person:
        # a capture that reads on moves the offset: that repairs no target
        now, then = ({**marks, "version": None} for marks in (_find_marks(record), failure.marks))
        if now != then:
            return None
    return target.ended_at + timedelta(seconds=_pause_s(failure, "apply", target.failures, retry_after_s))


def _find_marks(record: ConnectorRecord) -> dict[str, Any]:
    control = record.control
    return marks_of(record.version, record.last_signal, control.restarts, control.changed_at)


def _pause_s(failure: RunFailure | None, work: str, failures: int, retry_after_s: float) -> float:
    if failure is not None and failure.needs_person:
        return retry_after_s
    # 2 to the power of many failures is no number that anything can take
    return min(FIRST_PAUSE_S * float(2 ** min(max(failures - 1, 0), 10)), LONGEST_PAUSE_S[work])


__all__ = ["RETRY_AFTER_S", "OwedApply", "RunHold", "find_due_apply", "find_hold", "is_owed", "list_owed_applies"]
