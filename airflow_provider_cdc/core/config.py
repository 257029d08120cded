"""Connector configuration: the documented property names, checked before anything else happens.

A source subclasses :class:`ConnectorConfig` with its own properties; field aliases are the documented dotted names, and the
one way in is :meth:`ConnectorConfig.parse`, which turns every mistake into one :class:`ConfigError` that names the property,
the value, the valid values and the nearest known name.

    >>> ConnectorConfig.parse({"topic.prefix": "shop", "snapshot.mode": "initail"})
    Traceback (most recent call last):
    airflow_provider_cdc.core.errors.ConfigError: 1 property of the connector cannot be used:
      snapshot.mode: 'initail' is not a valid value; did you mean 'initial'? Valid values are: ...

This module is imported at DAG parse: it must stay light.
"""

from __future__ import annotations

import difflib
import enum
import logging
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, SecretStr, ValidationError, model_validator

from airflow_provider_cdc.core.errors import ConfigError
from airflow_provider_cdc.core.extensions import SNAPSHOT_LOCKS, SNAPSHOT_POLICIES, SNAPSHOT_QUERIES, extensions

log = logging.getLogger(__name__)


class SnapshotMode(enum.StrEnum):
    """When a connector reads whole tables (Debezium MySQL connector, ``snapshot.mode``)."""

    ALWAYS = "always"
    INITIAL = "initial"
    INITIAL_ONLY = "initial_only"
    NO_DATA = "no_data"
    NEVER = "never"
    RECOVERY = "recovery"
    WHEN_NEEDED = "when_needed"
    CONFIGURATION_BASED = "configuration_based"
    CUSTOM = "custom"


DEPRECATED_SNAPSHOT_MODES = {"schema_only": "no_data", "schema_only_recovery": "recovery"}


class QueryMode(enum.StrEnum):
    """What a snapshot reads of a table."""

    SELECT_ALL = "select_all"
    CUSTOM = "custom"


class DecimalHandling(enum.StrEnum):
    PRECISE = "precise"
    DOUBLE = "double"
    STRING = "string"


class BinaryHandling(enum.StrEnum):
    BYTES = "bytes"
    BASE64 = "base64"
    BASE64_URL_SAFE = "base64-url-safe"
    HEX = "hex"


class TimePrecision(enum.StrEnum):
    ADAPTIVE_TIME_MICROSECONDS = "adaptive_time_microseconds"
    ADAPTIVE = "adaptive"
    CONNECT = "connect"


class RowCountOrder(enum.StrEnum):
    DISABLED = "disabled"
    ASCENDING = "ascending"
    DESCENDING = "descending"


class NameAdjustment(enum.StrEnum):
    """How names that Avro does not allow are written in the Debezium JSON form."""

    NONE = "none"
    AVRO = "avro"
    AVRO_UNICODE = "avro_unicode"


class WatermarkStrategy(enum.StrEnum):
    INSERT_INSERT = "insert_insert"
    INSERT_DELETE = "insert_delete"


class LostMode(enum.StrEnum):
    """What to do when the log does not hold the position any more that a connector has to go on from."""

    FAIL = "fail"
    SNAPSHOT = "snapshot"
    INCREMENTAL = "incremental"


class LimitAction(enum.StrEnum):
    """What to do when more tables are captured than there may be."""

    WARN = "warn"
    FAIL = "fail"


class RewriteMode(enum.StrEnum):
    """What to do when a DDL statement changed rows in a way that the log does not show."""

    SNAPSHOT = "snapshot"
    FAIL = "fail"
    IGNORE = "ignore"


_POSIX_CLASS = re.compile(r"\[[:.=]\w+[:.=]\]")


def _split_patterns(value: Any) -> Any:
    """``"a,b"`` → ``("a", "b")``; a comma inside a pattern is written ``\\,``. Each part must be a regular expression."""
    if isinstance(value, str):
        value = [part.replace("\\,", ",") for part in re.split(r"(?<!\\),", value)]
    parts = tuple(p.strip() for p in _texts(value) if p.strip())
    for part in parts:
        if found := _POSIX_CLASS.search(part):
            raise ValueError(
                f"{part!r} has the POSIX class {found[0]}, which would match other names here: write it as [A-Z] or the like"
            )
        try:
            re.compile(part)
        except re.error as e:
            raise ValueError(f"{part!r} is not a regular expression: {e}") from None
    return parts


