"""Defaults and columns as DDL text gives them.

Fields that the text may leave out are ``None`` then, because the answer (the database's character set, say) is the
caller's to know.
"""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class MySqlColumnDefault:
    """A column's default.

    :param value: text of the literal; ``None`` is NULL; for an expression its source text
    :param is_expression: only the server knows the value (``CURRENT_TIMESTAMP``, ``uuid()``, ``(a + 1)``, and
        literals whose meaning depends on what the text does not say). A literal in parentheses is a literal.

    >>> MySqlColumnDefault("5", False).is_expression
    False
    """

    value: str | None
    is_expression: bool = False


@dataclass(frozen=True, slots=True)
class ColumnDef:
    """A column definition.

    :param type: as ``information_schema.columns.data_type`` prints it on MySQL 8, except that ``geomcollection`` is
        always ``geometrycollection``
    :param length: characters, bytes, bits, digits, display width; fractional digits of temporal types; dimensions of a
        vector. The ``n`` of ``TEXT(n)`` only as long as the character set that sizes it is unknown: see
        :func:`.charset_rules.resolve_charset`.
    :param charset: as written, or as the collation implies; ``None``: the table's
    :param collation: as written; one that starts with ``_`` or has no character set in its name is relative to the
        character set that applies: see :func:`.charset_rules.resolve_charset`
    :param nullable: ``None`` when the definition says nothing. Code that puts tables together has to know that columns
        of the primary key are NOT NULL, and so are TIMESTAMP columns without ``explicit_defaults_for_timestamp``.
    :param stored: of generated columns: kept in the row, as opposed to computed when read
    :param compressed: MariaDB's column compression
    :param primary: ``PRIMARY KEY`` was part of the definition; likewise ``unique``
    :param versioned: changes of it are kept as old rows (MariaDB's ``WITH SYSTEM VERSIONING``)
    :param spelled: the type word as written, lower case (``boolean``, ``real``); not part of equality

    >>> ColumnDef("id", "bigint", unsigned=True).type
    'bigint'
    """

    name: str
    type: str
    length: int | None = None
    scale: int | None = None
    unsigned: bool = False
    zerofill: bool = False
    charset: str | None = None
    collation: str | None = None
    values: tuple[str, ...] = ()
    nullable: bool | None = None
    default: MySqlColumnDefault | None = None
    on_update: str | None = None
    auto_increment: bool = False
    generated: bool = False
    stored: bool = False
    invisible: bool = False
    compressed: bool = False
    primary: bool = False
    unique: bool = False
    comment: str | None = None
    srid: int | None = None
    versioned: bool = False
    spelled: str = field(default="", compare=False)
