"""Oracle: rows are bound as Arrow arrays, of which the driver makes no Python values."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from decimal import Decimal
from typing import Any, ClassVar

import pyarrow as pa
import pyarrow.compute as pc
import sqlalchemy as sa

from airflow_provider_cdc.targets.database.dialects import sql_literals
from airflow_provider_cdc.targets.database.dialects.merge_dialect import MergeDialect, sets_of
from airflow_provider_cdc.targets.database.dialects.target_dialect import (
    ExistingColumn,
    ExistingTable,
    fields_of,
    wrap_driver_error,
)
from airflow_provider_cdc.targets.database.schema.target_table import (
    DatabaseColumn,
    DatabaseTargetTable,
    TargetTableName,
)
from airflow_provider_cdc.targets.database.schema.value_kinds import ValueKind, kind_of

SESSION = (
    "ALTER SESSION SET NLS_DATE_FORMAT = 'YYYY-MM-DD HH24:MI:SS' NLS_TIMESTAMP_FORMAT = 'YYYY-MM-DD HH24:MI:SS.FF9' "
    "NLS_TIMESTAMP_TZ_FORMAT = 'YYYY-MM-DD HH24:MI:SS.FF9 TZH:TZM' NLS_NUMERIC_CHARACTERS = '.,' TIME_ZONE = '00:00'"
)
"""Of each connection: texts mean the same values whatever the database is set to, and moments are bound in UTC."""
_TYPES = {
    "bool": "NUMBER(1)", "int8": "NUMBER(3)", "int16": "NUMBER(5)", "int32": "NUMBER(10)", "int64": "NUMBER(19)", "float": "BINARY_FLOAT",
    "double": "BINARY_DOUBLE", "number": "NUMBER", "date": "DATE", "time": "INTERVAL DAY(3) TO SECOND(6)", "time_tz": "VARCHAR2(32 CHAR)",
    "enum": "VARCHAR2(255 CHAR)", "uuid": "VARCHAR2(36 CHAR)", "year": "NUMBER(5)", "duration": "NUMBER(19)", "interval": "VARCHAR2(64 CHAR)",
    "geometry": "BLOB",
}  # fmt: skip
_EMPTY_IS_NULL = frozenset(
    {"text", "bytes", "bits", "enum", "set", "json", "xml", "uuid", "ltree", "interval", "time_tz", "vector"}
)
_PAIRS = 20
"""Of digits, as a number is kept."""
_CHARACTERS = 1000
"""A longest text that fits into 4,000 bytes whatever its characters are."""
_KEY_BYTES, _RAW = 4000, 2000
_ROWS = 20_000
_PRIVATE_TABLES = (18,)
"""The version that brought them."""
_CODE = re.compile(r"(?:ORA|DPY)-\d+")
_COLUMNS = (
    "SELECT column_name, data_type, nullable, data_precision, data_scale, data_length, char_length, char_used FROM all_tab_columns "
    "WHERE owner = :owner AND table_name = :name ORDER BY column_id"
)
_KEY = (
    "SELECT k.column_name FROM all_constraints c JOIN all_cons_columns k ON k.owner = c.owner AND k.constraint_name = c.constraint_name "
    "WHERE c.owner = :owner AND c.table_name = :name AND c.constraint_type = 'P' ORDER BY k.position"
)
_UNIQUE = (
    "SELECT i.index_name, k.column_name FROM all_indexes i JOIN all_ind_columns k ON k.index_owner = i.owner AND k.index_name = i.index_name "
    "WHERE i.table_owner = :owner AND i.table_name = :name AND i.uniqueness = 'UNIQUE' ORDER BY i.index_name, k.column_position"
)


class Oracle(MergeDialect):
    """Oracle through oracledb, from 12.2 on. An empty text is NULL there: columns of texts may be NULL, even if the source's may not; in a key it is refused."""

    name: ClassVar[str] = "oracle"
    DEFER: ClassVar[tuple[str, ...]] = ("SET CONSTRAINTS ALL DEFERRED",)
    AT_ONCE: ClassVar[tuple[str, ...]] = ("SET CONSTRAINTS ALL IMMEDIATE",)
    LONGEST: ClassVar[int] = 128
    SYSTEM_COLUMNS: ClassVar[frozenset[str]] = frozenset({"ROWID"})
    """The one word that no column can have as its name, with quotes either."""
    DIGITS: ClassVar[int] = 38
    EXACT_DIGITS: ClassVar[int] = 38
    TRANSIENT: ClassVar[frozenset[str]] = frozenset(
        {
            "ORA-00054", "ORA-00060", "ORA-00018", "ORA-00020", "ORA-00028", "ORA-01012", "ORA-01033", "ORA-01034", "ORA-01089", "ORA-01090", "ORA-01092",
            "ORA-03113", "ORA-03114", "ORA-03135", "ORA-08177", "ORA-12153", "ORA-12514", "ORA-12528", "ORA-12537", "ORA-12541", "ORA-12547", "ORA-12570",
            "ORA-30006", "DPY-1001", "DPY-4011", "DPY-6005",
        }
    )  # fmt: skip

    def detect_features(self, connection: sa.Connection) -> None:
        # 30 where the parameter COMPATIBLE is that of a version before 12.2
        self.longest = min(self.LONGEST, connection.dialect.max_identifier_length)

    def fold_name(self, name: str) -> str:
        return name.upper()

    def type_of(self, kind: ValueKind, *, key: bool) -> str:
        match kind.name:
            case "decimal":
                digits = self.fit_decimal_digits(kind)
                return f"NUMBER({digits[0]},{digits[1]})" if digits else self.type_of(self.as_text(kind), key=key)
            case "timestamp" | "timestamp_tz":
                zoned = " WITH TIME ZONE" if kind.name == "timestamp_tz" else ""
                return f"TIMESTAMP({min(6 if kind.scale is None else kind.scale, 9)}){zoned}"
            case "bits":
                return f"RAW({((kind.length or 1) + 7) // 8})" if (kind.length or 1) <= _RAW * 8 else "BLOB"
            case "bytes" if key:
                return f"RAW({min(kind.length or _RAW, _RAW)})"
            case "bytes":
                return f"RAW({kind.length})" if kind.source_type and kind.length and kind.length <= _RAW else "BLOB"
            case "text" | "set" | "json" | "xml" | "ltree" | "vector":
                if key:
                    return f"VARCHAR2({min(kind.length or _KEY_BYTES, _KEY_BYTES)} CHAR)"
                short = kind.source_type and kind.length and kind.length <= _CHARACTERS
                return f"VARCHAR2({kind.length} CHAR)" if short else "CLOB"
            case _:
                return _TYPES[kind.name]

    def build_column_definition(self, field: DatabaseColumn) -> str:
        definition = super().build_column_definition(field)
        empty = not field.key and kind_of(field.column).name in _EMPTY_IS_NULL
        return definition.removesuffix(" NOT NULL") if empty else definition

    def build_add_columns(self, table: DatabaseTargetTable, fields: Sequence[DatabaseColumn]) -> list[str]:
        return [
            f"ALTER TABLE {self.format_table_name(table.name)} ADD ({', '.join(map(self.build_column_definition, fields))})"
        ]

    def not_null(self, field: DatabaseColumn) -> str:
        return f"MODIFY ({self.quote_name(field.name)} NOT NULL)"

    def build_change_column(
        self, table: DatabaseTargetTable, there: ExistingColumn, type_: str, *, nullable: bool
    ) -> str:
        column, full = self.quote_name(there.name), self.format_table_name(table.name)
        if (there.type, type_) == ("BINARY_FLOAT", "BINARY_DOUBLE"):
            new = self.quote_name(f"{there.name[: self.LONGEST - 1]}_")
            statements = [
                f"ALTER TABLE {full} ADD ({new} {type_})", f"UPDATE {full} SET {new} = {column}", f"ALTER TABLE {full} DROP COLUMN {column}",
                f"ALTER TABLE {full} RENAME COLUMN {new} TO {column}",
            ]  # fmt: skip
            raise self.by_hand(table, there, type_, statements)
        parts = [column, *([type_] if type_ != there.type else [])]
        if nullable != there.nullable:
            parts.append("NULL" if nullable else "NOT NULL")
        return f"ALTER TABLE {full} MODIFY ({' '.join(parts)})"

    def find_wider_type(self, there: ExistingColumn, field: DatabaseColumn) -> str | None:
        type_ = super().find_wider_type(there, field)
        # a row that is too long for a column with a length is refused; the database makes no large object of it
        return None if type_ in ("CLOB", "BLOB") else type_

    def can_hold_exactly(self, number: Decimal) -> bool:
        digits, exponent = "".join(map(str, number.as_tuple().digits)), number.as_tuple().exponent
        if not isinstance(exponent, int) or not digits.strip("0"):
            return True
        first, last = exponent + len(digits.lstrip("0")) - 1, exponent + len(digits) - len(digits.rstrip("0"))
        return first // 2 - last // 2 < _PAIRS

    def build_default(self, kind: ValueKind, text: str) -> str | None:
        default = super().build_default(kind, text)
        if default is None or kind.name not in ("date", "time", "timestamp"):
            return default
        # the meaning of a plain text would depend on the session that inserts
        return f"TO_DSINTERVAL('0 {text}')" if kind.name == "time" else f"{kind.name.upper()} {default}"

    def format_boolean(self, value: bool) -> str:
        return str(int(value))

    def build_cast(self, text: str, type_: str) -> str:
        return text if "LOB" in type_ or type_.startswith("INTERVAL") else super().build_cast(text, type_)

    def find_table(self, connection: sa.Connection, name: TargetTableName) -> ExistingTable | None:
        owner = (
            name.schema
            or connection.exec_driver_sql("SELECT SYS_CONTEXT('USERENV', 'CURRENT_SCHEMA') FROM dual").scalar_one()
        )

        def query_rows(query: str) -> Any:
            return connection.execute(sa.text(query), {"owner": owner, "name": name.table}).all()

        columns = {
            row[0]: ExistingColumn(row[0], _type(*row[1:2], *row[3:]), row[2] == "Y") for row in query_rows(_COLUMNS)
        }
        if not columns:
            return None
        key = tuple(row[0] for row in query_rows(_KEY))
        return ExistingTable(
            columns,
            key,
            any(set(names) != set(key) for names in sets_of((row[0], row[1]) for row in query_rows(_UNIQUE))),
            self_reference=True,  # it may: the catalog is not asked
        )

    # -- comparisons --------------------------------------------------------------------------------------------------

    STEADY: ClassVar[str | None] = "SERIALIZABLE"

    def not_comparable(self, connection: sa.Connection, rebuild: str) -> tuple[str, str] | None:
        version = tuple(connection.dialect.server_version_info or ())
        if version < _PRIVATE_TABLES:
            return (
                f"the version of this Oracle server is {'.'.join(map(str, version))}, but verification needs private temporary tables (version 18 or newer)",
                f"count the rows of the tables instead, and rebuild doubtful tables with `{rebuild}`",
            )
        return None

    def session_table(self, name: str) -> TargetTableName:
        return TargetTableName(f"ORA$PTT_{name.upper()}")

    def make_session_table(self, name: TargetTableName, columns: str, table: str) -> str:
        statement = f"CREATE PRIVATE TEMPORARY TABLE {self.format_table_name(name)} ON COMMIT PRESERVE DEFINITION"
        return f"{statement} AS SELECT {columns} FROM {table} WHERE 1 = 0"

    def build_exact_column(self, column: str, type_: str) -> str:
        # the driver makes floating-point numbers of some, cuts off nanoseconds, and has no times before Christ
        if type_.startswith(("NUMBER", "FLOAT")):
            return f"TO_CHAR({column}, 'TM9')"
        if type_ == "BINARY_FLOAT":  # SQLAlchemy makes integers and decimals of them
            return f"TO_BINARY_DOUBLE({column})"
        if type_.startswith("INTERVAL"):
            return f"TO_CHAR({column})"
        if type_ != "DATE" and not type_.startswith("TIMESTAMP"):
            return column
        digits = re.match(r"TIMESTAMP\((\d)\)", type_)
        form = "SYYYY-MM-DD HH24:MI:SS" + (f".FF{digits[1]}" if digits and digits[1] != "0" else "")
        if "ZONE" in type_:
            return f"LTRIM(TO_CHAR(SYS_EXTRACT_UTC({column}), '{form}\"+00:00\"'))"
        return f"LTRIM(TO_CHAR({column}, '{form}'))"

    # -- rows ---------------------------------------------------------------------------------------------------------

    def build_placeholder(self, number: int, field: DatabaseColumn) -> str:
        return f"TO_DSINTERVAL(:{number})" if kind_of(field.column).name == "time" else f":{number}"

    def build_merge_source(self, fields: Sequence[DatabaseColumn]) -> str:
        marks = ", ".join(
            f"{self.build_placeholder(at, field)} AS {self.quote_name(field.name)}"
            for at, field in enumerate(fields, 1)
        )
        return f"(SELECT {marks} FROM dual) s"

    def execute_each_row(
        self, connection: sa.Connection, statement: str, table: DatabaseTargetTable, rows: pa.Table
    ) -> None:
        fields = fields_of(table, rows)
        types = [self.type_of(kind_of(field.column), key=field.key) for field in fields]
        columns = [self.to_driver_values(values, kind) for values, kind in self.bind_columns(table, rows)]
        # names of columns mean nothing here: values are bound by their place
        bound_rows = pa.table(columns, names=[str(number) for number in range(1, len(fields) + 1)])
        driver: Any = connection.connection.driver_connection
        cursor = driver.cursor()
        try:
            with cursor:
                for part, large in _parts(bound_rows, types):
                    if large:
                        cursor.setinputsizes(*(large.get(at) for at in range(len(types))))
                        part = list(zip(*(column.to_pylist() for column in part.columns), strict=True))
                    cursor.executemany(statement, part)
        except connection.dialect.loaded_dbapi.Error as e:  # SQLAlchemy binds no arrays
            raise wrap_driver_error(connection, statement, e) from e

    def to_driver_values(self, values: pa.Array, kind: ValueKind) -> pa.Array:
        """Values as the driver takes them."""
        match kind.name:
            case "bool":
                return values.cast(pa.int8())
            case "geometry":
                return sql_literals.encode_geometries(values)
            case "decimal" if self.fit_decimal_digits(kind) is None:
                return sql_literals.format_decimals(values)
            case "time":
                return _interval(values)
            case "timestamp" if pa.types.is_string(values.type):
                return pc.replace_substring(values, "T", " ").cast(pa.timestamp("us"))
            case "timestamp_tz" if pa.types.is_string(values.type):
                return sql_literals.format_zoned_timestamps(values, "UTC").cast(pa.timestamp("us"))
            case "timestamp" if values.type.unit == "ns":  # the driver cuts them off
                return sql_literals.format_timestamps(values, digits=9)
            case "timestamp_tz" if values.type.unit == "ns":
                return sql_literals.surround_texts(sql_literals.format_timestamps(values, digits=9), "", " +00:00")
            case "vector":
                return sql_literals.format_lists(values, "[", "]")
            case _:
                return values

    def extract_error_code(self, error: sa.exc.DBAPIError) -> str:
        match = _CODE.search(str(error.orig))
        return match[0] if match else ""


