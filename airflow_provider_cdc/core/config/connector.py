"""The properties that every source has, by their documented names; a source subclasses :class:`ConnectorConfig` with its own, or
:class:`~airflow_provider_cdc.core.config.tables.TableConfig` if it has tables with columns.

This module is imported at DAG parse: it must stay light.
"""

from __future__ import annotations

import difflib
import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any, ClassVar, Self

from pydantic import Field, SecretStr, model_validator

from airflow_provider_cdc.core.config import kafka_connect as config_kafka_connect
from airflow_provider_cdc.core.config.base import Configuration, Decides
from airflow_provider_cdc.core.config.values import (
    CHUNK_BYTES,
    KEPT_MS,
    ChannelTypes,
    Kept,
    LimitAction,
    LostMode,
    NameAdjustment,
    Names,
    Operations,
    Patterns,
    RewriteMode,
    RowCountOrder,
    SnapshotMode,
    WatermarkStrategy,
)
from airflow_provider_cdc.core.entry_points import SNAPSHOT_LOCKS, SNAPSHOT_POLICIES, SNAPSHOT_QUERIES, extensions
from airflow_provider_cdc.core.errors import ConfigError

if TYPE_CHECKING:
    from airflow_provider_cdc.core.model.schema import Column, TableId

log = logging.getLogger(__name__)

DEPRECATED_SNAPSHOT_MODES = {"schema_only": "no_data", "schema_only_recovery": "recovery"}


@dataclass(frozen=True, slots=True)
class ColumnSelection:
    """Which columns are captured, and how; patterns match ``<namespace>.<table>.<column>``.

    :param include: patterns of columns that are captured; empty = all
    :param exclude: patterns of those that are not
    :param keys: keys of one's own, as ``message.key.columns`` writes them
    :param texts: property → patterns of the columns that it hides or cuts
    :param told: patterns of columns whose schemas name their type in the database
    :param told_types: the same by the type
    """

    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    keys: str = ""
    texts: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    told: tuple[str, ...] = ()
    told_types: tuple[str, ...] = ()


