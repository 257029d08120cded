"""The key of a table's rows, from the keys that its definition has."""

from __future__ import annotations

from collections.abc import Iterable

from airflow_provider_cdc.core.model.table_schema import NOT_CAPTURED, Column


def row_key(candidates: Iterable[tuple[bool, str, tuple[str, ...]]], columns: Iterable[Column]) -> tuple[str, ...]:
    """Return the key of a table: its primary key, else of its unique keys without a nullable column the first by name.

    :param candidates: (is it the primary key, name of the constraint or index, its columns), in any order
    """
    captured = [c for c in columns if c.type != NOT_CAPTURED]
    usable = {c.name for c in captured}
    certain = {c.name for c in captured if not c.nullable}
    unique = []
    for primary, name, names in candidates:
        if primary and set(names) <= usable:
            return names
        if not primary and set(names) <= certain:
            unique.append((name, names))
    return min(unique, default=("", ()))[1]
