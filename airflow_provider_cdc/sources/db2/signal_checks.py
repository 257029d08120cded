"""Checks of the signal table: that it exists, has the columns for signals and watermarks, and that its rows are captured.

Capture works without it, so no finding is fatal (Debezium Db2 connector, "Sending signals"; spec DB2-077 and 078).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Final

from airflow_provider_cdc.core.config.enums import WatermarkStrategy
from airflow_provider_cdc.core.errors import ConfigError
from airflow_provider_cdc.core.model.schema import TableId, TableSchema
from airflow_provider_cdc.core.spi.source import Finding
from airflow_provider_cdc.sources.db2.config import Db2Config
from airflow_provider_cdc.sources.db2.config_enums import NOT_LOGGED
from airflow_provider_cdc.sources.db2.privileges import Privileges, grant
from airflow_provider_cdc.sources.db2.schema.catalog import Catalog
from airflow_provider_cdc.sources.db2.schema.schema_signal import signal_table
from airflow_provider_cdc.sources.db2.schema.sql_names import literal, quoted
from airflow_provider_cdc.sources.db2.schema.types import ColumnType

DDL: Final = "CREATE TABLE {} (id VARCHAR(42) NOT NULL PRIMARY KEY, type VARCHAR(32) NOT NULL, data VARCHAR(2048))"
_NEEDED: Final = (("ids", 42), ("types of signals", 32), ("the data of signals", 2048))
_TEXTS: Final = {"CHAR", "VARCHAR", "GRAPHIC", "VARGRAPHIC"}


def registering(table: TableId, config: Db2Config) -> str:
    """The statements that put a table into capture mode."""
    schema = config.asn_capture_schema
    return f"CALL {schema}.ADDTABLE({literal(table.namespace)}, {literal(table.name)}); VALUES {schema}.ASNCDCSERVICES('reinit','asncdc')"


def signal_findings(
    catalog: Catalog, config: Db2Config, privileges: Privileges, registered: Collection[TableId]
) -> list[Finding]:
    """Findings about the signal table. None if none is configured, or nothing uses it."""
    writes = not config.read_only
    if config.signal_data_collection is None or not (writes or "source" in config.signal_enabled_channels):
        return []
    try:
        table = signal_table(config.signal_data_collection, config)
    except ConfigError as e:
        return [Finding(e.what, e.remedy or "", fatal=False)]
    schema = catalog.structures([table]).get(table)
    if schema is None:
        what = f"The signal table {table.full_name} does not exist."
        return [_advice(what, f"{DDL.format(quoted(table))}; {registering(table, config)}")]
    found = [*_columns(schema)]
    if table not in registered:
        what = f"The signal table {table} is not in capture mode: signals and watermarks in it are not captured."
        found.append(_advice(what, registering(table, config)))
    return found + ([*_rights(schema, config, privileges)] if writes else [])


def _columns(schema: TableSchema) -> Iterator[Finding]:
    fix = DDL.format(quoted(schema.id))
    if len(schema.columns) != len(_NEEDED):
        yield _advice(f"The signal table {schema.id} has {len(schema.columns)} columns instead of three.", fix)
        return
    for column, (what, width) in zip(schema.columns, _NEEDED, strict=True):
        kind = ColumnType.of(column)
        if kind.base in NOT_LOGGED:
            yield _advice(f"{schema.id}.{column.name} is a {kind.base}, of which change tables have no values.", fix)
        elif kind.base not in _TEXTS or (kind.length or 0) < width:
            yield _advice(f"{schema.id}.{column.name} is {kind.expression}, which does not hold {what}.", fix)


def _rights(schema: TableSchema, config: Db2Config, privileges: Privileges) -> Iterator[Finding]:
    table, columns = schema.id, schema.columns[: len(_NEEDED)]
    needed = ["INSERT"]
    if config.incremental_snapshot_watermarking_strategy is WatermarkStrategy.INSERT_DELETE:
        needed.append("DELETE")
    if missing := [action for action in needed if not privileges.may(action, table, columns)]:
        what = f"The account lacks {', '.join(missing)} on {table}, with which watermarks of incremental snapshots are written."
        yield _advice(what, grant(", ".join(missing), table, config) + ", or set read.only=true")


def _advice(what: str, fix: str) -> Finding:
    return Finding(what, fix, fatal=False)
