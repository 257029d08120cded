"""The stream of the binary log: from a replication connection to log items.

Kernels read row events, a buffer full at a time; :mod:`.event_dispatcher` reads all other events in plain Python.
"""

from __future__ import annotations

import time
import zlib
from collections.abc import Callable, Generator, Iterator
from typing import Any, Final

from airflow_provider_cdc.core.errors import SourceLogDamaged, SourceUnavailable
from airflow_provider_cdc.core.model.log_items import Heartbeat, LogBlock, LogItem, Rollback, SchemaChange
from airflow_provider_cdc.core.model.table_schema import TableChange
from airflow_provider_cdc.core.spi.source import CapturedTableSchemas
from airflow_provider_cdc.sources.mysql.config import MySqlConfig
from airflow_provider_cdc.sources.mysql.connect import MySqlServer
from airflow_provider_cdc.sources.mysql.log.binlog_connection import BinlogConnection
from airflow_provider_cdc.sources.mysql.log.binlog_position_tracker import LogCursor
from airflow_provider_cdc.sources.mysql.log.block_builder import BlockBuilder
from airflow_provider_cdc.sources.mysql.log.event_dispatcher import EventDispatcher, TransactionReread
from airflow_provider_cdc.sources.mysql.log.events.event_decompression import decompress_events
from airflow_provider_cdc.sources.mysql.log.events.event_table import EventSet
from airflow_provider_cdc.sources.mysql.log.log_end import end_of, show_log_end
from airflow_provider_cdc.sources.mysql.log.query_events import QueryEventReader
from airflow_provider_cdc.sources.mysql.log.rows.structure_proof import ForecastTables, NoTables, StructureProof
from airflow_provider_cdc.sources.mysql.log.rows.table_map_cache import TableMapCache
from airflow_provider_cdc.sources.mysql.metrics import LogMetrics
from airflow_provider_cdc.sources.mysql.position import MySqlPosition
from airflow_provider_cdc.sources.mysql.schema.ddl_applier import DdlApplier
from airflow_provider_cdc.sources.mysql.schema.live_catalog import LiveCatalog
from airflow_provider_cdc.sources.mysql.schema.table_name_resolver import TableNameResolver

PATIENCE_S: Final = 10.0
"""Longest time that a server may send nothing new of a log that continues."""
_FIRST_PAUSE_S: Final = 0.02
_LONGEST_PAUSE_S: Final = 0.5


