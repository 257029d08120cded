"""MySQL and MariaDB: rows come in statements of many, whose text is made on arrays."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

import pyarrow as pa
import pyarrow.compute as pc
import sqlalchemy as sa

from airflow_provider_cdc.core.errors import TargetError
from airflow_provider_cdc.core.model.table_schema import Column
from airflow_provider_cdc.core.read_ahead import read_ahead
from airflow_provider_cdc.targets.database.dialects import sql_literals
from airflow_provider_cdc.targets.database.dialects.key_collation_checks import (
    is_text,
    read_collations,
    refuse_merging,
    text_keys,
)
from airflow_provider_cdc.targets.database.dialects.staging_dialect import StagingDialect, split_rows
from airflow_provider_cdc.targets.database.dialects.target_dialect import (
    ExistingColumn,
    ExistingTable,
    execute_sql,
    fields_of,
)
from airflow_provider_cdc.targets.database.schema import type_widening
from airflow_provider_cdc.targets.database.schema.target_table import (
    DatabaseColumn,
    DatabaseTargetTable,
    TargetTableName,
)
from airflow_provider_cdc.targets.database.schema.value_kinds import ValueKind, kind_of

_LONG = "longtext CHARACTER SET utf8mb4"
_TYPES = {
    "bool": "boolean", "int8": "tinyint", "int16": "smallint", "int32": "int", "int64": "bigint", "float": "float", "double": "double",
    "date": "date", "time_tz": "varchar(32)", "json": "json", "xml": _LONG, "uuid": "char(36)", "ltree": _LONG,
    "year": "year", "duration": "bigint", "interval": "varchar(64)", "geometry": "geometry", "vector": "longtext",
}  # fmt: skip
_QUOTED = frozenset(
    {"text", "enum", "set", "json", "xml", "uuid", "ltree", "interval", "time_tz", "date", "time", "timestamp", "timestamp_tz", "vector"}
)  # fmt: skip
_NUMBERS = frozenset({"TINYINT", "SMALLINT", "MEDIUMINT", "INT", "BIGINT"})
_STATEMENT = 1 << 20
"""Characters of a statement; a server takes 16 MB at least, unless it is configured otherwise."""
_MOST_DIGITS, _MOST_SCALE = 65, 30
_BITS, _SIGNS = 64, 3
_KEY_LENGTH, _VARCHAR = 255, 16_000
_ROW_BYTES = 60_000
"""Bytes that the columns of a row may have together, without those that are stored apart from it, as long texts are."""
_SESSION = "STRICT_ALL_TABLES,NO_AUTO_VALUE_ON_ZERO,NO_ENGINE_SUBSTITUTION"
"""Values that a column cannot have are errors, 0 is a value of any column, and a backslash has the meaning that our texts give it, whatever the server is set to."""
_KEY_BYTES, _OTHER_KEY = 3072, 16
"""Bytes that the columns of a key may have together, and about the most of one that is neither text nor bytes."""
_BYTES_EACH = {"text": 4, "bytes": 1}
_MADE = " ENGINE=InnoDB ROW_FORMAT=DYNAMIC"
"""Without it, the server's default may have no transactions, or shorter keys."""
_WITHOUT_TRANSACTIONS = frozenset(
    {"MYISAM", "ARIA", "MEMORY", "HEAP", "CSV", "ARCHIVE", "BLACKHOLE", "MRG_MYISAM", "FEDERATED"}
)
_TOO_WIDE, _NO_TABLE = "1118", "1146"
_STAGE = "cdc_stage"
_HAS_BYTES = re.compile(
    r"(TINY|SMALL|MEDIUM|BIG)?INT|DECIMAL|NUMERIC|FLOAT|DOUBLE|BIT|YEAR|DATE|TIME|(VAR)?(CHAR|BINARY)|(TINY|MEDIUM|LONG)?(TEXT|BLOB)|ENUM|SET\\b",
    re.IGNORECASE,
)
"""Types whose values are different if their bytes are, by a cast."""
_MOST_PACKET = 1 << 30


