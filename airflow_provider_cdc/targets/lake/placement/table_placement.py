"""Placement of the tables of topics: their locations, and the rules that they are kept by."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping

from pyspark.sql import SparkSession

from airflow_provider_cdc.changelog.reports.apply_report import TableState
from airflow_provider_cdc.core.config.name_suggestions import names_in
from airflow_provider_cdc.core.config.row_routing_rules import AGGREGATE, VALUE
from airflow_provider_cdc.core.config.target_table_rules import PLAIN, MatchedRule, TableRules
from airflow_provider_cdc.core.errors import ConfigError
from airflow_provider_cdc.core.model.table_schema import TableId, TableSchema
from airflow_provider_cdc.targets.lake.backlog.reported_apply_state import BacklogState
from airflow_provider_cdc.targets.lake.formats.owners_and_markers import NEVER
from airflow_provider_cdc.targets.lake.formats.table_location import table_location
from airflow_provider_cdc.targets.lake.formats.target_interface import Target
from airflow_provider_cdc.targets.lake.rules.projection import Projection
from airflow_provider_cdc.targets.lake.rules.projection_builder import build_projection
from airflow_provider_cdc.targets.lake.rules.row_routing import ELSE, RouteBranch
from airflow_provider_cdc.targets.lake.rules.topic_target import TargetTable

log = logging.getLogger(__name__)


class TablePlacement:
    """The tables of one connector: where they are, which topics share one, and the projections of their rows by rules.

    :param location: where tables are unless their rule says otherwise
    """

    def __init__(self, connector: str, location: str, rules: TableRules) -> None:
        self._connector, self._location, self._rules = connector, location, rules
        self._checked = False
        self._tables: dict[str, TableId] = {}
        self._placed: dict[str, tuple[TableState, TableId | None, TargetTable | None]] = {}
        """Name → where a table was, and the entry and the table at the source that say so: most are the same in the next round."""

    def list_known_tables(self, view: BacklogState) -> dict[str, TargetTable]:
        """Name → table, of all that a view knows. A topic with a route is none, but its tables that the report knows are.

        :raises ConfigError: two tables would be at one location, and nothing would distinguish their rows
        """
        tables: dict[str, TargetTable] = {}
        by_location: dict[str, TargetTable] = {}
        by_shard: dict[tuple[str, str], TargetTable] = {}
        before, self._placed = self._placed, {}
        # topics whose tables at the source are known; all may be, where the beginning of the log was removed
        new = None if view.before is not None else set[str]().union(*(group.topics for group in view.groups))
        for name in sorted(view.known_topics):
            entry, placed_before = view.find_report_entry(name), before.get(name)
            table = view.find_table(name) if new is None or name in new else None
            if placed_before is None or placed_before[0] is not entry or placed_before[1] != table:
                placed_before = entry, table, self._table(view, name, entry, table)
            self._placed[name] = placed_before
            placed = placed_before[2]
            if placed is None:
                continue
            other = by_location.setdefault(placed.location, placed)
            if other is not placed and not (placed.shared and other.shared):
                raise ConfigError(
                    f"The tables of {other.name} and {placed.name} would both be at {placed.location}.",
                    safe="No table was changed.",
                    remedy="use {database} and {table}, or {topic}, in the location; or let them share a table, with a rule that has a shard column",
                )
            if placed.texts and (same := by_shard.setdefault((placed.location, _shard(placed)), placed)) is not placed:
                raise _one_shard(placed, same)
            tables[name] = placed
        return tables

    def _table(self, view: BacklogState, name: str, entry: TableState, table: TableId | None) -> TargetTable | None:
        if "place" in entry:
            return TargetTable.from_report(name, entry)
        if table is None:
            if entry.get("routed"):
                return None
            return TargetTable(
                name, name, entry["location"], self.is_shared_table(view, name), texts=entry.get("texts")
            )
        matched = self._rules.match_table(table)
        self._tables[name] = table
        if matched.rule.is_routed:
            return None
        location = table_location(matched.rule.location or self._location, self._connector, name, table, matched.groups)
        texts = matched.build_constants(self._connector, name, table) if matched.rule.shard else None
        return TargetTable(name, name, location, bool(matched.rule.shard), texts=texts)

    def match_rule(self, table: TableId) -> MatchedRule:
        """Return the rule of a table."""
        return self._rules.match_table(table)

    def resolve_branch_location(self, matched: MatchedRule, topic: str, table: TableId, place: RouteBranch) -> str:
        """Return the location of one of the tables that a route makes of a topic."""
        rule, values = matched.rule, dict[str, str]()
        location = rule.location or self._location
        if rule.outbox is not None:
            if not {"table", "topic", AGGREGATE} & names_in(location):
                raise ConfigError(
                    f"All aggregate types of {table} would have the same table at {location}.",
                    safe="No table was changed.",
                    remedy="give the rule for the outbox a location with {table}, {topic} or {" + AGGREGATE + "}",
                )
            name = rule.outbox.format_topic(str(place.value))
            values = {"table": name, "topic": name, AGGREGATE: str(place.value)}
        elif place != ELSE:
            location, values = rule.route[place.step].location, {VALUE: str(place.value)}
        return table_location(location, self._connector, topic, table, matched.groups, values)

    def describe_locations(self, topic: str, table: TableId | None) -> str:
        """Return the location of the tables of a topic, as text for people."""
        return (self._rules.select_rule(table).location if table is not None else None) or self._location

    def is_shared_table(self, view: BacklogState, topic: str) -> bool:
        """Return whether the table of a topic has rows of other topics, too."""
        table = view.find_table(topic)
        return (
            bool(view.find_report_entry(topic).get("shared"))
            if table is None
            else bool(self._rules.select_rule(table).shard)
        )

    def build_projection(
        self, spark: SparkSession, topic: str, schema: TableSchema, strict: bool, place: RouteBranch | None = None, before: Collection[str] = (),
    ) -> Projection:  # fmt: skip
        """Build the shape of the rows of a table by its rule; of a rule with a route, of those that go to a place.

        It is that of :func:`airflow_provider_cdc.targets.lake.rules.projection_builder.build_projection`.
        """
        matched = self.match_rule(schema.id)
        return build_projection(
            spark, matched, self._connector, topic, schema, strict=strict, place=place, before=before
        )

    def check_rules(
        self,
        spark: SparkSession,
        view: BacklogState,
        tables: Mapping[str, TargetTable],
        open_table: Callable[[str], Target],
    ) -> None:
        """Check the rules of all tables that are new, or whose rules are, before any table is written; once.

        :raises ConfigError: a rule does not fit its table
        """
        if self._checked or not self._rules:
            return
        routed = {table.topic for table in tables.values() if table.place is not None}
        for topic in sorted(view.known_topics):
            schema, entry = view.find_table_schema(topic), view.find_report_entry(topic)
            there = entry["batch"] > NEVER and entry.get("known", True)
            if schema is None or self._rules.select_rule(schema.id) is PLAIN or there or topic in routed:
                continue
            placed = tables.get(topic)
            # of a topic with a route, any place shows the limits of its kind of table
            where = (
                self.resolve_branch_location(self.match_rule(schema.id), topic, schema.id, ELSE)
                if placed is None
                else placed.location
            )
            target = open_table(where)
            if placed is not None and target.exists() and target.read_rule():
                continue  # the table's own thread checks whether the table was made by this rule
            projection = self.build_projection(
                spark,
                topic,
                schema,
                strict=True,
                place=ELSE if placed is None else None,
                before=view.list_known_columns(topic),
            )
            target.check_columns([*projection.map_column_types(schema), *projection.map_flag_types()])
            target.check_types(projection.map_column_types(schema))
            target.check_layout(projection.build_layout())
        # the names of tables without new events are not known here
        unused = (
            self._rules.find_unused_patterns(self._tables.values())
            if all(map(view.find_table, view.known_topics))
            else []
        )
        for patterns in unused:
            log.warning(
                "No table of %s uses the rule for %s: no table matches it, or an earlier rule matches first.",
                self._connector,
                patterns,
            )
        self._checked = True


def _shard(table: TargetTable) -> str:
    """Return the text that distinguishes the rows of a topic from those of others in a table that they share."""
    return next(iter((table.texts or {}).values()))


def _one_shard(table: TargetTable, other: TargetTable) -> ConfigError:
    column, text = next(iter((table.texts or {}).items()))
    return ConfigError(
        f"The rows of {other.name} and {table.name} would both have {text!r} in column {column} of the table at {table.location}, "
        "which distinguishes the source tables.",
        safe="No table was changed.",
        remedy="give the shard column a different text for each of them, such as {database}.{table} or named groups of the pattern",
    )
