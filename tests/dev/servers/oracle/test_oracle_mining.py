"""The Oracle test server through the real driver: LogMiner, log files, kills, RAC, standby, rows for benchmarks."""

import random
import re
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import oracledb
import pytest

from dev.servers.oracle import Oracle
from tests.support.patience import wait_until
from tests.support.sources.oracle.oracle_server import NLS, ONLINE, add_logs, code, mine_rows, rows, run
from tests.support.sources.oracle.oracle_sessions import its_capture, its_owner, own_server  # noqa: F401 - fixtures

EMPTY_ROW_ID = "AAAAAAAAAAAAAAAAAA"


# mining


def test_mining_gives_every_change_as_text(
    server: Oracle, owner: oracledb.Connection, capture: oracledb.Connection
) -> None:
    run(
        owner,
        "CREATE TABLE ty (id NUMBER PRIMARY KEY, v VARCHAR2(20), n NUMBER(5,2), d DATE)",
        "ALTER TABLE ty ADD SUPPLEMENTAL LOG DATA (ALL) COLUMNS",
    )
    start = server.scn()
    run(
        owner,
        "INSERT INTO ty VALUES (1, 'it''s', 0.5, DATE '2024-02-29')",
        "UPDATE ty SET v = NULL",
        "DELETE FROM ty",
        "COMMIT",
    )
    assert mine_rows(capture, start) == [
        (1, """insert into "APP"."TY"("ID","V","N","D") values ('1','it''s','.5',TO_DATE('2024-02-29 00:00:00', 'YYYY-MM-DD HH24:MI:SS'));"""),
        (3, """update "APP"."TY" set "V" = NULL where "ID" = '1' and "V" = 'it''s' and "N" = '.5' and "D" = TO_DATE('2024-02-29 00:00:00', 'YYYY-MM-DD HH24:MI:SS');"""),
        (2, """delete from "APP"."TY" where "ID" = '1' and "V" IS NULL and "N" = '.5' and "D" = TO_DATE('2024-02-29 00:00:00', 'YYYY-MM-DD HH24:MI:SS');"""),
    ]  # fmt: skip
    marks = mine_rows(capture, start, columns="operation_code, operation", where="operation_code IN (6, 7, 36)")
    assert marks == [(6, "START"), (7, "COMMIT")]


def test_a_window_holds_what_lies_between_its_scns(
    server: Oracle, owner: oracledb.Connection, capture: oracledb.Connection
) -> None:
    run(owner, "CREATE TABLE ty (id NUMBER)")
    borders = [server.scn()]
    for number in range(3):
        run(owner, f"INSERT INTO ty VALUES ({number})", "COMMIT")
        borders.append(server.scn())
    for number in range(3):
        found = mine_rows(capture, borders[number], borders[number + 1], columns="scn, sql_redo")
        assert [f"'{number}'" in text for _, text in found] == [True]
        assert borders[number] <= found[0][0] <= borders[number + 1]


def test_long_texts_go_on_in_the_next_row(
    server: Oracle, owner: oracledb.Connection, capture: oracledb.Connection
) -> None:
    run(owner, "CREATE TABLE ty (id NUMBER, a VARCHAR2(4000), b VARCHAR2(4000))")
    start = server.scn()
    with owner.cursor() as cursor:
        cursor.execute("INSERT INTO ty VALUES (1, :1, :2)", ["a'" * 1900, "ž" * 2000])
    owner.commit()
    found = mine_rows(capture, start, columns="csf, sql_redo, rs_id, ssn")
    assert [row[0] for row in found] == [1] * (len(found) - 1) + [0]
    assert all(len(row[1].encode()) <= 4000 for row in found)
    assert len({row[2:] for row in found}) == 1
    whole = "".join(row[1] for row in found)
    assert whole.endswith(f"'{'ž' * 2000}');")
    assert "a''a''" in whole


