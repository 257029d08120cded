"""Windows against a model in plain Python: which rows of a chunk are left, and with which values."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_provider_cdc.core.incremental.chunk_windows import (
    ChunkWindow,
    TouchedKeys,
    encode_keys,
    find_matching_keys,
)
from airflow_provider_cdc.core.model.log_items import CREATE, DELETE, READ, UPDATE, RowBlock
from airflow_provider_cdc.core.model.table_schema import Column, TableId, TableSchema, row_struct
from airflow_provider_cdc.core.spi.chunk_reader import ChunkRows

TABLE = TableId(namespace="shop", name="a")
KEYS = {
    "number": ("id",),
    "text": ("name",),
    "both": ("id", "name"),
}
COLUMNS = (
    Column(name="id", type="int64", nullable=False),
    Column(name="name", type="string", nullable=False),
    Column(name="n", type="int64"),
    Column(name="large", type="string"),
)
SCHEMA = TableSchema(id=TABLE, columns=COLUMNS, key=("id",))
Row = dict[str, Any]

rows_ = st.lists(st.tuples(st.integers(-3, 6), st.sampled_from("aAb")), min_size=1, max_size=8, unique=True)
change = st.tuples(
    st.sampled_from([CREATE, UPDATE, UPDATE, DELETE]),
    st.tuples(st.integers(-3, 6), st.sampled_from("aAb")),
    st.tuples(st.integers(-3, 6), st.sampled_from("aAb")),
    st.booleans(),
    st.booleans(),
)


def _row(key: tuple[int, str], large: str | None = "text") -> Row:
    return {"id": key[0], "name": key[1], "n": 1, "large": large}


def _block(rows: list[tuple[int, Row | None, Row | None]], lacking: list[bool]) -> RowBlock:
    n, struct = len(rows), row_struct(SCHEMA)
    mask = np.zeros((4, n), np.bool_)
    mask[3] = lacking
    return RowBlock(
        SCHEMA,
        np.array([op for op, _, _ in rows], np.int8),
        pa.array([before for _, before, _ in rows], struct),
        pa.array([after for _, _, after in rows], struct),
        np.arange(n),
        None,
        np.zeros(n, np.int64),
        {},
        None,
        mask if mask.any() else None,
    )


def _window(keys: list[tuple[int, str]]) -> ChunkWindow:
    block = RowBlock(
        SCHEMA, np.full(len(keys), READ, np.int8), None, pa.array([_row(k) for k in keys], row_struct(SCHEMA)),
        np.arange(len(keys)), None, np.zeros(len(keys), np.int64), {},
    )  # fmt: skip
    half = len(keys) // 2
    parts = [_part(block, 0, half), _part(block, half, len(keys))]
    window = ChunkWindow(1, TABLE, 1)
    window.chunk = ChunkRows([p for p in parts if len(p)], None)
    return window


def _part(block: RowBlock, lo: int, hi: int) -> RowBlock:
    assert block.after is not None
    return RowBlock(
        block.table, block.op[lo:hi], None, block.after[lo:hi], np.arange(hi - lo), None, block.ts_us[lo:hi], {}
    )  # fmt: skip


@pytest.mark.parametrize("key", KEYS.values(), ids=KEYS)
@given(keys=rows_, changes=st.lists(st.lists(change, max_size=4), max_size=4), first=st.booleans())
def test_what_is_left_of_a_chunk_is_what_a_model_says(
    key: tuple[str, ...], keys: list[tuple[int, str]], changes: list[list[Any]], first: bool
) -> None:
    named = {tuple(_row(k)[c] for c in key): k for k in keys}  # one row for each key
    keys = list(named.values())
    window, chunk = _window(keys), None
    if first:  # events that came before the rows
        chunk, window.chunk = window.chunk, None
    reported: dict[tuple[Any, ...], set[str]] = {k: set() for k in named}
    gone: set[tuple[Any, ...]] = set()
    for part in changes:
        items, lacking, kept = [], [], []
        for op, old, new, lacks, keep in part:
            new = old if op != UPDATE else new
            before = None if op == CREATE else _row(old)
            after = None if op == DELETE else _row(new, None if lacks else "text")
            items.append((op, before, after))
            lacking.append(lacks and op != DELETE)
            kept.append(keep)
            if not keep:
                continue
            if before is not None and (op == DELETE or _key_of(before, key) != _key_of(after or {}, key)):
                gone.add(_key_of(before, key))
            if after is not None:
                names = {"n"} | ({"id", "name", "large"} if not lacks else {"id", "name"})
                reported.setdefault(_key_of(after, key), set()).update(names)
        if items:
            block = _block(items, lacking)
            window.record_events(
                TouchedKeys.from_rows(block, [SCHEMA.column_names.index(c) for c in key], np.array(kept))
            )
    if first:
        window.chunk = chunk
    found: dict[tuple[Any, ...], Row] = {}
    for block in window.iterate_remaining_rows(key):
        assert block.after is not None
        assert list(block.order) == list(range(len(block)))
        mask = block.unavailable_after
        for i, row in enumerate(block.after.to_pylist()):
            hidden = {c for j, c in enumerate(SCHEMA.column_names) if mask is not None and mask[j, i]}
            assert all(row[c] is None for c in hidden)
            found[_key_of(row, key)] = {c: v for c, v in row.items() if c not in hidden}
    expected = {}
    rest = [c for c in SCHEMA.column_names if c not in key]
    for k, names in reported.items():
        if k in named and k not in gone and not set(rest) <= names:
            expected[k] = {c: v for c, v in _row(named[k]).items() if c in key or c not in names}
    assert found == expected


def _key_of(row: Row, key: tuple[str, ...]) -> tuple[Any, ...]:
    return tuple(row[c] for c in key)


def test_a_table_that_was_emptied_leaves_nothing() -> None:
    window = _window([(1, "a"), (2, "b")])
    window.record_events(TouchedKeys.from_truncate())
    assert list(window.iterate_remaining_rows(("id",))) == []


@pytest.mark.parametrize(
    "values",
    [
        [1, 2, None, -5],
        ["a", "", None, "ä"],
        [b"\x00", b"", None, b"\xff"],
        [1.5, -0.5, None, 1e300],
        [True, False, None],
    ],
)
def test_keys_of_every_kind_are_found(values: list[Any]) -> None:
    column = pa.array(values)
    mask = find_matching_keys([column], [column.slice(1, 1)])
    assert mask is not None
    assert mask.tolist() == [i == 1 for i in range(len(values))]
    mine, others = encode_keys([column, column], [column, column])
    assert mine.tolist() == others.tolist()
    assert len(set(mine.tolist())) == len(values)


def test_a_key_that_is_null_is_no_number() -> None:
    mine, null, zero = pa.array([0, None, 3]), pa.array([None, 7], pa.int64()), pa.array([0, 7])
    for others, expected in ((null, [False, True, False]), (zero, [True, False, False])):
        mask = find_matching_keys([mine], [others])
        assert mask is not None
        assert mask.tolist() == expected
    mask = find_matching_keys([pa.array([0, 3])], [null])
    assert mask is None or not mask.any()


NUMBER = (("id", "int64"),)


@pytest.mark.parametrize(
    ("columns", "key"),
    [
        ((Column(name="id", type="string", nullable=False), *COLUMNS[1:]), ("id",)),
        (COLUMNS, ("id", "name")),
        ((Column(name="number", type="int64", nullable=False), *COLUMNS[1:]), ("number",)),
        (COLUMNS, ()),
    ],
    ids=["type", "columns", "name", "none"],
)
@pytest.mark.parametrize("first", [True, False], ids=["events-first", "rows-first"])
def test_rows_are_not_written_if_events_have_another_key(
    columns: tuple[Column, ...], key: tuple[str, ...], first: bool
) -> None:
    schema = TableSchema(id=TABLE, columns=columns, key=key)
    row = {"id": "k1" if columns[0].type == "string" else 1, "number": 1, "name": "a", "n": 1, "large": "text"}
    image = pa.array([row, row], row_struct(schema))
    events = RowBlock(schema, np.full(2, UPDATE, np.int8), image, image, np.arange(2), None, np.zeros(2, np.int64), {})
    window, chunk = _window([(1, "a"), (2, "b")]), None
    if first:
        chunk, window.chunk = window.chunk, None
    window.record_events(TouchedKeys.from_rows(_block([(CREATE, None, _row((7, "c")))], [False]), [0], None))
    window.record_events(TouchedKeys.from_truncate())
    assert window.keyed_by(NUMBER)
    window.record_events(TouchedKeys.from_rows(events, [schema.column_names.index(name) for name in key], None))
    if first:
        window.chunk = chunk
    window.remove_superseded_rows()
    assert not window.keyed_by(NUMBER)
