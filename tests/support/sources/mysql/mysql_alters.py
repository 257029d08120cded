"""Changes of a column's definition, as they are generated; the server itself says what became of the rows.

One alteration: a table with a column of one definition, filled with the values at which such a type can change, is altered under a
``sql_mode``. What a ``SELECT`` gives before and after is compared with what the reader of the log makes of the statement.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from random import Random
from typing import Any

import pyarrow as pa
import pymysql
from pymysql.connections import Connection

from airflow_provider_cdc.core.model.table_schema import TableChange, TableId, TableSchema, arrow_type
from airflow_provider_cdc.sources.mysql.config import MySqlConfig
from airflow_provider_cdc.sources.mysql.connect import connect, server_of
from airflow_provider_cdc.sources.mysql.schema import ddl
from airflow_provider_cdc.sources.mysql.schema.catalog_reader import MySqlCatalog
from airflow_provider_cdc.sources.mysql.schema.ddl_applier import DdlApplier, QueryEvent
from airflow_provider_cdc.sources.mysql.schema.live_catalog import LiveCatalog
from airflow_provider_cdc.sources.mysql.schema.table_name_resolver import TableNameResolver
from airflow_provider_cdc.sources.mysql.snapshot.result_set_reader import ResultReader

STRICT = "STRICT_TRANS_TABLES"
MODES = {
    "": 0,
    "NO_ZERO_DATE": 1 << 24,
    STRICT: 1 << 21,
    "NO_AUTO_VALUE_ON_ZERO": 1 << 19,
    f"{STRICT},NO_AUTO_VALUE_ON_ZERO": 1 << 21 | 1 << 19,
    f"{STRICT},NO_ZERO_IN_DATE,NO_ZERO_DATE": 1 << 21 | 1 << 23 | 1 << 24,
}
"""``sql_mode`` of the session that alters → the bits of it in the log."""
_UNFIT = {1048, 1138, 1264, 1265, 1292, 1366, 1406, 1411, 1525, 1526, 3140, 4025, 1416, 1105, 1367, 1690, 3854, 3055}
_ROW = re.compile(r"at row (\d+)")


@dataclass(frozen=True)
class Kind:
    """Definitions of one family of types, and values at which they differ.

    :param types: how a type is written, without NULL and defaults
    :param values: SQL expressions
    """

    types: tuple[str, ...]
    values: tuple[str, ...]


def _texts(*values: str) -> tuple[str, ...]:
    return tuple(f"CONVERT(x'{v.encode().hex()}' USING utf8mb4)" for v in values)


_INTEGERS = tuple(f"{t}{u}" for t in ("TINYINT", "SMALLINT", "MEDIUMINT", "INT", "BIGINT") for u in ("", " UNSIGNED"))
_CHARSETS = (
    "utf8mb4", "utf8mb3", "latin1", "ascii", "ucs2", "utf16", "utf16le", "utf32", "cp1251", "sjis", "cp932", "euckr", "big5", "gbk",
    "ujis", "eucjpms", "gb2312", "gb18030", "swe7", "latin2", "koi8r", "greek", "hebrew", "tis620", "macroman",
)  # fmt: skip
_TEXT_TYPES = ("CHAR(3)", "CHAR(20)", "CHAR(255)", "VARCHAR(3)", "VARCHAR(20)", "VARCHAR(300)", "VARCHAR(1000)", "TINYTEXT", "TEXT", "MEDIUMTEXT", "LONGTEXT")  # fmt: skip

KINDS = {
    "integer": Kind((*_INTEGERS, "INT(3) ZEROFILL", "TINYINT(1)", "INT(11)"), ("0", "1", "-1", "127", "-128", "128", "255", "32768", "-32769", "65535", "8388608", "16777216", "2147483647", "-2147483648", "4294967295", "9223372036854775807", "-9223372036854775808", "18446744073709551615")),
    "decimal": Kind(("DECIMAL(5,2)", "DECIMAL(5,2) UNSIGNED", "DECIMAL(7,2)", "DECIMAL(7,4)", "DECIMAL(5,0)", "DECIMAL(12,4)", "DECIMAL(38,4)", "DECIMAL(40,4)", "DECIMAL(5,2) ZEROFILL"), ("0", "1.25", "1.2345", "0.5", "-1.5", "999.99", "-999.99", "12345.6789", "99999", "1e20", "1e35")),
    "float": Kind(("FLOAT", "FLOAT UNSIGNED", "FLOAT(7,2)", "FLOAT(10,3)", "FLOAT(7,4)", "DOUBLE", "DOUBLE UNSIGNED", "DOUBLE(10,2)", "DOUBLE(12,4)", "DOUBLE(20,2)", "FLOAT(30)", "REAL"), ("0", "1.1", "-1.5", "16777217", "99999.99", "3e38", "-3e38", "1e300", "0.123456789", "1234567.891", "1e-40")),
    "bit": Kind(("BIT(1)", "BIT(5)", "BIT(8)", "BIT(64)"), ("b'0'", "b'1'", "b'11111'", "x'ff'", "x'ffffffffffffffff'")),
    "year": Kind(("YEAR", "YEAR(4)"), ("0", "1901", "2155", "2024")),
    "date": Kind(("DATE",), ("'0000-00-00'", "'2024-02-29'", "'1000-01-01'", "'9999-12-31'", "'2024-00-10'")),
    "datetime": Kind(("DATETIME", "DATETIME(3)", "DATETIME(6)"), ("'0000-00-00'", "'2024-02-29 12:34:56.789512'", "'9999-12-31 23:59:59.999999'", "'1969-12-31 23:00:00'", "'2024-00-10 01:02:03'", "'2024-03-10 02:30:00'")),
    "timestamp": Kind(("TIMESTAMP NULL", "TIMESTAMP(3) NULL", "TIMESTAMP(6) NULL", "TIMESTAMP NOT NULL DEFAULT '2024-01-01 00:00:00'"), ("'0000-00-00'", "'2024-02-29 12:34:56.789512'", "'1970-01-02 00:00:01'", "'2037-12-31 23:59:59.999999'")),
    "time": Kind(("TIME", "TIME(3)", "TIME(6)"), ("'00:00:00'", "'-838:59:59'", "'838:59:59'", "'12:34:56.789512'", "'-00:00:00.5'")),
    "text": Kind(
        tuple(f"{t} CHARACTER SET {c}" for t in _TEXT_TYPES for c in _CHARSETS),
        (*_texts("", "a", "abc", "a  ", "abcdefgh", "ä", "Ж", "中", "€", "😀", "\\~|", "～―∥￠", "똠", "碁", "①", "ab中d", "あ"), "REPEAT('x', 255)", "REPEAT('x', 1000)", "REPEAT('x', 70000)", "REPEAT(_utf8mb4 x'c3a4', 200)", "CONCAT(REPEAT('x', 254), '  ')"),
    ),
    "bytes": Kind(("BINARY(3)", "BINARY(20)", "VARBINARY(3)", "VARBINARY(20)", "VARBINARY(1000)", "TINYBLOB", "BLOB", "MEDIUMBLOB", "LONGBLOB"), ("''", "'a'", "x'610000'", "x'00'", "'abcdefgh'", "'ab  '", "REPEAT('x', 255)", "REPEAT('x', 1000)", "REPEAT('x', 70000)", "x'ff'")),
    "enum": Kind(("ENUM('a','b')", "ENUM('b','a')", "ENUM('a','b','c')", "ENUM('a','B')", "ENUM('a','c','b')", "ENUM('a','b') CHARACTER SET latin1", "ENUM('a')", "ENUM('a','b','ö') CHARACTER SET utf8mb4", "ENUM('a','b','ö') CHARACTER SET latin1", "ENUM('1','2')"), ("'a'", "'b'", "'c'", "'ö'", "'1'", "0", "'zz'")),
    "set": Kind(("SET('a','b')", "SET('b','a')", "SET('a','b','c')", "SET('a','B')", "SET('a')", "SET('a','b') CHARACTER SET latin1"), ("'a'", "'b'", "'a,b'", "''", "'a,b,c'")),
}  # fmt: skip
OF_MYSQL = {"json": Kind(("JSON",), ("'{\"a\": 1.50}'", "'[1, 2]'", "'\"ä\"'", "'null'"))}
OF_MARIADB = {
    "uuid": Kind(("UUID",), ("'123e4567-e89b-12d3-a456-426655440000'",)),
    "inet6": Kind(("INET6",), ("'::1'", "'2001:db8::ff00:42:8329'", "'::ffff:192.0.2.1'")),
}  # INET4 is there since 10.10


@dataclass(frozen=True)
class Alteration:
    """A change of a column's definition.

    :param old: its definition, e.g. ``INT NOT NULL``; ``{v}`` in :attr:`how` is the new one
    :param beside: further columns
    """

    kind: str
    old: str
    new: str
    mode: str
    how: str = "MODIFY v {v}"
    engine: str = "InnoDB"
    table_charset: str = "utf8mb4"
    beside: str = ""

    def __str__(self) -> str:
        return f"[{self.mode}] {self.old}{self.beside} -> {self.how.format(v=self.new)} ({self.engine}, {self.table_charset})"


@dataclass
class Outcome:
    """The outcome of a statement: its effect on the rows, and its reading by the capture.

    :ivar kept: values before and after are the same
    :ivar exact: the statement is taken for one that keeps them
    :ivar widened: the change log's type is another one
    :ivar rows: number of values
    """

    kept: bool
    exact: bool
    widened: bool
    rows: int
    changed: list[tuple[Any, Any]] = field(default_factory=list)


class _KnownStructure:
    """The structure in force."""

    def __init__(self, schema: TableSchema) -> None:
        self.schema = schema

    def find_schema(self, table: TableId) -> TableSchema | None:
        return self.schema if table == self.schema.id else None

    def is_captured(self, table: TableId) -> bool:
        return True

    def read_again(self, table: TableId) -> bool:
        return False

    def list_known_tables(self) -> list[TableId]:
        return [self.schema.id]


class Alterations:
    """Tries alterations on a server, in one of its databases."""

    def __init__(self, server: Any, database: str) -> None:
        self.server, self.database = server, database
        settings = {
            "topic.prefix": "t", "database.hostname": server.host, "database.port": server.port, "database.user": server.user,
            "database.password": server.password, "database.server.id": 4002,
            "bigint.unsigned.handling.mode": "precise",
        }  # fmt: skip
        self.config = MySqlConfig.model_validate(settings)
        self.reader: Connection = connect(self.config)
        self.facts = server_of(self.reader)
        self.catalog = MySqlCatalog(self.reader, self.config, mariadb=self.facts.mariadb)
        self.writer = server.connect(database=database)
        self.table = TableId(namespace=database, name="t")
        self._run("SET time_zone = '+00:00'")
        if not self.facts.mariadb:
            self._run("SET SESSION sql_require_primary_key = OFF")

    def close(self) -> None:
        self.reader.close()
        self.writer.close()

    def _run(self, sql: str) -> None:
        with self.writer.cursor() as cursor:
            cursor.execute(sql)

    def schema(self) -> TableSchema:
        found = self.catalog.read_table(self.table)
        assert found is not None
        return found

    def change(self, statement: str, known: TableSchema, mode: str) -> TableChange | None:
        """Return the table change that the reader of the log makes of a statement."""
        bits = MODES[mode]
        (parsed,) = ddl.parse_statements(statement, **ddl.sql_mode_options(bits), version=self.facts.version_number)
        tables, catalog = _KnownStructure(known), LiveCatalog(lambda question: question(self.catalog))
        applier = DdlApplier(self.config, tables, catalog, TableNameResolver.from_server(self.facts, tables))
        effect = applier.determine_effect(parsed, QueryEvent(1, 0, self.database, statement, bits), "here")
        return effect.changes[0] if effect is not None and effect.changes else None

    def make(self, one: Alteration, values: tuple[str, ...]) -> None:
        self._run("SET sql_mode = ''")
        self._run("DROP TABLE IF EXISTS t")
        self._run(
            f"CREATE TABLE t (id INT PRIMARY KEY, v {one.old}{one.beside}) ENGINE={one.engine} CHARSET={one.table_charset}"
        )
        nulls = ("NULL",) if "NOT NULL" not in one.old else ()
        rows = [f"({i}, {value})" for i, value in enumerate((*values, *nulls))]
        self._run(f"INSERT IGNORE INTO t (id, v) VALUES {', '.join(rows)}")

    def read(self, schema: TableSchema) -> pa.Table:
        columns = ", ".join(f"`{c.name}`" for c in schema.columns)
        images = [*ResultReader(schema, self.config).read(self.reader, f"SELECT {columns} FROM {self.database}.t ORDER BY id")]  # fmt: skip
        arrays = pa.concat_arrays(images) if images else pa.array([], pa.struct([]))
        return pa.Table.from_struct_array(arrays) if images else pa.table({})

    def attempt(self, one: Alteration, values: tuple[str, ...]) -> Outcome | None:
        """Alter the table; rows that a strict server refuses are deleted first.

        :return: ``None`` if the server refuses the statement, or no row is left
        """
        try:
            self.make(one, values)
        except pymysql.err.MySQLError:
            return None
        statement = f"ALTER TABLE t {one.how.format(v=one.new)}"
        known = self.schema()
        for _ in range(len(values) + 2):
            before = self.read(known)
            if not before.num_rows:
                return None
            self._run(f"SET sql_mode = '{one.mode}'")
            try:
                self._run(statement)
                break
            except pymysql.err.MySQLError as e:
                at = _ROW.search(str(e.args[-1]))
                if e.args[0] not in _UNFIT and at is None:
                    return None
                self._run("SET sql_mode = ''")
                number = int(at[1]) - 1 if at else 0
                if number >= before.num_rows:
                    return None
                self._run(f"DELETE FROM t WHERE id = {before.column('id')[number].as_py()}")
        else:
            return None
        after_schema = self.schema()
        change = self.change(statement, known, one.mode)
        exact = change is None or change.exact
        after = self.read(after_schema)
        return self._outcome(before, after, known, after_schema, exact, change.added if change is not None else {})

    @staticmethod
    def _outcome(
        before: pa.Table,
        after: pa.Table,
        known: TableSchema,
        then: TableSchema,
        exact: bool,
        fills: dict[str, str | None],
    ) -> Outcome:
        changed: list[tuple[Any, Any]] = []
        widened = False
        for new in then.columns:
            if new.name in fills:
                filled = pa.array([fills[new.name]] * after.num_rows, pa.string()).cast(arrow_type(new.type))
                changed += [(x, y) for x, y in zip(_comparable_values(filled), _comparable_values(after.column(new.name)), strict=True) if repr(x) != repr(y)]  # fmt: skip
                continue
            if new.name == "added":  # the table is read again
                changed.append(("added", "unknown"))
                continue
            old = next((c for c in known.columns if c.name == new.name), None) or known.get_column("v")
            a, z = before.column(old.name), after.column(new.name)
            if old.type != new.type:
                widened = True
                try:
                    a = a.cast(arrow_type(new.type))
                except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
                    changed.append(("type", (old.type, new.type)))
                    continue
            changed += [
                (x, y) for x, y in zip(_comparable_values(a), _comparable_values(z), strict=True) if repr(x) != repr(y)
            ]
        return Outcome(not changed, exact, widened, before.num_rows, changed)


def _comparable_values(values: Any) -> list[Any]:
    """Values that can be compared; Python has no dates beyond the year 9999 or before 1."""
    if pa.types.is_date32(values.type):
        return list(values.cast(pa.int32()).to_pylist())
    return list(values.cast(pa.int64()).to_pylist() if pa.types.is_timestamp(values.type) else values.to_pylist())


_EXPRESSIONS = (
    "CONCAT(v, '!')", "v = 'A'", "v * 2", "LENGTH(v)", "CHAR_LENGTH(v)", "HEX(v)", "LEFT(v, 2)", "v / 3", "v IS NULL", "UPPER(v)", "id + 1",
    "v + 0", "COALESCE(v, 1)", "GREATEST(v, 'b')", "MD5(v)", "CAST(v AS CHAR(50))", "REPLACE(v, 'a', 'z')", "v LIKE 'A%'",
)  # fmt: skip


def generate_alterations(random: Random, *, mariadb: bool) -> Iterator[tuple[Alteration, tuple[str, ...]]]:
    """Alterations without an end; most of them stay within a family of types."""
    kinds = KINDS | (OF_MARIADB if mariadb else OF_MYSQL)
    while True:
        name = random.choice([*kinds, "text", "text", "integer"])
        other = name if random.random() < 0.75 else random.choice([*kinds])
        old, new = random.choice(kinds[name].types), random.choice(kinds[other].types)
        if name == other == "text" and random.random() < 0.5:  # the same set or the same type
            same = random.choice(("type", "charset"))
            head, tail = old.split(" CHARACTER SET ")
            head2, tail2 = new.split(" CHARACTER SET ")
            new = f"{head2} CHARACTER SET {tail}" if same == "charset" else f"{head} CHARACTER SET {tail2}"
        if name == "text" and random.random() < 0.1:
            new = old + " COLLATE " + old.rpartition(" ")[2] + "_bin"
        old += random.choice(("", "", " NOT NULL")) if " NULL" not in old else ""
        new += random.choice(("", "", " NOT NULL")) if " NULL" not in new else ""
        how = random.choice(("MODIFY v {v}", "MODIFY v {v}", "CHANGE v w {v}", "MODIFY v {v} FIRST"))
        if other == "integer" and random.random() < 0.2:
            how = f"{how.removesuffix(' FIRST')} AUTO_INCREMENT, ADD KEY ({'w' if 'CHANGE' in how else 'v'})"
        if name == other == "text" and random.random() < 0.2:
            how, new = "CONVERT TO CHARACTER SET {v}", random.choice(_CHARSETS)
        engine = random.choice(("InnoDB", "InnoDB", "InnoDB", "MyISAM"))
        beside = ""
        if random.random() < 0.2:
            how = how.replace("CHANGE v w", "MODIFY v")
            kind = random.choice(("STORED", "VIRTUAL"))
            beside = f", g VARCHAR(600) AS ({random.choice(_EXPRESSIONS)}) {kind}"
            if random.random() < 0.2:
                how = f"MODIFY g VARCHAR(600) AS ({random.choice(_EXPRESSIONS)}) {kind}"
        yield (
            Alteration(f"{name}-{other}", old, new, random.choice([*MODES]), how, engine, beside=beside),
            kinds[name].values,
        )


_DEFAULTS = (
    "0", "1", "-1", "127", "300", "1.239", "1.5", "-1.25", "12345.678", "0.1", "1e3", "'1.239'", "'7'", "' 8'", "TRUE", "'a'", "'b'", "'A'", "'a,b'",
    "'abc  '", "''", "'ö'", "'\\\\x'", "NULL", "x'41'", "b'1'", "'2024-02-29'", "'2024-2-9'", "'2024-02-29 12:34:56'", "'2024-02-29 12:34:56.5'",
    "20240229", "'12:34:56'", "'-12:34:56.5'", "'0000-00-00'", "2024", "'2024'", "70", "'24-02-29'", "'2024-02-29T01:02:03'", "_latin1'ab'", "N'ab'",
)  # fmt: skip


def generate_new_columns(random: Random, *, mariadb: bool) -> Iterator[Alteration]:
    """New columns without an end: of each type, with defaults of each form and without."""
    kinds = KINDS | (OF_MARIADB if mariadb else OF_MYSQL)
    while True:
        name = random.choice([*kinds])
        new = random.choice(kinds[name].types)
        new += random.choice(("", " NOT NULL")) if " NULL" not in new else ""
        if random.random() < 0.8 and "DEFAULT" not in new:
            new += f" DEFAULT {random.choice(_DEFAULTS)}"
        yield Alteration(f"added-{name}", "INT", new, random.choice([*MODES]), "ADD added {v}")