def test_what_is_taken_back_leaves_undo_rows_that_name_the_row(
    server: Oracle, owner: oracledb.Connection, capture: oracledb.Connection
) -> None:
    run(owner, "CREATE TABLE ty (id NUMBER PRIMARY KEY, v NUMBER)")
    start = server.scn()
    run(
        owner,
        "INSERT INTO ty VALUES (1, 1)",
        "SAVEPOINT s",
        "UPDATE ty SET v = 2",
        "INSERT INTO ty VALUES (2, 2)",
        "ROLLBACK TO s",
    )
    with pytest.raises(oracledb.IntegrityError):
        run(owner, "INSERT INTO ty VALUES (1, 9)")
    owner.commit()
    found = mine_rows(capture, start, columns="operation_code, rollback, row_id, xid")
    assert [row[:2] for row in found] == [(1, 0), (3, 0), (1, 0), (2, 1), (3, 1), (1, 0), (2, 1)]
    assert found[3][2] == found[2][2]
    assert found[4][2] == found[1][2] == found[0][2]
    assert found[6][2] == found[5][2] != found[0][2]
    assert len({row[3] for row in found}) == 1


def test_a_rollback_undoes_every_row_and_is_marked(
    server: Oracle, owner: oracledb.Connection, capture: oracledb.Connection
) -> None:
    run(owner, "CREATE TABLE ty (id NUMBER)")
    start = server.scn()
    run(owner, "INSERT INTO ty VALUES (1)", "INSERT INTO ty VALUES (2)", "ROLLBACK")
    found = mine_rows(
        capture, start, columns="operation_code, rollback", where="seg_owner = 'APP' OR operation_code = 36"
    )
    assert found == [(1, 0), (1, 0), (2, 1), (2, 1), (36, 0)]


def test_rows_that_a_rollback_writes_may_have_partial_xids(
    server: Oracle, owner: oracledb.Connection, capture: oracledb.Connection
) -> None:
    run(owner, "CREATE TABLE ty (id NUMBER)")
    start = server.scn()
    run(owner, "INSERT INTO ty VALUES (1)", "SAVEPOINT s", "INSERT INTO ty VALUES (2)", "ROLLBACK TO s", "ROLLBACK")
    server.configure(partial_xids=True)
    try:
        found = mine_rows(capture, start, columns="operation_code, rollback, xid, xidsqn, rs_id", where="xidusn > 0")
    finally:
        server.configure(partial_xids=False)
    partial = [(code, undo, xid[4:] == b"\xff" * 4, number == 0xFFFFFFFF) for code, undo, xid, number, _ in found]
    assert partial == [
        (6, 0, False, False), (1, 0, False, False), (1, 0, False, False), (2, 1, True, True), (2, 1, True, True), (36, 0, True, True)
    ]  # fmt: skip
    assert found[-1][4] == " 0x000000.00000000.0000 "


def test_lobs_are_logged_as_a_sequence_that_ends_with_the_row(
    server: Oracle, owner: oracledb.Connection, capture: oracledb.Connection
) -> None:
    run(owner, "CREATE TABLE ty (id NUMBER, c CLOB, b BLOB)")
    start = server.scn()
    with owner.cursor() as cursor:
        cursor.execute("INSERT INTO ty VALUES (1, :1, :2)", ["c'" * 2500, b"\x01\x02"])
    owner.commit()
    found = mine_rows(capture, start, columns="operation_code, row_id, sql_redo")
    assert [row[0] for row in found] == [1, 9, 10, 10, 10, 3]
    assert found[0][2] == """insert into "APP"."TY"("ID","C","B") values ('1',EMPTY_CLOB(),EMPTY_BLOB());"""
    assert """ select "C" into loc_c from "APP"."TY" where "ID" = '1' for update;""" in found[1][2]
    assert [row[2].split("dbms_lob.write")[1].strip() for row in found[2:5]] == [
        "(loc_c, 2000, 1, buf_c);", "(loc_c, 2000, 2001, buf_c);", "(loc_c, 1000, 4001, buf_c);",
    ]  # fmt: skip
    assert found[5][2] == """update "APP"."TY" set "B" = HEXTORAW('0102') where "ID" = '1';"""
    assert [row[1] == EMPTY_ROW_ID for row in found] == [True] * 5 + [False]


def test_lob_calls_trim_erase_and_write_in_place(
    server: Oracle, owner: oracledb.Connection, capture: oracledb.Connection
) -> None:
    run(owner, "CREATE TABLE ty (id NUMBER, c CLOB)", "INSERT INTO ty VALUES (1, 'abcdefghij')", "COMMIT")
    start = server.scn()
    run(
        owner,
        "DECLARE l CLOB; n NUMBER := 2; BEGIN SELECT c INTO l FROM ty WHERE id = 1 FOR UPDATE; dbms_lob.write(l, 3, 2, 'XYZ');"
        " dbms_lob.trim(l, 8); dbms_lob.erase(l, n, 6); COMMIT; END;",
    )
    assert [row[0] for row in mine_rows(capture, start)] == [9, 10, 11, 29, 0]
    assert rows(owner, "SELECT c FROM ty")[0][0].read() == "aXYZe  h"


