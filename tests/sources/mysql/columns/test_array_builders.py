"""Arrays of decoded columns. Rows of servers: ``tests/cases/test_values.py``."""

from __future__ import annotations

from datetime import date

import numpy as np
import pyarrow as pa
import pytest

from airflow_provider_cdc.core.errors import UnreadableValue
from airflow_provider_cdc.core.model.table_schema import Column, ColumnDeclaration
from airflow_provider_cdc.sources.mysql.columns.array_builders import build_temporal_finisher
from airflow_provider_cdc.sources.mysql.columns.column_buffers import DecodedColumn

DAYS = np.array([0, 1, 0], np.int64)
VALID = np.array([1, 1, 2], np.uint8)
"""The last date is one that the calendar does not have."""


def _dates(*, nullable: bool) -> Column:
    return Column(name="d", type="date32[day]", nullable=nullable, declared=ColumnDeclaration(type_name="DATE"))


def _decoded() -> DecodedColumn:
    none = np.zeros(0, np.uint8)
    return DecodedColumn(3, VALID, DAYS, np.zeros((0, 2), np.int64), np.zeros(4, np.int32), none, 0)


@pytest.mark.parametrize("nullable", [False, True])
def test_a_date_that_the_calendar_does_not_have_is_refused_in_a_key(nullable: bool) -> None:
    """A6b: its replacement is the value of another row, so that one of both would be lost."""
    with pytest.raises(UnreadableValue, match="would merge several source rows into one"):
        build_temporal_finisher(_dates(nullable=nullable), key="shop.t.d")(_decoded())


@pytest.mark.parametrize(("nullable", "replacement"), [(False, date(1970, 1, 1)), (True, None)])
def test_a_date_that_the_calendar_does_not_have_is_replaced_in_other_columns(
    nullable: bool, replacement: date | None
) -> None:
    array = build_temporal_finisher(_dates(nullable=nullable))(_decoded())
    assert array.type == pa.date32()
    assert array.to_pylist() == [date(1970, 1, 1), date(1970, 1, 2), replacement]
