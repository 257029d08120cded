"""Reads signals that are JSON objects, ``{"id": …, "type": …, "data": {…}}``, in lines of files and messages of topics."""

from __future__ import annotations

import json
from typing import Any

from airflow_provider_cdc.core.model.connector_signal import SentSignal


def read_message(text: str, *, channel: str, where: str, origin: str) -> SentSignal:
    """Parse the signal that a text holds. ``id`` may be missing, ``data`` may be an object or a text with one.

    A text that is no signal becomes a signal without a type, with the text as its data. It is refused like any wrong signal, so
    that its sender can look up why.

    :param where: describes where the text was, for messages; replaces an ``id`` that is missing
    """
    try:
        document: Any = json.loads(text)
    except (ValueError, RecursionError):
        document = None
    if not isinstance(document, dict):
        return SentSignal(where, "", text, channel, origin)
    id_ = _text(document.get("id"))
    type_ = document.get("type")
    if not isinstance(type_, str) or not type_.strip():
        return SentSignal(f"{id_} ({where})" if id_ else where, "", text, channel, origin)
    return SentSignal(id_ or where, type_, _text(document.get("data")), channel, origin)


def _text(value: Any) -> str | None:
    return value if value is None or isinstance(value, str) else json.dumps(value)
