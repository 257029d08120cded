"""MySQL and MariaDB: rows come in statements of many, whose text is made on arrays."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import ClassVar

import pyarrow as pa
import pyarrow.compute as pc
import sqlalchemy as sa

from airflow_provider_cdc.sink import texts
from airflow_provider_cdc.sink.ahead import ahead
from airflow_provider_cdc.sink.dialects.base import fields_of, run
from airflow_provider_cdc.sink.dialects.staging import StagingDialect
from airflow_provider_cdc.sink.kinds import Kind, kind_of
from airflow_provider_cdc.sink.tables import Field, SinkTable

_TYPES = {
    "bool": "boolean", "int8": "tinyint", "int16": "smallint", "int32": "int", "int64": "bigint", "float": "float", "double": "double",
    "number": "double", "date": "date", "time_tz": "varchar(32)", "json": "json", "xml": "longtext", "uuid": "char(36)", "ltree": "longtext",
    "year": "year", "duration": "bigint", "interval": "varchar(64)", "geometry": "geometry", "vector": "longtext",
}  # fmt: skip
_QUOTED = frozenset(
    {"text", "enum", "set", "json", "xml", "uuid", "ltree", "interval", "time_tz", "date", "time", "timestamp", "timestamp_tz", "vector"}
)  # fmt: skip
_STATEMENT = 1 << 20
"""Characters of a statement; a server takes 16 MB at least, if nobody has said otherwise."""
_MOST_DIGITS, _MOST_SCALE = 65, 38
_KEY_LENGTH, _VARCHAR = 255, 16_000
_STAGE = "cdc_stage"


class MariaDb(StagingDialect):
    """MariaDB through PyMySQL."""

    name: ClassVar[str] = "mariadb"
    DEFER: ClassVar[tuple[str, ...]] = ("SET SESSION foreign_key_checks = 0",)
    LONGEST: ClassVar[int] = 64
    TRANSIENT: ClassVar[frozenset[str]] = frozenset(
        {"1205", "1213", "1040", "1053", "1077", "2006", "2013", "1927", "4031"}
    )

    def quote(self, name: str) -> str:
        return "`" + name.replace("`", "``") + "`"

    def type_of(self, kind: Kind, *, key: bool) -> str:
        if kind.name in ("decimal", "number") and kind.length:
            return f"decimal({min(kind.length, _MOST_DIGITS)}, {min(kind.scale or 0, _MOST_SCALE)})"
        if kind.name == "bits":
            return f"bit({kind.length})" if (kind.length or 0) <= 64 else f"varbinary({((kind.length or 0) + 7) // 8})"
        if kind.name in ("text", "bytes"):
            length = min(kind.length or _KEY_LENGTH, _VARCHAR) if key else None
            plain = "varchar({})" if kind.name == "text" else "varbinary({})"
            return plain.format(length) if key else "longtext" if kind.name == "text" else "longblob"
        if kind.name in ("enum", "set"):
            members = ", ".join(self._text(member) for member in kind.members)
            return f"{kind.name}({members})" if kind.members else "longtext"
        if kind.name in ("time", "timestamp", "timestamp_tz"):
            digits = min(6 if kind.scale is None else kind.scale, 6)
            return f"{'time' if kind.name == 'time' else 'datetime'}({digits})"
        return _TYPES[kind.name]

    def default(self, kind: Kind, text: str) -> str | None:
        if kind.name in ("text", "bytes", "json", "xml"):  # MySQL has no plain defaults of long columns
            return None
        return self._text(text) if kind.name in ("enum", "set") else super().default(kind, text)

    def _text(self, text: str) -> str:
        return "'" + text.replace("\\", "\\\\").replace("'", "''") + "'"

    def cast(self, text: str, type_: str) -> str:
        return text  # assigned to a column, it becomes of its type

    def readable(self, column: str, type_: str) -> str:
        # a float is shown with six digits, if nothing is done with it
        return f"{column} * 1e0" if type_.upper().startswith("FLOAT") else column

    def insert(self, connection: sa.Connection, table: SinkTable, rows: pa.Table) -> None:
        self._insert(connection, self.full(table.name), table, rows)

    def upsert(self, connection: sa.Connection, table: SinkTable, rows: pa.Table, *, unique: bool) -> None:
        key = [field.name for field in table.key]
        rest = [name for name in rows.column_names if name not in key]
        if not unique:
            self._insert(connection, self.full(table.name), table, rows, self._or_update(rest or key[:1]))
            return
        self._write_by_key(connection, table, self._staged(connection, table, rows), rows.column_names)

    def _write_by_key(self, connection: sa.Connection, table: SinkTable, stage: str, names: Sequence[str]) -> None:
        """ON DUPLICATE KEY UPDATE would change whatever row has a unique value of these, and tell nobody."""
        key = [field.name for field in table.key]
        if rest := [name for name in names if name not in key]:
            self._from_stage(connection, table, stage, {name: name for name in key}, rest)
        same = " AND ".join(f"t.{self.quote(name)} = s.{self.quote(name)}" for name in key)
        columns = ", ".join(f"s.{self.quote(name)}" for name in names)
        run(
            connection,
            f"INSERT INTO {self.full(table.name)} ({self.listed(names)}) SELECT {columns} FROM {stage} s "
            f"LEFT JOIN {self.full(table.name)} t ON {same} WHERE t.{self.quote(key[0])} IS NULL",
        )

    # -- from staging tables ------------------------------------------------------------------------------------------

    def stage(self, connection: sa.Connection, table: SinkTable, name: str, rows: pa.Table) -> None:
        self._make_stage(connection, table, rows, f"CREATE TABLE {self.quote(name)}", " ENGINE=InnoDB")
        self._insert(connection, self.quote(name), table, rows)

    def write_staged(
        self, connection: sa.Connection, table: SinkTable, name: str, columns: Sequence[str], *, unique: bool
    ) -> None:
        if unique:
            self._write_by_key(connection, table, self.quote(name), columns)
            return
        key = [field.name for field in table.key]
        rest = [column for column in columns if column not in key] or key[:1]
        sets = ", ".join(f"{self.full(table.name)}.{self.quote(n)} = s.{self.quote(n)}" for n in rest)
        taken = ", ".join(f"s.{self.quote(column)}" for column in columns)
        run(
            connection,
            f"INSERT INTO {self.full(table.name)} ({self.listed(columns)}) SELECT {taken} FROM {self.quote(name)} s "
            f"ON DUPLICATE KEY UPDATE {sets}",
        )

    def delete_staged(self, connection: sa.Connection, table: SinkTable, name: str) -> None:
        same = " AND ".join(f"t.{self.quote(f.name)} = s.{self.quote(f.name)}" for f in table.key)
        run(connection, f"DELETE t FROM {self.full(table.name)} t JOIN {self.quote(name)} s ON {same}")

    def unstage(self, connection: sa.Connection, name: str) -> None:
        run(connection, "SET SESSION lock_wait_timeout = 5")
        try:
            run(connection, f"DROP TABLE IF EXISTS {self.quote(name)}")
        finally:
            run(connection, "SET SESSION lock_wait_timeout = DEFAULT")

    def _or_update(self, names: list[str]) -> str:
        return " ON DUPLICATE KEY UPDATE " + ", ".join(f"{self.quote(n)} = VALUES({self.quote(n)})" for n in names)

    def _update(
        self, connection: sa.Connection, table: SinkTable, rows: pa.Table, key: Mapping[str, str], rest: Sequence[str]
    ) -> None:
        self._from_stage(connection, table, self._staged(connection, table, rows), key, rest)

    def _from_stage(
        self, connection: sa.Connection, table: SinkTable, stage: str, key: Mapping[str, str], rest: Sequence[str]
    ) -> None:
        same = " AND ".join(f"t.{self.quote(name)} = s.{self.quote(staged)}" for name, staged in key.items())
        sets = ", ".join(f"t.{self.quote(name)} = s.{self.quote(name)}" for name in rest)
        run(connection, f"UPDATE {self.full(table.name)} t JOIN {stage} s ON {same} SET {sets}")

    def delete(self, connection: sa.Connection, table: SinkTable, keys: pa.Table) -> None:
        head = f"DELETE FROM {self.full(table.name)} WHERE ({self.listed(keys.column_names)}) IN ("
        with ahead(self._statements(table, keys)) as statements:
            for values in statements:
                run(connection, f"{head}{values})")

    def _staged(self, connection: sa.Connection, table: SinkTable, rows: pa.Table) -> str:
        """A table of the session's own that has these rows."""
        fields = fields_of(table, rows)
        columns = ", ".join(f"{self.quote(f.name)} {self.type_of(kind_of(f.column), key=f.key)}" for f in fields)
        key = self.listed(f.name for f in fields if f.key)
        stage = self.quote(_STAGE)
        run(connection, f"DROP TEMPORARY TABLE IF EXISTS {stage}")
        run(connection, f"CREATE TEMPORARY TABLE {stage} ({columns}, PRIMARY KEY ({key}))")
        self._insert(connection, stage, table, rows)
        return stage

    def _insert(self, connection: sa.Connection, into: str, table: SinkTable, rows: pa.Table, tail: str = "") -> None:
        head = f"INSERT INTO {into} ({self.listed(rows.column_names)}) VALUES "
        with ahead(self._statements(table, rows)) as statements:
            for values in statements:
                run(connection, f"{head}{values}{tail}")

    def _statements(self, table: SinkTable, rows: pa.Table) -> Iterator[str]:
        """``(…),(…)`` of as many rows as a statement takes."""
        piece = max(1, rows.num_rows * _STATEMENT // max(rows.nbytes, 1))
        for begin in range(0, rows.num_rows, piece):
            some = rows.slice(begin, piece)
            columns = [self._literals(texts.whole(some[f.name]), f) for f in fields_of(table, rows)]
            made = pc.binary_join_element_wise(*columns, ",") if len(columns) > 1 else columns[0]
            made = texts.around(made, "(", "),")
            step = max(1, len(made) * _STATEMENT // max(made.nbytes, 1))
            for at in range(0, len(made), step):
                yield texts.joined(made.slice(at, step)).decode()[:-1]

    def _literals(self, values: pa.Array, field: Field) -> pa.Array:
        """Values in SQL, NULL among them."""
        kind = kind_of(field.column)
        text = self._as_text(values, kind)
        if kind.name in _QUOTED:
            there = texts.joined(text)
            for what, instead in (("\\", "\\\\"), ("'", "''")):
                if what.encode() in there:
                    text = pc.replace_substring(text, what, instead)
            text = texts.around(text, "'", "'")
        return pc.coalesce(text, "NULL")

    def _as_text(self, values: pa.Array, kind: Kind) -> pa.Array:
        match kind.name:
            case "bytes":
                return texts.around(texts.hexadecimal(values), "X'", "'")
            case "geometry":
                wkb = texts.around(texts.hexadecimal(values.field("wkb")), "ST_GeomFromWKB(X'", "'")
                srid = pc.coalesce(values.field("srid"), 0).cast(pa.string())
                return texts.around(pc.binary_join_element_wise(wkb, srid, ", "), "", ")")
            case "bits":
                return texts.around(texts.bits(values, kind.length or 1), "b'", "'")
            case "time":
                return texts.clock(values, min(kind.scale or 0, 6))
            case "timestamp" if not pa.types.is_string(values.type):
                return texts.moments(values)
            case "timestamp_tz":
                return texts.zoned(values, self.zone)
            case "vector":
                return texts.lists(values, "[", "]")
            case _:
                return values.cast(pa.string())


class MySql(MariaDb):
    """MySQL through PyMySQL."""

    name: ClassVar[str] = "mysql"

    def _or_update(self, names: list[str]) -> str:
        return " AS new ON DUPLICATE KEY UPDATE " + ", ".join(f"{self.quote(n)} = new.{self.quote(n)}" for n in names)
