"""GRANT, REVOKE, and whether a user may read or change a table. Every user may do everything unless the server's option ``authorize`` is set.

A privilege is on the table, its schema, or the database. It is granted to the user, to PUBLIC, to a group, or to a role of one of these.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Mapping, Sequence

from dev.servers.db2.engine.driver import Connection, Row, run_atomically
from dev.servers.db2.errors import Db2Error, not_authorized, unsupported_statement_error
from dev.servers.db2.log.log import Table
from dev.servers.db2.statements.dialect import NAME, MaskedStatement

OWNER = "DB2INST1"
ON_TABLES = ("SELECT", "INSERT", "UPDATE", "DELETE", "ALTER", "INDEX", "REFERENCES", "CONTROL")
COLUMNS = {"REFERENCES": "REFAUTH"} | {name: f"{name}AUTH" for name in ON_TABLES if name != "REFERENCES"}
ON_DATABASE = {
    name: f"{name}AUTH"
    for name in ("CONNECT", "DBADM", "DATAACCESS", "BINDADD", "CREATETAB", "LOAD", "SECADM", "ACCESSCTRL", "SQLADM")
}
ON_SCHEMAS = {f"{name}IN": f"{name}INAUTH" for name in ("SELECT", "INSERT", "UPDATE", "DELETE")}
_ROLE = re.compile(
    rf"^(GRANT|REVOKE)\s+ROLE\s+({NAME})\s+(?:TO|FROM)\s+(?:(USER|GROUP|ROLE)\s+)?({NAME})$", re.IGNORECASE
)
_STATEMENT = re.compile(
    rf"^(GRANT|REVOKE)\s+(.+?)\s+ON\s+(DATABASE|SCHEMA\s+({NAME})|(?:TABLE\s+)?(?:({NAME})\s*\.\s*)?({NAME}))\s+(?:TO|FROM)\s+(?:(USER|GROUP|ROLE)\s+)?({NAME})"
    r"(?:\s+WITH\s+GRANT\s+OPTION|\s+BY\s+ALL)?$",
    re.IGNORECASE | re.DOTALL,
)
_NAMED = re.compile(
    rf"\b(FROM|JOIN|INTO|UPDATE|TABLE)\s+(?:({NAME})\s*\.\s*)?({NAME})|,\s*({NAME})\s*\.\s*({NAME})(?=\s|$|,)",
    re.IGNORECASE,
)
_OPERATION = re.compile(r"^\W*(\w+)")
FREE = ("SYSCAT", "SYSIBM", "SYSIBMADM", "DB2CAT", "SYSPROC")


class Privileges:
    """The privileges of users and roles."""

    def __init__(self, connection: Connection, groups: Mapping[str, Sequence[str]]) -> None:
        self._connection, self._groups, self._lock = connection, groups, threading.RLock()

    def change(self, grantor: str, sql: MaskedStatement) -> None:
        """A GRANT or REVOKE."""
        if role := _ROLE.match(sql.text):
            verb, name, kind, grantee = role.groups()
            where = {
                "GRANTEE": sql.name(grantee), "GRANTEETYPE": _type_of(sql.name(grantee), kind), "ROLENAME": sql.name(name),
            }  # fmt: skip
            with self._lock, run_atomically(self._connection):
                self._set("ROLEAUTH", ["ADMIN"], "N", where, grantor)
                if verb.upper() == "REVOKE":
                    condition = " AND ".join(f"{column} = ?" for column in where)
                    self._connection.execute(f"DELETE FROM DB2CAT.ROLEAUTH WHERE {condition}", tuple(where.values()))
                self._connection.commit()
            return
        match = _STATEMENT.match(sql.text)
        if match is None:
            raise unsupported_statement_error(sql.shown(sql.text)[:200])
        verb, listed, target, whole_schema, schema, table, kind, grantee = match.groups()
        words = [word.strip().upper() for word in listed.split(",")]
        given = "Y" if verb.upper() == "GRANT" else "N"
        who = sql.name(grantee)
        grantee_type = _type_of(who, kind)
        with self._lock, run_atomically(self._connection):
            if target.upper() == "DATABASE":
                self._set(
                    "DBAUTH",
                    _columns(words, ON_DATABASE),
                    given,
                    {"GRANTEE": who, "GRANTEETYPE": grantee_type},
                    grantor,
                )
            elif whole_schema:
                where = {"GRANTEE": who, "GRANTEETYPE": grantee_type, "SCHEMANAME": sql.name(whole_schema)}
                self._set("SCHEMAAUTH", _columns(words, ON_SCHEMAS), given, where, grantor)
            else:
                if words in (["ALL"], ["ALL PRIVILEGES"]):
                    words = [name for name in ON_TABLES if name != "CONTROL"]
                where = {
                    "GRANTEE": who,
                    "GRANTEETYPE": grantee_type,
                    "TABSCHEMA": sql.name(schema) if schema else grantor,
                    "TABNAME": sql.name(table),
                }
                self._set("TABAUTH", _columns(words, COLUMNS), given, where, grantor)
            self._connection.commit()

    def created(self, user: str, schema: str, table: str) -> None:
        """Grant a user all privileges on a table that the user has made."""
        where = {"GRANTEE": user, "GRANTEETYPE": "U", "TABSCHEMA": schema, "TABNAME": table}
        with self._lock, run_atomically(self._connection):
            self._set("TABAUTH", _columns([*ON_TABLES], COLUMNS), "Y", where, "SYSIBM")
            self._connection.commit()

    def _set(self, name: str, columns: list[str], given: str, where: dict[str, str], grantor: str) -> None:
        condition = " AND ".join(f"{column} = ?" for column in where)
        rows = self._connection.rows(f"SELECT 1 FROM DB2CAT.{name} WHERE {condition}", tuple(where.values()))
        if not rows:
            names = ", ".join(["GRANTOR", *where])
            self._connection.execute(
                f"INSERT INTO DB2CAT.{name} ({names}) VALUES ({', '.join('?' * (len(where) + 1))})",
                (grantor, *where.values()),
            )
        for column in columns:
            self._connection.execute(
                f"UPDATE DB2CAT.{name} SET {column} = '{given}' WHERE {condition}", tuple(where.values())
            )

    def check(self, user: str, schema: str, sql: MaskedStatement) -> None:
        """Refuse a statement on a table that the user has no privilege for."""
        operation = _OPERATION.match(sql.text)
        verb = operation.group(1).upper() if operation else ""
        with self._lock, run_atomically(self._connection):
            rights = self._of_database(user)
            if "Y" in rights:
                return
            for table, expected in _tables(sql, schema, verb):
                if table[0] not in FREE and table[0] != user and not self._may(user, table, expected):
                    raise not_authorized(user, expected, ".".join(table))

    def _of(self, user: str, columns: str, name: str, where: str = "1 = 1", *values: str) -> list[Row]:
        """Grants to a user, direct or by PUBLIC, a group or a role."""
        found = []
        for kind, grantee in self._identities(user):
            found += self._connection.rows(
                f"SELECT {columns} FROM DB2CAT.{name} WHERE GRANTEETYPE = ? AND GRANTEE = ? AND {where}",
                (kind, grantee, *values),
            )
        return found

    def _identities(self, user: str) -> list[tuple[str, str]]:
        found = [("U", user), ("G", "PUBLIC"), *(("G", group) for group in self._groups.get(user, ()))]
        for kind, grantee in found:  # the list grows by the roles of roles
            roles = self._connection.rows(
                "SELECT ROLENAME FROM DB2CAT.ROLEAUTH WHERE GRANTEETYPE = ? AND GRANTEE = ?", (kind, grantee)
            )
            found += [("R", role) for (role,) in roles if ("R", role) not in found]
        return found

    def _of_database(self, user: str) -> set[str]:
        rows = self._of(user, "DBADMAUTH, DATAACCESSAUTH", "DBAUTH")
        self._connection.commit()
        return {value for row in rows for value in row}

    def _may(self, user: str, table: Table, wanted: str) -> bool:
        rows = self._of(user, f"{COLUMNS[wanted]}, CONTROLAUTH", "TABAUTH", "TABSCHEMA = ? AND TABNAME = ?", *table)
        if wanted + "IN" in ON_SCHEMAS:
            rows += self._of(user, ON_SCHEMAS[wanted + "IN"], "SCHEMAAUTH", "SCHEMANAME = ?", table[0])
        known = self._connection.rows("SELECT 1 FROM DB2CAT.TABLES WHERE TABSCHEMA = ? AND TABNAME = ?", table)
        self._connection.commit()
        return not known or any("Y" in row for row in rows)  # of what is not there, the engine says so


def _type_of(grantee: str, kind: str | None) -> str:
    return "G" if grantee == "PUBLIC" else (kind or "USER")[0].upper()


def _columns(words: list[str], known: dict[str, str]) -> list[str]:
    if unknown := [word for word in words if word not in known]:
        raise Db2Error(-104, "42601", unknown[0])
    return [known[word] for word in words]


def _tables(sql: MaskedStatement, schema: str, verb: str) -> list[tuple[Table, str]]:
    found = []
    for match in _NAMED.finditer(sql.text):
        word, owner, name, owner_2, name_2 = match.groups()
        if name is None:
            owner, name, word = owner_2, name_2, "FROM"
        expected = "SELECT"
        word = word.upper()
        if (word, verb) in (("INTO", "INSERT"), ("UPDATE", "UPDATE")):
            expected = verb
        elif word == "FROM" and verb == "DELETE" and not found:
            expected = "DELETE"
        found.append((((sql.name(owner) if owner else schema), sql.name(name)), expected))
    return found
