"""Properties of the MySQL and MariaDB sources."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Any, ClassVar, Self

from pydantic import Field, field_validator, model_validator

from airflow_provider_cdc.core.config.base_configuration import ConnectionForm, PropertyEffect
from airflow_provider_cdc.core.config.property_enums import Patterns
from airflow_provider_cdc.core.config.select_overrides import name_parts, with_statements
from airflow_provider_cdc.core.model.table_schema import TableId
from airflow_provider_cdc.core.spi.converter_properties import check_converters
from airflow_provider_cdc.sources.mysql.converters import CONVERTERS
from airflow_provider_cdc.sources.relational.config import RelationalConfig


class UnsignedHandling(enum.StrEnum):
    LONG = "long"
    PRECISE = "precise"


class LockingMode(enum.StrEnum):
    MINIMAL = "minimal"
    EXTENDED = "extended"
    NONE = "none"
    CUSTOM = "custom"


class SslMode(enum.StrEnum):
    DISABLED = "disabled"
    PREFERRED = "preferred"
    REQUIRED = "required"
    VERIFY_CA = "verify_ca"
    VERIFY_IDENTITY = "verify_identity"


class MySqlConfig(RelationalConfig):
    """Documented names and defaults (Debezium MySQL connector, "Required" and "Advanced" configuration properties)."""

    database_port: int = Field(
        3306,
        alias="database.port",
        description="Port of the server; comes from the Airflow connection.",
        ge=1,
        le=65535,
    )
    database_server_id: int = Field(
        alias="database.server.id",
        ge=1,
        le=0xFFFFFFFF,
        description="A number that no server and no other client of this replication topology uses: capture joins as a replica.",
    )
    database_include_list: Patterns = Field(
        (), alias="database.include.list", description="Databases to capture; all others are left out."
    )
    database_exclude_list: Patterns = Field((), alias="database.exclude.list", description="Databases to leave out.")
    database_initial_statements: str = Field(
        "",
        alias="database.initial.statements",
        description="SQL that every connection runs first, separated by semicolons; a doubled one is a literal one.",
    )
    database_ssl_mode: SslMode = Field(
        SslMode.PREFERRED,
        alias="database.ssl.mode",
        description="Whether connections are encrypted, and what is verified.",
    )
    database_ssl_ca: str | None = Field(
        None, alias="database.ssl.ca", description="Ours. PEM file of trusted authorities."
    )
    database_ssl_cert: str | None = Field(None, alias="database.ssl.cert", description="Ours. PEM file of the client.")
    database_ssl_key: str | None = Field(
        None, alias="database.ssl.key", description="Ours. PEM file of the client's key."
    )
    connect_timeout_ms: int = Field(
        30_000, alias="connect.timeout.ms", description="How long connecting may take.", ge=1
    )
    bigint_unsigned_handling_mode: UnsignedHandling = Field(
        UnsignedHandling.LONG,
        alias="bigint.unsigned.handling.mode",
        description="BIGINT UNSIGNED as a 64-bit integer, an error where it does not fit, or as an exact decimal.",
    )
    snapshot_locking_mode: LockingMode = Field(
        LockingMode.MINIMAL,
        alias="snapshot.locking.mode",
        description="How long tables are locked while a snapshot begins.",
    )
    snapshot_lock_timeout_ms: int = Field(
        10_000, alias="snapshot.lock.timeout.ms", description="How long the lock is waited for.", ge=1
    )
    snapshot_select_statement_overrides: dict[str, str] = Field(
        {},
        alias="snapshot.select.statement.overrides",
        description="Names of tables, as database.table; the property of this name, a dot and the table's name is the SELECT "
        "with which a snapshot reads it. The log is captured whole.",
    )
    include_query: bool = Field(
        False,
        alias="include.query",
        description="Events have the statement that caused them, if the server logs it (binlog_rows_query_log_events, binlog_annotate_row_events).",
    )
    include_schema_comments: bool = Field(
        False,
        alias="include.schema.comments",
        description="Schema changes have the comments of tables and columns.",
    )
    binlog_net_write_timeout: int = Field(
        0,
        alias="binlog.net.write.timeout",
        description="Seconds; net_write_timeout of the log's connection, 0 = the server's.",
        ge=0,
    )
    binlog_net_read_timeout: int = Field(
        0,
        alias="binlog.net.read.timeout",
        description="Seconds; net_read_timeout of the log's connection, 0 = the server's.",
        ge=0,
    )

    gtid_source_includes: Patterns = Field(
        (),
        alias="gtid.source.includes",
        description="GTID sources to include: with MySQL UUIDs of servers, with MariaDB numbers of domains. Only their GTIDs are used "
        "to find the position, as after a switch to another server.",
    )
    gtid_source_excludes: Patterns = Field(
        (), alias="gtid.source.excludes", description="GTID sources to exclude; all others are included."
    )
    gtid_source_filter_dml_events: bool = Field(
        True,
        alias="gtid.source.filter.dml.events",
        description="Rows of transactions of excluded GTID sources are left out.",
    )

    FORM: ClassVar[ConnectionForm] = ConnectionForm(
        labels={"login": "User"},
        hidden=("schema",),
        placeholders={"host": "db.example.org", "port": "3306", "login": "cdc"},
        extras={
            "database.ssl.mode": "disabled, preferred (default), required, verify_ca or verify_identity",
            "database.ssl.ca": "PEM file of trusted authorities, on the workers",
            "database.ssl.cert": "PEM file of the client, on the workers",
            "database.ssl.key": "PEM file of the client's key, on the workers",
        },
        stand_ins={"database.server.id": 4_294_967_295},
    )
    CONNECTION_ONLY: ClassVar[tuple[str, ...]] = ("connect.timeout.ms",)
    LISTS: ClassVar[Mapping[str, PropertyEffect]] = {
        "database.include.list": PropertyEffect.TABLES,
        "database.exclude.list": PropertyEffect.TABLES,
        "gtid.source.includes": PropertyEffect.CHANGES,
        "gtid.source.excludes": PropertyEffect.CHANGES,
        "gtid.source.filter.dml.events": PropertyEffect.CHANGES,
        "snapshot.select.statement.overrides": PropertyEffect.QUERIES,
        "bigint.unsigned.handling.mode": PropertyEffect.FORM,
    }
    IGNORED: ClassVar[Mapping[str, str]] = {
        "database.jdbc.driver": "there is no JDBC here",
        "database.protocol": "there is no JDBC here",
        "connect.keep.alive": "a lost connection is an error here, never silently replaced",
        "connect.keep.alive.interval.ms": "a lost connection is an error here, never silently replaced",
        "use.nongraceful.disconnect": "there is no keep-alive thread",
        "min.row.count.to.stream.results": "every table is streamed",
        "binlog.buffer.size": "rolled back changes are always left out, whatever their size",
        "enable.time.adjuster": "the server stores years with four digits",
        "table.ignore.builtin": "system tables are never captured",
        "event.deserialization.failure.handling.mode": "an event that cannot be read is always an error",
    }
    NOT_SUPPORTED: ClassVar[Mapping[str, str]] = {
        "database.ssl.keystore*": "Java key stores cannot be read here: give PEM files in database.ssl.cert and database.ssl.key",
        "database.ssl.truststore*": "Java key stores cannot be read here: give a PEM file in database.ssl.ca",
        "schema.history.internal.skip.unparseable.ddl": "unknown DDL is never skipped: the catalog is read instead",
        "inconsistent.schema.handling.mode": "rows of an unknown table are looked up in the catalog, or an error",
    }

    @classmethod
    def parse(cls, properties: Mapping[str, Any]) -> Self:
        return super().parse(with_statements(properties))

    @field_validator("converters")
    @classmethod
    def _known_converters(cls, converters: tuple[dict[str, str], ...]) -> tuple[dict[str, str], ...]:
        check_converters(converters, CONVERTERS)
        return converters

    @field_validator("snapshot_select_statement_overrides")
    @classmethod
    def _named_tables(cls, statements: dict[str, str]) -> dict[str, str]:
        for name in statements:
            if len(name_parts(name)) != 2:
                raise ValueError(
                    f"{name!r} is not of the form <database>.<table>, with double quotes around special names"
                )
        return statements

    @model_validator(mode="after")
    def _hides_everywhere(self) -> Self:
        if self.column_texts and self.include_query:
            raise ValueError(f"include.query: the statements would show what {', '.join(self.column_texts)} hides")
        return self

    def find_widened_lists(self, before: Self) -> list[str]:
        found = super().find_widened_lists(before)
        left_out = before.gtid_source_filter_dml_events and (before.gtid_source_includes or before.gtid_source_excludes)
        if left_out and not self.gtid_source_filter_dml_events:
            found.append("gtid.source.filter.dml.events")
        return found

    def leaves_out(self) -> list[str]:
        found = super().leaves_out()
        return found if self.gtid_source_filter_dml_events else [n for n in found if not n.startswith("gtid.source.")]

    @classmethod
    def exclusive_pairs(cls) -> list[tuple[str, str]]:
        return [
            *super().exclusive_pairs(),
            ("database_include_list", "database_exclude_list"),
            ("gtid_source_includes", "gtid_source_excludes"),
        ]

    def namespace_lists(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        return self.database_include_list, self.database_exclude_list

    def build_dataset_name(self, table: TableId) -> tuple[str, str]:
        return f"mysql://{self.server_address}", str(table)  # MariaDB has no name of its own there
