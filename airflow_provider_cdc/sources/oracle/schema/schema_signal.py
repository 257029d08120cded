"""Tables that people name in ``signal.data.collection``, and structures that they write in ``schema-changes`` signals."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from airflow_provider_cdc.core.errors import ConfigError
from airflow_provider_cdc.core.model.schema import Column, TableChange, TableId, TableSchema
from airflow_provider_cdc.sources.oracle.config import OracleConfig
from airflow_provider_cdc.sources.oracle.schema.types import ColumnType, make_column

_PART = r'(?:"[^"]+"|[^".]+)'
_NAME = re.compile(rf"\s*{_PART}(?:\.{_PART}){{0,2}}\s*")
_EACH = re.compile(_PART)
_NO_SCALE: Final = -127
"""What JDBC tells as the scale of a NUMBER without one."""
_MOST_SECONDS: Final = 9


def signal_table(text: str, config: OracleConfig) -> TableId:
    """The table of ``signal.data.collection``: ``<database>.<schema>.<table>``, or ``<schema>.<table>``.

    The database is the pluggable one or the root; the table is in the pluggable one in any case. Names that are not in double quotes
    are in capitals, as in SQL.

    :raises ConfigError: it is no such name, or is of another database
    """
    parts = _parts(text)
    if len(parts) < 2:
        raise ConfigError(
            f"signal.data.collection: {text!r} is not the name of a table.",
            remedy="write it as <database>.<schema>.<table>, for example " + _example(config),
        )
    *database, namespace, name = parts
    if database and not _ours(database[0], config):
        raise ConfigError(
            f"signal.data.collection: {text!r} is in the database {database[0]}, which this connector does not capture.",
            remedy=f"write it as {_example(config)}",
        )
    return TableId(catalog=config.catalog, namespace=namespace, name=name)


def table_of(document: Mapping[str, Any], database: str, schema: str | None, config: OracleConfig) -> TableChange:
    """One of the ``changes`` of a ``schema-changes`` signal: a table's whole structure, in the form of ``tableChanges``.

    :param database: and ``schema``: of tables whose id does not name them
    :raises ConfigError: it cannot be understood
    """
    kind, text = document.get("type"), document.get("id")
    if kind not in ("CREATE", "ALTER", "DROP"):
        raise _wrong(f'"type" is {kind!r}; valid values are CREATE, ALTER and DROP')
    parts = _parts(text) if isinstance(text, str) else []
    if not parts:
        raise _wrong(f'"id" is {text!r}, which names no table')
    owner = parts[0] if len(parts) > 2 else database
    namespace = parts[-2] if len(parts) > 1 else schema
    if not namespace:
        raise _wrong(f'"id" is {text!r}, and no "schema" is given')
    if not _ours(owner, config):
        raise _wrong(f"{text} is in the database {owner}, which this connector does not capture")
    table = TableId(catalog=config.catalog, namespace=namespace, name=parts[-1])
    if kind == "DROP":
        return TableChange(type="DROP", id=table)
    return TableChange(type=kind, id=table, table=_structure(table, document.get("table"), config))


def _structure(table: TableId, given: Any, config: OracleConfig) -> TableSchema:
    columns = given.get("columns") if isinstance(given, Mapping) else None
    if not isinstance(columns, list) or not columns:
        raise _wrong(f'{table} has no list of "columns" in its "table"')
    made = [_column(table, c, config) for c in sorted(columns, key=_place)]
    names = [column.name for column in made]
    if len(set(names)) < len(names):
        raise _wrong(f"{table} has two columns of the same name")
    key = given.get("primaryKeyColumnNames") or []
    if not isinstance(key, list) or not set(key) <= set(names):
        raise _wrong(f'"primaryKeyColumnNames" of {table} is {key!r}; its columns are {", ".join(names)}')
    made = [c.model_copy(update={"nullable": False}) if c.name in key else c for c in made]
    return TableSchema(id=table, columns=tuple(made), key=tuple(key))


def _place(column: Any) -> int:
    place = column.get("position") if isinstance(column, Mapping) else None
    return place if isinstance(place, int) else 0


def _column(table: TableId, given: Any, config: OracleConfig) -> Column:
    name = given.get("name") if isinstance(given, Mapping) else None
    if not isinstance(name, str) or not name:
        raise _wrong(f'{table} has a column without "name"')
    text = given.get("typeName") or given.get("typeExpression")
    if not isinstance(text, str):
        raise _wrong(f'{table}.{name} has no "typeName"')
    for number in ("length", "scale"):
        if not isinstance(given.get(number), int | None):
            raise _wrong(f'"{number}" of {table}.{name} is {given[number]!r}, not a number')
    default = given.get("defaultValueExpression")
    return make_column(
        table,
        name,
        _type(text, given.get("length"), given.get("scale")),
        config,
        nullable=bool(given.get("optional", True)),
        default=str(default) if default is not None else None,
        generated=bool(given.get("generated")) and not given.get("autoIncremented"),
        auto_incremented=bool(given.get("autoIncremented")),
    )


def _type(text: str, length: int | None, scale: int | None) -> ColumnType:
    """A column's type from its name and numbers, which are JDBC's where the structure comes from there.

    >>> _type("NUMBER", 9, 0), _type("NUMBER", 0, -127)
    (ColumnType(base='NUMBER', length=9, scale=0), ColumnType(base='NUMBER', length=None, scale=None))
    """
    parsed = ColumnType.parse(text)
    if "(" in text:
        return parsed
    if parsed.base == "NUMBER":
        length, scale = length or None, None if scale == _NO_SCALE else scale
        return ColumnType("NUMBER", length, scale if length else None)
    if parsed.base.startswith("TIMESTAMP") or parsed.base.startswith("INTERVAL "):
        digits = [n for n in (scale, length) if n is not None and 0 <= n <= _MOST_SECONDS]
        return ColumnType(parsed.base, digits[0] if digits else parsed.length)
    if parsed.base in ("DATE", "BINARY_FLOAT", "BINARY_DOUBLE", "CLOB", "NCLOB", "BLOB", "XMLTYPE", "ROWID"):
        return parsed
    return ColumnType(parsed.base, length or parsed.length)


def _parts(text: str) -> list[str]:
    """The parts of a name; those without quotes in capitals.

    >>> _parts('orclpdb1.APP."My.Signals"')
    ['ORCLPDB1', 'APP', 'My.Signals']
    """
    if not _NAME.fullmatch(text):
        return []
    return [part[1:-1] if part.startswith('"') else part.strip().upper() for part in _EACH.findall(text.strip())]


def _ours(database: str, config: OracleConfig) -> bool:
    names = {config.database_dbname.upper(), config.database_dbname.partition(".")[0].upper(), config.catalog.upper()}
    return database.upper() in names


def _example(config: OracleConfig) -> str:
    return f"{config.catalog}.{config.database_user.upper()}.DEBEZIUM_SIGNAL"


def _wrong(what: str) -> ConfigError:
    return ConfigError(
        f"The structure cannot be used: {what}.",
        remedy='give each of "changes" as a schema change event has them in "tableChanges"',
    )
