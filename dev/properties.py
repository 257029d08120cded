"""Writes the tables of docs/configuration.md from the configuration models: ``python -m dev.properties``."""

from __future__ import annotations

import enum
import sys
from pathlib import Path
from typing import Any

from dev import paths

PAGE = paths.ROOT / "docs" / "configuration.md"
_BEGIN, _END = "<!-- {} begins -->", "<!-- {} ends -->"


def page(text: str) -> str:
    """The page with its tables as the models are now."""
    from airflow_provider_cdc.core.config import ConnectorConfig
    from airflow_provider_cdc.sources.mysql.config import MySqlConfig

    common = set(ConnectorConfig.model_fields)
    own = {name: field for name, field in MySqlConfig.model_fields.items() if name not in common}
    tables = {
        "common": _properties(ConnectorConfig.model_fields),
        "mysql": _properties(own),
        "ignored": _reasons(MySqlConfig._table("IGNORED")),
        "refused": _reasons(MySqlConfig._table("NOT_SUPPORTED")),
    }
    for name, table in tables.items():
        begin, end = _BEGIN.format(name), _END.format(name)
        head, rest = text.split(begin)
        _, tail = rest.split(end)
        text = f"{head}{begin}\n{table}\n{end}{tail}"
    return text


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
    return 0


if __name__ == "__main__":
    sys.exit(main())
