"""Kernels of values: any bytes, compiled and as plain Python."""

from __future__ import annotations

import struct
import uuid
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_provider_cdc.sources.postgresql.columns.number_texts import numeric_text
from airflow_provider_cdc.sources.postgresql.kernels import value_decoding as kernels
from airflow_provider_cdc.sources.postgresql.kernels.message_layout import (
    BINARY_VALUE,
    NO_IMAGE,
    NOT_LOGGED,
    NULL_VALUE,
    TEXT_VALUE,
    UNCHANGED_VALUE,
)

DIGITS = st.lists(st.integers(0, 9999), max_size=12)


def lay_out(values: list[bytes]) -> tuple[Any, Any, Any, Any]:
    """Put values behind one another, without a byte to spare."""
    lengths = np.array([len(v) for v in values], np.int32)
    starts = np.concatenate([[0], np.cumsum(lengths)[:-1]]).astype(np.int64)
    return np.frombuffer(b"".join(values), np.uint8).copy(), np.ones(len(values), np.bool_), starts, lengths


def decode_numeric(data: bytes, scale: int, kernel: Any = kernels.decode_numerics) -> int | None:
    """Return the number without its point; ``None`` if the kernel cannot decode it."""
    out = np.empty((1, 2), np.int64)
    if kernel(*lay_out([data]), scale, out) >= 0:
        return None
    return int(out[0, 1]) << 64 | int(out[0, 0]) & (1 << 64) - 1


@settings(deadline=None)
@given(DIGITS, st.integers(-8, 12), st.sampled_from([0, 0x4000]), st.integers(0, 38))
def test_a_decimal_is_what_its_digits_say_or_refused(digits: list[int], weight: int, sign: int, scale: int) -> None:
    data = struct.pack(f"!HhHH{len(digits)}H", len(digits), weight, sign, 100, *digits)
    exact = Fraction(numeric_text(data)) * 10**scale
    number = decode_numeric(data, scale)
    if number is not None:
        assert number == exact
    else:
        assert exact.denominator > 1 or abs(exact) >= 10**38 or digits[0] == 0 or digits[-1] == 0


@pytest.mark.parametrize("kernel", [kernels.decode_numerics, kernels.decode_numerics.py_func])  # type: ignore[attr-defined]
def test_compiled_and_plain_kernels_agree(kernel: Any) -> None:
    with np.errstate(over="ignore"):
        for number, scale in ((12345678, 2), (-1, 0), (10**17, 0), (-(10**17), 2), (99999999, 4)):
            groups, rest = [], abs(number) * 10 ** (-scale % 4)
            while rest:
                rest, group = divmod(rest, 10_000)
                groups.insert(0, group)
            weight = len(groups) - 1 - -(-scale // 4)
            while groups and groups[-1] == 0:
                groups.pop()
            data = struct.pack(f"!HhHH{len(groups)}H", len(groups), weight, 0x4000 if number < 0 else 0, scale, *groups)
            assert decode_numeric(data, scale, kernel) == number


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\0" * 7,
        struct.pack("!HhHH", 1, 0, 0, 0),
        struct.pack("!HhHH", 0, 0, 0xC000, 0),
        struct.pack("!HhHH2H", 1, 0, 0, 0, 1, 1),
    ],
)
def test_what_is_no_number_is_refused(data: bytes) -> None:
    assert decode_numeric(data, 2) is None


@pytest.mark.parametrize("kernel", [kernels.find_values, kernels.find_values.py_func])  # type: ignore[attr-defined]
def test_only_binary_and_text_values_are_values(kernel: Any) -> None:
    kinds = np.array([BINARY_VALUE, TEXT_VALUE, NULL_VALUE, UNCHANGED_VALUE, NOT_LOGGED, NO_IMAGE], np.uint8)
    valid = np.empty(6, np.bool_)
    assert kernel(kinds, valid) == 1
    assert valid.tolist() == [True, True, False, False, False, False]


@pytest.mark.parametrize(("width", "code"), [(2, "!H"), (4, "!I"), (8, "!q"), (1, "!B")])
@pytest.mark.parametrize("plain", [False, True])
def test_integers_are_read_at_their_width_only(width: int, code: str, plain: bool) -> None:
    kernel = kernels.decode_integers.py_func if plain else kernels.decode_integers  # type: ignore[attr-defined]
    values = [0, 1, 2 ** (8 * width - 1) - 1]
    out = np.empty(3, np.int64)
    assert kernel(*lay_out([struct.pack(code, v) for v in values]), width, out) == -1
    assert out.tolist() == values
    assert kernel(*lay_out([struct.pack(code, 1), b"", b""]), width, out) == 1


@settings(deadline=None)
@given(st.lists(st.one_of(st.none(), st.binary(min_size=16, max_size=16)), min_size=1))
def test_uuids_are_written_as_texts(values: list[bytes | None]) -> None:
    buf, valid, starts, lengths = lay_out([v or b"" for v in values])
    valid[:] = [v is not None for v in values]
    offsets, out = np.empty(len(values) + 1, np.int64), np.empty(36 * len(values), np.uint8)
    assert kernels.write_uuids(buf, valid, starts, lengths, offsets, out) == -1
    texts = [out[offsets[i] : offsets[i + 1]].tobytes().decode() for i in range(len(values))]
    assert texts == ["" if v is None else str(uuid.UUID(bytes=v)) for v in values]


@given(st.lists(st.one_of(st.none(), st.binary(max_size=30)), min_size=1), st.integers(0, 2))
def test_bytes_are_copied_without_those_that_are_skipped(values: list[bytes | None], skipped: int) -> None:
    buf, valid, starts, lengths = lay_out([v or b"" for v in values])
    valid[:] = [v is not None for v in values]
    offsets = np.empty(len(values) + 1, np.int64)
    short = [i for i, v in enumerate(values) if v is not None and len(v) < skipped]
    bad = kernels.sum_lengths(valid, lengths, skipped, offsets)
    assert bad == (short[0] if short else -1)
    if bad < 0:
        out = np.empty(int(offsets[-1]), np.uint8)
        kernels.copy_bytes(buf, starts, skipped, offsets, out)
        assert out.tobytes() == b"".join(v[skipped:] for v in values if v is not None)
