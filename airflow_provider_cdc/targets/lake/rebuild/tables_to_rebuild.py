"""The tables that are built again: which ones a topic has, where they are, and by which rules they are kept.

Where a route brings the rows of a topic to several tables, these are the ones that the report of the last apply knows, and those to which any row of the change
log ever went, as an apply finds them that begins at batch 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from pyspark.sql import SparkSession

from airflow_provider_cdc.changelog.files.change_log import ChangeLog
from airflow_provider_cdc.changelog.reading.pending_batches import BatchesByTopic, PendingBatches
from airflow_provider_cdc.changelog.reading.table_start_batch import unbuildable_error
from airflow_provider_cdc.changelog.reports.apply_report_store import ApplyReports, rules_of
from airflow_provider_cdc.core.config.name_suggestions import names_in
from airflow_provider_cdc.core.config.target_table_rules import NO_RULES, TableRules
from airflow_provider_cdc.core.errors import ConfigError
from airflow_provider_cdc.targets.lake.backlog.reported_apply_state import BacklogState
from airflow_provider_cdc.targets.lake.backlog.unapplied_batches import Backlog
from airflow_provider_cdc.targets.lake.formats.owners_and_markers import NEVER
from airflow_provider_cdc.targets.lake.formats.table_location import table_location
from airflow_provider_cdc.targets.lake.placement.affected_route_tables import RoutedTables
from airflow_provider_cdc.targets.lake.placement.table_placement import TablePlacement
from airflow_provider_cdc.targets.lake.rebuild.full_change_log import FullChangeLog
from airflow_provider_cdc.targets.lake.rules.projection import Projection
from airflow_provider_cdc.targets.lake.rules.row_routing import RouteBranch
from airflow_provider_cdc.targets.lake.rules.topic_target import TargetTable

PLACE = "place"
"""Name in ``--to`` for the text that distinguishes the tables of a route."""


class RebuildTargets:
    """The tables of one target.

    :param location: as it was given to the apply
    :param rules: by which tables are kept; ``None``: those of the last apply
    :ivar applied: the last batch that an apply has read; 0 if there is no report
    """

    def __init__(
        self, changelog: ChangeLog, connector: str, kind: str, location: str, rules: TableRules | None = None
    ) -> None:
        report = ApplyReports(changelog.storage, connector).read(kind, location)
        last = NO_RULES if report is None else rules_of(report)
        self.applied = 0 if report is None else int(report["last_batch"])
        self._rules = last if rules is None else rules
        self._stands = {} if report is None else report["table_states"]
        # the report's tables follow the rules in the report
        self._same = self._rules == last
        self._connector, self._location = connector, location
        self._placement = TablePlacement(connector, location, self._rules)
        self._places = RoutedTables(changelog, connector, self._placement, Backlog(changelog, connector))

    def find_last_applied_batch(self, whole: FullChangeLog) -> int:
        """Return the last batch that an apply has read, if that is known and kept."""
        return min(max(self.applied, whole.batches.first) if self.applied else whole.last_batch, whole.last_batch)

    def resolve_tables(
        self, spark: SparkSession, names: Sequence[str], whole: FullChangeLog, until: int, *, only_new: bool
    ) -> list[TargetTable]:
        """Resolve the names that people give to tables.

        :param names: topics, tables of the source, or of a topic with a route the name or the location of one of its tables
        :param whole: the change log
        :param until: the last batch whose rows decide which tables a route makes
        :param only_new: only the tables that an apply of these batches would create, without the known ones
        :raises ConfigError: there is no such table
        :raises BatchesRemoved: it cannot be built any more
        """
        topics, single = _topics(whole.batches), {t.name: t for t in self._reported()}
        single |= {t.location: t for t in single.values()}
        if unknown := sorted({*names} - topics.keys() - single.keys()):
            self._refuse_removed(unknown, whole)
            raise ConfigError(
                f"Up to batch {whole.last_batch}, the change log of {self._connector} has no topic {', '.join(unknown)}, and no table of a route has this name.",
                safe="No table was changed.",
                remedy=f"use one of these topics: {', '.join(sorted(whole.batches.topics)[:20])}",
            )
        selected: dict[str, TargetTable] = {}
        for name in names:
            tables = [single[name]] if name not in topics else self._of(spark, topics[name], whole, until)
            if not only_new and name in topics:
                tables += [t for t in self._reported() if t.topic == topics[name]]
            selected |= {table.name: table for table in tables}
        return list(selected.values())

    def _refuse_removed(self, names: Sequence[str], whole: FullChangeLog) -> None:
        """Reject tables whose events are removed from the change log.

        :raises BatchesRemoved: everything that the change log had of one of these tables is removed
        """
        gone = (whole.mark.topics or {}) if whole.mark is not None else {}
        for topic, entry in gone.items():
            if whole.mark is not None and {topic, str(entry.table)} & {*names}:
                where = self._placement.describe_locations(topic, entry.table)
                raise unbuildable_error(self._connector, whole.mark, topic, 0, new=True, base=0, where=where)

    def _of(self, spark: SparkSession, topic: str, whole: FullChangeLog, until: int) -> list[TargetTable]:
        """Return the tables of a topic; of one with a route, those to which any row ever went."""
        table = whole.batches.find_table(topic)
        assert table is not None
        matched = self._placement.match_rule(table)
        if not matched.rule.is_routed:
            location = matched.rule.location or self._location
            at = table_location(location, self._connector, topic, table, matched.groups)
            return [TargetTable(topic, topic, at, bool(matched.rule.shard))]
        view = BacklogState(
            0, until, [whole.select_batches(until)], reported=False, table_states={}, lagging={}, before=whole.mark
        )
        return self._places.find_affected_tables(spark, topic, view, {})

    def _reported(self) -> list[TargetTable]:
        """Return the tables of routes that the last apply knows."""
        if not self._same:
            return []
        return [TargetTable.from_report(name, entry) for name, entry in self._stands.items() if "place" in entry]

    def was_created(self, table: TargetTable) -> bool:
        """Return whether an apply has made the table once, so that it may be made again if it is gone."""
        if table.place is not None:
            return True
        entry = self._stands.get(table.name)
        return entry is not None and entry["location"] == table.location and entry["batch"] > NEVER

    def relocate_tables(self, tables: Sequence[TargetTable], to: str, whole: FullChangeLog) -> list[TargetTable]:
        """Return the same tables at other locations.

        :raises ConfigError: several of them would be at one, or one where it is
        """
        if any(table.place is not None for table in tables) and PLACE not in names_in(to):
            raise ConfigError(
                f"A rule routes rows to several tables, but --to gives all of them one location, {to}.",
                safe="No table was changed.",
                remedy="use {place} in --to, which differs for each of these tables, for example --to /lake/rebuilt/{table}/{place}",
            )
        by_location: dict[str, TargetTable] = {}
        for table in tables:
            moved = self._moved(table, to, whole)
            if moved.location.rstrip("/") == table.location.rstrip("/"):
                raise ConfigError(
                    f"The table of {table.name} is at {moved.location}, and --to gives the same location.",
                    safe="No table was changed.",
                    remedy="give another location, or leave out --to to rebuild the table in its place",
                )
            if (other := by_location.setdefault(moved.location, moved)) is not moved:
                raise ConfigError(
                    f"The tables of {other.name} and {table.name} would both be at {moved.location}.",
                    safe="No table was changed.",
                    remedy="use {database} and {table}, or {topic}, in --to",
                )
        return list(by_location.values())

    def _moved(self, table: TargetTable, to: str, whole: FullChangeLog) -> TargetTable:
        source = whole.batches.find_table(table.topic)
        assert source is not None
        groups, values = self._placement.match_rule(source).groups, {PLACE: _text(table.place)}
        return replace(table, location=table_location(to, self._connector, table.topic, source, groups, values))

    def build_projection(
        self, spark: SparkSession, table: TargetTable, pending: PendingBatches, *, strict: bool
    ) -> Projection:
        """Return the shape that the rule gives the rows of a table.

        :param strict: as of :func:`airflow_provider_cdc.targets.lake.rules.projection_builder.build_projection`
        """
        return self._placement.build_projection(
            spark, table.topic, pending.schema, strict, table.place, pending.all_column_names
        )


def _topics(batches: BatchesByTopic) -> dict[str, str]:
    """Map the names that people have for topics to the topics."""
    return {str(batches.find_table(topic)): topic for topic in sorted(batches.topics)} | {t: t for t in batches.topics}


def _text(place: RouteBranch | None) -> str:
    """Return the text that distinguishes a table from the others of its topic, in a location.

    >>> _text(RouteBranch(0, "eu")), _text(RouteBranch(1)), _text(RouteBranch(-1)), _text(None)
    ('1_eu', '2', 'otherwise', 'all')
    """
    if place is None:
        return "all"
    if place.step < 0:
        return "otherwise"
    return f"{place.step + 1}" if place.value is None else f"{place.step + 1}_{place.value}"
