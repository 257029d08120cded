"""Hides parts of rows in documents of the state, from users who may not see rows: keys, and conditions with values."""

from __future__ import annotations

import json
from typing import Any

HIDDEN = "not shown"
_PARTS_OF_ROWS = frozenset(
    {
        "key", "keys", "after", "upto", "ranges", "key-ranges", "key_ranges", "absent", "condition", "filter", "filters",
        "additional-conditions", "additional_conditions", "maximum_key", "last_processed_key",
    }
)  # fmt: skip
"""Names of entries that hold a key of a row, or a condition."""


def hide_keys(document: Any) -> Any:
    """Return a document without parts of rows; it says that they are not shown.

    >>> hide_keys({"table": "shop.users", "after": ["ann@example.com"], "rows": 7})
    {'table': 'shop.users', 'after': 'not shown', 'rows': 7}
    """
    if isinstance(document, dict):
        return {name: _hide(name, value) for name, value in document.items()}
    return [hide_keys(one) for one in document] if isinstance(document, list | tuple) else document


def hide_keys_in_text(text: str | None) -> str | None:
    """Return a JSON text without parts of rows. A text that is cut, or no JSON, is hidden as a whole if it may hold some."""
    if not text:
        return text
    try:
        return json.dumps(hide_keys(json.loads(text)), ensure_ascii=False)
    except (ValueError, RecursionError):
        return HIDDEN if any(name in text for name in _PARTS_OF_ROWS) else text


def _hide(name: str, value: Any) -> Any:
    if name in _PARTS_OF_ROWS and value not in (None, "", [], {}):
        return HIDDEN
    return hide_keys(value)
