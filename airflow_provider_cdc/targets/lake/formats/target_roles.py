"""The roles of a table of a format: the operations that each part of an apply needs of it.

:class:`.target_interface.Target` has all of them. A function that needs one role says so in its type.
"""

from __future__ import annotations

import abc
from collections.abc import Callable, Iterable, Mapping
from datetime import timedelta

from pyspark.sql import DataFrame

from airflow_provider_cdc.targets.lake.formats.owners_and_markers import NEVER, Marker, ObservedProgress, Owner
from airflow_provider_cdc.targets.lake.formats.table_values import (
    PLAIN_LAYOUT,
    ColumnEvolution,
    KeyedChanges,
    KeyedMerge,
    PinnedTableState,
    TableComments,
    TableLayout,
    Upkeep,
    WriteConflict,
)
from airflow_provider_cdc.targets.lake.rows.multiset_diff import MultisetDifference


class TargetIdentity(abc.ABC):
    """The table itself, and its records besides rows: its owner, its rule, the columns that continue in others."""

    location: str

    @abc.abstractmethod
    def exists(self) -> bool:
        """Check whether there is a table. Later calls use this state of the table, or a newer one."""

    @abc.abstractmethod
    def find_foreign_content(self, owner: Owner) -> str:
        """Find content at the location although there is no table.

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
        """Return the table's record of columns that continue in others; empty if there are none.

        See :mod:`airflow_provider_cdc.targets.lake.schema.column_successors`.
        """

    @abc.abstractmethod
    def record_variants(self, text: str) -> None:
        """Record it in an existing table, before its columns change. Rows and columns stay as they are."""

    def resolve_data_path(self) -> str:
        """Return where the table's files are."""
        return self.location

    @abc.abstractmethod
    def count_file_bytes(self) -> int:
        """Bytes of the table's files."""

    def describe_catalog(self) -> Mapping[str, str]:
        """Describe the catalog of a table that has a name in one. Empty for tables by path.

        The values are ``name``, its parts separated by dots, and known properties of the catalog: ``type``, ``uri``, ``warehouse``. They hold no secret.
        """
        return {}


class TargetProgress(abc.ABC):
    """The progress of a table: the markers of its owners, and the guard against a run that was overtaken."""

    stand: ObservedProgress | None

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
        """Find the operation that has brought the rows back to a state before the marker without changing the marker; empty if nothing has."""

    @abc.abstractmethod
    def read_schema_version(self, app: str) -> int:
        """Return the schema version that :meth:`evolve_columns` brought the columns to, or began to; 0 if it never had to."""


class TargetColumns(abc.ABC):
    """The columns of a table: their types, their comments, and their evolution."""

    @abc.abstractmethod
    def read_column_types(self) -> dict[str, str]:
        """Column → Spark type."""

    def read_column_names(self) -> list[str]:
        """Return the columns alone."""
        return list(self.read_column_types())

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

        Comments that the source lacks stay as they are, and existing ones are not written again. No marker is written: it may be repeated.
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


class TargetRows(abc.ABC):
    """The rows of a table: reads of one state, and writes in one commit with a marker."""

    @abc.abstractmethod
    def read_rows(self) -> DataFrame:
        """Return the table's rows."""

    @abc.abstractmethod
    def pin_table_state(self) -> PinnedTableState:
        """Return the state that :meth:`exists` found, or a newer one: its rows with its markers.

        :meth:`read_rows` are those of the newest state at each time that they are read, in some kinds of tables.
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
        """Take rows away, any of those that are equal, and add others, in one commit with the marker: the effect of a batch on a table without a key.

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


class TargetMaintenance:
    """The upkeep of a table's files."""

    def list_maintenance_steps(self, keep: timedelta) -> Upkeep:
        """Return the steps of the table's maintenance.

        :param keep: how long the files of older states of the table stay after they were replaced
        """
        return {}
