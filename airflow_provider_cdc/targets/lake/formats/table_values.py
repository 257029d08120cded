"""The values that a table of a format takes and gives: layouts, columns, rows that change, results of writes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import pyarrow as pa
from pyspark.sql import DataFrame

from airflow_provider_cdc.targets.lake.formats.owners_and_markers import (
    NEVER,
)


class WriteConflict(Exception):
    """Another writer committed to the table in between: read the marker again, then decide."""


@dataclass(frozen=True, slots=True)
class PinnedTableState:
    """A single state of a table. Its parts belong together, and stay so whatever others commit meanwhile.

    :param version: its name, in the words of the kind of table
    :param markers: as :meth:`.target_roles.TargetProgress.read_markers`
    :param rows: of this state, however often they are read
    """

    version: str
    markers: Mapping[str, int]
    rows: DataFrame

    def read_marker(self, app: str) -> int:
        """Return the last batch applied, :data:`NEVER` if none."""
        return self.markers.get(app, NEVER)


@dataclass(frozen=True, slots=True)
class TableLayout:
    """The layout of a new table, besides its columns.

    :param partition_by: columns, or transforms of columns that the kind of target knows
    :param cluster_by: columns by which rows are kept together
    :param rule: the table's record of its rule; empty if there is none
    """

    partition_by: tuple[str, ...] = ()
    cluster_by: tuple[str, ...] = ()
    rule: str = ""


@dataclass(frozen=True, slots=True)
class TableComments:
    """Comments of the source on a table and its columns, in words for people.

    :param table: empty if it says nothing
    :param columns: column of the table → comment; only those that have one
    """

    table: str = ""
    columns: Mapping[str, str] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.table or self.columns)


NO_COMMENTS = TableComments()
"""The source says nothing."""
PLAIN_LAYOUT = TableLayout()
"""Neither partitions nor clusters, and no rule."""


@dataclass(frozen=True, slots=True)
class ColumnEvolution:
    """The changes of a table's columns that are needed before rows can be merged.

    :param app: as in :class:`Marker`; schema versions are counted for each
    :param version: of the table schema that the columns are brought to
    :param types: final columns and their Spark types, in order
    :param renamed: (old, new) names
    :param fills: final column → value of existing rows in it: a text that a cast to the column's type
        understands, or ``None`` for NULL
    :param dropped: columns that go; none of them is a final one
    """

    app: str
    version: int
    types: Mapping[str, str]
    renamed: tuple[tuple[str, str], ...] = ()
    fills: Mapping[str, str | None] = field(default_factory=dict)
    dropped: tuple[str, ...] = ()

    def list_dropped_columns(self, columns: Iterable[str]) -> list[str]:
        """List the columns of a table that are dropped.

        >>> ColumnEvolution("app", 2, {"id": "int"}, dropped=("Note",)).list_dropped_columns(["id", "note"])
        ['note']
        """
        dropped = {name.lower() for name in self.dropped}
        return [name for name in columns if name.lower() in dropped]


@dataclass(frozen=True, slots=True)
class KeyedMerge:
    """Rows that are upserted and deleted by key.

    :param rows: one row per key, with the final columns, :data:`airflow_provider_cdc.targets.lake.rows.last_event_per_key.OP`, and :data:`airflow_provider_cdc.targets.lake.rows.last_event_per_key.OMITTED` where some
        columns keep the table's value. Where the table has more columns, also with :data:`airflow_provider_cdc.targets.lake.rows.last_event_per_key.RECREATED`: rows for which it is true
        match none of the table's, and have a delete of their key beside them
    :param nullable: key columns that may be NULL; NULL equals NULL then
    :param fills: columns that all other rows get a value in, as of :class:`ColumnEvolution`
    """

    rows: DataFrame
    key: tuple[str, ...]
    nullable: frozenset[str]
    types: Mapping[str, str]
    fills: Mapping[str, str | None] = field(default_factory=dict)


class KeyedChanges(Protocol):
    """Rows that are upserted and deleted by key, at hand as arrays: with all columns of their table, by the names that it has for them."""

    @property
    def column_names(self) -> Sequence[str]:
        """The columns of rows."""

    @property
    def keys(self) -> pa.Table:
        """The key columns of all rows that come or go; each key once. NULL equals NULL."""

    @property
    def inserts_only(self) -> bool:
        """Check whether all keys are new ones, by their events."""

    @property
    def source_version(self) -> str:
        """The state of the table that rows were made from (:attr:`PinnedTableState.version`): no other one may get them. Empty if they were not made from the table's."""

    def read_rows(self) -> Iterator[pa.Table]:
        """Return the rows that come, in parts."""

    def number_of_rows(self) -> int:
        """Count the rows that come."""

    def number_of_deletes(self) -> int | None:
        """Count the rows of the table that go without another one in their place; ``None`` if only the table knows."""


@dataclass(frozen=True, slots=True)
class WriteMetrics:
    """The content that one write has put into a table.

    Values that the format does not report without another look at the table are ``None``.

    :param way: how it was written, one of :data:`WAYS`
    :param rows: rows of the batches that the table has now; those that were only copied are not counted
    :param deleted: rows that are gone
    :param bytes: of the files that were written, with the rows that were copied into them
    :param files: how many
    """

    way: str
    rows: int | None = None
    deleted: int | None = None
    bytes: int | None = None
    files: int | None = None


WAYS = ("commit", "merge", "append", "replace", "create")
"""``commit`` is one of arrays; each of the others is the method of that name."""


@dataclass(frozen=True, slots=True)
class MaintenanceStepResult:
    """The result of a step of a table's maintenance.

    :param changed: whether it changed anything
    :param said: its work, or why there was nothing to do
    """

    changed: bool
    said: str


Upkeep = Mapping[str, Callable[[], MaintenanceStepResult]]
"""Steps of a table's maintenance by name, in order. Each looks whether it is needed, may be repeated, and changes neither rows nor markers;
it raises :class:`WriteConflict` when another writer was faster."""
