"""LSNs as arrays."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_provider_cdc.sources.db2.log.lsn_arrays import LsnArray, concatenate_lsns
from airflow_provider_cdc.sources.db2.position import lsn_text

SOME = st.lists(st.binary(min_size=1, max_size=16), max_size=9)
OF_ONE_LENGTH = st.integers(1, 17).flatmap(lambda n: st.lists(st.binary(min_size=n, max_size=n), max_size=9))


@settings(deadline=None)
@given(SOME | OF_ONE_LENGTH)
def test_lsns_keep_their_bytes_and_their_documented_text(values: list[bytes]) -> None:
    lsns = LsnArray.from_bytes(values)
    assert [lsns.bytes_at(i) for i in range(len(values))] == values
    assert lsns.format_texts().to_pylist() == [lsn_text(value) for value in values]


@settings(deadline=None)
@given(st.lists(SOME | OF_ONE_LENGTH, min_size=1, max_size=3))
def test_joined_lsns_are_one_after_the_other(parts: list[list[bytes]]) -> None:
    lsns = concatenate_lsns([LsnArray.from_bytes(part) for part in parts])
    assert [lsns.bytes_at(i) for i in range(len(lsns))] == [value for part in parts for value in part]


def test_some_of_the_lsns_are_picked_in_any_order() -> None:
    lsns = LsnArray.from_bytes([b"\x01", b"\x02\x03", b"\x04"])[np.array([2, 1])]
    assert (lsns.bytes_at(0), lsns.bytes_at(-1)) == (b"\x04", b"\x02\x03")


def test_an_lsn_of_ten_bytes_has_its_colons_in_their_places() -> None:
    assert LsnArray.from_bytes([bytes.fromhex("0000002500000d080025")]).format_texts().to_pylist() == [
        "00000025:00000d08:0025"
    ]
