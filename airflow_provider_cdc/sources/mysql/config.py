"""Properties of the MySQL and MariaDB sources."""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Self

from pydantic import Field, field_validator, model_validator

from airflow_provider_cdc.core.config.base_configuration import ConnectionForm, PropertyEffect
from airflow_provider_cdc.core.config.property_enums import FailureHandling, OptionalHandlingMode, Patterns
from airflow_provider_cdc.core.config.select_overrides import name_parts, with_statements
from airflow_provider_cdc.core.errors import SchemaConflict, TerminalError
from airflow_provider_cdc.core.model.table_schema import TableId
from airflow_provider_cdc.sources.mysql.converters import CONVERTERS
from airflow_provider_cdc.sources.relational.token_login_config import TokenLoginConfig


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


class MySqlConfig(TokenLoginConfig):
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
        description="A number that no server and no other client of this replication topology uses: the connector "
        "connects as a replica.",
    )
    database_include_list: Patterns = Field(
        (), alias="database.include.list", description="Databases to capture; all others are excluded."
    )
    database_exclude_list: Patterns = Field((), alias="database.exclude.list", description="Databases to exclude.")
    database_ssl_mode: SslMode = Field(
        SslMode.PREFERRED,
        alias="database.ssl.mode",
        description="Whether connections are encrypted, and how the server's certificate is verified.",
    )
    database_ssl_ca: str | None = Field(
        None, alias="database.ssl.ca", description="Not in Debezium. PEM file of the trusted authorities."
    )
    database_ssl_cert: str | None = Field(
        None, alias="database.ssl.cert", description="Not in Debezium. PEM file with the client's certificate."
    )
    database_ssl_key: str | None = Field(
        None, alias="database.ssl.key", description="Not in Debezium. PEM file of the client's key."
    )
    connect_timeout_ms: int = Field(
        30_000, alias="connect.timeout.ms", description="How long connecting may take.", ge=1
    )
    bigint_unsigned_handling_mode: UnsignedHandling = Field(
        UnsignedHandling.LONG,
        alias="bigint.unsigned.handling.mode",
        description="BIGINT UNSIGNED as a 64-bit integer, with an error if a value does not fit, or as an exact decimal.",
    )
    snapshot_locking_mode: LockingMode = Field(
        LockingMode.MINIMAL,
        alias="snapshot.locking.mode",
        description="Whether and for how long tables are locked when a snapshot starts.",
    )
    snapshot_hostname: str | None = Field(
        None,
        alias="snapshot.hostname",
        description="Host of a replica that initial and blocking snapshots are read from. The log is read from database.hostname. Both need GTIDs.",
    )
    snapshot_port: int | None = Field(
        None, alias="snapshot.port", description="Port of snapshot.hostname. Default: database.port.", ge=1, le=65535
    )
    snapshot_lock_timeout_ms: int = Field(
        10_000, alias="snapshot.lock.timeout.ms", description="How long to wait for the lock.", ge=1
    )
    snapshot_select_statement_overrides: dict[str, str] = Field(
        {},
        alias="snapshot.select.statement.overrides",
        description="Names of tables, as database.table. The property with this name, a dot and the table name contains the "
        "SELECT with which a snapshot reads the table. The log is captured completely.",
    )
    include_query: bool = Field(
        False,
        alias="include.query",
        description="Whether events contain the statement that caused them, if the server logs it "
        "(binlog_rows_query_log_events, binlog_annotate_row_events).",
    )
    binlog_net_write_timeout: int = Field(
        0,
        alias="binlog.net.write.timeout",
        description="net_write_timeout of the log connection, in seconds; 0 = the server's value.",
        ge=0,
    )
    binlog_net_read_timeout: int = Field(
        0,
        alias="binlog.net.read.timeout",
        description="net_read_timeout of the log connection, in seconds; 0 = the server's value.",
        ge=0,
    )

    gtid_source_includes: Patterns = Field(
        (),
        alias="gtid.source.includes",
        description="GTID sources to include: UUIDs of servers for MySQL, numbers of domains for MariaDB. Only their GTIDs "
        "are used to find the position, for example after a switch to another server.",
    )
    gtid_source_excludes: Patterns = Field(
        (), alias="gtid.source.excludes", description="GTID sources to exclude; all others are included."
    )
    gtid_source_filter_dml_events: bool = Field(
        True,
        alias="gtid.source.filter.dml.events",
        description="Whether rows of transactions of excluded GTID sources are skipped.",
    )

    event_deserialization_failure_handling_mode: OptionalHandlingMode = Field(
        None,
        alias="event.deserialization.failure.handling.mode",
        description="Deprecated: use event.processing.failure.handling.mode. It has an effect if that is not set.",
    )
    inconsistent_schema_handling_mode: OptionalHandlingMode = Field(
        None,
        alias="inconsistent.schema.handling.mode",
        description="As event.processing.failure.handling.mode, for rows that match no known schema of their table. The default is the value of that property "
        "(Debezium's default is 'fail').",
    )

    FORM: ClassVar[ConnectionForm] = ConnectionForm(
        labels={"login": "User"},
        hidden=("schema",),
        placeholders={"host": "db.example.org", "port": "3306", "login": "cdc"},
        extras={
            "database.ssl.mode": "disabled, preferred (default), required, verify_ca or verify_identity",
            "database.ssl.ca": "PEM file of the trusted authorities, on the workers",
            "database.ssl.cert": "PEM file with the client's certificate, on the workers",
            "database.ssl.key": "PEM file with the client's key, on the workers",
        },
        stand_ins={"database.server.id": 4_294_967_295},
    )
    CONNECTION_ONLY: ClassVar[tuple[str, ...]] = ("connect.timeout.ms",)
    PASSED_OPTIONS: ClassVar[Mapping[str, Callable[[str], object]]] = {"program_name": str, "max_allowed_packet": int}
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
        "database.jdbc.driver": "this connector does not use JDBC",
        "database.protocol": "this connector does not use JDBC",
        "connect.keep.alive": "a lost connection is an error; it is never replaced silently",
        "connect.keep.alive.interval.ms": "a lost connection is an error; it is never replaced silently",
        "use.nongraceful.disconnect": "this connector has no keep-alive thread",
        "min.row.count.to.stream.results": "every table is streamed",
        "binlog.buffer.size": "rolled back changes are always skipped, whatever their size",
        "enable.time.adjuster": "the server stores years with four digits",
        "table.ignore.builtin": "system tables are never captured",
    }
    NOT_SUPPORTED: ClassVar[Mapping[str, str]] = {
        "database.ssl.keystore*": "Java key stores are not supported: set database.ssl.cert and database.ssl.key to PEM files",
        "database.ssl.truststore*": "Java key stores are not supported: set database.ssl.ca to a PEM file",
        "schema.history.internal.skip.unparseable.ddl": "unknown DDL is never skipped: the catalog is read instead",
    }
    BUILT_IN_CONVERTERS: ClassVar[Mapping[str, Mapping[str, str]]] = CONVERTERS

    @classmethod
    def parse(cls, properties: Mapping[str, Any]) -> Self:
        return super().parse(with_statements(properties))

    @field_validator("snapshot_select_statement_overrides")
    @classmethod
    def _named_tables(cls, statements: dict[str, str]) -> dict[str, str]:
        for name in statements:
            if len(name_parts(name)) != 2:
                raise ValueError(
                    f"{name!r} does not have the format <database>.<table>, with double quotes around special names"
                )
        return statements

    @model_validator(mode="after")
    def _sends_tokens_to_its_server_only(self) -> Self:
        verified = self.database_ssl_mode in (SslMode.VERIFY_CA, SslMode.VERIFY_IDENTITY)
        if self.database_token_provider is not None and not verified:
            raise ValueError(
                f"database.ssl.mode={self.database_ssl_mode.value}: a login token could be read on its way, or by another server; set "
                "verify_identity, and database.ssl.ca to the file with the certificates of the cloud"
            )
        return self

    @model_validator(mode="after")
    def _hides_everywhere(self) -> Self:
        if (hidden := ", ".join(self.hidden_columns())) and self.include_query:
            raise ValueError(f"include.query: the statements would expose the values that {hidden} hides")
        return self

    @model_validator(mode="before")
    @classmethod
    def _present_name(cls, values: dict[str, Any]) -> dict[str, Any]:
        older, name = (
            values.get("event.deserialization.failure.handling.mode"),
            "event.processing.failure.handling.mode",
        )
        return values if older is None else {name: older, **values}

    @property
    def on_replica(self) -> Self | None:
        """The same properties with the replica of ``snapshot.hostname`` as the server; ``None`` if there is none."""
        if self.snapshot_hostname is None:
            return None
        address = {
            "database_hostname": self.snapshot_hostname,
            "database_port": self.snapshot_port or self.database_port,
        }
        return self.model_copy(update={**address, "snapshot_hostname": None, "snapshot_port": None})

    def find_failure_handling(self, error: TerminalError) -> FailureHandling:
        if isinstance(error, SchemaConflict) and self.inconsistent_schema_handling_mode is not None:
            return self.inconsistent_schema_handling_mode
        return super().find_failure_handling(error)

    def find_widened_lists(self, before: Self) -> list[str]:
        lists = super().find_widened_lists(before)
        left_out = before.gtid_source_filter_dml_events and (before.gtid_source_includes or before.gtid_source_excludes)
        if left_out and not self.gtid_source_filter_dml_events:
            lists.append("gtid.source.filter.dml.events")
        return lists

    def leaves_out(self) -> list[str]:
        names = super().leaves_out()
        return names if self.gtid_source_filter_dml_events else [n for n in names if not n.startswith("gtid.source.")]

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
        return f"mysql://{self.server_address}", str(table)  # MariaDB has no separate name there
