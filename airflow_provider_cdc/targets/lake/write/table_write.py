"""Writes the rows that some batches make of one table: brings its columns up first, in place or with all rows."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from airflow_provider_cdc.changelog.reading.pending_batches import PendingBatches, base_version, trace_columns
from airflow_provider_cdc.core.errors import TargetError
from airflow_provider_cdc.targets.lake.events import event_reduction
from airflow_provider_cdc.targets.lake.formats.owners_and_markers import NEVER, Marker
from airflow_provider_cdc.targets.lake.formats.table_values import (
    ColumnEvolution,
    KeyedMerge,
    PinnedTableState,
    WriteConflict,
)
from airflow_provider_cdc.targets.lake.formats.target_interface import Target
from airflow_provider_cdc.targets.lake.rows.last_event_per_key import (
    OMITTED,
    OP,
    OURS,
    RECREATED,
    SEQ,
    build_key_condition,
    last_per_key,
    split_recreated_rows,
)
from airflow_provider_cdc.targets.lake.rows.whole_table_rewrite import build_merged_table
from airflow_provider_cdc.targets.lake.rules.projection import Projection, laid_out_by, lower_names
from airflow_provider_cdc.targets.lake.schema.lossy_casts import Changed, other_types
from airflow_provider_cdc.targets.lake.schema.table_evolution import brought_up, evolution_of, present_version
from airflow_provider_cdc.targets.lake.types.spark_types import build_fill_value, find_common_type, quote_name
from airflow_provider_cdc.targets.lake.write.driver_collected_changes import (
    CollectLimitExceeded,
    collect_changes,
    collect_new,
)
from airflow_provider_cdc.targets.lake.write.write_strategy import WriteStrategy, new_keys_only

log = logging.getLogger("airflow_provider_cdc.targets.lake.write.table_write")
_OLD, _CARRIED, _READ, _ENDED = f"{OURS}old_", f"{OURS}told_", f"{OURS}read", f"{OURS}ended"


@dataclass(frozen=True)
class TableWrite:
    """Some batches of one topic, on their way into its table.

    :param fresh: no batch was applied before, so that rows that are there do not count
    :param joins: no batch was applied before, to a table that has rows of other topics
    :param at: the last batch of the table, as it was when these batches were chosen
    :param by_spark: why Spark makes the rows of these batches
    :param merges: why they are merged, if they are not to be committed
    """

    target: Target
    pending: PendingBatches
    marker: Marker
    shape: Projection
    route: WriteStrategy
    fresh: bool = False
    joins: bool = False
    at: int | None = None
    by_spark: str = ""
    merges: str = ""

    @property
    def spark(self) -> SparkSession:
        return self.target.spark

    @property
    def column_types(self) -> dict[str, str]:
        """The table's columns, with those that its mode keeps up to date."""
        return {**event_reduction.final_types(self.pending.schema, self.shape), **self.shape.map_flag_types()}

    def replace_topic_rows(self, rows: DataFrame) -> None:
        """Make these the rows of this topic, and all rows of the table if no other topic shares it."""
        if not self.target.exists():
            self.target.create(rows, self.marker, self.shape.build_layout())
        elif self.shape.shard_column:
            others = self._others()
            self.target.replace(others.unionByName(rows, allowMissingColumns=True), self.marker)
        elif self.fresh:
            self.target.record_rule(self.shape.format_recorded_rule())
            if self.target.read_variants():
                self.target.record_variants("")
            self.target.replace(rows, self.marker)
        elif self.shape.rule.type_changes == "new_column":
            self.target.replace(self._read_again(rows), self.marker)
        else:
            self._changes_types(
                ColumnEvolution(self.marker.application_name, self.pending.schema_version, self.column_types)
            )
            self.target.replace(rows, self.marker)

    def read_documents(self) -> DataFrame | None:
        """Return the documents of the table before these batches, by the key; with the names of the source.

        ``None`` if it has none, or has something else made of them.

        :raises Conflict: another run has applied some of the batches by now
        """
        schema, shape = self.pending.schema, self.shape
        if self.fresh or self.joins or schema.documents is None or not self.target.exists():
            return None
        names = shape.map_column_names(schema)
        pinned = self.target.pin_table_state()
        self._check_at(pinned.read_marker(self.marker.application_name))
        body, there = names.get(schema.documents.body, ""), pinned.rows
        types = {field.name.lower(): field.dataType for field in there.schema.fields}
        if types.get(body.lower()) != T.StringType() or shape.map_column_types(schema)[body] != "string":
            return None
        there = there.where(shape.build_source_condition())
        if shape.mode == "history":
            there = there.where("_is_current")
        elif shape.mode == "soft_delete":
            there = there.where(~F.coalesce("_is_deleted", F.lit(col=False)))
        return there.select(
            *[F.col(quote_name(names[name])).alias(name) for name in (*schema.key, schema.documents.body)]
        )

    def _read_again(self, rows: DataFrame) -> DataFrame:
        """Add the table's values of columns that the source has no more. Rows that are read again keep them, others begin without them."""
        pending, shape = self.pending, self.shape
        key, there, cuts = (
            shape.list_key_columns(pending.schema),
            self._present_unchanged(),
            event_reduction.list_truncates(self.spark, pending),
        )
        others = [c for c in there.columns if c.lower() not in lower_names(rows.columns)]
        if not key or event_reduction.key_changed(pending, 0):  # no key identifies the rows
            return rows.select("*", *[F.lit(None).cast(there.schema[c].dataType).alias(c) for c in others])
        carried, events = (
            shape.retired_columns,
            event_reduction.read_events(self.spark, pending, 0, shape, present=self.read_documents),
        )
        if events is None or not (others or carried):
            return rows
        names = list(map(quote_name, key))
        ended = _ended(events, names, [number for number, _ in cuts]).alias("s")
        old = there.select(
            *names, *[F.col(quote_name(c)).alias(f"{_OLD}{i}") for i, c in enumerate([*others, *carried])]
        )
        joined = rows.alias("n").join(ended, build_key_condition(key, "n", "s"), "left")
        joined = joined.join(old.alias("o"), F.col(f"s.{_ENDED}").isNull() & build_key_condition(key, "n", "o"), "left")
        stays = {c: F.col(f"{_OLD}{i}") for i, c in enumerate([*others, *carried])}
        if carried:  # events before the rows were read again may have had values
            since = events.alias("e").join(ended, build_key_condition(key, "e", "s"), "left")
            since = since.where(F.col(SEQ) > F.coalesce(f"s.{_ENDED}", F.lit(0))).select("e.*")
            carried_values = last_per_key(
                since.select(SEQ, OP, OMITTED, *names, *map(quote_name, carried)), key, carried, carried
            )
            carried_values = carried_values.select(
                *names, F.col(OMITTED), *[F.col(quote_name(c)).alias(f"{_CARRIED}{i}") for i, c in enumerate(carried)]
            )
            joined = joined.join(carried_values.alias("e"), build_key_condition(key, "n", "e"), "left")
            for i, c in enumerate(carried):
                lacks = F.coalesce(F.array_contains(OMITTED, F.lit(c)), F.lit(col=True))
                stays[c] = F.when(lacks, stays[c]).otherwise(F.col(f"{_CARRIED}{i}"))
        return joined.select(
            *[(stays[c] if c in carried else F.col(f"n.{quote_name(c)}")).alias(c) for c in rows.columns],
            *[stays[c].alias(c) for c in others],
        )

    def _present_unchanged(self) -> DataFrame:
        """Return :meth:`read_current_rows` of a table whose columns all have room for their values."""
        self._changes_types(self._evolution())
        return self.read_current_rows()

    def _others(self) -> DataFrame:
        """Rows of other topics, with columns and types that have room for this one's."""
        there = self._columns_there()
        return there.where(~self.shape.build_source_condition())

    def _columns_there(self) -> DataFrame:
        types = {name.lower(): type_ for name, type_ in self.column_types.items()}
        rows = self.target.read_rows()
        present = {f.name: f.dataType.simpleString() for f in rows.schema.fields}
        wider = {
            name: find_common_type(type_, types.get(name.lower(), type_)) or type_ for name, type_ in present.items()
        }
        return rows.select(*[F.col(quote_name(name)).cast(type_).alias(name) for name, type_ in wider.items()])

    def append_rows(self, rows: DataFrame, order: str) -> None:
        """Add rows.

        :param order: the column by which they are in order
        """
        full_evolution = self._evolution()
        evolution, there = replace(full_evolution, fills={}), self.target.read_column_types()
        # rows keep the values of a column that is dropped and made again: no type would do for both
        again = other_types(there, evolution).keys() - other_types(there, full_evolution).keys()
        if (again or not self._changes_types(full_evolution)) and self.target.can_evolve(evolution):
            self.target.evolve_columns(evolution)
            if appends := self.merges or self._add(rows, order):
                log.info("%s is appended by Spark: %s.", self.pending.topic, appends)
                # from the oldest event to the newest one, so that readers find a stretch of the log in few files
                self.target.append(rows.orderBy(F.col(quote_name(order))), self.marker)
        else:
            self.target.replace(
                self.read_current_rows(fills=False).unionByName(rows, allowMissingColumns=True), self.marker
            )

    def _add(self, rows: DataFrame, order: str) -> str:
        """Commit rows that are only added.

        :return: why Spark has to append them instead; empty if it is done
        """
        try:
            new = collect_new(rows, self.target.read_column_types(), order)
        except CollectLimitExceeded as e:
            return str(e)
        reason = self.target.upsert_arrays(new, lambda: new.build_key_frame(self.spark), self.marker)
        if not reason:
            log.info(
                "%s is committed: %d rows, computed by Spark: its mode is %s.",
                self.pending.topic,
                new.number_of_rows(),
                self.shape.mode,
            )
        return reason

    def merge_rows(
        self,
        final: Callable[[DataFrame], DataFrame],
        key: tuple[str, ...],
        nullable: frozenset[str],
        *,
        inherits: bool = False,
    ) -> None:
        """Upsert and delete by key.

        :param final: the table's rows, with its final columns → rows as of :class:`KeyedMerge`, those with :data:`airflow_provider_cdc.targets.lake.rows.last_event_per_key.RECREATED` as
            :func:`airflow_provider_cdc.targets.lake.rows.last_event_per_key.last_per_key` gives them
        :param nullable: key columns that may be NULL
        :param inherits: whether rows have values that the table has under other keys, or are made of those that it has
        """
        target, types = self.target, self.column_types
        evolution = self._evolution()
        rewrites = self._needs_a_rewrite(evolution) or self._changes_types(evolution)
        if not rewrites and target.can_evolve(evolution):
            fills, there = target.evolve_columns(evolution), target.pin_table_state()
            rows = final(_filled(there.rows.where(self.shape.build_source_condition()), types, fills))
            self._check_undisturbed(inherits)
            merge = KeyedMerge(rows, key, nullable, types, fills)
            if merges := self.merges or self._commit(merge, there, inherits=inherits):
                log.info("%s is merged: %s.", self.pending.topic, merges)
                target.merge(replace(merge, rows=_apart(rows)), self.marker)
        else:
            present = self.read_current_rows()
            rows = final(present)
            self._check_undisturbed(inherits)
            log.info("%s is rewritten: its columns cannot be changed in place.", self.pending.topic)
            target.replace(build_merged_table(present, _apart(rows), key, types), self.marker)

    def _commit(self, merge: KeyedMerge, there: PinnedTableState, *, inherits: bool) -> str:
        """Commit the rows that would be merged.

        :param inherits: as of :meth:`merge_rows`
        :return: why it has to be merged instead; empty if it is done
        """
        if merge.fills:
            return f"all rows get values in {', '.join(merge.fills)}"
        pending, shape = self.pending, self.shape
        try:
            changes = collect_changes(
                merge, self.target.read_column_types(), there, inserts_only=new_keys_only(pending), from_there=bool(shape.map_flag_types()) or inherits,
                by_lookup=shape.filter is not None or "c" in pending.count_operations(),
            )  # fmt: skip
        except CollectLimitExceeded as e:
            return str(e)
        if reason := self.target.upsert_arrays(changes, lambda: changes.build_key_frame(self.spark), self.marker):
            return reason
        keys, rows = changes.keys.num_rows, changes.number_of_rows()
        log.info("%s is committed: %d keys, %d rows, computed by Spark: %s.", pending.topic, keys, rows, self.by_spark)
        return ""

    def _check_undisturbed(self, inherits: bool) -> None:
        """Make sure that the rows which were made from those of the table were made from its rows before these batches.

        :param inherits: as of :meth:`merge_rows`
        :raises Conflict: another run has applied some of them by now
        """
        if not (self.shape.map_flag_types() or inherits):
            return  # the last event of a key is that, whatever the table has
        self._check_at(self.target.read_marker(self.marker.application_name) if self.target.exists() else NEVER)

    def _check_at(self, last_batch: int) -> None:
        if last_batch != (NEVER if self.at is None else self.at):
            raise WriteConflict(f"another run has advanced the table to batch {last_batch}")

    def _needs_a_rewrite(self, evolution: ColumnEvolution) -> bool:
        """Return whether columns would change for rows of other topics, too, if they were changed in place."""
        there = {name.lower() for name in self.target.read_column_types()} if self.shape.shard_column else set()
        filled_in = [n for n, value in evolution.fills.items() if value is not None or n.lower() in there]
        return bool(self.shape.shard_column and (evolution.renamed or filled_in))

    # -- columns ------------------------------------------------------------------------------------------------------

    def _changes_types(self, evolution: ColumnEvolution) -> bool:
        """Return whether columns get types that do not hold the values that the table has in them.

        :raises TargetError: the rule has the apply stop then
        """
        others = {} if self.shape.shard_column else other_types(self.target.read_column_types(), evolution)
        self.check_types(others)
        return bool(others)

    def check_types(self, others: Changed) -> None:
        """Check that the rule allows the new types of columns.

        :param others: columns that get types which do not hold the values that they have
        :raises TargetError: the rule has the apply stop then
        """
        if others and self.shape.rule.type_changes != "rewrite":
            raise self._stopped(others)

    def _stopped(self, others: Changed) -> TargetError:
        changes = "; ".join(
            f"{name} has the type {old} in the table and needs the type {new}" for name, (old, new) in others.items()
        )
        says = self.shape.rule.type_changes
        only = (
            "" if says == "stop" else ", which applies to columns of the source, and not to columns that the rule adds"
        )
        return TargetError(
            f"Columns of {self.pending.schema.id} have changed their types: {changes}. The rule of the table has type_changes: {says}{only}.",
            where=f"{self.target.location}, batches {self.pending.first} to {self.pending.last}",
            safe="The table was not changed; the change log keeps the batches.",
            remedy="set type_changes: rewrite in the rule, or cast the column to one type with columns.cast and give the rule another location",
        )

    def bring_columns_up(self) -> bool:
        """Change the table's columns in place, if that does not concern its rows.

        :return: whether the table has the final columns now; otherwise :meth:`read_current_rows` has them
        """
        target, evolution = self.target, self._evolution()
        there = {name.lower() for name in target.read_column_types()}
        filled_in = [n for n, value in evolution.fills.items() if value is not None or n.lower() in there]
        if (filled_in and not self._is_begun()) or self._changes_types(evolution) or not target.can_evolve(evolution):
            return False
        return not target.evolve_columns(evolution)

    def _is_begun(self) -> bool:
        """Return whether a run before, which was killed, has begun to bring the columns up in place.

        Then that is the only way on.
        """
        return (
            bool(self.pending.changes)
            and self.target.read_schema_version(self.marker.application_name) == self.pending.schema_version
        )

    def has_started_evolution(self) -> bool:
        """Return whether a run before, which was killed, has changed some of the columns in place."""
        return self.target.read_schema_version(self.marker.application_name) > base_version(self.pending)

    def _evolution(self) -> ColumnEvolution:
        """Compute the changes that the columns need."""
        pending, shape, app = self.pending, self.shape, self.marker.application_name
        start = present_version(self.target, pending, app, shape)
        if self.joins:  # changes of rows that the table does not have do not matter
            return ColumnEvolution(app, pending.schema_version, self.column_types)
        self.refuse_removed_columns(start)
        self._refuse_renamed_columns(start)
        evolution = evolution_of(pending, app, start, pending.schema_version, shape)
        self._check_dropped(evolution)
        return evolution

    def _refuse_renamed_columns(self, start: int) -> None:
        """Reject columns that the rule left out under their old names, and does not under the new ones.

        :param start: the schema version of the table's columns
        :raises TargetError: a column that the rule leaves out got a name that it does not: rows of the table have none of its values
        """
        pending, shape = self.pending, self.shape
        if (
            not pending.changes
            or pending.name_takeover is not None
            or "t" in pending.count_operations()
            or shape.rule.outbox is not None
        ):
            return  # the rows that are there go
        before = shape.as_of(start)
        for name, origin in trace_columns(pending, start).items():
            if (
                origin.column is None
                or before.map_column_name(origin.column) is not None
                or shape.map_column_name(name) is None
            ):
                continue
            raise TargetError(
                f"Column {origin.column} of {pending.schema.id}, which the rule leaves out, was renamed to {name} at the source, which the rule does not leave out: "
                "existing rows of the table lack its values.",
                where=f"{self.target.location}, batches {pending.first} to {pending.last}",
                safe="The table was not changed; the change log keeps the batches.",
                remedy=f"snapshot the table again with `{pending.read_again}`; or move it away: the apply then rebuilds it from the change log",
            )

    def refuse_removed_columns(self, start: int) -> None:
        """Reject a table from which columns of the source were removed.

        :param start: schema version of the table's columns
        :raises TargetError: the table lacks a column that the source had all the time: made again, it would be NULL in rows that are there
        """
        pending, shape = self.pending, self.shape
        if start not in pending.schemas:
            return  # which columns the source had is not known
        there, before = lower_names(self.target.read_column_types()), shape.as_of(start)
        taken = [
            name
            for new, origin in trace_columns(pending, start).items()
            if origin.column is not None
            and (name := shape.map_column_name(new)) is not None
            and name.lower() not in there
            if (old := before.map_column_name(origin.column)) is not None and old.lower() not in there
        ]
        if taken:
            raise TargetError(
                f"The table no longer has the column {', '.join(taken)}: new batches do not contain its values for existing rows.",
                where=f"{self.target.location}, batches {pending.first} to {pending.last}",
                safe="The table was not changed; the change log keeps the batches.",
                remedy="give the column its name back, or undo the statement that dropped it; otherwise move the table away and run the apply again, which rebuilds it "
                "from the change log",
            )

    def _check_dropped(self, evolution: ColumnEvolution) -> None:
        """Check that the table is not laid out by a dropped column.

        :raises TargetError: the rule lays the table out by a column that goes
        """
        rule, gone = self.shape.rule, lower_names(evolution.dropped)
        for option in ("partition_by", "cluster_by"):
            for layout in getattr(rule, option):
                if laid_out_by(layout).lower() in gone:
                    raise TargetError(
                        f"Column {laid_out_by(layout)} of {self.pending.schema.id} was dropped at the source. The rule of its table has dropped_columns: drop, "
                        f"but partitions or clusters the table by this column: {option}: {layout}.",
                        where=f"{self.target.location}, batches {self.pending.first} to {self.pending.last}",
                        safe="The table was not changed; the change log keeps the batches.",
                        remedy="set dropped_columns: keep in the rule, so that the column stays with its values; or give the rule another layout and another location: "
                        "the apply then builds the table from the change log",
                    )

    def read_current_rows(self, *, fills: bool = True) -> DataFrame:
        """Return the table's rows, with the final columns first, then the columns that the source has dropped."""
        pending, shape, types = self.pending, self.shape, self.column_types
        start = present_version(self.target, pending, self.marker.application_name, shape)
        if not shape.shard_column and self._is_begun() and self.target.can_evolve(evolution := self._evolution()):
            self.target.evolve_columns(evolution)
            start = pending.schema_version
        there = self.target.read_rows()
        if not shape.shard_column:
            evolution = evolution_of(pending, self.marker.application_name, start, pending.schema_version, shape)
            there = there.drop(*[F.col(quote_name(name)) for name in evolution.list_dropped_columns(there.columns)])
            changed = other_types(self.target.read_column_types(), evolution)
            self.check_types(changed)
            return brought_up(there, pending, start, shape, types, changed, self.target.location, fills=fills)
        mine = there.where(shape.build_source_condition())
        if not self.joins:
            mine = brought_up(mine, pending, start, shape, types, {}, self.target.location, fills=fills)
        return self._others().unionByName(mine, allowMissingColumns=True)


