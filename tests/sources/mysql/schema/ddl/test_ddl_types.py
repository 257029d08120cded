"""Types and attributes of columns: every spelling, read out of DDL and out of ``column_type``."""

from __future__ import annotations

from typing import Any

import pytest

from airflow_provider_cdc.sources.mysql.schema.ddl import (
    AddColumn,
    AlterTable,
    ColumnDef,
    MySqlColumnDefault,
    SetDefault,
    UnknownStatement,
    convert_charset,
    parse_statements,
    parse_type,
    resolve_charset,
    typed_default,
)


def column(definition: str, **modes: Any) -> ColumnDef:
    (statement,) = parse_statements(f"ALTER TABLE t ADD COLUMN {definition}", **modes)
    assert isinstance(statement, AlterTable), statement
    (action,) = statement.actions
    assert isinstance(action, AddColumn)
    return action.column


U: dict[str, Any] = {"unsigned": True}
TYPES: list[tuple[str, str, dict[str, Any]]] = [
    # integers
    ("TINYINT", "tinyint", {}),
    ("tinyint(1)", "tinyint", {"length": 1}),
    ("INT1", "tinyint", {}),
    ("SMALLINT(5) UNSIGNED", "smallint", {"length": 5, **U}),
    ("INT2", "smallint", {}),
    ("MEDIUMINT", "mediumint", {}),
    ("MIDDLEINT", "mediumint", {}),
    ("INT3 unsigned", "mediumint", U),
    ("INT", "int", {}),
    ("INTEGER", "int", {}),
    ("INT4", "int", {}),
    ("int(11)", "int", {"length": 11}),
    ("INT(5) ZEROFILL", "int", {"length": 5, "zerofill": True, **U}),
    ("INT UNSIGNED ZEROFILL", "int", {"zerofill": True, **U}),
    ("INT ZEROFILL UNSIGNED", "int", {"zerofill": True, **U}),
    ("INT SIGNED", "int", {}),
    ("BIGINT", "bigint", {}),
    ("INT8", "bigint", {}),
    ("BIGINT(20) UNSIGNED", "bigint", {"length": 20, **U}),
    ("BOOL", "tinyint", {"length": 1}),
    ("BOOLEAN", "tinyint", {"length": 1}),
    ("SERIAL", "bigint", {"nullable": False, "auto_increment": True, "unique": True, **U}),
    ("BIT", "bit", {"length": 1}),
    ("BIT(64)", "bit", {"length": 64}),
    # fixed and floating point
    ("DECIMAL", "decimal", {"length": 10, "scale": 0}),
    ("DECIMAL(0)", "decimal", {"length": 10, "scale": 0}),
    ("DEC(7)", "decimal", {"length": 7, "scale": 0}),
    ("NUMERIC(12, 4)", "decimal", {"length": 12, "scale": 4}),
    ("FIXED(5,5)", "decimal", {"length": 5, "scale": 5}),
    ("NUMBER(9,2)", "decimal", {"length": 9, "scale": 2}),
    ("NUMBER", "double", {}),
    ("DECIMAL(5,2) ZEROFILL", "decimal", {"length": 5, "scale": 2, "zerofill": True, **U}),
    ("FLOAT", "float", {}),
    ("FLOAT(24)", "float", {}),
    ("FLOAT(25)", "double", {}),
    ("FLOAT(53)", "double", {}),
    ("FLOAT(7,4)", "float", {"length": 7, "scale": 4}),
    ("FLOAT4", "float", {}),
    ("FLOAT8", "double", {}),
    ("DOUBLE", "double", {}),
    ("DOUBLE PRECISION", "double", {}),
    ("DOUBLE PRECISION(12,3) UNSIGNED", "double", {"length": 12, "scale": 3, **U}),
    ("REAL", "double", {}),
    ("REAL(5,2)", "double", {"length": 5, "scale": 2}),
    # text
    ("CHAR", "char", {"length": 1}),
    ("CHAR(0)", "char", {"length": 0}),
    ("CHARACTER(5)", "char", {"length": 5}),
    ("VARCHAR(255)", "varchar", {"length": 255}),
    ("VARCHARACTER(3)", "varchar", {"length": 3}),
    ("VARCHAR2(3)", "varchar", {"length": 3}),
    ("CHAR VARYING(4)", "varchar", {"length": 4}),
    ("CHARACTER VARYING(4)", "varchar", {"length": 4}),
    ("NCHAR", "char", {"length": 1, "charset": "utf8mb3"}),
    ("NCHAR(6)", "char", {"length": 6, "charset": "utf8mb3"}),
    ("NATIONAL CHAR(6)", "char", {"length": 6, "charset": "utf8mb3"}),
    ("NATIONAL CHARACTER(6)", "char", {"length": 6, "charset": "utf8mb3"}),
    ("NVARCHAR(6)", "varchar", {"length": 6, "charset": "utf8mb3"}),
    ("NCHAR VARCHAR(6)", "varchar", {"length": 6, "charset": "utf8mb3"}),
    ("NCHAR VARYING(6)", "varchar", {"length": 6, "charset": "utf8mb3"}),
    ("NATIONAL VARCHAR(6)", "varchar", {"length": 6, "charset": "utf8mb3"}),
    ("NATIONAL VARCHARACTER(6)", "varchar", {"length": 6, "charset": "utf8mb3"}),
    ("NATIONAL CHAR VARYING(6)", "varchar", {"length": 6, "charset": "utf8mb3"}),
    ("NATIONAL CHARACTER VARYING(6)", "varchar", {"length": 6, "charset": "utf8mb3"}),
    ("TINYTEXT", "tinytext", {}),
    ("TEXT", "text", {}),
    ("TEXT(0)", "text", {}),
    ("TEXT(100)", "text", {"length": 100}),
    ("TEXT(100) CHARACTER SET utf8mb4", "text", {"charset": "utf8mb4"}),
    ("TEXT(63) CHARACTER SET utf8mb4", "tinytext", {"charset": "utf8mb4"}),
    ("TEXT(30000) COLLATE utf8mb4_bin", "mediumtext", {"charset": "utf8mb4", "collation": "utf8mb4_bin"}),
    ("TEXT(70000) CHARSET latin1", "mediumtext", {"charset": "latin1"}),
    ("TEXT(16777216) CHARSET latin1", "longtext", {"charset": "latin1"}),
    ("VARCHAR(70000) CHARSET latin1", "mediumtext", {"charset": "latin1"}),
    ("VARCHAR(20000) CHARSET utf8mb4", "mediumtext", {"charset": "utf8mb4"}),
    ("MEDIUMTEXT", "mediumtext", {}),
    ("LONG", "mediumtext", {}),
    ("LONG VARCHAR", "mediumtext", {}),
    ("LONG CHAR VARYING", "mediumtext", {}),
    ("LONG CHARACTER VARYING", "mediumtext", {}),
    ("LONG VARCHARACTER", "mediumtext", {}),
    ("LONGTEXT", "longtext", {}),
    ("CLOB", "longtext", {}),
    ("JSON", "json", {}),
    ("JSON COLLATE utf8mb4_bin", "json", {}),
    # bytes
    ("BINARY", "binary", {"length": 1}),
    ("BINARY(16)", "binary", {"length": 16}),
    ("VARBINARY(16)", "varbinary", {"length": 16}),
    ("RAW(16)", "varbinary", {"length": 16}),
    ("VARBINARY(70000)", "mediumblob", {}),
    ("CHAR BYTE", "binary", {"length": 1}),
    ("CHAR(3) BYTE", "binary", {"length": 3}),
    ("CHAR(3) CHARACTER SET binary", "binary", {"length": 3}),
    ("CHAR(3) COLLATE binary", "binary", {"length": 3}),
    ("VARCHAR(3) CHARSET binary", "varbinary", {"length": 3}),
    ("VARCHAR(70000) CHARSET binary", "mediumblob", {}),
    ("TEXT CHARSET 'binary'", "blob", {}),
    ("TEXT(300) BYTE", "blob", {}),
    ("TEXT(70000) BYTE", "mediumblob", {}),
    ("LONGTEXT BYTE", "longblob", {}),
    ("TINYBLOB", "tinyblob", {}),
    ("BLOB", "blob", {}),
    ("BLOB(255)", "tinyblob", {}),
    ("BLOB(256)", "blob", {}),
    ("BLOB(65536)", "mediumblob", {}),
    ("BLOB(16777216)", "longblob", {}),
    ("MEDIUMBLOB", "mediumblob", {}),
    ("LONG VARBINARY", "mediumblob", {}),
    ("LONGBLOB", "longblob", {}),
    # temporal
    ("DATE", "date", {}),
    ("TIME", "time", {}),
    ("TIME(3)", "time", {"length": 3}),
    ("DATETIME", "datetime", {}),
    ("DATETIME(6)", "datetime", {"length": 6}),
    ("TIMESTAMP(0)", "timestamp", {"length": 0}),
    ("YEAR", "year", {}),
    ("YEAR(4)", "year", {"length": 4}),
    ("YEAR UNSIGNED", "year", {}),
    ("mariadb_schema.date", "date", {}),
    # the rest
    ("ENUM('a','b,c','it''s','x\\'y',\"d\")", "enum", {"values": ("a", "b,c", "it's", "x'y", "d")}),
    ("ENUM(0x61,b'1100010',x'63')", "enum", {"values": ("a", "b", "c")}),
    ("ENUM('a ')", "enum", {"values": ("a ",)}),
    ("ENUM('a ') CHARSET latin1", "enum", {"values": ("a",), "charset": "latin1"}),
    ("ENUM('a ') CHARSET binary", "enum", {"values": ("a ",), "charset": "binary"}),
    ("SET('x','y') CHARACTER SET latin1", "set", {"values": ("x", "y"), "charset": "latin1"}),
    ("POINT", "point", {}),
    ("GEOMETRY SRID 4326", "geometry", {"srid": 4326}),
    ("GEOMETRY REF_SYSTEM_ID=101", "geometry", {"srid": 101}),
    ("LINESTRING", "linestring", {}),
    ("POLYGON", "polygon", {}),
    ("MULTIPOINT", "multipoint", {}),
    ("MULTILINESTRING", "multilinestring", {}),
    ("MULTIPOLYGON", "multipolygon", {}),
    ("GEOMCOLLECTION", "geometrycollection", {}),
    ("GEOMETRYCOLLECTION", "geometrycollection", {}),
    ("VECTOR", "vector", {"length": 2048}),
    ("VECTOR(3)", "vector", {"length": 3}),
    ("UUID", "uuid", {}),
    ("INET4", "inet4", {}),
    ("INET6", "inet6", {}),
    ("XMLTYPE", "xmltype", {}),
    # character sets
    ("CHAR(2) ASCII", "char", {"length": 2, "charset": "latin1"}),
    ("CHAR(2) UNICODE", "char", {"length": 2, "charset": "ucs2"}),
    ("CHAR(2) ASCII BINARY", "char", {"length": 2, "charset": "latin1", "collation": "latin1_bin"}),
    ("CHAR(2) BINARY ASCII", "char", {"length": 2, "charset": "latin1", "collation": "latin1_bin"}),
    ("CHAR(2) BINARY CHARSET gbk", "char", {"length": 2, "charset": "gbk", "collation": "gbk_bin"}),
    ("CHAR(2) BINARY", "char", {"length": 2, "collation": "_bin"}),
    ("CHAR(2) COLLATE latin1_bin", "char", {"length": 2, "charset": "latin1", "collation": "latin1_bin"}),
    ("CHAR(2) COLLATE uca1400_ai_ci", "char", {"length": 2, "collation": "uca1400_ai_ci"}),
    (
        "CHAR(2) CHARSET utf8mb4 COLLATE uca1400_ai_ci",
        "char",
        {"length": 2, "charset": "utf8mb4", "collation": "utf8mb4_uca1400_ai_ci"},
    ),
    ("CHAR(2) CHAR SET UTF8", "char", {"length": 2, "charset": "utf8"}),
    ("CHAR(2) CHARSET utf8mb4 COLLATE DEFAULT", "char", {"length": 2, "charset": "utf8mb4"}),
    ("VARCHAR(20) COMPRESSED", "varchar", {"length": 20, "compressed": True}),
    ("BLOB COMPRESSED=zlib NOT NULL", "blob", {"compressed": True, "nullable": False}),
]


