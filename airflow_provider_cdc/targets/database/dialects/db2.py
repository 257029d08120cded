"""Db2: rows are bound as arrays."""

from __future__ import annotations

import re
from typing import Any, ClassVar, cast

import pyarrow as pa
import pyarrow.compute as pc
import sqlalchemy as sa

from airflow_provider_cdc.targets.database.dialects import sql_literals
from airflow_provider_cdc.targets.database.dialects.merge_dialect import MergeDialect, sets_of
from airflow_provider_cdc.targets.database.dialects.target_dialect import ExistingColumn, ExistingTable, execute_sql
from airflow_provider_cdc.targets.database.schema.target_table import (
    DatabaseColumn,
    DatabaseTargetTable,
    TargetTableName,
)
from airflow_provider_cdc.targets.database.schema.value_kinds import ValueKind

_TYPES = {
    "bool": "BOOLEAN", "int8": "SMALLINT", "int16": "SMALLINT", "int32": "INTEGER", "int64": "BIGINT", "float": "REAL", "double": "DOUBLE",
    "date": "DATE", "time_tz": "VARCHAR(32)", "enum": "VARCHAR(255 CODEUNITS32)", "uuid": "VARCHAR(36)", "year": "INTEGER",
    "duration": "BIGINT", "interval": "VARCHAR(64)", "geometry": "BLOB(1G)",
}  # fmt: skip
_KEY_BYTES = 512
_BYTES, _CHARACTERS = 32_672, 8168
_ROWS = 10_000
_SESSION_TABLE = "ON COMMIT PRESERVE ROWS NOT LOGGED WITH REPLACE"
_NO_TABLE_SPACE = "42727"
_DRIVER_DIGITS = 6
"""Of seconds."""
_STATE = re.compile(r"SQLSTATE=(\w{5})")
_NUMBER = re.compile(r"\bSQL(\d{4,5})N\b")
_LOST = frozenset({"30081", "30108", "1224"})
_COLUMNS = 'SELECT COLNAME, TYPENAME, "NULLS", LENGTH, SCALE, TYPESTRINGUNITS, STRINGUNITSLENGTH, "DEFAULT" FROM SYSCAT.COLUMNS WHERE TABSCHEMA = ? AND TABNAME = ? ORDER BY COLNO'
_INDEXES = (
    "SELECT I.INDNAME, I.UNIQUERULE, U.COLNAME FROM SYSCAT.INDEXES I JOIN SYSCAT.INDEXCOLUSE U ON U.INDSCHEMA = I.INDSCHEMA AND U.INDNAME = I.INDNAME "
    "WHERE I.TABSCHEMA = ? AND I.TABNAME = ? AND I.UNIQUERULE IN ('P', 'U') ORDER BY I.INDNAME, U.COLSEQ"
)


