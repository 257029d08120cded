"""The state of the change log and of the last report, before any table is read."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from airflow_provider_cdc.changelog.files.change_log import ChangeLog
from airflow_provider_cdc.changelog.files.truncation_marker import TruncationMarker
from airflow_provider_cdc.changelog.reading.pending_batches import BatchesByTopic
from airflow_provider_cdc.changelog.reports.apply_report import ApplyReport, SourceTableEntry, TableState
from airflow_provider_cdc.changelog.reports.apply_report_store import rules_of
from airflow_provider_cdc.core.config.target_table_rules import TableRules
from airflow_provider_cdc.core.model.batch_manifest import BatchContents, Manifest
from airflow_provider_cdc.core.model.table_schema import TableId, TableSchema
from airflow_provider_cdc.core.remedy_commands import format_cdc_command
from airflow_provider_cdc.targets.lake.formats.owners_and_markers import NEVER
from airflow_provider_cdc.targets.lake.rules.topic_target import TargetTable

log = logging.getLogger("airflow_provider_cdc.targets.lake.backlog.reported_apply_state")

GROUP_BYTES = 2 << 30
"""About as many bytes of change log are merged at once; a longer backlog takes several commits."""


@dataclass(frozen=True, slots=True)
class BacklogState:
    """The state that is known before any table is read.

    :param start: the batch behind which ``groups`` begin
    :param last: the newest batch
    :param reported: whether all tables except the lagging ones had the batch ``start`` after the last run
    :param table_states: as in the last report
    :param lagging: as in the last report
    :param reported_batches: table → its last batch by the last report, even if the report is of no use otherwise
    :param evidence: location → the last batch of the table there when an apply had brought it up to date, and the one up to which it had; also where
        the report is of no use otherwise
    :param before: without a report, the known state of batches that were removed from the change log
    :param settled: topic → the batch up to which all of its tables are known and up to date, where a route makes several and the report is of no use
        otherwise
    :param changelog: identity of the change log
    :param writer: of the newest batch; empty if that is not known
    """

    start: int
    last: int
    groups: list[BatchesByTopic]
    reported: bool
    table_states: dict[str, TableState]
    lagging: dict[str, int]
    reported_batches: Mapping[str, int] = field(default_factory=dict)
    evidence: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    before: TruncationMarker | None = None
    settled: Mapping[str, int] = field(default_factory=dict)
    changelog: str = ""
    writer: str = ""

    @property
    def known_topics(self) -> set[str]:
        gone = (self.before.topics or {}) if self.before is not None else {}
        return {*self.table_states, *gone}.union(*(group.topics for group in self.groups))

    def list_idle_entries(self) -> dict[str, TableState]:
        """Return the report's entries of tables without events in new batches.

        Those that a route gives rows are among them; they may have none in these batches.
        """
        new = set[str]().union(*(group.topics for group in self.groups))
        return {t: entry for t, entry in self.table_states.items() if t not in new and t not in self.lagging}

    def find_report_entry(self, topic: str) -> TableState:
        return self.table_states.get(topic, {"location": "", "batch": NEVER, "stamp": ""})

    def find_reached_batch(self, topic: str) -> int:
        """Return the last batch of a table that could not be brought further.

        Of a topic with a route, it is the batch up to which its tables are known.
        """
        there = topic in self.table_states or any(entry.get("topic") == topic for entry in self.table_states.values())
        return self.lagging.get(topic, self.start if there else 0)

    def find_table(self, topic: str) -> TableId | None:
        """Return the table of a topic, by the newest batches; or by those that were removed."""
        table = next((table for group in reversed(self.groups) if (table := group.find_table(topic))), None)
        if table is None and self.before is not None and self.before.topics:
            gone = self.before.topics.get(topic)
            return None if gone is None else gone.table
        return table

    def never_had(self, table: TargetTable) -> bool:
        """Check whether the topic of a table is new since the last report."""
        reported_names = self.table_states.keys() | self.lagging.keys()
        return self.reported and bool(self.table_states) and table.place is None and table.name not in reported_names

    def is_gone_at_source(self, topic: str) -> bool:
        """Check whether the source has no table of a topic any more: it was dropped, or has another name."""
        table = self.find_table(topic)
        if table is None:
            return bool(self.find_report_entry(topic).get("dropped"))
        for group in reversed(self.groups):
            if table.full_name in group.dropped or table.full_name in group.renamed:
                return True
            if topic in group:
                return False
        mark = self.before
        return bool(self.find_report_entry(topic).get("dropped")) or (
            mark is not None and (table.full_name in mark.dropped or table.full_name in mark.renamed)
        )

    def find_table_schema(self, topic: str) -> TableSchema | None:
        """Return the schema of a topic's table, by the newest batches."""
        return next((schema for group in reversed(self.groups) if (schema := group.find_schema(topic))), None)

    def list_known_columns(self, topic: str) -> set[str]:
        """Return the columns that a topic's table has or had in these batches."""
        parts = (part for group in self.groups for part in group.list_parts(topic))
        return {name for part in parts for name in part.all_column_names}

    def describe_source_table(self, name: str, topic: str = "") -> SourceTableEntry:
        """Return the table at the source that the report has for a table.

        :param topic: of a table that is called otherwise
        """
        topic = topic or self.find_report_entry(name).get("topic", name)
        table = self.find_table(topic)
        full = self.find_report_entry(name).get("table", "") if table is None else table.full_name
        return {"table": full, "dropped": self._dropped(topic, full, name)}

    def update_report_entry(self, name: str) -> TableState:
        """Return the report's entry of a table with its table at the source: the same object, unless new batches are about it."""
        entry = self.table_states[name]
        if self.before is None and "table" in entry and "dropped" in entry:
            topic, full = entry.get("topic", name), entry["table"]
            if not any(topic in group or full in group.dropped for group in self.groups):
                return entry
        return {**entry, **self.describe_source_table(name)}

    def _dropped(self, topic: str, full: str, name: str) -> bool:
        """Check whether the source has dropped the table."""
        for group in reversed(self.groups):
            if full in group.dropped:
                return True
            if topic in group:
                return False
        return bool(self.find_report_entry(name).get("dropped"))


