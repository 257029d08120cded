"""Every type of MySQL and MariaDB, with its extreme values, in each target: compared with what the source's own SELECT says, bit for bit."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from airflow_provider_cdc.targets.database.apply.database_apply import DatabaseApply
from airflow_provider_cdc.targets.database.config import EQUAL, DatabaseTargetConfig
from tests.support.connectors import Connector, mysql_connector
from tests.support.sources.mysql.mysql_values import COMMON, MARIADB, MYSQL, VECTORS

SHAPES = [
    "POINT(-180 90)", "LINESTRING(0 0,1 1)", "POLYGON((0 0,4 0,4 4,0 0),(1 0.5,2 0.5,2 1,1 0.5))", "MULTIPOINT(0 0,1 1)",
    "MULTILINESTRING((0 0,1 1),(2 2,3 3))", "MULTIPOLYGON(((0 0,1 0,1 1,0 0)))", "GEOMETRYCOLLECTION(POINT(1 2),LINESTRING(0 0,1 1))",
]  # fmt: skip
MORE: list[tuple[str, list[tuple[str, Any]]]] = [
    ("BIGINT UNSIGNED", [("18446744073709551615", 2**64 - 1)]),
    ("DECIMAL(65,0)", [("9" * 65, None), ("-" + "9" * 65, None)]),
    ("DECIMAL(65,30)", [("9" * 35 + "." + "9" * 30, None), ("-0." + "0" * 29 + "1", None)]),
    ("BIT(64)", [("b'" + "1" * 64 + "'", None), ("0", None), ("NULL", None)]),
    ("SET('ä','b''c','d e')", [("'ä,b''c,d e'", None), ("NULL", None), ("''", None)]),
    ("JSON", [("'null'", None), ("NULL", None), ("'\"\"'", None), ("'{\"a\": \"\\\\u0000\"}'", None)]),
    ("YEAR", [("0", None), ("2155", None), ("NULL", None)]),
    ("FLOAT", [("1e-38", None), ("3.4028234e38", None), ("-0.1", None), ("16777217", None)]),
    *((kind.partition("(")[0], [(f"ST_GeomFromText('{kind}')", None), ("NULL", None)]) for kind in SHAPES),
    ("GEOMETRY", [(f"ST_GeomFromText('{kind}', 3857)", None) for kind in SHAPES]),
    ("VARCHAR(200)", [("'\\\\'", None), ("'\\'\\'\"`%s :x ${y}'", None), ("'\\n\\r\\t,'", None), ("'\\\\N'", None), ("'NULL'", None)]),
]  # fmt: skip
GEOMETRIES = {kind.partition("(")[0] for kind in SHAPES} | {"GEOMETRY"}
BYTES = {"BINARY", "VARBINARY", "TINYBLOB", "BLOB", "MEDIUMBLOB", "LONGBLOB"}
WITHOUT_KEY = {"TINYTEXT", "TEXT", "MEDIUMTEXT", "LONGTEXT", "JSON", "VECTOR", "FLOAT", *GEOMETRIES} | (
    BYTES - {"BINARY", "VARBINARY"}
)


@dataclass
class Source:
    """A database with tables ``t0``, ``t1`` … of a column of each type, and ``k0`` … of those that can be keys; its rows are captured, half from a snapshot."""

    kind: str
    server: Any
    database: Any
    connector: Connector
    types: list[str]

    def keyed(self, declared: str) -> bool:
        return base(declared) not in WITHOUT_KEY and "COMPRESSED" not in declared and length(declared) < 255

    def read(self, table: str, declared: str, server: Any = None, database: str = "") -> list[tuple[Any, ...]]:
        """Rows of a table here, or of another server's, in one form."""
        at = (server or self.server).connect(database=database or self.database.name, autocommit=True)
        with at as connection, connection.cursor() as cursor:
            cursor.execute("SET time_zone = '+00:00'")
            cursor.execute(f"SELECT id, {shown_expression(declared)} FROM {table}")
            found = cursor.fetchall()
        return sorted((row[0], plain_value(declared, row[1])) for row in found)


def base(declared: str) -> str:
    return declared.split("(")[0].split()[0]


def length(declared: str) -> int:
    return (
        int(declared.partition("(")[2].partition(")")[0]) if base(declared) in ("CHAR", "VARCHAR", "VARBINARY") else 0
    )


