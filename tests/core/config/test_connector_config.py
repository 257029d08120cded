"""Properties: every mistake is named, none is passed over, and secrets stay inside."""

from __future__ import annotations

import json
import logging
import pickle
from collections.abc import Mapping
from typing import Any, ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import Field, SecretStr

from airflow_provider_cdc.connector import ConnectorDefinition, parse_config, refuse_secrets
from airflow_provider_cdc.core.config.base_configuration import PropertyEffect
from airflow_provider_cdc.core.config.property_enums import (
    BinaryHandling,
    DecimalHandling,
    Patterns,
    RewriteMode,
    SnapshotMode,
    TimePrecision,
)
from airflow_provider_cdc.core.config.table_source_config import TableConfig
from airflow_provider_cdc.core.errors import ConfigError
from airflow_provider_cdc.sources import SOURCES, config_class, load_source


class ShopConfig(TableConfig):
    """A source's configuration, with a secret and a required property."""

    database_hostname: str = Field(alias="database.hostname", description="Where the database is.")
    database_password: SecretStr | None = Field(None, alias="database.password")
    database_port: int = Field(3306, alias="database.port", ge=1, le=65535)
    database_include_list: Any = Field((), alias="database.include.list")
    LISTS: ClassVar = {"database.include.list": PropertyEffect.TABLES}
    IGNORED: ClassVar = {"database.jdbc.*": "there is no JDBC here"}
    NOT_SUPPORTED: ClassVar = {"gtid.filter": "not built yet"}


MINIMAL = {"topic.prefix": "shop"}
SHOP = {**MINIMAL, "database.hostname": "db"}


def _problems(cls: type[TableConfig], properties: dict[str, Any]) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        cls.parse(properties)
    first, *lines = caught.value.message.splitlines()
    count = len(lines)
    assert first == f"{count} propert{'y' if count == 1 else 'ies'} of the connector cannot be used:"
    return [line.strip() for line in lines]


def _list_problems(cls: type[TableConfig], properties: dict[str, Any]) -> list[str]:
    """The problems, or none when the properties can be used. No other error may come."""
    try:
        cls.parse(properties)
    except ConfigError as e:
        return e.message.splitlines()[1:]
    return []


def test_documented_defaults() -> None:
    config = TableConfig.parse(MINIMAL)
    assert config.snapshot_mode is SnapshotMode.INITIAL
    assert config.decimal_handling_mode is DecimalHandling.PRECISE
    assert config.binary_handling_mode is BinaryHandling.BYTES
    assert config.time_precision_mode is TimePrecision.ADAPTIVE_TIME_MICROSECONDS
    assert config.tombstones_on_delete is True
    assert config.include_schema_changes is True
    assert config.provide_transaction_metadata is False
    assert config.snapshot_fetch_size == 10_240
    assert config.poll_interval_ms == 500
    assert config.topic_delimiter == "."
    assert config.table_include_list == config.column_exclude_list == ()


def test_our_own_defaults_say_so_in_their_description() -> None:
    """A difference from the documented default is written down where people look."""
    config = TableConfig.parse(MINIMAL)
    assert config.skipped_operations == frozenset()
    assert config.snapshot_max_threads == 4
    assert config.schema_change_rewrite_mode is RewriteMode.SNAPSHOT
    for field in ("skipped_operations", "snapshot_max_threads", "schema_change_rewrite_mode"):
        assert TableConfig.model_fields[field].description


def test_texts_as_in_a_properties_file_are_understood() -> None:
    config = ShopConfig.parse(
        {
            **SHOP,
            "database.port": "3307",
            "provide.transaction.metadata": "true",
            "tombstones.on.delete": "false",
            "snapshot.mode": "when_needed",
            "table.include.list": " shop.orders , shop.lines ",
            "skipped.operations": "c, d",
            "batch.max.rows": "10",
        }
    )
    assert config.database_port == 3307
    assert config.provide_transaction_metadata is True
    assert config.tombstones_on_delete is False
    assert config.snapshot_mode is SnapshotMode.WHEN_NEEDED
    assert config.table_include_list == ("shop.orders", "shop.lines")
    assert config.skipped_operations == {"c", "d"}
    assert config.batch_max_rows == 10


