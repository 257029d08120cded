"""The target interface: what applying changes needs of a table format."""

from __future__ import annotations

import abc
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Protocol

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from airflow_provider_cdc.targets.lake.formats.owners_and_markers import (
    APPS,
    NEVER,
    SHARED,
    Marker,
    ObservedProgress,
    Owner,
)
from airflow_provider_cdc.targets.lake.rows.multiset_diff import MultisetDifference


class WriteConflict(Exception):
    """Another writer committed to the table in between: read the marker again, then decide."""


@dataclass(frozen=True, slots=True)
class PinnedTableState:
    """A single state of a table. Its parts belong together, and stay so whatever others commit meanwhile.

    :param version: its name, in the words of the kind of table
    :param markers: as :meth:`Target.read_markers`
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
    :param rule: what the table records of the rule that it was made by; empty if there is none
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
    :param fills: final column → what rows that are already there get in it: a text that a cast to the column's type
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

    :param rows: one row per key, with the final columns, :data:`airflow_provider_cdc.targets.lake.rows.last_event_per_key.OP`, and :data:`airflow_provider_cdc.targets.lake.rows.last_event_per_key.KEPT` where some
        columns keep the table's value. Where the table has more columns, also with :data:`airflow_provider_cdc.targets.lake.rows.last_event_per_key.ANEW`: rows for which it is true
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
    def made_from(self) -> str:
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

    What the format does not report without another look at the table is ``None``.

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
    :param said: what it did, or why there was nothing to do
    """

    changed: bool
    said: str


Upkeep = Mapping[str, Callable[[], MaintenanceStepResult]]
"""Steps of a table's maintenance by name, in order. Each looks whether it is needed, may be repeated, and changes neither rows nor markers;
it raises :class:`WriteConflict` when another writer was faster."""


