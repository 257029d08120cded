"""Requests of signals, read from their data.

Types and data are those of the Debezium connector documents ("Sending signals to a connector").

    >>> parse_request(Signal(1, "ad-hoc-1", "execute-snapshot", '{"data-collections": ["shop.orders"], "type": "INCREMENTAL"}'))
    ExecuteSnapshot(collections=('shop.orders',), blocking=False, conditions={}, surrogate=None, replace=False, chunk_rows=None, ranges=(), on_spark=False)
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import Any, Final

from airflow_provider_cdc.core.model.connector_signal import Signal
from airflow_provider_cdc.core.signals.requested_key_ranges import InvalidKeyRange, RequestedRange, parse_range

WINDOW_OPEN: Final = "snapshot-window-open"
WINDOW_CLOSE: Final = "snapshot-window-close"
LARGEST: Final = 1 << 20
"""Most characters of a signal's data; a larger signal is refused."""
MOST_CHUNK_ROWS: Final = 1_000_000
"""Rows of a chunk that a signal may ask for: a chunk is held in memory, and no signal may end a run."""
SQL: Final = "additional-conditions"
"""Part of ``execute-snapshot`` that the source runs as its sender has written it: a condition, or the statement of a blocking snapshot."""
REPLACE: Final = "replace"
SCHEMA_CHANGES: Final = "schema-changes"
TYPES: Final = ("execute-snapshot", "stop-snapshot", "pause-snapshot", "resume-snapshot", "log", SCHEMA_CHANGES)
"""Types that every connector knows. A source may know one more (``Source.POSITION_SIGNAL``)."""
_JSON_NAMES = {list: "array", str: "string", bool: "boolean", int: "number", float: "number"}


class SignalRejected(Exception):
    """A signal cannot be carried out; the text names the error."""


@dataclass(frozen=True, slots=True)
class ExecuteSnapshotRequest:
    """``execute-snapshot``.

    :param collections: regular expressions, or quoted names, of tables
    :param conditions: table → condition (incremental) or statement (blocking), in the source's own terms; the empty name stands for every table
    :param surrogate: column that chunks are cut by instead of the key
    :param replace: ours (``"replace": true``): tables are emptied in the target first, so that deleted rows disappear
    :param chunk_rows: ours (``"chunk-size"``), incremental: rows that are read at a time; ``None`` = the connector's own setting
    :param ranges: ours (``"key-ranges"``), incremental: of tables that are named here only these ranges are read
    :param on_spark: ours (``"engine": "spark"``), blocking: executors of Spark read the tables
    """

    collections: tuple[str, ...]
    blocking: bool = False
    conditions: dict[str, str] = field(default_factory=dict)
    surrogate: str | None = None
    replace: bool = False
    chunk_rows: int | None = None
    ranges: tuple[RequestedRange, ...] = ()
    on_spark: bool = False


@dataclass(frozen=True, slots=True)
class StopSnapshotRequest:
    """``stop-snapshot``.

    :param collections: tables to leave out from now on; ``None`` = all
    """

    collections: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class PauseSnapshotRequest:
    """``pause-snapshot``."""


@dataclass(frozen=True, slots=True)
class ResumeSnapshotRequest:
    """``resume-snapshot``."""


@dataclass(frozen=True, slots=True)
class LogMessageRequest:
    """``log``. ``{}`` in the text stands for the position."""

    message: str


@dataclass(frozen=True, slots=True)
class SchemaChangesRequest:
    """``schema-changes``: table schemas that replace the known ones.

    :param changes: in the form of ``tableChanges`` of a schema change event
    """

    database: str
    schema: str | None
    changes: tuple[dict[str, Any], ...]


@dataclass(frozen=True, slots=True)
class OtherRequest:
    """Any other type: of one source, or of the user's own. ``data`` is a JSON object."""

    type: str
    data: dict[str, Any]


Request = (
    ExecuteSnapshotRequest
    | StopSnapshotRequest
    | PauseSnapshotRequest
    | ResumeSnapshotRequest
    | LogMessageRequest
    | SchemaChangesRequest
    | OtherRequest
)