def shown_expression(declared: str) -> str:
    """An expression that hides nothing of a value."""
    match base(declared):
        case "FLOAT" | "DOUBLE":
            return "v + 0e0"  # the driver gets all digits; as text, servers write numbers in ways of their own
        case "BIT" | "BOOLEAN":
            return "HEX(CAST(v + 0 AS CHAR))"
        case "DATETIME" | "TIMESTAMP":
            return "CAST(CAST(v AS DATETIME(6)) AS CHAR)"
        case "TIME":
            return "CAST(CAST(v AS TIME(6)) AS CHAR)"
        case "DATE" | "JSON":
            return "CAST(v AS CHAR)"
        case kind if kind in BYTES or kind in GEOMETRIES or kind == "VECTOR":
            return "HEX(v)"
        case "TINYINT" | "SMALLINT" | "MEDIUMINT" | "INT" | "BIGINT" | "DECIMAL" | "YEAR" | "UUID" | "INET4" | "INET6":
            return "HEX(CAST(v AS CHAR))"
        case _:
            return "HEX(CONVERT(v USING utf8mb4))"


def plain_value(declared: str, value: Any) -> Any:
    """Dates that no calendar has are NULL, or 1970 where that cannot be; JSON is compared by what it says."""
    if value is None and "NOT NULL" in declared:  # MySQL casts no such date
        value = "0000-00-00"
    if base(declared) in ("DATE", "DATETIME", "TIMESTAMP") and value is not None and "-00" in f"-{value[:10]}":
        return (
            None
            if "NOT NULL" not in declared
            else "1970-01-01" + ("" if base(declared) == "DATE" else " 00:00:00.000000")
        )
    if base(declared) in ("FLOAT", "DOUBLE") and value is not None:
        return repr(float(value))
    if base(declared) == "JSON" and value is not None:
        return repr(json.loads(value, parse_float=lambda text: float(text), parse_constant=float))
    return value


def _source(kind: str, server: Any, folder: Path) -> Iterator[Source]:
    own = {"mariadb": MARIADB, "mysql": [*MYSQL, *VECTORS]}[kind]
    types = [one for one in [*COMMON, *own, *MORE] if kind != "mariadb" or base(one[0]) != "GEOMCOLLECTION"]
    with server.database("types") as database:
        connector = mysql_connector(
            server,
            folder,
            kind,
            database_include_list=database.name,
            bigint_unsigned_handling_mode="precise",
            topic_prefix="p",
        )
        source = Source(kind, server, database, connector, [declared for declared, _ in types])
        for first in (0, 1000):
            with server.connect(database=database.name, autocommit=True) as connection, connection.cursor() as cursor:
                cursor.execute("SET sql_mode = '', time_zone = '+00:00'")
                for number, (declared, values) in enumerate(types):
                    if not first:
                        cursor.execute(f"CREATE TABLE t{number} (id INT PRIMARY KEY, v {declared})")
                    for n, (literal, _) in enumerate(values):
                        cursor.execute(f"INSERT INTO t{number} VALUES ({first + n}, {literal})")
                    if source.keyed(declared):
                        _keys(cursor, number, declared, [literal for literal, _ in values], first)
            connector.capture()
        yield source


def _keys(cursor: Any, number: int, declared: str, literals: list[str], first: int) -> None:
    """A table with this type as a key, whose rows are changed and deleted when it has been read."""
    if first:
        cursor.execute(f"UPDATE k{number} SET id = id + 100")
        cursor.execute(f"DELETE FROM k{number} ORDER BY id DESC LIMIT 1")
        return
    cursor.execute(
        f"CREATE TABLE k{number} (id INT, v {declared.replace('P NULL', 'P').replace(') NULL', ')')}, PRIMARY KEY (v))"
    )
    for n, literal in enumerate(literals):
        if literal != "NULL" and "-00" not in literal:  # which would be the same key in the change log
            cursor.execute(f"INSERT IGNORE INTO k{number} VALUES ({n}, {literal})")


@pytest.fixture(scope="module")
def mariadb_source(mariadb: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Source]:
    yield from _source("mariadb", mariadb, tmp_path_factory.mktemp("mariadb"))


@pytest.fixture(scope="module")
def mysql_source(mysql97: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Source]:
    yield from _source("mysql", mysql97, tmp_path_factory.mktemp("mysql"))


@pytest.fixture(params=["mariadb", "mysql"])
def source(request: pytest.FixtureRequest) -> Source:
    found: Source = request.getfixturevalue(f"{request.param}_source")
    return found


def apply(engine: sa.Engine, source: Source, **properties: Any) -> None:
    config = DatabaseTargetConfig.parse({**EQUAL, "collection.name.format": "${source.table}", **properties})
    DatabaseApply(engine, config, source.connector.changelog, source.connector.name).apply()