class MariaDb(StagingDialect):
    """MariaDB through PyMySQL."""

    name: ClassVar[str] = "mariadb"
    DEFER: ClassVar[tuple[str, ...]] = (
        "SET SESSION foreign_key_checks = 0",
        f"SET SESSION sql_mode = '{_SESSION}'",
    )
    AXES: ClassVar[str] = ""
    """Argument that says the order of coordinates, which the change log has as x and y."""
    LONGEST: ClassVar[int] = 64
    MOMENTS: ClassVar[bool] = False
    LOCKED: ClassVar[frozenset[str]] = frozenset({"1205"})
    PATIENCE: ClassVar[str] = "SET SESSION lock_wait_timeout = 30"
    TRANSIENT: ClassVar[frozenset[str]] = frozenset(
        {"1205", "1213", "1040", "1053", "1077", "2006", "2013", "1927", "4031"}
    )

    SYSTEM_COLUMNS: ClassVar[frozenset[str]] = frozenset({"db_row_id", "db_trx_id", "db_roll_ptr"})
    """Of InnoDB."""

    def __init__(self, zone: str = "UTC") -> None:
        super().__init__(zone)
        self._ignores_case, self._longest = False, 0

    def detect_features(self, connection: sa.Connection) -> None:
        self._ignores_case = connection.exec_driver_sql("SELECT @@lower_case_table_names").scalar_one() != 0

    def length_of(self, name: str) -> int:
        return len(name)

    def same_table(self, name: str) -> str:
        return name.lower() if self._ignores_case else name

    def same_column(self, name: str) -> str:
        return name.lower()

    @property
    def key_collation(self) -> str:
        """The collation of keys: texts are equal that have the same characters, in the same case and with the same spaces at the end."""
        return "utf8mb4_nopad_bin"

    def quote_name(self, name: str) -> str:
        return "`" + name.replace("`", "``") + "`"

    def type_of(self, kind: ValueKind, *, key: bool) -> str:
        match kind.name:
            case "int8" | "int16" | "int32" | "int64" if kind.source_type.partition(" ")[0] in _NUMBERS:
                base, _, rest = kind.source_type.lower().partition(" ")
                return f"{base}{f'({kind.length})' if kind.length else ''} {rest}".strip()
            case "decimal" | "number":
                return self._decimal(kind, key=key)
            case "bits":
                bits = kind.length or 1
                return f"bit({bits})" if bits <= _BITS else f"varbinary({(bits + 7) // 8})"
            case "text":
                return self._characters(self._length(kind, key=key), key=key)
            case "bytes":
                length = self._length(kind, key=key)
                return f"varbinary({length})" if length else "longblob"
            case "enum" | "set" if kind.members:
                return f"{kind.name}({', '.join(map(self._text, kind.members))}) CHARACTER SET utf8mb4 COLLATE {self.key_collation}"
            case "enum" | "set":
                return self._characters(_KEY_LENGTH if key else None, key=key)
            case "time" | "timestamp" | "timestamp_tz":
                digits = min(6 if kind.scale is None else kind.scale, 6)
                return f"{'time' if kind.name == 'time' else 'datetime'}({digits})"
            case _:
                return _TYPES[kind.name]

    def _decimal(self, kind: ValueKind, *, key: bool) -> str:
        """Return the type of a decimal; a text if it has more digits than a decimal has.

        Numbers whose digits are not declared have as many as there can be.
        """
        if kind.length is None:
            return f"decimal({_MOST_DIGITS}, {_MOST_SCALE})"
        if _too_fine(kind):
            return self._characters(kind.length + _SIGNS, key=key)
        return f"decimal({kind.length}, {kind.scale or 0})"

    def _length(self, kind: ValueKind, *, key: bool) -> int | None:
        """Characters or bytes of a column; ``None`` if it is to hold any."""
        if key:
            return min(kind.length or _KEY_LENGTH, _VARCHAR)
        return kind.length if kind.source_type and (kind.length or 0) <= _VARCHAR else None

    def _characters(self, length: int | None, *, key: bool) -> str:
        plain = f"varchar({length})" if length else "longtext"
        return f"{plain} CHARACTER SET utf8mb4{f' COLLATE {self.key_collation}' if key else ''}"

    def build_create_table(self, table: DatabaseTargetTable) -> str:
        return f"{super().build_create_table(self._fitting(table))}{_MADE}"

    def create_table(self, connection: sa.Connection, table: DatabaseTargetTable) -> None:
        """Make a table, also one whose longest rows a page has no room for.

        In that case, texts and bytes are kept apart from the row; and if that is too long as well, the server is to check each row.
        """
        try:
            execute_sql(connection, self.build_create_table(table))
        except sa.exc.DBAPIError as e:
            if self.extract_error_code(e) != _TOO_WIDE:
                raise
            self.alter_table(connection, f"{super().build_create_table(_apart(self._fitting(table)))}{_MADE}")

    def alter_table(self, connection: sa.Connection, statement: str) -> None:
        try:
            execute_sql(connection, statement)
        except sa.exc.DBAPIError as e:
            if self.extract_error_code(e) != _TOO_WIDE:
                raise
            self._unless_strict(connection, statement)

    def _unless_strict(self, connection: sa.Connection, statement: str) -> None:
        """Run DDL of a table of which only rows with long values are too long for a page.

        :raises TargetError: that takes a privilege
        """
        try:
            execute_sql(connection, "SET SESSION innodb_strict_mode = OFF")
        except sa.exc.DBAPIError as e:
            raise TargetError(
                f"A row with so many columns may be too long for a page of the server, and the account lacks the privilege to disable this check: {e.orig}",
                safe="The table was not changed; other tables continue.",
                remedy="run GRANT SESSION_VARIABLES_ADMIN ON *.* for the account; or ask an administrator to run SET SESSION innodb_strict_mode = OFF; "
                f"{statement}; then run the apply again. Or leave columns out with field.exclude.list",
            ) from e
        try:
            execute_sql(connection, statement)
        finally:
            execute_sql(connection, "SET SESSION innodb_strict_mode = DEFAULT")

    def extract_error_code(self, error: sa.exc.DBAPIError) -> str:
        # the server's number: the driver has the SQLSTATE, too, which is the same for most of them
        arguments: Any = getattr(error.orig, "args", ())
        return str(arguments[0]) if arguments else ""

    def column_name(self, name: str) -> str:
        # SQLAlchemy reads SHOW CREATE TABLE, and leaves names of columns as they are there
        return name.replace("``", "`")

    def engine_without_transactions(self, inspector: Any, name: TargetTableName) -> str:
        # read with the columns
        options = inspector.get_table_options(name.table, schema=name.schema)
        engine = str(options.get(f"{inspector.dialect.name}_engine") or "")
        return engine if engine.upper() in _WITHOUT_TRANSACTIONS else ""

    def build_add_columns(self, table: DatabaseTargetTable, fields: Sequence[DatabaseColumn]) -> list[str]:
        new_fields = {field.name: field for field in fields}
        whole = replace(table, fields=tuple(new_fields.get(field.name, field) for field in table.fields))
        return super().build_add_columns(
            table, [field for field in self._fitting(whole).fields if field.name in new_fields]
        )

    def build_change_column(
        self, table: DatabaseTargetTable, there: ExistingColumn, type_: str, *, nullable: bool
    ) -> str:
        default = f" DEFAULT {there.default}" if there.default else ""
        null = "" if nullable else " NOT NULL"
        return f"ALTER TABLE {self.format_table_name(table.name)} MODIFY COLUMN {self.quote_name(there.name)} {type_}{default}{null}"

    def build_assignments(self, table: DatabaseTargetTable, values: Mapping[str, str]) -> list[str]:
        # assigned from left to right: a column is read before it gets its own value
        rest, ordered = dict(values), dict[str, str]()
        while unread := [name for name in rest if self.quote_name(name) not in rest.values()]:
            ordered |= {name: rest.pop(name) for name in unread}
        assignments = super().build_assignments(table, ordered)
        if not rest:
            return assignments
        # columns that go round; without a limit, servers would read the table itself, which they refuse
        key = [field.name for field in table.key_columns]
        same = " AND ".join(f"t.{self.quote_name(name)} <=> s.{self.quote_name(name)}" for name in key)
        sets = ", ".join(f"t.{self.quote_name(name)} = s.{value}" for name, value in rest.items())
        rows = f"SELECT {self.format_column_list([*key, *rest])} FROM {self.format_table_name(table.name)} LIMIT 18446744073709551615"
        return [*assignments, f"UPDATE {self.format_table_name(table.name)} t JOIN ({rows}) s ON {same} SET {sets}"]

    def key_change(self, connection: sa.Connection, table: DatabaseTargetTable, there: ExistingTable) -> list[str]:
        """Build one statement for the change, which is made as a whole or not at all."""
        fields = self._fitting(table).key_columns
        changes = [f"MODIFY COLUMN {self.quote_name(f.name)} {self._key_type(f, there)} NOT NULL" for f in fields]
        key = self.format_column_list(field.name for field in fields)
        return [
            f"ALTER TABLE {self.format_table_name(table.name)} {', '.join(('DROP PRIMARY KEY', *changes))}, ADD PRIMARY KEY ({key})"
        ]

    def _key_type(self, field: DatabaseColumn, there: ExistingTable) -> str:
        """Return the type of a column that becomes part of a key.

        It is its own, if that can be part of one, and keeps all texts distinct.
        """
        kind, column = kind_of(field.column), there.columns.get(field.name)
        own = (
            column is None
            or self.type_of(kind, key=True) != self.type_of(kind, key=False)
            or is_text(self.build_column_type(field))
        )
        return self.build_column_type(field) if own or column is None else column.type or self.build_column_type(field)

    def find_wider_type(self, there: ExistingColumn, field: DatabaseColumn) -> str | None:
        kind = kind_of(field.column)
        if kind.name in ("enum", "set") and (members := type_widening.parse_enum_members(there.type, kind.name)):
            new = tuple(member for member in kind.members if member not in members)
            return self.type_of(replace(kind, members=(*members, *new)), key=field.key) if new else None
        return super().find_wider_type(there, field)

    def _fitting(self, table: DatabaseTargetTable) -> DatabaseTargetTable:
        """Fit the columns of a table into the longest row.

        Texts and bytes get any length, if the table has more of those with a length than a row has room for; and a key that would be too long has bytes instead of texts.
        """
        kinds = {field.name: kind_of(field.column) for field in table.fields}
        declared_kinds = [kind for field in table.value_columns if (kind := kinds[field.name]).source_type]
        wide = sum((kind.length or 0) * _BYTES_EACH.get(kind.name, 0) for kind in declared_kinds) >= _ROW_BYTES
        keys = {field.name: self._key_bytes(field) for field in table.key_columns}
        if wide:
            table = _apart(table)
        if not self._key_is_long(table):
            return table
        texts_ = [name for name in keys if kinds[name].name in _BYTES_EACH]
        room = (_KEY_BYTES - sum(size for name, size in keys.items() if name not in texts_)) // max(len(texts_), 1)
        fields = [
            field
            if field.name not in texts_
            else replace(field, column=_as_bytes(field.column, min(keys[field.name], room)))
            for field in table.fields
        ]
        return replace(table, fields=tuple(fields))

    def _key_bytes(self, field: DatabaseColumn) -> int:
        kind = kind_of(field.column)
        return (self._length(kind, key=True) or 0) * _BYTES_EACH.get(kind.name, 0) or _OTHER_KEY

    def refuse_merging(self, connection: sa.Connection, table: DatabaseTargetTable, rebuild: str) -> None:
        if not (keys := text_keys(table)):
            return
        there = read_collations(connection, table.name, default="DATABASE()", type_="COLUMN_TYPE")
        existing_keys = [(field, *there[field.name]) for field in keys if field.name in there]
        definition = f"CHARACTER SET utf8mb4 COLLATE {self.key_collation} NOT NULL"
        merging = [
            # texts of any length can be no key
            (f.name, str(c), f"{self.build_column_type(f)} NOT NULL" if "text" in t else f"{t} {definition}")
            for f, c, t in existing_keys
            if c and not self.distinguishes_texts(c)
        ]
        refuse_merging(
            self,
            table,
            merging,
            rebuild=rebuild,
            equal="case, accents or trailing spaces",
            alter="MODIFY {column}",
        )

    def distinguishes_texts(self, collation: str) -> bool:
        """Check whether no two texts are equal in a collation."""
        return collation == self.key_collation or collation.endswith("_nopad_bin")

    def refers_to_itself(self, inspector: Any, name: TargetTableName) -> bool:
        return False  # foreign keys are not checked in this session

    def read_stamps(self, connection: sa.Connection, names: Sequence[TargetTableName]) -> dict[TargetTableName, str]:
        stamps = dict[TargetTableName, str]()
        for name in names:
            try:
                # its text has all that can be changed; views of the catalog would read all tables of the schema
                row = connection.exec_driver_sql(f"SHOW CREATE TABLE {self.format_table_name(name)}").one()
            except sa.exc.DBAPIError as e:
                if self.extract_error_code(e) != _NO_TABLE:
                    raise
            else:
                stamps[name] = str(row[1])
        return stamps

    def build_default(self, kind: ValueKind, text: str) -> str | None:
        if kind.name in ("json", "xml") or (kind.name in ("text", "bytes") and self._length(kind, key=False) is None):
            return None  # MySQL has no plain defaults of long columns
        return self._text(text) if kind.name in ("text", "enum", "set") else super().build_default(kind, text)

    def _text(self, text: str) -> str:
        return "'" + text.replace("\\", "\\\\").replace("'", "''") + "'"

    def build_cast(self, text: str, type_: str) -> str:
        return text  # assigned to a column, it becomes of its type

    def build_exact_column(self, column: str, type_: str) -> str:
        # a float is shown with six digits, if nothing is done with it
        return f"{column} * 1e0" if type_.upper().startswith("FLOAT") else column

    def build_inequality(self, column: str, other: str, type_: str) -> str | None:
        if not _HAS_BYTES.match(type_):
            return None
        sides = (f"CAST({self.build_exact_column(side, type_)} AS BINARY)" for side in (column, other))
        return f"NOT ({' <=> '.join(sides)})"

    def drop_session_table(self, name: TargetTableName) -> str:
        return f"DROP TEMPORARY TABLE {self.format_table_name(name)}"

    def empty_session_table(self, name: TargetTableName, statement: str) -> list[str]:
        # rows that are deleted would stay until the transaction ends
        return [self.drop_session_table(name), statement]

    def insert(self, connection: sa.Connection, table: DatabaseTargetTable, rows: pa.Table) -> None:
        self._insert(connection, self.format_table_name(table.name), table, rows)

    def upsert(self, connection: sa.Connection, table: DatabaseTargetTable, rows: pa.Table, *, unique: bool) -> None:
        key = [field.name for field in table.key_columns]
        rest = [name for name in rows.column_names if name not in key]
        if not unique:
            self._insert(connection, self.format_table_name(table.name), table, rows, self._or_update(rest or key[:1]))
            return
        self._write_by_key(connection, table, self._staged(connection, table, rows), rows.column_names)

    def _write_by_key(
        self, connection: sa.Connection, table: DatabaseTargetTable, stage: str, names: Sequence[str]
    ) -> None:
        """Write rows by their key: ON DUPLICATE KEY UPDATE would change whatever row has a unique value of these, without an error."""
        key = [field.name for field in table.key_columns]
        if rest := [name for name in names if name not in key]:
            self._from_stage(connection, table, stage, {name: name for name in key}, rest)
        same = " AND ".join(f"t.{self.quote_name(name)} = s.{self.quote_name(name)}" for name in key)
        columns = ", ".join(f"s.{self.quote_name(name)}" for name in names)
        execute_sql(
            connection,
            f"INSERT INTO {self.format_table_name(table.name)} ({self.format_column_list(names)}) SELECT {columns} FROM {stage} s "
            f"LEFT JOIN {self.format_table_name(table.name)} t ON {same} WHERE t.{self.quote_name(key[0])} IS NULL",
        )

    # -- from staging tables ------------------------------------------------------------------------------------------

    def create_staging_table(
        self, connection: sa.Connection, table: DatabaseTargetTable, name: str, rows: pa.Table
    ) -> None:
        self._make_stage(connection, table, rows, f"CREATE TABLE {self.quote_name(name)}", " ENGINE=InnoDB")
        for some in split_rows(rows):
            self._insert(connection, self.quote_name(name), table, some)

    def write_staged(
        self, connection: sa.Connection, table: DatabaseTargetTable, name: str, columns: Sequence[str], *, unique: bool
    ) -> None:
        if unique:
            self._write_by_key(connection, table, self.quote_name(name), columns)
            return
        key = [field.name for field in table.key_columns]
        rest = [column for column in columns if column not in key] or key[:1]
        sets = ", ".join(
            f"{self.format_table_name(table.name)}.{self.quote_name(n)} = s.{self.quote_name(n)}" for n in rest
        )
        taken = ", ".join(f"s.{self.quote_name(column)}" for column in columns)
        execute_sql(
            connection,
            f"INSERT INTO {self.format_table_name(table.name)} ({self.format_column_list(columns)}) SELECT {taken} FROM {self.quote_name(name)} s "
            f"ON DUPLICATE KEY UPDATE {sets}",
        )

    def delete_staged(self, connection: sa.Connection, table: DatabaseTargetTable, name: str) -> None:
        same = " AND ".join(f"t.{self.quote_name(f.name)} = s.{self.quote_name(f.name)}" for f in table.key_columns)
        execute_sql(
            connection, f"DELETE t FROM {self.format_table_name(table.name)} t JOIN {self.quote_name(name)} s ON {same}"
        )

    def drop_staging_table(self, connection: sa.Connection, name: str) -> None:
        execute_sql(connection, "SET SESSION lock_wait_timeout = 5")
        try:
            execute_sql(connection, f"DROP TABLE IF EXISTS {self.quote_name(name)}")
        finally:
            execute_sql(connection, "SET SESSION lock_wait_timeout = DEFAULT")

    def _or_update(self, names: list[str]) -> str:
        return " ON DUPLICATE KEY UPDATE " + ", ".join(
            f"{self.quote_name(n)} = VALUES({self.quote_name(n)})" for n in names
        )

    def _update(
        self,
        connection: sa.Connection,
        table: DatabaseTargetTable,
        rows: pa.Table,
        key: Mapping[str, str],
        rest: Sequence[str],
    ) -> None:
        self._from_stage(connection, table, self._staged(connection, table, rows), key, rest)

    def _from_stage(
        self,
        connection: sa.Connection,
        table: DatabaseTargetTable,
        stage: str,
        key: Mapping[str, str],
        rest: Sequence[str],
    ) -> None:
        same = " AND ".join(f"t.{self.quote_name(name)} = s.{self.quote_name(staged)}" for name, staged in key.items())
        sets = ", ".join(f"t.{self.quote_name(name)} = s.{self.quote_name(name)}" for name in rest)
        execute_sql(connection, f"UPDATE {self.format_table_name(table.name)} t JOIN {stage} s ON {same} SET {sets}")

    def delete(self, connection: sa.Connection, table: DatabaseTargetTable, keys: pa.Table) -> None:
        head = f"DELETE FROM {self.format_table_name(table.name)} WHERE ({self.format_column_list(keys.column_names)}) IN ("
        self._run_all(connection, table, keys, head, ")")

    def _staged(self, connection: sa.Connection, table: DatabaseTargetTable, rows: pa.Table) -> str:
        """Make a table of the session's own that has these rows."""
        fields = fields_of(self._fitting(table) if self._key_is_long(table) else table, rows)
        types = [self.build_column_type(field) for field in fields]
        # also keys that rows had before, which are no key here
        exact = [
            f"{type_} COLLATE {self.key_collation}" if is_text(type_) and "COLLATE" not in type_ else type_
            for type_ in types
        ]
        columns = ", ".join(f"{self.quote_name(f.name)} {type_}" for f, type_ in zip(fields, exact, strict=True))
        key = self.format_column_list(f.name for f in fields if f.key)
        stage = self.quote_name(_STAGE)
        execute_sql(connection, f"DROP TEMPORARY TABLE IF EXISTS {stage}")
        execute_sql(connection, f"CREATE TEMPORARY TABLE {stage} ({columns}, PRIMARY KEY ({key}))")
        self._insert(connection, stage, table, rows)
        return stage

    def _key_is_long(self, table: DatabaseTargetTable) -> bool:
        return sum(map(self._key_bytes, table.key_columns)) > _KEY_BYTES

    def _insert(
        self, connection: sa.Connection, into: str, table: DatabaseTargetTable, rows: pa.Table, tail: str = ""
    ) -> None:
        head = f"INSERT INTO {into} ({self.format_column_list(rows.column_names)}) VALUES "
        self._run_all(connection, table, rows, head, tail)

    def _run_all(
        self, connection: sa.Connection, table: DatabaseTargetTable, rows: pa.Table, head: str, tail: str
    ) -> None:
        """Run statements with all rows between a head and a tail."""
        room = self._packet(connection) - len(f"{head}{tail}".encode()) - 1  # the command's own byte
        with read_ahead(self._statements(table, rows, room)) as statements:
            for values in statements:
                whole = (
                    f"{head}{values}{tail}"
                    if isinstance(values, str)
                    else b"".join((head.encode(), values, tail.encode()))
                )
                execute_sql(connection, whole)

    def _packet(self, connection: sa.Connection) -> int:
        """Bytes that the server takes at once; it closes the connection at more."""
        if not self._longest:
            self._longest = int(connection.exec_driver_sql("SELECT @@max_allowed_packet").scalar_one())
        return self._longest

    def _statements(self, table: DatabaseTargetTable, rows: pa.Table, room: int) -> Iterator[str | bytes]:
        """``(…),(…)`` of as many rows as a statement takes; bytes where they are no text.

        :param room: bytes
        """
        piece = max(1, rows.num_rows * _STATEMENT // max(rows.nbytes, 1))
        for begin in range(0, rows.num_rows, piece):
            some = rows.slice(begin, piece)
            columns = [self._literals(sql_literals.to_single_array(some[f.name]), f) for f in fields_of(table, rows)]
            row_texts = pc.binary_join_element_wise(*columns, ",") if len(columns) > 1 else columns[0]
            row_texts = sql_literals.surround_texts(row_texts, "(", "),")
            step = max(1, len(row_texts) * _STATEMENT // max(row_texts.nbytes, 1))
            for at in range(0, len(row_texts), step):
                part = sql_literals.concatenate_texts(row_texts.slice(at, step))[:-1]
                if len(part) <= room:
                    yield part.decode()
                else:
                    yield from self._one_by_one(table, some.slice(at, step), row_texts.slice(at, step), room)

    def _one_by_one(
        self, table: DatabaseTargetTable, rows: pa.Table, row_texts: pa.Array, room: int
    ) -> Iterator[bytes]:
        """Rows that are too much together; bytes of one that is too long stand there as they are, which is half as long.

        :raises sqlalchemy.exc.DataError: a row is too long
        """
        for at in range(len(row_texts)):
            part = sql_literals.concatenate_texts(row_texts.slice(at, 1))[:-1]
            if len(part) > room:
                part = self._shorter(table, rows.slice(at, 1))
            if len(part) > room:
                raise _too_long(len(part), self._longest)
            yield part

    def _shorter(self, table: DatabaseTargetTable, row: pa.Table) -> bytes:
        values = list[bytes]()
        for field in fields_of(table, row):
            value = sql_literals.to_single_array(row[field.name])
            if kind_of(field.column).name == "bytes" and value[0].is_valid:
                escaped = value[0].as_py().replace(b"\\", b"\\\\").replace(b"'", b"\\'")
                values.append(b"_binary'" + escaped + b"'")
            else:
                values.append(self._literals(value, field)[0].as_py().encode())
        return b"(" + b",".join(values) + b")"

    def _literals(self, values: pa.Array, field: DatabaseColumn) -> pa.Array:
        """Values in SQL, NULL among them."""
        kind = kind_of(field.column)
        _refuse_finer(values, kind, field)
        text = self._as_text(values, kind)
        if kind.name in _QUOTED or _too_fine(kind):
            there = sql_literals.concatenate_texts(text)
            for character, instead in (("\\", "\\\\"), ("'", "''")):
                if character.encode() in there:
                    text = pc.replace_substring(text, character, instead)
            text = sql_literals.surround_texts(text, "'", "'")
        return pc.coalesce(text, "NULL")

    def _as_text(self, values: pa.Array, kind: ValueKind) -> pa.Array:
        match kind.name:
            case "bytes":
                return sql_literals.surround_texts(sql_literals.format_hexadecimal(values), "X'", "'")
            case "geometry":
                wkb = sql_literals.surround_texts(
                    sql_literals.format_hexadecimal(pc.struct_field(values, "wkb")), "ST_GeomFromWKB(X'", "'"
                )
                srid = pc.coalesce(pc.struct_field(values, "srid"), 0).cast(pa.string())
                return sql_literals.surround_texts(pc.binary_join_element_wise(wkb, srid, ", "), "", f"{self.AXES})")
            case "bits":
                return sql_literals.surround_texts(sql_literals.format_bits(values, kind.length or 1), "b'", "'")
            case "time":
                return sql_literals.format_clock_times(values, min(kind.scale or 0, 6))
            case "timestamp" if not pa.types.is_string(values.type):
                return sql_literals.format_timestamps(values)
            case "timestamp_tz":
                return sql_literals.format_zoned_timestamps(values, self.zone)
            case "vector":
                return sql_literals.format_lists(values, "[", "]")
            case "decimal" if _too_fine(kind):
                return sql_literals.format_decimals(values)
            case "float":  # read as a double first: the shortest text of the largest one is out of its range
                return values.cast(pa.float64()).cast(pa.string())
            case _:
                return values.cast(pa.string())


class MySql(MariaDb):
    """MySQL through PyMySQL."""

    name: ClassVar[str] = "mysql"
    AXES: ClassVar[str] = ", 'axis-order=long-lat'"

    def __init__(self, zone: str = "UTC") -> None:
        super().__init__(zone)
        self._version: tuple[Any, ...] = ()

    def detect_features(self, connection: sa.Connection) -> None:
        self._version = tuple(connection.dialect.server_version_info or ())

    @property
    def key_collation(self) -> str:
        return "utf8mb4_0900_bin" if self._version >= (8, 0, 17) else "utf8mb4_bin"

    def _or_update(self, names: list[str]) -> str:
        if self._version < (8, 0, 20):
            return super()._or_update(names)
        return " AS new ON DUPLICATE KEY UPDATE " + ", ".join(
            f"{self.quote_name(n)} = new.{self.quote_name(n)}" for n in names
        )


def _too_long(size: int, most: int) -> sa.exc.DataError:
    """Build the error for a row at which the server would close the connection."""
    packet_size = 1 << (size + _STATEMENT).bit_length()
    text = (
        f"the row needs a statement of {size:,} bytes, but max_allowed_packet is {most:,}: "
        f"run SET GLOBAL max_allowed_packet = {min(packet_size, _MOST_PACKET)} and set it in the server's configuration, or leave the long column out with field.exclude.list"
        if size < _MOST_PACKET
        else f"the row needs a statement of {size:,} bytes, but servers accept at most {_MOST_PACKET:,} (max_allowed_packet): leave the long column out with "
        "field.exclude.list"
    )
    return sa.exc.DataError("", None, Exception(text))


def _apart(table: DatabaseTargetTable) -> DatabaseTargetTable:
    """Return the table with texts and bytes of any length, which are kept apart from a row that has no room for them."""
    fields = [
        field
        if field.key or kind_of(field.column).name not in _BYTES_EACH
        else DatabaseColumn(field.name, _untold(field.column))
        for field in table.fields
    ]
    return replace(table, fields=tuple(fields))


def _as_bytes(column: Column, length: int) -> Column:
    return column.model_copy(
        update={"type": "binary", "semantic": None, "declared": column.declared.model_copy(update={"length": length})}
    )


def _untold(column: Column) -> Column:
    """Return a column whose type the source does not declare."""
    return column.model_copy(update={"parameters": {}})


def _too_fine(kind: ValueKind) -> bool:
    """Check whether a decimal has more digits than the database's."""
    return kind.name == "decimal" and ((kind.length or 0) > _MOST_DIGITS or (kind.scale or 0) > _MOST_SCALE)


def _refuse_finer(values: pa.Array, kind: ValueKind, field: DatabaseColumn) -> None:
    """Reject numbers that the database would round without an error.

    :raises TargetError: a number has digits that the database would cut off without an error
    """
    if kind.length is not None or kind.name not in ("decimal", "number"):
        return
    text = values.cast(pa.string())
    too_fine = pc.filter(text, pc.match_substring_regex(text, rf"\.\d{{{_MOST_SCALE + 1},}}"))
    if len(too_fine):
        raise TargetError(
            f"The column {field.name} stores at most {_MOST_SCALE} digits after the point, but a value has more: {too_fine[0]}.",
            safe="The table was not changed.",
            remedy="leave the column out with field.exclude.list, or capture the values as strings with decimal.handling.mode=string",
        )
