"""The meaning of names in statements for a session: a table, a view or a sequence, and the row versions to see."""

from typing import Any

from dev.servers.oracle import views
from dev.servers.oracle.engine.catalog import Table
from dev.servers.oracle.engine.transactions import NO_TRANSACTION
from dev.servers.oracle.errors import OraError
from dev.servers.oracle.session_protocol import Session
from dev.servers.oracle.sql.expressions import quote as sql_text
from dev.servers.oracle.sql.inference import ROW_ID, ROW_SCN
from dev.servers.oracle.sql.queries import Source
from dev.servers.oracle.values import datatypes
from dev.servers.oracle.values.datatypes import DataType

CONTROL_FILE = ("V$LOG", "V$LOGFILE", "V$ARCHIVED_LOG", "V$LOG_HISTORY", "V$ARCHIVE_DEST", "V$ARCHIVE_DEST_STATUS")
"""Views that an autonomous database does not show."""


class Names:
    """Resolves names for one session."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def source(self, path: list[str], as_of: str | None, as_of_time: bool) -> Source:
        """Resolve a name in a FROM."""
        if path[-1] == "DUAL" and path[:-1] in ([], ["SYS"]):
            return Source("(SELECT 'X' AS `DUMMY`)", [("DUMMY", DataType("VARCHAR2", length=1))])
        view = views.find(path)
        if view is not None:
            if as_of is not None and self._session.user.name != "SYS":
                raise OraError(1031)
            return self._view(view)
        table = self.table(path, "SELECT")
        if as_of is None:
            return Source(self.rows(table), self.columns(table), str(table.id))
        if not self._session.privileges.on(table, "FLASHBACK"):
            raise OraError(1031)
        scn = f"{'ORA_AS_OF_TIME' if as_of_time else 'ORA_AS_OF'}({as_of}, {table.id})"
        return Source(self.rows(table, scn), self.columns(table))

    def sequence(self, path: list[str]) -> str | None:
        owner = path[0] if len(path) > 1 else self._session.schema
        if (self._session.container, owner, path[-1]) not in self._session.engine.catalog.sequences:
            raise OraError(2289)
        return f"NEXT_VALUE({sql_text(owner)}, {sql_text(path[-1])})"

    def _view(self, view: "views.View") -> Source:
        database = self._session.database
        hidden = database.settings.autonomous and self._session.container != database.root and view.name in CONTROL_FILE
        if hidden or not self._session.privileges.sees_view(view.name):
            raise OraError(942)
        if view.name == "V$LOGMNR_CONTENTS":
            return Source(self._session.miner.contents(), list(view.columns))
        with self._session.engine.lock:
            rows = view.rows(self._session)
        if not rows:
            nothing = ", ".join(f"NULL AS `{name}`" for name, _ in view.columns)
            return Source(f"(SELECT {nothing} WHERE 0)", list(view.columns))
        names = ", ".join(f"`{name}`" for name, _ in view.columns)
        values = ", ".join("(" + ", ".join(literal(value) for value in row) + ")" for row in rows)
        return Source(f"(WITH v({names}) AS (VALUES {values}) SELECT * FROM v)", list(view.columns))

    def table(self, path: list[str], action: str) -> Table:
        """A table that this session may do this to."""
        owner = path[0] if len(path) > 1 else self._session.schema
        private = self._session.private.get(path[-1]) if owner == self._session.schema else None
        table = private or self._session.engine.catalog.tables.get((self._session.container, owner, path[-1]))
        if table is None or len(path) > 2:
            raise OraError(942)
        if private:
            return private
        self._session.privileges.need_on(table, action)
        if action not in ("SELECT", "LOCK"):
            self._session.need_writable()
        return table

    def columns(self, table: Table) -> list[tuple[str, DataType | None]]:
        columns: list[tuple[str, DataType | None]] = [(column.name, column.type) for column in table.live]
        return [*columns, (ROW_ID, datatypes.ROWID), (ROW_SCN, datatypes.NUMBER)]

    def rows(self, table: Table, scn: str | None = None) -> str:
        """The rows of a table that this session sees now, or that were there at an SCN."""
        columns = "".join(f", c{column.id} AS `{column.name}`" for column in table.live)
        head = f"SELECT _r AS __ROW, ORA_ROWID({table.data_id}, _r) AS {ROW_ID}, _bs AS {ROW_SCN}{columns} FROM {table.storage}"
        if scn is not None:
            return f"({head} WHERE _bs <= {scn} AND (_es IS NULL OR _es > {scn}))"
        now = self._session.fixed_scn or self._session.engine.snapshot_scn()
        if self._session.standby:
            now = self._session.database.standby_scn()
        me = self._session.current.id if self._session.current else NO_TRANSACTION
        return f"({head} WHERE (_bs <= {now} OR _bx = {me}) AND (_es IS NULL OR _es > {now}) AND _ex IS NOT {me})"


def literal(value: Any) -> str:
    """A kept value in SQLite's words."""
    if value is None:
        return "NULL"
    if isinstance(value, bytes):
        return f"X'{value.hex()}'"
    return sql_text(value) if isinstance(value, str) else repr(value)
