"""A column definition: name, type, and everything that may follow the type.

>>> from airflow_provider_cdc.sources.mysql.schema.ddl.reader import read
>>> read("ALTER TABLE t ADD a INT UNSIGNED NOT NULL DEFAULT 7")[0].actions[0].column.default.value
'7'
"""

from __future__ import annotations

from collections.abc import Callable

from airflow_provider_cdc.sources.mysql.schema.ddl.columns import ColumnDef
from airflow_provider_cdc.sources.mysql.schema.ddl.grammar.column_builder import Draft
from airflow_provider_cdc.sources.mysql.schema.ddl.grammar.cursor import Cursor
from airflow_provider_cdc.sources.mysql.schema.ddl.grammar.datatypes import read_type
from airflow_provider_cdc.sources.mysql.schema.ddl.grammar.literals import read_default
from airflow_provider_cdc.sources.relational.tokens import NUMBER, QUOTED, STRING, WORD

_SIGNED = frozenset(("tinyint", "smallint", "mediumint", "int", "bigint", "decimal", "float", "double"))
_REFERENCE_ACTIONS = (("RESTRICT",), ("CASCADE",), ("SET", "NULL"), ("SET", "DEFAULT"), ("NO", "ACTION"))


def read_column(cursor: Cursor) -> ColumnDef:
    """A whole column definition, up to what no longer belongs to it."""
    draft = Draft(cursor.column())
    read_type(cursor, draft)
    read_attributes(cursor, draft)
    return draft.finish()


def read_attributes(cursor: Cursor, draft: Draft) -> None:
    """Everything after the type; stops at the first word that is not an attribute."""
    while True:
        read = _ATTRIBUTES.get(cursor.key)
        if read is not None:
            cursor.take()
            read(cursor, draft)
        elif cursor.token.kind in (WORD, QUOTED) and cursor.peek().key == "=":
            _engine_attribute(cursor, draft)
        else:
            return


def _engine_attribute(cursor: Cursor, draft: Draft) -> None:
    """``name = value``: how MariaDB hands options to a storage engine. They cannot change what the column is."""
    cursor.take()
    cursor.take()
    if cursor.token.kind not in (WORD, QUOTED, STRING, NUMBER):
        cursor.fail("a value expected")
    cursor.take()


def _unsigned(cursor: Cursor, draft: Draft) -> None:
    draft.unsigned = draft.type in _SIGNED


def _zerofill(cursor: Cursor, draft: Draft) -> None:
    draft.unsigned = draft.zerofill = draft.type in _SIGNED


def _not(cursor: Cursor, draft: Draft) -> None:
    if cursor.accept("NULL"):
        draft.nullable = False
    else:
        cursor.expect("SECONDARY")  # not part of the secondary engine's copy of the table


def _null(cursor: Cursor, draft: Draft) -> None:
    draft.nullable = True


def _default(cursor: Cursor, draft: Draft) -> None:
    draft.literal = read_default(cursor)


def _on(cursor: Cursor, draft: Draft) -> None:
    cursor.expect("UPDATE")
    start = cursor.token
    if not cursor.accept_any("CURRENT_TIMESTAMP", "NOW", "LOCALTIME", "LOCALTIMESTAMP"):
        cursor.fail("CURRENT_TIMESTAMP expected")
    if cursor.key == "(":
        cursor.skip_group()
    draft.on_update = cursor.since(start)


def _auto_increment(cursor: Cursor, draft: Draft) -> None:
    draft.auto_increment = True
    draft.nullable = False


def _serial(cursor: Cursor, draft: Draft) -> None:
    cursor.expect("DEFAULT", "VALUE")
    draft.auto_increment = draft.unique = True
    draft.nullable = False


def _primary(cursor: Cursor, draft: Draft) -> None:
    cursor.accept("KEY")
    _key(cursor, draft)


def _key(cursor: Cursor, draft: Draft) -> None:
    draft.primary = True
    draft.nullable = False


def _unique(cursor: Cursor, draft: Draft) -> None:
    cursor.accept("KEY")
    draft.unique = True


def _comment(cursor: Cursor, draft: Draft) -> None:
    draft.comment = cursor.text()


