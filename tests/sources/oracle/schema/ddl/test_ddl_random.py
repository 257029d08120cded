"""Random text never raises and never takes long; random tables are read as they were meant; damage is never taken for a change."""

from __future__ import annotations

import re
import time
from typing import get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_provider_cdc.sources.oracle.schema.column_types import ColumnType
from airflow_provider_cdc.sources.oracle.schema.ddl import (
    AddColumn,
    AddKey,
    AlterTable,
    ColumnDefault,
    ColumnDefinition,
    CreateTable,
    KeyDefinition,
    QualifiedName,
    Statement,
    UnknownStatement,
    parse_ddl_statement,
    read_default,
    tables_of,
)
from airflow_provider_cdc.sources.oracle.schema.ddl.grammar.ddl_cursor import RESERVED
from airflow_provider_cdc.sources.oracle.schema.ddl.grammar.sql_tokenizer import fold_name, tokenize
from airflow_provider_cdc.sources.relational.sql_token_cursor import END

_STATEMENTS = get_args(Statement)
_SECONDS = 0.1


def check(sql: str) -> None:
    """Reading gives a statement, in time: of the processor, whatever else it has to do."""
    for attempt in range(3):  # the machine may be busy with something else
        start = time.thread_time()
        statement = parse_ddl_statement(sql)
        read_default(sql)
        elapsed = time.thread_time() - start
        if elapsed < _SECONDS:
            break
        assert attempt < 2, f"{elapsed:.3f} s for {sql[:200]!r}"
    assert isinstance(statement, _STATEMENTS)
    tables_of(statement)


WORDS = [
    "ALTER",
    "TABLE",
    "CREATE",
    "DROP",
    "RENAME",
    "TRUNCATE",
    "FLASHBACK",
    "ADD",
    "COLUMN",
    "MODIFY",
    "IF",
    "NOT",
    "EXISTS",
    "NULL",
    "DEFAULT",
    "ON",
    "PRIMARY",
    "KEY",
    "UNIQUE",
    "INDEX",
    "CONSTRAINT",
    "FOREIGN",
    "REFERENCES",
    "CHECK",
    "PARTITION",
    "BY",
    "HASH",
    "RANGE",
    "TO",
    "AS",
    "SELECT",
    "OR",
    "REPLACE",
    "TEMPORARY",
    "GLOBAL",
    "SET",
    "UNUSED",
    "COLUMNS",
    "CASCADE",
    "CONSTRAINTS",
    "PURGE",
    "SUPPLEMENTAL",
    "LOG",
    "GROUP",
    "DATA",
    "ALL",
    "ALWAYS",
    "ENABLE",
    "DISABLE",
    "VALIDATE",
    "USING",
    "STORAGE",
    "TABLESPACE",
    "LOB",
    "STORE",
    "GENERATED",
    "IDENTITY",
    "VIRTUAL",
    "INVISIBLE",
    "CASE",
    "WHEN",
    "END",
    "NUMBER",
    "VARCHAR2",
    "CHAR",
    "NATIONAL",
    "LONG",
    "RAW",
    "TIMESTAMP",
    "WITH",
    "LOCAL",
    "TIME",
    "ZONE",
    "INTERVAL",
    "DAY",
    "SECOND",
    "DATE",
    "MOVE",
    "SPLIT",
    "EXCHANGE",
    "INCLUDING",
    "ROWS",
    "ORGANIZATION",
    "EXTERNAL",
    "OF",
    "XMLTYPE",
    "BEFORE",
    "t",
    "u",
    '"v',
    'w"',
    "'x'",
    "q'[y]'",
    "(",
    ")",
    "(",
    ")",
    ",",
    ",",
    ".",
    ";",
    "/",
    "=",
    "5",
    "1.5",
    "-",
    "*",
    "||",
    "@",
    "/*",
    "*/",
    "--",
    "N'é'",
    ":",
    "?",
    "\n/",
]
NASTY = st.text(alphabet="'\"/*-;#(),.@=M0159 \n\tabqQnN[]{}e_$\x00ß😀", max_size=300)


