"""A column definition while it is being read."""

from __future__ import annotations

from dataclasses import dataclass, fields
from operator import attrgetter

from airflow_provider_cdc.sources.mysql.schema.ddl.charset_rules import TEXT_TYPES, charset_of, resolve_charset
from airflow_provider_cdc.sources.mysql.schema.ddl.default_values import DefaultLiteral, resolve_typed_default
from airflow_provider_cdc.sources.mysql.schema.ddl.parsed_columns import ColumnDef, MySqlColumnDefault


@dataclass(slots=True)
class ColumnDraft:
    """Mutable twin of :class:`ColumnDef`: clauses come in any order, and some change the effect of others.

    :ivar members_in: character set of members that are written as bytes, where it is known before the type is read
    """

    name: str
    type: str = ""
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
    spelled: str = ""
    literal: DefaultLiteral | None = None
    members_in: str | None = None

    def build_column(self) -> ColumnDef:
        """Build the definition, as far as it can be known without the table's character set."""
        if self.type not in TEXT_TYPES:
            self.charset = self.collation = None
        elif self.charset is None:
            self.charset = charset_of(self.collation)
        if self.literal is not None:  # only now, because the character set may come after the default
            self.default = resolve_typed_default(self.literal, self)
        column = ColumnDef(*_values(self))
        return resolve_charset(column, None) if self.type in TEXT_TYPES else column


# Same names in the same order, and much faster than fifty calls of dataclasses.replace.
_values = attrgetter(*(f.name for f in fields(ColumnDef)))