class BinlogStream:
    """Reads the log once, from ``start`` on. Iterate :meth:`read_items` once.

    :param until: position at which to end; ``None`` = continue until the caller stops
    :param patience: seconds to wait for events before a heartbeat is given, asked before each wait; see
        :meth:`airflow_provider_cdc.core.spi.source.Source.stream_log`
    :param metrics: the counters to add to
    :param single: read the prepared XA transaction of this id as if it were committed
    :param proof: proves the structures of rows without column names; by default, one for the position of this stream
    :param rows: whether rows are read; without them, the stream is one of statements
    """

    def __init__(
        self,
        config: MySqlConfig,
        server: MySqlServer,
        start: MySqlPosition,
        until: MySqlPosition | None,
        tables: CapturedTableSchemas,
        catalog: LiveCatalog,
        *,
        patience: Callable[[], float] | None = None,
        single: str | None = None,
        metrics: LogMetrics | None = None,
        proof: StructureProof | None = None,
        rows: bool = True,
    ) -> None:
        self._config, self._server, self._tables, self._single, self._rows = config, server, tables, single, rows
        self._metrics = metrics or LogMetrics()
        self._patience = patience or (lambda: config.poll_interval_ms / 1000)
        self._catalog = catalog
        self._cursor = LogCursor(server, start, until)
        names = TableNameResolver.from_server(server, tables)
        self._proof = proof or StructureProof(
            tables, catalog, lambda: self._cursor.position, self._read_end, self._read_statements
        )
        captured = tables if rows else NoTables()
        self._maps = maps = TableMapCache(config, captured, catalog, names, mariadb=server.mariadb, proof=self._proof)
        shows_lengths = server.mariadb or server.version_tuple < (8, 0, 19)
        applier = DdlApplier(config, tables, catalog, names, shows_lengths=shows_lengths)
        self._dispatcher = EventDispatcher(
            self._cursor, tables, maps, BlockBuilder(config, maps), QueryEventReader(server, applier, catalog.collation_charsets), self._metrics,
            prepared_rows=self._prepared_rows, single=single,
        )  # fmt: skip

    @property
    def last_position(self) -> MySqlPosition:
        """The position after the last complete transaction."""
        return self._cursor.position

    def read_items(self) -> Iterator[LogItem]:
        """Yield the log items, in log order; see :meth:`airflow_provider_cdc.core.spi.source.Source.stream_log`.

        :raises PositionLost: the server does not have the position any more
        :raises SourceUnavailable: the connection was lost
        :raises SourceLogDamaged: an event cannot be read
        :raises UnknownLogEvent: an event that may carry data is not known
        """
        if self._cursor.position.moved and self._rows and not self._names_columns:
            yield from self._distrust_structures()
        patience = _DumpRetries()
        while True:
            began_at = self._cursor.position
            try:
                if (yield from self._pass()):
                    return
            except TransactionReread:
                yield from self._begin_again()
                continue
            yield from self._begin_again()
            yield Heartbeat(self._cursor.position)
            if self._cursor.position != began_at:
                patience.restart_wait()
            elif patience.is_over:
                raise self._ended_early()
            patience.wait_before_retry()

    @property
    def _names_columns(self) -> bool:
        """Check whether the server logs rows with the names of their columns."""
        return self._server.variables.get("binlog_row_metadata", "").upper() == "FULL"

    def _distrust_structures(self) -> Iterator[LogItem]:
        """Mark the known structures as provisional: the position was moved, and statements may have been skipped."""
        self._cursor.accept_move()
        known = filter(self._tables.is_captured, self._tables.list_known_tables())
        schemas = [schema for schema in map(self._tables.find_schema, known) if schema and not schema.provisional]
        changes = [
            TableChange(type="ALTER", id=schema.id, table=schema.model_copy(update={"provisional": True}))
            for schema in schemas
        ]
        if changes:
            at = self._cursor.position
            source: dict[str, object] = {
                "server_id": 0, "gtid": None, "file": at.file, "pos": at.pos, "row": 0, "thread": None, "query": None
            }  # fmt: skip
            yield SchemaChange("", changes[0].id.namespace, changes, at, time.time_ns() // 1000, source)

    def _pass(self) -> Generator[LogItem, None, bool]:
        """Read from the cursor's position to the end of the dump.

        :return: whether that is the end of the stream
        """
        cursor, follow = self._cursor, self._cursor.until is None and self._single is None
        patience = self._patience if follow else None
        unregistered = self._single is not None or not self._rows
        self._maps.discard_unnamed_maps()
        with BinlogConnection(
            self._config, self._server, cursor.position, follow=follow, unregistered=unregistered, patience=patience
        ) as connection:
            cursor.start_after(connection.gtids, connection.without_log)
            complete = cursor.has_reached_end
            if complete:  # only transactions of excluded sources were missing, which the server has purged
                yield Heartbeat(cursor.position)
                return True
            for events in self._received(connection):
                if events is None:
                    if cursor.open.id is None:
                        yield Heartbeat(cursor.position)
                    continue
                keep = None
                for part in self._decompressed(events):
                    keep = yield from self._dispatcher.dispatch(part)
                    if cursor.has_reached_end:
                        yield Heartbeat(cursor.position)
                        return True
                connection.keep_from(keep)
        if cursor.has_all:
            yield Heartbeat(cursor.position)
        return cursor.has_all

    def _begin_again(self) -> Iterator[LogItem]:
        """Go back to the last complete transaction."""
        if self._cursor.open.id is not None:
            yield Rollback()
        self._cursor.read_again()

    def _ended_early(self) -> SourceUnavailable:
        self._metrics.count_disconnect()
        end = "the end of the log" if self._cursor.until is None else f"{self._cursor.until}, which it has written"
        return SourceUnavailable(
            f"The server repeatedly ended its log before {end}, for {PATIENCE_S:.0f} s at each attempt.",
            where=f"{self._config.database_hostname}:{self._config.database_port}, reading from {self._cursor.position}",
            safe="Everything before this position is captured.",
            remedy="a retry resumes from this position; if the error repeats, check whether a session ends the "
            "connection (KILL QUERY), and whether the server can write its log to the disk (sync_binlog, "
            "binlog_group_commit_sync_delay, a full or slow disk)",
        )

    def _received(self, connection: BinlogConnection) -> Iterator[EventSet | None]:
        try:
            yield from connection.read_events()
        except SourceUnavailable:
            self._metrics.count_disconnect()
            raise

    def _decompressed(self, events: EventSet) -> Iterator[EventSet]:
        try:
            yield from decompress_events(events)
        except (ValueError, zlib.error) as e:
            raise SourceLogDamaged(
                f"A compressed event of the binary log cannot be read: {e}.",
                where=str(self.last_position),
                safe="Everything before it is captured.",
                remedy="run the capture again; if the error persists, snapshot the tables again with "
                "snapshot.mode=always for one run",
            ) from e

    def _prepared_rows(self, xid: str, begin: dict[str, Any]) -> Iterator[LogItem]:
        """Yield the rows of a prepared XA transaction, and the items that concern them: schema changes, rollbacks.

        :param xid: its XA id
        :param begin: file and offset at which it begins, as ``MySqlPosition.prepared`` has it
        """
        start = MySqlPosition(str(begin["file"]), int(str(begin["pos"])), server=self._server.identity)
        stream = BinlogStream(
            self._config, self._server, start, None, self._tables, self._catalog, single=xid, proof=self._proof
        )
        for item in stream.read_items():
            if isinstance(item, LogBlock | Rollback | SchemaChange):
                yield item
            if isinstance(item, LogBlock) and not item.open:
                return

    def _read_end(self) -> MySqlPosition:
        """Read the end of the log, over the connection of the catalog: one may have to be read for each table."""
        rows = self._catalog.ask(lambda catalog: catalog.run_query(show_log_end(self._server)))
        gtids = self._catalog.ask(lambda c: c.run_query("SELECT @@gtid_binlog_pos")) if self._server.mariadb else [[""]]
        return end_of(rows, self._server, str(gtids[0][0] or ""))

    def _read_statements(
        self, start: MySqlPosition, end: MySqlPosition, tables: ForecastTables
    ) -> Iterator[SchemaChange]:
        """Yield the schema changes between two positions; see :class:`.structure_proof.StructureProof`."""
        stream = BinlogStream(self._config, self._server, start, end, tables, self._catalog, rows=False)
        yield from (item for item in stream.read_items() if isinstance(item, SchemaChange))


class _DumpRetries:
    """The time for which a stream continues to ask for a log that ends before its end.

    MySQL counts a transaction as written that it does not send yet: it waits for the disk (``sync_binlog=1``), and for other transactions
    to write with it (``binlog_group_commit_sync_delay``). And a server ends a dump without an error on ``KILL QUERY``.
    """

    def __init__(self) -> None:
        self.restart_wait()

    def restart_wait(self) -> None:
        """Wait from now on: something has come."""
        self._until, self._pause_s = time.monotonic() + PATIENCE_S, _FIRST_PAUSE_S

    @property
    def is_over(self) -> bool:
        return time.monotonic() > self._until

    def wait_before_retry(self) -> None:
        """Wait before asking again, longer each time."""
        time.sleep(self._pause_s)
        self._pause_s = min(2 * self._pause_s, _LONGEST_PAUSE_S)