def test_xml_and_long_strings_have_their_own_sequences(
    server: Oracle, owner: oracledb.Connection, capture: oracledb.Connection
) -> None:
    run(owner, "CREATE TABLE ty (id NUMBER, x XMLTYPE, s VARCHAR2(32767))")
    start = server.scn()
    with owner.cursor() as cursor:
        cursor.execute("INSERT INTO ty VALUES (1, :1, :2)", ["<a>it's</a>", "s" * 5000])
    owner.commit()
    found = mine_rows(capture, start)
    assert [row[0] for row in found] == [1, 68, 70, 71, 91, 92, 92, 92, 93, 0]
    assert found[1][1] == """XML DOC BEGIN:  select "X" from "APP"."TY" where "ID" = '1'"""
    assert found[2][1] == "XML_REDO := '<a>it''s</a>':11"
    assert """ Stmt := 'update "APP"."TY" set "S" = :DATA where "ID" = ''1'';""" in found[4][1]


def test_national_text_and_times_are_written_as_functions(
    server: Oracle, owner: oracledb.Connection, capture: oracledb.Connection
) -> None:
    run(
        owner,
        "CREATE TABLE ty (a NVARCHAR2(20), b TIMESTAMP(0), c TIMESTAMP(3), d TIMESTAMP(6) WITH TIME ZONE, e INTERVAL DAY(3) TO SECOND(2),"
        " f INTERVAL YEAR TO MONTH, g RAW(4), h BINARY_FLOAT, i BINARY_DOUBLE)",
    )
    start = server.scn()
    run(
        owner,
        "INSERT INTO ty VALUES (UNISTR('\\963F\\72F8(\\60CA'), TIMESTAMP '2020-02-01 00:00:00', TIMESTAMP '2020-02-01 00:00:00.125',"
        " TIMESTAMP '2020-02-01 00:00:00 +02:00', INTERVAL '-1 02:03:04.56' DAY TO SECOND, INTERVAL '-3-06' YEAR TO MONTH, HEXTORAW('0E'), 1.1, 1.1)",
        "COMMIT",
    )
    assert mine_rows(capture, start)[0][1] == (
        'insert into "APP"."TY"("A","B","C","D","E","F","G","H","I") values (UNISTR(\'\\963F\\72F8(\\60CA\'),'
        "TO_TIMESTAMP('2020-02-01 00:00:00.'),TO_TIMESTAMP('2020-02-01 00:00:00.125'),TO_TIMESTAMP_TZ('2020-02-01 00:00:00.000000 +02:00'),"
        "TO_DSINTERVAL('-001 02:03:04.56'),TO_YMINTERVAL('-03-06'),HEXTORAW('0e'),'1.10000002E+000','1.1000000000000001E+000');"
    )


def test_ddl_is_a_row_and_an_old_dictionary_gives_numbers_instead_of_names(
    server: Oracle, owner: oracledb.Connection, capture: oracledb.Connection
) -> None:
    run(owner, "CREATE TABLE ty (id NUMBER, v VARCHAR2(5))", "CREATE TABLE gone (id NUMBER)")
    start = server.scn()
    run(
        owner,
        "INSERT INTO ty VALUES (1, 'a')",
        "INSERT INTO gone VALUES (2)",
        "COMMIT",
        "ALTER TABLE ty ADD (w NUMBER)",
        "DROP TABLE gone",
    )
    found = mine_rows(
        capture, start, columns="operation_code, sql_redo, status, info", where="operation_code IN (1, 5)"
    )
    (object_id,) = {row[1].split("OBJ# ")[1].split('"')[0] for row in found if "OBJ#" in row[1]}
    assert found[0][:3] == (
        1,
        """insert into "APP"."TY"("COL 1","COL 2") values (HEXTORAW('c102'),HEXTORAW('61'));""",
        2,
    )
    assert found[1][:3] == (1, f"""insert into "UNKNOWN"."OBJ# {object_id}"("COL 1") values (HEXTORAW('c103'));""", 2)
    assert found[2] == (5, "ALTER TABLE ty ADD (w NUMBER);", 0, "USER DDL (PlSql=0 RecDep=0)")
    assert found[3][1].startswith('ALTER TABLE "APP"."GONE" RENAME TO "BIN$')
    assert found[4][1].startswith('DROP TABLE gone AS "BIN$')


