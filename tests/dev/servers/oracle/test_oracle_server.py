"""The Oracle test server through the real driver: logon, types, sessions and locks, flashback, views, rights."""

import datetime
import threading
from contextlib import closing
from decimal import Decimal
from typing import Any

import oracledb
import pytest

from dev.servers.oracle import CAPTURE_GRANTS, Oracle, OracleError
from tests.support.patience import LONGEST_S
from tests.support.sources.oracle.oracle_server import NLS, code, rows, run
from tests.support.sources.oracle.oracle_sessions import its_capture, its_owner, own_server  # noqa: F401 - fixtures

# logon


@pytest.mark.parametrize("password", ["wrong", "APP", "app "])
def test_a_wrong_password_is_refused(server: Oracle, password: str) -> None:
    with pytest.raises(oracledb.DatabaseError, match="ORA-01017"):
        server.connect(password=password)


def test_an_unknown_user_looks_like_a_wrong_password(server: Oracle) -> None:
    with pytest.raises(oracledb.DatabaseError, match="ORA-01017"):
        server.connect(user="nobody")


def test_the_listener_refuses_an_unknown_service(server: Oracle) -> None:
    with pytest.raises(oracledb.DatabaseError, match="DPY-6001"):
        server.connect(dsn=f"{server.host}:{server.port}/nothere")


def test_the_local_owner_cannot_log_on_to_the_root(server: Oracle) -> None:
    with pytest.raises(oracledb.DatabaseError, match="ORA-01017"):
        server.connect(dsn=server.dsn)


# types and binds

TYPES = {
    "NUMBER": [
        0,
        1,
        -1,
        10**20,
        -(10**37),
        Decimal("0.001"),
        Decimal("-0.5"),
        Decimal("123456789012345678901234567890.12345"),
        Decimal("1E-30"),
    ],
    "NUMBER(9)": [999999999, -999999999, None],
    "NUMBER(12,2)": [Decimal("1234567890.12"), Decimal("-0.01")],
    "NUMBER(5,-2)": [1200, -9999900],
    "NUMBER(38)": [10**37 + 1, -(10**37)],
    "FLOAT": [Decimal("1.5"), Decimal("3.14159265358979")],
    "CHAR(5)": ["ab   ", "abcde"],
    "VARCHAR2(100 CHAR)": ["x", "žluť 🎉", "it's", None],
    "NCHAR(4)": ["ž   "],
    "NVARCHAR2(50)": ["狿狸(惊", "plain"],
    "RAW(20)": [b"\x00\xff\x10", bytes(20)],
    "DATE": [datetime.datetime(1, 1, 1), datetime.datetime(2024, 2, 29, 23, 59, 58), datetime.datetime(9999, 12, 31)],
    "BINARY_DOUBLE": [1.1, -1e300, 0.0, float("inf")],
    "BINARY_FLOAT": [0.5, -2.25],
    "CLOB": ["short", "long ž🎉" * 9000, None],
    "NCLOB": ["狿" * 20000],
    "BLOB": [b"\0\1" * 40000, b"x"],
    "XMLTYPE": ["<a>ž</a>"],
    "INTERVAL DAY(3) TO SECOND(6)": [
        datetime.timedelta(days=-1, hours=-2, microseconds=-5),
        datetime.timedelta(days=999),
    ],
    "INTERVAL YEAR(4) TO MONTH": [oracledb.IntervalYM(-3, -6), oracledb.IntervalYM(1000, 11)],
}


@pytest.mark.parametrize("kind", TYPES)
def test_values_come_back_as_they_were_bound(server: Oracle, owner: oracledb.Connection, kind: str) -> None:
    run(owner, f"CREATE TABLE ty (id NUMBER PRIMARY KEY, v {kind})")
    values = TYPES[kind]
    with owner.cursor() as cursor:
        for number, value in enumerate(values):
            if kind.startswith("BINARY"):
                cursor.setinputsizes(None, getattr(oracledb, f"DB_TYPE_{kind}"))
            cursor.execute("INSERT INTO ty VALUES (:1, :2)", [number, value])
    owner.commit()
    with closing(server.connect()) as other, oracledb_decimals(other) as cursor:
        found = [row[0] for row in cursor.execute("SELECT v FROM ty ORDER BY id")]
    assert found == values


def oracledb_decimals(connection: oracledb.Connection) -> oracledb.Cursor:
    """A cursor that fetches numbers exactly and LOBs as values."""
    cursor = connection.cursor()

    def handler(_: Any, metadata: Any) -> Any:
        if metadata.type_code is oracledb.DB_TYPE_NUMBER:
            return cursor.var(Decimal, arraysize=cursor.arraysize)
        long_types = {
            oracledb.DB_TYPE_CLOB: oracledb.DB_TYPE_LONG,
            oracledb.DB_TYPE_NCLOB: oracledb.DB_TYPE_LONG_NVARCHAR,
        }
        long_types[oracledb.DB_TYPE_BLOB] = oracledb.DB_TYPE_LONG_RAW
        kind = long_types.get(metadata.type_code)
        return cursor.var(kind, arraysize=cursor.arraysize) if kind else None

    cursor.outputtypehandler = handler
    return cursor


