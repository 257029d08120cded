"""Documented properties of the Oracle connector."""

from __future__ import annotations

import contextlib
import json
import logging
from typing import Any

import pytest

from airflow_provider_cdc.core.errors import ConfigError
from airflow_provider_cdc.sources.oracle.config import OracleConfig
from airflow_provider_cdc.sources.oracle.config_enums import MiningStrategy
from tests.sources.oracle.redo.redo_tables import config

DOCUMENTED = [
    "name",
    "connector.class",
    "converters",
    "tasks.max",
    "database.hostname",
    "database.port",
    "database.user",
    "database.password",
    "database.dbname",
    "database.url",
    "database.pdb.name",
    "topic.prefix",
    "database.connection.adapter",
    "snapshot.mode",
    "snapshot.locking.mode",
    "snapshot.include.collection.list",
    "snapshot.select.statement.overrides",
    "schema.include.list",
    "include.schema.comments",
    "schema.exclude.list",
    "table.include.list",
    "table.exclude.list",
    "column.include.list",
    "column.exclude.list",
    "skip.messages.without.change",
    "column.mask.hash.SHA-256.with.salt.x",
    "binary.handling.mode",
    "schema.name.adjustment.mode",
    "field.name.adjustment.mode",
    "decimal.handling.mode",
    "interval.handling.mode",
    "time.precision.mode",
    "event.processing.failure.handling.mode",
    "max.batch.size",
    "max.queue.size",
    "max.queue.size.in.bytes",
    "poll.interval.ms",
    "tombstones.on.delete",
    "message.key.columns",
    "column.truncate.to.5.chars",
    "column.mask.with.5.chars",
    "column.propagate.source.type",
    "datatype.propagate.source.type",
    "heartbeat.interval.ms",
    "heartbeat.action.query",
    "snapshot.delay.ms",
    "snapshot.fetch.size",
    "query.fetch.size",
    "provide.transaction.metadata",
    "log.mining.strategy",
    "log.mining.query.filter.mode",
    "log.mining.buffer.type",
    "log.mining.session.max.ms",
    "log.mining.restart.connection",
    "log.mining.batch.size.min",
    "log.mining.batch.size.max",
    "log.mining.batch.size.default",
    "log.mining.sleep.time.min.ms",
    "log.mining.sleep.time.max.ms",
    "log.mining.sleep.time.default.ms",
    "log.mining.sleep.time.increment.ms",
    "log.mining.archive.log.hours",
    "log.mining.archive.log.only.mode",
    "log.mining.archive.log.only.scn.poll.interval.ms",
    "log.mining.transaction.retention.ms",
    "log.mining.archive.destination.name",
    "log.mining.username.include.list",
    "log.mining.username.exclude.list",
    "log.mining.scn.gap.detection.gap.size.min",
    "log.mining.scn.gap.detection.time.interval.max.ms",
    "log.mining.flush.table.name",
    "lob.enabled",
    "unavailable.value.placeholder",
    "rac.nodes",
    "skipped.operations",
    "signal.data.collection",
    "signal.enabled.channels",
    "notification.enabled.channels",
    "incremental.snapshot.chunk.size",
    "topic.naming.strategy",
    "topic.delimiter",
    "topic.cache.size",
    "topic.heartbeat.prefix",
    "topic.transaction",
    "snapshot.max.threads",
    "errors.max.retries",
    "schema.history.internal.kafka.topic",
    "schema.history.internal.kafka.bootstrap.servers",
    "schema.history.internal.skip.unparseable.ddl",
    "schema.history.internal.store.only.captured.tables.ddl",
    "schema.history.internal.store.only.captured.databases.ddl",
    "schema.history.internal.producer.security.protocol",
    "schema.history.internal.consumer.security.protocol",
    "signal.kafka.topic",
    "signal.kafka.groupId",
    "signal.kafka.bootstrap.servers",
    "signal.kafka.poll.timeout.ms",
    "signal.consumer.security.protocol",
    "notification.sink.topic.name",
    "driver.oracle.jdbc.timezoneAsRegion",
    "log.mining.buffer.drop.on.stop",
    "log.mining.buffer.infinispan.cache.events",
    "log.mining.buffer.transaction.events.threshold",
    "database.out.server.name",
]
DEFAULTS = {
    "database_port": 1521, "database_connection_adapter": "logminer", "snapshot_locking_mode": "shared", "query_fetch_size": 10_000,
    "binary_handling_mode": "bytes", "decimal_handling_mode": "precise", "interval_handling_mode": "numeric",
    "time_precision_mode": "adaptive", "log_mining_strategy": "hybrid", "log_mining_query_filter_mode": "none",
    "log_mining_buffer_type": "memory", "log_mining_session_max_ms": 0, "log_mining_restart_connection": False,
    "log_mining_batch_size_min": 1_000, "log_mining_batch_size_max": 100_000, "log_mining_batch_size_default": 20_000,
    "log_mining_sleep_time_min_ms": 0, "log_mining_sleep_time_max_ms": 3_000, "log_mining_sleep_time_default_ms": 1_000,
    "log_mining_sleep_time_increment_ms": 200, "log_mining_archive_log_hours": 0, "log_mining_archive_log_only_mode": False,
    "log_mining_archive_log_only_scn_poll_interval_ms": 10_000, "log_mining_transaction_retention_ms": 0,
    "log_mining_scn_gap_detection_gap_size_min": 1_000_000, "log_mining_scn_gap_detection_time_interval_max_ms": 20_000,
    "log_mining_flush_table_name": "LOG_MINING_FLUSH", "lob_enabled": False,
    "unavailable_value_placeholder": "__debezium_unavailable_value", "tombstones_on_delete": True, "poll_interval_ms": 500,
}  # fmt: skip


