"""The type of a column: every spelling that MySQL and MariaDB know → one base type with its numbers and members.

The list is closed. A word that is not on it is a type of a plug-in or of a newer server, and then it is unknown what
its rows look like.
"""

from __future__ import annotations

from collections.abc import Callable

from airflow_provider_cdc.sources.mysql.columns import charset_codec as texts
from airflow_provider_cdc.sources.mysql.schema.ddl.charset_rules import find_smallest_type
from airflow_provider_cdc.sources.mysql.schema.ddl.default_values import literal_bytes
from airflow_provider_cdc.sources.mysql.schema.ddl.grammar.column_draft import ColumnDraft
from airflow_provider_cdc.sources.mysql.schema.ddl.grammar.ddl_token_cursor import MySqlTokenCursor
from airflow_provider_cdc.sources.relational.sql_token_cursor import BITS, HEX, STRING, WORD

_INTEGERS = {
    "TINYINT": "tinyint", "INT1": "tinyint", "SMALLINT": "smallint", "INT2": "smallint", "MEDIUMINT": "mediumint",
    "INT3": "mediumint", "MIDDLEINT": "mediumint", "INT": "int", "INTEGER": "int", "INT4": "int", "BIGINT": "bigint",
    "INT8": "bigint",
}  # fmt: skip
_PLAIN = {
    "DATE": "date", "UUID": "uuid", "INET4": "inet4", "INET6": "inet6", "XMLTYPE": "xmltype",
    "GEOMETRY": "geometry", "POINT": "point", "LINESTRING": "linestring", "POLYGON": "polygon",
    "MULTIPOINT": "multipoint", "MULTILINESTRING": "multilinestring", "MULTIPOLYGON": "multipolygon",
    "GEOMETRYCOLLECTION": "geometrycollection", "GEOMCOLLECTION": "geometrycollection", "TINYTEXT": "tinytext",
    "MEDIUMTEXT": "mediumtext", "LONGTEXT": "longtext", "TINYBLOB": "tinyblob", "MEDIUMBLOB": "mediumblob",
    "LONGBLOB": "longblob", "CLOB": "longtext",
}  # fmt: skip
_WITH_LENGTH = {"BIT": "bit", "TIME": "time", "DATETIME": "datetime", "TIMESTAMP": "timestamp", "YEAR": "year"}
_ORACLE = {"DATE": "datetime", "BLOB": "longblob"}
"""Words that mean something else to MariaDB with ``sql_mode=ORACLE``."""
_MAX_VARCHAR_BYTES = 65_535
_NATIONAL = "utf8mb3"
"""Character set of the national types: three bytes always, whatever ``utf8`` means to the server."""


def read_type(cursor: MySqlTokenCursor, draft: ColumnDraft) -> None:
    """Read a type into the draft, without the attributes that follow.

    :raises StatementNotUnderstood: not a type of MySQL or MariaDB
    """
    # "mariadb_schema.date": how MariaDB shows a type that means something else in the current sql_mode
    qualified = cursor.accept("MARIADB_SCHEMA", ".")
    token = cursor.next_token
    word = token.value.upper() if token.kind == WORD else ""
    read = _READERS.get(word)
    if read is None:
        cursor.fail("a type of MySQL or MariaDB expected")
    cursor.consume_token()
    draft.spelled = token.value.lower()
    sized_by_hand = cursor.next_key == "("
    read(cursor, draft, word)
    if qualified:
        return
    if cursor.modes.oracle and word in _ORACLE and not (word == "BLOB" and sized_by_hand):
        draft.type = _ORACLE[word]
    elif cursor.modes.maxdb and word == "TIMESTAMP":
        draft.type = "datetime"


def _length(cursor: MySqlTokenCursor) -> int | None:
    if not cursor.accept("("):
        return None
    length = cursor.parse_integer()
    cursor.expect(")")
    return length


