"""Tables in memory: the states between their commits."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa

from airflow_provider_cdc.targets.lake.formats.memory_table import MemoryTableState


def test_a_state_never_has_the_number_of_one_that_is_gone() -> None:
    state = MemoryTableState(pa.table({"id": [1]}), {"id": "bigint"})
    numbers = {state.number}
    for _ in range(100):
        state = replace(state, variants="text")
        numbers.add(state.number)
    assert len(numbers) == 101
