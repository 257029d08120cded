"""The reader against a server: what it derives from the text must be what ``information_schema`` says afterwards.

Random ALTER sequences are run on real servers. Whatever a server accepts, the reader must understand, and both must end
with the same columns and keys.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import pymysql
import pytest

from airflow_provider_cdc.sources.mysql.schema.ddl import (
    AddColumn,
    AlterTable,
    ChangeColumn,
    ColumnDef,
    DropColumn,
    RenameColumn,
    SetDefault,
    Statement,
    UnknownStatement,
    parse_statements,
    parse_type,
    typed_default,
)
from tests.sources.mysql.schema.ddl.applied import PRIMARY, Table
from tests.sources.mysql.schema.ddl.generated import PREFIXED, TYPES, Statements


@dataclass
class Server:
    """A connection and what kind of server is behind it."""

    connection: Any
    database: str
    mariadb: bool
    version: int

    def run(self, sql: str) -> list[tuple[Any, ...]]:
        with self.connection.cursor() as cursor:
            cursor.execute(sql)
            return list(cursor.fetchall())

    def columns(self, table: str) -> list[dict[str, Any]]:
        """Facts about the columns in the order of the table."""
        names = (
            "column_name, data_type, column_type, is_nullable, character_set_name, collation_name,"
            " character_maximum_length, numeric_precision, numeric_scale, datetime_precision, column_default, extra"
        )
        rows = self.run(
            f"SELECT {names} FROM information_schema.columns WHERE table_schema = '{self.database}'"
            f" AND table_name = '{table}' ORDER BY ordinal_position"
        )
        return [dict(zip(names.split(", "), row, strict=True)) for row in rows]

    def keys(self, table: str) -> dict[str, tuple[str, ...]]:
        """Primary and unique keys without prefixes and expressions."""
        rows = self.run(
            "SELECT index_name, column_name, sub_part FROM information_schema.statistics WHERE non_unique = 0"
            f" AND table_schema = '{self.database}' AND table_name = '{table}' ORDER BY index_name, seq_in_index"
        )
        bad = {r[0] for r in rows if r[1] is None or (r[2] is not None and r[0] != PRIMARY)}
        keys: dict[str, tuple[str, ...]] = {}
        for index, column, _ in rows:
            if index not in bad:
                keys[index] = (*keys.get(index, ()), column)
        return keys


def same_charset(one: str | None, other: str | None) -> bool:
    return (one or "").replace("utf8mb3", "utf8") == (other or "").replace("utf8mb3", "utf8")


def compare(server: Server, table: Table, name: str, history: list[str]) -> None:
    """Every fact that the reader derived is the catalog's."""
    context = ";\n".join(history)
    found = server.columns(name)
    assert [c.name for c in table.columns] == [f["column_name"] for f in found], context
    for column, fact in zip(table.columns, found, strict=True):
        problem = f"{column}\n{fact}\n{context}"
        declared = parse_type(fact["column_type"])
        data_type = {"geomcollection": "geometrycollection"}.get(fact["data_type"], fact["data_type"])
        if column.type == "json" and server.mariadb:
            assert data_type == "longtext", problem
            continue
        assert column.type == data_type == declared.type, problem
        assert column.unsigned == declared.unsigned == ("unsigned" in fact["column_type"]), problem
        assert column.zerofill == declared.zerofill, problem
        assert column.values == declared.values, problem
        assert (column.nullable is not False) == (fact["is_nullable"] == "YES"), problem
        if column.charset != "binary":  # MySQL says nothing then, MariaDB binary
            assert same_charset(column.charset, fact["character_set_name"]), problem
        if column.collation is not None:
            assert same_charset(column.collation, fact["collation_name"]), problem
        assert column.auto_increment == ("auto_increment" in fact["extra"].lower()), problem
        assert column.generated == ("GENERATED" in fact["extra"].replace("DEFAULT_GENERATED", "")), problem
        assert column.invisible == ("INVISIBLE" in fact["extra"]), problem
        if column.type in ("char", "varchar", "binary", "varbinary"):
            assert column.length == fact["character_maximum_length"], problem
        elif column.type in ("decimal", "bit"):
            assert (column.length, column.scale) == (fact["numeric_precision"], fact["numeric_scale"]), problem
        elif column.type in ("time", "datetime", "timestamp"):
            assert (column.length or 0) == fact["datetime_precision"], problem
        compare_default(server, column, fact, problem)
    keys = server.keys(name)
    # A prefix may be as long as the column: the server knows, the text does not say.
    derived, there = ({k: v for k, v in found.items() if k != PREFIXED} for found in (table.keys, keys))
    if sorted(derived.values()) != sorted(there.values()) or derived.get(PRIMARY) != there.get(PRIMARY):
        raise AssertionError(f"{derived} != {there}\n{context}")
    table.keys = there  # with the names that the server chose


