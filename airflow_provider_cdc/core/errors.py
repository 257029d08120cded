"""Every error the project raises on purpose, in one tree.

::

    CdcError
    ├── TransientError              the same call may succeed later: retry, nothing needs mending
    │   ├── SourceUnavailable       the database cannot be reached, or closed the connection
    │   │   └── SourceBusy          the database answers, but another session blocks or has ended a statement
    │   ├── TargetUnavailable       the target database cannot be reached, closed the connection, or chose another transaction
    │   ├── StorageUnavailable      the change log's storage refused or lost a request
    │   ├── StateUnavailable        the state database cannot be reached, or is locked
    │   ├── ConnectionUnavailable   a login of the scheduler cannot be looked up
    │   ├── LeaseHeld               another run of this connector is alive
    │   ├── LeaseLost               another run took this connector over: this one may write no more
    │   ├── CommitConflict          another process committed first: read again, then decide
    │   ├── CommitStateUnknown      a commit was sent and not confirmed: it may be durable or not
    │   └── ConnectorHalted         a person has paused or stopped this connector
    └── TerminalError               a person must act; ``remedy`` says how
        ├── ConfigError             a property is unknown, wrong, or contradicts another
        ├── PrerequisiteError       the database is not set up for capture
        │   └── NotGranted          the account may not see or read something there, if it exists at all
        ├── AccessDenied            wrong user, password or a missing privilege
        ├── QueryRejected            the database refuses a statement: a condition that is bad SQL, a missing column or right
        ├── PositionLost            the log no longer holds the position the connector must continue from
        ├── SourceLogDamaged        the log is not what its own checksums and lengths say
        ├── UnknownLogEvent         the log holds something that may carry data and that cannot be read
        ├── UnreadableValue         a value in the log or in a table cannot be represented
        ├── SchemaConflict          rows in the log do not fit the known schema of a table
        ├── ChangeLogDamaged        a file of the change log is missing or is not what the manifest says
        ├── BatchesRemoved          the change log begins later: batches that are needed were removed, as they were old
        ├── StorageFull             no space left: change log, state database, table or spilled data
        ├── StateError              the state tables are missing, too old, or hold something impossible
        └── TargetError             the target table cannot take a change as it is

Texts are for the person on call. They have up to five parts, printed in this order: what happened, ``where``
(table, position, file), ``safe`` (what was **not** lost), ``remedy`` (what to do, as a command where there is one)
and the address of the error's page in the documentation. :mod:`airflow_provider_cdc.core.error_texts` adds the name.

    >>> print(PositionLost("The log starts after the saved position.", where="binlog.000003:4", remedy="do this"))
    The log starts after the saved position.
      Where:  binlog.000003:4
      Repair: do this
      Page:   docs/errors/PositionLost.md
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import ClassVar

from airflow_provider_cdc.core.docs_addresses import build_docs_address

__all__ = [
    "AccessDenied",
    "BatchesRemoved",
    "CdcError",
    "ChangeLogDamaged",
    "CommitConflict",
    "CommitStateUnknown",
    "ConfigError",
    "ConnectionUnavailable",
    "ConnectorHalted",
    "LeaseHeld",
    "LeaseLost",
    "NotGranted",
    "PositionLost",
    "PrerequisiteError",
    "QueryRejected",
    "SchemaConflict",
    "SourceBusy",
    "SourceLogDamaged",
    "SourceUnavailable",
    "StateError",
    "StateUnavailable",
    "StorageFull",
    "StorageUnavailable",
    "TargetError",
    "TargetUnavailable",
    "TerminalError",
    "TransientError",
    "UnknownLogEvent",
    "UnreadableValue",
]


_WITHOUT_PAGE = ("TransientError", "TerminalError")


class CdcError(Exception):
    """Base of all errors of this project.

    :param message: what happened and what it means, one or two sentences
    :param where: table, log position, file or property concerned
    :param safe: what is known to be unharmed
    :param remedy: what to do next; required for terminal errors
    :cvar page_name: the name of its page in ``docs/errors``, which is that of the nearest class with a page; empty if there is none
    """

    page_name: ClassVar[str] = ""

    def __init_subclass__(cls) -> None:
        if cls.__module__ == __name__ and cls.__name__ not in _WITHOUT_PAGE:
            cls.page_name = cls.__name__

    def __init__(self, message: str, *, where: str | None = None, safe: str | None = None, remedy: str | None = None):
        self.message, self.where, self.safe, self.remedy = message, where, safe, remedy
        super().__init__(message)

    def __str__(self) -> str:
        lines = [self.message]
        page = build_docs_address(f"errors/{self.page_name}") if self.page_name else ""
        for title, text in (("Where:", self.where), ("Safe:", self.safe), ("Repair:", self.remedy), ("Page:", page)):
            if text:
                lines.append(f"  {title:<7} {text}")
        return "\n".join(lines)

    def __reduce__(self) -> tuple[object, ...]:
        return _rebuild, (type(self), self.message, self.where, self.safe, self.remedy)


def _rebuild(cls: type[CdcError], text: str, where: str | None, safe: str | None, remedy: str | None) -> CdcError:
    return cls(text, where=where, safe=safe, remedy=remedy)


class TransientError(CdcError):
    """The same call may succeed later; Airflow's own retry is the right answer."""


