"""Column definitions: types, defaults, nullability and keys."""

from __future__ import annotations

import pytest

from airflow_provider_cdc.sources.oracle.schema.column_types import ColumnType
from airflow_provider_cdc.sources.oracle.schema.ddl import (
    AddColumn,
    AddKey,
    AlterTable,
    ColumnDefault,
    ColumnDefinition,
    KeyDefinition,
    parse_ddl_statement,
    read_default,
)


def column(definition: str) -> ColumnDefinition:
    statement = parse_ddl_statement(f"ALTER TABLE t ADD c {definition}")
    assert isinstance(statement, AlterTable), statement
    action = statement.actions[0]
    assert isinstance(action, AddColumn)
    return action.column


TYPES = [
    ("NUMBER", "NUMBER"), ("NUMBER(*)", "NUMBER"), ("NUMBER(5)", "NUMBER(5,0)"), ("NUMBER (5, -2)", "NUMBER(5,-2)"),
    ("NUMBER(*,2)", "NUMBER(38,2)"), ("DECIMAL", "NUMBER(38,0)"), ("DEC(7)", "NUMBER(7,0)"), ("NUMERIC(12,4)", "NUMBER(12,4)"),
    ("INTEGER", "NUMBER(38,0)"), ("INT", "NUMBER(38,0)"), ("SMALLINT", "NUMBER(38,0)"), ("FLOAT", "FLOAT(126)"),
    ("FLOAT(24)", "FLOAT(24)"), ("REAL", "FLOAT(63)"), ("DOUBLE PRECISION", "FLOAT(126)"), ("BINARY_FLOAT", "BINARY_FLOAT"),
    ("BINARY_DOUBLE", "BINARY_DOUBLE"), ("CHAR", "CHAR(1)"), ("CHARACTER(5 BYTE)", "CHAR(5)"), ("VARCHAR(9)", "VARCHAR2(9)"),
    ("VARCHAR2 ( 9  CHAR )", "VARCHAR2(9)"), ("CHARACTER VARYING(7)", "VARCHAR2(7)"), ("CHAR VARYING(7)", "VARCHAR2(7)"),
    ("NCHAR", "NCHAR(1)"), ("NATIONAL CHARACTER(4)", "NCHAR(4)"), ("NATIONAL CHAR VARYING(4)", "NVARCHAR2(4)"),
    ("NCHAR VARYING(4)", "NVARCHAR2(4)"), ("NVARCHAR2(40)", "NVARCHAR2(40)"), ("RAW(2000)", "RAW(2000)"), ("LONG", "LONG"),
    ("LONG VARCHAR", "LONG"), ("LONG RAW", "LONG RAW"), ("DATE", "DATE"), ("TIMESTAMP", "TIMESTAMP(6)"),
    ("TIMESTAMP(0)", "TIMESTAMP(0)"), ("TIMESTAMP WITH TIME ZONE", "TIMESTAMP(6) WITH TIME ZONE"),
    ("TIMESTAMP (3) WITH LOCAL TIME ZONE", "TIMESTAMP(3) WITH LOCAL TIME ZONE"), ("ROWID", "ROWID"), ("UROWID(100)", "UROWID(100)"),
    ("CLOB", "CLOB"), ("NCLOB", "NCLOB"), ("BLOB", "BLOB"), ("BFILE", "BFILE"), ("XMLTYPE", "XMLTYPE"), ("SYS.XMLTYPE", "XMLTYPE"),
    ("BOOL", "BOOLEAN"), ("JSON", "JSON"), ("VECTOR(*, FLOAT32)", "VECTOR"), ("MDSYS.SDO_GEOMETRY", "SDO_GEOMETRY"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "expression"), TYPES)
def test_every_type_is_read_as_the_dictionary_spells_it(text: str, expression: str) -> None:
    found = column(f"{text} NOT NULL")
    assert found.type is not None
    assert found.type.ddl_expression == expression
    assert (found.type_text, found.built_in, found.nullable) == (text, True, False)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("INTERVAL DAY TO SECOND", ColumnType("INTERVAL DAY TO SECOND", 6)),
        ("INTERVAL DAY(4) TO SECOND (3)", ColumnType("INTERVAL DAY TO SECOND", 3)),
        ("INTERVAL YEAR TO MONTH", ColumnType("INTERVAL YEAR TO MONTH", 2)),
        ("INTERVAL YEAR (4) TO MONTH", ColumnType("INTERVAL YEAR TO MONTH", 4)),
    ],
)
def test_intervals_have_their_precision(text: str, expected: ColumnType) -> None:
    assert column(text).type == expected


def test_types_of_users_are_left_to_the_dictionary() -> None:
    for text in ("addr_t", "app.addr_t", 'app."Addr"', "REF app.addr_t"):
        assert not column(text).built_in