def compare_default(server: Server, column: ColumnDef, fact: dict[str, Any], problem: str) -> None:
    text = fact["column_default"]
    if server.mariadb and text is not None:
        text = None if text == "NULL" else text
    if column.default is None or column.default.value is None:
        if not column.generated:
            assert text is None, problem
        return
    if column.auto_increment:  # MySQL takes a default for it, and does not show it
        return
    if column.default.is_expression:
        assert text is not None or "DEFAULT_GENERATED" in fact["extra"], problem
        return
    if text is None and "DEFAULT_GENERATED" in fact["extra"]:  # a literal in parentheses, to MySQL 8.0.15
        return
    assert text is not None, problem
    # Out of quotes, out of b'…', as a column of that type would have it.
    literal = f"_utf8mb4{text[len('_utf8mb4') :]}" if text.startswith("_utf8mb4") else text
    if server.mariadb:
        (statement,) = parse_statements(f"ALTER TABLE t ALTER a SET DEFAULT {literal}")
    elif text.startswith("b'"):
        (statement,) = parse_statements(f"ALTER TABLE t ALTER a SET DEFAULT {text}")
    else:
        escaped = literal.replace("\\'", "'")
        quoted = (
            escaped if escaped.startswith("_utf8mb4'") else "'" + text.replace("\\", "\\\\").replace("'", "''") + "'"
        )
        (statement,) = parse_statements(f"ALTER TABLE t ALTER a SET DEFAULT {quoted}")
    assert isinstance(statement, AlterTable)
    (action,) = statement.actions
    assert isinstance(action, SetDefault)
    assert action.default is not None
    expected = typed_default(action.default, column).value
    if text.startswith("0x") and not server.mariadb:
        expected = bytes.fromhex(text[2:]).decode()
    if column.type == "binary" and expected is not None:  # filled up
        expected = expected.rstrip("\0")
    if column.type in ("decimal", "float", "double"):
        assert expected is not None
        assert Decimal(column.default.value) == Decimal(expected), problem
    elif column.type in ("datetime", "time", "timestamp"):
        assert expected is not None
        assert re.sub(r"\.0+$", "", column.default.value) == re.sub(r"\.0+$", "", expected), problem
    else:
        assert column.default.value == expected, problem


# --- the tests ------------------------------------------------------------------------------------------------------


SERVERS = [
    "mariadb",
    pytest.param("mariadb 11.8", marks=pytest.mark.mysql),
    pytest.param("mysql97", marks=pytest.mark.mysql),
    pytest.param("mysql80", marks=pytest.mark.mysql),
]


