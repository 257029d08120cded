"""The Db2 test server through the real driver: types, transactions, locks, the capture agent and its control tables, the catalogue."""

import datetime
import threading
import time
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import ibm_db_dbi
import pytest

from dev.servers.db2 import Db2, Db2ServerError
from dev.servers.db2.driver import Connection

CHANGES = "SELECT * FROM ASNCDC.{} ORDER BY IBMSNAP_COMMITSEQ, IBMSNAP_INTENTSEQ"
GLOBAL = "SELECT SYNCHPOINT, SYNCHTIME FROM ASNCDC.IBMSNAP_REGISTER WHERE GLOBAL_RECORD = 'Y'"
REGISTERED = "SELECT STATE, CD_OLD_SYNCHPOINT, CD_NEW_SYNCHPOINT FROM ASNCDC.IBMSNAP_REGISTER WHERE SOURCE_TABLE = ?"


@pytest.fixture(scope="module")
def server() -> Iterator[Db2]:
    """Runs for one module."""
    with Db2() as server:
        yield server


@pytest.fixture
def table(server: Db2, request: pytest.FixtureRequest) -> str:
    """The name of a new table APP.<name> (ID, V) that is captured."""
    name = f"T{abs(hash(request.node.name)) % 10**9}"
    server.sql(f"CREATE TABLE APP.{name} (ID INTEGER NOT NULL PRIMARY KEY, V VARCHAR(40))")
    server.add_table("APP", name)
    return name


def changes(server: Db2, table: str) -> list[tuple[Any, ...]]:
    """Operation and columns of what is published."""
    server.catch_up()
    return [row[2:] for row in server.rows(CHANGES.format(f'"CDC_APP_{table}"'))]


# connections


def test_a_wrong_password_is_refused(server: Db2) -> None:
    with pytest.raises(Exception, match="SQL30082N"):
        server.connect(password="wrong")


def test_names_without_a_schema_are_the_users(server: Db2) -> None:
    server.sql("CREATE TABLE MINE (ID INTEGER)", user="SOMEBODY")
    assert server.rows("SELECT COUNT(*) FROM SOMEBODY.MINE") == [(0,)]
    assert server.rows("VALUES (CURRENT SCHEMA, USER)", user="SOMEBODY") == [("SOMEBODY", "SOMEBODY")]
    with server.connect("SOMEBODY") as connection:
        connection.execute("SET CURRENT SCHEMA = APP")
        assert connection.scalar("VALUES CURRENT SCHEMA") == "APP"


# values

TYPES: dict[str, list[Any]] = {
    "SMALLINT": [-32768, 32767, None],
    "INTEGER": [-(2**31), 2**31 - 1],
    "BIGINT": [-(2**63), 2**63 - 1],
    "DECIMAL(31, 5)": [Decimal("12345678901234567890123456.12345"), Decimal("-0.00001")],
    "REAL": [0.5, -2.25],
    "DOUBLE": [0.1, -1e300],
    "CHAR(5)": ["ab   ", "abcde"],
    "VARCHAR(60)": ["x", "žluť 🎉", "it's", "", None],
    "DATE": [datetime.date(1, 1, 1), datetime.date(9999, 12, 31)],
    "TIME": [datetime.time(23, 59, 58)],
    "TIMESTAMP": [datetime.datetime(2024, 2, 29, 1, 2, 3, 456789)],
    "CHAR(4) FOR BIT DATA": [b"\0\xff\x10\x20"],
    "VARCHAR(16) FOR BIT DATA": [b"\0\xff", bytes(range(16))],
    "CLOB(1M)": ["short", "ž" * 20000, None],
    "BLOB(1M)": [b"\0\xff" * 40000, b"x"],
}


@pytest.mark.parametrize("kind", TYPES)
def test_values_come_back_as_they_were_bound(server: Db2, kind: str) -> None:
    name = f"APP.TY{abs(hash(kind)) % 10**9}"
    with server.connect() as connection:
        connection.execute(f"CREATE TABLE {name} (ID INTEGER NOT NULL PRIMARY KEY, V {kind})")
        for number, value in enumerate(TYPES[kind]):
            connection.execute(f"INSERT INTO {name} VALUES (?, ?)", (number, value))
        connection.commit()
        found = [row[0] for row in connection.rows(f"SELECT V FROM {name} ORDER BY ID")]
    assert found == TYPES[kind]


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