def view_of(changelog: ChangeLog, connector: str, report: ApplyReport, rules: str) -> BacklogState:
    """Read the present state.

    :param report: of the last apply
    :param rules: digest of the rules for tables
    """
    evidence, table_states = dict[str, tuple[int, int]](), dict[str, TableState]()
    newest, last = _still_there(changelog, connector, report.get("last_batch", 0))
    last_batches = last_batch_per_table(report.get("table_states", {}))
    if report.get("last_batch", 0) > newest or of_another(report, last):
        if last is None:
            log.warning(
                "The change log ends with batch %d, but ended with batch %d before.", newest, report["last_batch"]
            )
        else:
            log.warning(
                "Batch %d differs from the batch of the last apply: the change log is another one, or was restored to an earlier state.",
                newest,
            )
        # each table is inspected, and shows its batches
        table_states = {topic: {**entry, "stamp": ""} for topic, entry in report["table_states"].items()}
        report = {**report, "last_batch": 0, "table_states": table_states}
    if report.get("rules", "") != rules:
        evidence = evidence_of(report)
        log.info("The table rules differ from the rules of the last run: the apply checks each table.")
        # the tables of a route are found again, in all batches
        unrouted = {t: e for t, e in report["table_states"].items() if not ("place" in e or e.get("routed"))}
        lagging = {topic: batch for topic, batch in report["lagging"].items() if topic in unrouted}
        table_states = {topic: {**entry, "stamp": "", "known": False} for topic, entry in unrouted.items()}
        report = {**report, "last_batch": 0, "table_states": table_states, "lagging": lagging}
    start, before = report.get("last_batch", 0), None
    if not start:
        before = changelog.read_truncation_marker(connector)
        start = before.first - 1 if before is not None else 0
        if before is not None and before.topics is None:
            log.warning(
                "The change log of %s starts with batch %d, and it is unknown which tables had earlier events: tables without later events are not created. "
                "To list these tables, run `%s`.",
                connector, before.first, format_cdc_command("verify", connector),
            )  # fmt: skip
    batches = (manifest.batch_contents for manifest in changelog.read_manifests(connector, after=start))
    table_states, lagging = report.get("table_states", {}), report.get("lagging", {})
    reported = bool(report.get("last_batch"))
    gone = before.dropped if before is not None else ()
    groups = group_batches(changelog, batches, table_states if reported else {}, gone)
    changelog_, writer = _whose(changelog, connector, groups, newest, last)
    newest = groups[-1].last if groups else newest
    if not newest:
        log.warning("The change log %s has no batch of connector %s.", changelog.storage.url, connector)
    return BacklogState(
        start, max(newest, start), groups, reported, table_states, lagging, last_batches, evidence, before, changelog=changelog_, writer=writer
    )  # fmt: skip


