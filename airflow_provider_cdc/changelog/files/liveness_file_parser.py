"""Liveness files: small JSON files whose ``at`` says when a process was alive, in seconds since 1970."""

from __future__ import annotations

from typing import Any

import orjson


def read_sign(data: bytes | None) -> dict[str, Any] | None:
    """Parse a liveness file.

    :param data: of its file; ``None`` if there is none
    :return: ``None`` if there is none, or it is none of ours
    """
    try:
        document = None if data is None else orjson.loads(data)
    except ValueError:
        return None
    if not isinstance(document, dict) or not isinstance(document.get("at"), int | float):
        return None
    return document
