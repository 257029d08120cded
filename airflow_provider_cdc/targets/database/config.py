"""Properties of the relational sink, by the names of the Debezium JDBC sink connector (chapter "JDBC", "Connector configuration options").

This module is imported at DAG parse: it must stay light.
"""

from __future__ import annotations

import enum
import zoneinfo
from collections.abc import Mapping
from typing import Annotated, ClassVar, Self

from pydantic import AfterValidator, BeforeValidator, Field, SecretStr, model_validator

from airflow_provider_cdc.core.config.base_configuration import Configuration, PropertyEffect
from airflow_provider_cdc.core.config.property_enums import Patterns


class InsertMode(enum.StrEnum):
    """The way in which rows are written (``insert.mode``)."""

    INSERT = "insert"
    UPSERT = "upsert"
    UPDATE = "update"


class PrimaryKeyMode(enum.StrEnum):
    """The origin of a table's key (``primary.key.mode``)."""

    NONE = "none"
    KAFKA = "kafka"
    RECORD_KEY = "record_key"
    RECORD_VALUE = "record_value"
    RECORD_HEADER = "record_header"


class SchemaEvolution(enum.StrEnum):
    """The changes that the apply makes to tables: it creates them and adds columns, or not (``schema.evolution``)."""

    NONE = "none"
    BASIC = "basic"


class ErrorTolerance(enum.StrEnum):
    """The treatment of a row that the database refuses (``errors.tolerance``)."""

    NONE = "none"
    ALL = "all"


def _listed(value: object) -> object:
    """Names with commas between them, as they are."""
    return tuple(filter(None, map(str.strip, value.split(",")))) if isinstance(value, str) else value


Names = Annotated[tuple[str, ...], BeforeValidator(_listed)]


def _zone(name: str) -> str:
    try:
        zoneinfo.ZoneInfo(name)
    except (zoneinfo.ZoneInfoNotFoundError, ValueError):
        raise ValueError(f"{name!r} is not a time zone; use a name such as UTC or Europe/Berlin") from None
    return name


