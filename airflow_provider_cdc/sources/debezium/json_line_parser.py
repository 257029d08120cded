"""Lines → records. A schema is parsed once, however often it is repeated.

With ``schemas.enable`` each record has the schemas of its key and value, which are most of its bytes and are the same for most records. They
are found by their bytes, and replaced by a short name before a line is parsed.
"""

from __future__ import annotations

from collections.abc import Callable
from json import JSONDecoder
from typing import Any, Final

import orjson

from airflow_provider_cdc.core.errors import UnknownLogEvent

_BEGIN: Final = b'"schema":{'
_REMEDY: Final = (
    "check that each line is one JSON object, as events.line.format requires; exclude Kafka topics of another "
    "format with topics or topics.regex"
)


class LineParser:
    """Parses lines.

    :ivar schemas: name → schema
    """

    def __init__(self) -> None:
        self.schemas: dict[str, dict[str, Any]] = {}
        self._named: dict[bytes, bytes] = {}
        """A schema as it is written → its name as JSON; the last found ones first."""
        self._decoder = JSONDecoder()

    def parse_lines(self, lines: list[bytes], where: Callable[[int], str]) -> list[dict[str, Any]]:
        """Parse lines into as many records.

        :param where: the place of a line
        :raises UnknownLogEvent: a line is not a JSON object
        """
        if any(_BEGIN in line for line in lines):
            lines = [self._shortened(line) for line in lines]
        try:
            records = orjson.loads(b"[" + b",".join(lines) + b"]")
        except orjson.JSONDecodeError:
            records = []
        if len(records) == len(lines) and all(type(record) is dict for record in records):
            return records  # type: ignore[no-any-return]
        return [self._parse_line(line, where(at)) for at, line in enumerate(lines)]

    def find_schema_name(self, schema: Any) -> str | None:
        """Return the name of a record's schema, whether it was replaced by it or not; ``None`` if there is none."""
        if not isinstance(schema, dict):
            return schema if isinstance(schema, str) and schema in self.schemas else None
        text = orjson.dumps(schema)
        if text not in self._named:
            self._add(text, schema)
        return str(orjson.loads(self._named[text]))

    def _parse_line(self, line: bytes, where: str) -> dict[str, Any]:
        try:
            record = orjson.loads(line)
        except orjson.JSONDecodeError as e:
            raise UnknownLogEvent(
                f"A line is not JSON: {e}", where=where, safe="Everything before it is captured.", remedy=_REMEDY
            ) from None
        if not isinstance(record, dict):
            raise UnknownLogEvent(
                f"A line is not a JSON object: {line[:80]!r}",
                where=where,
                safe="Everything before it is captured.",
                remedy=_REMEDY,
            )
        return record

    def _shortened(self, line: bytes) -> bytes:
        at = line.find(_BEGIN)
        while at >= 0:
            at += len(_BEGIN) - 1
            raw = next((raw for raw in self._named if line.startswith(raw, at)), None) or self._met(line, at)
            if raw is not None:
                line = line[:at] + self._named[raw] + line[at + len(raw) :]
            at = line.find(_BEGIN, at)
        return line

    def _met(self, line: bytes, at: int) -> bytes | None:
        """Return a schema that was not met before, as it is written; ``None`` if it is none."""
        text = line[at:].decode("utf-8", "surrogateescape")
        try:
            schema, end = self._decoder.raw_decode(text)
        except ValueError:
            return None
        if not isinstance(schema.get("type"), str) or not text[end:].lstrip().startswith(","):
            return None
        raw = text[:end].encode("utf-8", "surrogateescape")
        self._add(raw, schema)
        return raw

    def _add(self, raw: bytes, schema: dict[str, Any]) -> None:
        known_name = next((name for name, other in self.schemas.items() if other == schema), None)
        name = known_name or f"\0schema {len(self.schemas)}"
        self.schemas[name] = schema
        self._named = {raw: orjson.dumps(name), **self._named}
