"""Answers of the API that are made from its document: every field is there, and every text is as bad as a name or a value of a database can be."""

from __future__ import annotations

import itertools
import json
import re
import time
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlsplit

from dev import openapi

END = "the end"
BAD = '<img src=x onerror="window.hacked=1">\'`${x}{{y}} مرحبا \u202egnp.exe ' + "x" * 10_000 + END
"""Markup, quotes, letters that go from right to left, a character that turns what follows, and ten thousand letters without a space."""
HOUR_S = 3600


class RouteAnswers:
    """Makes an answer for each route; ``problem`` is one to whatever went wrong."""

    def __init__(self) -> None:
        self._document = json.loads(openapi.DOCUMENT.read_text())
        self._number = itertools.count()
        self.problem = self._made({"$ref": "#/components/schemas/ProblemAnswer"})

    def to(self, method: str, url: str) -> Any:
        """The answer to a request.

        :raises LookupError: no such route is in the document
        """
        path = urlsplit(url).path.partition("/cdc")[2]
        for template, methods in self._document["paths"].items():
            if method.lower() in methods and re.fullmatch(re.sub(r"\{\w+\}", "[^/]+", template), path):
                found = methods[method.lower()]["responses"]["200"]["content"]["application/json"]["schema"]
                return self._made(found)
        raise LookupError(f"{method} {path}")

    def _made(self, schema: dict[str, Any], name: str = "") -> Any:
        if (reference := schema.get("$ref")) is not None:
            return self._made(self._document["components"]["schemas"][reference.rpartition("/")[2]], name)
        if (choices := schema.get("anyOf")) is not None:
            return self._made(next(one for one in choices if one.get("type") != "null"), name)
        if "const" in schema:
            return schema["const"]
        if "enum" in schema:
            return schema["enum"][-1]
        return {
            "object": self._object, "array": self._array, "string": self._text, "integer": self._whole, "number": self._whole,
            "boolean": lambda schema, name: True,
        }.get(schema.get("type", "string"), self._text)(schema, name)  # fmt: skip

    def _object(self, schema: dict[str, Any], name: str) -> dict[str, Any]:
        found = {key: self._made(of, key) for key, of in schema.get("properties", {}).items()}
        if (more := schema.get("additionalProperties")) not in (None, False):
            found |= {self._text(): self._made({} if more is True else more) for _ in range(2)}
        return found

    def _array(self, schema: dict[str, Any], name: str) -> list[Any]:
        if "prefixItems" in schema:
            return [self._made(one) for one in schema["prefixItems"]]
        of = schema["items"]
        real = self._document["components"]["schemas"][of["$ref"].rpartition("/")[2]] if "$ref" in of else of
        return list(real["enum"]) if "enum" in real else [self._made(of) for _ in range(2)]

    def _text(self, schema: dict[str, Any] | None = None, name: str = "") -> str:
        moment = (schema or {}).get("format") == "date-time" or name.endswith("_at")
        return datetime.now(UTC).isoformat() if moment else f"{next(self._number)} {BAD}"

    def _whole(self, schema: dict[str, Any], name: str) -> float:
        if name == "part":  # of a whole
            return 0.5
        moments = {"since": -HOUR_S, "until": 0, "at": -HOUR_S // 2}
        return int(time.time()) + moments[name] if name in moments else 1_234_567
