"""Rows of the state tables as the commands, the pages and the operators read them: one frozen class for each kind.

The state store makes them. Nothing of the database is left in them: moments are in UTC, offsets and states are parsed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from datetime import UTC, datetime
from typing import Any, TypedDict

from airflow_provider_cdc.core.errors import TerminalError
from airflow_provider_cdc.core.model.connector_offset import Offset
from airflow_provider_cdc.core.model.connector_signal import SignalState
from airflow_provider_cdc.core.model.notifications import Notification
from airflow_provider_cdc.core.spi.desired_state import ConnectorControl


@dataclass(frozen=True, slots=True)
class ConnectorRegistration:
    """The definition that the last run of a connector had, without secrets: with it, its source and change log are found again.

    :param properties: the properties that were set
    :param connections: ids in Airflow: ``source``, ``state`` and ``storage`` are connections, ``dag`` is the DAG that captures
    """

    connector: str
    source: str
    changelog: str
    changelog_options: Mapping[str, Any] = field(default_factory=dict)
    properties: Mapping[str, Any] = field(default_factory=dict)
    connections: Mapping[str, str] = field(default_factory=dict)

    def to_document(self) -> dict[str, Any]:
        """Return the JSON form."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class TaskRun:
    """A try of a task in Airflow, by its ids there."""

    dag_id: str
    run_id: str
    task_id: str
    map_index: int = -1
    try_number: int = 1

    @property
    def text(self) -> str:
        """For people.

        >>> TaskRun("cdc_shop", "manual__2025-01-02", "capture").text
        'cdc_shop.capture, run manual__2025-01-02, try 1'
        """
        mapped = f"[{self.map_index}]" if self.map_index >= 0 else ""
        return f"{self.dag_id}.{self.task_id}{mapped}, run {self.run_id}, try {self.try_number}"


@dataclass(frozen=True, slots=True)
class RunFailure:
    """The failure that runs have ended with, as far as the next run needs it to decide when it begins.

    :param name: class of the error
    :param needs_person: Airflow does not retry the task: the same error comes again until a person has repaired its cause
    :param definition: digest of the definition that failed
    :param failures: runs that have failed in a row
    :param marks: facts of the connector's state at the failure, as :func:`marks_of` gives them: a repair changes one of them
    :param waits_until: when the sensor that waits for a repair begins a run without one; ``None``: no sensor waits
    :param task_run: the try that failed; ``None`` if it was none of a task
    """

    name: str
    needs_person: bool = False
    definition: str = ""
    failures: int = 1
    marks: Mapping[str, Any] = field(default_factory=dict)
    waits_until: datetime | None = None
    task_run: TaskRun | None = None

    @classmethod
    def from_error(cls, error: BaseException, definition: str = "", task_run: TaskRun | None = None) -> RunFailure:
        """Describe an error."""
        return cls(type(error).__name__, isinstance(error, TerminalError), definition, task_run=task_run)

    def to_document(self) -> dict[str, Any]:
        """Return the JSON form."""
        until = self.waits_until
        return asdict(self) | {"waits_until": None if until is None else until.isoformat()}

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> RunFailure:
        until, run = document.get("waits_until"), document.get("task_run")
        moment = None if until is None else datetime.fromisoformat(until)
        return cls(**{**document, "waits_until": moment, "task_run": None if run is None else TaskRun(**run)})


@dataclass(frozen=True, slots=True)
class TargetProgress:
    """The progress of a target of a connector, as its applies have noted it. The target's own marker is the truth; each apply corrects the note.

    :param task: the task that applies, as ``dag.task.map_index``
    :param batch: that all tables have, but those that have failed; 0: the first apply has not ended
    :param failures: applies in a row that have failed; 0: the last one has ended well
    :param error: of the last apply, if it failed
    :param ended_at: end of the last apply that ended; before ``began_at`` while one is at work
    """

    target: str
    location: str
    task: str
    began_at: datetime
    batch: int = 0
    failures: int = 0
    failure: RunFailure | None = None
    error: str | None = None
    ended_at: datetime | None = None

    @property
    def is_at_work(self) -> bool:
        """True if an apply has begun and has not ended; it may have been killed since."""
        return self.ended_at is None or self.ended_at < self.began_at


