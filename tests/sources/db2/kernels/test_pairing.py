"""Pairs of rows in a change table that are one update, compared with a plain reading of the rows."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_provider_cdc.core.model.log_items import CREATE, DELETE, UPDATE
from airflow_provider_cdc.sources.db2.kernels import pairing

Rows = list[tuple[int, str]]
Events = list[tuple[int, int, int]]


def events_of(rows: Rows, pairs: bool, compiled: bool = True) -> Events | int:
    kernel = pairing.pair_rows if compiled else pairing.pair_rows.py_func  # type: ignore[attr-defined]
    n = len(rows)
    commits = np.array([[commit, 0] for commit, _ in rows], np.uint64).reshape(n, 2)
    letters = np.frombuffer("".join(letter for _, letter in rows).encode(), np.uint8)
    ops, before, after = np.empty(n, np.int8), np.empty(n, np.int64), np.empty(n, np.int64)
    count = kernel(commits, letters, pairs, ops, before, after)
    if count < 0:
        return int(count)
    return list(zip(*(column[:count].tolist() for column in (ops, before, after)), strict=True))


def pair_plainly(rows: Rows, pairs: bool) -> Events:
    found: Events = []
    left = list(enumerate(rows))
    while left:
        i, (commit, letter) = left.pop(0)
        if letter == "D" and pairs and left and left[0][1] == (commit, "I"):
            found.append((UPDATE, i, left.pop(0)[0]))
        else:
            found.append({"I": (CREATE, -1, i), "D": (DELETE, i, -1), "U": (UPDATE, i, i)}[letter])
    return found


@settings(deadline=None)
@given(rows=st.lists(st.tuples(st.integers(1, 3), st.sampled_from("DIU")), max_size=14), pairs=st.booleans())
@pytest.mark.parametrize("compiled", [True, False])
def test_events_are_those_of_a_plain_reading(compiled: bool, rows: Rows, pairs: bool) -> None:
    rows.sort(key=lambda row: row[0])
    assert events_of(rows, pairs, compiled) == pair_plainly(rows, pairs)


def test_a_delete_and_an_insert_of_two_transactions_are_no_update() -> None:
    assert events_of([(1, "D"), (2, "I")], True) == [(DELETE, 0, -1), (CREATE, -1, 1)]


def test_a_delete_followed_by_two_inserts_is_an_update_and_a_create() -> None:
    assert events_of([(1, "D"), (1, "I"), (1, "I")], True) == [(UPDATE, 0, 1), (CREATE, -1, 2)]


def test_two_deletes_followed_by_an_insert_are_a_delete_and_an_update() -> None:
    assert events_of([(1, "D"), (1, "D"), (1, "I")], True) == [(DELETE, 0, -1), (UPDATE, 1, 2)]


def test_where_updates_come_as_one_row_a_delete_and_an_insert_stay_two_events() -> None:
    assert events_of([(1, "D"), (1, "I"), (1, "U")], False) == [(DELETE, 0, -1), (CREATE, -1, 1), (UPDATE, 2, 2)]


@pytest.mark.parametrize("compiled", [True, False])
def test_an_unknown_letter_is_reported_with_its_row(compiled: bool) -> None:
    assert events_of([(1, "I"), (1, "I"), (1, "X")], True, compiled) == -1 - 2
