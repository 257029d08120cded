"""The Db2 test server through the real driver: logons, types, statements, the catalogue, locks, privileges."""

import threading
import time
from decimal import Decimal

import ibm_db
import ibm_db_dbi
import pytest

from dev.servers.db2 import Db2
from dev.servers.db2.engine.driver import Connection
from tests.support.sources.db2.db2_sessions import TYPES, its_table, own_server  # noqa: F401 - fixtures

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


# the catalogue


def test_comments_are_in_the_catalogue_and_leave_the_structure(server: Db2) -> None:
    server.sql("CREATE TABLE APP.NOTED (ID INTEGER, A INTEGER, B INTEGER)")
    altered = "SELECT ALTER_TIME FROM SYSCAT.TABLES WHERE TABNAME = 'NOTED'"
    (before,) = server.rows(altered)
    server.sql("COMMENT ON TABLE APP.NOTED IS 'it''s one'", "COMMENT ON COLUMN APP.NOTED.A IS 'a value'")
    server.sql("COMMENT ON APP.NOTED (B IS 'another, value', ID IS '')")
    tables = "SELECT REMARKS FROM SYSCAT.TABLES WHERE TABNAME = '{}'"
    columns = "SELECT REMARKS FROM SYSCAT.COLUMNS WHERE TABNAME = '{}' ORDER BY COLNO"
    assert server.rows(tables.format("NOTED")) == [("it's one",)]
    assert server.rows(columns.format("NOTED")) == [(None,), ("a value",), ("another, value",)]
    assert server.rows(altered) == [before]
    server.sql("ALTER TABLE APP.NOTED RENAME COLUMN A TO C", "RENAME TABLE APP.NOTED TO NOTED2")
    server.sql("ALTER TABLE APP.NOTED2 DROP COLUMN B", "ALTER TABLE APP.NOTED2 ADD COLUMN B INTEGER")
    assert server.rows(tables.format("NOTED2")) == [("it's one",)]
    assert server.rows(columns.format("NOTED2")) == [(None,), ("a value",), (None,)]
    server.sql("COMMENT ON TABLE APP.NOTED2 IS ''", "COMMENT ON COLUMN APP.NOTED2.C IS ''")
    assert server.rows(tables.format("NOTED2")) == [(None,)]
    for statement, state in (
        ("COMMENT ON TABLE APP.NOTED IS 'x'", "42704"),
        ("COMMENT ON COLUMN APP.NOTED2.A IS 'x'", "42703"),
        (f"COMMENT ON TABLE APP.NOTED2 IS '{'x' * 255}'", "22001"),
    ):
        with pytest.raises(Exception, match=state):
            server.sql(statement)


def test_the_catalogue_follows_ddl(server: Db2) -> None:
    server.sql(
        "CREATE TABLE APP.CAT (ID INTEGER NOT NULL GENERATED ALWAYS AS IDENTITY, A DECIMAL(9, 2) DEFAULT 1.5, B VARCHAR(10) FOR BIT DATA, "
        "T TIMESTAMP(3), G VARGRAPHIC(7), F DECFLOAT(16), X XML, C CHAR(4 CODEUNITS32), L CLOB, M BLOB(100M), CONSTRAINT CAT_PK PRIMARY KEY (ID)) IN USERSPACE1"
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
        ("L", "CLOB", 1 << 20, 0, "Y", None, 1208, "N"),
        ("M", "BLOB", 100 << 20, 0, "Y", None, 0, "N"),
    ]
    altered = server.rows("SELECT ALTER_TIME FROM SYSCAT.TABLES WHERE TABNAME = 'CAT'")
    server.sql("ALTER TABLE APP.CAT ADD COLUMN D DOUBLE", "CREATE UNIQUE INDEX APP.CAT_U ON APP.CAT (A, B DESC)")
    assert server.rows("SELECT ALTER_TIME FROM SYSCAT.TABLES WHERE TABNAME = 'CAT'") > altered
    assert server.rows("SELECT COLNAME, LENGTH FROM SYSCAT.COLUMNS WHERE TABNAME = 'CAT' AND COLNO = 10") == [("D", 8)]
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


