"""Databases with MERGE: rows are bound as arrays to a statement that is prepared once."""

from __future__ import annotations

import abc
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, ClassVar

import sqlalchemy as sa

from airflow_provider_cdc.sink.dialects.base import Dialect, fields_of
from airflow_provider_cdc.sink.kinds import kind_of
from airflow_provider_cdc.sink.tables import Field, SinkTable

if TYPE_CHECKING:
    import pyarrow as pa


class MergeDialect(Dialect):
    """What Oracle, Db2 and SQL Server have in common."""

    HINT: ClassVar[str] = ""
    """Stands after the name of the table that MERGE changes."""
    END: ClassVar[str] = ""
    """Ends MERGE."""
    CHANGES: ClassVar[bool] = False

    # -- statements ---------------------------------------------------------------------------------------------------

    def insertion(self, table: SinkTable, fields: Sequence[Field]) -> str:
        """A row is inserted."""
        marks = ", ".join(self.mark(number, field) for number, field in enumerate(fields, 1))
        return f"INSERT INTO {self.full(table.name)} ({self.listed(f.name for f in fields)}) VALUES ({marks})"

    def merge(self, table: SinkTable, fields: Sequence[Field]) -> str:
        """A row is changed if its key is there, and inserted if not. Without other columns than those of the key there is nothing to change."""
        names = [field.name for field in fields]
        key = {field.name for field in table.key}
        same = " AND ".join(f"t.{self.quote(field.name)} = s.{self.quote(field.name)}" for field in table.key)
        sets = ", ".join(f"{self.quote(name)} = s.{self.quote(name)}" for name in names if name not in key)
        matched = f" WHEN MATCHED THEN UPDATE SET {sets}" if sets else ""
        values = ", ".join(f"s.{self.quote(name)}" for name in names)
        return (
            f"MERGE INTO {self.full(table.name)}{self.HINT} t USING {self.source(fields)} ON ({same}){matched} "
            f"WHEN NOT MATCHED THEN INSERT ({self.listed(names)}) VALUES ({values}){self.END}"
        )

    def row_update(self, table: SinkTable, key: Mapping[str, Field], rest: Sequence[Field]) -> str:
        """The row of a key is changed.

        :param key: column of the table → the field that has its value; the last ones of the row that is bound
        """
        sets = ", ".join(f"{self.quote(field.name)} = {self.mark(at, field)}" for at, field in enumerate(rest, 1))
        return f"UPDATE {self.full(table.name)} SET {sets} WHERE {self._found(key, len(rest))}"

    def deletion(self, table: SinkTable, keys: Sequence[Field]) -> str:
        """The row of a key is deleted."""
        return f"DELETE FROM {self.full(table.name)} WHERE {self._found({field.name: field for field in keys}, 0)}"

    def _found(self, key: Mapping[str, Field], after: int) -> str:
        found = enumerate(key.items(), after + 1)
        return " AND ".join(f"{self.quote(name)} = {self.mark(at, field)}" for at, (name, field) in found)

    def mark(self, number: int, field: Field) -> str:
        """Where a value is bound."""
        return "?"

    def collation(self, field: Field) -> str:
        """Stands after a value of a column, so that it is compared as those of the table."""
        return ""

    def source(self, fields: Sequence[Field]) -> str:
        """A row that is bound, as the table ``s``. Its values have types: the database cannot guess them here."""
        values = ", ".join(
            self.cast(self.mark(number, field), self.type_of(kind_of(field.column), key=field.key))
            + self.collation(field)
            for number, field in enumerate(fields, 1)
        )
        return f"(VALUES ({values})) AS s ({self.listed(field.name for field in fields)})"

    # -- rows ---------------------------------------------------------------------------------------------------------

    @abc.abstractmethod
    def each(self, connection: sa.Connection, statement: str, table: SinkTable, rows: pa.Table) -> None:
        """Run a statement for each of some rows, which may be none."""

    def insert(self, connection: sa.Connection, table: SinkTable, rows: pa.Table) -> None:
        self.each(connection, self.insertion(table, fields_of(table, rows)), table, rows)

    def upsert(self, connection: sa.Connection, table: SinkTable, rows: pa.Table, *, unique: bool) -> None:
        self.each(connection, self.merge(table, fields_of(table, rows)), table, rows)

    def _update(
        self, connection: sa.Connection, table: SinkTable, rows: pa.Table, key: Mapping[str, str], rest: Sequence[str]
    ) -> None:
        chosen = rows.select([*rest, *key.values()])
        fields = fields_of(table, chosen)
        found = dict(zip(key, fields[len(rest) :], strict=True))
        self.each(connection, self.row_update(table, found, fields[: len(rest)]), table, chosen)

    def delete(self, connection: sa.Connection, table: SinkTable, keys: pa.Table) -> None:
        self.each(connection, self.deletion(table, fields_of(table, keys)), table, keys)


def sets_of(rows: Iterable[tuple[str, str]]) -> set[tuple[str, ...]]:
    """The columns of each index, out of pairs of index and column."""
    found: dict[str, list[str]] = {}
    for index, column in rows:
        found.setdefault(index, []).append(column)
    return {tuple(columns) for columns in found.values()}
