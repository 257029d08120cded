"""Tables that people name in ``signal.data.collection``, and structures that they write in ``schema-changes`` signals."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from airflow_provider_cdc.core.errors import ConfigError
from airflow_provider_cdc.core.model.schema import Column, TableChange, TableId
from airflow_provider_cdc.sources.db2.config import Db2Config
from airflow_provider_cdc.sources.db2.schema.types import MOST_DIGITS, ColumnType, make_column
from airflow_provider_cdc.sources.relational.schema_signal import SignalColumn, read_change

_PART = r'(?:"(?:[^"]|"")+"|[^".]+)'
_NAME = re.compile(rf"\s*{_PART}(?:\.{_PART}){{0,2}}\s*")
_EACH = re.compile(_PART)
_LENGTH_OF_A_TIMESTAMP: Final = 26
"""What JDBC tells as the length of a TIMESTAMP: of its text."""


def signal_table(text: str, config: Db2Config) -> TableId:
    """The table of ``signal.data.collection``: ``<schema>.<table>``, or ``<database>.<schema>.<table>``.

    Names that are not in double quotes are in capitals, as in SQL.

    :raises ConfigError: it is no such name, or is of another database
    """
    parts = _parts(text)
    if len(parts) < 2:
        raise ConfigError(
            f"signal.data.collection: {text!r} is not the name of a table.",
            remedy="write it as <schema>.<table>, for example " + _example(config),
        )
    *database, namespace, name = parts
    if database and database[0].upper() != config.catalog:
        raise ConfigError(
            f"signal.data.collection: {text!r} is in the database {database[0]}, which this connector does not capture.",
            remedy=f"write it as {_example(config)}",
        )
    return TableId(catalog=config.catalog, namespace=namespace, name=name)


def table_of(document: Mapping[str, Any], database: str, schema: str | None, config: Db2Config) -> TableChange:
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
    config: Db2Config

    def tables(self, text: Any) -> tuple[TableId, TableId | None]:
        parts = _parts(text) if isinstance(text, str) else []
        if not parts:
            raise self.refused(f'"id" is {text!r}, which names no table')
        owner = parts[0] if len(parts) > 2 else self.database
        namespace = parts[-2] if len(parts) > 1 else self.schema
        if not namespace:
            raise self.refused(f'"id" is {text!r}, and no "schema" is given')
        if owner.upper() != self.config.catalog:
            raise self.refused(f"{text} is in the database {owner}, which this connector does not capture")
        return TableId(catalog=self.config.catalog, namespace=namespace, name=parts[-1]), None

    def charset(self, table: TableId, structure: Mapping[str, Any]) -> str | None:
        return None  # a database has one character set, and its tables have none

    def column(self, given: SignalColumn) -> Column:
        return make_column(
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

    >>> _type("DECIMAL", 9, 2), _type("TIMESTAMP", 26, 6)
    (ColumnType(base='DECIMAL', length=9, scale=2), ColumnType(base='TIMESTAMP', length=6, scale=None))
    """
    parsed = ColumnType.parse(text)
    if "(" in text:
        return parsed
    if parsed.base == "DECIMAL":
        return ColumnType("DECIMAL", length or parsed.length, scale or 0)
    if parsed.base == "TIMESTAMP":
        digits = [n for n in (scale, length) if n is not None and 0 <= n <= MOST_DIGITS]
        return ColumnType("TIMESTAMP", digits[0] if digits else parsed.length)
    if parsed.base == "DECFLOAT":
        return ColumnType("DECFLOAT", length if length in (16, 34) else parsed.length)
    sized = parsed.base not in (
        "SMALLINT",
        "INTEGER",
        "BIGINT",
        "REAL",
        "DOUBLE",
        "DATE",
        "TIME",
        "XML",
        "BOOLEAN",
        "ROWID",
    )
    return ColumnType(parsed.base, length or parsed.length) if sized else parsed


def _parts(text: str) -> list[str]:
    """The parts of a name; those without quotes in capitals.

    >>> _parts('app."My.Signals"')
    ['APP', 'My.Signals']
    """
    if not _NAME.fullmatch(text):
        return []
    found = _EACH.findall(text.strip())
    return [p[1:-1].replace('""', '"') if p.startswith('"') else p.strip().upper() for p in found]


def _example(config: Db2Config) -> str:
    return f"{config.database_user.upper()}.DEBEZIUM_SIGNAL"