@pytest.mark.parametrize("digits", range(10))
def test_timestamps_keep_the_digits_of_their_column(owner: oracledb.Connection, digits: int) -> None:
    run(
        owner,
        f"CREATE TABLE ty (v TIMESTAMP({digits}))",
        "INSERT INTO ty VALUES (TIMESTAMP '2024-02-29 01:02:03.123456789')",
    )
    assert rows(owner, "SELECT TO_CHAR(v, 'YYYY-MM-DD HH24:MI:SS.FF6') FROM ty")[0][0].startswith(
        "2024-02-29 01:02:03."
    )
    (fetched,) = rows(owner, "SELECT v FROM ty")[0]
    expected = round(0.123456789, min(digits, 9))
    assert fetched.microsecond == int(f"{expected:.9f}"[2:8])


def test_a_timestamp_bind_keeps_microseconds_when_it_is_declared(owner: oracledb.Connection) -> None:
    value = datetime.datetime(2024, 2, 29, 1, 2, 3, 456789)
    run(owner, "CREATE TABLE ty (v TIMESTAMP(6))")
    with owner.cursor() as cursor:
        cursor.setinputsizes(oracledb.DB_TYPE_TIMESTAMP)
        cursor.execute("INSERT INTO ty VALUES (:1)", [value])
    assert rows(owner, "SELECT v FROM ty") == [(value,)]


def test_a_zoned_timestamp_is_the_same_instant_in_every_zone(owner: oracledb.Connection) -> None:
    run(owner, NLS, "CREATE TABLE ty (z TIMESTAMP WITH TIME ZONE, l TIMESTAMP WITH LOCAL TIME ZONE)")
    run(owner, "INSERT INTO ty VALUES (TIMESTAMP '2024-02-29 12:00:00 +02:00', TIMESTAMP '2024-02-29 12:00:00 +02:00')")
    assert rows(owner, "SELECT TO_CHAR(z), SYS_EXTRACT_UTC(z) FROM ty") == [
        ("2024-02-29 12:00:00.000000 +02:00", datetime.datetime(2024, 2, 29, 10)),
    ]
    assert rows(owner, "SELECT COUNT(*) FROM ty WHERE z = TIMESTAMP '2024-02-29 10:00:00 +00:00'") == [(1,)]
    run(owner, "INSERT INTO ty (z) VALUES ('2024-02-29 04:30:00.5 -05:30')")
    run(owner, "INSERT INTO ty (z) VALUES (TO_TIMESTAMP_TZ('2024-02-29 10:00:00.5 +00:00'))")
    assert (
        rows(owner, "SELECT SYS_EXTRACT_UTC(z) FROM ty WHERE l IS NULL")
        == [(datetime.datetime(2024, 2, 29, 10, 0, 0, 500000),)] * 2
    )
    assert rows(owner, "SELECT l FROM ty WHERE l IS NOT NULL") == [(datetime.datetime(2024, 2, 29, 10),)]


def test_the_columns_of_a_result_are_described(owner: oracledb.Connection) -> None:
    run(owner, "CREATE TABLE ty (a NUMBER(12,2) NOT NULL, b VARCHAR2(10 CHAR), c TIMESTAMP(3), d BLOB)")
    with owner.cursor() as cursor:
        cursor.execute("SELECT a, b AS other, c, d, COUNT(*) OVER () n, ROWID FROM ty")
        described = [(column.name, column.type_code) for column in cursor.description]
        assert (cursor.description[0].precision, cursor.description[0].scale) == (12, 2)
    assert described == [
        ("A", oracledb.DB_TYPE_NUMBER), ("OTHER", oracledb.DB_TYPE_VARCHAR), ("C", oracledb.DB_TYPE_TIMESTAMP),
        ("D", oracledb.DB_TYPE_BLOB), ("N", oracledb.DB_TYPE_NUMBER), ("ROWID", oracledb.DB_TYPE_ROWID),
    ]  # fmt: skip


def test_binds_go_by_position_and_by_name(owner: oracledb.Connection) -> None:
    run(
        owner,
        "CREATE TABLE ty (id NUMBER, v VARCHAR2(10))",
        "INSERT INTO ty VALUES (1, 'a')",
        "INSERT INTO ty VALUES (2, 'b')",
    )
    with owner.cursor() as cursor:
        assert cursor.execute("SELECT v FROM ty WHERE id = :id OR v = :v ORDER BY id", id=1, v="b").fetchall() == [
            ("a",),
            ("b",),
        ]
        assert cursor.execute("SELECT v FROM ty WHERE id >= :1 AND id <= :2", [2, 9]).fetchall() == [("b",)]
        assert cursor.execute("SELECT v FROM ty WHERE id = :1", ["2"]).fetchall() == [("b",)]


