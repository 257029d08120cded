"""Properties of the PostgreSQL source.

This module is imported at DAG parse: it must stay light.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Self

from pydantic import Field, SecretStr, field_validator, model_validator

from airflow_provider_cdc.core.config.base_configuration import ConnectionForm, PropertyEffect
from airflow_provider_cdc.core.config.property_enums import Patterns
from airflow_provider_cdc.core.config.select_overrides import name_parts, with_statements
from airflow_provider_cdc.core.model.table_schema import TableId
from airflow_provider_cdc.sources.postgresql.config_enums import (
    HstoreHandling,
    IntervalHandling,
    LockingMode,
    PublicationMode,
    SslMode,
)
from airflow_provider_cdc.sources.relational.token_login_config import TokenLoginConfig

_SLOT_NAME = re.compile(r"[a-z0-9_]{1,63}")
_VERIFIED = (SslMode.VERIFY_CA, SslMode.VERIFY_FULL)


class PostgresConfig(TokenLoginConfig):
    """Documented names and defaults (Debezium PostgreSQL connector, "Connector configuration properties").

    One default differs: ``publication.autocreate.mode`` is ``filtered`` and not ``all_tables``, which needs a superuser, and makes updates of
    tables without a replica identity fail in the whole database.
    """

    database_port: int = Field(
        5432,
        alias="database.port",
        ge=1,
        le=65535,
        description="Port of the server; comes from the Airflow connection.",
    )
    database_dbname: str = Field(
        alias="database.dbname", min_length=1, max_length=63, description="Name of the database to capture."
    )
    database_sslmode: SslMode = Field(
        SslMode.PREFER,
        alias="database.sslmode",
        description="Whether connections are encrypted, and how the server's certificate is verified.",
    )
    database_sslrootcert: str | None = Field(
        None, alias="database.sslrootcert", description="PEM file of the trusted authorities, on the workers."
    )
    database_sslcert: str | None = Field(
        None, alias="database.sslcert", description="PEM file with the client's certificate, on the workers."
    )
    database_sslkey: str | None = Field(
        None, alias="database.sslkey", description="PEM file of the client's key, on the workers."
    )
    database_sslpassword: SecretStr = Field(
        SecretStr(""),
        alias="database.sslpassword",
        description="Password of the client's key; comes from the Airflow connection, never from a definition.",
    )
    connect_timeout_ms: int = Field(
        30_000,
        alias="connect.timeout.ms",
        ge=1,
        description="Not in Debezium's PostgreSQL connector. How long connecting may take.",
    )
    schema_include_list: Patterns = Field(
        (), alias="schema.include.list", description="Schemas to capture; all others are excluded."
    )
    schema_exclude_list: Patterns = Field((), alias="schema.exclude.list", description="Schemas to exclude.")
    slot_name: str = Field(
        "debezium",
        alias="slot.name",
        description="Name of the replication slot. Each connector needs one that no other reader uses.",
    )
    slot_failover: bool = Field(
        False,
        alias="slot.failover",
        description="Whether standbys keep a copy of the slot, so that capture continues after a failover (PostgreSQL 17 and newer).",
    )
    slot_max_retries: int = Field(
        6, alias="slot.max.retries", ge=0, description="How often to try again while another reader uses the slot."
    )
    slot_retry_delay_ms: int = Field(
        10_000, alias="slot.retry.delay.ms", ge=0, description="How long to wait before the next of these tries."
    )
    publication_name: str = Field(
        "dbz_publication",
        alias="publication.name",
        min_length=1,
        max_length=63,
        description="Name of the publication, which says which tables the slot sends.",
    )
    publication_autocreate_mode: PublicationMode = Field(
        PublicationMode.FILTERED,
        alias="publication.autocreate.mode",
        description="Tables of a publication that does not exist yet: filtered, the captured tables, and those that are captured later are added; "
        "all_tables; no_tables; disabled, the publication must exist. (Debezium's default is all_tables.)",
    )
    publish_via_partition_root: bool = Field(
        False,
        alias="publish.via.partition.root",
        description="Whether a publication that the connector creates sends changes of partitions as changes of the partitioned table.",
    )
    replica_identity_autoset_values: str = Field(
        "",
        alias="replica.identity.autoset.values",
        description="Replica identities to set, as schema.table:FULL, DEFAULT, NOTHING or INDEX name, with patterns for tables; separated by commas.",
    )
    hstore_handling_mode: HstoreHandling = Field(
        HstoreHandling.JSON,
        alias="hstore.handling.mode",
        description="In the Debezium JSON form, hstore values as JSON texts or as maps.",
    )
    interval_handling_mode: IntervalHandling = Field(
        IntervalHandling.NUMERIC,
        alias="interval.handling.mode",
        description="Intervals as microseconds, with months of 365.25 / 12 days, or as exact ISO 8601 texts.",
    )
    money_fraction_digits: int = Field(
        2, alias="money.fraction.digits", ge=0, le=38, description="Decimals of money values, as lc_monetary has them."
    )
    include_unknown_datatypes: bool = Field(
        False,
        alias="include.unknown.datatypes",
        description="Whether columns of types that are not known here are captured, in the binary form in which the server sends them.",
    )
    unavailable_value_placeholder: str = Field(
        "__debezium_unavailable_value",
        alias="unavailable.value.placeholder",
        description="In the Debezium JSON form, replaces a value that the log does not contain because the update left it as it was.",
    )
    snapshot_locking_mode: LockingMode = Field(
        LockingMode.NONE,
        alias="snapshot.locking.mode",
        description="Whether tables are locked against DDL while a snapshot begins; writers are never blocked.",
    )
    snapshot_lock_timeout_ms: int = Field(
        10_000, alias="snapshot.lock.timeout.ms", ge=1, description="How long to wait for these locks."
    )
    snapshot_select_statement_overrides: dict[str, str] = Field(
        {},
        alias="snapshot.select.statement.overrides",
        description="Names of tables, as schema.table. The property with this name, a dot and the table name contains the "
        "SELECT with which a snapshot reads the table. The log is captured completely.",
    )

    FORM: ClassVar[ConnectionForm] = ConnectionForm(
        labels={"login": "User", "schema": "Database"},
        placeholders={"host": "db.example.org", "port": "5432", "login": "cdc", "schema": "shop"},
        extras={
            "database.sslmode": "disable, allow, prefer (default), require, verify-ca or verify-full",
            "database.sslrootcert": "PEM file of the trusted authorities, on the workers",
            "database.sslcert": "PEM file with the client's certificate, on the workers",
            "database.sslkey": "PEM file with the client's key, on the workers",
            "database.sslpassword": "password of the client's key",
        },
    )
    CONNECTION: ClassVar[Mapping[str, str]] = {**TokenLoginConfig.CONNECTION, "schema": "database.dbname"}
    CONNECTION_ONLY: ClassVar[tuple[str, ...]] = ("connect.timeout.ms", "database.sslpassword")
    PASSED_OPTIONS: ClassVar[Mapping[str, Callable[[str], object]]] = {"application_name": str}
    LISTS: ClassVar[Mapping[str, PropertyEffect]] = {
        "schema.include.list": PropertyEffect.TABLES,
        "schema.exclude.list": PropertyEffect.TABLES,
        "snapshot.select.statement.overrides": PropertyEffect.QUERIES,
        "interval.handling.mode": PropertyEffect.FORM,
        "money.fraction.digits": PropertyEffect.FORM,
        "include.unknown.datatypes": PropertyEffect.COLUMNS,
    }
    IGNORED: ClassVar[Mapping[str, str]] = {
        "database.tcpKeepAlive": "connections are always kept alive",
        "schema.refresh.mode": "the structure that the log itself has decides, and unchanged values do not concern it",
        "status.update.interval.ms": "the server is answered every five seconds",
        "xmin.fetch.interval.ms": "the xmin of the slot is read where pages and metrics show it",
        "lsn.flush.timeout.ms": "the position is confirmed without waiting, after the offset is durable",
        "lsn.flush.timeout.action": "the position is confirmed without waiting, after the offset is durable",
        "create.slot.command.timeout": "a slot is created within database.query.timeout.ms",
    }
    NOT_SUPPORTED: ClassVar[Mapping[str, str]] = {
        "plugin.name": "the log is read by pgoutput, which each server has",
        "slot.drop.on.stop": "a run ends many times a day: drop the slot with the connector",
        "slot.stream.params": "the parameters of pgoutput follow from the other properties",
        "flush.lsn.source": "a slot that is not confirmed fills the server's disk",
        "lsn.flush.mode": "a slot that is not confirmed fills the server's disk",
        "slot.seek.to.known.offset.on.start": "the offset decides, and a slot that has moved beyond it is an error",
        "offset.mismatch.strategy": "the offset decides, and a slot that has moved beyond it is an error",
        "snapshot.isolation.mode": "a snapshot reads all tables at one position of the log, which needs repeatable_read",
        "message.prefix.include.list": "logical decoding messages are not captured",
        "message.prefix.exclude.list": "logical decoding messages are not captured",
        "database.sslfactory": "this connector is not written in Java: set database.sslmode",
    }
    HARMLESS: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "plugin.name": ("pgoutput",),
        "slot.drop.on.stop": ("false",),
        "slot.stream.params": ("",),
        "flush.lsn.source": ("true",),
        "lsn.flush.mode": ("connector",),
        "slot.seek.to.known.offset.on.start": ("true",),
        "offset.mismatch.strategy": ("trust_offset",),
        "message.prefix.exclude.list": (".*",),
        "snapshot.isolation.mode": ("repeatable_read", "serializable"),
    }

    @classmethod
    def parse(cls, properties: Mapping[str, Any]) -> Self:
        return super().parse(with_statements(properties))

    @field_validator("slot_name")
    @classmethod
    def _slot_of_letters(cls, name: str) -> str:
        if _SLOT_NAME.fullmatch(name) is None:
            raise ValueError(f"{name!r} is no name of a slot: use up to 63 of the characters a-z, 0-9 and _")
        return name

    @field_validator("snapshot_select_statement_overrides")
    @classmethod
    def _named_tables(cls, statements: dict[str, str]) -> dict[str, str]:
        for name in statements:
            if len(name_parts(name)) != 2:
                raise ValueError(
                    f"{name!r} does not have the format <schema>.<table>, with double quotes around special names"
                )
        return statements

    @model_validator(mode="after")
    def _sends_tokens_to_its_server_only(self) -> Self:
        if self.database_token_provider is not None and self.database_sslmode not in _VERIFIED:
            raise ValueError(
                f"database.sslmode={self.database_sslmode.value}: a login token could be read on its way, or by another server; set "
                "verify-full, and database.sslrootcert to the file with the certificates of the cloud"
            )
        return self

    @classmethod
    def exclusive_pairs(cls) -> list[tuple[str, str]]:
        return [
            *super().exclusive_pairs(),
            ("schema_include_list", "schema_exclude_list"),
        ]

    def namespace_lists(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        return self.schema_include_list, self.schema_exclude_list

    def build_dataset_name(self, table: TableId) -> tuple[str, str]:
        return f"postgres://{self.server_address}", f"{self.database_dbname}.{table}"
