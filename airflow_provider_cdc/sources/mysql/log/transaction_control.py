"""Transaction control statements: BEGIN, COMMIT, ROLLBACK, savepoints, XA.

:func:`apply_transaction_control` marks in the buffer where transactions begin and end. It returns an outcome where rows that were delivered, or that lie
elsewhere in the log, are concerned; the event dispatcher acts on it.

The rows of a prepared XA transaction are skipped at first, and read from the log when the transaction is committed.
"""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass
from typing import Any

import numpy as np

from airflow_provider_cdc.sources.mysql import kernels as k
from airflow_provider_cdc.sources.mysql.log.binlog_position_tracker import LogCursor
from airflow_provider_cdc.sources.mysql.log.events import event_types as ev
from airflow_provider_cdc.sources.mysql.log.events.event_body_parsers import xa_id
from airflow_provider_cdc.sources.mysql.log.transaction_event_buffer import EventBuffer
from airflow_provider_cdc.sources.mysql.schema import ddl


@dataclass(frozen=True, slots=True)
class TransactionRollback:
    """The open transaction is rolled back as a whole."""


@dataclass(frozen=True, slots=True)
class SavepointRollback:
    """The open transaction is rolled back to a savepoint.

    :param first: number of its first row event that is rolled back
    :param to: number after the last one that is rolled back
    """

    first: int
    to: int


@dataclass(frozen=True, slots=True)
class PreparedTransactionEnd:
    """A prepared XA transaction is committed or rolled back."""

    xid: str
    commit: bool


@dataclass(frozen=True, slots=True)
class MalformedTransaction:
    """A COMMIT or ROLLBACK without a BEGIN."""


Outcome = TransactionRollback | SavepointRollback | PreparedTransactionEnd | MalformedTransaction


def apply_transaction_control(statement: ddl.TransactionControl, i: int, buffer: EventBuffer) -> Outcome | None:
    """Apply a transaction control statement, the event ``i``, to the buffer.

    :return: the next step of the dispatcher; ``None`` = nothing
    """
    name = statement.name or ""
    match statement.kind:
        case "begin" if not buffer.has_open_transaction:
            buffer.begin_transaction(i)
        case "commit" if buffer.has_open_transaction:
            buffer.close_transaction(i)
        case "rollback" if buffer.has_open_transaction:
            return TransactionRollback()
        case "savepoint":
            buffer.set_savepoint(same_name(name), i)
        case "rollback to":
            return SavepointRollback(_savepoint(name, i, buffer), buffer.rows_before(i))
        case "xa start":
            buffer.name_xa(name)
        case "commit" | "rollback":
            return MalformedTransaction()
        case "xa commit" | "xa rollback":
            return PreparedTransactionEnd(name, statement.kind == "xa commit")
    return None


def same_name(name: str) -> str:
    """Return a savepoint's name as servers compare it: without case and accents.

    >>> same_name("Été") == same_name("ete")
    True
    """
    letters = (unicodedata.normalize("NFD", letter)[0] for letter in name)
    return "".join(letter.upper() if len(letter.upper()) == 1 else letter.upper()[0] for letter in letters)


def _savepoint(name: str, i: int, buffer: EventBuffer) -> int:
    """Return the number of the first row event after a savepoint.

    :raises UnknownLogEvent: the transaction has none of this name: the rows to roll back are not known
    """
    savepoint = buffer.state_of(buffer.last_transaction_index).savepoints.get(same_name(name))
    if savepoint is None:
        why = f"it rolls back to the savepoint {name}, which its transaction has not set"
        raise ev.unknown_event(ev.QUERY, buffer.format_location(i), why)
    return savepoint


def exclude_rolled_back(back: SavepointRollback, i: int, buffer: EventBuffer) -> bool:
    """Exclude the rows before event ``i`` that a ROLLBACK TO SAVEPOINT takes back.

    :return: whether all of them are still in the buffer; if not, some were delivered already
    """
    gone = buffer.state_of(buffer.last_transaction_index).row_events
    buffer.exclude_rows(
        np.flatnonzero(buffer.mask_row_events(buffer.last_transaction_index, i))[max(back.first - gone, 0) :]
    )
    return back.first >= gone


def is_one_phase(i: int, buffer: EventBuffer) -> bool:
    """Check whether an XA_PREPARE event commits the transaction at once."""
    return bool(buffer.events.get_event_body(i)[0])


def xid_of(i: int, buffer: EventBuffer) -> str:
    """Return the XA id of the open transaction, which the XA_PREPARE event ``i`` ends."""
    return buffer.state_of(buffer.last_transaction_index).xa or xa_id(buffer.events.get_event_body(i))


def start_of_open(buffer: EventBuffer, cursor: LogCursor) -> dict[str, Any]:
    """File, offset and server at which the open transaction begins, as ``MySqlPosition.prepared`` keeps it."""
    first, begins = (
        int(buffer.transactions[buffer.last_transaction_index, k.TX_FIRST]),
        buffer.state_of(buffer.last_transaction_index).begins,
    )
    file, pos = begins if begins is not None else (cursor.file, buffer.get_start_offset(first))
    return {"file": file, "pos": pos, "server": cursor.server.identity}


def start_of_prepared(
    end: PreparedTransactionEnd, i: int, buffer: EventBuffer, cursor: LogCursor
) -> dict[str, Any] | None:
    """Return where to read the rows of a prepared transaction that ends; ``None`` if it is rolled back.

    :raises UnknownLogEvent: it is committed, but was prepared before capture began or on another server
    """
    start = cursor.position.prepared.get(end.xid)
    elsewhere = start is not None and start["server"] != cursor.server.identity
    if end.commit and (start is None or elsewhere):
        when = "in the log of another server" if elsewhere else "before capture started"
        why = f"XA transaction {end.xid} was prepared {when}, so its rows are unknown"
        raise ev.unknown_event(ev.QUERY, buffer.format_location(i), why)
    return start if end.commit else None