def test_many_rows_go_in_and_come_out(owner: oracledb.Connection) -> None:
    run(owner, "CREATE TABLE ty (id NUMBER PRIMARY KEY, v VARCHAR2(100))")
    with owner.cursor() as cursor:
        cursor.executemany("INSERT INTO ty VALUES (:1, :2)", [(number, f"v{number}" * 5) for number in range(3000)])
        assert cursor.rowcount == 3000
        cursor.arraysize = 700
        cursor.execute("SELECT id, v FROM ty ORDER BY id")
        assert [row[0] for row in cursor.fetchall()] == list(range(3000))


def test_returning_gives_the_values_of_the_new_row(owner: oracledb.Connection) -> None:
    run(owner, "CREATE TABLE ty (id NUMBER GENERATED ALWAYS AS IDENTITY PRIMARY KEY, v VARCHAR2(10) DEFAULT 'none')")
    with owner.cursor() as cursor:
        number, text = cursor.var(int), cursor.var(str)
        cursor.execute("INSERT INTO ty (v) VALUES (DEFAULT) RETURNING id, v INTO :n, :t", n=number, t=text)
    assert (number.getvalue(), text.getvalue()) == ([1], ["none"])


def test_lobs_are_read_in_parts_through_locators(owner: oracledb.Connection) -> None:
    run(owner, "CREATE TABLE ty (c CLOB, b BLOB)")
    text, data = "0123456789ž" * 5000, bytes(range(256)) * 200
    with owner.cursor() as cursor:
        cursor.execute("INSERT INTO ty VALUES (:1, :2)", [text, data])
        clob, blob = cursor.execute("SELECT c, b FROM ty").fetchone()
    assert (clob.size(), clob.read(10, 20), clob.read()) == (len(text), text[9:29], text)
    assert (blob.size(), blob.read(1000, 500), blob.read()) == (len(data), data[999:1499], data)


def test_a_table_is_read_by_ranges_of_row_ids(owner: oracledb.Connection) -> None:
    run(owner, "CREATE TABLE ty (id NUMBER)", "INSERT INTO ty SELECT LEVEL FROM dual CONNECT BY LEVEL <= 1000")
    ranges = rows(
        owner,
        "SELECT MIN(rid), MAX(rid) FROM (SELECT ROWID AS rid, NTILE(3) OVER (ORDER BY ROWID) AS part FROM ty)"
        " GROUP BY part ORDER BY part",
    )
    found = [
        row for low, high in ranges for row in rows(owner, "SELECT id FROM ty WHERE ROWID BETWEEN :1 AND :2", low, high)
    ]
    assert found == [(number,) for number in range(1, 1001)]
    (object_id,) = rows(owner, "SELECT data_object_id FROM user_objects WHERE object_name = 'TY'")[0]
    extents = rows(owner, "SELECT block_id, blocks FROM user_extents WHERE segment_name = 'TY'")
    count = "SELECT COUNT(*) FROM ty WHERE ROWID BETWEEN dbms_rowid.rowid_create(1, :1, 7, :2, 0) AND dbms_rowid.rowid_create(1, :3, 7, :4, 32767)"
    assert (
        sum(rows(owner, count, object_id, first, object_id, first + size - 1)[0][0] for first, size in extents) == 1000
    )


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("CASE WHEN 'abc' LIKE 'A%' THEN 1 ELSE 0 END", 0), ("NVL(NULL, 'x') || NULL || 'y'", "xy"), ("7 / 2", 3.5), ("q'[it's]'", "it's"),
        ("DECODE(2, 1, 'one', 2, 'two', 'more')", "two"), ("TO_CHAR(DATE '2024-02-29', 'DD.MM.YYYY')", "29.02.2024"), ("LENGTH('')", None),
        ("TRUNC(TO_DATE('2024-02-29 13', 'YYYY-MM-DD HH24'))", datetime.datetime(2024, 2, 29)), ("CAST('1.25' AS NUMBER(5,1))", 1.3),
    ],
)  # fmt: skip
def test_expressions_mean_what_they_mean_in_oracle(owner: oracledb.Connection, expression: str, value: Any) -> None:
    assert rows(owner, f"SELECT {expression} FROM dual") == [(value,)]


# what is not known, and what does not fit


@pytest.mark.parametrize(
    "statement",
    ["FROBNICATE the table", "SELECT 1 FROM dual CONNECT BY PRIOR a = b", "FLASHBACK TABLE t TO BEFORE DROP", "CREATE VIEW v AS SELECT 1 FROM dual",
     "ALTER SESSION SET MOOD = 'good'", "BEGIN dbms_magic.trick; END;", "EXPLAIN PLAN FOR SELECT 1 FROM dual", "SELECT 1", "ANALYZE INDEX i",
     "SELECT 1 FROM dual d JOIN dual e USING (dummy)", "BEGIN IF 1 = 1 THEN NULL; END IF; END;", "CREATE TABLE ty (a GEOMETRY)", "SELECT * FROM dual, dual"],
)  # fmt: skip
def test_an_unknown_statement_is_refused_with_its_text(owner: oracledb.Connection, statement: str) -> None:
    with pytest.raises(oracledb.DatabaseError, match="ORA-00900: invalid SQL statement") as error:
        run(owner, statement)
    assert statement in str(error.value)


