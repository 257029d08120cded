"""Makes a definition of the configuration of a Debezium connector, and explains of each property what becomes of it. Nothing is stored.

It reads the forms in which Debezium's documents print a configuration: the JSON of Kafka Connect, a ``KafkaConnector`` of Strimzi, and a
properties file.

>>> imported = import_connector('{"name": "shop", "config": {"connector.class": "io.debezium.connector.mysql.MySqlConnector", "tasks.max": "1"}}')
>>> [(line.name, line.outcome) for line in imported.properties]
[('connector.class', 'no effect'), ('tasks.max', 'no effect')]
"""

from __future__ import annotations

import json
import logging
import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

import yaml  # type: ignore[import-untyped]

from airflow_provider_cdc.core.config.base_configuration import COLUMN_HASH, Configuration
from airflow_provider_cdc.core.config.column_masking import SALT_OF_CONNECTION
from airflow_provider_cdc.core.config.secret_redaction import find_credentials
from airflow_provider_cdc.core.errors import ConfigError
from airflow_provider_cdc.services.definition_writer import (
    DefinitionRequest,
    Target,
    complete_properties,
    write_definition,
)
from airflow_provider_cdc.sources import config_class
from airflow_provider_cdc.targets.database.config import DatabaseTargetConfig

Outcome = Literal["taken", "renamed", "connection", "no effect", "refused"]
_CLASS: Final = re.compile(r"io\.debezium\.connector\.(mysql|mariadb|oracle|db2|mongodb|jdbc)\.\w+")
SINK: Final = "jdbc"
_OLD_NAMES: Final = {
    "database.server.name": "topic.prefix",
    "mongodb.name": "topic.prefix",
    "mongodb.hosts": "mongodb.connection.string",
    **{
        f"{kind}.{old}": f"{kind}.{new}.list"
        for kind in ("database", "schema", "table", "column", "collection")
        for old, new in (("whitelist", "include"), ("blacklist", "exclude"))
    },
    "field.blacklist": "field.exclude.list",
}
"""Names of earlier releases of Debezium → the present ones."""
_OLD_HISTORY: Final = "database.history"
_SINK_LOGIN: Final = ("connection.url", "connection.username", "connection.password")
_PROBLEM: Final = re.compile(r"  (?P<name>[^\s:]+): (?P<why>.*)")


@dataclass(frozen=True, slots=True)
class ImportedProperty:
    """The outcome for one property.

    :param outcome: ``taken`` into the definition, also if ``renamed``; moved to the Airflow ``connection``; without effect here; or refused
    :param note: the new name or place, or the reason
    """

    name: str
    outcome: Outcome
    note: str = ""


@dataclass(frozen=True, slots=True)
class ImportedConnector:
    """A definition, and the connection that belongs to it.

    :param definition: a file for the DAG folder, or YAML; of a sink, the two lines for the definition of the connector that feeds it
    :param connection: command that creates the Airflow connection, without secrets
    :param secrets: properties whose values belong into the connection and are in no command
    :param lacks: values to fill in before the connector can run
    """

    name: str
    source: str
    definition: str
    connection: str
    secrets: list[str]
    properties: list[ImportedProperty]
    lacks: list[str] = field(default_factory=list)

    @property
    def refused(self) -> list[ImportedProperty]:
        """The properties whose effect is missing."""
        return [line for line in self.properties if line.outcome == "refused"]


@dataclass(frozen=True, slots=True)
class ImportOptions:
    """The choices that a Debezium configuration does not contain.

    :param source: kind of source, if ``connector.class`` does not name it
    :param conn_id: Airflow connection to the source; by default the name of the connector
    """

    source: str | None = None
    conn_id: str | None = None
    changelog: str = "/data/changelog"
    target: Target = "delta"
    location: str = "/data/lake/{database}/{table}"
    form: Literal["python", "yaml"] = "python"


