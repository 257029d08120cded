"""Records the work in progress of a connector.

There is a small file for each work, in the change log's storage: ``<connector>/work/``.

Captures, Spark jobs, pages and commands all reach the storage, and have no other place in common. Who is killed leaves its file behind, with the
time of its last sign of life.
"""

from __future__ import annotations

import hashlib
import re
import time

import orjson

from airflow_provider_cdc.changelog.files.liveness_file_parser import read_sign
from airflow_provider_cdc.changelog.files.storage import Storage
from airflow_provider_cdc.core.model.job_progress import JobProgress

FOLDER = "work"
DEAD_S = 120.0
"""Work without a sign of life for so long is over. Clocks of machines may differ by less than that."""


class JobProgressBoard:
    """The works of one connector; implements :class:`airflow_provider_cdc.core.reporting.progress_reporter.ProgressBoard`.

    >>> [work.text for work in JobProgressBoard(storage, "shop").list_work()]
    ['Snapshot: 3,200,000 rows (24 %), 81,000 rows/s, about 2 min left; now shop.orders']
    """

    def __init__(self, storage: Storage, connector: str) -> None:
        self._storage, self._folder = storage, (connector, FOLDER)

    def show_progress(self, work: JobProgress) -> None:
        self._storage.replace(self._path(work), orjson.dumps(work.to_document()))

    def clear_progress(self, work: JobProgress) -> None:
        self._storage.delete(self._path(work))

    def list_work(self) -> list[JobProgress]:
        """Return the work in progress, the oldest first.

        :raises StorageUnavailable: the storage does not answer
        """
        names = self._storage.list(self._storage.join_path(*self._folder))
        entries = [work for name in names if (work := self._read(name)) is not None]
        return sorted(entries, key=lambda work: (work.began_at, work.name, work.where))

    def _read(self, name: str) -> JobProgress | None:
        """Read a work that is alive."""
        sign = read_sign(self._storage.read(self._storage.join_path(*self._folder, name)))
        if sign is None or abs(time.time() - sign["at"]) >= DEAD_S:
            return None
        try:
            return JobProgress.from_document(sign)
        except KeyError:  # of another release
            return None

    def _path(self, work: JobProgress) -> str:
        name = re.sub(r"[^a-z0-9]+", "-", work.name.lower())
        digest = hashlib.sha256(work.where.encode()).hexdigest()[:12]
        return self._storage.join_path(*self._folder, f"{name}-{digest}.json")
