"""The signal channel ``file``: one JSON object per line of ``signal.file``.

See the Debezium connector documents, "File signaling channel".

The run renames the file before it reads it: the renamed file is claimed by this run. Lines are numbered within a claimed file, so that
a line that is read twice, after a crash, has the same origin both times. A claimed file is deleted when all of its signals are recorded
in the state tables and no process can be writing to it any more: a writer that opened the file just before it was renamed still writes to the
renamed one.
"""

from __future__ import annotations

import logging
import os
import re
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from airflow_provider_cdc.channels.signal_parser import read_message
from airflow_provider_cdc.core.config.connector_config import ConnectorConfig
from airflow_provider_cdc.core.errors import ConfigError
from airflow_provider_cdc.core.model.connector_signal import SentSignal
from airflow_provider_cdc.core.signals.signal_request_parser import LARGEST

log = logging.getLogger(__name__)

QUIET_S: Final = 5.0
"""A claimed file that has not changed for so long has no writer any more: its last line is whole, and it may be deleted."""
_LONGEST: Final = 8 * LARGEST
"""Bytes of a line; of a longer one the beginning is read, which is enough to refuse it."""
_AT_ONCE: Final = 1000
"""Signals that are read at a time."""


class FileChannel:
    """Signals from a file that others append lines to.

    :param quiet_s: see :data:`QUIET_S`
    """

    def __init__(self, config: ConnectorConfig, connector: str, *, quiet_s: float = QUIET_S) -> None:
        self._file = Path(config.signal_file).absolute()
        if self._file.is_dir():
            raise ConfigError(
                f"signal.file: {self._file} is a folder.", remedy="set signal.file to a file in this folder"
            )
        self._quiet_s = quiet_s
        self._prefix = f"{self._file.name}.{connector}.taken-"
        self._claimed: list[_ClaimedFile] | None = None
        log.info("Connector %s reads signals from %s.", connector, self._file)

    def poll(self) -> Sequence[SentSignal]:
        if self._claimed is None:
            self._claimed = self._left_behind()
        self._claim(self._claimed)
        signals: list[SentSignal] = []
        for file in self._claimed:
            signals += file.read_signals(_AT_ONCE - len(signals), self._quiet_s)
        self._delete()
        return signals

    def acknowledge(self, signals: Sequence[SentSignal]) -> None:
        origins = {signal.origin for signal in signals}
        for file in self._claimed or ():
            file.waiting = [signal for signal in file.waiting if signal.origin not in origins]
        self._delete()

    def close(self) -> None:
        self._delete()

    def _claim(self, claimed: list[_ClaimedFile]) -> None:
        target = self._file.with_name(f"{self._prefix}{time.time_ns():020d}")
        try:
            if self._file.stat().st_size:
                self._file.rename(target)
                claimed.append(_ClaimedFile(target, self._file.name))
        except FileNotFoundError:
            pass

    def _left_behind(self) -> list[_ClaimedFile]:
        """Files that an earlier run has claimed, oldest first."""
        folder = self._file.parent
        pattern = re.compile(re.escape(self._prefix) + r"\d{20}")
        names = sorted(filter(pattern.fullmatch, os.listdir(folder))) if folder.is_dir() else []
        return [_ClaimedFile(folder / name, self._file.name) for name in names]

    def _delete(self) -> None:
        """Delete files that are read, recorded, and no longer written to."""
        for file in [f for f in self._claimed or () if f.is_finished(self._quiet_s)]:
            file.path.unlink(missing_ok=True)
            assert self._claimed is not None
            self._claimed.remove(file)


class _ClaimedFile:
    """A renamed file, and the position up to which it was read.

    :param name: the name that the file had, for messages
    """

    def __init__(self, path: Path, name: str) -> None:
        self.path, self._name = path, name
        self.waiting: list[SentSignal] = []
        """Signals that are not acknowledged yet."""
        self._offset = self._line = 0
        self._size = -1
        self._changed_at = time.monotonic()

    def read_signals(self, limit: int, quiet_s: float) -> list[SentSignal]:
        """Signals that are not acknowledged; if there are none, the next ones."""
        if self.waiting or limit <= 0:
            return self.waiting
        last_line_is_whole = self._quiet(quiet_s)
        if self._offset >= self._size:
            return []
        with self.path.open("rb") as f:
            f.seek(self._offset)
            while len(self.waiting) < limit and (line := _next_line(f.readline, last_line_is_whole)) is not None:
                self._line += 1
                self._offset = f.tell()
                if text := line.decode("utf-8-sig", "replace").strip():
                    where = f"{self._name} line {self._line}"
                    origin = f"file:{self.path.name}:{self._line}"
                    self.waiting.append(read_message(text, channel="file", where=where, origin=origin))
        return self.waiting

    def is_finished(self, quiet_s: float) -> bool:
        """Check whether everything is read and acknowledged, and nothing more can come."""
        return not self.waiting and self._quiet(quiet_s) and self._offset >= self._size

    def _quiet(self, quiet_s: float) -> bool:
        """Check whether no process writes to the file any more."""
        try:
            status = self.path.stat()
        except FileNotFoundError:  # another process has deleted it
            self._size = self._offset
            return True
        if status.st_size != self._size:
            self._size, self._changed_at = status.st_size, time.monotonic()
        # the clock of the folder's server need not be ours: a file that was watched for long enough is quiet, too
        changed = max(status.st_mtime, int(self.path.name.rpartition("-")[2]) / 1e9)
        return time.time() - changed > quiet_s or time.monotonic() - self._changed_at > quiet_s


def _next_line(readline: Callable[[int], bytes], last_line_is_whole: bool) -> bytes | None:
    """Read the next line, or the beginning of one that is too long.

    ``None`` if there is none, or if it is still being written.
    """
    line = rest = readline(_LONGEST)
    while rest and not rest.endswith(b"\n") and (len(rest) == _LONGEST):
        rest = readline(_LONGEST)
    if not line or not ((rest or line).endswith(b"\n") or last_line_is_whole):
        return None
    return line
