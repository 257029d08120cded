"""Random text never raises and never takes long; random tables are read as they were meant."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any, get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_provider_cdc.sources.mysql.schema.ddl import (
    ColumnDef,
    CreateTable,
    MySqlColumnDefault,
    QualifiedName,
    Statement,
    parse_statements,
    parse_type,
    tables_of,
)

_STATEMENTS = get_args(Statement)
_SECONDS = 0.05


def check(sql: str, **modes: Any) -> None:
    """Reading gives statements, in time: of the processor, whatever else it has to do."""
    for attempt in range(3):  # the machine may be busy with something else
        start = time.thread_time()
        statements = parse_statements(sql, **modes)
        elapsed = time.thread_time() - start
        if elapsed < _SECONDS:
            break
        assert attempt < 2, f"{elapsed:.3f} s for {sql!r}"
    assert statements
    for statement in statements:
        assert isinstance(statement, _STATEMENTS)
        tables_of(statement)


MODES = st.fixed_dictionaries(
    {},
    optional={
        "ansi_quotes": st.booleans(),
        "no_backslash_escapes": st.booleans(),
        "oracle": st.booleans(),
        "maxdb": st.booleans(),
        "version": st.sampled_from([None, 50_744, 80_036, 101_106]),
    },
)
NASTY = st.text(alphabet="'\"`\\/*!-#;(),.@=M0159 \n\tabxXNe_$\x00ß😀", max_size=300)
_WORDS = r"""
ALTER TABLE CREATE DROP RENAME TRUNCATE ADD COLUMN CHANGE MODIFY IF NOT EXISTS NULL DEFAULT ON UPDATE PRIMARY KEY
UNIQUE INDEX CONSTRAINT FOREIGN REFERENCES CHECK PARTITION BY HASH RANGE VALUES FIRST AFTER TO AS LIKE SELECT OR
REPLACE TEMPORARY DATABASE DEFINER SQL SECURITY VIEW TRIGGER BEGIN END XA START COMMIT SET STATEMENT FOR CASE WHEN
ENUM SET INT VARCHAR DECIMAL CHAR NATIONAL LONG TEXT DOUBLE TIMESTAMP SERIAL CHARACTER CHARSET COLLATE BINARY
COMMENT GENERATED ALWAYS STORED ENGINE CONVERT EXCHANGE WITH ORDER TRUE CURRENT_TIMESTAMP NEXT VALUE VECTOR t u `v
w` 'x' "y" ( ) ( ) , , . ; = 5 1.5 -1 x'41' b'1' 0x4 @ /*! */ /* /*!50100 -- # + _utf8 N'é' { } \
"""
WORDS = _WORDS.split()


@settings(max_examples=400, deadline=None)
@given(NASTY, MODES)
def test_random_text(sql: str, modes: dict[str, Any]) -> None:
    check(sql, **modes)


@settings(max_examples=200, deadline=None)
@given(st.text(max_size=2000), MODES)
def test_random_unicode(sql: str, modes: dict[str, Any]) -> None:
    check(sql, **modes)


@settings(max_examples=600, deadline=None)
@given(
    st.sampled_from(
        [
            "",
            "ALTER TABLE t ",
            "CREATE TABLE t (a INT ",
            "CREATE TABLE t (",
            "ALTER TABLE t ADD a INT DEFAULT ",
            "CREATE ",
        ]
    ),
    st.lists(st.sampled_from(WORDS), max_size=80),
    MODES,
)
def test_random_words(start: str, words: list[str], modes: dict[str, Any]) -> None:
    check(start + " ".join(words), **modes)


VALID = (
    "CREATE OR REPLACE TABLE IF NOT EXISTS `s`.`t ``x` (id BIGINT UNSIGNED NOT NULL AUTO_INCREMENT COMMENT 'it''s',"
    " e ENUM('a','b\\'c') DEFAULT 'a', d DECIMAL(10,2) DEFAULT -1.5 /*!80023 INVISIBLE */, g INT AS (id + 1) STORED,"
    " ts TIMESTAMP(3) NULL DEFAULT CURRENT_TIMESTAMP(3) ON UPDATE CURRENT_TIMESTAMP(3), j JSON DEFAULT (json_object()),"
    " PRIMARY KEY (id), UNIQUE KEY u (e, d), CONSTRAINT fk FOREIGN KEY (g) REFERENCES p (id) ON DELETE CASCADE)"
    " ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 PARTITION BY RANGE (id) (PARTITION p0 VALUES LESS THAN (5)) SELECT 1",
    "/*!50003 ALTER*/ ONLINE TABLE IF EXISTS t WAIT 5 ADD COLUMN (a INT, UNIQUE (a)), CHANGE b c NCHAR(5) FIRST,"
    " MODIFY d LONG VARCHAR AFTER e, DROP COLUMN f, ALTER g SET DEFAULT b'101', RENAME COLUMN h TO i,"
    " ADD PRIMARY KEY (a(3), b),"
    " CONVERT TO CHARACTER SET utf8mb4 COLLATE utf8mb4_bin, RENAME TO `u`, ORDER BY a, b PARTITION BY KEY (a)",
    "SET STATEMENT a=1 FOR RENAME TABLE a TO b, `c`.d TO `e`.`f` -- done",
    "CREATE DEFINER=`a`@`%` SQL SECURITY INVOKER VIEW v AS SELECT ';' /* x */; XA START X'61',X'62',3;"
    " DROP TABLE IF EXISTS a,b",
)  # fmt: skip


