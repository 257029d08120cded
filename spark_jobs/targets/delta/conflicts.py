"""Delta's ways of saying that another writer was faster."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException

from spark_jobs.targets.base import Conflict, Upkept

_CONFLICTS = (
    "Concurrent",
    "DELTA_CONCURRENT",
    "MetadataChangedException",
    "ProtocolChangedException",
    "DELTA_METADATA_CHANGED",
    "DELTA_PROTOCOL_CHANGED",
    "DELTA_PATH_EXISTS",
)
OF_COLUMNS = ("FIELD_ALREADY_EXISTS", "UNRESOLVED_COLUMN", "FIELD_NOT_FOUND")
"""What ``ALTER TABLE`` says when another run has made the same change a moment before."""


def or_conflict(step: Callable[[], Upkept]) -> Callable[[], Upkept]:
    def work() -> Upkept:
        with conflicts():
            return step()

    return work


@contextlib.contextmanager
def conflicts(*more: str) -> Iterator[None]:
    """
    :param more: words that say so here, besides those that always do
    :raises Conflict: another writer was faster
    """
    try:
        yield
    except (PySparkException, Py4JJavaError) as e:
        if any(word in f"{type(e).__name__} {e}" for word in (*_CONFLICTS, *more)):
            raise Conflict(str(e)) from e
        raise
