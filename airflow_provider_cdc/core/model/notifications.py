"""Notifications: reports of a connector about its snapshots and signals.

They have the documented form (Debezium connector documents, "Notifications"; ``spec`` names ``id``, ``aggregate_type``, ``type``,
``additional_data``). All of them are kept in the state tables, in the transaction that makes the reported facts durable. After
that, the enabled channels get them.
"""

from __future__ import annotations

import enum
import time
import uuid
from dataclasses import dataclass
from typing import Any, Final, Protocol

from pydantic import BaseModel, ConfigDict, Field

INITIAL: Final = "Initial Snapshot"
INCREMENTAL: Final = "Incremental Snapshot"
BLOCKING: Final = "Blocking Snapshot"
SIGNAL: Final = "Signal"
"""Our own kind: of signals that were refused, or that failed."""

ROW: Final = "Row"
"""Our own kind: a person has looked at the data of a row. Kept for good, as it is the only record of it."""


EVENT: Final = "Event"
"""Our own kind: of an event of the log that was set aside."""

ACTION: Final = "Action"
"""Our own kind: a person has asked for something on a page. Kept for good, as :data:`ROW` is."""


class NotificationType(enum.StrEnum):
    STARTED = "STARTED"
    IN_PROGRESS = "IN_PROGRESS"
    TABLE_SCAN_COMPLETED = "TABLE_SCAN_COMPLETED"
    PAUSED = "PAUSED"
    RESUMED = "RESUMED"
    ABORTED = "ABORTED"
    COMPLETED = "COMPLETED"
    SKIPPED = "SKIPPED"
    REFUSED = "REFUSED"
    FAILED = "FAILED"
    SET_ASIDE = "SET_ASIDE"
    VIEWED = "VIEWED"
    REQUESTED = "REQUESTED"


class TableScanStatus(enum.StrEnum):
    """Outcomes of reading a table."""

    SUCCEEDED = "SUCCEEDED"
    EMPTY = "EMPTY"
    NO_PRIMARY_KEY = "NO_PRIMARY_KEY"
    SKIPPED = "SKIPPED"
    SQL_EXCEPTION = "SQL_EXCEPTION"
    UNKNOWN_SCHEMA = "UNKNOWN_SCHEMA"


@dataclass(slots=True)
class ScanProblem:
    """Why a table is not read, or not read to its end."""

    status: TableScanStatus
    text: str


class Notification(BaseModel):
    """A notification.

    :param id: of an incremental snapshot, the id of its signal; otherwise its own
    :param additional_data: texts by name; ``connector_name`` is always there
    :param ts_ms: when it was made
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    id: str = Field(default_factory=lambda: str(uuid.uuid4()))
    aggregate_type: str
    type: str
    additional_data: dict[str, str] = Field(default_factory=dict)
    ts_ms: int = Field(default_factory=lambda: time.time_ns() // 1_000_000)

    def to_document(self) -> dict[str, Any]:
        """Return the document that the documents describe, with ``timestamp``."""
        return {
            "id": self.id,
            "aggregate_type": self.aggregate_type,
            "type": self.type,
            "additional_data": dict(self.additional_data),
            "timestamp": self.ts_ms,
        }

    def __str__(self) -> str:
        details = ", ".join(
            f"{name}={value}" for name, value in self.additional_data.items() if name != "connector_name"
        )
        return f"{self.aggregate_type}: {self.type}" + (f" ({details})" if details else "")


class NotificationChannel(Protocol):
    """Channel to which notifications are sent besides the state tables: ``log``, or one of the user's own.

    The user's own has an entry point of the group ``airflow_provider_cdc.notification_channels``: a callable without arguments that returns one.
    """

    def send(self, connector: str, notification: Notification) -> None:
        """Send a notification whose content is durable already. An error is logged, and has no other effect."""
