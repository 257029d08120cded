"""The Oracle test server's rows of long values, in the shape of 23ai, and of types that LogMiner does not support.

The expected sequences are those of the table "Rows per statement" of
https://github.com/osodevops/kafka-connect-oracle-cdc, oracle-cdc-core/src/main/resources/reference/lob-redo-shapes.md,
which a real Oracle Database Free 23ai has given.
"""

from collections.abc import Iterator

import oracledb
import pytest

from dev.servers.oracle import Oracle
from tests.support.sources.oracle.oracle_server import mine_rows, rows, run
from tests.support.sources.oracle.oracle_sessions import its_capture, its_owner, own_server  # noqa: F401 - fixtures

BIG, BIG2 = "a" * 9000 + "z", "b" * 11_000 + "y"
EMPTY_ROW_ID = "AAAAAAAAAAAAAAAAAA"
NAMES = {1: "INSERT", 2: "DELETE", 3: "UPDATE", 9: "INTERNAL", 10: "LOB_WRITE", 11: "LOB_TRIM", 29: "LOB_ERASE"}
LARGE = "INTERNAL [placeholder], LOB_WRITE [placeholder]+"
CUT = {"23ai": ", LOB_TRIM [placeholder]", "23ai_basicfile": ", INTERNAL [placeholder], LOB_TRIM [placeholder]"}
INSERT = "INSERT INTO lob VALUES (:1, :2, :3, :4, :5)"
CALL = "DECLARE l CLOB; n INTEGER := 10; BEGIN SELECT c INTO l FROM lob WHERE id = 2 FOR UPDATE; {} END;"
OF_BLOB = (
    CALL.format("dbms_lob.write(l, 4, 1, HEXTORAW('CAFEBABE'));")
    .replace("l CLOB", "l BLOB")
    .replace("c INTO", "b INTO")
)
START = (
    (INSERT, [1, "one", "small", "n", b"\xde\xad"]), (INSERT, [2, "two", BIG, "n" * 5000, bytes(9000)]),
    (INSERT, [3, "three", BIG, None, None]),
)  # fmt: skip
STATEMENTS: dict[str, tuple[str, list[object], str]] = {
    "insert small literals": (INSERT, [9, "one", "small", "n", b"\xde"], "INSERT [placeholder], UPDATE [real]"),
    "insert large values": (
        INSERT, [9, "two", BIG, "n" * 5000, bytes(9000)], f"INSERT [placeholder], {LARGE}, {LARGE}, {LARGE}",
    ),
    "insert one large value, others null": (
        INSERT, [9, "x", BIG, None, None], f"INSERT [placeholder], {LARGE}, UPDATE [real]",
    ),
    "insert without long values": ("INSERT INTO lob (id) VALUES (:1)", [9], "INSERT [placeholder], UPDATE [real]"),
    "update small literal": ("UPDATE lob SET c = :1 WHERE id = 1", ["changed"], "UPDATE [real]"),
    "update large value": ("UPDATE lob SET c = :1 WHERE id = 2", [BIG2], LARGE + "CUT"),
    "update a column and a large value": (
        "UPDATE lob SET name = 'both', c = :1 WHERE id = 3", [BIG], f"UPDATE [placeholder], {LARGE}CUT",
    ),
    "update a null NCLOB to a large value": (
        "UPDATE lob SET nc = :1 WHERE id = 3", ["é" * 3000], f"UPDATE [placeholder], {LARGE}",
    ),
    "update a non-LOB column": ("UPDATE lob SET name = :1 WHERE id = 2", ["new"], "UPDATE [real]"),
    "WRITEAPPEND": (CALL.format("dbms_lob.writeappend(l, 5, 'hello');"), [], "INTERNAL [real], LOB_WRITE [real]"),
    "WRITE in the middle": (CALL.format("dbms_lob.write(l, 4, 101, 'MIDL');"), [], "INTERNAL [real], LOB_WRITE [real]"),
    "TRIM": (CALL.format("dbms_lob.trim(l, 700);"), [], "INTERNAL [real], LOB_TRIM [placeholder]"),
    "ERASE": (CALL.format("dbms_lob.erase(l, n, 1);"), [], "INTERNAL [real], LOB_ERASE [placeholder]"),
    "WRITE on a BLOB": (OF_BLOB, [], "INTERNAL [real], LOB_WRITE [real]"),
    "update two rows' large values": (
        "UPDATE lob SET c = :1 WHERE id IN (2, 3)", [BIG2], f"{LARGE}CUT, {LARGE}CUT",
    ),
    "update large value to small literal": ("UPDATE lob SET c = :1 WHERE id = 3", ["short"], "UPDATE [real]"),
    "update large value to EMPTY_CLOB": ("UPDATE lob SET nc = EMPTY_CLOB() WHERE id = 2", [], "UPDATE [real]"),
    "update to NULL": ("UPDATE lob SET b = NULL WHERE id = 2", [], "UPDATE [real]"),
    "delete": ("DELETE FROM lob WHERE id = 3", [], "DELETE [real]"),
}  # fmt: skip


@pytest.fixture(params=["23ai", "23ai_basicfile"])
def lob_shape(request: pytest.FixtureRequest, server: Oracle, owner: oracledb.Connection) -> Iterator[str]:
    server.configure(lob_shape=request.param)
    run(
        owner,
        "CREATE TABLE lob (id NUMBER PRIMARY KEY, name VARCHAR2(50), c CLOB, nc NCLOB, b BLOB)",
        "ALTER TABLE lob ADD SUPPLEMENTAL LOG DATA (ALL) COLUMNS",
    )
    for sql, binds in START:
        with owner.cursor() as cursor:
            cursor.execute(sql, binds)
    owner.commit()
    yield request.param
    server.configure(lob_shape="19c")


