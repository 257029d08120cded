"""The publication of a connector: the tables whose changes a slot sends, and their replica identities.

A change that is committed before its table is in the publication is never sent. So a table is added before it is read.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from psycopg import Connection

from airflow_provider_cdc.core.errors import ConfigError, PrerequisiteError
from airflow_provider_cdc.core.model.table_schema import TableId
from airflow_provider_cdc.sources.postgresql.config import PostgresConfig
from airflow_provider_cdc.sources.postgresql.config_enums import PublicationMode
from airflow_provider_cdc.sources.postgresql.connect import raise_cdc_errors
from airflow_provider_cdc.sources.relational.sql_quoting import quote_table, quoted_name

log = logging.getLogger(__name__)

OPERATIONS: Final = ("insert", "update", "delete", "truncate")
_SAFE: Final = "Nothing was read, and no table was added to the publication; the offset is untouched."
_WITH_FILTERS: Final = 150_000
"""Version since which a publication can have row filters and column lists."""
_SHOWN: Final = 10

_PUBLICATION: Final = """
SELECT p.oid, p.puballtables, p.pubviaroot, p.pubinsert, p.pubupdate, p.pubdelete, p.pubtruncate, pg_get_userbyid(p.pubowner)
FROM pg_publication p WHERE p.pubname = %s"""
_TABLES: Final = "SELECT t.schemaname, t.tablename FROM pg_publication_tables t WHERE t.pubname = %s"
_FILTERED: Final = """
SELECT n.nspname, c.relname, pg_get_expr(r.prqual, r.prrelid),
       (SELECT array_agg(a.attname::text ORDER BY a.attnum) FROM pg_attribute a WHERE a.attrelid = r.prrelid AND a.attnum = ANY(r.prattrs))
FROM pg_publication_rel r JOIN pg_class c ON c.oid = r.prrelid JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE r.prpubid = %s AND (r.prqual IS NOT NULL OR r.prattrs IS NOT NULL)"""
_IDENTITIES: Final = """
SELECT n.nspname, c.relname, c.relreplident::text, c.relpersistence::text, c.relkind::text,
       EXISTS (SELECT FROM pg_index i WHERE i.indrelid = c.oid AND i.indisprimary AND i.indisvalid),
       (SELECT i.indexrelid::regclass::text FROM pg_index i WHERE i.indrelid = c.oid AND i.indisreplident)
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE c.relkind IN ('r', 'p') AND (n.nspname, c.relname) IN (SELECT * FROM unnest(%s::text[], %s::text[]))"""
_PARTITIONS: Final = """
SELECT n.nspname, c.relname FROM pg_partition_tree(%s::regclass) t JOIN pg_class c ON c.oid = t.relid
JOIN pg_namespace n ON n.oid = c.relnamespace WHERE t.isleaf AND t.level > 0"""


@dataclass(frozen=True, slots=True)
class Publication:
    """A publication as the server has it.

    :param via_root: changes of partitions are sent as those of the partitioned table
    :param operations: kinds of changes that it sends, of :data:`OPERATIONS`
    :param tables: all tables whose changes it sends
    :param row_filters: table → condition; changes of other rows are not sent
    :param column_lists: table → the columns that are sent
    """

    name: str
    all_tables: bool
    via_root: bool
    owner: str
    operations: frozenset[str]
    tables: frozenset[TableId]
    row_filters: dict[TableId, str] = field(default_factory=dict)
    column_lists: dict[TableId, tuple[str, ...]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ReplicaIdentity:
    """Columns that the log has of a row before an update or a deletion.

    :param identity: ``relreplident``: d, the primary key; n, nothing; f, all columns; i, those of an index
    :param persistence: ``relpersistence``: p, permanent; u, unlogged; t, temporary
    """

    identity: str
    persistence: str
    kind: str
    has_primary_key: bool
    index: str | None

    @property
    def blocks_updates(self) -> bool:
        """Check whether the server rejects UPDATE and DELETE of the table once it is in a publication that sends them."""
        match self.identity:
            case "f":
                return False
            case "i":
                return self.index is None
            case "d":
                return not self.has_primary_key
            case _:
                return True


def read_publication(connection: Connection[tuple[Any, ...]], config: PostgresConfig) -> Publication | None:
    """Read the connector's publication; ``None`` if the database has none of this name."""
    row = connection.execute(_PUBLICATION, [config.publication_name]).fetchone()
    if row is None:
        return None
    oid, all_tables, via_root, *sent, owner = row
    tables = frozenset(
        _table_id(config, schema, name)
        for schema, name in connection.execute(_TABLES, [config.publication_name]).fetchall()
    )
    filters: dict[TableId, str] = {}
    columns: dict[TableId, tuple[str, ...]] = {}
    if connection.info.server_version >= _WITH_FILTERS:
        for schema, name, condition, names in connection.execute(_FILTERED, [oid]).fetchall():
            table = _table_id(config, schema, name)
            filters |= {table: condition} if condition else {}
            columns |= {table: tuple(names)} if names else {}
    operations = frozenset(name for name, is_sent in zip(OPERATIONS, sent, strict=True) if is_sent)
    return Publication(config.publication_name, all_tables, via_root, owner, operations, tables, filters, columns)


