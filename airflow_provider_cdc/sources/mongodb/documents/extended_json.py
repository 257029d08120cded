"""BSON values as extended JSON: in Debezium's form, in that of its keys, and in the canonical form.

The values that each form keeps:

- ``STRICT`` keeps every value. Two things look alike in it: a regular expression or pointer, and a document with fields ``$regex`` or ``$ref``. NaN and infinities are
  bare words, which strict readers of JSON refuse.
- ``RELAXED`` writes 32 and 64 bits alike, and has dates as text.
- ``CANONICAL`` says the type of every value. It, too, has one form for all NaNs, and for decimals that are not in the usual form of their encoding.

A document that has a field twice has it twice in the text. It follows Java 21 where a Java version decides: how numbers are shortest, and which characters are escaped.
"""

from __future__ import annotations

from enum import IntEnum

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from airflow_provider_cdc.sources.mongodb.documents.bson_spans import BsonValues
from airflow_provider_cdc.sources.mongodb.documents.document_errors import DamagedDocument
from airflow_provider_cdc.sources.mongodb.documents.utf8_repair import with_replaced_texts
from airflow_provider_cdc.sources.mongodb.kernels import bson_lengths as k
from airflow_provider_cdc.sources.mongodb.kernels import scalar_json
from airflow_provider_cdc.sources.mongodb.kernels.error_codes import FINE, FULL
from airflow_provider_cdc.sources.mongodb.kernels.json_text import GROWTH, SLACK, render_values


class JsonForm(IntEnum):
    """The forms of extended JSON, each byte for byte as MongoDB's Java library writes it, without blanks between fields."""

    STRICT = scalar_json.STRICT
    """``JsonMode.STRICT``: Debezium's ``before``, ``after`` and ``updatedFields``."""
    RELAXED = scalar_json.RELAXED
    """``JsonMode.RELAXED``: Debezium's keys."""
    CANONICAL = scalar_json.CANONICAL
    """``JsonMode.EXTENDED``: says the type of every value."""


def format_values(
    values: BsonValues, form: JsonForm = JsonForm.STRICT, *, null_as_text: bool = False, replace_not_utf8: bool = False
) -> pa.LargeStringArray:
    """Each value as text; null where there is none, and where it is null.

    :param null_as_text: BSON's null is ``null``
    :param replace_not_utf8: bytes that are not UTF-8 become U+FFFD, as in Java, instead of being refused
    :raises DamagedDocument: a value is not BSON
    """
    absent = values.kinds == k.ABSENT
    if not null_as_text:
        absent |= values.kinds == k.NULL
    kinds = np.where(absent, 0, values.kinds).astype(np.uint8)
    starts, ends = np.where(absent, 0, values.starts), np.where(absent, 0, values.ends)
    try:
        out, offsets = _rendered(values.buf, kinds, starts, ends, form)
    except DamagedDocument as e:
        if not (replace_not_utf8 and e.not_utf8):
            raise
        mended = with_replaced_texts(BsonValues(values.buf, kinds, starts, ends))
        out, offsets = _rendered(mended.buf, mended.kinds, mended.starts, mended.ends, form)
    mask = pa.array(~absent).buffers()[1] if absent.any() else None
    return pa.Array.from_buffers(pa.large_string(), len(values), [mask, pa.py_buffer(offsets), pa.py_buffer(out)])


def format_keys(values: BsonValues) -> pa.LargeStringArray:
    """``_id`` values as Debezium writes them in keys: ``1234``, ``"1234"`` with the quotes, ``{"$oid": "…"}``.

    :raises DamagedDocument: a value is not BSON
    """
    return format_values(values, JsonForm.RELAXED, null_as_text=True)


def _rendered(
    buf: npt.NDArray[np.uint8], kinds: npt.NDArray[np.uint8], starts: npt.NDArray[np.int64], ends: npt.NDArray[np.int64], form: JsonForm
) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64]]:  # fmt: skip
    lengths = ends - starts
    longest, total = (int(lengths.max()), int(lengths.sum())) if len(lengths) else (0, 0)
    out = np.empty(2 * total + GROWTH * longest + SLACK, np.uint8)  # pages that nothing is written to cost nothing
    offsets = np.zeros(len(kinds) + 1, np.int64)
    row = 0
    while True:
        row, problem, at = render_values(buf, kinds, starts, ends, int(form), row, out, offsets)
        if problem == FINE:
            return out[
                : offsets[-1]
            ].copy(), offsets  # text that waits to be written keeps no room that it does not need
        if problem != FULL:
            raise DamagedDocument(row, int(at - starts[row]), problem)
        more = np.empty(2 * len(out), np.uint8)
        more[: offsets[row]] = out[: offsets[row]]
        out = more