def _digits(cursor: MySqlTokenCursor) -> tuple[int | None, int | None]:
    """``(10)`` or ``(10, 2)``."""
    if not cursor.accept("("):
        return None, None
    first = cursor.parse_integer()
    second = cursor.parse_integer() if cursor.accept(",") else None
    cursor.expect(")")
    return first, second


def _integer(cursor: MySqlTokenCursor, draft: ColumnDraft, word: str) -> None:
    draft.type = _INTEGERS[word]
    draft.length = _length(cursor)


def _boolean(cursor: MySqlTokenCursor, draft: ColumnDraft, word: str) -> None:
    draft.type, draft.length = "tinyint", 1


def _serial(cursor: MySqlTokenCursor, draft: ColumnDraft, word: str) -> None:
    draft.type = "bigint"
    draft.unsigned = draft.auto_increment = draft.unique = True
    draft.nullable = False


def _plain(cursor: MySqlTokenCursor, draft: ColumnDraft, word: str) -> None:
    draft.type = _PLAIN[word]


def _json(cursor: MySqlTokenCursor, draft: ColumnDraft, word: str) -> None:
    """Parse ``JSON``, a separate type to MySQL.

    To MariaDB it is another word for a text, and nothing in the log distinguishes them.
    """
    draft.type = "json"
    if cursor.modes.is_mariadb:
        draft.type, draft.charset, draft.collation = "longtext", "utf8mb4", "utf8mb4_bin"


def _with_length(cursor: MySqlTokenCursor, draft: ColumnDraft, word: str) -> None:
    draft.type = _WITH_LENGTH[word]
    draft.length = _length(cursor)
    if word == "BIT":
        draft.length = draft.length or 1


def _decimal(cursor: MySqlTokenCursor, draft: ColumnDraft, word: str) -> None:
    precision, scale = _digits(cursor)
    if word == "NUMBER" and precision is None:  # Oracle's word: without digits a floating point number
        draft.type = "double"
        return
    draft.type = "decimal"
    draft.length, draft.scale = precision or 10, scale or 0


def _float(cursor: MySqlTokenCursor, draft: ColumnDraft, word: str) -> None:
    length, scale = _digits(cursor)
    draft.type = "float"
    if scale is None:
        # FLOAT(p) says how many bits are wanted, and nothing about the display.
        if length is not None and length > 53:
            cursor.fail("FLOAT has at most 53 bits")
        draft.type = "double" if length is not None and length > 24 else "float"
    else:
        draft.length, draft.scale = length, scale


def _double(cursor: MySqlTokenCursor, draft: ColumnDraft, word: str) -> None:
    if word == "DOUBLE":
        cursor.accept("PRECISION")
    draft.type = "float" if word == "REAL" and cursor.modes.real_as_float else "double"
    draft.length, draft.scale = _digits(cursor)
    if draft.length is not None and draft.scale is None:
        cursor.fail("two numbers expected")


def _char(cursor: MySqlTokenCursor, draft: ColumnDraft, word: str) -> None:
    """``CHAR``, ``CHARACTER``, ``NCHAR``, each also ``VARYING``, and ``NCHAR VARCHAR``."""
    if word == "NCHAR":
        draft.charset = _NATIONAL
        if cursor.accept_any("VARCHAR", "VARCHARACTER"):
            return _varchar(cursor, draft, word)
    if cursor.accept("VARYING"):
        return _varchar(cursor, draft, word)
    draft.type = "char"
    length = _length(cursor)
    draft.length = 1 if length is None else length
    return None


def _varchar(cursor: MySqlTokenCursor, draft: ColumnDraft, word: str) -> None:
    if word == "NVARCHAR":
        draft.charset = _NATIONAL
    draft.type = "varchar"
    draft.length = _length(cursor)
    if draft.length is None:
        cursor.fail("a length expected")


def _national(cursor: MySqlTokenCursor, draft: ColumnDraft, word: str) -> None:
    draft.charset = _NATIONAL
    following = cursor.accept_any("CHAR", "CHARACTER", "VARCHAR", "VARCHARACTER")
    if not following:
        cursor.fail("CHAR or VARCHAR expected")
    read = _char if following in ("CHAR", "CHARACTER") else _varchar
    read(cursor, draft, following)


