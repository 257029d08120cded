"""Values as text, in the forms of the documented handling modes."""

from __future__ import annotations

import base64
from collections.abc import Callable

from airflow_provider_cdc.core.config.property_enums import BinaryHandling


def binary_text(mode: BinaryHandling) -> Callable[[bytes], str] | None:
    """Return the function that makes a text of bytes, as ``binary.handling.mode`` asks for it; ``None`` where they stay bytes.

    >>> binary_text(BinaryHandling.HEX)(b"\\x00\\xff")
    '00ff'
    """
    texts: dict[BinaryHandling, Callable[[bytes], str]] = {
        BinaryHandling.BASE64: lambda b: base64.b64encode(b).decode(),
        BinaryHandling.BASE64_URL_SAFE: lambda b: base64.urlsafe_b64encode(b).decode(),
        BinaryHandling.HEX: bytes.hex,
    }
    return texts.get(mode)
