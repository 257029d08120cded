"""Long values and their rows, as the test server writes them into its redo."""

from __future__ import annotations

import random
from contextlib import closing
from typing import Any

import numpy as np
import oracledb
import pytest

from airflow_provider_cdc.core.model.table_schema import TableId, TableSchema
from airflow_provider_cdc.sources.oracle.redo.lob_assembler import read_with_lobs
from airflow_provider_cdc.sources.oracle.redo.redo_statement_reader import RedoReader
from airflow_provider_cdc.sources.oracle.schema.column_types import ColumnType, make_column
from dev.servers.oracle import Oracle
from tests.sources.oracle.redo.redo_tables import config, images
from tests.support.sources.oracle.oracle_server import NLS, mine_rows, run
from tests.support.sources.oracle.oracle_sessions import its_owner, own_server  # noqa: F401 - fixtures

DDL = (
    "CREATE TABLE parts (id NUMBER(9) PRIMARY KEY, v VARCHAR2(60), s VARCHAR2(32767), c CLOB, d NCLOB, b BLOB, x XMLTYPE)",
    "ALTER TABLE parts ADD SUPPLEMENTAL LOG DATA (ALL) COLUMNS",
)
SERVED = {
    "ID": "NUMBER(9)",
    "V": "VARCHAR2(60)",
    "S": "VARCHAR2(32767)",
    "C": "CLOB",
    "D": "NCLOB",
    "B": "BLOB",
    "X": "XMLTYPE",
}


def read_log(server: Oracle, start: int) -> tuple[RedoReader, Any]:
    """Read the redo of the table since an SCN."""
    given = config(**{"lob.enabled": True})
    id_ = TableId(namespace="APP", name="PARTS")
    made = [make_column(id_, n, ColumnType.parse(t), given, nullable=True) for n, t in SERVED.items()]
    reader = RedoReader(TableSchema(id=id_, columns=tuple(m for m in made if m), key=("ID",)), given)
    with closing(server.capture()) as connection:
        run(connection, NLS)
        found = mine_rows(connection, start, columns="operation_code, sql_redo, row_id, xid, csf, rollback")
    texts, codes, ids, transactions = [], [], [], []
    more = False
    for code, text, row_id, xid, csf, rollback in found:
        assert not rollback
        if more:
            texts[-1] += text
        elif code:
            texts.append(text)
            codes.append(code)
            ids.append(row_id)
            transactions.append(int.from_bytes(xid, "big") >> 1)
        more = bool(csf)
    return reader, read_with_lobs(reader, texts, np.array(codes), np.array(transactions), ids)


def replay_log(server: Oracle, start: int) -> dict[int, dict[str, Any]]:
    """The table that the log makes, out of nothing."""
    reader, found = read_log(server, start)
    assert found.unknown is None
    table: dict[int, dict[str, Any]] = {}
    for at in range(len(found.rows)):
        row = images(found.rows, at, reader.schema)
        if "after" not in row:
            del table[row["before"]["ID"]]
            continue
        if "before" in row and row["before"]["ID"] != row["after"]["ID"]:
            table[row["after"]["ID"]] = table.pop(row["before"]["ID"])
        table.setdefault(row["after"]["ID"], {}).update(row["after"])
    return table


def server_rows(server: Oracle) -> dict[int, dict[str, Any]]:
    """Return the rows that the server has, by their ids."""
    rows_ = [dict(zip(SERVED, row, strict=True)) for row in server.table_at("PARTS")]
    for row in rows_:
        row["ID"] = int(row["ID"])
        row["B"] = None if row["B"] is None else row["B"].hex()
    return {row["ID"]: row for row in rows_}


@pytest.fixture(autouse=True, params=["19c", "23ai", "23ai_basicfile"])
def lob_shape(request: pytest.FixtureRequest, server: Oracle) -> None:
    server.configure(lob_shape=request.param)


INSERT = "INSERT INTO parts VALUES (:1, :2, :3, :4, :5, :6, :7)"
CALLS = (
    "DECLARE l CLOB; BEGIN SELECT c INTO l FROM parts WHERE id = {id} FOR UPDATE; {calls} END;",
    "DECLARE l BLOB; BEGIN SELECT b INTO l FROM parts WHERE id = {id} FOR UPDATE; {calls} END;",
)


