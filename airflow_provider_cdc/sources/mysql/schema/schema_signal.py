"""Structures as people write them in ``schema-changes`` signals: names and types of MySQL and MariaDB."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from airflow_provider_cdc.core.errors import ConfigError
from airflow_provider_cdc.core.model.table_schema import Column, TableChange, TableId
from airflow_provider_cdc.sources.mysql.config import MySqlConfig
from airflow_provider_cdc.sources.mysql.schema import ddl
from airflow_provider_cdc.sources.mysql.schema.catalog_reader import captured_column
from airflow_provider_cdc.sources.mysql.schema.column_types import TEXTS, MySqlColumnType
from airflow_provider_cdc.sources.relational.schema_signal import SignalColumn, read_change

_PART = r'(?:"[^"]+"|`[^`]+`|[^".`]+)'
_NAME = re.compile(rf"\s*{_PART}(?:\.{_PART})?\s*")
_EACH = re.compile(_PART)
_SIZED: Final = {"varchar", "varbinary"}


def table_of(document: Mapping[str, Any], database: str, config: MySqlConfig) -> TableChange:
    """Parse one of the ``changes`` of a ``schema-changes`` signal.

    :param database: of a table whose id does not name it
    :raises ConfigError: it cannot be understood
    """
    return read_change(document, _Dialect(database, config))


@dataclass(frozen=True, slots=True)
class _Dialect:
    """See :class:`airflow_provider_cdc.sources.relational.schema_signal.SignalDialect`."""

    database: str
    config: MySqlConfig

    def resolve_tables(self, text: Any) -> tuple[TableId, TableId | None]:
        text = str(text or "")
        # a rename names two tables: "shop"."old","shop"."new"
        ids = [self._table(part) for part in re.split(r',(?=["`])', text)]
        if len(ids) > 2:
            raise self.build_structure_error(f'"id" is {text!r}, which names {len(ids)} tables')
        return ids[-1], ids[0] if len(ids) == 2 else None

    def _table(self, text: str) -> TableId:
        if not _NAME.fullmatch(text):
            raise self.build_structure_error(
                f'"id" is {text!r}, which is not the name of a table; write it as "database"."table"'
            )
        parts = [part.strip().strip('"`') for part in _EACH.findall(text)]
        return TableId(namespace=parts[-2] if len(parts) > 1 else self.database, name=parts[-1])

    def find_charset(self, table: TableId, structure: Mapping[str, Any]) -> str | None:
        charset = structure.get("defaultCharsetName")
        if not isinstance(charset, str | None):
            raise self.build_structure_error(f'"defaultCharsetName" of {table} is {charset!r}, not a text')
        return charset

    def build_column(self, described: SignalColumn) -> Column:
        return captured_column(
            described.table,
            described.name,
            self._type(described),
            self.config,
            nullable=described.nullable,
            default=described.default,
            auto_incremented=described.auto_incremented,
            generated=described.generated,
        )

    def fold_name(self, name: str) -> str:
        return name.lower()

    def build_structure_error(self, problem: str) -> ConfigError:
        return ConfigError(
            f"A change in a schema-changes signal is invalid: {problem}.",
            remedy="write it like tableChanges of a schema change event, see docs/sources/mysql.md",
        )

    def _type(self, column: SignalColumn) -> MySqlColumnType:
        text = column.type_text
        base = text.lower().split("(")[0].split()[0] if text.split("(")[0].split() else ""
        members = self._members(column) if base in ("enum", "set") and "(" not in text else ()
        if members:
            text = f"{base}({', '.join(_string(member) for member in members)})"
        elif base in _SIZED and "(" not in text:
            length = column.length if column.length is not None else 1
            text = text.replace(text.split()[0], f"{text.split()[0]}({length})", 1)
        try:
            declared = ddl.parse_type(text)
        except ValueError as e:
            raise self.build_structure_error(f"{column.full_name}: {e}") from None
        own = column.document.get("charsetName")
        charset = own if isinstance(own, str) else column.table_charset
        return MySqlColumnType(
            declared.type,
            declared.length if declared.length is not None and "(" in text else column.length,
            declared.scale if "(" in text and declared.scale is not None else column.scale,
            declared.unsigned,
            charset if declared.type in TEXTS | {"enum", "set"} else None,
            declared.values,
            declared.zerofill,
        )

    def _members(self, column: SignalColumn) -> tuple[str, ...]:
        """Members of an ENUM or SET, which are in quotes in schema change events, with their own quotes doubled."""
        members = column.document.get("enumValues")
        if not isinstance(members, list) or not members or not all(isinstance(member, str) for member in members):
            raise self.build_structure_error(f'{column.full_name} has no list of texts "enumValues"')
        return tuple(m[1:-1].replace("''", "'") if len(m) > 1 and m[0] == m[-1] == "'" else m for m in members)


def _string(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace("'", "''")
    return f"'{escaped}'"
