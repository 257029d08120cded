"""Properties of the source of Debezium events."""

from __future__ import annotations

import enum
import json
import re
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Final, Self

from pydantic import AfterValidator, BeforeValidator, Field, SecretStr, model_validator

from airflow_provider_cdc.core.config.base_configuration import ConnectionForm
from airflow_provider_cdc.core.config.connector_config import NO_CONNECTOR
from airflow_provider_cdc.core.config.property_enums import FailureHandling, LostPositionMode, SnapshotMode
from airflow_provider_cdc.core.config.table_source_config import TableConfig
from airflow_provider_cdc.core.model.table_schema import TableId


class LineFormat(enum.StrEnum):
    """Contents of a line of a file (``events.line.format``)."""

    RECORD = "record"
    VALUE = "value"


class KeyFormat(enum.StrEnum):
    """Forms of the key of a Kafka record (``events.key.format``)."""

    JSON = "json"
    STRING = "string"


class ZonedTimestampMode(enum.StrEnum):
    """Treatment of timestamps with a time zone (``events.zoned.timestamp.mode``)."""

    MOMENT = "moment"
    TEXT = "text"


def _listed(value: object) -> object:
    """Names with commas between them, as they are: names of topics and headers may have other signs than those of properties."""
    return tuple(filter(None, map(str.strip, value.split(",")))) if isinstance(value, str) else value


def _regex(text: str) -> str:
    try:
        re.compile(text)
    except re.error as e:
        raise ValueError(f"{text!r} is not a regular expression: {e}") from None
    return text


Names = Annotated[tuple[str, ...], BeforeValidator(_listed)]
_WITHOUT_EFFECT: Final = (
    "column.propagate.source.type", "datatype.propagate.source.type", "decimal.handling.mode", "binary.handling.mode",
    "time.precision.mode", "provide.transaction.metadata", "snapshot.include.collection.list", "snapshot.query.mode",
    "signal.data.collection", "heartbeat.action.query", "read.only",
)  # fmt: skip
_CONSUMER: Final = {
    "security.protocol": "such as SSL or SASL_SSL",
    "sasl.mechanism": "such as PLAIN or SCRAM-SHA-512",
    "sasl.username": "",
    "sasl.password": "",
    "ssl.ca.location": "a PEM file",
    "ssl.certificate.location": "a PEM file",
    "ssl.key.location": "a PEM file",
    "ssl.key.password": "",
}
"""Properties of the Kafka client, as librdkafka calls them → an example."""


