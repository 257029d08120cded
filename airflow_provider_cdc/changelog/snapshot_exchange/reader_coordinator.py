"""The capture's side of a snapshot that other processes read: gathers readers, has them open their views, and hands out chunks."""

from __future__ import annotations

import logging
import threading
import time
import uuid
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Any, Final, Literal, Protocol, Self

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
from airflow_provider_cdc.core.errors import CdcError, SourceUnavailable
from airflow_provider_cdc.core.spi.remote_readers import ChunkResult, ChunkTask, ReaderError, ReadGroup

log = logging.getLogger(__name__)

_FAST_S: Final = 0.05
"""Between two looks while writers may be kept away."""
_POLL_S: Final = 0.3
_BEAT_S: Final = 5.0
_LATE_S: Final = 30.0
"""How long the other readers are waited for once the first one has connected."""
_OPENING_S: Final = 5.0
"""How long writers are kept away for readers that do not open their views."""
_ENDING_S: Final = 20.0
_LOST_S: Final = 60.0
"""A reader without a sign of life for so long is lost. Each reports every two seconds."""
_REPLACEMENT_S: Final = 300.0
"""How long a snapshot without readers waits for another one, if that may join late: Spark starts it in the place of one that was lost."""
_AHEAD: Final = 2
"""Chunks that a reader has at once, so that it need not wait for the next one."""


class ReaderJob(Protocol):
    """The job whose processes are the readers."""

    def start(self, snapshot: str, readers: int) -> None:
        """Start it.

        :param snapshot: id of the snapshot, which readers get as an argument
        """

    def find_error(self) -> CdcError | None:
        """Return the error of a job that has ended; ``None`` while it runs."""

    def cancel(self, patience_s: float) -> None:
        """End it.

        :param patience_s: how long it may end by itself before
        """


class _Reader:
    def __init__(self, name: str) -> None:
        self.name, self.sign = name, ReaderSign(reader=name, state="ready")
        self.seen_at = time.monotonic()
        self.tasks = dict[int, ChunkTask]()

    def record_sign(self, sign: ReaderSign) -> None:
        if sign != self.sign:
            self.sign, self.seen_at = sign, time.monotonic()

    @property
    def is_lost(self) -> bool:
        return self.sign.state == "ended" or time.monotonic() - self.seen_at > _LOST_S