@pytest.mark.parametrize(("text", "type_", "fields"), TYPES, ids=[t[0] for t in TYPES])
def test_type(text: str, type_: str, fields: dict[str, Any]) -> None:
    assert column(f"c {text}") == ColumnDef("c", type_, **fields)
    assert parse_type(text.lower() if "'" not in text else text) == ColumnDef("", type_, **fields)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("int(10) unsigned zerofill", ColumnDef("", "int", 10, unsigned=True, zerofill=True)),
        ("enum('a','b,c','it''s')", ColumnDef("", "enum", values=("a", "b,c", "it's"))),
        (r"enum('a\\b','c\nd')", ColumnDef("", "enum", values=("a\\b", "c\nd"))),
        ("varchar(20) /*M!100301 COMPRESSED*/", ColumnDef("", "varchar", 20, compressed=True)),
        ("timestamp /* mariadb-5.3 */", ColumnDef("", "timestamp")),
        ("geomcollection", ColumnDef("", "geometrycollection")),
        ("decimal(10,2) unsigned", ColumnDef("", "decimal", 10, 2, unsigned=True)),
    ],
)
def test_column_type_of_the_catalog(text: str, expected: ColumnDef) -> None:
    assert parse_type(text) == expected


@pytest.mark.parametrize("text", ["", "int(", "frobnicate", "int, b int", "'int'", "enum('a'", "varchar(20) nonsense"])
def test_what_is_no_type_is_refused_by_name(text: str) -> None:
    with pytest.raises(ValueError, match="not a known column type"):
        parse_type(text)


