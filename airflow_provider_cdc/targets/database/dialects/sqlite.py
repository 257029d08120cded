"""SQLite."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import pyarrow as pa
import sqlalchemy as sa

from airflow_provider_cdc.targets.database.dialects import sql_literals
from airflow_provider_cdc.targets.database.dialects.target_dialect import (
    ExistingColumn,
    ExistingTable,
    TargetDialect,
    fields_of,
)
from airflow_provider_cdc.targets.database.schema.target_table import (
    DatabaseColumn,
    DatabaseTargetTable,
    TargetTableName,
)
from airflow_provider_cdc.targets.database.schema.value_kinds import ValueKind, kind_of

_TYPES = {
    "bool": "BOOLEAN", "int8": "SMALLINT", "int16": "SMALLINT", "int32": "INTEGER", "int64": "BIGINT", "year": "INTEGER", "float": "REAL",
    "double": "DOUBLE", "bytes": "BLOB", "geometry": "BLOB", "date": "DATE", "timestamp": "DATETIME", "timestamp_tz": "DATETIME", "time": "TIME",
    "duration": "BIGINT",
}  # fmt: skip


class Sqlite(TargetDialect):
    """SQLite. Decimals are texts, as it would make floating-point numbers of them."""

    name: ClassVar[str] = "sqlite"
    DEFER: ClassVar[tuple[str, ...]] = ("PRAGMA defer_foreign_keys = ON",)
    LONGEST: ClassVar[int] = 1000
    MOMENTS: ClassVar[bool] = False
    CHANGES: ClassVar[bool] = False
    DDL_IN_TRANSACTION: ClassVar[bool] = True
    STEADY: ClassVar[str | None] = None

    def type_of(self, kind: ValueKind, *, key: bool) -> str:
        return _TYPES.get(kind.name, "TEXT")

    def length_of(self, name: str) -> int:
        return len(name)

    def same_table(self, name: str) -> str:
        return "".join(letter.lower() if letter.isascii() else letter for letter in name)

    def same_column(self, name: str) -> str:
        return self.same_table(name)

    def find_table(self, connection: sa.Connection, name: TargetTableName) -> ExistingTable | None:
        # SQLAlchemy finds tables in letters of any case, and their columns by their own name only
        query = f"SELECT name FROM {self.quote_name(name.schema or 'main')}.sqlite_master WHERE name = ? COLLATE NOCASE"
        actual_name = connection.exec_driver_sql(query, (name.table,)).scalar()
        return super().find_table(
            connection, name if actual_name is None else TargetTableName(str(actual_name), name.schema)
        )

    def read_stamps(self, connection: sa.Connection, names: Sequence[TargetTableName]) -> dict[TargetTableName, str]:
        schemas = {name.schema or "main" for name in names}
        versions = {
            schema: str(connection.exec_driver_sql(f"PRAGMA {self.quote_name(schema)}.schema_version").scalar_one())
            for schema in schemas
        }
        return {name: versions[name.schema or "main"] for name in names}

    def is_transient(self, error: sa.exc.DBAPIError) -> bool:
        return "database is locked" in str(error.orig) or bool(error.connection_invalidated)

    def build_cast(self, text: str, type_: str) -> str:
        return text

    def session_table(self, name: str) -> TargetTableName:
        return TargetTableName(name, "temp")

    def insert(self, connection: sa.Connection, table: DatabaseTargetTable, rows: pa.Table) -> None:
        self._insert(connection, table, rows)

    def upsert(self, connection: sa.Connection, table: DatabaseTargetTable, rows: pa.Table, *, unique: bool) -> None:
        key = [field.name for field in table.key_columns]
        rest = [name for name in rows.column_names if name not in key]
        if unique:  # the table may have another key
            self.update(connection, table, rows)
            self._insert_absent(connection, table, rows, key)
            return
        sets = ", ".join(f"{self.quote_name(name)} = excluded.{self.quote_name(name)}" for name in rest)
        action = f"UPDATE SET {sets}" if rest else "NOTHING"
        self._insert(connection, table, rows, f" ON CONFLICT ({self.format_column_list(key)}) DO {action}")

    def _insert_absent(
        self, connection: sa.Connection, table: DatabaseTargetTable, rows: pa.Table, key: Sequence[str]
    ) -> None:
        numbers = {name: f"?{number}" for number, name in enumerate(rows.column_names, 1)}
        same = " AND ".join(f"{self.quote_name(name)} = {numbers[name]}" for name in key)
        full = self.format_table_name(table.name)
        statement = (
            f"INSERT INTO {full} ({self.format_column_list(numbers)}) SELECT {', '.join(numbers.values())} "
            f"WHERE NOT EXISTS (SELECT 1 FROM {full} WHERE {same})"
        )
        self._each(connection, statement, table, rows)

    def digits_added(self, table: DatabaseTargetTable, field: DatabaseColumn) -> str | None:
        kind, name = kind_of(field.column), self.quote_name(field.name)
        if kind.name not in ("decimal", "time") or not kind.scale or kind.scale < 0:
            return None
        pointed = f"CASE instr({name}, '.') WHEN 0 THEN {name} || '.' ELSE {name} END"
        zeros = f"substr('{'0' * kind.scale}', 1, instr({pointed}, '.') + {kind.scale} - length({pointed}))"
        return (
            f"UPDATE {self.format_table_name(table.name)} SET {name} = {pointed} || {zeros} "
            f"WHERE typeof({name}) = 'text' AND length({pointed}) < instr({pointed}, '.') + {kind.scale}"
        )

    def changes_key(self, connection: sa.Connection, table: DatabaseTargetTable) -> bool:
        statement = connection.exec_driver_sql(
            "SELECT sql FROM sqlite_schema WHERE name = ?", (table.name.table,)
        ).scalar()
        return not re.search(r"\b(CHECK|COLLATE|GENERATED|REFERENCES|UNIQUE)\b", str(statement), re.IGNORECASE)

    def key_change(self, connection: sa.Connection, table: DatabaseTargetTable, there: ExistingTable) -> list[str]:
        """Make a table again: there is no other way. Its indexes and triggers are made again, too."""
        name, keys = (
            TargetTableName(f"{table.name.table} cdc", table.name.schema),
            [field.name for field in table.key_columns],
        )
        fields = {field.name: field for field in table.fields}
        # columns that are to come are added before
        lacking = [
            ExistingColumn(n, self.build_column_type(fields[n]), nullable=True) for n in keys if n not in there.columns
        ]
        columns = [*there.columns.values(), *lacking]
        parts = [self._again(column, fields, keys) for column in columns]
        copied = self.format_column_list(column.name for column in columns)
        more = connection.exec_driver_sql(
            "SELECT sql FROM sqlite_schema WHERE tbl_name = ? AND type <> 'table' AND sql IS NOT NULL",
            (table.name.table,),
        )
        return [
            f"CREATE TABLE {self.format_table_name(name)} ({', '.join(parts)}, PRIMARY KEY ({self.format_column_list(keys)}))",
            f"INSERT INTO {self.format_table_name(name)} ({copied}) SELECT {copied} FROM {self.format_table_name(table.name)}",
            f"DROP TABLE {self.format_table_name(table.name)}",
            f"ALTER TABLE {self.format_table_name(name)} RENAME TO {self.quote_name(table.name.table)}",
            *(row[0] for row in more),
        ]

    def _again(self, column: ExistingColumn, fields: Mapping[str, DatabaseColumn], keys: Sequence[str]) -> str:
        default = "" if column.default is None else f" DEFAULT {column.default}"
        required = column.name in keys or (not column.nullable and column.name in fields)
        return f"{self.quote_name(column.name)} {column.type}{default}{' NOT NULL' if required else ''}"

    def _update(
        self,
        connection: sa.Connection,
        table: DatabaseTargetTable,
        rows: pa.Table,
        key: Mapping[str, str],
        rest: Sequence[str],
    ) -> None:
        sets = ", ".join(f"{self.quote_name(name)} = ?" for name in rest)
        where = " AND ".join(f"{self.quote_name(name)} = ?" for name in key)
        statement = f"UPDATE {self.format_table_name(table.name)} SET {sets} WHERE {where}"
        self._each(connection, statement, table, rows.select([*rest, *key.values()]))

    def delete(self, connection: sa.Connection, table: DatabaseTargetTable, keys: pa.Table) -> None:
        where = " AND ".join(f"{self.quote_name(name)} = ?" for name in keys.column_names)
        self._each(connection, f"DELETE FROM {self.format_table_name(table.name)} WHERE {where}", table, keys)

    def _insert(self, connection: sa.Connection, table: DatabaseTargetTable, rows: pa.Table, tail: str = "") -> None:
        places = ", ".join("?" * rows.num_columns)
        head = f"INSERT INTO {self.format_table_name(table.name)} ({self.format_column_list(rows.column_names)}) VALUES ({places})"
        self._each(connection, head + tail, table, rows)

    def _each(self, connection: sa.Connection, statement: str, table: DatabaseTargetTable, rows: pa.Table) -> None:
        columns = [
            _values(sql_literals.to_single_array(rows[f.name]), kind_of(f.column), self.zone)
            for f in fields_of(table, rows)
        ]
        if rows.num_rows:
            connection.exec_driver_sql(statement, list(zip(*columns, strict=True)))


def _values(values: pa.Array, kind: ValueKind, zone: str) -> list[Any]:
    """Values as the driver takes them."""
    match kind.name:
        case "geometry":
            values = sql_literals.encode_geometries(values)
        case "bits":
            values = sql_literals.format_bits(values, kind.length or 1)
        case "time":
            values = sql_literals.format_clock_times(values, min(kind.scale or 0, 6))
        case "timestamp" if not pa.types.is_string(values.type):
            values = sql_literals.format_timestamps(values)
        case "timestamp_tz":
            values = sql_literals.format_zoned_timestamps(values, zone)
        case "vector":
            values = sql_literals.format_lists(values, "[", "]")
        case "date" | "decimal" | "number":
            values = values.cast(pa.string())
    return list(values.to_pylist())
