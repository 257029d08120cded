"""The properties that every source has, by their documented names.

A source subclasses :class:`ConnectorConfig` with its own, or
:class:`~airflow_provider_cdc.core.config.table_source_config.TableConfig` if it has tables with columns.

This module is imported at DAG parse: it must stay light.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Self

from pydantic import Field, PrivateAttr, SecretStr, model_validator

from airflow_provider_cdc.core.config import unsupported_connect_properties as config_kafka_connect
from airflow_provider_cdc.core.config.base_configuration import CONSUMER_OF_CONNECTION, PropertyEffect
from airflow_provider_cdc.core.config.custom_mode_check import refuse_unknown
from airflow_provider_cdc.core.config.property_enums import (
    CHUNK_BYTES,
    KEPT_MS,
    ChannelTypes,
    Kept,
    LostPositionMode,
    NameAdjustment,
    Names,
    Operations,
    Patterns,
    RowCountOrder,
    SnapshotMode,
    TableLimitAction,
    WatermarkStrategy,
)
from airflow_provider_cdc.core.config.source_config_interface import ColumnSelection, DefaultSourceConfig

if TYPE_CHECKING:
    from airflow_provider_cdc.core.model.table_schema import TableId

log = logging.getLogger(__name__)

DEPRECATED_SNAPSHOT_MODES = {"schema_only": "no_data", "schema_only_recovery": "recovery"}


class ConnectorConfig(DefaultSourceConfig):
    """Properties that every source has. Defaults are the documented ones unless the description says otherwise."""

    topic_prefix: str = Field(
        alias="topic.prefix",
        pattern=r"^[A-Za-z0-9._-]+$",
        description="Logical name of the source; first part of every topic. Never change it after the first run.",
    )
    topic_delimiter: str = Field(
        ".", alias="topic.delimiter", description="Between the parts of a topic's name.", pattern=r"^[._-]$"
    )
    topic_transaction: str = Field(
        "transaction",
        alias="topic.transaction",
        pattern=r"^[A-Za-z0-9._-]+$",
        description="Last part of the name of the topic with transaction records.",
    )
    skipped_operations: Operations = Field(
        frozenset(),
        alias="skipped.operations",
        description="Operations left out of the stream. Debezium's default is 't'; here it is 'none', because a table "
        "that was truncated at the source would otherwise keep its rows in the target without a word.",
    )
    tombstones_on_delete: bool = Field(
        True,
        alias="tombstones.on.delete",
        description="In the Debezium JSON form, a delete is followed by a record without a value.",
    )
    schema_name_adjustment_mode: NameAdjustment = Field(
        NameAdjustment.AVRO,
        alias="schema.name.adjustment.mode",
        description="In the Debezium JSON form, names of schemas with characters that Avro does not allow: with _ in their place, "
        "with _u and their code (avro_unicode), or as they are (none, Debezium's default).",
    )
    field_name_adjustment_mode: NameAdjustment = Field(
        NameAdjustment.NONE, alias="field.name.adjustment.mode", description="The same for names of columns."
    )
    provide_transaction_metadata: bool = Field(
        False,
        alias="provide.transaction.metadata",
        description="Events have their transaction and their number in it; BEGIN and END records in the Debezium JSON form.",
    )
    snapshot_mode: SnapshotMode = Field(
        SnapshotMode.INITIAL,
        alias="snapshot.mode",
        description="When whole tables are read; see docs/operations.md for reading them again. schema_only and "
        "schema_only_recovery are other names of no_data and recovery.",
    )
    snapshot_mode_configuration_based_snapshot_data: bool = Field(
        False,
        alias="snapshot.mode.configuration.based.snapshot.data",
        description="With snapshot.mode=configuration_based, as the next four: the rows of all tables are read, in every run.",
    )
    snapshot_mode_configuration_based_snapshot_schema: bool = Field(
        False,
        alias="snapshot.mode.configuration.based.snapshot.schema",
        description="A new connector reads the schemas of its tables and streams from now; otherwise, and without rows, from "
        "the oldest position there is.",
    )
    snapshot_mode_configuration_based_start_stream: bool = Field(
        False,
        alias="snapshot.mode.configuration.based.start.stream",
        description="A run streams, after the snapshot where there is one.",
    )
    snapshot_mode_configuration_based_snapshot_on_schema_error: bool = Field(
        False,
        alias="snapshot.mode.configuration.based.snapshot.on.schema.error",
        description="A lost schema history is rebuilt from the present table schemas, as with recovery.",
    )
    snapshot_mode_configuration_based_snapshot_on_data_error: bool = Field(
        False,
        alias="snapshot.mode.configuration.based.snapshot.on.data.error",
        description="When the log does not hold the position any more, all tables are read again, as with when_needed.",
    )
    snapshot_mode_custom_name: str | None = Field(
        None,
        alias="snapshot.mode.custom.name",
        description="With snapshot.mode=custom: name of an entry point, which is asked in each run what to read. See "
        "docs/operations.md.",
    )
    snapshot_include_collection_list: Patterns = Field(
        (),
        alias="snapshot.include.collection.list",
        description="Of the captured tables, those whose rows a snapshot reads; by default all.",
    )
    snapshot_max_threads: int = Field(
        4, alias="snapshot.max.threads", ge=1, le=64, description="Parallel readers on one snapshot (Debezium: 1)."
    )
    snapshot_fetch_size: int = Field(
        10_240,
        alias="snapshot.fetch.size",
        description="Rows that are asked for at a time, where the database's protocol knows such a number.",
        ge=1,
    )
    snapshot_tables_order_by_row_count: RowCountOrder = Field(
        RowCountOrder.DISABLED,
        alias="snapshot.tables.order.by.row.count",
        description="Whether a snapshot begins with small tables, or with large ones, as the database estimates them.",
    )
    snapshot_delay_ms: int = Field(
        0, alias="snapshot.delay.ms", description="Wait so long before a snapshot begins.", ge=0
    )
    signal_data_collection: str | None = Field(
        None,
        alias="signal.data.collection",
        description="Signal table of the source, as database.table: rows inserted there are signals, and watermarks are written there.",
    )
    signal_enabled_channels: Names = Field(
        ("source", "airflow"),
        alias="signal.enabled.channels",
        description="Where signals come from: source (the signal table), airflow (form, REST, CLI, operators), file, kafka, and "
        "those of one's own (entry points).",
    )
    signal_allowed_types: ChannelTypes = Field(
        {},
        alias="signal.allowed.types",
        description="Ours. What a channel may ask for: channel:type,type; several separated by semicolons. The word "
        "additional-conditions allows conditions and SELECTs of the sender's own, * allows everything. A channel that is not named "
        "may ask for everything (airflow), or for all but moving the position and SQL of its own (all others).",
    )
    signal_poll_interval_ms: int = Field(
        1000, alias="signal.poll.interval.ms", description="How often channels are asked for signals.", ge=50
    )
    signal_file: str = Field(
        "file-signals.txt", alias="signal.file", description="File of the channel file: one JSON object per line."
    )
    signal_kafka_topic: str | None = Field(
        None,
        alias="signal.kafka.topic",
        description="Topic of the channel kafka; by default the prefix with -signal behind it.",
    )
    signal_kafka_group_id: str = Field(
        "kafka-signal", alias="signal.kafka.groupId", description="Consumer group of the channel kafka."
    )
    signal_kafka_bootstrap_servers: str | None = Field(
        None, alias="signal.kafka.bootstrap.servers", description="Brokers of the channel kafka."
    )
    signal_kafka_poll_timeout_ms: int = Field(
        100,
        alias="signal.kafka.poll.timeout.ms",
        description="How long the first look of the channel kafka waits for a message; later ones take what has come.",
        ge=0,
    )
    signal_consumer: dict[str, SecretStr] = Field(
        {},
        alias="signal.consumer.*",
        description="What follows the prefix is a property of librdkafka, for the consumer of the channel kafka, such as "
        "signal.consumer.security.protocol. Passwords and keys come from the Airflow connection.",
    )
    notification_enabled_channels: Names = Field(
        (),
        alias="notification.enabled.channels",
        description="Where notifications go besides the state tables: log, sink (the change log, as records of "
        "notification.sink.topic.name), and those of one's own (entry points).",
    )
    notification_sink_topic_name: str | None = Field(
        None,
        alias="notification.sink.topic.name",
        pattern=r"^[A-Za-z0-9._-]+$",
        description="Name of the topic of the notification channel sink.",
    )
    incremental_snapshot_chunk_size: int = Field(
        1024, alias="incremental.snapshot.chunk.size", description="Rows that are read at a time, at most.", ge=1
    )
    incremental_snapshot_chunk_max_bytes: int = Field(
        CHUNK_BYTES,
        alias="incremental.snapshot.chunk.max.bytes",
        description="Ours. A chunk ends when its rows take so much memory, however few they are; four times as much may wait "
        "together.",
        ge=1024,
    )
    incremental_snapshot_chunk_target_ms: int = Field(
        0,
        alias="incremental.snapshot.chunk.target.ms",
        description="Ours. Chunks grow and shrink so that reading one takes about so long; 0 = all have the same size.",
        ge=0,
    )
    incremental_snapshot_watermarking_strategy: WatermarkStrategy = Field(
        WatermarkStrategy.INSERT_INSERT,
        alias="incremental.snapshot.watermarking.strategy",
        description="Whether a second row of the signal table ends a window, or the deletion of the first one.",
    )
    read_only: bool | None = Field(
        None,
        alias="read.only",
        description="Whether incremental snapshots write nothing to the source and use positions of the log as watermarks. By "
        "default they do where signal.data.collection is not set.",
    )
    position_lost_mode: LostPositionMode = Field(
        LostPositionMode.FAIL,
        alias="position.lost.mode",
        description="Ours. When the log does not hold the offset's position any more: fail and say what is lost, read all tables "
        "again (as snapshot.mode=when_needed), or go on from the oldest position and read them beside the stream (incremental).",
    )
    guardrail_collections_max: int = Field(
        0,
        alias="guardrail.collections.max",
        description="How many tables may be captured; 0 = any number. Looked at when a run begins.",
        ge=0,
    )
    guardrail_collections_limit_action: TableLimitAction = Field(
        TableLimitAction.WARN,
        alias="guardrail.collections.limit.action",
        description="What happens where there are more: a warning, or an error before anything is read.",
    )
    poll_interval_ms: int = Field(
        500, alias="poll.interval.ms", description="How often a source that has nothing new says so.", ge=1
    )
    batch_max_rows: int = Field(1_000_000, alias="batch.max.rows", ge=1, description="Ours. Events per batch.")
    batch_max_bytes: int = Field(
        268_435_456, alias="batch.max.bytes", ge=1_048_576, description="Ours. Bytes per batch."
    )
    batch_max_ms: int = Field(
        60_000, alias="batch.max.ms", ge=100, description="Ours. How long an event may wait for its batch to be closed."
    )
    changelog_retention_ms: int = Field(
        604_800_000,
        alias="changelog.retention.ms",
        ge=-1,
        description="Ours. How long a batch of the change log stays after all targets have applied it; -1 = for ever. Older ones are removed by maintenance.",
    )
    changelog_retention_bytes: int = Field(
        -1,
        alias="changelog.retention.bytes",
        ge=-1,
        description="Ours. Size of the change log beyond which batches that all targets have applied are removed before that; -1 = any size.",
    )
    state_retention_offset_history_ms: Kept = Field(
        KEPT_MS,
        alias="state.retention.offset.history.ms",
        description="Ours. How long offsets that the connector has had can be gone back to; -1 = for good. Removed by airflow cdc maintain.",
    )
    state_retention_batches_ms: Kept = Field(
        KEPT_MS,
        alias="state.retention.batches.ms",
        description="Ours. How long committed batches are listed; the change log itself is not touched; -1 = for good. Removed by airflow cdc maintain.",
    )
    state_retention_notifications_ms: Kept = Field(
        KEPT_MS,
        alias="state.retention.notifications.ms",
        description="Ours. How long notifications are listed; -1 = for good. Removed by airflow cdc maintain.",
    )
    state_retention_signals_ms: Kept = Field(
        KEPT_MS,
        alias="state.retention.signals.ms",
        description="Ours. How long signals are listed after they have ended; -1 = for good. Removed by airflow cdc maintain.",
    )
    heartbeat_interval_ms: int = Field(
        0,
        alias="heartbeat.interval.ms",
        ge=0,
        description="How often, and when a run begins to stream, the offset is made durable though nothing was captured; 0 = as batch.max.ms says, and not more often than every 10 s.",
    )

    CONNECTION_ONLY: ClassVar[tuple[str, ...]] = CONSUMER_OF_CONNECTION

    TABLES: ClassVar[tuple[str, str]] = ("table.include.list", "table.exclude.list")
    """What the lists of captured tables are called, for messages and for runs that capture fewer tables."""

    IGNORED: ClassVar[Mapping[str, str]] = {
        "name": "the connector's name is given to the connector definition",
        "connector.class": "the source is chosen by the connector definition",
        "tasks.max": "a connector is always one capture task",
        "max.batch.size": "batches are bounded by batch.max.rows, batch.max.bytes and batch.max.ms",
        "max.queue.size": "there is no event queue; memory is bounded by block sizes",
        "max.queue.size.in.bytes": "there is no event queue; memory is bounded by block sizes",
        "errors.max.retries": "tasks are tried again as Airflow's retries say",
        "errors.retry.delay.*": "tasks are tried again as Airflow's retry_delay says",
        "retriable.restart.connector.wait.ms": "tasks are tried again as Airflow's retry_delay says",
        "topic.cache.size": "topic names need no cache here",
        "incremental.snapshot.allow.schema.changes": "a chunk that was read under another structure is always read again",
        "topic.heartbeat.prefix": "a heartbeat makes the offset durable; it is no record",
        **config_kafka_connect.ACCEPTED,
    }
    NOT_SUPPORTED: ClassVar[Mapping[str, str]] = {
        "topic.naming.strategy": "topics are named as the documents say; Java classes cannot be loaded here",
        "custom.sanitize.pattern": "passwords and secrets are never shown, and a pattern could only show some",
        **config_kafka_connect.REFUSED,
    }

    LISTS: ClassVar[Mapping[str, PropertyEffect]] = {
        "signal.data.collection": PropertyEffect.TABLES,  # the signal table is not captured
        "snapshot.include.collection.list": PropertyEffect.ROWS,
        "skipped.operations": PropertyEffect.CHANGES,
    }

    _connector: str = PrivateAttr("")

    def of_connector(self, name: str) -> Self:
        """Return the same, as the configuration of the connector of this name."""
        config = self.model_copy()
        config._connector = name
        return config

    @property
    def connector_name(self) -> str:
        """For the commands in errors, see :mod:`airflow_provider_cdc.core.remedy_commands`. Where no connector is known, the name of its topics."""
        return self._connector or self.topic_prefix

    @classmethod
    def of_the_source(cls, properties: Mapping[str, Any]) -> dict[str, Any]:
        """Return the connector's properties that may matter when its database is asked for the end of its log.

        These are without those that every source has, the lists of what is captured, and what a check of a connection does with
        a stand-in for.
        """
        others = cls.list_shared_properties() | cls.list_capture_properties().keys() | cls.FORM.stand_ins.keys()
        prefixes = tuple(name[:-1] for name in others if name.endswith(".*"))
        return {
            name: value for name, value in properties.items() if name not in others and not name.startswith(prefixes)
        }

    @classmethod
    def list_shared_properties(cls) -> set[str]:
        """List the properties that sources have in common, by their documented names."""
        return {str(f.alias) for f in ConnectorConfig.model_fields.values()}

    @model_validator(mode="before")
    @classmethod
    def _deprecated_names(cls, data: Any) -> Any:
        if isinstance(data, dict) and (new := DEPRECATED_SNAPSHOT_MODES.get(str(data.get("snapshot.mode")))):
            log.warning("snapshot.mode=%s is an older name of %s.", data["snapshot.mode"], new)
            data = {**data, "snapshot.mode": new}
        return data

    @model_validator(mode="after")
    def _exclusive_lists(self) -> Self:
        for include, exclude in self.exclusive_pairs():
            if getattr(self, include) and getattr(self, exclude):
                a, b = (str(type(self).model_fields[n].alias) for n in (include, exclude))
                raise ValueError(f"{a} and {b} exclude each other: set only one of them")
        return self

    @model_validator(mode="after")
    def _channels_have_what_they_need(self) -> Self:
        if unknown := sorted(set(self.signal_allowed_types) - set(self.signal_enabled_channels)):
            raise ValueError(f"signal.allowed.types: {unknown[0]!r} is not among signal.enabled.channels")
        if "kafka" in self.signal_enabled_channels and not self.signal_kafka_bootstrap_servers:
            raise ValueError("signal.kafka.bootstrap.servers: required by signal.enabled.channels=kafka, and not set")
        if "sink" in self.notification_enabled_channels and not self.notification_sink_topic_name:
            raise ValueError(
                "notification.sink.topic.name: required by notification.enabled.channels=sink, and not set"
            )
        return self

    @model_validator(mode="after")
    def _snapshots_of_ones_own(self) -> Self:
        refuse_unknown(self)
        return self

    @model_validator(mode="after")
    def _does_something(self) -> Self:
        wanted = ("snapshot_data", "snapshot_schema", "start_stream")
        names = [f"snapshot_mode_configuration_based_{name}" for name in wanted]
        if self.snapshot_mode is SnapshotMode.CONFIGURATION_BASED and not any(getattr(self, name) for name in names):
            aliases = ", ".join(str(type(self).model_fields[name].alias) for name in names)
            raise ValueError(
                f"snapshot.mode: with configuration_based, one of {aliases} has to be true: a run would do nothing"
            )
        return self

    def build_dataset_name(self, table: TableId) -> tuple[str, str]:
        """Return namespace and name of a table, as lineage tools know it (OpenLineage, "Naming").

        For a server, these are ``scheme://host:port`` and the dotted name. A source whose database has a name there says so;
        without it, the connector's topics tell its tables from others.
        """
        return f"cdc://{self.topic_prefix}", table.full_name


NO_CONNECTOR = "connection-test"
"""The ``topic.prefix`` of what is asked of a connection before there is a connector."""


__all__ = ["DEPRECATED_SNAPSHOT_MODES", "NO_CONNECTOR", "ColumnSelection", "ConnectorConfig"]