def test_spelling_is_kept_but_makes_no_difference() -> None:
    assert column("a BOOLEAN").spelled == "boolean"
    assert column("a Real").spelled == "real"
    assert column("a BOOLEAN") == column("a TINYINT(1)")


def test_modes_change_what_types_mean() -> None:
    assert column("a REAL", real_as_float=True).type == "float"
    assert column("a DOUBLE", real_as_float=True).type == "double"
    assert column("a TIMESTAMP(3)", maxdb=True) == ColumnDef("a", "datetime", 3)
    assert column("a DATE", oracle=True) == ColumnDef("a", "datetime")
    assert column("a BLOB", oracle=True) == ColumnDef("a", "longblob")
    assert column("a mariadb_schema.DATE", oracle=True) == ColumnDef("a", "date")
    assert column("a DATE", oracle=True, version=50744) == ColumnDef("a", "date")


N: dict[str, Any] = {"nullable": False}
ATTRIBUTES: list[tuple[str, dict[str, Any]]] = [
    ("NOT NULL", N),
    ("NULL", {"nullable": True}),
    ("NOT NULL AUTO_INCREMENT PRIMARY KEY", {"auto_increment": True, "primary": True, **N}),
    ("auto_increment", {"auto_increment": True, **N}),
    ("KEY", {"primary": True, **N}),
    ("UNIQUE", {"unique": True}),
    ("UNIQUE KEY NOT NULL", {"unique": True, **N}),
    ("NOT NULL SERIAL DEFAULT VALUE", {"auto_increment": True, "unique": True, **N}),
    ("COMMENT 'it''s; -- no /* comment'", {"comment": "it's; -- no /* comment"}),
    ("INVISIBLE", {"invisible": True}),
    ("/*!80023 INVISIBLE */", {"invisible": True}),
    ("VISIBLE", {}),
    ("COLUMN_FORMAT FIXED STORAGE DISK", {}),
    (
        "/*!50606 STORAGE MEMORY */ /*!50606 COLUMN_FORMAT DYNAMIC */ DEFAULT NULL",
        {"default": MySqlColumnDefault(None)},
    ),
    ("ENGINE_ATTRIBUTE='{\"a\":1}' SECONDARY_ENGINE_ATTRIBUTE '{}'", {}),
    ("NOT SECONDARY", {}),
    ("REFERENCES p(id) ON DELETE SET NULL ON UPDATE NO ACTION", {}),
    ("REFERENCES d.p (a, b) MATCH FULL ON DELETE CASCADE NOT NULL", N),
    ("CHECK (a > 0 AND (a < 9))", {}),
    ("CONSTRAINT c1 CHECK (a > 0) NOT ENFORCED NOT NULL", N),
    ("CONSTRAINT CHECK (a > 0) ENFORCED", {}),
    ("GENERATED ALWAYS AS (b + 1)", {"generated": True}),
    ("GENERATED ALWAYS AS (concat(b, ')')) VIRTUAL NOT NULL COMMENT 'x'", {"generated": True, "comment": "x", **N}),
    ("AS (b) STORED UNIQUE", {"generated": True, "stored": True, "unique": True}),
    ("AS (b) PERSISTENT", {"generated": True, "stored": True}),
    ("`ENCRYPTION_KEY_ID`=4 flag=YES", {}),
]


