"""QUERY events: statements in the log. Finds those that end their transaction, DDL, and DML logged as statements (an error)."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Mapping

from airflow_provider_cdc.core.errors import PrerequisiteError
from airflow_provider_cdc.sources.mysql import kernels as k
from airflow_provider_cdc.sources.mysql.columns import charset_codec as known
from airflow_provider_cdc.sources.mysql.columns.byte_reader import ByteReader
from airflow_provider_cdc.sources.mysql.connect import MySqlServer
from airflow_provider_cdc.sources.mysql.log.events import event_types as ev
from airflow_provider_cdc.sources.mysql.log.events.event_body_parsers import MariaDbGtid
from airflow_provider_cdc.sources.mysql.log.transaction_event_buffer import EventBuffer
from airflow_provider_cdc.sources.mysql.schema import ddl
from airflow_provider_cdc.sources.mysql.schema.ddl_applier import DdlApplier, DdlEffect, QueryEvent

_EXPLICIT_TIMESTAMPS = 1 << 24
"""``OPTION_EXPLICIT_DEF_TIMESTAMP`` of MariaDB."""
_SIZES = {3: 4, 7: 2, 8: 2, 9: 8, 10: 4, 13: 3}
"""Status variable → its bytes: step of AUTO_INCREMENT, month names, the database's character set, tables of an update, the size, microseconds."""
_TOO_MANY = 254


class QueryEventReader:
    """Reads the QUERY events of a log.

    :param charsets: collation number → character set
    """

    def __init__(self, server: MySqlServer, applier: DdlApplier, charsets: Mapping[int, str]) -> None:
        self._server, self._applier, self._charsets = server, applier, charsets

    def query(self, i: int, buffer: EventBuffer) -> QueryEvent:
        """Parse the QUERY event ``i``."""
        return parse_query(buffer.events.get_event_body(i), self._charset, mariadb=self._server.mariadb)

    def parse_statements(self, query: QueryEvent) -> Iterator[ddl.Statement]:
        """Yield the statements of its text, one by one."""
        options = ddl.sql_mode_options(query.sql_mode)
        yield from ddl.parse_statements(query.sql, **options, version=self._server.version_number)

    def ends_transaction(self, query: QueryEvent, buffer: EventBuffer) -> bool:
        """Check whether a statement ends the transaction that its GTID event began; if not, rows follow."""
        if not buffer.has_open_transaction:
            return False
        if self._server.mariadb:
            return buffer.is_standalone(buffer.last_transaction_index)
        begun = int(buffer.transactions[buffer.last_transaction_index, k.TX_THREAD]) >= 0
        return not begun and not query.sql.rstrip().upper().endswith("START TRANSACTION")

    def find_effect(self, statement: ddl.Statement, query: QueryEvent, i: int, buffer: EventBuffer) -> DdlEffect | None:
        """Return the effect of a statement on captured tables; ``None`` when it concerns none.

        :raises PrerequisiteError: DML was logged as a statement instead of rows
        """
        if isinstance(statement, ddl.DmlStatement):
            self._refuse_rows(query, statement, buffer.format_location(i))
            return None
        if isinstance(statement, ddl.IgnoredStatement) and statement.kind.rpartition(" ")[2] in (
            "view",
            "trigger",
            "function",
        ):
            self._applier.routes_changed()
        if self._is_half_done(buffer):
            return None
        if buffer.get_event_flags(i) & ev.THREAD_SPECIFIC_FLAG:
            # outside of row format, statements on a temporary table are logged under the name that it hides
            if isinstance(statement, ddl.TruncateTable):
                return None
            if isinstance(statement, ddl.AlterTable | ddl.RenameTable | ddl.CreateIndex | ddl.DropIndex):
                why = "it may refer to a temporary table of the same name"
                statement = ddl.UnknownStatement(query.sql, ddl.tables_of(statement), why)
        if query.error:
            why = f"it ended with error {query.error} on the server, after it had changed rows or tables"
            statement = ddl.UnknownStatement(query.sql, ddl.tables_of(statement), why)
        return self._applier.determine_effect(statement, query, buffer.format_location(i))

    def _charset(self, collation: int) -> str:
        """Character set of a collation number; ``ascii`` for a set that is not known here."""
        charset = self._charsets.get(collation, "utf8mb4")
        return charset if known.is_known(charset) else "ascii"

    def _is_half_done(self, buffer: EventBuffer) -> bool:
        """Check whether this is START ALTER or ROLLBACK ALTER, which change no table.

        They come with MariaDB's ``binlog_alter_two_phase``.
        """
        if not self._server.mariadb or not buffer.has_open_transaction:
            return False
        gtid = buffer.mariadb_gtid(buffer.last_transaction_index)
        half = MariaDbGtid.EXTRA_START_ALTER | MariaDbGtid.EXTRA_ROLLBACK_ALTER
        return gtid is not None and bool(gtid.extra & half)

    def _refuse_rows(self, query: QueryEvent, statement: ddl.DmlStatement, where: str) -> None:
        """Raise an error if changes logged as statements may concern captured tables: they cannot be captured."""
        if why := self._applier.concerned_by(statement, query):
            raise PrerequisiteError(
                f"The binary log contains a statement ({statement.kind}) instead of rows, and {why}: a session, or "
                "the server, had binlog_format set to STATEMENT or MIXED.",
                where=f"{where}, database {query.database}: {query.sql[:200]}",
                safe="Everything before its transaction is captured. The rows that the statement changed are not "
                "in the log.",
                remedy="SET GLOBAL binlog_format = 'ROW', end the sessions that were opened before, then snapshot the "
                "tables again with snapshot.mode=always for one run",
            )


