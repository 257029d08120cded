"""What properties of all sources do with MySQL and MariaDB: columns, names, what is refused and why."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_cdc.core.errors import ConfigError
from airflow_provider_cdc.sources.mysql.config import MySqlConfig
from tests.support.connectors import Connector, mysql_connector
from tests.support.rendered import captured, of_table, row_fields

BASE = {"topic.prefix": "p", "database.hostname": "h", "database.user": "u", "database.server.id": 1}


@pytest.fixture(params=["mariadb", "mysql97"])
def db(request: pytest.FixtureRequest) -> Iterator[Any]:
    with request.getfixturevalue(request.param).database("props") as database:
        yield database


@pytest.fixture
def made(db: Any, tmp_path: Path) -> Callable[..., Connector]:
    return lambda **properties: mysql_connector(
        db.server, tmp_path, db.server.kind, **{"database_include_list": db.name, **properties}
    )


# columns


def test_texts_can_be_hidden_or_cut_in_the_snapshot_and_in_the_stream(db: Any, made: Callable[..., Connector]) -> None:
    db.sql("CREATE TABLE t (id INT PRIMARY KEY, a VARCHAR(40), b CHAR(4), c TEXT, d VARCHAR(9))")
    db.sql("INSERT INTO t VALUES (1, 'secret', 'bbbb', 'é€x', 'seen')")
    connector = made()
    connector.properties |= {
        "column.mask.with.3.chars": rf"{db.name}\.t\.a", "column.mask.with.0.chars": f"{db.name}.t.b",
        "column.truncate.to.2.chars": rf"{db.name}\.t\.[c]",
    }  # fmt: skip
    (read,) = of_table(captured(connector), "t")
    assert read["value"]["after"] == {"id": 1, "a": "***", "b": "", "c": "é€", "d": "seen"}
    db.sql("UPDATE t SET a = 'changed', c = 'yyy'", "INSERT INTO t VALUES (2, NULL, 'x', 'z', NULL)")
    update, insert = of_table(captured(connector), "t")
    hidden = {"id": 1, "a": "***", "b": "", "d": "seen"}
    assert (update["value"]["before"], update["value"]["after"]) == ({**hidden, "c": "é€"}, {**hidden, "c": "yy"})
    assert insert["value"]["after"] == {"id": 2, "a": None, "b": "", "c": "z", "d": None}
    written = b"".join(f.read_bytes() for f in connector.folder.rglob("*") if f.is_file())
    assert b"***" in written
    assert not {b"secret", b"changed"} & set(re.findall(rb"secret|changed", written))


@pytest.mark.parametrize(
    ("name", "value", "columns"),
    [
        ("column_propagate_source_type", r"{}\.t\.(v|p)", {"v", "p"}),
        ("datatype_propagate_source_type", r"{}\.t\.VARCHAR", {"v"}),
    ],
)
def test_schemas_can_tell_the_types_that_columns_have_in_the_database(
    db: Any, made: Callable[..., Connector], name: str, value: str, columns: set[str]
) -> None:
    db.sql("CREATE TABLE t (id INT PRIMARY KEY, v VARCHAR(40), p DECIMAL(12, 2))", "INSERT INTO t VALUES (1, 'a', 1.5)")
    (read,) = of_table(captured(made(**{name: value.format(db.name)}), schemas=True), "t")
    prefix = "__debezium.source.column."
    told = {
        column: {k.removeprefix(prefix): v for k, v in f.get("parameters", {}).items() if k.startswith(prefix)}
        for column, f in row_fields(read).items()
    }
    types = {"v": {"type": "VARCHAR", "length": "40"}, "p": {"type": "DECIMAL", "length": "12", "scale": "2"}}
    assert told == {column: types[column] if column in columns else {} for column in ("id", "v", "p")}


@pytest.mark.parametrize("on", [True, False])
def test_updates_that_change_no_captured_column_can_be_left_out(
    db: Any, made: Callable[..., Connector], on: bool
) -> None:
    db.sql("CREATE TABLE t (id INT PRIMARY KEY, v INT, hidden INT)", "INSERT INTO t VALUES (1, 1, 1)")
    given = {"skip_messages_without_change": True} if on else {}
    connector = made(column_exclude_list=f"{db.name}.t.hidden", **given)
    captured(connector)
    db.sql("UPDATE t SET hidden = 2", "UPDATE t SET v = 2, hidden = 3", "UPDATE t SET v = NULL")
    found = [r["value"]["after"]["v"] for r in captured(connector)]
    assert found == ([2, None] if on else [1, 2, None])


# names


@pytest.mark.parametrize(
    ("mode", "name"), [("none", "Preis € 1"), ("avro", "Preis___1"), ("avro_unicode", "Preis_u0020_u20ac_u00201")]
)
def test_names_of_fields_can_be_made_fit_for_avro(
    db: Any, made: Callable[..., Connector], mode: str, name: str
) -> None:
    db.sql("CREATE TABLE t (id INT PRIMARY KEY, `Preis € 1` INT)", "INSERT INTO t VALUES (1, 2)")
    (read,) = of_table(captured(made(field_name_adjustment_mode=mode), schemas=True), "t")
    assert read["value"]["payload"]["after"] == {"id": 1, name: 2}
    assert list(row_fields(read)) == ["id", name]


@pytest.mark.parametrize(
    ("mode", "name"),
    [("none", "p-1.{}.o__t"), ("avro", "p_1.{}.o__t"), ("avro_unicode", "p_u002d1.{}.o_u005f_u005ft")],
)
def test_names_of_schemas_are_made_fit_for_avro_as_the_mode_says(
    db: Any, made: Callable[..., Connector], mode: str, name: str
) -> None:
    db.sql("CREATE TABLE `o$ t` (id INT PRIMARY KEY)", "INSERT INTO `o$ t` VALUES (1)")
    found = captured(made(topic_prefix="p-1", schema_name_adjustment_mode=mode), schemas=True)
    (read,) = [r for r in found if r["topic"] == f"p-1.{db.name}.o__t"]  # names of schemas are made of those of topics
    database = db.name.replace("_", "_u005f") if mode == "avro_unicode" else db.name
    assert read["key"]["schema"]["name"] == f"{name.format(database)}.Key"


def test_the_delimiter_stands_between_the_parts_of_each_topic(db: Any, made: Callable[..., Connector]) -> None:
    db.sql("CREATE TABLE t (id INT PRIMARY KEY)")
    connector = made(topic_delimiter="_", provide_transaction_metadata=True, topic_prefix="p")
    captured(connector)
    db.sql("INSERT INTO t VALUES (1)", "ALTER TABLE t ADD v INT")
    assert {r["topic"] for r in captured(connector)} == {"p", f"p_{db.name}_t", "p_transaction"}


@pytest.mark.parametrize("prefix", ["a b", "a/b", "ä", ""])
def test_a_prefix_has_letters_digits_dots_hyphens_and_underscores(prefix: str) -> None:
    assert MySqlConfig.parse({**BASE, "topic.prefix": "A-b.c_9"}).topic_prefix == "A-b.c_9"
    with pytest.raises(ConfigError, match=r"topic\.prefix"):
        MySqlConfig.parse({**BASE, "topic.prefix": prefix})


# snapshots


@pytest.mark.parametrize(("order", "tables"), [("ascending", "sml"), ("descending", "lms"), ("disabled", "lms")])
def test_tables_are_read_in_the_order_of_their_sizes_where_that_is_asked_for(
    db: Any, made: Callable[..., Connector], order: str, tables: str
) -> None:
    for name, rows in (("l", 900), ("m", 90), ("s", 9)):
        db.sql(f"CREATE TABLE {name} (id INT PRIMARY KEY)")
        db.sql(f"INSERT INTO {name} VALUES " + ", ".join(f"({i})" for i in range(rows)), f"ANALYZE TABLE {name}")
    found = captured(made(snapshot_tables_order_by_row_count=order, snapshot_max_threads=1))
    assert "".join(dict.fromkeys(r["topic"][-1] for r in found if r["topic"] != "test")) == tables


# what has no effect here, or would have one that nobody wants


@pytest.mark.parametrize(
    ("name", "value", "why"),
    [
        ("column.mask.hash.v2.SHA-256.with.salt.CzQM", "d.t.c", "the salt"),
        ("event.converting.failure.handling.mode", "warn", "always an error"),
        ("event.processing.failure.handling.mode", "warn", "always an error"),
        ("inconsistent.schema.handling.mode", "warn", "looked up in the catalog"),
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


def test_defaults_are_the_documented_ones() -> None:
    made = MySqlConfig.parse(BASE)
    assert {name: getattr(made, name) for name in DEFAULTS} == DEFAULTS


def test_documented_defaults_of_snapshots_and_signals() -> None:
    """Those of one's own beside them: a channel more, and no watermarks where there is no table for them."""
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
"""The required and the advanced properties of the document (Debezium MySQL connector, "Connector properties")."""


@pytest.mark.parametrize("name", DOCUMENTED)
def test_every_documented_property_is_known(name: str) -> None:
    """It works, is accepted with the reason why it has no effect, or is refused with a reason: never merely unknown."""
    told = ""
    try:
        MySqlConfig.parse({**BASE, name: "1"})
    except ConfigError as e:
        told = str(e)
    assert "unknown property" not in told
    with pytest.raises(ConfigError, match="unknown property"):
        MySqlConfig.parse({**BASE, f"no.such.{name}": "1"})
