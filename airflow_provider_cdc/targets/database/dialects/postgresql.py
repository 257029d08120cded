"""PostgreSQL: rows come by COPY, into the table itself or into one of the session's own, from which one statement takes them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar

import pyarrow as pa
import pyarrow.csv as pa_csv
import sqlalchemy as sa

from airflow_provider_cdc.targets.database.dialects import postgresql_copy, sql_literals
from airflow_provider_cdc.targets.database.dialects.staging_dialect import StagingDialect, split_rows
from airflow_provider_cdc.targets.database.dialects.target_dialect import (
    ExistingColumn,
    ExistingTable,
    execute_sql,
    fields_of,
    in_key_order,
    wrap_driver_error,
)
from airflow_provider_cdc.targets.database.schema.target_table import (
    PREVIOUS,
    DatabaseColumn,
    DatabaseTargetTable,
    TargetTableName,
)
from airflow_provider_cdc.targets.database.schema.value_kinds import ValueKind, kind_of

_TYPES = {
    "bool": "boolean", "int8": "smallint", "int16": "smallint", "int32": "integer", "int64": "bigint", "float": "real",
    "double": "double precision", "number": "numeric", "text": "text", "bytes": "bytea", "date": "date", "time_tz": "time with time zone",
    "enum": "text", "set": "text", "json": "json", "xml": "xml", "uuid": "uuid", "ltree": "text", "year": "integer", "duration": "interval",
    "interval": "interval", "vector": "real[]", "geometry": "bytea",
}  # fmt: skip
_CSV = pa_csv.WriteOptions(include_header=False, quoting_style="needed")
_COPY_BYTES = 4 << 20
_DIGITS = 6
"""Of seconds."""
_STAGE = "cdc_stage"
_EXTENSIONS = {"postgis": "geometry", "ltree": "ltree"}
"""Extension → its type, which is also the kind of values that have it."""


class PostgreSql(StagingDialect):
    """PostgreSQL through psycopg. Geometries and label trees have the types of extensions, if the database has these."""

    name: ClassVar[str] = "postgresql"
    DEFER: ClassVar[tuple[str, ...]] = ("SET CONSTRAINTS ALL DEFERRED",)
    AT_ONCE: ClassVar[tuple[str, ...]] = ("SET CONSTRAINTS ALL IMMEDIATE",)
    LONGEST: ClassVar[int] = 63
    SYSTEM_COLUMNS: ClassVar[frozenset[str]] = frozenset({"tableoid", "xmin", "cmin", "xmax", "cmax", "ctid"})
    DDL_IN_TRANSACTION: ClassVar[bool] = True
    REFERENCES: ClassVar[str] = (
        "SELECT n.nspname, c.relname, m.nspname, p.relname, current_schema() FROM pg_constraint k JOIN pg_class c ON c.oid = k.conrelid "
        "JOIN pg_namespace n ON n.oid = c.relnamespace JOIN pg_class p ON p.oid = k.confrelid JOIN pg_namespace m ON m.oid = p.relnamespace "
        "WHERE k.contype = 'f'"
    )
    UNLESS_DEFERRED: ClassVar[str] = " AND NOT k.condeferrable"
    LOCKED: ClassVar[frozenset[str]] = frozenset({"55P03"})
    PATIENCE: ClassVar[str] = "SET LOCAL lock_timeout = '30s'"
    TRANSIENT: ClassVar[frozenset[str]] = frozenset({"40001", "40P01", "55P03", "57P01", "57P02", "57P03", "53300"})

    def __init__(self, zone: str = "UTC") -> None:
        super().__init__(zone)
        self._extended: dict[str, str] = {}

    def detect_features(self, connection: sa.Connection) -> None:
        extensions = connection.exec_driver_sql(
            "SELECT e.extname, n.nspname FROM pg_extension e JOIN pg_namespace n ON n.oid = e.extnamespace"
        )
        self._extended = {
            _EXTENSIONS[name]: f"{self.quote_name(schema)}.{_EXTENSIONS[name]}"
            for name, schema in extensions
            if name in _EXTENSIONS
        }

    def fold_name(self, name: str) -> str:
        return name.lower()

    def type_of(self, kind: ValueKind, *, key: bool) -> str:
        if kind.name in self._extended:
            return self._extended[kind.name]
        if kind.name == "text" and kind.source_type and kind.length:
            return f"varchar({kind.length})"
        if kind.name == "decimal":
            return f"numeric({kind.length}, {kind.scale})" if kind.length else "numeric"
        if kind.name == "bits":
            return f"bit({kind.length})"
        if kind.name in ("time", "timestamp", "timestamp_tz"):
            name = {"timestamp_tz": "timestamp({}) with time zone"}.get(kind.name, kind.name + "({})")
            return name.format(min(_DIGITS if kind.scale is None else kind.scale, _DIGITS))
        return _TYPES[kind.name]

    def build_change_column(
        self, table: DatabaseTargetTable, there: ExistingColumn, type_: str, *, nullable: bool
    ) -> str:
        column = f"ALTER COLUMN {self.quote_name(there.name)}"
        parts = [f"{column} TYPE {type_}"] if type_ != there.type else []
        if nullable != there.nullable:
            parts.append(f"{column} {'DROP' if nullable else 'SET'} NOT NULL")
        return f"ALTER TABLE {self.format_table_name(table.name)} {', '.join(parts)}"

    def key_change(self, connection: sa.Connection, table: DatabaseTargetTable, there: ExistingTable) -> list[str]:
        head = f"ALTER TABLE {self.format_table_name(table.name)} "
        return [
            head + ", ".join(statement.removeprefix(head) for statement in super().key_change(connection, table, there))
        ]

    def insert(self, connection: sa.Connection, table: DatabaseTargetTable, rows: pa.Table) -> None:
        if not any(_is_geometry(field) for field in fields_of(table, rows)):
            self._copy(connection, self.format_table_name(table.name), table, rows)
            return
        columns, stage = self.format_column_list(rows.column_names), self._staged(connection, table, rows)
        execute_sql(
            connection, f"INSERT INTO {self.format_table_name(table.name)} ({columns}) SELECT {columns} FROM {stage}"
        )

    def upsert(self, connection: sa.Connection, table: DatabaseTargetTable, rows: pa.Table, *, unique: bool) -> None:
        """Rows in the order of their keys need a third less of the server's work, and no statistics: there is one way to look for each."""
        rows = rows if unique else in_key_order(table, rows)
        stage = self._staged(connection, table, rows, planned=unique)
        self._write_from(connection, table, stage, rows.column_names, unique=unique)

    def _update(
        self,
        connection: sa.Connection,
        table: DatabaseTargetTable,
        rows: pa.Table,
        key: Mapping[str, str],
        rest: Sequence[str],
    ) -> None:
        sets = ", ".join(f"{self.quote_name(name)} = s.{self.quote_name(name)}" for name in rest)
        stage = self._staged(connection, table, rows)
        execute_sql(
            connection,
            f"UPDATE {self.format_table_name(table.name)} t SET {sets} FROM {stage} s WHERE {self._same(key)}",
        )

    def delete(self, connection: sa.Connection, table: DatabaseTargetTable, keys: pa.Table) -> None:
        self._delete_from(connection, table, self._staged(connection, table, keys))

    # -- from staging tables ------------------------------------------------------------------------------------------

    def create_staging_table(
        self, connection: sa.Connection, table: DatabaseTargetTable, name: str, rows: pa.Table
    ) -> None:
        self._make_stage(connection, table, rows, f"CREATE UNLOGGED TABLE {self.quote_name(name)}")
        for some in split_rows(rows):
            self._copy(connection, self.quote_name(name), table, some)
        execute_sql(connection, f"ANALYZE {self.quote_name(name)}")

    def stage_type(self, field: DatabaseColumn) -> str:
        # geometries come as bytes, of which the database makes whatever type its column has
        return "bytea" if _is_geometry(field) else super().stage_type(field)

    def write_staged(
        self, connection: sa.Connection, table: DatabaseTargetTable, name: str, columns: Sequence[str], *, unique: bool
    ) -> None:
        self._write_from(connection, table, self.quote_name(name), columns, unique=unique)

    def delete_staged(self, connection: sa.Connection, table: DatabaseTargetTable, name: str) -> None:
        self._delete_from(connection, table, self.quote_name(name))

    def drop_staging_table(self, connection: sa.Connection, name: str) -> None:
        execute_sql(connection, "SET LOCAL lock_timeout = '5s'")
        execute_sql(connection, f"DROP TABLE IF EXISTS {self.quote_name(name)}")

    def _write_from(
        self, connection: sa.Connection, table: DatabaseTargetTable, stage: str, names: Sequence[str], *, unique: bool
    ) -> None:
        """
        :param unique: rows are found by the table's key, whatever is unique there
        """
        key = [field.name for field in table.key_columns]
        rest = [name for name in names if name not in key]
        into, listed = (
            f"INSERT INTO {self.format_table_name(table.name)} ({self.format_column_list(names)})",
            self.format_column_list(names),
        )
        if not unique:
            sets = ", ".join(f"{self.quote_name(name)} = EXCLUDED.{self.quote_name(name)}" for name in rest)
            instead = f"UPDATE SET {sets}" if rest else "NOTHING"
            execute_sql(
                connection,
                f"{into} SELECT {listed} FROM {stage} ON CONFLICT ({self.format_column_list(key)}) DO {instead}",
            )
            return
        same = self._same({name: name for name in key})
        if rest:
            sets = ", ".join(f"{self.quote_name(name)} = s.{self.quote_name(name)}" for name in rest)
            execute_sql(
                connection, f"UPDATE {self.format_table_name(table.name)} t SET {sets} FROM {stage} s WHERE {same}"
            )
        absent = f"NOT EXISTS (SELECT 1 FROM {self.format_table_name(table.name)} t WHERE {same})"
        execute_sql(connection, f"{into} SELECT {listed} FROM {stage} s WHERE {absent}")

    def _delete_from(self, connection: sa.Connection, table: DatabaseTargetTable, stage: str) -> None:
        where = self._same({field.name: field.name for field in table.key_columns})
        execute_sql(connection, f"DELETE FROM {self.format_table_name(table.name)} t USING {stage} s WHERE {where}")

    def session_table(self, name: str) -> TargetTableName:
        return TargetTableName(name, "pg_temp")

    def empty_session_table(self, name: TargetTableName, statement: str) -> list[str]:
        return [f"TRUNCATE {self.format_table_name(name)}"]

    def build_exact_column(self, column: str, type_: str) -> str:
        return (
            column if type_ == "BYTEA" else f"{column}::text"
        )  # Python has no infinite times, nor those before Christ

    def _same(self, key: Mapping[str, str]) -> str:
        return " AND ".join(f"t.{self.quote_name(name)} = s.{self.quote_name(staged)}" for name, staged in key.items())

    def _staged(
        self, connection: sa.Connection, table: DatabaseTargetTable, rows: pa.Table, *, planned: bool = True
    ) -> str:
        """Make a table of the session's own that has these rows, until the next one is made or the transaction ends.

        Its columns have the types of the table's, by whatever statement that was made.

        :param planned: whether the server has several ways to join it, and needs to know how many rows and keys it has
        """
        columns = ", ".join(self._like(field, table) for field in fields_of(table, rows))
        execute_sql(connection, f"DROP TABLE IF EXISTS pg_temp.{_STAGE}")
        execute_sql(
            connection,
            f"CREATE TEMPORARY TABLE {_STAGE} ON COMMIT DROP AS SELECT {columns} FROM {self.format_table_name(table.name)} WITH NO DATA",
        )
        self._copy(connection, f"pg_temp.{_STAGE}", table, rows)
        if planned:
            execute_sql(connection, f"ANALYZE pg_temp.{_STAGE}")
        return f"pg_temp.{_STAGE}"

    def _like(self, field: DatabaseColumn, table: DatabaseTargetTable) -> str:
        """Build a column of the stage. Geometries are bytes there, of which the database makes whatever type its column has."""
        if _is_geometry(field):
            return f"NULL::bytea AS {self.quote_name(field.name)}"
        before = {PREVIOUS.format(at): key.name for at, key in enumerate(table.key_columns)}
        return f"{self.quote_name(before.get(field.name, field.name))} AS {self.quote_name(field.name)}"

    def _copy(self, connection: sa.Connection, into: str, table: DatabaseTargetTable, rows: pa.Table) -> None:
        if not rows.num_rows:
            return
        fields = fields_of(table, rows)
        columns = [(sql_literals.to_single_array(rows[field.name]), kind_of(field.column)) for field in fields]
        driver: Any = connection.connection.driver_connection
        binary = None
        if driver.info.encoding == "utf-8":
            types = _types(connection, into)
            binary = postgresql_copy.encode_columns(
                [(v, k, types.get(f.name, 0)) for (v, k), f in zip(columns, fields, strict=True)]
            )
        form = "csv, ENCODING 'UTF8'" if binary is None else "binary"
        statement = (
            f"COPY {into} ({self.format_column_list(field.name for field in fields)}) FROM STDIN (FORMAT {form})"
        )
        pieces = _csv(columns) if binary is None else postgresql_copy.build_copy_blocks(binary, rows.num_rows)
        try:
            with driver.cursor() as cursor, cursor.copy(statement) as copy:
                for piece in pieces:
                    copy.write(piece)
        except connection.dialect.loaded_dbapi.Error as e:  # SQLAlchemy knows nothing of COPY
            raise wrap_driver_error(connection, statement, e) from e


