"""The values that properties of a connector take: enumerations, and the lists that are written as one text.

This module is imported at DAG parse: it must stay light.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Mapping
from typing import Annotated, Any, Final

from pydantic import AfterValidator, BeforeValidator

from airflow_provider_cdc.core.name_patterns import split_patterns

CHUNK_BYTES: Final = 16 << 20
"""Bytes after which a chunk of an incremental snapshot ends, unless ``incremental.snapshot.chunk.max.bytes`` says otherwise."""

RETENTION_MS: Final = 30 * 24 * 3_600_000
"""How long rows of the state tables are kept, unless ``state.retention.*`` says otherwise: 30 days."""
_LEAST_KEPT_MS: Final = 3_600_000
"""An hour: no one who reads the rows now still needs older ones."""


def _retention_ms(ms: int) -> int:
    if ms != -1 and ms < _LEAST_KEPT_MS:
        raise ValueError(f"{ms} is too small: use at least {_LEAST_KEPT_MS} (one hour), or -1 to keep them forever")
    return ms


RetentionMs = Annotated[int, AfterValidator(_retention_ms)]
"""How long something is kept, in milliseconds; -1: for good."""


class SnapshotMode(enum.StrEnum):
    """The occasions on which a connector reads whole tables (Debezium MySQL connector, ``snapshot.mode``)."""

    ALWAYS = "always"
    INITIAL = "initial"
    INITIAL_ONLY = "initial_only"
    NO_DATA = "no_data"
    NEVER = "never"
    RECOVERY = "recovery"
    WHEN_NEEDED = "when_needed"
    CONFIGURATION_BASED = "configuration_based"
    CUSTOM = "custom"


class SnapshotQueryMode(enum.StrEnum):
    """The columns and rows that a snapshot reads of a table."""

    SELECT_ALL = "select_all"
    CUSTOM = "custom"


class DecimalHandling(enum.StrEnum):
    PRECISE = "precise"
    DOUBLE = "double"
    STRING = "string"


class BinaryHandling(enum.StrEnum):
    BYTES = "bytes"
    BASE64 = "base64"
    BASE64_URL_SAFE = "base64-url-safe"
    HEX = "hex"


class TimePrecision(enum.StrEnum):
    ADAPTIVE_TIME_MICROSECONDS = "adaptive_time_microseconds"
    ADAPTIVE = "adaptive"
    CONNECT = "connect"


class FailureHandling(enum.StrEnum):
    """Ways to handle an event of the log that cannot be read (Debezium connector documents, ``event.processing.failure.handling.mode``)."""

    FAIL = "fail"
    """The table is stopped, and each run fails until a person has it read again."""
    WARN = "warn"
    """The event is set aside with a warning, and its table is read again."""
    SKIP = "skip"
    """The same, without a warning in the log of the task."""


class SnapshotEngine(enum.StrEnum):
    """The processes that read the tables of a snapshot."""

    EMBEDDED = "embedded"
    SPARK = "spark"


class RowCountOrder(enum.StrEnum):
    DISABLED = "disabled"
    ASCENDING = "ascending"
    DESCENDING = "descending"


class NameAdjustment(enum.StrEnum):
    """The replacement of names that Avro does not allow, in the Debezium JSON form."""

    NONE = "none"
    AVRO = "avro"
    AVRO_UNICODE = "avro_unicode"


class WatermarkStrategy(enum.StrEnum):
    INSERT_INSERT = "insert_insert"
    INSERT_DELETE = "insert_delete"


class LostPositionMode(enum.StrEnum):
    """The reaction when the log no longer holds the connector's position."""

    FAIL = "fail"
    SNAPSHOT = "snapshot"
    INCREMENTAL = "incremental"


class TableLimitAction(enum.StrEnum):
    """The reaction when more tables are captured than allowed."""

    WARN = "warn"
    FAIL = "fail"


class RewriteMode(enum.StrEnum):
    """The reaction when a DDL statement changed rows in a way that the log does not show."""

    SNAPSHOT = "snapshot"
    FAIL = "fail"
    IGNORE = "ignore"


_COUNTED = re.compile(r"\{\d*,\d*\}")
_POSIX_CLASS = re.compile(r"\[[:.=]\w+[:.=]\]")