def test_transactions_of_one_connection_are_told_apart(server: Db2, table: str) -> None:
    server.agent("pause")
    with server.connect() as connection:
        for number in range(5):
            connection.execute(f"INSERT INTO APP.{table} VALUES (?, 'x')", (number,))
            connection.execute(f"UPDATE APP.{table} SET V = 'y' WHERE ID = ?", (number,))
            connection.commit()
    server.agent("resume")
    server.catch_up()
    rows = server.rows(CHANGES.format(f'"CDC_APP_{table}"'))
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


def test_large_objects_are_letters_in_the_change_table(server: Db2) -> None:
    server.sql("CREATE TABLE APP.DOCS (ID INTEGER NOT NULL PRIMARY KEY, T CLOB(1M), B BLOB(1M), N INTEGER)")
    server.add_table("APP", "DOCS")
    with server.connect() as connection:
        connection.execute("INSERT INTO APP.DOCS VALUES (1, ?, ?, 0)", ("ž" * 40000, b"\0" * 40000))
        connection.execute("UPDATE APP.DOCS SET N = 1")
        connection.execute("UPDATE APP.DOCS SET T = ?", ("short text",))
        connection.commit()
    assert changes(server, "DOCS") == [
        ("I", 1, "U", "U", 0),
        ("D", 1, None, None, 0),
        ("I", 1, None, None, 1),
        ("D", 1, None, None, 1),
        ("I", 1, "U", None, 1),
    ]
    assert server.table_at("APP", "DOCS") == [(1, "short text", b"\0" * 40000, 1)]


def test_a_transaction_of_two_tables_has_one_commit_and_growing_changes(server: Db2, table: str) -> None:
    server.sql("CREATE TABLE APP.OTHER (ID INTEGER NOT NULL PRIMARY KEY)")
    server.add_table("APP", "OTHER")
    server.transaction(
        "INSERT INTO APP.OTHER VALUES 1", f"INSERT INTO APP.{table} VALUES (1, 'x')", "INSERT INTO APP.OTHER VALUES 2"
    )
    server.catch_up()
    others = server.rows(CHANGES.format("CDC_APP_OTHER"))
    (mine,) = server.rows(CHANGES.format(f'"CDC_APP_{table}"'))
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


# the agent


def test_the_synchtime_moves_on_when_nothing_happens(server: Db2) -> None:
    server.catch_up()
    point, moment = server.rows(GLOBAL)[0]
    now = server.rows("VALUES CURRENT TIMESTAMP")[0][0]
    deadline = time.monotonic() + 20
    while server.rows(GLOBAL)[0][1] <= now:
        assert time.monotonic() < deadline
        time.sleep(0.02)
    later_point, later = server.rows(GLOBAL)[0]
    assert later > moment
    assert later_point > point
    assert len(later_point) == 16


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
        moments = []
        for number in range(2):
            server.sql(f"INSERT INTO APP.{table} VALUES ({number}, 'x')")
            server.catch_up()
            moments.append(time.monotonic())
        assert moments[1] - moments[0] > 1.5
    finally:
        server.sql("UPDATE ASNCDC.IBMSNAP_CAPPARMS SET COMMIT_INTERVAL = 30")
        server.configure(commit_interval=0.02)


def test_a_slow_agent_is_behind_the_log(server: Db2, table: str) -> None:
    server.configure(delay=1.5)
    try:
        server.sql(f"INSERT INTO APP.{table} VALUES (1, 'x')")
        begin = time.monotonic()
        assert server.rows(CHANGES.format(f'"CDC_APP_{table}"')) == []
        server.catch_up()
        assert time.monotonic() - begin > 1
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
    state, old, new = server.rows(REGISTERED, ("LATE",))[0]
    assert (state, new) == ("A", None)
    server.sql("INSERT INTO APP.LATE VALUES 2")
    assert changes(server, "LATE") == [("I", 2)]
    assert server.rows(REGISTERED, ("LATE",))[0][2] > old