def test_schemas_are_those_of_users_and_of_the_agent(server: Db2) -> None:
    server.sql("CREATE TABLE SCHEMED.T (ID INTEGER)")
    found = {row[0] for row in server.rows("SELECT SCHEMANAME FROM SYSCAT.SCHEMATA")}
    assert {"SCHEMED", "ASNCDC", "DB2INST1"} <= found
    assert not found & {"DB2LOG", "DB2CAT"}
    assert not [name for name in found if "#" in name]


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
def refusing_server(server: Db2) -> Db2:
    """A captured table APP.REFUSED."""
    server.sql("CREATE TABLE APP.REFUSED (ID INTEGER NOT NULL PRIMARY KEY, V VARCHAR(5))")
    server.add_table("APP", "REFUSED")
    return server


@pytest.mark.parametrize("statement", REFUSED)
def test_what_is_wrong_or_unknown_is_an_error_of_db2(refusing_server: Db2, statement: str) -> None:
    with refusing_server.connect() as connection:
        with pytest.raises(ibm_db_dbi.Error, match=REFUSED[statement]):
            connection.rows(statement)
        connection.rollback()
        assert connection.scalar("VALUES 1") == 1  # the connection continues


def test_texts_and_delimited_names_are_left_alone(server: Db2) -> None:
    server.sql(
        'CREATE TABLE APP."limit 5 x" (ID INTEGER NOT NULL PRIMARY KEY, "CURRENT TIMESTAMP" VARCHAR(40))',
        """INSERT INTO APP."limit 5 x" VALUES (1, 'a CONCAT b; -- LIMIT 5 ''x''') -- a comment""",
    )
    assert server.rows('SELECT "CURRENT TIMESTAMP" FROM APP."limit 5 x" LIMIT 5') == [("a CONCAT b; -- LIMIT 5 'x'",)]


def test_a_statement_that_the_driver_has_cut_inside_a_letter_fails_alone(server: Db2) -> None:
    import ibm_db

    with server.connect() as connection:
        # the driver cuts two units: the quote, and half a letter
        statement = ibm_db.prepare(connection.handle, 'SELECT 1 AS "😀" FROM APP."😀"')
        with pytest.raises(Exception, match="SQL0104N"):
            ibm_db.execute(statement)
        assert connection.scalar("VALUES 1") == 1


LETTERS = ["Größe", "ı", "İ", "ЗАКАЗЫ", "한국", "日本 x", "😀", "a😀b", "x_é%", "é" * 60]
"""Names beyond ASCII; those whose letters have two bytes each are the driver's own case."""


@pytest.mark.parametrize("name", LETTERS)
def test_names_beyond_ascii_are_names(server: Db2, name: str) -> None:
    new, columns = f'"{name}2"', "SELECT COLNAME, KEYSEQ FROM SYSCAT.COLUMNS WHERE TABNAME = ? ORDER BY COLNO"
    server.sql(f'CREATE TABLE APP."{name}" ("{name}" INTEGER NOT NULL PRIMARY KEY, V VARCHAR(9))')
    server.sql(f"CALL ASNCDC.ADDTABLE('APP', '{name}')")
    server.reinit()
    server.sql(f"INSERT INTO APP.\"{name}\" VALUES (1, '{name[:2]}')")
    assert server.rows("SELECT COLNAMES FROM SYSCAT.INDEXES WHERE TABNAME = ?", (name,)) == [(f"+{name}",)]
    lsn = server.catch_up()
    assert server.table_at("APP", name, lsn) == [(1, name[:2])]
    assert server.rows(f'SELECT "{name}", V FROM ASNCDC."CDC_APP_{name}"') == [(1, name[:2])]
    with server.connect() as connection:
        connection.execute("CALL ASNCDC.REMOVETABLE(?, ?)", ("APP", name))
        connection.execute("CALL ASNCDC.ADDTABLE(?, ?)", ("APP", name))
        connection.commit()
    captured = "SELECT DATACAPTURE FROM SYSCAT.TABLES WHERE TABSCHEMA = 'APP' AND TABNAME = ?"
    assert server.rows(captured, (name,)) == [("Y",)]
    server.sql(f"CALL ASNCDC.REMOVETABLE('APP', '{name}')")
    assert server.rows(captured, (name,)) == [("N",)]
    server.sql(
        f'ALTER TABLE APP."{name}" ADD COLUMN {new} TIMESTAMP(3)',
        f'ALTER TABLE APP."{name}" RENAME COLUMN "{name}" TO "{name}3"',
        f'RENAME TABLE APP."{name}" TO {new}',
    )
    assert server.rows(columns, (name,)) == []
    assert server.rows(columns, (f"{name}2",)) == [(f"{name}3", 1), ("V", None), (f"{name}2", None)]
    server.sql(f"DROP TABLE APP.{new}")
    assert server.rows(columns, (f"{name}2",)) == []


