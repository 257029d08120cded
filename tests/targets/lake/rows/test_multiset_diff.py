"""Net changes of a bag of rows, computed on arrays; no Spark."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from airflow_provider_cdc.targets.lake.rows.last_event_per_key import SEQ
from airflow_provider_cdc.targets.lake.rows.multiset_diff import LocatedRows, MultisetDifference, compute_difference
from airflow_provider_cdc.targets.lake.rows.multiset_rewrite import NUMBER

Image = tuple[Any, ...]
IMAGES = st.tuples(st.sampled_from([None, 1, 2]), st.sampled_from([None, 0.0, -0.0, float("nan"), 1.5]))
WORK = st.lists(st.tuples(st.sampled_from("iuudd"), st.integers(0, 99), IMAGES), max_size=25)
"""Insert, update or delete; which of the rows there are; its new image."""


def _arrays(changes: list[tuple[Any, ...]]) -> pa.Table:
    types = {"a": pa.int32(), "x": pa.float64(), NUMBER: pa.int32(), SEQ: pa.int64()}
    return pa.table(
        [pa.array([c[i] for c in changes], t) for i, t in enumerate(types.values())], schema=pa.schema(types.items())
    )


def _key(image: Image) -> str:
    """Equal ones have the same, as in SQL."""
    return repr(tuple(0.0 if value == 0 and isinstance(value, float) else value for value in image))


def _play_changes(there: list[tuple[Image, str | None]], work: Any) -> tuple[list[tuple[Image, str | None]], pa.Table]:
    """Rows with a value that only the table has, after some work, and its changes."""
    rows, changes = list(there), []
    for seq, (kind, which, image) in enumerate(work, start=1):
        row = rows.pop(which % len(rows)) if rows and kind != "i" else None
        if row is not None:
            changes.append((*row[0], -1, seq))
        if kind != "d":
            changes.append((*image, 1, seq))
            rows.append((image, row[1] if row is not None else None))
    return rows, _arrays(changes)


def _take_rows(
    found: MultisetDifference, there: list[tuple[Image, str | None]]
) -> tuple[LocatedRows, list[tuple[Image, str | None]]]:
    """Take as many rows of each image as the difference says; return them, and the others."""
    left = list(there)
    image, others = [], []
    goes = zip(*(found.removed_images[name].to_pylist() for name in ("a", "x")), strict=True)
    for i, (expected, number) in enumerate(zip(goes, found.number, strict=True)):
        for _ in range(number):
            at = next(at for at, row in enumerate(left) if _key(row[0]) == _key(expected))
            image.append(i)
            others.append(left.pop(at)[1])
    nothing = pa.table({"place": pa.nulls(len(others))})
    return LocatedRows(np.array(image, np.int64), nothing, pa.table({"gone": pa.array(others, pa.string())})), left


@given(there=st.lists(IMAGES, max_size=8), work=WORK)
def test_what_goes_and_what_comes_make_the_rows_that_there_are_then(there: list[Image], work: Any) -> None:
    before = [(image, None) for image in there]
    after, changes = _play_changes(before, work)
    found = compute_difference(changes)
    taken, left = _take_rows(found, before)
    assert len(set(taken.image)) == found.removed_images.num_rows
    come = found.build_added_rows(LocatedRows(taken.image, taken.places, taken.others.select([])))
    assert come.column_names == found.column_names == ["a", "x"]
    rows = [image for image, _ in left] + [tuple(row.values()) for row in come.to_pylist()]
    assert Counter(map(_key, rows)) == Counter(_key(image) for image, _ in after)
    assert found.number_of_new_rows() == come.num_rows
    # what cancels is not looked for
    net = Counter(map(repr, (image for image, _ in after)))
    net.subtract(map(repr, there))
    assert come.num_rows == sum(number for number in net.values() if number > 0)


@given(there=st.lists(IMAGES, max_size=8), work=WORK)
def test_of_equal_rows_each_goes_on_once(there: list[Image], work: Any) -> None:
    before = [(image, f"was {i}") for i, image in enumerate(there)]
    after, changes = _play_changes(before, work)
    found = compute_difference(changes, follow=True)
    taken, left = _take_rows(found, before)
    come = [((row["a"], row["x"]), row["gone"]) for row in found.build_added_rows(taken).to_pylist()]
    assert Counter(_key(image) for image, _ in [*left, *come]) == Counter(_key(image) for image, _ in after)
    values = Counter(value for _, value in [*left, *come] if value is not None)
    assert set(values.values()) <= {1}
    # as many rows have a value of the table's own as if each was known
    assert len(values) <= len(there)


@given(number=st.integers(0, 12), work=WORK)
def test_rows_that_differ_keep_what_only_the_table_has(number: int, work: Any) -> None:
    before = [((i, 0.5), f"was {i}") for i in range(number)]
    distinct = [(kind, which, (100 + i, 0.5)) for i, (kind, which, _) in enumerate(work)]
    after, changes = _play_changes(before, distinct)
    found = compute_difference(changes, follow=True)
    taken, left = _take_rows(found, before)
    come = [((row["a"], row["x"]), row["gone"]) for row in found.build_added_rows(taken).to_pylist()]
    assert sorted(map(repr, [*left, *come])) == sorted(map(repr, after))


def test_a_zero_that_changes_its_sign_is_a_row_that_comes() -> None:
    found = compute_difference(_arrays([(1, 0.0, -1, 1), (1, -0.0, 1, 1), (2, -0.0, -1, 2), (2, 0.0, -1, 3)]))
    assert [
        repr(row)
        for row in found.build_added_rows(
            _take_rows(found, [((1, -0.0), None), ((2, 0.0), None), ((2, 0.0), None)])[0]
        ).to_pylist()
    ] == ["{'a': 1, 'x': -0.0, 'gone': None}"]
    assert (found.removed_images["a"].to_pylist(), found.number.tolist()) == ([1, 2], [1, 2])