def test_an_inactive_registration_is_not_captured_until_it_is_active_again(server: Db2, table: str) -> None:
    first = server.rows(REGISTERED, (table,))[0][1]
    server.sql(f"UPDATE ASNCDC.IBMSNAP_REGISTER SET STATE = 'I' WHERE SOURCE_TABLE = '{table}'")
    server.reinit()
    server.sql(f"INSERT INTO APP.{table} VALUES (1, 'missed')")
    server.catch_up()
    server.sql(f"UPDATE ASNCDC.IBMSNAP_REGISTER SET STATE = 'A' WHERE SOURCE_TABLE = '{table}'")
    server.reinit()
    server.sql(f"INSERT INTO APP.{table} VALUES (2, 'seen')")
    assert changes(server, table) == [("I", 2, "seen")]
    assert server.rows(REGISTERED, (table,))[0][1] > first


def test_a_signal_starts_a_registration(server: Db2) -> None:
    server.sql("CREATE TABLE APP.SIGNALLED (ID INTEGER NOT NULL PRIMARY KEY)")
    server.add_table("APP", "SIGNALLED", state="I")
    assert server.rows(REGISTERED, ("SIGNALLED",)) == [("I", None, None)]
    server.sql(
        "INSERT INTO ASNCDC.IBMSNAP_SIGNAL (SIGNAL_TYPE, SIGNAL_SUBTYPE, SIGNAL_INPUT_IN, SIGNAL_STATE) "
        "SELECT 'CMD', 'CAPSTART', MAP_ID, 'P' FROM ASNCDC.IBMSNAP_PRUNCNTL WHERE SOURCE_TABLE = 'SIGNALLED'"
    )
    deadline = time.monotonic() + 20
    while server.rows("SELECT SIGNAL_STATE FROM ASNCDC.IBMSNAP_SIGNAL") != [("C",)]:
        assert time.monotonic() < deadline
        time.sleep(0.02)
    server.sql("INSERT INTO APP.SIGNALLED VALUES 1")
    assert changes(server, "SIGNALLED") == [("I", 1)]


def test_remove_table_leaves_nothing(server: Db2, table: str) -> None:
    server.sql(f"CALL ASNCDC.REMOVETABLE('APP', '{table}')", "VALUES ASNCDC.ASNCDCSERVICES('reinit', 'asncdc')")
    server.sql(f"INSERT INTO APP.{table} VALUES (1, 'x')")
    server.catch_up()
    assert server.rows(REGISTERED, (table,)) == []
    with pytest.raises(ibm_db_dbi.ProgrammingError, match="SQL0204N"):
        server.rows(CHANGES.format(f'"CDC_APP_{table}"'))
    assert server.rows("SELECT DATACAPTURE FROM SYSCAT.TABLES WHERE TABNAME = ?", (table,)) == [("N",)]


def test_a_change_table_that_is_gone_stops_its_registration(server: Db2, table: str) -> None:
    server.sql(f'DROP TABLE ASNCDC."CDC_APP_{table}"', f"INSERT INTO APP.{table} VALUES (1, 'x')")
    server.catch_up()
    assert server.rows(REGISTERED, (table,))[0][0] == "S"


def test_pruned_changes_are_gone_and_the_old_synchpoint_says_so(server: Db2, table: str) -> None:
    server.sql(f"INSERT INTO APP.{table} VALUES (1, 'x')")
    middle = server.catch_up()
    server.sql(f"INSERT INTO APP.{table} VALUES (2, 'x')")
    server.catch_up()
    assert server.prune(middle, [("APP", table)]) == 1
    assert changes(server, table) == [("I", 2, "x")]
    assert server.rows(REGISTERED, (table,))[0][1] == middle


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
        server.catch_up()
        rows = server.rows(CHANGES.format("CDC_APP_T"))
        assert [row[2:] for row in rows] == [("I", 1, "x"), ("I", 2, "x"), ("I", 4, "x"), ("D", 1, "x"), ("I", 1, "y")]
        assert len({row[0] for row in rows}) == 4
        server.restart()
        server.catch_up()
        assert server.rows(CHANGES.format("CDC_APP_T")) == rows
        assert sorted(server.table_at("APP", "T")) == [(1, "y"), (2, "x"), (4, "x")]


# the catalogue


