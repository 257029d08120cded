"""The stream of the binary log: from a replication connection to log items.

Kernels read row events, a buffer full at a time; :mod:`.event_dispatcher` reads all other events in plain Python.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from typing import Any

from airflow_provider_cdc.core.errors import SourceLogDamaged, SourceUnavailable
from airflow_provider_cdc.core.model.events import Heartbeat, LogBlock, LogItem, Rollback
from airflow_provider_cdc.core.spi.source import Tables
from airflow_provider_cdc.sources.mysql.config import MySqlConfig
from airflow_provider_cdc.sources.mysql.connect import Server
from airflow_provider_cdc.sources.mysql.log.binlog_connection import BinlogConnection
from airflow_provider_cdc.sources.mysql.log.block_builder import BlockBuilder
from airflow_provider_cdc.sources.mysql.log.cursor import LogCursor
from airflow_provider_cdc.sources.mysql.log.event_dispatcher import EventDispatcher, ReadAgain
from airflow_provider_cdc.sources.mysql.log.events.decompress import decompress
from airflow_provider_cdc.sources.mysql.log.events.event_table import Events
from airflow_provider_cdc.sources.mysql.log.query_events import QueryEvents
from airflow_provider_cdc.sources.mysql.log.rows.table_maps import TableMaps
from airflow_provider_cdc.sources.mysql.metrics import LogMetrics
from airflow_provider_cdc.sources.mysql.position import MySqlPosition
from airflow_provider_cdc.sources.mysql.schema.ddl_applier import DdlApplier
from airflow_provider_cdc.sources.mysql.schema.present_catalog import PresentCatalog


class BinlogStream:
    """Reads the log once, from ``start`` on. Iterate :meth:`items` once.

    :param until: position at which to end; ``None`` = go on until the caller stops
    :param patience: seconds to wait for events before a heartbeat is given, asked before each wait; see
        :meth:`airflow_provider_cdc.core.spi.source.Source.stream`
    :param metrics: the counters to add to
    :param single: read one prepared XA transaction as if it were committed, then stop
    """

    def __init__(
        self,
        config: MySqlConfig,
        server: Server,
        start: MySqlPosition,
        until: MySqlPosition | None,
        tables: Tables,
        catalog: PresentCatalog,
        *,
        patience: Callable[[], float] | None = None,
        single: bool = False,
        metrics: LogMetrics | None = None,
    ) -> None:
        self._config, self._server, self._tables, self._single = config, server, tables, single
        self._metrics = metrics or LogMetrics()
        self._patience = patience or (lambda: config.poll_interval_ms / 1000)
        self._catalog = catalog
        self._cursor = LogCursor(server, start, until)
        maps = TableMaps(config, tables, catalog, mariadb=server.mariadb)
        shows_lengths = server.mariadb or server.number < (8, 0, 19)
        applier = DdlApplier(config, tables, catalog, shows_lengths=shows_lengths)
        self._dispatcher = EventDispatcher(
            self._cursor, tables, maps, BlockBuilder(config, maps), QueryEvents(server, applier, catalog.charsets), self._metrics,
            prepared_rows=self._prepared_rows, single=single,
        )  # fmt: skip

    @property
    def position(self) -> MySqlPosition:
        """The position after the last complete transaction."""
        return self._cursor.position

    def items(self) -> Iterator[LogItem]:
        """The log items, in log order; see :meth:`airflow_provider_cdc.core.spi.source.Source.stream`.

        :raises PositionLost: the server does not have the position any more
        :raises SourceUnavailable: the connection was lost
        :raises SourceLogDamaged: an event cannot be read
        :raises UnknownLogEvent: an event that may carry data is not known
        """
        while True:
            try:
                yield from self._pass()
                return
            except ReadAgain:
                yield Rollback()
                self._cursor.read_again()

    def _pass(self) -> Iterator[LogItem]:
        """Read from the cursor's position to the end of the stream."""
        cursor, follow = self._cursor, self._cursor.until is None and not self._single
        patience = self._patience if follow else None
        with BinlogConnection(
            self._config, self._server, cursor.position, follow=follow, unregistered=self._single, patience=patience
        ) as connection:
            cursor.start_after(connection.gtids)
            for events in self._received(connection):
                if events is None:
                    if cursor.open.id is None:
                        yield Heartbeat(cursor.position)
                    continue
                keep = None
                for part in self._decompressed(events):
                    keep = yield from self._dispatcher.dispatch(part)
                    if cursor.reached:
                        return
                connection.keep_from(keep)
        cursor.end_log()
        yield Heartbeat(cursor.position)

    def _received(self, connection: BinlogConnection) -> Iterator[Events | None]:
        try:
            yield from connection.events()
        except SourceUnavailable:
            self._metrics.disconnected()
            raise

    def _decompressed(self, events: Events) -> Iterator[Events]:
        try:
            yield from decompress(events)
        except (ValueError, zlib.error) as e:
            raise SourceLogDamaged(
                f"A compressed event of the binary log cannot be read: {e}.",
                where=str(self.position),
                safe="Everything before it is captured.",
                remedy="run the capture again; if the error stays, read the tables again with snapshot.mode=always for one run",
            ) from e

    def _prepared_rows(self, begin: dict[str, Any]) -> Iterator[LogBlock]:
        """The rows of a prepared XA transaction.

        :param begin: file and offset at which the transaction begins, as ``MySqlPosition.prepared`` has it
        """
        start = MySqlPosition(str(begin["file"]), int(str(begin["pos"])), server=self._server.identity)
        stream = BinlogStream(self._config, self._server, start, None, self._tables, self._catalog, single=True)
        for item in stream.items():
            if isinstance(item, LogBlock):
                yield item
                if not item.open:
                    return
        raise SourceLogDamaged(
            "The rows of a prepared XA transaction end with the log.",
            where=str(start),
            safe="Everything before its XA COMMIT is captured.",
            remedy="run the capture again; if the error stays, read the tables again with snapshot.mode=always for one run",
        )