@pytest.mark.parametrize(("text", "fields"), ATTRIBUTES, ids=[a[0] for a in ATTRIBUTES])
def test_attributes(text: str, fields: dict[str, Any]) -> None:
    assert column(f"a INT {text}") == ColumnDef("a", "int", **fields)


DEFAULTS: list[tuple[str, str | None, bool]] = [
    ("INT DEFAULT NULL", None, False),
    ("INT DEFAULT 7", "7", False),
    ("INT DEFAULT +7", "7", False),
    ("INT DEFAULT - 7", "-7", False),
    ("INT DEFAULT '007'", "7", False),
    ("INT DEFAULT 1.5", "2", False),
    ("INT DEFAULT -2.5", "-3", False),
    ("INT DEFAULT 1e2", "100", False),
    ("BIGINT DEFAULT -9223372036854775808", "-9223372036854775808", False),
    ("INT DEFAULT 0x41", "65", False),
    ("INT DEFAULT b'101'", "5", False),
    ("INT DEFAULT x'35'", "x'35'", True),  # 53 on MySQL, 5 on MariaDB
    ("BOOL DEFAULT TRUE", "1", False),
    ("BOOL DEFAULT false", "0", False),
    ("BIT(8) DEFAULT b'101'", "5", False),
    ("BIT(8) DEFAULT 0b101", "5", False),
    ("BIT(8) DEFAULT x'0F'", "15", False),
    ("BIT(8) DEFAULT 5", "5", False),
    ("BIT(8) DEFAULT 'a'", "97", False),
    ("DECIMAL(9,2) DEFAULT 1.50", "1.50", False),
    ("DECIMAL(9,2) DEFAULT .5", "0.50", False),
    ("DECIMAL(5,1) DEFAULT -1.25", "-1.3", False),
    ("DECIMAL DEFAULT '2'", "2", False),
    ("DOUBLE DEFAULT 1.5e-3", "1.5e-3", False),
    ("VARCHAR(9) DEFAULT 'it''s'", "it's", False),
    ("VARCHAR(9) DEFAULT 'a' 'b'", "ab", False),
    ('VARCHAR(9) DEFAULT "q""q\'"', "q\"q'", False),
    (r"VARCHAR(9) DEFAULT 'a\nb\\c\%\q'", "a\nb\\c\\%q", False),
    ("VARCHAR(9) DEFAULT ''", "", False),
    ("VARCHAR(9) DEFAULT 5", "5", False),
    ("VARCHAR(9) DEFAULT N'größe'", "größe", False),
    ("VARCHAR(9) DEFAULT _utf8mb4'abc'", "abc", False),
    ("VARCHAR(9) DEFAULT _latin1'größe'", "_latin1'größe'", True),
    ("VARCHAR(9) DEFAULT _latin1 x'41'", "_latin1 x'41'", True),
    ("VARCHAR(9) DEFAULT 0x616263", "abc", False),
    ("VARCHAR(9) DEFAULT x'616263'", "abc", False),
    ("VARCHAR(9) DEFAULT b'1100001'", "a", False),
    ("VARCHAR(9) DEFAULT 0xE4", "0xE4", True),
    ("VARCHAR(9) CHARSET ucs2 DEFAULT 0x0041", "0x0041", True),
    ("ENUM('x','Y') DEFAULT 'y'", "Y", False),
    ("ENUM('x','y') DEFAULT 'y '", "y", False),
    ("SET('a','b','c') DEFAULT 'C,a'", "a,c", False),
    ("SET('a','b','c') DEFAULT ''", "", False),
    ("DATE DEFAULT '2020-01-01'", "2020-01-01", False),
    ("DATE DEFAULT DATE'2020-01-01'", "2020-01-01", False),
    ("DATETIME DEFAULT TIMESTAMP '2020-01-01 00:00:00'", "2020-01-01 00:00:00", False),
    ("TIME DEFAULT {t '10:00:00'}", "10:00:00", False),
    ("TIME DEFAULT '-101:2:3'", "-101:02:03", False),
    ("TIME DEFAULT '10:11'", "'10:11'", True),
    ("TIME DEFAULT 0", "00:00:00", False),
    ("DATE DEFAULT '2020/1/2'", "2020-01-02", False),
    ("DATE DEFAULT 20200102", "20200102", True),
    ("DATE DEFAULT '2020-01-02 03:04:05'", "2020-01-02", False),
    ("DATE DEFAULT '0000-00-00'", "0000-00-00", False),
    ("DATETIME DEFAULT 0", "0000-00-00 00:00:00", False),
    ("DATETIME DEFAULT '2020-1-2'", "2020-01-02 00:00:00", False),
    ("DATETIME(3) DEFAULT '2020-01-01T03:04:05.129'", "2020-01-01 03:04:05.129", False),
    ("DATETIME(2) DEFAULT '2020-01-01 00:00:00.129'", "'2020-01-01 00:00:00.129'", True),  # rounded or cut
    ("YEAR DEFAULT 2020", "2020", False),
    ("YEAR DEFAULT 5", "2005", False),
    ("YEAR DEFAULT '99'", "1999", False),
    ("YEAR DEFAULT '0'", "2000", False),
    ("YEAR DEFAULT 0", "0000", False),
    ("YEAR(2) DEFAULT 5", "5", True),
    ("TEXT DEFAULT ('')", "", False),
    ("TEXT DEFAULT (_utf8mb4'abc')", "abc", False),
    ("INT DEFAULT (-5)", "-5", False),
    ("INT DEFAULT (NULL)", None, False),
    ("INT DEFAULT ((5))", "((5))", True),
    ("INT DEFAULT (1 + 2)", "(1 + 2)", True),
    ("JSON DEFAULT (json_object('a', ')'))", "(json_object('a', ')'))", True),
    ("BINARY(16) DEFAULT (uuid_to_bin(uuid()))", "(uuid_to_bin(uuid()))", True),
    ("VARCHAR(36) DEFAULT uuid()", "uuid()", True),
    ("TIMESTAMP DEFAULT CURRENT_TIMESTAMP", "CURRENT_TIMESTAMP", True),
    ("TIMESTAMP(3) DEFAULT CURRENT_TIMESTAMP(3)", "CURRENT_TIMESTAMP(3)", True),
    ("TIMESTAMP DEFAULT now()", "now()", True),
    ("DATETIME DEFAULT LOCALTIME", "LOCALTIME", True),
    ("DATETIME DEFAULT localtimestamp()", "localtimestamp()", True),
    ("DATE DEFAULT curdate()", "curdate()", True),
    ("BIGINT DEFAULT NEXT VALUE FOR `d`.`s`", "NEXT VALUE FOR `d`.`s`", True),
    ("BIGINT DEFAULT nextval(`d`.`s`)", "nextval(`d`.`s`)", True),
    ("INT DEFAULT `b`", "`b`", True),
    (
        "INT DEFAULT CASE b WHEN (1) THEN CASE c WHEN 2 THEN 1 END END",
        "CASE b WHEN (1) THEN CASE c WHEN 2 THEN 1 END END",
        True,
    ),
    ("VARCHAR(99) DEFAULT current_user", "current_user", True),
]


