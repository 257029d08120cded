"""The two ways to build a table again: in its place, and beside it. Each is one commit."""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from functools import partial

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from airflow_provider_cdc.changelog.reading.last_events import reduce_to_last_events
from airflow_provider_cdc.changelog.reading.pending_batches import PendingBatches
from airflow_provider_cdc.core.errors import BatchesRemoved, TargetError
from airflow_provider_cdc.targets.lake.apply.batch_applier import log_removed_batches
from airflow_provider_cdc.targets.lake.apply.table_batch_writer import bring_up, from_the_beginning
from airflow_provider_cdc.targets.lake.apply.table_owner_check import another_log
from airflow_provider_cdc.targets.lake.formats.format_descriptor import TableFormat
from airflow_provider_cdc.targets.lake.formats.owners_and_markers import NEVER, Marker, Owner
from airflow_provider_cdc.targets.lake.formats.table_values import WriteConflict
from airflow_provider_cdc.targets.lake.formats.target_interface import Target
from airflow_provider_cdc.targets.lake.formats.target_roles import TargetIdentity
from airflow_provider_cdc.targets.lake.placement.recorded_rule_check import another_rule, same_rule
from airflow_provider_cdc.targets.lake.rebuild.full_change_log import FullChangeLog
from airflow_provider_cdc.targets.lake.rebuild.tables_to_rebuild import RebuildTargets
from airflow_provider_cdc.targets.lake.rules.projection import Projection
from airflow_provider_cdc.targets.lake.rules.topic_target import TargetTable
from airflow_provider_cdc.targets.lake.types.spark_types import find_common_type, quote_name
from airflow_provider_cdc.targets.lake.write.write_strategy import WriteStrategy

log = logging.getLogger("airflow_provider_cdc.targets.lake.jobs.rebuild_tables")

ATTEMPTS = 6
_UNTOUCHED = "The table was not changed."
_APPLY = "run the apply, which builds the table from the change log"


class RebuildStrategy(ABC):
    """A way to build the tables of a connector.

    :param whole: the change log that they are built from
    :param places: knows their rules
    """

    def __init__(self, spark: SparkSession, format_: TableFormat, whole: FullChangeLog, places: RebuildTargets) -> None:
        self._spark, self._format, self._whole, self._places = spark, format_, whole, places
        self._route = WriteStrategy(partial(reduce_to_last_events, whole.changelog, whole.connector))

    @abstractmethod
    def find_last_batch(self, target: Target, table: TargetTable) -> int | None:
        """Return the last batch of a table; ``None`` if there is none and it can be made.

        :raises TargetError: it cannot be built
        """

    @abstractmethod
    def build_table(self, table: TargetTable) -> int:
        """Build a table.

        :return: the batch as of which it is
        :raises TargetError: it cannot be built
        """

    def check_table(self, table: TargetTable) -> None:
        """Look whether it can be built, as far as that can be known before.

        :raises TargetError: it cannot
        """
        target = self._open(table)
        batch = self.find_last_batch(target, table)
        if batch is not None:
            self._shape(target, table, self._whole.collect_pending(table, batch))

    def _open(self, table: TargetTable) -> Target:
        return self._format.open_target(self._spark, table.location)

    def _owner(self, table: TargetTable) -> Owner:
        return Owner(self._whole.connector, table.topic, table.shared, self._whole.batches.changelog)

    def _marker(self, table: TargetTable, batch: int) -> Marker:
        return Marker(self._owner(table), batch, self._whole.batches.writers.get(batch, ""))

    def _shape(self, target: Target, table: TargetTable, pending: PendingBatches) -> Projection:
        """Return the shape that the rule gives the rows of a table that is there.

        :raises TargetError: it was made by another rule
        """
        shape = self._places.build_projection(self._spark, table, pending, strict=False)
        if not same_rule(target.read_rule(), shape.format_recorded_rule(), pending.schema):
            raise another_rule(target, self._owner(table), shape)
        return shape

    def _make(self, target: Target, table: TargetTable, batch: int) -> None:
        """Make a table that is not there, as an apply makes it.

        :raises Conflict: it is there by now
        """
        pending = self._whole.collect_pending(table, batch)
        shape = self._places.build_projection(self._spark, table, pending, strict=True)
        target.check_columns([*shape.map_column_types(pending.schema), *shape.map_flag_types()])
        target.check_types(shape.map_column_types(pending.schema))
        target.check_layout(shape.build_layout())
        if self._whole.has_removed_events(table.topic):
            log_removed_batches(table, pending.first, shape.mode)
        bring_up(target, pending, self._marker(table, batch), self._route, new=True, shape=shape)