def parse_request(signal: Signal) -> Request:
    """Parse the request of a signal.

    :raises SignalRejected: its data cannot be used
    """
    if signal.data is not None and len(signal.data) > LARGEST:
        raise SignalRejected(f"its data has {len(signal.data):,} characters; the limit is {LARGEST:,}")
    type_ = signal.type.strip()  # a CHAR column fills up with blanks
    match type_:
        case "execute-snapshot":
            return _execute(_object(signal))
        case "stop-snapshot":
            return _stop(_object(signal))
        case "pause-snapshot":
            return PauseSnapshotRequest()
        case "resume-snapshot":
            return ResumeSnapshotRequest()
        case "log":
            message = _object(signal).get("message")
            if not isinstance(message, str):
                raise SignalRejected('its data has no string "message"')
            return LogMessageRequest(message)
        case "schema-changes":
            return _schema_changes(_object(signal))
        case "":
            if (signal.data or "").strip():
                _object(signal)  # the type of a text that is no JSON is not known
            raise SignalRejected("it has no type")
        case _:
            return OtherRequest(type_, _object(signal) if (signal.data or "").strip() else {})


def _object(signal: Signal) -> dict[str, Any]:
    if signal.data is None or not signal.data.strip():
        raise SignalRejected("it has no data; the data must be a JSON object")
    try:
        document = json.loads(signal.data)
    except (ValueError, RecursionError) as e:
        raise SignalRejected(f"its data is not JSON: {e}") from None
    if not isinstance(document, dict):
        raise SignalRejected(f"its data is a JSON {_JSON_NAMES.get(type(document), 'null')}, not an object")
    return document


def _kind(data: dict[str, Any]) -> str | None:
    kind = data.get("type")
    if kind is not None and not isinstance(kind, str):
        raise SignalRejected(f'"type" is {kind!r}, not a string')
    return None if kind is None else kind.strip().lower()


def _collections(data: dict[str, Any]) -> tuple[str, ...] | None:
    names = data.get("data-collections")
    if names is None:
        return None
    if isinstance(names, str):
        names = [names]
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise SignalRejected('"data-collections" is not a list of strings')
    if not all(name.strip() for name in names):
        raise SignalRejected('"data-collections" has an empty name')
    for name in names:
        _check_pattern("data-collections", name)
    return tuple(names)


def _check_pattern(where: str, name: str) -> None:
    try:
        re.compile(pattern_from_name(name))
    except (re.error, OverflowError, RecursionError) as e:
        raise SignalRejected(f'"{where}" has {name!r}, which is not a regular expression: {e}') from None


def pattern_from_name(name: str) -> str:
    """Return a name as a pattern: parts in double quotes stand for themselves.

    >>> pattern_from_name('db1."My.Table"')
    'db1.My\\\\.Table'
    """
    return re.sub(r'"([^"]*)"', lambda m: re.escape(m[1]), name.strip())


