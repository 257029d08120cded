"""The queries of chunks: the first rows of a key range in key order, and the last key of a range."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import oracledb
import pyarrow as pa

from airflow_provider_cdc.core.model.key_json import Key
from airflow_provider_cdc.core.spi.chunk_reader import KeyRange
from airflow_provider_cdc.sources.oracle.config import OracleConfig
from airflow_provider_cdc.sources.oracle.snapshot.chunk_key_binds import (
    KeyColumn,
    bind_key_values,
    build_after_conditions,
    build_comparison,
    build_keys_condition,
    key_columns,
    key_prefix,
)
from airflow_provider_cdc.sources.oracle.snapshot.query_columns import QueryColumns
from airflow_provider_cdc.sources.oracle.snapshot.row_blocks_and_extents import split_fetched_rows
from airflow_provider_cdc.sources.oracle.snapshot.rowid_keys import strip_fingerprint
from airflow_provider_cdc.sources.relational.fetch_size import LOB_ROWS
from airflow_provider_cdc.sources.relational.sql_quoting import quote_table, quoted_name

_HINT: Final = "/*+ FIRST_ROWS(1000) */"
"""Makes the optimizer use the key's index, instead of reading and sorting the rest of the table."""


class RangeQuery:
    """The queries on one key range.

    :ivar columns: the select list
    :ivar key: the columns that rows are ordered by
    """

    def __init__(self, rows: KeyRange, config: OracleConfig, connection: oracledb.Connection) -> None:
        self.rows = rows
        alias = quoted_name(rows.table.id.name)  # conditions may name columns with their table's name
        self.columns = QueryColumns(rows.table, config, alias)
        self.key = key_columns(rows.table, rows.order, self.columns, alias)
        self._config, self._connection = config, connection
        self._selected = [*self.columns.expressions, *(c.shown for c in self.key if c.name not in self.columns.index)]

    def list_range_conditions(self) -> list[tuple[str, tuple[KeyColumn, ...]]]:
        if self.rows.after is None:
            return [("", self.key)]
        return [(condition, tuple(ordered)) for condition, ordered in build_after_conditions("cdc_a", self.key)]

    @property
    def most_rows(self) -> int:
        """Greatest number of rows per fetch."""
        return LOB_ROWS if self.columns.lobs else self._config.snapshot_fetch_size

    def read_first_rows(
        self, condition: str, ordered: tuple[KeyColumn, ...], limit: int, fetched: int
    ) -> Iterator[pa.Table]:
        """Yield the first rows of a part of the range.

        :param condition: condition of the part
        :param ordered: the columns that it is ordered by
        :param fetched: rows per fetch
        """
        selected = ", ".join(f"{expression} AS C{i}" for i, expression in enumerate(self._selected))
        order = ", ".join(c.sql for c in ordered)
        sql = (
            f"SELECT {_HINT} * FROM (SELECT {selected} {self._from(condition)} ORDER BY {order}) WHERE ROWNUM <= :cdc_n"
        )
        with self._connection.cursor() as cursor:
            values = self._binds(cursor, sql) | {"cdc_n": limit}
            for frame in self._connection.fetch_df_batches(sql, values, size=min(limit, fetched)):
                yield from split_fetched_rows(pa.table(frame))

    def key_of(self, part: pa.Table) -> Key:
        """Return the key of the last of some rows."""
        extra = iter(range(len(self.columns.expressions), len(self._selected)))
        indices = [self.columns.index[c.name] if c.name in self.columns.index else next(extra) for c in self.key]
        return [c.to_json(part.column(at)[-1].as_py()) for c, at in zip(self.key, indices, strict=True)]

    def read_last_key(self) -> tuple[Any, ...] | None:
        """Key values of the last row of the range, as the driver gives them; ``None`` without a row."""
        behind_ = build_comparison("cdc_a", self.key, ">") if self.rows.after is not None else ""
        shown = ", ".join(f"{c.shown} AS C{i}" for i, c in enumerate(self.key))
        order = ", ".join(f"{c.sql} DESC" for c in self.key)
        return self._first(
            f"SELECT {_HINT} * FROM (SELECT {shown} {self._from(behind_)} ORDER BY {order}) WHERE ROWNUM <= 1"
        )

    def _first(self, sql: str) -> tuple[Any, ...] | None:
        with self._connection.cursor() as cursor:
            cursor.execute(sql, self._binds(cursor, sql))
            row: tuple[Any, ...] | None = cursor.fetchone()
            return row

    def _from(self, condition: str) -> str:
        where = [condition] if condition else []
        if self.rows.upto is not None:
            where.append(build_comparison("cdc_u", self.key, "<="))
        if self.rows.first is not None:
            where.append(build_comparison("cdc_f", self.key[: len(self.rows.first)], ">="))
        if self.rows.end is not None:
            where.append(build_comparison("cdc_e", self.key[: len(self.rows.end)], "<="))
        if self.rows.keys is not None:
            where.append(build_keys_condition("cdc_k", self.key, self.rows.keys))
        if self.rows.condition is not None:
            where.append(f"(\n{self.rows.condition}\n)")
        return f"FROM {quote_table(self.rows.table.id)}" + (f" WHERE {' AND '.join(where)}" if where else "")

    def _binds(self, cursor: oracledb.Cursor, sql: str) -> dict[str, Any]:
        """Return the bind variables that a statement names."""
        values: dict[str, Any] = {}
        rows = self.rows
        for prefix, key in (("cdc_a", rows.after), ("cdc_u", rows.upto), ("cdc_f", rows.first), ("cdc_e", rows.end)):
            if key is not None:
                columns = self.key[: len(key)]
                bare = [strip_fingerprint(v) if c.rowid else v for c, v in zip(columns, key, strict=True)]
                values |= bind_key_values(prefix, columns, bare, cursor)
        named = {name: value for name, value in values.items() if f":{name}" in sql}
        for n, key in enumerate(rows.keys or ()):
            named |= bind_key_values(key_prefix("cdc_k", n), self.key[: len(key)], key, cursor)
        return named
