"""Checks of the signal table: that it exists, has the columns for signals and watermarks, and that its rows are captured.

Capture works without it, so no finding is fatal (Debezium Db2 connector, "Sending signals"; spec DB2-077 and 078).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Final

from airflow_provider_cdc.core.config.property_enums import WatermarkStrategy
from airflow_provider_cdc.core.errors import ConfigError
from airflow_provider_cdc.core.model.table_schema import TableId, TableSchema
from airflow_provider_cdc.core.spi.source import Finding
from airflow_provider_cdc.sources.db2.config import Db2Config
from airflow_provider_cdc.sources.db2.config_enums import NOT_LOGGED
from airflow_provider_cdc.sources.db2.privileges import Db2AccountPrivileges, build_grant_statement
from airflow_provider_cdc.sources.db2.schema.catalog import Db2CatalogReader
from airflow_provider_cdc.sources.db2.schema.schema_signal import signal_table
from airflow_provider_cdc.sources.db2.schema.type_mapping import Db2ColumnType
from airflow_provider_cdc.sources.relational.sql_quoting import quote_literal, quote_table

DDL: Final = "CREATE TABLE {} (id VARCHAR(42) NOT NULL PRIMARY KEY, type VARCHAR(32) NOT NULL, data VARCHAR(2048))"
_NEEDED: Final = (("ids", 42), ("types of signals", 32), ("the data of signals", 2048))
_TEXTS: Final = {"CHAR", "VARCHAR", "GRAPHIC", "VARGRAPHIC"}


def build_registration_sql(table: TableId, config: Db2Config) -> str:
    """Return the statements that put a table into capture mode."""
    schema = config.asn_capture_schema
    return f"CALL {schema}.ADDTABLE({quote_literal(table.namespace)}, {quote_literal(table.name)}); VALUES {schema}.ASNCDCSERVICES('reinit','asncdc')"


def signal_findings(
    catalog: Db2CatalogReader, config: Db2Config, privileges: Db2AccountPrivileges, registered: Collection[TableId]
) -> list[Finding]:
    """Return findings about the signal table. None if none is configured, or nothing uses it."""
    writes = not config.read_only
    if config.signal_data_collection is None or not (writes or "source" in config.signal_enabled_channels):
        return []
    try:
        table = signal_table(config.signal_data_collection, config)
    except ConfigError as e:
        return [Finding(e.message, e.remedy or "", fatal=False)]
    schema = catalog.read_table_schemas([table]).get(table)
    if schema is None:
        problem = f"The signal table {table.full_name} does not exist."
        return [_advice(problem, f"{DDL.format(quote_table(table))}; {build_registration_sql(table, config)}")]
    findings = [*_columns(schema)]
    if table not in registered:
        problem = f"The signal table {table} is not in capture mode: signals and watermarks in it are not captured."
        findings.append(_advice(problem, build_registration_sql(table, config)))
    return findings + ([*_rights(schema, config, privileges)] if writes else [])


def _columns(schema: TableSchema) -> Iterator[Finding]:
    fix = DDL.format(quote_table(schema.id))
    if len(schema.columns) != len(_NEEDED):
        yield _advice(f"The signal table {schema.id} has {len(schema.columns)} columns instead of three.", fix)
        return
    for column, (content, width) in zip(schema.columns, _NEEDED, strict=True):
        kind = Db2ColumnType.from_column(column)
        if kind.base in NOT_LOGGED:
            yield _advice(
                f"{schema.id}.{column.name} is a {kind.base}; change tables contain no values of this type.", fix
            )
        elif kind.base not in _TEXTS or (kind.length or 0) < width:
            yield _advice(f"{schema.id}.{column.name} is {kind.ddl_expression}, which is too small for {content}.", fix)


def _rights(schema: TableSchema, config: Db2Config, privileges: Db2AccountPrivileges) -> Iterator[Finding]:
    table, columns = schema.id, schema.columns[: len(_NEEDED)]
    needed = ["INSERT"]
    if config.incremental_snapshot_watermarking_strategy is WatermarkStrategy.INSERT_DELETE:
        needed.append("DELETE")
    if missing := [action for action in needed if not privileges.has_privilege(action, table, columns)]:
        problem = (
            f"The account lacks {', '.join(missing)} on {table}, which incremental snapshots need to write watermarks."
        )
        yield _advice(problem, build_grant_statement(", ".join(missing), table, config) + ", or set read.only=true")


def _advice(problem: str, fix: str) -> Finding:
    return Finding(problem, fix, fatal=False)
