"""A column definition: name, type, and everything that may follow the type."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from airflow_provider_cdc.sources.oracle.schema.ddl.columns import ColumnDef, Default, Key
from airflow_provider_cdc.sources.oracle.schema.ddl.grammar.constraints import inline_key, read_reference, read_state
from airflow_provider_cdc.sources.oracle.schema.ddl.grammar.cursor import Cursor
from airflow_provider_cdc.sources.oracle.schema.ddl.grammar.datatypes import TypeText, read_type
from airflow_provider_cdc.sources.oracle.schema.ddl.grammar.expressions import default
from airflow_provider_cdc.sources.relational.tokens import STRING, WORD


@dataclass(slots=True)
class _Draft:
    """Mutable twin of :class:`ColumnDef`: clauses come in any order."""

    name: str
    type: TypeText | None = None
    type_text: str = ""
    nullable: bool | None = None
    default: Default | None = None
    identity: bool = False
    virtual: bool = False
    visible: bool | None = None
    keys: list[Key] = field(default_factory=list)

    def finish(self) -> tuple[ColumnDef, list[Key]]:
        t = self.type
        column = ColumnDef(
            name=self.name, type=t.type if t else None, type_text=self.type_text, built_in=t.built_in if t else True,
            unit=t.unit if t else None, nullable=self.nullable, default=self.default, identity=self.identity,
            virtual=self.virtual, visible=self.visible,
        )  # fmt: skip
        return column, self.keys


def read_column(cursor: Cursor) -> tuple[ColumnDef, list[Key]]:
    """A whole column definition, up to what no longer belongs to it, and the keys that it brings along."""
    draft = _Draft(cursor.name())
    if not (cursor.key in (",", ")") or cursor.ended or (cursor.token.kind == WORD and cursor.key in _ATTRIBUTES)):
        mark = cursor.mark()
        draft.type = read_type(cursor)
        draft.type_text = cursor.since(mark)
    while cursor.token.kind == WORD and (read := _ATTRIBUTES.get(cursor.key)) is not None:
        if cursor.key in ("DROP", "WITH") and not _own(cursor):
            break
        cursor.take()
        read(cursor, draft)
    return draft.finish()


def _own(cursor: Cursor) -> bool:
    """Whether a word that may begin another clause of ALTER TABLE belongs to the column."""
    following = cursor.peek().key
    return (cursor.key, following) in (("DROP", "IDENTITY"), ("WITH", "ROWID"))


def _default(cursor: Cursor, draft: _Draft) -> None:
    on_null = cursor.accept("ON", "NULL")
    if on_null:
        draft.nullable = False
        if cursor.accept("FOR", "INSERT") and not (cursor.accept("ONLY") or cursor.accept("AND", "UPDATE")):
            cursor.fail("ONLY or AND UPDATE expected")
    draft.default = default(cursor, on_null=on_null)


def _generated(cursor: Cursor, draft: _Draft) -> None:
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
    if cursor.key == "(":
        cursor.skip_group()


def _as(cursor: Cursor, draft: _Draft) -> None:
    mark = cursor.mark()
    cursor.skip_group()
    draft.default = Default(cursor.since(mark), "expression")
    if cursor.accept("VIRTUAL"):
        cursor.accept("BY", "USER", "FOR", "STATISTICS")
    draft.virtual = True


def _not(cursor: Cursor, draft: _Draft) -> None:
    cursor.expect("NULL")
    if read_state(cursor, inline=True).certain:
        draft.nullable = False


def _null(cursor: Cursor, draft: _Draft) -> None:
    read_state(cursor, inline=True)
    draft.nullable = True


def _constraint(cursor: Cursor, draft: _Draft) -> None:
    name = cursor.name()
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


def _key(cursor: Cursor, draft: _Draft, name: str | None) -> None:
    found = inline_key(cursor, draft.name, name)
    if found is None:
        cursor.fail("a constraint expected")
    draft.keys.append(found)


def _primary(cursor: Cursor, draft: _Draft) -> None:
    cursor.reset(cursor.mark() - 1)
    _key(cursor, draft, None)


def _check(cursor: Cursor, draft: _Draft) -> None:
    cursor.skip_group()
    read_state(cursor, inline=True)


def _references(cursor: Cursor, draft: _Draft) -> None:
    read_reference(cursor)
    read_state(cursor, inline=True)


def _visible(cursor: Cursor, draft: _Draft) -> None:
    draft.visible = True


def _invisible(cursor: Cursor, draft: _Draft) -> None:
    draft.visible = False


def _encrypt(cursor: Cursor, draft: _Draft) -> None:
    if cursor.accept("USING"):
        cursor.text()
    if cursor.accept("IDENTIFIED", "BY"):
        cursor.take()
    if cursor.token.kind == STRING:
        cursor.take()
    cursor.accept("NO")
    cursor.accept("SALT")


def _collate(cursor: Cursor, draft: _Draft) -> None:
    cursor.name()


def _scope(cursor: Cursor, draft: _Draft) -> None:
    cursor.expect("IS")
    cursor.object_name()


def _group(cursor: Cursor, draft: _Draft) -> None:
    cursor.skip_group()


def _rowid(cursor: Cursor, draft: _Draft) -> None:
    cursor.expect("ROWID")


def _drop_identity(cursor: Cursor, draft: _Draft) -> None:
    cursor.expect("IDENTITY")


def _nothing(cursor: Cursor, draft: _Draft) -> None:
    """A word that changes nothing of what is captured."""


_ATTRIBUTES: dict[str, Callable[[Cursor, _Draft], None]] = {
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
"""First word → what reads the attribute, after that word."""
