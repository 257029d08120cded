"""Puts events together that come in parts, as they are larger than 16 MB (``$changeStreamSplitLargeEvent``).

Each part has some of the fields of the event, and a separate token. A stream may continue behind a part, but only with the very same pipeline: the offset
is therefore before an event until its last part is there.
"""

from __future__ import annotations

import struct

import bson
from bson.raw_bson import RawBSONDocument

from airflow_provider_cdc.core.errors import UnknownLogEvent
from airflow_provider_cdc.sources.mongodb.connect import RAW


class SplitEventCollector:
    """Collects the parts of one event at a time."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []

    @property
    def has_missing_parts(self) -> bool:
        """Check whether parts are missing."""
        return bool(self._parts)

    def clear(self) -> None:
        """Forget the parts that have come: the event comes again, from its first part on."""
        self._parts.clear()

    def add_fragment(self, part: bytes, number: int, total: int) -> bytes | None:
        """Return the event, once its last part is there, with the token of that part.

        :raises UnknownLogEvent: the parts do not come in their order
        """
        if number != len(self._parts) + 1:
            raise self._another(f"Part {number} of {total} of a large event")
        self._parts.append(part)
        if number < total:
            return None
        event = merge_fragments(self._parts)
        self._parts.clear()
        return event

    def check_complete(self) -> None:
        """Make sure that no part is missing, as another event comes.

        :raises UnknownLogEvent: there is one
        """
        if self._parts:
            raise self._another("Another event")

    def _another(self, came: str) -> UnknownLogEvent:
        return UnknownLogEvent(
            f"{came} arrived where part {len(self._parts) + 1} of a large event was expected.",
            safe="Everything before this event is captured.",
            remedy="run again: the event is read again from its first part; if the error persists, set "
            "cursor.oversize.handling.mode=fail",
        )


def merge_fragments(parts: list[bytes]) -> bytes:
    """Merge the parts of an event, in which each field stands once; the field that marks parts is left out."""
    fields: dict[str, bytes] = {}
    for part in parts:
        for name, element in _elements(part):
            fields[name] = element  # the token is that of the last part
    fields.pop("splitEvent", None)
    body = b"".join(fields.values()) + b"\0"
    return struct.pack("<i", len(body) + 4) + body


def _elements(document: bytes) -> list[tuple[str, bytes]]:
    """Names of the fields of a document, each with its bytes."""
    raw = RawBSONDocument(document, RAW)
    elements = []
    for name, value in raw.items():
        encoded = bson.encode({name: value}, codec_options=RAW)
        elements.append((name, encoded[4:-1]))
    return elements