def test_a_dictionary_in_the_redo_logs_knows_the_old_structure(
    server: Oracle, owner: oracledb.Connection, capture: oracledb.Connection
) -> None:
    run(owner, "CREATE TABLE ty (id NUMBER, v VARCHAR2(5))")
    with pytest.raises(oracledb.DatabaseError, match="ORA-01371"):
        mine_rows(capture, server.scn(), options="DBMS_LOGMNR.DICT_FROM_REDO_LOGS")
    with closing(server.capture()) as fresh:
        run(fresh, NLS)
        start = server.scn()
        run(fresh, "BEGIN DBMS_LOGMNR_D.BUILD(OPTIONS => DBMS_LOGMNR_D.STORE_IN_REDO_LOGS); END;")
        run(
            owner,
            "INSERT INTO ty VALUES (1, 'a')",
            "COMMIT",
            "ALTER TABLE ty DROP COLUMN v",
            "INSERT INTO ty VALUES (2)",
            "COMMIT",
        )
        found = mine_rows(
            fresh,
            start,
            options="DBMS_LOGMNR.DICT_FROM_REDO_LOGS + DBMS_LOGMNR.DDL_DICT_TRACKING + DBMS_LOGMNR.NO_ROWID_IN_STMT",
        )
    assert [row[1] for row in found if row[0] == 1] == [
        """insert into "APP"."TY"("ID","V") values ('1','a');""", """insert into "APP"."TY"("ID") values ('2');""",
    ]  # fmt: skip


def test_committed_data_only_gives_whole_transactions_in_commit_order(
    server: Oracle, owner: oracledb.Connection, capture: oracledb.Connection
) -> None:
    run(owner, "CREATE TABLE ty (id NUMBER)")
    start = server.scn()
    with closing(server.connect()) as other:
        run(owner, "INSERT INTO ty VALUES (1)")
        run(other, "INSERT INTO ty VALUES (2)", "SAVEPOINT s", "INSERT INTO ty VALUES (3)", "ROLLBACK TO s", "COMMIT")
        run(owner, "COMMIT", "INSERT INTO ty VALUES (4)", "ROLLBACK")
    found = mine_rows(
        capture, start, options=f"{ONLINE} + DBMS_LOGMNR.COMMITTED_DATA_ONLY", columns="sql_redo, commit_scn"
    )
    assert [text.split("'")[1] for text, _ in found] == ["2", "1"]
    assert found[0][1] < found[1][1]


def test_redo_that_is_not_flushed_is_not_mined(
    server: Oracle, owner: oracledb.Connection, capture: oracledb.Connection
) -> None:
    run(owner, "CREATE TABLE ty (id NUMBER)")
    server.configure(flush_timer=False, private_strands=False)
    try:
        start = server.scn()
        run(owner, "INSERT INTO ty VALUES (1)")
        assert mine_rows(capture, start) == []
        server.sql("CREATE TABLE other (id NUMBER)")  # any commit of the same instance writes all redo before it
        assert [row[0] for row in mine_rows(capture, start)] == [1, 5]
    finally:
        server.configure(flush_timer=True, private_strands=True)


def test_a_commit_need_not_be_on_disk_unless_it_waits(
    server: Oracle, owner: oracledb.Connection, capture: oracledb.Connection
) -> None:
    run(owner, "CREATE TABLE ty (id NUMBER)")
    server.configure(flush_timer=False, commits_wait=False)
    try:
        start = server.scn()
        run(owner, "INSERT INTO ty VALUES (1)", "COMMIT")
        assert mine_rows(capture, start) == []
        run(owner, "INSERT INTO ty VALUES (2)", "COMMIT WRITE IMMEDIATE WAIT")
        assert [row[0] for row in mine_rows(capture, start)] == [1, 1]
    finally:
        server.configure(flush_timer=True, commits_wait=True)