def test_the_catalogue_follows_ddl(server: Db2) -> None:
    server.sql(
        "CREATE TABLE APP.CAT (ID INTEGER NOT NULL GENERATED ALWAYS AS IDENTITY, A DECIMAL(9, 2) DEFAULT 1.5, B VARCHAR(10) FOR BIT DATA, "
        "T TIMESTAMP(3), G VARGRAPHIC(7), F DECFLOAT(16), X XML, C CHAR(4 CODEUNITS32), CONSTRAINT CAT_PK PRIMARY KEY (ID)) IN USERSPACE1"
    )
    query = "SELECT COLNAME, TYPENAME, LENGTH, SCALE, NULLS, KEYSEQ, CODEPAGE, IDENTITY FROM SYSCAT.COLUMNS WHERE TABSCHEMA = 'APP' AND TABNAME = 'CAT' ORDER BY COLNO"
    assert server.rows(query) == [
        ("ID", "INTEGER", 4, 0, "N", 1, 0, "Y"),
        ("A", "DECIMAL", 9, 2, "Y", None, 0, "N"),
        ("B", "VARCHAR", 10, 0, "Y", None, 0, "N"),
        ("T", "TIMESTAMP", 9, 3, "Y", None, 0, "N"),
        ("G", "VARGRAPHIC", 7, 0, "Y", None, 1200, "N"),
        ("F", "DECFLOAT", 8, 0, "Y", None, 0, "N"),
        ("X", "XML", 0, 0, "Y", None, 0, "N"),
        ("C", "CHARACTER", 16, 0, "Y", None, 1208, "N"),
    ]
    altered = server.rows("SELECT ALTER_TIME FROM SYSCAT.TABLES WHERE TABNAME = 'CAT'")
    server.sql("ALTER TABLE APP.CAT ADD COLUMN D DOUBLE", "CREATE UNIQUE INDEX APP.CAT_U ON APP.CAT (A, B DESC)")
    assert server.rows("SELECT ALTER_TIME FROM SYSCAT.TABLES WHERE TABNAME = 'CAT'") > altered
    assert server.rows("SELECT COLNAME, LENGTH FROM SYSCAT.COLUMNS WHERE TABNAME = 'CAT' AND COLNO = 8") == [("D", 8)]
    indexes = server.rows(
        "SELECT INDNAME, UNIQUERULE, COLNAMES FROM SYSCAT.INDEXES WHERE TABNAME = 'CAT' ORDER BY INDNAME"
    )
    assert ("CAT_U", "U", "+A-B") in indexes
    assert {row[1:] for row in indexes} == {("U", "+A-B"), ("P", "+ID")}
    assert server.rows(
        "SELECT TYPE, COLNAME FROM SYSCAT.TABCONST C JOIN SYSCAT.KEYCOLUSE K ON K.CONSTNAME = C.CONSTNAME WHERE C.TABNAME = 'CAT'"
    ) == [("P", "ID")]
    server.sql("ALTER TABLE APP.CAT RENAME COLUMN A TO AA", "RENAME TABLE APP.CAT TO CAT2")
    assert server.rows("SELECT TABNAME FROM SYSCAT.TABLES WHERE TABNAME LIKE 'CAT%'") == [("CAT2",)]
    server.sql("DROP TABLE APP.CAT2")
    assert server.rows("SELECT * FROM SYSCAT.COLUMNS WHERE TABNAME LIKE 'CAT%'") == []


def test_a_rolled_back_table_is_in_no_catalogue(server: Db2) -> None:
    with server.connect() as connection:
        connection.execute("CREATE TABLE APP.GONE (ID INTEGER)")
        connection.rollback()
    assert server.rows("SELECT * FROM SYSCAT.TABLES WHERE TABNAME = 'GONE'") == []


def test_data_capture_is_in_the_catalogue(server: Db2) -> None:
    server.sql("CREATE TABLE APP.LOGGED (ID INTEGER NOT NULL PRIMARY KEY) DATA CAPTURE CHANGES")
    query = "SELECT DATACAPTURE FROM SYSCAT.TABLES WHERE TABNAME = 'LOGGED'"
    assert server.rows(query) == [("Y",)]
    server.sql("INSERT INTO APP.LOGGED VALUES 1")
    assert server.table_at("APP", "LOGGED") == [(1,)]
    server.sql("ALTER TABLE APP.LOGGED DATA CAPTURE NONE")
    assert server.rows(query) == [("N",)]


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


# statements