# every mistake


def test_all_mistakes_are_reported_at_once() -> None:
    problems = _problems(
        ShopConfig,
        {
            "topic.prefix": "no spaces please",
            "tabel.include.list": "a",
            "snapshot.mode": "initail",
            "database.port": 0,
            "gtid.filter": "x",
            "table.include.list": "(",
            "skipped.operations": "x",
            "batch.max.ms": "soon",
        },
    )
    assert sorted(p.partition(":")[0] for p in problems) == [
        "batch.max.ms",
        "database.hostname",
        "database.port",
        "gtid.filter",
        "skipped.operations",
        "snapshot.mode",
        "tabel.include.list",
        "table.include.list",
        "topic.prefix",
    ]


@pytest.mark.parametrize(
    ("properties", "problem"),
    [
        ({"snapshot.mod": "initial"}, "snapshot.mod: unknown property; did you mean snapshot.mode?"),
        (
            {"no.such.thing": 1},
            "no.such.thing: unknown property; see docs/reference/configuration.md for the valid properties.",
        ),
        (
            {"snapshot.mode": "initail"},
            "snapshot.mode: 'initail' is not a valid value; did you mean 'initial'? "
            "Valid values are: always, initial, initial_only, no_data, never, recovery, when_needed, "
            "configuration_based, custom",
        ),
        (
            {"decimal.handling.mode": "zzz"},
            "decimal.handling.mode: 'zzz' is not a valid value. Valid values are: precise, double, string",
        ),
        (
            {"skipped.operations": "c,x"},
            "skipped.operations: 'x' is not an operation; valid values are c, u, d and t, or none on its own",
        ),
        (
            {"skipped.operations": "c,none"},
            "skipped.operations: 'none' is not an operation; valid values are c, u, d and t, or none on its own",
        ),
        ({"skipped.operations": "r"}, "skipped.operations: 'r' is not an operation"),
        ({"skipped.operations": 5}, "skipped.operations: 5 is neither a list of strings"),
        ({"table.include.list": "a,b("}, "table.include.list: 'b(' is not a regular expression: missing )"),
        ({"table.include.list": 5}, "table.include.list: 5 is neither a list of strings nor a comma-separated string"),
        ({"table.include.list": None}, "table.include.list: None is neither a list of strings"),
        ({"table.include.list": [1]}, "table.include.list: [1] is neither a list of strings"),
        ({"snapshot.mode": ["initial"]}, "snapshot.mode: ['initial'] is not a valid value"),
        ({"batch.max.rows": 0}, "batch.max.rows: 0 cannot be used: Input should be greater than or equal to 1"),
        ({"batch.max.bytes": 1000}, "batch.max.bytes: 1000 cannot be used"),
        ({"poll.interval.ms": "x"}, "poll.interval.ms: 'x' cannot be used"),
        ({"topic.prefix": "a b"}, "topic.prefix: 'a b' cannot be used"),
        ({"topic.delimiter": "/"}, "topic.delimiter: '/' cannot be used"),
        ({"tombstones.on.delete": "perhaps"}, "tombstones.on.delete: 'perhaps' cannot be used"),
    ],
)
def test_a_mistake_is_reported_with_its_value_and_what_would_be_right(properties: dict[str, Any], problem: str) -> None:
    (line,) = _problems(TableConfig, {**MINIMAL, **properties})
    assert line.startswith(problem)


def test_a_required_property_is_reported_with_its_description() -> None:
    (line,) = _problems(TableConfig, {})
    assert line.startswith("topic.prefix: required and not set. Logical name of the source")


@pytest.mark.parametrize("value", [5, None, [1], {"a": 1}, object(), "x", "(", "", -1, True, b"x", 1e300, float("nan")])
@pytest.mark.parametrize("alias", sorted(str(f.alias) for f in TableConfig.model_fields.values()))
def test_no_value_of_a_property_gives_another_error(alias: str, value: Any) -> None:
    assert all(line.startswith(f"  {alias}: ") for line in _list_problems(TableConfig, {**MINIMAL, alias: value}))


