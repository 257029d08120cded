"""From the rows of committed transactions to log items: schema changes that the rows need, then the block of rows."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from airflow_provider_cdc.core.errors import SchemaConflict
from airflow_provider_cdc.core.model.log_items import (
    BlockTransactions,
    LeftOutRows,
    LogBlock,
    LogItem,
    RowBlock,
    SchemaChange,
)
from airflow_provider_cdc.core.model.table_schema import TableChange
from airflow_provider_cdc.sources.oracle.config import OracleConfig
from airflow_provider_cdc.sources.oracle.kernels.operation_codes import LAST_CHANGE
from airflow_provider_cdc.sources.oracle.position import OraclePosition
from airflow_provider_cdc.sources.oracle.redo.name_restorer import NameRestorer
from airflow_provider_cdc.sources.oracle.schema.schema_versions import SchemaVersions
from airflow_provider_cdc.sources.oracle.schema.stream_lookups import StreamLookups
from airflow_provider_cdc.sources.oracle.stream_counters import RowCounters
from airflow_provider_cdc.sources.oracle.transactions.buffer.transaction_buffer import CommittedRows
from airflow_provider_cdc.sources.oracle.transactions.row_decoder import RowDecoder

log = logging.getLogger(__name__)

_NO_DEFINITION = "the log does not contain the table's definition, and the table no longer exists in the database"


class CommittedBlockBuilder:
    """Builds log items of committed rows.

    :param versions: the tables' schemas by SCN
    :param lookups: answers questions that the log leaves open
    """

    def __init__(
        self, config: OracleConfig, versions: SchemaVersions, lookups: StreamLookups, counters: RowCounters
    ) -> None:
        self._catalog, self._versions, self._counters = config.catalog_name, versions, counters
        self._restorer = NameRestorer(config, versions, lookups)
        self._decoder = RowDecoder(config, versions, lookups)

    def build_items(
        self, committed: CommittedRows, before: OraclePosition, position: OraclePosition
    ) -> Iterator[LogItem]:
        """Yield the schema changes that the rows need, if any, then the rows as one block.

        Rows that cannot be read, of a table that will be read again, are left out of the block and counted.

        :param before: the position of the schema changes
        :param position: the position of the block
        :raises SchemaConflict: rows cannot be read with any known schema
        """
        rows = committed.rows
        numbers = np.unique(rows.column("table").to_numpy()).tolist()
        self._versions.check_table_numbers(numbers)
        missing, gone = self._versions.find_missing_schemas(numbers, str(before))
        for change in missing:
            yield self._schema_change(change, before)
        left_out = [LeftOutRows(self._versions.find_table(n), _count(rows, n), _NO_DEFINITION) for n in gone]
        if gone:
            rows = _of_others(rows, gone)
            numbers = sorted(set(numbers) - set(gone))
        try:
            blocks, transactions = self._decoded(rows, committed)
        except SchemaConflict as e:
            rows, unnamed = self._readable(rows, numbers, self._restorer.restore_names)
            numbers = sorted(set(numbers) - {n for n, _ in unnamed})
            restored = self._restorer.restore_names(rows)
            changed = [] if restored is not None else self._versions.find_changed_schemas(numbers)
            if restored is not None:
                rows = restored
            elif changed:
                log.warning("%s The catalog was read again.", e)
            elif not unnamed and not any(self._versions.read_again(n) for n in numbers):
                raise
            for change in changed:
                yield self._schema_change(change, before)
            rows, unread = self._readable(rows, numbers, lambda some: self._decoded(some, committed))
            left_out += [left for _, left in unnamed + unread]
            blocks, transactions = self._decoded(rows, committed)
        self._counters.record_block_time(time.monotonic() - committed.began)
        yield LogBlock(blocks, transactions, position, committed.low is None, left_out)

    def _readable(
        self, rows: pa.Table, numbers: list[int], act: Callable[[pa.Table], object]
    ) -> tuple[pa.Table, list[tuple[int, LeftOutRows]]]:
        """Leave out the rows of tables that will be read again and for which ``act`` fails.

        :return: the other rows; and table number and count of those left out
        """
        left_out = []
        for number in numbers:
            if not self._versions.read_again(number):
                continue
            try:
                act(rows.filter(pc.equal(rows.column("table"), number)).combine_chunks())
            except SchemaConflict as e:
                left_out.append(
                    (number, LeftOutRows(self._versions.find_table(number), _count(rows, number), e.message))
                )
                rows = _of_others(rows, [number])
        return rows, left_out

    def _decoded(self, rows: pa.Table, committed: CommittedRows) -> tuple[list[RowBlock], BlockTransactions]:
        began = time.monotonic()
        try:
            return self._decoder.decode(rows, committed.commits, undecided=committed.undecided)
        finally:
            self._counters.parse += time.monotonic() - began

    def _schema_change(self, change: TableChange, position: OraclePosition) -> SchemaChange:
        return SchemaChange("", self._catalog, [change], position, int(time.time() * 1e6))


def _count(rows: pa.Table, number: int) -> int:
    """Return the number of changes of one table, without the pieces of long values."""
    mine = rows.column("table").to_numpy() == number
    return int((mine & (rows.column("code").to_numpy() <= LAST_CHANGE)).sum())


def _of_others(rows: pa.Table, numbers: list[int]) -> pa.Table:
    return rows.filter(pa.array(~np.isin(rows.column("table").to_numpy(), numbers))).combine_chunks()
