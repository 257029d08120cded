"""The capture agent of the Db2 test server: change tables, control tables, registrations, crashes."""

import datetime
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import ibm_db_dbi
import pytest

from dev.servers.db2 import Db2, Db2ServerError
from tests.support.patience import wait_until
from tests.support.sources.db2.db2_sessions import TYPES, change_rows, changes, its_table, own_server  # noqa: F401 - fixtures

GLOBAL = "SELECT SYNCHPOINT, SYNCHTIME FROM ASNCDC.IBMSNAP_REGISTER WHERE GLOBAL_RECORD = 'Y'"
REGISTERED = "SELECT STATE, CD_OLD_SYNCHPOINT, CD_NEW_SYNCHPOINT FROM ASNCDC.IBMSNAP_REGISTER WHERE SOURCE_TABLE = ?"

# capture


def test_what_is_committed_is_captured_in_the_order_of_commits(server: Db2, table: str) -> None:
    with server.connect("ONE") as one, server.connect("TWO") as two:
        one.execute(f"INSERT INTO APP.{table} VALUES (1, 'first begun')")
        two.execute(f"INSERT INTO APP.{table} VALUES (2, 'first committed')")
        assert changes(server, table) == []
        two.commit()
        assert changes(server, table) == [("I", 2, "first committed")]
        one.commit()
        assert changes(server, table) == [("I", 2, "first committed"), ("I", 1, "first begun")]
    owners = server.rows(
        "SELECT IBMSNAP_AUTHID FROM ASNCDC.IBMSNAP_UOW ORDER BY IBMSNAP_COMMITSEQ DESC FETCH FIRST 2 ROWS ONLY"
    )
    assert owners == [("ONE",), ("TWO",)]


def test_transactions_of_one_connection_are_distinguished(server: Db2, table: str) -> None:
    server.agent("pause")
    with server.connect() as connection:
        for number in range(5):
            connection.execute(f"INSERT INTO APP.{table} VALUES (?, 'x')", (number,))
            connection.execute(f"UPDATE APP.{table} SET V = 'y' WHERE ID = ?", (number,))
            connection.commit()
    server.agent("resume")
    rows = change_rows(server, table)
    assert [row[2:4] for row in rows] == [(op, number) for number in range(5) for op in "IDI"]
    assert len({row[0] for row in rows}) == 5
    assert len({row[1] for row in rows}) == 15
    assert all(row[1] < row[0] for row in rows)


def test_what_is_rolled_back_leaves_nothing(server: Db2, table: str) -> None:
    with server.connect() as connection:
        connection.execute(f"INSERT INTO APP.{table} VALUES (1, 'x')")
        connection.rollback()
        connection.execute(f"INSERT INTO APP.{table} VALUES (2, 'x')")
        with pytest.raises(ibm_db_dbi.IntegrityError, match="SQL0803N"):
            connection.execute(f"INSERT INTO APP.{table} VALUES (3, 'x'), (2, 'twice')")
        connection.commit()
        connection.execute(f"INSERT INTO APP.{table} VALUES (4, 'x')")  # and disconnects
    assert changes(server, table) == [("I", 2, "x")]
    assert server.table_at("APP", table) == [(2, "x")]


def test_an_update_is_a_delete_and_an_insert(server: Db2, table: str) -> None:
    server.transaction(
        f"INSERT INTO APP.{table} VALUES (1, 'a'), (2, 'b')",
        f"UPDATE APP.{table} SET V = V || '!'",
        f"UPDATE APP.{table} SET ID = 20 WHERE ID = 2",
        f"DELETE FROM APP.{table} WHERE ID = 1",
    )
    assert changes(server, table) == [
        ("I", 1, "a"),
        ("I", 2, "b"),
        ("D", 1, "a"),
        ("I", 1, "a!"),
        ("D", 2, "b"),
        ("I", 2, "b!"),
        ("D", 2, "b!"),
        ("I", 20, "b!"),
        ("D", 1, "a!"),
    ]