@given(st.dictionaries(st.text(), st.none() | st.integers() | st.text() | st.lists(st.text()), max_size=4))
def test_unknown_properties_are_never_passed_over(extra: dict[str, Any]) -> None:
    known = {str(f.alias) for f in TableConfig.model_fields.values()}
    unknown = {k for k in extra if k not in known and k not in TableConfig.IGNORED}
    if unknown:
        with pytest.raises(ConfigError) as caught:
            TableConfig.parse({**MINIMAL, **extra})
        assert all(f"  {k}: " in str(caught.value) for k in unknown)


@pytest.mark.parametrize(
    ("include", "exclude"),
    [("table.include.list", "table.exclude.list"), ("column.include.list", "column.exclude.list")],
)
def test_an_include_and_an_exclude_list_exclude_each_other(include: str, exclude: str) -> None:
    (line,) = _problems(TableConfig, {**MINIMAL, include: "a", exclude: "b"})
    assert line == f"{include} and {exclude} exclude each other: set only one of them"
    TableConfig.parse({**MINIMAL, include: "a", exclude: ""})  # an empty list is no list


def test_a_source_adds_pairs_that_exclude_each_other() -> None:
    properties = {"database.hostname": "h", "database.user": "u", "database.server.id": 1}
    cls = load_source("mariadb").Config
    with pytest.raises(ConfigError, match=r"database\.include\.list and database\.exclude\.list exclude each other"):
        cls.parse({**MINIMAL, **properties, "database.include.list": "a", "database.exclude.list": "b"})


# accepted without effect, and refused


def test_properties_without_a_meaning_here_are_accepted_with_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        ShopConfig.parse({**SHOP, "tasks.max": 4, "database.jdbc.driver": "x"})
    assert [r.getMessage() for r in caplog.records] == [
        "Property tasks.max is accepted and has no effect: a connector always has one capture task.",
        "Property database.jdbc.driver is accepted and has no effect: there is no JDBC here.",
    ]


@pytest.mark.parametrize(
    "key",
    [
        "column.mask.hash.SHA-256",
        "topic.naming.strategy",
        "transforms",
        "gtid.filter",
        "custom.sanitize.pattern",
    ],
)
def test_properties_that_would_be_silently_without_effect_are_refused(key: str) -> None:
    (line,) = _problems(ShopConfig, {**SHOP, key: "x"})
    assert line.startswith(f"{key}: not supported: ")
    assert line.endswith("Remove the property; it has no effect.")


def test_a_source_keeps_the_tables_of_its_base() -> None:
    """``IGNORED`` and ``NOT_SUPPORTED`` of a subclass add to those of the base."""
    _problems(ShopConfig, {**SHOP, "topic.naming.strategy": "x"})
    assert ShopConfig.parse({**SHOP, "name": "x"})