@pytest.mark.parametrize(
    ("statement", "number"),
    [
        ("SELECT * FROM nope", 942), ("SELECT nope FROM ty", 904), ("SELECT magic(1) FROM dual", 904), ("INSERT INTO ty (id) VALUES (NULL)", 1400),
        ("INSERT INTO ty VALUES (1, 'x')", 1), ("INSERT INTO ty VALUES (2, '12345678901')", 12899), ("INSERT INTO ty VALUES (12345, 'x')", 1438),
        ("INSERT INTO ty VALUES ('abc', 'x')", 1722), ("SELECT 1 / 0 FROM dual", 1476), ("UPDATE ty SET id = NULL", 1407),
        ("INSERT INTO ty (id) VALUES (1, 2)", 913), ("CREATE TABLE ty (a NUMBER)", 955), ("ROLLBACK TO nowhere", 1086), ("DROP TABLE nope", 942),
        ("SELECT TO_DATE('2024-02-30', 'YYYY-MM-DD') FROM dual", 1839),
    ],
)  # fmt: skip
def test_errors_have_oracles_numbers(owner: oracledb.Connection, statement: str, number: int) -> None:
    run(owner, "CREATE TABLE ty (id NUMBER(4) PRIMARY KEY, v VARCHAR2(10))", "INSERT INTO ty VALUES (1, 'a')")
    with pytest.raises(oracledb.DatabaseError) as error:
        run(owner, statement)
    assert code(error) == number
    assert rows(owner, "SELECT id, v FROM ty") == [(1, "a")]


# sessions, transactions, locks


def test_others_see_a_change_when_it_is_committed(server: Oracle, owner: oracledb.Connection) -> None:
    run(owner, "CREATE TABLE ty (id NUMBER)", "INSERT INTO ty VALUES (1)")
    with closing(server.connect()) as other:
        assert rows(owner, "SELECT * FROM ty") == [(1,)]
        assert rows(other, "SELECT * FROM ty") == []
        owner.commit()
        assert rows(other, "SELECT * FROM ty") == [(1,)]


def test_a_savepoint_takes_back_what_came_after_it(owner: oracledb.Connection) -> None:
    run(
        owner,
        "CREATE TABLE ty (id NUMBER, v NUMBER)",
        "INSERT INTO ty VALUES (1, 1)",
        "SAVEPOINT a",
        "UPDATE ty SET v = 2",
        "SAVEPOINT b",
        "DELETE FROM ty",
    )
    run(owner, "ROLLBACK TO b")
    assert rows(owner, "SELECT * FROM ty") == [(1, 2)]
    run(owner, "ROLLBACK TO SAVEPOINT a")
    owner.commit()
    assert rows(owner, "SELECT * FROM ty") == [(1, 1)]


def test_a_failed_statement_leaves_the_transaction_as_it_was(owner: oracledb.Connection) -> None:
    run(owner, "CREATE TABLE ty (id NUMBER PRIMARY KEY)", "INSERT INTO ty SELECT LEVEL FROM dual CONNECT BY LEVEL <= 5")
    with pytest.raises(oracledb.IntegrityError, match="ORA-00001"):
        run(owner, "UPDATE ty SET id = 3 WHERE id <= 2")
    owner.commit()
    assert rows(owner, "SELECT id FROM ty ORDER BY id") == [(1,), (2,), (3,), (4,), (5,)]


def test_merge_changes_what_is_there_and_inserts_the_rest(server: Oracle, owner: oracledb.Connection) -> None:
    run(
        owner,
        "CREATE TABLE kept (id NUMBER PRIMARY KEY, v VARCHAR2(9), n NUMBER)",
        "INSERT INTO kept VALUES (1, 'old', 1)",
    )
    owner.commit()
    merge = (
        "MERGE INTO kept t USING (SELECT :1 AS id, :2 AS v FROM dual) s ON (t.id = s.id) "
        "WHEN MATCHED THEN UPDATE SET v = s.v WHEN NOT MATCHED THEN INSERT (id, v) VALUES (s.id, s.v)"
    )
    with owner.cursor() as cursor:
        cursor.executemany(merge, [(1, "new"), (2, "two"), (2, "again"), (3, None)])
        assert cursor.rowcount == 4
    expected = [(1, "new", 1), (2, "again", None), (3, None, None)]
    assert rows(owner, "SELECT * FROM kept ORDER BY id") == expected
    owner.rollback()
    assert server.table_at("KEPT") == [(1, "old", 1)]
    run(owner, merge.replace(":1", "id").replace(":2", "'x' || n").replace("FROM dual", "FROM kept"))
    run(
        owner,
        "MERGE INTO kept t USING (SELECT 1 AS id FROM dual) s ON (t.id = s.id) WHEN NOT MATCHED THEN INSERT (id) VALUES (s.id)",
    )
    owner.commit()
    assert server.table_at("KEPT") == [(1, "x1", 1)]