REFUSED = {
    "FROBNICATE": "SQL0104N",
    "SELECT FROM": "SQL0104N",
    "SELECT * FROM NOWHERE.T": "SQL0204N",
    "SELECT * FROM SYS.SYSTABLES": "SQL0204N",
    "SELECT * FROM SYSCAT.NOTHERE": "SQL0204N",
    "SELECT * FROM DB2LOG.UNITS": "SQL0204N",
    "SELECT NOPE FROM SYSIBM.SYSDUMMY1": "SQL0206N",
    "SELECT 1/0 FROM SYSIBM.SYSDUMMY1": "SQL0801N",
    "CALL ASNCDC.NOPE('A', 'B')": "SQL0440N",
    "CALL ASNCDC.ADDTABLE('APP', 'NOTHERE')": "SQL0204N",
    "TRUNCATE TABLE APP.REFUSED": "SQL0104N",
    "TRUNCATE TABLE APP.REFUSED IMMEDIATE": "SQL0270N",
    "ALTER TABLE APP.REFUSED DROP COLUMN V": "SQL0270N",
    "INSERT INTO APP.REFUSED VALUES (NULL, 'x')": "SQL0407N",
    "INSERT INTO APP.REFUSED VALUES (1, 'much too long')": "SQL0433N",
    "CREATE TABLE APP.REFUSED (ID INTEGER)": "SQL0601N",
    "GRANT FLYING ON TABLE APP.REFUSED TO USER X": "SQL0104N",
}


@pytest.fixture(scope="module")
def refusing(server: Db2) -> Db2:
    """A captured table APP.REFUSED."""
    server.sql("CREATE TABLE APP.REFUSED (ID INTEGER NOT NULL PRIMARY KEY, V VARCHAR(5))")
    server.add_table("APP", "REFUSED")
    return server


@pytest.mark.parametrize("statement", REFUSED)
def test_what_is_wrong_or_unknown_is_an_error_of_db2(refusing: Db2, statement: str) -> None:
    with refusing.connect() as connection:
        with pytest.raises(ibm_db_dbi.Error, match=REFUSED[statement]):
            connection.rows(statement)
        connection.rollback()
        assert connection.scalar("VALUES 1") == 1  # the connection goes on


def test_texts_and_delimited_names_are_left_alone(server: Db2) -> None:
    server.sql(
        'CREATE TABLE APP."limit 5 x" (ID INTEGER NOT NULL PRIMARY KEY, "CURRENT TIMESTAMP" VARCHAR(40))',
        """INSERT INTO APP."limit 5 x" VALUES (1, 'a CONCAT b; -- LIMIT 5 ''x''') -- a comment""",
    )
    assert server.rows('SELECT "CURRENT TIMESTAMP" FROM APP."limit 5 x" LIMIT 5') == [("a CONCAT b; -- LIMIT 5 'x'",)]


def test_the_spelling_of_db2_is_understood(server: Db2) -> None:
    (row,) = server.rows(
        "SELECT CURRENT SERVER, CURRENT TIMESTAMP + 5 SECONDS, 'a' CONCAT 'b', VALUE(CAST(NULL AS INTEGER), 3) FROM SYSIBM.SYSDUMMY1 FOR FETCH ONLY WITH UR"
    )
    assert (row[0].strip(), row[2:]) == ("TESTDB", ("ab", 3))


def test_long_statements_arrive_whole(server: Db2) -> None:
    server.sql("CREATE TABLE APP.LONGONES (ID INTEGER NOT NULL PRIMARY KEY, V VARCHAR(100))")
    values = ", ".join(f"({number}, '{'x' * 90}')" for number in range(600))
    server.sql(f"INSERT INTO APP.LONGONES VALUES {values}")
    assert server.rows("SELECT COUNT(*) FROM APP.LONGONES") == [(600,)]


# locks


def blocked(connection: Connection, sql: str) -> float:
    """How many seconds a statement waited until its lock timeout."""
    begin = time.monotonic()
    with pytest.raises(ibm_db_dbi.Error, match="SQL0911N"):
        connection.rows(sql)
    return time.monotonic() - begin


def test_a_reader_waits_for_a_writer_as_long_as_its_lock_timeout_says(server: Db2, table: str) -> None:
    server.sql(f"INSERT INTO APP.{table} VALUES (1, 'x')")
    with server.connect() as writer, server.connect() as reader:
        writer.execute(f"UPDATE APP.{table} SET V = 'y'")
        assert reader.rows(f"SELECT V FROM APP.{table} WITH UR") == [("y",)]
        reader.execute("SET CURRENT LOCK TIMEOUT NOT WAIT")
        assert blocked(reader, f"SELECT V FROM APP.{table} WITH CS") < 8
        reader.rollback()
        reader.execute("SET CURRENT LOCK TIMEOUT 5")
        assert 4.9 < blocked(reader, f"LOCK TABLE APP.{table} IN SHARE MODE") < 16
        reader.rollback()
        reader.execute("SET CURRENT LOCK TIMEOUT WAIT")
        threading.Timer(6, writer.commit).start()
        assert reader.rows(f"SELECT V FROM APP.{table} WITH CS") == [("y",)]


