"""A table while ``ALTER TABLE`` is applied to it: its columns, each with its earlier form, and the change that results."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from airflow_provider_cdc.core.model.table_schema import Column, TableChange, TableSchema


@dataclass(slots=True)
class AlteredColumn:
    """A column of the table after the statement, in its place.

    :param before: the column it was; ``None`` for a new one
    """

    column: Column
    before: Column | None


@dataclass(frozen=True, slots=True)
class FillValue:
    """The value that existing rows have in a new column, as text that casts to the column's change log type; ``None`` is NULL."""

    value: str | None


def build_alter_change(
    former: TableSchema,
    columns: Sequence[AlteredColumn],
    *,
    added: Mapping[str, str | None],
    exact: bool,
    update: Mapping[str, Any],
) -> TableChange:
    """Build the change that an ``ALTER TABLE`` is, the table keeping its name.

    :param added: new column → its value in existing rows
    :param exact: neither the log nor this change leaves open which values existing rows have
    :param update: other new parts of the structure: its key, its character set
    """
    renamed = {p.column.name: p.before.name for p in columns if p.before and p.before.name != p.column.name}
    table = former.model_copy(update={"columns": tuple(p.column for p in columns), **update})
    stay = {p.before.name for p in columns if p.before}
    made_again = tuple(
        p.column.name for p in columns if not p.before and p.column.name in {*former.column_names} - stay
    )
    return TableChange(
        type="ALTER", id=former.id, table=table, renamed=renamed, added=dict(added), dropped=made_again, exact=exact
    )
