"""The registrations of captured tables: ADDTABLE and REMOVETABLE change them, and the capture agent reads them.

A registration is a row of ``IBMSNAP_REGISTER`` and a change table. The agent reads registrations when it starts and on command
(``ASNCDCSERVICES('reinit', …)``), and not in between, as ASN does: a table that is added, removed, or whose STATE is set to another one, is
treated as before until then.
"""

from __future__ import annotations

import datetime
import re
from dataclasses import dataclass

from dev.servers.db2.engine.driver import Connection
from dev.servers.db2.errors import Db2Error, undefined_object_error
from dev.servers.db2.log.log import LOB_TYPES, UPDATE, Changes, Log, Table
from dev.servers.db2.log.positions import in_sql, quote_name, text

SCHEMA = "ASNCDC"
SIGNALS = (SCHEMA, "IBMSNAP_SIGNAL")
HEAD = (
    "CAST(X'' AS VARCHAR(16) FOR BIT DATA) AS IBMSNAP_COMMITSEQ, CAST(X'' AS VARCHAR(16) FOR BIT DATA) AS IBMSNAP_INTENTSEQ, "
    "CAST('' AS CHAR(1)) AS IBMSNAP_OPERATION"
)
INDICATORS = {"CLOB": "'U'", "BLOB": "X'55'"}
HEAD_NAMES = ("IBMSNAP_COMMITSEQ", "IBMSNAP_INTENTSEQ", "IBMSNAP_OPERATION")


@dataclass
class Registration:
    """A table that is captured, as the agent knows it."""

    table: Table
    change_table: Table
    pairs: bool
    """An update is a row D and a row I."""
    prefix: str
    """Of columns with the image before the change; empty: there are none."""
    columns: list[str]
    """Of the change table, without those of ASN."""
    lobs: dict[str, str]
    """Type of each column that is a large object."""
    lob_writes: str = "indicator"
    """Values of these columns: ``indicator``, ``nothing`` or ``values``."""

    def inserts(self, changes: Changes, length: int) -> list[str]:
        """Statements that copy what one table of changes has between two numbers of transactions."""
        before_of, after_of = self._sources(changes, "B"), self._sources(changes, "A")
        if self.pairs:
            after = self._insert(
                changes, length, "CASE WHEN S.OP = 'U' THEN S.LSN + 1 ELSE S.LSN END", "'I'", after_of, "S.OP <> 'D'"
            )
            return [after, self._insert(changes, length, "S.LSN", "'D'", before_of, "S.OP <> 'I'")]
        after = self._insert(changes, length, "S.LSN", "S.OP", after_of, "S.OP <> 'D'")
        return [after, self._insert(changes, length, "S.LSN", "'D'", before_of, "S.OP = 'D'")]

    def _sources(self, changes: Changes, side: str) -> dict[str, str]:
        """For each column of the change table, the column of the table of changes that it is filled from."""
        found = {}
        for column in self.columns:
            image, name = side, column
            if self.prefix and column.startswith(self.prefix) and column[len(self.prefix) :] in self.columns:
                image, name = "B", column[len(self.prefix) :]
            order = _order(changes, name)
            if order is not None and order not in changes.lobs:
                found[column] = f"S.{image}{order}"
            elif order is not None and column in self.lobs:
                if self.lob_writes == "values":
                    found[column] = f"S.{image}{order}"
                elif self.lob_writes == "indicator" and image == "A":
                    kind = self.lobs[column]
                    found[column] = f"CASE WHEN S.L{order} = 'U' THEN CAST({INDICATORS[kind]} AS {kind}(1)) END"
            elif order is not None and image == "A":
                found[column] = f"S.L{order}"
        return found

    def _insert(
        self, changes: Changes, length: int, intent: str, operation: str, sources: dict[str, str], where: str
    ) -> str:
        names = ", ".join([*HEAD_NAMES, *(quote_name(name) for name in sources)])
        values = ", ".join(["U.COMMITSEQ", in_sql(intent, length), operation, *sources.values()])
        return (
            f"INSERT INTO {quote_name(*self.change_table)} ({names}) SELECT {values} FROM {changes.name} S JOIN DB2LOG.UNITS U ON U.XID = S.XID "
            f"WHERE U.N > ? AND U.N <= ? AND {where}"
        )


def _order(changes: Changes, name: str) -> int | None:
    for names in (changes.columns, changes.origins):
        if name in names:
            return names.index(name) + 1
    return None