@pytest.mark.parametrize(
    ("merge", "number"),
    [
        ("USING (SELECT 1 AS id FROM dual UNION ALL SELECT 1 FROM dual) s ON (t.id = s.id) WHEN MATCHED THEN UPDATE SET v = 'x'", 30926),
        ("USING (SELECT 1 AS id FROM dual) s ON (t.id = s.id) WHEN MATCHED THEN UPDATE SET id = 2", 38104),
        ("USING (SELECT 2 AS id FROM dual) s ON (t.id = s.id) WHEN NOT MATCHED THEN INSERT (v) VALUES ('x')", 1400),
        ("USING (SELECT 1 AS id FROM dual) s ON (t.id = s.id) WHEN MATCHED THEN UPDATE SET v = 'x' WHERE t.id = 1", 900),
    ],
)  # fmt: skip
def test_a_merge_that_cannot_be_is_refused(owner: oracledb.Connection, merge: str, number: int) -> None:
    run(owner, "CREATE TABLE kept (id NUMBER PRIMARY KEY, v VARCHAR2(9))", "INSERT INTO kept VALUES (1, 'old')")
    with pytest.raises(oracledb.DatabaseError) as error:
        run(owner, f"MERGE INTO kept t {merge}")
    assert code(error) == number


def test_indexes_of_two_schemas_may_have_one_name(server: Oracle, owner: oracledb.Connection) -> None:
    server.admin("CREATE USER other IDENTIFIED BY other", "GRANT CREATE SESSION, CREATE TABLE TO other")
    with closing(server.connect(user="other", password="other")) as other:
        for connection in (owner, other):
            run(connection, "CREATE TABLE named (id NUMBER)", "CREATE UNIQUE INDEX one ON named (id)")
        run(owner, "DROP INDEX one", "INSERT INTO named VALUES (1)", "INSERT INTO named VALUES (1)")
        run(other, "INSERT INTO named VALUES (1)")
        with pytest.raises(oracledb.IntegrityError, match="ORA-00001"):
            run(other, "INSERT INTO named VALUES (1)")
    server.admin("DROP USER other CASCADE")


def test_a_second_writer_of_a_row_waits_for_the_first(server: Oracle, owner: oracledb.Connection) -> None:
    run(
        owner,
        "CREATE TABLE ty (id NUMBER, v NUMBER)",
        "INSERT INTO ty VALUES (1, 1)",
        "COMMIT",
        "UPDATE ty SET v = v + 10",
    )
    with closing(server.connect()) as other:
        done = threading.Event()

        def run_second() -> None:
            run(other, "UPDATE ty SET v = v * 2")
            done.set()

        thread = threading.Thread(target=run_second)
        thread.start()
        assert not done.wait(0.3)
        owner.commit()
        assert done.wait(LONGEST_S)
        thread.join()
        other.commit()
        assert rows(other, "SELECT v FROM ty") == [(22,)]


def test_a_second_insert_of_a_key_waits_and_then_fails_or_works(server: Oracle, owner: oracledb.Connection) -> None:
    run(owner, "CREATE TABLE ty (id NUMBER PRIMARY KEY)", "INSERT INTO ty VALUES (1)")
    with closing(server.connect()) as other:
        results: list[str] = []

        def run_second() -> None:
            try:
                run(other, "INSERT INTO ty VALUES (1)")
                results.append("in")
            except oracledb.IntegrityError:
                results.append("double")

        for end, expected in ((owner.rollback, "in"), (owner.commit, "double")):
            thread = threading.Thread(target=run_second)
            thread.start()
            thread.join(0.3)
            assert thread.is_alive()
            end()
            thread.join(LONGEST_S)
            assert results.pop() == expected
            other.rollback()
            if expected == "in":
                run(owner, "INSERT INTO ty VALUES (1)")


def test_two_sessions_that_wait_for_each_other_are_a_deadlock(server: Oracle, owner: oracledb.Connection) -> None:
    run(
        owner,
        "CREATE TABLE ty (id NUMBER, v NUMBER)",
        "INSERT INTO ty VALUES (1, 0)",
        "INSERT INTO ty VALUES (2, 0)",
        "COMMIT",
    )
    with closing(server.connect()) as other:
        run(owner, "UPDATE ty SET v = 1 WHERE id = 1")
        run(other, "UPDATE ty SET v = 2 WHERE id = 2")
        thread = threading.Thread(target=lambda: run(owner, "UPDATE ty SET v = 1 WHERE id = 2"))
        thread.start()
        thread.join(2)  # it waits for the other one
        with pytest.raises(oracledb.DatabaseError, match="ORA-00060"):
            run(other, "UPDATE ty SET v = 2 WHERE id = 1")
        other.rollback()
        thread.join(LONGEST_S)
        owner.commit()
        assert rows(owner, "SELECT v FROM ty") == [(1,), (1,)]


