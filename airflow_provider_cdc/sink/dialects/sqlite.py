"""SQLite."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import pyarrow as pa
import sqlalchemy as sa

from airflow_provider_cdc.sink import texts
from airflow_provider_cdc.sink.dialects.base import Dialect, There, fields_of
from airflow_provider_cdc.sink.kinds import Kind, kind_of
from airflow_provider_cdc.sink.tables import Name, SinkTable

_TYPES = {
    "bool": "BOOLEAN", "int8": "SMALLINT", "int16": "SMALLINT", "int32": "INTEGER", "int64": "BIGINT", "year": "INTEGER", "float": "REAL",
    "double": "DOUBLE", "bytes": "BLOB", "geometry": "BLOB", "date": "DATE", "timestamp": "DATETIME", "timestamp_tz": "DATETIME", "time": "TIME",
    "duration": "BIGINT",
}  # fmt: skip


class Sqlite(Dialect):
    """SQLite. Decimals are texts, as it would make floating-point numbers of them."""

    name: ClassVar[str] = "sqlite"
    DEFER: ClassVar[tuple[str, ...]] = ("PRAGMA defer_foreign_keys = ON",)
    LONGEST: ClassVar[int] = 1000
    CHANGES: ClassVar[bool] = False
    DDL_IN_TRANSACTION: ClassVar[bool] = True
    STEADY: ClassVar[str | None] = None

    def type_of(self, kind: Kind, *, key: bool) -> str:
        return _TYPES.get(kind.name, "TEXT")

    def length_of(self, name: str) -> int:
        return len(name)

    def same_table(self, name: str) -> str:
        return "".join(letter.lower() if letter.isascii() else letter for letter in name)

    def same_column(self, name: str) -> str:
        return self.same_table(name)

    def there(self, connection: sa.Connection, name: Name) -> There | None:
        # SQLAlchemy finds tables in letters of any case, and their columns by their own name only
        asked = f"SELECT name FROM {self.quote(name.schema or 'main')}.sqlite_master WHERE name = ? COLLATE NOCASE"
        found = connection.exec_driver_sql(asked, (name.table,)).scalar()
        return super().there(connection, name if found is None else Name(str(found), name.schema))

    def transient(self, error: sa.exc.DBAPIError) -> bool:
        return "database is locked" in str(error.orig) or bool(error.connection_invalidated)

    def cast(self, text: str, type_: str) -> str:
        return text

    def session_table(self, name: str) -> Name:
        return Name(name, "temp")

    def insert(self, connection: sa.Connection, table: SinkTable, rows: pa.Table) -> None:
        self._insert(connection, table, rows)

    def upsert(self, connection: sa.Connection, table: SinkTable, rows: pa.Table, *, unique: bool) -> None:
        key = [field.name for field in table.key]
        rest = [name for name in rows.column_names if name not in key]
        sets = ", ".join(f"{self.quote(name)} = excluded.{self.quote(name)}" for name in rest)
        what = f"UPDATE SET {sets}" if rest else "NOTHING"
        self._insert(connection, table, rows, f" ON CONFLICT ({self.listed(key)}) DO {what}")

    def _update(
        self, connection: sa.Connection, table: SinkTable, rows: pa.Table, key: Mapping[str, str], rest: Sequence[str]
    ) -> None:
        sets = ", ".join(f"{self.quote(name)} = ?" for name in rest)
        where = " AND ".join(f"{self.quote(name)} = ?" for name in key)
        statement = f"UPDATE {self.full(table.name)} SET {sets} WHERE {where}"
        self._each(connection, statement, table, rows.select([*rest, *key.values()]))

    def delete(self, connection: sa.Connection, table: SinkTable, keys: pa.Table) -> None:
        where = " AND ".join(f"{self.quote(name)} = ?" for name in keys.column_names)
        self._each(connection, f"DELETE FROM {self.full(table.name)} WHERE {where}", table, keys)

    def _insert(self, connection: sa.Connection, table: SinkTable, rows: pa.Table, tail: str = "") -> None:
        places = ", ".join("?" * rows.num_columns)
        head = f"INSERT INTO {self.full(table.name)} ({self.listed(rows.column_names)}) VALUES ({places})"
        self._each(connection, head + tail, table, rows)

    def _each(self, connection: sa.Connection, statement: str, table: SinkTable, rows: pa.Table) -> None:
        columns = [_values(texts.whole(rows[f.name]), kind_of(f.column), self.zone) for f in fields_of(table, rows)]
        if rows.num_rows:
            connection.exec_driver_sql(statement, list(zip(*columns, strict=True)))


def _values(values: pa.Array, kind: Kind, zone: str) -> list[Any]:
    """Values as the driver takes them."""
    match kind.name:
        case "geometry":
            values = texts.geometries(values)
        case "bits":
            values = texts.bits(values, kind.length or 1)
        case "time":
            values = texts.clock(values, min(kind.scale or 0, 6))
        case "timestamp" if not pa.types.is_string(values.type):
            values = texts.moments(values)
        case "timestamp_tz":
            values = texts.zoned(values, zone)
        case "vector":
            values = texts.lists(values, "[", "]")
        case "date" | "decimal" | "number":
            values = values.cast(pa.string())
    return list(values.to_pylist())