@dataclass(frozen=True, slots=True)
class ConnectorRecord:
    """All that the state tables hold of one connector.

    :param registration: ``None`` before its first run, as of one that was paused before
    :param offset: ``None`` before the first commit; ``version`` and ``moved_at`` too
    :param version: number of the offset in the connector's history
    :param moved_at: when the offset was committed
    :param owner: the run that is alive, since ``owner_since``; its lease ends in ``lease_s`` seconds unless renewed
    :param dead_owner: a run whose lease ended at ``died_at`` because it was not renewed
    :param registered_at: when the definition was recorded; a run records it again only if it has changed
    :param last_error: of the last run that failed, which need not be the last run
    :param metrics: of the last run that read anything: context → name → value
    :param last_signal: number of the newest signal, 0 if there is none
    :param failure: of the last run, if it failed and it is known how
    :param targets: the targets that applies have noted
    """

    connector: str
    registration: ConnectorRegistration | None = None
    offset: Offset | None = None
    version: int | None = None
    moved_at: datetime | None = None
    owner: str | None = None
    owner_since: datetime | None = None
    lease_s: float = 0.0
    dead_owner: str | None = None
    died_at: datetime | None = None
    control: ConnectorControl = field(default_factory=ConnectorControl)
    run_ended_at: datetime | None = None
    last_error: str | None = None
    last_error_at: datetime | None = None
    metrics: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    registered_at: datetime | None = None
    last_signal: int = 0
    failure: RunFailure | None = None
    targets: tuple[TargetProgress, ...] = ()

    @property
    def failed_at(self) -> datetime | None:
        """Time when the last run has failed; ``None`` if it has not."""
        if self.last_error_at is None or (self.run_ended_at is not None and self.last_error_at < self.run_ended_at):
            return None
        return self.last_error_at

    @property
    def ended_well(self) -> bool:
        """True if the last run, with the definition as it is recorded now, has ended without an error; not while one is alive."""
        if (
            self.run_ended_at is None
            or self.registered_at is None
            or self.owner is not None
            or self.dead_owner is not None
        ):
            return False
        return self.failed_at is None and self.registered_at < self.run_ended_at

    @property
    def source_kind(self) -> str | None:
        """The kind of source, where that is recorded."""
        return None if self.registration is None else self.registration.source

    @property
    def offset_position(self) -> dict[str, Any] | None:
        """The position of the offset."""
        return None if self.offset is None else self.offset.position

    @property
    def last_seq(self) -> int:
        """The last sequence number that was committed."""
        return 0 if self.offset is None else self.offset.seq

    @property
    def last_batch(self) -> int:
        """The last batch."""
        return 0 if self.offset is None else self.offset.batch


def marks_of(
    version: int | None, last_signal: int | None, restarts: int | None, changed_at: datetime | None
) -> dict[str, Any]:
    """Return the facts of a connector's state that a repair changes: each command and page that repairs changes one of them.

    :param version: of the offset
    :param last_signal: number of the newest signal
    :param restarts: requests to restart
    :param changed_at: when it was paused or resumed last
    """
    changed = None if changed_at is None else changed_at.isoformat()
    return {"version": version, "signal": last_signal or 0, "restarts": restarts or 0, "changed_at": changed}


@dataclass(frozen=True, slots=True)
class BatchRecord:
    """A committed batch, as its manifest describes it.

    :param manifest: path of the manifest
    :param bytes: size of its files
    :param topics: topic → events
    :param position: where in the source's log the batch ends
    :param epoch: of the lease under which it was committed
    """

    connector: str
    batch: int
    manifest: str
    first_seq: int
    last_seq: int
    events: int
    bytes: int
    topics: Mapping[str, int]
    position: dict[str, Any]
    epoch: int
    created_at: datetime

    def to_document(self) -> dict[str, Any]:
        """Return the JSON form."""
        return asdict(self) | {"created_at": self.created_at.isoformat()}


@dataclass(frozen=True, slots=True)
class OffsetRecord:
    """An offset in the history of a connector.

    :param epoch: of the lease under which it was committed
    :param reason: the cause of the move: a batch, or a person
    """

    version: int
    offset: Offset
    epoch: int
    reason: str
    created_at: datetime

    def to_document(self) -> dict[str, Any]:
        """Return the JSON form."""
        moment = self.created_at.isoformat()
        return {
            "version": self.version, "offset": self.offset.to_document(), "epoch": self.epoch, "reason": self.reason,
            "created_at": moment,
        }  # fmt: skip