def read(connection: Connection, log: Log, lob_writes: str) -> dict[Table, Registration]:
    """The registrations in state A that have a change table.

    :param lob_writes: the setting for columns of large objects
    """
    columns: dict[Table, list[str]] = {}
    for owner, name, column in connection.rows(
        "SELECT S.SCHEMANAME, T.TABLENAME, C.COLUMNNAME FROM ASNCDC.IBMSNAP_REGISTER R JOIN SYS.SYSSCHEMAS S ON S.SCHEMANAME = R.CD_OWNER "
        "JOIN SYS.SYSTABLES T ON T.SCHEMAID = S.SCHEMAID AND T.TABLENAME = R.CD_TABLE JOIN SYS.SYSCOLUMNS C ON C.REFERENCEID = T.TABLEID "
        "ORDER BY T.TABLENAME, C.COLUMNNUMBER WITH UR"
    ):
        columns.setdefault((owner, name), []).append(column)
    rows = connection.rows(
        "SELECT SOURCE_OWNER, SOURCE_TABLE, CD_OWNER, CD_TABLE, CHG_UPD_TO_DEL_INS, BEFORE_IMG_PREFIX FROM ASNCDC.IBMSNAP_REGISTER "
        "WHERE GLOBAL_RECORD = 'N' AND STATE = 'A' WITH CS"
    )
    found = {}
    for owner, name, cd_owner, cd_table, pairs, prefix in rows:
        if of_table := columns.get((cd_owner, cd_table)):
            own = [column for column in of_table if column not in HEAD_NAMES]
            lobs = {}
            if any(changes.lobs for changes in log.changes_of((owner, name))):
                lobs = {column: kind for column, kind in log.columns((cd_owner, cd_table)) if _is_lob(kind)}
            found[(owner, name)] = Registration(
                (owner, name), (cd_owner, cd_table), pairs == "Y", prefix or "", own, lobs, lob_writes
            )
    return found


def add(
    connection: Connection, log: Log, table: Table, *, upd_to_del_ins: bool = True, before_prefix: str | None = None,
    columns: list[str] | None = None, change_table: str | None = None, state: str = "A", lob_columns: str = "lob",
) -> None:  # fmt: skip
    """Log the changes of a table, make a change table and register it, as ``ASNCDC.ADDTABLE`` does.

    :param lob_columns: the type of large objects in the change table: a ``lob`` of the same type, or a ``letter``, ``U`` where the value has changed
    """
    found = log.columns(table)
    if not found:
        raise undefined_object_error(".".join(table))
    if columns is not None:
        found = [(name, kind) for name, kind in found if name in columns]
    log.enable(table)
    name = change_table or f"CDC_{table[0]}_{table[1]}"
    if log.columns((SCHEMA, name)):
        raise Db2Error(-601, "42710", f"{SCHEMA}.{name}", "TABLE")
    selects = [HEAD] + [
        f"CAST('' AS CHAR(1)) AS {quote_name(c)}" if _is_lob(kind) and lob_columns == "letter" else f"T.{quote_name(c)}"
        for c, kind in found
    ]
    if before_prefix:
        selects += [
            f"CAST(NULL AS CHAR(1)) AS {quote_name(before_prefix + c)}"
            if _is_lob(kind)
            else f"B.{quote_name(c)} AS {quote_name(before_prefix + c)}"
            for c, kind in found
        ]
    source, cd = quote_name(*table), quote_name(SCHEMA, name)
    connection.execute(
        f"CREATE TABLE {cd} AS SELECT {', '.join(selects)} FROM {source} T LEFT JOIN {source} B ON 1 = 0 WITH NO DATA"
    )
    for column, kind in found:
        if _is_lob(kind):
            connection.execute(f"ALTER TABLE {cd} ALTER COLUMN {quote_name(column)} NULL")
    connection.execute(
        f"CREATE UNIQUE INDEX {quote_name(SCHEMA, 'IX' + name)} ON {cd} (IBMSNAP_COMMITSEQ, IBMSNAP_INTENTSEQ)"
    )
    _register(connection, table, name, "Y" if upd_to_del_ins else "N", before_prefix, state)
    connection.commit()


def _is_lob(kind: str) -> bool:
    return kind in LOB_TYPES


def _register(
    connection: Connection, table: Table, change_table: str, pairs: str, prefix: str | None, state: str
) -> None:
    connection.execute(
        "INSERT INTO ASNCDC.IBMSNAP_REGISTER (SOURCE_OWNER, SOURCE_TABLE, SOURCE_VIEW_QUAL, GLOBAL_RECORD, SOURCE_STRUCTURE, SOURCE_CONDENSED, "
        "SOURCE_COMPLETE, CD_OWNER, CD_TABLE, PHYS_CHANGE_OWNER, PHYS_CHANGE_TABLE, DISABLE_REFRESH, ARCH_LEVEL, BEFORE_IMG_PREFIX, CONFLICT_LEVEL, "
        "CHG_UPD_TO_DEL_INS, CHGONLY, RECAPTURE, OPTION_FLAGS, STOP_ON_ERROR, STATE) "
        f"VALUES (?, ?, 0, 'N', 1, 'Y', 'Y', 'ASNCDC', ?, 'ASNCDC', ?, 0, '0801', {text(prefix) if prefix else 'NULL'}, '0', "
        "?, 'N', 'Y', 'NNNN', 'Y', ?)",
        (*table, change_table, change_table, pairs, state),
    )  # fmt: skip
    numbers = connection.rows("SELECT MAP_ID FROM ASNCDC.IBMSNAP_PRUNCNTL")
    next_ = max((int(row[0]) for row in numbers), default=0) + 1
    connection.execute(
        "INSERT INTO ASNCDC.IBMSNAP_PRUNCNTL (TARGET_SERVER, TARGET_OWNER, TARGET_TABLE, SOURCE_OWNER, SOURCE_TABLE, SOURCE_VIEW_QUAL, "
        "APPLY_QUAL, SET_NAME, CNTL_SERVER, TARGET_STRUCTURE, CNTL_ALIAS, PHYS_CHANGE_OWNER, PHYS_CHANGE_TABLE, MAP_ID) "
        "VALUES ('KAFKA', ?, ?, ?, ?, 0, 'KAFKAQUAL', 'SET001', 'TESTDB', 8, 'TESTDB', 'ASNCDC', ?, ?)",
        (*table, *table, quote_name(change_table), str(next_)),
    )