def _texts(value: Any) -> list[str]:
    if not isinstance(value, (list, tuple, set, frozenset)) or not all(isinstance(part, str) for part in value):
        raise ValueError(f"{value!r} is not a list of texts, nor one text with commas")
    return list(value)


def _split_operations(value: Any) -> Any:
    parts = [p.strip() for p in _texts(value.split(",") if isinstance(value, str) else value)]
    parts = [p for p in parts if p]
    if parts == ["none"]:
        return frozenset()
    if unknown := [p for p in parts if p not in ("c", "u", "d", "t")]:
        raise ValueError(f"{unknown[0]!r} is not an operation; valid values are c, u, d, t, or none alone")
    return frozenset(parts)


def _split_names(value: Any) -> Any:
    parts = _texts(value.split(",") if isinstance(value, str) else value)
    return tuple(dict.fromkeys(part.strip().lower() for part in parts if part.strip()))


Names = Annotated[tuple[str, ...], BeforeValidator(_split_names)]
"""A comma-separated list of names, in lower case."""
Patterns = Annotated[tuple[str, ...], BeforeValidator(_split_patterns)]
"""A comma-separated list of anchored regular expressions."""
COLUMN_TEXTS = "column.mask.with.<length>.chars, column.truncate.to.<length>.chars"
COLUMN_TEXT = re.compile(r"column\.(mask\.with|truncate\.to)\.(\d+)\.chars")
CONSUMER = "signal.consumer.*"
CONSUMER_NAME = re.compile(r"signals?\.consumer\.(.+)")
_SECRET = re.compile(r"password|passphrase|secret|jaas|credential|oauthbearer\.config|key\.pem$|keystore\.key$")
"""Properties of Kafka clients that hold what nobody may see."""
Operations = Annotated[frozenset[str], BeforeValidator(_split_operations)]


@dataclass(frozen=True, slots=True)
class ConnectionForm:
    """How people are asked for a connection to a source, in a form with the usual fields.

    :param labels: field (``host``, ``port``, ``login``, ``password``, ``schema``, ``extra``) → what it is called here
    :param hidden: fields without a meaning here
    :param placeholders: field → example
    :param extras: properties that the form asks for besides, with their description; kept in ``extra`` by their names
    :param stand_ins: properties that a check needs, and that belong to a connector instead of a connection
    """

    labels: Mapping[str, str] = field(default_factory=dict)
    hidden: tuple[str, ...] = ()
    placeholders: Mapping[str, str] = field(default_factory=dict)
    extras: Mapping[str, str] = field(default_factory=dict)
    stand_ins: Mapping[str, Any] = field(default_factory=dict)