def test_for_update_waits_as_long_as_it_says(server: Oracle, owner: oracledb.Connection) -> None:
    run(owner, "CREATE TABLE ty (id NUMBER)", "INSERT INTO ty VALUES (1)", "INSERT INTO ty VALUES (2)", "COMMIT")
    assert rows(owner, "SELECT id FROM ty WHERE id = 1 FOR UPDATE") == [(1,)]
    with closing(server.connect()) as other:
        with pytest.raises(oracledb.DatabaseError, match="ORA-00054"):
            rows(other, "SELECT id FROM ty FOR UPDATE NOWAIT")
        with pytest.raises(oracledb.DatabaseError, match="ORA-30006"):
            rows(other, "SELECT id FROM ty FOR UPDATE WAIT 1")
        assert rows(other, "SELECT id FROM ty FOR UPDATE SKIP LOCKED") == [(2,)]


def test_a_call_that_waits_too_long_is_cancelled_and_the_session_goes_on(
    server: Oracle, owner: oracledb.Connection
) -> None:
    run(owner, "CREATE TABLE ty (id NUMBER)", "INSERT INTO ty VALUES (1)", "COMMIT", "DELETE FROM ty")
    with closing(server.connect()) as other:
        other.call_timeout = 2000  # its answer to the break has to come in that time, too
        with pytest.raises(oracledb.Error, match="DPY-4024"):
            run(other, "DELETE FROM ty")
        other.call_timeout = 0
        assert rows(other, "SELECT id FROM ty") == [(1,)]


def test_ddl_does_not_wait_for_open_transactions_and_table_locks_conflict(
    server: Oracle, owner: oracledb.Connection
) -> None:
    run(owner, "CREATE TABLE ty (id NUMBER)", "LOCK TABLE ty IN ROW SHARE MODE")
    with closing(server.connect()) as other:
        with pytest.raises(oracledb.DatabaseError, match="ORA-00054"):
            run(other, "ALTER TABLE ty ADD (v NUMBER)")
        run(other, "INSERT INTO ty VALUES (1)")
        with pytest.raises(oracledb.DatabaseError, match="ORA-00054"):
            run(owner, "LOCK TABLE ty IN EXCLUSIVE MODE NOWAIT")
        other.rollback()
        owner.rollback()
        run(other, "ALTER TABLE ty ADD (v NUMBER)")


# flashback and time


def test_flashback_shows_a_table_at_an_scn(
    server: Oracle, owner: oracledb.Connection, capture: oracledb.Connection
) -> None:
    run(owner, "CREATE TABLE ty (id NUMBER, v VARCHAR2(10))", "INSERT INTO ty VALUES (1, 'old')", "COMMIT")
    scn = rows(capture, "SELECT current_scn FROM v$database")[0][0]
    run(owner, "UPDATE ty SET v = 'new'", "INSERT INTO ty VALUES (2, 'two')", "COMMIT")
    assert rows(owner, f"SELECT v FROM ty AS OF SCN {scn} t WHERE t.id > 0") == [("old",)]
    assert rows(owner, "SELECT v FROM app.ty AS OF SCN :1", scn) == [("old",)]
    assert server.table_at("TY", scn) == [(1, "old")]
    assert rows(owner, "SELECT COUNT(*) FROM ty") == [(2,)]


def test_flashback_fails_where_the_past_is_gone_or_was_never(server: Oracle, owner: oracledb.Connection) -> None:
    run(owner, "CREATE TABLE ty (id NUMBER)", "INSERT INTO ty VALUES (1)", "COMMIT")
    old = server.scn()
    with pytest.raises(oracledb.DatabaseError, match="ORA-08181"):
        rows(owner, f"SELECT * FROM ty AS OF SCN {old + 100000}")
    run(owner, "ALTER TABLE ty ADD (v NUMBER)")
    with pytest.raises(oracledb.DatabaseError, match="ORA-01466"):
        rows(owner, f"SELECT * FROM ty AS OF SCN {old}")
    recent = server.scn()
    server.expire_undo()
    with pytest.raises(oracledb.DatabaseError, match="ORA-01555"):
        rows(owner, f"SELECT * FROM ty AS OF SCN {recent}")


def test_times_and_scns_lead_to_each_other(server: Oracle, owner: oracledb.Connection) -> None:
    (scn,) = rows(owner, "SELECT timestamp_to_scn(SYSTIMESTAMP) FROM dual")[0]
    (at,) = rows(owner, "SELECT scn_to_timestamp(:1) FROM dual", scn)[0]
    assert abs((at - datetime.datetime.now(datetime.UTC).replace(tzinfo=None)).total_seconds()) < 60
    with pytest.raises(oracledb.DatabaseError, match="ORA-08181"):
        rows(owner, "SELECT scn_to_timestamp(5) FROM dual")