@pytest.mark.parametrize(("text", "value", "is_expression"), DEFAULTS, ids=[d[0] for d in DEFAULTS])
def test_defaults(text: str, value: str | None, is_expression: bool) -> None:
    found = column(f"a {text} NOT NULL COMMENT 'after'")
    assert found.default == MySqlColumnDefault(value, is_expression)
    assert (found.nullable, found.comment) == (False, "after")  # the default took what was its own, and no more


def test_on_update() -> None:
    found = column("a TIMESTAMP(3) NOT NULL DEFAULT CURRENT_TIMESTAMP(3) ON UPDATE CURRENT_TIMESTAMP(3)")
    assert found.on_update == "CURRENT_TIMESTAMP(3)"
    assert found.default == MySqlColumnDefault("CURRENT_TIMESTAMP(3)", True)
    assert column("a TIMESTAMP ON UPDATE now() NOT NULL").on_update == "now()"


def test_defaults_without_a_type_are_read_for_a_column() -> None:
    def set_default(text: str) -> MySqlColumnDefault:
        (statement,) = parse_statements(f"ALTER TABLE t ALTER a SET DEFAULT {text}")
        assert isinstance(statement, AlterTable)
        (action,) = statement.actions
        assert isinstance(action, SetDefault)
        assert action.default is not None
        return action.default

    assert set_default("0x41") == MySqlColumnDefault("0x41", True)
    assert typed_default(set_default("0x41"), ColumnDef("a", "int")) == MySqlColumnDefault("65")
    assert typed_default(set_default("0x41"), ColumnDef("a", "varchar", 5)) == MySqlColumnDefault("A")
    assert typed_default(set_default("b'1'"), ColumnDef("a", "bit", 1)) == MySqlColumnDefault("1")
    assert typed_default(set_default("1"), ColumnDef("a", "bit", 1)) == MySqlColumnDefault("1")
    assert typed_default(set_default("1.5"), ColumnDef("a", "int")) == MySqlColumnDefault("2")
    assert typed_default(set_default("'B'"), ColumnDef("a", "enum", values=("a", "b"))) == MySqlColumnDefault("b")
    assert typed_default(set_default("now()"), ColumnDef("a", "datetime")) == MySqlColumnDefault("now()", True)
    assert typed_default(set_default("NULL"), ColumnDef("a", "int")) == MySqlColumnDefault(None)


