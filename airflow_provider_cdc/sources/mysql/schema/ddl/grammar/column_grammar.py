"""A column definition: name, type, and everything that may follow the type.

>>> from airflow_provider_cdc.sources.mysql.schema.ddl.statement_parser import parse_statements
>>> parse_statements("ALTER TABLE t ADD a INT UNSIGNED NOT NULL DEFAULT 7")[0].actions[0].column.default.value
'7'
"""

from __future__ import annotations

from collections.abc import Callable

from airflow_provider_cdc.sources.mysql.schema.ddl.grammar.column_draft import ColumnDraft
from airflow_provider_cdc.sources.mysql.schema.ddl.grammar.datatypes import read_type
from airflow_provider_cdc.sources.mysql.schema.ddl.grammar.ddl_token_cursor import MySqlTokenCursor
from airflow_provider_cdc.sources.mysql.schema.ddl.grammar.default_clauses import read_default
from airflow_provider_cdc.sources.mysql.schema.ddl.parsed_columns import ColumnDef
from airflow_provider_cdc.sources.relational.sql_token_cursor import NUMBER, QUOTED, STRING, WORD

_SIGNED = frozenset(("tinyint", "smallint", "mediumint", "int", "bigint", "decimal", "float", "double"))
_REFERENCE_ACTIONS = (("RESTRICT",), ("CASCADE",), ("SET", "NULL"), ("SET", "DEFAULT"), ("NO", "ACTION"))


def read_column(cursor: MySqlTokenCursor) -> ColumnDef:
    """Parse a whole column definition, up to the first token that no longer belongs to it."""
    draft = ColumnDraft(cursor.read_column_name())
    read_type(cursor, draft)
    read_attributes(cursor, draft)
    return draft.build_column()


def read_attributes(cursor: MySqlTokenCursor, draft: ColumnDraft) -> None:
    """Everything after the type; stops at the first word that is not an attribute."""
    while True:
        read = _ATTRIBUTES.get(cursor.next_key)
        if read is not None:
            cursor.consume_token()
            read(cursor, draft)
        elif cursor.next_token.kind in (WORD, QUOTED) and cursor.peek().key == "=":
            _engine_attribute(cursor, draft)
        else:
            return


def _engine_attribute(cursor: MySqlTokenCursor, draft: ColumnDraft) -> None:
    """``name = value``: how MariaDB hands options to a storage engine. They cannot change the column's type."""
    cursor.consume_token()
    cursor.consume_token()
    if cursor.next_token.kind not in (WORD, QUOTED, STRING, NUMBER):
        cursor.fail("a value expected")
    cursor.consume_token()


def _unsigned(cursor: MySqlTokenCursor, draft: ColumnDraft) -> None:
    draft.unsigned = draft.type in _SIGNED


def _zerofill(cursor: MySqlTokenCursor, draft: ColumnDraft) -> None:
    draft.unsigned = draft.zerofill = draft.type in _SIGNED


def _not(cursor: MySqlTokenCursor, draft: ColumnDraft) -> None:
    if cursor.accept("NULL"):
        draft.nullable = False
    else:
        cursor.expect("SECONDARY")  # not part of the secondary engine's copy of the table


def _null(cursor: MySqlTokenCursor, draft: ColumnDraft) -> None:
    draft.nullable = True


def _default(cursor: MySqlTokenCursor, draft: ColumnDraft) -> None:
    draft.literal = read_default(cursor)


def _on(cursor: MySqlTokenCursor, draft: ColumnDraft) -> None:
    cursor.expect("UPDATE")
    start = cursor.next_token
    if not cursor.accept_any("CURRENT_TIMESTAMP", "NOW", "LOCALTIME", "LOCALTIMESTAMP"):
        cursor.fail("CURRENT_TIMESTAMP expected")
    if cursor.next_key == "(":
        cursor.skip_group()
    draft.on_update = cursor.slice_source(start)


def _auto_increment(cursor: MySqlTokenCursor, draft: ColumnDraft) -> None:
    draft.auto_increment = True
    draft.nullable = False


def _serial(cursor: MySqlTokenCursor, draft: ColumnDraft) -> None:
    cursor.expect("DEFAULT", "VALUE")
    draft.auto_increment = draft.unique = True
    draft.nullable = False


def _primary(cursor: MySqlTokenCursor, draft: ColumnDraft) -> None:
    cursor.accept("KEY")
    _key(cursor, draft)


def _key(cursor: MySqlTokenCursor, draft: ColumnDraft) -> None:
    draft.primary = True
    draft.nullable = False


def _unique(cursor: MySqlTokenCursor, draft: ColumnDraft) -> None:
    cursor.accept("KEY")
    draft.unique = True


def _comment(cursor: MySqlTokenCursor, draft: ColumnDraft) -> None:
    draft.comment = cursor.parse_string()


def _generated(cursor: MySqlTokenCursor, draft: ColumnDraft) -> None:
    cursor.expect("ALWAYS", "AS")
    _as(cursor, draft)


def _as(cursor: MySqlTokenCursor, draft: ColumnDraft) -> None:
    if cursor.accept("ROW"):  # from when, or to when, a row of a system-versioned table held
        if not cursor.accept_any("START", "END"):
            cursor.fail("START or END expected")
        draft.generated = draft.stored = True
        draft.nullable = False
        return
    if cursor.next_key != "(":
        cursor.fail("an expression in parentheses expected")
    cursor.skip_group()
    draft.generated = True
    draft.stored = cursor.accept_any("VIRTUAL", "STORED", "PERSISTENT") in ("STORED", "PERSISTENT")


