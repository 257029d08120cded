"""What a signal asks for, read from its data.

Types and data are those of the Debezium connector documents ("Sending signals to a connector").

    >>> parse(Signal(1, "ad-hoc-1", "execute-snapshot", '{"data-collections": ["shop.orders"], "type": "INCREMENTAL"}'))
    ExecuteSnapshot(collections=('shop.orders',), blocking=False, conditions={}, surrogate=None, replace=False, chunk_rows=None, ranges=())
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import Any, Final

from airflow_provider_cdc.core.model.signal import Signal
from airflow_provider_cdc.core.signals.key_ranges import AskedRange, BadRange, asked

WINDOW_OPEN: Final = "snapshot-window-open"
WINDOW_CLOSE: Final = "snapshot-window-close"
LARGEST: Final = 1 << 20
"""Characters of a signal's data; what is larger is refused."""
MOST_CHUNK_ROWS: Final = 1_000_000
"""Rows of a chunk that a signal may ask for: a chunk is held in memory, and no signal may end a run."""
SQL: Final = "additional-conditions"
"""Part of ``execute-snapshot`` that the source runs as its sender has written it: a condition, or the statement of a blocking snapshot."""
TYPES: Final = ("execute-snapshot", "stop-snapshot", "pause-snapshot", "resume-snapshot", "log", "schema-changes")
"""Types that every connector knows. A source may know one more (``Source.POSITION_SIGNAL``)."""
_JSON_NAMES = {list: "array", str: "text", bool: "truth value", int: "number", float: "number"}


class Refused(Exception):
    """A signal cannot be carried out; the text says what was wrong with it."""


@dataclass(frozen=True, slots=True)
class ExecuteSnapshot:
    """``execute-snapshot``.

    :param collections: regular expressions, or quoted names, of tables
    :param conditions: table → condition (incremental) or statement (blocking), in the source's own terms; the empty name stands for every table
    :param surrogate: column that chunks are cut by instead of the key
    :param replace: ours (``"replace": true``): tables are emptied in the target first, so that deleted rows disappear
    :param chunk_rows: ours (``"chunk-size"``), incremental: rows that are read at a time; ``None`` = the connector's own setting
    :param ranges: ours (``"key-ranges"``), incremental: of tables that are named here only these ranges are read
    """

    collections: tuple[str, ...]
    blocking: bool = False
    conditions: dict[str, str] = field(default_factory=dict)
    surrogate: str | None = None
    replace: bool = False
    chunk_rows: int | None = None
    ranges: tuple[AskedRange, ...] = ()


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
    """``schema-changes``: table schemas that replace the known ones.

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
    type_ = signal.type.strip()  # a CHAR column fills up with blanks
    match type_:
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
            if (signal.data or "").strip():
                _object(signal)  # the type of a text that is no JSON is not known
            raise Refused("it has no type")
        case _:
            return Other(type_, _object(signal) if (signal.data or "").strip() else {})


def _object(signal: Signal) -> dict[str, Any]:
    if signal.data is None or not signal.data.strip():
        raise Refused("it has no data, which has to be a JSON object")
    try:
        found = json.loads(signal.data)
    except (ValueError, RecursionError) as e:
        raise Refused(f"its data is not JSON: {e}") from None
    if not isinstance(found, dict):
        raise Refused(f"its data is a JSON {_JSON_NAMES.get(type(found), 'null')}, not an object")
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
    if not all(name.strip() for name in found):
        raise Refused('"data-collections" has an empty name')
    for name in found:
        _check_pattern("data-collections", name)
    return tuple(found)


def _check_pattern(where: str, name: str) -> None:
    try:
        re.compile(unquoted(name))
    except (re.error, OverflowError, RecursionError) as e:
        raise Refused(f'"{where}" has {name!r}, which is not a regular expression: {e}') from None


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
        single = json.dumps(single, ensure_ascii=False) if isinstance(single, dict) else single
        if not isinstance(single, str):
            raise Refused('"additional-condition" is not a text')
        conditions[""] = single
    several = data.get("additional-conditions") or []
    if not isinstance(several, list):
        raise Refused('"additional-conditions" is not a list')
    for entry in several:
        table, condition = (
            (entry.get("data-collection"), entry.get("filter")) if isinstance(entry, dict) else (None, None)
        )
        if isinstance(condition, dict):  # of a source whose conditions are documents
            condition = json.dumps(condition, ensure_ascii=False)
        if not isinstance(table, str) or not isinstance(condition, str):
            raise Refused('an entry of "additional-conditions" has no texts "data-collection" and "filter"')
        _check_pattern("additional-conditions", table)
        if table in conditions:
            raise Refused(f'"additional-conditions" has two filters for {table!r}')
        conditions[table] = condition
    surrogate = data.get("surrogate-key") or None
    if surrogate is not None and not isinstance(surrogate, str):
        raise Refused('"surrogate-key" is not a text')
    kept = {table: condition for table, condition in conditions.items() if condition.strip()}
    replace = data.get("replace", False)
    if not isinstance(replace, bool):
        raise Refused('"replace" is neither true nor false')
    if replace and kept:
        raise Refused('"replace" empties the tables, and a condition would bring only some of their rows back')
    blocking = kind == "blocking"
    ranges = _ranges(data)
    if ranges and (blocking or surrogate is not None or replace):
        other = "a blocking snapshot" if blocking else '"replace"' if replace else '"surrogate-key"'
        raise Refused(
            f'"key-ranges" and {other} exclude each other: ranges are rows of the table\'s own key, read in chunks'
        )
    return ExecuteSnapshot(collections, blocking, kept, surrogate, replace, _chunk_rows(data, blocking), ranges)


def _ranges(data: dict[str, Any]) -> tuple[AskedRange, ...]:
    found = data.get("key-ranges")
    if found is None:
        return ()
    if not isinstance(found, list):
        raise Refused('"key-ranges" is not a list')
    try:
        ranges = tuple(map(asked, found))
    except BadRange as e:
        raise Refused(str(e)) from None
    for entry in ranges:
        _check_pattern("key-ranges", entry.table)
    return ranges


def _chunk_rows(data: dict[str, Any], blocking: bool) -> int | None:
    rows = data.get("chunk-size")
    if rows is None:
        return None
    if not isinstance(rows, int) or isinstance(rows, bool) or not 1 <= rows <= MOST_CHUNK_ROWS:
        raise Refused(f'"chunk-size" is not a whole number from 1 to {MOST_CHUNK_ROWS:,}')
    if blocking:
        raise Refused('"chunk-size" is for incremental snapshots: a blocking one reads tables whole')
    return rows


def _stop(data: dict[str, Any]) -> StopSnapshot:
    kind = _kind(data)
    if kind != "incremental":
        raise Refused(f'"type" is {"missing" if kind is None else repr(kind)}; the only valid value is incremental')
    collections = _collections(data)
    if collections == ():
        raise Refused('"data-collections" is empty: leave it out to stop everything')
    return StopSnapshot(collections)


def _schema_changes(data: dict[str, Any]) -> SchemaChanges:
    database, schema, changes = data.get("database"), data.get("schema"), data.get("changes")
    if not isinstance(database, str) or not database:
        raise Refused('its data names no "database"')
    if schema is not None and not isinstance(schema, str):
        raise Refused('"schema" is not a text')
    if not isinstance(changes, list) or not changes or not all(isinstance(c, dict) for c in changes):
        raise Refused('its data has no list of "changes"')
    return SchemaChanges(database, schema or None, tuple(changes))
