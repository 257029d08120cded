"""The Target seam: what applying changes needs of a table format."""

from __future__ import annotations

import abc
from collections.abc import Mapping
from dataclasses import dataclass, field

from pyspark.sql import DataFrame, SparkSession

NEVER = -1
"""Marker of a table that no batch was applied to."""


class Conflict(Exception):
    """Another writer committed to the table in between: look at the marker again, then decide."""


@dataclass(frozen=True, slots=True)
class Marker:
    """Which batch a table stands at. It is written in the same commit as the data.

    :param app: says whose batches are counted: connector and topic
    :param batch: the last batch that is applied
    """

    app: str
    batch: int


@dataclass(frozen=True, slots=True)
class Evolution:
    """How a table's columns have to change before rows can be merged.

    :param renamed: (old, new) names, in order
    :param types: final columns and their Spark types, in order
    :param fills: final column → SQL literal that rows which are already there get in it
    """

    types: Mapping[str, str]
    renamed: tuple[tuple[str, str], ...] = ()
    fills: Mapping[str, str] = field(default_factory=dict)


class Target(abc.ABC):
    """One table of a format. Made for each table and each attempt, in the thread that uses it."""

    def __init__(self, spark: SparkSession, location: str) -> None:
        self.spark, self.location = spark, location

    @abc.abstractmethod
    def exists(self) -> bool:
        """Whether there is a table."""

    @abc.abstractmethod
    def marker(self, app: str) -> int:
        """The last batch applied, :data:`NEVER` if none."""

    @abc.abstractmethod
    def rows(self) -> DataFrame:
        """The table's rows."""

    @abc.abstractmethod
    def create(self, types: Mapping[str, str]) -> None:
        """Create an empty table; it may have been created meanwhile."""

    @abc.abstractmethod
    def evolve(self, evolution: Evolution) -> dict[str, str]:
        """Bring the columns in order. Running it again changes nothing.

        :return: the fills that are still to be made, by the merge
        :raises TargetError: a column cannot take its new type
        """

    @abc.abstractmethod
    def merge(
        self, rows: DataFrame, key: tuple[str, ...], types: Mapping[str, str], fills: Mapping[str, str], marker: Marker
    ) -> None:
        """Upsert and delete by key, in one commit with the marker.

        :param rows: one row per key, with the final columns and ``__op``
        :raises Conflict: another writer was faster
        """

    @abc.abstractmethod
    def append(self, rows: DataFrame, marker: Marker) -> None:
        """Add rows whose keys are not there, in one commit with the marker."""

    @abc.abstractmethod
    def replace(self, rows: DataFrame, marker: Marker) -> None:
        """Make these the table's rows and columns, in one commit with the marker."""
