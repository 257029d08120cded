"""The :class:`~airflow_provider_cdc.core.spi.source.Source` of MySQL and MariaDB."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

import pymysql
from pymysql.connections import Connection

from airflow_provider_cdc.core.config.connector_config import ConnectorConfig
from airflow_provider_cdc.core.errors import AccessDenied, ConfigError, PositionLost, SourceUnavailable
from airflow_provider_cdc.core.model.log_headroom import LogRetention, LogWindow
from airflow_provider_cdc.core.model.position import Position
from airflow_provider_cdc.core.model.run_metrics import Value
from airflow_provider_cdc.core.model.table_schema import TableChange, TableId, TableSchema
from airflow_provider_cdc.core.model.transient_key_duplicates import KeysOverlap
from airflow_provider_cdc.core.spi.chunk_reader import ChunkReader
from airflow_provider_cdc.core.spi.remote_readers import RowReader, ViewMeeting, ViewSharing
from airflow_provider_cdc.core.spi.source import (
    VARIED,
    CapturedTableSchemas,
    Finding,
    SnapshotSession,
    Source,
    any_table,
)
from airflow_provider_cdc.sources.mysql import kernels as k
from airflow_provider_cdc.sources.mysql.checks import check_prerequisites
from airflow_provider_cdc.sources.mysql.config import MySqlConfig
from airflow_provider_cdc.sources.mysql.connect import MySqlServer, connect, raise_cdc_errors, server_of
from airflow_provider_cdc.sources.mysql.dump_errors import position_lost
from airflow_provider_cdc.sources.mysql.gtid_sets import MariaDbGtids
from airflow_provider_cdc.sources.mysql.log.events import event_types as ev
from airflow_provider_cdc.sources.mysql.log.events.event_body_parsers import parse_mariadb_gtid
from airflow_provider_cdc.sources.mysql.log.gtid_continuity_check import verify_beginnings, verify_gtids
from airflow_provider_cdc.sources.mysql.log.gtid_source_filter import GtidSourceFilter
from airflow_provider_cdc.sources.mysql.log.log_end import log_end, log_files
from airflow_provider_cdc.sources.mysql.log.log_identity import LogIdentityCheck
from airflow_provider_cdc.sources.mysql.log_retention import read_log_retention, suggest_longer_retention
from airflow_provider_cdc.sources.mysql.metrics import LogMetrics
from airflow_provider_cdc.sources.mysql.position import MySqlPosition
from airflow_provider_cdc.sources.mysql.schema.catalog_reader import MySqlCatalog
from airflow_provider_cdc.sources.mysql.schema.table_name_resolver import lower_case_of, lower_name
from airflow_provider_cdc.sources.mysql.snapshot.select_overrides import override_findings

if TYPE_CHECKING:
    import pyarrow as pa

    from airflow_provider_cdc.core.model.log_items import LogItem
    from airflow_provider_cdc.sources.mysql.log.binlog_connection import BinlogConnection

# the decoder is imported when it is needed, as a run that finds nothing needs none of it

_T = TypeVar("_T")
_OWN_READERS = 4
"""Readers of a session whose view others share, at most: they read tables without transactions alone."""
_WARN_AT = 0.5
"""Part of the log's retention time; a position that is older is warned of."""
log = logging.getLogger(__name__)


