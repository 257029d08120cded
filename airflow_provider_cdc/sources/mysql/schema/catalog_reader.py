"""Table schemas from ``information_schema``: for discovery, snapshots, and questions that DDL leaves open."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from pymysql.connections import Connection

from airflow_provider_cdc.core.errors import PrerequisiteError
from airflow_provider_cdc.core.model.table_schema import Column, TableId, TableSchema
from airflow_provider_cdc.sources.mysql.config import MySqlConfig
from airflow_provider_cdc.sources.mysql.converters import apply_converters
from airflow_provider_cdc.sources.mysql.schema import ddl
from airflow_provider_cdc.sources.mysql.schema.column_types import BLOBS, SYSTEM_DATABASES, MySqlColumnType, make_column

MOST_NAMED = 1_000
"""More tables are not named one by one in a query: it reads all of them."""

_TABLES = """
SELECT t.table_schema, t.table_name, t.table_collation, t.table_rows, t.table_type, t.table_comment
FROM information_schema.tables t
WHERE t.table_type IN ('BASE TABLE', 'SYSTEM VERSIONED') AND {where}"""
_COLUMNS = """
SELECT c.table_schema, c.table_name, c.column_name, c.column_type, c.character_set_name, c.is_nullable, c.column_default, c.extra,
    c.column_comment
