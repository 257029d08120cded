"""SQL Server: rows are bound as arrays, if the driver can."""

from __future__ import annotations

import re
from collections.abc import Sequence
from decimal import Decimal
from typing import Any, ClassVar

import pyarrow as pa
import sqlalchemy as sa

from airflow_provider_cdc.targets.database.dialects import sql_literals
from airflow_provider_cdc.targets.database.dialects.key_collation_checks import (
    is_text,
    read_collations,
    refuse_merging,
    text_keys,
)
from airflow_provider_cdc.targets.database.dialects.merge_dialect import MergeDialect
from airflow_provider_cdc.targets.database.dialects.target_dialect import ExistingColumn
from airflow_provider_cdc.targets.database.schema.target_table import (
    DatabaseColumn,
    DatabaseTargetTable,
    TargetTableName,
)
from airflow_provider_cdc.targets.database.schema.value_kinds import ValueKind

_TYPES = {
    "bool": "bit", "int8": "smallint", "int16": "smallint", "int32": "int", "int64": "bigint", "float": "real", "double": "float(53)",
    "date": "date", "time_tz": "varchar(32)", "enum": "nvarchar(255)", "xml": "xml", "uuid": "varchar(36)", "year": "int",
    "duration": "bigint", "interval": "varchar(64)", "geometry": "varbinary(max)",
}  # fmt: skip
_EXACT = "Latin1_General_100_BIN2"
"""The collation in which no texts are equal, but those that differ in spaces at the end: there is none without that."""
_NUMBER_SCALE, _SECOND_DIGITS = 18, 7
_KEY_BYTES = 900
_BYTES, _CHARACTERS = 8000, 4000
_ROWS = 10_000
_SNAPSHOTS = "SELECT name, snapshot_isolation_state FROM sys.databases WHERE database_id = DB_ID()"
_NATIVE = re.compile(r"\((\d+)\) \(SQL")
_WORD = re.compile(r"\[(?:[^\]]|\]\])*\]|\?")


