"""Columns as one array: most have one chunk, and their values are long texts, which no one copies without need."""

from __future__ import annotations

import pyarrow as pa

from airflow_provider_cdc.sources.oracle.flat_columns import flatten_column
from airflow_provider_cdc.sources.oracle.mining.logminer_query import WIRE, decode_contents


def _text_address(texts: pa.Array) -> int:
    return int(texts.buffers()[2].address)


def test_a_column_of_one_chunk_is_not_copied() -> None:
    texts = pa.array(["a", None, "ccc"], pa.large_string())
    flat = flatten_column(pa.chunked_array([texts]).slice(1))
    assert flat.to_pylist() == [None, "ccc"]
    assert _text_address(flat) == _text_address(texts)
    assert flatten_column(texts) is texts


def test_a_column_of_any_other_number_of_chunks_becomes_one_array() -> None:
    assert flatten_column(pa.chunked_array([["a"], [], ["b", None]], pa.large_string())).to_pylist() == ["a", "b", None]
    none = flatten_column(pa.chunked_array([], pa.large_string()))
    assert (none.type, len(none)) == (pa.large_string(), 0)


def test_fetched_statements_are_not_copied() -> None:
    statements = pa.array(["""insert into "A"."T"("ID") values ('1');"""] * 3, pa.large_string())
    columns = [statements if name == "SQL_REDO" else pa.nulls(3, type_) for name, type_ in zip(WIRE.names, WIRE.types, strict=True)]  # fmt: skip
    batch = decode_contents(pa.table(columns, schema=WIRE), 0)
    assert batch.column("sql").equals(statements)
    assert _text_address(batch.column("sql")) == _text_address(statements)