@settings(max_examples=300, deadline=None)
@given(NASTY)
def test_random_text(sql: str) -> None:
    check(sql)
    check(f"ALTER TABLE t {sql}")


@settings(max_examples=200, deadline=None)
@given(st.text(max_size=2000))
def test_random_unicode(sql: str) -> None:
    check(sql)


@settings(max_examples=500, deadline=None)
@given(
    st.sampled_from(
        [
            "",
            "ALTER TABLE t ",
            "ALTER TABLE t ADD ",
            "ALTER TABLE t MODIFY (",
            "CREATE TABLE t (a NUMBER ",
            "CREATE TABLE t (",
            "CREATE ",
        ]
    ),
    st.lists(st.sampled_from(WORDS), max_size=60),
)
def test_random_words(start: str, words: list[str]) -> None:
    check(start + " ".join(words))


@pytest.mark.parametrize(
    "piece", ["(", ")", "'", '"', "/*", "*/", "''", "a.", "((", "q'[", "-", "0", "CASE ", "--", "\n/", ";", "N'"]
)
@pytest.mark.parametrize("start", ["", "ALTER TABLE t ADD a NUMBER DEFAULT ", "CREATE TABLE t ("])
def test_the_same_again_and_again(start: str, piece: str) -> None:
    check(start + piece * 5000)


@pytest.mark.parametrize("digits", ["9" * 10_000, "1e999999999", "1." + "0" * 9999])
def test_numbers_without_end(digits: str) -> None:
    check(f"ALTER TABLE t ADD a NUMBER DEFAULT {digits}")
    check(f"ALTER TABLE t ADD a NUMBER({digits})")


# --- tables out of a grammar ----------------------------------------------------------------------------------------

NAMES = st.one_of(
    st.sampled_from(["ID", "NAME", "A$#_1", "COMMENTS", "STATUS", "KEY", "TYPE", "LEVELS", "GRÖSSE", "lower", "MiXed"]),
    st.text(alphabet="ab (),.-';/*é日Q", min_size=1, max_size=8),
)
TEXTS = st.text(alphabet="ab'\";,()/*-\n\té日😀[]{} ", min_size=1, max_size=10)


def quote_text(text: str) -> str:
    escaped = text.replace("'", "''")
    return f"'{escaped}'"


@st.composite
def identifier(draw: st.DrawFn, name: str) -> str:
    """A name as a statement may write it: without quotes, in any case, where it is one then."""
    plain = name.isalnum() or set(name) <= set("A$#_1")
    if plain and name[0].isalpha() and fold_name(name.lower()) == name and name not in RESERVED and draw(st.booleans()):
        return draw(st.sampled_from([name, name.lower()]))
    return f'"{name}"'


@st.composite
def gap(draw: st.DrawFn) -> str:
    return draw(st.sampled_from([" ", "  ", "\n", "\t", " /* ; ' */ ", " -- it's (\n", " /*+ hint */ "]))


@st.composite
def spell_words(draw: st.DrawFn, text: str) -> str:
    out = ""
    for i, word in enumerate(text.split(" ")):
        out += (draw(gap()) if i else "") + draw(st.sampled_from([word, word.lower()]))
    return out