@pytest.mark.parametrize(("old", "new"), [("schema_only", "no_data"), ("schema_only_recovery", "recovery")])
def test_an_older_name_of_a_snapshot_mode_is_translated_with_a_warning(
    old: str, new: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        assert TableConfig.parse({**MINIMAL, "snapshot.mode": old}).snapshot_mode == new
    assert f"snapshot.mode={old} is deprecated; use snapshot.mode={new}." in caplog.text


# properties of the consumer of signals


def test_properties_of_the_consumer_are_passed_on_by_their_own_names() -> None:
    given = {"signal.consumer.security.protocol": "SSL", "signals.consumer.retries": 5, "signal.consumer.x": True}
    consumer = TableConfig.parse({**MINIMAL, **given}).signal_consumer
    assert {n: v.get_secret_value() for n, v in consumer.items()} == {
        "security.protocol": "SSL", "retries": "5", "x": "true",
    }  # fmt: skip


def test_a_property_of_the_consumer_is_a_text_or_a_number() -> None:
    (line,) = _problems(TableConfig, {**MINIMAL, "signal.consumer.retries": [5]})
    assert line == "signal.consumer.retries: a list is not valid; use a string or a number"


_SECRETS = [
    "sasl.password", "sasl.jaas.config", "ssl.key.password", "ssl.key.pem", "ssl.keystore.password", "ssl.keystore.key",
    "sasl.oauthbearer.config", "sasl.oauthbearer.client.secret", "SASL.Password",
]  # fmt: skip


@pytest.mark.parametrize("name", _SECRETS)
def test_secrets_of_the_consumer_are_never_shown_and_come_from_the_connection_only(name: str) -> None:
    given = {f"signal.consumer.{name}": "hidden", "signal.consumer.sasl.username": "me"}
    config = TableConfig.parse({**MINIMAL, **given})
    assert config.signal_consumer[name].get_secret_value() == "hidden"
    assert config.to_public_properties() == {"topic.prefix": "shop", "signal.consumer.sasl.username": "me"}
    assert "hidden" not in f"{config!r} {config.to_public_properties()} {config.model_dump_json()} {vars(config)}"
    definition = ConnectorDefinition("shop", "memory", "/tmp", {"memory.database": "d", **given})
    with pytest.raises(ConfigError, match=f"holds a secret: signal.consumer.{name}") as caught:
        refuse_secrets(definition)
    assert "hidden" not in str(caught.value)


def test_what_the_consumer_shows_can_be_read_again() -> None:
    config = TableConfig.parse({**MINIMAL, "signal.consumer.ssl.ca.location": "/ca.pem"})
    assert TableConfig.parse(json.loads(json.dumps(config.to_public_properties()))) == config


@pytest.mark.parametrize(
    ("channels", "missing"),
    [
        ({"signal.enabled.channels": "source,kafka"}, "signal.kafka.bootstrap.servers: required by"),
        ({"notification.enabled.channels": "log,sink"}, "notification.sink.topic.name: required by"),
    ],
)
def test_a_channel_needs_its_properties(channels: dict[str, str], missing: str) -> None:
    (line,) = _problems(TableConfig, {**MINIMAL, **channels})
    assert line.startswith(missing)


# lists


@pytest.mark.parametrize(
    ("text", "patterns"),
    [
        ("", ()),
        (" , ", ()),
        ("a,b", ("a", "b")),
        (r"a{1\,3},b", ("a{1,3}", "b")),
        (["a,b", "c"], ("a,b", "c")),
        (r"shop\.o.*", (r"shop\.o.*",)),
    ],
)
def test_patterns_are_split_at_commas_that_are_not_escaped(text: Any, patterns: tuple[str, ...]) -> None:
    assert TableConfig.parse({**MINIMAL, "table.include.list": text}).table_include_list == patterns


@pytest.mark.parametrize(
    ("text", "operations"), [("none", set()), ("", set()), ("c,u,d,t", set("cudt")), (["t"], {"t"}), (("u",), {"u"})]
)
def test_skipped_operations(text: Any, operations: set[str]) -> None:
    assert TableConfig.parse({**MINIMAL, "skipped.operations": text}).skipped_operations == operations


# secrets

SECRET = "hunter2-äß"


def _secret_config() -> ShopConfig:
    return ShopConfig.parse({**SHOP, "database.password": SECRET, "skipped.operations": "t"})


def test_a_secret_is_in_no_text_of_the_configuration() -> None:
    config = _secret_config()
    texts = [str(config), repr(config), f"{config}", config.model_dump_json(), str(config.model_dump())]
    texts += [json.dumps(config.to_public_properties()), str(vars(config))]
    assert not [t for t in texts if SECRET in t or "hunter2" in t]


def test_the_public_properties_are_those_that_were_set_without_secrets() -> None:
    assert _secret_config().to_public_properties() == {
        "database.hostname": "db",
        "skipped.operations": ["t"],
        "topic.prefix": "shop",
    }


def test_the_public_properties_are_json_and_mean_the_same_again() -> None:
    config = TableConfig.parse(
        {**MINIMAL, "table.include.list": r"a{1\,2},b", "skipped.operations": "c,t", "snapshot.mode": "never"}
    )
    assert TableConfig.parse(json.loads(json.dumps(config.to_public_properties()))) == config


@pytest.mark.parametrize("value", [["hunter2"], {"hunter2": 1}, 5, object])
def test_a_secret_of_a_wrong_kind_is_not_reported(value: Any) -> None:
    (line,) = _problems(ShopConfig, {**SHOP, "database.password": value})
    assert line.startswith("database.password: ******** cannot be used")
    assert "hunter2" not in line


def test_a_secret_under_a_misspelt_name_is_not_reported() -> None:
    (line,) = _problems(ShopConfig, {**SHOP, "database.pasword": SECRET})
    assert line == "database.pasword: unknown property; did you mean database.password?"


def test_a_secret_is_not_reported_when_another_property_is_wrong() -> None:
    for properties in ({"table.include.list": "a", "table.exclude.list": "b"}, {"database.port": -1}, {"x": 1}):
        with pytest.raises(ConfigError) as caught:
            ShopConfig.parse({**SHOP, "database.password": SECRET, **properties})
        assert SECRET not in str(caught.value)
        assert SECRET not in repr(caught.value.__context__)


def test_the_configuration_cannot_be_changed() -> None:
    config = TableConfig.parse(MINIMAL)
    with pytest.raises(ValueError, match="frozen"):
        config.topic_prefix = "other"  # type: ignore[misc]


def test_a_configuration_survives_pickling_with_its_secret() -> None:
    there = pickle.loads(pickle.dumps(_secret_config()))
    assert there == _secret_config()
    assert there.database_password.get_secret_value() == SECRET


# definitions and kinds of source


@pytest.mark.parametrize("name", ["", "a b", "../x", ".x", "-x", "x" * 201, "a/b", "ä", "a\n"])
def test_a_connectors_name_that_would_not_do_as_a_folder_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match="is not a valid connector name"):
        ConnectorDefinition(name, "memory", "/tmp")


