"""Writes a definition for a new connector: Python for the DAG folder, or YAML for a folder of definitions. Nothing is stored anywhere.

>>> asked = DefinitionRequest(source="mariadb", name="shop", conn_id="shop_db", tables=["shop.orders"], location="/lake/{database}/{table}")
>>> print(write_definition(asked).python)
from airflow_provider_cdc.dag import ConnectorDefinition, cdc_dag
…
"""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from airflow_provider_cdc.connector import ConnectorDefinition, refuse_secrets
from airflow_provider_cdc.core.config.connector_config import ConnectorConfig
from airflow_provider_cdc.core.config.topic_names import sanitize_name
from airflow_provider_cdc.core.errors import ConfigError
from airflow_provider_cdc.core.name_patterns import format_exact_pattern
from airflow_provider_cdc.sources import SOURCES, config_class

MODES: Mapping[str, str] = {
    "initial": "Takes a snapshot of the existing rows, then captures every change. The usual mode.",
    "when_needed": "The same; if the source removes its log before it was captured, a snapshot of all tables is taken automatically.",
    "no_data": "Captures every change from now on, without the existing rows.",
    "initial_only": "Takes a snapshot of the existing rows, and captures no changes.",
}
"""``snapshot.mode`` of a new connector → its meaning."""
Target = Literal["delta", "iceberg", "database", "none"]
TARGETS: Mapping[Target, str] = {
    "delta": "Delta tables, written by Spark",
    "iceberg": "Iceberg tables, written by Spark",
    "database": "Tables of a relational database",
    "none": "The change log only; another DAG applies it",
}
Name = Annotated[str, Field(min_length=1, max_length=250)]
TableName = Annotated[str, Field(min_length=1, max_length=2000)]
Place = Annotated[str, Field(min_length=1, max_length=2000)]
PropertyText = Annotated[str, Field(max_length=20_000)]
MOST_NAME_CHARACTERS = 60_000
"""Characters of the names of tables in a request."""
MOST_PROPERTY_CHARACTERS = 20_000
"""Characters of the properties in a request."""


class DefinitionRequest(BaseModel):
    """The user's choices for a new connector."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    source: Name = Field(description="Kind of source")
    name: Annotated[str, Field(min_length=1, max_length=200)] = Field(
        description="Name of the connector; it never changes"
    )
    conn_id: Name = Field(description="Airflow connection to the source")
    tables: list[TableName] = Field(
        default_factory=list,
        max_length=5000,
        description="Names of tables or collections; if empty, all of them",
    )
    left_out: list[TableName] = Field(
        default_factory=list,
        max_length=5000,
        description="Existing tables that are not chosen: lists ignore case, so tables that differ from a chosen table only in case must be given",
    )
    mode: str = Field(default="initial", max_length=50, description="snapshot.mode")
    changelog: Place = "/data/changelog"
    target: Target = "delta"
    location: Place = Field(default="/data/lake/{database}/{table}", description="Location of lake tables")
    database: Name = Field(default="warehouse", description="Airflow connection to a target database")
    properties: dict[Name, PropertyText | int | float | bool] = Field(
        default_factory=dict, max_length=100, description="Further properties, by their documented names"
    )

    @model_validator(mode="after")
    def _check_size(self) -> DefinitionRequest:
        """Limit what a request has to read: each user may send one, and others wait meanwhile."""
        names = sum(map(len, (*self.tables, *self.left_out)))
        if names > MOST_NAME_CHARACTERS:
            raise ValueError(
                f"the names of tables have {names:,} characters, more than {MOST_NAME_CHARACTERS:,}: choose fewer tables, and add a pattern to the definition"
            )
        texts = sum(len(value) for value in self.properties.values() if isinstance(value, str))
        if texts > MOST_PROPERTY_CHARACTERS:
            raise ValueError(f"the properties have {texts:,} characters, more than {MOST_PROPERTY_CHARACTERS:,}")
        return self


class WrittenDefinition(BaseModel):
    """A definition as Python and as YAML, to put under version control."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    python: str = Field(description="A file for the DAG folder")
    python_file: str
    yaml: str = Field(description="A file for a folder that cdc_dags() reads")
    yaml_file: str
    lacks: list[str] = Field(description="Values to fill in before the connector can run")


