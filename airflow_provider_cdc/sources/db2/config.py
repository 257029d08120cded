"""Properties of the Db2 source."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Self

from pydantic import Field, field_validator, model_validator

from airflow_provider_cdc.core.config.base_configuration import ConnectionForm, PropertyEffect
from airflow_provider_cdc.core.config.property_enums import Patterns, TimePrecision
from airflow_provider_cdc.core.config.select_overrides import with_statements
from airflow_provider_cdc.core.model.table_schema import Column, TableId
from airflow_provider_cdc.sources.db2.config_enums import (
    NOT_LOGGED,
    Authentication,
    Db2SslMode,
    IsolationMode,
    LobHandling,
)
from airflow_provider_cdc.sources.relational.config import RelationalConfig

_FORBIDDEN = re.compile(r"[;{}\"\x00-\x1f]")


class Db2Config(RelationalConfig):
    """Documented names and defaults (Debezium Db2 connector, "Connector properties")."""

    database_port: int = Field(
        50000,
        alias="database.port",
        ge=1,
        le=65535,
        description="Port of the instance; comes from the Airflow connection.",
    )
    database_dbname: str = Field(
        alias="database.dbname", min_length=1, max_length=18, description="Name of the database to capture."
    )
    database_authentication: Authentication | None = Field(
        None,
        alias="database.authentication",
        description="Not in Debezium. How the user name and password are sent; by default as the server requires.",
    )
    database_ssl_mode: Db2SslMode = Field(
        Db2SslMode.DISABLED,
        alias="database.ssl.mode",
        description="Not in Debezium. required: the connection uses TLS from the first byte, and the server's certificate must be "
        "trusted.",
    )
    database_ssl_ca: str | None = Field(
        None,
        alias="database.ssl.ca",
        description="Not in Debezium. File with the certificates that are trusted with TLS (PEM or ARM), on the workers.",
    )
    database_ssl_hostname_validation: bool = Field(
        True,
        alias="database.ssl.hostname.validation",
        description="Not in Debezium. Whether the server's certificate must match the host name of the connection.",
    )
    schema_include_list: Patterns = Field(
        (), alias="schema.include.list", description="Not in Debezium. Schemas to capture; all others are excluded."
    )
    schema_exclude_list: Patterns = Field(
        (), alias="schema.exclude.list", description="Not in Debezium. Schemas to exclude."
    )
    time_precision_mode: TimePrecision = Field(
        TimePrecision.ADAPTIVE,
        alias="time.precision.mode",
        description="Names and units of dates and times in the Debezium JSON form.",
    )
    unavailable_value_placeholder: str = Field(
        "__debezium_unavailable_value",
        alias="unavailable.value.placeholder",
        description="In the Debezium JSON form, replaces a value that change tables do not contain.",
    )
    asn_capture_schema: str = Field(
        "ASNCDC",
        alias="asn.capture.schema",
        min_length=1,
        description="Not in Debezium. Schema of the control tables of the ASN capture agent (capture_schema of asncap).",
    )
    snapshot_isolation_mode: IsolationMode = Field(
        IsolationMode.REPEATABLE_READ,
        alias="snapshot.isolation.mode",
        description="Whether a snapshot locks tables while it reads them: exclusive and repeatable_read block writers, so the "
        "snapshot shows all tables at one moment. read_committed and read_uncommitted take no locks; tables need "
        "a key.",
    )
    snapshot_lock_timeout_ms: int = Field(
        10_000,
        alias="snapshot.lock.timeout.ms",
        ge=-1,
        description="How long a snapshot waits for its locks; 0 = not at all, -1 = no limit.",
    )
    snapshot_agent_timeout_ms: int = Field(
        120_000,
        alias="snapshot.agent.timeout.ms",
        ge=1,
        description="Not in Debezium. How long a snapshot with locks waits until the capture agent has published all changes that "
        "were committed before the locks.",
    )
    snapshot_select_statement_overrides: dict[str, str] = Field(
        {},
        alias="snapshot.select.statement.overrides",
        description="Names of tables, as SCHEMA.TABLE. The property with this name, a dot and the table name contains the "
        "SELECT with which a snapshot reads the table. The stream captures all rows.",
    )
    lob_handling_mode: LobHandling = Field(
        LobHandling.RESELECT,
        alias="lob.handling.mode",
        description="Not in Debezium. Change tables contain no values of LOB and XML columns: reselect reads them from the table, by the "
        "key of the row; unavailable omits them.",
    )

    FORM: ClassVar[ConnectionForm] = ConnectionForm(
        labels={"login": "User", "schema": "Database"},
        placeholders={"host": "db.example.org", "port": "50000", "login": "cdc", "schema": "SAMPLE"},
        extras={
            "database.authentication": "server, server_encrypt or data_encrypt; by default as the server requires",
            "database.ssl.mode": "disabled (default), or required for TLS",
            "database.ssl.ca": "file of trusted certificates, on the workers",
            "database.ssl.hostname.validation": "true (default): the certificate must match the host",
        },
    )
    CONNECTION: ClassVar[Mapping[str, str]] = {**RelationalConfig.CONNECTION, "schema": "database.dbname"}
    PASSED_OPTIONS: ClassVar[Mapping[str, Callable[[str], object]]] = {
        "ClientAcctStr": str, "ClientApplName": str, "ClientUserID": str, "ClientWrkStnName": str, "ConnectTimeout": int, "TLSVersion": str,
    }  # fmt: skip
    LISTS: ClassVar[Mapping[str, PropertyEffect]] = {
        "schema.include.list": PropertyEffect.TABLES,
        "schema.exclude.list": PropertyEffect.TABLES,
        "snapshot.select.statement.overrides": PropertyEffect.QUERIES,
        "lob.handling.mode": PropertyEffect.COLUMNS,
    }
    NOT_SUPPORTED: ClassVar[Mapping[str, str]] = {
        "schema.history.internal.skip.unparseable.ddl": "change tables contain no DDL: table structures are read from the catalog",
        "snapshot.locking.mode": "Db2 connectors lock as snapshot.isolation.mode defines",
    }

    @classmethod
    def parse(cls, properties: Mapping[str, Any]) -> Self:
        return super().parse(with_statements(properties, all_needed=True))

    @property
    def catalog_name(self) -> str:
        """The catalog of table ids: the database, in capitals, as Db2 keeps its name."""
        return self.database_dbname.upper()

    @property
    def capture_schema(self) -> str:
        """:attr:`asn_capture_schema` as SQL takes it."""
        escaped = self.asn_capture_schema.replace('"', '""')
        return f'"{escaped}"'

    @field_validator("database_hostname", "database_dbname", "database_user", "database_ssl_ca")
    @classmethod
    def _of_one_keyword(cls, value: str | None) -> str | None:
        if value is not None and _FORBIDDEN.search(value):
            raise ValueError(
                "contains one of the characters ; { } and \", which end a keyword of Db2's connection string"
            )
        return value

    @model_validator(mode="after")
    def _names_the_tunnel_or_the_host(self) -> Self:
        tls = self.database_ssl_mode is Db2SslMode.REQUIRED
        if self.database_ssh_conn_id and tls and self.database_ssl_hostname_validation:
            raise ValueError(
                "database.ssh.conn_id: the driver would compare the certificate with the local end of the tunnel; set "
                "database.ssl.hostname.validation=false, with the certificate's own authority in database.ssl.ca"
            )
        return self

    @classmethod
    def exclusive_pairs(cls) -> list[tuple[str, str]]:
        return [*super().exclusive_pairs(), ("schema_include_list", "schema_exclude_list")]

    def namespace_lists(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        return self.schema_include_list, self.schema_exclude_list

    def has_values(self, column: Column) -> bool:
        # == and not "is": an offset remembers the property as text
        return self.lob_handling_mode == LobHandling.RESELECT or column.declared.type_name not in NOT_LOGGED

    def build_dataset_name(self, table: TableId) -> tuple[str, str]:
        return f"db2://{self.server_address}", f"{self.catalog_name}.{table}"
