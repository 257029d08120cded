"""Structures as people write them in ``schema-changes`` signals."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from airflow_provider_cdc.core.errors import ConfigError
from airflow_provider_cdc.core.model.schema import Column, TableChange, TableId, TableSchema
from airflow_provider_cdc.sources.mysql.config import MySqlConfig
from airflow_provider_cdc.sources.mysql.schema import ddl
from airflow_provider_cdc.sources.mysql.schema.catalog import captured_column
from airflow_provider_cdc.sources.mysql.schema.types import TEXTS, ColumnType

_PART = r'(?:"[^"]+"|`[^`]+`|[^".`]+)'
_NAME = re.compile(rf"\s*{_PART}(?:\.{_PART})?\s*")
_EACH = re.compile(_PART)
_SIZED: Final = {"varchar", "varbinary"}


def table_of(document: Mapping[str, Any], database: str, config: MySqlConfig) -> TableChange:
    """One of the ``changes`` of a ``schema-changes`` signal: a table's whole structure, in the form of ``tableChanges``.

    :param database: of a table whose id does not name it
    :raises ConfigError: it cannot be understood
    """
    kind = document.get("type")
    if kind not in ("CREATE", "ALTER", "DROP"):
        raise _wrong(f'"type" is {kind!r}; valid values are CREATE, ALTER and DROP')
    text = str(document.get("id") or "")
    # a rename names two tables: "shop"."old","shop"."new"
    ids = [_table(part, database) for part in re.split(r',(?=["`])', text)]
    table, previous = ids[-1], ids[0] if len(ids) == 2 else None
    if len(ids) > 2:
        raise _wrong(f'"id" is {text!r}, which names {len(ids)} tables')
    if kind == "DROP":
        return TableChange(type="DROP", id=table)
    return TableChange(
        type=kind, id=table, previous_id=previous, table=_structure(table, document.get("table"), config)
    )


def _table(text: str, database: str) -> TableId:
    if not _NAME.fullmatch(text):
        raise _wrong(f'"id" is {text!r}, which names no table; write it as "database"."table"')
    parts = [part.strip().strip('"`') for part in _EACH.findall(text)]
    return TableId(namespace=parts[-2] if len(parts) > 1 else database, name=parts[-1])


def _structure(table: TableId, given: Any, config: MySqlConfig) -> TableSchema:
    columns = given.get("columns") if isinstance(given, Mapping) else None
    if not isinstance(columns, list) or not columns:
        raise _wrong(f'{table} has no list of "columns" in its "table"')
    charset = given.get("defaultCharsetName")
    if not isinstance(charset, str | None):
        raise _wrong(f'"defaultCharsetName" of {table} is {charset!r}, not a text')
    key = given.get("primaryKeyColumnNames") or []
    if not isinstance(key, list):
        raise _wrong(f'"primaryKeyColumnNames" of {table} is {key!r}, not a list')
    made = tuple(_column(table, c, charset, key, config) for c in sorted(columns, key=_position))
    names = [column.name for column in made]
    if len({name.lower() for name in names}) < len(names):
        raise _wrong(f"{table} has two columns of the same name")
    if not set(key) <= set(names):
        raise _wrong(f'"primaryKeyColumnNames" of {table} is {key!r}; its columns are {", ".join(names)}')
    return TableSchema(id=table, columns=made, key=tuple(key), charset=charset)


def _position(column: Any) -> int:
    position = column.get("position") if isinstance(column, Mapping) else None
    return position if isinstance(position, int) else 0


def _column(table: TableId, given: Any, charset: str | None, key: list[Any], config: MySqlConfig) -> Column:
    name = given.get("name") if isinstance(given, Mapping) else None
    if not isinstance(name, str) or not name:
        raise _wrong(f'{table} has a column without "name"')
    where = f"{table}.{name}"
    for number in ("length", "scale"):
        if not isinstance(given.get(number), int | None) or isinstance(given.get(number), bool):
            raise _wrong(f'"{number}" of {where} is {given[number]!r}, not a number')
    default = given.get("defaultValueExpression")
    return captured_column(
        table,
        name,
        _type(where, given, charset),
        config,
        nullable=bool(given.get("optional", True)) and name not in key,
        default=str(default) if default is not None else None,
        auto_incremented=bool(given.get("autoIncremented")),
        # Debezium counts columns that the database numbers among the generated ones
        generated=bool(given.get("generated")) and not given.get("autoIncremented"),
    )


def _type(where: str, given: Mapping[str, Any], charset: str | None) -> ColumnType:
    text = given.get("typeName") or given.get("typeExpression")
    if not isinstance(text, str):
        raise _wrong(f'{where} has no "typeName"')
    base = text.lower().split("(")[0].split()[0] if text.split("(")[0].split() else ""
    length, scale = given.get("length"), given.get("scale")
    members = _members(where, given.get("enumValues")) if base in ("enum", "set") and "(" not in text else ()
    if members:
        text = f"{base}({', '.join(_string(member) for member in members)})"
    elif base in _SIZED and "(" not in text:
        text = text.replace(text.split()[0], f"{text.split()[0]}({length if length is not None else 1})", 1)
    try:
        declared = ddl.parse_type(text)
    except ValueError as e:
        raise _wrong(f"{where}: {e}") from None
    own = given.get("charsetName")
    return ColumnType(
        declared.type,
        declared.length if declared.length is not None and "(" in text else length,
        declared.scale if "(" in text and declared.scale is not None else scale,
        declared.unsigned,
        (own if isinstance(own, str) else charset) if declared.type in TEXTS | {"enum", "set"} else None,
        declared.values,
        declared.zerofill,
    )


def _members(where: str, given: Any) -> tuple[str, ...]:
    """Members of an ENUM or SET, which are in quotes in schema change events, with their own quotes doubled."""
    if not isinstance(given, list) or not given or not all(isinstance(member, str) for member in given):
        raise _wrong(f'{where} has no list of texts "enumValues"')
    return tuple(m[1:-1].replace("''", "'") if len(m) > 1 and m[0] == m[-1] == "'" else m for m in given)


def _string(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace("'", "''")
    return f"'{escaped}'"


def _wrong(what: str) -> ConfigError:
    return ConfigError(
        f"A change of a schema-changes signal cannot be used: {what}.",
        remedy="write it as tableChanges of a schema change event has it, see docs/sources/mysql.md",
    )
