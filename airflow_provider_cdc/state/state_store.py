"""The state store: everything that is kept of connectors, over SQLAlchemy.

Works on PostgreSQL, MySQL and SQLite, the databases that Airflow itself works on. Every write that matters is one short
transaction that names the lease's epoch and the version it expects.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import AbstractContextManager
from datetime import datetime
from typing import Any

from airflow_provider_cdc.core.model.batch_manifest import Manifest, SchemaChangeRecord, SignalOutcome
from airflow_provider_cdc.core.model.connector_offset import Offset
from airflow_provider_cdc.core.model.connector_signal import SentSignal, Signal, SignalState
from airflow_provider_cdc.core.model.notifications import Notification
from airflow_provider_cdc.core.model.schema_history import CompactedSchema, StoredSchemas
from airflow_provider_cdc.core.model.table_schema import TableId
from airflow_provider_cdc.core.spi.state_records import (
    BatchRecord,
    ConnectorRecord,
    ConnectorRegistration,
    NotificationRecord,
    OffsetRecord,
    RunFailure,
    SignalCounts,
    SignalRecord,
)
from airflow_provider_cdc.core.spi.state_row_retention import StateRetention
from airflow_provider_cdc.core.spi.store_interfaces import ConnectorControl, DesiredState, Lease, StoredOffset
from airflow_provider_cdc.state.connector_registry import Connectors
from airflow_provider_cdc.state.desired_state import Controls
from airflow_provider_cdc.state.leases import Leases
from airflow_provider_cdc.state.metrics import StoredMetrics
from airflow_provider_cdc.state.notifications import Notifications
from airflow_provider_cdc.state.offsets import Offsets
from airflow_provider_cdc.state.pruning import RowPruner
from airflow_provider_cdc.state.schema_history import SchemaHistories
from airflow_provider_cdc.state.signals import Signals
from airflow_provider_cdc.state.state_database import StateDatabase
from airflow_provider_cdc.state.target_notes import TargetNotes


class StateStore:
    """The state store: delegates to one class per concern, over one database.

    Implements :class:`airflow_provider_cdc.core.spi.store_interfaces.StateStore` and :class:`airflow_provider_cdc.core.lifecycle.lifecycle_stores.LifecycleStore`, which document the methods.

        >>> store = StateStore("postgresql+psycopg://airflow:***@db/airflow")
        >>> store.load_offset("shop").offset.seq
        1204

    :param url: SQLAlchemy URL
    :param schema: database schema of the tables, as Airflow's ``[database] sql_alchemy_schema``
    :param lease_ttl_s: how long a lease lives without being renewed; a run that dies frees the connector after this time
    :param patience_s: how long an unreachable database is tried again
    :raises StateError: the URL cannot be used
    """

    def __init__(
        self, url: str, *, schema: str | None = None, lease_ttl_s: float = 30.0, patience_s: float = 60.0
    ) -> None:
        # a run that stands still within a transaction loses it when it loses its lease
        self.database = StateDatabase(url, schema=schema, idle_ms=int(lease_ttl_s * 1000), patience_s=patience_s)
        self.leases = Leases(self.database, lease_ttl_s)
        self._offsets = Offsets(self.database, self.leases)
        self._signals = Signals(self.database)
        self._controls = Controls(self.database)
        self._notifications = Notifications(self.database)
        self._connectors = Connectors(self.database, self.leases)
        self._pruning = RowPruner(self.database)
        self._schemas = SchemaHistories(self.database, self.leases)
        self.metrics = StoredMetrics(self.database)
        self.targets = TargetNotes(self.database)

    def create_tables(self) -> None:
        """Create the tables where they are missing. Airflow deployments use ``airflow db migrate`` instead."""
        self.database.create_tables()

    def check_tables(self) -> None:
        """Check that the state tables exist.

        :raises StateError: the tables are not there
        """
        self.database.check_tables()

    def close(self) -> None:
        """Close every connection; may be called twice."""
        self.database.close()

    # -- leases and offsets -------------------------------------------------------------------------------------------

    def acquire_lease(self, connector: str, owner: str, *, wait_s: float) -> AbstractContextManager[Lease]:
        return self.leases.hold_lease(connector, owner, wait_s=wait_s)

    def confirm_lease(self, lease: Lease) -> None:
        self.leases.confirm_lease(lease)

    def load_offset(self, connector: str) -> StoredOffset:
        return self._offsets.load(connector)

    def commit_batch(
        self, lease: Lease, expected: StoredOffset, manifest: Manifest, manifest_path: str
    ) -> StoredOffset:
        return self._offsets.commit(lease, expected, manifest, manifest_path)

    def advance_offset(
        self,
        lease: Lease,
        expected: StoredOffset,
        offset: Offset,
        notifications: Sequence[Notification] = (),
        signal_outcomes: Sequence[SignalOutcome] = (),
    ) -> StoredOffset:
        return self._offsets.advance(lease, expected, offset, notifications, signal_outcomes)

    def replace_offset(self, lease: Lease, expected: StoredOffset, offset: Offset, reason: str) -> StoredOffset:
        return self._offsets.replace(lease, expected, offset, reason)

    def offset_history(self, connector: str, limit: int = 50, *, version: int | None = None) -> list[OffsetRecord]:
        return self._offsets.list_history(connector, limit, version=version)

    def list_batches(self, connector: str, *, limit: int = 50, batch: int | None = None) -> list[BatchRecord]:
        return self._offsets.list_batches(connector, limit=limit, batch=batch)

    def count_events(self, connector: str, *, since_batch: int) -> int:
        """Count the events of a batch and of all later ones."""
        return self._offsets.count_events(connector, since_batch=since_batch)

    def list_batches_between(self, connector: str, *, after: int, before: datetime) -> list[BatchRecord]:
        """List the batches after one of a number that were committed before a moment, oldest first."""
        return self._offsets.list_batches_between(connector, after=after, before=before)

    def schema_history(self, connector: str) -> Iterator[SchemaChangeRecord]:
        return self._schemas.read_changes(connector)

    def schema_changes_since(self, connector: str, after: datetime, most: int) -> list[SchemaChangeRecord]:
        """List the schema changes that were recorded after a moment, the newest ones of these, oldest first."""
        return self._schemas.list_recent_changes(connector, after, most)

    def newest_schema_changes(
        self, connector: str, most: int, *, before: int | None = None, naming: Collection[str] = ()
    ) -> list[tuple[int, SchemaChangeRecord]]:
        """List the newest schema changes, each with its number, newest first.

        :param before: only changes with lower numbers
        :param naming: only changes of tables with one of these names, in whatever database or schema, and those of several tables at once
        """
        return self._schemas.list_newest_changes(connector, most, before=before, naming=naming)

    def schema_changes_of(self, connector: str, table: TableId) -> list[tuple[int, SchemaChangeRecord]]:
        """List the recorded schema changes that concern a name of a table, each with its batch, oldest first."""
        return self._schemas.of_table(connector, table)

    def load_schemas(self, connector: str) -> StoredSchemas:
        return self._schemas.load_schemas(connector)

    def compact_schemas(self, lease: Lease, base: Sequence[CompactedSchema], upto: int) -> None:
        self._schemas.compact(lease, base, upto)

    # -- signals and notifications ------------------------------------------------------------------------------------

    def send(self, connector: str, signal: SentSignal, *, refusal: str | None = None) -> int:
        return self._signals.send(connector, signal, refusal)

    def count_signals(self, connector: str, channel: str, since: datetime) -> SignalCounts:
        return self._signals.count_signals(connector, channel, since)

    def list_signals(self, connector: str, after: int) -> list[Signal]:
        return self._signals.list_later_signals(connector, after)

    def refuse_signals(self, connector: str, *, after: int, upto: int, sent_after: datetime, message: str) -> list[int]:
        return self._signals.reject_signals(connector, after=after, upto=upto, sent_after=sent_after, message=message)

    def fail_lost_signals(self, connector: str, *, upto: int, requests: Collection[int], message: str) -> list[int]:
        return self._signals.fail_lost(connector, upto=upto, requests=requests, message=message)

    def set_signal_state(
        self, connector: str, number: int, state: SignalState, message: str = "", progress: dict[str, Any] | None = None
    ) -> None:
        self._signals.set_signal_state(connector, number, state, message, progress)

    def signals_of(
        self, connector: str, limit: int = 50, *, number: int | None = None, under_way: bool = False
    ) -> list[SignalRecord]:
        return self._signals.list_newest(connector, limit, number=number, under_way=under_way)

    def open_signals(self) -> dict[str, list[SignalRecord]]:
        """Connector → its signals that have not ended, newest first, without their data."""
        return self._signals.list_open_signals()

    def list_notifications(
        self,
        connector: str,
        *,
        after: int | None = None,
        limit: int = 50,
        about: str | None = None,
        type_: str | None = None,
    ) -> list[NotificationRecord]:
        return self._notifications.list_newest(connector, after=after, limit=limit, about=about, type_=type_)

    def add_notification(self, connector: str, notification: Notification) -> None:
        """Store a notification that comes from no run: a user has looked at data.

        :raises StateUnavailable: it could not be kept
        """
        self._notifications.add(connector, notification)

    # -- steering -----------------------------------------------------------------------------------------------------

    def load_control(self, connector: str) -> ConnectorControl:
        return self._controls.load_control(connector)

    def set_control(self, connector: str, desired_state: DesiredState, by: str, reason: str = "") -> ConnectorControl:
        return self._controls.set_control(connector, desired_state, by, reason)

    def request_restart(self, connector: str, by: str, reason: str = "") -> ConnectorControl:
        return self._controls.request_restart(connector, by, reason)

    def record_run_end(
        self,
        connector: str,
        error: str | None,
        metrics: dict[str, Any] | None = None,
        failure: RunFailure | None = None,
    ) -> None:
        self._controls.record_run_end(connector, error, metrics, failure)

    def record_wait(self, connector: str, until: datetime) -> None:
        """Record that a sensor waits for a repair, at most until a moment."""
        self._controls.record_wait(connector, until)

    # -- connectors ---------------------------------------------------------------------------------------------------

    def register_connector(self, registration: ConnectorRegistration) -> None:
        self._connectors.register(registration)

    def find_registration(self, connector: str) -> ConnectorRegistration | None:
        return self._connectors.load_registration(connector)

    def list_connectors(self, *, metrics: bool = True) -> list[ConnectorRecord]:
        """Every connector, by name.

        :param metrics: with the metrics of the last run of each, which have names of all tables; :attr:`metrics` has the numbers
        """
        return self._connectors.list_records(metrics=metrics)

    def find_connector(self, name: str) -> ConnectorRecord | None:
        records = self._connectors.list_records(name)
        return records[0] if records else None

    def prune_rows(self, connector: str, retention: StateRetention, now: datetime) -> dict[str, int]:
        return self._pruning.prune_rows(connector, retention, now)

    def load_records(self, names: Collection[str]) -> dict[str, ConnectorRecord]:
        """Load the state of some connectors, by one query.

        Also of those that were only paused, or have failed, before they were captured.
        """
        return self._connectors.load_records(names)

    def delete_connector(self, lease: Lease) -> None:
        self._connectors.delete_connector(lease)
