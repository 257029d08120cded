"""Effects of DDL statements in the log on the captured tables."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from airflow_provider_cdc.core.model.table_schema import TableSchema
from tests.sources.oracle.schema.ddl.world import SchemaModel, table_id

T = table_id("T")
CREATE = "CREATE TABLE t (id NUMBER(9) PRIMARY KEY, v VARCHAR2(20), n NUMBER(5,2) NOT NULL)"


@pytest.fixture
def world() -> SchemaModel:
    schema_model = SchemaModel()
    schema_model.run(CREATE)
    assert schema_model.asked == []
    return schema_model


def test_create_table_needs_no_dictionary(world: SchemaModel) -> None:
    assert world.shape() == ["ID NUMBER(9,0)!", "V VARCHAR2(20)", "N NUMBER(5,2)!", "(ID)"]
    assert [c.type for c in world.table().columns] == ["int32", "string", "decimal128(5, 2)"]
    assert world.table().id.catalog == "PDB1"
    found = world.run("CREATE TABLE s.u (a DATE DEFAULT SYSDATE, b VARCHAR2(5) DEFAULT 'x''y')")
    (change,) = found.changes
    assert (change.type, change.id, change.exact) == ("CREATE", table_id("U", "S"), True)
    a, b = world.table("U", "S").columns
    assert (a.declared.default, a.declared.default_is_expression) == ("SYSDATE", True)
    assert (b.declared.default, b.declared.default_is_expression) == ("x'y", False)


def test_statements_on_tables_that_are_not_captured_mean_nothing() -> None:
    world = SchemaModel({"table.include.list": r"APP\.T"})
    for sql in (
        "CREATE TABLE u (a NUMBER)",
        "CREATE TABLE u AS SELECT * FROM t",
        "ALTER TABLE u ADD b NUMBER",
        "DROP TABLE u",
        "TRUNCATE TABLE u",
        "RENAME u TO w",
        "CREATE UNIQUE INDEX i ON u (a)",
        "CREATE TABLE sys.t (a NUMBER)",
        "CREATE GLOBAL TEMPORARY TABLE t (a NUMBER)",
        "COMMENT ON TABLE t IS 'x'",
        "ALTER TABLE t ADD b NUMBER",
        "DROP TABLE t",
    ):
        found = world.run(sql)
        assert (found.changes, found.truncated) == ([], []), sql
    assert world.asked == []


def test_tables_without_redo_are_not_captured_and_that_is_said(caplog: pytest.LogCaptureFixture) -> None:
    world = SchemaModel()
    external = "CREATE TABLE t (a NUMBER PRIMARY KEY) ORGANIZATION EXTERNAL (LOCATION ('a.csv'))"
    assert world.run(external).changes == []
    assert "APP.T, created at SCN 5, is not captured" in caplog.text
    (change,) = world.run("CREATE TABLE t (a NUMBER PRIMARY KEY) ORGANIZATION INDEX").changes
    assert change.type == "CREATE"


def test_a_table_created_from_a_query_is_that_of_the_dictionary_and_is_read(caplog: pytest.LogCaptureFixture) -> None:
    world = SchemaModel()
    assert world.run("CREATE TABLE t AS SELECT * FROM u").changes == []
    assert "the catalog does not contain it" in caplog.text
    world.other(CREATE)
    (change,) = world.run("CREATE TABLE t AS SELECT * FROM u").changes
    assert (change.type, change.exact) == ("CREATE", False)
    assert world.shape()[-1] == "(ID)"
    assert world.reasons[0] is not None


def test_the_key_is_the_primary_key_else_a_unique_key_that_is_never_null() -> None:
    world = SchemaModel()
    for columns, key in (
        ("a NUMBER, b NUMBER, CONSTRAINT k PRIMARY KEY (b, a), UNIQUE (a)", ("B", "A")),
        ("a NUMBER NOT NULL UNIQUE, b NUMBER", ("A",)),
        ("a NUMBER UNIQUE, b NUMBER", ()),
        ("a NUMBER NOT NULL, b NUMBER, UNIQUE (a, b)", ()),
        ("a NUMBER, b NUMBER", ()),
        ("a LONG PRIMARY KEY, b NUMBER NOT NULL UNIQUE", ("B",)),
    ):
        world.run(f"CREATE TABLE t ({columns})")
        assert world.table().key == key, columns
    assert world.asked == []


def test_where_several_keys_could_be_the_key_the_dictionary_decides(caplog: pytest.LogCaptureFixture) -> None:
    several = "CREATE TABLE t (a NUMBER NOT NULL UNIQUE, b NUMBER NOT NULL CONSTRAINT z UNIQUE)"
    world = SchemaModel()
    world.run(several)
    assert "The key of APP.T is not certain" in caplog.text
    world.dictionary[T] = world.table().model_copy(update={"key": ("B",)})
    world.run(several)
    assert world.table().key == ("B",)
    disabled = SchemaModel()
    disabled.run("CREATE TABLE t (a NUMBER NOT NULL, PRIMARY KEY (a) DISABLE)")
    assert (disabled.table().key, disabled.asked) == ((), [T])


def test_columns_that_cannot_be_captured_stay_in_the_structure() -> None:
    world = SchemaModel()
    world.run(
        "CREATE TABLE t (id NUMBER(9) PRIMARY KEY, f BFILE, l LONG, g NUMBER AS (id * 2), h AS (id + 1), o addr_t, i NUMBER INVISIBLE, z DATE)"
    )
    types = {c.name: c.type for c in world.table().columns}
    assert [n for n, t in types.items() if t == "null"] == ["F", "L", "G", "H", "O"]
    assert world.table().column_names[-2:] == ("Z", "I")  # invisible columns have no number
    assert world.table().get_column("G").declared.generated
    assert world.asked == [T]  # for addr_t, which might be a domain


def test_a_type_that_the_text_lacks_is_that_of_the_dictionary(world: SchemaModel) -> None:
    world.other(CREATE, "ALTER TABLE t ADD (email VARCHAR2(99), dept NUMBER(4))")
    world.run("ALTER TABLE t ADD (email email_domain, dept REFERENCES depts)")
    assert world.shape()[3:5] == ["EMAIL VARCHAR2(99)", "DEPT NUMBER(4,0)"]
    assert world.asked == [T]


# --- ALTER TABLE ------------------------------------------------------------------------------------------------------

ADDED: list[tuple[str, dict[str, str | None]]] = [
    ("a NUMBER", {"A": None}),
    ("(a NUMBER(5,2) DEFAULT 1.5, b NUMBER(3) DEFAULT -7)", {"A": "1.50", "B": "-7"}),
    ("(a NUMBER(5,2) DEFAULT 1.005 NOT NULL)", {"A": "1.01"}),
    ("(a NUMBER(5,-2) DEFAULT 250)", {"A": "300"}),
    # more digits than Python calculates with
    (f"(a NUMBER(38,5) DEFAULT {'9' * 33})", {"A": "9" * 33 + ".00000"}),
    (f"(a NUMBER(38,5) DEFAULT {'9' * 32}.123454)", {"A": "9" * 32 + ".12345"}),
    ("(a NUMBER DEFAULT 1.50, b FLOAT DEFAULT 3, c BINARY_DOUBLE DEFAULT .5)", {"A": "1.5", "B": "3", "C": "0.5"}),
    ("a VARCHAR2(9) DEFAULT 'it''s '", {"A": "it's "}),
    ("a VARCHAR2(9) DEFAULT ''", {"A": None}),
    ("a VARCHAR2(9) DEFAULT 7", {"A": "7"}),
    ("(a CHAR(4) DEFAULT 'x', b NCHAR(3) DEFAULT 'é', c CHAR(3 CHAR) DEFAULT 'é')", {"A": "x   ", "B": "é  ", "C": "é  "}),
    ("a DATE DEFAULT DATE '2024-02-29'", {"A": "2024-02-29 00:00:00"}),
    ("a DATE DEFAULT TO_DATE('2024-02-29 01:02:03', 'YYYY-MM-DD HH24:MI:SS')", {"A": "2024-02-29 01:02:03"}),
    ("a TIMESTAMP DEFAULT TIMESTAMP '2024-02-29 01:02:03.25'", {"A": "2024-02-29 01:02:03.25"}),
    ("(a BLOB, b CLOB DEFAULT NULL, c XMLTYPE)", {"A": None, "B": None, "C": None}),
    ("(a NUMBER GENERATED ALWAYS AS (id + 1), b BFILE)", {"A": None, "B": None}),
    ("a NUMBER DEFAULT ON NULL 5", {"A": "5"}),
]  # fmt: skip


@pytest.mark.parametrize(("columns", "added"), ADDED)
def test_a_new_column_has_its_default_in_rows_that_are_there(
    world: SchemaModel, columns: str, added: dict[str, Any]
) -> None:
    (change,) = world.run(f"ALTER TABLE t ADD {columns}").changes
    assert (change.added, change.exact, world.reasons) == (added, True, [None])
    assert world.asked == []


@pytest.mark.parametrize(
    "column",
    [
        "a DATE DEFAULT SYSDATE", "a NUMBER DEFAULT seq.NEXTVAL", "a NUMBER GENERATED ALWAYS AS IDENTITY", "a CHAR(5) DEFAULT 'é'",
        "a DATE DEFAULT '01-JAN-24'", "a CLOB DEFAULT 'x'", "a CLOB DEFAULT EMPTY_CLOB()", "a RAW(2) DEFAULT HEXTORAW('FF')",
        "a TIMESTAMP(0) DEFAULT TIMESTAMP '2024-02-29 01:02:03.5'", "a FLOAT DEFAULT 0.1", "a NUMBER DEFAULT '5'",
        "a TIMESTAMP WITH TIME ZONE DEFAULT TIMESTAMP '2024-02-29 01:02:03'", "a VARCHAR2(9) DEFAULT 1.50",
    ],
)  # fmt: skip
def test_a_default_whose_value_is_not_certain_makes_the_table_be_read_again(world: SchemaModel, column: str) -> None:
    (change,) = world.run(f"ALTER TABLE t ADD {column}").changes
    assert change.added == {}
    assert world.reasons[0] is not None
    assert "new column A" in world.reasons[0]


def test_converted_numbers_have_converted_defaults() -> None:
    converter = "io.debezium.connector.oracle.converters.NumberOneToBooleanConverter"
    world = SchemaModel({"converters": "b", "b.type": converter, "decimal.handling.mode": "string"})
    world.run(CREATE)
    (change,) = world.run(
        "ALTER TABLE t ADD (yes NUMBER(1) DEFAULT 1, no NUMBER(1) DEFAULT 0, p NUMBER(9,2) DEFAULT 1.5)"
    ).changes
    assert [c.type for c in world.table().columns[-3:]] == ["bool", "bool", "string"]
    assert change.added == {"YES": "true", "NO": "false", "P": "1.50"}


MODIFIED: list[tuple[str, bool, str]] = [
    ("v VARCHAR2(50)", True, "V VARCHAR2(50)"), ("(v VARCHAR2(5 CHAR))", True, "V VARCHAR2(5)"), ("v CLOB", False, "V CLOB"),
    ("v CHAR(20)", False, "V CHAR(20)"), ("n NUMBER(7,2)", True, "N NUMBER(7,2)!"), ("n NUMBER(9,4) NULL", True, "N NUMBER(9,4)"),
    ("n NUMBER", True, "N NUMBER!"), ("v NOT NULL", True, "V VARCHAR2(20)!"), ("v DEFAULT 'x'", True, "V VARCHAR2(20)"),
    ("c CHAR(10)", False, "C CHAR(10)"), ("c CHAR(5)", True, "C CHAR(5)"), ("c CHAR(5 CHAR)", False, "C CHAR(5)"),
    ("c VARCHAR2(5)", True, "C VARCHAR2(5)"), ("d TIMESTAMP", True, "D TIMESTAMP(6)"), ("ts DATE", False, "TS DATE"),
    ("ts TIMESTAMP(6)", True, "TS TIMESTAMP(6)"), ("d TIMESTAMP WITH LOCAL TIME ZONE", False, "D TIMESTAMP(6) WITH LOCAL TIME ZONE"),
    ("f NUMBER", True, "F NUMBER"), ("f NUMBER(5)", False, "F NUMBER(5,0)"), ("lo CLOB", False, "LO CLOB"), ("v INVISIBLE", True, "V VARCHAR2(20)"),
]  # fmt: skip


@pytest.mark.parametrize(("clause", "exact", "expected"), MODIFIED)
def test_modify_keeps_what_it_does_not_say_and_reports_whether_values_stay(
    clause: str, exact: bool, expected: str
) -> None:
    world = SchemaModel()
    world.run(CREATE, "ALTER TABLE t ADD (c CHAR(5), d DATE, ts TIMESTAMP(3), f FLOAT, lo LONG)")
    (change,) = world.run(f"ALTER TABLE t MODIFY {clause}").changes
    assert change.exact is exact
    assert expected in world.shape()
    assert world.table().key == ("ID",)
    assert world.asked == []


def test_core_decides_on_types_that_the_target_cannot_widen(world: SchemaModel) -> None:
    world.run("ALTER TABLE t MODIFY n NUMBER(9,4)")
    assert world.reasons == [None]
    world.run("ALTER TABLE t MODIFY n NUMBER")
    assert world.reasons == ["column N was changed from decimal128(9, 4) to string"]


def test_columns_are_dropped_and_renamed(world: SchemaModel) -> None:
    world.run("ALTER TABLE t ADD (a DATE, b DATE)", "ALTER TABLE t DROP COLUMN v")
    assert world.table().column_names == ("ID", "N", "A", "B")
    world.run("ALTER TABLE t SET UNUSED (a) CASCADE CONSTRAINTS")
    (change,) = world.run("ALTER TABLE t RENAME COLUMN b TO c").changes
    assert (change.renamed, world.table().column_names, world.reasons) == ({"C": "B"}, ("ID", "N", "C"), [None])
    (change,) = world.run("ALTER TABLE t RENAME COLUMN id TO pk").changes
    assert (change.renamed, world.table().key) == ({"PK": "ID"}, ("PK",))
    assert world.asked == []


def test_clauses_take_effect_one_after_the_other(world: SchemaModel) -> None:
    (change,) = world.run("ALTER TABLE t ADD (a NUMBER(3) DEFAULT 4) MODIFY (a NUMBER(5), v NOT NULL) DROP (n)").changes
    assert world.shape() == ["ID NUMBER(9,0)!", "V VARCHAR2(20)!", "A NUMBER(5,0)", "(ID)"]
    assert (change.added, world.reasons) == ({"A": "4"}, [None])


@pytest.mark.parametrize(
    "clause",
    [
        "ADD SUPPLEMENTAL LOG DATA (ALL) COLUMNS", "MOVE ONLINE", "ENABLE ROW MOVEMENT", "SHRINK SPACE", "PARALLEL 4", "READ ONLY",
        "ADD PARTITION p VALUES LESS THAN (5)", "SPLIT PARTITION p AT (3)", "RENAME CONSTRAINT a TO b", "DROP UNUSED COLUMNS",
        "ADD CONSTRAINT c CHECK (n > 0)", "ADD FOREIGN KEY (n) REFERENCES p", "ROW ARCHIVAL",
    ],
)  # fmt: skip
def test_clauses_that_change_no_column_make_no_new_version(world: SchemaModel, clause: str) -> None:
    world.run(f"ALTER TABLE t {clause}")
    assert world.table().version == 1
    assert (world.reasons, world.asked) == ([None], [])


def test_a_new_primary_key_is_the_key(world: SchemaModel) -> None:
    world.run(
        "CREATE TABLE u (a NUMBER, b NUMBER)",
        "ALTER TABLE u ADD CONSTRAINT k PRIMARY KEY (b, a) USING INDEX TABLESPACE x",
    )
    assert world.shape("U") == ["A NUMBER!", "B NUMBER!", "(B,A)"]
    world.run("CREATE TABLE w (a NUMBER)", "ALTER TABLE w ADD (id NUMBER(9) PRIMARY KEY)")
    assert world.shape("W") == ["A NUMBER", "ID NUMBER(9,0)!", "(ID)"]
    world.run("CREATE TABLE x (a NUMBER)", "ALTER TABLE x MODIFY a PRIMARY KEY")
    assert world.shape("X") == ["A NUMBER!", "(A)"]
    assert world.asked == []


@pytest.mark.parametrize(
    ("clause", "otherwise"),
    [
        ("DROP PRIMARY KEY", ()), ("DROP CONSTRAINT k", ("ID",)), ("DISABLE CONSTRAINT k", ("ID",)), ("MODIFY PRIMARY KEY DISABLE", ("ID",)),
        ("ADD UNIQUE (n)", ("ID",)), ("DROP UNIQUE (n)", ("ID",)), ("DROP (id) CASCADE CONSTRAINTS ADD (id NUMBER(9))", ()),
        ("MODIFY id NULL", ("ID",)), ("DISABLE PRIMARY KEY", ("ID",)),
    ],
)  # fmt: skip
def test_where_the_key_may_have_changed_the_dictionary_is_asked(
    world: SchemaModel, clause: str, otherwise: tuple[str, ...], caplog: pytest.LogCaptureFixture
) -> None:
    world.run(f"ALTER TABLE t {clause}")
    assert world.table().key == otherwise
    assert "The key of APP.T is not certain at SCN 5" in caplog.text
    sure = SchemaModel()
    sure.run(CREATE)
    sure.dictionary[T] = sure.table().model_copy(update={"key": ("N",)})
    sure.run(f"ALTER TABLE t {clause}")
    assert sure.table().key == ("N",)


def test_indexes_may_be_the_key() -> None:
    world = SchemaModel()
    world.run("CREATE TABLE t (a NUMBER NOT NULL)", "CREATE TABLE u (a NUMBER NOT NULL)")
    plain = world.table()
    world.dictionary[T] = plain.model_copy(update={"key": ("A",)})
    assert world.run("CREATE INDEX i ON t (a)").changes == []
    assert world.run("DROP INDEX i").changes == []
    assert world.asked == []
    world.run("CREATE UNIQUE INDEX i ON t (a)")
    assert (world.table().key, world.asked) == (("A",), [T])
    world.dictionary[T] = plain
    world.run("ALTER INDEX i RENAME TO j", "DROP INDEX j")
    assert (world.table().key, world.asked) == ((), [T, T])
    world.run("DROP INDEX never_seen")
    assert world.asked == [T, T]  # tables without a key have none to lose
    world.run("CREATE TABLE w (a NUMBER NOT NULL UNIQUE)")
    world.dictionary[table_id("W")] = world.table("W").model_copy(update={"key": ()})
    world.run("DROP INDEX never_seen")
    assert (world.table("W").key, world.asked) == ((), [T, T, table_id("W")])


def test_rows_that_change_without_redo_are_read_again(world: SchemaModel, caplog: pytest.LogCaptureFixture) -> None:
    world.run("CREATE TABLE o (a NUMBER)", "CREATE TABLE s.o (a NUMBER)", "CREATE TABLE w (a NUMBER)")
    for clause in ("TRUNCATE PARTITION p", "DROP PARTITION p", "MOVE PARTITION p INCLUDING ROWS WHERE n > 5"):
        (change,) = world.run(f"ALTER TABLE t {clause}").changes
        assert (change.type, change.id, change.exact) == ("ALTER", T, False)
        assert world.reasons[0] is not None
    found = world.run("ALTER TABLE t EXCHANGE PARTITION p WITH TABLE s.o")
    assert [(c.id, c.exact) for c in found.changes] == [(table_id("O", "S"), False), (T, False)]
    found = world.run("ALTER TABLE t EXCHANGE PARTITION p WITH TABLE o")  # of which schema, the log does not say
    assert {c.id for c in found.changes} == {table_id("O", "S"), table_id("O"), T}
    found = world.run("ALTER TABLE t TRUNCATE PARTITION p DROP STORAGE CASCADE UPDATE INDEXES")
    assert {c.id for c in found.changes} == {table_id("O", "S"), table_id("O"), table_id("W"), T}
    assert "Rows of APP.T may have changed" in caplog.text


def test_a_statement_that_does_not_fit_the_structure_makes_the_dictionary_count(
    world: SchemaModel, caplog: pytest.LogCaptureFixture
) -> None:
    for clause in (
        "ADD v NUMBER",
        "DROP COLUMN nope",
        "MODIFY nope NUMBER",
        "RENAME COLUMN nope TO yep",
        "ADD PRIMARY KEY (nope)",
    ):
        caplog.clear()
        world.dictionary[T] = world.table()
        assert (
            world.run(f"ALTER TABLE t {clause}").changes == []
        )  # the dictionary has what we have: it was ahead, and is so no more
        assert "differs from the definition in the statement at SCN 5" in caplog.text
    world.other(CREATE, "ALTER TABLE t ADD x DATE")
    (change,) = world.run("ALTER TABLE t DROP COLUMN nope").changes
    assert (change.exact, world.table().column_names) == (False, ("ID", "V", "N", "X"))
    world.dictionary.clear()
    (change,) = world.run("ALTER TABLE t DROP COLUMN nope ADD (y DATE)").changes
    assert (change.exact, world.table().column_names) == (False, ("ID", "V", "N", "X", "Y"))


def test_dropped_supplemental_logging_is_reported_with_its_remedy(
    world: SchemaModel, caplog: pytest.LogCaptureFixture
) -> None:
    assert world.run("ALTER TABLE t DROP SUPPLEMENTAL LOG DATA (ALL) COLUMNS").changes[0].exact
    assert 'ALTER TABLE "APP"."T" ADD SUPPLEMENTAL LOG DATA (ALL) COLUMNS' in caplog.text


# --- tables that come and go ------------------------------------------------------------------------------------------


def test_dropping_is_seen_once_with_and_without_the_recycle_bin(world: SchemaModel) -> None:
    (change,) = world.run('ALTER TABLE "APP"."T" RENAME TO "BIN$6Zx+/w==$0" ;').changes
    assert (change.type, change.id, change.table) == ("DROP", T, None)
    assert world.run('drop table t AS "BIN$6Zx+/w==$0" ;').changes == []
    world.run(CREATE)
    (change,) = world.run("DROP TABLE app.t CASCADE CONSTRAINTS PURGE", owner="SYSTEM").changes
    assert (change.type, change.id) == ("DROP", T)
    assert world.run("PURGE RECYCLEBIN").changes == []
    assert world.asked == []


def test_a_table_back_from_the_recycle_bin_is_read(world: SchemaModel, caplog: pytest.LogCaptureFixture) -> None:
    world.other(CREATE, "CREATE TABLE u (a NUMBER)")
    world.run("DROP TABLE t")
    (change,) = world.run("FLASHBACK TABLE t TO BEFORE DROP").changes
    assert (change.type, change.id, change.exact) == ("CREATE", T, False)
    assert world.reasons[0] is not None
    (change,) = world.run('FLASHBACK TABLE "BIN$x==$0" TO BEFORE DROP RENAME TO u').changes
    assert (change.id, change.exact) == (table_id("U"), False)
    assert world.run('FLASHBACK TABLE "BIN$x==$0" TO BEFORE DROP').changes == []
    assert "does not name it" in caplog.text
    (change,) = world.run("FLASHBACK TABLE t TO SCN 5").changes
    assert (change.type, change.exact) == ("ALTER", False)


def test_renaming_makes_another_table_that_is_read(world: SchemaModel) -> None:
    for sql, old, new in (("RENAME t TO u", "T", "U"), ("ALTER TABLE app.u RENAME TO w", "U", "W")):
        (change,) = world.run(sql).changes
        assert (change.type, change.id, change.previous_id, change.exact) == (
            "ALTER",
            table_id(new),
            table_id(old),
            False,
        )
        assert change.table is not None
        assert change.table.id == table_id(new)
        assert world.history.find_schema(table_id(old)) is None


def test_renaming_into_and_out_of_what_is_captured() -> None:
    world = SchemaModel({"table.include.list": r"APP\.T"})
    other = SchemaModel()
    other.run(CREATE)
    world.dictionary |= {T: other.table()}
    assert world.run("RENAME u TO w").changes == []
    (change,) = world.run("RENAME u TO t").changes
    assert (change.type, change.previous_id, change.exact, world.shape()[-1]) == ("CREATE", None, False, "(ID)")
    (change,) = world.run("ALTER TABLE t RENAME TO u").changes
    assert (change.type, change.id) == ("DROP", T)
    assert world.run("RENAME seq_a TO seq_b").changes == []


def test_truncating(world: SchemaModel) -> None:
    world.run("CREATE TABLE u (a NUMBER)", "CREATE TABLE s.w (a NUMBER)")
    found = world.run("TRUNCATE TABLE t DROP STORAGE")
    assert (found.truncated, found.changes) == ([T], [])
    found = world.run("TRUNCATE TABLE t CASCADE")
    assert found.truncated == [T]
    assert {(c.id, c.exact) for c in found.changes} == {(table_id("U"), False), (table_id("W", "S"), False)}
    found = world.run("TRUNCATE CLUSTER c")
    assert {c.id for c in found.changes} == {T, table_id("U")}


def test_dropping_a_user_drops_the_tables(world: SchemaModel) -> None:
    world.run("CREATE TABLE u (a NUMBER)", "CREATE TABLE s.w (a NUMBER)")
    found = world.run("DROP USER app CASCADE", owner="SYS")
    assert [(c.type, c.id) for c in found.changes] == [("DROP", T), ("DROP", table_id("U"))]
    assert world.history.current_tables == [table_id("W", "S")]


# --- what is not understood -------------------------------------------------------------------------------------------


def unknown(world: SchemaModel, sql: str) -> list[tuple[str, str, bool]]:
    return [(c.type, c.id.name, c.exact) for c in world.run(sql, understood=False).changes]


def test_tables_of_a_statement_that_is_not_understood_are_read_again(
    world: SchemaModel, caplog: pytest.LogCaptureFixture
) -> None:
    world.dictionary[T] = world.table()
    assert unknown(world, "ALTER TABLE t FROBNICATE") == [("ALTER", "T", False)]
    assert "A statement at SCN 5 cannot be parsed" in caplog.text
    world.other("CREATE TABLE u (a NUMBER)")
    assert unknown(world, "CREATE TABLE u (a NUMBER) FROBNICATE") == [("CREATE", "U", False)]
    world.dictionary.clear()
    assert unknown(world, "ALTER TABLE t FROBNICATE") == [("ALTER", "T", False)]
    assert unknown(world, "ALTER TABLE sys.x FROBNICATE") == []


def test_a_statement_that_names_no_table_is_held_against_the_dictionary(world: SchemaModel) -> None:
    world.run("CREATE TABLE u (a NUMBER)", "CREATE TABLE w (a NUMBER)")
    world.dictionary = {t: s for t in world.history.current_tables if (s := world.history.find_schema(t)) is not None}
    assert unknown(world, "DROP CLUSTER c INCLUDING TABLES") == []
    del world.dictionary[table_id("U")]
    world.other("CREATE TABLE w (a NUMBER, b DATE)")
    assert unknown(world, "DROP TABLESPACE x INCLUDING CONTENTS") == [("ALTER", "U", False), ("ALTER", "W", False)]


def test_differences_that_rows_do_not_show_are_none(world: SchemaModel) -> None:
    def change_first_column(schema: TableSchema) -> TableSchema:
        first = schema.columns[0]
        declared = first.declared.model_copy(update={"default": "5"})
        return schema.model_copy(
            update={"columns": (*schema.columns[1:], first.model_copy(update={"declared": declared}))}
        )

    world.dictionary[T] = change_first_column(world.table())
    assert unknown(world, "DROP CLUSTER c INCLUDING TABLES") == []


def test_nothing_of_a_password_is_reported(world: SchemaModel, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    world.run(
        "CREATE USER u IDENTIFIED BY s3cr3t",
        "ALTER USER u IDENTIFIED BY s3cr3t",
        "CREATE DATABASE LINK l CONNECT TO u IDENTIFIED BY s3cr3t",
    )
    assert "s3cr3t" not in caplog.text


def test_comments_change_only_themselves_and_stay_with_their_columns() -> None:
    world = SchemaModel({"include.schema.comments": True})
    world.run(CREATE)
    before = world.table()
    world.run("COMMENT ON TABLE t IS 'orders'", "COMMENT ON COLUMN app.t.v IS 'it''s a text'")
    assert world.reasons == [None]
    assert (world.table().comment, world.table().get_column("V").declared.comment) == ("orders", "it's a text")
    assert world.table().same_structure(before)
    assert not world.table().same_description(before)
    world.run("ALTER TABLE t MODIFY v VARCHAR2(40)", "ALTER TABLE t RENAME COLUMN v TO w", "ALTER TABLE t ADD v NUMBER")
    assert [c.declared.comment for c in world.table().columns] == [None, "it's a text", None, None]
    again = world.run("COMMENT ON COLUMN t.w IS 'it''s a text'", "COMMENT ON COLUMN t.gone IS 'x'")
    assert again.changes == []
    world.run("COMMENT ON COLUMN t.w IS ''", "COMMENT ON TABLE t IS ''")
    assert world.table().same_description(world.table().model_copy(update={"comment": None}))
    assert [c.declared.comment for c in world.table().columns] == [None] * 4
    assert world.asked == []


def test_without_the_property_comments_change_nothing(world: SchemaModel) -> None:
    assert world.run("COMMENT ON TABLE t IS 'orders'").changes == []
    assert world.table().comment is None
