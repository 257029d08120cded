"""Rows that LogMiner gives twice are used once; rows that only look alike are all used."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from airflow_provider_cdc.sources.oracle.kernels.operation_codes import NO_ROW_ID
from airflow_provider_cdc.sources.oracle.mining.logminer_query import BATCH
from airflow_provider_cdc.sources.oracle.transactions.duplicate_rows import find_duplicates


def repeated_rows(*rows: dict[str, Any]) -> list[int]:
    """Indices of the rows that repeat another one."""
    common = {"scn": 7, "code": 10, "ssn": 0, "thread": 1, "rs_id": " 0x1.2.3 ", "row_id": NO_ROW_ID, "sql": "a"}
    table = pa.Table.from_pylist([common | row for row in rows], BATCH)
    every = np.ones(len(rows), np.bool_)
    return np.flatnonzero(find_duplicates(table, np.zeros(len(rows), np.int64), every)).tolist()


def test_a_row_that_repeats_another_in_everything_is_left_out() -> None:
    assert repeated_rows({}, {}) == [1]
    assert repeated_rows({"sql": None, "code": 71}, {"sql": None, "code": 71}) == [1]
    assert repeated_rows({"sql": "b"}, {}, {"sql": "b"}, {}) == [2, 3]


def test_pieces_of_one_long_value_are_all_used() -> None:
    assert repeated_rows({"sql": "write 1"}, {"sql": "write 2"}, {"sql": "write 3"}) == []


def test_locators_without_a_text_are_all_used() -> None:
    assert (
        repeated_rows({"sql": None, "code": 9}, {"sql": "write c"}, {"sql": None, "code": 9}, {"sql": "write b"}) == []
    )


def test_rows_of_other_scns_records_or_rows_are_no_repetition() -> None:
    assert repeated_rows({}, {"scn": 8}) == []
    assert repeated_rows({}, {"rs_id": " 0x1.2.4 "}) == []
    assert repeated_rows({}, {"row_id": "AAAS1pAAMAAAACXAAA"}) == []
