"""Tracks how far a table is read in chunks, and why one cannot be read."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass

from airflow_provider_cdc.core.errors import CdcError, QueryRejected
from airflow_provider_cdc.core.model.connector_offset import TableScan
from airflow_provider_cdc.core.model.notifications import ScanProblem, TableScanStatus
from airflow_provider_cdc.core.model.table_schema import TableId, TableSchema
from airflow_provider_cdc.core.spi.chunk_reader import ChunkReader, KeyRange

log = logging.getLogger(__name__)
OrderOf = Callable[[TableSchema, TableScan], tuple[str, ...] | ScanProblem]
"""The columns by which a table's rows are ordered."""


@dataclass(slots=True)
class TableProgress:
    """The progress of reading a table; ahead of the committed state.

    :param scan: the part of the scan that is left to read
    :param probe: before anything is read, test that the table can be read: its rows in the targets will be replaced
    :param before: ``scan``, before the chunk that was read last
    """

    table: TableId
    scan: TableScan
    schema: TableSchema | None = None
    probe: bool = False
    before: TableScan | None = None

    def build_next_range(self) -> KeyRange:
        """Return the rows that come next."""
        assert self.schema is not None
        scan = self.scan
        return KeyRange(self.schema, tuple(scan.order), scan.after, scan.upto, scan.condition)

    def load_structure(self, reader: ChunkReader, order_of: OrderOf) -> ScanProblem | None:
        """Look up the table: its schema and its order."""
        schema = reader.read_table_schema(self.table)
        if schema is None:
            return ScanProblem(TableScanStatus.UNKNOWN_SCHEMA, f"the table {self.table} no longer exists")
        order = order_of(schema, self.scan)
        if isinstance(order, ScanProblem):
            return order
        if [*order] != self.scan.order:
            if self.scan.order:
                log.warning(
                    "The key of %s was changed; its incremental snapshot starts again at the first row.", self.table
                )
            self.scan = self.scan.with_order(order)
        self.schema = schema
        return None


def build_lag_problem(table: TableId, missing: str, seconds: float) -> ScanProblem:
    """Describe that the database does not show rows that are captured already.

    :param seconds: for which it was waited for
    """
    return ScanProblem(
        TableScanStatus.SKIPPED,
        f"after {seconds:g} s, the database still lacks {missing}, which the connector has already captured. It is a different server than before, or a "
        f"replica that lags behind, so rows of {table} may be older than the captured changes; none of these rows was used. Send the "
        "signal again when the server has these changes, or read the table with a blocking snapshot",
    )


def problem_of(e: Exception) -> ScanProblem:
    """Return the text of an error, for the sender of the request for the table."""
    text = (
        e.message + (f" ({e.where})" if e.where else "") + (f" {e.remedy}" if e.remedy else "")
        if isinstance(e, CdcError)
        else repr(e)
    )
    return ScanProblem(TableScanStatus.SQL_EXCEPTION if isinstance(e, QueryRejected) else TableScanStatus.SKIPPED, text)
