"""XIDs without their sequence number are of the transaction that is open in their slot at that place in the log."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from airflow_provider_cdc.sources.oracle.kernels.operation_codes import COMMIT, INSERT, ROLLBACK, START
from airflow_provider_cdc.sources.oracle.transactions.partial_xids import PARTIAL, complete_xids

SLOT, OTHER = bytes.fromhex("05000100"), bytes.fromhex("05000200")
FIRST, SECOND = SLOT + bytes.fromhex("10000000"), SLOT + bytes.fromhex("11000000")
ELSEWHERE = OTHER + bytes.fromhex("10000000")


def complete_rows(rows: list[tuple[bytes, int]], *open_xids: bytes) -> list[bytes]:
    codes = np.array([code for _, code in rows], np.int16)
    return complete_xids(pa.array([xid for xid, _ in rows], pa.binary()), codes, open_xids).to_pylist()  # type: ignore[no-any-return]


def test_a_row_is_of_the_transaction_that_is_open_in_its_slot_then() -> None:
    partial = SLOT + PARTIAL
    rows = [
        (partial, INSERT), (ELSEWHERE, START), (partial, ROLLBACK), (SECOND, START), (SECOND, INSERT), (partial, INSERT), (SECOND, COMMIT),
    ]  # fmt: skip
    assert complete_rows(rows, FIRST) == [FIRST, ELSEWHERE, FIRST, SECOND, SECOND, SECOND, SECOND]


def test_a_row_whose_slot_has_no_open_transaction_is_of_none_that_has_ended() -> None:
    partial = SLOT + PARTIAL
    assert complete_rows([(FIRST, INSERT), (FIRST, COMMIT), (partial, INSERT), (SECOND, START)]) == [
        FIRST,
        FIRST,
        partial,
        SECOND,
    ]


def test_whole_xids_are_left_as_they_are() -> None:
    rows = [(FIRST, START), (SECOND, START), (ELSEWHERE, COMMIT)]
    assert complete_rows(rows, ELSEWHERE) == [xid for xid, _ in rows]