class SqlServer(MergeDialect):
    """SQL Server from 2016 on, through pyodbc, which binds arrays, or pymssql, which sends one row after the other."""

    name: ClassVar[str] = "mssql"
    HINT: ClassVar[str] = " WITH (HOLDLOCK) AS"
    END: ClassVar[str] = ";"
    LONGEST: ClassVar[int] = 128
    DDL_IN_TRANSACTION: ClassVar[bool] = True
    DIGITS: ClassVar[int] = 38
    EXACT_DIGITS: ClassVar[int] = _NUMBER_SCALE
    REFERENCES: ClassVar[str] = (
        "SELECT OBJECT_SCHEMA_NAME(parent_object_id), OBJECT_NAME(parent_object_id), OBJECT_SCHEMA_NAME(referenced_object_id), "
        "OBJECT_NAME(referenced_object_id), SCHEMA_NAME() FROM sys.foreign_keys WHERE is_disabled = 0"
    )
    TRANSIENT: ClassVar[frozenset[str]] = frozenset(
        {
            "1205", "1222", "3960", "4221", "6005", "10053", "10054", "10060", "10928", "10929", "20003", "20004", "20006", "20047", "40197", "40501",
            "40613", "49918", "49919", "49920", "40001", "08S01", "08001",
        }
    )  # fmt: skip
    """Numbers of the server and of pymssql, and SQLSTATEs of pyodbc."""

    def __init__(self, zone: str = "UTC") -> None:
        super().__init__(zone)
        self._ignores_case = True

    def detect_features(self, connection: sa.Connection) -> None:
        collation = connection.exec_driver_sql(
            "SELECT CONVERT(nvarchar(128), DATABASEPROPERTYEX(DB_NAME(), 'Collation'))"
        )
        self._ignores_case = "_CI_" in str(collation.scalar_one()).upper()

    def length_of(self, name: str) -> int:
        return len(name.encode("utf-16-le")) // 2

    def same_table(self, name: str) -> str:
        return name.lower() if self._ignores_case else name

    def same_column(self, name: str) -> str:
        return self.same_table(name)

    def quote_name(self, name: str) -> str:
        return "[" + name.replace("]", "]]") + "]"

    def type_of(self, kind: ValueKind, *, key: bool) -> str:
        match kind.name:
            case "number":
                return f"decimal({self.DIGITS}, {_NUMBER_SCALE})"
            case "decimal":
                digits = self.fit_decimal_digits(kind)
                return f"decimal({digits[0]}, {digits[1]})" if digits else self.type_of(self.as_text(kind), key=key)
            case "time" | "timestamp" | "timestamp_tz":
                name = {"time": "time", "timestamp": "datetime2", "timestamp_tz": "datetimeoffset"}[kind.name]
                return f"{name}({min(6 if kind.scale is None else kind.scale, _SECOND_DIGITS)})"
            case "bits":
                size = ((kind.length or 1) + 7) // 8
                return f"varbinary({size if size <= _BYTES else 'max'})"
            case "bytes":
                if key:
                    return f"varbinary({min(kind.length or _KEY_BYTES, _KEY_BYTES)})"
                return (
                    f"varbinary({kind.length if kind.source_type and kind.length and kind.length <= _BYTES else 'max'})"
                )
            case "text" | "set" | "json" | "ltree" | "vector":
                if key:
                    return f"nvarchar({min(kind.length or _KEY_BYTES, _KEY_BYTES // 2)})"
                # characters are UTF-16 here: some take two
                length = (kind.length or 0) * 2 if kind.source_type else 0
                return f"nvarchar({length if 0 < length <= _CHARACTERS else 'max'})"
            case _:
                return _TYPES[kind.name]

    def build_column_type(self, field: DatabaseColumn) -> str:
        return super().build_column_type(field) + self.build_collation(field)

    def build_collation(self, field: DatabaseColumn) -> str:
        return f" COLLATE {_EXACT}" if field.key and is_text(super().build_column_type(field)) else ""

    def refuse_merging(self, connection: sa.Connection, table: DatabaseTargetTable, rebuild: str) -> None:
        if not (keys := text_keys(table)):
            return
        there = read_collations(connection, table.name, default="SCHEMA_NAME()", type_="DATA_TYPE")
        merging = [
            (field.name, str(there[field.name][0]), f"{self.build_column_type(field)} NOT NULL")
            for field in keys
            if field.name in there and not str(there[field.name][0]).endswith(("_BIN", "_BIN2"))
        ]
        refuse_merging(self, table, merging, rebuild=rebuild, equal="case or accents", alter="ALTER COLUMN {column}")

    def build_add_columns(self, table: DatabaseTargetTable, fields: Sequence[DatabaseColumn]) -> list[str]:
        return [
            f"ALTER TABLE {self.format_table_name(table.name)} ADD {', '.join(map(self.build_column_definition, fields))}"
        ]

    def not_null(self, field: DatabaseColumn) -> str:
        return f"ALTER COLUMN {self.quote_name(field.name)} {self.build_column_type(field)} NOT NULL"

    def build_change_column(
        self, table: DatabaseTargetTable, there: ExistingColumn, type_: str, *, nullable: bool
    ) -> str:
        # properties that the statement omits are lost: the collation becomes the database's, and NOT NULL goes
        collation = re.search(r" COLLATE \S+", there.type)
        kept_collation = collation[0] if collation and "char" in type_ and collation[0] not in type_ else ""
        null = "NULL" if nullable else "NOT NULL"
        return f"ALTER TABLE {self.format_table_name(table.name)} ALTER COLUMN {self.quote_name(there.name)} {type_}{kept_collation} {null}"

    def build_rename_column(self, table: DatabaseTargetTable, old: str, new: str) -> str:
        place, name = (
            text.replace("'", "''") for text in (f"{self.format_table_name(table.name)}.{self.quote_name(old)}", new)
        )
        return f"EXEC sp_rename N'{place}', N'{name}', 'COLUMN'"

    def can_hold_exactly(self, number: Decimal) -> bool:
        _, digits, exponent = number.as_tuple()
        zeros = len(digits) - len("".join(map(str, digits)).rstrip("0"))
        return not isinstance(exponent, int) or exponent + zeros >= -_NUMBER_SCALE

    def build_default(self, kind: ValueKind, text: str) -> str | None:
        default = super().build_default(kind, text)
        return f"N{default}" if default is not None and default.startswith("'") else default

    def format_boolean(self, value: bool) -> str:
        return str(int(value))

    # -- comparisons --------------------------------------------------------------------------------------------------

    STEADY: ClassVar[str | None] = "SNAPSHOT"

    def not_comparable(self, connection: sa.Connection, rebuild: str) -> tuple[str, str] | None:
        name, state = connection.exec_driver_sql(_SNAPSHOTS).one()
        if state == 1:
            return None
        return (
            f"the database {name} does not allow snapshot isolation, which verification needs to avoid blocking writers",
            f"run ALTER DATABASE {self.quote_name(name)} SET ALLOW_SNAPSHOT_ISOLATION ON",
        )

    def session_table(self, name: str) -> TargetTableName:
        return TargetTableName(f"#{name}")

    def make_session_table(self, name: TargetTableName, columns: str, table: str) -> str:
        # of a query with UNION, a column that counts by itself becomes a plain one
        empty = f"FROM {table} WHERE 1 = 0"
        return f"SELECT {columns} INTO {self.format_table_name(name)} {empty} UNION ALL SELECT {columns} {empty}"

    def build_exact_column(self, column: str, type_: str) -> str:
        # the drivers cut off digits beyond microseconds, and some know no offsets
        match type_.partition("(")[0].upper():
            case "DATETIME2" | "TIME":
                return f"CONVERT(varchar(27), {column}, 121)"
            case "DATETIMEOFFSET":
                return f"CONVERT(varchar(34), SWITCHOFFSET({column}, '+00:00'), 121)"
            case _:
                return column

    # -- rows ---------------------------------------------------------------------------------------------------------

    def execute_each_row(
        self, connection: sa.Connection, statement: str, table: DatabaseTargetTable, rows: pa.Table
    ) -> None:
        columns = [self.to_driver_values(values, kind) for values, kind in self.bind_columns(table, rows)]
        driver_rows = list(zip(*columns, strict=True))
        text = statement if connection.dialect.paramstyle == "qmark" else convert_placeholders(statement)
        for at in range(0, len(driver_rows), _ROWS):
            connection.exec_driver_sql(text, driver_rows[at : at + _ROWS])

    def to_driver_values(self, values: pa.Array, kind: ValueKind) -> list[Any]:
        """Values as the drivers take them: times as texts, which keep all digits."""
        match kind.name:
            case "geometry":
                values = sql_literals.encode_geometries(values)
            case "decimal" if self.fit_decimal_digits(kind) is None:
                values = sql_literals.format_decimals(values)
            case "time":
                values = sql_literals.format_clock_times(values, min(kind.scale or 0, 6))
            case "timestamp" if not pa.types.is_string(values.type):
                values = sql_literals.format_timestamps(values, digits=_SECOND_DIGITS)
            case "timestamp_tz":
                values = sql_literals.surround_texts(sql_literals.format_zoned_timestamps(values, "UTC"), "", " +00:00")
            case "vector":
                values = sql_literals.format_lists(values, "[", "]")
            case "date":
                values = values.cast(pa.string())
        return list(values.to_pylist())

    def extract_error_code(self, error: sa.exc.DBAPIError) -> str:
        match = _NATIVE.search(str(error.orig))
        return match[1] if match else super().extract_error_code(error)


def convert_placeholders(statement: str) -> str:
    """Format a statement with ``%s`` for question marks, as pymssql reads it.

    >>> convert_placeholders("UPDATE [a?b] SET [100%] = ?")
    'UPDATE [a?b] SET [100%%] = %s'
    """
    return _WORD.sub(lambda match: "%s" if match[0] == "?" else match[0], statement.replace("%", "%%"))
