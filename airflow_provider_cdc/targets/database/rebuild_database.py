"""Builds tables of a database again from the change log: a table that is lost, emptied or changed by other programs or by hand.

Its rows are deleted and its marker is set back, in one transaction; then it is brought up to the others, as any table that is behind. Capture and apply continue.
If that is killed, the next apply continues with it. Readers see the table fill up.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from airflow_provider_cdc.changelog.files.change_log import ChangeLog
from airflow_provider_cdc.changelog.reading.table_start_batch import unbuildable_error
from airflow_provider_cdc.changelog.reports.apply_report import TableState
from airflow_provider_cdc.changelog.reports.apply_report_store import ApplyReports
from airflow_provider_cdc.changelog.reports.rebuild_report_store import RebuildReports
from airflow_provider_cdc.changelog.reports.table_job_reports import RebuildReport, TableRebuilt
from airflow_provider_cdc.core.errors import ConfigError, TargetError
from airflow_provider_cdc.core.model.table_schema import TableSchema
from airflow_provider_cdc.targets.database.apply.database_apply import TARGET, DatabaseApply
from airflow_provider_cdc.targets.database.config import DatabaseTargetConfig
from airflow_provider_cdc.targets.database.progress.marker_table import DatabaseMarkers
from airflow_provider_cdc.targets.database.schema.target_table import name_of
from airflow_provider_cdc.targets.database.schema.topic_filter import is_topic_selected

log = logging.getLogger(__name__)

WHY = "the table is being rebuilt from the change log"
"""Text of the marker of a table meanwhile."""


@dataclass(slots=True)
class _RebuildTopic:
    """A topic of the change log.

    :param emptied: the last batch in which its table was emptied; 0 if there is none
    """

    schema: TableSchema
    emptied: int = 0


class RebuildDatabase:
    """Builds tables of one database again.

        >>> RebuildDatabase(engine, config, ChangeLog("/data/changelog"), "shop").run(["inventory.orders"])["tables"][0]["batch"]
        1203

    :param engine: of the target database
    :param noted: as of :class:`~airflow_provider_cdc.targets.database.apply.database_apply.DatabaseApply`
    :raises TargetUnavailable: the database cannot be reached
    """

    def __init__(
        self,
        engine: sa.Engine,
        config: DatabaseTargetConfig,
        changelog: ChangeLog,
        connector: str,
        *,
        noted: Mapping[str, Any] | None = None,
    ) -> None:
        self._sink = DatabaseApply(engine, config, changelog, connector, noted=noted)
        self._config, self._changelog, self._connector = config, changelog, connector

    def run(self, names: Collection[str], run: str = "") -> RebuildReport:
        """Build some tables.

        :param names: topics, or names of tables at the source
        :param run: id of the run
        :return: the report, see :class:`airflow_provider_cdc.changelog.reports.table_job_reports.RebuildReport`
        :raises ConfigError: no such table is applied; nothing was changed
        :raises BatchesRemoved: the change log has no longer all of a table; nothing was changed
        :raises TargetError: the change log ends before a batch that the tables have, or a table would not take its rows; nothing was changed
        :raises TargetUnavailable: the database cannot be reached
        """
        began = time.monotonic()
        topics = self._topics()
        meant = self._meant(names, topics)
        after = {topic: self._after(topic, topics[topic]) for topic in meant}
        for topic in meant:
            self._sink.refuse_unfit(topic, topics[topic].schema)
        self._hold_back(after)
        for topic in meant:
            self._sink.set_back(topic, topics[topic].schema, after[topic], WHY)
            log.info("Rebuilding the table of %s from batch %d on.", topic, after[topic] + 1)
        problem = ""
        try:
            self._sink.apply()
        except TargetError:  # other tables are reported by their own apply
            if not self._sink.done.failed:
                raise
            failed = {topic: why for topic, why in self._sink.done.failed.items() if topic in after}
            problem = "\n".join(f"{topic}: {why}" for topic, why in sorted(failed.items()))
        now = self._sink.read_markers()
        report: RebuildReport = {
            "connector": self._connector, "target": TARGET, "location": self._sink.done.place, "run": run,
            "tables": [self._built(topic, topics[topic], now, began) for topic in meant if topic not in now.behind],
            "problem": problem, "seconds": round(time.monotonic() - began, 3),
        }  # fmt: skip
        RebuildReports(self._changelog.storage, self._connector).write(report)
        return report

    def _built(self, topic: str, entry: _RebuildTopic, now: DatabaseMarkers, began: float) -> TableRebuilt:
        location = str(name_of(topic, entry.schema, self._config, self._sink.fold_name))
        return {"topic": topic, "location": location, "batch": now.batch, "seconds": round(time.monotonic() - began, 3)}

    def _topics(self) -> dict[str, _RebuildTopic]:
        """List the topics that the change log has."""
        mark = self._changelog.read_truncation_marker(self._connector)
        topics = dict[str, _RebuildTopic]()
        for manifest in self._changelog.read_manifests(self._connector, after=mark.first - 1 if mark else 0):
            for topic, versions in manifest.schemas.items():
                earlier = topics.get(topic)
                schema = versions[max(versions, key=int)]
                topics[topic] = _RebuildTopic(schema, earlier.emptied if earlier else 0)
            for file in manifest.files:
                if "t" in file.counts and file.topic in topics:
                    topics[file.topic].emptied = manifest.batch
        return {topic: entry for topic, entry in topics.items() if is_topic_selected(topic, self._config)}

    def _meant(self, names: Collection[str], topics: Mapping[str, _RebuildTopic]) -> list[str]:
        """Find the topics of the tables that are meant.

        :raises ConfigError: there is no such table
        :raises BatchesRemoved: there is nothing of it any more
        """
        selected = list[str]()
        for name in names:
            meant = [t for t, entry in topics.items() if name in (t, str(entry.schema.id), entry.schema.id.full_name)]
            if not meant:
                self._refuse_gone(name)
                known_names = ", ".join(sorted(str(entry.schema.id) for entry in topics.values())[:20]) or "none"
                raise ConfigError(
                    f"The change log of {self._connector} contains no table {name} that is applied here.",
                    where=f"tables: {known_names}",
                    safe="No table was changed.",
                    remedy="name tables as <database>.<table>, or topics",
                )
            selected += [topic for topic in meant if topic not in selected]
        return selected

    def _refuse_gone(self, name: str) -> None:
        """Reject tables of which the change log has nothing any more.

        :raises BatchesRemoved: only batches that were removed had anything of the table
        """
        mark = self._changelog.read_truncation_marker(self._connector)
        if mark is None:
            return
        for topic, gone in (mark.topics or {}).items():
            if name in (topic, str(gone.table)) and is_topic_selected(topic, self._config):
                place = self._sink.done.place
                raise unbuildable_error(self._connector, mark, topic, 0, new=True, base=0, where=place)

    def _after(self, topic: str, entry: _RebuildTopic) -> int:
        """Return the batch after which a table is built.

        :raises BatchesRemoved: the change log has no longer all of it
        """
        mark = self._changelog.read_truncation_marker(self._connector)
        if mark is None:
            return 0
        if not mark.may_lack(topic, 0):
            return mark.first - 1
        if not entry.emptied:
            raise unbuildable_error(
                self._connector, mark, topic, 0, new=True, base=0, where=self._sink.done.place,
                table=str(entry.schema.id),
            )  # fmt: skip
        return entry.emptied - 1

    def _hold_back(self, after: Mapping[str, int]) -> None:
        """Make sure that the needed batches are kept, before the rebuild begins."""
        reports = ApplyReports(self._changelog.storage, self._connector)
        report = reports.register_target(TARGET, self._sink.done.place)
        table_states = dict(report["table_states"])
        for topic, batch in after.items():
            unknown: TableState = {"location": "", "stamp": "", "batch": batch}
            table_states[topic] = {**table_states.get(topic, unknown), "batch": batch}
        reports.write({**report, "table_states": table_states, "lagging": {**report["lagging"], **after}})
