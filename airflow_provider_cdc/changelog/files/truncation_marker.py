"""Marks of the first batch that is kept: batches before it are removed, or are being removed.

A mark is a file with the number of the first batch in its name, created only if it does not exist, *before* anything is deleted. The highest one
counts, so that it never goes back, whichever processes remove at the same time. The marks before it stay until everything between them and it is deleted:
where there are several, a removal was killed, and the next one continues it.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

import orjson

from airflow_provider_cdc.changelog.files.storage import Storage
from airflow_provider_cdc.core.model.batch_manifest import Manifest
from airflow_provider_cdc.core.model.table_schema import TableChange, TableId

log = logging.getLogger(__name__)

FOLDER = "kept"


@dataclass(frozen=True, slots=True)
class RemovedTopic:
    """The known facts of the events of one topic before a mark.

    :param last: the last batch that had something of it
    :param table: its table at the source then
    """

    last: int
    table: TableId


@dataclass(frozen=True, slots=True)
class TruncationMarker:
    """The batch from which on the change log is kept, and the content of the batches before it.

    :param first: number of this batch
    :param topics: those that had something in the batches before it; ``None`` if that is not known
    :param dropped: full names of tables that the source had dropped by then, and not made again
    :param renamed: full names that tables had given up by then, and no other one has got
    :param at: when it was made, in ISO form
    :param why: for people, after *were removed*
    """

    first: int
    topics: Mapping[str, RemovedTopic] | None = None
    dropped: frozenset[str] = frozenset()
    renamed: frozenset[str] = frozenset()
    at: str = ""
    why: str = ""

    def may_lack(self, topic: str, after: int = 0) -> bool:
        """Check whether there may have been something of a topic before the first batch.

        :param after: only batches after this one count
        """
        return self.topics is None or (topic in self.topics and self.topics[topic].last > after)

    def include_batch(self, manifest: Manifest | None) -> TruncationMarker:
        """Return the same mark, with the content of one more batch.

        :param manifest: of the next batch; ``None`` if its content is not known any more
        """
        if manifest is None:
            return replace(self, topics=None)
        dropped, renamed = set(self.dropped), set(self.renamed)
        for change in (change for record in manifest.schema_changes for change in record.changes):
            track_table_names(change, dropped, renamed)
        topics = None if self.topics is None else {**self.topics, **_topics(manifest)}
        return replace(self, topics=topics, dropped=frozenset(dropped), renamed=frozenset(renamed))

    def to_document(self) -> dict[str, Any]:
        """Return the mark as JSON; :meth:`from_document` is the way back."""
        topics = None
        if self.topics is not None:
            topics = {
                topic: [gone.last, gone.table.namespace, gone.table.name, gone.table.catalog]
                for topic, gone in sorted(self.topics.items())
            }
        return {
            "first": self.first, "at": self.at, "why": self.why, "topics": topics, "dropped": sorted(self.dropped), "renamed": sorted(self.renamed),
        }  # fmt: skip

    @classmethod
    def from_document(cls, first: int, document: Any) -> TruncationMarker:
        """Parse the JSON document of a mark.

        :raises ValueError: it is no document of a mark
        :raises TypeError: the same
        :raises KeyError: the same
        """
        topics = document["topics"]
        if topics is not None:
            topics = {
                str(topic): RemovedTopic(int(last), TableId(namespace=namespace, name=name, catalog=catalog))
                for topic, (last, namespace, name, catalog) in dict(topics).items()
            }
        dropped, renamed = (frozenset(map(str, document[name])) for name in ("dropped", "renamed"))
        return cls(first, topics, dropped, renamed, str(document["at"]), str(document["why"]))


def track_table_names(change: TableChange, dropped: set[str], renamed: set[str]) -> None:
    """Keep account of the names of tables that are not there any more.

    :param dropped: full names of those that were dropped
    :param renamed: of those that are called otherwise now
    """
    name = change.id.full_name
    if change.type == "DROP":
        dropped.add(name)
        renamed.discard(name)
        return
    dropped.discard(name)
    renamed.discard(name)
    if change.previous_id is not None and change.previous_id != change.id:
        renamed.add(change.previous_id.full_name)


def _topics(manifest: Manifest) -> dict[str, RemovedTopic]:
    tables = {topic: versions[max(versions, key=int)].id for topic, versions in manifest.schemas.items() if versions}
    return {topic: RemovedTopic(manifest.batch, table) for topic, table in tables.items()}


class TruncationMarkers:
    """The marks of one connector.

    >>> TruncationMarkers(changelog.storage, "shop").find_newest_number()
    1204
    """

    def __init__(self, storage: Storage, connector: str) -> None:
        self._storage, self._folder = storage, storage.join_path(connector, FOLDER)

    def list_numbers(self) -> list[int]:
        """List the numbers of all marks, ascending; one request."""
        names = (name.removesuffix(".json") for name in self._storage.list(self._folder) if name.endswith(".json"))
        return sorted(int(name) for name in names if name.isdigit())

    def find_newest_number(self) -> int:
        """Return the number of the highest mark; 0 if there is none."""
        return max(self.list_numbers(), default=0)

    def read_newest(self) -> TruncationMarker | None:
        """Read the highest mark; ``None`` if there is none.

        The content of one that cannot be read is not known.
        """
        first = self.find_newest_number()
        return self.read_marker(first) if first else None

    def read_marker(self, first: int) -> TruncationMarker:
        """Read the content of a mark."""
        data = self._storage.read(self._path(first))
        try:
            return TruncationMarker.from_document(first, orjson.loads(data or b""))
        except (ValueError, TypeError, KeyError) as e:
            log.warning(
                "The truncation marker %s cannot be read, and its details are ignored: %s", self._path(first), e
            )
            return TruncationMarker(first)

    def create_marker(self, mark: TruncationMarker) -> None:
        """Make a mark; one with this number may be there already."""
        document = {**mark.to_document(), "at": mark.at or datetime.now(UTC).isoformat(timespec="seconds")}
        with contextlib.suppress(FileExistsError):
            self._storage.create(self._path(mark.first), orjson.dumps(document))

    def delete_older(self, first: int) -> None:
        """Delete the marks before one: everything between them and it is deleted."""
        for number in self.list_numbers():
            if number < first:
                self._storage.delete(self._path(number))

    def delete_all(self) -> None:
        """Delete all marks; with everything else of the connector."""
        self._storage.delete_folder(self._folder)

    def _path(self, first: int) -> str:
        return f"{self._folder}/{first:012d}.json"