@pytest.mark.parametrize("name", DOCUMENTED)
def test_documented_property_is_known(name: str) -> None:
    """It works, is accepted with the reason why it has no effect, or is refused with a reason: never merely unknown."""
    with contextlib.suppress(ConfigError):
        config(**{name: "1"})
        return
    with pytest.raises(ConfigError) as refused:
        config(**{name: "1"})
    assert "unknown property" not in str(refused.value)


def test_defaults_are_the_documented_ones() -> None:
    made = config()
    assert {name: getattr(made, name) for name in DEFAULTS} == DEFAULTS


@pytest.mark.parametrize(
    ("properties", "words"),
    [
        ({"database.hostname": ""}, "database.hostname: required"),
        ({"database.connection.adapter": "xstream"}, "Valid values are: logminer"),
        ({"database.url": "tns", "rac.nodes": "a:1,b"}, "'b' needs a port"),
        ({"log.mining.batch.size.min": 30_000}, "min, default and max"),
        ({"log.mining.sleep.time.max.ms": 10}, "min, default and max"),
        ({"schema.include.list": "A", "schema.exclude.list": "B"}, "exclude each other"),
        ({"log.mining.username.include.list": "A", "log.mining.username.exclude.list": "B"}, "exclude each other"),
        ({"log.mining.query.filter.mode": "in", "table.include.list": "SHOP.*"}, "changes would be lost"),
        ({"log.mining.buffer.type": "infinispan_embedded"}, "Valid values are: memory"),
        ({"interval.handling.mode": "text"}, "Valid values are: numeric, string"),
        ({"snapshot.locking.mode": "minimal"}, "Valid values are: shared, none, custom"),
        ({"log.mining.strategi": "x"}, "did you mean log.mining.strategy"),
        ({"converters": "b"}, "b.type: required"),
        ({"converters": "b", "b.type": "com.example.Mine"}, "not a known type"),
        ({"converters": "b", "b.type": "io.debezium.connector.oracle.converters.NumberOneToBooleanConverter", "b.x": "1"}, "b.x: unknown"),
        ({"converters": "b", "b.type": "io.debezium.connector.oracle.converters.NumberOneToBooleanConverter", "b.selector": "("}, "regular expression"),
        ({"converters": "b", "b.type": "io.debezium.connector.oracle.converters.NumberToZeroScaleConverter", "b.decimal.mode": "x"}, "not one of"),
        ({"database.out.server.name": "x"}, "LogMiner"),
        ({"c.type": "x"}, "c.type: unknown property"),
    ],
)  # fmt: skip
def test_mistake_is_named(properties: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words.replace("(", r"\(")):
        config(**properties)


def test_wrong_spelling_of_the_faq_is_understood(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        assert (
            config(**{"log.mining.strategy": "redo_in_catalog"}).log_mining_strategy is MiningStrategy.REDO_LOG_CATALOG
        )
    assert "redo_log_catalog" in caplog.text


@pytest.mark.parametrize(
    ("given", "strategy"),
    [({}, "hybrid"), ({"lob.enabled": "true"}, "redo_log_catalog"), ({"lob.enabled": "true", "log.mining.strategy": "hybrid"}, "hybrid")],
)  # fmt: skip
def test_rows_of_lobs_that_are_older_than_their_table_can_be_read_by_default(
    given: dict[str, str], strategy: str
) -> None:
    assert config(**given).log_mining_strategy == MiningStrategy(strategy)


def test_names_in_filters_pushed_into_the_query_may_have_quoted_signs() -> None:
    made = config(**{"log.mining.query.filter.mode": "in", "table.include.list": r"SHOP\.ORDERS,SHOP.X\$Y"})
    assert made.table_include_list == (r"SHOP\.ORDERS", r"SHOP.X\$Y")


def test_public_properties_make_the_same_configuration_again() -> None:
    made = config(
        converters="b",
        **{
            "b.type": "io.debezium.connector.oracle.converters.NumberOneToBooleanConverter",
            "rac.nodes": "a,b",
            "database.password": "s3cret",
        },
    )
    public = json.loads(json.dumps(made.to_public_properties()))
    assert "s3cret" not in json.dumps(public)
    again = OracleConfig.parse(public)
    assert again.converters == made.converters
    assert again.rac_nodes == ("a", "b")


def test_connection_gives_host_account_and_database() -> None:
    given = OracleConfig.from_connection(
        host="db",
        port=1522,
        login="c##cdc",
        password="x",
        schema="ORCLCDB",
        extra={"database.pdb.name": "PDB1", "empty": ""},
    )
    assert given == {
        "database.hostname": "db", "database.port": 1522, "database.user": "c##cdc", "database.password": "x",
        "database.dbname": "ORCLCDB", "database.pdb.name": "PDB1",
    }  # fmt: skip
    assert OracleConfig.from_connection() == {}
    assert OracleConfig.list_secret_names() == ["column.mask.salt", "database.password", "database.ssl.wallet.password"]


@pytest.mark.parametrize(
    "url", ["config-file:///etc/passwd", "CONFIG-HTTPS://evil/x", " ldap://evil/cn=orcl", "config-ociobject://a/b"]
)
def test_an_address_that_is_looked_up_elsewhere_is_rejected(url: str) -> None:
    with pytest.raises(ConfigError, match="is not supported"):
        OracleConfig.parse({"topic.prefix": "t", "database.dbname": "d", "database.url": url})