FROM information_schema.columns c
WHERE {where}
ORDER BY c.table_schema, c.table_name, c.ordinal_position"""
_ENGINES = """
SELECT t.table_schema, t.table_name, t.engine FROM information_schema.tables t WHERE {where}"""
_ROUTES = (
    "SELECT table_schema, table_name FROM information_schema.tables WHERE table_type <> 'VIEW' AND table_schema NOT IN ({})",
    "SELECT table_schema, table_name FROM information_schema.views WHERE table_schema NOT IN ({})",
    "SELECT routine_schema, routine_name FROM information_schema.routines WHERE routine_type = 'FUNCTION' AND routine_schema NOT IN ({})",
    "SELECT event_object_schema, event_object_table FROM information_schema.triggers WHERE event_object_schema NOT IN ({})",
)
_EXPRESSIONS = """
SELECT c.column_name, c.generation_expression FROM information_schema.columns c WHERE c.generation_expression <> '' AND {where}"""
_KEYS = """
SELECT s.table_schema, s.table_name, s.index_name, s.column_name, s.sub_part, s.nullable
FROM information_schema.statistics s
WHERE s.non_unique = 0 AND {where}
ORDER BY s.table_schema, s.table_name, s.index_name, s.seq_in_index"""


@dataclass(frozen=True)
class StoredObjects:
    """Objects through which a statement may change rows of tables that it does not name.

    :param tables: all base tables
    :param views: views
    :param functions: stored functions
    :param triggered: tables with triggers; ``None`` if the account may not see triggers
    """

    tables: frozenset[TableId]
    views: frozenset[TableId]
    functions: frozenset[TableId]
    triggered: frozenset[TableId] | None


class MySqlCatalog:
    """Reads table schemas over one connection."""

    def __init__(self, connection: Connection, config: MySqlConfig, *, mariadb: bool) -> None:
        self._connection, self._config, self._mariadb = connection, config, mariadb

    def read_tables(
        self, only: Iterable[TableId] | None = None, needed: Callable[[TableId], bool] = lambda table: True
    ) -> dict[TableId, TableSchema]:
        """Read the schemas of all tables except system tables, or of the given tables.

        :param needed: others are left out
        :raises PrerequisiteError: one that is needed cannot be captured
        """
        tables = None if only is None else list(only)
        if tables is not None and not tables:
            return {}
        where, arguments = self._where(tables)
        there = {
            (db, name): rest
            for db, name, *rest in self._query(_TABLES, where, arguments)
            if needed(TableId(namespace=db, name=name))
        }
        if not there:
            return {}
        if only is None and len(there) <= MOST_NAMED:
            where, arguments = self._where([TableId(namespace=db, name=name) for db, name in there])
        columns: dict[tuple[str, str], list[tuple[Any, ...]]] = defaultdict(list)
        for db, name, *rest in self._query(_COLUMNS, where, arguments):
            columns[db, name].append(tuple(rest))
        keys: dict[tuple[str, str], dict[str, list[tuple[Any, ...]]]] = defaultdict(lambda: defaultdict(list))
        for db, name, index, *rest in self._query(_KEYS, where, arguments):
            keys[db, name][index].append(tuple(rest))
        schemas = {}
        for (db, name), (collation, _, kind, comment) in there.items():
            table = TableId(namespace=db, name=name)
            if kind == "SYSTEM VERSIONED":
                raise system_versioned(table)
            table_columns = tuple(self._column(table, *row) for row in columns[db, name])
            key = row_key(_key_candidates(keys[db, name]), table_columns)
            schemas[table] = TableSchema(
                id=table, columns=table_columns, key=key, charset=_charset(collation), comment=self._comment(comment)
            )
        return schemas

    def read_table(self, table: TableId, *, any_case: bool = False) -> TableSchema | None:
        """Read the current schema of a table; ``None`` if it does not exist.

        :param any_case: the server may have its name in other letters (``lower_case_table_names=2``)
        """
        schemas = self.read_tables([table])
        return schemas.get(table) or (next(iter(schemas.values()), None) if any_case else None)

    def is_table(self, table: TableId) -> bool | None:
        """Check whether a name is that of a table: a view or a sequence is none; ``None`` if nothing has it."""
        sql = "SELECT table_type FROM information_schema.tables WHERE table_schema = %s AND table_name = %s"
        with self._connection.cursor() as cursor:
            cursor.execute(sql, (table.namespace, table.name))
            row = cursor.fetchone()
        return None if row is None else row[0] in ("BASE TABLE", "SYSTEM VERSIONED")

    def read_columns(self, table: TableId) -> tuple[Column, ...]:
        """Read the current columns of a table; empty if it does not exist, or if one cannot be captured."""
        where, arguments = self._where([table])
        try:
            return tuple(self._column(table, *row) for _, _, *row in self._query(_COLUMNS, where, arguments))
        except PrerequisiteError:
            return ()

    def read_expressions(self, table: TableId) -> dict[str, str]:
        """Return generated column → its expression, as the server spells it."""
        where, arguments = self._where([table])
        return {str(name): str(text) for name, text in self._query(_EXPRESSIONS, where, arguments)}

    def read_stored_objects(self) -> StoredObjects:
        """Read the views, functions and triggers of all databases but the server's own."""
        system = ", ".join(f"'{name}'" for name in sorted(SYSTEM_DATABASES))

        def names(query: str) -> frozenset[TableId]:
            with self._connection.cursor() as cursor:
                cursor.execute(query.format(system))
                return frozenset(TableId(namespace=str(db), name=str(name)) for db, name in cursor.fetchall())

        with self._connection.cursor() as cursor:
            cursor.execute("SHOW GRANTS")
            grants = [str(row[0]) for row in cursor.fetchall()]
        sees = any(re.search(r"\b(TRIGGER|ALL PRIVILEGES)\b.* ON \*\.\* TO", grant) for grant in grants)
        tables, views, functions, triggered = _ROUTES
        return StoredObjects(names(tables), names(views), names(functions), names(triggered) if sees else None)

    def read_engines(self, tables: Iterable[TableId]) -> dict[TableId, str]:
        """Read the storage engines of tables."""
        where, arguments = self._where(list(tables))
        rows = self._query(_ENGINES, where, arguments) if arguments else ()
        return {TableId(namespace=db, name=name): str(engine or "") for db, name, engine in rows}

    def estimate_row_counts(self, tables: Iterable[TableId]) -> dict[TableId, int]:
        """Read the server's estimates of the number of rows of tables."""
        where, arguments = self._where(list(tables))
        estimates = self._query(_TABLES, where, arguments) if arguments else []
        return {TableId(namespace=db, name=name): int(rows or 0) for db, name, _, rows, *_ in estimates}

    def run_query(self, sql: str) -> tuple[tuple[Any, ...], ...]:
        """Return the rows of a query."""
        with self._connection.cursor() as cursor:
            cursor.execute(sql)
            return tuple(cursor.fetchall())

    def create_statement(self, table: TableId) -> str:
        """``SHOW CREATE TABLE``."""
        return create_statement(self._connection, table)

    def database_charset(self, database: str) -> str | None:
        """Default character set of a database."""
        sql = "SELECT default_character_set_name FROM information_schema.schemata WHERE schema_name = %s"
        with self._connection.cursor() as cursor:
            cursor.execute(sql, (database,))
            row = cursor.fetchone()
        return str(row[0]) if row else None

    def read_charsets(self) -> dict[int, str]:
        """Collation number → character set."""
        source = (
            "SELECT id, character_set_name FROM information_schema.collation_character_set_applicability"
            if self._mariadb and self._has_collation_ids()
            else "SELECT id, character_set_name FROM information_schema.collations"
        )
        with self._connection.cursor() as cursor:
            cursor.execute(source)
            return {
                int(number): str(name) for number, name in cursor.fetchall() if number is not None and name is not None
            }

    def _has_collation_ids(self) -> bool:
        """MariaDB since 10.10 has collations that several character sets share; their numbers are in another table."""
        with self._connection.cursor() as cursor:
            return bool(
                cursor.execute(
                    "SELECT 1 FROM information_schema.columns WHERE table_schema = 'information_schema' "
                    "AND table_name = 'COLLATION_CHARACTER_SET_APPLICABILITY' AND column_name = 'ID'"
                )
            )

    # -- plumbing -----------------------------------------------------------------------------------------------------

    def _where(self, only: list[TableId] | None) -> tuple[str, list[str]]:
        """Condition on ``table_schema`` and ``table_name``."""
        if only is None:
            names = sorted(SYSTEM_DATABASES)
            return f"table_schema NOT IN ({', '.join(['%s'] * len(names))})", names
        tables: dict[str, list[str]] = defaultdict(list)
        for table in only:
            tables[table.namespace].append(table.name)
        each = [f"(table_schema = %s AND table_name IN ({', '.join(['%s'] * len(n))}))" for n in tables.values()]
        return f"({' OR '.join(each)})", [part for db, n in tables.items() for part in (db, *n)]

    def _query(self, sql: str, where: str, arguments: list[str]) -> tuple[tuple[Any, ...], ...]:
        with self._connection.cursor() as cursor:
            cursor.execute(sql.format(where=where), arguments)
            return tuple(cursor.fetchall())

    def _column(
        self,
        table: TableId,
        name: str,
        column_type: str,
        charset: str | None,
        nullable: str,
        default: str | None,
        extra: str,
        comment: str,
    ) -> Column:
        try:
            declared = ddl.parse_type(column_type, charset or "binary")
        except ValueError as e:
            raise _not_captured(table, name, column_type) from e
        value, is_expression = self._default(default, extra)
        if declared.type in BLOBS and value is not None and value.startswith("0x"):
            value, is_expression = _bytes_default(value)
        if declared.type == "binary" and value is not None:  # servers print the bytes that fill it up, too
            value = value.rstrip("\0")
        generated = "GENERATED" in extra.upper().replace("DEFAULT_GENERATED", "") or "AS ROW" in extra.upper()
        type_ = MySqlColumnType(
            declared.type,
            declared.length,
            declared.scale,
            declared.unsigned,
            charset,
            declared.values,
            declared.zerofill,
        )
        return captured_column(
            table, name, type_, self._config, nullable=nullable == "YES", default=value, default_is_expression=is_expression,
            auto_incremented="auto_increment" in extra.lower(), generated=generated, comment=self._comment(comment),
        )  # fmt: skip

    def _comment(self, text: str) -> str | None:
        return text or None if self._config.include_schema_comments else None

    def _default(self, text: str | None, extra: str) -> tuple[str | None, bool]:
        """Value of a default and whether it is an expression. MariaDB prints SQL, MySQL the value itself."""
        if text is None:
            return None, False
        if bits := re.fullmatch("b'([01]+)'", text):
            return bits[1], False
        if not self._mariadb:
            expression = "DEFAULT_GENERATED" in extra or text.upper().startswith("CURRENT_TIMESTAMP")
            return text, expression
        if text.upper() == "NULL":
            return None, False
        if text.startswith("'"):
            return ddl.string_value(text), False
        return text, re.fullmatch(r"-?\d+(\.\d+)?([eE][+-]?\d+)?", text) is None


