"""Databases with MERGE: rows are bound as arrays to a statement that is prepared once."""

from __future__ import annotations

import abc
from collections.abc import Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from typing import ClassVar

import pyarrow as pa
import pyarrow.compute as pc
import sqlalchemy as sa

from airflow_provider_cdc.core.errors import TargetError
from airflow_provider_cdc.targets.database.dialects import sql_literals
from airflow_provider_cdc.targets.database.dialects.dialect import ColumnThere, Dialect, fields_of
from airflow_provider_cdc.targets.database.schema.target_table import Field, SinkTable
from airflow_provider_cdc.targets.database.schema.value_types import Kind, kind_of

_SIGNS = 3
"""A sign, a point, and a zero before it."""


class MergeDialect(Dialect):
    """What Oracle, Db2 and SQL Server have in common."""

    CHANGES_KEYS: ClassVar[bool] = False
    HINT: ClassVar[str] = ""
    """Stands after the name of the table that MERGE changes."""
    END: ClassVar[str] = ""
    """Ends MERGE."""
    DIGITS: ClassVar[int]
    """Of a decimal, at most."""
    EXACT_DIGITS: ClassVar[int]
    """Of a number whose digits are not declared: with so many its column has every one."""

    # -- types --------------------------------------------------------------------------------------------------------

    def digits(self, kind: Kind) -> tuple[int, int] | None:
        """All digits of a decimal's column and those after the point, of which it has all that the source has: with fewer before the point than there, a larger value
        is refused by the database. ``None`` if none were left before it: then the column is a text.

        >>> from airflow_provider_cdc.targets.database.dialects.db2 import Db2
        >>> Db2().digits(Kind("decimal", 60, 10)), Db2().digits(Kind("decimal", 38, 38))
        ((31, 10), None)
        """
        length, scale = kind.length or self.DIGITS, kind.scale or 0
        if length <= self.DIGITS:
            return length, scale
        return (self.DIGITS, scale) if scale < self.DIGITS else None

    def as_text(self, kind: Kind) -> Kind:
        """The text of a decimal that has too many digits."""
        return Kind("text", (kind.length or self.DIGITS) + _SIGNS, told="DECIMAL")

    def bound(self, table: SinkTable, rows: pa.Table) -> Iterator[tuple[pa.Array, Kind]]:
        """Columns of rows, in one piece, and their kinds.

        :raises TargetError: a number has digits that the database would cut off without an error
        """
        for field in fields_of(table, rows):
            values, kind = sql_literals.whole(rows[field.name]), kind_of(field.column)
            if kind.name == "number":
                self._refuse_longer(values, field)
            yield values, kind

    def _refuse_longer(self, values: pa.Array, field: Field) -> None:
        text = values.cast(pa.string())
        for value in pc.filter(text, pc.greater(pc.utf8_length(text), self.EXACT_DIGITS)).to_pylist():
            if value is not None and not self.exact(Decimal(value)):
                raise TargetError(
                    f"The column {field.name} has no room for all digits of a value: {value}.",
                    safe="The table was not changed.",
                    remedy="leave the column out with field.exclude.list, or have the source write other values with decimal.handling.mode=string",
                )

    def exact(self, number: Decimal) -> bool:
        """Whether a column of numbers whose digits are not declared has all digits of one."""
        return len("".join(map(str, number.as_tuple().digits)).strip("0")) <= self.EXACT_DIGITS

    # -- columns that are there ---------------------------------------------------------------------------------------

    def by_hand(self, table: SinkTable, there: ColumnThere, wanted: str, statements: Sequence[str]) -> TargetError:
        """The error for a change that we do not make."""
        return TargetError(
            f"The source has changed the column {there.name}: {table.name} has it as {there.type}, and it has to be {wanted}.",
            where=f"topic {table.topic}",
            safe="The table was not changed.",
            remedy=f"run {'; '.join(statements)}; then run the apply again",
        )

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
