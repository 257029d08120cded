"""Properties of the Oracle source."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Self

from pydantic import Field, SecretStr, field_validator, model_validator

from airflow_provider_cdc.core.config.base_configuration import ConnectionForm, PropertyEffect
from airflow_provider_cdc.core.config.property_enums import Patterns, TimePrecision
from airflow_provider_cdc.core.config.select_overrides import with_statements
from airflow_provider_cdc.core.model.table_schema import Column, TableId
from airflow_provider_cdc.sources.oracle.config_enums import (
    LOBS,
    BufferType,
    ConnectionAdapter,
    IntervalHandling,
    LockingMode,
    MiningStrategy,
    Names,
    NetworkProtocol,
    QueryFilterMode,
    Strategy,
)
from airflow_provider_cdc.sources.oracle.number_column_converters import CONVERTERS, check_decimal_modes
from airflow_provider_cdc.sources.relational.config import RelationalConfig

_PROVIDER = re.compile(r"\s*(config-[\w-]+|ldaps?)\s*:", re.IGNORECASE)
_HOST = re.compile(r"\(\s*HOST\s*=\s*([^)\s]+)\s*\)", re.IGNORECASE)
_PORT = re.compile(r"\(\s*PORT\s*=\s*(\d+)\s*\)", re.IGNORECASE)
_USUAL_PORT = 1521
_SPECIAL = re.compile(r"[\\^$*+?()\[\]{}|]")


class OracleConfig(RelationalConfig):
    """Documented names and defaults (Debezium Oracle connector, "Connector properties")."""

    database_hostname: str = Field(
        "", alias="database.hostname", description="Host of the database; comes from the Airflow connection."
    )
    database_port: int = Field(
        1521,
        alias="database.port",
        ge=1,
        le=65535,
        description="Port of the listener; comes from the Airflow connection.",
    )
    database_dbname: str = Field(
        alias="database.dbname",
        description="Name of the database; in a container database, the name of the root container.",
    )
    database_protocol: NetworkProtocol = Field(
        NetworkProtocol.TCP,
        alias="database.protocol",
        description="Not in Debezium. tcps: the connection uses TLS from the first byte, and the server must match its certificate.",
    )
    database_ssl_ca: str | None = Field(
        None,
        alias="database.ssl.ca",
        description="Not in Debezium. PEM file with the authorities that are trusted with tcps; without it and without a wallet, "
        "the system's trusted authorities are used.",
    )
    database_ssl_wallet: str | None = Field(
        None,
        alias="database.ssl.wallet",
        description="Not in Debezium. Folder with ewallet.pem: trusted authorities, and the client's certificate if the server "
        "requires one.",
    )
    database_ssl_wallet_password: SecretStr = Field(
        SecretStr(""),
        alias="database.ssl.wallet.password",
        description="Not in Debezium. Password of the key in ewallet.pem; comes from the Airflow connection, never from a definition.",
    )
    database_ssl_server_dn_match: bool = Field(
        True,
        alias="database.ssl.server.dn.match",
        description="Not in Debezium. Whether the server's certificate must match the host name of the connection, or "
        "database.ssl.server.cert.dn.",
    )
    database_ssl_server_cert_dn: str | None = Field(
        None,
        alias="database.ssl.server.cert.dn",
        description="Not in Debezium. Distinguished name that the server's certificate must have, instead of the host name.",
    )
    database_pdb_name: str | None = Field(
        None,
        alias="database.pdb.name",
        description="Pluggable database to capture, in a container database. If the connection points to it, LogMiner "
        "runs inside it.",
    )
    database_url: str | None = Field(
        None, alias="database.url", description="Connect descriptor or TNS name, instead of host and port."
    )
    database_connection_adapter: ConnectionAdapter = Field(
        ConnectionAdapter.LOGMINER, alias="database.connection.adapter", description="How changes are read."
    )
    rac_nodes: Names = Field(
        (), alias="rac.nodes", description="Hosts of a cluster, host or host:port, separated by commas."
    )
    query_fetch_size: int = Field(10_000, alias="query.fetch.size", ge=0, description="Rows per round trip.")
    schema_include_list: Patterns = Field(
        (), alias="schema.include.list", description="Schemas to capture; all others are excluded."
    )
    schema_exclude_list: Patterns = Field((), alias="schema.exclude.list", description="Schemas to exclude.")
    time_precision_mode: TimePrecision = Field(
        TimePrecision.ADAPTIVE,
        alias="time.precision.mode",
        description="Names and units of dates and times in the Debezium JSON form; connect converts DATE to a date "
        "without a time.",
    )
    interval_handling_mode: IntervalHandling = Field(
        IntervalHandling.NUMERIC,
        alias="interval.handling.mode",
        description="INTERVAL values as microseconds (a month is a twelfth of 365.25 days), or as text.",
    )
    lob_enabled: bool = Field(
        False,
        alias="lob.enabled",
        description="Whether the values of CLOB, NCLOB, BLOB and XMLTYPE columns are captured; otherwise they are "
        "unavailable.",
    )
    unavailable_value_placeholder: str = Field(
        "__debezium_unavailable_value",
        alias="unavailable.value.placeholder",
        description="In the Debezium JSON form, replaces a value that the log does not contain.",
    )
    snapshot_locking_mode: LockingMode = Field(
        LockingMode.SHARED,
        alias="snapshot.locking.mode",
        description="Whether tables are locked against DDL while a snapshot reads their definitions.",
    )
    snapshot_select_statement_overrides: dict[str, str] = Field(
        {},
        alias="snapshot.select.statement.overrides",
        description="Names of tables, as SCHEMA.TABLE. The property with this name, a dot and the table name contains the "
        "SELECT with which a snapshot reads the table, as of its SCN. The log is captured completely.",
    )
    snapshot_database_errors_max_retries: int = Field(
        0,
        alias="snapshot.database.errors.max.retries",
        ge=0,
        description="How often a chunk is read again if undo no longer covers it (ORA-01555) or its table was changed "
        "(ORA-01466).",
    )
    log_mining_strategy: Strategy = Field(
        MiningStrategy.HYBRID,
        alias="log.mining.strategy",
        description="The dictionary from which LogMiner takes names of tables and columns. With `lob.enabled=true` the "
        "default is `redo_log_catalog`, because `hybrid` cannot read rows with LOBs that are older than a change "
        "of their table.",
    )
    log_mining_query_filter_mode: QueryFilterMode = Field(
        QueryFilterMode.NONE,
        alias="log.mining.query.filter.mode",
        description="Filters that the database applies: none, exact names, or regular expressions.",
    )
    log_mining_buffer_type: BufferType = Field(
        BufferType.MEMORY,
        alias="log.mining.buffer.type",
        description="Where changes are buffered until their transaction commits: in memory, and on disk beyond a limit.",
    )
    log_mining_buffer_memory_max_bytes: int = Field(
        256 << 20,
        alias="log.mining.buffer.memory.max.bytes",
        ge=0,
        description="Bytes of uncommitted changes that are kept in memory; the rest is spilled to files.",
    )
    log_mining_buffer_spill_folder: str | None = Field(
        None,
        alias="log.mining.buffer.spill.folder",
        description="Folder of the spill files; by default the system's folder for temporary files. The files have no "
        "names and disappear when the process ends.",
    )
    log_mining_buffer_carry_max_bytes: int = Field(
        1 << 30,
        alias="log.mining.buffer.carry.max.bytes",
        ge=0,
        description="Bytes of uncommitted changes that are carried over from run to run, compressed, in the change log's "
        "storage, so that their redo is not mined again; 0 = none. If columns are hidden, changes are carried "
        "over only if this property is set.",
    )
    log_mining_buffer_transaction_events_threshold: int = Field(
        0,
        alias="log.mining.buffer.transaction.events.threshold",
        ge=0,
        description="Transactions with more events are abandoned, which loses their changes; 0 = never.",
    )
    log_mining_session_max_ms: int = Field(
        0, alias="log.mining.session.max.ms", ge=0, description="Maximum age of a mining session; 0 = no limit."
    )
    log_mining_restart_connection: bool = Field(
        False, alias="log.mining.restart.connection", description="Whether a new mining session uses a new connection."
    )
    log_mining_batch_size_min: int = Field(
        1_000, alias="log.mining.batch.size.min", ge=1, description="Minimum number of SCNs that are mined at a time."
    )
    log_mining_batch_size_max: int = Field(
        100_000, alias="log.mining.batch.size.max", ge=1, description="Maximum number of SCNs that are mined at a time."
    )
    log_mining_batch_size_default: int = Field(
        20_000,
        alias="log.mining.batch.size.default",
        ge=1,
        description="Initial number of SCNs that are mined at a time.",
    )
    log_mining_log_count_min: int = Field(
        0,
        alias="log.mining.log.count.min",
        ge=0,
        description="Minimum number of logs in a mining session; 0 = as many as the window of SCNs needs.",
    )
    log_mining_sleep_time_min_ms: int = Field(
        0,
        alias="log.mining.sleep.time.min.ms",
        ge=0,
        description="Minimum pause before the next query for new changes.",
    )
    log_mining_sleep_time_max_ms: int = Field(
        3_000, alias="log.mining.sleep.time.max.ms", ge=0, description="Maximum pause."
    )
    log_mining_sleep_time_default_ms: int = Field(
        1_000, alias="log.mining.sleep.time.default.ms", ge=0, description="Initial pause."
    )
    log_mining_sleep_time_increment_ms: int = Field(
        200, alias="log.mining.sleep.time.increment.ms", ge=0, description="Step by which the pause grows and shrinks."
    )
    log_mining_archive_log_hours: int = Field(
        0, alias="log.mining.archive.log.hours", ge=0, description="Hours of archived logs that are read; 0 = all."
    )
    log_mining_archive_log_only_mode: bool = Field(
        False, alias="log.mining.archive.log.only.mode", description="Read archived logs only."
    )
    log_mining_archive_log_only_scn_poll_interval_ms: int = Field(
        10_000,
        alias="log.mining.archive.log.only.scn.poll.interval.ms",
        ge=1,
        description="How often to check whether the start SCN is archived.",
    )
    log_mining_archive_destination_name: str | None = Field(
        None,
        alias="log.mining.archive.destination.name",
        description="Archive destination, such as LOG_ARCHIVE_DEST_5.",
    )
    log_mining_transaction_retention_ms: int = Field(
        0,
        alias="log.mining.transaction.retention.ms",
        ge=0,
        description="Age at which an open transaction is abandoned, which loses its changes; 0 = never.",
    )
    log_mining_username_include_list: Names = Field(
        (), alias="log.mining.username.include.list", description="Captures only changes of these database users."
    )
    log_mining_username_exclude_list: Names = Field(
        (), alias="log.mining.username.exclude.list", description="Skips changes of these database users."
    )
    log_mining_clientid_include_list: Names = Field(
        (), alias="log.mining.clientid.include.list", description="Captures only changes with these client ids."
    )
    log_mining_clientid_exclude_list: Names = Field(
        (), alias="log.mining.clientid.exclude.list", description="Skips changes with these client ids."
    )
    log_mining_scn_gap_detection_gap_size_min: int = Field(
        1_000_000,
        alias="log.mining.scn.gap.detection.gap.size.min",
        ge=0,
        description="Minimum SCN gap: if the SCN jumps by more within "
        "log.mining.scn.gap.detection.time.interval.max.ms, the gap is mined in one window.",
    )
    log_mining_scn_gap_detection_time_interval_max_ms: int = Field(
        20_000,
        alias="log.mining.scn.gap.detection.time.interval.max.ms",
        ge=0,
        description="Maximum time between two SCNs for their difference to count as a gap.",
    )
    log_mining_flush_table_name: str = Field(
        "LOG_MINING_FLUSH",
        alias="log.mining.flush.table.name",
        description="Small table whose update makes the database flush its log buffer.",
    )
    log_mining_readonly_hostname: str | None = Field(
        None,
        alias="log.mining.readonly.hostname",
        description="Read-only standby on which the logs are mined, host or host:port.",
    )
    log_mining_include_redo_sql: bool = Field(
        False, alias="log.mining.include.redo.sql", description="Whether events contain their redo SQL."
    )
    log_mining_path_dictionary: str | None = Field(
        None,
        alias="log.mining.path.dictionary",
        description="Dictionary file for LogMiner, on 19c without containers: other databases accept none.",
    )
    relaxed_quotes: bool = Field(
        False,
        alias="internal.log.mining.sql.relaxed.quote.detection",
        description="LogMiner may write apostrophes without doubling them (MAX_STRING_SIZE=EXTENDED). Such texts are an "
        "error, or, with this property, are read if only one interpretation is possible.",
    )

    FORM: ClassVar[ConnectionForm] = ConnectionForm(
        labels={"login": "User", "schema": "Database (root container)"},
        placeholders={"host": "db.example.org", "port": "1521", "login": "c##cdc", "schema": "ORCLCDB"},
        extras={
            "database.pdb.name": "pluggable database to capture, in a container database",
            "database.url": "connect descriptor or TNS name, instead of host and port",
            "database.protocol": "tcp (default), or tcps for TLS",
            "database.ssl.ca": "PEM file of trusted authorities, on the workers",
            "database.ssl.wallet": "folder with ewallet.pem, on the workers",
            "database.ssl.wallet.password": "password of the key in ewallet.pem",
            "database.ssl.server.dn.match": "true (default): the certificate must match the host",
            "database.ssl.server.cert.dn": "distinguished name of the server's certificate, instead of the host name",
        },
    )
    CONNECTION: ClassVar[Mapping[str, str]] = {**RelationalConfig.CONNECTION, "schema": "database.dbname"}
    CONNECTION_ONLY: ClassVar[tuple[str, ...]] = ("rac.nodes", "log.mining.readonly.hostname")  # fmt: skip
    PASSED_OPTIONS: ClassVar[Mapping[str, Callable[[str], object]]] = {
        "expire_time": int, "program": str, "retry_count": int, "retry_delay": int, "sdu": int, "stmtcachesize": int,
        "tcp_connect_timeout": float,
    }  # fmt: skip
    LISTS: ClassVar[Mapping[str, PropertyEffect]] = {
        "schema.include.list": PropertyEffect.TABLES,
        "schema.exclude.list": PropertyEffect.TABLES,
        "lob.enabled": PropertyEffect.COLUMNS,
        "snapshot.select.statement.overrides": PropertyEffect.QUERIES,
        "interval.handling.mode": PropertyEffect.FORM,
        "log.mining.username.include.list": PropertyEffect.CHANGES,
        "log.mining.username.exclude.list": PropertyEffect.CHANGES,
        "log.mining.clientid.include.list": PropertyEffect.CHANGES,
        "log.mining.clientid.exclude.list": PropertyEffect.CHANGES,
    }
    IGNORED: ClassVar[Mapping[str, str]] = {
        "driver.oracle.jdbc.timezoneAsRegion": "sessions have the time zone UTC",
        "log.mining.transaction.snapshot.boundary.mode": "transactions that are open at a snapshot are always captured, as with all",
        "log.mining.buffer.drop.on.stop": "uncommitted changes are carried over, see log.mining.buffer.carry.max.bytes",
        "log.mining.buffer.infinispan.*": "uncommitted changes are buffered in memory and in files",
        "log.mining.buffer.ehcache.*": "uncommitted changes are buffered in memory and in files",
        "object.id.cache.size": "object ids of all tables are kept",
        "errors.max.retries": "Airflow retries the task",
        "log.mining.use.cte.query": "transactions without changes of captured tables have no cost here",
        "legacy.decimal.handling.strategy": "decimals have their current form",
    }
    NOT_SUPPORTED: ClassVar[Mapping[str, str]] = {
        "database.out.server.name": "Oracle's thin driver does not support XStream: changes are read with LogMiner",
        "openlogreplicator.*": "changes are read with LogMiner",
        "schema.history.internal.skip.unparseable.ddl": "unknown DDL is never skipped: the catalog is read instead",
        "log.mining.hash.area.size": "set HASH_AREA_SIZE with a logon trigger",
        "log.mining.sort.area.size": "set SORT_AREA_SIZE with a logon trigger",
    }
    BUILT_IN_CONVERTERS: ClassVar[Mapping[str, Mapping[str, str]]] = CONVERTERS

    @classmethod
    def parse(cls, properties: Mapping[str, Any]) -> Self:
        return super().parse(with_statements(properties, all_needed=True))

    @property
    def catalog_name(self) -> str:
        """The catalog of table ids: the pluggable database, or the database where there are no containers."""
        return self.database_pdb_name or self.database_dbname

    @property
    def grant_suffix(self) -> str:
        """The end of a GRANT to a common user, which has its privileges in all containers."""
        common = self.database_pdb_name and self.database_user.upper().startswith("C##")
        return " CONTAINER=ALL" if common else ""

    @field_validator("converters")
    @classmethod
    def _known_decimal_modes(cls, converters: tuple[dict[str, str], ...]) -> tuple[dict[str, str], ...]:
        check_decimal_modes(converters)
        return converters

    @field_validator("database_url")
    @classmethod
    def _no_provider(cls, url: str | None) -> str | None:
        """Reject addresses that python-oracledb looks up elsewhere: in a file, by HTTP or in a directory, whatever they contain."""
        if url and (provider := _PROVIDER.match(url)):
            raise ValueError(f"{provider[1]}: is not supported; write the connect descriptor, or host:port/service")
        return url

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        if not self.database_hostname and not self.database_url:
            raise ValueError("database.hostname: required, because database.url is not set either")
        if self.database_url and (bare := [n for n in self.rac_nodes if ":" not in n]):
            raise ValueError(f"rac.nodes: {bare[0]!r} needs a port (host:port), because database.url is set")
        if self.database_ssh_conn_id and self.database_url:
            raise ValueError(
                "database.ssh.conn_id: a tunnel leads to one host and port; set them in the connection instead of database.url"
            )
        tcps = self.database_protocol is NetworkProtocol.TCPS
        if (
            self.database_ssh_conn_id
            and tcps
            and self.database_ssl_server_dn_match
            and not self.database_ssl_server_cert_dn
        ):
            raise ValueError(
                "database.ssh.conn_id: the driver would compare the certificate with the local end of the tunnel; set "
                "database.ssl.server.cert.dn to the distinguished name of the certificate"
            )
        sizes = (self.log_mining_batch_size_min, self.log_mining_batch_size_default, self.log_mining_batch_size_max)
        sleeps = (
            self.log_mining_sleep_time_min_ms,
            self.log_mining_sleep_time_default_ms,
            self.log_mining_sleep_time_max_ms,
        )
        for name, values in (("log.mining.batch.size", sizes), ("log.mining.sleep.time", sleeps)):
            if sorted(values) != [*values]:
                raise ValueError(f"{name}: min, default and max must be in this order")
        if (hidden := ", ".join(self.hidden_columns())) and self.log_mining_include_redo_sql:
            raise ValueError(f"log.mining.include.redo.sql: the redo SQL would expose the values that {hidden} hides")
        if self.log_mining_query_filter_mode is QueryFilterMode.IN:
            for name in ("schema_include_list", "schema_exclude_list", "table_include_list", "table_exclude_list"):
                if wrong := [
                    p for p in getattr(self, name) if _SPECIAL.search(p.replace("\\.", "").replace("\\$", ""))
                ]:
                    raise ValueError(
                        f"{type(self).model_fields[name].alias}: {wrong[0]!r} is a pattern, which "
                        "log.mining.query.filter.mode=in would compare as a name, so changes would be lost. Use "
                        "exact names, or the mode regex or none"
                    )
        if self.lob_enabled and "log_mining_strategy" not in self.model_fields_set:
            self.__dict__["log_mining_strategy"] = MiningStrategy.REDO_LOG_CATALOG
        return self

    @classmethod
    def exclusive_pairs(cls) -> list[tuple[str, str]]:
        return [
            *super().exclusive_pairs(),
            ("schema_include_list", "schema_exclude_list"),
            ("log_mining_username_include_list", "log_mining_username_exclude_list"),
            ("log_mining_clientid_include_list", "log_mining_clientid_exclude_list"),
        ]

    @property
    def hides_columns(self) -> bool:
        """Check whether there are columns, or parts of their values, that no one is to see."""
        return bool(self.hidden_columns() or self.column_include_list or self.column_exclude_list)

    @property
    def carried_bytes(self) -> int:
        """Number of bytes of uncommitted changes that may be carried over. Their redo SQL has all columns."""
        if self.hides_columns and "log_mining_buffer_carry_max_bytes" not in self.model_fields_set:
            return 0
        return self.log_mining_buffer_carry_max_bytes

    def namespace_lists(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        return self.schema_include_list, self.schema_exclude_list

    def has_values(self, column: Column) -> bool:
        return self.lob_enabled or column.declared.type_name not in LOBS

    def build_dataset_name(self, table: TableId) -> tuple[str, str]:
        return f"oracle://{self._listener()}", f"{self.catalog_name}.{table}"

    def _listener(self) -> str:
        """``host:port``, by a connect descriptor too; of a TNS name, the name."""
        if not self.database_url:
            return self.server_address
        if host := _HOST.search(self.database_url):
            port = _PORT.search(self.database_url)
            return f"{host[1]}:{port[1] if port else _USUAL_PORT}"
        # host:port/service, and only the name of a descriptor that is elsewhere
        place = self.database_url.rpartition("@")[2].rpartition("//")[2].partition("/")[0]
        return place if ":" in place or "/" not in self.database_url else f"{place}:{_USUAL_PORT}"
