"""The interfaces, besides :class:`~airflow_provider_cdc.core.spi.source.Source`, that capture uses: state store, change log, signal channels.

``state.StateStore`` and ``changelog.ChangeLog`` are the implementations; this module exists so that core needs neither
SQLAlchemy nor fsspec, and so that their contracts are written in one module.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from airflow_provider_cdc.core.errors import BatchesRemoved
from airflow_provider_cdc.core.model.batch_manifest import DataFile, Manifest, SchemaChangeRecord, SignalOutcome
from airflow_provider_cdc.core.model.connector_offset import Offset
from airflow_provider_cdc.core.model.connector_signal import SentSignal, Signal, SignalState
from airflow_provider_cdc.core.model.notifications import Notification
from airflow_provider_cdc.core.model.schema_history import CompactedSchema, StoredSchemas
from airflow_provider_cdc.core.spi.carry_over import CarryOverFiles
from airflow_provider_cdc.core.spi.desired_state import ConnectorControl as ConnectorControl
from airflow_provider_cdc.core.spi.desired_state import DesiredState as DesiredState

if TYPE_CHECKING:
    from collections.abc import Iterator
    from contextlib import AbstractContextManager
    from datetime import datetime

    from airflow_provider_cdc.core.model.event_batch import EventBatch
    from airflow_provider_cdc.core.reporting.progress_reporter import ProgressBoard
    from airflow_provider_cdc.core.spi.state_records import ConnectorRecord, RunFailure, SignalCounts


@dataclass(frozen=True, slots=True)
class Lease:
    """The right to write for a connector. Every write names the epoch; a newer epoch makes older ones void."""

    connector: str
    owner: str
    epoch: int


@dataclass(frozen=True, slots=True)
class StoredOffset:
    """An offset with the version that the next compare-and-set must name."""

    offset: Offset | None
    version: int


class StateStore(Protocol):
    """Store of the state of connectors: leases, offsets, schema history, signals, and whether a connector is to run."""

    def acquire_lease(self, connector: str, owner: str, *, wait_s: float) -> AbstractContextManager[Lease]:
        """Take the connector's lease, keep it alive in the background, give it back at the end.

        :param wait_s: how long to wait for a lease that another run holds
        :raises LeaseHeld: it is still held
        """

    def confirm_lease(self, lease: Lease) -> None:
        """Check that the lease is still held.

        :raises LeaseLost: another run took over
        """

    def load_offset(self, connector: str) -> StoredOffset:
        """Load the committed offset."""

    def find_connector(self, name: str) -> ConnectorRecord | None:
        """All that is kept of a connector, in one look; ``None`` if nothing is."""

    def commit_batch(
        self, lease: Lease, expected: StoredOffset, manifest: Manifest, manifest_path: str
    ) -> StoredOffset:
        """Move the offset on to ``manifest.offset_after`` and record the batch, in one transaction.

        The same transaction records its schema changes, its notifications and the states of signals.

        :raises LeaseLost: the lease's epoch is not the newest
        :raises CommitConflict: the stored version is not ``expected.version``
        :raises CommitStateUnknown: the database did not answer the commit
        """

    def refuse_signals(self, connector: str, *, after: int, upto: int, sent_after: datetime, message: str) -> list[int]:
        """Have signals fail that are neither taken nor ended, by their numbers.

        :param after: and ``upto``: only numbers above the one, and not above the other
        :param sent_after: only those that were recorded after this
        :return: their numbers
        """

    def fail_lost_signals(self, connector: str, *, upto: int, requests: Collection[int], message: str) -> list[int]:
        """Have signals fail that were taken, have no final state, and of which the offset has no work.

        :param upto: the last signal that the offset has taken
        :param requests: those whose work is in the offset
        :return: their numbers
        """

    def advance_offset(
        self,
        lease: Lease,
        expected: StoredOffset,
        offset: Offset,
        notifications: Sequence[Notification] = (),
        signal_outcomes: Sequence[SignalOutcome] = (),
    ) -> StoredOffset:
        """Move the offset when there was nothing to capture, together with notifications and states of signals.

        Raises like :meth:`commit_manifest`.
        """

    def schema_history(self, connector: str) -> Iterator[SchemaChangeRecord]:
        """All recorded schema changes, oldest first; a run needs only :meth:`load_schemas`."""

    def load_schemas(self, connector: str) -> StoredSchemas:
        """Load the result of the recorded schema changes: a base, and those since."""

    def compact_schemas(self, lease: Lease, base: Sequence[CompactedSchema], upto: int) -> None:
        """Keep a base, so that the changes before it are not read any more. The changes themselves stay.

        :param upto: the last change that is in it, as :class:`StoredSchemas` names it
        :raises LeaseLost: another run took over
        """

    def send(self, connector: str, signal: SentSignal, *, refusal: str | None = None) -> int:
        """Record a signal as received, or as refused.

        Returns its number; of one that was found before, by its ``origin``, the number that it has.

        :param refusal: why it is refused; no run takes it then
        """

    def count_signals(self, connector: str, channel: str, since: datetime) -> SignalCounts:
        """Count the signals of a channel."""

    def list_signals(self, connector: str, after: int) -> list[Signal]:
        """Signals with a number above ``after``, in their order; cheap, it is asked every second."""

    def set_signal_state(
        self, connector: str, number: int, state: SignalState, message: str = "", progress: dict[str, Any] | None = None
    ) -> None:
        """Record the state of a signal. The first time of each state is kept.

        A final state stays. ``progress`` replaces the earlier progress.
        """

    def load_control(self, connector: str) -> ConnectorControl:
        """Load the desired state of the connector; cheap, as it is loaded every second."""

    def record_run_end(
        self,
        connector: str,
        error: str | None,
        metrics: dict[str, Any] | None = None,
        failure: RunFailure | None = None,
    ) -> None:
        """Record the end of a run with its error and its metrics.

        :param metrics: context → name → value; ``None`` leaves the metrics of an earlier run
        :param failure: the error, for the decision when the next run begins; the store adds its marks and counts it
        """


class SignalChannel(Protocol):
    """Brings signals from outside. One thread at a time uses it."""

    def poll(self) -> Sequence[SentSignal]:
        """Signals that have come since, oldest first; those that were not acknowledged yet come again.

        Each has an ``origin`` that is the same when it is read again, even by another run, and never that of another signal.
        Waits no longer than the channel's own configuration says.
        """

    def acknowledge(self, signals: Sequence[SentSignal]) -> None:
        """Acknowledge signals that are recorded in the state tables: they need not come again."""

    def close(self) -> None:
        """Release everything; may be called twice."""


class BatchWriter(Protocol):
    """Writes the files of one batch that is being made."""

    def write(self, batch: EventBatch) -> None:
        """Add events. Returns before they are on disk; an error of the writing shows at the next call."""

    def set_savepoint(self) -> None:
        """Everything written so far stays even if the next events are taken back."""

    def rollback(self) -> None:
        """Take back everything written since :meth:`set_savepoint`, or since the beginning; again and again, until :meth:`release_savepoint`."""

    def release_savepoint(self) -> None:
        """Nothing that was written so far is taken back any more, nor the next events, until :meth:`set_savepoint`."""

    def finish_files(self) -> list[DataFile]:
        """Make all files durable."""

    def discard_files(self) -> None:
        """Delete the written files."""

    @property
    def buffered_bytes(self) -> int:
        """Size in memory of all events written to this batch so far."""


class ChangeLog(Protocol):
    """Store of batches; one folder per connector."""

    def check_exclusive_commit(self, connector: str) -> None:
        """Make sure that one of two runs that :meth:`commit_manifest` the same number gets an error. Cheap after the first time.

        :raises ConfigError: the store overwrites existing files
        """

    def open_batch_writer(self, connector: str, batch: int, epoch: int, writer: str) -> BatchWriter:
        """Begin the files of a batch."""

    def commit_manifest(self, manifest: Manifest) -> str:
        """Write the manifest: the moment at which the batch exists. Returns its path.

        :raises CommitConflict: another run has already committed a batch of this number
        :raises CommitStateUnknown: the manifest may be there or not; its files must stay
        """

    def find_manifest(self, connector: str, batch: int) -> Manifest | None:
        """Load the manifest of a batch; ``None`` when there is no such batch."""

    def find_removal(self, connector: str, batch: int) -> BatchesRemoved | None:
        """Why a batch that is not there never comes: it was removed from the beginning of the log. ``None`` if it has not been written yet."""

    def format_manifest_path(self, manifest: Manifest) -> str:
        """Return the path to which :meth:`commit_manifest` writes the manifest."""

    def delete_orphan_files(self, manifest: Manifest) -> int:
        """Delete files of this batch's number that the manifest does not name; returns how many."""

    def open_carry_over(self, connector: str) -> CarryOverFiles:
        """Return the files in which a source carries something over. Costs nothing by itself."""

    def open_progress_board(self, connector: str) -> ProgressBoard:
        """Return the board where other processes see the current work. Costs nothing by itself."""
