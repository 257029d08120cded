"""Reads captured tables again, because a statement has rewritten their rows or a signal asks for it."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Mapping

from airflow_provider_cdc.core.incremental.incremental_coordinator import IncrementalCoordinator
from airflow_provider_cdc.core.model.connector_offset import Offset
from airflow_provider_cdc.core.model.schema_history import SchemaHistory
from airflow_provider_cdc.core.model.table_schema import TableId
from airflow_provider_cdc.core.writing.capture_state import CaptureState

log = logging.getLogger(__name__)


class ResnapshotScheduler:
    """Schedules tables to be read again, whole or in chunks."""

    def __init__(self, state: CaptureState, history: SchemaHistory, incremental: IncrementalCoordinator) -> None:
        self._state, self._history, self._incremental = state, history, incremental

    def schedule_whole_tables(
        self,
        tables: Iterable[TableId],
        *,
        request: int | None = None,
        selects: Mapping[str, str] | None = None,
        on_spark: bool = False,
    ) -> None:
        """Have tables read whole, as soon as the present item of the log is captured and committed.

        Their events up to the position at which they are read are captured before.

        :param request: number of the signal that asks for it
        :param selects: table → statement that gives its rows instead of all of them
        :param on_spark: the request wants Spark to read them
        """
        tables = list(tables)
        self._incremental.cancel_reads()
        self._state.offset = add_pending_tables(
            self._state.offset, tables, self._history, request=request, selects=selects, streamed=list(map(str, tables)),
            on_spark=on_spark,
        )  # fmt: skip

    def in_chunks(self, tables: Collection[str], why: str) -> set[str]:
        """Restart the incremental snapshots of some tables, because the rows that they have read are outdated.

        :param why: the statement that has rewritten their rows
        :return: the tables that have incremental snapshots of all rows
        """
        incremental = self._state.incremental_state
        restarted = {scan.table for scan in incremental.scans if not scan.key} & set(tables)
        for scan in incremental.scans:
            if scan.key and scan.table in tables:  # ranges that were read may be outdated, as the rest of the table is
                text = f"{scan.table}: rows may be outdated, whether they are already read or not, because of: {why}"
                incremental = incremental.request_failed(scan.request, text)
        self._state.incremental_state = incremental
        if restarted:
            log.warning(
                "The incremental snapshot of %s starts again at the first row, because of: %s. Rows that are no longer in the table stay "
                "in the targets, as in a snapshot without `replace`.",
                ", ".join(sorted(restarted)),
                why,
            )
            self._incremental.cancel_reads()
            self._state.incremental_state = incremental.restart_scans(restarted)
        return restarted


def add_pending_tables(
    offset: Offset,
    tables: Iterable[TableId],
    history: SchemaHistory,
    *,
    request: int | None = None,
    selects: Mapping[str, str] | None = None,
    streamed: Collection[str] = (),
    on_spark: bool = False,
) -> Offset:
    """Add pending tables to the offset.

    See :meth:`SnapshotState.pend <airflow_provider_cdc.core.model.connector_offset.SnapshotState.add_pending>`.
    """
    held = {str(table): history.has_seen_table(table) for table in tables}
    return offset.with_snapshot(
        offset.snapshot.add_pending(held, request=request, selects=selects, streamed=streamed, on_spark=on_spark)
    )
