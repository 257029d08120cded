"""The lifecycle of a connector: pause, resume, stop, restart, move or reset the offset, repair a gap, delete.

The offset changes only under the connector's lease, so that no run is alive meanwhile. Batches that a dead run has left behind are adopted
first: otherwise the next run would adopt them and undo the change.

    >>> lifecycle.status().state
    <RunState.RUNNING: 'running'>
    >>> lifecycle.pause("ada", "upgrade of the database")
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import uuid
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

from airflow_provider_cdc.core.config.capture_filters import Filters
from airflow_provider_cdc.core.config.connector_config import ConnectorConfig
from airflow_provider_cdc.core.errors import CommitConflict, ConfigError, LeaseHeld
from airflow_provider_cdc.core.lifecycle.connector_status import ConnectorStatus, status_of
from airflow_provider_cdc.core.lifecycle.lifecycle_stores import DeletableChangeLog, LifecycleStore
from airflow_provider_cdc.core.lifecycle.log_gap import (
    GapRepair,
    LogGap,
    RepairPlan,
    all_again,
    find_gap,
    no_gap,
    plan_repair,
    repair_signals,
    skip_gap,
    table_patterns,
)
from airflow_provider_cdc.core.lifecycle.offset_plan import OffsetPlan, OffsetPlanner
from airflow_provider_cdc.core.model.connector_offset import Offset
from airflow_provider_cdc.core.model.connector_signal import SentSignal, SignalState
from airflow_provider_cdc.core.model.notifications import ACTION, Notification, NotificationType
from airflow_provider_cdc.core.model.position import Position
from airflow_provider_cdc.core.model.schema_history import SchemaHistory
from airflow_provider_cdc.core.model.table_schema import TableId
from airflow_provider_cdc.core.remedy_commands import format_cdc_command
from airflow_provider_cdc.core.spi.source import Source
from airflow_provider_cdc.core.spi.source_procedures import Procedure, ProcedureContext, ProcedurePlan, ProcedureResult
from airflow_provider_cdc.core.spi.state_records import ConnectorRecord
from airflow_provider_cdc.core.spi.store_interfaces import ConnectorControl, DesiredState, Lease, StoredOffset
from airflow_provider_cdc.core.writing.batch_builder import BatchBuilder

_LOOKED_AT = 10_000
"""How many batches a plan looks at to count events."""


@dataclass(frozen=True, slots=True)
class RepairResult:
    """The result of a repair.

    :param signal: number of the signal that reads the tables again in an incremental repair; of several, the first
    """

    gap: LogGap
    how: GapRepair
    signal: int | None = None


@dataclass(slots=True)
class ConnectorLifecycle:
    """Steers one connector.

    :param source: may be missing where no position is needed
    :param config: the connector's configuration; needed where the offset is changed
    :param owner: who holds the lease meanwhile
    """

    name: str
    store: LifecycleStore
    changelog: DeletableChangeLog | None = None
    source: Source | None = None
    config: ConnectorConfig | None = None
    owner: str = field(default_factory=lambda: f"airflow cdc on {socket.gethostname()}:{os.getpid()}")

    # -- looking and steering -----------------------------------------------------------------------------------------

    def inspect_status(self) -> ConnectorStatus:
        """Return the status of the connector.

        :raises ConfigError: there is no such connector
        """
        return status_of(self._record(), self.store.signals_of(self.name, 100, under_way=True))

    def pause(self, by: str, reason: str = "") -> ConnectorControl:
        """Have the run that is alive end at the next boundary between two transactions, and new ones end at once."""
        self._record()
        return self.store.set_control(self.name, DesiredState.PAUSED, by, reason)

    def stop(self, by: str, reason: str = "") -> ConnectorControl:
        """Stop as :meth:`pause` does, but shown as *stopped*: the connector is not meant to continue soon."""
        self._record()
        return self.store.set_control(self.name, DesiredState.STOPPED, by, reason)

    def resume(self, by: str, reason: str = "") -> ConnectorControl:
        """Let the next run continue from the offset."""
        self._record()
        return self.store.set_control(self.name, DesiredState.RUNNING, by, reason)

    def restart(self, by: str, reason: str = "") -> ConnectorControl:
        """Have the run that is alive end; the next one begins with the definition and the connection as they are then."""
        self._record()
        return self.store.request_restart(self.name, by, reason)

    # -- the offset ---------------------------------------------------------------------------------------------------

    def plan_offset(self, target: Position | None) -> OffsetPlan:
        """Plan the continuation from another position.

        :param target: ``None`` = from the beginning, with a snapshot of all tables
        """
        planner = self._planner()
        return planner.plan_reset() if target is None else planner.plan_move(target)

    def plan_restore(self, version: int) -> OffsetPlan:
        """Plan the return to an offset that the connector has had.

        :raises ConfigError: it has had no such one
        """
        history = self.store.offset_history(self.name, 1, version=version)
        if not history:
            raise ConfigError(
                f"Connector {self.name} has no offset of version {version} in its history.",
                remedy=format_cdc_command("offset history", self.name),
            )
        return self._planner().plan_restore(version, history[0].offset)

    def apply_offset(self, plan: OffsetPlan, confirmation: str | None, by: str) -> StoredOffset:
        """Carry a plan out.

        :param confirmation: the connector's name, to show that it is meant
        :param by: who wants it, for the history of offsets
        :raises ConfigError: the plan has problems, or is not confirmed
        :raises LeaseHeld: a run is alive
        :raises CommitConflict: the offset has moved since the plan was made
        """
        if plan.problems:
            raise ConfigError(
                f"The offset cannot be moved to {plan.target}: {' '.join(plan.problems)}",
                where=f"connector {self.name}, now at {plan.now}",
                safe="Nothing was changed.",
                remedy="choose another position",
            )
        self._confirmed(confirmation)
        with self._alone() as (lease, batcher):
            self._unmoved(batcher, plan.version)
            stored = self.store.replace_offset(lease, batcher.stored, plan.offset, f"{plan.reason}, by {by}")
        self._drop(plan.dropped, f"{by} changed the offset ({plan.reason}); send the signal again.")
        return stored

    def reset_offset(self, confirmation: str | None, by: str) -> StoredOffset:
        """Forget the offset: the next run reads all tables first. Raises like :meth:`apply_offset`."""
        return self.apply_offset(self.plan_offset(None), confirmation, by)

    def delete(self, confirmation: str | None, by: str, *, with_changelog: bool = False) -> None:
        """Delete the rows of the connector in the state tables and, if requested, its change log. Targets are not touched.

        The records of people's actions stay, and one of the deletion is added.

        :param by: who wants it

        :raises ConfigError: it is not confirmed
        :raises LeaseHeld: a run is alive
        """
        self._record()
        self._confirmed(confirmation)
        with self._lease() as lease:
            if (
                with_changelog
            ):  # first: if this fails in the middle, the connector is still there and can be deleted again
                assert self.changelog is not None
                self.changelog.delete(self.name)
            self.store.delete_connector(lease)
        data = {"connector_name": self.name, "by": by, "action": "delete"}
        data |= {"what": "with its change log"} if with_changelog else {}
        done = Notification(aggregate_type=ACTION, type=NotificationType.COMPLETED, additional_data=data)
        self.store.add_notification(self.name, done)

    # -- gaps ---------------------------------------------------------------------------------------------------------

    def find_gap(self) -> LogGap | None:
        """Find the loss if the log no longer holds the offset's position; ``None`` if it holds the position."""
        return find_gap(
            self.name, self.store.load_offset(self.name).offset or Offset(), self._record().moved_at, self._source()
        )

    def plan_repair(self, how: GapRepair) -> RepairPlan:
        """Plan what a repair would do. Nothing is changed.

        :raises ConfigError: there is no gap
        :raises CdcError: the source cannot be asked
        """
        source, config, stored = self._source(), self._config(), self.store.load_offset(self.name)
        gap = find_gap(self.name, stored.offset or Offset(), self._record().moved_at, source)
        if gap is None:
            raise no_gap(self.name)
        return plan_repair(
            how, gap, stored, source, config, SchemaHistory.from_stored(self.store.load_schemas(self.name))
        )

    def repair_gap(
        self, how: GapRepair, confirmation: str | None, by: str, *, version: int | None = None
    ) -> RepairResult:
        """Have the connector continue after a gap; see :mod:`airflow_provider_cdc.core.lifecycle.log_gap`.

        :param version: do nothing unless the offset has it still, as a plan had
        :raises ConfigError: there is no gap, or it is not confirmed, or the configuration does not allow it
        :raises PrerequisiteError: tables cannot be read in chunks
        :raises LeaseHeld: a run is alive
        :raises CommitConflict: the offset has moved since the plan was made
        """
        source, config = self._source(), self._config()
        self._confirmed(confirmation)
        with self._alone() as (lease, batcher):
            if version is not None:
                self._unmoved(batcher, version)
            offset, number, dropped = batcher.committed_offset, None, frozenset[int]()
            gap = find_gap(self.name, offset, self._record().moved_at, source)
            if gap is None:
                raise no_gap(self.name)
            if how is GapRepair.SNAPSHOT:
                after, dropped = all_again(offset, config), frozenset(offset.snapshot.request_numbers.values())
            else:
                after = skip_gap(offset, gap)
            if how is GapRepair.INCREMENTAL:
                # before the offset moves: otherwise a crash in between would leave rows missing without a signal that reads them
                history = SchemaHistory.from_stored(self.store.load_schemas(self.name))
                paused, origin = offset.incremental.paused, f"repair:{batcher.stored.version}"
                signals = repair_signals("gap-repair", source, config, history, paused=paused, origin=origin, by=by)
                number = min((self.store.send(self.name, sent) for sent in signals), default=None)
            reason = f"gap repaired by {how.value}, from {gap.position}, by {by}"
            self.store.replace_offset(lease, batcher.stored, after, reason)
        self._drop(dropped, f"{by} started a snapshot of all tables to repair a gap.")
        return RepairResult(gap, how, number)

    # -- procedures at the source ---------------------------------------------------------------------------------------

    def plan_procedure(self, name: str, table: str, flags: Iterable[str] = ()) -> ProcedurePlan:
        """Plan what a procedure of the source would do for a table. Nothing is changed.

        :param table: its name, as ``signal.data.collection`` has it
        :raises ConfigError: the source has no such procedure, or it is no table's name
        """
        source, chosen = self._source(), frozenset(flags)
        procedure = source.PROCEDURES.get(name)
        if procedure is None:
            valid = ", ".join(source.PROCEDURES) or "none"
            raise ConfigError(f"{source.connector} connectors have no procedure {name!r}. Valid values are: {valid}.")
        names = [flag.name for flag in procedure.flags]
        if unknown := sorted(chosen.difference(names)):
            raise ConfigError(f"{name} has no flag {unknown[0]!r}. Valid values are: {', '.join(names) or 'none'}.")
        id_ = source.signal_table(table)
        return source.plan_procedure(
            procedure, id_, chosen, self._standing(id_, self.store.load_offset(self.name).offset)
        )

    def carry_out(
        self, plan: ProcedurePlan, confirmation: str | None, by: str, report_step: Callable[[str], None]
    ) -> int | None:
        """Carry a plan out. Returns the number of the signal that has the table read again, if one was sent.

        :param confirmation: the connector's name, to show that it is meant
        :param by: who wants it
        :param report_step: takes a line for people before each step
        :raises ConfigError: the plan has problems, by now, or is not confirmed
        :raises LeaseHeld: a run is alive, and the procedure wants to be alone
        """
        self._confirmed(confirmation)
        procedure = self._source().PROCEDURES[plan.procedure]
        if not procedure.alone:
            self._done(procedure, plan, self.store.load_offset(self.name).offset, report_step)
            return None
        with self._alone() as (lease, batcher):
            done = self._done(procedure, plan, batcher.committed_offset, report_step)
            number = None
            if done.read_again:  # before the offset moves: otherwise a crash in between would leave rows missing
                data = {"type": "blocking", "data-collections": table_patterns([plan.table])}
                origin = f"procedure:{plan.procedure}:{plan.table}:{batcher.stored.version}"
                signal = SentSignal(plan.procedure, "execute-snapshot", json.dumps(data), "repair", origin, by)
                number = self.store.send(self.name, signal)
            if done.position is not None:
                reason = f"{plan.procedure} {plan.table}, by {by}"
                moved_to = batcher.committed_offset.move_position(done.position.to_json())
                self.store.replace_offset(lease, batcher.stored, moved_to, reason)
            return number

    def _done(
        self, procedure: Procedure, plan: ProcedurePlan, offset: Offset | None, tell: Callable[[str], None]
    ) -> ProcedureResult:
        """Carry a plan out, as it is now."""
        source, standing = self._source(), self._standing(plan.table, offset)
        now = source.plan_procedure(procedure, plan.table, plan.flags, standing)
        if now.problems:
            raise ConfigError(
                f"{plan.procedure} cannot run for {plan.table}: {' '.join(now.problems)}",
                where=f"connector {self.name}",
                safe="Nothing was changed.",
                remedy="fix the problems above, and inspect the plan again",
            )
        return source.carry_out(now, standing, tell)

    def _standing(self, table: TableId, offset: Offset | None) -> ProcedureContext:
        position = None if offset is None or offset.position is None else self._source().parse_position(offset.position)
        history = SchemaHistory.from_stored(self.store.load_schemas(self.name))
        return ProcedureContext(
            position, Filters(self._config()).is_table_captured(table), history.find_schema(table) is not None
        )

    # -- plumbing -----------------------------------------------------------------------------------------------------

    def _record(self) -> ConnectorRecord:
        if (record := self.store.find_connector(self.name)) is not None:
            return record
        raise ConfigError(f"No connector {self.name!r} has run yet.", safe="Nothing was changed.")

    def _planner(self) -> OffsetPlanner:
        batches = self.store.list_batches(self.name, limit=_LOOKED_AT)
        stored, history = self.store.load_offset(self.name), self.store.schema_history(self.name)
        return OffsetPlanner(self.name, stored, self._source(), batches, history)

    def _confirmed(self, confirmation: str | None) -> None:
        if confirmation != self.name:
            raise ConfigError(
                f"The change is not confirmed: the confirmation is {confirmation!r}, not the connector's name.",
                safe="Nothing was changed.",
                remedy=f"confirm the change with {self.name}",
            )

    def _unmoved(self, batcher: BatchBuilder, version: int) -> None:
        if batcher.stored.version != version:
            raise CommitConflict(
                "The offset has moved since the plan was made.",
                where=f"connector {self.name}: version {version}, now {batcher.stored.version}",
                safe="Nothing was changed.",
                remedy="inspect the plan again",
            )

    @contextlib.contextmanager
    def _lease(self) -> Iterator[Lease]:
        with contextlib.ExitStack() as stack:
            try:
                lease = stack.enter_context(self.store.acquire_lease(self.name, self.owner, wait_s=0))
            except LeaseHeld as e:
                raise LeaseHeld(
                    e.message,
                    safe="Nothing was changed.",
                    remedy=f"run `{format_cdc_command('pause', self.name, wait=True)}`, which waits until the run has ended; then try again, and run `{format_cdc_command('resume', self.name)}` at the end; "
                    "the lease of a dead run expires automatically within half a minute",
                ) from None
            yield lease

    @contextlib.contextmanager
    def _alone(self) -> Iterator[tuple[Lease, BatchBuilder]]:
        """Hold the lease, with every batch adopted into the offset."""
        assert self.changelog is not None
        source, config = self._source(), self._config()
        with self._lease() as lease:
            writer = f"{lease.epoch}-{uuid.uuid4().hex[:12]}"
            yield (
                lease,
                BatchBuilder(
                    self.name,
                    source.connector,
                    config.to_public_properties(),
                    self.store,
                    self.changelog,
                    lease,
                    writer,
                ),
            )

    def _drop(self, numbers: frozenset[int], why: str) -> None:
        for number in sorted(numbers):
            self.store.set_signal_state(self.name, number, SignalState.FAILED, why)

    def _source(self) -> Source:
        if self.source is None:
            raise ConfigError(f"The source of {self.name} is not available here.", safe="Nothing was changed.")
        return self.source

    def _config(self) -> ConnectorConfig:
        if self.config is None:
            raise ConfigError(f"The configuration of {self.name} is not available here.", safe="Nothing was changed.")
        return self.config


__all__ = ["ConnectorLifecycle", "DeletableChangeLog", "GapRepair", "LifecycleStore", "RepairResult"]