@pytest.mark.parametrize("sql", VALID)
def test_every_cut_of_a_statement(sql: str) -> None:
    for at in range(len(sql)):
        parse_statements(sql[:at])
        parse_statements(sql[at:])


@settings(max_examples=300, deadline=None)
@given(st.sampled_from(VALID), st.data())
def test_shuffled_statements(sql: str, data: st.DataObject) -> None:
    words = sql.split(" ")
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(words) - 1))
        other = data.draw(st.integers(0, len(words) - 1))
        match data.draw(st.sampled_from(["drop", "swap", "double"])):
            case "drop" if len(words) > 1:
                del words[at]
            case "swap":
                words[at], words[other] = words[other], words[at]
            case _:
                words.insert(at, words[other])
        at = min(at, len(words) - 1)
    check(" ".join(words))


@pytest.mark.parametrize(
    "piece", ["(", "'", '"', "`", "/*", "/*!", "*/", "''", "\\'", "a.", "((", "x'", "-", "0", "CASE ", "/*!50100 /*"]
)
@pytest.mark.parametrize("start", ["", "ALTER TABLE t ADD a INT DEFAULT ", "INSERT INTO t VALUES "])
def test_the_same_again_and_again(start: str, piece: str) -> None:
    check(start + piece * 5000)


@pytest.mark.parametrize(
    "digits", ["9" * 10_000, "0x" + "f" * 10_000, "b'" + "1" * 10_000 + "'", "1e999999999", "1." + "0" * 9999]
)
def test_numbers_without_end(digits: str) -> None:
    for type_ in ("INT", "BIT(64)", "VARCHAR(5)", "DECIMAL(9,2)", "ENUM('a')"):
        check(f"ALTER TABLE t ADD a {type_} DEFAULT {digits}")
    check(f"ALTER TABLE t ADD a VARCHAR({digits})")
    check(f"ALTER TABLE t ADD a ENUM({digits})")


# --- tables out of a grammar ----------------------------------------------------------------------------------------

NAMES = st.one_of(
    st.sampled_from(["id", "Name", "_x", "$y", "größe", "1st", "comment", "status", "first", "type", "vector"]),
    st.text(alphabet="ab `'\"\\.,()-#/*é日", min_size=1, max_size=8),
)
TEXTS = st.text(alphabet="ab'\"\\;,()`#-/*\n\t\0é日😀%_ ", max_size=10)
PLAIN = {"id", "Name", "_x", "$y", "größe", "1st", "comment", "status", "type"}


