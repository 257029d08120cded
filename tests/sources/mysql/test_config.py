"""Properties: what is required, defaults, what is refused and why, what is accepted without effect."""

from __future__ import annotations

import logging
import re
from typing import Any

import pytest

from airflow_provider_cdc.core.errors import ConfigError, PrerequisiteError, SchemaConflict, UnreadableValue
from airflow_provider_cdc.sources.mysql.config import MySqlConfig

DEFAULTS: dict[str, Any] = {
    "bigint_unsigned_handling_mode": "long", "binary_handling_mode": "bytes", "column_exclude_list": (), "column_include_list": (),
    "column_propagate_source_type": (), "connect_timeout_ms": 30_000, "database_exclude_list": (), "database_include_list": (),
    "database_port": 3306, "decimal_handling_mode": "precise", "field_name_adjustment_mode": "none", "include_query": False,
    "include_schema_changes": True, "message_key_columns": "", "skip_messages_without_change": False, "table_exclude_list": (),
    "table_include_list": (), "time_precision_mode": "adaptive_time_microseconds", "tombstones_on_delete": True,
    "binlog_net_read_timeout": 0, "binlog_net_write_timeout": 0, "converters": (), "database_initial_statements": "",
    "database_query_timeout_ms": 600_000, "database_ssl_mode": "preferred", "heartbeat_action_query": None,
    "heartbeat_interval_ms": 0, "incremental_snapshot_chunk_size": 1024, "poll_interval_ms": 500, "signal_data_collection": None,
    "snapshot_delay_ms": 0, "snapshot_include_collection_list": (), "snapshot_lock_timeout_ms": 10_000,
    "snapshot_locking_mode": "minimal", "snapshot_locking_mode_custom_name": None, "snapshot_mode": "initial",
    "snapshot_mode_configuration_based_snapshot_data": False, "snapshot_mode_custom_name": None,
    "snapshot_query_mode": "select_all", "snapshot_query_mode_custom_name": None, "snapshot_select_statement_overrides": {},
    "snapshot_tables_order_by_row_count": "disabled", "topic_delimiter": ".", "topic_transaction": "transaction",
    "guardrail_collections_max": 0, "guardrail_collections_limit_action": "warn", "provide_transaction_metadata": False,
    "signal_kafka_topic": None, "signal_kafka_group_id": "kafka-signal", "signal_kafka_bootstrap_servers": None,
    "signal_kafka_poll_timeout_ms": 100, "notification_sink_topic_name": None, "gtid_source_includes": (), "gtid_source_excludes": (),
    "gtid_source_filter_dml_events": True,
}  # fmt: skip


DOCUMENTED = """
bigint.unsigned.handling.mode binary.handling.mode column.exclude.list column.include.list
column.mask.hash.v2.SHA-256.with.salt.CzQM column.mask.with.5.chars column.propagate.source.type
column.truncate.to.5.chars connect.timeout.ms connector.class database.exclude.list database.hostname
database.include.list database.jdbc.driver database.password database.port database.protocol database.server.id
database.user decimal.handling.mode event.deserialization.failure.handling.mode field.name.adjustment.mode
gtid.source.excludes gtid.source.includes include.query include.schema.changes inconsistent.schema.handling.mode
message.key.columns name schema.name.adjustment.mode skip.messages.without.change table.exclude.list
table.include.list tasks.max time.precision.mode tombstones.on.delete topic.prefix binlog.buffer.size
binlog.net.read.timeout binlog.net.write.timeout connect.keep.alive converters custom.sanitize.pattern
database.initial.statements database.query.timeout.ms database.ssl.keystore database.ssl.keystore.password
database.ssl.mode database.ssl.truststore database.ssl.truststore.password enable.time.adjuster errors.max.retries
event.converting.failure.handling.mode event.processing.failure.handling.mode heartbeat.action.query
heartbeat.interval.ms incremental.snapshot.allow.schema.changes incremental.snapshot.chunk.size
incremental.snapshot.watermarking.strategy max.batch.size max.queue.size max.queue.size.in.bytes
min.row.count.to.stream.results notification.enabled.channels poll.interval.ms read.only signal.data.collection
signal.enabled.channels skipped.operations snapshot.delay.ms snapshot.fetch.size snapshot.include.collection.list
snapshot.lock.timeout.ms snapshot.locking.mode snapshot.locking.mode.custom.name snapshot.max.threads snapshot.mode
snapshot.mode.configuration.based.snapshot.data snapshot.mode.configuration.based.snapshot.on.data.error
snapshot.mode.configuration.based.snapshot.on.schema.error snapshot.mode.configuration.based.snapshot.schema
snapshot.mode.configuration.based.start.stream snapshot.mode.custom.name snapshot.query.mode
snapshot.query.mode.custom.name snapshot.select.statement.overrides snapshot.tables.order.by.row.count
source.struct.version streaming.delay.ms table.ignore.builtin topic.cache.size topic.delimiter
topic.heartbeat.prefix topic.naming.strategy topic.transaction use.nongraceful.disconnect guardrail.collections.max
guardrail.collections.limit.action custom.metric.tags provide.transaction.metadata
""".split()  # noqa: SIM905