def sequence(found: list[tuple[int, str, int]]) -> str:
    """Operations, undo flags and kinds of ROWIDs, as the reference writes them."""
    shown: list[str] = []
    for code, row_id, undo in found:
        name = f"{NAMES[code]}{' (undo)' if undo else ''} [{'placeholder' if row_id == EMPTY_ROW_ID else 'real'}]"
        if shown and shown[-1].rstrip("+") == name and code == 10:
            shown[-1] = f"{name}+"
        else:
            shown.append(name)
    return ", ".join(shown)


@pytest.mark.parametrize("name", STATEMENTS)
def test_a_statement_on_long_values_has_the_rows_of_a_real_23ai(
    server: Oracle, owner: oracledb.Connection, capture: oracledb.Connection, lob_shape: str, name: str
) -> None:
    sql, binds, expected = STATEMENTS[name]
    start = server.scn()
    with owner.cursor() as cursor:
        cursor.execute(sql, binds)
    owner.commit()
    found = mine_rows(capture, start, columns="operation_code, row_id, rollback", where="seg_owner = 'APP' AND csf = 0")
    assert sequence(found) == expected.replace("CUT", CUT[lob_shape])


def test_pieces_are_whole_blocks_and_locators_have_no_text(
    server: Oracle, owner: oracledb.Connection, capture: oracledb.Connection, lob_shape: str
) -> None:
    start = server.scn()
    with owner.cursor() as cursor:
        cursor.execute("UPDATE lob SET c = :1 WHERE id = 2", ["it's"])
        cursor.execute("UPDATE lob SET c = :1 WHERE id = 3", ["z" * 1990])
        cursor.execute(CALL.format("dbms_lob.erase(l, n, 1);"))
    owner.commit()
    small, *found = mine_rows(capture, start, columns="operation, status, info, sql_redo")
    assert small[3] == """update "APP"."LOB" set "C" = 'it''s' where "ID" = '2' and "NAME" = 'two';"""
    assert {row for row in found if row[0] == "INTERNAL"} == {("INTERNAL", 0, None, None)}
    blocks = [row for row in found if row[0] != "INTERNAL"]
    assert {row[1:3] for row in blocks} == {(2, "LOB sql_redo not re-executable")}
    place = """ select "C" into loc_c from "APP"."LOB" where "ID" = '3' and "NAME" = 'three' for update;\n"""
    assert all(row[3].startswith("DECLARE") and row[3].endswith("END;\n\n") for row in blocks)
    assert [place in row[3] for row in blocks] == [True, True, False]


@pytest.mark.parametrize(
    ("type_", "expected"),
    [("BOOLEAN", [(255, "Unsupported", 2)]), ("JSON", [(255, "Unsupported", 2)]), ("VECTOR(3, FLOAT32)", [(255, "Unsupported", 2)]),
     ("BFILE", []), ("SYS.ODCINUMBERLIST", [])],
)  # fmt: skip
def test_changes_of_a_table_with_a_type_that_logminer_does_not_support_have_no_values_or_no_row(
    server: Oracle, owner: oracledb.Connection, capture: oracledb.Connection, type_: str, expected: list[object]
) -> None:
    run(owner, f"CREATE TABLE ty (id NUMBER, v {type_})")
    start = server.scn()
    run(owner, "INSERT INTO ty (id) VALUES (1)", "COMMIT")
    assert mine_rows(capture, start, columns="operation_code, sql_redo, status") == expected


def test_the_undo_of_a_call_on_a_value_is_a_row_of_its_own(
    server: Oracle, owner: oracledb.Connection, capture: oracledb.Connection, lob_shape: str
) -> None:
    start = server.scn()
    append = CALL.format("dbms_lob.writeappend(l, 3, 'xxx');")
    run(owner, append, "SAVEPOINT s", append, "ROLLBACK TO s", "COMMIT")
    where = "seg_owner = 'APP' AND csf = 0"
    found = mine_rows(capture, start, columns="operation_code, row_id, rollback, sql_redo", where=where)
    write = "INTERNAL [real], LOB_WRITE [real]"
    assert sequence([row[:3] for row in found]) == f"{write}, {write}, UPDATE (undo) [real]"
    assert found[-1][3] == """update "APP"."LOB" set "C" = EMPTY_CLOB();"""
    assert rows(owner, "SELECT c FROM lob WHERE id = 2")[0][0].read() == BIG + "xxx"


def test_the_undo_of_a_statement_is_one_row_for_each_table_row_newest_first(
    server: Oracle, owner: oracledb.Connection, capture: oracledb.Connection, lob_shape: str
) -> None:
    start = server.scn()
    with owner.cursor() as cursor:
        cursor.execute("SAVEPOINT s")
        cursor.execute("UPDATE lob SET c = :1 WHERE id IN (1, 2)", [BIG2])
        cursor.execute(INSERT, [11, "new", BIG, "n", b"b" * 9000])
    run(owner, "ROLLBACK TO s", "COMMIT")
    columns = "operation_code, row_id, rollback, sql_redo"
    found = mine_rows(capture, start, columns=columns, where="seg_owner = 'APP' AND rollback = 1")
    assert [(row[0], row[3]) for row in found] == [
        (2, f"""delete from "APP"."LOB" where ROWID = '{found[0][1]}';"""),
        (3, """update "APP"."LOB" set "C" = EMPTY_CLOB();"""),
        (3, """update "APP"."LOB" set "C" = 'small';"""),
    ]
