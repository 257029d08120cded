"""The rows of the signal table that say in the log where a window opens and closes."""

from __future__ import annotations

import uuid

from airflow_provider_cdc.core.incremental.windows import Window
from airflow_provider_cdc.core.signals.requests import WINDOW_CLOSE, WINDOW_OPEN
from airflow_provider_cdc.core.spi.chunk_reader import ChunkReader


class Watermarks:
    """Writes them, where they are written.

    :param written: otherwise positions of the log say it
    :param by_deletion: a window is closed by deleting the row that has opened it
    """

    def __init__(self, *, written: bool, by_deletion: bool) -> None:
        self._written, self._by_deletion = written, by_deletion

    def open(self, reader: ChunkReader, window: Window) -> None:
        """A window opens."""
        if self._written:
            window.marker = str(uuid.uuid4())
            reader.write(f"{window.marker}-open", WINDOW_OPEN)

    def close(self, reader: ChunkReader, window: Window) -> None:
        """A window, whose rows are there, closes."""
        if window.marker is not None:
            # the rows are there before the marker that closes the window can come back
            self._close(reader, window.marker)
            window.bound = reader.end_of_log()

    def tried(self, reader: ChunkReader) -> None:
        """Test that they can be written."""
        if self._written:
            marker = str(uuid.uuid4())
            reader.write(f"{marker}-open", WINDOW_OPEN)
            self._close(reader, marker)

    def _close(self, reader: ChunkReader, marker: str) -> None:
        if self._by_deletion:
            reader.remove(f"{marker}-open")
        else:
            reader.write(f"{marker}-close", WINDOW_CLOSE)