def test_long_values_of_the_server_come_back(server: Oracle, owner: oracledb.Connection) -> None:
    run(owner, *DDL)
    start = server.scn()
    with owner.cursor() as cursor:
        long = "it's long, žš日本 " * 900
        cursor.execute(INSERT, [1, "one", "s" * 9000, long, "日本" * 3000, b"\0\xff" * 5000, "<a>it's é</a>" * 1])
        cursor.execute(INSERT, [2, "two", "short", "short", "kürzer", b"b", None])
        cursor.execute(INSERT, [3, "three", None, None, None, None, "<x>" + "y" * 9000 + "</x>"])
        cursor.execute("INSERT INTO parts (id, c, b) VALUES (4, EMPTY_CLOB(), EMPTY_BLOB())")
        cursor.execute("UPDATE parts SET c = :1 WHERE id = 2", ["d" * 9000])
        cursor.execute("UPDATE parts SET c = :1, v = 'new' WHERE id = 1", ["shorter now"])
        cursor.execute("UPDATE parts SET s = :1, d = NULL, x = NULL WHERE id = 1", ["t" * 20_000])
        cursor.execute("UPDATE parts SET id = 30, b = :1 WHERE id = 3", [b"\1" * 7000])
    owner.commit()
    found = replay_log(server, start)
    assert found == server_rows(server)
    assert found[1]["S"] == "t" * 20_000
    _, rows_ = read_log(server, start)
    assert rows_.rows.op.tolist() == [1, 1, 1, 1, 2, 2, 2, 2]


def test_dbms_lob_on_the_server_changes_values_of_the_same_transaction(
    server: Oracle, owner: oracledb.Connection
) -> None:
    run(owner, *DDL)
    start = server.scn()
    with owner.cursor() as cursor:
        cursor.execute(INSERT, [1, "one", None, "abcdefghij" * 300, None, b"\1\2\3", None])
        text, binary = CALLS
        calls = "dbms_lob.write(l, 3, 2, 'XYZ'); dbms_lob.writeappend(l, 4, 'tail'); dbms_lob.erase(l, 2, 100);"
        cursor.execute(text.format(id=1, calls=calls + " dbms_lob.trim(l, 2990);"))
        cursor.execute(binary.format(id=1, calls="dbms_lob.write(l, 1, 6, HEXTORAW('ff'));"))
    owner.commit()
    assert replay_log(server, start) == server_rows(server)
    _, found = read_log(server, start)
    assert found.rows.op.tolist() == [1]


def test_dbms_lob_on_a_value_of_another_transaction_is_unknown_and_says_so(
    server: Oracle, owner: oracledb.Connection
) -> None:
    run(owner, *DDL, "INSERT INTO parts (id, c) VALUES (1, 'abcdefghij')", "COMMIT")
    start = server.scn()
    run(owner, CALLS[0].format(id=1, calls="dbms_lob.writeappend(l, 4, 'tail');"), "COMMIT")
    reader, found = read_log(server, start)
    assert found.rows.op.tolist() == [2]
    assert found.unknown is not None
    assert found.unknown[:, 0].tolist() == [name == "C" for name in reader.schema.column_names]
    assert found.rows.unavailable_after is not None
    assert found.rows.unavailable_after[list(SERVED).index("C"), 0]


@pytest.mark.parametrize("seed", range(6))
def test_random_changes_on_the_server_come_back(server: Oracle, owner: oracledb.Connection, seed: int) -> None:
    r = random.Random(seed)
    run(owner, *DDL)
    start = server.scn()

    def text(most: int) -> str:
        return "".join(r.choice("ab é日'\\") for _ in range(r.choice((0, 1, 40, r.randint(1, most)))))

    def draw_value(column: str) -> Any:
        if r.random() < 0.15:
            return None
        if column == "x":
            return f"<a>{'y' * r.randint(0, 5000)}</a>"
        if column == "b":
            return r.randbytes(r.choice((1, 100, r.randint(1, 9000))))
        return (text(60 if column == "v" else 9000) or "e")[: 20 if column == "v" else None]

    columns = ("v", "s", "c", "d", "b", "x")
    known: set[int] = set()

    def execute(sql: str, *binds: Any) -> None:
        with owner.cursor() as cursor:
            cursor.execute(sql, binds)

    for _ in range(60):
        id_ = r.randint(1, 6)
        if id_ not in known:
            execute(INSERT, id_, *(draw_value(n) for n in columns))
            known.add(id_)
        elif r.random() < 0.15:
            execute("DELETE FROM parts WHERE id = :1", id_)
            known.discard(id_)
        else:
            picked = r.sample(columns, r.randint(1, 3))
            sets = ", ".join(f"{n} = :{i}" for i, n in enumerate(picked, 1))
            execute(f"UPDATE parts SET {sets} WHERE id = {id_}", *(draw_value(n) for n in picked))
        if r.random() < 0.3:
            owner.commit()
    owner.commit()
    assert replay_log(server, start) == server_rows(server)
