"""The rows of the signal table that say in the log where a window opens and closes."""

from __future__ import annotations

import uuid

from airflow_provider_cdc.core.incremental.chunk_windows import ChunkWindow
from airflow_provider_cdc.core.signals.signal_request_parser import WINDOW_CLOSE, WINDOW_OPEN
from airflow_provider_cdc.core.spi.chunk_reader import ChunkReader


class WatermarkWriter:
    """Writes them, where they are written.

    :param written: otherwise positions of the log say it
    :param by_deletion: a window is closed by deleting the row that has opened it
    """

    def __init__(self, *, written: bool, by_deletion: bool) -> None:
        self._written, self._by_deletion = written, by_deletion

    def open_window(self, reader: ChunkReader, window: ChunkWindow) -> None:
        """Open a window."""
        if self._written:
            window.marker = str(uuid.uuid4())
            reader.insert_signal_row(f"{window.marker}-open", WINDOW_OPEN)

    def close_window(self, reader: ChunkReader, window: ChunkWindow) -> None:
        """Close a window whose rows are there."""
        if window.marker is not None:
            # the rows are there before the marker that closes the window can come back
            self._close(reader, window.marker)
            window.bound = reader.end_of_log()

    def check_writable(self, reader: ChunkReader) -> None:
        """Test that they can be written."""
        if self._written:
            marker = str(uuid.uuid4())
            reader.insert_signal_row(f"{marker}-open", WINDOW_OPEN)
            self._close(reader, marker)

    def _close(self, reader: ChunkReader, marker: str) -> None:
        if self._by_deletion:
            reader.delete_signal_row(f"{marker}-open")
        else:
            reader.insert_signal_row(f"{marker}-close", WINDOW_CLOSE)
