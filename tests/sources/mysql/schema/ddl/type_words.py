"""Every way to spell a column's type on MySQL and MariaDB, from the ``type`` rules of the servers' grammars.

The rules are in ``sql/sql_yacc.yy`` of MySQL 8.0 and 9.x (``type``, ``nchar``, ``nvarchar``, ``spatial_type``, ``opt_charset_with_opt_binary``)
and of MariaDB 10.11 and 11.8 (``field_type_*``, ``attribute``); types of MariaDB's plug-ins are those of its documentation.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

MYSQL, MYSQL_9, MARIADB, MARIADB_11_8 = "mysql", "mysql 9", "mariadb", "mariadb 11.8"
EVERYWHERE = (MYSQL, MARIADB)


@dataclass(frozen=True)
class TypeWord:
    """A column definition.

    :param text: type and attributes; ``{c}`` and ``{t}`` are the names of column and table
    :param values: literals to insert
    :param servers: kinds of servers that know it
    :param mode: added to the session's ``sql_mode``; ``-`` before it takes away
    :param charset: default of the table
    :param alone: a table can have one column of this kind
    :param changes: a column of another kind can become this one
    :param before: that other kind
    """

    text: str
    values: tuple[str, ...]
    servers: tuple[str, ...] = EVERYWHERE
    mode: str = ""
    charset: str = ""
    alone: bool = False
    changes: bool = True
    before: str = "VARCHAR(5)"

    def __str__(self) -> str:
        more = [part for part in (self.charset and f"in {self.charset}", self.mode) if part]
        return " ".join([self.text, *more])


_NUMBERS = ("1", "0")
_INTEGERS = (
    "TINYINT",
    "INT1",
    "SMALLINT",
    "INT2",
    "MEDIUMINT",
    "MIDDLEINT",
    "INT3",
    "INT",
    "INTEGER",
    "INT4",
    "BIGINT",
    "INT8",
)
_DECIMALS = ("DECIMAL", "DEC", "NUMERIC", "FIXED")
_FLOATS = ("FLOAT", "FLOAT4", "FLOAT8", "REAL", "DOUBLE", "DOUBLE PRECISION")
_SPATIAL = {
    "GEOMETRY": "LINESTRING(0 0,1 1)", "POINT": "POINT(1 2)", "LINESTRING": "LINESTRING(0 0,1 1)",
    "POLYGON": "POLYGON((0 0,1 0,1 1,0 0))", "MULTIPOINT": "MULTIPOINT(0 0,1 1)", "MULTILINESTRING": "MULTILINESTRING((0 0,1 1))",
    "MULTIPOLYGON": "MULTIPOLYGON(((0 0,1 0,1 1,0 0)))", "GEOMETRYCOLLECTION": "GEOMETRYCOLLECTION(POINT(1 2))",
}  # fmt: skip
_CHARS = (
    "CHAR", "CHARACTER", "CHAR(5)", "CHARACTER(5)", "CHAR(0)", "CHAR VARYING(5)", "CHARACTER VARYING(5)", "VARCHAR(5)",
    "VARCHARACTER(5)", "VARCHAR(0)", "VARCHAR(300)", "TINYTEXT", "TEXT", "TEXT(0)", "TEXT(60)", "TEXT(64)", "TEXT(100)",
    "TEXT(255)", "TEXT(256)", "TEXT(17000)", "TEXT(70000)", "TEXT(5000000)", "MEDIUMTEXT", "LONGTEXT", "LONG", "LONG VARCHAR",
    "LONG VARCHARACTER", "LONG CHAR VARYING", "LONG CHARACTER VARYING", "ENUM('a','b')", "SET('a','b')",
)  # fmt: skip
_NATIONAL = (
    "NCHAR", "NCHAR(5)", "NATIONAL CHAR", "NATIONAL CHAR(5)", "NATIONAL CHARACTER(5)", "NVARCHAR(5)", "NCHAR VARCHAR(5)",
    "NCHAR VARCHARACTER(5)", "NCHAR VARYING(5)", "NATIONAL VARCHAR(5)", "NATIONAL VARCHARACTER(5)", "NATIONAL CHAR VARYING(5)",
    "NATIONAL CHARACTER VARYING(5)", "NCHAR(5) BINARY", "NVARCHAR(5) BINARY",
)  # fmt: skip
_CHARSETS = (
    "ASCII", "UNICODE", "BYTE", "BINARY", "ASCII BINARY", "BINARY ASCII", "UNICODE BINARY", "BINARY UNICODE",
    "CHARACTER SET latin1", "CHAR SET latin1", "CHARSET latin1", "CHARSET latin1 BINARY", "BINARY CHARSET latin1",
    "CHARACTER SET 'latin1'", "CHARSET binary", "CHARSET BINARY", "COLLATE latin1_bin", "CHARSET utf8mb4 COLLATE utf8mb4_bin",
    "CHARSET ucs2", "CHARSET utf8", "CHARSET utf8mb3", "CHARSET utf16le", "CHARSET cp1251",
)  # fmt: skip
_BYTES = (
    "BINARY", "BINARY(5)", "BINARY(0)", "VARBINARY(5)", "VARBINARY(0)", "TINYBLOB", "BLOB", "BLOB(0)", "BLOB(100)", "BLOB(255)", "BLOB(256)",
    "BLOB(70000)", "BLOB(17000000)", "MEDIUMBLOB", "LONGBLOB", "LONG VARBINARY",
)  # fmt: skip
_TEMPORAL = {
    "DATE": "'2024-02-29'", "YEAR": "2024", "YEAR(4)": "2024", "TIME": "'12:34:56'", "DATETIME": "'2024-02-29 01:02:03'",
    "TIMESTAMP NULL": "'2024-02-29 01:02:03'",
}  # fmt: skip


def iterate_words() -> Iterator[TypeWord]:
    """All of them, each once."""
    yield from _numeric()
    yield from _texts()
    for text in _BYTES:
        yield TypeWord(text, ("''",) if text.endswith("(0)") and text != "BLOB(0)" else ("'a'", "''"))
    yield from _times()
    yield from _other_words()
    yield from _attributes()
    yield from _of_mariadb()


def _numeric() -> Iterator[TypeWord]:
    for word in _INTEGERS:
        for attributes in ("", " SIGNED", " UNSIGNED", " ZEROFILL", " UNSIGNED ZEROFILL", "(3)", "(3) UNSIGNED", "(1)"):
            yield TypeWord(word + attributes, _NUMBERS)
    for word in _DECIMALS:
        for attributes in ("", "(7)", "(7,3)", "(7,3) UNSIGNED", "(7,3) ZEROFILL", "(0)", "(0,0)", " UNSIGNED"):
            yield TypeWord(word + attributes, _NUMBERS)
    for word in _FLOATS:
        for attributes in ("", "(7,3)", " UNSIGNED", " ZEROFILL", "(7,3) UNSIGNED ZEROFILL"):
            yield TypeWord(word + attributes, ("1.5", "0"))
    for bits in (0, 1, 24, 25, 53):
        yield TypeWord(f"FLOAT({bits})", ("1.5",))
    yield TypeWord("REAL", ("1.5",), mode="REAL_AS_FLOAT")
    yield TypeWord("REAL(7,3)", ("1.5",), mode="REAL_AS_FLOAT")
    for word in ("BIT", "BIT(1)", "BIT(8)", "BIT(9)", "BIT(64)"):
        yield TypeWord(word, ("1", "0"))
    yield TypeWord("BIT(0)", ("1",), (MARIADB,))
    yield TypeWord("BIT(1) DEFAULT b'1'", ("0",))
    yield TypeWord("BIT(9) NOT NULL DEFAULT b'101'", ("0",))
    for word in ("BOOL", "BOOLEAN"):
        yield TypeWord(word, ("TRUE", "FALSE"))


def _texts() -> Iterator[TypeWord]:
    for text in _CHARS:
        values = ("''",) if text.endswith("R(0)") else ("'a'", "'b'")
        for charset in ("", "latin1", "binary", "ucs2"):
            yield TypeWord(text, values, charset=charset)
    for text in _NATIONAL:
        yield TypeWord(text, ("'é'",))
    for charset in _CHARSETS:
        for text in ("CHAR(5)", "VARCHAR(5)", "TEXT", "TEXT(100)", "LONG", "TINYTEXT"):
            yield TypeWord(f"{text} {charset}", ("'a'",))
        if "BYTE" not in charset:
            yield TypeWord(f"ENUM('a','b') {charset}", ("'a'",))
            yield TypeWord(f"SET('a','b') {charset}", ("'a,b'",))
    yield TypeWord("ENUM('é','日') CHARSET utf8mb4", ("'é'", "'日'"))
    yield TypeWord("SET('é','b ') CHARSET latin1", ("'é'",))
    yield TypeWord("ENUM('it''s','a\\\\b','c,d','${x}','\"q\"','`')", ("'it''s'", "'c,d'", "'${x}'"))
    yield TypeWord("ENUM(x'61','b')", ("'a'",))
    for text in ("VARCHAR(70000)", "VARCHAR(20000)", "VARCHAR(70000) CHARSET latin1", "VARBINARY(70000)"):
        for charset in ("", "latin1", "binary"):
            yield TypeWord(text, ("'a'",), mode="-STRICT", charset=charset)


def _times() -> Iterator[TypeWord]:
    for text, value in _TEMPORAL.items():
        yield TypeWord(text, (value,))
        if text.startswith(("TIME", "DATETIME")):
            word, _, rest = text.partition(" ")
            for digits in (0, 1, 3, 6):
                yield TypeWord(f"{word}({digits}) {rest}".strip(), (value,))
    yield TypeWord("YEAR(2)", ("24",), (MARIADB,))
    yield TypeWord("YEAR UNSIGNED", ("2024",))
    yield TypeWord("YEAR(4) ZEROFILL", ("2024",))
    yield TypeWord("TIMESTAMP NOT NULL DEFAULT CURRENT_TIMESTAMP ON UPDATE CURRENT_TIMESTAMP", ("'2024-01-01'",))
    yield TypeWord("TIMESTAMP(3) NOT NULL DEFAULT NOW(3) ON UPDATE NOW(3)", ("'2024-01-01'",))
    yield TypeWord("DATETIME(6) DEFAULT LOCALTIMESTAMP(6)", ("'2024-01-01'",))
    yield TypeWord("TIMESTAMP", ("'2024-01-01'",))
    yield TypeWord("TIMESTAMP NULL", ("'2024-01-01'",), (MARIADB,), mode="MAXDB")


def _other_words() -> Iterator[TypeWord]:
    yield TypeWord("JSON", ("'{\"a\": 1}'", "'[]'"))
    yield TypeWord("JSON NOT NULL", ("'{}'",))
    for text, value in _SPATIAL.items():
        yield TypeWord(text, (f"ST_GeomFromText('{value}')",), before="GEOMETRY")
    yield TypeWord(
        "GEOMCOLLECTION", ("ST_GeomFromText('GEOMETRYCOLLECTION(POINT(1 2))')",), (MYSQL,), before="GEOMETRY"
    )
    yield TypeWord("POINT SRID 4326", ("ST_GeomFromText('POINT(1 2)', 4326)",), (MYSQL,), before="GEOMETRY")
    yield TypeWord("POINT NOT NULL /*!80003 SRID 0 */", ("ST_GeomFromText('POINT(1 2)')",), before="GEOMETRY")
    yield TypeWord("POINT REF_SYSTEM_ID=4326", ("ST_GeomFromText('POINT(1 2)', 4326)",), (MARIADB,), before="GEOMETRY")
    yield TypeWord("VECTOR(3)", ("STRING_TO_VECTOR('[1,2,3]')",), (MYSQL_9,))
    yield TypeWord("VECTOR", ("STRING_TO_VECTOR('[1,2,3]')",), (MYSQL_9,))
    yield TypeWord("VECTOR(3)", ("VEC_FromText('[1,2,3]')",), (MARIADB_11_8,))


def _attributes() -> Iterator[TypeWord]:
    yield TypeWord("INT INVISIBLE", ("1",), (MARIADB, MYSQL_9))
    yield TypeWord("INT /*!80023 INVISIBLE */ /*M!100303 INVISIBLE */", ("1",))
    yield TypeWord("INT NOT NULL DEFAULT 5 COMMENT 'a, b'", ("1",))
    yield TypeWord("INT GENERATED ALWAYS AS (id + 1) VIRTUAL", (), changes=False)
    yield TypeWord("INT GENERATED ALWAYS AS (id + 1) STORED", (), changes=False)
    yield TypeWord("VARCHAR(20) AS (concat(id, ')')) STORED", (), changes=False)
    yield TypeWord("INT AS (id + 1)", (), changes=False)
    yield TypeWord("INT CHECK ({c} > 0)", ("1",), (MARIADB, MYSQL_9))
    yield TypeWord("INT CONSTRAINT `k,{t}` CHECK ({c} > 0)", ("1",), (MYSQL_9,), alone=True)
    yield TypeWord("INT COLUMN_FORMAT FIXED STORAGE DISK", ("1",), (MYSQL,))
    yield TypeWord("INT NOT SECONDARY", ("1",), (MYSQL_9,))
    yield TypeWord("INT VISIBLE", ("1",), (MYSQL_9,))
    yield TypeWord("VARCHAR(20) DEFAULT ('x')", ("'a'",), (MARIADB, MYSQL_9))
    yield TypeWord("INT DEFAULT (1 + 1)", ("1",), (MARIADB, MYSQL_9))
    yield TypeWord("SERIAL", ("7",), alone=True)
    yield TypeWord("INT SERIAL DEFAULT VALUE", ("7",), alone=True)
    yield TypeWord("BIGINT UNSIGNED NOT NULL AUTO_INCREMENT UNIQUE", ("7",), alone=True)
    yield TypeWord("INT UNIQUE KEY", ("1",), alone=True)
    yield TypeWord("INT NULL DEFAULT NULL", ("1",))


def _of_mariadb() -> Iterator[TypeWord]:
    yield TypeWord("UUID", ("'123e4567-e89b-12d3-a456-426655440000'",), (MARIADB,))
    yield TypeWord("UUID NOT NULL DEFAULT UUID()", ("'123e4567-e89b-12d3-a456-426655440000'",), (MARIADB,))
    yield TypeWord("INET6", ("'2001:db8::1'",), (MARIADB,))
    yield TypeWord("INET4", ("'10.0.0.1'",), (MARIADB,))
    for word in (
        "VARCHAR(50)",
        "VARBINARY(50)",
        "TEXT",
        "BLOB",
        "TINYTEXT",
        "MEDIUMTEXT",
        "LONGBLOB",
        "TEXT(100)",
        "JSON",
    ):
        for how in ("COMPRESSED", "COMPRESSED=zlib"):
            value = "JSON_QUOTE(REPEAT('a', 40))" if word == "JSON" else "REPEAT('a', 40)"
            yield TypeWord(f"{word} {how}", (value, "NULL"), (MARIADB,))
    oracle = TypeWord("", (), (MARIADB,), mode="ORACLE")
    for text, value in (
        ("NUMBER", "1.5"), ("NUMBER(7)", "1"), ("NUMBER(7,3)", "1.5"), ("VARCHAR2(20)", "'a'"), ("VARCHAR2(20) CHARSET latin1", "'a'"),
        ("CLOB", "'a'"), ("RAW(20)", "'a'"), ("BLOB", "'a'"), ("DATE", "'2024-01-01 01:02:03'"), ("BLOB(100)", "'a'"),
        ("VARCHAR(20)", "'a'"), ("mariadb_schema.DATE", "'2024-01-01'"),
    ):  # fmt: skip
        yield replace(oracle, text=text, values=(value,))
    yield TypeWord("mariadb_schema.DATE", ("'2024-01-01'",), (MARIADB,))
