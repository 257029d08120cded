"""Documents as collections have them: with ``_id`` in front.

An update by pipeline may put a field before it. Its event has the document as the pipeline has written it, and the collection does not.
"""

from __future__ import annotations

import numpy as np

from airflow_provider_cdc.sources.mongodb.documents.bson_spans import BsonValues
from airflow_provider_cdc.sources.mongodb.documents.bson_tree import BsonContainer
from airflow_provider_cdc.sources.mongodb.kernels import bson_lengths as k

_ID = b"_id\0"
_BEFORE = 5
"""Bytes before the name of the first field: the length of the document, and the type of the field."""


def id_first(values: BsonValues) -> BsonValues:
    """Return the same documents, each with its ``_id`` in front, as it is stored.

    :raises DamagedDocument: one is not BSON
    """
    at = np.flatnonzero((values.kinds == k.DOCUMENT) & (values.ends - values.starts > _BEFORE + len(_ID)))
    other = np.zeros(len(at), np.bool_)
    for n, byte in enumerate(_ID):
        other |= values.buf[values.starts[at] + _BEFORE + n] != byte
    if not other.any():
        return values
    at = at[other]
    at = at[values.select_rows(at).read_fields(b"_id")[0].kinds != k.ABSENT]
    raws = [_moved(values.read_bytes(i)) for i in at.tolist()]
    if not raws:
        return values
    ends = len(values.buf) + np.cumsum([0, *map(len, raws)], dtype=np.int64)
    starts, stops = values.starts.copy(), values.ends.copy()
    starts[at], stops[at] = ends[:-1], ends[1:]
    buf = np.concatenate([values.buf, np.frombuffer(b"".join(raws), np.uint8)])
    return BsonValues(buf, values.kinds, starts, stops)


def _moved(raw: bytes) -> bytes:
    document = BsonContainer.from_bson(raw)
    document.elements.sort(key=lambda element: element.name != b"_id")
    return document.encode_bson()
