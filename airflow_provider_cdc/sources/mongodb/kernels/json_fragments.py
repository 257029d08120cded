"""The fixed parts of extended JSON, and the kernel that writes one."""
# mypy: disable-error-code="no-any-return"

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from airflow_provider_cdc.sources.jit import force_inline_helper

_TEXTS: list[bytes] = []


def _text(text: str) -> int:
    _TEXTS.append(text.encode())
    return len(_TEXTS) - 1


NAN: Final = _text("NaN")
INFINITY: Final = _text("Infinity")
NULL: Final = _text("null")
TRUE: Final = _text("true")
FALSE: Final = _text("false")
EMPTY_DOCUMENT: Final = _text("{}")
UNDEFINED: Final = _text('{"$undefined": true}')
MIN_KEY: Final = _text('{"$minKey": 1}')
MAX_KEY: Final = _text('{"$maxKey": 1}')
NUMBER_DOUBLE: Final = _text('{"$numberDouble": "')
NUMBER_INT: Final = _text('{"$numberInt": "')
NUMBER_LONG: Final = _text('{"$numberLong": "')
NUMBER_DECIMAL: Final = _text('{"$numberDecimal": "')
END_TEXT: Final = _text('"}')
END_TEXT_TWICE: Final = _text('"}}')
OID: Final = _text('{"$oid": "')
DATE: Final = _text('{"$date": ')
DATE_TEXT: Final = _text('{"$date": "')
DATE_LONG: Final = _text('{"$date": {"$numberLong": "')
TIMESTAMP: Final = _text('{"$timestamp": {"t": ')
TIMESTAMP_I: Final = _text(',"i": ')
END_TWICE: Final = _text("}}")
END_ONCE: Final = _text("}")
BINARY: Final = _text('{"$binary": "')
BINARY_TYPE: Final = _text('","$type": "')
BINARY_NEW: Final = _text('{"$binary": {"base64": "')
BINARY_NEW_TYPE: Final = _text('","subType": "')
REGEX: Final = _text('{"$regex": ')
REGEX_OPTIONS: Final = _text(',"$options": ')
REGEX_NEW: Final = _text('{"$regularExpression": {"pattern": ')
REGEX_NEW_OPTIONS: Final = _text(',"options": ')
REF: Final = _text('{"$ref": ')
REF_ID: Final = _text(',"$id": ')
DB_POINTER: Final = _text('{"$dbPointer": {"$ref": ')
CODE: Final = _text('{"$code": ')
SCOPE: Final = _text(',"$scope": ')
SYMBOL: Final = _text('{"$symbol": ')

_ALL = np.frombuffer(b"".join(_TEXTS) + bytes(8), np.uint8)
_BEGINS = np.cumsum([0, *map(len, _TEXTS)])


@force_inline_helper
def write_fragment(text: int, out: npt.NDArray[np.uint8], w: int) -> int:
    """Write one of these texts; returns where it ends. Up to seven bytes behind it are written, too: the next text overwrites them."""
    begin = _BEGINS[np.uintp(text)]
    size = _BEGINS[np.uintp(text + 1)] - begin
    for block in range((size + 7) >> 3):
        p, v = np.uintp(begin + 8 * block), np.uintp(w + 8 * block)
        for i in range(8):
            out[v + np.uintp(i)] = _ALL[p + np.uintp(i)]
    return w + size
