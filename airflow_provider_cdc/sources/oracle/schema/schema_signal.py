"""Tables that people name in ``signal.data.collection``, and structures that they write in ``schema-changes`` signals."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from airflow_provider_cdc.core.errors import ConfigError
from airflow_provider_cdc.core.model.schema import Column, TableChange, TableId
from airflow_provider_cdc.sources.oracle.config import OracleConfig
from airflow_provider_cdc.sources.oracle.schema.types import ColumnType, make_column
from airflow_provider_cdc.sources.relational.schema_signal import SignalColumn, read_change

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
    """One of the ``changes`` of a ``schema-changes`` signal.

    :param database: and ``schema``: of tables whose id does not name them
    :raises ConfigError: it cannot be understood
    """
    return read_change(document, _Dialect(database, schema, config))


@dataclass(frozen=True, slots=True)
class _Dialect:
    """See :class:`airflow_provider_cdc.sources.relational.schema_signal.SignalDialect`."""

    database: str
    schema: str | None
    config: OracleConfig

    def tables(self, text: Any) -> tuple[TableId, TableId | None]:
        parts = _parts(text) if isinstance(text, str) else []
        if not parts:
            raise self.refused(f'"id" is {text!r}, which names no table')
        owner = parts[0] if len(parts) > 2 else self.database
        namespace = parts[-2] if len(parts) > 1 else self.schema
        if not namespace:
            raise self.refused(f'"id" is {text!r}, and no "schema" is given')
        if not _ours(owner, self.config):
            raise self.refused(f"{text} is in the database {owner}, which this connector does not capture")
        return TableId(catalog=self.config.catalog, namespace=namespace, name=parts[-1]), None

    def charset(self, table: TableId, structure: Mapping[str, Any]) -> str | None:
        return None  # a database has two character sets, and its tables have none

    def column(self, given: SignalColumn) -> Column:
        return make_column(
            given.table,
            given.name,
            _type(given.type_text, given.length, given.scale),
            self.config,
            nullable=given.nullable,
            default=given.default,
            generated=given.generated,
            auto_incremented=given.auto_incremented,
        )

    def folded(self, name: str) -> str:
        return name

    def refused(self, what: str) -> ConfigError:
        return ConfigError(
            f"The structure cannot be used: {what}.",
            remedy='give each of "changes" as a schema change event has them in "tableChanges"',
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