@pytest.mark.parametrize("how", ["end", "full", "switch"])
def test_redo_in_a_private_strand_is_not_in_the_log_and_comes_with_its_own_scns(
    server: Oracle, owner: oracledb.Connection, capture: oracledb.Connection, how: str
) -> None:
    run(owner, "CREATE TABLE ty (id NUMBER)")
    start = server.scn()
    run(owner, "INSERT INTO ty VALUES (0)")
    middle = server.scn()
    server.sql("INSERT INTO ty VALUES (100)")
    server.flush()
    seen = "scn, sql_redo"
    assert ["'100'" in sql for _, sql in mine_rows(capture, start, columns=seen)] == [True]
    if how == "end":
        run(owner, "COMMIT")
    elif how == "full":
        run(owner, *(f"INSERT INTO ty VALUES ({i})" for i in range(1, 40)))
    else:
        server.switch_log()
    server.flush()
    found = mine_rows(capture, start, columns=seen)
    assert len(found) == (41 if how == "full" else 2)
    assert ["'100'" in sql for _, sql in found[:2]] == [True, False], "rows come in the order of the log"
    assert found[1][0] < middle < found[0][0]
    run(owner, "COMMIT")


def test_users_and_clients_are_known_where_the_start_is_mined(
    server: Oracle, owner: oracledb.Connection, capture: oracledb.Connection
) -> None:
    run(owner, "CREATE TABLE ty (id NUMBER)", "BEGIN DBMS_SESSION.SET_IDENTIFIER('web'); END;")
    start = server.scn()
    run(owner, "INSERT INTO ty VALUES (1)")
    middle = server.scn()
    run(owner, "INSERT INTO ty VALUES (2)", "COMMIT")
    names = "username, client_id, session_info"
    assert [row[:2] for row in mine_rows(capture, start, columns=names)] == [("APP", "web")] * 2
    assert (
        mine_rows(capture, middle, columns=names, where="operation_code IN (1, 7)")
        == [("UNKNOWN", None, "UNKNOWN")] * 2
    )


def test_transaction_ids_are_of_a_container_and_the_same_in_another() -> None:
    with Oracle({"pdbs": ["ORCLPDB1", "ORCLPDB2"]}) as server:
        start = server.scn()
        other = server.dsn.rpartition("/")[0] + "/ORCLPDB2"
        for dsn in (server.owner_dsn, other):
            server.sql("CREATE TABLE ty (id NUMBER)", "INSERT INTO ty VALUES (1)", dsn=dsn)
        with closing(server.capture()) as capture:
            run(capture, NLS)
            found = mine_rows(
                capture, start, columns="src_con_id, src_con_name, operation_code, xid", where="src_con_id > 1"
            )
        assert {row[:2] for row in found} == {(3, "ORCLPDB1"), (4, "ORCLPDB2")}
        one, two = ([(code, xid) for container, _, code, xid in found if container == number] for number in (3, 4))
        assert one == two
        assert {6, 1, 7} <= {code for code, _ in one}


def test_open_transactions_are_seen_of_the_container_and_the_instance_of_the_session() -> None:
    with Oracle({"threads": 2}) as server, closing(server.connect(thread=2)) as second:
        server.sql("CREATE TABLE ty (id NUMBER)")
        run(second, "INSERT INTO ty VALUES (1)")
        counts = {}
        for view in ("V$TRANSACTION", "GV$TRANSACTION"):
            for thread in (1, 2):
                for name in ("root", "pdb"):
                    with closing(server.capture(thread=thread)) as capture:
                        if name == "pdb":
                            run(capture, "ALTER SESSION SET CONTAINER = ORCLPDB1")
                        ((counts[view, thread, name],),) = rows(capture, f"SELECT COUNT(*) FROM {view}")
        assert {key for key, count in counts.items() if count} == {
            ("V$TRANSACTION", 2, "pdb"), ("GV$TRANSACTION", 1, "pdb"), ("GV$TRANSACTION", 2, "pdb")
        }  # fmt: skip


def test_injected_rows_are_shown_as_they_are(server: Oracle, capture: oracledb.Connection) -> None:
    start = server.scn()
    server.inject([
        {"OPERATION_CODE": 34, "INFO": "missing"},
        {"OPERATION_CODE": 255, "SEG_OWNER": "APP", "TABLE_NAME": "ODD", "SQL_REDO": "Unsupported", "XID": b"\x01\x00\x02\x00\x03\x00\x00\x00"},
    ])  # fmt: skip
    server.control("internal_ddl", sql="ALTER INDEX i REBUILD", owner="APP", table="ODD")
    found = mine_rows(
        capture, start, columns="operation_code, operation, xid, xidsqn, info", where="operation_code IN (34, 255, 5)"
    )
    assert [row[:2] for row in found] == [(34, "MISSING_SCN"), (255, "UNSUPPORTED"), (5, "DDL")]
    assert found[1][2:4] == (b"\x01\x00\x02\x00\x03\x00\x00\x00", 3)
    assert found[2][4].startswith("INTERNAL DDL")


