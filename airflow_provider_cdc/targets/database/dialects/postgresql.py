"""PostgreSQL: rows come by COPY, into the table itself or into one of the session's own, from which one statement takes them."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import pyarrow as pa
import pyarrow.csv as pa_csv
import sqlalchemy as sa
from sqlalchemy.engine.reflection import ObjectKind

from airflow_provider_cdc.targets.database.dialects import postgresql_copy, sql_literals
from airflow_provider_cdc.targets.database.dialects.staging_dialect import StagingDialect, split_rows
from airflow_provider_cdc.targets.database.dialects.target_dialect import (
    ExistingColumn,
    ExistingTable,
    execute_sql,
    fields_of,
    in_key_order,
    refers_to,
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
_STAMPS = """
SELECT w.name, concat_ws(' ', c.oid, c.xmin, c.relfilenode,
    (SELECT string_agg(a.attnum || ':' || a.xmin::text, ',' ORDER BY a.attnum) FROM pg_attribute a WHERE a.attrelid = c.oid AND a.attnum > 0),
    (SELECT string_agg(i.indexrelid || ':' || i.xmin::text, ',' ORDER BY i.indexrelid) FROM pg_index i WHERE i.indrelid = c.oid),
    (SELECT string_agg(k.oid || ':' || k.xmin::text, ',' ORDER BY k.oid) FROM pg_constraint k WHERE k.conrelid = c.oid))