def test_the_definition_wins_over_the_connection_and_the_name_is_the_prefix() -> None:
    definition = ConnectorDefinition("shop", "mariadb", "/tmp", {"database.server.id": 7, "database.hostname": "mine"})
    config = parse_config(definition, {"database.hostname": "theirs", "database.user": "u", "database.password": "p"})
    assert config.topic_prefix == "shop"
    assert config.to_public_properties()["database.hostname"] == "mine"


def test_an_unknown_kind_of_source_is_reported_with_the_kinds_there_are() -> None:
    with pytest.raises(ConfigError) as caught:
        load_source("mysq")
    assert caught.value.message == f"'mysq' is not a kind of source. Valid values are: {', '.join(sorted(SOURCES))}."


@pytest.mark.parametrize("kind", sorted(SOURCES))
def test_the_registry_names_the_configuration_that_the_source_has(kind: str) -> None:
    assert config_class(kind) is load_source(kind).Config


def test_a_missing_driver_is_reported_with_the_extra_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    kind = SOURCES["oracle"]._replace(source="airflow_provider_cdc.sources.no_such_driver.source:X")
    monkeypatch.setitem(SOURCES, "oracle", kind)
    with pytest.raises(ConfigError, match="pip install 'airflow-provider-cdc\\[no_such_driver\\]'"):
        load_source("oracle")


def test_a_source_has_to_say_what_each_of_its_lists_decides() -> None:
    with pytest.raises(TypeError, match=r"LISTS has no effect for vault\.include\.list"):

        class _Forgets(TableConfig):
            vault_include_list: Patterns = Field((), alias="vault.include.list")

    with pytest.raises(TypeError, match=r"LISTS names vault\.include\.list"):

        class _Misspells(TableConfig):
            LISTS: ClassVar[Mapping[str, PropertyEffect]] = {"vault.include.list": PropertyEffect.TABLES}


@pytest.mark.parametrize("tags", ["team", "team=", "=x", "a b=c", "a=1,a=2", "connector=x", "place=y"])
def test_tags_of_metrics_have_names_and_values_and_replace_none_of_ours(tags: str) -> None:
    assert ShopConfig.parse({**SHOP, "custom.metric.tags": "team=sales,env=prod"}).custom_metric_tags == {
        "team": "sales",
        "env": "prod",
    }
    (line,) = _problems(ShopConfig, {**SHOP, "custom.metric.tags": tags})
    assert line.startswith("custom.metric.tags: ")
