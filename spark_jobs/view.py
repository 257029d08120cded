"""The state of the change log and of the last report, before any table is read."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from airflow_provider_cdc.changelog.pending import Batches
from airflow_provider_cdc.core.model.manifest import Manifest
from airflow_provider_cdc.core.model.schema import TableId, TableSchema
from spark_jobs.targets.base import NEVER

GROUP_BYTES = 2 << 30
"""About as many bytes of change log are merged at once; a longer backlog takes several commits."""


@dataclass(frozen=True, slots=True)
class View:
    """What is known before any table is read.

    :param start: the batch behind which ``groups`` begin
    :param last: the newest batch
    :param reported: whether all tables except the lagging ones had the batch ``start`` after the last run
    :param stands: as in the last report
    :param lagging: as in the last report
    """

    start: int
    last: int
    groups: list[Batches]
    reported: bool
    stands: dict[str, dict[str, Any]]
    lagging: dict[str, int]

    @property
    def topics(self) -> set[str]:
        return set(self.stands).union(*(group.topics for group in self.groups))

    def idle(self) -> dict[str, dict[str, Any]]:
        """The report's entries of tables without events in new batches; and those that a route gives rows, which may have none in them."""
        new = set[str]().union(*(group.topics for group in self.groups))
        return {t: entry for t, entry in self.stands.items() if t not in new and t not in self.lagging}

    def known(self, topic: str) -> dict[str, Any]:
        return self.stands.get(topic, {"location": "", "batch": NEVER, "stamp": ""})

    def reached(self, topic: str) -> int:
        """The last batch of a table that could not be brought further; or of a topic with a route, up to which its tables are known."""
        there = topic in self.stands or any(entry.get("topic") == topic for entry in self.stands.values())
        return self.lagging.get(topic, self.start if there else 0)

    def table(self, topic: str) -> TableId | None:
        """The table of a topic, by the newest batches."""
        return next((found for group in reversed(self.groups) if (found := group.table(topic))), None)

    def schema(self, topic: str) -> TableSchema | None:
        """The schema of a topic's table, by the newest batches."""
        return next((found for group in reversed(self.groups) if (found := group.schema(topic))), None)

    def source(self, name: str, topic: str = "") -> dict[str, Any]:
        """The table at the source that the report has for a table.

        :param topic: of a table that is called otherwise
        """
        topic = topic or self.known(name).get("topic", name)
        table = self.table(topic)
        full = self.known(name).get("table", "") if table is None else table.full_name
        return {"table": full, "dropped": self._dropped(topic, full, name)}

    def _dropped(self, topic: str, full: str, name: str) -> bool:
        """Whether the source has dropped the table."""
        for group in reversed(self.groups):
            if full in group.dropped:
                return True
            if topic in group.topics:
                return False
        return bool(self.known(name).get("dropped"))


def groups(manifests: list[Manifest]) -> Iterator[list[Manifest]]:
    """Consecutive batches, about :data:`GROUP_BYTES` of files together."""
    group: list[Manifest] = []
    size = 0
    for manifest in manifests:
        group.append(manifest)
        size += sum(f.bytes for f in manifest.files)
        if size >= GROUP_BYTES:
            yield group
            group, size = [], 0
    if group:
        yield group
