"""The order of changes of several tables, compared with sorting bytes in Python. The kernels run as plain Python, and compiled."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_provider_cdc.sources.db2.kernels import merge_order
from airflow_provider_cdc.sources.db2.log.lsn_arrays import LsnArray

LSNS = st.binary(min_size=1, max_size=20)
"""LSNs of different lengths, also longer than those of any Db2. Zero bytes at their ends do not count."""
FEW = st.sampled_from(
    [b"\x01", b"\x01\x00", b"\x01\x00\x00\x00\x00\x00\x00\x00\x01", b"\x02", b"\xff" * 16, b"\x7f", b"\x80"]
)


def pad_lsn(lsn: bytes) -> bytes:
    return lsn.ljust(24, b"\0")


def lsn_words(lsns: list[bytes]) -> npt.NDArray[np.uint64]:
    return LsnArray.from_bytes(lsns).pad_words(3)


@settings(deadline=None)
@given(runs=st.lists(st.lists(LSNS | FEW, max_size=12), min_size=1, max_size=7))
@pytest.mark.parametrize("compiled", [True, False])
def test_runs_are_merged_as_their_bytes_compare(compiled: bool, runs: list[list[bytes]]) -> None:
    runs = [sorted(run, key=pad_lsn) for run in runs]
    every = [lsn for run in runs for lsn in run]
    starts = np.cumsum([0, *map(len, runs)])
    merge = merge_order.merged_order if compiled else merge_order.merged_order.py_func  # type: ignore[attr-defined]
    order = merge(lsn_words(every), starts)
    expected = sorted(range(len(every)), key=lambda i: pad_lsn(every[i]))  # stable: an earlier run comes first
    assert order.tolist() == expected


@settings(deadline=None)
@given(run=st.lists(LSNS | FEW, max_size=20), bound=LSNS | FEW, with_equal=st.booleans())
@pytest.mark.parametrize("compiled", [True, False])
def test_rows_before_a_bound_are_counted(compiled: bool, run: list[bytes], bound: bytes, with_equal: bool) -> None:
    run.sort(key=pad_lsn)
    count = merge_order.count_before if compiled else merge_order.count_before.py_func  # type: ignore[attr-defined]
    expected = sum(pad_lsn(lsn) < pad_lsn(bound) or (with_equal and pad_lsn(lsn) == pad_lsn(bound)) for lsn in run)
    assert count(lsn_words(run), lsn_words([bound]), 3, with_equal) == expected


@settings(deadline=None)
@given(run=st.lists(FEW, max_size=6))
@pytest.mark.parametrize("compiled", [True, False])
def test_the_first_row_out_of_order_is_found(compiled: bool, run: list[bytes]) -> None:
    find = merge_order.first_descending if compiled else merge_order.first_descending.py_func  # type: ignore[attr-defined]
    wrong = [i for i in range(1, len(run)) if pad_lsn(run[i]) < pad_lsn(run[i - 1])]
    assert find(lsn_words(run)) == (wrong[0] if wrong else -1)


@settings(deadline=None)
@given(expected=st.lists(LSNS | FEW, max_size=12), among=st.lists(LSNS | FEW, max_size=12))
@pytest.mark.parametrize("compiled", [True, False])
def test_places_are_those_of_equal_rows(compiled: bool, expected: list[bytes], among: list[bytes]) -> None:
    expected.sort(key=pad_lsn)
    among.sort(key=pad_lsn)
    places = merge_order.find_row_numbers if compiled else merge_order.find_row_numbers.py_func  # type: ignore[attr-defined]
    equal = [[i for i, lsn in enumerate(among) if pad_lsn(lsn) == pad_lsn(one)] for one in expected]
    assert places(lsn_words(expected), lsn_words(among)).tolist() == [max(found, default=-1) for found in equal]
