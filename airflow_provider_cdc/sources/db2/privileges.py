"""The account's privileges on tables, by ``SYSCAT.TABAUTH`` and ``SYSCAT.DBAUTH``, its roles and groups included as far as the catalog tells."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from airflow_provider_cdc.core.model.schema import TableId
from airflow_provider_cdc.sources.db2.config import Db2Config
from airflow_provider_cdc.sources.db2.connect import Connection
from airflow_provider_cdc.sources.db2.schema.sql_names import quoted

_DATABASE: Final = """
SELECT a.GRANTEE, a.GRANTEETYPE, a.DBADMAUTH, a.DATAACCESSAUTH FROM SYSCAT.DBAUTH a"""
_TABLES: Final = """
SELECT a.TABSCHEMA, a.TABNAME, a.CONTROLAUTH, a.SELECTAUTH, a.INSERTAUTH, a.DELETEAUTH FROM SYSCAT.TABAUTH a
WHERE a.GRANTEETYPE <> 'U' OR a.GRANTEE = ?"""
_ALL: Final = ("SELECT", "INSERT", "DELETE")


@dataclass(frozen=True, slots=True)
class Privileges:
    """What the catalog says that the account may do.

    :param everything: it may read and change every table (DBADM, DATAACCESS)
    :param tables: (action, schema, table) that it may, or that a group or a role may: the catalog does not tell which of them the account is in
    :param user: the account, to which its own tables belong
    """

    everything: bool
    tables: frozenset[tuple[str, str, str]]
    user: str

    def may(self, action: str, table: TableId) -> bool:
        """Whether an action may be allowed on a table."""
        return self.everything or table.namespace == self.user or (action, table.namespace, table.name) in self.tables


def privileges_of(connection: Connection, config: Db2Config) -> Privileges:
    """The account's privileges."""
    user, everything = config.database_user.upper(), False
    for grantee, kind, *authorities in connection.rows(_DATABASE):
        everything |= _is(user, grantee, kind) and "Y" in authorities
    tables = set()
    for schema, name, control, *rights in connection.rows(_TABLES, user):
        for action, right in zip(_ALL, rights, strict=True):
            if control == "Y" or right in ("Y", "G"):
                tables.add((action, str(schema).rstrip(), str(name).rstrip()))
    return Privileges(everything, frozenset(tables), user)


def grant(what: str, table: TableId, config: Db2Config) -> str:
    """The statement that grants the account something on a table."""
    return f"GRANT {what} ON TABLE {quoted(table)} TO USER {config.database_user.upper()}"


def _is(user: str, grantee: object, kind: object) -> bool:
    """Whether a grantee is the account for certain."""
    name = str(grantee).rstrip()
    return (kind == "U" and name == user) or name == "PUBLIC"
