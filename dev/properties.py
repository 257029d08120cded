"""Writes the tables of docs/reference/configuration.md from the configuration models, and that of docs/targets/database-columns.md from the dialects of the relational sink: ``python -m dev.properties``.

Every kind of source in the registry has a section with what it has besides the properties that all have: a new source needs
nothing here.
"""

from __future__ import annotations

import enum
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dev import paths

if TYPE_CHECKING:
    from airflow_provider_cdc.core.config.connector_config import ConnectorConfig

PAGE = paths.ROOT / "docs" / "reference" / "configuration.md"
DATABASES = paths.ROOT / "docs" / "targets" / "database-columns.md"
_BEGIN, _END = "<!-- {} begins -->", "<!-- {} ends -->"


def page(text: str) -> str:
    """The page with its tables as the models are now."""
    from airflow_provider_cdc.core.config.connector_config import ConnectorConfig
    from airflow_provider_cdc.core.config.table_source_config import TableConfig

    every = ConnectorConfig.model_fields
    tables = {
        "common": _properties(every),
        "tables": _properties({name: f for name, f in TableConfig.model_fields.items() if name not in every}),
        "ignored": _reasons(ConnectorConfig._table("IGNORED")),
        "refused": _reasons(TableConfig._table("NOT_SUPPORTED")),
        "sources": "\n\n".join(_section(kinds, config) for config, kinds in configs().items()),
    }
    for name, table in tables.items():
        text = replace_block(text, name, table)
    return text


def databases(text: str) -> str:
    """The page about relational targets with its table of types as the dialects are now."""
    from dev.type_table import type_table

    return replace_block(text, "types", type_table())


def replace_block(text: str, name: str, table: str) -> str:
    begin, end = _BEGIN.format(name), _END.format(name)
    head, rest = text.split(begin)
    _, tail = rest.split(end)
    return f"{head}{begin}\n{table}\n{end}{tail}"


def configs() -> dict[type[ConnectorConfig], list[str]]:
    """Configuration model → the kinds of source that have it."""
    from airflow_provider_cdc.sources import SOURCES, load_source

    found: dict[type[ConnectorConfig], list[str]] = {}
    for kind in sorted(SOURCES):
        found.setdefault(load_source(kind).Config, []).append(kind)
    return found


def _section(kinds: list[str], config: type[ConnectorConfig]) -> str:
    """Format the section of a source: its own properties, changed defaults, and properties ignored or refused."""
    from airflow_provider_cdc.core.config.connector_config import ConnectorConfig
    from airflow_provider_cdc.core.config.table_source_config import TableConfig

    shared = TableConfig if issubclass(config, TableConfig) else ConnectorConfig
    common = shared.model_fields
    own = {
        name: field
        for name, field in config.model_fields.items()
        if name not in common or _default(field) != _default(common[name])
    }
    parts = [f"## For {' and '.join(f'`{kind}`' for kind in kinds)}", _properties(own)]
    aliases = {str(field.alias) for field in config.model_fields.values()}
    for title, table in (("Accepted without effect:", "IGNORED"), ("Refused:", "NOT_SUPPORTED")):
        of_all = shared._table(table)
        more = {n: why for n, why in config._table(table).items() if of_all.get(n) != why and n not in aliases}
        if more:
            parts += [title, _reasons(more)]
    return "\n\n".join(parts)


def _properties(fields: dict[str, Any]) -> str:
    lines = ["| property | default | meaning |", "| --- | --- | --- |"]
    for field in fields.values():
        meaning = (field.description or "").replace("|", "\\|")
        values = [v.value for v in field.annotation] if _is_enum(field.annotation) else []
        if values:
            meaning += f" {', '.join(f'`{v}`' for v in values)}."
        lines.append(f"| `{field.alias}` | {_default(field)} | {meaning.strip()} |")
    return "\n".join(lines)


def _is_enum(annotation: Any) -> bool:
    return isinstance(annotation, type) and issubclass(annotation, enum.Enum)


def _default(field: Any) -> str:
    if field.is_required():
        return "**required**"
    value = field.default
    if value in (None, "", (), frozenset()) or "Secret" in type(value).__name__:
        return ""
    return f"`{str(value).lower() if isinstance(value, bool) else value}`"


def _reasons(table: dict[str, str]) -> str:
    lines = ["| property | why |", "| --- | --- |"]
    return "\n".join([*lines, *(f"| `{name}` | {reason} |" for name, reason in sorted(table.items()))])


def main() -> int:
    Path(PAGE).write_text(page(PAGE.read_text()))
    Path(DATABASES).write_text(databases(DATABASES.read_text()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
