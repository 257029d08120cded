"""Findings about captured tables whose rows change in ways that the server does not log. The table of all of them is in docs/sources/mysql.md."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

import pymysql
from pymysql.connections import Connection

from airflow_provider_cdc.core.config.capture_filters import Filters
from airflow_provider_cdc.core.model.table_schema import TableId
from airflow_provider_cdc.core.remedy_commands import name_cdc_command
from airflow_provider_cdc.core.spi.source import Finding
from airflow_provider_cdc.sources.mysql.config import MySqlConfig
from airflow_provider_cdc.sources.mysql.connect import MySqlServer, query_scalar
from airflow_provider_cdc.sources.mysql.schema.catalog_reader import create_statement, quote_table
from airflow_provider_cdc.sources.mysql.schema.column_types import SYSTEM_DATABASES

_SHOWN: Final = 20
_LOGGED_SINCE: Final = (9, 6, 0)
"""The MySQL whose foreign keys are enforced above the storage engine, so that the rows of a cascade are in the log."""
_CASCADES: Final = """
SELECT r.constraint_schema, r.table_name, r.constraint_name, r.unique_constraint_schema, r.referenced_table_name, r.delete_rule, r.update_rule
FROM information_schema.referential_constraints r
WHERE r.delete_rule IN ('CASCADE', 'SET NULL', 'SET DEFAULT') OR r.update_rule IN ('CASCADE', 'SET NULL', 'SET DEFAULT')"""
_RULES: Final = {"CASCADE", "SET NULL", "SET DEFAULT"}
_MORE_THAN_SELECT: Final = re.compile(
    r"GRANT .*\b(ALL PRIVILEGES|INSERT|UPDATE|DELETE|CREATE|DROP|REFERENCES|INDEX|ALTER|TRIGGER|SHOW VIEW)\b.* ON \*\.\* TO"
)
_ASKED_EACH: Final = 1000
"""Tables of which each is asked for: a third of a second."""
_NOT_SHOWN: Final = {1142, 1146}
"""Errors of a table that the account may not see, or that has gone."""
_FOREIGN_KEY: Final = re.compile(r"CONSTRAINT `([^`]+)` FOREIGN KEY \([^)]*\) REFERENCES (\S+) \([^)]*\)([^,\n]*)")
_ACTION: Final = re.compile(r"ON (?:DELETE|UPDATE) (?:CASCADE|SET NULL|SET DEFAULT|RESTRICT|NO ACTION)")
_ENGINES: Final = """
SELECT t.table_schema, t.table_name, t.engine FROM information_schema.tables t
WHERE t.table_schema NOT IN ({}) AND t.engine IN ('MRG_MYISAM', 'FEDERATED', 'CONNECT', 'SPIDER', 'MEMORY')"""
_ELSEWHERE: Final = {
    "MRG_MYISAM": (
        "rows that are changed through it are logged under its name, but rows that are changed directly in its "
        "underlying tables are logged under their names"
    ),
    "FEDERATED": "its rows are on another server, and changes made there are not in this log",
    "CONNECT": "its rows are outside the server, and changes made there are not in the log",
    "SPIDER": "its rows are on other servers, and changes made there are not in this log",
}


def unlogged_changes(
    connection: Connection, server: MySqlServer, config: MySqlConfig, signals: TableId | None
) -> list[Finding]:
    """Return a finding for each kind of change that the log will not have, with the tables; none of them is fatal."""
    filters = Filters(config)

    def captured(table: TableId) -> bool:
        return table.namespace not in SYSTEM_DATABASES and filters.is_table_captured(table) and table != signals

    return [*_cascades(connection, server, captured), *_engines(connection, captured)]


def logs_cascades(server: MySqlServer) -> bool:
    """Check whether the rows that a foreign key changes are in the log."""
    native = server.variables.get("innodb_native_foreign_keys", "OFF").upper() in ("ON", "1")
    return not server.mariadb and server.version_tuple >= _LOGGED_SINCE and not native


def _cascades(connection: Connection, server: MySqlServer, captured: Callable[[TableId], bool]) -> list[Finding]:
    if logs_cascades(server):
        return []
    try:
        ours = [constraint for constraint in _constraints(connection, server, captured) if constraint.rules]
    except _TooManyTables as e:
        return [
            Finding(
                "It was not checked whether foreign keys change rows of captured tables, which the server does "
                f"not log: {e} tables are too many to query individually, and the account may not see their "
                "constraints.",
                f"GRANT SHOW VIEW ON *.* TO {query_scalar(connection, 'SELECT CURRENT_USER()')}, so that "
                "MariaDB also shows constraints",
                fatal=False,
            )
        ]
    shown = [
        f"{constraint.child} ({constraint.name} to {constraint.parent}, {', '.join(constraint.rules)})"
        for constraint in ours
    ]
    if not shown:
        return []
    modern = not server.mariadb and server.version_tuple >= _LOGGED_SINCE
    cure = (
        "set innodb_native_foreign_keys=OFF in the server's configuration and restart it"
        if modern
        else "let the application or a trigger change these rows instead of the constraint"
        + ("" if server.mariadb else ", or upgrade to MySQL 9.6, which logs them")
    )
    return [
        Finding(
            "Foreign keys change rows of captured tables, and the server does not log these changes, so target "
            f"tables keep the old rows: {_listed(shown)}.",
            f"{cure}; until then snapshot these tables again regularly, or verify and repair their targets "
            f"with `{name_cdc_command('verify')} --repair`",
            fatal=False,
        )
    ]


@dataclass(frozen=True)
class _ForeignKey:
    """A foreign key of a captured table, with its effects on rows of it."""

    child: TableId
    name: str
    parent: str
    rules: list[str]


class _TooManyTables(Exception):
    """The tables are too many to look at each."""


def _constraints(
    connection: Connection, server: MySqlServer, captured: Callable[[TableId], bool]
) -> Iterator[_ForeignKey]:
    """Yield the foreign keys of captured tables.

    MariaDB shows them in its catalog only to accounts that may do more than ``SELECT``.
    """
    with connection.cursor() as cursor:
        cursor.execute("SHOW GRANTS")
        if not server.mariadb or any(_MORE_THAN_SELECT.match(str(row[0])) for row in cursor.fetchall()):
            cursor.execute(_CASCADES)
            for schema, name, constraint, parent_schema, parent, on_delete, on_update in cursor.fetchall():
                child = TableId(namespace=str(schema), name=str(name))
                if captured(child):
                    rules = [f"ON {e} {r}" for e, r in (("DELETE", on_delete), ("UPDATE", on_update)) if r in _RULES]
                    yield _ForeignKey(child, str(constraint), f"{parent_schema}.{parent}", rules)
            return
        cursor.execute("SELECT table_schema, table_name FROM information_schema.tables WHERE engine = 'InnoDB'")
        tables = [t for t in (TableId(namespace=str(s), name=str(n)) for s, n in cursor.fetchall()) if captured(t)]
        if len(tables) > _ASKED_EACH:
            raise _TooManyTables(len(tables))
        for table in tables:
            try:
                shown = create_statement(connection, table)
            except pymysql.err.MySQLError as e:
                if e.args[0] not in _NOT_SHOWN:
                    raise
                continue
            for name, parent, actions in _FOREIGN_KEY.findall(shown):
                parent_name = parent.replace("`", "")
                parent_name = parent_name if "." in parent_name else f"{table.namespace}.{parent_name}"
                yield _ForeignKey(table, name, parent_name, [a for a in _ACTION.findall(actions) if a.split(" ", 2)[2] in _RULES])  # fmt: skip


def _engines(connection: Connection, captured: Callable[[TableId], bool]) -> list[Finding]:
    """Tables whose rows are also changed under another name, or elsewhere. Those in memory are opened."""
    system = ", ".join(f"'{name}'" for name in sorted(SYSTEM_DATABASES))
    with connection.cursor() as cursor:
        cursor.execute(_ENGINES.format(system))
        rows = [(TableId(namespace=str(s), name=str(n)), str(e).upper()) for s, n, e in cursor.fetchall()]
    findings = []
    for table, engine in rows:
        if not captured(table):
            continue
        if engine == "MEMORY":
            _open(connection, table)
        else:
            finding = f"Table {table} has the engine {engine}: {_ELSEWHERE[engine]}."
            fix = f"exclude it: table.exclude.list={table}; capture the tables that contain its rows"
            findings.append(Finding(finding, fix, fatal=False))
    return findings


def _open(connection: Connection, table: TableId) -> None:
    """Open a MEMORY table: a server that was restarted logs only then that it is empty."""
    with connection.cursor() as cursor:
        try:
            cursor.execute(f"SELECT 1 FROM {quote_table(table)} LIMIT 0")
        except pymysql.err.MySQLError as e:
            if e.args[0] not in _NOT_SHOWN:
                raise


def _listed(names: list[str]) -> str:
    more = len(names) - _SHOWN
    return "; ".join(sorted(names)[:_SHOWN]) + (f"; and {more} more" if more > 0 else "")