# log files


def test_mining_needs_a_start_and_files(server: Oracle) -> None:
    with closing(server.capture()) as connection:
        for statement, number in (
            ("SELECT scn FROM v$logmnr_contents", 1306), ("BEGIN dbms_logmnr.start_logmnr(startScn => 1); END;", 1292),
            ("BEGIN dbms_logmnr.end_logmnr; END;", 1307), ("BEGIN dbms_logmnr.add_logfile('/no/such.log'); END;", 1284),
        ):  # fmt: skip
            with pytest.raises(oracledb.DatabaseError) as error:
                run(connection, statement)
            assert code(error) == number


def test_a_log_that_is_not_added_is_missing(server: Oracle, owner: oracledb.Connection) -> None:
    start = server.scn()
    server.switch_log()
    server.switch_log()
    with closing(server.capture()) as connection:
        names = rows(connection, "SELECT name FROM v$archived_log WHERE next_change# > :1 ORDER BY sequence#", start)
        run(connection, f"BEGIN dbms_logmnr.add_logfile('{names[-1][0]}'); END;")
        with pytest.raises(oracledb.DatabaseError, match="ORA-01291"):
            run(connection, f"BEGIN dbms_logmnr.start_logmnr(startScn => {start}, options => {ONLINE}); END;")
        with pytest.raises(oracledb.DatabaseError, match="ORA-01289"):
            run(connection, f"BEGIN dbms_logmnr.add_logfile('{names[-1][0]}'); END;")


def test_a_purged_log_is_gone(server: Oracle, owner: oracledb.Connection) -> None:
    run(owner, "CREATE TABLE ty (id NUMBER)")
    start = server.scn()
    run(owner, "INSERT INTO ty VALUES (1)", "COMMIT")
    server.switch_log()
    with closing(server.capture()) as connection:
        (name,) = rows(
            connection, "SELECT name FROM v$archived_log WHERE :1 BETWEEN first_change# AND next_change#", start
        )[0]
        assert server.purge()
        assert rows(
            connection,
            "SELECT name, status, deleted FROM v$archived_log WHERE :1 BETWEEN first_change# AND next_change#",
            start,
        ) == [(None, "D", "YES")]
        with pytest.raises(oracledb.DatabaseError, match="ORA-01284"):
            run(connection, f"BEGIN dbms_logmnr.add_logfile('{name}'); END;")
        with pytest.raises(oracledb.DatabaseError, match="ORA-01291"):
            mine_rows(connection, start)


def test_an_online_file_that_was_used_again_has_the_wrong_sequence(server: Oracle) -> None:
    with closing(server.capture()) as connection:
        (member,) = rows(
            connection,
            "SELECT f.member FROM v$log l JOIN v$logfile f ON f.group# = l.group# WHERE l.status = 'CURRENT'",
        )[0]
        run(connection, f"BEGIN dbms_logmnr.add_logfile('{member}'); END;")
        for _ in range(3):
            server.switch_log()
        with pytest.raises(oracledb.DatabaseError, match="ORA-00310"):
            run(connection, f"BEGIN dbms_logmnr.start_logmnr(options => {ONLINE}); END;")


def test_a_log_can_be_caught_while_it_is_being_archived(server: Oracle, capture: oracledb.Connection) -> None:
    server.hold_archiving()
    server.switch_log()
    assert ("NO", "ACTIVE") in rows(capture, "SELECT archived, status FROM v$log")
    server.release_archiving()
    assert ("NO", "ACTIVE") not in rows(capture, "SELECT archived, status FROM v$log")


# the redo and the tables tell the same story


