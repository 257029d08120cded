"""Decides when a batch is committed: by rows, bytes or time, between transactions."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

from airflow_provider_cdc.core.config.connector_config import ConnectorConfig
from airflow_provider_cdc.core.model.position import Position
from airflow_provider_cdc.core.signals.signal_table_reader import SignalTableReader
from airflow_provider_cdc.core.writing.batch_builder import BatchBuilder
from airflow_provider_cdc.core.writing.capture_state import CaptureState
from airflow_provider_cdc.core.writing.carry_over_store import StoredCarryOver
from airflow_provider_cdc.core.writing.event_writer import EventWriter
from airflow_provider_cdc.core.writing.snapshot_notifications import incremental_progress

_CHUNKS_MS: Final = 10_000
"""How often rows of incremental snapshots are committed, if ``batch.max.ms`` is longer."""
_OFFSET_S: Final = 10.0
"""How often the offset alone is made durable at most: it moves all the time where others write to tables that are not captured."""


class Committer:
    """Commits batches, and the state with them.

    :param confirm: takes each position when it is durable (``Source.confirm_position``)
    """

    def __init__(
        self,
        config: ConnectorConfig,
        state: CaptureState,
        batcher: BatchBuilder,
        writer: EventWriter,
        signals: SignalTableReader,
        confirm: Callable[[Position], None],
        carrier: StoredCarryOver | None = None,
    ) -> None:
        self._config, self._state, self._batcher, self._writer, self._signals = config, state, batcher, writer, signals
        self._confirm, self._carrier = confirm, carrier
        self._committed_at = self._ticked_at = time.monotonic()

    @property
    def due_in_s(self) -> float:
        """Seconds until events that wait now are committed, however many come in between. Not more than 0 if they are due."""
        longest_ms = self._config.batch_max_ms
        if self._state.incremental_state.is_active:
            longest_ms = min(longest_ms, _CHUNKS_MS)
        return self._ticked_at + longest_ms / 1000 - time.monotonic()

    @property
    def has_uncommitted_events(self) -> bool:
        """True if there are events that could be committed now."""
        return not self._batcher.is_empty and not self._writer.open

    @property
    def is_batch_full(self) -> bool:
        """True if the batch has as many rows or bytes as it may have."""
        config = self._config
        return self._batcher.rows >= config.batch_max_rows or self._batcher.buffered_bytes >= config.batch_max_bytes

    def commit(self) -> None:
        """Make everything so far durable.

        :raises CommitConflict: another run committed a batch of this number first
        :raises LeaseLost: another run took over
        """
        if not self._writer.open:
            self._signals.record_signals()
        incremental = self._state.incremental_state
        if incremental.scans and incremental != self._batcher.committed_offset.incremental:
            incremental_progress(self._batcher, incremental)
        self._batcher.commit(self._state.offset)
        self._writer.record_commit()
        self._state.offset = self._batcher.committed_offset
        if self._carrier is not None:
            self._carrier.record_commit(self._state.offset.carried)
        if self._state.offset.position is not None:
            self._confirm(self._state.current_position)
        self._committed_at = self._ticked_at = time.monotonic()

    def commit_if_due(self) -> None:
        """Close the batch by rows, bytes or time. By time the offset moves even if there was nothing to capture."""
        if not self.is_batch_full and self.due_in_s > 0:
            return
        if self._batcher.is_empty and time.monotonic() - self._committed_at < _OFFSET_S:
            self._ticked_at = time.monotonic()
        else:
            self.commit()

    def commit_if_closed(self) -> None:
        """Make everything so far durable, unless it ends within a transaction."""
        if not self._writer.open:
            self.commit()

    def advance_offset(self) -> None:
        """Make the offset durable if that needs no batch."""
        if self._batcher.is_empty:
            self.commit()

    def discard_uncommitted(self) -> None:
        """Go back to the committed state."""
        self._writer.discard_uncommitted()
        self._state.offset = self._batcher.committed_offset