def quote_text(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace("\0", "\\0").replace("\n", "\\n")
    return "'" + escaped.replace("'", "''") + "'"


@st.composite
def identifier(draw: st.DrawFn, name: str) -> str:
    if name in PLAIN and draw(st.booleans()):
        return name
    return "`" + name.replace("`", "``") + "`"


@st.composite
def gap(draw: st.DrawFn) -> str:
    return draw(st.sampled_from([" ", " ", " ", "\n", "\t ", " /* , ) */ ", " -- ,\n", "\n# '\n", " /*! */ "]))


@st.composite
def spell_words(draw: st.DrawFn, text: str) -> str:
    """Keywords in any case, with anything that counts as space between them."""
    pieces = [draw(st.sampled_from([w, w.lower(), w.capitalize()])) for w in text.split()]
    return draw(gap()).join(pieces)


OTHER_WORDS: list[tuple[str, str, dict[str, Any]]] = [
    ("INT1", "tinyint", {}), ("MIDDLEINT UNSIGNED", "mediumint", {"unsigned": True}), ("BOOLEAN", "tinyint", {"length": 1}),
    ("FLOAT(30)", "double", {}), ("FLOAT(7,3)", "float", {"length": 7, "scale": 3}), ("FLOAT4", "float", {}), ("FLOAT8", "double", {}),
    ("REAL", "double", {}), ("NUMBER(7,3)", "decimal", {"length": 7, "scale": 3}), ("DEC", "decimal", {"length": 10, "scale": 0}),
    ("NCHAR VARYING(4)", "varchar", {"length": 4, "charset": "utf8mb3"}), ("NVARCHAR(4)", "varchar", {"length": 4, "charset": "utf8mb3"}),
    ("NATIONAL CHARACTER(4)", "char", {"length": 4, "charset": "utf8mb3"}), ("CHAR(4) BYTE", "binary", {"length": 4}),
    ("TEXT(50)", "text", {"length": 50}), ("LONG CHARSET latin1", "mediumtext", {"charset": "latin1"}), ("LONG", "mediumtext", {}),
    ("LONG CHARACTER SET latin1", "mediumtext", {"charset": "latin1"}), ("LONG CHAR VARYING", "mediumtext", {}), ("CLOB", "longtext", {}),
    ("LONG VARBINARY", "mediumblob", {}), ("BLOB(300)", "blob", {}), ("BLOB(70000)", "mediumblob", {}), ("UUID", "uuid", {}),
    ("INET4", "inet4", {}), ("INET6", "inet6", {}), ("VECTOR(3)", "vector", {"length": 3}), ("YEAR(4)", "year", {"length": 4}),
    ("POINT", "point", {}), ("SET ('a', 'b')", "set", {"values": ("a", "b")}), ("TEXT BYTE", "blob", {}),
]  # fmt: skip
"""Words for types with what they mean before the character set of the table is known."""


@st.composite
def draw_sized_type(draw: st.DrawFn) -> tuple[str, str, dict[str, Any]]:
    """A type's text, its canonical name and its fields."""
    kind = draw(st.sampled_from(["integer", "decimal", "text", "enum", "temporal", "bytes", "other"]))
    n = draw(st.integers(1, 60))
    match kind:
        case "integer":
            word, type_ = draw(
                st.sampled_from([("TINYINT", "tinyint"), ("INT3", "mediumint"), ("INTEGER", "int"), ("INT8", "bigint")])
            )
            length = draw(st.sampled_from([None, n]))
            text = f"{word}({n})" if length else word
            match draw(st.sampled_from(["", "UNSIGNED", "SIGNED", "ZEROFILL"])):
                case "UNSIGNED":
                    return f"{text} UNSIGNED", type_, {"length": length, "unsigned": True}
                case "ZEROFILL":
                    return f"{text} ZEROFILL", type_, {"length": length, "unsigned": True, "zerofill": True}
                case attribute:
                    return f"{text} {attribute}", type_, {"length": length}
        case "decimal":
            word = draw(st.sampled_from(["DECIMAL", "DEC", "NUMERIC", "FIXED"]))
            return f"{word}({n}, {n // 2})", "decimal", {"length": n, "scale": n // 2}
        case "text":
            word, type_ = draw(
                st.sampled_from(
                    [("CHAR", "char"), ("VARCHAR", "varchar"), ("CHAR VARYING", "varchar"), ("CHARACTER", "char")]
                )
            )
            charset, fields = draw(
                st.sampled_from(
                    [
                        ("", {}),
                        ("CHARACTER SET latin1", {"charset": "latin1"}),
                        ("CHARSET utf8mb4 COLLATE utf8mb4_bin", {"charset": "utf8mb4", "collation": "utf8mb4_bin"}),
                        ("COLLATE gbk_bin", {"charset": "gbk", "collation": "gbk_bin"}),
                    ]
                )
            )
            return f"{word}({n}) {charset}", type_, {"length": n, **fields}
        case "enum":
            values = tuple(draw(st.lists(TEXTS, min_size=1, max_size=4)))
            word = draw(st.sampled_from(["ENUM", "SET"]))
            return (
                f"{word}(" + draw(gap()).join((", " if i else "") + quote_text(v) for i, v in enumerate(values)) + ")",
                word.lower(),
                {"values": values},
            )
        case "temporal":
            word = draw(st.sampled_from(["TIME", "DATETIME", "TIMESTAMP"]))
            return f"{word}({n % 7})", word.lower(), {"length": n % 7}
        case "bytes":
            word = draw(st.sampled_from(["BINARY", "VARBINARY", "BIT"]))
            return f"{word}({n})", word.lower(), {"length": n}
        case _:
            return draw(
                st.sampled_from(
                    [
                        ("BOOL", "tinyint", {"length": 1}),
                        ("DATE", "date", {}),
                        ("LONG VARCHAR", "mediumtext", {}),
                        ("DOUBLE PRECISION", "double", {}),
                        ("JSON", "json", {}),
                        ("GEOMCOLLECTION", "geometrycollection", {}),
                        ("LONGBLOB", "longblob", {}),
                        *OTHER_WORDS,
                    ]
                )
            )


@st.composite
def attribute(draw: st.DrawFn, type_: str) -> tuple[str, dict[str, Any]]:
    """A clause after the type and what it says."""
    kind = draw(st.sampled_from(["null", "comment", "default", "expression", "key", "generated", "nothing"]))
    match kind:
        case "null":
            nullable = draw(st.booleans())
            return draw(spell_words("NULL" if nullable else "NOT NULL")), {"nullable": nullable}
        case "comment":
            comment = draw(TEXTS)
            return draw(spell_words("COMMENT")) + " " + quote_text(comment), {"comment": comment}
        case "default":
            if type_ in ("char", "varchar", "mediumtext", "json", "longblob", "binary", "varbinary"):
                value = draw(TEXTS)
                return draw(spell_words("DEFAULT")) + " " + quote_text(value), {"default": MySqlColumnDefault(value)}
            number = str(draw(st.integers(0, 10**6)))
            if type_ in ("tinyint", "mediumint", "int", "bigint", "double", "bit"):
                return draw(spell_words("DEFAULT")) + f" {number}", {"default": MySqlColumnDefault(number)}
            return draw(spell_words("DEFAULT NULL")), {"default": MySqlColumnDefault(None)}
        case "expression":
            text = draw(st.sampled_from(["CURRENT_TIMESTAMP(3)", "(a + ')' + `b)`)", "uuid()", "now()"]))
            return f"DEFAULT {text}", {"default": MySqlColumnDefault(text, True)}
        case "key":
            return draw(spell_words("UNIQUE KEY")), {"unique": True}
        case "generated":
            stored = draw(st.booleans())
            return f"AS (concat(')', `x`)) {'STORED' if stored else 'VIRTUAL'}", {"generated": True, "stored": stored}
        case _:
            return draw(
                st.sampled_from(
                    ["CHECK (a > 0)", "COLUMN_FORMAT FIXED", "REFERENCES p (id) ON DELETE SET NULL", "VISIBLE"]
                )
            ), {}


@st.composite
def column(draw: st.DrawFn, name: str) -> tuple[str, ColumnDef]:
    text, type_, fields = draw(draw_sized_type())
    parts = [draw(identifier(name)), text]
    for _ in range(draw(st.integers(0, 4))):
        clause, said = draw(attribute(type_))
        if not fields.keys() & said.keys():
            parts.append(clause)
            fields = {**fields, **said}
    return draw(gap()).join(parts), ColumnDef(name, type_, **fields)


@st.composite
def table(draw: st.DrawFn) -> tuple[str, CreateTable]:
    names = draw(st.lists(NAMES, min_size=1, max_size=6, unique_by=str.lower))
    columns = [draw(column(n)) for n in names]
    elements = [text for text, _ in columns]
    primary = tuple(draw(st.lists(st.sampled_from(names), max_size=3, unique=True)))
    unique = [(c.name,) for _, c in columns if c.unique]
    if primary:
        elements.append("PRIMARY KEY (" + ", ".join([draw(identifier(n)) for n in primary]) + ")")
    if draw(st.booleans()):
        unique.append((names[-1],))
        elements.append(f"CONSTRAINT UNIQUE INDEX `u,` ({draw(identifier(names[-1]))} DESC) COMMENT ')'")
    for extra in draw(
        st.lists(st.sampled_from(["INDEX (`a)`(5))", "CHECK (a in (1,2))", "FULLTEXT KEY f (`x`)"]), max_size=2)
    ):
        elements.insert(draw(st.integers(0, len(elements))), extra)
    body = ",".join(draw(gap()) + e for e in elements)
    if_not_exists = draw(st.booleans())
    charset = draw(st.sampled_from([None, "latin1", "utf8mb4"]))
    name = QualifiedName(draw(st.sampled_from([None, "s"])), draw(NAMES))
    sql = draw(spell_words("CREATE TABLE IF NOT EXISTS" if if_not_exists else "CREATE TABLE")) + draw(gap())
    sql += ("s." if name.namespace else "") + draw(identifier(name.name)) + draw(gap()) + f"({body})"
    sql += draw(gap()) + "ENGINE=InnoDB" + (f" DEFAULT CHARSET={charset}" if charset else "")
    return sql, CreateTable(
        name,
        tuple(c for _, c in columns),
        primary,
        tuple(unique),
        charset,
        if_not_exists=if_not_exists,
    )


@settings(max_examples=400, deadline=None)
@given(table())
def test_random_tables_are_read_as_meant(case: tuple[str, CreateTable]) -> None:
    sql, expected = case
    (found,) = parse_statements(sql)
    assert isinstance(found, CreateTable), found
    assert len(found.unique_key_names) == len(found.unique_keys)
    assert replace(found, unique_key_names=()) == expected


@settings(max_examples=200, deadline=None)
@given(draw_sized_type())
def test_random_types_alone(case: tuple[str, str, dict[str, Any]]) -> None:
    text, type_, fields = case
    assert parse_type(text) == ColumnDef("", type_, **fields)
