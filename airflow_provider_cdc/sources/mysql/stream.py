"""Reading the binary log: from events to log items.

Row events go through the kernels, a buffer full at a time (``assemble.py``). What is left for plain Python is everything that
is not a row: files, statements, new table maps, compressed transactions, XA. An event that may carry data and is not known is
an error; nothing is passed over because it is not understood.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

from airflow_provider_cdc.core.errors import SourceLogDamaged, SourceUnavailable
from airflow_provider_cdc.core.events import (
    Heartbeat,
    LogBlock,
    LogItem,
    Rollback,
)
from airflow_provider_cdc.core.schema import TableId, TableSchema
from airflow_provider_cdc.core.source import Tables
from airflow_provider_cdc.sources.mysql.charsets import CODECS
from airflow_provider_cdc.sources.mysql.columns import Scratch
from airflow_provider_cdc.sources.mysql.config import MySqlConfig
from airflow_provider_cdc.sources.mysql.connect import Server
from airflow_provider_cdc.sources.mysql.event_set import Open
from airflow_provider_cdc.sources.mysql.expand import expand
from airflow_provider_cdc.sources.mysql.frames import ReadAgain
from airflow_provider_cdc.sources.mysql.gtid import Gtids, MariaDbGtids, MySqlGtids, parse_gtids
from airflow_provider_cdc.sources.mysql.gtid_sources import GtidSources
from airflow_provider_cdc.sources.mysql.metrics import LogMetrics
from airflow_provider_cdc.sources.mysql.position import MySqlPosition
from airflow_provider_cdc.sources.mysql.schema import SchemaReader
from airflow_provider_cdc.sources.mysql.tables import TableMaps
from airflow_provider_cdc.sources.mysql.taking import Taking
from airflow_provider_cdc.sources.mysql.wire import BinlogConnection, Events


class BinlogStream:
    """One pass over the log. Use :meth:`items` once.

    :param until: where to end; ``None`` = never
    :param catalogue: reads a table's present structure
    :param database_charset: reads a database's default character set
    :param charsets: collation number → character set
    :param patience: see :meth:`airflow_provider_cdc.core.source.Source.stream`
    :param metrics: what it does is added to them
    :param prepared: read one XA transaction that was prepared, as if it had been committed
    :ivar position: after the last complete transaction
    :ivar sources: rows of other ones are left out; ``None`` = of no source
    """

    def __init__(
        self,
        config: MySqlConfig,
        server: Server,
        start: MySqlPosition,
        until: MySqlPosition | None,
        tables: Tables,
        catalogue: Callable[[TableId], TableSchema | None],
        database_charset: Callable[[str], str | None],
        charsets: Mapping[int, str],
        *,
        patience: Callable[[], float] | None = None,
        prepared: bool = False,
        metrics: LogMetrics | None = None,
    ) -> None:
        self.config, self.server, self.until, self.tables = config, server, until, tables
        self.single = self.commits_prepared = prepared
        self.metrics = metrics or LogMetrics()
        self._patience = patience or (lambda: config.poll_interval_ms / 1000)
        self.maps = TableMaps(config, tables, catalogue, charsets, mariadb=server.mariadb)
        self.reader = SchemaReader(
            config, tables, catalogue, database_charset, shows_lengths=server.mariadb or server.number < (8, 0, 19)
        )
        self._charsets = charsets
        self._again = (catalogue, database_charset, charsets)
        self.scratch = Scratch()
        sources = GtidSources.of(config)
        self.sources = None if sources.all or not config.gtid_source_filter_dml_events else sources
        self.void: list[tuple[int, int]] = []
        self._stand_at(start)

    def _stand_at(self, start: MySqlPosition) -> None:
        self.position = start
        self.file, self.created, self.last_end = start.file, start.created, start.pos
        empty: Gtids = MariaDbGtids() if self.server.mariadb else MySqlGtids()
        self.gtids = parse_gtids(start.gtids) if start.gtids else empty
        self.open = Open()

    def codec(self, collation: int) -> str:
        """Python codec of a collation number's character set; of a set without one the ASCII part is read."""
        charset = self._charsets.get(collation, "utf8mb4")
        return "utf-8" if charset == "binary" else CODECS.get(charset, "ascii")

    def items(self) -> Iterator[LogItem]:
        """See :meth:`airflow_provider_cdc.core.source.Source.stream`."""
        while True:
            try:
                yield from self._pass()
                return
            except ReadAgain:
                yield Rollback()
                self._stand_at(self.position)

    def _pass(self) -> Iterator[LogItem]:
        """Read from the present position to the end."""
        follow = self.until is None and not self.single
        patience = self._patience if follow else None
        with BinlogConnection(
            self.config, self.server, self.position, follow=follow, looks=self.single, patience=patience
        ) as connection:
            self.connection = connection
            if connection.gtids != self.position.gtids:
                self.gtids = parse_gtids(connection.gtids)
                self.position = replace(self.position, gtids=connection.gtids)
            for events in self._received(connection):
                if events is None:
                    if self.open.id is None:
                        yield Heartbeat(self.position)
                    continue
                for part in self._expanded(events):
                    yield from Taking(self, part).items()
                    if self.reached():
                        return
        # the server has come to the end of its log, which is not before ``until``
        if self.until is not None and self.until.same_log(self.position) and not self.position.reached(self.until):
            self.position = replace(self.position, file=self.until.file, pos=self.until.pos)
        yield Heartbeat(self.position)

    def _received(self, connection: BinlogConnection) -> Iterator[Events | None]:
        try:
            yield from connection.events()
        except SourceUnavailable:
            self.metrics.disconnects += 1
            raise

    def _expanded(self, events: Events) -> Iterator[Events]:
        try:
            yield from expand(events)
        except (ValueError, zlib.error) as e:
            raise SourceLogDamaged(
                f"A compressed event of the binary log cannot be read: {e}.",
                where=str(self.position),
                safe="Everything before it is captured.",
                remedy="run the capture again; if the error stays, read the tables again with snapshot.mode=always for one run",
            ) from e

    def read_prepared(self, place: dict[str, object]) -> Iterator[LogBlock]:
        """The rows of a prepared XA transaction, from where it stands in the log."""
        start = MySqlPosition(str(place["file"]), int(str(place["pos"])), server=self.server.identity)
        stream = BinlogStream(self.config, self.server, start, None, self.tables, *self._again, prepared=True)
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

    def reached(self) -> bool:
        return self.until is not None and self.open.id is None and self.position.reached(self.until)