def _type(name: str, digits: int | None, scale: int | None, length: int, characters: int, used: str | None) -> str:
    """Format a type as it is written in DDL."""
    match name:
        case "NUMBER" if digits is not None or scale is not None:
            return f"NUMBER({digits or Oracle.DIGITS},{scale or 0})"
        case "VARCHAR2" | "CHAR":
            return f"{name}({characters} CHAR)" if used == "C" else f"{name}({length} BYTE)"
        case "NVARCHAR2" | "NCHAR":
            return f"{name}({characters})"
        case "RAW":
            return f"RAW({length})"
        case _:
            return name


def _interval(micros: pa.Array) -> pa.Array:
    """Format times as ``0 12:00:00.000000``, which have a day and a sign before them."""
    size = pc.abs(micros)
    days = pc.divide(size, 86_400_000_000)
    rest = sql_literals.format_clock_times(pc.subtract(size, pc.multiply(days, 86_400_000_000)))
    text = pc.binary_join_element_wise(days.cast(pa.string()), rest, " ")
    return pc.if_else(pc.less(micros, 0), sql_literals.surround_texts(text, "-"), text)


def _parts(rows: pa.Table, types: Sequence[str]) -> Iterator[tuple[Any, dict[int, Any]]]:
    """Rows, some at a time; those apart that have a long value, which MERGE takes as a large object only, with the types that are bound so."""
    import oracledb

    large = {"CLOB": (oracledb.DB_TYPE_CLOB, _KEY_BYTES), "BLOB": (oracledb.DB_TYPE_BLOB, _RAW)}
    bound = {at: large[type_][0] for at, type_ in enumerate(types) if type_ in large}
    long = pa.repeat(pa.scalar(False), rows.num_rows)
    for at in list(bound):
        size = pc.fill_null(pc.binary_length(sql_literals.to_single_array(rows.column(at))), 0)
        long = pc.or_(long, pc.greater(size, large[types[at]][1]))
    if bound:  # of a value of Python, the driver would make a number, which may not be infinite, or a date without fractions of seconds
        exact = {"BINARY_FLOAT": oracledb.DB_TYPE_BINARY_FLOAT, "BINARY_DOUBLE": oracledb.DB_TYPE_BINARY_DOUBLE}
        bound |= {at: exact[type_] for at, type_ in enumerate(types) if type_ in exact}
        times = [at for at, field in enumerate(rows.schema) if pa.types.is_timestamp(field.type)]
        bound |= dict.fromkeys(times, oracledb.DB_TYPE_TIMESTAMP)
    for some, lobs in ((rows.filter(pc.invert(long)), {}), (rows.filter(long), bound)) if bound else ((rows, {}),):
        for at in range(0, some.num_rows, _ROWS):
            yield some.slice(at, _ROWS).combine_chunks(), lobs
