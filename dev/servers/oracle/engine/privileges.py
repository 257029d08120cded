"""Privileges of users: system privileges, roles and grants on objects."""

from dev.servers.oracle.engine.catalog import Catalog, Table, User
from dev.servers.oracle.errors import OraError

DYNAMIC_VIEWS = (
    "DATABASE", "LOG", "LOG_HISTORY", "LOGMNR_LOGS", "LOGMNR_CONTENTS", "LOGMNR_PARAMETERS", "LOGFILE", "ARCHIVED_LOG",
    "ARCHIVE_DEST_STATUS", "TRANSACTION", "MYSTAT", "STATNAME",
)  # fmt: skip
CAPTURE_GRANTS = (
    "CREATE SESSION", "SET CONTAINER", "SELECT ON V_$DATABASE", "FLASHBACK ANY TABLE", "SELECT ANY TABLE",
    "SELECT_CATALOG_ROLE", "EXECUTE_CATALOG_ROLE", "SELECT ANY TRANSACTION", "LOGMINING", "CREATE TABLE", "LOCK ANY TABLE",
    "CREATE SEQUENCE", "EXECUTE ON DBMS_LOGMNR", "EXECUTE ON DBMS_LOGMNR_D",
    *(f"SELECT ON V_${name}" for name in DYNAMIC_VIEWS if name != "DATABASE"),
)  # fmt: skip
"""What the capture user has at first: the grants that the documentation of such connectors asks for, in its order."""
OWNER_GRANTS = ("CREATE SESSION", "CREATE TABLE", "CREATE SEQUENCE", "UNLIMITED TABLESPACE", "FLASHBACK ANY TABLE")
SYSTEM_PRIVILEGES = frozenset(
    {"CREATE SESSION", "SET CONTAINER", "FLASHBACK ANY TABLE", "SELECT ANY TABLE", "SELECT ANY TRANSACTION", "LOGMINING"}
    | {"CREATE TABLE", "LOCK ANY TABLE", "CREATE SEQUENCE", "UNLIMITED TABLESPACE", "SELECT ANY DICTIONARY", "ALTER ANY TABLE"}
    | {"INSERT ANY TABLE", "UPDATE ANY TABLE", "DELETE ANY TABLE", "CREATE ANY TABLE", "DROP ANY TABLE", "ALTER SYSTEM"}
    | {"ALTER DATABASE", "ALTER SESSION", "CREATE USER", "SELECT ANY SEQUENCE", "CREATE TABLESPACE", "CREATE PROCEDURE"}
    | {"CREATE VIEW", "CREATE TRIGGER"}
)  # fmt: skip
ROLES = frozenset({"SELECT_CATALOG_ROLE", "EXECUTE_CATALOG_ROLE", "CONNECT", "RESOURCE", "DBA"})
ROLE_CONTENTS = {
    "CONNECT": {"CREATE SESSION", "SET CONTAINER"},
    "RESOURCE": {"CREATE TABLE", "CREATE SEQUENCE"},
    "DBA": {*SYSTEM_PRIVILEGES, "SELECT_CATALOG_ROLE", "EXECUTE_CATALOG_ROLE"},
}


class Privileges:
    """Answers questions about the rights of one user."""

    def __init__(self, catalog: Catalog, user: User) -> None:
        self._catalog = catalog
        self.user = user

    def has(self, *grants: str) -> bool:
        """Check whether the user has one of these."""
        if self.user.name == "SYS":
            return True
        owned = set(self.user.grants)
        for role in owned & set(ROLE_CONTENTS):
            owned |= ROLE_CONTENTS[role]
        return any(grant in owned for grant in grants)

    def need(self, *grants: str) -> None:
        """ORA-01031 unless the user has one of these."""
        if not self.has(*grants):
            raise OraError(1031)

    def on(self, table: Table, action: str) -> bool:
        """Check whether the user may do this to the table."""
        if table.owner == self.user.name:
            return True
        # any object privilege but READ allows LOCK TABLE (Oracle, SQL Language Reference, "LOCK TABLE")
        actions = ("SELECT", "INSERT", "UPDATE", "DELETE", "ALTER", "FLASHBACK") if action == "LOCK" else (action,)
        grants = {f"{one} ON {table.owner}.{table.name}" for one in (*actions, "ALL")}
        system = {"SELECT": "SELECT ANY TABLE", "READ": "SELECT ANY TABLE"}.get(action, f"{action} ANY TABLE")
        return self.has(*grants, system)

    def sees(self, table: Table) -> bool:
        """Check whether ALL_TABLES shows the table."""
        return any(self.on(table, action) for action in ("SELECT", "INSERT", "UPDATE", "DELETE", "ALTER"))

    def need_on(self, table: Table, action: str) -> None:
        """ORA-00942 for a table that the user cannot even see, ORA-01031 for one that may not be changed."""
        if not self.on(table, action):
            raise OraError(1031 if self.sees(table) and action != "SELECT" else 942)

    def sees_view(self, name: str) -> bool:
        """Check whether the user may read a ``V$`` or ``DBA_`` view, by the name without SYS."""
        if name.startswith("V$"):
            underlying = name.replace("V$", "V_$")
            free = name in ("V$VERSION", "V$NLS_PARAMETERS", "V$SESSION_CONNECT_INFO", "V$TIMEZONE_NAMES")
            return free or self.has(f"SELECT ON {underlying}", "SELECT_CATALOG_ROLE", "SELECT ANY DICTIONARY")
        if name.startswith(("DBA_", "CDB_")):
            return self.has(f"SELECT ON {name}", "SELECT_CATALOG_ROLE", "SELECT ANY DICTIONARY")
        return True

    def need_package(self, name: str) -> None:
        """The right to call a package; without it the name is as good as unknown."""
        if not self.has(f"EXECUTE ON {name}", "EXECUTE_CATALOG_ROLE", *(("LOGMINING",) if "LOGMNR" in name else ())):
            raise OraError(904, f"{name}: must be declared; identifier")
