"""Takes signals and has them carried out.

Signals are taken between transactions, in the order of their numbers; the offset remembers the last one. An error of
a signal becomes its state and message; it never ends the run.
"""

from __future__ import annotations

import logging
import time

from airflow_provider_cdc.core.capture.control_poller import ControlPoller
from airflow_provider_cdc.core.capture.signal_handling.signal_actions import SignalActions
from airflow_provider_cdc.core.capture.signal_handling.signal_receiver import receive_signals
from airflow_provider_cdc.core.error_texts import describe_error
from airflow_provider_cdc.core.incremental.incremental_coordinator import IncrementalCoordinator
from airflow_provider_cdc.core.model.connector_signal import Signal, SignalState
from airflow_provider_cdc.core.signals.signal_request_parser import SignalRejected
from airflow_provider_cdc.core.signals.signal_table_reader import SignalTableReader
from airflow_provider_cdc.core.spi.capture_run_inputs import RunInputs
from airflow_provider_cdc.core.writing.run_output import RunOutput
from airflow_provider_cdc.core.writing.snapshot_notifications import reject_signal

log = logging.getLogger(__name__)


class SignalProcessor:
    """Takes the signals of one run.

    :param table: finds the signals in the rows of the signal table
    """

    def __init__(
        self,
        inputs: RunInputs,
        output: RunOutput,
        table: SignalTableReader,
        actions: SignalActions,
        incremental: IncrementalCoordinator,
        watch: ControlPoller,
    ) -> None:
        self._config = config = inputs.config
        self._connector, self._store, self._channels = inputs.name, inputs.store, inputs.signal_channels
        self._state, self._batcher, self._committer = output.state, output.batcher, output.committer
        self._table, self._actions, self._incremental, self._watch = table, actions, incremental, watch
        self._interval_s = config.signal_poll_interval_ms / 1000
        self._enabled = {*config.signal_enabled_channels, "repair"}
        self._ids: dict[int, str] = {}
        self._looked = 0.0

    def process_if_due(self) -> None:
        """Take new signals, if the log has brought one or it is time to poll the channels."""
        if self._table.has_unrecorded_signals or time.monotonic() - self._looked >= self._interval_s:
            self.process_signals()

    def process_signals(self) -> None:
        """Take new signals; between transactions only."""
        self._looked = time.monotonic()
        self._watch.poll_control()
        self._table.record_signals()
        receive_signals(self._connector, self._channels, self._config, self._store)
        waiting = list(self._store.list_signals(self._connector, self._state.offset.signal))
        if not waiting:
            return
        self._committer.commit()  # before a signal is carried out: an error in committing earlier events is not the signal's
        for signal in waiting:
            self._process(signal)
            self._state.record_signal(signal.number)
        self._committer.commit()
        self._incremental.schedule_tables(self._state.incremental_state)

    def fail_lost(self) -> None:
        """Have signals fail whose work is neither in the offset nor ended: state tables that were put back, or tables that are gone.

        Called before the run takes signals.
        """
        offset = self._batcher.committed_offset
        working = {*offset.snapshot.request_numbers.values(), *(scan.request for scan in offset.incremental.scans)}
        message = "The result of the signal is not known: the connector's offset contains no work of this signal. If its tables were not read, send the signal again."
        lost = self._store.fail_lost_signals(self._connector, upto=offset.signal, requests=working, message=message)
        if lost:
            log.warning("Signals %s failed. %s", ", ".join(map(str, lost)), message)

    def fail_requests(self, requests: set[int], reason: str) -> None:
        """End the signals of requests that failed before their end."""
        for number in requests:
            reject_signal(
                self._batcher, Signal(number, self._ids.get(number, ""), "execute-snapshot"), reason, SignalState.FAILED
            )

    def _process(self, signal: Signal) -> None:
        name, number, channel = signal.id or "without an id", signal.number, signal.channel
        log.info("Signal %s (number %d) from %s: %s.", name, number, channel, signal.type)
        if channel not in self._enabled:
            reject_signal(self._batcher, signal, f"the channel {channel} is not in signal.enabled.channels")
            return
        try:
            message = self._actions.carry_out(signal)
        except SignalRejected as e:
            log.warning("Signal %s is refused: %s", signal.id or number, e)
            reject_signal(self._batcher, signal, str(e))
        except Exception as e:
            log.exception("Signal %s failed; capture continues.", signal.id or number)
            reject_signal(self._batcher, signal, describe_error(e), SignalState.FAILED)
        else:
            if message is None:
                self._ids[number] = signal.id
                self._store.set_signal_state(self._connector, number, SignalState.RUNNING)
            else:
                self._batcher.end_signal(number, SignalState.DONE, message)