# privileges


def test_privileges_count_when_they_are_asked_for(server: Db2, table: str) -> None:
    server.configure(authorize=True)
    try:
        with pytest.raises(ibm_db_dbi.Error, match="SQL0551N"):
            server.rows(f"SELECT * FROM APP.{table}", user="CDC")
        server.sql(f"GRANT SELECT ON TABLE APP.{table} TO USER CDC")
        assert server.rows(f"SELECT * FROM APP.{table}", user="CDC") == []
        assert server.rows(
            "SELECT SELECTAUTH, INSERTAUTH FROM SYSCAT.TABAUTH WHERE GRANTEE = 'CDC' AND TABNAME = ?",
            (table,),
            user="CDC",
        ) == [("Y", "N")]
        with pytest.raises(ibm_db_dbi.Error, match="SQL0551N"):
            server.sql(f"INSERT INTO APP.{table} VALUES (1, 'x')", user="CDC")
        server.sql(f"REVOKE SELECT ON TABLE APP.{table} FROM USER CDC")
        with pytest.raises(ibm_db_dbi.Error, match="SQL0551N"):
            server.rows(f"SELECT * FROM APP.{table}", user="CDC")
        server.sql("GRANT DATAACCESS ON DATABASE TO USER CDC")
        assert server.rows(f"SELECT * FROM APP.{table}", user="CDC") == []
    finally:
        server.configure(authorize=False)
        server.sql("REVOKE DATAACCESS ON DATABASE FROM USER CDC")


# benchmarks


def test_changes_for_benchmarks_are_made_in_the_engine(server: Db2) -> None:
    made = server.serve_changes(3000, "MADE", transaction_rows=100)
    rows = server.rows(
        "SELECT IBMSNAP_COMMITSEQ, IBMSNAP_OPERATION FROM ASNCDC.CDC_BENCH_MADE ORDER BY IBMSNAP_COMMITSEQ, IBMSNAP_INTENTSEQ"
    )
    assert len(rows) == 3900
    assert (rows[0][0].hex(), rows[-1][0].hex()) == (made["first"], made["last"])
    assert len({row[0] for row in rows}) == made["transactions"] == 30
    assert server.published() > rows[-1][0]
    again = server.serve_changes(1000, "MADE")
    assert again["first"] > made["last"]


def test_a_control_that_fails_says_why(server: Db2) -> None:
    with pytest.raises(Db2ServerError, match="NOTHERE"):
        server.add_table("APP", "NOTHERE")


def test_distinct_types_are_in_the_catalogue(server: Db2) -> None:
    server.sql(
        "CREATE DISTINCT TYPE APP.MONEY AS DECIMAL(9, 2) WITH COMPARISONS",
        "CREATE TABLE APP.PRICED (ID INTEGER NOT NULL PRIMARY KEY, PRICE APP.MONEY NOT NULL, T TIMESTAMP(0))",
        "INSERT INTO APP.PRICED VALUES (1, 2.5, CURRENT TIMESTAMP)",
        "RENAME TABLE APP.PRICED TO PRICES",
        "ALTER TABLE APP.PRICES RENAME COLUMN T TO T2",
    )
    columns = "SELECT COLNAME, TYPESCHEMA, TYPENAME, LENGTH, SCALE FROM SYSCAT.COLUMNS WHERE TABNAME = 'PRICES' ORDER BY COLNO"
    assert server.rows(columns) == [
        ("ID", "SYSIBM", "INTEGER", 4, 0),
        ("PRICE", "APP", "MONEY", 9, 2),
        ("T2", "SYSIBM", "TIMESTAMP", 7, 0),
    ]
    types = "SELECT TYPESCHEMA, TYPENAME, SOURCENAME, LENGTH, SCALE FROM SYSCAT.DATATYPES WHERE METATYPE = 'T'"
    assert server.rows(types) == [("APP", "MONEY", "DECIMAL", 9, 2)]
    assert [Decimal(row[0]) for row in server.rows("SELECT PRICE FROM APP.PRICES")] == [Decimal("2.50")]
