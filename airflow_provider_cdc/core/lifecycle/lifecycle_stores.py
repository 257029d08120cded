"""The interfaces that steering a connector needs, besides those of a run.

They are a state store that can be looked through, and a change log that can be deleted.
"""

from __future__ import annotations

from datetime import datetime
from typing import Protocol

from airflow_provider_cdc.core.model.connector_offset import Offset
from airflow_provider_cdc.core.model.notifications import Notification
from airflow_provider_cdc.core.spi.state_records import (
    BatchRecord,
    ConnectorRecord,
    ConnectorRegistration,
    NotificationRecord,
    OffsetRecord,
    SignalRecord,
)
from airflow_provider_cdc.core.spi.state_row_retention import StateRetention
from airflow_provider_cdc.core.spi.store_interfaces import (
    ChangeLog,
    ConnectorControl,
    DesiredState,
    Lease,
    StateStore,
    StoredOffset,
)


class LifecycleStore(StateStore, Protocol):
    """The additional needs that commands, pages and operators have of the state store, besides :class:`StateStore`."""

    def add_notification(self, connector: str, notification: Notification) -> None:
        """Store a notification that comes from no run."""

    def register_connector(self, registration: ConnectorRegistration) -> None:
        """Record a connector's definition. It is written only if it has changed."""

    def find_registration(self, connector: str) -> ConnectorRegistration | None:
        """Return the last registration."""

    def list_connectors(self) -> list[ConnectorRecord]:
        """Every connector, by name."""

    def find_connector(self, name: str) -> ConnectorRecord | None:
        """Find a connector; ``None`` if it has not run yet."""

    def list_batches(self, connector: str, *, limit: int = 50, batch: int | None = None) -> list[BatchRecord]:
        """List the newest batches, newest first, or one of them."""

    def signals_of(
        self, connector: str, limit: int = 50, *, number: int | None = None, under_way: bool = False
    ) -> list[SignalRecord]:
        """Signals with their states, newest first.

        :param number: only this one, with all of its data; lists have the first 2,000 characters
        :param under_way: only those whose state is not final
        """

    def list_notifications(
        self, connector: str, *, after: int | None = None, limit: int = 50
    ) -> list[NotificationRecord]:
        """Notifications, oldest first.

        :param after: those with a number above this one; by default the newest ones
        """

    def offset_history(self, connector: str, limit: int = 50, *, version: int | None = None) -> list[OffsetRecord]:
        """Offsets that a connector has had, newest first.

        :param version: only this one
        """

    def set_control(self, connector: str, desired_state: DesiredState, by: str, reason: str = "") -> ConnectorControl:
        """Record the desired state of a connector; a run that is alive sees it within a second or two.

        :param by: who asks
        """

    def request_restart(self, connector: str, by: str, reason: str = "") -> ConnectorControl:
        """Ask the run that is alive to end, so that another one begins. The desired state of the connector stays."""

    def replace_offset(self, lease: Lease, expected: StoredOffset, offset: Offset, reason: str) -> StoredOffset:
        """Replace the offset with another one; the one before stays in the history. Raises like :meth:`commit`.

        :param reason: who wants it, and why
        """

    def prune_rows(self, connector: str, retention: StateRetention, now: datetime) -> dict[str, int]:
        """Remove rows that are older than the retention and that nothing needs: no run, no rewind within it, no open signal.

        :return: kind of row → how many were removed
        """

    def delete_connector(self, lease: Lease) -> None:
        """Delete everything that is kept of a connector except the epoch of its lease and the records of people's actions.

        :raises LeaseLost: another run took over
        """


class DeletableChangeLog(ChangeLog, Protocol):
    """A change log that a connector can be deleted from."""

    def delete(self, connector: str) -> None:
        """Delete everything of a connector."""
