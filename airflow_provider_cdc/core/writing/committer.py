"""Decides when a batch is committed: by rows, bytes or time, between transactions."""

from __future__ import annotations

import time
from typing import Final

from airflow_provider_cdc.core.config.connector import ConnectorConfig
from airflow_provider_cdc.core.signals.signal_table import SignalTable
from airflow_provider_cdc.core.writing.batch import Batcher
from airflow_provider_cdc.core.writing.event_writer import EventWriter
from airflow_provider_cdc.core.writing.snapshot_notifications import incremental_progress
from airflow_provider_cdc.core.writing.state import CaptureState

_CHUNKS_MS: Final = 10_000
"""How often rows of incremental snapshots are committed, if ``batch.max.ms`` is longer."""


class Committer:
    """Commits batches, and the state with them."""

    def __init__(
        self,
        config: ConnectorConfig,
        state: CaptureState,
        batcher: Batcher,
        writer: EventWriter,
        signals: SignalTable,
    ) -> None:
        self._config, self._state, self._batcher, self._writer, self._signals = config, state, batcher, writer, signals
        self._committed_at = time.monotonic()

    @property
    def full(self) -> bool:
        """Whether the batch has as many rows or bytes as it may have."""
        config = self._config
        return self._batcher.rows >= config.batch_max_rows or self._batcher.bytes >= config.batch_max_bytes

    def commit(self) -> None:
        """Make everything so far durable.

        :raises CommitConflict: another run committed a batch of this number first
        :raises LeaseLost: another run took over
        """
        if not self._writer.open:
            self._signals.keep()
        incremental = self._state.incremental
        if incremental.scans and incremental != self._batcher.offset.incremental:
            incremental_progress(self._batcher, incremental)
        self._batcher.commit(self._state.offset)
        self._state.offset = self._batcher.offset
        self._committed_at = time.monotonic()

    def commit_if_due(self) -> None:
        """Close the batch by rows, bytes or time. By time the offset moves even if there was nothing to capture."""
        age_ms = (time.monotonic() - self._committed_at) * 1000
        longest = self._config.batch_max_ms
        if self._state.incremental.active:
            longest = min(longest, _CHUNKS_MS)
        if self.full or age_ms >= longest:
            self.commit()

    def commit_if_closed(self) -> None:
        """Make everything so far durable, unless it ends within a transaction."""
        if not self._writer.open:
            self.commit()

    def advance(self) -> None:
        """Make the offset durable if that needs no batch."""
        if self._batcher.empty:
            self.commit()

    def abandon(self) -> None:
        """Go back to what is committed."""
        self._writer.abandon()
        self._state.offset = self._batcher.offset