class Db2(MergeDialect):
    """Db2 for Linux, Unix and Windows, from 11.1 on, through ibm_db."""

    name: ClassVar[str] = "db2"
    LONGEST: ClassVar[int] = 128
    MOMENTS: ClassVar[bool] = False
    DDL_IN_TRANSACTION: ClassVar[bool] = True
    LATE_NOT_NULL: ClassVar[bool] = False
    DIGITS: ClassVar[int] = 31
    EXACT_DIGITS: ClassVar[int] = 34
    REFERENCES: ClassVar[str] = (
        "SELECT R.TABSCHEMA, R.TABNAME, R.REFTABSCHEMA, R.REFTABNAME, CURRENT SCHEMA FROM SYSCAT.REFERENCES R JOIN SYSCAT.TABCONST C "
        "ON C.TABSCHEMA = R.TABSCHEMA AND C.TABNAME = R.TABNAME AND C.CONSTNAME = R.CONSTNAME WHERE C.ENFORCED = 'Y'"
    )
    TRANSIENT: ClassVar[frozenset[str]] = frozenset({"40001", "57033", "08001", "08003", "08006", "40003", "57019"})

    def fold_name(self, name: str) -> str:
        return name.upper()

    def type_of(self, kind: ValueKind, *, key: bool) -> str:
        match kind.name:
            case "number":
                return "DECFLOAT"
            case "decimal":
                digits = self.fit_decimal_digits(kind)
                return f"DECIMAL({digits[0]}, {digits[1]})" if digits else self.type_of(self.as_text(kind), key=key)
            case "time" if not kind.scale:
                return "TIME"
            case "time" | "timestamp" | "timestamp_tz":
                return f"TIMESTAMP({min(6 if kind.scale is None else kind.scale, 12)})"
            case "bits":
                size = ((kind.length or 1) + 7) // 8
                return f"VARBINARY({size})" if size <= _BYTES else "BLOB(1G)"
            case "bytes" if key:
                return f"VARBINARY({min(kind.length or _KEY_BYTES, _KEY_BYTES)})"
            case "bytes":
                return (
                    f"VARBINARY({kind.length})"
                    if kind.source_type and kind.length and kind.length <= _BYTES
                    else "BLOB(1G)"
                )
            case "text" | "set" | "json" | "xml" | "ltree" | "vector":
                if key:
                    return f"VARCHAR({min((kind.length or _KEY_BYTES) * 4, _KEY_BYTES)})"
                short = kind.source_type and kind.length and kind.length <= _CHARACTERS
                return f"VARCHAR({kind.length} CODEUNITS32)" if short else "CLOB(1G)"
            case _:
                return _TYPES[kind.name]

    def find_table(self, connection: sa.Connection, name: TargetTableName) -> ExistingTable | None:
        schema = name.schema or connection.exec_driver_sql("VALUES CURRENT SCHEMA").scalar_one().strip()
        at = (schema, name.table)
        rows = connection.exec_driver_sql(_COLUMNS, at).all()
        if not rows:
            return None
        columns = {row[0]: ExistingColumn(row[0], _type(row[1], *row[3:7]), row[2] == "Y", row[7]) for row in rows}
        indexes = connection.exec_driver_sql(_INDEXES, at).all()
        key = tuple(row[2] for row in indexes if row[1] == "P")
        unique = sets_of((row[0], row[2]) for row in indexes)
        other_unique = any(set(names) != set(key) for names in unique)
        return ExistingTable(columns, key, other_unique, self_reference=True)  # it may: the catalog is not asked

    def build_change_column(
        self, table: DatabaseTargetTable, there: ExistingColumn, type_: str, *, nullable: bool
    ) -> str:
        changes = [f"SET DATA TYPE {type_}"] if type_ != there.type else []
        if nullable != there.nullable:
            changes.append(f"{'DROP' if nullable else 'SET'} NOT NULL")
        full, column = self.format_table_name(table.name), f"ALTER COLUMN {self.quote_name(there.name)}"
        statement = f"ALTER TABLE {full} {' '.join(f'{column} {change}' for change in changes)}"
        if nullable == there.nullable and there.type.startswith("VARCHAR(") and type_.startswith("VARCHAR("):
            return statement
        # after any other change no one writes into the table until it is reorganized, which takes as long as it is large
        reorganized = "CALL SYSPROC.ADMIN_CMD('REORG TABLE {}')".format(full.replace("'", "''"))
        raise self.by_hand(
            table, there, type_ if not nullable else f"{type_} with NULL allowed", [statement, reorganized]
        )

    def find_wider_type(self, there: ExistingColumn, field: DatabaseColumn) -> str | None:
        type_ = super().find_wider_type(there, field)
        if type_ is None or "LOB" in type_:
            return None  # a row that is too long for a column with a length is refused; the database makes no large object of it
        return type_ if "CHAR" not in type_ or "CHAR" in there.type else None

    # -- comparisons --------------------------------------------------------------------------------------------------

    STEADY: ClassVar[str | None] = "SERIALIZABLE"
    """There are no versions of rows: the apply waits while one of its tables is compared."""

    def not_comparable(self, connection: sa.Connection, rebuild: str) -> tuple[str, str] | None:
        name = self.session_table("cdc_look")
        try:
            execute_sql(
                connection,
                f"DECLARE GLOBAL TEMPORARY TABLE {self.format_table_name(name)} (A INTEGER) {_SESSION_TABLE}",
            )
            execute_sql(connection, self.drop_session_table(name))
        except sa.exc.DBAPIError as e:
            if self.extract_error_code(e) != _NO_TABLE_SPACE:
                raise
            return (
                "the user has no table space for temporary tables",
                'run CREATE USER TEMPORARY TABLESPACE "CDC_TEMPORARY"; GRANT USE OF TABLESPACE "CDC_TEMPORARY" TO PUBLIC',
            )
        return None

    def session_table(self, name: str) -> TargetTableName:
        return TargetTableName(name, "SESSION")

    def make_session_table(self, name: TargetTableName, columns: str, table: str) -> str:
        return f"DECLARE GLOBAL TEMPORARY TABLE {self.format_table_name(name)} AS (SELECT {columns} FROM {table}) WITH NO DATA {_SESSION_TABLE}"

    def build_exact_column(self, column: str, type_: str) -> str:
        digits = re.fullmatch(r"TIMESTAMP\((\d+)\)", type_)
        # the driver cuts off digits beyond microseconds
        return f"CAST({column} AS VARCHAR(32))" if digits and int(digits[1]) > _DRIVER_DIGITS else column

    # -- rows ---------------------------------------------------------------------------------------------------------

    def execute_each_row(
        self, connection: sa.Connection, statement: str, table: DatabaseTargetTable, rows: pa.Table
    ) -> None:
        columns = [self.to_driver_values(values, kind) for values, kind in self.bind_columns(table, rows)]
        driver_rows = list(zip(*columns, strict=True))
        for at in range(0, len(driver_rows), _ROWS):
            connection.exec_driver_sql(statement, driver_rows[at : at + _ROWS])

    def to_driver_values(self, values: pa.Array, kind: ValueKind) -> list[Any]:
        """Values as the driver takes them."""
        match kind.name:
            case "geometry":
                values = sql_literals.encode_geometries(values)
            case "time":
                clock = sql_literals.format_clock_times(values, min(kind.scale or 0, 6))
                values = sql_literals.surround_texts(clock, "1970-01-01 ") if kind.scale else clock
            case "timestamp" if pa.types.is_string(values.type):
                values = _digits(pc.replace_substring(values, "T", " "), kind)
            case "timestamp":
                values = _digits(sql_literals.format_timestamps(values, digits=9), kind)
            case "timestamp_tz":
                values = _digits(sql_literals.format_zoned_timestamps(values, self.zone), kind)
            case "vector":
                values = sql_literals.format_lists(values, "[", "]")
            case "decimal":
                values = sql_literals.format_decimals(values)
            case "date" | "number":
                values = values.cast(pa.string())
        return list(values.to_pylist())

    def extract_error_code(self, error: sa.exc.DBAPIError) -> str:
        match = _STATE.search(_message(error))
        return match[1] if match else ""

    def is_transient(self, error: sa.exc.DBAPIError) -> bool:
        number = _NUMBER.search(_message(error))
        return super().is_transient(error) or (number is not None and number[1] in _LOST)