FROM unnest(CAST(%(names)s AS text[])) w(name) JOIN pg_class c ON c.oid = to_regclass(w.name)
"""
"""Rows of the catalog by the transactions that have written them: each change of a table writes one of these again."""
_TRUNCATES = """
SELECT c.relkind = 'r' AND NOT c.relhassubclass AND NOT c.relhasrules AND NOT c.relrowsecurity AND has_table_privilege(c.oid, 'TRUNCATE')
    AND NOT EXISTS (SELECT 1 FROM pg_trigger t WHERE t.tgrelid = c.oid AND NOT t.tgisinternal AND (t.tgtype & 40) <> 0)
    AND NOT EXISTS (SELECT 1 FROM pg_constraint k WHERE k.confrelid = c.oid AND k.contype = 'f')
    AND NOT EXISTS (SELECT 1 FROM pg_publication_tables p WHERE p.schemaname = n.nspname AND p.tablename = c.relname)
    AND pg_relation_size(c.oid) >= %(least_bytes)s
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE c.oid = to_regclass(%(name)s)
"""
"""Query that is true for tables on which TRUNCATE and DELETE have the same effect. 40 is the mask of triggers for deletes and truncates."""
_IN_USE = "55006"
"""Error of a TRUNCATE of a table with deferred checks of foreign keys for rows that the transaction has written."""
TRUNCATE_WAIT_MS = 5000
"""Milliseconds for which a TRUNCATE waits for readers; then rows are deleted beside them."""
_COLUMN_TYPES = (
    "SELECT w.name, a.attname, format_type(a.atttypid, -1) FROM unnest(CAST(%(names)s AS text[])) w(name) "
    "JOIN pg_attribute a ON a.attrelid = to_regclass(w.name) WHERE a.attnum > 0 AND NOT a.attisdropped"
)
_TYPES_FACT = "types"
_SMALL_ROWS, _SMALL_BYTES = 1000, 1 << 20
_PARAMETER = "\0"
"""Stands for a parameter in SQL, where no name has it."""
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

    def read_stamps(self, connection: sa.Connection, names: Sequence[TargetTableName]) -> dict[TargetTableName, str]:
        by_text = {self.format_table_name(name): name for name in names}
        rows = connection.exec_driver_sql(_STAMPS, {"names": list(by_text)}).all() if by_text else []
        return {by_text[text]: stamp for text, stamp in rows}

    def find_tables(
        self, connection: sa.Connection, names: Sequence[TargetTableName]
    ) -> dict[TargetTableName, ExistingTable]:
        by_schema: dict[str | None, list[str]] = {}
        for name in names:
            by_schema.setdefault(name.schema, []).append(name.table)
        found = dict[TargetTableName, ExistingTable]()
        for schema, some in by_schema.items():
            inspector = sa.inspect(connection)
            at: dict[str, Any] = {"schema": schema, "filter_names": some, "kind": ObjectKind.ANY}
            with warnings.catch_warnings():
                warnings.filterwarnings("ignore", "Did not recognize type")  # it is empty here
                columns = inspector.get_multi_columns(**at)
            keys, constraints = inspector.get_multi_pk_constraint(**at), inspector.get_multi_unique_constraints(**at)
            indexes, references = inspector.get_multi_indexes(**at), inspector.get_multi_foreign_keys(**at)
            for which, described in columns.items():
                name = TargetTableName(which[1], schema)
                no_key: dict[str, list[str]] = {"constrained_columns": []}
                there = self.build_existing_table(
                    connection, described, keys.get(which, no_key), constraints.get(which, ()), indexes.get(which, ())
                )
                found[name] = replace(there, self_reference=refers_to(name, references.get(which, ())))
        for name, types in self._read_column_types(connection, list(found)).items():
            self.structures.keep(name, _TYPES_FACT, types)
        return found

    def insert(self, connection: sa.Connection, table: DatabaseTargetTable, rows: pa.Table) -> None:
        if not (_is_small(rows) or any(_is_geometry(field) for field in fields_of(table, rows))):
            self._copy(connection, self.format_table_name(table.name), table, rows)
            return
        columns, stage = self.format_column_list(rows.column_names), self._staged(connection, table, rows)
        stage.execute(
            connection,
            f"INSERT INTO {self.format_table_name(table.name)} ({columns}) SELECT {columns} FROM {stage.text} s",
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
        stage.execute(
            connection,
            f"UPDATE {self.format_table_name(table.name)} t SET {sets} FROM {stage.text} s WHERE {self._same(key)}",
        )

    def delete(self, connection: sa.Connection, table: DatabaseTargetTable, keys: pa.Table) -> None:
        self._delete_from(connection, table, self._staged(connection, table, keys))

    def empty_table(self, connection: sa.Connection, table: DatabaseTargetTable, *, least_bytes: int = 0) -> None:
        """Truncate the table, which leaves no dead rows, where that does what a DELETE does and readers let it begin soon."""
        full = self.format_table_name(table.name)
        if connection.exec_driver_sql(_TRUNCATES, {"name": full, "least_bytes": least_bytes}).scalar():
            savepoint = connection.begin_nested()
            try:
                execute_sql(connection, f"SET LOCAL lock_timeout = '{TRUNCATE_WAIT_MS}ms'")
                execute_sql(connection, f"TRUNCATE TABLE ONLY {full}")
            except sa.exc.DBAPIError as e:
                if not self.is_lock_timeout(e) and self.extract_error_code(e) != _IN_USE:
                    raise
                savepoint.rollback()
            else:
                savepoint.commit()
                self.limit_waiting(connection)
                return
        self.delete_all_rows(connection, table)

    def hold_rows(self, connection: sa.Connection, table: DatabaseTargetTable) -> None:
        # a table that is truncated later is empty in earlier snapshots, too
        execute_sql(connection, f"LOCK TABLE {self.format_table_name(table.name)} IN ACCESS SHARE MODE")

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
        self._write_from(connection, table, _Stage(self.quote_name(name)), columns, unique=unique)

    def delete_staged(self, connection: sa.Connection, table: DatabaseTargetTable, name: str) -> None:
        self._delete_from(connection, table, _Stage(self.quote_name(name)))

    def drop_staging_table(self, connection: sa.Connection, name: str) -> None:
        execute_sql(connection, "SET LOCAL lock_timeout = '5s'")
        execute_sql(connection, f"DROP TABLE IF EXISTS {self.quote_name(name)}")

    def _write_from(
        self,
        connection: sa.Connection,
        table: DatabaseTargetTable,
        stage: _Stage,
        names: Sequence[str],
        *,
        unique: bool,
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
            stage.execute(
                connection,
                f"{into} SELECT {listed} FROM {stage.text} s ON CONFLICT ({self.format_column_list(key)}) DO {instead}",
            )
            return
        same = self._same({name: name for name in key})
        if rest:
            sets = ", ".join(f"{self.quote_name(name)} = s.{self.quote_name(name)}" for name in rest)
            stage.execute(
                connection, f"UPDATE {self.format_table_name(table.name)} t SET {sets} FROM {stage.text} s WHERE {same}"
            )
        absent = f"NOT EXISTS (SELECT 1 FROM {self.format_table_name(table.name)} t WHERE {same})"
        stage.execute(connection, f"{into} SELECT {listed} FROM {stage.text} s WHERE {absent}")

    def _delete_from(self, connection: sa.Connection, table: DatabaseTargetTable, stage: _Stage) -> None:
        where = self._same({field.name: field.name for field in table.key_columns})
        stage.execute(
            connection, f"DELETE FROM {self.format_table_name(table.name)} t USING {stage.text} s WHERE {where}"
        )

    def session_table(self, name: str) -> TargetTableName:
        return TargetTableName(name, "pg_temp")

    def empty_session_table(self, name: TargetTableName, statement: str) -> list[str]:
        return [f"TRUNCATE {self.format_table_name(name)}"]

    def build_exact_column(self, column: str, type_: str) -> str:
        return (
            column if type_ == "BYTEA" else f"{column}::text"
        )  # Python has no infinite times, nor those before Christ

    def build_inequality(self, column: str, other: str, type_: str) -> str | None:
        by_bytes = "" if type_ == "BYTEA" else ' COLLATE "C"'
        sides = (f"({self.build_exact_column(side, type_)}){by_bytes}" for side in (column, other))
        return " IS DISTINCT FROM ".join(sides)

    def _same(self, key: Mapping[str, str]) -> str:
        return " AND ".join(f"t.{self.quote_name(name)} = s.{self.quote_name(staged)}" for name, staged in key.items())

    def _staged(
        self, connection: sa.Connection, table: DatabaseTargetTable, rows: pa.Table, *, planned: bool = True
    ) -> _Stage:
        """Have rows in a form from which a statement takes them. Their columns have the types of the table's, by whatever statement that was made.

        Few rows are arrays of the statement itself: each table that is made and dropped would leave dozens of dead rows in the catalog. More rows are in a table
        of the session's own, until the next one is made or the transaction ends.

        :param planned: whether the server has several ways to join it, and needs to know how many rows and keys it has
        """
        if _is_small(rows):
            return self._unnested(connection, table, rows)
        columns = ", ".join(self._like(field, table) for field in fields_of(table, rows))
        execute_sql(connection, f"DROP TABLE IF EXISTS pg_temp.{_STAGE}")
        execute_sql(
            connection,
            f"CREATE TEMPORARY TABLE {_STAGE} ON COMMIT DROP AS SELECT {columns} FROM {self.format_table_name(table.name)} WITH NO DATA",
        )
        self._copy(connection, f"pg_temp.{_STAGE}", table, rows)
        if planned:
            execute_sql(connection, f"ANALYZE pg_temp.{_STAGE}")
        return _Stage(f"pg_temp.{_STAGE}")

    def _unnested(self, connection: sa.Connection, table: DatabaseTargetTable, rows: pa.Table) -> _Stage:
        types = self._column_types(connection, table.name)
        before = {PREVIOUS.format(at): key.name for at, key in enumerate(table.key_columns)}
        texts, names, columns = list[list[str | None]](), list[str](), list[str]()
        for at, field in enumerate(fields_of(table, rows)):
            values = as_text(sql_literals.to_single_array(rows[field.name]), kind_of(field.column))
            texts.append(values.cast(pa.string()).to_pylist())
            names.append(f"c{at}")
            type_ = "bytea" if _is_geometry(field) else types[before.get(field.name, field.name)]
            columns.append(f"CAST(c{at} AS {type_}) AS {self.quote_name(field.name)}")
        arrays = ", ".join([f"CAST({_PARAMETER} AS text[])"] * len(texts))
        text = f"(SELECT {', '.join(columns)} FROM unnest({arrays}) u({', '.join(names)}))"
        return _Stage(text, tuple(texts))

    def _column_types(self, connection: sa.Connection, name: TargetTableName) -> dict[str, str]:
        """Read the types of columns, in SQL and without lengths: a cast would cut values off, which are refused when they are assigned."""
        types: dict[str, str] | None = self.structures.find(name, _TYPES_FACT)
        if types is None:
            types = self._read_column_types(connection, [name])[name]
            self.structures.keep(name, _TYPES_FACT, types)
        return types

    def _read_column_types(
        self, connection: sa.Connection, names: Sequence[TargetTableName]
    ) -> dict[TargetTableName, dict[str, str]]:
        by_text = {self.format_table_name(name): name for name in names}
        types: dict[TargetTableName, dict[str, str]] = {name: {} for name in names}
        for text, column, type_ in connection.exec_driver_sql(_COLUMN_TYPES, {"names": list(by_text)}):
            types[by_text[text]][str(column)] = str(type_)
        return types

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


@dataclass(frozen=True, slots=True)
class _Stage:
    """Rows for a statement.

    :param text: the table or the query that has them, in SQL
    :param parameters: values for each :data:`_PARAMETER` in it
    """

    text: str
    parameters: tuple[Any, ...] = ()

    def execute(self, connection: sa.Connection, statement: str) -> None:
        """Run a statement that has the text once."""
        if not self.parameters:
            execute_sql(connection, statement)
            return
        connection.exec_driver_sql(statement.replace("%", "%%").replace(_PARAMETER, "%s"), self.parameters)


def _is_small(rows: pa.Table) -> bool:
    return bool(rows.num_rows <= _SMALL_ROWS and rows.nbytes <= _SMALL_BYTES)


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