def _binary(cursor: MySqlTokenCursor, draft: ColumnDraft, word: str) -> None:
    length = _length(cursor)
    if word == "BINARY":
        draft.type, draft.length = "binary", 1 if length is None else length
        return
    if length is None:
        cursor.fail("a length expected")
    draft.type, draft.length = "varbinary", length
    if length > _MAX_VARCHAR_BYTES:
        draft.type, draft.length = find_smallest_type("blob", length), None


def _size(cursor: MySqlTokenCursor) -> int | None:
    """``(n)`` of TEXT and BLOB. MariaDB takes ``(0)`` for nothing said, MySQL for the smallest type."""
    size = _length(cursor)
    return None if size == 0 and not cursor.modes.is_mysql else size


def _text(cursor: MySqlTokenCursor, draft: ColumnDraft, word: str) -> None:
    draft.type = "text"
    draft.length = _size(cursor)  # how many bytes that is depends on the character set


def _blob(cursor: MySqlTokenCursor, draft: ColumnDraft, word: str) -> None:
    size = _size(cursor)
    draft.type = "blob" if size is None else find_smallest_type("blob", size)


def _long(cursor: MySqlTokenCursor, draft: ColumnDraft, word: str) -> None:
    draft.type = "mediumtext"
    if cursor.accept("VARBINARY"):
        draft.type = "mediumblob"
    elif cursor.accept("CHAR", "VARYING") or cursor.accept("CHARACTER", "VARYING"):
        pass
    else:
        cursor.accept_any("VARCHAR", "VARCHARACTER")


def _members(cursor: MySqlTokenCursor, draft: ColumnDraft, word: str) -> None:
    draft.type = word.lower()
    cursor.expect("(")
    values = []
    while True:
        token = cursor.consume_token()
        if token.kind == STRING:
            values.append(token.value)
        elif token.kind in (HEX, BITS) and (data := literal_bytes(token.kind, token.value)).isascii():
            values.append(data.decode("ascii"))
        elif token.kind == HEX and draft.members_in is not None:
            values.append(
                texts.decode_text(draft.members_in, data, "backslashreplace")
            )  # as the log's members are read
        else:
            cursor.fail("a member of ENUM or SET expected")
        if not cursor.accept(","):
            break
    cursor.expect(")")
    draft.values = tuple(values)


def _vector(cursor: MySqlTokenCursor, draft: ColumnDraft, word: str) -> None:
    draft.type = "vector"
    length = _length(cursor)
    draft.length = 2048 if length is None else length


_READERS: dict[str, Callable[[MySqlTokenCursor, ColumnDraft, str], None]] = {
    **dict.fromkeys(_INTEGERS, _integer),
    **dict.fromkeys(_PLAIN, _plain),
    **dict.fromkeys(_WITH_LENGTH, _with_length),
    **dict.fromkeys(("BOOL", "BOOLEAN"), _boolean),
    **dict.fromkeys(("DECIMAL", "DEC", "NUMERIC", "FIXED", "NUMBER"), _decimal),
    **dict.fromkeys(("FLOAT", "FLOAT4"), _float),
    **dict.fromkeys(("DOUBLE", "FLOAT8", "REAL"), _double),
    **dict.fromkeys(("CHAR", "CHARACTER", "NCHAR"), _char),
    **dict.fromkeys(("VARCHAR", "VARCHARACTER", "NVARCHAR", "VARCHAR2"), _varchar),
    **dict.fromkeys(("BINARY", "VARBINARY", "RAW"), _binary),
    **dict.fromkeys(("ENUM", "SET"), _members),
    "JSON": _json,
    "NATIONAL": _national,
    "SERIAL": _serial,
    "TEXT": _text,
    "BLOB": _blob,
    "LONG": _long,
    "VECTOR": _vector,
}