def _invisible(cursor: MySqlTokenCursor, draft: ColumnDraft) -> None:
    draft.invisible = True


def _nothing(cursor: MySqlTokenCursor, draft: ColumnDraft) -> None:
    """Skip a word that changes nothing: ``SIGNED``, ``VISIBLE``."""


def _with(cursor: MySqlTokenCursor, draft: ColumnDraft) -> None:
    cursor.expect("SYSTEM", "VERSIONING")
    draft.versioned = True


def _without(cursor: MySqlTokenCursor, draft: ColumnDraft) -> None:
    cursor.expect("SYSTEM", "VERSIONING")


def _compressed(cursor: MySqlTokenCursor, draft: ColumnDraft) -> None:
    draft.compressed = True
    if cursor.accept("="):
        cursor.word_or_text()


def _storage(cursor: MySqlTokenCursor, draft: ColumnDraft) -> None:
    if not cursor.accept_any("DISK", "MEMORY", "FIXED", "DYNAMIC", "DEFAULT"):
        cursor.fail("a kind of storage expected")


def _engine_text(cursor: MySqlTokenCursor, draft: ColumnDraft) -> None:
    cursor.accept("=")
    cursor.parse_string()


def _character(cursor: MySqlTokenCursor, draft: ColumnDraft) -> None:
    cursor.expect("SET")
    _charset(cursor, draft)


def _charset(cursor: MySqlTokenCursor, draft: ColumnDraft) -> None:
    draft.charset = cursor.word_or_text().lower()


def _collate(cursor: MySqlTokenCursor, draft: ColumnDraft) -> None:
    if cursor.next_key == "DEFAULT":
        # MariaDB: the default collation of the character set. Only known to be the right one where that was said.
        if draft.charset is None:
            cursor.fail("a collation expected")
        cursor.consume_token()
        draft.collation = None
    else:
        draft.collation = cursor.word_or_text().lower()


def _binary(cursor: MySqlTokenCursor, draft: ColumnDraft) -> None:
    draft.collation = "_bin"  # of the character set, which may not be known yet


def _ascii(cursor: MySqlTokenCursor, draft: ColumnDraft) -> None:
    draft.charset = "latin1"


def _unicode(cursor: MySqlTokenCursor, draft: ColumnDraft) -> None:
    draft.charset = "ucs2"


def _byte(cursor: MySqlTokenCursor, draft: ColumnDraft) -> None:
    draft.charset = "binary"


def _srid(cursor: MySqlTokenCursor, draft: ColumnDraft) -> None:
    cursor.accept("=")
    draft.srid = cursor.parse_integer()


def _references(cursor: MySqlTokenCursor, draft: ColumnDraft) -> None:
    cursor.parse_table_name(changed=False)
    if cursor.next_key == "(":
        cursor.skip_group()
    if cursor.accept("MATCH") and not cursor.accept_any("FULL", "PARTIAL", "SIMPLE"):
        cursor.fail("FULL, PARTIAL or SIMPLE expected")
    while cursor.next_key == "ON" and cursor.peek(2).key not in (
        "CURRENT_TIMESTAMP",
        "NOW",
        "LOCALTIME",
        "LOCALTIMESTAMP",
    ):
        cursor.consume_token()
        if not cursor.accept_any("DELETE", "UPDATE"):
            cursor.fail("DELETE or UPDATE expected")
        if not any(cursor.accept(*action) for action in _REFERENCE_ACTIONS):
            cursor.fail("a reference action expected")


def _constraint(cursor: MySqlTokenCursor, draft: ColumnDraft) -> None:
    if cursor.next_key != "CHECK":
        cursor.read_name()
    cursor.expect("CHECK")
    _check(cursor, draft)


def _check(cursor: MySqlTokenCursor, draft: ColumnDraft) -> None:
    cursor.skip_group()
    if not cursor.accept("NOT", "ENFORCED"):
        cursor.accept("ENFORCED")


_ATTRIBUTES: dict[str, Callable[[MySqlTokenCursor, ColumnDraft], None]] = {
    "UNSIGNED": _unsigned,
    "SIGNED": _nothing,
    "ZEROFILL": _zerofill,
    "NOT": _not,
    "NULL": _null,
    "DEFAULT": _default,
    "ON": _on,
    "AUTO_INCREMENT": _auto_increment,
    "SERIAL": _serial,
    "PRIMARY": _primary,
    "KEY": _key,
    "UNIQUE": _unique,
    "COMMENT": _comment,
    "GENERATED": _generated,
    "AS": _as,
    "INVISIBLE": _invisible,
    "VISIBLE": _nothing,
    "WITH": _with,
    "WITHOUT": _without,
    "COMPRESSED": _compressed,
    "COLUMN_FORMAT": _storage,
    "STORAGE": _storage,
    "ENGINE_ATTRIBUTE": _engine_text,
    "SECONDARY_ENGINE_ATTRIBUTE": _engine_text,
    "CHARACTER": _character,
    "CHAR": _character,
    "CHARSET": _charset,
    "COLLATE": _collate,
    "BINARY": _binary,
    "ASCII": _ascii,
    "UNICODE": _unicode,
    "BYTE": _byte,
    "SRID": _srid,
    "REF_SYSTEM_ID": _srid,
    "REFERENCES": _references,
    "CONSTRAINT": _constraint,
    "CHECK": _check,
}
"""First word → function that reads the attribute, after that word."""