class SourceUnavailable(TransientError):
    """The database cannot be reached, or closed the connection."""


class SourceBusy(SourceUnavailable):
    """The database answers, but another session has blocked a statement with a lock, or has ended it."""


class TargetUnavailable(TransientError):
    """The target database cannot be reached, closed the connection, or has ended the transaction in favour of another one."""


class StorageUnavailable(TransientError):
    """The change log's storage refused or lost a request."""


class StateUnavailable(TransientError):
    """The state database cannot be reached, or is locked."""


class ConnectionUnavailable(TransientError):
    """A connection cannot be looked up now: it may exist."""


class LeaseHeld(TransientError):
    """Another run of this connector is alive."""


class LeaseLost(TransientError):
    """Another run took this connector over; this one may write no more."""


class CommitConflict(TransientError):
    """Another process committed first."""


class CommitStateUnknown(TransientError):
    """A commit was sent, but its reply was lost: it is not known whether it is durable.

    The files of the commit must neither be deleted nor sent again under another name. The next run finds out what is durable and continues
    from there. A commit that failed for sure is another error: :class:`CommitConflict`, :class:`LeaseLost`, :class:`StorageUnavailable`.
    """


class ConnectorHalted(TransientError):
    """A person has paused or stopped this connector: nothing is captured until it is resumed."""


class TerminalError(CdcError):
    """A person must act; retrying changes nothing.

    :ivar table: name of the only table that it concerns: this table is stopped, and all others are captured. ``None``: the run ends
    :ivar ends_with_read: a snapshot of the table ends it; otherwise the log after the snapshot has it again
    """

    table: str | None = None
    ends_with_read: bool = True


class ConfigError(TerminalError):
    """A property is unknown, wrong, or contradicts another."""


class PrerequisiteError(TerminalError):
    """The database is not set up for capture."""


class NotGranted(PrerequisiteError):
    """The account may not see or read something, or it does not exist: some databases do not say which."""


class AccessDenied(TerminalError):
    """Wrong user or password, or a missing privilege."""


class QueryRejected(TerminalError):
    """The database refuses a statement: a condition that is bad SQL, a missing column, table or right."""


class PositionLost(TerminalError):
    """The log no longer holds the position that the connector must continue from."""


class SourceLogDamaged(TerminalError):
    """The source's log is not what its own checksums and lengths say."""


class UnknownLogEvent(TerminalError):
    """The log holds something that may carry data and that cannot be read."""


class UnreadableValue(TerminalError):
    """A value in the log or in a table cannot be represented, or rows of a table cannot be read: the table is stopped."""


@contextmanager
def values_of(table: object) -> Iterator[None]:
    """Name the table whose values are read: :class:`UnreadableValue` from within gets its name."""
    try:
        yield
    except UnreadableValue as e:
        e.table = e.table or str(table)
        raise


class SchemaConflict(TerminalError):
    """Rows in the log do not fit the known schema of a table."""


class ChangeLogDamaged(TerminalError):
    """A file of the change log is missing or is not what the manifest says."""


class BatchesRemoved(TerminalError):
    """The change log begins later: batches that are needed were removed, by its retention or by another process."""


class StorageFull(TerminalError):
    """No space is left where the change log, the state database, a table or spilled data is written."""


class StateError(TerminalError):
    """The state tables are missing, too old, or hold something impossible."""


class TargetError(TerminalError):
    """The target table cannot take a change as it is."""
