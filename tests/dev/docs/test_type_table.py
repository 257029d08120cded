"""The table of types in the documentation has every kind of values and every database."""

from __future__ import annotations

from typing import get_args

from airflow_provider_cdc.targets.database.dialects import DIALECTS, load_dialect
from airflow_provider_cdc.targets.database.schema.value_kinds import KindName
from dev.type_table import NAMES, VALUES


def test_every_kind_of_values_has_a_type_in_every_database() -> None:
    assert {kind.name for _, kind, _ in VALUES} == set(get_args(KindName))
    for name in DIALECTS:
        made = load_dialect(name)()
        for _, kind, key in VALUES:
            assert made.type_of(kind, key=key)
    assert NAMES.keys() == DIALECTS.keys()