class Worker(threading.Thread):
    """A session that makes random transactions until it has made enough or the server is killed."""

    def __init__(self, server: Oracle, seed: int, thread: int, transactions: int) -> None:
        super().__init__()
        self.server, self.random, self.instance, self.transactions = server, random.Random(seed), thread, transactions
        self.done = 0

    def run(self) -> None:
        try:
            with closing(self.server.connect(thread=self.instance)) as connection:
                for _ in range(self.transactions):
                    self._transaction(connection)
                    self.done += 1
        except oracledb.DatabaseError as error:
            if "DPY-" not in str(error):  # not only the end of the connection
                raise

    def _transaction(self, connection: oracledb.Connection) -> None:
        for _ in range(self.random.randrange(1, 8)):
            try:
                run(connection, self._statement())
            except oracledb.DatabaseError as error:
                if error.args[0].code not in (1, 60, 1086):
                    raise
        run(connection, "COMMIT" if self.random.random() < 0.8 else "ROLLBACK")

    def _statement(self) -> str:
        row, value = self.random.randrange(40), self.random.randrange(1000)
        return self.random.choice([
            f"INSERT INTO ty VALUES ({row}, {value})", f"INSERT INTO ty SELECT {row} + LEVEL, {value} FROM dual CONNECT BY LEVEL <= 3",
            f"UPDATE ty SET v = {value} WHERE id = {row}", f"UPDATE ty SET id = id + 1000, v = NULL WHERE id = {row}",
            f"DELETE FROM ty WHERE id BETWEEN {row} AND {row + 3}", "SAVEPOINT s", "ROLLBACK TO s",
        ])  # fmt: skip


def replay(found: list[tuple[Any, ...]]) -> Iterator[tuple[int, list[tuple[Any, ...]]]]:
    """After each commit its SCN and the table as the redo alone makes it."""
    table: dict[str, dict[str, Any]] = {}
    changes: dict[bytes, list[tuple[str, int, str]]] = {}
    for scn, op, xid, row_id, undo, text in found:
        mine_so_far = changes.setdefault(xid, [])
        if op in (7, 36):
            for changed, kind, sql in changes.pop(xid):
                assert op == 7, "a rollback must have undone everything before"
                apply(table, changed, kind, sql)
            yield scn, [(row["ID"], row["V"]) for row in table.values()]
        elif undo:
            newest = max(index for index, change in enumerate(mine_so_far) if change[0] == row_id)
            del mine_so_far[newest]
        elif op in (1, 2, 3):
            mine_so_far.append((row_id, op, text))


def apply(table: dict[str, dict[str, Any]], row_id: str, op: int, sql: str) -> None:
    if op == 2:
        del table[row_id]
    elif op == 1:
        values = re.search(r"values \('(\d+)',(?:'(\d+)'|NULL)\);", sql)
        assert values
        assert row_id not in table
        table[row_id] = {"ID": int(values[1]), "V": values[2] and int(values[2])}
    else:
        for name, number in re.findall(r'"(\w+)" = (?:\'(\d+)\'|NULL)', sql.split(" where ")[0]):
            table[row_id][name] = int(number) if number else None