@st.composite
def draw_sized_type(draw: st.DrawFn) -> tuple[str, ColumnType, str | None]:
    """A type as text, as it is meant, and its unit."""
    n, s = draw(st.integers(1, 38)), draw(st.integers(-84, 127))
    match draw(st.sampled_from(["number", "text", "moment", "simple"])):
        case "number":
            word = draw(st.sampled_from(["NUMBER", "DECIMAL", "NUMERIC"]))
            return f"{word}({n}{draw(gap())},{draw(gap())}{s})", ColumnType("NUMBER", n, s), None
        case "text":
            unit = draw(st.sampled_from([None, "CHAR", "BYTE"]))
            word, base = draw(
                st.sampled_from([("VARCHAR2", "VARCHAR2"), ("CHARACTER", "CHAR"), ("VARCHAR", "VARCHAR2")])
            )
            return f"{word}({n}{f' {unit}' if unit else ''})", ColumnType(base, n), unit
        case "moment":
            kind = draw(st.sampled_from(["", " WITH TIME ZONE", " WITH LOCAL TIME ZONE"]))
            return draw(spell_words(f"TIMESTAMP({n % 10}){kind}")), ColumnType(f"TIMESTAMP{kind}", n % 10), None
    text, type_ = draw(
        st.sampled_from(
            [
                ("DATE", ColumnType("DATE")), ("INTEGER", ColumnType("NUMBER", 38, 0)), ("CLOB", ColumnType("CLOB")),
                ("LONG RAW", ColumnType("LONG RAW")), ("DOUBLE PRECISION", ColumnType("FLOAT", 126)), ("XMLTYPE", ColumnType("XMLTYPE")),
            ]
        )
    )  # fmt: skip
    return draw(spell_words(text)), type_, None


@st.composite
def column(draw: st.DrawFn, name: str) -> tuple[str, ColumnDefinition, list[KeyDefinition]]:
    text, type_, unit = draw(draw_sized_type())
    parts, fields, keys = [draw(identifier(name)), text], {}, []
    chosen = draw(
        st.lists(
            st.sampled_from(["default", "null", "visible", "unique", "check", "references"]), max_size=4, unique=True
        )
    )
    for clause in chosen:
        match clause:
            case "default":
                value = draw(TEXTS)
                written, default = draw(
                    st.sampled_from(
                        [
                            (quote_text(value), ColumnDefault(quote_text(value), "string", value)), ("-5", ColumnDefault("-5", "number", "-5")),
                            ("f(')', x)", ColumnDefault("f(')', x)", "expression")), ("NULL", ColumnDefault("NULL", "null")),
                        ]
                    )
                )  # fmt: skip
                parts.append(f"DEFAULT {written}")
                fields["default"] = default
            case "null":
                parts.append(draw(spell_words("NOT NULL ENABLE")))
                fields["nullable"] = False
            case "visible":
                parts.append(draw(spell_words("INVISIBLE")))
                fields["visible"] = False
            case "unique":
                parts.append(draw(spell_words("CONSTRAINT k UNIQUE")))
                keys.append(KeyDefinition("unique", (name,), "K"))
            case "check":
                parts.append("CHECK (a > 0 AND b <> ')')")
            case _:
                parts.append(draw(spell_words("REFERENCES p")) + "(id) ON DELETE CASCADE")
    definition = ColumnDefinition(name, type_, text, unit=unit, **fields)  # type: ignore[arg-type]
    return draw(gap()).join(parts), definition, keys


@st.composite
def elements(draw: st.DrawFn) -> tuple[str, list[ColumnDefinition], list[KeyDefinition]]:
    """``(column, …)`` and what is in it."""
    names = draw(st.lists(NAMES, min_size=1, max_size=6, unique=True))
    made = [draw(column(n)) for n in names]
    texts, keys = [text for text, _, _ in made], [key for _, _, more in made for key in more]
    primary = tuple(draw(st.lists(st.sampled_from(names), max_size=3, unique=True)))
    if primary:
        texts.append("CONSTRAINT pk PRIMARY KEY (" + ", ".join([draw(identifier(n)) for n in primary]) + ")")
        keys.append(KeyDefinition("primary", primary, "PK"))
    for extra in draw(
        st.lists(st.sampled_from(["CHECK (a in (1,2))", "SUPPLEMENTAL LOG DATA (ALL) COLUMNS"]), max_size=2)
    ):
        texts.append(extra)
    return "(" + ",".join(draw(gap()) + t for t in texts) + draw(gap()) + ")", [c for _, c, _ in made], keys


