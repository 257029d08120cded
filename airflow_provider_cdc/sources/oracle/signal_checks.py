"""Checks of the signal table: that it exists, has the columns for signals and watermarks, and that its rows are captured.

Capture works without it, so no finding is fatal (Debezium Oracle connector, "Creating a signaling data collection"; spec ORA-119 to
121).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from airflow_provider_cdc.core.config.property_enums import WatermarkStrategy
from airflow_provider_cdc.core.errors import ConfigError
from airflow_provider_cdc.core.model.table_schema import TableId, TableSchema
from airflow_provider_cdc.core.spi.source import Finding
from airflow_provider_cdc.sources.oracle.config import OracleConfig
from airflow_provider_cdc.sources.oracle.privileges import AccountPrivileges, GrantBuilder
from airflow_provider_cdc.sources.oracle.schema.catalog_reader import OracleCatalog
from airflow_provider_cdc.sources.oracle.schema.column_types import ColumnType
from airflow_provider_cdc.sources.oracle.schema.schema_signal import signal_table
from airflow_provider_cdc.sources.oracle.schema.system_tables import is_system
from airflow_provider_cdc.sources.relational.sql_quoting import quote_table

DDL: Final = "CREATE TABLE {} (id VARCHAR2(42) PRIMARY KEY, type VARCHAR2(32) NOT NULL, data VARCHAR2(2048))"
_NEEDED: Final = (("ids", 42), ("types of signals", 32), ("the data of signals", 2048))
_TEXTS: Final = {"CHAR", "NCHAR", "VARCHAR2", "NVARCHAR2"}
_CLOBS: Final = {"CLOB", "NCLOB"}


def explain_uncaptured_signals(table: TableId, config: OracleConfig) -> str | None:
    """Why rows that this account writes to the signal table are not captured; ``None`` if they are."""
    if is_system(table, config):
        return f"{table} is a system table, which is never captured"
    user = config.database_user.upper()
    if user in {name.upper() for name in config.log_mining_username_exclude_list}:
        return f"log.mining.username.exclude.list excludes the changes of {user}, which writes the watermarks"
    include = {name.upper() for name in config.log_mining_username_include_list}
    if include and user not in include:
        return f"log.mining.username.include.list lacks {user}, which writes the watermarks"
    if config.log_mining_clientid_include_list:
        return "log.mining.clientid.include.list excludes changes without a client id, as watermarks are"
    return None


def signal_findings(
    catalog: OracleCatalog, config: OracleConfig, privileges: AccountPrivileges, grant: GrantBuilder
) -> tuple[list[Finding], TableSchema | None]:
    """Return findings about the signal table, and its schema. No findings if none is configured, or nothing uses it.

    :param privileges: the account's privileges in the container of the tables
    """
    writes = not config.read_only
    if config.signal_data_collection is None or not (writes or "source" in config.signal_enabled_channels):
        return [], None
    try:
        table = signal_table(config.signal_data_collection, config)
    except ConfigError as e:
        return [Finding(e.message, e.remedy or "", fatal=False)], None
    findings = []
    if reason := explain_uncaptured_signals(table, config):
        findings.append(_advice(f"Signals and watermarks in the signal table are not captured: {reason}.", "fix this"))
    schema = catalog.read_table_schemas([table]).get(table)
    if schema is None:
        problem = f"The signal table {table.full_name} does not exist, or the account may not see it."
        rights = grant(f"SELECT, INSERT, DELETE ON {quote_table(table)}")
        return [*findings, _advice(problem, f"{DDL.format(quote_table(table))}; {rights}")], None
    findings += _columns(schema, config)
    if writes:
        findings += _rights(table, config, privileges, grant)
    return findings, schema


def _columns(schema: TableSchema, config: OracleConfig) -> Iterator[Finding]:
    fix = DDL.format(quote_table(schema.id))
    if len(schema.columns) != len(_NEEDED):
        yield _advice(f"The signal table {schema.id} has {len(schema.columns)} columns instead of three.", fix)
        return
    for i, (column, (content, width)) in enumerate(zip(schema.columns, _NEEDED, strict=True)):
        kind = ColumnType.from_column(column)
        if kind.base in _CLOBS and i == len(_NEEDED) - 1:
            if not config.lob_enabled:
                yield _advice(
                    f"{schema.id}.{column.name} is a {kind.base}, whose values are not captured: signals "
                    "would have no data.",
                    f"ALTER TABLE {quote_table(schema.id)} with a column VARCHAR2(4000) instead, or set lob.enabled=true",
                )
        elif kind.base not in _TEXTS or (kind.length or 0) < width:
            yield _advice(f"{schema.id}.{column.name} is {kind.ddl_expression}, which is too small for {content}.", fix)


def _rights(
    table: TableId, config: OracleConfig, privileges: AccountPrivileges, grant: GrantBuilder
) -> Iterator[Finding]:
    needed = ["INSERT"]
    if config.incremental_snapshot_watermarking_strategy is WatermarkStrategy.INSERT_DELETE:
        needed += ["SELECT", "DELETE"]  # Oracle wants both for a DELETE that has a WHERE (SQL92_SECURITY)
    if missing := [action for action in needed if not privileges.can_access_table(action, table)]:
        problem = (
            f"The account lacks {', '.join(missing)} on {table}, which incremental snapshots need to write watermarks."
        )
        yield _advice(problem, grant(f"{', '.join(missing)} ON {quote_table(table)}") + ", or set read.only=true")


def _advice(problem: str, fix: str) -> Finding:
    return Finding(problem, fix, fatal=False)
