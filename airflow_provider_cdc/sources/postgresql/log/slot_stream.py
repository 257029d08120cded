"""The stream of the slot: from messages of pgoutput to log items.

Kernels find rows and transactions; all other messages are read here in plain Python. Whole transactions are delivered together. One that is larger
than a block comes in parts.
"""

from __future__ import annotations

import contextlib
import struct
import time
from collections.abc import Callable, Iterator
from typing import Final

import numpy as np

from airflow_provider_cdc.core.errors import SourceLogDamaged, UnknownLogEvent
from airflow_provider_cdc.core.model.log_items import (
    BlockTransactions,
    Heartbeat,
    LeftOutRows,
    LogBlock,
    LogItem,
    Rollback,
    RowBlock,
    Truncate,
)
from airflow_provider_cdc.core.spi.source import CapturedTableSchemas
from airflow_provider_cdc.sources.postgresql.config import PostgresConfig
from airflow_provider_cdc.sources.postgresql.connect import PostgresServer, translate_error
from airflow_provider_cdc.sources.postgresql.kernels import message_layout as layout
from airflow_provider_cdc.sources.postgresql.log.log_metrics import LogMetrics
from airflow_provider_cdc.sources.postgresql.log.message_buffer import MessageBuffer, Segment
from airflow_provider_cdc.sources.postgresql.log.relation_tables import RelationTables, StreamCatalog
from airflow_provider_cdc.sources.postgresql.log.row_decoder import EPOCH_US, TransactionColumns
from airflow_provider_cdc.sources.postgresql.log.slot_connection import SlotConnector
from airflow_provider_cdc.sources.postgresql.log.source_fields import build_source
from airflow_provider_cdc.sources.postgresql.position import PostgresPosition, format_lsn
from airflow_provider_cdc.sources.postgresql.protocol.relation_messages import Relation
from airflow_provider_cdc.sources.postgresql.protocol.replication_connection import MessageBlock, ReplicationConnection
from airflow_provider_cdc.sources.postgresql.protocol.server_messages import ReplicationError

PATIENCE_S: Final = 10.0
"""Longest time for which a stream connects again without reading anything new."""
_FIRST_PAUSE_S: Final = 0.05
_LONGEST_PAUSE_S: Final = 1.0
BLOCK_BYTES: Final = 8 << 20
"""Bytes of messages that make a block; a larger transaction comes in parts."""
_END_CHECK_S: Final = 0.05
_ASK_S: Final = 0.5
_SKIPPED: Final = "OYM"
"""Origins of transactions, names of types, logical decoding messages."""


