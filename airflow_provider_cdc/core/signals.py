"""Signals: what people ask of a connector while it works, and what became of it.

Types, data and channels are those of the Debezium connector documents ("Sending signals to a connector"). However a signal is
sent, it is recorded in the state tables first, with a number that grows, and taken from there; the offset remembers the number
of the last one that was taken, so that none is lost and none is carried out twice. Every signal has a fate that people can
look up.

    >>> parse(Signal(1, "ad-hoc-1", "execute-snapshot", '{"data-collections": ["shop.orders"], "type": "INCREMENTAL"}'))
    ExecuteSnapshot(collections=('shop.orders',), blocking=False, conditions={}, surrogate=None)
"""

from __future__ import annotations

import enum
import json
import re
from dataclasses import dataclass, field
from typing import Any, Final

WINDOW_OPEN: Final = "snapshot-window-open"
WINDOW_CLOSE: Final = "snapshot-window-close"
LARGEST: Final = 1 << 20
"""Characters of a signal's data; what is larger is refused."""


class Fate(enum.StrEnum):
    """What has become of a signal."""

    RECEIVED = "received"
    RUNNING = "running"
    DONE = "done"
    REFUSED = "refused"
    FAILED = "failed"

    @property
    def final(self) -> bool:
        return self in (Fate.DONE, Fate.REFUSED, Fate.FAILED)


@dataclass(frozen=True, slots=True)
class SentSignal:
    """A signal as a channel brings it.

    :param id: whatever the sender calls it; may be empty, and need not be unique
    :param data: JSON text, or what was sent in its place
    :param origin: where it was found, unique within the connector: found again, it is the same signal; ``None`` = always new
    :param by: who sent it, where that is known
    """

    id: str
    type: str
    data: str | None = None
    channel: str = "airflow"
    origin: str | None = None
    by: str | None = None


@dataclass(frozen=True, slots=True)
class Signal:
    """A recorded signal.

    :param number: its place among all signals of all connectors; grows
    """

    number: int
    id: str
    type: str
    data: str | None = None
    channel: str = "airflow"


class Refused(Exception):
    """A signal cannot be carried out; the text says what was wrong with it."""


@dataclass(frozen=True, slots=True)
class ExecuteSnapshot:
    """``execute-snapshot``.

    :param collections: regular expressions, or quoted names, of tables
    :param conditions: table → SQL condition (incremental) or SELECT (blocking); the empty name stands for every table
    :param surrogate: column that chunks are cut by in place of the key
    """

    collections: tuple[str, ...]
    blocking: bool = False
    conditions: dict[str, str] = field(default_factory=dict)
    surrogate: str | None = None


@dataclass(frozen=True, slots=True)
class StopSnapshot:
    """``stop-snapshot``.

    :param collections: tables to leave out from now on; ``None`` = all
    """

    collections: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class PauseSnapshot:
    """``pause-snapshot``."""


@dataclass(frozen=True, slots=True)
class ResumeSnapshot:
    """``resume-snapshot``."""


@dataclass(frozen=True, slots=True)
class LogMessage:
    """``log``. ``{}`` in the text stands for the position."""

    message: str


@dataclass(frozen=True, slots=True)
class SchemaChanges:
    """``schema-changes``: structures that take the place of those known.

    :param changes: in the form of ``tableChanges`` of a schema change event
    """

    database: str
    schema: str | None
    changes: tuple[dict[str, Any], ...]


@dataclass(frozen=True, slots=True)
class Other:
    """Any other type: of one source, or of the user's own. ``data`` is a JSON object."""

    type: str
    data: dict[str, Any]


Request = ExecuteSnapshot | StopSnapshot | PauseSnapshot | ResumeSnapshot | LogMessage | SchemaChanges | Other


