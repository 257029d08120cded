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
from airflow_provider_cdc.targets.database.dialects.target_dialect import ExistingColumn, TargetDialect, fields_of
from airflow_provider_cdc.targets.database.schema.target_table import DatabaseColumn, DatabaseTargetTable
from airflow_provider_cdc.targets.database.schema.value_kinds import ValueKind, kind_of

_SIGNS = 3
"""A sign, a point, and a zero before it."""


class MergeDialect(TargetDialect):
    """Shared SQL of Oracle, Db2 and SQL Server."""

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

    def fit_decimal_digits(self, kind: ValueKind) -> tuple[int, int] | None:
        """Return all digits of a decimal's column and those after the point, of which it has all that the source has.

        With fewer before the point than there, a larger value is refused by the database. ``None`` if none were left before it: then the column is a text.

        >>> from airflow_provider_cdc.targets.database.dialects.db2 import Db2
        >>> Db2().digits(ValueKind("decimal", 60, 10)), Db2().digits(ValueKind("decimal", 38, 38))
        ((31, 10), None)
        """
        length, scale = kind.length or self.DIGITS, kind.scale or 0
        if length <= self.DIGITS:
            return length, scale
        return (self.DIGITS, scale) if scale < self.DIGITS else None

    def as_text(self, kind: ValueKind) -> ValueKind:
        """Return the text kind of a decimal that has too many digits."""
        return ValueKind("text", (kind.length or self.DIGITS) + _SIGNS, source_type="DECIMAL")

    def bind_columns(self, table: DatabaseTargetTable, rows: pa.Table) -> Iterator[tuple[pa.Array, ValueKind]]:
        """Columns of rows, in one piece, and their kinds.

        :raises TargetError: a number has digits that the database would cut off without an error
        """
        for field in fields_of(table, rows):
            values, kind = sql_literals.to_single_array(rows[field.name]), kind_of(field.column)
            if kind.name == "number":
                self._refuse_longer(values, field)
            yield values, kind

    def _refuse_longer(self, values: pa.Array, field: DatabaseColumn) -> None:
        text = values.cast(pa.string())
        for value in pc.filter(text, pc.greater(pc.utf8_length(text), self.EXACT_DIGITS)).to_pylist():
            if value is not None and not self.can_hold_exactly(Decimal(value)):
                raise TargetError(
                    f"The column {field.name} cannot store all digits of a value: {value}.",
                    safe="The table was not changed.",
                    remedy="leave the column out with field.exclude.list, or capture the values as strings with decimal.handling.mode=string",
                )

    def can_hold_exactly(self, number: Decimal) -> bool:
        """Check whether a column of numbers whose digits are not declared has all digits of one."""
        return len("".join(map(str, number.as_tuple().digits)).strip("0")) <= self.EXACT_DIGITS

    # -- columns that are there ---------------------------------------------------------------------------------------

    def by_hand(
        self, table: DatabaseTargetTable, there: ExistingColumn, required_type: str, statements: Sequence[str]
    ) -> TargetError:
        """Build the error for a change that we do not make."""
        return TargetError(
            f"The source has changed the column {there.name}: in {table.name} its type is {there.type}, but must be {required_type}.",
            where=f"topic {table.topic}",
            safe="The table was not changed.",
            remedy=f"run {'; '.join(statements)}; then run the apply again",
        )

    # -- statements ---------------------------------------------------------------------------------------------------

    def build_insert(self, table: DatabaseTargetTable, fields: Sequence[DatabaseColumn]) -> str:
        """Build the statement that inserts a row."""
        marks = ", ".join(self.build_placeholder(number, field) for number, field in enumerate(fields, 1))
        return f"INSERT INTO {self.format_table_name(table.name)} ({self.format_column_list(f.name for f in fields)}) VALUES ({marks})"

    def build_merge(self, table: DatabaseTargetTable, fields: Sequence[DatabaseColumn]) -> str:
        """Build the statement that changes a row if its key is there, and inserts it if not.

        Without other columns than those of the key there is nothing to change.
        """
        names = [field.name for field in fields]
        key = {field.name for field in table.key_columns}
        same = " AND ".join(
            f"t.{self.quote_name(field.name)} = s.{self.quote_name(field.name)}" for field in table.key_columns
        )
        sets = ", ".join(f"{self.quote_name(name)} = s.{self.quote_name(name)}" for name in names if name not in key)
        matched = f" WHEN MATCHED THEN UPDATE SET {sets}" if sets else ""
        values = ", ".join(f"s.{self.quote_name(name)}" for name in names)
        return (
            f"MERGE INTO {self.format_table_name(table.name)}{self.HINT} t USING {self.build_merge_source(fields)} ON ({same}){matched} "
            f"WHEN NOT MATCHED THEN INSERT ({self.format_column_list(names)}) VALUES ({values}){self.END}"
        )

    def row_update(
        self, table: DatabaseTargetTable, key: Mapping[str, DatabaseColumn], rest: Sequence[DatabaseColumn]
    ) -> str:
        """Build the statement that changes the row of a key.

        :param key: column of the table → the field that has its value; the last ones of the row that is bound
        """
        sets = ", ".join(
            f"{self.quote_name(field.name)} = {self.build_placeholder(at, field)}" for at, field in enumerate(rest, 1)
        )
        return f"UPDATE {self.format_table_name(table.name)} SET {sets} WHERE {self._key_condition(key, len(rest))}"

    def build_delete(self, table: DatabaseTargetTable, keys: Sequence[DatabaseColumn]) -> str:
        """Build the statement that deletes the row of a key."""
        return f"DELETE FROM {self.format_table_name(table.name)} WHERE {self._key_condition({field.name: field for field in keys}, 0)}"

    def _key_condition(self, key: Mapping[str, DatabaseColumn], after: int) -> str:
        numbered = enumerate(key.items(), after + 1)
        return " AND ".join(
            f"{self.quote_name(name)} = {self.build_placeholder(at, field)}" for at, (name, field) in numbered
        )

    def build_placeholder(self, number: int, field: DatabaseColumn) -> str:
        """Format the placeholder where a value is bound."""
        return "?"

    def build_collation(self, field: DatabaseColumn) -> str:
        """Stands after a value of a column, so that it is compared as those of the table."""
        return ""

    def build_merge_source(self, fields: Sequence[DatabaseColumn]) -> str:
        """Build the table ``s`` of one row that is bound. Its values have types: the database cannot guess them here."""
        values = ", ".join(
            self.build_cast(self.build_placeholder(number, field), self.type_of(kind_of(field.column), key=field.key))
            + self.build_collation(field)
            for number, field in enumerate(fields, 1)
        )
        return f"(VALUES ({values})) AS s ({self.format_column_list(field.name for field in fields)})"

    # -- rows ---------------------------------------------------------------------------------------------------------

    @abc.abstractmethod
    def execute_each_row(
        self, connection: sa.Connection, statement: str, table: DatabaseTargetTable, rows: pa.Table
    ) -> None:
        """Run a statement for each of some rows, which may be none."""

    def insert(self, connection: sa.Connection, table: DatabaseTargetTable, rows: pa.Table) -> None:
        self.execute_each_row(connection, self.build_insert(table, fields_of(table, rows)), table, rows)

    def upsert(self, connection: sa.Connection, table: DatabaseTargetTable, rows: pa.Table, *, unique: bool) -> None:
        self.execute_each_row(connection, self.build_merge(table, fields_of(table, rows)), table, rows)

    def _update(
        self,
        connection: sa.Connection,
        table: DatabaseTargetTable,
        rows: pa.Table,
        key: Mapping[str, str],
        rest: Sequence[str],
    ) -> None:
        chosen = rows.select([*rest, *key.values()])
        fields = fields_of(table, chosen)
        key_fields = dict(zip(key, fields[len(rest) :], strict=True))
        self.execute_each_row(connection, self.row_update(table, key_fields, fields[: len(rest)]), table, chosen)

    def delete(self, connection: sa.Connection, table: DatabaseTargetTable, keys: pa.Table) -> None:
        self.execute_each_row(connection, self.build_delete(table, fields_of(table, keys)), table, keys)


def sets_of(rows: Iterable[tuple[str, str]]) -> set[tuple[str, ...]]:
    """Group pairs of index and column into the columns of each index."""
    by_index: dict[str, list[str]] = {}
    for index, column in rows:
        by_index.setdefault(index, []).append(column)
    return {tuple(columns) for columns in by_index.values()}