def test_dates_are_counted_in_days(owner: oracledb.Connection) -> None:
    assert rows(owner, "SELECT COUNT(*) FROM dual WHERE SYSDATE - 1 < SYSDATE AND SYSDATE - (2/24) > SYSDATE - 1") == [
        (1,)
    ]
    run(owner, "CREATE TABLE ty (d DATE)", "INSERT INTO ty VALUES (DATE '2024-03-01')")
    assert rows(owner, "SELECT d - 1, d + INTERVAL '90' MINUTE, d - DATE '2024-02-28' FROM ty") == [
        (datetime.datetime(2024, 2, 29), datetime.datetime(2024, 3, 1, 1, 30), 2),
    ]


# views and rights


def test_the_log_views_answer_joins_and_groups(server: Oracle, capture: oracledb.Connection) -> None:
    server.switch_log()
    server.switch_log()
    current = rows(
        capture,
        "SELECT MIN(F.MEMBER) AS FILE_NAME, L.FIRST_CHANGE#, L.NEXT_CHANGE#, L.ARCHIVED, L.STATUS, 'ONLINE' AS TYPE, L.SEQUENCE# AS SEQ, L.THREAD#"
        " FROM V$LOG L INNER JOIN V$LOGFILE F ON F.GROUP# = L.GROUP# WHERE L.STATUS = 'CURRENT'"
        " GROUP BY F.GROUP#, L.FIRST_CHANGE#, L.NEXT_CHANGE#, L.STATUS, L.ARCHIVED, L.SEQUENCE#, L.THREAD#",
    )
    assert len(current) == 1
    assert current[0][2] == 18446744073709551615
    archived = rows(
        capture,
        "SELECT a.name, a.sequence# FROM v$archived_log a, v$database d WHERE a.archived = 'YES' AND a.status = 'A' AND a.name IS NOT NULL"
        " AND a.resetlogs_change# = d.resetlogs_change# AND a.resetlogs_time = d.resetlogs_time AND a.next_change# > :1"
        " AND a.dest_id IN (SELECT dest_id FROM v$archive_dest_status WHERE status = 'VALID' AND type = 'LOCAL' AND ROWNUM = 1) ORDER BY 2",
        1,
    )
    assert [row[1] for row in archived] == list(range(1, current[0][6]))
    oldest = rows(
        capture,
        "SELECT MIN(first_change#) FROM (SELECT MIN(first_change#) AS first_change# FROM v$log UNION SELECT MIN(first_change#) AS first_change# FROM v$archived_log)",
    )
    assert oldest[0][0] <= current[0][1]


def test_the_dictionary_shows_tables_columns_and_keys(owner: oracledb.Connection) -> None:
    run(
        owner,
        "CREATE TABLE ty (id NUMBER(9) CONSTRAINT ty_pk PRIMARY KEY, v VARCHAR2(10 CHAR) DEFAULT 'x' NOT NULL, t TIMESTAMP(3) WITH TIME ZONE)",
    )
    assert rows(owner, "SELECT column_name, data_type, data_precision, data_scale, char_length, nullable, data_default FROM all_tab_columns WHERE owner = 'APP' AND table_name = 'TY' ORDER BY column_id") == [
        ("ID", "NUMBER", 9, 0, 0, "N", None), ("V", "VARCHAR2", None, None, 10, "N", "'x'"), ("T", "TIMESTAMP(3) WITH TIME ZONE", None, 3, 0, "Y", None),
    ]  # fmt: skip
    assert rows(
        owner,
        "SELECT c.column_name FROM all_constraints k JOIN all_cons_columns c ON c.owner = k.owner AND c.constraint_name = k.constraint_name"
        " WHERE k.constraint_type = 'P' AND k.table_name = :1 ORDER BY c.position", "TY",
    ) == [("ID",)]  # fmt: skip
    run(owner, "ALTER TABLE ty ADD SUPPLEMENTAL LOG DATA (ALL) COLUMNS")
    assert rows(owner, "SELECT log_group_type FROM all_log_groups WHERE table_name = 'TY'") == [("ALL COLUMN LOGGING",)]
    (text,) = rows(owner, "SELECT dbms_metadata.get_ddl('TABLE', 'TY', 'APP') FROM dual")[0]
    assert "\"V\" VARCHAR2(10 CHAR) DEFAULT 'x' NOT NULL ENABLE" in text.read()