def import_connector(text: str, options: ImportOptions = ImportOptions()) -> ImportedConnector:
    """Make a definition of a configuration.

    :param text: JSON, YAML or lines with ``name=value``
    :raises ConfigError: the text is none of these, or its source is not known
    """
    name, properties = read_configuration(text)
    class_name = str(properties.get("connector.class", ""))
    match = _CLASS.fullmatch(class_name)
    kind = options.source or (match[1] if match else None)
    if kind is None:
        raise ConfigError(
            f"connector.class is {class_name!r}, which names no source.",
            safe="Nothing was written.",
            remedy="name it: --source mysql, mariadb, oracle, db2 or mongodb",
        )
    name = name or str(properties.get("topic.prefix", "")) or "connector"
    return _import_sink(name, properties) if kind == SINK else _import_source(name, kind, properties, options)


def read_configuration(text: str) -> tuple[str, dict[str, Any]]:
    """Read the name of a connector and its properties.

    :raises ConfigError: there are no properties in the text
    """
    try:
        document = json.loads(text)
    except ValueError:
        try:
            document = yaml.safe_load(text)
        except yaml.YAMLError:
            document = text
    if isinstance(document, str):
        document = dict(_read_lines(text))
    if isinstance(document, dict) and isinstance(spec := document.get("spec"), dict):
        resource = {
            "connector.class": spec.get("class"),
            "tasks.max": spec.get("tasksMax"),
            **(spec.get("config") or {}),
        }
        document = {"name": (document.get("metadata") or {}).get("name"), "config": resource}
    config = document.get("config", document) if isinstance(document, dict) else None
    if not isinstance(config, dict) or not config:
        raise ConfigError(
            "The text is no configuration of a connector.",
            safe="Nothing was written.",
            remedy='give {"name": …, "config": {…}} as for Kafka Connect, a KafkaConnector in YAML, or lines with name=value',
        )
    name = document.get("name") or config.get("name") or ""
    return str(name), {str(key): _plain(value) for key, value in config.items() if value is not None}


def _read_lines(text: str) -> Iterator[tuple[str, str]]:
    for line in text.splitlines():
        name, equals, value = line.strip().partition("=")
        if equals and not name.startswith(("#", "!")):
            yield name.strip(), value.strip()


def _plain(value: Any) -> Any:
    return value if isinstance(value, str | int | float | bool) else json.dumps(value)


def _import_source(name: str, kind: str, properties: Mapping[str, Any], options: ImportOptions) -> ImportedConnector:
    config, conn_id = config_class(kind), options.conn_id or name
    renamed = _rename_properties(properties)
    outcomes = {new: _find_outcome(config, conn_id, old, new, properties[old]) for old, new in renamed.items()}
    values = {new: properties[old] for old, new in renamed.items()}
    taken = {new: values[new] for new, line in outcomes.items() if line.outcome in ("taken", "renamed")}
    base = {**config.FORM.places, **config.FORM.stand_ins, **complete_properties(config, name, {})}
    for new, why in _find_refused(config, base, taken):
        taken.pop(new)
        outcomes[new] = ImportedProperty(outcomes[new].name, "refused", why)
    request = DefinitionRequest(
        source=kind, name=name, conn_id=conn_id, changelog=options.changelog, target=options.target,
        location=options.location, properties=taken,
    )  # fmt: skip
    written = write_definition(request)
    of_connection = {new: values[new] for new, line in outcomes.items() if line.outcome == "connection"}
    command, secrets = _write_connection(conn_id, kind, of_connection)
    if SALT_OF_CONNECTION in "".join(taken):
        secrets.append("column.mask.salt")
    text = written.python if options.form == "python" else written.yaml
    return ImportedConnector(name, kind, text, command, secrets, list(outcomes.values()), written.lacks)


def _rename_properties(properties: Mapping[str, Any]) -> dict[str, str]:
    """Map each name to the present one. If pseudonyms have one salt, it is that of the connection."""
    salts = {match["salt"] for name in properties if (match := COLUMN_HASH.fullmatch(name))}
    renamed = {}
    for name in properties:
        renamed[name] = _OLD_NAMES.get(name, name)
        if len(salts) == 1 and (match := COLUMN_HASH.fullmatch(name)):
            renamed[name] = name[: match.start("salt")] + SALT_OF_CONNECTION
    return renamed