def test_names_beyond_ascii_need_no_quotes(server: Db2) -> None:
    server.sql(
        "CREATE TABLE ölstand (größter INTEGER NOT NULL PRIMARY KEY)",
        "ALTER TABLE ölstand DATA CAPTURE CHANGES",
        "INSERT INTO ölstand VALUES (1)",
    )
    assert server.table_at(server.owner, "ÖLSTAND") == [(1,)]


@pytest.mark.parametrize("length", [30, 31, 32, 33, 60])
@pytest.mark.parametrize("letter", ["é", "한", "😀"])
def test_errors_have_whole_letters_of_long_names(server: Db2, letter: str, length: int) -> None:
    for start in ("", "x", "xx"):
        with pytest.raises(Exception, match=f"SQL0204N.*{start}{letter}"):
            server.rows(f'SELECT * FROM APP."{start}{letter * length}"')


def test_a_query_that_was_prepared_before_its_column_was_renamed_has_db2s_error(server: Db2) -> None:
    server.sql("CREATE TABLE APP.PREPARED (A INTEGER NOT NULL, B INTEGER)", "INSERT INTO APP.PREPARED VALUES (1, 2)")
    with server.connect() as connection:
        statement = ibm_db.prepare(connection.handle, "SELECT B FROM APP.PREPARED WHERE A > ?")
        assert ibm_db.bind_param(statement, 1, 0)
        assert ibm_db.num_fields(statement) == 1  # which has the server prepare it
        server.sql("ALTER TABLE APP.PREPARED RENAME COLUMN B TO C")
        with pytest.raises(Exception, match=r"SQL0206N.*SQLSTATE=42703 SQLCODE=-206"):
            ibm_db.execute(statement, (0,))


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


def time_blocked(connection: Connection, sql: str) -> float:
    """Return the seconds that a statement waited until its lock timeout."""
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
        assert time_blocked(reader, f"SELECT V FROM APP.{table} WITH CS") < 8
        reader.rollback()
        reader.execute("SET CURRENT LOCK TIMEOUT 5")
        assert 4.9 < time_blocked(reader, f"LOCK TABLE APP.{table} IN SHARE MODE") < 16
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
        for grant in (
            "DATAACCESS ON DATABASE TO USER CDC", "SELECTIN ON SCHEMA APP TO USER CDC", f"SELECT ON TABLE APP.{table} TO GROUP PUBLIC",
        ):  # fmt: skip
            server.sql(f"GRANT {grant}")
            assert server.rows(f"SELECT * FROM APP.{table}", user="CDC") == []
            server.sql(f"REVOKE {grant.replace(' TO ', ' FROM ')}")
            with pytest.raises(ibm_db_dbi.Error, match="SQL0551N"):
                server.rows(f"SELECT * FROM APP.{table}", user="CDC")
        server.sql(
            f"GRANT SELECT ON TABLE APP.{table} TO ROLE INNER",
            "GRANT ROLE INNER TO ROLE OUTER",
            "GRANT ROLE OUTER TO USER CDC",
        )
        assert server.rows(f"SELECT * FROM APP.{table}", user="CDC") == []
        assert server.rows("SELECT ROLENAME FROM SYSCAT.ROLEAUTH WHERE GRANTEE = 'CDC'") == [("OUTER",)]
        server.sql("REVOKE ROLE INNER FROM ROLE OUTER")
        with pytest.raises(ibm_db_dbi.Error, match="SQL0551N"):
            server.rows(f"SELECT * FROM APP.{table}", user="CDC")
    finally:
        server.configure(authorize=False)
        server.sql("REVOKE DATAACCESS ON DATABASE FROM USER CDC")
