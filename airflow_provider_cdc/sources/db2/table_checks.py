"""Checks of the tables in capture mode: their registration, their change tables, and the account's right to read them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from airflow_provider_cdc.core.config.capture_filters import Filters
from airflow_provider_cdc.core.model.table_schema import TableId, TableSchema
from airflow_provider_cdc.core.snapshot.snapshot_policy import never_reads
from airflow_provider_cdc.core.spi.source import Finding
from airflow_provider_cdc.sources.db2.asn.table_registrations import ACTIVE, TableRegistration
from airflow_provider_cdc.sources.db2.config import Db2Config
from airflow_provider_cdc.sources.db2.config_enums import NOT_LOGGED, LobHandling
from airflow_provider_cdc.sources.db2.privileges import Db2AccountPrivileges, build_grant_statement
from airflow_provider_cdc.sources.db2.schema.captured_structures import data_columns
from airflow_provider_cdc.sources.db2.schema.catalog import Db2CatalogReader
from airflow_provider_cdc.sources.db2.schema.never_captured_tables import is_system
from airflow_provider_cdc.sources.db2.schema.type_mapping import Db2ColumnType, is_distinct
from airflow_provider_cdc.sources.db2.signal_checks import build_registration_sql
from airflow_provider_cdc.sources.relational.sql_quoting import quote_literal, quote_table, quoted_name

_SHOWN: Final = 5
_ALL_TABLES: Final = "SELECT t.TABSCHEMA, t.TABNAME, t.DATACAPTURE FROM SYSCAT.TABLES t WHERE t.TYPE = 'T'"


def table_findings(
    catalog: Db2CatalogReader,
    captured: Mapping[TableId, TableRegistration],
    registered: Mapping[TableId, TableRegistration],
    filters: Filters,
    config: Db2Config,
    rights: Db2AccountPrivileges,
) -> Iterator[Finding]:
    """Return findings about tables.

    :param captured: the registered tables that the lists select
    """
    logged = {
        TableId(catalog=config.catalog_name, namespace=str(schema).rstrip(), name=str(name).rstrip()): str(
            capture or ""
        )
        for schema, name, capture in catalog.connection.fetch_rows(_ALL_TABLES)
    }
    named = bool(config.table_include_list or config.schema_include_list)
    left = [t for t in logged if t not in registered and not is_system(t, config) and filters.is_table_captured(t)]
    if not captured:
        example = build_registration_sql(left[0] if left else TableId(namespace="<schema>", name="<table>"), config)
        yield Finding(
            "No table in capture mode is captured.",
            f"correct table.include.list, or put tables into capture mode: {example}",
            fatal=False,
        )
    if named and left:
        yield Finding(
            f"{_listed(left)}: table lists select these tables, but they are not in capture mode, so they "
            "are not captured.",
            build_registration_sql(left[0], config),
            fatal=False,
        )
    changes = {
        t: TableId(catalog=config.catalog_name, namespace=registration.change_owner, name=registration.change_table)
        for t, registration in captured.items()
    }
    structures = catalog.read_table_schemas([*captured, *changes.values()])
    for table, registration in captured.items():
        yield from _state(table, registration, config)
        source, change = structures.get(table), structures.get(changes[table])
        if source is None:
            yield Finding(f"{table} is in capture mode but does not exist.", _removing(table, config), fatal=False)
        elif change is None:
            yield Finding(
                f"The change table {registration.change_table_name} of {table} does not exist.",
                f"{_removing(table, config)}; {build_registration_sql(table, config)}",
            )
        else:
            if logged.get(table) == "N":
                yield Finding(
                    f"{table} does not log its changes for replication (DATA CAPTURE NONE).",
                    f"ALTER TABLE {quote_table(table)} DATA CAPTURE CHANGES",
                )
            yield from _columns(source, change, registration, config)
            yield from _rights(table, change.id, config, rights)


def _state(table: TableId, registration: TableRegistration, config: Db2Config) -> Iterator[Finding]:
    if registration.state == ACTIVE:
        return
    schema = config.asn_capture_schema
    where = f"SOURCE_OWNER = {quote_literal(table.namespace)} AND SOURCE_TABLE = {quote_literal(table.name)}"
    reason = f", after the message {registration.reason}" if registration.reason else ""
    how = "was stopped" + reason if registration.state == "S" else "is inactive"
    yield Finding(
        f"The registration of {table} {how} (STATE is {registration.state}): its changes are not captured.",
        f"UPDATE {schema}.IBMSNAP_REGISTER SET STATE = 'A' WHERE {where}; VALUES {schema}.ASNCDCSERVICES('reinit','asncdc')",
    )


def _columns(
    source: TableSchema, change: TableSchema, registration: TableRegistration, config: Db2Config
) -> Iterator[Finding]:
    """Columns that the change table lacks, or has no values of; updates that do not show the row before."""
    table = source.id
    logged = {c.name for c in data_columns(change, registration.before_prefix, source.column_names)}
    missing = [
        c for c in source.columns if c.name not in logged and Db2ColumnType.from_column(c).base not in NOT_LOGGED
    ]
    if missing:
        added = " ".join(
            f"ADD COLUMN {quoted_name(c.name)} {c.declared.type_expression if is_distinct(c) else Db2ColumnType.from_column(c).ddl_expression}"
            for c in missing
        )
        yield _advice(
            f"The change table of {table} lacks {', '.join(c.name for c in missing)}, so these columns are not captured.",
            f"ALTER TABLE {quote_table(change.id)} {added}; VALUES {config.asn_capture_schema}.ASNCDCSERVICES('reinit','asncdc')",
        )
    if booleans := [c.name for c in source.columns if Db2ColumnType.from_column(c).base == "BOOLEAN"]:
        yield _advice(
            f"{table} has columns of the type BOOLEAN ({', '.join(booleans)}), which SQL Replication does "
            "not support: snapshots include them, but changes may not.",
            "change them to SMALLINT, or exclude them with column.exclude.list",
        )
    if binaries := [c.name for c in source.columns if Db2ColumnType.from_column(c).base in ("BINARY", "VARBINARY")]:
        yield _advice(
            f"{table} has columns of the types BINARY or VARBINARY ({', '.join(binaries)}), which SQL "
            "Replication supports only on z/OS: snapshots include their values, but changes may not.",
            "change them to CHAR or VARCHAR … FOR BIT DATA, or exclude them with column.exclude.list",
        )
    lobs = [c.name for c in source.columns if Db2ColumnType.from_column(c).base in NOT_LOGGED]
    if lobs and not source.key and config.lob_handling_mode is LobHandling.RESELECT:
        yield _advice(
            f"Change tables contain no values of {', '.join(lobs)} of {table}, and without a key the values "
            "cannot be read from the table: they are unavailable.",
            "give the table a primary key, or exclude the columns with column.exclude.list",
        )
    if not registration.pairs and not registration.before_prefix:
        where = f"SOURCE_OWNER = {quote_literal(table.namespace)} AND SOURCE_TABLE = {quote_literal(table.name)}"
        outcome = (
            "a key update leaves the row with the old key in the target"
            if source.key
            else "the row before the update cannot be removed"
        )
        yield Finding(
            f"Updates of {table} are captured without the row before the update (CHG_UPD_TO_DEL_INS is N, "
            f"and the change table has no before-image columns): {outcome}.",
            f"UPDATE {config.asn_capture_schema}.IBMSNAP_REGISTER SET CHG_UPD_TO_DEL_INS = 'Y' WHERE {where}; "
            f"VALUES {config.asn_capture_schema}.ASNCDCSERVICES('reinit','asncdc')",
            fatal=not source.key,
        )


def _rights(table: TableId, change: TableId, config: Db2Config, rights: Db2AccountPrivileges) -> Iterator[Finding]:
    if not rights.has_privilege("SELECT", change):
        yield Finding(
            f"The account lacks SELECT on {change}, the change table of {table}.",
            build_grant_statement("SELECT", change, config),
        )
    if not never_reads(config) and not rights.has_privilege("SELECT", table):
        yield Finding(
            f"The account lacks SELECT on {table}, which a snapshot needs to read rows.",
            build_grant_statement("SELECT", table, config),
        )


def _removing(table: TableId, config: Db2Config) -> str:
    schema = config.asn_capture_schema
    return f"CALL {schema}.REMOVETABLE({quote_literal(table.namespace)}, {quote_literal(table.name)}); VALUES {schema}.ASNCDCSERVICES('reinit','asncdc')"


def _listed(tables: list[TableId]) -> str:
    names = sorted(map(str, tables))
    rest = f" and {len(names) - _SHOWN:,} others" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + rest


def _advice(problem: str, fix: str) -> Finding:
    return Finding(problem, fix, fatal=False)