class ReaderCoordinator:
    """Implements :class:`airflow_provider_cdc.core.spi.remote_readers.RemoteReaders` by documents in the storage of the change log.

    :param definition: of the connector, without secrets
    :param key: secret that readers have, too
    :param job: whose processes are the readers
    :param count: of readers
    :param patience_s: how long the first reader is waited for: a cluster may have to start
    """

    def __init__(
        self,
        storage: Storage,
        definition: Mapping[str, Any],
        key: str,
        job: ReaderJob,
        count: int,
        *,
        patience_s: float = 1200.0,
    ) -> None:
        self._snapshot, self._plan = uuid.uuid4().hex[:16], SnapshotPlan(definition=dict(definition))
        connector = str(definition["name"])
        storage.delete_folder(storage.join_path(connector, FOLDER))  # of a run that was killed; the lease is this run's
        self._documents = SignedDocuments(storage, (connector, FOLDER, self._snapshot), key)
        self._job, self._count, self._patience_s = job, count, patience_s
        self._phase = CapturePhase(phase="gathering")
        self._readers = dict[str, _Reader]()
        self._group: ReadGroup | None = None
        self._waiting, self._known = deque[ChunkTask](), set[str]()
        self._kept_out = dict[str, set[str]]()
        self._late, self._given_up = False, set[str]()
        self._alone_since: float | None = None
        self._reader_error: ReaderError | None = None
        self._looked_at, self._closed = 0.0, threading.Event()
        self._lock = threading.Lock()
        self._heart = threading.Thread(target=self._beat, name="cdc-snapshot-beat", daemon=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, e: BaseException | None, tb: TracebackType | None) -> None:
        self.close()

    def gather_readers(self, stopped: Callable[[], bool], *, late: bool = False) -> int:
        self._late = late
        self._documents.write(PLAN, self._plan)
        self._begin_phase("gathering")
        self._heart.start()
        self._job.start(self._snapshot, self._count)
        log.info("The snapshot waits for %d readers.", self._count)
        began, first = time.monotonic(), None
        while len(self._readers) < (1 if late else self._count):
            if stopped():
                return 0
            now = time.monotonic()
            self._read_signs()
            if self._readers and first is None:
                first = now
            if first is not None and now - first > _LATE_S:
                log.warning(
                    "%d of %d readers have connected; the snapshot begins with them.", len(self._readers), self._count
                )
                break
            if (error := self._job.find_error()) is not None and not self._readers:
                raise error
            if first is None and now - began > self._patience_s:
                raise self._no_reader(f"No reader has connected to the source within {self._patience_s:.0f} s.")
            time.sleep(_POLL_S)
        log.info("%d readers have connected to the source.", len(self._readers))
        return len(self._readers)

    def open_views(self) -> Sequence[Mapping[str, Any]]:
        self._begin_phase("opening", self._phase.view + 1)
        until = time.monotonic() + _OPENING_S
        while True:
            self._read_signs()
            signs = [reader.sign for reader in self._readers.values()]
            opened = {sign.reader for sign in signs if sign.state == "open" and sign.view == self._phase.view}
            late = self._readers.keys() - opened
            if all(self._readers[name].is_lost for name in late) or time.monotonic() > until:
                break
            time.sleep(_FAST_S)
        for name in late:
            log.warning("Reader %s did not open its view in time; it takes no part in the snapshot.", name)
            del self._readers[name]
        if not self._readers:
            raise self._no_reader(f"No reader has opened a view within {_OPENING_S:.0f} s.")
        return [reader.sign.facts for reader in self._readers.values()]

    def begin_group(self, group: ReadGroup) -> None:
        self._group = group
        self._waiting.clear()
        self._known.clear()
        self._kept_out.clear()
        self._documents.write(GROUP.format(number=group.number), group)
        if self._phase.phase != "reading":
            self._begin_phase("reading", self._phase.view)

    def hand_out(self, tasks: Sequence[ChunkTask]) -> None:
        self._waiting += tasks
        self._assign()

    def collect_results(self) -> list[ChunkResult]:
        assert self._group is not None
        folder, results = f"results-{self._group.number}", list[ChunkResult]()
        names = [name for name in self._documents.list_names(folder) if name not in self._known]
        for name in names:
            result = self._documents.read(name, ChunkResult)
            self._known.add(name)
            reader = self._readers.get(name.rpartition("/")[2].removesuffix(".json").partition("--")[2])
            task = None if reader is None or result is None else reader.tasks.get(result.number)
            if reader is None or result is None or task is None or task.attempt != result.attempt:
                continue  # of a reader that was given up
            del reader.tasks[result.number]
            if result.outcome == "out_of_view" and not self._late:  # elsewhere it is out of the view of all
                self._kept_out.setdefault(task.table, set()).add(reader.name)
                self._waiting.append(task)
            else:
                results.append(result)
        if time.monotonic() - self._looked_at > 2:
            self._looked_at = time.monotonic()
            self._read_signs()
            self._take_back()
        for task in [task for task in self._waiting if self._is_kept_out(task)]:
            self._waiting.remove(task)
            results.append(ChunkResult(number=task.number, attempt=task.attempt, outcome="out_of_view"))
        self._assign()
        if not names:
            time.sleep(_POLL_S)
        return results

    def count_rows(self) -> int:
        number = 0 if self._group is None else self._group.number
        return sum(reader.sign.rows for reader in self._readers.values() if reader.sign.group == number)

    def close(self) -> None:
        if self._closed.is_set():
            return
        self._closed.set()
        try:
            self._begin_phase("ended")
        finally:
            self._job.cancel(_ENDING_S)
            self._documents.delete_all()

    # -- readers ------------------------------------------------------------------------------------------------------

    def _read_signs(self) -> None:
        may_join = self._late or self._phase.phase == "gathering"
        names = (
            self._documents.list_names("readers") if may_join else [f"readers/{name}.json" for name in self._readers]
        )
        for name in names:
            sign = self._documents.read(name, ReaderSign)
            if sign is None or sign.reader in self._given_up:
                continue
            if sign.reader not in self._readers:
                if sign.state == "ended":
                    continue
                if self._phase.phase == "reading":
                    log.info("Reader %s joins the snapshot.", sign.reader)
            self._readers.setdefault(sign.reader, _Reader(sign.reader)).record_sign(sign)

    def _take_back(self) -> None:
        """Hand the chunks of lost readers to others.

        :raises CdcError: no reader is left
        """
        for reader in [reader for reader in self._readers.values() if reader.is_lost]:
            del self._readers[reader.name]
            self._given_up.add(reader.name)
            self._reader_error = error = reader.sign.error
            log.warning(
                "Reader %s is lost; %d readers are left, and read its %d chunks. %s",
                reader.name, len(self._readers), len(reader.tasks), "" if error is None else f"{error.name}: {error.message}",
            )  # fmt: skip
            self._waiting.extendleft(reversed(reader.tasks.values()))
        if self._readers:
            self._alone_since = None
        elif not self._may_be_replaced():
            if self._reader_error is not None:
                raise self._reader_error.to_exception()
            raise self._job.find_error() or self._no_reader("The last reader of the snapshot is lost.")

    def _may_be_replaced(self) -> bool:
        """Check whether another reader may come in the place of the last one."""
        if self._alone_since is None:
            self._alone_since = time.monotonic()
        waited_s = time.monotonic() - self._alone_since
        return self._late and waited_s < _REPLACEMENT_S and self._job.find_error() is None

    def _is_kept_out(self, task: ChunkTask) -> bool:
        """Check whether no reader that is left sees a table as it was."""
        if self._late:
            return False
        return self._readers.keys() <= self._kept_out.get(task.table, set())

    def _assign(self) -> None:
        """Hand waiting chunks to readers that have few."""
        assert self._group is not None
        changed = set[str]()
        for limit in range(1, _AHEAD + 1):
            for reader in self._readers.values():
                task = self._next_task(reader) if len(reader.tasks) < limit else None
                if task is not None:
                    reader.tasks[task.number] = task
                    changed.add(reader.name)
        for name in changed:
            tasks = list(self._readers[name].tasks.values())
            self._documents.write(f"assignments/{name}.json", Assignment(group=self._group.number, tasks=tasks))

    def _next_task(self, reader: _Reader) -> ChunkTask | None:
        for _ in range(len(self._waiting)):
            task = self._waiting.popleft()
            if reader.name not in self._kept_out.get(task.table, ()):
                return task
            self._waiting.append(task)
        return None

    def _begin_phase(self, phase: Literal["gathering", "opening", "reading", "ended"], view: int = 0) -> None:
        with self._lock:
            self._phase = CapturePhase(
                phase=phase, view=view, members=sorted(self._readers), late=self._late, beat=self._phase.beat + 1
            )
            self._documents.write(CAPTURE, self._phase)

    def _beat(self) -> None:
        """Show readers that the capture is alive, also while it streams or commits."""
        while not self._closed.wait(_BEAT_S):
            try:
                with self._lock:
                    if self._closed.is_set():
                        return
                    self._phase.beat += 1
                    self._documents.write(CAPTURE, self._phase)
            except CdcError as e:  # readers wait longer than one beat
                log.warning("The readers of the snapshot did not get a sign of life: %s", e)

    def _no_reader(self, problem: str) -> SourceUnavailable:
        return SourceUnavailable(
            problem,
            where=f"snapshot on Spark, {self._count} readers",
            safe="Tables that were complete before are committed; the offset has not moved past the others.",
            remedy="read the log of the Spark job; executors must reach the source database and the storage of the change log",
        )


__all__ = ["ReaderCoordinator", "ReaderJob"]