def properties_of(request: DefinitionRequest) -> dict[str, Any]:
    """Build the properties of the connector.

    :raises ConfigError: there is no such kind of source, or a property cannot be used
    """
    config = config_class(request.source)
    properties: dict[str, Any] = {name: _stand_in(request.name) for name in config.FORM.stand_ins}
    properties |= _place(config, request.properties)
    _refuse(request, config)
    if request.tables:
        properties[config.TABLES[0]] = _patterns(
            request, config.parse(complete_properties(config, request.name, properties | request.properties))
        )
    if request.mode != "initial":
        properties["snapshot.mode"] = request.mode
    properties |= request.properties
    checked = properties
    if request.tables and config.TABLES[0] not in request.properties:
        # the patterns of names are valid; a request is not to compile thousands of them
        checked = properties | {config.TABLES[0]: properties[config.TABLES[0]][:1]}
    config.parse(complete_properties(config, request.name, checked))
    return properties


def _patterns(request: DefinitionRequest, config: ConnectorConfig) -> list[str]:
    """Build the include list.

    :raises ConfigError: two tables would have one topic
    """
    tables = [config.format_listed_name(table) for table in request.tables]
    beside = {config.format_listed_name(table).casefold() for table in {*request.left_out} - {*request.tables}}
    topics: dict[str, str] = {}
    for table in tables:
        topic = sanitize_name(f"{request.name}.{table}")
        if topics.setdefault(topic, table) != table and "topic.delimiter" not in request.properties:
            raise ConfigError(
                f"{topics[topic]} and {table} would both have the topic {topic}: in topics, characters other than letters, digits, dots and hyphens become underscores.",
                remedy="remove one of them, and capture it with a separate connector",
            )
    return [format_exact_pattern(table, case=table.casefold() in beside) for table in tables]


def write_definition(request: DefinitionRequest) -> WrittenDefinition:
    """Write the definition as texts.

    :raises ConfigError: it could not be used
    """
    properties = properties_of(request)
    refuse_secrets(ConnectorDefinition(request.name, request.source, request.changelog, properties))
    lacks = [f"{name}: {value}" for name, value in _place(config_class(request.source), request.properties).items()]
    return WrittenDefinition(
        python=_python(request, properties),
        python_file=f"{request.name}.py",
        yaml=_yaml(request, properties),
        yaml_file=f"{request.name}.yaml",
        lacks=lacks,
    )


_DAG = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,199}")
"""Allowed names of a connector that has a separate DAG."""


def _place(config: type[ConnectorConfig], properties: Mapping[str, Any]) -> dict[str, str]:
    """Return placeholders for the places to read, where no connection names them."""
    places = config.FORM.places
    return dict([*places.items()][:1]) if not places.keys() & properties.keys() else {}


def complete_properties(config: type[ConnectorConfig], name: str, properties: Mapping[str, Any]) -> dict[str, Any]:
    """Return properties that can be parsed before there is a connection."""
    salt = {name: "salt" for name in ("column.mask.salt",) if name in config.connection_properties()}
    fields = config.from_connection(host="host", login="user", schema="schema", extra=salt)
    return {"topic.prefix": name, **fields, **properties}


def _stand_in(name: str) -> int:
    """Return a number that no other client of the server should have, always the same for a connector.

    Ids of replicas are mostly small.
    """
    return 100_000 + zlib.crc32(name.encode()) % 1_000_000_000


def _refuse(request: DefinitionRequest, config: type[ConnectorConfig]) -> None:
    """Check for values that would make a definition fail.

    :raises ConfigError: something cannot be used
    """
    if not _DAG.fullmatch(request.name):
        raise ConfigError(
            f"{request.name!r} cannot be the name of a connector, because its DAG has the same name.",
            remedy="use letters, digits, dots, hyphens and underscores, beginning with a letter or digit",
        )
    if request.mode not in MODES:
        raise ConfigError(
            f"{request.mode!r} is not one of the modes {', '.join(MODES)}.", remedy="choose one of these modes"
        )
    if wrong := sorted(set(request.properties) & set(config.connection_properties())):
        raise ConfigError(
            f"{', '.join(wrong)} belong to the connection, not to the definition.",
            remedy=f"put them into the connection {request.conn_id}",
        )
    if any("\0" in text for text in (*request.tables, request.changelog, request.location)):
        raise ConfigError(
            "A name has a character that a definition file cannot contain.", remedy="remove the character"
        )


