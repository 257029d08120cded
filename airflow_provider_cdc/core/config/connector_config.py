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
    RETENTION_MS,
    ChannelTypes,
    FailureHandling,
    HandlingMode,
    LostPositionMode,
    MetricTags,
    NameAdjustment,
    Names,
    Operations,
    OptionalHandlingMode,
    Patterns,
    RetentionMs,
    RowCountOrder,
    SnapshotEngine,
    SnapshotMode,
    TableLimitAction,
    WatermarkStrategy,
)
from airflow_provider_cdc.core.config.source_config_interface import ColumnSelection, DefaultSourceConfig
from airflow_provider_cdc.core.errors import TerminalError, UnreadableValue

if TYPE_CHECKING:
    from airflow_provider_cdc.core.model.table_schema import TableId

log = logging.getLogger(__name__)

DEPRECATED_SNAPSHOT_MODES = {"schema_only": "no_data", "schema_only_recovery": "recovery"}


class ConnectorConfig(DefaultSourceConfig):
    """Properties that every source has. Defaults are the documented ones unless the description says otherwise."""

    topic_prefix: str = Field(
        alias="topic.prefix",
        pattern=r"^[A-Za-z0-9._-]+$",
        description="Logical name of the source and first part of every topic name. Do not change it after the first run.",
    )
    topic_delimiter: str = Field(
        ".", alias="topic.delimiter", description="Separator between the parts of a topic name.", pattern=r"^[._-]$"
    )
    topic_transaction: str = Field(
        "transaction",
        alias="topic.transaction",
        pattern=r"^[A-Za-z0-9._-]+$",
        description="Last part of the name of the topic that holds transaction records.",
    )
    skipped_operations: Operations = Field(
        frozenset(),
        alias="skipped.operations",
        description="Operations to leave out of the stream. Debezium's default is 't'. The default here is 'none', because "
        "otherwise a table that is truncated at the source silently keeps its rows in the target.",
    )
    tombstones_on_delete: bool = Field(
        True,
        alias="tombstones.on.delete",
        description="In the Debezium JSON form, a tombstone (a record without a value) follows each delete.",
    )
    schema_name_adjustment_mode: NameAdjustment = Field(
        NameAdjustment.AVRO,
        alias="schema.name.adjustment.mode",
        description="In the Debezium JSON form, how to write characters in schema names that Avro does not allow: as _ (avro), "
        "as _u and their code (avro_unicode), or unchanged (none, Debezium's default).",
    )
    field_name_adjustment_mode: NameAdjustment = Field(
        NameAdjustment.NONE,
        alias="field.name.adjustment.mode",
        description="The same as schema.name.adjustment.mode, for column names.",
    )
    provide_transaction_metadata: bool = Field(
        False,
        alias="provide.transaction.metadata",
        description="Add to each event its transaction and its number in the transaction. The Debezium JSON form also gets BEGIN and END records.",
    )
    snapshot_mode: SnapshotMode = Field(
        SnapshotMode.INITIAL,
        alias="snapshot.mode",
        description="When to take a snapshot of whole tables. To snapshot tables again, see docs/fix/reading-again.md. schema_only and "
        "schema_only_recovery are older names of no_data and recovery.",
    )
    snapshot_mode_configuration_based_snapshot_data: bool = Field(
        False,
        alias="snapshot.mode.configuration.based.snapshot.data",
        description="Read the rows of all tables in every run. This property and the next four apply with snapshot.mode=configuration_based.",
    )
    snapshot_mode_configuration_based_snapshot_schema: bool = Field(
        False,
        alias="snapshot.mode.configuration.based.snapshot.schema",
        description="A new connector reads the schemas of its tables and streams from the current position. If this is false and no rows are read, "
        "it streams from the oldest position in the log.",
    )
    snapshot_mode_configuration_based_start_stream: bool = Field(
        False,
        alias="snapshot.mode.configuration.based.start.stream",
        description="A run streams the log, after the snapshot if it takes one.",
    )
    snapshot_mode_configuration_based_snapshot_on_schema_error: bool = Field(
        False,
        alias="snapshot.mode.configuration.based.snapshot.on.schema.error",
        description="Rebuild a lost schema history from the current table schemas, as with snapshot.mode=recovery.",
    )
    snapshot_mode_configuration_based_snapshot_on_data_error: bool = Field(
        False,
        alias="snapshot.mode.configuration.based.snapshot.on.data.error",
        description="Snapshot all tables again when the log no longer contains the position, as with snapshot.mode=when_needed.",
    )
    snapshot_mode_custom_name: str | None = Field(
        None,
        alias="snapshot.mode.custom.name",
        description="With snapshot.mode=custom: name of the entry point that decides in each run which rows to read. See "
        "docs/reference/custom-snapshots.md.",
    )
    snapshot_include_collection_list: Patterns = Field(
        (),
        alias="snapshot.include.collection.list",
        description="Captured tables that a snapshot includes. By default, a snapshot includes all captured tables.",
    )
    snapshot_max_threads: int = Field(
        4,
        alias="snapshot.max.threads",
        ge=1,
        le=64,
        description="Number of parallel readers of one snapshot (Debezium's default is 1).",
    )
    snapshot_engine: SnapshotEngine = Field(
        SnapshotEngine.EMBEDDED,
        alias="snapshot.engine",
        description="Not in Debezium. The processes that read the tables of initial and blocking snapshots: embedded, threads of the capture; spark, "
        "executors of a Spark job, snapshot.max.threads of them.",
    )
    snapshot_max_rows_per_second: int = Field(
        0,
        alias="snapshot.max.rows.per.second",
        ge=0,
        description="Not in Debezium. Rows that all readers of a snapshot together read in a second, on average; incremental snapshots, too. "
        "0: no limit.",
    )
    snapshot_fetch_size: int = Field(
        10_240,
        alias="snapshot.fetch.size",
        description="Number of rows to fetch at a time, if the database's protocol supports a fetch size.",
        ge=1,
    )
    snapshot_tables_order_by_row_count: RowCountOrder = Field(
        RowCountOrder.DISABLED,
        alias="snapshot.tables.order.by.row.count",
        description="Whether a snapshot begins with the smallest or the largest tables, by the database's estimate of their row counts.",
    )
    snapshot_delay_ms: int = Field(
        0, alias="snapshot.delay.ms", description="How long to wait before a snapshot begins.", ge=0
    )
    signal_data_collection: str | None = Field(
        None,
        alias="signal.data.collection",
        description="Signal table of the source, as database.table. Rows inserted there are signals, and the connector writes watermarks there.",
    )
    signal_enabled_channels: Names = Field(
        ("source", "airflow"),
        alias="signal.enabled.channels",
        description="Channels that accept signals: source (the signal table), airflow (form, REST, CLI, operators), file, kafka, and "
        "custom channels (entry points).",
    )
    signal_allowed_types: ChannelTypes = Field(
        {},
        alias="signal.allowed.types",
        description="Not in Debezium. Signal types that each channel may send, as channel:type,type. Separate several channels by semicolons. The word "
        "additional-conditions allows conditions and SELECT statements from the sender, replace allows to empty tables in the targets, and * allows "
        "everything. Of the channels not listed, airflow may send everything, and all others everything except position changes, "
        "schema-changes, SQL and replace.",
    )
    signal_limit_per_hour: int = Field(
        1000,
        alias="signal.limit.per.hour",
        ge=1,
        description="Not in Debezium. Signals that the connector takes from each of the channels source, file, kafka and custom ones in an hour. Further ones are "
        "refused; of their data only the first 2,000 characters are stored.",
    )
    signal_limit_waiting: int = Field(
        1000,
        alias="signal.limit.waiting",
        ge=1,
        description="Not in Debezium. Signals of each of these channels that may wait for their end. Further ones are refused.",
    )
    signal_poll_interval_ms: int = Field(
        1000, alias="signal.poll.interval.ms", description="How often to check the channels for signals.", ge=50
    )
    signal_file: str = Field(
        "file-signals.txt",
        alias="signal.file",
        description="Path of the signal file of the file channel, with one JSON object per line.",
    )
    signal_kafka_topic: str | None = Field(
        None,
        alias="signal.kafka.topic",
        description="Topic of the kafka channel. The default is the topic prefix followed by -signal.",
    )
    signal_kafka_group_id: str = Field(
        "kafka-signal", alias="signal.kafka.groupId", description="Consumer group of the kafka channel."
    )
    signal_kafka_bootstrap_servers: str | None = Field(
        None, alias="signal.kafka.bootstrap.servers", description="Brokers of the kafka channel."
    )
    signal_kafka_poll_timeout_ms: int = Field(
        100,
        alias="signal.kafka.poll.timeout.ms",
        description="How long the first poll of the kafka channel waits for a message. Later polls return only messages that have already arrived.",
        ge=0,
    )
    signal_consumer: dict[str, SecretStr] = Field(
        {},
        alias="signal.consumer.*",
        description="Properties of librdkafka for the consumer of the kafka channel, after the prefix, such as "
        "signal.consumer.security.protocol. Passwords and keys come from the Airflow connection.",
    )
    notification_enabled_channels: Names = Field(
        (),
        alias="notification.enabled.channels",
        description="Channels that receive notifications in addition to the state tables: log, sink (the change log, as records of "
        "notification.sink.topic.name), and custom channels (entry points).",
    )
    notification_sink_topic_name: str | None = Field(
        None,
        alias="notification.sink.topic.name",
        pattern=r"^[A-Za-z0-9._-]+$",
        description="Topic of the sink notification channel.",
    )
    incremental_snapshot_chunk_size: int = Field(
        1024, alias="incremental.snapshot.chunk.size", description="Maximum number of rows in a chunk.", ge=1
    )
    incremental_snapshot_chunk_max_bytes: int = Field(
        CHUNK_BYTES,
        alias="incremental.snapshot.chunk.max.bytes",
        description="Not in Debezium. Maximum memory of the rows of a chunk: a chunk ends when its rows reach this size, however few they are. Chunks that "
        "wait together may use four times as much.",
        ge=1024,
    )
    incremental_snapshot_chunk_target_ms: int = Field(
        0,
        alias="incremental.snapshot.chunk.target.ms",
        description="Not in Debezium. Target duration of one chunk read: chunks grow and shrink to match it. 0 = all chunks have the same size.",
        ge=0,
    )
    incremental_snapshot_watermarking_strategy: WatermarkStrategy = Field(
        WatermarkStrategy.INSERT_INSERT,
        alias="incremental.snapshot.watermarking.strategy",
        description="Whether a window closes with a second row in the signal table, or with the deletion of the first row.",
    )
    read_only: bool | None = Field(
        None,
        alias="read.only",
        description="Whether incremental snapshots write nothing to the source and use positions of the log as watermarks. The "
        "default is true if signal.data.collection is not set.",
    )
    position_lost_mode: LostPositionMode = Field(
        LostPositionMode.FAIL,
        alias="position.lost.mode",
        description="Not in Debezium. Action when the log no longer contains the position of the offset: fail and report the loss (fail), snapshot all tables "
        "again as with snapshot.mode=when_needed (snapshot), or resume at the oldest position and read the tables by an incremental "
        "snapshot (incremental).",
    )
    event_processing_failure_handling_mode: HandlingMode = Field(
        FailureHandling.FAIL,
        alias="event.processing.failure.handling.mode",
        description="Action after an event of the log that cannot be processed: stop its table, and fail at the end of each run (fail); set the event aside "
        "with a warning, and read its table again (warn); the same without a warning in the task's log (skip, or ignore). Debezium skips the event and "
        "does not read the table. An event whose table is not known always ends the run.",
    )
    event_converting_failure_handling_mode: OptionalHandlingMode = Field(
        None,
        alias="event.converting.failure.handling.mode",
        description="The same for an event with a value that cannot be converted. The default is the value of event.processing.failure.handling.mode. "
        "Debezium's default is 'warn', which writes null for the value: that would be a wrong value, and no mode writes it here.",
    )
    guardrail_collections_max: int = Field(
        0,
        alias="guardrail.collections.max",
        description="Maximum number of captured tables; 0 = any number. Checked when a run begins.",
        ge=0,
    )
    guardrail_collections_limit_action: TableLimitAction = Field(
        TableLimitAction.WARN,
        alias="guardrail.collections.limit.action",
        description="Action when more tables are captured: log a warning (warn), or fail before anything is read (fail).",
    )
    poll_interval_ms: int = Field(
        500, alias="poll.interval.ms", description="How often to check an idle source for new events.", ge=1
    )
    batch_max_rows: int = Field(
        1_000_000, alias="batch.max.rows", ge=1, description="Not in Debezium. Maximum number of events in a batch."
    )
    batch_max_bytes: int = Field(
        268_435_456,
        alias="batch.max.bytes",
        ge=1_048_576,
        description="Not in Debezium. Maximum size of a batch in bytes.",
    )
    batch_max_ms: int = Field(
        60_000,
        alias="batch.max.ms",
        ge=100,
        description="Not in Debezium. Maximum time that an event waits for its batch to be closed.",
    )
    changelog_retention_ms: int = Field(
        604_800_000,
        alias="changelog.retention.ms",
        ge=-1,
        description="Not in Debezium. How long to keep a batch in the change log after all targets have applied it; -1 = forever. Maintenance deletes older batches.",
    )
    changelog_retention_bytes: int = Field(
        -1,
        alias="changelog.retention.bytes",
        ge=-1,
        description="Not in Debezium. Maximum size of the change log: beyond it, batches that all targets have applied are deleted before changelog.retention.ms; -1 = any size.",
    )
    state_retention_offset_history_ms: RetentionMs = Field(
        RETENTION_MS,
        alias="state.retention.offset.history.ms",
        description="Not in Debezium. How long earlier offsets of the connector can be restored; -1 = forever. `airflow cdc maintain` deletes older ones.",
    )
    state_retention_batches_ms: RetentionMs = Field(
        RETENTION_MS,
        alias="state.retention.batches.ms",
        description="Not in Debezium. How long to list committed batches; -1 = forever. `airflow cdc maintain` deletes older entries and does not change the change log itself.",
    )
    state_retention_notifications_ms: RetentionMs = Field(
        RETENTION_MS,
        alias="state.retention.notifications.ms",
        description="Not in Debezium. How long to list notifications; -1 = forever. `airflow cdc maintain` deletes older ones.",
    )
    state_retention_signals_ms: RetentionMs = Field(
        RETENTION_MS,
        alias="state.retention.signals.ms",
        description="Not in Debezium. How long to list signals after they have ended; -1 = forever. `airflow cdc maintain` deletes older ones.",
    )
    state_retention_signals_bytes: int = Field(
        100_000_000,
        alias="state.retention.signals.bytes",
        ge=-1,
        description="Not in Debezium. Maximum size of the data and messages of ended signals: beyond it, `airflow cdc maintain` deletes the oldest ones before "
        "state.retention.signals.ms; -1 = any size.",
    )
    custom_metric_tags: MetricTags = Field(
        {},
        alias="custom.metric.tags",
        description="Further tags of all metrics of the connector, as name=value,name=value. Names of metrics are the same for all connectors.",
    )
    heartbeat_interval_ms: int = Field(
        0,
        alias="heartbeat.interval.ms",
        ge=0,
        description="How often to commit the offset while no changes are captured, beginning when a run starts to stream; 0 = every batch.max.ms, but at most every 10 s.",
    )

    CONNECTION_ONLY: ClassVar[tuple[str, ...]] = CONSUMER_OF_CONNECTION

    TABLES: ClassVar[tuple[str, str]] = ("table.include.list", "table.exclude.list")
    """The names of the lists of captured tables, for messages and for runs that capture fewer tables."""

    IGNORED: ClassVar[Mapping[str, str]] = {
        "name": "the connector definition sets the connector's name",
        "connector.class": "the connector definition selects the source",
        "tasks.max": "a connector always has one capture task",
        "max.batch.size": "batch.max.rows, batch.max.bytes and batch.max.ms limit batches",
        "max.queue.size": "capture uses no event queue; block sizes limit the memory",
        "max.queue.size.in.bytes": "capture uses no event queue; block sizes limit the memory",
        "errors.max.retries": "Airflow retries tasks, as its retries setting specifies",
        "errors.retry.delay.*": "Airflow retries tasks, as its retry_delay setting specifies",
        "retriable.restart.connector.wait.ms": "Airflow retries tasks, as its retry_delay setting specifies",
        "topic.cache.size": "capture needs no cache of topic names",
        "incremental.snapshot.allow.schema.changes": "a chunk that was read with another table structure is always read again",
        "topic.heartbeat.prefix": "a heartbeat commits the offset and writes no record",
        **config_kafka_connect.ACCEPTED,
    }
    NOT_SUPPORTED: ClassVar[Mapping[str, str]] = {
        "topic.naming.strategy": "topic names always have the documented form; Java classes cannot be loaded",
        "custom.sanitize.pattern": "passwords and secrets are always hidden; a pattern could only reveal some of them",
        **config_kafka_connect.REFUSED,
    }
    HARMLESS: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "topic.naming.strategy": (
            "io.debezium.schema.SchemaTopicNamingStrategy",
            "io.debezium.schema.DefaultTopicNamingStrategy",
        ),
        "custom.sanitize.pattern": (
            r".*secret$|.*password$|.*sasl\.jaas\.config$|.*basic\.auth\.user\.info|.*registry\.auth\.client-secret",
        ),
        **config_kafka_connect.HARMLESS,
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

    def find_failure_handling(self, error: TerminalError) -> FailureHandling:
        """Find the handling of an event of the log that has caused an error."""
        if isinstance(error, UnreadableValue) and self.event_converting_failure_handling_mode is not None:
            return self.event_converting_failure_handling_mode
        return self.event_processing_failure_handling_mode

    @property
    def connector_name(self) -> str:
        """For the commands in errors, see :mod:`airflow_provider_cdc.core.remedy_commands`. Where no connector is known, the name of its topics."""
        return self._connector or self.topic_prefix

    @classmethod
    def of_the_source(cls, properties: Mapping[str, Any]) -> dict[str, Any]:
        """Return the connector's properties that may matter when its database is asked for the end of its log.

        These are without those that every source has, the lists of captured tables, and those for which a check of a connection has
        a stand-in.
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
            log.warning("snapshot.mode=%s is deprecated; use snapshot.mode=%s.", data["snapshot.mode"], new)
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
            raise ValueError(f"signal.allowed.types: {unknown[0]!r} is not in signal.enabled.channels")
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
        flags = ("snapshot_data", "snapshot_schema", "start_stream")
        names = [f"snapshot_mode_configuration_based_{name}" for name in flags]
        if self.snapshot_mode is SnapshotMode.CONFIGURATION_BASED and not any(getattr(self, name) for name in names):
            aliases = ", ".join(str(type(self).model_fields[name].alias) for name in names)
            raise ValueError(
                f"snapshot.mode: with configuration_based, at least one of {aliases} must be true; otherwise a run does nothing"
            )
        return self

    def build_dataset_name(self, table: TableId) -> tuple[str, str]:
        """Return namespace and name of a table, as lineage tools know it (OpenLineage, "Naming").

        For a server, these are ``scheme://host:port`` and the dotted name. A source whose database has a name there says so;
        without it, the connector's topics distinguish its tables from others.
        """
        return f"cdc://{self.topic_prefix}", table.full_name


NO_CONNECTOR = "connection-test"
"""The ``topic.prefix`` for requests to a connection before there is a connector."""


__all__ = ["DEPRECATED_SNAPSHOT_MODES", "NO_CONNECTOR", "ColumnSelection", "ConnectorConfig"]
