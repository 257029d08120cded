"""The queries of chunks: the first rows of a key range in key order, and the last key of a range."""

from __future__ import annotations

from typing import Any

from airflow_provider_cdc.core.model.key_json import Key
from airflow_provider_cdc.core.spi.chunk_reader import KeyRange
from airflow_provider_cdc.sources.db2.config import Db2Config
from airflow_provider_cdc.sources.db2.connect import Connection, Cursor
from airflow_provider_cdc.sources.db2.rows.select_list import SelectList
from airflow_provider_cdc.sources.db2.schema.sql_names import quoted, quoted_name
from airflow_provider_cdc.sources.db2.snapshot.chunk_keys import (
    KeyColumn,
    Sql,
    among,
    behind,
    both,
    compared,
    key_columns,
)


class RangeQuery:
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

    def ranges(self) -> list[tuple[Sql, tuple[KeyColumn, ...]]]:
        """Conditions of consecutive parts of the range, each with the columns that it is ordered by."""
        if self.rows.after is None:
            return [(Sql(""), self.key)]
        return [(condition, tuple(ordered)) for condition, ordered in behind(self.key, self.rows.after)]

    def cursor(self, connection: Connection, condition: Sql, ordered: tuple[KeyColumn, ...], limit: int) -> Cursor:
        """The first rows of a part of the range.

        :param condition: condition of the part
        :param ordered: the columns that it is ordered by
        """
        source = self._from(condition)
        order = ", ".join(c.sql for c in ordered)
        sql = f"SELECT {', '.join(self._selected)} {source.text} ORDER BY {order} FETCH FIRST {limit} ROWS ONLY FOR READ ONLY WITH CS"
        return connection.cursor(sql, *source.values)

    def key_of(self, row: tuple[Any, ...]) -> Key:
        """The key of a fetched row."""
        return [c.to_json(row[self.columns.index[c.name]]) for c in self.key]

    def last(self, connection: Connection) -> tuple[Any, ...] | None:
        """Key values of the last row of the range, as the driver gives them; ``None`` without a row."""
        source = self._from(compared(self.key, self.rows.after, ">") if self.rows.after is not None else Sql(""))
        shown, order = ", ".join(c.shown for c in self.key), ", ".join(f"{c.sql} DESC" for c in self.key)
        sql = f"SELECT {shown} {source.text} ORDER BY {order} FETCH FIRST 1 ROWS ONLY FOR READ ONLY WITH CS"
        found = connection.rows(sql, *source.values)
        return found[0] if found else None

    def condition_check(self) -> str:
        """A statement in which the condition has no parentheses around it, so that it cannot close one that it did not open."""
        some = f"(SELECT * FROM {quoted(self.rows.table.id)} FETCH FIRST 1 ROWS ONLY)"  # so that a rare condition does not scan the whole table
        return f"SELECT 1 FROM {some} {self._alias} WHERE {self.rows.condition}\n"

    def _from(self, condition: Sql) -> Sql:
        rows, parts = self.rows, [condition]
        if rows.upto is not None:
            parts.append(compared(self.key, rows.upto, "<="))
        if rows.first is not None:
            parts.append(compared(self.key[: len(rows.first)], rows.first, ">="))
        if rows.end is not None:
            parts.append(compared(self.key[: len(rows.end)], rows.end, "<="))
        if rows.keys is not None:
            parts.append(among(self.key, rows.keys))
        if rows.condition is not None:
            parts.append(Sql(f"(\n{rows.condition}\n)"))
        where = both(parts)
        text = f"FROM {quoted(rows.table.id)} {self._alias}" + (f" WHERE {where.text}" if where.text else "")
        return Sql(text, where.values)