@pytest.mark.parametrize(
    ("definition", "charset", "collation", "expected"),
    [
        ("a INT", "utf8mb4", None, ColumnDef("a", "int")),
        ("a CHAR(3)", "latin1", None, ColumnDef("a", "char", 3, charset="latin1")),
        ("a CHAR(3)", "latin1", "latin1_bin", ColumnDef("a", "char", 3, charset="latin1", collation="latin1_bin")),
        ("a CHAR(3) BINARY", "gbk", "gbk_x", ColumnDef("a", "char", 3, charset="gbk", collation="gbk_bin")),
        ("a CHAR(3) CHARSET gbk", "latin1", "latin1_bin", ColumnDef("a", "char", 3, charset="gbk")),
        (
            "a CHAR(3) COLLATE uca1400_ai_ci",
            "utf8mb4",
            None,
            ColumnDef("a", "char", 3, charset="utf8mb4", collation="utf8mb4_uca1400_ai_ci"),
        ),
        ("a CHAR(3)", "binary", None, ColumnDef("a", "binary", 3)),
        ("a TEXT", "binary", None, ColumnDef("a", "blob")),
        ("a TEXT(100)", "latin1", None, ColumnDef("a", "tinytext", charset="latin1")),
        ("a TEXT(100)", "utf8mb4", None, ColumnDef("a", "text", charset="utf8mb4")),
        ("a TEXT(100)", "binary", None, ColumnDef("a", "tinyblob")),
        ("a VARCHAR(30000)", "utf8mb4", None, ColumnDef("a", "mediumtext", charset="utf8mb4")),
        ("a VARCHAR(70000)", "binary", None, ColumnDef("a", "mediumblob")),
        (
            "a ENUM('a ') DEFAULT 'a '",
            "latin1",
            None,
            ColumnDef("a", "enum", values=("a",), charset="latin1", default=MySqlColumnDefault("a")),
        ),
        ("a ENUM('a ')", "binary", None, ColumnDef("a", "enum", values=("a ",), charset="binary")),
        ("a ENUM('a ')", None, None, ColumnDef("a", "enum", values=("a ",))),
        ("a TEXT(5)", "klingon", None, ColumnDef("a", "text", 5, charset="klingon")),
    ],
)
def test_resolve(definition: str, charset: str | None, collation: str | None, expected: ColumnDef) -> None:
    resolved = resolve_charset(column(definition), charset, collation)
    assert resolved == expected
    assert resolve_charset(resolved, charset, collation) == expected


