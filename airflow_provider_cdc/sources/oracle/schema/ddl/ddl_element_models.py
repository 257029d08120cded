"""Defaults, columns and keys as DDL text gives them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from airflow_provider_cdc.sources.oracle.schema.column_types import ColumnType


@dataclass(frozen=True, slots=True)
class ColumnDefault:
    """A column's default.

    :param text: of the expression, as written
    :param kind: kind of the expression; only of an ``expression`` is the value unknown
    :param value: of a literal: the string without quotes, the number with its sign, the inside of ``DATE '…'`` and
        ``TIMESTAMP '…'``. ``None`` for NULL, which the empty string is too, and for an expression.
    :param on_null: ``DEFAULT ON NULL``: the column is NOT NULL with it

    >>> ColumnDefault("SYSDATE", "expression").value is None
    True
    """

    text: str
    kind: Literal["null", "string", "number", "date", "timestamp", "expression"]
    value: str | None = None
    on_null: bool = False


@dataclass(frozen=True, slots=True)
class ColumnDefinition:
    """A column definition; in ``MODIFY`` the properties that it leaves out stay as they were.

    :param type: ``None`` when the text gives none: a query, an expression or the column referred to decides on it
    :param type_text: the type as written
    :param built_in: the type is one of Oracle's own; otherwise it is a user's type or a domain, which has to be looked up in
        the catalog
    :param unit: ``CHAR`` or ``BYTE``, when the length said so
    :param nullable: ``None`` when the definition says nothing. Columns of the primary key are not NOT NULL here.
    :param default: ``None`` when there is none, or nothing is said of it
    :param virtual: computed when read, so neither stored nor logged
    :param visible: ``None`` when not said

    >>> ColumnDefinition("ID", ColumnType("NUMBER", 10, 0)).nullable is None
    True
    """

    name: str
    type: ColumnType | None = None
    type_text: str = ""
    built_in: bool = True
    unit: str | None = None
    nullable: bool | None = None
    default: ColumnDefault | None = None
    identity: bool = False
    virtual: bool = False
    visible: bool | None = None


@dataclass(frozen=True, slots=True)
class KeyDefinition:
    """A primary or unique key.

    :param name: ``None`` when Oracle chooses one
    :param enabled: ``False`` for ``DISABLE``: then nothing keeps it

    >>> KeyDefinition("primary", ("ID",)).enabled
    True
    """

    kind: Literal["primary", "unique"]
    columns: tuple[str, ...]
    name: str | None = None
    enabled: bool = True
