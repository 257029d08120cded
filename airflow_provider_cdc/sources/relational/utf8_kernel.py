"""Array kernel of more than one source: code points in UTF-8."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from airflow_provider_cdc.sources.jit import inline_helper


@inline_helper
def store_utf8(out: npt.NDArray[np.uint8], at: int, code: int) -> int:
    """Store a code point in UTF-8; returns the offset behind it."""
    if code < 0x80:
        out[at] = code
        return at + 1
    if code < 0x800:
        out[at] = 0xC0 | code >> 6
        out[at + 1] = 0x80 | code & 63
        return at + 2
    if code < 0x10000:
        out[at] = 0xE0 | code >> 12
        out[at + 1] = 0x80 | code >> 6 & 63
        out[at + 2] = 0x80 | code & 63
        return at + 3
    out[at] = 0xF0 | code >> 18
    out[at + 1] = 0x80 | code >> 12 & 63
    out[at + 2] = 0x80 | code >> 6 & 63
    out[at + 3] = 0x80 | code & 63
    return at + 4
