"""Finds the tables that new batches of a topic concern, where a route brings its rows to several.

A table of which no row goes, and to which none comes, is not touched, and its marker stays behind. To find out, one query reads the images before
and after each event. An event that it cannot assign concerns all known tables.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from airflow_provider_cdc.changelog.files.change_log import ChangeLog
from airflow_provider_cdc.changelog.reading.pending_batches import BatchesByTopic, PendingBatches
from airflow_provider_cdc.changelog.reading.table_start_batch import TableStart
from airflow_provider_cdc.core.config.target_table_rules import MatchedRule
from airflow_provider_cdc.core.errors import ConfigError, TargetError
from airflow_provider_cdc.core.model.table_schema import TableSchema
from airflow_provider_cdc.targets.lake.backlog.reported_apply_state import BacklogState
from airflow_provider_cdc.targets.lake.backlog.unapplied_batches import Backlog
from airflow_provider_cdc.targets.lake.events import event_reduction, row_images
from airflow_provider_cdc.targets.lake.placement.table_placement import TablePlacement
from airflow_provider_cdc.targets.lake.rows.last_event_per_key import OP, OURS, UNKNOWN
from airflow_provider_cdc.targets.lake.rows.multiset_rewrite import NUMBER
from airflow_provider_cdc.targets.lake.rules.projection import Projection
from airflow_provider_cdc.targets.lake.rules.projection_builder import build_routing
from airflow_provider_cdc.targets.lake.rules.row_routing import ELSE, CheckedRoute, RouteBranch
from airflow_provider_cdc.targets.lake.rules.topic_target import TargetTable
from airflow_provider_cdc.targets.lake.schema.mixed_type_columns import with_room
from airflow_provider_cdc.targets.lake.session.spark_session import tune_session

log = logging.getLogger("airflow_provider_cdc.targets.lake.placement.affected_route_tables")

MOST = 1000
"""Tables that a route may make of one source table: more are a mistake in the route."""
_KINDS = 10
"""Groups of events that one place can have: by image and operation."""
_STEP, _VALUE, _COUNT = f"{OURS}step", f"{OURS}value", f"{OURS}count"


@dataclass
class _RouteChanges:
    """The effect of some batches on places.

    :param come: places to which rows come
    :param touched: these, and those from which rows go
    :param whole: whether each table that is known has to look itself
    :param left: rows that no step takes
    """

    come: set[RouteBranch] = field(default_factory=set)
    touched: set[RouteBranch] = field(default_factory=set)
    whole: bool = False
    left: int = 0


class RoutedTables:
    """The places of the topics of one connector.

    :param backlog: has batches that are older than those of a view
    """

    def __init__(
        self,
        changelog: ChangeLog,
        connector: str,
        placement: TablePlacement,
        backlog: Backlog,
        *,
        check_crc: bool = False,
    ) -> None:
        self._changelog, self._connector, self._placement = changelog, connector, placement
        self._backlog, self._check_crc = backlog, check_crc
        self._checked: dict[str, tuple[TableSchema, Projection, CheckedRoute]] = {}

    def find_affected_tables(
        self, spark: SparkSession, topic: str, view: BacklogState, tables: Mapping[str, TargetTable]
    ) -> list[TargetTable]:
        """Find the tables of a topic that its new batches concern; those that are new are among them.

        :param tables: all that are known, of other topics, too
        :raises TargetError: the rule of the topic does not allow the contents of the batches
        :raises ConfigError: the route does not fit the table, or brings two tables to one location
        :raises BatchesRemoved: it is not known any more which tables it has
        """
        known_tables = {
            table.place: table for table in tables.values() if table.topic == topic and table.place is not None
        }
        start, groups = self._start(topic, view)
        newest, changes = None, _RouteChanges()
        for group in groups:
            if pending := group.merge_parts(topic, start.after):
                newest = pending
                self._look(spark, pending, changes)
        if newest is None:
            return []
        matched = self._placement.match_rule(newest.schema.id)
        if changes.left and matched.rule.unrouted_rows_action == "error":
            raise _left(newest, changes.left, matched)
        if matched.rule.unrouted_rows_action != "default":
            changes.come.discard(ELSE)
        if len(known_tables.keys() | changes.come) > MOST:
            raise _too_many(newest, matched)
        taken = {table.location: table.name for table in tables.values()}
        new: list[TargetTable] = []
        for place in sorted(changes.come - known_tables.keys(), key=lambda p: (p.step, p.value or "")):
            location = self._placement.resolve_branch_location(matched, topic, newest.schema.id, place)
            new_table = TargetTable.from_route(topic, location, place, start.after, lacks=start.lacks)
            if (other := taken.setdefault(location, new_table.name)) != new_table.name or location in [
                t.location for t in new
            ]:
                raise _one_place(new_table, other)
            new.append(new_table)
        if new:
            log.info("Rows of %s go to new tables: %s.", topic, ", ".join(table.location for table in new[:20]))
        return [table for place, table in known_tables.items() if changes.whole or place in changes.touched] + new

    def _start(self, topic: str, view: BacklogState) -> tuple[TableStart, Sequence[BatchesByTopic]]:
        """Return the start of the search for tables that are not known, and the batches that are searched.

        :raises BatchesRemoved: some of them are gone, and nothing has brought its rows into the log again
        """
        at = view.settled.get(topic, view.lagging.get(topic, view.start if view.reported else 0))
        source = view.find_table(topic)
        where = self._placement.describe_locations(topic, source)
        start = self._backlog.resolve_start(topic, at, view, new=True, where=where, table=str(source or ""))
        behind = start.after < view.start
        return start, self._backlog.list_later_batches(start.after) if behind else view.groups

    def _look(self, spark: SparkSession, pending: PendingBatches, changes: _RouteChanges) -> None:
        for _, file in pending.files:
            self._changelog.check_file(self._connector, file, crc=self._check_crc)
        matched = self._placement.match_rule(pending.schema.id)
        rule = matched.rule
        if rule.outbox is not None:
            _check_updates(pending, rule.outbox.invalid)
        changes.whole |= bool(pending.changes) or (rule.outbox is None and "t" in pending.count_operations())
        if not pending.files:
            return
        tune_session(spark, pending.file_bytes)
        event_reduction.check_names(pending)
        pending = with_room(pending) if pending.changes else pending
        logged = rule.outbox is not None or rule.mode == "log"
        shape, route = self._route(spark, pending, matched)
        # for updates whose image after does not show where the row goes
        shape.list_sparse_columns(event_reduction.list_sparse_columns(pending, 0), pending.schema)
        needs = frozenset() if shape.filter is None else shape.filter.needs
        changes.whole |= rule.outbox is None and bool(row_images.list_incomplete_columns(pending) & needs)
        for sign, op, unknown, step, value, number in _groups(spark, pending, matched, route, logged=logged):
            place = RouteBranch(step, value)
            if unknown or (op == "r" and not logged):
                # no image shows the rows that a read replaces
                changes.whole = True
            if unknown:
                continue
            changes.touched.add(place)
            if sign > 0:
                changes.come.add(place)
                changes.left += number if place == ELSE else 0

    def _route(
        self, spark: SparkSession, pending: PendingBatches, matched: MatchedRule
    ) -> tuple[Projection, CheckedRoute]:
        """Return the rule of a topic, checked against its table; once for each schema."""
        checked = self._checked.get(pending.topic)
        if checked is None or checked[0] != pending.schema:
            shape = self._placement.build_projection(spark, pending.topic, pending.schema, False, ELSE)
            checked = pending.schema, shape, build_routing(spark, matched, pending.schema)
            self._checked[pending.topic] = checked
        return checked[1:]


def _groups(
    spark: SparkSession, pending: PendingBatches, matched: MatchedRule, route: CheckedRoute, *, logged: bool
) -> Iterable[Any]:
    """Image (1: after, -1: before), operation, whether it is not known, place, and how many events there are of all this."""
    rows = row_images.read_row_images(spark, pending)
    if rows is None:
        return []
    rule = matched.rule
    if logged:  # each event is in one table: an update in that of its row
        rows = rows.where((F.col(NUMBER) == 1) | (F.col(OP) == "d"))
    if rule.outbox is not None:
        rows = rows.where(F.col(OP).isin("c", "r"))
    if rule.filter is not None:
        rows = rows.where(F.col(UNKNOWN) | F.coalesce(F.expr(rule.filter), F.lit(col=False)))
    by = [
        F.col(NUMBER),
        F.col(OP),
        F.col(UNKNOWN),
        route.build_step_number().alias(_STEP),
        route.build_branch_value().alias(_VALUE),
    ]
    counted = rows.select(*by).groupBy(NUMBER, OP, UNKNOWN, _STEP, _VALUE).agg(F.count("*").alias(_COUNT))
    group_rows = counted.limit(MOST * _KINDS + 1).collect()
    if len(group_rows) > MOST * _KINDS:
        raise _too_many(pending, matched)
    return group_rows


def _check_updates(pending: PendingBatches, behavior: str) -> None:
    """Check for updates of the rows of an outbox, which are never updated.

    :raises TargetError: some are, and that is configured to be fatal
    """
    number = pending.count_operations().get("u", 0)
    if not number:
        return
    problem = f"{number} rows of the outbox {pending.schema.id} were updated"
    if behavior == "fatal":
        raise TargetError(
            f"{problem}, and table.op.invalid.behavior is fatal.",
            where=f"{pending.topic}, batches {pending.first} to {pending.last}",
            safe="Its tables were not changed; the change log keeps the batches.",
            remedy="change the application so that it only inserts and deletes rows; to ignore these updates, set table.op.invalid.behavior to warn",
        )
    level = logging.WARNING if behavior == "warn" else logging.ERROR
    log.log(level, "%s (batches %d to %d): the apply ignores the updates.", problem, pending.first, pending.last)


def _left(pending: PendingBatches, number: int, matched: MatchedRule) -> TargetError:
    rule = matched.rule
    if rule.outbox is not None:
        problem, remedy = f"have no {rule.outbox.by}", "set otherwise: drop in the rule to ignore such events"
    else:
        problem, remedy = (
            "match no step of the route, and otherwise is set to error",
            "set otherwise in the rule to drop or default",
        )
    return TargetError(
        f"{number} rows of {pending.schema.id} {problem}.",
        where=f"{pending.topic}, batches up to {pending.last}",
        safe="Its tables were not changed; the change log keeps the batches.",
        remedy=f"{remedy}; this also works for existing tables",
    )


def _too_many(pending: PendingBatches, matched: MatchedRule) -> ConfigError:
    return ConfigError(
        f"The rule for {', '.join(matched.rule.tables)} would create more than {MOST:,} tables of {pending.schema.id}.",
        safe="No table of it was changed.",
        remedy="route by an expression with few values; for many values, use one table with partition_by",
    )


def _one_place(table: TargetTable, other: str) -> ConfigError:
    return ConfigError(
        f"The tables of {other} and {table.name} would both be at {table.location}.",
        safe=f"No table of {table.topic} was changed.",
        remedy="give the steps of the route, or the other table, different locations",
    )


def names_of(topics: Collection[str], tables: Mapping[str, TargetTable]) -> set[str]:
    """Return the names of the tables that routes make of some topics."""
    return {name for name, table in tables.items() if table.place is not None and table.topic in topics}
