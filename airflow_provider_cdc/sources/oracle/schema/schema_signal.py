"""Tables that people name in ``signal.data.collection``, and structures that they write in ``schema-changes`` signals."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from airflow_provider_cdc.core.model.table_schema import Column, TableChange, TableId
from airflow_provider_cdc.sources.oracle.config import OracleConfig
from airflow_provider_cdc.sources.oracle.schema.column_types import ColumnType, make_column
from airflow_provider_cdc.sources.relational.schema_signal import (
    DatabaseNames,
    SchemaDialect,
    SignalColumn,
    read_change,
)

_NO_SCALE: Final = -127
"""The scale that JDBC reports for a NUMBER without one."""
_MOST_SECONDS: Final = 9


def signal_table(text: str, config: OracleConfig) -> TableId:
    """Return the table of ``signal.data.collection``; see :meth:`.DatabaseNames.signal_table`.

    The database is the pluggable one or the root; the table is in the pluggable one in any case.
    """
    return _names(config).signal_table(text)


def table_of(document: Mapping[str, Any], database: str, schema: str | None, config: OracleConfig) -> TableChange:
    """Parse one of the ``changes`` of a ``schema-changes`` signal.

    :param database: and ``schema``: of tables whose id does not name them
    :raises ConfigError: it cannot be understood
    """
    return read_change(document, _OracleSchemaDialect(database, schema, _names(config), config))


@dataclass(frozen=True, slots=True)
class _OracleSchemaDialect(SchemaDialect):
    config: OracleConfig

    def build_column(self, described: SignalColumn) -> Column:
        return make_column(
            described.table,
            described.name,
            _type(described.type_text, described.length, described.scale),
            self.config,
            nullable=described.nullable,
            default=described.default,
            generated=described.generated,
            auto_incremented=described.auto_incremented,
        )


def _type(text: str, length: int | None, scale: int | None) -> ColumnType:
    """Parse a column's type from its name and numbers, which are JDBC's where the structure comes from there.

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


def _names(config: OracleConfig) -> DatabaseNames:
    return DatabaseNames(
        config.catalog_name,
        "<database>.<schema>.<table>",
        f"{config.catalog_name}.{config.database_user.upper()}.DEBEZIUM_SIGNAL",
        (config.database_dbname, config.database_dbname.partition(".")[0]),
    )