def test_the_capture_user_sees_the_pluggable_database_after_switching_to_it(
    server: Oracle, owner: oracledb.Connection, capture: oracledb.Connection
) -> None:
    run(owner, "CREATE TABLE ty (id NUMBER)", "INSERT INTO ty VALUES (7)", "COMMIT")
    with pytest.raises(oracledb.DatabaseError, match="ORA-00942"):
        rows(capture, "SELECT * FROM app.ty")
    run(capture, "ALTER SESSION SET CONTAINER = ORCLPDB1")
    assert rows(capture, "SELECT id, SYS_CONTEXT('USERENV', 'CON_NAME') FROM app.ty") == [(7, "ORCLPDB1")]
    with pytest.raises(oracledb.DatabaseError, match="ORA-65040"):
        run(capture, "BEGIN dbms_logmnr.add_logfile('x'); END;")
    run(capture, "ALTER SESSION SET CONTAINER = CDB$ROOT")
    assert rows(capture, "SELECT table_name FROM cdb_tables WHERE owner = 'APP' AND con_id = 3") == [("TY",)]


@pytest.mark.parametrize(
    ("grants", "statement", "number"),
    [
        (["CREATE SESSION"], "SELECT 1 FROM dual", 1045),
        (["SELECT ON V_$LOG", "SELECT_CATALOG_ROLE"], "SELECT 1 FROM v$log", 942),
        (["EXECUTE ON DBMS_LOGMNR", "EXECUTE_CATALOG_ROLE", "LOGMINING"], "BEGIN dbms_logmnr.end_logmnr; END;", 904),
        (["SET CONTAINER"], "ALTER SESSION SET CONTAINER = ORCLPDB1", 1031),
        (["CREATE TABLE"], "CREATE TABLE log_mining_flush (last_scn NUMBER)", 1031),
    ],
)  # fmt: skip
def test_a_missing_grant_is_felt(server: Oracle, grants: list[str], statement: str, number: int) -> None:
    assert set(grants) <= set(CAPTURE_GRANTS)
    try:
        server.admin(*(f"REVOKE {grant} FROM c##dbzuser" for grant in grants))
        with pytest.raises(oracledb.DatabaseError) as error, closing(server.capture()) as connection:
            run(connection, statement)
        assert code(error) == number
    finally:
        server.admin(*(f"GRANT {grant} TO c##dbzuser" for grant in grants))


@pytest.mark.parametrize(
    ("grant", "statement", "number"),
    [
        ("SELECT ANY TABLE", "SELECT * FROM app.ty", 942),
        ("FLASHBACK ANY TABLE", "SELECT * FROM app.ty AS OF SCN 3000000", 1031),
        ("LOCK ANY TABLE", "LOCK TABLE app.ty IN ROW SHARE MODE", 1031),
    ],
)
def test_a_missing_right_on_tables_is_felt(
    server: Oracle, owner: oracledb.Connection, grant: str, statement: str, number: int
) -> None:
    run(owner, "CREATE TABLE ty (id NUMBER)")
    try:
        server.admin(f"REVOKE {grant} FROM c##dbzuser")
        with closing(server.capture()) as connection, pytest.raises(oracledb.DatabaseError) as error:
            run(connection, "ALTER SESSION SET CONTAINER = ORCLPDB1", statement)
        assert code(error) == number
    finally:
        server.admin(f"GRANT {grant} TO c##dbzuser")


def test_a_wrong_control_call_says_so(server: Oracle) -> None:
    with pytest.raises(OracleError, match="no option mood"):
        server.configure(mood="good")
    assert server.nodes == [f"127.0.0.1:{server.port}"]


def test_comments_are_in_the_dictionary_and_in_the_redo_and_leave_the_structure(server: Oracle) -> None:
    server.sql("CREATE TABLE NOTED (ID NUMBER(9), V NUMBER)", "COMMENT ON TABLE NOTED IS 'it''s one'")
    server.sql("COMMENT ON COLUMN APP.NOTED.V IS 'a value'", "ALTER TABLE NOTED RENAME COLUMN V TO W")
    comments = "SELECT COMMENTS FROM ALL_{}_COMMENTS WHERE TABLE_NAME = 'NOTED'"
    with closing(server.connect()) as connection:
        assert rows(connection, comments.format("TAB")) == [("it's one",)]
        assert rows(connection, comments.format("COL") + " ORDER BY COLUMN_NAME") == [(None,), ("a value",)]
        run(connection, "COMMENT ON COLUMN NOTED.W IS ''")
        assert rows(connection, comments.format("COL")) == [(None,), (None,)]
        for statement, number in (
            ("COMMENT ON COLUMN NOTED.V IS 'x'", 904),
            ("COMMENT ON TABLE NOTED IS 5", 1780),
            ("COMMENT ON TABLE GONE IS 'x'", 942),
            ("COMMENT ON TABLE \"BIN$abc==$0\" IS 'x'", 38301),
        ):
            with pytest.raises(oracledb.DatabaseError, match=f"ORA-{number:05d}"):
                run(connection, statement)
        run(connection, "DROP TABLE NOTED")
        with pytest.raises(oracledb.DatabaseError, match="ORA-00942"):
            run(connection, "COMMENT ON TABLE NOTED IS 'x'")
