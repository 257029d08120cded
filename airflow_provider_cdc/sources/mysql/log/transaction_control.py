"""What begins, ends and takes back transactions by a statement: BEGIN, COMMIT, savepoints, XA.

The buffer learns where transactions begin and end. What concerns rows that were handed on, or that lie elsewhere in the log, is
returned: the event dispatcher does it.

Rows of a transaction that XA has prepared wait in the log: they are passed over, and read when it is committed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from airflow_provider_cdc.sources.mysql import kernels as k
from airflow_provider_cdc.sources.mysql.log.cursor import LogCursor
from airflow_provider_cdc.sources.mysql.log.event_buffer import EventBuffer
from airflow_provider_cdc.sources.mysql.log.events import event_types as ev
from airflow_provider_cdc.sources.mysql.log.events.event_bodies import xa_id
from airflow_provider_cdc.sources.mysql.schema import ddl


@dataclass(frozen=True, slots=True)
class RolledBack:
    """The open transaction is rolled back as a whole."""


@dataclass(frozen=True, slots=True)
class RolledBackTo:
    """The open transaction is rolled back to a savepoint.

    :param since: number of its first row event that is void
    :param to: number of its first one after them
    """

    since: int
    to: int


@dataclass(frozen=True, slots=True)
class EndPrepared:
    """An XA transaction that was prepared is committed or rolled back."""

    xid: str
    commit: bool


@dataclass(frozen=True, slots=True)
class Malformed:
    """The end of a transaction that did not begin."""


Outcome = RolledBack | RolledBackTo | EndPrepared | Malformed


def apply(statement: ddl.Transaction, i: int, buffer: EventBuffer) -> Outcome | None:
    """Apply a statement that concerns the transaction and no table, the event ``i``.

    :return: what is left to do
    """
    name = statement.name or ""
    match statement.kind:
        case "begin" if not buffer.open:
            buffer.begin(i)
        case "commit" if buffer.open:
            buffer.close(i)
        case "rollback" if buffer.open:
            return RolledBack()
        case "savepoint":
            buffer.set_savepoint(name, i)
        case "rollback to":
            return RolledBackTo(buffer.state_of(buffer.tx).savepoints.get(name, 0), buffer.rows_before(i))
        case "xa start":
            buffer.name_xa(name)
        case "commit" | "rollback":
            return Malformed()
        case "xa commit" | "xa rollback":
            return EndPrepared(name, statement.kind == "xa commit")
    return None


def exclude_rolled_back(back: RolledBackTo, i: int, buffer: EventBuffer) -> bool:
    """Leave out what the open transaction takes back before event ``i``.

    :return: whether all of it is in the buffer; if not, the rest of it was handed on
    """
    gone = buffer.state_of(buffer.tx).row_events
    buffer.exclude_rows(np.flatnonzero(buffer.rows(buffer.tx, i))[max(back.since - gone, 0) :])
    return back.since >= gone


def is_one_phase(i: int, buffer: EventBuffer) -> bool:
    """Whether an XA_PREPARE event commits the transaction at once."""
    return bool(buffer.events.body(i)[0])


def xid_of(i: int, buffer: EventBuffer) -> str:
    """The XA id of the open transaction, which the XA_PREPARE event ``i`` ends."""
    return buffer.state_of(buffer.tx).xa or xa_id(buffer.events.body(i))


def start_of_open(buffer: EventBuffer, cursor: LogCursor) -> dict[str, Any]:
    """Where the rows of the open transaction begin, as a position keeps it."""
    first = int(buffer.transactions[buffer.tx, k.TX_FIRST])
    pos = buffer.start(first) if first >= 0 else cursor.position.pos
    return {"file": cursor.file, "pos": pos, "server": cursor.server.identity}


def start_of_prepared(end: EndPrepared, i: int, buffer: EventBuffer, cursor: LogCursor) -> dict[str, Any] | None:
    """Where the rows begin that are to be read at the end of a prepared transaction; ``None`` = there are none.

    :raises UnknownLogEvent: it is committed, and its rows are unknown
    """
    start = cursor.position.prepared.get(end.xid)
    elsewhere = start is not None and start["server"] != cursor.server.identity
    if end.commit and (start is None or elsewhere):
        when = "in the log of another server" if elsewhere else "before the place where capture began"
        why = f"XA transaction {end.xid} was prepared {when}, so that its rows are unknown"
        raise ev.unknown_event(ev.QUERY, buffer.where(i), why)
    return start if end.commit else None
