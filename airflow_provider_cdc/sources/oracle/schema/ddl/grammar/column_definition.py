"""A column definition: name, type, and everything that may follow the type."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from airflow_provider_cdc.sources.oracle.schema.ddl.ddl_element_models import (
    ColumnDefault,
    ColumnDefinition,
    KeyDefinition,
)
from airflow_provider_cdc.sources.oracle.schema.ddl.grammar.constraints import inline_key, read_reference, read_state
from airflow_provider_cdc.sources.oracle.schema.ddl.grammar.datatypes import ParsedType, read_type
from airflow_provider_cdc.sources.oracle.schema.ddl.grammar.ddl_cursor import DdlCursor
from airflow_provider_cdc.sources.oracle.schema.ddl.grammar.expressions import parse_default_expression
from airflow_provider_cdc.sources.relational.sql_token_cursor import STRING, WORD


@dataclass(slots=True)
class _ColumnDraft:
    """Mutable twin of :class:`ColumnDefinition`: clauses come in any order."""

    name: str
    type: ParsedType | None = None
    type_text: str = ""
    nullable: bool | None = None
    default: ColumnDefault | None = None
    identity: bool = False
    virtual: bool = False
    visible: bool | None = None
    keys: list[KeyDefinition] = field(default_factory=list)

    def build_definition(self) -> tuple[ColumnDefinition, list[KeyDefinition]]:
        t = self.type
        column = ColumnDefinition(
            name=self.name, type=t.type if t else None, type_text=self.type_text, built_in=t.built_in if t else True,
            unit=t.unit if t else None, nullable=self.nullable, default=self.default, identity=self.identity,
            virtual=self.virtual, visible=self.visible,
        )  # fmt: skip
        return column, self.keys


def read_column(cursor: DdlCursor) -> tuple[ColumnDefinition, list[KeyDefinition]]:
    """Parse a whole column definition, up to the first token that no longer belongs to it, and the keys that it brings along."""
    draft = _ColumnDraft(cursor.parse_name())
    if not (
        cursor.next_key in (",", ")")
        or cursor.is_at_end
        or (cursor.next_token.kind == WORD and cursor.next_key in _ATTRIBUTES)
    ):
        mark = cursor.mark()
        draft.type = read_type(cursor)
        draft.type_text = cursor.text_from_mark(mark)
    while cursor.next_token.kind == WORD and (read := _ATTRIBUTES.get(cursor.next_key)) is not None:
        if cursor.next_key in ("DROP", "WITH") and not _own(cursor):
            break
        cursor.consume_token()
        read(cursor, draft)
    return draft.build_definition()


def _own(cursor: DdlCursor) -> bool:
    """Check whether a word that may begin another clause of ALTER TABLE belongs to the column."""
    following = cursor.peek().key
    return (cursor.next_key, following) in (("DROP", "IDENTITY"), ("WITH", "ROWID"))


def _default(cursor: DdlCursor, draft: _ColumnDraft) -> None:
    on_null = cursor.accept("ON", "NULL")
    if on_null:
        draft.nullable = False
        if cursor.accept("FOR", "INSERT") and not (cursor.accept("ONLY") or cursor.accept("AND", "UPDATE")):
            cursor.fail("ONLY or AND UPDATE expected")
    draft.default = parse_default_expression(cursor, on_null=on_null)


def _generated(cursor: DdlCursor, draft: _ColumnDraft) -> None:
    if cursor.accept("BY", "DEFAULT"):
        cursor.accept("ON", "NULL")
    else:
        cursor.accept("ALWAYS")
    cursor.expect("AS")
    if not cursor.accept("IDENTITY"):
        _as(cursor, draft)
        return
    draft.identity = True
    draft.nullable = False
    if cursor.next_key == "(":
        cursor.skip_group()


def _as(cursor: DdlCursor, draft: _ColumnDraft) -> None:
    mark = cursor.mark()
    cursor.skip_group()
    draft.default = ColumnDefault(cursor.text_from_mark(mark), "expression")
    if cursor.accept("VIRTUAL"):
        cursor.accept("BY", "USER", "FOR", "STATISTICS")
    draft.virtual = True


def _not(cursor: DdlCursor, draft: _ColumnDraft) -> None:
    cursor.expect("NULL")
    if read_state(cursor, inline=True).is_enforced:
        draft.nullable = False


def _null(cursor: DdlCursor, draft: _ColumnDraft) -> None:
    read_state(cursor, inline=True)
    draft.nullable = True


def _constraint(cursor: DdlCursor, draft: _ColumnDraft) -> None:
    name = cursor.parse_name()
    if cursor.accept("NOT"):
        _not(cursor, draft)
    elif cursor.accept("NULL"):
        _null(cursor, draft)
    elif cursor.accept("CHECK"):
        _check(cursor, draft)
    elif cursor.accept("REFERENCES"):
        _references(cursor, draft)
    else:
        _key(cursor, draft, name)


def _key(cursor: DdlCursor, draft: _ColumnDraft, name: str | None) -> None:
    key = inline_key(cursor, draft.name, name)
    if key is None:
        cursor.fail("a constraint expected")
    draft.keys.append(key)


def _primary(cursor: DdlCursor, draft: _ColumnDraft) -> None:
    cursor.reset(cursor.mark() - 1)
    _key(cursor, draft, None)


def _check(cursor: DdlCursor, draft: _ColumnDraft) -> None:
    cursor.skip_group()
    read_state(cursor, inline=True)


def _references(cursor: DdlCursor, draft: _ColumnDraft) -> None:
    read_reference(cursor)
    read_state(cursor, inline=True)


def _visible(cursor: DdlCursor, draft: _ColumnDraft) -> None:
    draft.visible = True


def _invisible(cursor: DdlCursor, draft: _ColumnDraft) -> None:
    draft.visible = False


def _encrypt(cursor: DdlCursor, draft: _ColumnDraft) -> None:
    if cursor.accept("USING"):
        cursor.parse_string()
    if cursor.accept("IDENTIFIED", "BY"):
        cursor.consume_token()
    if cursor.next_token.kind == STRING:
        cursor.consume_token()
    cursor.accept("NO")
    cursor.accept("SALT")


def _collate(cursor: DdlCursor, draft: _ColumnDraft) -> None:
    cursor.parse_name()


def _scope(cursor: DdlCursor, draft: _ColumnDraft) -> None:
    cursor.expect("IS")
    cursor.object_name()


def _group(cursor: DdlCursor, draft: _ColumnDraft) -> None:
    cursor.skip_group()


def _rowid(cursor: DdlCursor, draft: _ColumnDraft) -> None:
    cursor.expect("ROWID")


def _drop_identity(cursor: DdlCursor, draft: _ColumnDraft) -> None:
    cursor.expect("IDENTITY")


def _nothing(cursor: DdlCursor, draft: _ColumnDraft) -> None:
    """Ignore a word that has no effect on captured rows."""


_ATTRIBUTES: dict[str, Callable[[DdlCursor, _ColumnDraft], None]] = {
    "DEFAULT": _default,
    "GENERATED": _generated,
    "AS": _as,
    "NOT": _not,
    "NULL": _null,
    "CONSTRAINT": _constraint,
    "PRIMARY": _primary,
    "UNIQUE": _primary,
    "CHECK": _check,
    "REFERENCES": _references,
    "VISIBLE": _visible,
    "INVISIBLE": _invisible,
    "ENCRYPT": _encrypt,
    "DECRYPT": _nothing,
    "COLLATE": _collate,
    "SORT": _nothing,
    "RESERVABLE": _nothing,
    "SCOPE": _scope,
    "ANNOTATIONS": _group,
    "WITH": _rowid,
    "DROP": _drop_identity,
}
"""First word → function that reads the attribute, after that word."""
