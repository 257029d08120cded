"""Transaction control statements: BEGIN, COMMIT, ROLLBACK, savepoints, XA.

:func:`apply` marks in the buffer where transactions begin and end. It returns an outcome where rows that were delivered, or that lie
elsewhere in the log, are concerned; the event dispatcher acts on it.

The rows of a prepared XA transaction are skipped at first, and read from the log when the transaction is committed.
"""

from __future__ import annotations

import unicodedata
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

    :param since: number of its first row event that is rolled back
    :param to: number after the last one that is rolled back
    """

    since: int
    to: int


@dataclass(frozen=True, slots=True)
class EndPrepared:
    """A prepared XA transaction is committed or rolled back."""

    xid: str
    commit: bool


@dataclass(frozen=True, slots=True)
class Malformed:
    """A COMMIT or ROLLBACK without a BEGIN."""


Outcome = RolledBack | RolledBackTo | EndPrepared | Malformed


def apply(statement: ddl.Transaction, i: int, buffer: EventBuffer) -> Outcome | None:
    """Apply a transaction control statement, the event ``i``, to the buffer.

    :return: what the dispatcher has to do; ``None`` = nothing
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
            buffer.set_savepoint(same_name(name), i)
        case "rollback to":
            return RolledBackTo(_savepoint(name, i, buffer), buffer.rows_before(i))
        case "xa start":
            buffer.name_xa(name)
        case "commit" | "rollback":
            return Malformed()
        case "xa commit" | "xa rollback":
            return EndPrepared(name, statement.kind == "xa commit")
    return None


def same_name(name: str) -> str:
    """A savepoint's name as servers compare it: without case and accents.

    >>> same_name("Été") == same_name("ete")
    True
    """
    letters = (unicodedata.normalize("NFD", letter)[0] for letter in name)
    return "".join(letter.upper() if len(letter.upper()) == 1 else letter.upper()[0] for letter in letters)


def _savepoint(name: str, i: int, buffer: EventBuffer) -> int:
    """The number of the first row event after a savepoint.

    :raises UnknownLogEvent: the transaction has none of this name: what would be rolled back is not known
    """
    found = buffer.state_of(buffer.tx).savepoints.get(same_name(name))
    if found is None:
        why = f"it rolls back to the savepoint {name}, which its transaction has not set"
        raise ev.unknown_event(ev.QUERY, buffer.where(i), why)
    return found


def exclude_rolled_back(back: RolledBackTo, i: int, buffer: EventBuffer) -> bool:
    """Exclude the rows before event ``i`` that a ROLLBACK TO SAVEPOINT takes back.

    :return: whether all of them are still in the buffer; if not, some were delivered already
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
    """File, offset and server at which the open transaction begins, as ``MySqlPosition.prepared`` keeps it."""
    first, begins = int(buffer.transactions[buffer.tx, k.TX_FIRST]), buffer.state_of(buffer.tx).begins
    file, pos = begins if begins is not None else (cursor.file, buffer.start(first))
    return {"file": file, "pos": pos, "server": cursor.server.identity}


def start_of_prepared(end: EndPrepared, i: int, buffer: EventBuffer, cursor: LogCursor) -> dict[str, Any] | None:
    """Where to read the rows of a prepared transaction that ends; ``None`` if it is rolled back.

    :raises UnknownLogEvent: it is committed, but was prepared before capture began or on another server
    """
    start = cursor.position.prepared.get(end.xid)
    elsewhere = start is not None and start["server"] != cursor.server.identity
    if end.commit and (start is None or elsewhere):
        when = "in the log of another server" if elsewhere else "before the position where capture began"
        why = f"XA transaction {end.xid} was prepared {when}, so that its rows are unknown"
        raise ev.unknown_event(ev.QUERY, buffer.where(i), why)
    return start if end.commit else None
