"""Long values: random sequences against a plain model, and large ones."""

from __future__ import annotations

import resource
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from airflow_provider_cdc.sources.oracle.kernels.operation_codes import NO_ROW_ID
from airflow_provider_cdc.sources.oracle.redo.lob_assembler import read_with_lobs
from tests.sources.oracle.redo.lob_model import Model
from tests.sources.oracle.redo.lob_texts import (
    NOTHING,
    as_blocks,
    assemble,
    insert,
    lob_reader,
    locator,
    shown_rows,
    write,
)  # fmt: skip

R1, R2 = "AAAS1pAAMAAAACXAAA", "AAAS1pAAMAAAACXAAB"
ONE = {"ID": 1, "V": "x"}


@pytest.mark.parametrize("blocks", [False, True])
@pytest.mark.parametrize("seed", range(60))
def test_random_sequences_end_in_the_values_of_a_plain_model(seed: int, blocks: bool) -> None:
    model = Model(seed)
    for _ in range(25):
        model.step()
    reader = lob_reader()
    found: dict[int, dict[str, Any]] = {}
    for _, op, row in shown_rows(assemble(reader, as_blocks(model.lines) if blocks else model.lines), reader.schema):
        if op == "d":
            del found[row["before"]["ID"]]
            continue
        id_ = row["after"]["ID"]
        assert (op == "c") == (id_ not in found)
        found.setdefault(id_, {}).update(row["after"])
    expected = {id_: {"V": row["V"], "C": row["C"], "B": row["B"].hex()} for id_, row in model.rows.items()}
    assert {id_: {n: row[n] for n in "VCB"} for id_, row in found.items()} == expected


def test_a_hundred_megabytes_in_pieces_need_a_few_times_their_size() -> None:
    size, piece = 100 << 20, 32_000
    hexed = "41" * piece
    count = size // piece
    texts = [locator("B", ONE).text]
    texts += [
        f" buf_b := HEXTORAW('{hexed}'); \n dbms_lob.write(loc_b, {piece}, {n * piece + 1}, buf_b);"
        for n in range(count)
    ]
    array = pa.array(texts, pa.large_string())
    del texts
    codes = np.array([9] + [10] * count)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    reader = lob_reader()
    found = read_with_lobs(reader, array, codes, np.zeros(count + 1, np.int64), [NO_ROW_ID] * (count + 1))
    assert found.rows.after is not None
    assert len(found.rows.after.field("B")[0].as_buffer()) == count * piece
    extra = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) << 10
    assert extra < 5 * size


def test_ten_thousand_appends_to_one_value_are_not_copied_each_time() -> None:
    lines = [insert(row_id=R1, **ONE, **NOTHING | {"C": ""})]
    for n in range(10_000):
        lines += [locator("C", ONE, R1), write("C", "x" * 500, n * 500 + 1)]
    reader = lob_reader()
    found = assemble(reader, lines)
    assert len(found.rows) == 1
    assert found.rows.after is not None
    assert found.rows.after.field("C")[0].as_py() == "x" * 5_000_000