DEFAULTS = [
    ("5", ColumnDefault("5", "number", "5")), ("-1.50", ColumnDefault("-1.50", "number", "-1.50")), ("(+.5)", ColumnDefault("(+.5)", "number", ".5")),
    ("1e3", ColumnDefault("1e3", "number", "1e3")), ("'it''s'", ColumnDefault("'it''s'", "string", "it's")), ("''", ColumnDefault("''", "null")),
    ("NULL", ColumnDefault("NULL", "null")), ("q'{a'b}'", ColumnDefault("q'{a'b}'", "string", "a'b")), ("N'é'", ColumnDefault("N'é'", "string", "é")),
    ("DATE '2024-02-29'", ColumnDefault("DATE '2024-02-29'", "date", "2024-02-29")),
    ("TIMESTAMP '2024-02-29 01:02:03.5'", ColumnDefault("TIMESTAMP '2024-02-29 01:02:03.5'", "timestamp", "2024-02-29 01:02:03.5")),
    ("TO_DATE('2024-02-29', 'yyyy-mm-dd')", ColumnDefault("TO_DATE('2024-02-29', 'yyyy-mm-dd')", "date", "2024-02-29")),
    ("TO_DATE('29.02.24', 'DD.MM.RR')", ColumnDefault("TO_DATE('29.02.24', 'DD.MM.RR')", "expression")),
    ("SYSDATE", ColumnDefault("SYSDATE", "expression")), ("1 + 1", ColumnDefault("1 + 1", "expression")), ("1d", ColumnDefault("1d", "expression")),
    ("s.seq.NEXTVAL", ColumnDefault("s.seq.NEXTVAL", "expression")), ("'a' || USER", ColumnDefault("'a' || USER", "expression")),
    ("SYSTIMESTAMP AT TIME ZONE 'UTC'", ColumnDefault("SYSTIMESTAMP AT TIME ZONE 'UTC'", "expression")),
    ("CASE WHEN 1 IS NOT NULL THEN 'a' ELSE 'b' END", ColumnDefault("CASE WHEN 1 IS NOT NULL THEN 'a' ELSE 'b' END", "expression")),
    ("INTERVAL '1' DAY(2) TO SECOND(3)", ColumnDefault("INTERVAL '1' DAY(2) TO SECOND(3)", "expression")),
    ("SYS_GUID()", ColumnDefault("SYS_GUID()", "expression")), ("EMPTY_CLOB()", ColumnDefault("EMPTY_CLOB()", "expression")),
]  # fmt: skip


@pytest.mark.parametrize(("text", "expected"), DEFAULTS)
def test_defaults_end_where_the_next_attribute_begins(text: str, expected: ColumnDefault) -> None:
    found = column(f"NUMBER DEFAULT {text} NOT NULL")
    assert (found.default, found.nullable) == (expected, False)
    assert read_default(f" {text} ") == expected


def test_a_default_that_cannot_be_read_is_an_expression() -> None:
    assert read_default("??? ") == ColumnDefault("???", "expression")


def test_default_on_null_makes_a_column_not_null() -> None:
    for words in ("ON NULL", "ON NULL FOR INSERT ONLY", "ON NULL FOR INSERT AND UPDATE"):
        found = column(f"NUMBER DEFAULT {words} 7")
        assert found.default == ColumnDefault("7", "number", "7", on_null=True)
        assert found.nullable is False


def test_nullability_is_that_of_a_constraint_which_holds_for_every_row() -> None:
    assert column("NUMBER NOT NULL").nullable is False
    assert column("NUMBER CONSTRAINT n NOT NULL DEFERRABLE").nullable is None
    assert column("NUMBER NOT NULL DISABLE").nullable is None
    assert column("NUMBER NOT NULL ENABLE NOVALIDATE").nullable is None
    assert column("NUMBER NOT NULL NOT DEFERRABLE INITIALLY IMMEDIATE ENABLE VALIDATE").nullable is False
    assert column("NUMBER NULL").nullable is True


def test_identity_and_virtual_and_invisible_columns() -> None:
    for words in ("ALWAYS", "BY DEFAULT", "BY DEFAULT ON NULL", ""):
        found = column(f"NUMBER GENERATED {words} AS IDENTITY (START WITH 1)")
        assert (found.identity, found.nullable, found.virtual) == (True, False, False)
    for text in ("NUMBER GENERATED ALWAYS AS (a + 1)", "AS (a || ')') VIRTUAL", "NUMBER INVISIBLE AS (b)"):
        assert column(text).virtual
    assert column("NUMBER INVISIBLE").visible is False
    assert column("NUMBER VISIBLE").visible is True


def test_keys_come_along_with_their_names() -> None:
    def keys(definition: str) -> list[KeyDefinition]:
        statement = parse_ddl_statement(f"ALTER TABLE t ADD ({definition})")
        assert isinstance(statement, AlterTable), statement
        return [a.key for a in statement.actions if isinstance(a, AddKey)]

    assert keys("c NUMBER PRIMARY KEY") == [KeyDefinition("primary", ("C",))]
    assert keys("c NUMBER CONSTRAINT k UNIQUE NOT NULL") == [KeyDefinition("unique", ("C",), "K")]
    assert keys("CONSTRAINT k UNIQUE (a, b) USING INDEX TABLESPACE x DISABLE") == [
        KeyDefinition("unique", ("A", "B"), "K", False)
    ]
    assert keys("c NUMBER UNIQUE CHECK (c > 0) REFERENCES p") == [KeyDefinition("unique", ("C",))]
    assert keys("primary NUMBER, c NUMBER") == []


def test_names_are_folded_to_upper_case_unless_quoted() -> None:
    statement = parse_ddl_statement('ALTER TABLE "s".t ADD ("c d" NUMBER, "E" NUMBER, größe NUMBER, a$#_1 NUMBER)')
    assert isinstance(statement, AlterTable)
    assert str(statement.table) == "s.T"
    assert [a.column.name for a in statement.actions if isinstance(a, AddColumn)] == ["c d", "E", "GRÖßE", "A$#_1"]
