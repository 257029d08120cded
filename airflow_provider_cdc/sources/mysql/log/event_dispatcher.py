"""The event dispatcher: hands each binlog event to the code that reads it, and moves the cursor.

Kernels find the transaction and the table of each row event. All other events are handled here in plain Python: file rotation, new
table maps, statements, savepoints, XA. An unknown event that may carry data is an error; it is never skipped.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Generator, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from airflow_provider_cdc.core.errors import PrerequisiteError, SourceLogDamaged
from airflow_provider_cdc.core.model.log_items import (
    BlockTransactions,
    Heartbeat,
    LogBlock,
    LogItem,
    Rollback,
    SchemaChange,
    Truncate,
)
from airflow_provider_cdc.core.model.table_schema import TableChange
from airflow_provider_cdc.core.spi.source import CapturedTableSchemas
from airflow_provider_cdc.sources.mysql import kernels as k
from airflow_provider_cdc.sources.mysql.gtid_sets import MariaDbGtids, MySqlGtids
from airflow_provider_cdc.sources.mysql.log import transaction_control as control
from airflow_provider_cdc.sources.mysql.log.binlog_position_tracker import LogCursor
from airflow_provider_cdc.sources.mysql.log.block_builder import BlockBuilder
from airflow_provider_cdc.sources.mysql.log.events import event_types as ev
from airflow_provider_cdc.sources.mysql.log.events.event_body_parsers import parse_rotate
from airflow_provider_cdc.sources.mysql.log.events.event_table import EventSet
from airflow_provider_cdc.sources.mysql.log.query_events import QueryEventReader
from airflow_provider_cdc.sources.mysql.log.rows.table_map_cache import TableMapCache
from airflow_provider_cdc.sources.mysql.log.transaction_event_buffer import EventBuffer
from airflow_provider_cdc.sources.mysql.metrics import LogMetrics
from airflow_provider_cdc.sources.mysql.schema import ddl
from airflow_provider_cdc.sources.mysql.schema.ddl_applier import DdlEffect, QueryEvent


class TransactionReread(Exception):
    """The open transaction has to be read again from its start: rows already delivered were rolled back to a savepoint."""


class EventDispatcher:
    """Turns events into log items. It owns the cursor: nothing else moves it while the log is read.

    :param tables: the table schemas in force
    :param prepared_rows: reads the rows of a prepared XA transaction, given its XA id and its start in the log
    :param single: read the prepared XA transaction of this id as if it were committed, then stop
    """

    def __init__(
        self,
        cursor: LogCursor,
        tables: CapturedTableSchemas,
        maps: TableMapCache,
        blocks: BlockBuilder,
        queries: QueryEventReader,
        metrics: LogMetrics,
        *,
        prepared_rows: Callable[[str, dict[str, Any]], Iterator[LogItem]],
        single: str | None = None,
    ) -> None:
        self.cursor, self._tables, self._maps, self._blocks, self._queries = cursor, tables, maps, blocks, queries
        self._metrics, self._prepared_rows, self._single = metrics, prepared_rows, single
        self._single_found = False

    def dispatch(self, events: EventSet) -> Generator[LogItem, None, int | None]:
        """Yield the log items of these events, in log order.

        :return: index of the first event that the next call needs again, as its transaction is not complete; ``None`` = none
        :raises SourceLogDamaged: an event cannot be parsed
        :raises TransactionReread: the log has to be read again from the cursor's position
        """
        if self.cursor.open.id is None:
            self._maps.trim_maps()
        buffer = EventBuffer(events, self.cursor)
        try:
            return (yield from self._dispatch(buffer))
        except (ValueError, IndexError, struct.error) as e:
            raise SourceLogDamaged(
                f"An event of the binary log cannot be read: {e}.",
                where=buffer.format_location(min(buffer.next_index, len(events) - 1)),
                safe="Everything before its transaction is captured; no value was guessed.",
                remedy="run the capture again; if the error persists, the log is damaged, or this is a bug of the "
                "connector: please report it. To continue after the event, snapshot the tables again with "
                "snapshot.mode=always for one run",
            ) from e

    def _dispatch(self, buffer: EventBuffer) -> Generator[LogItem, None, int | None]:
        cursor = self.cursor
        while not cursor.has_reached_end:
            why = buffer.route_events(self._maps)
            if why == k.ROUTED or buffer.is_past(buffer.next_index, cursor):
                break
            yield from (self._new_map if why == k.NEW_MAP else self._event)(buffer.next_index, buffer)
        yield from self._complete(buffer)
        self._read_up_to(buffer)
        if not buffer.has_open_transaction or cursor.has_reached_end:
            return None
        if buffer.events.full or buffer.has_delivered_part(buffer.last_transaction_index):
            yield self._part(buffer)
            return None
        return int(buffer.transactions[buffer.last_transaction_index, k.TX_FIRST])

    # -- transactions -------------------------------------------------------------------------------------------------

    def _complete(self, buffer: EventBuffer) -> Generator[LogItem, None, bool]:
        """Yield the complete transactions up to ``until``: in one block, or one by one if ``until`` is of another server.

        :return: whether ``until`` is reached, so that the stream ends
        """
        while not self.cursor.has_reached_end and (done := self._count_complete(buffer)) > buffer.first:
            last = int(buffer.transactions[done - 1, k.TX_END])
            if self._single is not None and not self._single_found:
                raise self._another(last, buffer)
            block = self._blocks.build_block(buffer, self.cursor, last + 1, done)
            count, rolled_back = buffer.count_transactions(done)
            large, id_ = buffer.has_delivered_part(buffer.first), block.transactions.id[-1].as_py()
            self._commit(buffer, last, done)
            self._metrics.transactions_ended(count, rolled_back, large=large, last=id_)
            self._delivered(buffer, last)
            yield replace(block, position=self.cursor.position)
            if self._single is not None:
                break
        return self.cursor.has_reached_end

    def _count_complete(self, buffer: EventBuffer) -> int:
        """Index after the last transaction that can be delivered in the next block."""
        first, done = buffer.first, buffer.last_transaction_index + 1 - buffer.has_open_transaction
        if self._single is not None:
            return min(done, first + 1)
        if self.cursor.ends_by_gtids:
            return first + self.cursor.count_to_gtids(buffer.collect_gtids(first, done))
        return first + self.cursor.count_within(buffer.routed.ends[buffer.transactions[first:done, k.TX_END]])

    def _commit(self, buffer: EventBuffer, last: int, done: int) -> None:
        """Move the cursor after the transactions before index ``done``; ``last`` is their last event."""
        gtids = self.cursor.server.has_gtids
        executed = buffer.collect_executed_gtids(buffer.first, done) if gtids else None
        self.cursor.commit_transactions(buffer.get_end_offset(last), executed, buffer.identity_of(done - 1))
        buffer.mark_delivered(last, done)

    def _part(self, buffer: EventBuffer) -> LogBlock:
        """Build an open block of the buffered part of a transaction that is larger than the buffer."""
        block = self._blocks.build_block(buffer, self.cursor, len(buffer), buffer.last_transaction_index + 1)
        end = buffer.end_before(len(buffer))
        self.cursor.leave_open(
            buffer.build_carried_state(block.transactions.id[0].as_py()), self.cursor.end if end is None else end
        )
        self._delivered(buffer, len(buffer) - 1)
        return replace(block, open=True)

    def _discard(self, i: int, buffer: EventBuffer) -> Iterator[LogItem]:
        """End the open transaction with event ``i``; it changes nothing: take back the part that was delivered."""
        buffer.close_without_rows(i)
        if buffer.has_delivered_part(buffer.last_transaction_index):
            yield Rollback()

    def _read_up_to(self, buffer: EventBuffer) -> None:
        """Move the cursor to where the events end that belong to no transaction, or to a complete one. Notes whether ``until`` is passed."""
        cursor = self.cursor
        at = (
            int(buffer.transactions[buffer.first, k.TX_FIRST])
            if buffer.first <= buffer.last_transaction_index
            else buffer.next_index
        )
        if at < 0:  # in a transaction that has begun in an earlier buffer
            return
        if at < len(buffer) and buffer.is_past(at, cursor):
            cursor.passed = True
            cursor.read_up_to(buffer.get_start_offset(at))
        elif (end := buffer.end_before(at)) is not None:
            cursor.read_up_to(end)

    def _delivered(self, buffer: EventBuffer, i: int) -> None:
        """Report event ``i`` as the last one delivered, for the metrics."""
        self._metrics.event_delivered(buffer.server_id(i), self.cursor.file, buffer.get_start_offset(i))

    # -- one event that the kernel leaves to plain Python ------------------------------------------------------------

    def _new_map(self, i: int, buffer: EventBuffer) -> Iterator[LogItem]:
        schema = self._maps.add_map(buffer.events.get_event_body(i), buffer.format_location(i), buffer.get_place(i))
        if schema is None or (yield from self._complete(buffer)):
            return
        recorded = self._tables.find_schema(schema.id)
        change = TableChange(type="CREATE" if recorded is None else "ALTER", id=schema.id, table=schema, exact=False)
        source = buffer.build_source_block(i, self.cursor)
        yield SchemaChange("", schema.id.namespace, [change], self.cursor.position, buffer.ts_us(i), source)

    def _event(self, i: int, buffer: EventBuffer) -> Iterator[LogItem]:
        kind = buffer.get_event_type(i)
        if kind in ev.ROWS:
            if buffer.has_open_transaction and self._maps.restore_map(
                int.from_bytes(buffer.events.get_event_body(i)[:6], "little")
            ):
                return  # a table map with the same hash slot had replaced this table's map; it is restored now
            self._metrics.count_malformed()
            raise ev.unknown_event(
                kind, buffer.format_location(i), "rows without a table map, or outside a transaction"
            )
        if kind == ev.QUERY:
            yield from self._query(i, buffer)
        elif kind == ev.ROTATE:
            yield from self._rotate(i, buffer)
        elif kind == ev.FORMAT_DESCRIPTION:
            self.cursor.file_created(buffer.get_event_time(i))
        elif kind == ev.HEARTBEAT:
            yield from self._heartbeat(i, buffer)
        elif kind == ev.MARIADB_GTID:
            self._xa_gtid(i, buffer)
        elif kind in (ev.PREVIOUS_GTIDS, ev.MARIADB_GTID_LIST):
            self._before_file(i, buffer)
        elif kind == ev.XA_PREPARE:
            yield from self._prepare(i, buffer)
        elif kind == ev.PARTIAL_UPDATE_ROWS:
            self._partial_rows(i, buffer)
        elif kind == ev.INCIDENT:
            raise ev.unknown_event(
                kind, buffer.format_location(i), "the server reports that changes are missing from its log"
            )
        elif kind not in ev.HARMLESS and not buffer.get_event_flags(i) & ev.IGNORABLE_FLAG:
            if kind in ev.TRANSACTION_EVENTS:
                self._metrics.count_malformed()
            raise ev.unknown_event(kind, buffer.format_location(i))
        buffer.advance_event()

    def _partial_rows(self, i: int, buffer: EventBuffer) -> None:
        """Pass over parts of documents of a table that is not captured.

        :raises PrerequisiteError: the table is captured
        """
        if buffer.has_open_transaction and self._maps.is_passed_over(
            int.from_bytes(buffer.events.get_event_body(i)[:6], "little")
        ):
            return
        raise PrerequisiteError(
            "The log contains a row with a partial JSON document: binlog_row_value_options was PARTIAL_JSON "
            "when it was written.",
            where=buffer.format_location(i),
            safe="Everything before its transaction is captured; the offset is before the transaction.",
            remedy="SET GLOBAL binlog_row_value_options = '', also in the sessions that set it, then snapshot the tables "
            "again with snapshot.mode=always for one run",
        )

    # -- files --------------------------------------------------------------------------------------------------------

    def _rotate(self, i: int, buffer: EventBuffer) -> Iterator[LogItem]:
        if (
            buffer.has_open_transaction
        ):  # no transaction is in two files: the server died while it wrote this one, and has rolled it back
            if buffer.has_delivered_part(buffer.last_transaction_index):
                yield Rollback()
            buffer.discard_transaction()
            self.cursor.discard_transaction()
        if (yield from self._complete(buffer)):
            return
        self._maps.discard_unnamed_maps()
        name, pos = parse_rotate(buffer.events.get_event_body(i))
        self.cursor.begin_file(name, pos)
        self.cursor.read_up_to(pos)
        buffer.begin_file(i, name, pos)

    def _before_file(self, i: int, buffer: EventBuffer) -> None:
        """Take the GTIDs executed before this file from its head, if the stream has begun at a position without GTIDs."""
        if self.cursor.lacks_gtids and not buffer.get_event_flags(i) & ev.ARTIFICIAL_FLAG:
            gtids = MariaDbGtids if self.cursor.server.mariadb else MySqlGtids
            self.cursor.executed_before_file(gtids.from_event_body(buffer.events.get_event_body(i)))

    def _heartbeat(self, i: int, buffer: EventBuffer) -> Iterator[LogItem]:
        if not buffer.has_open_transaction and not (yield from self._complete(buffer)):
            self.cursor.read_up_to(buffer.get_end_offset(i))
            yield Heartbeat(self.cursor.position)

    # -- statements ---------------------------------------------------------------------------------------------------

    def _query(self, i: int, buffer: EventBuffer) -> Iterator[LogItem]:
        """Handle a QUERY event.

        It is BEGIN, COMMIT and the like, DDL, or a statement without an effect on tables.
        """
        query = self._queries.query(i, buffer)
        closes = self._queries.ends_transaction(query, buffer)
        for statement in self._queries.parse_statements(query):
            if isinstance(statement, ddl.TransactionControl):
                yield from self._transaction(i, statement, buffer)
                closes = closes and statement.kind in ("xa commit", "xa rollback") and buffer.has_open_transaction
                if statement.kind == "xa start":
                    buffer.set_thread(query.thread)
                continue
            change = self._queries.find_effect(statement, query, i, buffer)
            if change is not None:
                yield from self._schema_change(i, query, change, buffer, closes=closes)
            if closes:
                buffer.mark_uncounted()
        if closes and buffer.has_open_transaction:
            buffer.close_transaction(i)
            yield from self._complete(buffer)

    def _schema_change(
        self, i: int, query: QueryEvent, change: DdlEffect, buffer: EventBuffer, *, closes: bool
    ) -> Iterator[LogItem]:
        """Deliver a DDL statement as a schema change, a truncation, or both.

        :param closes: the statement is a separate transaction, so no block of rows is delivered for it
        """
        cursor = self.cursor
        if (yield from self._complete(buffer)):
            return
        if closes:
            buffer.close_transaction(i)
            self._commit(buffer, i, buffer.last_transaction_index + 1)
            self._delivered(buffer, i)
        elif not buffer.has_open_transaction:
            cursor.commit_transactions(buffer.get_end_offset(i))
        ts_us, source = buffer.ts_us(i), buffer.build_source_block(i, cursor)
        if closes:
            self._metrics.statement_ended(source["gtid"])
        if change.truncated:
            gtid = source["gtid"]
            yield Truncate(change.truncated, cursor.position, ts_us, str(gtid) if gtid else None, source)
        if change.changes or change.structure_unknown:
            yield SchemaChange(
                query.sql, query.database, change.changes, cursor.position, ts_us, source, open=buffer.has_open_transaction, structure_unknown=change.structure_unknown
            )  # fmt: skip
        self._maps.discard_maps()

    def _transaction(self, i: int, statement: ddl.TransactionControl, buffer: EventBuffer) -> Iterator[LogItem]:
        """BEGIN, COMMIT, ROLLBACK, savepoints and XA statements."""
        match control.apply_transaction_control(statement, i, buffer):
            case control.TransactionRollback():
                buffer.mark_rolled_back()
                yield from self._discard(i, buffer)
            case control.SavepointRollback() as back:
                here = control.exclude_rolled_back(back, i, buffer)
                if not here and self.cursor.roll_back(back.first, back.to):
                    raise TransactionReread
            case control.PreparedTransactionEnd() as end:
                yield from self._end_prepared(i, end, buffer)
            case control.MalformedTransaction():
                self._metrics.count_malformed()

    # -- XA -----------------------------------------------------------------------------------------------------------

    def _xa_gtid(self, i: int, buffer: EventBuffer) -> None:
        """Handle a GTID event of MariaDB that begins or completes a prepared XA transaction."""
        if buffer.has_open_transaction:
            self._metrics.count_malformed()
            raise ev.unknown_event(
                ev.MARIADB_GTID, buffer.format_location(i), "it begins inside a transaction that has not ended"
            )
        buffer.begin_transaction(i, gtid=True)

    def _prepare(self, i: int, buffer: EventBuffer) -> Iterator[LogItem]:
        """XA PREPARE: the rows before it wait for XA COMMIT, unless it is ``XA COMMIT … ONE PHASE``."""
        xid = control.xid_of(i, buffer)
        # of the buffer's transactions, the first one is delivered
        self._single_found |= xid == self._single and buffer.last_transaction_index == buffer.first
        if self._single is not None or control.is_one_phase(i, buffer):
            buffer.close_transaction(i)
            return
        if (yield from self._complete(buffer)):
            return
        buffer.mark_uncounted()
        start = control.start_of_open(buffer, self.cursor)
        yield from self._discard(i, buffer)
        self.cursor.add_prepared(xid, start)

    def _end_prepared(self, i: int, end: control.PreparedTransactionEnd, buffer: EventBuffer) -> Iterator[LogItem]:
        cursor = self.cursor
        if not end.commit:
            buffer.mark_rolled_back()
        start = None if self._single is not None else control.start_of_prepared(end, i, buffer, cursor)
        if (yield from self._complete(buffer)):
            return
        if start is not None:
            gtid = buffer.build_source_block(i, cursor)["gtid"]
            ids = BlockTransactions(pa.array([str(gtid or end.xid)]), np.array([buffer.ts_us(i)]))
            for item in self._prepared_rows(end.xid, start):
                if isinstance(item, LogBlock):
                    item = replace(item, position=cursor.position, transactions=ids)
                elif isinstance(item, SchemaChange):
                    item = replace(item, position=cursor.position, open=True)
                yield item
        cursor.end_prepared(end.xid)

    def _another(self, i: int, buffer: EventBuffer) -> SourceLogDamaged:
        return SourceLogDamaged(
            f"The rows of XA transaction {self._single}, which was prepared, are not at their position in "
            "the offset: another transaction is at this position.",
            where=buffer.format_location(i),
            safe="Everything before its XA COMMIT is captured; no row of another transaction was captured by mistake.",
            remedy="snapshot the tables again with snapshot.mode=always for one run",
        )
