"""Checks of the captured tables: rights to read them, replica identities, and their place in the publication."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from psycopg import Connection

from airflow_provider_cdc.core.config.capture_filters import Filters
from airflow_provider_cdc.core.model.table_schema import TableId
from airflow_provider_cdc.core.snapshot.snapshot_policy import never_reads
from airflow_provider_cdc.core.spi.source import Finding
from airflow_provider_cdc.sources.postgresql.config import PostgresConfig
from airflow_provider_cdc.sources.postgresql.config_enums import PublicationMode
from airflow_provider_cdc.sources.postgresql.privileges import (
    build_grant_statement,
    build_schema_grant,
    list_owned,
    read_table_rights,
)
from airflow_provider_cdc.sources.postgresql.publication import (
    OPERATIONS,
    Publication,
    ReplicaIdentity,
    identity_statement,
    parse_autoset_values,
    publish_statement,
    read_publication,
    read_replica_identities,
)
from airflow_provider_cdc.sources.relational.sql_quoting import quote_table, quoted_name

_SHOWN: Final = 5
_TABLES: Final = """
SELECT n.nspname, c.relname, c.relkind::text, c.relispartition, c.relpersistence::text,
       EXISTS (SELECT FROM pg_inherits i WHERE i.inhparent = c.oid) AND c.relkind = 'r',
       ARRAY(SELECT a.attname::text FROM pg_attribute a WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
             AND a.attgenerated <> '' ORDER BY a.attnum)
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE c.relkind IN ('r', 'p', 'f') AND c.relpersistence <> 't' AND n.nspname <> 'information_schema' AND n.nspname !~ '^pg_'"""


def table_findings(connection: Connection[tuple[Any, ...]], config: PostgresConfig) -> Iterator[Finding]:
    """Return findings about captured tables."""
    filters, published = Filters(config), read_publication(connection, config)
    rows = {
        TableId(catalog=config.database_dbname, namespace=schema, name=name): rest
        for schema, name, *rest in connection.execute(_TABLES).fetchall()
    }
    selected = {table: rest for table, rest in rows.items() if filters.is_table_captured(table)}
    via_root = published.via_root if published is not None else config.publish_via_partition_root
    # partitions have their root's changes, or the root those of its partitions
    captured = {
        t: rest
        for t, rest in selected.items()
        if rest[0] in "rp" and rest[2] == "p" and not (rest[1] if via_root else rest[0] == "p")
    }
    if not captured:
        yield _advice(
            "No table of the database is captured: the include and exclude lists match no table.",
            "correct table.include.list; it has regular expressions that match whole names of the form <schema>.<table>",
        )
    for table, (kind, _, persistence, is_parent, generated) in selected.items():
        yield from _kinds(table, kind, persistence, is_parent, generated)
    yield from _rights(connection, config, [*captured])
    yield from _identities(connection, config, [*captured], published)
    yield from _publication(connection, config, filters, [*captured], published)


def _kinds(table: TableId, kind: str, persistence: str, is_parent: bool, generated: Sequence[str]) -> Iterator[Finding]:
    if kind == "f":
        yield _advice(
            f"{table} is a foreign table: its rows are on another server, and it is not captured.",
            "capture it there, or exclude it with table.exclude.list",
        )
    if persistence == "u":
        yield _advice(
            f"{table} is unlogged: its changes are in no log, so it is not captured.",
            f"ALTER TABLE {quote_table(table)} SET LOGGED; or exclude it with table.exclude.list",
        )
    if is_parent:
        yield _advice(
            f"Other tables inherit from {table}: each is captured as a table of its own, with its own rows only.",
            "include the tables that inherit from it in table.include.list",
        )
    if generated:
        yield _advice(
            f"{table} has generated columns ({', '.join(generated)}), whose values are not in the log: events do not have them.",
            "compute them in the target, or exclude them with column.exclude.list",
        )


def _rights(
    connection: Connection[tuple[Any, ...]], config: PostgresConfig, tables: list[TableId]
) -> Iterator[Finding]:
    if never_reads(config):
        return
    schemas: set[str] = set()
    for table, (usage, select, hidden) in read_table_rights(connection, config, tables).items():
        if not usage and table.namespace not in schemas:
            schemas.add(table.namespace)
            yield Finding(
                f"The account lacks USAGE on the schema {table.namespace}, which a snapshot of its tables needs.",
                build_schema_grant(table, config),
            )
        if not select:
            yield Finding(
                f"The account lacks SELECT on {table}, which a snapshot needs to read rows.",
                build_grant_statement("SELECT", table, config),
            )
        elif hidden:
            yield Finding(
                f"Policies of row level security hide rows of {table} from the account: a snapshot would be incomplete, and so it fails.",
                f"ALTER ROLE {quoted_name(config.database_user)} BYPASSRLS",
            )


def _identities(
    connection: Connection[tuple[Any, ...]],
    config: PostgresConfig,
    tables: list[TableId],
    published: Publication | None,
) -> Iterator[Finding]:
    rules = parse_autoset_values(config.replica_identity_autoset_values)
    for table, present in read_replica_identities(connection, config, tables).items():
        chosen = next((letter for matches, letter, _ in rules if matches(table)), None)
        if chosen is not None and chosen != present.identity:
            continue  # the first snapshot sets it
        yield from _identity(table, present, published)


def _identity(table: TableId, present: ReplicaIdentity, published: Publication | None) -> Iterator[Finding]:
    fix = f"{identity_statement(table)}, or give the table a primary key"
    sends = published is None or bool(published.operations & {"update", "delete"})
    if present.blocks_updates and sends and present.kind == "r":
        is_inside = published is not None and table in published.tables
        yield Finding(
            f"{table} has no replica identity: "
            + (
                "as it is in the publication, the server rejects each UPDATE and DELETE of it."
                if is_inside
                else "in a publication, the server would reject each UPDATE and DELETE of it. So it is not added."
            ),
            f"{fix}; or set replica.identity.autoset.values, or exclude it with table.exclude.list",
        )
    elif present.identity == "i":
        yield _advice(
            f"The replica identity of {table} is the index {present.index}: rows before a change have its columns only.",
            f"{identity_statement(table)}, if targets need whole rows before changes",
        )


def _publication(
    connection: Connection[tuple[Any, ...]],
    config: PostgresConfig,
    filters: Filters,
    tables: list[TableId],
    published: Publication | None,
) -> Iterator[Finding]:
    mode, name = config.publication_autocreate_mode, config.publication_name
    missing = [t for t in tables if published is None or t not in published.tables]
    creates_all = published is None and mode is PublicationMode.ALL_TABLES
    adds = mode is PublicationMode.FILTERED and (published is None or not published.all_tables)
    if missing and not adds and not creates_all:
        state = "does not exist" if published is None else f"does not contain {_listed(missing)}"
        yield Finding(
            f"The publication {name} {state}, and publication.autocreate.mode={mode.value} does not mend that: changes would be missed.",
            f"{publish_statement(config, missing, published)}; or set publication.autocreate.mode=filtered",
        )
    if (missing and adds) or creates_all:
        yield from _creation_rights(connection, config, missing, published, all_tables=creates_all)
    if published is not None:
        yield from _content(config, filters, tables, published)


def _creation_rights(
    connection: Connection[tuple[Any, ...]],
    config: PostgresConfig,
    missing: list[TableId],
    published: Publication | None,
    *,
    all_tables: bool,
) -> Iterator[Finding]:
    """Return findings if the account may not create the publication, or not add tables."""
    row = connection.execute(
        "SELECT r.rolsuper, has_database_privilege(current_database(), 'CREATE') FROM pg_roles r WHERE r.rolname = current_user"
    ).fetchone()
    assert row is not None
    superuser, creates = row
    if superuser:
        return
    user, statement = quoted_name(config.database_user), publish_statement(config, missing, published)
    if all_tables:
        yield Finding(
            "publication.autocreate.mode=all_tables needs a superuser, and the account is none.",
            f"let a superuser run CREATE PUBLICATION {quoted_name(config.publication_name)} FOR ALL TABLES; or set "
            "publication.autocreate.mode=filtered",
        )
        return
    if published is None and not creates:
        yield Finding(
            f"The account may not create the publication {config.publication_name}: it lacks CREATE on the database.",
            f"GRANT CREATE ON DATABASE {quoted_name(config.database_dbname)} TO {user}; or let the owner of the tables run {statement}",
        )
    owned = list_owned(connection, config, missing)
    if strange := [table for table in missing if table not in owned]:
        yield Finding(
            f"The account does not own {_listed(strange)}, and so may not add them to the publication {config.publication_name}.",
            f"let their owner run {publish_statement(config, strange, published)}; or GRANT <owner> TO {user}",
        )


def _content(
    config: PostgresConfig, filters: Filters, tables: list[TableId], published: Publication
) -> Iterator[Finding]:
    name, captured = quoted_name(published.name), set(tables)
    skipped = {"insert": "c", "update": "u", "delete": "d", "truncate": "t"}
    left_out = [
        operation
        for operation in OPERATIONS
        if operation not in published.operations and skipped[operation] not in config.skipped_operations
    ]
    if left_out:
        yield Finding(
            f"The publication {published.name} does not send {', '.join(left_out)}: such changes would be missed.",
            f"ALTER PUBLICATION {name} SET (publish = 'insert, update, delete, truncate'); or name them in skipped.operations",
        )
    for table, condition in _of_captured(published.row_filters, captured):
        yield Finding(
            f"The publication {published.name} sends only the rows of {table} with {condition}: changes of others would be missed.",
            f"ALTER PUBLICATION {name} DROP TABLE {quote_table(table)}; ALTER PUBLICATION {name} ADD TABLE {quote_table(table)}",
        )
    for table, columns in _of_captured(published.column_lists, captured):
        yield _advice(
            f"The publication {published.name} sends only the columns {', '.join(columns)} of {table}: events do not have the others.",
            f"ALTER PUBLICATION {name} DROP TABLE {quote_table(table)}; ALTER PUBLICATION {name} ADD TABLE {quote_table(table)}; or exclude "
            "the others with column.exclude.list",
        )


def _of_captured(found: Mapping[TableId, Any], captured: set[TableId]) -> Iterator[tuple[TableId, Any]]:
    return ((table, value) for table, value in found.items() if table in captured)


def _listed(tables: Sequence[TableId]) -> str:
    names = sorted(map(str, tables))
    rest = f" and {len(names) - _SHOWN:,} others" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + rest


def _advice(problem: str, fix: str) -> Finding:
    return Finding(problem, fix, fatal=False)