class SignalProgress(TypedDict, total=False):
    """Progress of the snapshot of a signal. It has only the known facts.

    ``tables``: tables that the signal asks for; ``left``: those of them that are not read yet; ``table``: the one that is being read;
    ``rows``: its rows so far; ``of_about``: its rows as the database estimates them; ``rows_per_s``; ``chunk_rows``: rows of a chunk;
    ``after`` and ``upto``: key of the last row that was read, and of the last row of the table. Of ranges of keys instead ``ranges``: those
    that are left; ``deleted``: keys without a row of which a delete was written.
    """

    tables: int
    left: int
    table: str
    rows: int
    of_about: int
    rows_per_s: float
    chunk_rows: int
    after: list[Any] | None
    upto: list[Any] | None
    ranges: int
    deleted: int


def part_of(progress: SignalProgress) -> float | None:
    """Return how much of a signal's snapshot is done, between 0 and 1; ``None`` if that is not known.

    A table counts by its rows, or by how far its key has come where keys are numbers; tables count alike.
    """
    left = progress.get("left")
    if left is None:
        return None
    tables = float(max(progress.get("tables") or left, left, 1))
    done: float = (tables - left + (_of_table(progress) if left else 0.0)) / tables
    return min(max(done, 0.0), 1.0)


def _of_table(progress: SignalProgress) -> float:
    """Return how much of the table that is being read is done."""
    if total := progress.get("of_about"):
        return min(float(progress.get("rows", 0)) / float(total), 1.0)
    after, upto = progress.get("after") or [None], progress.get("upto") or [None]
    if isinstance(after[0], int) and isinstance(upto[0], int) and 0 <= after[0] <= upto[0] and upto[0]:
        return float(after[0] / upto[0])
    return 0.0


@dataclass(frozen=True, slots=True)
class SignalCounts:
    """Numbers of the signals of one channel.

    :param recent: signals that were recorded since a moment
    :param characters: of their data
    :param waiting: signals that have not ended, of any age
    """

    recent: int = 0
    characters: int = 0
    waiting: int = 0

    def add(self, characters: int, *, waiting: int = 1) -> SignalCounts:
        """Count one more signal."""
        return SignalCounts(self.recent + 1, self.characters + characters, self.waiting + waiting)


@dataclass(frozen=True, slots=True)
class SignalRecord:
    """A signal and its state.

    :param number: never given out again, also not to a signal of another connector
    :param id: the sender's name of it
    :param data: JSON text, or whatever was sent instead
    :param message: why it was refused or failed, or its result
    """

    number: int
    id: str
    type: str
    data: str | None
    channel: str
    sent_by: str | None
    state: SignalState
    message: str
    progress: SignalProgress
    received_at: datetime
    running_at: datetime | None = None
    ended_at: datetime | None = None

    def to_document(self) -> dict[str, Any]:
        """Return the form that programs read. Moments are ``datetime``."""
        values = {f.name: getattr(self, f.name) for f in fields(self)}
        return values | {"state": self.state.value, "progress": dict(self.progress) or None}


@dataclass(frozen=True, slots=True)
class NotificationRecord:
    """A notification that was made durable.

    :param number: grows with each notification
    :param batch: the batch that it was committed with, if any
    """

    number: int
    notification: Notification
    batch: int | None = None

    @property
    def created_at(self) -> datetime:
        """Time when it was made."""
        return datetime.fromtimestamp(self.notification.ts_ms / 1000, UTC)

    def to_document(self) -> dict[str, Any]:
        """Return the JSON form."""
        n, moment = self.notification, self.created_at.isoformat(timespec="milliseconds")
        return {
            "number": self.number, "id": n.id, "aggregate_type": n.aggregate_type, "type": n.type,
            "additional_data": dict(n.additional_data), "batch": self.batch, "created_at": moment,
        }  # fmt: skip


__all__ = [
    "BatchRecord",
    "ConnectorRecord",
    "ConnectorRegistration",
    "NotificationRecord",
    "OffsetRecord",
    "RunFailure",
    "SignalProgress",
    "SignalRecord",
    "TargetProgress",
    "marks_of",
    "part_of",
]