def captured_column(table: TableId, name: str, type_: MySqlColumnType, config: MySqlConfig, **rest: Any) -> Column:
    """See :func:`~airflow_provider_cdc.sources.mysql.schema.column_types.make_column`.

    :raises PrerequisiteError: the type cannot be captured
    """
    column = make_column(name, type_, config, **rest)
    if column is None:
        raise _not_captured(table, name, type_.base)
    return apply_converters(column, f"{table}.{name}", config.converters)


def _not_captured(table: TableId, column: str, type_: str) -> PrerequisiteError:
    return PrerequisiteError(
        f"Column {column} of {table} has the type {type_}, which cannot be captured.",
        where=f"{table}.{column}",
        safe="No rows of this table were read.",
        remedy=f"exclude the table: table.exclude.list={table}",
    )


def system_versioned(table: TableId, where: str = "") -> PrerequisiteError:
    """Return the error for a table with MariaDB's system versioning.

    :param where: position of the statement that says so
    """
    return PrerequisiteError(
        f"Table {table} is system-versioned, which cannot be captured: the log contains its old rows among the "
        "current ones, and a DELETE as an update.",
        where=where or str(table),
        safe="No rows of this table were read while it was system-versioned; everything before that in the log "
        "is captured.",
        remedy=f"exclude the table: table.exclude.list={table}; or ALTER TABLE {quote_table(table)} DROP SYSTEM "
        "VERSIONING, which deletes its old rows",
    )


