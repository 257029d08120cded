"""The replication connection: requests a binlog dump.

PyMySQL connects and authenticates; a
:class:`~airflow_provider_cdc.sources.mysql.log.event_reader.BinlogEventReader` then reads the server's packets from the socket.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Callable

from airflow_provider_cdc.core.errors import SourceUnavailable, UnknownLogEvent
from airflow_provider_cdc.sources.mysql.config import MySqlConfig
from airflow_provider_cdc.sources.mysql.connect import MySqlServer, connect, raise_cdc_errors
from airflow_provider_cdc.sources.mysql.gtid_sets import MySqlGtids
from airflow_provider_cdc.sources.mysql.log.event_reader import BinlogEventReader
from airflow_provider_cdc.sources.mysql.log.gtid_continuity_check import dump_gtids, executed_without_log
from airflow_provider_cdc.sources.mysql.log.gtid_source_filter import GtidSourceFilter
from airflow_provider_cdc.sources.mysql.log.log_end import log_files
from airflow_provider_cdc.sources.mysql.position import MySqlPosition, file_number

BUFFER = 4 << 20
_COM_REGISTER_SLAVE, _COM_BINLOG_DUMP, _COM_BINLOG_DUMP_GTID = 0x15, 0x12, 0x1E
_NON_BLOCK, _SEND_ANNOTATE, _THROUGH_GTID = 0x01, 0x02, 0x04
_LEAST_BEAT_S = 1.0
"""Shortest heartbeat period. While MySQL skips transactions that the reader has, it counts in whole seconds: with a shorter period it
would send a heartbeat for each of them."""
_QUIET_BEATS = 10
"""After this many missed heartbeats the connection counts as lost."""
_FARTHEST = 0xFFFF_FFFF
"""The last offset that can be requested without GTIDs."""
_CLOSING = 100
"""Bytes up to which the rest of a file can only be the event that names the next one: a transaction takes more."""
_NO_REPLICA = 0
"""Server id of a reader that does not register as a replica. A server ends the older of two dumps with the same id, except with id 0."""


class BinlogConnection(BinlogEventReader):
    """A dump of the binary log from one position on. A context manager.

    Only the stream of a run registers as a replica, with ``database.server.id``; the server then ends an older dump with that id. All
    other readers (``unregistered``) use server id 0, which ends no other dump.

    :param follow: wait for new events for ever; otherwise the server ends the stream at the end of the log
    :param unregistered: read the log without registering as a replica; not together with ``follow``
    :param patience: see :class:`BinlogEventReader`
    :ivar gtids: the GTIDs that the reader has reported to the server as its own: those of ``start``, and those of excluded sources
    :ivar without_log: the GTIDs that its log does not have, where ``start`` has none, see :func:`.gtid_continuity_check.executed_without_log`
    :raises AccessDenied: user, password or privileges are wrong
    :raises PositionLost: the server does not have the position any more
    :raises SourceUnavailable: no server answers
    """

    def __init__(
        self,
        config: MySqlConfig,
        server: MySqlServer,
        start: MySqlPosition,
        *,
        follow: bool = False,
        unregistered: bool = False,
        patience: Callable[[], float] | None = None,
    ) -> None:
        assert not (unregistered and follow), (
            "at the end of the log, the server closes a connection that is not a replica"
        )
        self._config, self._server, self._start, self._follow = config, server, start, follow
        self._replica = _NO_REPLICA if unregistered else config.database_server_id
        self._beat_s = max(config.poll_interval_ms / 1000, _LEAST_BEAT_S)
        self._connection = connect(config, initial=False)
        try:
            sock: socket.socket = self._connection._sock
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 << 20)
            with raise_cdc_errors(config, str(start)):
                self._ask()
            super().__init__(
                sock, config, start, buffer=BUFFER, patience=patience,
                checksums=server.variables.get("binlog_checksum", "NONE").upper() != "NONE",
                silence_s=self._beat_s * _QUIET_BEATS if follow else 60 + self._beat_s,
            )  # fmt: skip
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        self._connection._force_close()

    def __enter__(self) -> BinlogConnection:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _ask(self) -> None:
        with self._connection.cursor() as cursor:
            cursor.execute(
                "SET @master_binlog_checksum = @@global.binlog_checksum, @source_binlog_checksum = @@global.binlog_checksum"
            )
            cursor.execute(
                f"SET @master_heartbeat_period = {int(self._beat_s * 1e9)}, @source_heartbeat_period = {int(self._beat_s * 1e9)}"
            )
            for name in ("read", "write"):
                if seconds := getattr(self._config, f"binlog_net_{name}_timeout"):
                    cursor.execute(f"SET net_{name}_timeout = {seconds}")
            self.gtids = dump_gtids(
                self._connection, self._server, self._start, GtidSourceFilter.from_config(self._config)
            )
            self.without_log = MySqlGtids()
            if self._server.has_gtids and not self._start.gtids:
                self.without_log = executed_without_log(self._connection, self._server)
            if self._server.mariadb:
                cursor.execute("SET @mariadb_slave_capability = 4")
                if self.gtids:
                    cursor.execute("SET @slave_connect_state = %s", (self.gtids,))
                    # gtid_continuity_check.py has found logs that begin too late; strict mode would also refuse one that begins right after it
                    cursor.execute("SET @slave_gtid_strict_mode = 0, @slave_gtid_ignore_duplicates = 0")
        if self._replica != _NO_REPLICA:
            self._register()
        self._send(self._dump_request())

    def _register(self) -> None:
        """Register as a replica, so that administrators see this reader in ``SHOW REPLICAS``."""
        host = b"airflow_provider_cdc"
        body = struct.pack("<BIB", _COM_REGISTER_SLAVE, self._replica, len(host)) + host
        self._send(body + struct.pack("<BBHII", 0, 0, 0, 0, 0))
        self._connection._next_seq_id = 1
        self._connection._read_packet()

    def _dump_request(self) -> bytes:
        flags = 0 if self._follow else _NON_BLOCK
        # where an event does not say at which offset it ends, all events before it have to be there
        if self._server.mariadb and (self._config.include_query or self._server.version_tuple >= (11, 4, 0)):
            flags |= _SEND_ANNOTATE
        if self.gtids and self._server.has_gtids and not self._server.mariadb:
            encoded = MySqlGtids.parse(self.gtids).encode()
            head = struct.pack(
                "<BHIIQI", _COM_BINLOG_DUMP_GTID, flags | _THROUGH_GTID, self._replica, 0, 4, len(encoded)
            )
            return head + encoded
        by_gtid = self._server.mariadb and self.gtids
        name, pos = (b"", 4) if by_gtid else (self._start.file.encode(), self._start.pos)
        if pos > _FARTHEST:
            name, pos = self._next_file().encode(), 4
        return struct.pack("<BIHI", _COM_BINLOG_DUMP, pos, flags, self._replica) + name

    def _next_file(self) -> str:
        """Find the file after the position, where nothing is left in that of the position itself: a request has 32 bits for an offset.

        A transaction is never divided among files. After one that ends beyond 4 GiB, the server begins the next file.
        """
        files = log_files(self._connection)
        later = [name for name in files if file_number(name) > file_number(self._start.file)]
        if files.get(self._start.file, self._start.pos) - self._start.pos > _CLOSING:
            raise UnknownLogEvent(
                "The position is beyond 4 GiB in its file, and more events follow: without GTIDs, the "
                "replication protocol cannot address it.",
                where=str(self._start),
                safe="Everything before it is captured.",
                remedy="enable GTIDs on the source, or set snapshot.mode=when_needed after the file is purged",
            )
        if not later:
            raise SourceUnavailable(
                "The position is beyond 4 GiB in the newest file of the log, which the replication protocol "
                "cannot address without GTIDs.",
                where=str(self._start),
                safe="Everything before it is captured.",
                remedy="a retry continues with the next file, which the server starts after such a transaction; "
                "FLUSH BINARY LOGS also starts it",
            )
        return later[0]

    def _send(self, body: bytes) -> None:
        self._connection._sock.sendall(struct.pack("<I", len(body))[:3] + b"\0" + body)
