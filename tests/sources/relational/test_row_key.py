"""The key of a table's rows."""

from __future__ import annotations

import pytest

from airflow_provider_cdc.core.model.table_schema import NOT_CAPTURED, Column
from airflow_provider_cdc.sources.relational.row_key import row_key

COLUMNS = [
    Column(name="A", type="int32", nullable=False),
    Column(name="B", type="int32", nullable=False),
    Column(name="C", type="int32", nullable=True),
    Column(name="X", type=NOT_CAPTURED, nullable=True),
]


@pytest.mark.parametrize(
    ("candidates", "key"),
    [
        ([(False, "U", ("B",)), (True, "Z", ("A", "C"))], ("A", "C")),
        ([(False, "V", ("A",)), (False, "U", ("B",))], ("B",)),
        ([(False, "U", ("A", "C"))], ()),
        ([(True, "P", ("A", "X")), (False, "U", ("B",))], ("B",)),
        ([], ()),
    ],
    ids=["primary", "first by name", "nullable", "not captured", "none"],
)
def test_the_key_is_the_primary_one_or_the_first_unique_one_that_is_never_null(
    candidates: list[tuple[bool, str, tuple[str, ...]]], key: tuple[str, ...]
) -> None:
    assert row_key(candidates, iter(COLUMNS)) == key