@st.composite
def table(draw: st.DrawFn) -> tuple[str, Statement]:
    """A CREATE TABLE or ALTER TABLE ADD, and what it says."""
    body, columns, keys = draw(elements())
    name = QualifiedName(draw(st.sampled_from([None, "S"])), draw(NAMES))
    full = ("s." if name.namespace else "") + draw(identifier(name.name)) + draw(gap())
    end = draw(st.sampled_from(["", ";", " ;\n", "\n/\n", " -- end"]))
    if draw(st.booleans()):
        tail = draw(
            st.sampled_from(
                ["", " TABLESPACE x", " PCTFREE 5 STORAGE (INITIAL 64K) LOGGING", " PARTITION BY HASH (a) PARTITIONS 4"]
            )
        )
        sql = draw(spell_words("CREATE TABLE")) + draw(gap()) + full + body + tail + end
        return sql, CreateTable(name, tuple(columns), tuple(keys))
    sql = draw(spell_words("ALTER TABLE")) + draw(gap()) + full + draw(spell_words("ADD")) + draw(gap()) + body + end
    return sql, AlterTable(name, (*map(AddColumn, columns), *map(AddKey, keys)))


def are_equal_statements(found: Statement, expected: Statement) -> bool:
    """Equal, but for where the keys of an ALTER TABLE stand among its columns."""
    if isinstance(found, AlterTable) and isinstance(expected, AlterTable):

        def split(s: AlterTable) -> list[object]:
            return [
                s.table,
                *[a for a in s.actions if isinstance(a, AddColumn)],
                *[a for a in s.actions if not isinstance(a, AddColumn)],
            ]

        return split(found) == split(expected)
    return found == expected


@settings(max_examples=400, deadline=None)
@given(table())
def test_random_tables_are_read_as_meant(case: tuple[str, Statement]) -> None:
    sql, expected = case
    found = parse_ddl_statement(sql)
    assert are_equal_statements(found, expected), found


def format_statement(statement: Statement) -> str:
    """Everything but the texts of expressions, which are given as they are."""
    return re.sub(r"Default\(text=.*?, kind='expression'", "expression", repr(statement))


@settings(max_examples=400, deadline=None)
@given(table(), st.data())
def test_damage_is_never_taken_for_another_change(case: tuple[str, Statement], data: st.DataObject) -> None:
    """Damage leaves the statement as it was in a part that is not about the table, and else makes it unreadable."""
    sql, _ = case
    meant = parse_ddl_statement(sql)
    tokens = tokenize(sql)
    token = data.draw(st.sampled_from(tokens))
    junk = data.draw(st.sampled_from(["@", "?", "!", "(", ")", "'", '"', "~~", "5a", "<>", ",,", "1 1", "'x' 'y'"]))
    damaged = parse_ddl_statement(f"{sql[: token.start]} {junk} {sql[token.start :]}")
    assert isinstance(damaged, UnknownStatement) or format_statement(damaged) == format_statement(meant)


@settings(max_examples=200, deadline=None)
@given(table(), st.data())
def test_a_statement_that_was_cut_off_is_not_understood(case: tuple[str, Statement], data: st.DataObject) -> None:
    sql, _ = case
    tokens = [t for t in tokenize(sql) if t.kind != END]
    last = max(i for i, t in enumerate(tokens) if t.key == ")" and _depth(tokens[: i + 1]) == 0)
    first = next(i for i, t in enumerate(tokens) if t.key == "(")
    last = next(i for i in range(first, last + 1) if _depth([*tokens[: i + 1]]) == 0)
    cut = data.draw(st.integers(1, tokens[last].start))
    assert isinstance(parse_ddl_statement(sql[:cut]), UnknownStatement) or not sql[:cut].strip("/*+ ;\n\t-hint")


def _depth(tokens: list[object]) -> int:
    return sum({"(": 1, ")": -1}.get(getattr(t, "key", ""), 0) for t in tokens)