def test_replaying_the_redo_gives_the_table_at_every_commit_through_kills_and_switches() -> None:
    with Oracle({"threads": 2, "switch_every": 60}) as server:
        server.sql(
            "CREATE TABLE ty (id NUMBER PRIMARY KEY, v NUMBER)",
            "ALTER TABLE ty ADD SUPPLEMENTAL LOG DATA (ALL) COLUMNS",
        )
        start = server.scn()
        workers = [Worker(server, seed, seed % 2 + 1, 10_000) for seed in range(3)]
        for worker in workers:
            worker.start()
        wait_until(lambda: sum(worker.done for worker in workers) >= 60, "the workers have committed")
        server.kill()
        for worker in workers:
            worker.join()
        server.start()
        workers = [Worker(server, seed, seed % 2 + 1, 25) for seed in range(10, 13)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        assert [worker.done for worker in workers] == [25] * 3
        server.flush()
        with closing(server.capture()) as capture:
            run(capture, NLS)
            columns = "scn, operation_code, xid, row_id, rollback, sql_redo"
            found = mine_rows(capture, start, columns=columns, where="seg_owner = 'APP' OR operation_code IN (7, 36)")
            assert rows(capture, "SELECT COUNT(*) FROM v$archived_log")[0][0] > 3
        states = list(replay(found))
        assert len(states) > 100
        for scn, state in [*random.Random(1).sample(states, 20), states[-1]]:
            assert sorted(server.table_at("TY", scn), key=str) == sorted(state, key=str)
        assert sorted(server.sql("SELECT id, v FROM ty"), key=str) == sorted(states[-1][1], key=str)


# other shapes of the database


def test_two_instances_write_threads_of_their_own() -> None:
    with Oracle({"threads": 2}) as server:
        server.sql("CREATE TABLE ty (id NUMBER)")
        start = server.scn()
        server.sql("INSERT INTO ty VALUES (1)", "COMMIT")
        server.sql("INSERT INTO ty VALUES (2)", "COMMIT", thread=2)
        server.switch_log(2)
        with closing(server.capture(thread=2)) as connection:
            run(connection, NLS)
            assert rows(connection, "SELECT thread#, COUNT(*) FROM v$log GROUP BY thread# ORDER BY 1") == [
                (1, 1),
                (2, 2),
            ]
            assert sorted(mine_rows(connection, start, columns="thread#, sql_redo")) == [
                (1, """insert into "APP"."TY"("ID") values ('1');"""), (2, """insert into "APP"."TY"("ID") values ('2');"""),
            ]  # fmt: skip
        assert len(server.nodes) == 2


def test_a_database_without_containers_and_a_standby() -> None:
    with Oracle({"cdb": False, "standby": True}) as server:
        server.sql("CREATE TABLE ty (id NUMBER)", "INSERT INTO ty VALUES (1)", "COMMIT")
        with closing(server.capture(dsn=server.standby_dsn)) as standby:
            assert rows(standby, "SELECT open_mode, database_role, cdb FROM v$database") == [
                ("READ ONLY", "PHYSICAL STANDBY", "NO")
            ]
            with pytest.raises(oracledb.DatabaseError, match="ORA-16000"):
                run(standby, "CREATE TABLE flush (a NUMBER)")
            (before,) = rows(standby, "SELECT current_scn FROM v$database")[0]
            server.switch_log()
            (after,) = rows(standby, "SELECT current_scn FROM v$database")[0]
            assert after > before
            assert rows(standby, "SELECT id FROM app.ty") == [(1,)]


def test_committed_data_survives_kill_and_what_was_open_is_undone() -> None:
    with Oracle() as server:
        server.sql(
            "CREATE TABLE ty (id NUMBER PRIMARY KEY, v VARCHAR2(10))", "INSERT INTO ty VALUES (1, 'kept')", "COMMIT"
        )
        start = server.scn()
        server.configure(private_strands=False)
        connection = server.connect()
        run(connection, "INSERT INTO ty VALUES (2, 'lost')", "UPDATE ty SET v = 'lost' WHERE id = 1")
        server.kill()
        with pytest.raises(oracledb.Error):
            run(connection, "COMMIT")
        server.start()
        assert server.sql("SELECT * FROM ty") == [(1, "kept")]
        assert server.scn() > start
        server.sql("INSERT INTO ty VALUES (2, 'new')", "COMMIT")
        server.restart()
        assert server.sql("SELECT * FROM ty ORDER BY id") == [(1, "kept"), (2, "new")]
        with closing(server.capture()) as capture:
            run(capture, NLS)
            found = mine_rows(
                capture,
                start,
                columns="operation_code, rollback",
                where="seg_owner = 'APP' OR operation_code IN (7, 36)",
            )
        assert found == [(1, 0), (3, 0), (3, 1), (2, 1), (36, 0), (1, 0), (7, 0)]


def test_prepared_rows_are_served_fast_and_all() -> None:
    with Oracle() as server:
        served = server.serve_rows(20_000)
        with closing(server.capture()) as connection:
            run(connection, NLS)
            add_logs(connection, served["first"])
            run(
                connection,
                f"BEGIN dbms_logmnr.start_logmnr(startScn => {served['first']}, endScn => {served['last']}, options => {ONLINE}); END;",
            )
            with connection.cursor() as cursor:
                cursor.arraysize = 5000
                cursor.prefetchrows = 5000
                sql = "SELECT SCN, SQL_REDO, OPERATION_CODE, TIMESTAMP, XID, CSF, TABLE_NAME, SEG_OWNER FROM V$LOGMNR_CONTENTS WHERE OPERATION_CODE IN (1, 6, 7)"
                cursor.execute(sql).fetchone()
                began = time.perf_counter()
                found = cursor.execute(sql).fetchall()
                seconds = time.perf_counter() - began
        inserts = [row for row in found if row[2] == 1]
        assert len(inserts) == 20_000
        assert inserts[-1][1].startswith('insert into "APP"."BENCH"("ID","CUSTOMER"')
        assert len(found) == 20_000 + 2 * 20
        assert seconds < 5