def tables(source: Source) -> list[tuple[str, str]]:
    """Names, and the type of the column."""
    found = [(f"t{number}", declared) for number, declared in enumerate(source.types)]
    return found + [(f"k{number}", declared) for number, declared in enumerate(source.types) if source.keyed(declared)]


@pytest.mark.parametrize("url", ["sqlite", "postgresql", "mariadb", "mysql"], indirect=True)
def test_each_value_of_each_type_comes_into_each_database_and_back(source: Source, engine: sa.Engine) -> None:
    """MySQL and MariaDB tell by SELECT what they have. What PostgreSQL and SQLite have is written into tables of the source's types, which are asked then."""
    if engine.dialect.name == "postgresql":
        _times_by_hand(source, engine)
    apply(engine, source)
    wrong = []
    for table, declared in tables(source):
        if engine.dialect.name in ("mysql", "mariadb"):
            found = _select_rows(engine, table, declared)
        else:
            found = _write_back(source, engine, table, declared)
        expected = source.read(table, declared)
        if found != expected:
            wrong.append(f"{table} {declared}: {found!r:.200} and not {expected!r:.200}")
    assert not wrong, "\n".join(wrong)


def _times_by_hand(source: Source, engine: sa.Engine) -> None:
    """TIME of MySQL has 838 hours, and less than none: who has such values makes the column an interval."""
    with engine.begin() as connection:
        for table, declared in tables(source):
            if base(declared) == "TIME":
                key = ("id", "v")[table[0] == "k"]
                connection.exec_driver_sql(f"CREATE TABLE {table} (id integer, v interval, PRIMARY KEY ({key}))")


def _select_rows(engine: sa.Engine, table: str, declared: str) -> list[tuple[Any, ...]]:
    with engine.connect() as connection:
        connection.exec_driver_sql("SET time_zone = '+00:00'")
        expression = "v" if base(declared) == "VECTOR" else shown_expression(declared)
        found = connection.exec_driver_sql(f"SELECT id, {expression} FROM {table}").all()
    if base(declared) == "VECTOR":
        found = [(id_, value and _format_floats(json.loads(value))) for id_, value in found]  # type: ignore[misc]
    return sorted((row[0], plain_value(declared, row[1])) for row in found)


def _format_floats(values: list[float]) -> str:
    return struct.pack(f"<{len(values)}f", *values).hex().upper()


def _write_back(source: Source, engine: sa.Engine, table: str, declared: str) -> list[tuple[Any, ...]]:
    """Rows of a target, written into a table of the source's type."""
    text = engine.dialect.name == "postgresql" and base(declared) in ("TIME", "DATE", "DATETIME", "TIMESTAMP", "JSON")
    with engine.connect() as connection:
        if engine.dialect.name == "postgresql":
            connection.exec_driver_sql("SET TIME ZONE 'UTC'")
        found = connection.exec_driver_sql(f"SELECT id, {'v::text' if text else 'v'} FROM {table}").all()
    with source.server.database("back") as back:
        with source.server.connect(database=back.name, autocommit=True) as connection, connection.cursor() as cursor:
            cursor.execute("SET sql_mode = '', time_zone = '+00:00'")
            cursor.execute(f"CREATE TABLE {table} (id INT, v {declared})")
            for id_, value in found:
                expression, values = _to_mysql(declared, value)
                cursor.execute(f"INSERT INTO {table} VALUES (%s, {expression})", (id_, *values))
        return source.read(table, declared, database=back.name)


def _to_mysql(declared: str, value: Any) -> tuple[str, list[Any]]:
    """A value of PostgreSQL or SQLite, in MySQL's SQL."""
    kind = base(declared)
    if value is None:
        return "NULL", []
    if kind == "BIT" and isinstance(value, str):
        return "%s", [int(value, 2)]
    if kind == "VECTOR":
        return "STRING_TO_VECTOR(%s)", [value if isinstance(value, str) else json.dumps(value)]
    if kind in GEOMETRIES:
        wkb, srid = bytes(value), 0
        if wkb[4] & 0x20:
            srid, wkb = int.from_bytes(wkb[5:9], "little"), wkb[:4] + bytes([wkb[4] & ~0x20]) + wkb[9:]
        return "ST_GeomFromWKB(%s, %s)", [wkb, srid]
    if kind == "TIMESTAMP" and isinstance(value, str):
        return "%s", [value.removesuffix("+00")]
    return "%s", [
        bytes(value) if isinstance(value, memoryview) else str(value) if isinstance(value, Decimal) else value
    ]