class Target(abc.ABC):
    """A table of a format. Made for each table and each attempt, in the thread that uses it.

    A write whose marker is not after the table's own is a no-op. All writes raise
    :class:`WriteConflict` when another writer was faster.
    """

    def __init__(self, spark: SparkSession, location: str, *, profile: str = "compatible") -> None:
        self.spark, self.location, self.profile = spark, location, profile
        self.written: WriteMetrics | None = None
        """What the last write has written; ``None`` if there was nothing to be done."""
        self.stand: ObservedProgress | None = None
        """How far the table was when the work on it was decided, if others may write to it. :meth:`evolve_columns`, :meth:`record_rule` and :meth:`record_variants` have no
        marker that makes a late one a no-op; they change the table only if it is there still."""

    def observe_progress(self, app: str) -> ObservedProgress:
        """Return how far the table is."""
        return ObservedProgress(app, self.read_marker(app), self.read_schema_version(app))

    def check_stand(self) -> None:
        """Check that the table is where it was.

        :raises Conflict: the table is not where it was when the work on it was decided
        """
        if self.stand is not None and (now := self.observe_progress(self.stand.app)) != self.stand:
            raise WriteConflict(
                f"another run has advanced the table from batch {self.stand.batch} to {now.batch}, and its columns from schema version {self.stand.version} to {now.version}"
            )

    def changes_columns(self, version: int) -> None:
        """Note that it is this run which brings the columns to a version."""
        if self.stand is not None:
            self.stand = self.stand._replace(version=version)

    @abc.abstractmethod
    def exists(self) -> bool:
        """Check whether there is a table. Later calls use this state of the table, or a newer one."""

    @abc.abstractmethod
    def find_foreign_content(self, owner: Owner) -> str:
        """Find what is at the location although there is no table.

        Return an empty text if nothing is, or only the remains of a killed :meth:`create` of this owner.
        """

    @abc.abstractmethod
    def read_owner(self) -> Owner | None:
        """Return the recorded owner of the table; ``None`` if there is none."""

    @abc.abstractmethod
    def record_owner(self, owner: Owner) -> None:
        """Record an owner in an existing table. Its rows stay as they are."""

    @abc.abstractmethod
    def read_rule(self) -> str:
        """Return the rule that the table records; empty if there is none."""

    @abc.abstractmethod
    def record_rule(self, rule: str) -> None:
        """Record a rule in an existing table, before all its rows are replaced."""

    @abc.abstractmethod
    def read_variants(self) -> str:
        """Return what the table records of columns that continue in others; empty if there are none.

        See :mod:`airflow_provider_cdc.targets.lake.schema.column_successors`.
        """

    @abc.abstractmethod
    def record_variants(self, text: str) -> None:
        """Record it in an existing table, before its columns change. Rows and columns stay as they are."""

    @abc.abstractmethod
    def read_markers(self) -> dict[str, int]:
        """Map :attr:`Owner.application_name` to the last batch applied, for all owners that ever applied one."""

    def read_marker(self, app: str) -> int:
        """Return the last batch applied, :data:`NEVER` if none."""
        return self.read_markers().get(app, NEVER)

    @abc.abstractmethod
    def read_last_writer(self, app: str) -> str:
        """Return the writer of the last batch, as of :class:`Marker`; empty if that is not known any more.

        Asked after :meth:`set_back`.
        """

    @abc.abstractmethod
    def set_back(self, app: str) -> str:
        """Find what has brought the rows back to a state before the marker without changing the marker; empty if nothing has."""

    @abc.abstractmethod
    def read_rows(self) -> DataFrame:
        """Return the table's rows."""

    @abc.abstractmethod
    def pin_table_state(self) -> PinnedTableState:
        """Return the state that :meth:`exists` found, or a newer one: its rows with its markers.

        :meth:`read_rows` are those of the newest state at each time that they are read, in some kinds of tables.
        """

    @abc.abstractmethod
    def read_column_types(self) -> dict[str, str]:
        """Column → Spark type."""

    def read_column_names(self) -> list[str]:
        """Return the columns alone."""
        return list(self.read_column_types())

    @abc.abstractmethod
    def count_file_bytes(self) -> int:
        """Bytes of the table's files."""

    def resolve_data_path(self) -> str:
        """Return where the table's files are."""
        return self.location

    def describe_catalog(self) -> Mapping[str, str]:
        """Describe the catalog of a table that has a name in one. Empty for tables by path.

        The values are ``name``, its parts separated by dots, and what is known of the catalog: ``type``, ``uri``, ``warehouse``. They hold no secret.
        """
        return {}

    @abc.abstractmethod
    def read_schema_version(self, app: str) -> int:
        """Return the schema version that :meth:`evolve_columns` brought the columns to, or began to; 0 if it never had to."""

    @abc.abstractmethod
    def can_evolve(self, evolution: ColumnEvolution) -> bool:
        """Check whether :meth:`evolve_columns` can do it. Otherwise the whole table has to be rewritten, in one commit.

        :raises TargetError: neither can be done
        """

    @abc.abstractmethod
    def evolve_columns(self, evolution: ColumnEvolution) -> dict[str, str | None]:
        """Add, rename, widen and drop columns. May be repeated, also after it was killed half way.

        :return: the fills that are still to be made, by the merge
        """

    @abc.abstractmethod
    def write_comments(self, comments: TableComments) -> None:
        """Write the comments of the source to the table and its columns.

        Those that the source has nothing to say about stay as they are, and what is there already is not written again. No marker is written: it may be repeated.
        """

    def check_columns(self, names: Iterable[str]) -> None:  # noqa: B027 -- most kinds take every name
        """Check the names of columns.

        :raises TargetError: a table of this kind cannot have a column of one of these names
        """

    def check_types(self, types: Mapping[str, str]) -> None:  # noqa: B027 -- most kinds take every type
        """Check the types of columns.

        :param types: columns and their Spark types
        :raises ConfigError: a table of this kind cannot have a column of one of these types
        """

    def check_layout(self, layout: TableLayout) -> None:  # noqa: B027 -- most kinds take every layout that a rule can say
        """Check the layout of a table.

        :raises ConfigError: tables of this kind cannot be laid out so
        """

    @abc.abstractmethod
    def create(self, rows: DataFrame, marker: Marker, layout: TableLayout = PLAIN_LAYOUT) -> None:
        """Create the table with these rows, in one commit with the marker, its owner and its rule.

        :raises Conflict: it exists by now
        :raises ConfigError: tables of this kind cannot be laid out so
        """

    @abc.abstractmethod
    def merge(self, merge: KeyedMerge, marker: Marker) -> None:
        """Upsert and delete by key, in one commit with the marker."""

    @abc.abstractmethod
    def find_upsert_obstacle(self, *, inserts_only: bool) -> str:
        """Why this table would refuse an :meth:`upsert_arrays`, as far as it is known before there are rows; empty if it would not.

        :param inserts_only: whether all keys will be new ones
        """

    @abc.abstractmethod
    def upsert_arrays(self, changes: KeyedChanges, keys: Callable[[], DataFrame], marker: Marker) -> str:
        """Upsert and delete by key, in one commit with the marker, of rows that are at hand as arrays.

        :param keys: gives the key columns of all events, with the table's types; a key may come several times
        :return: why this table has to be merged instead; empty if it is done
        """

    def apply_difference(self, changes: MultisetDifference, marker: Marker) -> str:
        """Take rows away, any of those that are equal, and add others, in one commit with the marker: what a batch makes of a table without a key.

        :param changes: with the table's names and types of columns
        :return: why all rows of this table have to be replaced instead; empty if it is done
        :raises AbsentRows: the table does not have a row that goes
        """
        return "rows cannot be removed from tables of this kind"

    @abc.abstractmethod
    def append(self, rows: DataFrame, marker: Marker) -> None:
        """Add rows, in one commit with the marker."""

    @abc.abstractmethod
    def replace(self, rows: DataFrame, marker: Marker) -> None:
        """Make these the table's rows and columns, in one commit with the marker. Partitioning stays where it can."""

    @abc.abstractmethod
    def rebuild_rows(self, rows: DataFrame, marker: Marker) -> None:
        """Make these the table's rows, in one commit with the marker, which is the table's own. All else stays: columns, properties, layout.

        :param rows: with the table's columns and types
        :raises Conflict: the table has another marker by now
        """

    def list_maintenance_steps(self, keep: timedelta) -> Upkeep:
        """Return the steps of the table's maintenance.

        :param keep: for so long after it was replaced, what an older state of the table consists of stays
        """
        return {}


__all__ = [
    "APPS",
    "NEVER",
    "NO_COMMENTS",
    "PLAIN_LAYOUT",
    "SHARED",
    "WAYS",
    "ColumnEvolution",
    "KeyedChanges",
    "KeyedMerge",
    "MaintenanceStepResult",
    "Marker",
    "ObservedProgress",
    "Owner",
    "PinnedTableState",
    "TableComments",
    "TableLayout",
    "Target",
    "Upkeep",
    "WriteConflict",
    "WriteMetrics",
]  # fmt: skip
