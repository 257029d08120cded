"""A reader's side of the messages: it reports signs of life and results, and sees what the capture asks for."""

from __future__ import annotations

import logging
import threading
import time
from types import TracebackType
from typing import Any, Final, Self

from airflow_provider_cdc.changelog.files.storage import Storage
from airflow_provider_cdc.changelog.snapshot_exchange.signed_documents import (
    CAPTURE,
    FOLDER,
    GROUP,
    PLAN,
    Assignment,
    CapturePhase,
    ReaderSign,
    SignedDocuments,
    SnapshotPlan,
)
from airflow_provider_cdc.core.errors import CdcError, TransientError
from airflow_provider_cdc.core.spi.remote_readers import ChunkResult, ChunkTask, ReaderError, ReadGroup

log = logging.getLogger(__name__)

SIGN_S: Final = 2.0
"""Between two signs of life."""
FAST_S: Final = 0.05
POLL_S: Final = 0.3
_LOST_S: Final = 120.0
"""A capture without a sign of life for so long is lost, and its readers end."""


def open_documents(storage: Storage, connector: str, snapshot: str, key: str) -> SignedDocuments:
    """Open the messages of a snapshot.

    :param snapshot: its id
    :param key: secret that the capture has, too
    """
    return SignedDocuments(storage, (connector, FOLDER, snapshot), key)


def read_definition(documents: SignedDocuments) -> dict[str, Any] | None:
    """Read the definition of the connector; ``None`` if the snapshot has ended."""
    plan = documents.read(PLAN, SnapshotPlan)
    return None if plan is None else plan.definition


class ReaderMailbox:
    """Messages of one reader. A context manager.

    :param documents: of the snapshot, see :func:`open_documents`
    :param reader: unique id
    """

    def __init__(self, documents: SignedDocuments, reader: str) -> None:
        self._documents, self.reader = documents, reader
        self._sign = ReaderSign(reader=reader, state="ready")
        self._lock, self._over = threading.Lock(), threading.Event()
        self._beat, self._beat_at = -1, time.monotonic()
        self._ended = False
        self._done = set[tuple[int, int, int]]()
        self._thread = threading.Thread(target=self._report, name="cdc-reader-sign", daemon=True)

    def __enter__(self) -> Self:
        self._send()
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, e: BaseException | None, tb: TracebackType | None) -> None:
        self._over.set()
        self._thread.join()
        with self._lock:
            error = ReaderError.from_exception(e) if isinstance(e, CdcError) else None
            self._sign = self._sign.model_copy(update={"state": "ended", "error": error})
        if not self.is_over():  # otherwise the folder may be gone already
            self._send()

    def read_phase(self) -> CapturePhase:
        """Read the phase of the capture; ``ended``, if the capture is lost or has deleted its messages."""
        phase = self._documents.read(CAPTURE, CapturePhase)
        if phase is None:
            phase = CapturePhase(phase="ended")
        elif phase.beat != self._beat:
            self._beat, self._beat_at = phase.beat, time.monotonic()
        elif time.monotonic() - self._beat_at > _LOST_S:
            log.warning("The capture has given no sign of life for %.0f s: the reader ends.", _LOST_S)
            phase = CapturePhase(phase="ended")
        is_left_out = phase.phase == "reading" and not phase.late and self.reader not in phase.members
        if phase.phase == "ended" or is_left_out:
            self._ended = True
            return CapturePhase(phase="ended")
        return phase

    def is_over(self) -> bool:
        """Check whether the capture wants nothing more of this reader, as of the last sign of life."""
        return self._ended

    def report_view(self, view: int, facts: dict[str, object]) -> None:
        """Report an open view."""
        self._update(state="open", view=view, facts=facts)
        self._send()

    def count_rows(self, group: int, rows: int) -> None:
        """Count rows that were read; they are reported with the next sign of life."""
        self._update(group=group, rows=rows + (self._sign.rows if group == self._sign.group else 0))

    def next_task(self) -> tuple[int, ChunkTask] | None:
        """Return the number of the group and the chunk that are to be read next; ``None`` if there is none now."""
        assignment = self._documents.read(f"assignments/{self.reader}.json", Assignment)
        if assignment is None:
            return None
        for task in assignment.tasks:
            if (assignment.group, task.number, task.attempt) not in self._done:
                return assignment.group, task
        return None

    def read_group(self, number: int) -> ReadGroup | None:
        """Read a group."""
        return self._documents.read(GROUP.format(number=number), ReadGroup)

    def report_result(self, group: int, result: ChunkResult) -> None:
        """Report the result of a chunk."""
        self._done.add((group, result.number, result.attempt))
        self._documents.write(f"results-{group}/{result.number}-{result.attempt}--{self.reader}.json", result)

    def _update(self, **values: object) -> None:
        with self._lock:
            self._sign = self._sign.model_copy(update=values)

    def _send(self) -> None:
        with self._lock:
            self._sign = self._sign.model_copy(update={"beat": self._sign.beat + 1})
            self._documents.write(f"readers/{self.reader}.json", self._sign)

    def _report(self) -> None:
        while not self._over.wait(SIGN_S):
            try:
                if self.read_phase().phase == "ended":
                    return
                self._send()
            except TransientError as e:  # the capture waits longer than one sign
                log.warning("The capture did not get a sign of life: %s", e)
