"""Fields of the forms that start DAGs.

Each has a section of the form; those of the section ``None`` are shown at once, the others are unfolded.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from airflow.sdk import Param

from airflow_provider_cdc.connector import ConnectorDefinition
from airflow_provider_cdc.core.errors import ConfigError
from airflow_provider_cdc.dag.literal_table_names import named_tables


def connector_names(connectors: Sequence[ConnectorDefinition | str]) -> list[str]:
    """Return the names of connectors.

    :raises ConfigError: there is none
    """
    names = [c.name if isinstance(c, ConnectorDefinition) else c for c in connectors]
    if not names:
        raise ConfigError("A form needs at least one connector to choose from.")
    return list(dict.fromkeys(names))


def known_tables(
    connectors: Sequence[ConnectorDefinition | str], tables: Mapping[str, Sequence[str]]
) -> dict[str, list[str]]:
    """Table → connectors that it is known to be captured by.

    :param tables: connector → names that its definition does not contain
    """
    owners: dict[str, list[str]] = {}
    for connector in connectors:
        name = connector if isinstance(connector, str) else connector.name
        named = [] if isinstance(connector, str) else named_tables(connector.properties)
        for table in dict.fromkeys([*named, *tables.get(name, ())]):
            owners.setdefault(table, []).append(name)
    return dict(sorted(owners.items()))


def connector_param(names: Sequence[str], section: str | None) -> Param:
    """Build the field for the connector, from a list."""
    return Param(names[0], type="string", enum=list(names), title="Connector", **_in(section))


def build_text_param(title: str, description: str, section: str | None, **more: Any) -> Param:
    """Build a field for a line of text that may be left empty."""
    return Param(None, description, type=["null", "string"], title=title, **_in(section), **more)


def build_choice_param(title: str, description: str, section: str | None, values: Mapping[str, str]) -> Param:
    """Build a field for a choice of some values, the first of them if nothing else is chosen.

    :param values: value → its text in the form
    """
    return Param(
        next(iter(values)), description, type="string", enum=list(values), values_display=dict(values), title=title,
        **_in(section),
    )  # fmt: skip


def build_json_param(title: str, description: str, section: str | None) -> Param:
    """Build a field for a JSON object that may be left empty."""
    return Param({}, description, type=["null", "object"], title=title, **_in(section))


def whole_number(title: str, description: str, section: str | None, most: int) -> Param:
    """Build a field for a number from one to ``most`` that may be left empty."""
    return Param(None, description, type=["null", "integer"], minimum=1, maximum=most, title=title, **_in(section))


def build_switch_param(title: str, description: str, section: str | None, *, on: bool = False) -> Param:
    """Yes or no."""
    return Param(on, description, type="boolean", title=title, **_in(section))


def _in(section: str | None) -> dict[str, Any]:
    return {} if section is None else {"section": section}
