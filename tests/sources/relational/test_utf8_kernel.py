"""Code points in UTF-8, compiled and as plain Python."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from airflow_provider_cdc.sources.relational.utf8_kernel import store_utf8

Store = Callable[[npt.NDArray[np.uint8], int, int], int]


def _both_kernels(kernel: Any) -> list[Store]:
    return [kernel, getattr(kernel, "py_func", kernel)]


@pytest.mark.parametrize("store", _both_kernels(store_utf8))
def test_a_code_point_is_stored_as_python_encodes_it(store: Store) -> None:
    for code in (0, 0x41, 0x7F, 0x80, 0x7FF, 0x800, 0xD7FF, 0xE000, 0xFFFF, 0x10000, 0x1F600, 0x10FFFF):
        out = np.zeros(8, np.uint8)
        end = store(out, 1, code)
        assert bytes(out[1:end]) == chr(code).encode(), hex(code)