def _arguments(request: DefinitionRequest) -> dict[str, Any]:
    """Arguments of ``cdc_dag`` besides the definition."""
    into: dict[Target, dict[str, Any]] = {
        "delta": {"location": request.location},
        "iceberg": {"location": request.location, "group": {"target": "iceberg"}},
        "database": {"database": request.database},
        "none": {},
    }
    return {"conn_id": request.conn_id, **into[request.target]}


def _python(request: DefinitionRequest, properties: Mapping[str, Any]) -> str:
    lines = [f"        {name!r}: {_literal(value, 8)}," for name, value in properties.items()]
    inside = "{\n" + "\n".join(lines) + "\n    }" if lines else "{}"
    more = "".join(f",\n    {name}={value!r}" for name, value in _arguments(request).items())
    return (
        "from airflow_provider_cdc.dag import ConnectorDefinition, cdc_dag\n\n"
        "connector = ConnectorDefinition(\n"
        f"    name={request.name!r},\n    source={request.source!r},\n    changelog={request.changelog!r},\n"
        f"    properties={inside},\n)\n"
        f"dag = cdc_dag(\n    connector{more},\n)\n"
    )


def _literal(value: Any, indent: int) -> str:
    if not isinstance(value, list):
        return repr(value)
    return "[\n" + "".join(f"{' ' * (indent + 4)}{item!r},\n" for item in value) + f"{' ' * indent}]"


def _yaml(request: DefinitionRequest, properties: Mapping[str, Any]) -> str:
    """Write the definition as YAML, each value in the form of JSON, which YAML takes as it is.

    Nothing depends on how a text looks.
    """
    lines = [f"{name}: {_json(getattr(request, name))}" for name in ("name", "source", "changelog")]
    if properties:
        lines.append("properties:")
    for name, value in properties.items():
        if isinstance(value, list):
            lines += [f"  {_json(name)}:", *(f"    - {_json(item)}" for item in value)]
        else:
            lines.append(f"  {_json(name)}: {_json(value)}")
    lines += [f"{name}: {_json(value)}" for name, value in _arguments(request).items()]
    return "\n".join(lines) + "\n"


def _json(value: Any) -> str:
    """Plain letters stay; characters with a meaning in the text, or that cannot be seen, are escaped."""
    text = json.dumps(value, ensure_ascii=False)
    return text if text.isprintable() else "".join(c if c.isprintable() else f"\\U{ord(c):08x}" for c in text)


def modes_of(kind: str) -> dict[str, str]:
    """Return the modes of :data:`MODES` that a kind of source knows."""
    config, modes = config_class(kind), {}
    for mode, description in MODES.items():
        stand_ins = {**config.FORM.stand_ins, **_place(config, {})}
        try:
            config.parse(complete_properties(config, "any", {**stand_ins, "snapshot.mode": mode}))
        except ConfigError:
            continue
        modes[mode] = description
    return modes


def places_of(kind: str) -> dict[str, tuple[str, str]]:
    """Return the properties of which a connector needs one, as they name the place to read → description and example."""
    config = config_class(kind)
    described = {str(field.alias): field.description or "" for field in config.model_fields.values()}
    return {name: (described[name], example) for name, example in config.FORM.places.items()}


def list_source_kinds() -> list[str]:
    """List the kinds of sources that are for users: the one inside a process is for tests."""
    return sorted(kind for kind in SOURCES if kind != "memory")


__all__ = [
    "MODES",
    "TARGETS",
    "DefinitionRequest",
    "TableName",
    "Target",
    "WrittenDefinition",
    "list_source_kinds",
    "modes_of",
    "places_of",
    "properties_of",
    "write_definition",
]