class InPlaceRebuild(RebuildStrategy):
    """Rebuild of a table in its place, as of the table's last batch.

    One that is gone is built as of the last batch that an apply has read.
    """

    def build_table(self, table: TargetTable) -> int:
        for attempt in range(ATTEMPTS):
            target = self._open(table)
            batch = self.find_last_batch(target, table)
            try:
                if batch is None:
                    batch = self._places.find_last_applied_batch(self._whole)
                    self._make(target, table, batch)
                else:
                    self._replace(target, table, batch)
            except WriteConflict as e:
                log.warning(
                    "Another writer committed to %s first (attempt %d): %s", target.location, attempt + 1, str(e)[:200]
                )
                continue
            return batch
        raise TargetError(
            f"Other writers changed the table of {table.topic} {ATTEMPTS} times during the rebuild.",
            where=table.location,
            safe="The table was not changed by this run.",
            remedy="stop the apply, then rebuild the table again; capture may continue",
        )

    def _replace(self, target: Target, table: TargetTable, batch: int) -> None:
        owner, pending = self._owner(table), self._whole.collect_pending(table, batch)
        shape = self._shape(target, table, pending)
        self._refuse_to_lose(table, shape)
        marker = self._marker(table, batch)
        rows = self._rows(target, pending, marker, shape)
        target.rebuild_rows(match_table_columns(rows, target, owner), marker)

    def _refuse_to_lose(self, table: TargetTable, shape: Projection) -> None:
        """Reject a rebuild that would lose earlier versions of the table's rows.

        :raises BatchesRemoved: the table has earlier versions of its rows, and the change log has not
        """
        if shape.mode == "current" or not self._whole.has_removed_events(table.topic):
            return
        raise BatchesRemoved(
            f"The table of {table.topic} has mode {shape.mode} and would lose earlier states of its rows: the first batches of the change log are removed.",
            where=table.location,
            safe=_UNTOUCHED,
            remedy="rebuild it at another location with --to, from the remaining batches of the change log, and correct the wrong rows of this table from there",
        )

    def check_table(self, table: TargetTable) -> None:
        super().check_table(table)
        target = self._open(table)
        batch = self.find_last_batch(target, table)
        if batch is not None:
            self._refuse_to_lose(table, self._shape(target, table, self._whole.collect_pending(table, batch)))

    def _rows(self, target: Target, pending: PendingBatches, marker: Marker, shape: Projection) -> DataFrame:
        return from_the_beginning(target, pending, marker, self._route, shape)

    def find_last_batch(self, target: Target, table: TargetTable) -> int | None:
        owner, was_made = self._owner(table), self._places.was_created(table)
        if table.shared:
            raise TargetError(
                f"The table of {table.topic} is shared by several topics, and only the apply builds such tables.",
                where=target.location,
                safe=_UNTOUCHED,
                remedy=f"move the table away and {_APPLY}; or build the rows of one topic at another location with --to",
            )
        if not target.exists():
            foreign_content = target.find_foreign_content(owner)
            if was_made and not foreign_content:
                return None
            problem = f"The table of {table.topic} does not exist" + (
                f", but {foreign_content}" if foreign_content else ""
            )
            raise TargetError(f"{problem}.", where=target.location, safe=_UNTOUCHED, remedy=_APPLY)
        if owner.is_but_for_its_log(there := target.read_owner()):
            raise another_log(target, owner, there)
        if there != owner:
            raise TargetError(
                f"The table belongs to {there or 'no connector'}, and not only to {owner}.",
                where=target.location,
                safe=_UNTOUCHED,
                remedy="check --location, --connector and --target",
            )
        if target.read_variants():
            raise TargetError(
                f"The table of {table.topic} has columns that continue in new columns (type_changes: new_column), and only the apply keeps their values.",
                where=target.location,
                safe=_UNTOUCHED,
                remedy=f"build it at another location with --to, or move the table away and {_APPLY}. The new table then has only the columns of the source, without the values of other columns",
            )
        batch, last = target.read_marker(owner.application_name), self._whole.find_newest_batch()
        if not NEVER < batch <= last:
            raise TargetError(
                f"The table is at batch {batch}, but the change log ends with batch {last}.",
                where=target.location,
                safe=_UNTOUCHED,
                remedy="restore the change log from a backup, or check --changelog",
            )
        return batch