def parse_query(body: bytes, charset: Callable[[int], str], *, mariadb: bool) -> QueryEvent:
    """Read a QUERY event.

    :param charset: collation number → the session's character set, in which the text is written
    """
    thread, _seconds, db_length, error, status_length = struct.unpack_from("<IIBHH", body)
    sql_mode, collation, explicit_timestamps = _session(body[13 : 13 + status_length], mariadb=mariadb)
    start = 13 + status_length
    database = body[start : start + db_length].decode("utf-8", "replace")
    written = "utf8mb4" if collation is None else charset(collation)
    text = known.decode_text(written, body[start + db_length + 1 :], "backslashreplace")
    return QueryEvent(thread, error, database, text, sql_mode, explicit_timestamps)


def _session(status: bytes, *, mariadb: bool) -> tuple[int, int | None, bool]:
    """Read session variables from the status variables of the event, which the server writes in a fixed order.

    They are the session's ``sql_mode``, the number of its ``character_set_client`` and ``explicit_defaults_for_timestamp``.

    MariaDB has the last of them among its flags; MySQL behind the others, before 8.0 not at all.
    """
    c, sql_mode, explicit = ByteReader(status), 0, True
    collation: int | None = None
    while c.has_more:
        match c.read_uint(1):
            case 0:
                flags = c.read_uint(4)
                explicit = not mariadb or bool(flags & _EXPLICIT_TIMESTAMPS)
            case 1:
                sql_mode = c.read_uint(8)
            case 4:
                collation = c.read_uint(2)
                c.read_bytes(4)
            case 6 | 5:  # catalog, time zone
                c.read_bytes(c.read_uint(1))
            case 11:  # the user of a definer
                c.read_bytes(c.read_uint(1))
                c.read_bytes(c.read_uint(1))
            case 12:
                _skip_databases(c)
            case 131:  # MariaDB 11.2: collations of character sets, before the session's character set
                c.read_bytes(4 * c.read_uint(1))
            case 16:
                return sql_mode, collation, bool(c.read_uint(1))
            case kind if kind in _SIZES:
                c.read_bytes(_SIZES[kind])
            case _:
                break
    return sql_mode, collation, explicit


def _skip_databases(c: ByteReader) -> None:
    """Names of databases that the statement changes, each with a zero byte behind it; with too many of them, none."""
    count = c.read_uint(1)
    for _ in range(0 if count == _TOO_MANY else count):
        while c.read_uint(1):
            pass
