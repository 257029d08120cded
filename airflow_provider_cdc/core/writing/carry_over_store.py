"""Keeps the files in which a source carries something over.

They are fenced by the lease, valid by the offset, gone when no offset names them.

Names begin with the epoch of the lease, and have a part that only this run has. A run deletes only its files and those of earlier epochs,
so that one that wakes up late leaves those of the run that took over. The conditions of a state are part of it: it is given back under the
same ones only.
"""

from __future__ import annotations

import hashlib
import logging
import time
import uuid
import zlib
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any, Final

import orjson

from airflow_provider_cdc import __version__
from airflow_provider_cdc.core.errors import StorageUnavailable
from airflow_provider_cdc.core.model.connector_offset import CarriedFile
from airflow_provider_cdc.core.spi.carry_over import CarryOverFiles, CarryOverLost

log = logging.getLogger(__name__)

FORM: Final = 1
"""Version of the form of a state's file."""
_LEFT_OUT: Final = "tables that are left out"
_EVERY_S: Final = 30.0
"""Interval at which a stream that continues stores its state: if the run dies, the rows since then are read again."""
_LAST_S: Final = 10.0
"""So long before the end of a run it puts one wherever it can."""


class StoredCarryOver:
    """State that the source of one run carries; implements :class:`airflow_provider_cdc.core.spi.carry_over.CarryOver`.

    :param committed: the file that the committed offset names
    :param epoch: of the run's lease
    :param properties: of the connector, without secrets
    :param left_s: returns the seconds until the run is to end; ``None``: not known
    """

    def __init__(
        self,
        files: CarryOverFiles,
        committed: CarriedFile | None,
        epoch: int,
        properties: dict[str, Any],
        left_s: Callable[[], float | None] = lambda: None,
    ) -> None:
        self._files, self._epoch, self._left_s = files, epoch, left_s
        self._writer = uuid.uuid4().hex[:12]
        digest = hashlib.sha256(orjson.dumps(properties, option=orjson.OPT_SORT_KEYS, default=str)).hexdigest()
        self._conditions: dict[str, Any] = {"release": __version__, "properties": digest, _LEFT_OUT: []}
        self._current = self._committed = committed
        self._sizes: dict[str, int] | None = None
        self._named: dict[str, set[str]] = {}  # a state's file → it and those that it names
        self._numbers, self._put_at = 0, time.monotonic()

    def start_stream(self, carried: CarriedFile | None, left_out: Collection[str]) -> None:
        """Begin a stream.

        :param carried: the file that the offset names
        :param left_out: tables that are left out of the stream
        :raises StorageUnavailable: the storage does not answer
        """
        self._current, self._conditions[_LEFT_OUT] = carried, sorted(left_out)
        if self._sizes is None:
            self._sweep()

    def record_commit(self, carried: CarriedFile | None) -> None:
        """Delete the files that an offset, which was committed, does not name.

        :param carried: the file that it names
        """
        if self._sizes is None:
            return
        self._committed, named = carried, set[str]()
        # the state that the source has stored last is kept, too: the next offset may name it
        for file in filter(None, (carried, self._current)):
            if file.name not in self._named:  # it could not be read: the files that it needs are unknown
                return
            named |= self._named[file.name]
        self._keep(named)

    # -- interface for the source -------------------------------------------------------------------------------------

    @property
    def has_state(self) -> bool:
        return self._current is not None

    @property
    def is_due(self) -> bool:
        left = self._left_s()
        return time.monotonic() - self._put_at >= _EVERY_S or (left is not None and left <= _LAST_S)

    def load_state(self) -> dict[str, Any] | None:
        if self._current is None:
            return None
        document = self._document(self._current)
        differing = [name for name, value in self._conditions.items() if document["conditions"].get(name) != value]
        if differing:
            raise CarryOverLost(f"it was stored under other conditions ({', '.join(differing)})")
        sizes = self._sizes or {}
        if missing := [name for name, size in document["files"].items() if sizes.get(name) != size]:
            raise CarryOverLost(f"{len(missing)} of its files are missing or truncated, for example {missing[0]}")
        state: dict[str, Any] = document["state"]
        return state

    def read_part(self, name: str, start: int, size: int) -> bytes:
        data = self._files.read(name, start, size)
        if data is None:
            raise CarryOverLost(f"its file {name} is missing")
        if len(data) != size:
            raise CarryOverLost(f"its file {name} ends at byte {start + len(data)} instead of {start + size}")
        return data

    def write_file(self, parts: Iterable[bytes]) -> CarriedFile:
        return self._write("rows", parts)

    def store_state(self, state: dict[str, Any], files: Sequence[CarriedFile]) -> CarriedFile:
        names = {file.name: file.bytes for file in files}
        document = {"form": FORM, "conditions": self._conditions, "files": names, "state": state}
        self._current = file = self._write("state", [zlib.compress(orjson.dumps(document), 1)])
        self._named[file.name], self._put_at = {file.name, *names}, time.monotonic()
        return file

    def clear_state(self) -> None:
        self._current = None

    def discard_files(self, files: Iterable[CarriedFile]) -> None:
        self._delete(file.name for file in files)

    # -- files --------------------------------------------------------------------------------------------------------

    def _write(self, kind: str, parts: Iterable[bytes]) -> CarriedFile:
        self._numbers += 1
        name = f"{self._epoch}-{self._writer}-{self._numbers:06d}.{kind}"
        file = self._files.write(name, parts)
        assert self._sizes is not None
        self._sizes[name] = file.bytes
        return file

    def _document(self, file: CarriedFile) -> dict[str, Any]:
        data = self._files.read(file.name)
        if data is None:
            raise CarryOverLost(f"its file {file.name} is missing")
        if len(data) != file.bytes or zlib.crc32(data) != file.crc32:
            raise CarryOverLost(f"its file {file.name} is damaged")
        document: dict[str, Any] = orjson.loads(zlib.decompress(data))
        if document.get("form") != FORM:
            raise CarryOverLost(f"it has format {document.get('form')}, and this release supports {FORM}")
        return document

    def _sweep(self) -> None:
        """List the files, and delete those of killed runs: nothing names them. Done once in a run."""
        self._sizes, state = self._files.list_sizes(), self._committed
        try:
            named = {state.name, *self._document(state)["files"]} if state is not None else set()
        except CarryOverLost as e:
            # which files are needed is not known, if this run is no more the one to know: they are deleted after its next commit
            log.debug("The carried transactions cannot be read: %s", e)
            return
        if state is not None:
            self._named[state.name] = named
        if gone := self._keep(named):
            log.info("Deleted %d files of interrupted runs.", gone)

    def _keep(self, names: set[str]) -> int:
        """Delete all other files. Those of later epochs stay: they are of a run that took over."""
        assert self._sizes is not None
        gone = [name for name in self._sizes if name not in names and _epoch(name) <= self._epoch]
        self._delete(gone)
        return len(gone)

    def _delete(self, names: Iterable[str]) -> None:
        """Delete files. Those that cannot be deleted now are garbage that the next run deletes."""
        assert self._sizes is not None
        try:
            for name in sorted(names):
                self._files.delete(name)
                self._sizes.pop(name, None)
        except StorageUnavailable as e:
            log.warning("Unneeded files could not be deleted; the next run deletes them: %s", e)


def _epoch(name: str) -> float:
    """Return the epoch in a file's name; that of a name which is none of ours is never over."""
    head = name.partition("-")[0]
    return int(head) if head.isdigit() else float("inf")


__all__ = ["StoredCarryOver"]