class ConnectorConfig(BaseModel):
    """Properties that every source has. Defaults are the documented ones unless the description says otherwise."""

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=False)

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
        description="Last part of the name of the topic with transaction records.",
    )
    table_include_list: Patterns = Field(
        (), alias="table.include.list", description="Tables to capture, as database.table; all others are left out."
    )
    table_exclude_list: Patterns = Field(
        (), alias="table.exclude.list", description="Tables to leave out; all others are captured."
    )
    column_include_list: Patterns = Field(
        (),
        alias="column.include.list",
        description="Columns to capture, as database.table.column. Key columns should be among them.",
    )
    column_exclude_list: Patterns = Field((), alias="column.exclude.list", description="Columns to leave out.")
    column_texts: dict[str, Patterns] = Field(
        {},
        alias="column.mask.with.<length>.chars, column.truncate.to.<length>.chars",
        description="Texts of these columns, named as database.table.column, become that many asterisks, or lose what is beyond "
        "the length. Columns of a key cannot be among them.",
    )
    column_propagate_source_type: Patterns = Field(
        (),
        alias="column.propagate.source.type",
        description="In the Debezium JSON form, schemas of these columns name their type in the database, its length and scale.",
    )
    datatype_propagate_source_type: Patterns = Field(
        (), alias="datatype.propagate.source.type", description="The same by the type, as database.table.TYPE."
    )
    message_key_columns: str = Field(
        "",
        alias="message.key.columns",
        description="Keys of one's own: database.table:column,column; several separated by semicolons.",
    )
    decimal_handling_mode: DecimalHandling = Field(
        DecimalHandling.PRECISE,
        alias="decimal.handling.mode",
        description="DECIMAL as exact decimals, as doubles, or as texts.",
    )
    binary_handling_mode: BinaryHandling = Field(
        BinaryHandling.BYTES,
        alias="binary.handling.mode",
        description="Bytes as they are, or as texts in base64 or hexadecimal.",
    )
    time_precision_mode: TimePrecision = Field(
        TimePrecision.ADAPTIVE_TIME_MICROSECONDS,
        alias="time.precision.mode",
        description="Names and units of dates and times in the Debezium JSON form.",
    )
    skipped_operations: Operations = Field(
        frozenset(),
        alias="skipped.operations",
        description="Operations left out of the stream. Debezium's default is 't'; here it is 'none', because a table "
        "that was truncated at the source would otherwise keep its rows in the target without a word.",
    )
    skip_messages_without_change: bool = Field(
        False,
        alias="skip.messages.without.change",
        description="Leave out updates that change no captured column.",
    )
    tombstones_on_delete: bool = Field(
        True,
        alias="tombstones.on.delete",
        description="In the Debezium JSON form, a delete is followed by a record without a value.",
    )
    include_schema_changes: bool = Field(
        True,
        alias="include.schema.changes",
        description="In the Debezium JSON form, schema changes are records of the topic that is named like the prefix.",
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
        description="Events tell their transaction and their place in it; BEGIN and END records in the Debezium JSON form.",
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
        description="A new connector reads the structures of its tables and streams from now; otherwise, and without rows, from "
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
        description="A schema history that is lost is built anew from the present structures, as with recovery.",
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
    snapshot_query_mode: QueryMode = Field(
        QueryMode.SELECT_ALL,
        alias="snapshot.query.mode",
        description="What a snapshot reads of a table: all rows, or what a query of one's own gives.",
    )
    snapshot_query_mode_custom_name: str | None = Field(
        None,
        alias="snapshot.query.mode.custom.name",
        description="With snapshot.query.mode=custom: name of an entry point, which gives the SELECT for each table, in place of all others.",
    )
    snapshot_locking_mode_custom_name: str | None = Field(
        None,
        alias="snapshot.locking.mode.custom.name",
        description="With snapshot.locking.mode=custom: name of an entry point, which gives the statement that locks a table.",
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
        None, alias="notification.sink.topic.name", description="Name of the topic of the notification channel sink."
    )
    incremental_snapshot_chunk_size: int = Field(
        1024, alias="incremental.snapshot.chunk.size", description="Rows that are read at a time.", ge=1
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
    incremental_snapshot_allow_schema_changes: bool = Field(
        False,
        alias="incremental.snapshot.allow.schema.changes",
        description="Without effect: a chunk that was read under another structure is always read again.",
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
    schema_change_rewrite_mode: RewriteMode = Field(
        RewriteMode.SNAPSHOT,
        alias="schema.change.rewrite.mode",
        description="Ours. A DDL statement may change existing rows without a row event (a lossy type change, a new "
        "column with a computed default). 'snapshot' reads that table again, 'fail' stops, 'ignore' goes on.",
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
    batch_max_ms: int = Field(60_000, alias="batch.max.ms", ge=100, description="Ours. Age at which a batch is closed.")
    heartbeat_interval_ms: int = Field(
        0,
        alias="heartbeat.interval.ms",
        ge=0,
        description="How often, and when a run begins to stream, the offset is made durable though nothing was captured; 0 = as batch.max.ms says.",
    )
    heartbeat_action_query: str | None = Field(
        None,
        alias="heartbeat.action.query",
        description="Statement that is run on the source with each heartbeat, so that the log of a quiet database moves on.",
    )

    FORM: ClassVar[ConnectionForm] = ConnectionForm()
    """How a connection to this source is asked for."""
    CONNECTION: ClassVar[Mapping[str, str]] = {}
    """What the fields of a connection mean: ``host``, ``port``, ``login``, ``password``, ``schema`` → documented property."""
    IGNORED: ClassVar[Mapping[str, str]] = {
        "name": "the connector's name is given to the connector definition",
        "connector.class": "the source is chosen by the connector definition",
        "tasks.max": "a connector is always one capture task",
        "max.batch.size": "batches are bounded by batch.max.rows, batch.max.bytes and batch.max.ms",
        "max.queue.size": "there is no event queue; memory is bounded by block sizes",
        "max.queue.size.in.bytes": "there is no event queue; memory is bounded by block sizes",
        "errors.max.retries": "tasks are tried again as Airflow's retries say",
        "errors.retry.delay.*": "tasks are tried again as Airflow's retry_delay says",
        "topic.cache.size": "topic names need no cache here",
        "topic.heartbeat.prefix": "a heartbeat makes the offset durable; it is no record",
    }
    """Documented properties without a meaning here: accepted with a warning. A trailing ``*`` matches a prefix."""
    NOT_SUPPORTED: ClassVar[Mapping[str, str]] = {
        "column.mask.hash.*": "the name of the property has the salt, which would be in state, logs and manifests; hide the column with "
        "column.mask.with.<length>.chars or leave it out with column.exclude.list",
        "column.mask.*": "only column.mask.with.<length>.chars",
        "column.truncate.to.*": "only column.truncate.to.<length>.chars",
        "topic.naming.strategy": "topics are named as the documents say; Java classes cannot be loaded here",
        "custom.sanitize.pattern": "passwords and secrets are never shown, and a pattern in place of that could only show some",
        "transforms*": "single message transforms belong to Kafka Connect",
    }
    """Documented properties that would be silently without effect: refused. A trailing ``*`` matches a prefix."""

    @classmethod
    def parse(cls, properties: Mapping[str, Any]) -> Self:
        """Check ``properties`` and build the configuration.

        Values may be of their own type or strings, as in a Debezium properties file.

        :raises ConfigError: with one line for each property that cannot be used
        """
        problems: list[str] = []
        known = {str(f.alias): name for name, f in cls.model_fields.items()}
        kept: dict[str, Any] = {}
        texts: dict[str, Any] = {}
        consumer: dict[str, str] = {}
        for key, value in properties.items():
            if found := CONSUMER_NAME.fullmatch(key):
                if isinstance(value, (str, int, float)):
                    consumer[found[1]] = str(value).lower() if isinstance(value, bool) else str(value)
                else:
                    problems.append(f"{key}: a {type(value).__name__} cannot be used: give a text or a number")
            elif key in known:
                kept[key] = value
            elif COLUMN_TEXT.fullmatch(key):
                texts[key] = value
            elif (reason := _match(cls._table("IGNORED"), key)) is not None:
                log.warning("Property %s is accepted and has no effect: %s.", key, reason)
            elif (reason := _match(cls._table("NOT_SUPPORTED"), key)) is not None:
                problems.append(f"{key}: not supported: {reason}. Remove it; it would otherwise be without effect.")
            else:
                near = difflib.get_close_matches(key, known, n=1, cutoff=0.75)
                hint = (
                    f"; did you mean {near[0]}?"
                    if near
                    else "; see docs/configuration.md for the properties there are."
                )
                problems.append(f"{key}: unknown property{hint}")
        config: Self | None = None
        if texts:
            kept[COLUMN_TEXTS] = texts
        if consumer:
            kept[CONSUMER] = consumer
        try:
            config = cls.model_validate(kept)
        except ValidationError as e:
            problems += [_explain(error, cls, known) for error in e.errors()]
        if problems or config is None:
            count = f"{len(problems)} propert{'y' if len(problems) == 1 else 'ies'}"
            raise ConfigError(f"{count} of the connector cannot be used:\n" + "\n".join(f"  {p}" for p in problems))
        return config

    @classmethod
    def from_connection(
        cls,
        *,
        host: str | None = None,
        port: int | None = None,
        login: str | None = None,
        password: str | None = None,
        schema: str | None = None,
        extra: Mapping[str, Any] | None = None,
    ) -> dict[str, Any]:
        """Properties from the fields of a connection; fields that are not set give none.

        Each source says in :attr:`CONNECTION` what its fields mean. Names in ``extra`` are documented property names everywhere.

            >>> MySqlConfig.from_connection(host="db", login="cdc", extra={"database.ssl.mode": "required"})
            {'database.hostname': 'db', 'database.user': 'cdc', 'database.ssl.mode': 'required'}
        """
        fields = {"host": host, "port": port, "login": login, "password": password, "schema": schema}
        named = [(name, fields[field]) for field, name in cls.CONNECTION.items()]
        return {name: value for name, value in [*named, *(extra or {}).items()] if value not in (None, "")}

    @classmethod
    def secrets(cls) -> list[str]:
        """Documented names of the properties that must never be shown."""
        fields = cls.model_fields.values()
        return sorted(str(f.alias) for f in fields if f.annotation is SecretStr or f.annotation == SecretStr | None)

    @classmethod
    def is_secret(cls, name: str) -> bool:
        """Whether a property, by its documented name, must never be shown."""
        consumer = CONSUMER_NAME.fullmatch(name)
        return name in cls.secrets() or (consumer is not None and _SECRET.search(consumer[1].lower()) is not None)

    @classmethod
    def _table(cls, name: str) -> dict[str, str]:
        """``IGNORED`` or ``NOT_SUPPORTED`` of the class and of all its bases."""
        merged: dict[str, str] = {}
        for base in reversed(cls.__mro__):
            merged.update(base.__dict__.get(name, {}))
        return merged

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
            field = type(self).model_fields.get(mode)
            if field is not None and getattr(self, mode) == "custom":
                _known(str(field.alias), getattr(self, f"{mode}_custom_name"), group)
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
        return [("table_include_list", "table_exclude_list"), ("column_include_list", "column_exclude_list")]

    def namespace_lists(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Include and exclude patterns of databases or schemas, where the source has such properties."""
        return (), ()

    def public(self) -> dict[str, Any]:
        """The properties that were set, by their documented names, secrets left out: fit for state, logs and the UI."""
        shown: dict[str, Any] = {}
        for name in self.model_fields_set:
            value = getattr(self, name)
            if not isinstance(value, SecretStr):
                field = type(self).model_fields[name]
                shown[str(field.alias)] = sorted(value) if isinstance(value, frozenset) else value
        shown |= shown.pop(COLUMN_TEXTS, {})
        for name, secret in shown.pop(CONSUMER, {}).items():
            if not self.is_secret(full := CONSUMER.replace("*", name)):
                shown[full] = secret.get_secret_value()
        return dict(sorted(shown.items()))


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


def _match(table: Mapping[str, str], key: str) -> str | None:
    for pattern, reason in table.items():
        if key == pattern or (pattern.endswith("*") and key.startswith(pattern[:-1])):
            return reason
    return None


def _explain(error: Any, cls: type[ConnectorConfig], known: Mapping[str, str]) -> str:
    """One line for one pydantic error, in the terms of the property."""
    if not error["loc"]:
        return str(error["ctx"]["error"]) if "error" in error.get("ctx", {}) else str(error["msg"])
    key = str(error["loc"][0])
    field = cls.model_fields[known[key]] if key in known else None
    if error["type"] == "missing":
        text = f"{key}: required and not set"
        return f"{text}. {field.description}" if field is not None and field.description else text
    value, annotation = error["input"], field.annotation if field is not None else None
    shown = "********" if annotation is SecretStr or annotation == SecretStr | None else repr(value)
    if error["type"] == "enum" and isinstance(annotation, type) and issubclass(annotation, enum.Enum):
        valid = [str(v.value) for v in annotation]
        near = difflib.get_close_matches(str(value), valid, n=1)
        hint = f"; did you mean {near[0]!r}?" if near else "."
        return f"{key}: {shown} is not a valid value{hint} Valid values are: {', '.join(valid)}"
    if "error" in error.get("ctx", {}):
        return f"{key}: {error['ctx']['error']}"
    return f"{key}: {shown} cannot be used: {error['msg']}"
