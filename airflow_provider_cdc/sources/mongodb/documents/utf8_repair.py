"""Documents with texts that are not UTF-8, as Java's decoder reads them."""

from __future__ import annotations

import struct

import numpy as np

from airflow_provider_cdc.sources.mongodb.documents.bson_spans import BsonValues
from airflow_provider_cdc.sources.mongodb.documents.bson_tree import (
    BsonContainer,
    BsonElement,
    extract_text,
    text_value,
)
from airflow_provider_cdc.sources.mongodb.kernels import bson_lengths as k


def with_replaced_texts(values: BsonValues) -> BsonValues:
    """Return the same values with U+FFFD for bytes that are not UTF-8. Plain and slow: for texts that hardly ever come.

    :raises DamagedDocument: a value is not BSON
    """
    raws = [_value(int(values.kinds[row]), values.read_bytes(row)) for row in range(len(values))]
    ends = np.cumsum([0, *map(len, raws)], dtype=np.int64)
    return BsonValues(np.frombuffer(b"".join(raws), np.uint8), values.kinds, ends[:-1], ends[1:])


def _text(raw: bytes) -> bytes:
    return raw.decode(errors="replace").encode()


def _value(kind: int, raw: bytes) -> bytes:
    if kind in (k.STRING, k.CODE, k.SYMBOL):
        return text_value(_text(extract_text(raw)))
    if kind in (k.DOCUMENT, k.ARRAY):
        inside = BsonContainer.from_bson(raw, kind)
        inside.elements = [BsonElement(_text(e.name), e.kind, _value(e.kind, e.encode_bson())) for e in inside.elements]
        return inside.encode_bson()
    if kind == k.REGEX:
        return _text(raw)
    if kind == k.DB_POINTER:
        return text_value(_text(raw[4:-13])) + raw[-12:]
    if kind == k.CODE_WITH_SCOPE:
        end = 8 + struct.unpack_from("<i", raw, 4)[0]
        body = text_value(_text(raw[8 : end - 1])) + _value(k.DOCUMENT, raw[end:])
        return struct.pack("<i", len(body) + 4) + body
    return raw
