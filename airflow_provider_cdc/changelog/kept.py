"""Marks of the first batch that is kept: what is before it is removed, or is being removed.

A mark is a file with the number of the first batch in its name, created only if it does not exist, *before* anything is deleted. The highest one
counts, so that it never goes back, whoever removes at the same time. The marks before it stay until everything between them and it is deleted:
where there are several, a removal was killed, and the next one goes on with it.
"""

from __future__ import annotations

import contextlib
import logging
from dataclasses import dataclass
from datetime import UTC, datetime

import orjson

from airflow_provider_cdc.changelog.storage import Storage

log = logging.getLogger(__name__)

FOLDER = "kept"


@dataclass(frozen=True, slots=True)
class Mark:
    """From which batch on the change log is kept.

    :param first: number of this batch
    :param topics: those that had something in the batches before it; ``None`` if that is not known
    :param at: when it was made, in ISO form
    :param why: for people, after *were removed*
    """

    first: int
    topics: frozenset[str] | None = None
    at: str = ""
    why: str = ""

    def may_lack(self, topic: str) -> bool:
        """Whether there may have been something of a topic before the first batch."""
        return self.topics is None or topic in self.topics


class Kept:
    """The marks of one connector.

    >>> Kept(changelog.storage, "shop").first()
    1204
    """

    def __init__(self, storage: Storage, connector: str) -> None:
        self._storage, self._folder = storage, storage.path(connector, FOLDER)

    def numbers(self) -> list[int]:
        """The numbers of all marks, ascending; one request."""
        names = (name.removesuffix(".json") for name in self._storage.list(self._folder) if name.endswith(".json"))
        return sorted(int(name) for name in names if name.isdigit())

    def first(self) -> int:
        """The number of the highest mark; 0 if there is none."""
        return max(self.numbers(), default=0)

    def newest(self) -> Mark | None:
        """The highest mark; ``None`` if there is none. What is in one that cannot be read is not known."""
        first = self.first()
        return self.mark(first) if first else None

    def mark(self, first: int) -> Mark:
        """What is in a mark."""
        data = self._storage.read(self._path(first))
        try:
            found = orjson.loads(data or b"")
            topics = found["topics"]
            known = None if topics is None else frozenset(map(str, topics))
            return Mark(first, known, str(found["at"]), str(found["why"]))
        except (ValueError, TypeError, KeyError) as e:
            log.warning(
                "The mark %s cannot be read, and is taken for one that says nothing more: %s", self._path(first), e
            )
            return Mark(first)

    def add(self, mark: Mark) -> None:
        """Make a mark; one with this number may be there already."""
        topics = None if mark.topics is None else sorted(mark.topics)
        at = mark.at or datetime.now(UTC).isoformat(timespec="seconds")
        document = {"first": mark.first, "at": at, "why": mark.why, "topics": topics}
        with contextlib.suppress(FileExistsError):
            self._storage.create(self._path(mark.first), orjson.dumps(document))

    def settle(self, first: int) -> None:
        """Delete the marks before one: everything between them and it is deleted."""
        for number in self.numbers():
            if number < first:
                self._storage.delete(self._path(number))

    def forget(self) -> None:
        """Delete all marks; with everything else of the connector."""
        self._storage.delete_folder(self._folder)

    def _path(self, first: int) -> str:
        return f"{self._folder}/{first:012d}.json"
