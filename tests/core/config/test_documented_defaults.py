"""Configurations that were exported whole: every property has the default that its document prints."""

from __future__ import annotations

import logging
import re
import tomllib
from typing import Any

import pytest

from airflow_provider_cdc.core.config.base_configuration import Configuration
from airflow_provider_cdc.core.errors import ConfigError
from airflow_provider_cdc.sources import config_class
from airflow_provider_cdc.targets.database.config import DatabaseTargetConfig
from dev.compatibility import PROPERTIES, requirement_texts

NEEDED: dict[str, dict[str, Any]] = {
    "mysql": {"database.server.id": 1},
    "oracle": {"database.dbname": "ORCLCDB"},
    "db2": {"database.dbname": "TESTDB"},
    "mongodb": {"mongodb.connection.string": "mongodb://db/?replicaSet=rs0"},
}
_DEFAULT = re.compile(r"`([^|`]+)`\s*\|\s*`?((?:\\\||[^|`\s])+)`?\s*(?:\||$)")
"""The first two columns of a documented table: a property and its default."""
_NO_VALUE = {"none", "n/a", "empty", "unset", "all", "default", "required", "-", "–", "—", "yes", "not"}


def _defaults() -> list[tuple[str, str, str]]:
    """Source or ``sink``, property and its documented default."""
    texts, found = requirement_texts(), []
    for source, table in tomllib.loads(PROPERTIES.read_text()).items():
        if source in NEEDED:
            found += [(source, name, texts[id_]) for name, id_ in table.items()]
    found += [
        ("sink", match[1], text)
        for id_, text in texts.items()
        if id_ >= "JDBC-126" and id_.startswith("JDBC") and (match := _DEFAULT.match(text))
    ]
    defaults = [
        (source, name, match[2].replace("\\|", "|").replace("−", "-"))
        for source, name, text in found
        if (match := _DEFAULT.match(text))
    ]
    return [entry for entry in defaults if entry[2] not in _NO_VALUE and "<" not in entry[1] + entry[2]]


DEFAULTS = _defaults()


def _parse(source: str, properties: dict[str, Any]) -> Configuration:
    if source == "sink":
        return DatabaseTargetConfig.parse(properties)
    config = config_class(source)
    return config.parse(
        {"topic.prefix": "p", **config.from_connection(host="db", login="cdc"), **NEEDED[source], **properties}
    )


def test_the_documents_have_many_defaults() -> None:
    """Guard the pattern that reads them."""
    assert len(DEFAULTS) > 190
    assert {source for source, _, _ in DEFAULTS} == {*NEEDED, "sink"}
    assert ("mysql", "event.converting.failure.handling.mode", "warn") in DEFAULTS


@pytest.mark.parametrize(("source", "name", "value"), DEFAULTS)
def test_a_property_may_have_its_documented_default(source: str, name: str, value: str) -> None:
    _parse(source, {name: value})


@pytest.mark.parametrize(
    ("source", "name", "harmless", "refused"),
    [
        ("oracle", "topic.naming.strategy", "io.debezium.schema.SchemaTopicNamingStrategy", "com.example.Names"),
        ("mysql", "streaming.delay.ms", 0, 5),
        ("mysql", "schema.history.internal.skip.unparseable.ddl", False, True),
        ("sink", "table.naming.strategy", "io.debezium.connector.jdbc.naming.DefaultTableNamingStrategy", "com.example.Names"),
    ],
)  # fmt: skip
def test_a_value_that_changes_nothing_is_accepted_with_its_reason_and_others_are_refused(
    source: str, name: str, harmless: Any, refused: Any, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        _parse(source, {name: harmless})
    assert f"Property {name} is accepted and has no effect: " in caplog.text
    with pytest.raises(ConfigError, match=f"{re.escape(name)}: not supported: "):
        _parse(source, {name: refused})
