"""Values of BSON, documents above all, as extended JSON in one buffer."""
# mypy: disable-error-code="assignment, arg-type, return-value, no-any-return"
# ruff: noqa: C901

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from airflow_provider_cdc.sources.jit import force_inline_helper, jit
from airflow_provider_cdc.sources.mongodb.kernels import bson_lengths as k
from airflow_provider_cdc.sources.mongodb.kernels import json_fragments as t
from airflow_provider_cdc.sources.mongodb.kernels.bson_lengths import U, name_end, read_i32, value_end
from airflow_provider_cdc.sources.mongodb.kernels.error_codes import DEPTH, END, FINE, FULL
from airflow_provider_cdc.sources.mongodb.kernels.json_fragments import write_fragment
from airflow_provider_cdc.sources.mongodb.kernels.json_strings import put_name, put_text
from airflow_provider_cdc.sources.mongodb.kernels.scalar_json import put_scalar

_Bytes = npt.NDArray[np.uint8]

DEEPEST: Final = 200
"""How deep documents may be nested; the server takes 100 levels from clients, and some more from itself."""
GROWTH: Final = 16
"""No value is longer as text than this many times its bytes of BSON, name and type included, and ``SLACK``: an empty regular expression comes closest."""
SLACK: Final = 256

_OPEN = np.array([123, 91], np.uint8)
_CLOSE = np.array([125, 93], np.uint8)


@jit
def render_values(
    buf: _Bytes, kinds: npt.NDArray[np.uint8], starts: npt.NDArray[np.int64], ends: npt.NDArray[np.int64], form: int, row: int,
    out: _Bytes, offsets: npt.NDArray[np.int64],
) -> tuple[int, int, int]:  # fmt: skip
    """Write values from ``row`` on, until the output might not hold the next one; absent ones are empty.

    :param offsets: ``int64[rows + 1]``: where each text begins; that of ``row`` is given
    :return: the row behind the last, and why it stopped: ``FINE``, ``FULL`` or a problem, with its offset
    """
    inside = np.empty(DEEPEST, np.int64)
    shapes = np.empty(DEEPEST, np.uint8)
    w = offsets[row]
    while row < len(kinds):
        if w + GROWTH * (ends[row] - starts[row]) + SLACK > len(out):
            return row, FULL, 0
        if kinds[row] != k.ABSENT:
            w, problem, at = put_value(buf, kinds[row], starts[row], ends[row], form, out, w, inside, shapes)
            if problem != FINE:
                return row, problem, at
        row += 1
        offsets[row] = w
    return row, FINE, 0


@jit
def put_value(
    buf: _Bytes, kind: int, p: int, limit: int, form: int, out: _Bytes, w: int, inside: npt.NDArray[np.int64], shapes: _Bytes
) -> tuple[int, int, int]:  # fmt: skip
    """Write one value, with all that it contains.

    :param inside: for each level, where the container of the next value ends
    :param shapes: for each level, 0 in a document, 1 in an array, 2 in the scope of a code, which ends two objects
    :return: where its text ends; a problem, and its offset
    """
    end = value_end(buf, kind, p, limit)
    if end != limit:
        return w, (end if end < 0 else END), p
    if kind != k.DOCUMENT and kind != k.ARRAY and kind != k.CODE_WITH_SCOPE:
        w, problem = put_scalar(buf, kind, p, end, form, out, w)
        return w, problem, p
    level = 0
    p, w, problem = _enter(buf, kind, p, end, out, w, inside, shapes, level)
    if problem != FINE:
        return w, problem, p
    first = True
    while True:
        kind = buf[U(p)]
        at = p
        p += 1
        if kind == k.ABSENT:
            if p != inside[U(level)]:
                return w, END, at
            w = _leave(shapes[U(level)], out, w)
            if level == 0:
                return w, FINE, 0
            level -= 1
            first = False
            continue
        if not first:
            out[U(w)] = 44
            w += 1
        first = False
        stop = inside[U(level)] - 1
        if shapes[U(level)] == 1:
            p = name_end(buf, p, stop)
        else:
            w, p = put_name(buf, p, stop, out, w)
            out[U(w)] = 58
            out[U(w + 1)] = 32
            w += 2
        if p < 0:
            return w, p, at
        end = value_end(buf, kind, p, stop)
        if end < 0:
            return w, end, at
        if kind == k.DOCUMENT or kind == k.ARRAY or kind == k.CODE_WITH_SCOPE:
            level += 1
            if level == DEEPEST:
                return w, DEPTH, at
            p, w, problem = _enter(buf, kind, p, end, out, w, inside, shapes, level)
            first = True
        else:
            w, problem = put_scalar(buf, kind, p, end, form, out, w)
            p = end
        if problem != FINE:
            return w, problem, at


@force_inline_helper
def _enter(
    buf: _Bytes,
    kind: int,
    p: int,
    end: int,
    out: _Bytes,
    w: int,
    inside: npt.NDArray[np.int64],
    shapes: _Bytes,
    level: int,
) -> tuple[int, int, int]:
    """Begin a document, an array or the scope of a code; returns the offset of its content, where the text ends, and a problem."""
    inside[U(level)] = end
    shapes[U(level)] = 1 if kind == k.ARRAY else 0
    problem = FINE
    if kind == k.CODE_WITH_SCOPE:
        shapes[U(level)] = 2
        size = read_i32(buf, p + 4)
        w, problem = put_text(buf, p + 8, p + 7 + size, out, write_fragment(t.CODE, out, w))
        w = write_fragment(t.SCOPE, out, w)
        p += 8 + size
    out[U(w)] = _OPEN[U(shapes[U(level)] & 1)]
    return p + 4, w + 1, problem


@force_inline_helper
def _leave(shape: int, out: _Bytes, w: int) -> int:
    """End a document, an array, or the scope of a code, and the code with it; returns where the text ends."""
    out[U(w)] = _CLOSE[U(shape & 1)]
    if shape < 2:
        return w + 1
    out[U(w + 1)] = 125
    return w + 2