BASE = {"topic.prefix": "p", "database.hostname": "h", "database.user": "u", "database.server.id": 7}


DEBEZIUM = {
    "name": "inventory-connector",
    "connector.class": "io.debezium.connector.mysql.MySqlConnector",
    "database.hostname": "192.168.99.100",
    "database.port": "3306",
    "database.user": "debezium-user",
    "database.password": "debezium-user-pw",
    "database.server.id": "184054",
    "topic.prefix": "fullfillment",
    "database.include.list": "inventory",
    "schema.history.internal.kafka.bootstrap.servers": "kafka:9092",
    "schema.history.internal.kafka.topic": "schemahistory.fullfillment",
    "include.schema.changes": "true",
}


def test_the_smallest_documented_configuration_is_understood(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        config = MySqlConfig.parse(DEBEZIUM)
    assert (config.database_hostname, config.database_port, config.database_user) == (
        "192.168.99.100", 3306, "debezium-user",
    )  # fmt: skip
    assert (config.database_server_id, config.topic_prefix) == (184054, "fullfillment")
    assert config.database_include_list == ("inventory",)
    assert config.include_schema_changes
    assert "debezium-user-pw" not in caplog.text


@pytest.mark.parametrize("missing", ["database.hostname", "database.user", "database.server.id", "topic.prefix"])
def test_what_has_no_default_is_required(missing: str) -> None:
    with pytest.raises(ConfigError, match=rf"{re.escape(missing)}: required and not set"):
        MySqlConfig.parse({k: v for k, v in BASE.items() if k != missing})


@pytest.mark.parametrize("value", ["x", 0, -1, 2**32])
def test_the_server_id_is_a_number_that_a_replica_may_have(value: Any) -> None:
    with pytest.raises(ConfigError, match=r"database\.server\.id: "):
        MySqlConfig.parse({**BASE, "database.server.id": value})


def test_documented_defaults() -> None:
    config = MySqlConfig.parse(BASE)
    assert (config.database_port, config.connect_timeout_ms, config.database_query_timeout_ms) == (
        3306,
        30_000,
        600_000,
    )
    assert (config.snapshot_lock_timeout_ms, config.snapshot_locking_mode) == (10_000, "minimal")
    assert (config.binlog_net_read_timeout, config.binlog_net_write_timeout) == (0, 0)
    assert (config.database_ssl_mode, config.bigint_unsigned_handling_mode) == ("preferred", "long")
    assert not config.include_query


@pytest.mark.parametrize("what", ["database", "table", "column"])
def test_only_one_of_an_include_and_an_exclude_list_may_be_set(what: str) -> None:
    lists = {f"{what}.include.list": "a.*", f"{what}.exclude.list": "b.*"}
    with pytest.raises(ConfigError, match=rf"{what}\.include\.list and {what}\.exclude\.list exclude each other"):
        MySqlConfig.parse({**BASE, **lists})
    for name, value in lists.items():
        MySqlConfig.parse({**BASE, name: value})


@pytest.mark.parametrize("prefix", ["a b", "a/b", "ä", ""])
def test_a_prefix_has_letters_digits_dots_hyphens_and_underscores(prefix: str) -> None:
    assert MySqlConfig.parse({**BASE, "topic.prefix": "A-b.c_9"}).topic_prefix == "A-b.c_9"
    with pytest.raises(ConfigError, match=r"topic\.prefix"):
        MySqlConfig.parse({**BASE, "topic.prefix": prefix})


@pytest.mark.parametrize(
    ("name", "value", "why"),
    [
        ("event.converting.failure.handling.mode", "null", "Valid values are: fail, warn, skip"),
        ("event.processing.failure.handling.mode", "log", "Valid values are: fail, warn, skip"),
        ("streaming.delay.ms", 5, "durable before streaming begins"),
        ("topic.naming.strategy", "a.b.C", "Java classes cannot be loaded"),
        ("transforms", "route", "belong to Kafka Connect"),
        ("snapshot.locking.mode", "minimal_percona", "Valid values are: minimal, extended, none, custom"),
        ("snapshot.locking.mode", "custom", "required by snapshot.locking.mode=custom"),
    ],
)
def test_what_is_refused_is_refused_with_its_reason(name: str, value: Any, why: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(why)) as caught:
        MySqlConfig.parse({**BASE, name: value})
    assert str(caught.value).count(name) >= 1


@pytest.mark.parametrize(("name", "value"), [("name", "inventory"), ("errors.max.retries", "0"), ("tasks.max", "1")])
def test_what_airflow_does_is_accepted_with_a_warning(name: str, value: str, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        MySqlConfig.parse({**BASE, name: value})
    assert f"Property {name} is accepted and has no effect" in caplog.text


def test_defaults_are_the_documented_ones() -> None:
    made = MySqlConfig.parse(BASE)
    assert {name: getattr(made, name) for name in DEFAULTS} == DEFAULTS


def test_documented_defaults_of_snapshots_and_signals() -> None:
    """Our own defaults are beside them: a channel more, and no watermarks where there is no table for them."""
    config = MySqlConfig.parse(BASE)
    assert (config.incremental_snapshot_chunk_size, config.incremental_snapshot_watermarking_strategy) == (
        1024, "insert_insert",
    )  # fmt: skip
    assert config.signal_data_collection is None
    assert (config.signal_enabled_channels, config.notification_enabled_channels) == (("source", "airflow"), ())
    assert config.notification_sink_topic_name is config.read_only is config.signal_kafka_topic is None
    assert (config.signal_kafka_group_id, config.signal_kafka_bootstrap_servers) == ("kafka-signal", None)
    assert (config.signal_kafka_poll_timeout_ms, config.signal_file) == (100, "file-signals.txt")
    assert (config.poll_interval_ms, config.snapshot_mode, config.skip_messages_without_change) == (
        500,
        "initial",
        False,
    )


@pytest.mark.parametrize("name", DOCUMENTED)
def test_every_documented_property_is_known(name: str) -> None:
    """It works, is accepted with the reason why it has no effect, or is refused with a reason: never merely unknown."""
    reported = ""
    try:
        MySqlConfig.parse({**BASE, name: "1"})
    except ConfigError as e:
        reported = str(e)
    assert "unknown property" not in reported
    with pytest.raises(ConfigError, match="unknown property"):
        MySqlConfig.parse({**BASE, f"no.such.{name}": "1"})


@pytest.mark.parametrize(
    ("given", "found"),
    [
        ({}, []),
        ({"skipped.operations": "none"}, []),
        ({"skipped.operations": "d"}, ["skipped.operations"]),
        ({"gtid.source.includes": "a.*"}, ["gtid.source.includes"]),
        ({"gtid.source.excludes": "a.*"}, ["gtid.source.excludes"]),
        ({"gtid.source.excludes": "a.*", "gtid.source.filter.dml.events": "false"}, []),
    ],
)
def test_what_leaves_out_changes_is_known(given: dict[str, str], found: list[str]) -> None:
    assert MySqlConfig.parse({**BASE, **given}).leaves_out() == found


PROCESSING = "event.processing.failure.handling.mode"
OLDER = "event.deserialization.failure.handling.mode"
CONVERTING = "event.converting.failure.handling.mode"
INCONSISTENT = "inconsistent.schema.handling.mode"


@pytest.mark.parametrize(
    ("properties", "row", "value", "schema"),
    [
        ({}, "fail", "fail", "fail"),
        ({PROCESSING: "Warn"}, "warn", "warn", "warn"),
        ({OLDER: "ignore"}, "skip", "skip", "skip"),
        ({OLDER: "ignore", PROCESSING: "warn"}, "warn", "warn", "warn"),
        ({CONVERTING: "warn"}, "fail", "warn", "fail"),
        ({PROCESSING: "skip", CONVERTING: "fail", INCONSISTENT: "warn"}, "skip", "fail", "warn"),
    ],
)
def test_an_event_is_handled_as_the_property_for_its_error_says_or_that_for_all(
    properties: dict[str, str], row: str, value: str, schema: str
) -> None:
    config = MySqlConfig.parse({**BASE, **properties})
    errors = PrerequisiteError("a row"), UnreadableValue("a value"), SchemaConflict("a schema")
    assert [config.find_failure_handling(error) for error in errors] == [row, value, schema]
