"""Effects of character sets on column types: which one applies, how large a TEXT becomes, when text is bytes.

A definition often leaves the character set to the table or the database, and the type that the server creates depends
on it. So reading is in two steps: the text gives a :class:`ColumnDef`, and :func:`resolve_charset` completes it once the
table's character set is known.
"""

from __future__ import annotations

from dataclasses import replace

from airflow_provider_cdc.sources.mysql.schema.ddl.parsed_columns import ColumnDef

BYTES_PER_CHARACTER = {
    "big5": 2, "dec8": 1, "cp850": 1, "hp8": 1, "koi8r": 1, "latin1": 1, "latin2": 1, "swe7": 1, "ascii": 1,
    "ujis": 3, "sjis": 2, "hebrew": 1, "tis620": 1, "euckr": 2, "koi8u": 1, "gb2312": 2, "greek": 1, "cp1250": 1,
    "gbk": 2, "latin5": 1, "armscii8": 1, "utf8": 3, "utf8mb3": 3, "ucs2": 2, "cp866": 1, "keybcs2": 1, "macce": 1,
    "macroman": 1, "cp852": 1, "latin7": 1, "utf8mb4": 4, "cp1251": 1, "utf16": 4, "utf16le": 4, "cp1256": 1,
    "cp1257": 1, "utf32": 4, "binary": 1, "geostd8": 1, "cp932": 2, "eucjpms": 3, "gb18030": 4,
}  # fmt: skip
"""Character set → most bytes that a character takes. ``utf8`` has three bytes, as it has had for most of its life."""

TEXT_TYPES = frozenset(("char", "varchar", "tinytext", "text", "mediumtext", "longtext", "enum", "set"))
"""Types with a character set."""

_MAX_VARCHAR_BYTES = 65_535
_SIZES = (("tiny", 255), ("", 65_535), ("medium", 16_777_215), ("long", 4_294_967_295))
_TEXTS = {"tinytext": 255, "text": 65_535, "mediumtext": 16_777_215, "longtext": 4_294_967_295}
_AS_BYTES = {
    "char": "binary", "varchar": "varbinary", "tinytext": "tinyblob", "text": "blob", "mediumtext": "mediumblob",
    "longtext": "longblob",
}  # fmt: skip


def find_smallest_type(family: str, size: int) -> str:
    """Return the smallest type of a family that holds so many bytes.

    >>> find_smallest_type("text", 70_000)
    'mediumtext'
    """
    for prefix, limit in _SIZES:
        if size <= limit:
            return prefix + family
    return f"long{family}"


def charset_of(collation: str | None) -> str | None:
    """Return the character set that a collation belongs to; ``None`` for those that belong to several.

    >>> charset_of("utf8mb4_0900_ai_ci"), charset_of("uca1400_ai_ci")
    ('utf8mb4', None)
    """
    charset = collation.partition("_")[0].lower() if collation else ""
    return charset if charset in BYTES_PER_CHARACTER else None


def is_relative(collation: str) -> bool:
    """Check whether the collation only means something together with a character set.

    Examples are ``_bin`` and ``uca1400_ai_ci``.
    """
    return charset_of(collation) is None


def resolve_charset(column: ColumnDef, charset: str | None, collation: str | None = None) -> ColumnDef:
    """Return the column as the server creates it in a table with this default character set.

    Gives text columns their character set and collation, turns them into bytes where that is ``binary``, sizes
    ``TEXT(n)`` and a VARCHAR that is too long to be one, and strips the spaces that ENUM and SET members lose at
    their end. Resolving twice changes nothing.

        >>> resolve_charset(ColumnDef("a", "text", length=100), "utf8mb4").type
        'text'
        >>> resolve_charset(ColumnDef("a", "text", length=100), "latin1").type
        'tinytext'
    """
    if column.type not in TEXT_TYPES:
        return column
    if column.charset is None:
        if column.collation is not None:  # relative, otherwise it would have given the character set
            collation = column.collation
    else:
        charset, collation = column.charset, column.collation
    if charset is None:
        return column
    if collation is not None and is_relative(collation):
        collation = f"{charset}_{collation.removeprefix('_')}"
    if charset == "binary" and column.type in _AS_BYTES:
        return _bytes(column)
    column = replace(column, charset=charset, collation=collation)
    if column.values and charset != "binary":
        column = _stripped(column)
    if column.length is None or charset not in BYTES_PER_CHARACTER:
        return column
    size = column.length * BYTES_PER_CHARACTER[charset]
    if column.type == "text" or (column.type == "varchar" and size > _MAX_VARCHAR_BYTES):
        return replace(column, type=find_smallest_type("text", size), length=None)
    return column


def _stripped(column: ColumnDef) -> ColumnDef:
    default = column.default
    if default is not None and default.value is not None and not default.is_expression:
        default = replace(default, value=default.value.rstrip(" "))
    return replace(column, values=tuple(v.rstrip(" ") for v in column.values), default=default)


def _bytes(column: ColumnDef) -> ColumnDef:
    type_, length = _AS_BYTES[column.type], column.length
    if length is not None and (type_ == "blob" or (type_ == "varbinary" and length > _MAX_VARCHAR_BYTES)):
        type_, length = find_smallest_type("blob", length), None
    return replace(column, type=type_, length=length, charset=None, collation=None)


def convert_charset(column: ColumnDef, charset: str, collation: str | None = None) -> ColumnDef:
    """Return a resolved column after ``ALTER TABLE … CONVERT TO CHARACTER SET``.

    TEXT types grow so that as many characters fit as before; bytes stay bytes. MariaDB makes question marks of the
    members of an ENUM or SET that are not ASCII, so for such a column the catalog has to be read.

        >>> convert_charset(ColumnDef("a", "text", charset="latin1"), "utf8mb4").type
        'mediumtext'
    """
    if column.type not in TEXT_TYPES or column.charset == "binary":
        return column
    type_ = column.type
    old, new = BYTES_PER_CHARACTER.get(column.charset or ""), BYTES_PER_CHARACTER.get(charset)
    if type_ in _TEXTS and old and new and charset != column.charset:
        type_ = find_smallest_type("text", _TEXTS[type_] // old * new)
    return resolve_charset(replace(column, type=type_, charset=None, collation=None), charset, collation)
