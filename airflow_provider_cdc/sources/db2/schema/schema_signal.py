"""Tables that people name in ``signal.data.collection``, and structures that they write in ``schema-changes`` signals."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from airflow_provider_cdc.core.model.table_schema import Column, TableChange, TableId
from airflow_provider_cdc.sources.db2.config import Db2Config
from airflow_provider_cdc.sources.db2.schema.type_mapping import MOST_DIGITS, Db2ColumnType, make_column
from airflow_provider_cdc.sources.relational.schema_signal import (
    DatabaseNames,
    SchemaDialect,
    SignalColumn,
    read_change,
)

_LENGTH_OF_A_TIMESTAMP: Final = 26
"""The length that JDBC reports for a TIMESTAMP: that of its text."""


def signal_table(text: str, config: Db2Config) -> TableId:
    """Return the table of ``signal.data.collection``; see :meth:`.DatabaseNames.signal_table`."""
    return _names(config).signal_table(text)


def table_of(document: Mapping[str, Any], database: str, schema: str | None, config: Db2Config) -> TableChange:
    """Parse one of the ``changes`` of a ``schema-changes`` signal.

    :param database: and ``schema``: of tables whose id does not name them
    :raises ConfigError: it cannot be understood
    """
    return read_change(document, _Db2Dialect(database, schema, _names(config), config))


@dataclass(frozen=True, slots=True)
class _Db2Dialect(SchemaDialect):
    config: Db2Config

    def build_column(self, described: SignalColumn) -> Column:
        return make_column(
            described.name,
            _type(described.type_text, described.length, described.scale),
            self.config,
            nullable=described.nullable,
            default=described.default,
            generated=described.generated,
            auto_incremented=described.auto_incremented,
        )


def _type(text: str, length: int | None, scale: int | None) -> Db2ColumnType:
    """Build a column's type from its name and numbers, which are JDBC's where the structure comes from there.

    >>> _type("DECIMAL", 9, 2), _type("TIMESTAMP", 26, 6)
    (ColumnType(base='DECIMAL', length=9, scale=2), ColumnType(base='TIMESTAMP', length=6, scale=None))
    """
    parsed = Db2ColumnType.parse(text)
    if "(" in text:
        return parsed
    if parsed.base == "DECIMAL":
        return Db2ColumnType("DECIMAL", length or parsed.length, scale or 0)
    if parsed.base == "TIMESTAMP":
        digits = [n for n in (scale, length) if n is not None and 0 <= n <= MOST_DIGITS]
        return Db2ColumnType("TIMESTAMP", digits[0] if digits else parsed.length)
    if parsed.base == "DECFLOAT":
        return Db2ColumnType("DECFLOAT", length if length in (16, 34) else parsed.length)
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
    return Db2ColumnType(parsed.base, length or parsed.length) if sized else parsed


def _names(config: Db2Config) -> DatabaseNames:
    return DatabaseNames(config.catalog_name, "<schema>.<table>", f"{config.database_user.upper()}.DEBEZIUM_SIGNAL")