class MySqlSource(Source):
    """MySQL 8.0.1 and newer, 9 included; :class:`MariaDbSource` is the same for MariaDB."""

    KEYS_OVERLAP: ClassVar[KeysOverlap] = KeysOverlap.NAMED_KEYS
    Config: ClassVar[type[ConnectorConfig]] = MySqlConfig
    VIEW_SHARING: ClassVar[ViewSharing] = ViewSharing.MEETING
    POSITION_SIGNAL: ClassVar[str | None] = "set-binlog-position"
    connector = "mysql"

    def __init__(self, config: MySqlConfig) -> None:
        self._config = config
        self._connection: Connection | None = None
        self._server: MySqlServer | None = None
        self._metrics = LogMetrics()
        self._snapshot_source: MySqlSource | None = None

    # -- questions ----------------------------------------------------------------------------------------------------

    def check_prerequisites(self) -> list[Finding]:
        named = self._config.signal_data_collection
        try:
            signals = None if named is None else self.signal_table(named)
            wrong = []
        except ConfigError as e:
            signals, wrong = None, [Finding(e.message, "write it as <database>.<table>", fatal=False)]
        with raise_cdc_errors(self._config):
            findings = [*check_prerequisites(self._connected(), self.server_info, self._config, signals), *wrong]
        if (replica := self._replica) is not None:
            findings += self._check_replica(replica)
        return findings + override_findings(
            self._config, lambda tables: self._ask_catalog(lambda c: c.read_tables(tables))
        )

    def discover_tables(self, needed: Callable[[TableId], bool] = any_table) -> dict[TableId, TableSchema]:
        return self._ask_catalog(lambda c: c.read_tables(needed=needed))

    def current_position(self) -> MySqlPosition:
        with raise_cdc_errors(self._config):
            connection = connect(self._config)
            try:
                return log_end(connection, server_of(connection))
            finally:
                connection.close()

    def oldest_position(self) -> MySqlPosition:
        with raise_cdc_errors(self._config), self._connected().cursor() as cursor:
            cursor.execute("SHOW BINARY LOGS")
            files = cursor.fetchall()
        file = str(files[0][0])
        return MySqlPosition(file, 4, created=self._file_created(file), server=self.server_info.identity, moved=True)

    def may_have_changed(self, position: Position, end: Position) -> bool:
        if not position.has_reached(end):
            return True
        # a log that ends before the position is another one; of excluded sources, a server need not have all transactions
        return GtidSourceFilter.from_config(self._config).includes_all and not end.has_reached(position)

    def verify_position(self, position: Position) -> None:
        assert isinstance(position, MySqlPosition)
        by_gtids, identity = bool(position.gtids) and self.server_info.has_gtids, self._identity
        with raise_cdc_errors(self._config, str(position)):
            files = log_files(self._connected())
            another = identity.why_not_same(position, files)
            if another and not by_gtids:
                raise position_lost(another, str(position))
            if by_gtids:
                self._verify_gtids(position)
                if another:
                    identity.verify_last_transaction(position)
        if not another:
            self._warn_of_expiry(position, [*files])
        # the rest only the server can check: request its log at the position
        self._probe(position)

    def log_window(self, position: Position) -> LogWindow:
        """By the sizes of the files, and how long the server keeps each after the next one was begun. Of files that another server has, nothing is known."""
        assert isinstance(position, MySqlPosition)
        with raise_cdc_errors(self._config, str(position)):
            connection = connect(self._config)
            try:
                files, kept, end = (
                    log_files(connection),
                    read_log_retention(connection),
                    log_end(connection, self.server_info),
                )
            finally:
                connection.close()
        kept_s = None if kept is None else kept.seconds
        if position.gtids and position.has_reached(end) and not position.prepared:
            # the files that were begun since have nothing in them
            return LogWindow(0, None if kept_s is None else int(time.time()) + kept_s)
        if self._identity.why_not_same(position, files):
            return LogWindow()
        names = [*files]
        at = names.index(position.file)
        behind = files[position.file] - position.pos + sum(files[name] for name in names[at + 1 :])
        # a prepared XA transaction is read again from where it begins
        begins = [
            str(transaction["file"])
            for transaction in position.prepared.values()
            if transaction.get("server") == position.server
        ]
        first = min([at, *(names.index(name) if name in files else 0 for name in begins)])
        if kept_s is None:
            return LogWindow(max(behind, 0))
        closed = self._file_created(names[first + 1]) if first + 1 < len(names) else int(time.time())
        return LogWindow(max(behind, 0), closed + kept_s if closed else None)

    def find_log_retention(self) -> LogRetention | None:
        with raise_cdc_errors(self._config):
            return read_log_retention(self._connected())

    def _log_from(self, position: MySqlPosition) -> BinlogConnection:
        """Open the raw log from a position on, beside a stream."""
        from airflow_provider_cdc.sources.mysql.log.binlog_connection import BinlogConnection

        return BinlogConnection(self._config, self.server_info, position, unregistered=True)

    def _verify_gtids(self, position: MySqlPosition) -> None:
        sources, connection = GtidSourceFilter.from_config(self._config), self._connected()
        with raise_cdc_errors(self._config, str(position)):
            verify_gtids(connection, self.server_info, position, sources, self._config.database_hostname)
            if self.server_info.mariadb:
                verify_beginnings(connection, position, sources, self._first_of)

    def _warn_of_expiry(self, position: MySqlPosition, files: list[str]) -> None:
        """Warn if the position's log file may soon be purged."""
        kept = read_log_retention(self._connected())
        rest = files[files.index(position.file) + 1 :]
        if (
            kept is None
            or not kept.seconds
            or not rest
            or (position.gtids and position.has_reached(self.current_position()))
        ):
            return
        age = time.time() - self._file_created(rest[0])
        if age > kept.seconds * _WARN_AT:
            log.warning(
                "The connector's position %s is in a log file that was completed %.1f h ago, and the server keeps files for %.1f h only: "
                "changes that are not captured by then are lost. Capture more often, or keep the log longer: "
                "%s",
                position, age / 3600, kept.seconds / 3600, suggest_longer_retention(kept, kept.seconds * 2),
            )  # fmt: skip

    def _probe(self, position: MySqlPosition) -> None:
        """Request the log at a position; the server's first packet is an error if it does not have it."""
        with self._log_from(position) as connection:
            next(connection.event_headers(), None)

    def _first_of(self, domain: int, others: str) -> MariaDbGtids:
        """Return the first transaction of a replication domain in MariaDB's log."""
        start = MySqlPosition("", 4, others, server=self.server_info.identity)
        with self._log_from(start) as connection:
            for event in connection.raw_events():
                if event[4] != ev.MARIADB_GTID:
                    continue
                gtid = parse_mariadb_gtid(event[k.HEADER :].tobytes())
                if gtid.domain == domain:
                    return MariaDbGtids({domain: (int.from_bytes(event[5:9].tobytes(), "little"), gtid.sequence)})
        return MariaDbGtids()

    def parse_position(self, document: dict[str, Any]) -> MySqlPosition:
        return MySqlPosition.from_json(document)

    def position_of(self, data: Mapping[str, Any]) -> Position:
        from airflow_provider_cdc.sources.mysql.log.position_signal import build_position_error, position_of

        with raise_cdc_errors(self._config, str(dict(data))):
            named = position_of(data, self._config, self.server_info, self._connected())
        if named is None:
            written = super().position_of(data)
            assert isinstance(written, MySqlPosition)
            return replace(written, moved=True)
        try:
            self.verify_position(named)
        except PositionLost as e:
            raise build_position_error(e) from e
        return replace(named, moved=True)

    def table_of(self, document: Mapping[str, Any], database: str, schema: str | None) -> TableChange:
        from airflow_provider_cdc.sources.mysql.schema.schema_signal import table_of

        return table_of(document, database, self._config)

    def signal_table(self, text: str) -> TableId:
        named = super().signal_table(text)
        lower = TableId(namespace=lower_name(named.namespace), name=lower_name(named.name))
        return lower if lower != named and lower_case_of(self.server_info) == 1 else named

    # -- rows ---------------------------------------------------------------------------------------------------------

    def open_snapshot(
        self, tables: Sequence[TableId], *, readers: int, selects: Mapping[TableId, str] = MappingProxyType({})
    ) -> SnapshotSession:
        from airflow_provider_cdc.sources.mysql.snapshot.snapshot_session import MySqlSnapshot

        if (replica := self._replica) is not None:
            return self._open_on_replica(
                replica, lambda: replica.open_snapshot(tables, readers=readers, selects=selects)
            )
        return MySqlSnapshot(self._config, tables, readers, self._file_created, selects, self._metrics)

    def open_shared_snapshot(
        self,
        tables: Sequence[TableId],
        meeting: ViewMeeting,
        *,
        selects: Mapping[TableId, str] = MappingProxyType({}),
    ) -> SnapshotSession:
        from airflow_provider_cdc.sources.mysql.snapshot.snapshot_session import MySqlSnapshot

        if (replica := self._replica) is not None:
            return self._open_on_replica(
                replica, lambda: replica.open_shared_snapshot(tables, meeting, selects=selects)
            )
        readers = min(self._config.snapshot_max_threads, _OWN_READERS)
        return MySqlSnapshot(self._config, tables, readers, self._file_created, selects, self._metrics, meeting)

    def open_row_reader(self) -> RowReader:
        from airflow_provider_cdc.sources.mysql.snapshot.row_reader import MySqlRowReader

        return MySqlRowReader(self._config.on_replica or self._config)

    @property
    def _replica(self) -> MySqlSource | None:
        """The replica that snapshots are read from; ``None`` = the primary."""
        if self._snapshot_source is None and (config := self._config.on_replica) is not None:
            self._snapshot_source = type(self)(config)
            self._snapshot_source._metrics = self._metrics
        return self._snapshot_source

    def _open_on_replica(self, replica: MySqlSource, open_session: Callable[[], SnapshotSession]) -> SnapshotSession:
        """Open a snapshot of a replica that shows the rows of the primary.

        :raises PrerequisiteError: it does not show them
        :raises SourceBusy: it is too far behind
        """
        from airflow_provider_cdc.sources.mysql.snapshot import replica_snapshots

        address = replica._config.database_hostname
        replica_snapshots.refuse_unsuitable_replica(replica.check_as_replica_of(self.server_info), address)
        with raise_cdc_errors(replica._config):
            replica_snapshots.wait_for_replica(
                replica._connected(), replica.server_info, self.current_position(), address
            )
        session = open_session()
        try:
            assert isinstance(session.position, MySqlPosition)
            with raise_cdc_errors(self._config):
                replica_snapshots.refuse_own_transactions(
                    self._connected(), self.server_info, session.position, address
                )
        except BaseException:
            session.close()
            raise
        log.info("The snapshot is read from the replica %s, at %s.", address, session.position)
        return session

    def _check_replica(self, replica: MySqlSource) -> list[Finding]:
        """Return warnings about the replica: a run that takes no snapshot does not need it."""
        try:
            findings = replica.check_as_replica_of(self.server_info)
        except (SourceUnavailable, AccessDenied) as e:
            return [
                Finding(f"The replica of snapshot.hostname cannot be read: {e.message}", e.remedy or "", fatal=False)
            ]
        return [replace(finding, fatal=False) for finding in findings]

    def check_as_replica_of(self, primary: MySqlServer) -> list[Finding]:
        """Return findings about this server as the replica that snapshots are read from."""
        from airflow_provider_cdc.sources.mysql.snapshot.replica_snapshots import check_replica

        with raise_cdc_errors(self._config):
            return check_replica(self._connected(), self.server_info, primary)

    def open_chunk_reader(self, *, signals: TableId | None) -> ChunkReader:
        from airflow_provider_cdc.sources.mysql.snapshot.chunk_reader import open_chunk_reader

        return open_chunk_reader(self._config, self.server_info, signals)

    def stream_log(
        self,
        start: Position,
        tables: CapturedTableSchemas,
        *,
        until: Position | None,
        patience: Callable[[], float] | None = None,
    ) -> Iterator[LogItem]:
        from airflow_provider_cdc.sources.mysql.log.binlog_item_stream import BinlogStream
        from airflow_provider_cdc.sources.mysql.schema.live_catalog import LiveCatalog

        assert isinstance(start, MySqlPosition)
        assert until is None or isinstance(until, MySqlPosition)
        stream = BinlogStream(
            self._config, self.server_info, start, until, tables, LiveCatalog(self._ask_catalog, any_case=lower_case_of(self.server_info) == 2),
            patience=patience, metrics=self._metrics,
        )  # fmt: skip
        self._metrics.read_up_to(start)
        for item in stream.read_items():
            self._metrics.read_up_to(stream.last_position)
            yield item
        self._metrics.read_up_to(stream.last_position)

    def execute_statement(self, statement: str) -> None:
        with raise_cdc_errors(self._config, statement):
            connection = connect(self._config)
            try:
                with connection.cursor() as cursor:
                    cursor.execute(statement)
                connection.commit()
            finally:
                connection.close()

    def collect_stream_metrics(self) -> Mapping[str, Value]:
        return self._metrics.build_metrics(gtids=self._server is not None and self._server.has_gtids)

    @property
    def source_fields(self) -> list[pa.Field]:
        import pyarrow as pa

        return [
            pa.field("server_id", pa.int64(), nullable=False),
            pa.field("gtid", pa.string()),
            pa.field("file", pa.string(), nullable=False),
            pa.field("pos", pa.int64(), nullable=False),
            pa.field("row", pa.int32(), nullable=False),
            pa.field("thread", pa.int64()),
            pa.field("query", pa.string(), metadata=VARIED),
        ]

    # -- connections --------------------------------------------------------------------------------------------------

    @property
    def server_info(self) -> MySqlServer:
        """Version, identity and variables of the server, asked once.

        :raises ConfigError: it is MariaDB where the connector's source is MySQL, or the other way round
        """
        if self._server is None:
            self._server = server_of(self._connected())
            product = "MariaDB" if self.connector == "mariadb" else "MySQL"
            if self._server.mariadb != (self.connector == "mariadb"):
                raise ConfigError(
                    f"The server is {self._server.version}, but the source of the connector is {self.connector}.",
                    remedy=f"use the source {'mysql' if product == 'MariaDB' else 'mariadb'}, or connect to a {product} server",
                )
        return self._server

    def close(self) -> None:
        if self._snapshot_source is not None:
            self._snapshot_source.close()
        if self._connection is not None:
            self._connection._force_close()
            self._connection = None

    def _connected(self) -> Connection:
        if self._connection is None or not self._connection.open:
            self._connection = connect(self._config)
        return self._connection

    def _ask_catalog(self, question: Callable[[MySqlCatalog], _T]) -> _T:
        """Ask the catalog. The server may have closed an idle connection, so a second attempt uses a new one."""
        mariadb = self.server_info.mariadb
        try:
            return question(MySqlCatalog(self._connected(), self._config, mariadb=mariadb))
        except pymysql.err.OperationalError:
            self._metrics.count_disconnect()
            self.close()
            with raise_cdc_errors(self._config):
                return question(MySqlCatalog(self._connected(), self._config, mariadb=mariadb))

    @property
    def _identity(self) -> LogIdentityCheck:
        return LogIdentityCheck(self._connected(), self.server_info, self._log_from)

    def _file_created(self, file: str) -> int:
        return self._identity.read_creation_time(file)


class MariaDbSource(MySqlSource):
    """MariaDB 10.5 and newer."""

    connector = "mariadb"