def _types(connection: sa.Connection, into: str) -> dict[str, int]:
    """Read the columns of a table, and the numbers of their types."""
    rows = connection.execute(
        sa.text("SELECT attname, atttypid FROM pg_attribute WHERE attrelid = CAST(:name AS regclass) AND attnum > 0"),
        {"name": into},
    )
    return {str(name): int(type_) for name, type_ in rows}


def _csv(columns: Sequence[tuple[pa.Array, ValueKind]]) -> Iterator[Any]:
    """Rows as texts, in some pieces."""
    texts = pa.table([as_text(*column) for column in columns], names=[str(number) for number in range(len(columns))])
    step = max(1, texts.num_rows * _COPY_BYTES // max(texts.nbytes, 1))
    for at in range(0, texts.num_rows, step):
        text = pa.BufferOutputStream()
        pa_csv.write_csv(texts.slice(at, step), text, _CSV)
        yield text.getvalue()


def _is_geometry(field: DatabaseColumn) -> bool:
    return kind_of(field.column).name == "geometry"


def as_text(values: pa.Array, kind: ValueKind) -> pa.Array:
    """Format values as COPY reads them. Texts differ from NULL by their quotes."""
    match kind.name:
        case "bytes":
            return sql_literals.surround_texts(sql_literals.format_hexadecimal(values), "\\x")
        case "geometry":
            return sql_literals.surround_texts(
                sql_literals.format_hexadecimal(sql_literals.encode_geometries(values)), "\\x"
            )
        case "bits":
            return sql_literals.format_bits(values, kind.length or 1)
        case "time":
            return sql_literals.format_clock_times(values, min(kind.scale or 0, _DIGITS))
        case "timestamp" if not pa.types.is_string(values.type):
            return sql_literals.format_timestamps(values, digits=_DIGITS)
        case "timestamp_tz" if not pa.types.is_string(values.type):
            return sql_literals.surround_texts(sql_literals.format_timestamps(values, digits=_DIGITS), "", "+00")
        case "duration":
            return sql_literals.surround_texts(values.cast(pa.string()), "", " microseconds")
        case "vector":
            return sql_literals.format_lists(values, "{", "}")
        case "int8" | "int16" | "int32" | "int64" | "float" | "double" | "decimal":
            return values  # the writer makes their texts, and puts no quotes around them
        case _:
            return sql_literals.format_numbers(values)