@pytest.fixture(scope="module", params=SERVERS)
def server(request: pytest.FixtureRequest, mariadb: Any) -> Iterator[Server]:
    """Each kind of server in turn, with an empty database whose character set is known."""
    found = mariadb
    if request.param == "mariadb 11.8":
        found = request.getfixturevalue("mariadb_factory")("11.8")
    elif request.param != "mariadb":
        found = request.getfixturevalue(request.param)
    with found.database("ddl") as database:
        opened = Server(database.connect(), database.name, "mariadb" in request.param, number(found.version))
        opened.run(f"ALTER DATABASE {database.name} CHARACTER SET latin1 COLLATE latin1_swedish_ci")
        opened.run("SET SESSION sql_mode = 'STRICT_ALL_TABLES', explicit_defaults_for_timestamp = 1, sql_log_bin = 0")
        opened.run(f"USE {database.name}")
        yield opened
        opened.connection.close()


def number(version: str) -> int:
    """``8.0.15`` → 80015."""
    major, minor, patch = (int(n) for n in re.findall(r"\d+", version)[:3])
    return major * 10_000 + minor * 100 + patch


def is_accepted(server: Server, sql: str) -> bool:
    """Check whether the server took the statement."""
    try:
        server.run(sql)
    except (pymysql.err.DatabaseError, pymysql.err.InterfaceError):
        return False
    return True


def parse_one(server: Server, sql: str) -> Statement:
    """The statement as the reader sees it."""
    (statement,) = parse_statements(sql, version=server.version)
    return statement


def is_a_riddle(table: Table, statement: Statement) -> bool:
    """Check whether the text alone does not tell what becomes of keys.

    A column gets the name that another one loses, and the key with it; or the key is over the bytes of an ENUM or a
    SET that becomes something longer, and is then a key over a prefix.
    """
    actions = statement.actions if isinstance(statement, AlterTable) else ()
    added = {a.column.name.lower() for a in actions if isinstance(a, AddColumn)}
    lost = {a.old.lower() for a in actions if isinstance(a, RenameColumn | ChangeColumn)}
    lost |= {a.name.lower() for a in actions if isinstance(a, DropColumn)}
    types = {c.name.lower(): c.type for c in table.columns}
    keys = {part.lower() for parts in table.keys.values() for part in parts}
    changed = {a.old.lower() for a in actions if isinstance(a, ChangeColumn)}
    return bool(added & lost) or any(types.get(name) in ("enum", "set") for name in keys & changed)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("definition", TYPES)
def test_each_type(server: Server, definition: str) -> None:
    for charset in ("latin1", "utf8mb4", "binary"):
        server.run("DROP TABLE IF EXISTS t")
        sql = f"CREATE TABLE t (a {definition}, b INT) CHARSET={charset}"
        server.run(sql)
        table = Table("latin1")
        table.apply(parse_one(server, sql))
        compare(server, table, "t", [sql])


@pytest.mark.sampled(3)
@pytest.mark.parametrize("seed", range(30))
def test_random_alters(server: Server, seed: int) -> None:
    statements = Statements(seed, mariadb=server.mariadb)
    taken = 0
    server.run("DROP TABLE IF EXISTS t")
    while not is_accepted(server, create := statements.create("t")):
        pass
    table = Table("latin1")
    table.apply(parse_one(server, create))
    history = [create]
    compare(server, table, "t", history)
    for _ in range(40):
        sql = statements.alter("t", table)
        statement = parse_one(server, sql)
        if isinstance(statement, UnknownStatement) and "a new column is converted" in statement.reason:
            continue
        if is_a_riddle(table, statement) or not is_accepted(server, sql):
            continue
        taken += 1
        history.append(sql)
        table.apply(statement)
        compare(server, table, "t", history)
        if taken == 15:
            break
    assert taken >= 3, "hardly any statement was accepted: the generator is out of touch with this server"


def test_what_the_server_prints(server: Server) -> None:
    """SHOW CREATE TABLE is what dumps are made of."""
    for seed in range(100, 130):
        statements = Statements(seed, mariadb=server.mariadb)
        server.run("DROP TABLE IF EXISTS t, printed")
        while not is_accepted(server, statements.create("t")):
            pass
        ((_, sql),) = server.run("SHOW CREATE TABLE t")
        table = Table("latin1")
        table.apply(parse_one(server, sql))
        compare(server, table, "t", [sql])