class SeparateRebuild(RebuildStrategy):
    """At another location, as of the last batch of the log that is given. One that a run before has built there is left as it is."""

    def build_table(self, table: TargetTable) -> int:
        target = self._open(table)
        if self.find_last_batch(target, table) is not None:
            log.info("The table of %s at %s already exists.", table.topic, table.location)
            return self._whole.last_batch
        try:
            self._make(target, table, self._whole.last_batch)
        except WriteConflict as e:
            raise _taken(target, table, f"another writer created a table meanwhile ({e})") from e
        return self._whole.last_batch

    def find_last_batch(self, target: Target, table: TargetTable) -> int | None:
        owner = self._owner(table)
        if not target.exists():
            if foreign_content := target.find_foreign_content(owner):
                raise _taken(target, table, foreign_content)
            return None
        batch = target.read_marker(owner.application_name)
        if target.read_owner() != owner.recorded_owner or table.shared:
            raise _taken(target, table, f"a table of {target.read_owner() or 'no connector'} already exists")
        if batch != self._whole.last_batch:
            raise _taken(
                target, table, f"a table as of batch {batch} already exists",
                f"; if a killed run built this table, use --batch {batch} to continue with the other tables",
            )  # fmt: skip
        return batch


def _taken(target: TargetIdentity, table: TargetTable, content: str, more: str = "") -> TargetError:
    return TargetError(
        f"The table of {table.topic} cannot be built at this location: {content}.",
        where=target.location,
        safe="Nothing was changed there.",
        remedy=f"give another location with --to, or move the existing files away{more}",
    )


def match_table_columns(rows: DataFrame, target: Target, owner: Owner) -> DataFrame:
    """Rows with the columns of the table.

    :raises TargetError: the table has other columns, or a column has no room for its values
    """
    columns = {f.name.lower(): (f.name, f.dataType.simpleString()) for f in rows.schema.fields}
    selected, problems = [], []
    for name, there in target.read_column_types().items():
        column, type_ = columns.pop(name.lower(), ("", ""))
        if not column:
            problems.append(f"the change log no longer has a column {name}")
        elif find_common_type(type_, there) != there:
            problems.append(f"column {name} has the type {there} in the table and {type_} in the change log")
        else:
            selected.append(F.col(quote_name(column)).cast(there).alias(name))
    problems += [f"the table has no column {name}" for name, _ in columns.values()]
    if problems:
        raise TargetError(
            f"The table of {owner.topic} cannot be built in its place: {'; '.join(problems)}.",
            where=target.location,
            safe=_UNTOUCHED,
            remedy="build it at another location with --to, or move the table away and run the apply: the new table then has only the columns of the source, "
            "without the values of dropped columns",
        )
    return rows.select(*selected)