def _split_patterns(value: Any) -> Any:
    """``"a,b"`` → ``("a", "b")``; a comma inside a pattern is written ``\\,``. Each part must be a regular expression."""
    if isinstance(value, str):
        if match := _COUNTED.search(value):
            escaped = match[0].replace(",", "\\,")
            raise ValueError(
                f"{value!r} is split at the comma of {match[0]}: write {escaped}, or use a list of patterns"
            )
        value = split_patterns(value)
    parts = tuple(p.strip() for p in _texts(value) if p.strip())
    for part in parts:
        if match := _POSIX_CLASS.search(part):
            raise ValueError(
                f"{part!r} contains the POSIX class {match[0]}, which matches other names here: use a class such as [A-Z] instead"
            )
        try:
            re.compile(part)
        except re.error as e:
            raise ValueError(f"{part!r} is not a regular expression: {e}") from None
    return parts


def _texts(value: Any) -> list[str]:
    if not isinstance(value, (list, tuple, set, frozenset)) or not all(isinstance(part, str) for part in value):
        raise ValueError(f"{value!r} is neither a list of strings nor a comma-separated string")
    return list(value)


def _split_operations(value: Any) -> Any:
    parts = [p.strip() for p in _texts(value.split(",") if isinstance(value, str) else value)]
    parts = [p for p in parts if p]
    if parts == ["none"]:
        return frozenset()
    if unknown := [p for p in parts if p not in ("c", "u", "d", "t")]:
        raise ValueError(f"{unknown[0]!r} is not an operation; valid values are c, u, d and t, or none on its own")
    return frozenset(parts)


def _split_names(value: Any) -> Any:
    parts = _texts(value.split(",") if isinstance(value, str) else value)
    return tuple(dict.fromkeys(part.strip().lower() for part in parts if part.strip()))


def _split_channels(value: Any) -> Any:
    """``"source:log,execute-snapshot;kafka:*"`` → channel → types."""
    if isinstance(value, dict):
        return {str(channel): tuple(_texts(types)) for channel, types in value.items()}
    if not isinstance(value, str):
        raise ValueError(f"{value!r} is not a string such as source:execute-snapshot,log;kafka:*")
    channels: dict[str, tuple[str, ...]] = {}
    for part in filter(None, (part.strip() for part in value.split(";"))):
        channel, colon, types = part.partition(":")
        names = tuple(dict.fromkeys(name.strip() for name in types.split(",") if name.strip()))
        if not colon or not channel.strip() or channel.strip().lower() in channels:
            raise ValueError(
                f"{part!r} does not have the form channel:type,type, or names a channel that is already listed"
            )
        channels[channel.strip().lower()] = names
    return channels


_TAG = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_OWN_TAGS = ("connector", "topic", "target", "place")


def _split_tags(value: object) -> object:
    if not isinstance(value, str):
        return value
    tags: dict[str, str] = {}
    for part in filter(None, map(str.strip, value.split(","))):
        name, equals, text = (word.strip() for word in part.partition("="))
        if not equals or not text or not _TAG.fullmatch(name) or name in tags:
            raise ValueError(f"{part!r} does not have the form name=value, or its name is no tag or is already listed")
        if name in _OWN_TAGS:
            raise ValueError(f"{name!r} is a tag that metrics have already; choose another name")
        tags[name] = text
    return tags


def find_metric_tags(properties: Mapping[str, Any]) -> dict[str, str]:
    """Return the tags of ``custom.metric.tags``, in either form; none if the value is wrong, which the capture reports."""
    try:
        tags = _split_tags(properties.get("custom.metric.tags", ""))
    except ValueError:
        return {}
    return {str(name): str(text) for name, text in tags.items()} if isinstance(tags, dict) else {}


def _spell_handling(value: Any) -> Any:
    text = value.strip().lower() if isinstance(value, str) else value
    return FailureHandling.SKIP if text == "ignore" else text


HandlingMode = Annotated[FailureHandling, BeforeValidator(_spell_handling)]
"""``fail``, ``warn``, or ``skip``, which some of Debezium's connectors call ``ignore``."""
OptionalHandlingMode = Annotated[FailureHandling | None, BeforeValidator(_spell_handling)]
"""The same; ``None``: another property says it."""
MetricTags = Annotated[dict[str, str], BeforeValidator(_split_tags)]
"""Tags of metrics, written as ``name=value,name=value``."""
ChannelTypes = Annotated[dict[str, tuple[str, ...]], BeforeValidator(_split_channels)]
"""Types of signals by channel."""
Names = Annotated[tuple[str, ...], BeforeValidator(_split_names)]
"""A comma-separated list of names, in lower case."""
Patterns = Annotated[tuple[str, ...], BeforeValidator(_split_patterns)]
"""A comma-separated list of anchored regular expressions."""
Operations = Annotated[frozenset[str], BeforeValidator(_split_operations)]