class DatabaseTargetConfig(Configuration):
    """The properties of a sink; the defaults are the documented ones.

        >>> DatabaseTargetConfig.parse({"insert.mode": "upsert", "primary.key.mode": "record_key", "delete.enabled": True}).insert_mode
        <InsertMode.UPSERT: 'upsert'>

    :raises ConfigError: they contradict each other
    """

    LISTS: ClassVar[Mapping[str, PropertyEffect]] = {
        "field.include.list": PropertyEffect.COLUMNS,
        "field.exclude.list": PropertyEffect.COLUMNS,
    }
    IGNORED: ClassVar[Mapping[str, str]] = {
        "connector.class": "the sink does not use Kafka Connect",
        "tasks.max": "all tables of a batch are written in one transaction",
        "connection.provider": "the sink uses connections of SQLAlchemy",
        "connection.pool.acquire_increment": "connections are opened one at a time",
        "connection.pool.min_size": "a run uses one connection",
        "connection.pool.max_size": "a run uses one connection",
        "key.converter*": "the sink reads events from the change log",
        "value.converter*": "the sink reads events from the change log",
        "errors.deadletterqueue.*": "the sink does not use Kafka; errors.table stores the rows that the database rejects",
    }
    NOT_SUPPORTED: ClassVar[Mapping[str, str]] = {
        "hibernate.*": "the sink does not use Hibernate",
        "dialect.*": "the connection determines the dialect",
        "column.naming.strategy": "Java classes cannot be loaded; quote.identifiers keeps the case of names",
        "table.naming.strategy": "Java classes cannot be loaded; collection.name.format defines names",
    }
    HARMLESS: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "column.naming.strategy": (
            "io.debezium.connector.jdbc.naming.DefaultColumnNamingStrategy",
            "i.d.c.j.n.DefaultColumnNamingStrategy",
        ),
        "table.naming.strategy": (
            "io.debezium.connector.jdbc.naming.DefaultTableNamingStrategy",
            "i.d.c.j.n.DefaultTableNamingStrategy",
        ),
    }

    name: str = Field("", alias="name", max_length=100)
    """Distinguishes several sinks of one connector that write to one database: each has separate markers."""
    insert_mode: InsertMode = Field(InsertMode.INSERT, alias="insert.mode")
    delete_enabled: bool = Field(default=False, alias="delete.enabled")
    truncate_enabled: bool = Field(default=False, alias="truncate.enabled")
    primary_key_mode: PrimaryKeyMode = Field(PrimaryKeyMode.NONE, alias="primary.key.mode")
    primary_key_fields: Names = Field((), alias="primary.key.fields")
    schema_evolution: SchemaEvolution = Field(SchemaEvolution.NONE, alias="schema.evolution")
    quote_identifiers: bool = Field(default=False, alias="quote.identifiers")
    collection_name_format: str = Field("${topic}", alias="collection.name.format", min_length=1)
    collection_name_shared: bool = Field(default=False, alias="collection.name.shared")
    """Several topics may have one table: shards, no two of which have a key in common. No such table is emptied."""
    table_name_format: str | None = Field(None, alias="table.name.format", min_length=1)
    topics: Names = Field((), alias="topics")
    topics_regex: str | None = Field(None, alias="topics.regex")
    field_include_list: Patterns = Field((), alias="field.include.list")
    field_exclude_list: Patterns = Field((), alias="field.exclude.list")
    time_zone: Annotated[str, AfterValidator(_zone)] = Field("UTC", alias="use.time.zone")
    database_time_zone: Annotated[str, AfterValidator(_zone)] | None = Field(None, alias="database.time_zone")
    batch_size: int = Field(500, alias="batch.size", ge=1, le=100_000)
    flush_max_retries: int = Field(5, alias="flush.max.retries", ge=0)
    flush_retry_delay_ms: int = Field(1000, alias="flush.retry.delay.ms", ge=0)
    errors_tolerance: ErrorTolerance = Field(ErrorTolerance.NONE, alias="errors.tolerance")
    errors_table: str = Field("cdc_errors", alias="errors.table", min_length=1)
    marker_table: str = Field("cdc_applied", alias="marker.table", min_length=1)
    connection_url: str | None = Field(None, alias="connection.url")
    connection_username: str | None = Field(None, alias="connection.username")
    connection_password: SecretStr | None = Field(None, alias="connection.password")
    connection_token_provider: str | None = Field(None, alias="connection.token.provider")
    """Log in with a new token for each connection instead of a password: ``aws_rds``, ``google_cloud_sql`` or ``azure_entra``."""
    connection_token_credentials: SecretStr | None = Field(None, alias="connection.token.credentials")
    """A JSON object with the credentials for tokens; by default, those of the process's environment."""
    connection_ssh_conn_id: str | None = Field(None, alias="connection.ssh.conn_id", min_length=1)
    """Airflow's connection to an SSH server that forwards to the database."""
    pool_timeout_s: int = Field(1800, alias="connection.pool.timeout", ge=1)

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        mode = self.primary_key_mode
        if self.topics and self.topics_regex is not None:
            raise ValueError("topics and topics.regex exclude each other")
        if self.delete_enabled and mode is not PrimaryKeyMode.RECORD_KEY:
            raise ValueError("delete.enabled: rows can only be found with primary.key.mode=record_key")
        if self.insert_mode is not InsertMode.INSERT and mode is PrimaryKeyMode.NONE:
            raise ValueError(
                f"insert.mode={self.insert_mode}: rows can only be found with a key; set primary.key.mode, in most cases to record_key"
            )
        if self.field_include_list and self.field_exclude_list:
            raise ValueError("field.include.list and field.exclude.list exclude each other")
        return self

    @property
    def name_format(self) -> str:
        """Format of table names: the older property wins if it is set, as it was meant."""
        return self.table_name_format or self.collection_name_format

    @property
    def effective_time_zone(self) -> str:
        """In which times without a zone are written."""
        return self.database_time_zone or self.time_zone


EQUAL: Mapping[str, object] = {
    "insert.mode": "upsert",
    "delete.enabled": True,
    "truncate.enabled": True,
    "primary.key.mode": "record_key",
    "schema.evolution": "basic",
}
"""Properties by which tables equal the source."""