def read_replica_identities(
    connection: Connection[tuple[Any, ...]], config: PostgresConfig, tables: Iterable[TableId]
) -> dict[TableId, ReplicaIdentity]:
    """Read the replica identities of tables; a table that does not exist is missing."""
    names = [*tables]
    rows = connection.execute(_IDENTITIES, [[t.namespace for t in names], [t.name for t in names]]).fetchall()
    return {_table_id(config, schema, name): ReplicaIdentity(*rest) for schema, name, *rest in rows}


def ensure_published(
    connection: Connection[tuple[Any, ...]], config: PostgresConfig, tables: Sequence[TableId]
) -> None:
    """Create the publication or add tables to it, as ``publication.autocreate.mode`` says, so that changes of the tables are sent from now on.

    First, replica identities are set as ``replica.identity.autoset.values`` says.

    :raises PrerequisiteError: tables are not in the publication and may not be added, or the server would reject updates of them
    :raises AccessDenied: the account may not alter the publication, or does not own a table
    """
    with raise_cdc_errors(config, f"publication {config.publication_name}"):
        identities = read_replica_identities(connection, config, tables)
        present = [table for table in tables if table in identities]
        _set_lock_timeout(connection, config)
        set_replica_identities(connection, config, identities)
        published = read_publication(connection, config)
        missing = [table for table in present if published is None or table not in published.tables]
        if published is not None and not missing:
            return
        mode = config.publication_autocreate_mode
        identities = read_replica_identities(connection, config, missing)
        if published is None:
            _create(connection, config, mode, missing, identities)
        elif mode is PublicationMode.FILTERED and not published.all_tables:
            _reject_blocked_tables(missing, identities, published.operations)
            if logged := [table for table in missing if identities[table].persistence == "p"]:
                connection.execute(f"ALTER PUBLICATION {quoted_name(published.name)} ADD TABLE {_listed_sql(logged)}")
                log.info("Added %s to the publication %s.", _listed(logged), published.name)
        published = read_publication(connection, config)
        _check_complete(connection, config, published, missing)


def set_replica_identities(
    connection: Connection[tuple[Any, ...]], config: PostgresConfig, identities: dict[TableId, ReplicaIdentity]
) -> None:
    """Set the replica identities of ``replica.identity.autoset.values`` where tables have others."""
    rules = parse_autoset_values(config.replica_identity_autoset_values)
    for table, present in identities.items():
        for matches, letter, index in rules:
            if not matches(table):
                continue
            same_index = letter != "i" or (present.index or "").rpartition(".")[2].strip('"') == index
            if present.identity != letter or not same_index:
                clause = {"d": "DEFAULT", "f": "FULL", "n": "NOTHING"}.get(
                    letter
                ) or f"USING INDEX {quoted_name(index)}"
                connection.execute(f"ALTER TABLE {quote_table(table)} REPLICA IDENTITY {clause}")
                log.info("Set the replica identity of %s to %s.", table, clause)
            break


def parse_autoset_values(text: str) -> list[tuple[Callable[[TableId], bool], str, str]]:
    r"""Parse ``replica.identity.autoset.values``.

    >>> [(letter, index) for _, letter, index in parse_autoset_values(r"shop\..*:FULL, a.b:INDEX i")]
    [('f', ''), ('i', 'i')]

    :return: for each rule: whether a table matches, the letter of ``relreplident``, and the name of the index
    :raises ConfigError: it cannot be understood
    """
    rules: list[tuple[Callable[[TableId], bool], str, str]] = []
    for rule in filter(None, (part.strip() for part in text.split(","))):
        pattern, _, value = rule.rpartition(":")
        word, _, index = value.strip().partition(" ")
        letter = {"DEFAULT": "d", "FULL": "f", "NOTHING": "n", "INDEX": "i"}.get(word.upper())
        index = index.strip()
        if not pattern or letter is None or bool(index) != (letter == "i"):
            raise ConfigError(
                f"replica.identity.autoset.values: {rule!r} does not have the form <schema>.<table>:<identity>.",
                remedy="use DEFAULT, FULL, NOTHING or INDEX <name> behind the colon, and commas between rules",
            )
        try:
            compiled = re.compile(pattern, re.IGNORECASE)
        except re.error as e:
            raise ConfigError(
                f"replica.identity.autoset.values: {pattern!r} is no regular expression: {e}",
                remedy="write the table as schema.table, with patterns of Python's regular expressions",
            ) from e
        rules.append((_matcher(compiled), letter, index))
    return rules


def publish_statement(config: PostgresConfig, tables: Sequence[TableId], published: Publication | None) -> str:
    """Return the statement that has the server send the changes of tables."""
    name = quoted_name(config.publication_name)
    if published is None:
        return _create_statement(config, f" FOR TABLE {_listed_sql(tables)}")
    return f"ALTER PUBLICATION {name} ADD TABLE {_listed_sql(tables)}"