def _execute(data: dict[str, Any]) -> ExecuteSnapshotRequest:
    kind = _kind(data) or "incremental"
    if kind not in ("incremental", "blocking"):
        raise SignalRejected(f'"type" is {kind!r}; valid values are incremental and blocking')
    collections = _collections(data)
    if collections is None:
        raise SignalRejected('it names no tables in "data-collections"')
    conditions: dict[str, str] = {}
    single = data.get("additional-condition")
    if single is not None:
        single = json.dumps(single, ensure_ascii=False) if isinstance(single, dict) else single
        if not isinstance(single, str):
            raise SignalRejected('"additional-condition" is not a string')
        conditions[""] = single
    several = data.get("additional-conditions") or []
    if not isinstance(several, list):
        raise SignalRejected('"additional-conditions" is not a list')
    for entry in several:
        table, condition = (
            (entry.get("data-collection"), entry.get("filter")) if isinstance(entry, dict) else (None, None)
        )
        if isinstance(condition, dict):  # of a source whose conditions are documents
            condition = json.dumps(condition, ensure_ascii=False)
        if not isinstance(table, str) or not isinstance(condition, str):
            raise SignalRejected(
                'an entry of "additional-conditions" must have the strings "data-collection" and "filter"'
            )
        _check_pattern("additional-conditions", table)
        if table in conditions:
            raise SignalRejected(f'"additional-conditions" has two filters for {table!r}')
        conditions[table] = condition
    surrogate = data.get("surrogate-key") or None
    if surrogate is not None and not isinstance(surrogate, str):
        raise SignalRejected('"surrogate-key" is not a string')
    nonempty = {table: condition for table, condition in conditions.items() if condition.strip()}
    replace = data.get("replace", False)
    if not isinstance(replace, bool):
        raise SignalRejected('"replace" is neither true nor false')
    if replace and nonempty:
        raise SignalRejected(
            '"replace" empties the tables, and with a condition only some of their rows would be read again'
        )
    blocking = kind == "blocking"
    ranges = _ranges(data)
    if ranges and (blocking or surrogate is not None or replace):
        other = "a blocking snapshot" if blocking else '"replace"' if replace else '"surrogate-key"'
        raise SignalRejected(
            f'"key-ranges" and {other} exclude each other: key ranges apply to the key of the table and are read in chunks'
        )
    return ExecuteSnapshotRequest(
        collections,
        blocking,
        nonempty,
        surrogate,
        replace,
        _chunk_rows(data, blocking),
        ranges,
        _on_spark(data, blocking),
    )


def _on_spark(data: dict[str, Any], blocking: bool) -> bool:
    engine = data.get("engine")
    if engine is None:
        return False
    if engine not in ("embedded", "spark"):
        raise SignalRejected(f'"engine" is {engine!r}; valid values are embedded and spark')
    if engine == "spark" and not blocking:
        raise SignalRejected(
            '"engine": "spark" needs "type": "blocking": chunks beside the stream are read by the capture'
        )
    return bool(engine == "spark")


def _ranges(data: dict[str, Any]) -> tuple[RequestedRange, ...]:
    entries = data.get("key-ranges")
    if entries is None:
        return ()
    if not isinstance(entries, list):
        raise SignalRejected('"key-ranges" is not a list')
    try:
        ranges = tuple(map(parse_range, entries))
    except InvalidKeyRange as e:
        raise SignalRejected(str(e)) from None
    for entry in ranges:
        _check_pattern("key-ranges", entry.table)
    return ranges


def _chunk_rows(data: dict[str, Any], blocking: bool) -> int | None:
    rows = data.get("chunk-size")
    if rows is None:
        return None
    if not isinstance(rows, int) or isinstance(rows, bool) or not 1 <= rows <= MOST_CHUNK_ROWS:
        raise SignalRejected(f'"chunk-size" is not a whole number from 1 to {MOST_CHUNK_ROWS:,}')
    if blocking:
        raise SignalRejected(
            '"chunk-size" is valid only for incremental snapshots: a blocking snapshot reads whole tables'
        )
    return rows


def _stop(data: dict[str, Any]) -> StopSnapshotRequest:
    kind = _kind(data)
    if kind != "incremental":
        raise SignalRejected(
            f'"type" is {"missing" if kind is None else repr(kind)}; the only valid value is incremental'
        )
    collections = _collections(data)
    if collections == ():
        raise SignalRejected('"data-collections" is empty: leave it out to stop all incremental snapshots')
    return StopSnapshotRequest(collections)


def _schema_changes(data: dict[str, Any]) -> SchemaChangesRequest:
    database, schema, changes = data.get("database"), data.get("schema"), data.get("changes")
    if not isinstance(database, str) or not database:
        raise SignalRejected('its data has no "database"')
    if schema is not None and not isinstance(schema, str):
        raise SignalRejected('"schema" is not a string')
    if not isinstance(changes, list) or not changes or not all(isinstance(c, dict) for c in changes):
        raise SignalRejected('its data has no list "changes"')
    return SchemaChangesRequest(database, schema or None, tuple(changes))