def mark_lobs(connection: Connection, changed: list[Changes], between: tuple[int, int]) -> None:
    """Note which large objects have changed, as the engine does not compare them."""
    for changes in changed:
        if not changes.lobs:
            continue
        images = ", ".join(f"S.B{order}, S.A{order}" for order in changes.lobs)
        rows = connection.rows(
            f"SELECT S.LSN, S.OP, {images} FROM {changes.name} S JOIN DB2LOG.UNITS U ON U.XID = S.XID WHERE U.N > ? AND U.N <= ?",
            between,
        )
        for lsn, operation, *values in rows:
            pairs = zip(changes.lobs, values[::2], values[1::2], strict=True)
            marks = [f"L{order} = 'U'" for order, before, after in pairs if _has_changed(operation, before, after)]
            if marks:
                connection.execute(f"UPDATE {changes.name} SET {', '.join(marks)} WHERE LSN = {lsn}")


def _has_changed(operation: str, before: object, after: object) -> bool:
    return before != after if operation == UPDATE else after is not None


def prune_old(connection: Connection) -> None:
    """Delete rows committed more than RETENTION_LIMIT minutes ago, read or not, as the agent does every PRUNE_INTERVAL.

    Transactions without a row in IBMSNAP_UOW count, too. No synchpoint of a registration shows it.
    """
    limit, now = connection.rows("SELECT RETENTION_LIMIT, CURRENT_TIMESTAMP FROM ASNCDC.IBMSNAP_CAPPARMS")[0]
    moment = now - datetime.timedelta(minutes=limit)
    old = f"(SELECT MAX(U.COMMITSEQ) FROM DB2LOG.UNITS U WHERE U.LOGMARKER <= TIMESTAMP('{moment}'))"
    for owner, name in connection.rows(
        "SELECT CD_OWNER, CD_TABLE FROM ASNCDC.IBMSNAP_REGISTER WHERE GLOBAL_RECORD = 'N'"
    ):
        connection.execute(f"DELETE FROM {quote_name(owner, name)} WHERE IBMSNAP_COMMITSEQ <= {old}")
    connection.execute(f"DELETE FROM ASNCDC.IBMSNAP_UOW WHERE IBMSNAP_COMMITSEQ <= {old}")
    connection.execute(f"DELETE FROM ASNCDC.IBMSNAP_SIGNAL WHERE SIGNAL_LSN <= {old}")


def remove(connection: Connection, log: Log, table: Table) -> list[Table]:
    """Remove a table's registration, change table and logging, as ``ASNCDC.REMOVETABLE`` does.

    :return: change tables that are gone
    """
    rows = connection.rows(
        "SELECT CD_OWNER, CD_TABLE FROM ASNCDC.IBMSNAP_REGISTER WHERE SOURCE_OWNER = ? AND SOURCE_TABLE = ?", table
    )
    change_tables: list[Table] = [(row[0], row[1]) for row in rows]
    for name in ("IBMSNAP_PRUNCNTL", "IBMSNAP_REGISTER"):
        connection.execute(f"DELETE FROM ASNCDC.{name} WHERE SOURCE_OWNER = ? AND SOURCE_TABLE = ?", table)
    for change_table in change_tables:
        if log.columns(change_table):
            connection.execute(f"DROP TABLE {quote_name(*change_table)}")
    connection.commit()
    log.disable(table)
    return change_tables


def map_id(connection: Connection, identifier: str) -> Table | None:
    """The table that a signal means by the number of its subscription."""
    if not re.fullmatch(r"\d+", identifier):
        return None
    rows = connection.rows(
        "SELECT SOURCE_OWNER, SOURCE_TABLE FROM ASNCDC.IBMSNAP_PRUNCNTL WHERE MAP_ID = ?", (identifier,)
    )
    return (rows[0][0], rows[0][1]) if rows else None
