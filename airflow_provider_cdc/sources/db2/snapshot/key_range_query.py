"""The queries of chunks: the first rows of a key range in key order, and the last key of a range."""

from __future__ import annotations

from typing import Any

from airflow_provider_cdc.core.model.key_json import Key
from airflow_provider_cdc.core.spi.chunk_reader import KeyRange
from airflow_provider_cdc.sources.db2.config import Db2Config
from airflow_provider_cdc.sources.db2.connect import Db2Connection, Db2Cursor
from airflow_provider_cdc.sources.db2.rows.select_list import SelectList
from airflow_provider_cdc.sources.db2.snapshot.chunk_keys import (
    Db2KeyColumn,
    SqlFragment,
    build_after_conditions,
    build_comparison,
    build_in_condition,
    combine_conditions,
    key_columns,
)
from airflow_provider_cdc.sources.relational.sql_quoting import quote_table, quoted_name


class Db2KeyRangeQuery:
    """The queries on one key range.

    :param gone: columns of the structure that the table does not have any more
    :ivar columns: the select list
    :ivar key: the columns that rows are ordered by
    """

    def __init__(self, rows: KeyRange, config: Db2Config, gone: frozenset[str]) -> None:
        self.rows = rows
        alias = quoted_name(rows.table.id.name)  # conditions may name columns with their table's name
        self.columns = SelectList(rows.table, config, alias, absent=gone)
        self.key = key_columns(rows.table, rows.order, self.columns, alias)
        self._alias = alias
        self._selected = [*self.columns.expressions, *(c.shown for c in self.key if c.name not in self.columns.index)]

    def build_conditions(self) -> list[tuple[SqlFragment, tuple[Db2KeyColumn, ...]]]:
        """Conditions of consecutive parts of the range, each with the columns that it is ordered by."""
        if self.rows.after is None:
            return [(SqlFragment(""), self.key)]
        return [(condition, tuple(ordered)) for condition, ordered in build_after_conditions(self.key, self.rows.after)]

    def open_cursor(
        self, connection: Db2Connection, condition: SqlFragment, ordered: tuple[Db2KeyColumn, ...], limit: int
    ) -> Db2Cursor:
        """Query the first rows of a part of the range.

        :param condition: condition of the part
        :param ordered: the columns that it is ordered by
        """
        source = self._from(condition)
        order = ", ".join(c.sql for c in ordered)
        sql = f"SELECT {', '.join(self._selected)} {source.text} ORDER BY {order} FETCH FIRST {limit} ROWS ONLY FOR READ ONLY WITH CS"
        return connection.open_cursor(sql, *source.values)

    def key_of(self, row: tuple[Any, ...]) -> Key:
        """Return the key of a fetched row."""
        return [c.to_json(row[self.columns.index[c.name]]) for c in self.key]

    def find_last_key(self, connection: Db2Connection) -> tuple[Any, ...] | None:
        """Key values of the last row of the range, as the driver gives them; ``None`` without a row."""
        source = self._from(
            build_comparison(self.key, self.rows.after, ">") if self.rows.after is not None else SqlFragment("")
        )
        shown, order = ", ".join(c.shown for c in self.key), ", ".join(f"{c.sql} DESC" for c in self.key)
        sql = f"SELECT {shown} {source.text} ORDER BY {order} FETCH FIRST 1 ROWS ONLY FOR READ ONLY WITH CS"
        rows = connection.fetch_rows(sql, *source.values)
        return rows[0] if rows else None

    def _from(self, condition: SqlFragment) -> SqlFragment:
        rows, parts = self.rows, [condition]
        if rows.upto is not None:
            parts.append(build_comparison(self.key, rows.upto, "<="))
        if rows.first is not None:
            parts.append(build_comparison(self.key[: len(rows.first)], rows.first, ">="))
        if rows.end is not None:
            parts.append(build_comparison(self.key[: len(rows.end)], rows.end, "<="))
        if rows.keys is not None:
            parts.append(build_in_condition(self.key, rows.keys))
        if rows.condition is not None:
            parts.append(SqlFragment(f"(\n{rows.condition}\n)"))
        where = combine_conditions(parts)
        text = f"FROM {quote_table(rows.table.id)} {self._alias}" + (f" WHERE {where.text}" if where.text else "")
        return SqlFragment(text, where.values)


def build_condition_check(rows: KeyRange) -> str:
    """Return a statement with no parentheses around the condition, so that it cannot close one that it did not open."""
    some = f"(SELECT * FROM {quote_table(rows.table.id)} FETCH FIRST 1 ROWS ONLY)"  # so that a rare condition does not scan the whole table
    return f"SELECT 1 FROM {some} {quoted_name(rows.table.id.name)} WHERE {rows.condition}\n"
