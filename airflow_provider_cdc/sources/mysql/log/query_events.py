"""QUERY events: statements in the log. Finds those that end their transaction, DDL, and DML logged as statements (an error)."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Mapping

from airflow_provider_cdc.core.errors import PrerequisiteError
from airflow_provider_cdc.sources.mysql import kernels as k
from airflow_provider_cdc.sources.mysql.columns.byte_reader import ByteReader
from airflow_provider_cdc.sources.mysql.columns.charsets import CODECS
from airflow_provider_cdc.sources.mysql.connect import Server
from airflow_provider_cdc.sources.mysql.log.event_buffer import EventBuffer
from airflow_provider_cdc.sources.mysql.log.events.event_bodies import MariaDbGtid
from airflow_provider_cdc.sources.mysql.schema import ddl
from airflow_provider_cdc.sources.mysql.schema.ddl_applier import DdlApplier, DdlEffect, Query


class QueryEvents:
    """Reads the QUERY events of a log.

    :param charsets: collation number → character set
    """

    def __init__(self, server: Server, applier: DdlApplier, charsets: Mapping[int, str]) -> None:
        self._server, self._applier, self._charsets = server, applier, charsets

    def query(self, i: int, buffer: EventBuffer) -> Query:
        """The QUERY event ``i``."""
        return parse_query(buffer.events.body(i), self._codec)

    def statements(self, query: Query) -> Iterator[ddl.Statement]:
        """The statements of its text, one by one."""
        options = ddl.sql_mode_options(query.sql_mode)
        yield from ddl.read(query.sql, **options, version=self._server.version_number)

    def ends_transaction(self, query: Query, buffer: EventBuffer) -> bool:
        """Whether a statement ends the transaction that its GTID event began; if not, rows follow."""
        if not buffer.open:
            return False
        if self._server.mariadb:
            return buffer.is_standalone(buffer.tx)
        begun = int(buffer.transactions[buffer.tx, k.TX_THREAD]) >= 0
        return not begun and not query.sql.rstrip().upper().endswith("START TRANSACTION")

    def change(self, statement: ddl.Statement, query: Query, i: int, buffer: EventBuffer) -> DdlEffect | None:
        """The effect of a statement on captured tables; ``None`` when it concerns none.

        :raises PrerequisiteError: DML was logged as a statement instead of rows
        """
        if isinstance(statement, ddl.Dml):
            self._refuse_rows(query, statement.kind, buffer.where(i))
            return None
        if self._is_half_done(buffer):
            return None
        if query.error:
            why = f"it ended with error {query.error} on the server, after it had changed something"
            statement = ddl.Unknown(query.sql, ddl.tables_of(statement), why)
        return self._applier.read(statement, query, buffer.where(i))

    def _codec(self, collation: int) -> str:
        """Python codec of a collation number's character set; ``ascii`` for a character set that Python does not have."""
        charset = self._charsets.get(collation, "utf8mb4")
        return "utf-8" if charset == "binary" else CODECS.get(charset, "ascii")

    def _is_half_done(self, buffer: EventBuffer) -> bool:
        """Whether this is START ALTER or ROLLBACK ALTER (MariaDB's ``binlog_alter_two_phase``), which change no table."""
        if not self._server.mariadb or not buffer.open:
            return False
        gtid = buffer.mariadb_gtid(buffer.tx)
        half = MariaDbGtid.EXTRA_START_ALTER | MariaDbGtid.EXTRA_ROLLBACK_ALTER
        return gtid is not None and bool(gtid.extra & half)

    def _refuse_rows(self, query: Query, kind: str, where: str) -> None:
        """Changes logged as statements cannot be captured: an error if they may concern captured tables."""
        if self._applier.concerns(query):
            raise PrerequisiteError(
                f"The binary log holds a statement ({kind}) instead of rows: a session, or the server, had binlog_format set to "
                "STATEMENT or MIXED.",
                where=f"{where}, database {query.database}: {query.sql[:200]}",
                safe="Everything before its transaction is captured. What the statement changed is not in the log.",
                remedy="SET GLOBAL binlog_format = 'ROW', end the sessions that were opened before, then read the tables again "
                "with snapshot.mode=always for one run",
            )


def parse_query(body: bytes, codec: Callable[[int], str]) -> Query:
    """Read a QUERY event.

    :param codec: collation number → Python codec of the session's character set, in which the text is written
    """
    thread, _seconds, db_length, error, status_length = struct.unpack_from("<IIBHH", body)
    sql_mode, collation = _session(body[13 : 13 + status_length])
    start = 13 + status_length
    database = body[start : start + db_length].decode("utf-8", "replace")
    text = body[start + db_length + 1 :].decode("utf-8" if collation is None else codec(collation), "backslashreplace")
    return Query(thread, error, database, text, sql_mode)


def _session(status: bytes) -> tuple[int, int | None]:
    """The session's ``sql_mode`` and the number of its ``character_set_client``, from the status variables of the event.

    The server writes the variables in a fixed order, so reading stops after these two.
    """
    c, sql_mode = ByteReader(status), 0
    while c.more:
        match c.uint(1):
            case 0 | 3:  # flags, step of AUTO_INCREMENT
                c.take(4)
            case 1:
                sql_mode = c.uint(8)
            case 6:  # catalog
                c.take(c.uint(1))
            case 4:
                return sql_mode, c.uint(2)
            case _:
                break
    return sql_mode, None