class ConnectorConfig(Configuration):
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
    position_lost_mode: LostMode = Field(
        LostMode.FAIL,
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
    guardrail_collections_limit_action: LimitAction = Field(
        LimitAction.WARN,
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

    CONNECTION_ONLY: ClassVar[tuple[str, ...]] = tuple(
        f"signal.consumer.{name}"
        for name in (
            "security.protocol", "sasl.mechanism", "sasl.mechanisms", "sasl.username", "sasl.password", "sasl.oauthbearer.config",
            "sasl.oauthbearer.method", "sasl.oauthbearer.client.id", "sasl.oauthbearer.client.secret", "sasl.oauthbearer.scope",
            "sasl.oauthbearer.extensions", "sasl.oauthbearer.token.endpoint.url", "ssl.ca.location", "ssl.ca.pem",
            "ssl.certificate.location", "ssl.certificate.pem", "ssl.key.location", "ssl.key.pem", "ssl.key.password",
            "ssl.keystore.location", "ssl.keystore.password", "ssl.endpoint.identification.algorithm",
        )
    )  # fmt: skip

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

    LISTS: ClassVar[Mapping[str, Decides]] = {
        "signal.data.collection": Decides.TABLES,  # the signal table is not captured
        "snapshot.include.collection.list": Decides.ROWS,
        "skipped.operations": Decides.CHANGES,
    }

    @classmethod
    def of_the_source(cls, properties: Mapping[str, Any]) -> dict[str, Any]:
        """Of a connector's properties, those that may matter when its database is asked for the end of its log: without those that every source has,
        the lists of what is captured, and what a check of a connection does with a stand-in for.
        """
        others = cls.shared() | cls.lists().keys() | cls.FORM.stand_ins.keys()
        prefixes = tuple(name[:-1] for name in others if name.endswith(".*"))
        return {
            name: value for name, value in properties.items() if name not in others and not name.startswith(prefixes)
        }

    @classmethod
    def shared(cls) -> set[str]:
        """The properties that sources have in common, by their documented names."""
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
        for mode, group in _CUSTOM.items():
            found = type(self).model_fields.get(mode)
            if found is not None and getattr(self, mode) == "custom":
                _known(str(found.alias), getattr(self, f"{mode}_custom_name"), group)
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

    @classmethod
    def exclusive_pairs(cls) -> list[tuple[str, str]]:
        """Field names of include and exclude lists of which only one may be set."""
        return []

    # what core asks: a source answers in its own words, and has nothing to say of what it does not have

    def table_lists(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Include and exclude patterns of tables; they match ``<namespace>.<table>``."""
        return (), ()

    def column_rules(self) -> ColumnSelection:
        """Which columns are captured, and how."""
        return ColumnSelection()

    def skips_unchanged(self) -> bool:
        """Whether updates that change no captured column are left out."""
        return False

    def shows_schema_changes(self) -> bool:
        """Whether schema changes are records of the JSON form, in the topic that is named like the prefix."""
        return False

    def rewrite_mode(self) -> RewriteMode:
        """What is done when a schema change has changed rows without an event."""
        return RewriteMode.SNAPSHOT

    def heartbeat_statement(self) -> str | None:
        """What ``Source.execute`` gets with each heartbeat."""
        return None

    @classmethod
    def changed_since(cls, table: str, column: str, moment: datetime, *, given: str | None, blocking: bool) -> str:
        """The condition of a signal for the rows of a table that have this moment, or a later one, in a column.

        :param moment: without a time zone, or in UTC
        :param given: another condition that rows have to fulfil
        :param blocking: for a snapshot of whole tables, whose conditions may be written in another way
        :raises ConfigError: there is no such condition
        """
        raise ConfigError(
            "Conditions about a moment are not written for this kind of source.",
            safe="Nothing was sent.",
            remedy="write the condition as a filter, and leave changed since empty",
        )

    def namespace_lists(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Include and exclude patterns of databases or schemas, where the source has such properties."""
        return (), ()

    def shows_more(self, before: Self, table: TableId) -> bool:
        """Whether rows of a table have something now that they had not under ``before``, besides what the lists of columns decide."""
        return False

    def has_values(self, column: Column) -> bool:
        """Whether values of a column are captured; otherwise they are unavailable, which is not null."""
        return True

    def listed(self, name: str) -> str:
        """A table as this connector's lists name it.

        :param name: as a check lists it, which belongs to no connector (:data:`NO_CONNECTOR`)
        """
        return name

    def dataset(self, table: TableId) -> tuple[str, str]:
        """Namespace and name of a table, as lineage tools know it (OpenLineage, "Naming"): for a server, ``scheme://host:port`` and the dotted
        name. A source whose database has a name there says so; without it, the connector's topics tell its tables from others."""
        return f"cdc://{self.topic_prefix}", table.full_name


NO_CONNECTOR = "connection-test"
"""The ``topic.prefix`` of what is asked of a connection before there is a connector."""
_CUSTOM = {
    "snapshot_mode": SNAPSHOT_POLICIES,
    "snapshot_query_mode": SNAPSHOT_QUERIES,
    "snapshot_locking_mode": SNAPSHOT_LOCKS,
}


def _known(mode: str, name: str | None, group: str) -> None:
    """
    :raises ValueError: there is no such entry point
    """
    there = sorted(extensions(group))
    if name not in there:
        given = f"{name!r} is not known here" if name else f"required by {mode}=custom, and not set"
        near = difflib.get_close_matches(name or "", there, n=1)
        hint = f"; did you mean {near[0]!r}?" if near else "."
        names = f"Valid values are: {', '.join(there)}" if there else "None is installed"
        raise ValueError(f"{mode}.custom.name: {given}{hint} {names} (entry points of group {group})")