def row_key(candidates: list[tuple[bool, tuple[str, ...]]], columns: Iterable[Column]) -> tuple[str, ...]:
    """Return the key of a table: its primary key, else the shortest unique key without a nullable column.

    :param candidates: (is it the primary key, its columns); a list in any order gives the same key
    """
    number = {c.name: i for i, c in enumerate(columns)}
    nullable = {c.name for c in columns if c.nullable}
    for primary, names in candidates:
        if primary:
            return names
    usable = [names for _, names in candidates if not nullable & set(names) and set(names) <= set(number)]
    return min(usable, key=lambda names: (len(names), [number[n] for n in names]), default=())


def quote_table(table: TableId) -> str:
    """Return the table's name as SQL takes it."""
    return ".".join(quoted_name(part) for part in (table.namespace, table.name))


def create_statement(connection: Connection, table: TableId) -> str:
    """``SHOW CREATE TABLE``. MariaDB has defaults of bytes in it as they are, which need not be text."""
    use_unicode, connection.use_unicode = connection.use_unicode, False
    try:
        with connection.cursor() as cursor:
            cursor.execute(f"SHOW CREATE TABLE {quote_table(table)}")
            row = cursor.fetchone()
    finally:
        connection.use_unicode = use_unicode
    return str(row[1], "utf-8", "backslashreplace") if row else ""


def quoted_name(name: str) -> str:
    escaped = name.replace("`", "``")
    return f"`{escaped}`"


def _charset(collation: str | None) -> str | None:
    return collation.partition("_")[0] if collation else None


def _bytes_default(digits: str) -> tuple[str, bool]:
    """Convert a default of bytes, which MySQL prints as a number: as text if it is one, else as it stands.

    >>> _bytes_default("0x616200")
    ('ab', False)
    """
    data = bytes.fromhex(digits[2:]).rstrip(b"\0")
    return (data.decode("ascii"), False) if data.isascii() else (digits, True)


def _key_candidates(indexes: dict[str, list[tuple[Any, ...]]]) -> list[tuple[bool, tuple[str, ...]]]:
    """Primary and unique keys whose parts are whole columns."""
    candidates = []
    for name, parts in indexes.items():
        primary = name == "PRIMARY"
        if primary or all(column is not None and sub_part is None for column, sub_part, _ in parts):
            candidates.append((primary, tuple(str(column) for column, _, _ in parts)))
    return candidates
