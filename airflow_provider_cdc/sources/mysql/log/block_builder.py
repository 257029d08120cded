"""From a range of events to a ``LogBlock``: its rows, without those that were rolled back or are excluded by configuration."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from airflow_provider_cdc.core.model.log_items import LeftOutRows, LogBlock, RowBlock
from airflow_provider_cdc.sources.mysql import kernels as k
from airflow_provider_cdc.sources.mysql.columns.column_buffers import ScratchMemory
from airflow_provider_cdc.sources.mysql.config import MySqlConfig
from airflow_provider_cdc.sources.mysql.log.binlog_position_tracker import LogCursor
from airflow_provider_cdc.sources.mysql.log.events import event_types as ev
from airflow_provider_cdc.sources.mysql.log.gtid_source_filter import GtidSourceFilter
from airflow_provider_cdc.sources.mysql.log.rows.row_decoder import decode_row_blocks
from airflow_provider_cdc.sources.mysql.log.rows.table_map_cache import TableMapCache
from airflow_provider_cdc.sources.mysql.log.transaction_event_buffer import EventBuffer
from airflow_provider_cdc.sources.mysql.log.transaction_ids import transaction_columns
from airflow_provider_cdc.sources.mysql.schema.table_name_resolver import lower_name


class BlockBuilder:
    """Builds blocks of rows from the transactions in an event buffer."""

    def __init__(self, config: MySqlConfig, maps: TableMapCache) -> None:
        self._maps, self._scratch = maps, ScratchMemory()
        self._queries, self._signals = config.include_query, config.signal_data_collection
        sources = GtidSourceFilter.from_config(config)
        self._sources = None if sources.includes_all or not config.gtid_source_filter_dml_events else sources

    def build_block(self, buffer: EventBuffer, cursor: LogCursor, hi: int, tx_hi: int) -> LogBlock:
        """Build a block of the events from the first undelivered one up to ``hi``.

        Its position is the cursor's.

        :param tx_hi: index after the last transaction of the block
        """
        self._exclude_rolled_back(buffer, cursor, hi)
        transactions = buffer.transactions[buffer.first : tx_hi]
        begun = buffer.state_of(buffer.first).id
        columns = transaction_columns(
            buffer.events, transactions, buffer.routed.ends, buffer.routed.file, begun, cursor.server.mariadb
        )
        self._exclude_sources(buffer, columns.transactions.id, hi)
        queries = statements_of(buffer) if self._queries else None
        rows = decode_row_blocks(
            buffer.routed, self._maps.layouts, buffer.lo, hi, buffer.first, columns, queries, self._scratch
        )
        if not self._maps.left_out:
            return LogBlock(rows, columns.transactions, cursor.position)
        why = [self._maps.why_left_out(block.table) for block in rows]
        left = [LeftOutRows(r.table.id, len(r), text) for r, text in zip(rows, why, strict=True) if text is not None]
        rows = renumber_rows([r for r, text in zip(rows, why, strict=True) if text is None])
        return LogBlock(rows, columns.transactions, cursor.position, left_out=left)

    def _exclude_rolled_back(self, buffer: EventBuffer, cursor: LogCursor, hi: int) -> None:
        """Exclude rows of the first transaction that a later ROLLBACK TO SAVEPOINT takes back; known when it is read again."""
        for low, high in cursor.rolled_back:
            mine = buffer.mask_row_events(buffer.first, hi)
            mine[: buffer.lo] = False
            events = np.flatnonzero(mine)
            numbers = np.arange(len(events)) + buffer.state_of(buffer.first).row_events
            buffer.exclude_rows(events[(numbers >= low) & (numbers < high)])

    def _exclude_sources(self, buffer: EventBuffer, ids: pa.StringArray, hi: int) -> None:
        """Exclude rows of transactions by ``gtid.source.includes`` or ``excludes``, except those of the signal table.

        :param ids: ids of the transactions of the block
        """
        sources, lo = self._sources, buffer.lo
        if sources is None:
            return
        out = np.array([not sources.includes_transaction(id_) for id_ in ids.to_pylist()])
        layouts = buffer.routed.layout_of[lo:hi]
        rows = np.flatnonzero(layouts >= 0)
        rows = rows[out[buffer.routed.transaction_of[lo:hi][rows] - buffer.first]]
        signals = lower_name(self._signals or "")
        signal_layouts = [
            n for n, layout in enumerate(self._maps.layouts) if lower_name(str(layout.schema.id)) == signals
        ]
        buffer.exclude_rows(lo + rows[~np.isin(layouts[rows], signal_layouts)])


def statements_of(buffer: EventBuffer) -> tuple[list[str], npt.NDArray[np.int32]]:
    """Return the statements that the log carries beside rows (``include.query``).

    Returns too, per event, the index of the last one before it.
    """
    events = buffer.events
    kinds = events.table[:, k.EV_TYPE]
    annotations = np.flatnonzero((kinds == ev.MARIADB_ANNOTATE) | (kinds == ev.ROWS_QUERY))
    texts = []
    for i in annotations:
        body = events.get_event_body(int(i))
        texts.append((body[1:] if kinds[i] == ev.ROWS_QUERY else body).decode("utf-8", "replace"))
    last = np.zeros(len(kinds), np.int32)
    last[annotations] = 1
    return texts, (np.cumsum(last) - 1).astype(np.int32)


def renumber_rows(rows: list[RowBlock]) -> list[RowBlock]:
    """Give the rows dense order numbers again, after some blocks were removed."""
    left = np.sort(np.concatenate([r.order for r in rows])) if rows else np.zeros(0, np.int64)
    return [replace(r, order=np.searchsorted(left, r.order)) for r in rows]