def add_known_routed_tables(view: BacklogState, report: ApplyReport, rules: TableRules) -> BacklogState:
    """Build a view of a change log whose beginning was removed, with other rules of tables than those of the last run.

    The tables of a route are known for topics whose rule is the same; they cannot be found again in batches that are gone.

    :param report: of the last apply
    :param rules: that are in force
    """
    before = rules_of(report)
    if not report.get("last_batch") or report["last_batch"] > view.last or before == rules:
        return view
    settled, routed_states = dict[str, int](), dict[str, TableState]()
    routed = {name: entry for name, entry in report["table_states"].items() if "place" in entry}
    behind = report["failed"].keys() | report["lagging"].keys()
    for topic in {entry["topic"] for entry in routed.values()}:
        table, entries = view.find_table(topic), {name: e for name, e in routed.items() if e["topic"] == topic}
        if (
            table is not None
            and not behind & {topic, *entries}
            and before.match_table(table) == rules.match_table(table)
        ):
            settled[topic], routed_states = int(report["last_batch"]), routed_states | entries
    return replace(view, table_states={**view.table_states, **routed_states}, settled=settled)


def evidence_of(report: ApplyReport) -> dict[str, tuple[int, int]]:
    """Location → the last batch of the table there by a report, and the batch up to which it had everything. Those that had not are left out."""
    behind, last = report["failed"].keys() | report["lagging"].keys(), int(report["last_batch"])
    return {
        entry["location"]: (int(entry["batch"]), last)
        for name, entry in report["table_states"].items()
        if entry["location"] and entry["batch"] != NEVER and not entry.get("shared") and name not in behind and entry.get("topic", name) not in behind
    }  # fmt: skip


def _still_there(changelog: ChangeLog, connector: str, batch: int) -> tuple[int, Manifest | None]:
    """Return a batch that was there, with its manifest.

    If it is not there any more, return the newest one, for which all are listed.
    """
    if not batch:
        return batch, None
    if (manifest := changelog.find_manifest(connector, batch)) is not None:
        return batch, manifest
    return max(changelog.list_batches(connector), default=0), None


def of_another(report: ApplyReport, last: Manifest | None) -> bool:
    """Check whether a report is about another change log, or one that was put back to an earlier state since.

    :param last: manifest of the report's last batch, as it is now; ``None`` if it is removed
    """
    return last is not None and report.get("writer", "") not in ("", last.writer)


def _whose(
    changelog: ChangeLog, connector: str, groups: list[BatchesByTopic], newest: int, last: Manifest | None
) -> tuple[str, str]:
    """Return the identity of the change log, and the writer of its newest batch."""
    if groups:
        return groups[-1].changelog, groups[-1].writers[groups[-1].last]
    if last is None and newest:
        last = changelog.find_manifest(connector, newest)
    return (last.changelog_id, last.writer) if last is not None else ("", "")


def last_batch_per_table(table_states: Mapping[str, TableState]) -> dict[str, int]:
    """Table → its last batch, by a report."""
    return {name: int(entry["batch"]) for name, entry in table_states.items()}


def group_batches(
    changelog: ChangeLog,
    batches: Iterable[BatchContents],
    table_states: Mapping[str, TableState],
    gone: Collection[str] = (),
) -> list[BatchesByTopic]:
    """Batches in groups that are merged at once.

    :param table_states: of the report of the batch before them
    :param gone: full names of tables that the source had dropped before them, besides those
    """
    all_groups, dropped = (
        list[BatchesByTopic](),
        {entry.get("table", "") for entry in table_states.values() if entry.get("dropped")} | {*gone},
    )
    for group in _groups(batches):
        all_groups.append(BatchesByTopic(changelog, group, dropped))
        dropped = all_groups[-1].gone
    return all_groups


def _groups(batches: Iterable[BatchContents]) -> Iterator[list[BatchContents]]:
    """Consecutive batches, about :data:`GROUP_BYTES` of files together."""
    group: list[BatchContents] = []
    size = 0
    for batch in batches:
        group.append(batch)
        size += batch.total_bytes
        if size >= GROUP_BYTES:
            yield group
            group, size = [], 0
    if group:
        yield group
