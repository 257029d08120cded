"""Tables that are stopped, as a value or rows of each cannot be read. All others are captured, and the run fails at its end.

The events of such a table are left out from the last commit before these on. Its rows come when it is read whole again.
"""

from __future__ import annotations

import logging

from airflow_provider_cdc.core.capture.captured_tables import CapturedTables
from airflow_provider_cdc.core.errors import TerminalError, UnreadableValue
from airflow_provider_cdc.core.incremental.incremental_coordinator import IncrementalCoordinator
from airflow_provider_cdc.core.model.connector_signal import SignalState
from airflow_provider_cdc.core.remedy_commands import read_whole
from airflow_provider_cdc.core.spi.capture_run_inputs import RunInputs
from airflow_provider_cdc.core.writing.run_output import RunOutput

log = logging.getLogger(__name__)


class StoppedTables:
    """Stops single tables of a run.

    :param tables: those that are captured
    """

    def __init__(
        self, inputs: RunInputs, output: RunOutput, tables: CapturedTables, incremental: IncrementalCoordinator
    ) -> None:
        self._connector, self._source = inputs.name, inputs.source
        self._state, self._batcher, self._tables, self._incremental = output.state, output.batcher, tables, incremental

    def stop_table(self, e: TerminalError) -> None:
        """Stop the table that an error names, with the next commit; between transactions only.

        :raises TerminalError: it names no table that could be stopped alone
        """
        if e.table is None or self._tables.is_signal_table(e.table):
            raise e
        log.error("Table %s is stopped; capture of all other tables continues. %s", e.table, e)
        self._incremental.cancel_reads()
        self._end_scans(e.table)
        text = " ".join(
            filter(
                None,
                [
                    f"{e.page_name}: {e.message}",
                    f"({e.where})" if e.where else None,
                    f"Repair: {e.remedy}" if e.remedy else None,
                ],
            )
        )
        request = self._state.snapshot_state.request_numbers.get(e.table)
        if request is not None:
            self._batcher.end_signal(request, SignalState.FAILED, f"{e.table} is stopped: {e.message}")
        self._state.offset = self._state.offset.stop_table(e.table, text)

    def _end_scans(self, table: str) -> None:
        """End the incremental snapshots of a table."""
        state = self._state.incremental_state
        gone = [scan for scan in state.scans if scan.table == table]
        state = state.retain_scans([scan for scan in state.scans if scan.table != table])
        for scan in gone:
            state = state.request_failed(scan.request, f"{table} is stopped, because its rows cannot be read")
            if not any(left.request == scan.request for left in state.scans):
                message, state = state.request_ended(scan.request)
                self._batcher.end_signal(scan.request, SignalState.FAILED, message)
        self._state.incremental_state = state

    def forget_gone(self) -> None:
        """Forget stopped tables that are not captured any more, or that the source does not have any more."""
        if stopped := self._state.offset.stopped:
            there = {
                str(table)
                for table in self._source.discover_tables(self._tables.is_selected)
                if self._tables.is_selected(table)
            }
            self._state.offset = self._state.offset.resume_tables(stopped.keys() - there)

    def check_none_stopped(self) -> None:
        """Check that no table is stopped.

        :raises UnreadableValue: tables are stopped
        """
        stopped = self._state.offset.stopped
        if not stopped:
            return
        read = read_whole(self._connector, *stopped)
        reasons = "; ".join(f"{table}: {why}" for table, why in stopped.items())
        raise UnreadableValue(
            f"{len(stopped)} {'tables are' if len(stopped) > 1 else 'table is'} stopped, because a value or a row cannot be read: {reasons}",
            where=", ".join(stopped),
            safe="All other tables are captured up to here. A blocking snapshot brings the rows of a stopped table up to date; target tables of mode history or log lack the "
            "changes in between.",
            remedy=f"fix the cause above, or set a property that leaves the value out; then snapshot the table again with `{read}`; or leave the table out with "
            "table.exclude.list",
        )