def parse(signal: Signal) -> Request:
    """What a signal asks for.

    :raises Refused: its data cannot be used
    """
    if signal.data is not None and len(signal.data) > LARGEST:
        raise Refused(f"its data has {len(signal.data):,} characters; at most {LARGEST:,} are read")
    match signal.type:
        case "execute-snapshot":
            return _execute(_object(signal))
        case "stop-snapshot":
            return _stop(_object(signal))
        case "pause-snapshot":
            return PauseSnapshot()
        case "resume-snapshot":
            return ResumeSnapshot()
        case "log":
            message = _object(signal).get("message")
            if not isinstance(message, str):
                raise Refused('its data has no text "message"')
            return LogMessage(message)
        case "schema-changes":
            return _schema_changes(_object(signal))
        case "":
            raise Refused("it has no type")
        case _:
            return Other(signal.type, _object(signal) if signal.data else {})


def _object(signal: Signal) -> dict[str, Any]:
    if not signal.data:
        raise Refused("it has no data, which has to be a JSON object")
    try:
        found = json.loads(signal.data)
    except ValueError as e:
        raise Refused(f"its data is not JSON: {e}") from None
    if not isinstance(found, dict):
        raise Refused(f"its data is a JSON {type(found).__name__}, not an object")
    return found


def _kind(data: dict[str, Any]) -> str | None:
    kind = data.get("type")
    if kind is not None and not isinstance(kind, str):
        raise Refused(f'"type" is {kind!r}, not a text')
    return None if kind is None else kind.strip().lower()


def _collections(data: dict[str, Any]) -> tuple[str, ...] | None:
    found = data.get("data-collections")
    if found is None:
        return None
    if isinstance(found, str):
        found = [found]
    if not isinstance(found, list) or not all(isinstance(name, str) for name in found):
        raise Refused('"data-collections" is not a list of texts')
    for name in found:
        try:
            re.compile(unquoted(name))
        except re.error as e:
            raise Refused(f'"data-collections" has {name!r}, which is not a regular expression: {e}') from None
    return tuple(found)


def unquoted(name: str) -> str:
    """A name as a pattern: parts in double quotes stand for themselves.

    >>> unquoted('db1."My.Table"')
    'db1.My\\\\.Table'
    """
    return re.sub(r'"([^"]*)"', lambda m: re.escape(m[1]), name.strip())


def _execute(data: dict[str, Any]) -> ExecuteSnapshot:
    kind = _kind(data) or "incremental"
    if kind not in ("incremental", "blocking"):
        raise Refused(f'"type" is {kind!r}; valid values are incremental and blocking')
    collections = _collections(data)
    if collections is None:
        raise Refused('it names no tables in "data-collections"')
    conditions: dict[str, str] = {}
    single = data.get("additional-condition")
    if single is not None:
        if not isinstance(single, str):
            raise Refused('"additional-condition" is not a text')
        conditions[""] = single
    several = data.get("additional-conditions") or []
    if not isinstance(several, list):
        raise Refused('"additional-conditions" is not a list')
    for entry in several:
        table, condition = (entry.get("data-collection"), entry.get("filter")) if isinstance(entry, dict) else (None, None)
        if not isinstance(table, str) or not isinstance(condition, str):
            raise Refused('an entry of "additional-conditions" has no texts "data-collection" and "filter"')
        conditions[table] = condition
    surrogate = data.get("surrogate-key") or None
    if surrogate is not None and not isinstance(surrogate, str):
        raise Refused('"surrogate-key" is not a text')
    kept = {table: condition for table, condition in conditions.items() if condition.strip()}
    return ExecuteSnapshot(collections, kind == "blocking", kept, surrogate)


def _stop(data: dict[str, Any]) -> StopSnapshot:
    kind = _kind(data)
    if kind != "incremental":
        raise Refused(f'"type" is {"missing" if kind is None else repr(kind)}; the only valid value is incremental')
    return StopSnapshot(_collections(data))


def _schema_changes(data: dict[str, Any]) -> SchemaChanges:
    database, schema, changes = data.get("database"), data.get("schema"), data.get("changes")
    if not isinstance(database, str) or not database:
        raise Refused('its data names no "database"')
    if not isinstance(changes, list) or not changes or not all(isinstance(c, dict) for c in changes):
        raise Refused('its data has no list of "changes"')
    return SchemaChanges(database, schema if isinstance(schema, str) else None, tuple(changes))