@pytest.mark.parametrize(
    ("type_", "old", "new", "expected"),
    [
        ("tinytext", "latin1", "utf8mb4", "text"),
        ("text", "latin1", "utf8mb3", "mediumtext"),
        ("text", "utf8mb3", "utf8mb4", "mediumtext"),
        ("mediumtext", "utf8mb3", "utf8mb4", "longtext"),
        ("longtext", "latin1", "utf8mb4", "longtext"),
        ("text", "utf8mb4", "latin1", "text"),
        ("tinytext", "utf32", "utf8mb4", "tinytext"),
        ("text", "latin1", "binary", "blob"),
        ("enum", "binary", "latin1", "enum"),
    ],
)
def test_convert(type_: str, old: str, new: str, expected: str) -> None:
    found = convert_charset(ColumnDef("a", type_, charset=old), new)
    assert found.type == expected
    assert found.charset == {"enum": "binary", "blob": None}.get(expected, new)


def test_convert_makes_text_of_a_varchar_that_is_too_long() -> None:
    assert convert_charset(ColumnDef("a", "varchar", 30_000, charset="latin1"), "utf8mb4").type == "mediumtext"
    assert convert_charset(ColumnDef("a", "varbinary", 30), "utf8mb4") == ColumnDef("a", "varbinary", 30)


