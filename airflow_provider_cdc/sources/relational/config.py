"""Properties that every relational source has, with the same meaning.

This module is imported at DAG parse: it must stay light.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Self

from pydantic import Field, SecretStr, field_validator

from airflow_provider_cdc.core.config.base_configuration import PropertyEffect
from airflow_provider_cdc.core.config.connector_config import ColumnSelection
from airflow_provider_cdc.core.config.table_source_config import TableConfig
from airflow_provider_cdc.core.converters.converter_properties import check_converters, with_converters
from airflow_provider_cdc.core.errors import SourceUnavailable
from airflow_provider_cdc.core.ssh_tunnels import find_address


class RelationalConfig(TableConfig):
    """Account and server of a connection, and properties without effect here.

    Those are the properties of Debezium's relational connectors that are without effect or refused here.

    A source defines ``database.port`` again, with its default, names its :attr:`BUILT_IN_CONVERTERS`, and adds its own.
    """

    database_hostname: str = Field(
        alias="database.hostname", description="Host of the server; comes from the Airflow connection."
    )
    database_port: int = Field(
        alias="database.port", description="Port of the server; comes from the Airflow connection.", ge=1, le=65535
    )
    database_user: str = Field(alias="database.user", description="Account; comes from the Airflow connection.")
    database_password: SecretStr = Field(
        SecretStr(""),
        alias="database.password",
        description="Password; comes from the Airflow connection, never from a definition.",
    )
    database_ssh_conn_id: str | None = Field(
        None,
        alias="database.ssh.conn_id",
        min_length=1,
        description="Not in Debezium. Airflow's connection to an SSH server that forwards to the database; comes from ssh_conn_id in the extra of "
        "the Airflow connection.",
    )
    database_query_timeout_ms: int = Field(
        600_000,
        alias="database.query.timeout.ms",
        description="How long a single query may take before the connection counts as lost; 0 = no limit.",
        ge=0,
    )
    converters: tuple[dict[str, str], ...] = Field(
        (),
        alias="converters",
        description="Names of converters; each name needs a name.type property with a documented class or the name of an entry point, and may have "
        "further properties. See docs/reference/custom-converters.md.",
    )

    include_schema_comments: bool = Field(
        False,
        alias="include.schema.comments",
        description="Whether schema changes contain the comments of tables and columns.",
    )
    driver_options: dict[str, str] = Field(
        {},
        alias="driver.*",
        description="Options of the Python driver, after the prefix. Oracle: expire_time, program, retry_count, retry_delay, sdu, stmtcachesize, "
        "tcp_connect_timeout. Db2: ClientAcctStr, ClientApplName, ClientUserID, ClientWrkStnName, ConnectTimeout, TLSVersion. MySQL and MariaDB: "
        "program_name, max_allowed_packet. Others are rejected: an option can have files read, or send the password to another server.",
    )

    BUILT_IN_CONVERTERS: ClassVar[Mapping[str, Mapping[str, str]]] = {}
    """Documented classes that ``converters`` may name → their properties → ``patterns``, ``bool`` or the name of a mode."""
    PASSED_OPTIONS: ClassVar[Mapping[str, Callable[[str], object]]] = {}
    """Names that ``driver.*`` may have → the type of their values."""
    CONNECTION: ClassVar[Mapping[str, str]] = {
        "host": "database.hostname",
        "port": "database.port",
        "login": "database.user",
        "password": "database.password",
    }
    CONNECTION_ONLY: ClassVar[tuple[str, ...]] = ("database.query.timeout.ms", "database.ssh.conn_id")
    LOGIN_EXTRAS: ClassVar[Mapping[str, str]] = {
        "ssh_conn_id": "connection of the type SSH: reach host and port through this server",
    }
    LISTS: ClassVar[Mapping[str, PropertyEffect]] = {
        "converters": PropertyEffect.FORM,
    }
    IGNORED: ClassVar[Mapping[str, str]] = {
        "schema.history.internal": "the schema history is stored in the state tables",
        "schema.history.internal.store.*": "only captured tables are recorded; tables that are added later are read at that time",
        "schema.history.internal.kafka.*": "the schema history is stored in the state tables",
        "schema.history.internal.file.*": "the schema history is stored in the state tables",
        "schema.history.internal.producer.*": "the schema history is stored in the state tables",
        "schema.history.internal.consumer.*": "the schema history is stored in the state tables",
        "source.struct.version": "the source block has the current format",
    }
    NOT_SUPPORTED: ClassVar[Mapping[str, str]] = {
        "streaming.delay.ms": "the snapshot's offset is durable before streaming begins",
    }
    HARMLESS: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "schema.history.internal.skip.unparseable.ddl": ("false",),
        "streaming.delay.ms": ("0",),
    }

    @field_validator("converters")
    @classmethod
    def _known_converters(cls, converters: tuple[dict[str, str], ...]) -> tuple[dict[str, str], ...]:
        check_converters(converters, cls.BUILT_IN_CONVERTERS)
        return converters

    @field_validator("driver_options", mode="before")
    @classmethod
    def _passed(cls, options: Any) -> dict[str, str]:
        if not isinstance(options, Mapping):
            raise ValueError("options of the driver are given one by one, as driver.NAME")
        texts = {name: str(value) for name, value in options.items()}
        for name, text in texts.items():
            convert = cls.PASSED_OPTIONS.get(name.removeprefix("driver."))
            if convert is None:
                valid = ", ".join(f"driver.{option}" for option in cls.PASSED_OPTIONS)
                raise ValueError(f"{name} is not passed to the driver. Valid options are: {valid}")
            if not text.isprintable() or set(text) & set(";{}="):
                raise ValueError(f"{name}: the value has characters that separate options")
            try:
                convert(text)
            except ValueError:
                raise ValueError(f"{name}: {text!r} is no number") from None
        return texts

    def parse_driver_options(self) -> dict[str, Any]:
        """Return the options for the driver, without the prefix, with values of their types."""
        named = {name.removeprefix("driver."): text for name, text in self.driver_options.items()}
        return {name: self.PASSED_OPTIONS[name](text) for name, text in named.items()}

    @classmethod
    def parse(cls, properties: Mapping[str, Any]) -> Self:
        return super().parse(with_converters(properties))

    def column_rules(self) -> ColumnSelection:
        own = tuple(c for c in self.converters if c["type"] not in self.BUILT_IN_CONVERTERS)
        return dataclasses.replace(super().column_rules(), converters=own)

    def find_address(self, host: str | None = None, port: int | None = None) -> tuple[str, int]:
        """Return the host and port to connect to: the server's own, or the local end of an SSH tunnel. Call it for each connection.

        :param host: another host than that of the configuration
        :raises SourceUnavailable: the SSH server, or the database behind it, does not answer
        :raises CdcError: the tunnel cannot be opened
        """
        return find_address(
            self.database_ssh_conn_id,
            host or self.database_hostname,
            port or self.database_port,
            unavailable=SourceUnavailable,
        )

    @property
    def server_address(self) -> str:
        """``host:port`` of the server."""
        host = self.database_hostname
        return f"[{host}]:{self.database_port}" if ":" in host else f"{host}:{self.database_port}"