class DebeziumConfig(TableConfig):
    """Properties that say where the events are, and how they are read."""

    events_path: str | None = Field(
        None,
        alias="events.path",
        min_length=1,
        description="File, folder, or pattern with `*`, as a path or URL (fsspec). The files contain JSON lines, plain "
        "or compressed with gzip (`.gz`) or zstd (`.zst`), and are read in the order of their names.",
    )
    events_path_options: SecretStr | None = Field(
        None,
        alias="events.path.options",
        description="Options of the filesystem of `events.path`, as a JSON object. They may contain secrets, so they "
        "come from the connection.",
    )
    events_line_format: LineFormat = Field(
        LineFormat.RECORD,
        alias="events.line.format",
        description="A line of a file is a `record` (`topic`, `key`, `value`, `headers`), or a `value` only.",
    )
    events_topic: str | None = Field(
        None,
        alias="events.topic",
        description="Topic of lines without one: values without a `source` block.",
    )
    events_key_field: str | None = Field(
        None, alias="events.key.field", description="Name of the key column of records whose key is a single value."
    )
    events_key_format: KeyFormat = Field(
        KeyFormat.JSON,
        alias="events.key.format",
        description="Keys of Kafka records are `json` (JsonConverter) or a `string` (StringConverter).",
    )
    events_headers: Names = Field(
        (),
        alias="events.headers",
        description="Names of headers to capture, each as a column `__header.<name>`. With "
        "primary.key.mode=record_header, the relational sink reads its key from them.",
    )
    events_zoned_timestamp_mode: ZonedTimestampMode = Field(
        ZonedTimestampMode.MOMENT,
        alias="events.zoned.timestamp.mode",
        description="Timestamps with a time zone become a `moment` of microseconds in UTC, or remain a `text` with all "
        "digits and their offset.",
    )
    topics: Names = Field((), alias="topics", description="Kafka topics to read, separated by commas.")
    topics_regex: Annotated[str, AfterValidator(_regex)] | None = Field(
        None,
        alias="topics.regex",
        description="Kafka topics to read, as a Python regular expression that matches whole names.",
    )
    bootstrap_servers: str | None = Field(None, alias="bootstrap.servers", description="Kafka brokers of the topics.")
    consumer_security_protocol: str | None = Field(
        None,
        alias="consumer.security.protocol",
        description="Protocol for the brokers; the default is unencrypted.",
    )
    consumer_sasl_mechanism: str | None = Field(
        None, alias="consumer.sasl.mechanism", description="SASL mechanism with which the consumer logs in."
    )
    consumer_sasl_username: str | None = Field(
        None, alias="consumer.sasl.username", description="User name with which the consumer logs in."
    )
    consumer_sasl_password: SecretStr | None = Field(
        None, alias="consumer.sasl.password", description="Password of the user; comes from the connection."
    )
    consumer_ssl_ca_location: str | None = Field(
        None,
        alias="consumer.ssl.ca.location",
        description="PEM file with the certificates of the authorities that signed the brokers' certificates.",
    )
    consumer_ssl_certificate_location: str | None = Field(
        None, alias="consumer.ssl.certificate.location", description="PEM file with the certificate of the consumer."
    )
    consumer_ssl_key_location: str | None = Field(
        None,
        alias="consumer.ssl.key.location",
        description="PEM file with the private key of the consumer's certificate.",
    )
    consumer_ssl_key_password: SecretStr | None = Field(
        None,
        alias="consumer.ssl.key.password",
        description="Password of the private key file; comes from the connection.",
    )
    unavailable_value_placeholder: str = Field(
        "__debezium_unavailable_value",
        alias="unavailable.value.placeholder",
        description="Placeholder of a value that the event does not contain, as configured in the connector that wrote "
        "the events.",
    )
    snapshot_mode: SnapshotMode = Field(
        SnapshotMode.NEVER,
        alias="snapshot.mode",
        description="`never`: the source has only events, which are read from the first one.",
    )

    FORM: ClassVar[ConnectionForm] = ConnectionForm(
        labels={"host": "Kafka brokers", "login": "SASL user name", "password": "SASL password"},
        hidden=("schema", "port"),
        placeholders={"host": "kafka-1:9092,kafka-2:9092"},
        extras={
            f"consumer.{name}": f"property of the Kafka client{', ' + such if such else ''}"
            for name, such in _CONSUMER.items()
            if not name.startswith(("sasl.username", "sasl.password"))
        },
        places={"events.path": "/data/events/*.jsonl", "topics": "shop.inventory.orders", "topics.regex": r"shop\..*"},
        files=("events.path",),
    )
    CONNECTION: ClassVar[Mapping[str, str]] = {
        "host": "bootstrap.servers",
        "login": "consumer.sasl.username",
        "password": "consumer.sasl.password",
    }
    CONNECTION_ONLY: ClassVar[tuple[str, ...]] = ("events.path.options",)

    @model_validator(mode="after")
    def _one_place(self) -> Self:
        kafka = bool(self.topics or self.topics_regex)
        if self.topics and self.topics_regex is not None:
            raise ValueError("topics and topics.regex exclude each other: set only one of them")
        if kafka and self.events_path is not None:
            raise ValueError(
                "events.path and topics exclude each other: read either files or Kafka. To select among the "
                "topics in files, use table.include.list and table.exclude.list"
            )
        if not kafka and self.events_path is None:
            raise ValueError("events.path: set it to read files, or topics or topics.regex to read from Kafka")
        if kafka and not self.bootstrap_servers:
            raise ValueError("bootstrap.servers: required by topics and topics.regex")
        return self

    @model_validator(mode="after")
    def _nothing_without_effect(self) -> Self:
        fields = {str(field.alias): name for name, field in type(self).model_fields.items()}
        for name in _WITHOUT_EFFECT:
            if fields[name] in self.model_fields_set and getattr(self, fields[name]):
                raise ValueError(f"{name}: has no effect here, because events are read as they were written. Remove it")
        if self.snapshot_mode is not SnapshotMode.NEVER:
            raise ValueError(
                "snapshot.mode: only never is valid, because the source has events and no tables that could be read"
            )
        modes = {
            "event.processing.failure.handling.mode": self.event_processing_failure_handling_mode,
            "event.converting.failure.handling.mode": self.event_converting_failure_handling_mode,
        }
        for name, mode in modes.items():
            if mode not in (None, FailureHandling.FAIL):
                raise ValueError(
                    f"{name}: only fail is valid, because the source has no tables that could be read again after an event"
                )
        if self.position_lost_mode is not LostPositionMode.FAIL:
            raise ValueError(
                "position.lost.mode: only fail is valid, because the source has events and no tables that a "
                "snapshot could read"
            )
        return self

    @model_validator(mode="after")
    def _options_are_an_object(self) -> Self:
        self.path_options()
        return self

    @property
    def from_files(self) -> bool:
        """True if events are read from files, and not from Kafka."""
        return self.events_path is not None

    def path_options(self) -> dict[str, Any]:
        """Parse the options of ``events.path.options``."""
        text = "{}" if self.events_path_options is None else self.events_path_options.get_secret_value()
        try:
            options = json.loads(text)
        except (ValueError, RecursionError):
            options = None
        if not isinstance(options, dict):
            raise ValueError("events.path.options: must be a JSON object")
        return options

    def build_consumer_properties(self) -> dict[str, str]:
        """Properties of the Kafka client."""
        properties = {name: getattr(self, f"consumer_{name.replace('.', '_')}") for name in _CONSUMER}
        return {
            name: value.get_secret_value() if isinstance(value, SecretStr) else value
            for name, value in properties.items()
            if value is not None
        }

    def is_topic_selected(self, topic: str) -> bool:
        """Check whether records of a topic are read; of files, all are.

        >>> DebeziumConfig.parse({"topic.prefix": "shop", "topics": "shop.a.b", "bootstrap.servers": "kafka:9092"}).reads("shop.a.b")
        True
        """
        if self.topics:
            return topic in self.topics
        return self.topics_regex is None or re.fullmatch(self.topics_regex, topic) is not None

    def resolve_table(self, topic: str) -> TableId:
        """Return the table of a topic: without ``topic.prefix``, if it begins with it; the part before the last dot is the namespace.

        >>> DebeziumConfig.parse({"topic.prefix": "shop", "events.path": "/in"}).table("shop.inventory.orders")
        TableId(namespace='inventory', name='orders', catalog=None)
        """
        rest = topic.removeprefix(f"{self.topic_prefix}{self.topic_delimiter}")
        namespace, _, name = rest.rpartition(self.topic_delimiter)
        return TableId(namespace=namespace or self.topic_prefix, name=name)

    def format_listed_name(self, name: str) -> str:
        """Tables of a check are topics, whose prefix is this connector's name or another's.

        >>> DebeziumConfig.parse({"topic.prefix": "shop", "events.path": "/in"}).listed("shop.inventory.orders")
        'inventory.orders'
        """
        return str(self.resolve_table(name.removeprefix(f"{NO_CONNECTOR}.")))