@dataclass(frozen=True)
class DraftWrite(TableWrite):
    """A write of all rows that only makes them.

    :param drafts: gets the rows
    """

    drafts: list[DataFrame] = field(default_factory=list)

    def replace_topic_rows(self, rows: DataFrame) -> None:
        self.drafts.append(rows)


def key_is_another(write: TableWrite, subject: str) -> TargetError:
    """Build the error of a table whose key has changed at the source, so that rows cannot be followed."""
    pending = write.pending
    return TargetError(
        f"The key of {pending.schema.id} changed at the source. The apply cannot continue {subject} across this change, because keys identify its rows.",
        where=f"{write.target.location}, batches {pending.first} to {pending.last}",
        safe="The table was not changed; the change log keeps the batches.",
        remedy=f"snapshot the source table again with `{pending.read_again}`, move the target table away, and run the apply again: the new table starts "
        "with that snapshot; or keep the old key with message.key.columns",
    )


def _ended(events: DataFrame, names: list[str], cuts: Sequence[int]) -> DataFrame:
    """Find the number of the last event that has ended a row of each key (:data:`_ENDED`), NULL if none has.

    The row was deleted, or the table was emptied, and the row was not read again.

    :param cuts: numbers of the events that have emptied the table, ascending
    """
    each = F.array(*[F.lit(number).cast("bigint") for number in cuts])
    passed = F.array_max(F.filter(each, lambda cut: cut < F.col(SEQ)))
    of_key = events.groupBy(*names).agg(
        F.collect_set(F.when(F.col(OP) == "r", passed)).alias(_READ),
        F.max(F.when(F.col(OP) == "d", F.col(SEQ))).alias(_OLD),
    )
    return of_key.select(*names, F.greatest(_OLD, F.array_max(F.array_except(each, _READ))).alias(_ENDED))


def _apart(rows: DataFrame) -> DataFrame:
    """Reduced rows for a merge."""
    return split_recreated_rows(rows) if RECREATED in rows.columns else rows


def _filled(there: DataFrame, types: Mapping[str, str], fills: Mapping[str, str | None]) -> DataFrame:
    """Return the table's rows as they are when the fills are made."""
    return there.select(
        *[build_fill_value(fills[c], t).alias(c) if c in fills else F.col(quote_name(c)) for c, t in types.items()]
    )
