"""A table that an apply works on: whose rows it has, and where it is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from airflow_provider_cdc.changelog.reports.apply_report import TableState, TargetTableEntry
from airflow_provider_cdc.targets.lake.rules.row_routing import RouteBranch


@dataclass(frozen=True, slots=True)
class TargetTable:
    """A target table of a topic.

    :param name: its name in reports: its topic, or where a route brings rows of its topic to several tables, that and its location
    :param shared: it has rows of other topics, too
    :param place: of a table that has some of its topic's rows only
    :param begins_after: the batch after which a new table begins: no row of the topic has gone to this place before, or none that counts; 0 if that is not known
    :param lacks: before that there were events of it which are removed from the change log
    :param touched: whether rows of new batches come to it or go from it, as far as that is known
    :param texts: of a shared table, the columns that have one text in all rows of this topic: the one that distinguishes them from those of other topics,
        and others; ``None`` if they are not known
    """

    name: str
    topic: str
    location: str
    shared: bool = False
    place: RouteBranch | None = None
    begins_after: int = 0
    lacks: bool = False
    touched: bool = True
    texts: Mapping[str, str] | None = None

    @classmethod
    def from_route(
        cls, topic: str, location: str, place: RouteBranch, begins_after: int = 0, *, lacks: bool = False
    ) -> TargetTable:
        """Create one of the tables of a topic with a route."""
        return cls(f"{topic} → {location}", topic, location, place=place, begins_after=begins_after, lacks=lacks)

    @classmethod
    def from_report(cls, name: str, entry: TableState) -> TargetTable:
        """Create one of the tables of a topic with a route, as a report knows it."""
        begins_after = int(entry.get("begins_after", 0))
        return cls(
            name,
            entry["topic"],
            entry["location"],
            place=RouteBranch.from_document(entry["place"]),
            begins_after=begins_after,
        )

    def to_document(self) -> TargetTableEntry:
        """Return the entry that a report has of it besides its location."""
        entry: TargetTableEntry = {"shared": True} if self.shared else {}
        if self.texts:
            entry["texts"] = dict(self.texts)
        if self.place is None:
            return entry
        if self.begins_after:
            entry["begins_after"] = self.begins_after
        return {**entry, "topic": self.topic, "place": self.place.to_document()}