def _find_outcome(config: type[Configuration], conn_id: str, old: str, new: str, value: Any) -> ImportedProperty:
    """Find the outcome for a property, by its name and value alone."""
    if new.startswith(_OLD_HISTORY):
        return ImportedProperty(old, "no effect", "the schema history is stored in the state tables")
    if (reason := config.explain_no_effect(new, value)) is not None:
        return ImportedProperty(old, "no effect", reason)
    if new in config.connection_properties():
        part = next((part for part, property_ in config.CONNECTION.items() if property_ == new), "extra")
        return ImportedProperty(old, "connection", f"{part} of the connection {conn_id}")
    if new == old:
        return ImportedProperty(old, "taken")
    if COLUMN_HASH.fullmatch(old):
        return ImportedProperty(old, "renamed", f"now {new}; the salt is column.mask.salt of the connection {conn_id}")
    return ImportedProperty(old, "renamed", f"now {new}")


def _find_refused(
    config: type[Configuration], base: Mapping[str, Any], properties: Mapping[str, Any]
) -> Iterator[tuple[str, str]]:
    """Yield the properties that cannot be used, each with the reason; without them, the others can be.

    :param base: properties that the configuration needs besides
    :raises ConfigError: the others cannot be used, and no property is named
    """
    remaining = dict(properties)
    while True:
        try:
            _parse_silently(config, {**base, **remaining})
            return
        except ConfigError as e:
            problems = {m["name"]: m["why"] for line in e.message.splitlines() if (m := _PROBLEM.fullmatch(line))}
            named = {key: why for key, why in problems.items() if key in remaining}
            if not named:  # a problem of several properties, or of a family, which has another name
                named = {key: line.strip() for line in e.message.splitlines() for key in remaining if key in line}
            if not named:
                raise
            for key, why in named.items():
                remaining.pop(key)
                yield key, why.removesuffix(" Remove the property; it has no effect.")


def _parse_silently(config: type[Configuration], properties: Mapping[str, Any]) -> None:
    """Parse without warnings: the import has a line for each property."""
    logging.disable(logging.WARNING)
    try:
        config.parse(properties)
    finally:
        logging.disable(logging.NOTSET)


def _write_connection(conn_id: str, kind: str, properties: Mapping[str, Any]) -> tuple[str, list[str]]:
    """Return the command that creates the connection, and the properties that are too secret for it."""
    config = config_class(kind)
    parts = {property_: part for part, property_ in config.CONNECTION.items()}
    command, extra, secrets = ["airflow", "connections", "add", conn_id, "--conn-type", f"cdc_{kind}"], {}, []
    for name, value in properties.items():
        if config.is_secret(name) or find_credentials(name, value):
            secrets.append(name)
        elif name in parts:
            command += [f"--conn-{parts[name]}", str(value)]
        else:
            extra[name] = value
    if extra:
        command += ["--conn-extra", json.dumps(extra)]
    return shlex.join(command), secrets


def _import_sink(name: str, properties: Mapping[str, Any]) -> ImportedConnector:
    """Write the lines of a definition by which a connector feeds tables of a database."""
    config, outcomes = DatabaseTargetConfig, dict[str, ImportedProperty]()
    for key, value in properties.items():
        if key in _SINK_LOGIN:
            outcomes[key] = ImportedProperty(key, "connection", f"the Airflow connection {name}, to the database")
        elif (reason := config.explain_no_effect(key, value)) is not None:
            outcomes[key] = ImportedProperty(key, "no effect", reason)
        else:
            outcomes[key] = ImportedProperty(key, "taken")
    taken = {key: properties[key] for key, line in outcomes.items() if line.outcome == "taken"}
    for key, why in _find_refused(config, {}, taken):
        taken.pop(key)
        outcomes[key] = ImportedProperty(key, "refused", why)
    definition = f"database: {json.dumps(name)}\nsink: {json.dumps(taken)}\n"
    secrets = [key for key in properties if key == "connection.password"]
    return ImportedConnector(name, SINK, definition, "", secrets, list(outcomes.values()))


__all__ = [
    "ImportOptions",
    "ImportedConnector",
    "ImportedProperty",
    "Outcome",
    "import_connector",
    "read_configuration",
]