def test_an_update_is_one_row_with_images_before_where_a_table_is_registered_so(server: Db2) -> None:
    server.sql("CREATE TABLE APP.IMAGES (ID INTEGER NOT NULL PRIMARY KEY, V VARCHAR(9) NOT NULL)")
    server.add_table("APP", "IMAGES", upd_to_del_ins=False, before_prefix="X")
    server.transaction(
        "INSERT INTO APP.IMAGES VALUES (1, 'a')", "UPDATE APP.IMAGES SET V = 'b', ID = 2", "DELETE FROM APP.IMAGES"
    )
    assert changes(server, "IMAGES") == [
        ("I", 1, "a", None, None),
        ("U", 2, "b", 1, "a"),
        ("D", 2, "b", 2, "b"),
    ]
    prefix = server.rows(
        "SELECT BEFORE_IMG_PREFIX, CHG_UPD_TO_DEL_INS FROM ASNCDC.IBMSNAP_REGISTER WHERE SOURCE_TABLE = 'IMAGES'"
    )
    assert prefix == [("X", "N")]


def write_documents(server: Db2, **options: str) -> None:
    server.sql("CREATE TABLE APP.DOCS (ID INTEGER NOT NULL PRIMARY KEY, T CLOB(1M), B BLOB(1M), N INTEGER)")
    server.add_table("APP", "DOCS", **options)
    with server.connect() as connection:
        connection.execute("INSERT INTO APP.DOCS VALUES (1, ?, ?, 0)", ("ž" * 40000, b"\0" * 40000))
        connection.execute("UPDATE APP.DOCS SET N = 1")
        connection.execute("UPDATE APP.DOCS SET T = ?", ("short text",))
        connection.commit()


def expected_rows(letter: object, octet: object) -> list[tuple[object, ...]]:
    """The expected rows of a change table, with indicators."""
    return [
        ("I", 1, letter, octet, 0),
        ("D", 1, None, None, 0),
        ("I", 1, None, None, 1),
        ("D", 1, None, None, 1),
        ("I", 1, letter, None, 1),
    ]


@pytest.mark.parametrize(("lob_columns", "octet"), [("lob", b"U"), ("letter", "U")])
def test_large_objects_are_indicators_in_the_change_table(server: Db2, lob_columns: str, octet: object) -> None:
    write_documents(server, lob_columns=lob_columns)
    try:
        assert changes(server, "DOCS") == expected_rows("U", octet)
        assert server.table_at("APP", "DOCS") == [(1, "short text", b"\0" * 40000, 1)]
        types = server.rows(
            "SELECT TYPENAME FROM SYSCAT.COLUMNS WHERE TABNAME = 'CDC_APP_DOCS' AND COLNAME IN ('T', 'B') ORDER BY COLNO"
        )
        assert types == ([("CLOB",), ("BLOB",)] if lob_columns == "lob" else [("CHARACTER",)] * 2)
    finally:
        server.remove_table("APP", "DOCS")
        server.sql("DROP TABLE APP.DOCS")


@pytest.mark.parametrize("lob_writes", ["nothing", "values"])
def test_an_agent_may_write_nothing_or_values_into_columns_of_large_objects(lob_writes: str) -> None:
    with Db2({"lob_writes": lob_writes}) as server:
        write_documents(server)
        found = changes(server, "DOCS")
    long, octets = ("ž" * 40000, b"\0" * 40000) if lob_writes == "values" else (None, None)
    short = "short text" if lob_writes == "values" else None
    assert found == [
        ("I", 1, long, octets, 0),
        ("D", 1, long, octets, 0),
        ("I", 1, long, octets, 1),
        ("D", 1, long, octets, 1),
        ("I", 1, short, octets, 1),
    ]


