"""The Oracle test server: transactions that see one state of the database, and tables that only a session knows."""

import oracledb
import pytest

from dev.servers.oracle import Oracle
from tests.support.sources.oracle.oracle_server import code, mine_rows, rows, run
from tests.support.sources.oracle.oracle_sessions import its_capture, its_owner, own_server  # noqa: F401 - fixtures

PRIVATE = "CREATE PRIVATE TEMPORARY TABLE ORA$PTT_T"


def test_a_serializable_transaction_sees_the_state_in_which_it_began_and_its_own_changes(
    server: Oracle, owner: oracledb.Connection
) -> None:
    run(owner, "CREATE TABLE s (id NUMBER(9) PRIMARY KEY, v VARCHAR2(9))")
    run(owner, "INSERT INTO s VALUES (1, 'a')", "INSERT INTO s VALUES (2, 'a')", "COMMIT")
    with server.connect() as other:
        run(other, "ALTER SESSION SET ISOLATION_LEVEL=SERIALIZABLE")
        assert rows(other, "SELECT v FROM s ORDER BY id") == [("a",), ("a",)]
        run(owner, "UPDATE s SET v = 'b' WHERE id = 1", "INSERT INTO s VALUES (3, 'b')", "COMMIT")
        run(other, "UPDATE s SET v = 'c' WHERE id = 2")
        assert rows(other, "SELECT v FROM s ORDER BY id") == [("a",), ("c",)]
        for statement in ("UPDATE s SET v = 'c' WHERE id = 1", "DELETE FROM s WHERE id = 1"):
            with pytest.raises(oracledb.DatabaseError) as e:
                run(other, statement)
            assert code(e) == 8177
        run(other, "COMMIT")
        assert rows(other, "SELECT v FROM s ORDER BY id") == [("b",), ("c",), ("b",)]
        run(other, "ROLLBACK", "ALTER SESSION SET ISOLATION_LEVEL=READ COMMITTED")
        assert len(rows(other, "SELECT v FROM s")) == 3
        run(owner, "DELETE FROM s WHERE id = 3", "COMMIT")
        assert len(rows(other, "SELECT v FROM s")) == 2


def test_a_private_table_is_there_for_its_session_only_and_in_no_redo(
    server: Oracle, owner: oracledb.Connection, capture: oracledb.Connection
) -> None:
    run(owner, "CREATE TABLE p (id NUMBER(9), v CLOB)", "INSERT INTO p VALUES (7, 'x')", "COMMIT")
    start = server.scn()
    run(owner, f"{PRIVATE} ON COMMIT PRESERVE DEFINITION AS SELECT id, v, 0 AS n FROM p WHERE 1 = 0")
    run(owner, f"INSERT INTO ORA$PTT_T VALUES (1, '{'x' * 3000}', 2)", "SAVEPOINT s", "DELETE FROM ORA$PTT_T")
    assert rows(owner, "SELECT COUNT(*) FROM ORA$PTT_T") == [(0,)]
    run(owner, "ROLLBACK TO s", "UPDATE ORA$PTT_T SET id = 7", "COMMIT")
    assert rows(owner, "SELECT s.n, t.id FROM ORA$PTT_T s LEFT JOIN p t ON t.id = s.id") == [(2, 7)]
    with server.connect() as other, pytest.raises(oracledb.DatabaseError, match="ORA-00942"):
        run(other, "SELECT * FROM ORA$PTT_T")
    assert rows(owner, "SELECT table_name FROM user_tables WHERE table_name LIKE 'ORA%'") == []
    run(owner, "DROP TABLE ORA$PTT_T")
    with pytest.raises(oracledb.DatabaseError, match="ORA-00942"):
        run(owner, "SELECT * FROM ORA$PTT_T")
    assert mine_rows(capture, start, where="operation_code <> 0") == []


@pytest.mark.parametrize(
    ("statement", "error"),
    [
        ("CREATE PRIVATE TEMPORARY TABLE T (id NUMBER) ON COMMIT PRESERVE DEFINITION", 903),
        ("CREATE TABLE ORA$PTT_U (id NUMBER)", 32463),
        (f"{PRIVATE} (id NUMBER PRIMARY KEY) ON COMMIT PRESERVE DEFINITION", 14451),
        (f"{PRIVATE} (id NUMBER DEFAULT 1) ON COMMIT PRESERVE DEFINITION", 14451),
        (f"{PRIVATE} (id NUMBER)", 900),
    ],
)
def test_what_a_private_table_cannot_be_is_refused(owner: oracledb.Connection, statement: str, error: int) -> None:
    with pytest.raises(oracledb.DatabaseError) as e:
        run(owner, statement)
    assert code(e) == error