@pytest.mark.parametrize(
    "definition",
    [
        "a",
        "a FROBNICATE",
        "a INT FROBNICATE",
        "a VARCHAR",
        "a DOUBLE(5)",
        "a FLOAT(54)",
        "a ENUM()",
        "a ENUM(1)",
        "a ENUM('a' 'b')",
        "a ENUM(0xE4)",
        "a INT(x)",
        f"a INT({'9' * 5000})",
        "a TIMESTAMP(6) GENERATED ALWAYS AS ROW MIDDLE",
        "a INT WITH SYSTEM",
        "a INT WITHOUT VERSIONING",
        "a INT GENERATED BY DEFAULT AS IDENTITY",
        "a INT DEFAULT",
        "a INT DEFAULT NOT NULL",
        "a INT DEFAULT 1 + 1",
        "a INT ON UPDATE 5",
        "a INT NOT",
        "a INT COMMENT x",
        "a CHAR(3) COLLATE DEFAULT",
        "a oracle_schema.date",
        "a TIMESTAMP WITH LOCAL TIME ZONE",
        "a INT REFERENCES p(id) ON DELETE FROBNICATE",
    ],
)
def test_what_is_not_sure_is_unknown(definition: str) -> None:
    (statement,) = parse_statements(f"ALTER TABLE t ADD {definition}")
    assert isinstance(statement, UnknownStatement)
    assert statement.tables[0].name == "t"
    assert statement.reason