def _generated(cursor: Cursor, draft: Draft) -> None:
    cursor.expect("ALWAYS", "AS")
    _as(cursor, draft)


def _as(cursor: Cursor, draft: Draft) -> None:
    if cursor.accept("ROW"):  # from when, or to when, a row of a system-versioned table held
        if not cursor.accept_any("START", "END"):
            cursor.fail("START or END expected")
        draft.generated = draft.stored = True
        draft.nullable = False
        return
    if cursor.key != "(":
        cursor.fail("an expression in parentheses expected")
    cursor.skip_group()
    draft.generated = True
    draft.stored = cursor.accept_any("VIRTUAL", "STORED", "PERSISTENT") in ("STORED", "PERSISTENT")


def _invisible(cursor: Cursor, draft: Draft) -> None:
    draft.invisible = True


def _nothing(cursor: Cursor, draft: Draft) -> None:
    """A word that changes nothing: ``SIGNED``, ``VISIBLE``."""


def _with(cursor: Cursor, draft: Draft) -> None:
    cursor.expect("SYSTEM", "VERSIONING")
    draft.versioned = True


def _without(cursor: Cursor, draft: Draft) -> None:
    cursor.expect("SYSTEM", "VERSIONING")


def _compressed(cursor: Cursor, draft: Draft) -> None:
    draft.compressed = True
    if cursor.accept("="):
        cursor.word_or_text()


def _storage(cursor: Cursor, draft: Draft) -> None:
    if not cursor.accept_any("DISK", "MEMORY", "FIXED", "DYNAMIC", "DEFAULT"):
        cursor.fail("a kind of storage expected")


def _engine_text(cursor: Cursor, draft: Draft) -> None:
    cursor.accept("=")
    cursor.text()


def _character(cursor: Cursor, draft: Draft) -> None:
    cursor.expect("SET")
    _charset(cursor, draft)


def _charset(cursor: Cursor, draft: Draft) -> None:
    draft.charset = cursor.word_or_text().lower()


def _collate(cursor: Cursor, draft: Draft) -> None:
    if cursor.key == "DEFAULT":
        # MariaDB: the default collation of the character set. Only known to be the right one where that was said.
        if draft.charset is None:
            cursor.fail("a collation expected")
        cursor.take()
        draft.collation = None
    else:
        draft.collation = cursor.word_or_text().lower()


def _binary(cursor: Cursor, draft: Draft) -> None:
    draft.collation = "_bin"  # of the character set, which may not be known yet


def _ascii(cursor: Cursor, draft: Draft) -> None:
    draft.charset = "latin1"


def _unicode(cursor: Cursor, draft: Draft) -> None:
    draft.charset = "ucs2"


def _byte(cursor: Cursor, draft: Draft) -> None:
    draft.charset = "binary"


def _srid(cursor: Cursor, draft: Draft) -> None:
    cursor.accept("=")
    draft.srid = cursor.integer()


def _references(cursor: Cursor, draft: Draft) -> None:
    cursor.table(changed=False)
    if cursor.key == "(":
        cursor.skip_group()
    if cursor.accept("MATCH") and not cursor.accept_any("FULL", "PARTIAL", "SIMPLE"):
        cursor.fail("FULL, PARTIAL or SIMPLE expected")
    while cursor.key == "ON" and cursor.peek(2).key not in ("CURRENT_TIMESTAMP", "NOW", "LOCALTIME", "LOCALTIMESTAMP"):
        cursor.take()
        if not cursor.accept_any("DELETE", "UPDATE"):
            cursor.fail("DELETE or UPDATE expected")
        if not any(cursor.accept(*action) for action in _REFERENCE_ACTIONS):
            cursor.fail("a reference action expected")


def _constraint(cursor: Cursor, draft: Draft) -> None:
    if cursor.key != "CHECK":
        cursor.name()
    cursor.expect("CHECK")
    _check(cursor, draft)


def _check(cursor: Cursor, draft: Draft) -> None:
    cursor.skip_group()
    if not cursor.accept("NOT", "ENFORCED"):
        cursor.accept("ENFORCED")


_ATTRIBUTES: dict[str, Callable[[Cursor, Draft], None]] = {
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
"""First word → what reads the attribute, after that word."""
