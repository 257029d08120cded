"""The status of a connector, as commands, pages and operators show it.

States are those of the documents ("Verifying that the connector is running"): ``unassigned``, ``running``, ``paused``,
``failed``, ``stopped``. With micro-batches, a healthy connector is ``unassigned`` between two runs.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from airflow_provider_cdc.core.lifecycle.next_run import list_owed_applies
from airflow_provider_cdc.core.model.connector_offset import Offset
from airflow_provider_cdc.core.spi.state_records import ConnectorRecord, SignalRecord
from airflow_provider_cdc.core.spi.store_interfaces import DesiredState


class ConnectorState(enum.StrEnum):
    """The state of a connector."""

    UNASSIGNED = "unassigned"
    """No run is alive; the next one continues."""
    RUNNING = "running"
    PAUSED = "paused"
    FAILED = "failed"
    """The last run ended with an error, and no other has begun since."""
    STOPPED = "stopped"


@dataclass(frozen=True, slots=True)
class ConnectorStatus:
    """The status of a connector.

    :param state_since: when it came into this state, where that is known
    :param desired_state: what people want; a run that is alive ends within seconds when that is not ``running``
    :param owner: the run that is alive
    :param requested_by: who asked for it, and ``reason`` why
    :param last_error: of the last run that failed, which need not be the last run
    :param pending: tables that have still to be read whole
    :param stopped: table → why nothing of it is captured until it is read whole again
    :param set_aside: table → its events of the last day that were set aside, and whether it was read again
    :param waiting: tables that are read, at positions that streaming has not reached yet
    :param scans: incremental snapshots: table → rows read so far, in the order they are read
    :param metrics: of the last run that read anything, also if it failed: context → name → value
    :param signals: signals whose state is not final, newest first
    :param waits_after: class of the error after which a sensor waits for a repair, at most until ``waits_until``
    :param owed: a sentence for each target that lacks what was captured, and to which no apply is at work; with the error of its last apply
    """

    connector: str
    state: ConnectorState
    state_since: datetime | None
    desired_state: DesiredState
    owner: str | None
    requested_by: str
    reason: str
    last_error: str | None
    last_error_at: datetime | None
    run_ended_at: datetime | None
    source: str | None
    position: dict[str, Any] | None
    seq: int
    batch: int
    moved_at: datetime | None
    pending: tuple[str, ...] = ()
    stopped: dict[str, str] = field(default_factory=dict)
    set_aside: dict[str, str] = field(default_factory=dict)
    waiting: tuple[str, ...] = ()
    scans: dict[str, int] = field(default_factory=dict)
    scans_paused: bool = False
    signals: tuple[SignalRecord, ...] = ()
    metrics: dict[str, Any] = field(default_factory=dict)
    waits_after: str | None = None
    waits_until: datetime | None = None
    owed: tuple[str, ...] = ()

    def to_document(self) -> dict[str, Any]:
        """Fit for JSON."""
        values = {name: getattr(self, name) for name in self.__dataclass_fields__}
        return {name: _plain(value) for name, value in values.items()}


def _plain(value: Any) -> Any:
    match value:
        case datetime():
            return value.isoformat(timespec="milliseconds")
        case enum.Enum():
            return value.value
        case SignalRecord():
            return _plain(value.to_document())
        case tuple() | list():
            return [_plain(v) for v in value]
        case dict():
            return {k: _plain(v) for k, v in value.items()}
        case _:
            return value


def state_of(record: ConnectorRecord) -> tuple[ConnectorState, datetime | None]:
    """Return the state that a connector is in, and since when."""
    if record.owner is not None:
        return ConnectorState.RUNNING, record.owner_since
    ended, control = record.run_ended_at, record.control
    if control.desired_state is not DesiredState.RUNNING:
        requested_at = control.changed_at
        # the run that was alive when a person asked ended after that
        return ConnectorState(
            control.desired_state
        ), ended if requested_at is not None and ended is not None and ended > requested_at else requested_at
    if record.dead_owner is not None:
        return ConnectorState.FAILED, record.died_at
    if ended is not None and record.last_error_at == ended:
        return ConnectorState.FAILED, ended
    return ConnectorState.UNASSIGNED, ended


def describe_set_aside(offset: Offset, now: datetime | None = None) -> dict[str, str]:
    """Describe the events of the last day that were set aside, by table.

    >>> describe_set_aside(offset)
    {'shop.orders': '1 event was set aside (UnreadableValue: …), after binlog.000003:4711, at 2025-01-02 03:04:05 UTC. The table was read again.'}
    """
    found = {}
    for table, events in offset.forget_set_aside(int((now or datetime.now(UTC)).timestamp() * 1000)).set_aside.items():
        count, last = len(events), events[-1]
        number = "1 event was" if count == 1 else f"{count} events were"
        at = f"{datetime.fromtimestamp(last.at_ms / 1000, UTC):%Y-%m-%d %H:%M:%S} UTC"
        if table in offset.snapshot.repaired_tables:
            state = "No event of the table is captured until it is read again, which the capture does by itself"
        elif table in offset.stopped:
            state = "The table is stopped"
        else:
            state = "The table was read again; its target tables of mode history or log lack the changes in between"
        found[table] = (
            f"{number} set aside ({last.error}: {last.text.rstrip('.')}), after {last.position}, at {at}. {state}."
        )
    return found


def status_of(record: ConnectorRecord, signals: Sequence[SignalRecord]) -> ConnectorStatus:
    """Make the status of a connector.

    :param signals: those under way
    """
    state, since = state_of(record)
    offset = record.offset or Offset()
    error, error_at = record.last_error, record.last_error_at
    if record.dead_owner is not None:
        error = f"The run {record.dead_owner} did not release its lease: the process was killed, or its machine failed."
        error_at = record.died_at
    waits = record.failure if state is ConnectorState.FAILED and record.failure is not None else None
    waits_until = None if waits is None else waits.waits_until
    return ConnectorStatus(
        connector=record.connector,
        state=state,
        state_since=since,
        desired_state=record.control.desired_state,
        owner=record.owner,
        requested_by=record.control.by,
        reason=record.control.reason,
        last_error=error,
        last_error_at=error_at,
        run_ended_at=record.run_ended_at,
        source=record.source_kind,
        position=offset.position,
        seq=offset.seq,
        batch=offset.batch,
        moved_at=record.moved_at,
        pending=tuple(sorted(offset.snapshot.pending)),
        stopped=dict(offset.stopped),
        set_aside=describe_set_aside(offset),
        waiting=tuple(sorted(offset.snapshot.read_at)),
        scans={scan.table: scan.rows for scan in offset.incremental.scans},
        scans_paused=offset.incremental.paused,
        signals=tuple(signals),
        metrics=dict(record.metrics),
        waits_after=None if waits is None or waits_until is None else waits.name,
        waits_until=waits_until,
        owed=tuple(o.full_text for o in list_owed_applies(record) if o.target is None or not o.target.is_at_work),
    )
