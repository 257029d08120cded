"""The content of documents and arrays, one level of them."""
# mypy: disable-error-code="assignment, arg-type, return-value, no-any-return"

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from airflow_provider_cdc.sources.jit import jit
from airflow_provider_cdc.sources.mongodb.kernels.bson_lengths import ABSENT, document_end, name_end, value_end
from airflow_provider_cdc.sources.mongodb.kernels.error_codes import END, FINE

_Bytes = npt.NDArray[np.uint8]


@jit
def list_elements(buf: _Bytes, p: int, limit: int, elements: npt.NDArray[np.int64]) -> tuple[int, int, int]:
    """List the elements of the document or array from ``p`` to ``limit``.

    :param elements: ``int64[elements, 4]``, gets of each its type and where its name begins, its value begins, and its value ends; it may hold fewer than there are
    :return: how many elements there are, a problem, and its offset
    """
    end = document_end(buf, p, limit)
    if end != limit:
        return 0, (end if end < 0 else END), p
    p += 4
    count = 0
    while buf[p] != ABSENT:
        at = p
        p = name_end(buf, at + 1, limit - 1)
        if p < 0:
            return count, p, at
        end = value_end(buf, buf[at], p, limit - 1)
        if end < 0:
            return count, end, at
        if count < len(elements):
            elements[count, 0], elements[count, 1], elements[count, 2], elements[count, 3] = buf[at], at + 1, p, end
        count += 1
        p = end
    return count, (FINE if p + 1 == limit else END), p


@jit
def list_all(
    buf: _Bytes, kinds: npt.NDArray[np.uint8], starts: npt.NDArray[np.int64], ends: npt.NDArray[np.int64], elements: npt.NDArray[np.int64],
    offsets: npt.NDArray[np.int64],
) -> tuple[int, int, int]:  # fmt: skip
    """List the elements of all documents and arrays among some values; what is absent has none.

    :param elements: as for ``list_elements``, long enough for all: an element has two bytes or more
    :param offsets: ``int64[rows + 1]``, gets where the elements of each row begin
    :return: number of rows without a problem, the problem of the next, and its offset
    """
    total = 0
    for row in range(len(kinds)):
        offsets[row] = total
        if kinds[row] != ABSENT:
            count, problem, at = list_elements(buf, starts[row], ends[row], elements[total:])
            if problem != FINE:
                return row, problem, at
            total += count
    offsets[len(kinds)] = total
    return len(kinds), FINE, 0