def _create(
    connection: Connection[tuple[Any, ...]],
    config: PostgresConfig,
    mode: PublicationMode,
    tables: Sequence[TableId],
    identities: dict[TableId, ReplicaIdentity],
) -> None:
    if mode is PublicationMode.DISABLED:
        raise PrerequisiteError(
            f"The publication {config.publication_name} does not exist, and publication.autocreate.mode=disabled does not create it.",
            where=f"database {config.database_dbname}",
            safe=_SAFE,
            remedy=f"run {publish_statement(config, tables, None)}",
        )
    _reject_blocked_tables(tables, identities, frozenset(OPERATIONS))
    logged = [table for table in tables if identities[table].persistence == "p"]
    what = {
        PublicationMode.ALL_TABLES: " FOR ALL TABLES",
        PublicationMode.FILTERED: f" FOR TABLE {_listed_sql(logged)}" if logged else "",
    }.get(mode, "")
    connection.execute(_create_statement(config, what))
    log.info("Created the publication %s%s.", config.publication_name, what)


def _create_statement(config: PostgresConfig, what: str) -> str:
    options = " WITH (publish_via_partition_root = true)" if config.publish_via_partition_root else ""
    return f"CREATE PUBLICATION {quoted_name(config.publication_name)}{what}{options}"


def _reject_blocked_tables(
    tables: Sequence[TableId], identities: dict[TableId, ReplicaIdentity], operations: frozenset[str]
) -> None:
    """Check that no table is added whose updates the server would then reject: an application would fail.

    :raises PrerequisiteError: there are such tables
    """
    if not operations & {"update", "delete"}:
        return
    blocked = [table for table in tables if identities[table].blocks_updates and identities[table].kind == "r"]
    if blocked:
        raise PrerequisiteError(
            f"{_listed(blocked)}: no replica identity. In a publication, the server would reject each UPDATE and DELETE of such a table.",
            where=str(blocked[0]),
            safe=_SAFE,
            remedy=f"{identity_statement(blocked[0])}, or give the table a primary key; or set replica.identity.autoset.values="
            f"{re.escape(blocked[0].namespace)}.{re.escape(blocked[0].name)}:FULL; or exclude it with table.exclude.list",
        )


def identity_statement(table: TableId) -> str:
    """Return the statement that has the log contain all columns of the row before a change."""
    return f"ALTER TABLE {quote_table(table)} REPLICA IDENTITY FULL"


def _check_complete(
    connection: Connection[tuple[Any, ...]],
    config: PostgresConfig,
    published: Publication | None,
    tables: Sequence[TableId],
) -> None:
    """Check that tables are in the publication now.

    :raises PrerequisiteError: they are not
    """
    sent = published.tables if published is not None else frozenset()
    identities = read_replica_identities(connection, config, tables)
    missing = [
        table for table in tables if table not in sent and _has_changes(connection, config, table, identities, sent)
    ]
    if missing:
        raise PrerequisiteError(
            f"The publication {config.publication_name} does not contain {_listed(missing)}: the server would not send their changes.",
            where=f"database {config.database_dbname}, publication.autocreate.mode={config.publication_autocreate_mode.value}",
            safe=_SAFE,
            remedy=f"run {publish_statement(config, missing, published)}; or set publication.autocreate.mode=filtered, or exclude the tables",
        )


def _has_changes(
    connection: Connection[tuple[Any, ...]],
    config: PostgresConfig,
    table: TableId,
    identities: dict[TableId, ReplicaIdentity],
    sent: frozenset[TableId],
) -> bool:
    """Check whether the log has changes of a table: unlogged ones are not in the log, and a partitioned one may be sent as its partitions."""
    identity = identities.get(table)
    if identity is None or identity.persistence != "p":
        return False
    if identity.kind != "p":
        return True
    leaves = connection.execute(_PARTITIONS, [quote_table(table)]).fetchall()
    return any(_table_id(config, schema, name) not in sent for schema, name in leaves)


def _set_lock_timeout(connection: Connection[tuple[Any, ...]], config: PostgresConfig) -> None:
    """Have DDL give up soon: while it waits for a lock, writers wait behind it."""
    connection.execute(f"SET lock_timeout = {config.snapshot_lock_timeout_ms}")


def _matcher(pattern: re.Pattern[str]) -> Callable[[TableId], bool]:
    return lambda table: pattern.fullmatch(f"{table.namespace}.{table.name}") is not None


def _table_id(config: PostgresConfig, schema: str, name: str) -> TableId:
    return TableId(catalog=config.database_dbname, namespace=schema, name=name)


def _listed_sql(tables: Sequence[TableId]) -> str:
    return ", ".join(map(quote_table, tables))


def _listed(tables: Sequence[TableId]) -> str:
    names = sorted(map(str, tables))
    rest = f" and {len(names) - _SHOWN:,} others" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + rest