class SlotStream:
    """Reads the slot, from ``start`` on. Iterate :meth:`read_items` once.

    :param start: position of the offset, which is durable
    :param until: position at which to end; ``None`` = continue until the caller stops
    :param patience: seconds to wait for changes before a heartbeat is given
    :param metrics: the counters to add to
    """

    def __init__(
        self,
        config: PostgresConfig,
        server: PostgresServer,
        start: PostgresPosition,
        until: PostgresPosition | None,
        tables: CapturedTableSchemas,
        *,
        patience: Callable[[], float] | None = None,
        metrics: LogMetrics | None = None,
        block_bytes: int = BLOCK_BYTES,
    ) -> None:
        self._config, self._server, self._tables = config, server, tables
        self._until = None if until is None else until.lsn
        self._patience = patience or (lambda: config.poll_interval_ms / 1000)
        self._metrics = metrics or LogMetrics()
        self._block_bytes = block_bytes
        self._position = self._place(start.lsn)
        self._confirmed, self._previous_end = start.lsn, start.lsn
        self._connector = SlotConnector(config, server)
        self._catalog = StreamCatalog(config)
        self._relations = RelationTables(config, tables, self._catalog)
        self._buffer = MessageBuffer()
        self._connection: ReplicationConnection | None = None
        self._asked_at = 0.0

    @property
    def last_position(self) -> PostgresPosition:
        """The position behind the last complete transaction that was delivered."""
        return self._position

    def confirm_position(self, position: PostgresPosition) -> None:
        """Report that everything up to a position is durable, so that the server may remove its log up to there."""
        self._confirmed = max(self._confirmed, position.lsn)
        self._metrics.confirm_up_to(self._confirmed)
        if self._connection is not None:
            with contextlib.suppress(OSError):  # the next connection reports it
                self._connection.confirm(self._confirmed)

    def close(self) -> None:
        """Close the connections. It may be called twice."""
        self._disconnect()
        self._catalog.close()

    def read_items(self) -> Iterator[LogItem]:
        """Yield the log items, in log order; see :meth:`airflow_provider_cdc.core.spi.source.Source.stream_log`.

        The connection stays open behind the end, so that :meth:`confirm_position` can use it.

        :raises PositionLost: the slot does not have the position any more
        :raises SourceUnavailable: the connection was lost, and could not be opened again
        :raises SourceLogDamaged: a message cannot be read
        :raises UnknownLogEvent: a message that may carry data is not known
        :raises SchemaConflict: rows do not fit the table's schema
        """
        until, pause = time.monotonic() + PATIENCE_S, _FIRST_PAUSE_S
        while True:
            began_at = self._position.lsn
            try:
                yield from self._read_stream()
                return
            except (ReplicationError, OSError) as e:
                self._metrics.count_disconnect()
                part_delivered = self._buffer.part_delivered
                self._disconnect()
                if part_delivered:
                    yield Rollback()
                if self._position.lsn != began_at:
                    until, pause = time.monotonic() + PATIENCE_S, _FIRST_PAUSE_S
                refusal = self._connector.explain_refusal(e, self._position.lsn)
                if refusal is not None:
                    raise refusal from e
                if time.monotonic() > until:
                    raise translate_error(e, self._config, f"reading from {self._position}") from e
            time.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE_S)

    # -- the connection -----------------------------------------------------------------------------------------------

    def _connect(self) -> ReplicationConnection:
        if self._connection is None:
            self._connection = self._connector.open_stream(self._position.lsn, self._confirmed)
        return self._connection

    def _disconnect(self) -> None:
        """Close the stream, and forget all that was not delivered: the server sends it again."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None
        self._buffer.clear()
        self._relations.clear()

    def _read_stream(self) -> Iterator[LogItem]:
        """Read from the last position on. Ends if ``until`` is reached."""
        connection = self._connect()
        while not self._has_reached_end:
            block = connection.read_block(self._wait_s(connection), self._until)
            if len(block):
                yield from self._take_block(block)
                while self._buffer.byte_count < self._block_bytes and not self._is_past:
                    block = connection.read_block(0.0)
                    if not len(block):
                        break
                    yield from self._take_block(block)
                yield from self._deliver()
                if self._is_past:
                    self._position = self._place(self._until or 0)
                    break
            elif self._buffer.within:
                if not self._buffer.part_delivered:
                    yield Heartbeat(self._position)
            else:
                # behind the last message, so that everything before has come
                if connection.server_end > self._position.lsn:
                    end = connection.server_end if self._until is None else min(connection.server_end, self._until)
                    self._position = self._place(end)
                self._metrics.read_up_to(self._position)
                yield Heartbeat(self._position)
        self._metrics.read_up_to(self._position)
        yield Heartbeat(self._position)

    def _wait_s(self, connection: ReplicationConnection) -> float:
        """Return how long to wait for messages. Asks the server how far it is where that must be known."""
        now = time.monotonic()
        if now - self._asked_at >= (_ASK_S if self._until is None else _END_CHECK_S):
            self._asked_at = now
            connection.report(ask=True)
        return self._patience() if self._until is None else min(self._patience(), _END_CHECK_S)

    @property
    def _has_reached_end(self) -> bool:
        return self._until is not None and self._position.lsn >= self._until

    @property
    def _is_past(self) -> bool:
        """Check whether a transaction has come that was committed behind ``until``."""
        pending = self._buffer.pending_transactions
        return self._until is not None and len(pending) > 0 and int(pending[-1, layout.TX_COMMIT]) >= self._until

    def _place(self, lsn: int) -> PostgresPosition:
        return PostgresPosition(lsn, self._server.system, self._server.timeline)

    # -- messages -----------------------------------------------------------------------------------------------------

    def _take_block(self, block: MessageBlock) -> Iterator[LogItem]:
        """Take messages. Yields items where one of them demands that the earlier ones be delivered first."""
        buffer = self._buffer
        buffer.add_block(block)
        while (why := buffer.route(self._relations.index)) != layout.ALL_ROUTED:
            if self._is_past:
                return  # nothing of the transaction is delivered, and the stream ends
            kind, lsn, body = buffer.get_message()
            if why != layout.NOT_A_ROW:
                raise self._damaged(lsn, f"message {kind} is out of place, or of an unknown relation ({why})")
            try:
                if kind == "R":
                    yield from self._take_relation(Relation.parse(body))
                elif kind == "T":
                    yield from self._take_truncate(body, lsn)
                elif kind not in _SKIPPED:
                    raise self._unknown(kind, lsn)
            except (ValueError, IndexError, struct.error) as e:
                raise self._damaged(lsn, f"message {kind}: {e}") from e
            buffer.pass_message()

    def _take_relation(self, relation: Relation) -> Iterator[LogItem]:
        """Take a relation message. Rows of the same table before it are delivered first, under the structure that they have."""
        if self._relations.find_replaced(relation) & self._buffer.pending_relations:
            yield from self._deliver_complete()
            if self._buffer.pending_rows:
                yield from self._deliver_segment(self._buffer.take_part())
        self._relations.add_relation(relation)

    def _take_truncate(self, body: bytes, lsn: int) -> Iterator[LogItem]:
        """Take a truncation.

        It counts with the commit of its transaction, as rows do. So it comes within an open transaction, or behind the only change of one.
        """
        buffer, (count,) = self._buffer, struct.unpack_from("!I", body)
        numbers = [self._relations.find_current(oid) for oid in struct.unpack_from(f"!{count}I", body, 5)]
        if None in numbers:
            raise ValueError("an unknown relation is truncated")
        known = [number for number in numbers if number is not None]
        tables = [self._relations.get_entry(number).table for number in known]
        tables = [table for table in dict.fromkeys(tables) if self._tables.is_captured(table)]
        transaction = buffer.open_transaction
        if not tables or transaction is None:
            return
        yield from self._deliver_complete()
        xid, commit = int(transaction[layout.TX_ID]), int(transaction[layout.TX_COMMIT])
        ts_us = int(transaction[layout.TX_TIME]) + EPOCH_US
        yield from self._relations.resolve_relations(known, self._position, ts_us, xid, lsn)
        source = build_source(self._previous_end, xid, lsn)
        end = buffer.read_commit() if not buffer.pending_rows and not buffer.part_delivered else None
        if end is not None:
            yield Truncate(tables, self._place(end), ts_us, f"{xid}:{commit}", source)
            return
        # also without rows: the batch must not end before the transaction does
        yield from self._deliver_segment(buffer.take_part())
        yield Truncate(tables, self._position, ts_us, None, source)

    # -- blocks -------------------------------------------------------------------------------------------------------

    def _deliver(self) -> Iterator[LogItem]:
        """Deliver complete transactions, and the part of one that is larger than a block."""
        yield from self._deliver_complete()
        if self._is_past:
            return
        if self._buffer.within and (self._buffer.byte_count >= self._block_bytes):
            self._buffer.compact()
            if self._buffer.byte_count >= self._block_bytes:
                yield from self._deliver_segment(self._buffer.take_part())
        self._buffer.compact()
        if not self._buffer.pending_rows:
            self._relations.trim()

    def _deliver_complete(self) -> Iterator[LogItem]:
        count = self._buffer.count_complete(self._until)
        if count > 0:
            yield from self._deliver_segment(self._buffer.take_complete(count))

    def _deliver_segment(self, segment: Segment) -> Iterator[LogItem]:
        """Deliver rows and transactions, after the changes of structure that their tables had before."""
        first = segment.transactions[0]
        xid, ts_us = int(first[layout.TX_ID]), int(first[layout.TX_TIME]) + EPOCH_US
        numbers = np.unique(segment.rows[:, layout.ROW_RELATION]).tolist()
        lsn = int(segment.rows[0, layout.ROW_LSN]) if len(segment.rows) else int(first[layout.TX_COMMIT])
        yield from self._relations.resolve_relations(numbers, self._position, ts_us, xid, lsn)
        rows, left_out, kept, transactions = self._decode(segment, numbers)
        if not segment.open:
            end = int(segment.transactions[-1, layout.TX_END])
            self._position, self._previous_end = self._place(end), end
            last = str(transactions.ids[-1].as_py()) if len(transactions.ids) else ""
            self._metrics.transactions_ended(len(segment.transactions), last, large=segment.continued)
            self._metrics.read_up_to(self._position)
        if not rows and not left_out and not segment.open and not segment.continued:
            yield Heartbeat(self._position)
            return
        columns = BlockTransactions(transactions.ids.take(kept), transactions.ts_us[kept])
        yield LogBlock(rows, columns, self._position, open=segment.open, left_out=left_out)

    def _decode(
        self, segment: Segment, numbers: list[int]
    ) -> tuple[list[RowBlock], list[LeftOutRows], np.ndarray[tuple[int], np.dtype[np.int64]], TransactionColumns]:
        """Decode the rows of captured tables.

        Returns too the indexes of the transactions that have such rows, or are delivered in parts.
        """
        columns = TransactionColumns.from_segment(segment, self._previous_end)
        left_out: list[LeftOutRows] = []
        relation_of = segment.rows[:, layout.ROW_RELATION]
        decoded, chosen = [], np.zeros(len(relation_of), np.bool_)
        for number in numbers:
            entry = self._relations.get_entry(number)
            if not self._tables.is_captured(entry.table):
                continue
            mine = np.flatnonzero(relation_of == number)
            if entry.decoder is None:
                left_out.append(LeftOutRows(entry.table, len(mine), entry.left_out))
            elif entry.relation.columns:
                decoded.append((entry.decoder, mine))
                chosen[mine] = True
        order = np.cumsum(chosen) - 1
        transaction = segment.rows[:, layout.ROW_TRANSACTION] - segment.first
        used = np.zeros(len(segment.transactions), np.bool_)
        used[transaction[chosen]] = True
        used[0] |= segment.continued or segment.open
        renumbered = np.cumsum(used) - 1
        whole = TransactionColumns(
            columns.ids.take(np.flatnonzero(used)), columns.ts_us[used], columns.before[used], columns.xids[used]
        )
        blocks = [
            decoder.decode(segment.data, segment.rows[mine], order[mine], renumbered[transaction[mine]], whole)
            for decoder, mine in decoded
        ]
        return blocks, left_out, np.flatnonzero(used), columns

    # -- errors -------------------------------------------------------------------------------------------------------

    def _damaged(self, lsn: int, why: str) -> SourceLogDamaged:
        return SourceLogDamaged(
            f"A message of the replication slot cannot be read: {why}.",
            where=f"slot {self._config.slot_name}, {format_lsn(lsn)}",
            safe="Everything before its transaction is captured; no value was guessed.",
            remedy="run the capture again; if the error persists, this is a bug of the connector: please report it. To continue after the message, "
            "snapshot the tables again with snapshot.mode=always for one run",
        )

    def _unknown(self, kind: str, lsn: int) -> UnknownLogEvent:
        return UnknownLogEvent(
            f"The server has sent a message of kind {kind!r}, which this connector does not know and which may carry data.",
            where=f"slot {self._config.slot_name}, {format_lsn(lsn)}",
            safe="Everything before its transaction is captured; the offset is before the transaction.",
            remedy="update airflow-provider-cdc; if no newer release knows the message, please report it",
        )