def _message(error: sa.exc.DBAPIError) -> str:
    """Return the driver's text of an error.

    Where it forgets that a call has failed, as a commit on a lost connection, Python says so: its words are those of the cause.
    """
    texts, at = list[str](), cast("BaseException | None", error.orig)
    while at is not None:
        texts.append(str(at))
        at = at.__cause__ or at.__context__
    return "\n".join(texts)


def _type(name: str, length: int, scale: int, units: str | None, characters: int | None) -> str:
    """Format a type as it is written in DDL."""
    match name:
        case "DECIMAL":
            return f"DECIMAL({length}, {scale})"
        case "TIMESTAMP":
            return f"TIMESTAMP({scale})"
        case "VARCHAR" | "CHARACTER" if units == "CODEUNITS32":
            return f"{name}({characters} CODEUNITS32)"
        case "VARCHAR" | "CHARACTER" | "VARBINARY" | "BINARY":
            return f"{name}({length})"
        case _:
            return name


def _digits(moments: pa.Array, kind: ValueKind) -> pa.Array:
    """Moments with as many digits of a second as the column has: the driver refuses more."""
    scale = 6 if kind.scale is None else kind.scale
    return pc.utf8_slice_codeunits(moments, 0, len("2024-02-29 12:00:00") + (scale + 1 if scale else 0))
