"""Statements in the log: DDL, the frames of transactions, and changes that were logged as statements."""

from __future__ import annotations

from collections.abc import Iterator

from airflow_provider_cdc.core.errors import PrerequisiteError
from airflow_provider_cdc.core.events import LogItem, SchemaChange, Truncate
from airflow_provider_cdc.sources.mysql import binlog as b
from airflow_provider_cdc.sources.mysql import ddl
from airflow_provider_cdc.sources.mysql import kernels as k
from airflow_provider_cdc.sources.mysql.event_set import EventSet
from airflow_provider_cdc.sources.mysql.frames import Frames
from airflow_provider_cdc.sources.mysql.handing_over import HandingOver


class Statements:
    """Reads the statements in a set of events."""

    def __init__(self, found: EventSet, hand_over: HandingOver, frames: Frames) -> None:
        self.s, self.found, self.hand_over, self.frames = found.s, found, hand_over, frames

    def read(self, i: int) -> Iterator[LogItem]:
        """The frame of a transaction, DDL, or what does not concern tables.

        :raises PrerequisiteError: rows were changed by a statement that is not logged as rows
        """
        s, found = self.s, self.found
        query = b.parse_query(found.events.body(i), s.codec)
        closes = self._is_whole_transaction(query.sql)
        options = ddl.sql_mode_options(query.sql_mode)
        for statement in ddl.read(query.sql, **options, version=s.server.version_number):
            match statement:
                case ddl.Transaction():
                    yield from self.frames.statement(i, statement)
                    closes = closes and statement.kind in ("xa commit", "xa rollback") and found.open
                    if statement.kind == "xa start":
                        found.transactions[found.tx, k.TX_THREAD] = query.thread
                case ddl.Dml():
                    self._refuse_rows(i, query, statement.kind)
                case _ if self._is_half_done():
                    pass
                case _ if query.error:
                    why = f"it ended with error {query.error} on the server, after it had changed something"
                    yield from self._ddl(i, query, ddl.Unknown(query.sql, ddl.tables_of(statement), why), closes)
                case _:
                    yield from self._ddl(i, query, statement, closes)
            if closes and not isinstance(statement, ddl.Transaction):
                found.apart.add(found.tx)
        if closes and found.open:
            found.close(i)
            yield from self.hand_over.complete()

    def _is_whole_transaction(self, sql: str) -> bool:
        """Whether a statement ends the transaction that its GTID began; rows follow one that does not."""
        found = self.found
        if not found.open:
            return False
        if self.s.server.mariadb:
            gtid = found.gtid(found.tx)
            return found.is_standalone(gtid) if gtid >= 0 else found.note(found.tx).standalone
        begun = int(found.transactions[found.tx, k.TX_THREAD]) >= 0
        return not begun and not sql.rstrip().upper().endswith("START TRANSACTION")

    def _is_half_done(self) -> bool:
        """Whether an ALTER TABLE only begins here, or is taken back (MariaDB's ``binlog_alter_two_phase``)."""
        if not self.s.server.mariadb or not self.found.open:
            return False
        gtid = self.found.mariadb_gtid(self.found.gtid(self.found.tx))
        half = b.MariaDbGtid.EXTRA_START_ALTER | b.MariaDbGtid.EXTRA_ROLLBACK_ALTER
        return gtid is not None and bool(gtid.extra & half)

    def _ddl(self, i: int, query: b.Query, statement: ddl.Statement, closes: bool) -> Iterator[LogItem]:
        s, found = self.s, self.found
        change = s.reader.read(statement, query, found.where(i))
        if change is None:
            return
        if closes:
            # the transaction is this statement: it is handed over as what it is, not as an empty block
            tx = found.tx
            yield from self.hand_over.complete()
            found.close(i)
            position = self.hand_over.position(i, tx, tx + 1)
            self.hand_over.passed(i, tx + 1)
        else:
            yield from self.hand_over.complete()
            position = s.position if found.open else self.hand_over.position(i, found.first, found.first)
        ts_us, source = found.ts_us(i), found.source(i)
        s.position = position
        if closes:
            self.hand_over.came(i)
            s.metrics.last_transaction = str(source["gtid"] or s.metrics.last_transaction)
        if change.truncated:
            gtid = source["gtid"]
            yield Truncate(change.truncated, position, ts_us, str(gtid) if gtid else None, source)
        if change.changes or change.untold:
            yield SchemaChange(
                query.sql, query.database, change.changes, position, ts_us, source, open=found.open, untold=change.untold
            )  # fmt: skip
        s.maps.forget()

    def _refuse_rows(self, i: int, query: b.Query, kind: str) -> None:
        """Changes logged as statements cannot be captured: an error if they may concern captured tables."""
        if self.s.reader.concerns(query):
            raise PrerequisiteError(
                f"The binary log holds a statement ({kind}) instead of rows: a session, or the server, had binlog_format set to "
                "STATEMENT or MIXED.",
                where=f"{self.found.where(i)}, database {query.database}: {query.sql[:200]}",
                safe="Everything before its transaction is captured. What the statement changed is not in the log.",
                remedy="SET GLOBAL binlog_format = 'ROW', end the sessions that were opened before, then read the tables again "
                "with snapshot.mode=always for one run",
            )
