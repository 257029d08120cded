"""Layout of a change table: its content for each column of its table.

That is the column's value, an indicator in its place, or nothing; and the value before an update.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from airflow_provider_cdc.core.model.table_schema import NOT_CAPTURED, Column, TableId, TableSchema
from airflow_provider_cdc.sources.db2.asn.table_registrations import TableRegistration
from airflow_provider_cdc.sources.db2.config import Db2Config
from airflow_provider_cdc.sources.db2.config_enums import NOT_LOGGED
from airflow_provider_cdc.sources.db2.log.ordered_table_changes import Mask
from airflow_provider_cdc.sources.db2.position import resized_lsn
from airflow_provider_cdc.sources.db2.rows.select_list import Columns, SelectList
from airflow_provider_cdc.sources.db2.schema.captured_structures import before_column
from airflow_provider_cdc.sources.db2.schema.type_mapping import Db2ColumnType
from airflow_provider_cdc.sources.relational.sql_quoting import quote_table, quoted_name

OWN: Final = ("t.IBMSNAP_COMMITSEQ", "t.IBMSNAP_INTENTSEQ", "t.IBMSNAP_OPERATION")
"""The columns that are selected first."""
_WINDOW: Final = "t.IBMSNAP_COMMITSEQ > ? AND t.IBMSNAP_COMMITSEQ <= ?"
_REST: Final = (
    "((t.IBMSNAP_COMMITSEQ = ? AND t.IBMSNAP_INTENTSEQ > ?) OR t.IBMSNAP_COMMITSEQ > ?) AND t.IBMSNAP_COMMITSEQ <= ?"
)


@dataclass(frozen=True)
class ChangeTableLayout:
    """The way to read the rows of one change table.

    :param values: the values of a row; of an update that comes as one row, after it
    :param before: the values before such an update; ``None`` = the change table does not have them, or not those of the key
    :param lobs: columns whose values are read from the table, not from the change table, as indexes of the schema's columns
    :param indicators: those of them with a letter in the change table where the value has changed → index of the fetched value
    """

    registration: TableRegistration
    schema: TableSchema
    values: SelectList
    before: SelectList | None
    lobs: tuple[int, ...]
    indicators: Mapping[int, int]
    sql: str

    def query(self, start: bytes, end: bytes, after: tuple[bytes, bytes] | None = None) -> tuple[str, tuple[Any, ...]]:
        """Build the query for the rows of the transactions that committed after ``start``, up to and with ``end``; and its parameters.

        :param after: commit and change LSN of the last row that was fetched already
        """
        if after is None:
            return self.sql.format(where=_WINDOW), (resized_lsn(start, end), end)
        return self.sql.format(where=_REST), (*after, after[0], end)

    def values_of(self, fetched: Columns) -> Columns:
        """Return the part of fetched columns that :attr:`values` reads."""
        return fetched[len(OWN) :]

    def before_of(self, fetched: Columns) -> Columns:
        """Return the part of fetched columns that :attr:`before` reads."""
        return fetched[len(OWN) + self.values.width :]

    def changed_lobs(self, fetched: Columns, n: int) -> Mask:
        """Return ``bool[lob, row]``: LOBs that a row has changed, as far as the change table shows."""
        changed = np.ones((len(self.lobs), n), np.bool_)
        for i, column in enumerate(self.lobs):
            if (at := self.indicators.get(column)) is not None:
                changed[i] = np.fromiter((bool(v) and v != " " for v in fetched[at]), np.bool_, n)
        return changed


def layout_of(
    schema: TableSchema, registration: TableRegistration, change: TableSchema, config: Db2Config
) -> ChangeTableLayout:
    """Build the layout of a change table.

    :param schema: the structure with which the table is captured
    :param change: the structure of the change table
    """
    has = {c.name: c for c in change.columns}
    absent = [c.name for c in schema.columns if not _has_values(c, has)]
    values = SelectList(schema, config, absent=absent)
    before = (
        None
        if registration.pairs or not registration.before_prefix
        else _before(schema, registration.before_prefix, has, config)
    )
    lobs = tuple(i for i, c in enumerate(schema.columns) if _is_lob(c) and c.name in absent)
    indicated = [i for i in lobs if (column := has.get(schema.columns[i].name)) and not _is_lob(column)]
    first = len(OWN) + values.width + (before.width if before else 0)
    selected = [*OWN, *values.expressions, *(before.expressions if before else ())]
    selected += [f"t.{quoted_name(schema.columns[i].name)}" for i in indicated]
    table = quote_table(TableId(namespace=registration.change_owner, name=registration.change_table))
    escaped = f"SELECT {', '.join(selected)} FROM {table} t".replace("{", "{{").replace("}", "}}")
    sql = f"{escaped} WHERE {{where}} ORDER BY t.IBMSNAP_COMMITSEQ, t.IBMSNAP_INTENTSEQ FOR READ ONLY WITH CS"
    return ChangeTableLayout(
        registration, schema, values, before, lobs, {c: first + i for i, c in enumerate(indicated)}, sql
    )


def _is_lob(column: Column) -> bool:
    return column.type != NOT_CAPTURED and Db2ColumnType.from_column(column).base in NOT_LOGGED


def _has_values(column: Column, has: Mapping[str, Column]) -> bool:
    # a LOB column of a change table may hold the value, an indicator or nothing: only the table has the right value for certain
    return column.name in has and not _is_lob(column)


def _before(schema: TableSchema, prefix: str, has: Mapping[str, Column], config: Db2Config) -> SelectList | None:
    names: Sequence[str] = [c.name for c in schema.columns if before_column(c.name, prefix) in has]
    if not names or not set(schema.key) <= set(names):
        return None
    absent = [c.name for c in schema.columns if c.name not in names]
    return SelectList(schema, config, absent=absent, named=lambda name: before_column(name, prefix))
