"""Rows of COPY BINARY, on real servers and as bytes that are cut anywhere."""

from __future__ import annotations

import struct
from typing import Any

import numpy as np
import pyarrow as pa

from airflow_provider_cdc.core.model.table_schema import TableId
from airflow_provider_cdc.sources.postgresql.connect import connect
from airflow_provider_cdc.sources.postgresql.kernels.copy_splitter import COPY_ENDED, split_copied_rows
from airflow_provider_cdc.sources.postgresql.kernels.message_layout import BINARY_VALUE, NEED_BYTES, NULL_VALUE
from airflow_provider_cdc.sources.postgresql.schema.catalog_reader import PostgresCatalog
from airflow_provider_cdc.sources.postgresql.snapshot.copied_rows import CopiedRows, select_text
from tests.sources.postgresql.conftest import Database


def read(database: Database, table: str, extras: tuple[str, ...] = ()) -> tuple[list[pa.StructArray], list[Any]]:
    with connect(database.config) as connection:
        catalog = PostgresCatalog(connection, database.config)
        structure = catalog.read_structure(TableId(namespace="public", name=table, catalog=database.name))
        assert structure is not None
        rows = CopiedRows.prepare(structure, catalog.types, database.config)
        query = f"SELECT {select_text(rows, extras)} FROM ONLY public.{table} ORDER BY 1"
        pairs = list(rows.read(connection, query, len(extras)))
    return [block for block, _ in pairs], [last for _, last in pairs]


def test_rows_of_many_blocks_keep_their_values(database: Database) -> None:
    database.sql(
        "CREATE TABLE items (id int PRIMARY KEY, name text, price numeric(10,2))",
        "INSERT INTO items SELECT n, CASE WHEN n % 3 > 0 THEN 'item ' || n END, n / 4.0 FROM generate_series(1, 40000) n",
    )
    blocks, last = read(database, "items", ("id::text",))
    assert len(blocks) > 2
    values = pa.concat_arrays(blocks).to_pylist()
    assert [row["id"] for row in values] == list(range(1, 40001))
    assert all(row["name"] == (f"item {row['id']}" if row["id"] % 3 else None) for row in values)
    assert str(values[2]["price"]) == "0.75"
    assert last[-1] == ["40000"]


def test_a_row_wider_than_a_block_is_read(database: Database) -> None:
    database.sql(
        "CREATE TABLE wide (id int, body text)",
        "INSERT INTO wide VALUES (1, 'a'), (2, repeat('x', 20000000)), (3, 'b')",
    )
    blocks, _ = read(database, "wide")
    assert [(r["id"], len(r["body"])) for b in blocks for r in b.to_pylist()] == [(1, 1), (2, 20_000_000), (3, 1)]


def test_an_empty_table_has_no_block(database: Database) -> None:
    database.sql("CREATE TABLE empty (id int)")
    assert read(database, "empty") == ([], [])


def test_rows_without_columns_are_counted(database: Database) -> None:
    database.sql("CREATE TABLE bare ()", "INSERT INTO bare DEFAULT VALUES", "INSERT INTO bare DEFAULT VALUES")
    with connect(database.config) as connection:
        catalog = PostgresCatalog(connection, database.config)
        structure = catalog.read_structure(TableId(namespace="public", name="bare", catalog=database.name))
        assert structure is not None
        rows = CopiedRows.prepare(structure, catalog.types, database.config)
        assert sum(len(block) for block, _ in rows.read(connection, "SELECT FROM public.bare")) == 2


def test_a_row_that_is_cut_anywhere_is_left_for_the_next_call() -> None:
    row = struct.pack("!hi3si", 2, 3, b"abc", -1)
    data = np.frombuffer(row + row + struct.pack("!h", -1), np.uint8)
    forms = np.full(2, BINARY_VALUE, np.uint8)
    for end in range(len(data) + 1):
        kinds, starts, lengths = np.empty((2, 8), np.uint8), np.empty((2, 8), np.int64), np.empty((2, 8), np.int32)
        n, p, why = split_copied_rows(data, 0, end, forms, kinds, starts, lengths)
        whole = min(end // len(row), 2)
        assert (n, p) == (whole, whole * len(row) if end < len(data) else len(data))
        assert why == (NEED_BYTES if end < len(data) else COPY_ENDED)
        assert kinds[:, :n].tolist() == [[BINARY_VALUE] * n, [NULL_VALUE] * n]
        assert [data[s : s + 3].tobytes() for s in starts[0, :n]] == [b"abc"] * n
