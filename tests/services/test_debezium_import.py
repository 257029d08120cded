"""Configurations as Debezium's documents print them (``debezium_configurations``: without the numbers of the explanations)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_cdc.connector import ConnectorDefinition, parse_config
from airflow_provider_cdc.core.errors import ConfigError
from airflow_provider_cdc.services.debezium_import import ImportedConnector, ImportOptions, import_connector
from airflow_provider_cdc.sources import config_class
from tests.cli.conftest import run

PRINTED = Path(__file__).parent / "debezium_configurations"
SOURCES = [
    ("mysql.json", "mysql", "mysql", {"port": "3306", "login": "debezium-user"}),
    ("oracle.yaml", None, "oracle", {"port": "1521", "login": "'c##dbzuser'", "schema": "ORCLCDB"}),
    ("oracle-openshift.yaml", None, "oracle", {"port": "1521", "login": "debezium", "schema": "mydatabase"}),
    ("db2.yaml", None, "db2", {"port": "50000", "login": "db2inst1", "schema": "mydatabase"}),
    ("db2-openshift.yaml", None, "db2", {"port": "50000", "login": "debezium", "schema": "mydatabase"}),
    ("mongodb.yaml", None, "mongodb", {"host": "rs0/192.168.99.100:27017", "login": "debezium"}),
]


@pytest.fixture(autouse=True)
def _context(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("_AIRFLOW_PROCESS_CONTEXT", "")  # commands set it; it is put back afterwards


def _outcomes(imported: ImportedConnector) -> dict[str, str]:
    return {line.name: line.outcome for line in imported.properties}


def _definition(python: str) -> ConnectorDefinition:
    """The definition of a DAG file, without the DAG."""
    names: dict[str, Any] = {}
    exec(python.partition("dag = ")[0], names)
    return names["connector"]


def _import(source: str, **properties: Any) -> ImportedConnector:
    document = {"name": "shop", "config": {"topic.prefix": "shop", **properties}}
    return import_connector(json.dumps(document), ImportOptions(source=source))


@pytest.mark.parametrize(("file", "option", "source", "fields"), SOURCES)
def test_a_configuration_of_the_documents_is_taken_as_it_is(
    file: str, option: str | None, source: str, fields: dict[str, str]
) -> None:
    text = (PRINTED / file).read_text()
    imported = import_connector(text, ImportOptions(source=option))
    assert imported.source == source
    assert not imported.refused
    definition = _definition(imported.definition)
    assert definition.name == imported.name
    assert all(f"--conn-{field} {value}" in imported.connection for field, value in fields.items())
    (password,) = imported.secrets
    assert password.endswith(".password")
    secrets = config_class(source).from_connection(
        host="db", login="cdc", **({"schema": "db"} if "schema" in fields else {})
    )
    config = parse_config(definition, secrets)
    assert config.topic_prefix == definition.properties["topic.prefix"]
    outcomes = _outcomes(imported)
    assert {outcomes.pop(name) for name in ("connector.class",)} == {"no effect"}
    assert {name for name, outcome in outcomes.items() if outcome == "no effect"} <= {
        "tasks.max",
        "schema.history.internal.kafka.bootstrap.servers",
        "schema.history.internal.kafka.topic",
    }
    shown = imported.definition + imported.connection.replace("dbzuser", "")
    assert not any(secret in shown for secret in ("dbz", "-pw", "Password!"))


def test_a_sink_becomes_lines_of_the_definition_that_feeds_it() -> None:
    imported = import_connector((PRINTED / "jdbc-sink.json").read_text())
    assert not imported.refused
    database, sink = imported.definition.splitlines()
    assert database == 'database: "jdbc-connector"'
    assert json.loads(sink.removeprefix("sink: ")) == {
        "insert.mode": "upsert", "delete.enabled": "true", "primary.key.mode": "record_key", "schema.evolution": "basic",
        "database.time_zone": "UTC",
    }  # fmt: skip
    assert imported.secrets == ["connection.password"]


def test_each_property_has_an_outcome_with_its_reason() -> None:
    imported = _import(
        "mysql",
        **{
            "database.hostname": "db", "database.ssl.mode": "required", "table.whitelist": "shop.orders", "tasks.max": "1",
            "transforms": "route", "column.include": "x", "snapshot.mode": "initail", "snapshot.locking.mode": "none",
            "topic.naming.strategy": "io.debezium.schema.SchemaTopicNamingStrategy",
        },
    )  # fmt: skip
    lines = {line.name: (line.outcome, line.note) for line in imported.properties}
    assert lines["database.hostname"] == ("connection", "host of the connection shop")
    assert lines["database.ssl.mode"] == ("connection", "extra of the connection shop")
    assert lines["table.whitelist"] == ("renamed", "now table.include.list")
    assert lines["tasks.max"] == ("no effect", "a connector always has one capture task")
    assert lines["snapshot.locking.mode"] == ("taken", "")
    assert lines["topic.naming.strategy"][0] == "no effect"
    assert {line.name for line in imported.refused} == {"transforms", "column.include", "snapshot.mode"}
    assert lines["transforms"][1].startswith("not supported: single message transforms belong to Kafka Connect")
    assert "did you mean 'initial'?" in lines["snapshot.mode"][1]
    assert _definition(imported.definition).properties.keys() == {
        "database.server.id", "topic.prefix", "table.include.list", "snapshot.locking.mode",
    }  # fmt: skip


def test_the_salt_of_pseudonyms_goes_to_the_connection() -> None:
    imported = _import("oracle", **{"column.mask.hash.SHA-256.with.salt.CzQMA0cB5K": "INVENTORY.ORDERS.CUSTOMERNAME"})
    name = "column.mask.hash.SHA-256.with.salt.${connection}"
    assert _definition(imported.definition).properties[name] == "INVENTORY.ORDERS.CUSTOMERNAME"
    assert imported.secrets == ["column.mask.salt"]
    assert "CzQMA0cB5K" not in imported.definition + imported.connection
    two = _import("oracle", **{f"column.mask.hash.v2.MD5.with.salt.{salt}": "A.B.C" for salt in "ab"})
    assert {n for n in _definition(two.definition).properties if ".salt." in n} == {
        "column.mask.hash.v2.MD5.with.salt.a", "column.mask.hash.v2.MD5.with.salt.b",
    }  # fmt: skip


def test_problems_of_families_and_of_several_properties_are_those_of_each() -> None:
    """Their messages begin with another name, or with two."""
    imported = _import(
        "mysql",
        **{
            "driver.useSSL": "false", "table.include.list": "a.b", "table.exclude.list": "a.c", "tombstones.on.delete": "false",
            "column.mask.hash.v2.SHA-257.with.salt.x": "a.b.c",
        },
    )  # fmt: skip
    assert {line.name for line in imported.refused} == {
        "driver.useSSL", "table.include.list", "table.exclude.list", "column.mask.hash.v2.SHA-257.with.salt.x",
    }  # fmt: skip
    assert _outcomes(imported)["tombstones.on.delete"] == "taken"


def test_a_converter_with_its_properties_is_taken() -> None:
    boolean = "io.debezium.connector.binlog.converters.TinyIntOneToBooleanConverter"
    imported = _import("mysql", converters="b", **{"b.type": boolean, "b.selector": "shop.*"})
    assert not imported.refused
    assert _outcomes(imported)["b.selector"] == "taken"


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ('{"connector.class": "io.debezium.connector.mysql.MySqlConnector", "name": "a", "topic.prefix": "p"}', "a"),
        ("# a file\nconnector.class=io.debezium.connector.mysql.MySqlConnector\ntopic.prefix = p\nname=a\n", "a"),
        (
            '{"name": "a", "config": {"connector.class": "io.debezium.connector.mysql.MySqlConnector"}, "tasks": []}',
            "a",
        ),
    ],
)
def test_other_forms_of_a_configuration_are_read(text: str, name: str) -> None:
    assert import_connector(text).name == name


@pytest.mark.parametrize("text", ["", "[]", "hello", '{"config": 1}', "\tx: {"])
def test_a_text_that_is_no_configuration_is_an_error(text: str) -> None:
    with pytest.raises(ConfigError, match="no configuration of a connector"):
        import_connector(text)


def test_a_class_of_no_source_is_an_error_that_names_the_option() -> None:
    with pytest.raises(ConfigError, match=r"names no source.*\n.*\n.*--source mysql"):
        import_connector((PRINTED / "mysql.json").read_text())


def test_the_command_prints_the_definition_and_a_line_for_each_property(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    run("import", str(PRINTED / "oracle.yaml"), "--conn-id", "orders_db", "--form", "yaml")
    printed = capsys.readouterr()
    assert 'name: "inventory-connector-oracle"' in printed.out
    assert "  database.password" in printed.err
    assert "airflow connections add orders_db --conn-type cdc_oracle" in printed.err
    assert "Secrets, to enter in the connection: database.password" in printed.err
    assert "dbz" not in printed.out + printed.err.replace("dbzuser", "")
    file = tmp_path / "orders.py"
    run("import", str(PRINTED / "oracle.yaml"), "--write", str(file))
    assert _definition(file.read_text()).source == "oracle"
    with pytest.raises(SystemExit, match="cannot be written: File exists"):
        run("import", str(PRINTED / "oracle.yaml"), "--write", str(file))


def test_the_command_fails_where_an_effect_is_missing(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = tmp_path / "shop.json"
    file.write_text(
        '{"connector.class": "io.debezium.connector.mysql.MySqlConnector", "topic.prefix": "p", "predicates": "x"}'
    )
    with pytest.raises(SystemExit) as ended:
        run("import", str(file))
    assert ended.value.code == 1
    assert "1 property has an effect that is missing here." in capsys.readouterr().err
