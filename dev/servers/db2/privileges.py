"""GRANT, REVOKE, and whether a user may read or change a table. Everybody may everything unless the server's option ``authorize`` is set."""

from __future__ import annotations

import re
import threading

from dev.servers.db2.dialect import NAME, Masked
from dev.servers.db2.driver import Connection, whole
from dev.servers.db2.errors import Db2Error, not_authorized, unsupported
from dev.servers.db2.log import Table

OWNER = "DB2INST1"
ON_TABLES = ("SELECT", "INSERT", "UPDATE", "DELETE", "ALTER", "INDEX", "REFERENCES", "CONTROL")
COLUMNS = {"REFERENCES": "REFAUTH"} | {name: f"{name}AUTH" for name in ON_TABLES if name != "REFERENCES"}
ON_DATABASE = {
    name: f"{name}AUTH"
    for name in ("CONNECT", "DBADM", "DATAACCESS", "BINDADD", "CREATETAB", "LOAD", "SECADM", "ACCESSCTRL", "SQLADM")
}
ALL = "YYYYYYYY"
_STATEMENT = re.compile(
    rf"^(GRANT|REVOKE)\s+(.+?)\s+ON\s+(DATABASE|(?:TABLE\s+)?(?:({NAME})\s*\.\s*)?({NAME}))\s+(?:TO|FROM)\s+(?:(USER|GROUP|ROLE)\s+)?({NAME})"
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
    """Who may what."""

    def __init__(self, connection: Connection) -> None:
        self._connection, self._lock = connection, threading.RLock()

    def change(self, grantor: str, sql: Masked) -> None:
        """A GRANT or REVOKE."""
        match = _STATEMENT.match(sql.text)
        if match is None:
            raise unsupported(sql.shown(sql.text)[:200])
        verb, listed, target, schema, table, kind, grantee = match.groups()
        words = [word.strip().upper() for word in listed.split(",")]
        given = "Y" if verb.upper() == "GRANT" else "N"
        who = sql.name(grantee)
        grantee_type = (
            "G"
            if who == "PUBLIC" or (kind or "").upper() == "GROUP"
            else "R"
            if (kind or "").upper() == "ROLE"
            else "U"
        )
        with self._lock, whole(self._connection):
            if target.upper() == "DATABASE":
                self._set(
                    "DBAUTH",
                    _columns(words, ON_DATABASE),
                    given,
                    {"GRANTEE": who, "GRANTEETYPE": grantee_type},
                    grantor,
                )
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
        """Who makes a table may do everything with it."""
        where = {"GRANTEE": user, "GRANTEETYPE": "U", "TABSCHEMA": schema, "TABNAME": table}
        with self._lock, whole(self._connection):
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

    def check(self, user: str, schema: str, sql: Masked) -> None:
        """Refuse a statement on a table that the user has no privilege for."""
        operation = _OPERATION.match(sql.text)
        verb = operation.group(1).upper() if operation else ""
        with self._lock, whole(self._connection):
            rights = self._of_database(user)
            if "Y" in rights:
                return
            for table, wanted in _tables(sql, schema, verb):
                if table[0] not in FREE and table[0] != user and not self._may(user, table, wanted):
                    raise not_authorized(user, wanted, ".".join(table))

    def _of_database(self, user: str) -> set[str]:
        rows = self._connection.rows(
            "SELECT DBADMAUTH, DATAACCESSAUTH FROM DB2CAT.DBAUTH WHERE GRANTEE IN (?, 'PUBLIC')", (user,)
        )
        self._connection.commit()
        return {value for row in rows for value in row}

    def _may(self, user: str, table: Table, wanted: str) -> bool:
        rows = self._connection.rows(
            f"SELECT {COLUMNS[wanted]}, CONTROLAUTH FROM DB2CAT.TABAUTH WHERE GRANTEE IN (?, 'PUBLIC') AND TABSCHEMA = ? AND TABNAME = ?",
            (user, *table),
        )
        known = self._connection.rows("SELECT 1 FROM DB2CAT.TABLES WHERE TABSCHEMA = ? AND TABNAME = ?", table)
        self._connection.commit()
        return not known or any("Y" in row for row in rows)  # of what is not there, the engine says so


def _columns(words: list[str], known: dict[str, str]) -> list[str]:
    if unknown := [word for word in words if word not in known]:
        raise Db2Error(-104, "42601", unknown[0])
    return [known[word] for word in words]


def _tables(sql: Masked, schema: str, verb: str) -> list[tuple[Table, str]]:
    found = []
    for match in _NAMED.finditer(sql.text):
        word, owner, name, owner_2, name_2 = match.groups()
        if name is None:
            owner, name, word = owner_2, name_2, "FROM"
        wanted = "SELECT"
        word = word.upper()
        if (word, verb) in (("INTO", "INSERT"), ("UPDATE", "UPDATE")):
            wanted = verb
        elif word == "FROM" and verb == "DELETE" and not found:
            wanted = "DELETE"
        found.append((((sql.name(owner) if owner else schema), sql.name(name)), wanted))
    return found