def test_a_transaction_of_two_tables_has_one_commit_and_growing_changes(server: Db2, table: str) -> None:
    server.sql("CREATE TABLE APP.OTHER (ID INTEGER NOT NULL PRIMARY KEY)")
    server.add_table("APP", "OTHER")
    server.transaction(
        "INSERT INTO APP.OTHER VALUES 1", f"INSERT INTO APP.{table} VALUES (1, 'x')", "INSERT INTO APP.OTHER VALUES 2"
    )
    others = change_rows(server, "OTHER")
    (mine,) = change_rows(server, table)
    assert {row[0] for row in others} == {mine[0]}
    assert others[0][1] < mine[1] < others[1][1]
    (unit,) = server.rows("SELECT IBMSNAP_LOGMARKER FROM ASNCDC.IBMSNAP_UOW WHERE IBMSNAP_COMMITSEQ = ?", (mine[0],))
    assert abs(unit[0] - server.rows("VALUES CURRENT TIMESTAMP")[0][0]) < datetime.timedelta(minutes=1)


def test_many_writers_are_captured_as_they_were_committed(server: Db2, table: str) -> None:
    server.sql(f"INSERT INTO APP.{table} VALUES (0, '0'), (1, '0'), (2, '0')")

    def write(seed: int) -> None:
        with server.connect(f"WRITER{seed}") as connection:
            for number in range(25):
                row = (number * 7 + seed) % 3
                connection.execute(
                    f"UPDATE APP.{table} SET V = CAST(CAST(V AS INTEGER) + 1 AS CHAR(9)) WHERE ID = ?", (row,)
                )
                if (number + seed) % 4 == 0:
                    connection.rollback()
                else:
                    connection.commit()

    writers = [threading.Thread(target=write, args=(seed,)) for seed in range(3)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    state: dict[int, str] = {}
    for operation, key, value in changes(server, table):  # each before image is what the row was
        if operation == "D":
            assert state.pop(key) == value
        else:
            assert key not in state
            state[key] = value
    assert sorted(state.items()) == sorted(server.rows(f"SELECT ID, V FROM APP.{table}"))
    assert sorted(server.table_at("APP", table)) == sorted(state.items())


def test_a_captured_table_of_all_types_is_captured_with_equal_values(server: Db2) -> None:
    kinds = [kind for kind in TYPES if "LOB" not in kind]
    columns = ", ".join(f"C{number} {kind}" for number, kind in enumerate(kinds))
    server.sql(f"CREATE TABLE APP.ALLTYPES (ID INTEGER NOT NULL PRIMARY KEY, {columns})")
    server.add_table("APP", "ALLTYPES")
    row = (1, *(TYPES[kind][0] for kind in kinds))
    with server.connect() as connection:
        connection.execute(f"INSERT INTO APP.ALLTYPES VALUES ({', '.join('?' * len(row))})", row)
        connection.commit()
    assert changes(server, "ALLTYPES") == [("I", *row)]
    assert server.table_at("APP", "ALLTYPES") == [row]


def test_a_new_column_is_captured_once_the_change_table_has_it(server: Db2, table: str) -> None:
    server.sql(f"INSERT INTO APP.{table} VALUES (1, 'a')")
    old = server.catch_up()
    server.sql(f"ALTER TABLE APP.{table} ADD COLUMN W INTEGER", f"INSERT INTO APP.{table} VALUES (2, 'b', 7)")
    assert changes(server, table) == [("I", 1, "a"), ("I", 2, "b")]
    server.sql(f'ALTER TABLE ASNCDC."CDC_APP_{table}" ADD COLUMN W INTEGER')
    server.reinit()
    server.sql(f"INSERT INTO APP.{table} VALUES (3, 'c', 8)")
    assert changes(server, table) == [("I", 1, "a", None), ("I", 2, "b", None), ("I", 3, "c", 8)]
    assert server.table_at("APP", table, old) == [(1, "a")]
    assert sorted(server.table_at("APP", table)) == [(1, "a", None), (2, "b", 7), (3, "c", 8)]


def test_a_renamed_column_keeps_its_place_in_the_change_table(server: Db2, table: str) -> None:
    server.sql(f"ALTER TABLE APP.{table} RENAME COLUMN V TO W", f"INSERT INTO APP.{table} VALUES (1, 'a')")
    assert changes(server, table) == [("I", 1, "a")]


# the agent


def test_the_synchpoint_and_its_time_stand_still_while_nothing_is_written(server: Db2, table: str) -> None:
    server.catch_up()
    before = server.rows(GLOBAL)[0]
    for _ in range(3):
        server.step()
    assert server.rows(GLOBAL)[0] == before
    now = server.rows("VALUES CURRENT TIMESTAMP")[0][0]
    server.sql(f"INSERT INTO APP.{table} VALUES (1, 'x')")
    point, moment = before[0], before[1]
    assert server.catch_up() > point
    later_point, later = server.rows(GLOBAL)[0]
    assert later >= now > moment
    assert len(later_point) == 16


def test_a_signal_of_a_user_gets_the_lsn_of_its_commit_and_moves_the_log(server: Db2, table: str) -> None:
    server.sql(f"INSERT INTO APP.{table} VALUES (1, 'before')")
    before = server.catch_up()
    server.sql(
        "INSERT INTO ASNCDC.IBMSNAP_SIGNAL (SIGNAL_TYPE, SIGNAL_INPUT_IN, SIGNAL_STATE) VALUES ('USER', 'mine', 'P')"
    )
    end = server.catch_up()
    ((state, lsn),) = server.rows(
        "SELECT SIGNAL_STATE, SIGNAL_LSN FROM ASNCDC.IBMSNAP_SIGNAL WHERE SIGNAL_INPUT_IN = 'mine'"
    )
    assert (state, bytes(lsn)) == ("R", end)
    assert end > before
    assert server.catch_up() == end, "the agent's own writes do not move the log"


def test_lsns_of_unequal_length_compare_with_blanks_behind_the_shorter_one(server: Db2, table: str) -> None:
    server.sql(f"INSERT INTO APP.{table} VALUES (1, 'x')")
    lsn = server.catch_up()
    found = f"SELECT COUNT(*) FROM ASNCDC.CDC_APP_{table} WHERE IBMSNAP_COMMITSEQ {{}} ?"
    assert server.rows(found.format(">"), (b"\0",)) == [(0,)], "x'0020…' is behind all"
    assert server.rows(found.format(">"), (bytes(16),)) == [(1,)]
    assert server.rows(found.format("<="), (lsn[:10],)) == [(1,)], "x'…2020' is behind x'…0000'"
    assert server.rows(found.format("="), (lsn,)) == [(1,)]
    assert server.rows(found.format("> X'00' AND 1 =").replace("?", "1")) == [(0,)]
    with Db2({"lsn_bytes": 10}) as short:
        short.sql("CREATE TABLE APP.S (ID INTEGER NOT NULL PRIMARY KEY)")
        short.add_table("APP", "S")
        short.sql("INSERT INTO APP.S VALUES 1")
        lsn = short.catch_up()
        found = "SELECT COUNT(*) FROM ASNCDC.CDC_APP_S WHERE IBMSNAP_COMMITSEQ {} ?"
        for operator, given, count in (
            (">", lsn, 0),
            (">", lsn + bytes(6), 1),
            ("=", lsn + b"\x20" * 6, 1),
            ("<=", lsn, 1),
        ):
            assert short.rows(found.format(operator), (given,)) == [(count,)]


def test_changes_older_than_the_retention_limit_are_pruned_and_no_synchpoint_shows_it(server: Db2, table: str) -> None:
    server.sql(f"INSERT INTO APP.{table} VALUES (1, 'x')")
    server.catch_up()
    server.prune_old()
    assert changes(server, table) == [("I", 1, "x")]
    registered = server.rows(REGISTERED, (table,))
    server.sql("UPDATE ASNCDC.IBMSNAP_CAPPARMS SET RETENTION_LIMIT = 0")
    try:
        server.prune_old()
    finally:
        server.sql("UPDATE ASNCDC.IBMSNAP_CAPPARMS SET RETENTION_LIMIT = 10080")
    assert changes(server, table) == []
    assert server.rows("SELECT COUNT(*) FROM ASNCDC.IBMSNAP_UOW") == [(0,)]
    assert server.rows(REGISTERED, (table,)) == registered


def test_the_agent_prunes_by_itself_and_may_leave_units_of_work_empty() -> None:
    with Db2({"insert_uow": False}) as server:
        server.sql("CREATE TABLE APP.T (ID INTEGER NOT NULL PRIMARY KEY)")
        server.add_table("APP", "T")
        server.sql("INSERT INTO APP.T VALUES 1")
        assert changes(server, "T") == [("I", 1)]
        assert server.rows("SELECT COUNT(*) FROM ASNCDC.IBMSNAP_UOW") == [(0,)]
        server.sql("UPDATE ASNCDC.IBMSNAP_CAPPARMS SET RETENTION_LIMIT = 0, PRUNE_INTERVAL = 0")
        server.reinit()
        wait_until(lambda: changes(server, "T") == [], "the agent prunes")


@pytest.mark.parametrize("synchpoints", ["none", "new", "both"])
def test_synchpoints_of_registrations_are_null_unless_the_agent_fills_them(synchpoints: str) -> None:
    with Db2({"synchpoints": synchpoints}) as server:
        server.sql("CREATE TABLE APP.T (ID INTEGER NOT NULL PRIMARY KEY)")
        server.add_table("APP", "T")
        server.sql("INSERT INTO APP.T VALUES 1")
        end = server.catch_up()
        ((state, old, new),) = server.rows(REGISTERED, ("T",))
    assert state == "A"
    assert (old is not None) == (synchpoints == "both")
    assert (new and bytes(new)) == (None if synchpoints == "none" else end)


def test_a_stopped_agent_goes_on_where_it_was(server: Db2, table: str) -> None:
    server.sql(f"INSERT INTO APP.{table} VALUES (1, 'before')")
    server.catch_up()
    assert not server.agent("stop")
    published = server.published()
    before = server.rows("VALUES CURRENT TIMESTAMP")[0][0]
    server.sql(f"INSERT INTO APP.{table} VALUES (2, 'meanwhile')")
    time.sleep(0.3)
    assert server.published() == published
    assert server.rows("VALUES ASNCDC.ASNCDCSERVICES('status', 'asncdc')") == [("asncap is not running",)]
    assert server.agent("start")
    assert changes(server, table) == [("I", 1, "before"), ("I", 2, "meanwhile")]
    marker = server.rows("SELECT MAX(IBMSNAP_LOGMARKER) FROM ASNCDC.IBMSNAP_UOW")[0][0]
    assert marker - before < datetime.timedelta(seconds=5)  # when it was committed, not when it was captured


def test_the_commit_interval_of_the_parameters_counts(server: Db2, table: str) -> None:
    server.sql("UPDATE ASNCDC.IBMSNAP_CAPPARMS SET COMMIT_INTERVAL = 2")
    try:
        server.reinit()
        begin = time.monotonic()
        for number in range(2):
            server.sql(f"INSERT INTO APP.{table} VALUES ({number}, 'x')")
            server.catch_up()
        assert time.monotonic() - begin > 1.5
    finally:
        server.sql("UPDATE ASNCDC.IBMSNAP_CAPPARMS SET COMMIT_INTERVAL = 30")
        server.configure(commit_interval=0.02)


def test_a_slow_agent_is_behind_the_log(server: Db2, table: str) -> None:
    server.configure(delay=3)
    try:
        begin = time.monotonic()
        server.sql(f"INSERT INTO APP.{table} VALUES (1, 'x')")
        assert server.rows(f"SELECT * FROM ASNCDC.CDC_APP_{table}") == []
        server.catch_up()
        assert time.monotonic() - begin > 2.5
    finally:
        server.configure(delay=0)
    assert changes(server, table) == [("I", 1, "x")]


def test_a_registration_counts_after_reinit(server: Db2) -> None:
    server.sql("CREATE TABLE APP.LATE (ID INTEGER NOT NULL PRIMARY KEY)")
    server.sql("CALL ASNCDC.ADDTABLE('APP', 'LATE')")
    assert server.rows(REGISTERED, ("LATE",)) == [("A", None, None)]
    server.sql("INSERT INTO APP.LATE VALUES 1")
    assert changes(server, "LATE") == []
    server.sql("VALUES ASNCDC.ASNCDCSERVICES('reinit', 'asncdc')")
    server.sql("INSERT INTO APP.LATE VALUES 2")
    assert changes(server, "LATE") == [("I", 2)]
    assert server.rows(REGISTERED, ("LATE",)) == [("A", None, None)]


def test_an_inactive_registration_is_not_captured_until_it_is_active_again(server: Db2, table: str) -> None:
    server.sql(f"UPDATE ASNCDC.IBMSNAP_REGISTER SET STATE = 'I' WHERE SOURCE_TABLE = '{table}'")
    server.reinit()
    server.sql(f"INSERT INTO APP.{table} VALUES (1, 'missed')")
    server.catch_up()
    server.sql(f"UPDATE ASNCDC.IBMSNAP_REGISTER SET STATE = 'A' WHERE SOURCE_TABLE = '{table}'")
    server.reinit()
    server.sql(f"INSERT INTO APP.{table} VALUES (2, 'seen')")
    assert changes(server, table) == [("I", 2, "seen")]


def test_a_signal_starts_a_registration(server: Db2) -> None:
    server.sql("CREATE TABLE APP.SIGNALLED (ID INTEGER NOT NULL PRIMARY KEY)")
    server.add_table("APP", "SIGNALLED", state="I")
    assert server.rows(REGISTERED, ("SIGNALLED",)) == [("I", None, None)]
    server.sql(
        "INSERT INTO ASNCDC.IBMSNAP_SIGNAL (SIGNAL_TYPE, SIGNAL_SUBTYPE, SIGNAL_INPUT_IN, SIGNAL_STATE) "
        "SELECT 'CMD', 'CAPSTART', MAP_ID, 'P' FROM ASNCDC.IBMSNAP_PRUNCNTL WHERE SOURCE_TABLE = 'SIGNALLED'"
    )
    obeyed = "SELECT SIGNAL_STATE FROM ASNCDC.IBMSNAP_SIGNAL WHERE SIGNAL_SUBTYPE = 'CAPSTART'"
    wait_until(lambda: server.rows(obeyed) == [("C",)], "the signal is obeyed")
    server.sql("INSERT INTO APP.SIGNALLED VALUES 1")
    assert changes(server, "SIGNALLED") == [("I", 1)]
    assert server.rows(REGISTERED, ("SIGNALLED",))[0][1] is not None


def test_remove_table_leaves_nothing(server: Db2, table: str) -> None:
    server.sql(f"CALL ASNCDC.REMOVETABLE('APP', '{table}')", "VALUES ASNCDC.ASNCDCSERVICES('reinit', 'asncdc')")
    server.sql(f"INSERT INTO APP.{table} VALUES (1, 'x')")
    server.catch_up()
    assert server.rows(REGISTERED, (table,)) == []
    with pytest.raises(ibm_db_dbi.ProgrammingError, match="SQL0204N"):
        server.rows(f"SELECT * FROM ASNCDC.CDC_APP_{table}")
    assert server.rows("SELECT DATACAPTURE FROM SYSCAT.TABLES WHERE TABNAME = ?", (table,)) == [("N",)]


def test_a_table_is_removed_after_a_deadlock_with_someone_else(server: Db2, table: str) -> None:
    register = f"UPDATE ASNCDC.IBMSNAP_REGISTER SET STATE_INFO = 'x' WHERE SOURCE_TABLE = '{table}'"
    with server.connect() as connection, ThreadPoolExecutor() as threads:
        for number in range(200):  # of two, the engine undoes the one with fewer locks
            connection.execute(f"INSERT INTO ASNCDC.CDC_APP_{table} VALUES (X'{number:04x}', X'00', 'I', 0, 'x')")
        removing = threads.submit(server.remove_table, "APP", table)
        time.sleep(0.5)  # it has the registration, and waits for the change table
        connection.execute(register)
        connection.commit()
        removing.result()
    assert server.rows(f"SELECT 1 FROM ASNCDC.IBMSNAP_REGISTER WHERE SOURCE_TABLE = '{table}'") == []


def test_a_change_table_that_is_gone_stops_its_registration(server: Db2, table: str) -> None:
    server.sql(f'DROP TABLE ASNCDC."CDC_APP_{table}"', f"INSERT INTO APP.{table} VALUES (1, 'x')")
    server.catch_up()
    assert server.rows(REGISTERED, (table,))[0][0] == "S"


def test_the_old_synchpoint_shows_pruned_changes_where_the_agent_fills_it() -> None:
    with Db2({"synchpoints": "both"}) as server:
        server.sql("CREATE TABLE APP.P (ID INTEGER NOT NULL PRIMARY KEY)")
        server.add_table("APP", "P")
        server.sql("INSERT INTO APP.P VALUES 1")
        middle = server.catch_up()
        server.sql("INSERT INTO APP.P VALUES 2")
        server.catch_up()
        assert server.prune(middle, [("APP", "P")]) == 1
        assert changes(server, "P") == [("I", 2)]
        assert server.rows(REGISTERED, ("P",))[0][1] == middle


# crashes


def children(server: Db2) -> list[int]:
    """The processes that the server has started."""
    return [int(pid) for pid in Path(f"/proc/{server.pid}/task/{server.pid}/children").read_text().split()]


def test_a_killed_server_keeps_what_was_committed_and_captures_it_once() -> None:
    with Db2() as server:
        server.sql("CREATE TABLE APP.T (ID INTEGER NOT NULL PRIMARY KEY, V VARCHAR(9))")
        server.add_table("APP", "T")
        server.sql("INSERT INTO APP.T VALUES (1, 'x')")
        server.catch_up()
        server.agent("stop")
        connection, other = server.connect(), server.connect()
        connection.execute("INSERT INTO APP.T VALUES (2, 'x')")
        connection.commit()
        other.execute("INSERT INTO APP.T VALUES (3, 'open')")
        (engine,) = children(server)
        server.kill()
        assert not Path(f"/proc/{engine}").exists() or "java" not in Path(f"/proc/{engine}/cmdline").read_text()
        server.start()
        connection.close()  # the driver looks for a server for seconds where there is none
        other.close()
        assert server.rows("SELECT ID FROM APP.T ORDER BY ID") == [(1,), (2,)]
        server.sql("INSERT INTO APP.T VALUES (4, 'x')", "UPDATE APP.T SET V = 'y' WHERE ID = 1")
        rows = change_rows(server, "T")
        assert [row[2:] for row in rows] == [("I", 1, "x"), ("I", 2, "x"), ("I", 4, "x"), ("D", 1, "x"), ("I", 1, "y")]
        assert len({row[0] for row in rows}) == 4
        server.restart()
        server.catch_up()
        assert change_rows(server, "T") == rows
        assert sorted(server.table_at("APP", "T")) == [(1, "y"), (2, "x"), (4, "x")]


# benchmarks


def test_changes_for_benchmarks_are_made_in_the_engine(server: Db2) -> None:
    made = server.serve_changes(3000, "MADE", transaction_rows=100)
    rows = server.rows(
        "SELECT IBMSNAP_COMMITSEQ, IBMSNAP_OPERATION FROM ASNCDC.CDC_BENCH_MADE ORDER BY IBMSNAP_COMMITSEQ, IBMSNAP_INTENTSEQ"
    )
    assert len(rows) == 3900
    assert (rows[0][0].hex(), rows[-1][0].hex()) == (made["first"], made["last"])
    assert len({row[0] for row in rows}) == made["transactions"] == 30
    assert server.published() >= rows[-1][0]
    again = server.serve_changes(1000, "MADE")
    assert again["first"] > made["last"]


def test_a_control_that_fails_says_why(server: Db2) -> None:
    with pytest.raises(Db2ServerError, match="NOTHERE"):
        server.add_table("APP", "NOTHERE")
