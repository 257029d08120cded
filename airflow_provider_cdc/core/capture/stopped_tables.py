"""Tables with an event, a value or rows that cannot be read. All others are captured.

The events of such a table are left out from the last commit before these on. Its rows come when it is read whole again: by itself, where the
properties have the event set aside; otherwise the table is stopped, and the run fails at its end until a person has it read.
"""

from __future__ import annotations

import logging
import time
from typing import Final

from airflow_provider_cdc.core.capture.captured_tables import CapturedTables
from airflow_provider_cdc.core.config.property_enums import FailureHandling
from airflow_provider_cdc.core.errors import TerminalError, UnreadableValue
from airflow_provider_cdc.core.incremental.incremental_coordinator import IncrementalCoordinator
from airflow_provider_cdc.core.model.connector_offset import SetAsideEvent
from airflow_provider_cdc.core.model.connector_signal import SignalState
from airflow_provider_cdc.core.model.notifications import EVENT, NotificationType
from airflow_provider_cdc.core.model.schema_history import SchemaHistory
from airflow_provider_cdc.core.remedy_commands import read_whole
from airflow_provider_cdc.core.spi.capture_run_inputs import RunInputs
from airflow_provider_cdc.core.writing.run_output import RunOutput
from airflow_provider_cdc.core.writing.snapshot_notifications import queue_notification

log = logging.getLogger(__name__)

_PER_DAY: Final = 3
"""Events of a table that are set aside in a day; a further one stops it, so that no table is read all day."""
_TEXT: Final = 1000
"""Characters of an error that are kept with its event."""


class StoppedTables:
    """Stops single tables of a run, or has them read again.

    :param tables: those that are captured
    :param reads_rows: whether a snapshot reads rows
    """

    def __init__(
        self,
        inputs: RunInputs,
        output: RunOutput,
        tables: CapturedTables,
        incremental: IncrementalCoordinator,
        history: SchemaHistory,
        *,
        reads_rows: bool,
    ) -> None:
        self._config, self._filters, self._history, self._reads_rows = (
            inputs.config, inputs.filters, history, reads_rows
        )  # fmt: skip
        self._connector, self._source = inputs.name, inputs.source
        self._state, self._batcher, self._tables, self._incremental = output.state, output.batcher, tables, incremental

    def leave_out_table(self, e: TerminalError) -> None:
        """Continue without the table of an event that cannot be read, with the next commit; between transactions only.

        The event is set aside and the table read again if the properties say so; otherwise the table is stopped.

        :raises TerminalError: it names no table that could be left out alone
        """
        handling = self._config.find_failure_handling(e)
        if handling is FailureHandling.FAIL or e.table is None or self._tables.is_signal_table(e.table):
            return self.stop_table(e)
        if not e.ends_with_read:
            log.error("A snapshot of %s would not help, so that the table is not read again by itself.", e.table)
            return self.stop_table(e)
        known = next((t for t in self._history.ever_known_tables if str(t) == e.table), None)
        table = known or next(iter(self._source.discover_tables(lambda t: str(t) == e.table)), None)
        if not self._reads_rows or (table is not None and not self._filters.is_snapshot_table(table)):
            log.error("No snapshot reads rows of %s, so that the table cannot be read again by itself.", e.table)
            return self.stop_table(e)
        now = time.time_ns() // 1_000_000
        self._state.offset = self._state.offset.forget_set_aside(now)
        if len(self._state.offset.set_aside.get(e.table, ())) >= _PER_DAY:
            log.error(
                "%d events of %s were set aside in a day; the table is not read again by itself.", _PER_DAY, e.table
            )
            return self.stop_table(e)
        event = SetAsideEvent(at_ms=now, error=e.page_name, text=e.message[:_TEXT], position=self._state.position_text)
        log.log(
            logging.WARNING if handling is FailureHandling.WARN else logging.DEBUG,
            "An event of %s after %s is set aside: the table is read again, and capture of all other tables continues. %s: %s",
            e.table, event.position, event.error, e,
        )  # fmt: skip
        self._set_aside(e.table, event, e.where or "", held=known is not None)
        return None

    def _set_aside(self, table: str, event: SetAsideEvent, where: str, *, held: bool) -> None:
        """Mark a table, and record its event.

        :param held: whether the target may hold rows of it
        """
        self._incremental.cancel_reads()
        self._end_scans(table, f"{table} is read as a whole, because an event was set aside")
        queue_notification(
            self._batcher, EVENT, NotificationType.SET_ASIDE, table=table, error=event.error, message=event.text,
            where=where[:_TEXT], position=event.position,
        )  # fmt: skip
        self._state.offset = self._state.offset.set_event_aside(table, event, held=held)

    def stop_table(self, e: TerminalError) -> None:
        """Stop the table that an error names, with the next commit; between transactions only.

        :raises TerminalError: it names no table that could be stopped alone
        """
        if e.table is None or self._tables.is_signal_table(e.table):
            raise e
        log.error("Table %s is stopped; capture of all other tables continues. %s", e.table, e)
        self._incremental.cancel_reads()
        self._end_scans(e.table, f"{e.table} is stopped, because its rows cannot be read")
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

    def _end_scans(self, table: str, why: str) -> None:
        """End the incremental snapshots of a table."""
        state = self._state.incremental_state
        gone = [scan for scan in state.scans if scan.table == table]
        state = state.retain_scans([scan for scan in state.scans if scan.table != table])
        for scan in gone:
            state = state.request_failed(scan.request, why)
            if not any(left.request == scan.request for left in state.scans):
                message, state = state.request_ended(scan.request)
                self._batcher.end_signal(scan.request, SignalState.FAILED, message)
        self._state.incremental_state = state

    def forget_gone(self) -> None:
        """Forget stopped tables that are not captured any more, or that the source does not have any more; and events that were set aside long ago."""
        if repaired := self._state.snapshot_state.repaired_tables:
            excluded = {str(t) for t in self._history.current_tables if not self._tables.is_selected(t)}
            self._state.snapshot_state = self._state.snapshot_state.remove_pending(repaired & excluded)
        self._state.offset = self._state.offset.forget_set_aside(time.time_ns() // 1_000_000)
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
