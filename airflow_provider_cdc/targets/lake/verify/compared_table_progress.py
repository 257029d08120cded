"""Locations of the tables of a comparison, and the batches up to which they have everything.

Both are known by the report of the last apply, and by the tables themselves.
"""

from __future__ import annotations

import time

from airflow_provider_cdc.changelog.files.change_log import ChangeLog
from airflow_provider_cdc.changelog.reports.apply_report import ApplyReport
from airflow_provider_cdc.changelog.reports.apply_report_store import ApplyReports
from airflow_provider_cdc.core.config.target_table_rules import NO_RULES, TableRules
from airflow_provider_cdc.core.model.table_schema import TableId
from airflow_provider_cdc.targets.lake.formats.owners_and_markers import Owner
from airflow_provider_cdc.targets.lake.formats.table_location import table_location
from airflow_provider_cdc.targets.lake.formats.table_values import PinnedTableState
from airflow_provider_cdc.targets.lake.formats.target_interface import Target
from airflow_provider_cdc.targets.lake.rules.topic_target import TargetTable
from airflow_provider_cdc.targets.lake.verify.source_reference import SourceReference
from airflow_provider_cdc.verify.batches_after_reference import NotComparable
from airflow_provider_cdc.verify.verification_documents import VerificationPlan
from airflow_provider_cdc.verify.verification_report import TableVerification

_LOOK_S = 2.0
"""Seconds between two reads of a table that is behind."""
_ELSEWHERE = "; if a rule gives it another location or several tables, set --applied to the change log with the report of the last apply"


class VerifiedTables:
    """Progress of the tables of a connector. The time to wait for it begins now.

    :param plan: of the comparison; ``None``: nothing is written to the tables meanwhile
    :param changelog: of the connector; without a plan it may be that of a reference, which knows of no apply
    :param location: where the tables are, as it was given to the apply
    """

    def __init__(
        self, plan: VerificationPlan | None, changelog: ChangeLog, connector: str, kind: str, location: str
    ) -> None:
        self._plan, self._connector, self._kind, self._location = plan, connector, kind, location
        self._reports = ApplyReports(changelog.storage, connector)
        self._deadline = time.monotonic() + (plan.wait_s if plan else 0.0)

    def read_report(self) -> ApplyReport | None:
        """Read the report that the last apply has left.

        ``None`` if that is not in the change log, which may be that of a reference.
        """
        return self._reports.read(self._kind, self._location)

    def resolve_location(self, topic: str, table: TableId, rules: TableRules | None) -> str:
        """Return the location of a table.

        A rule may have put it elsewhere, which the report of the apply knows, or the rules do.
        """
        report = self.read_report()
        entry = report["table_states"].get(topic) if report else None
        reported = entry["location"] if entry else None
        matched = (rules or NO_RULES).match_table(table)
        location = matched.rule.location or self._location
        return reported or table_location(location, self._connector, topic, table, matched.groups)

    def list_routed_tables(self, topic: str) -> list[TargetTable]:
        """Return the tables that a route has made of a topic, as far as the last apply knows."""
        report = self.read_report()
        table_states = {} if report is None else report["table_states"]
        tables = [
            TargetTable.from_report(name, entry)
            for name, entry in table_states.items()
            if entry.get("topic") == topic and "place" in entry
        ]
        return sorted(tables, key=lambda table: table.name)

    def wait_for_routes(self, source_reference: SourceReference) -> int:
        """Wait until an apply has looked which tables of a topic there are by the reference's position.

        :return: the batch up to which it has
        :raises NotComparable: none does in time
        """
        since, topic = source_reference.later_changes, source_reference.topic
        assert since is not None
        while True:
            through = self.find_applied_batch(topic, topic)
            if through >= since.required_batch or (through >= 0 and not since.has_missing_events(topic, through)):
                return max(through, since.required_batch)
            self._wait(source_reference, "its rows are in several tables, and the last one is at an earlier batch")

    def wait_for_table(
        self, target: Target, source_reference: SourceReference, name: str, result: TableVerification, owner: Owner
    ) -> PinnedTableState | None:
        """Return the state of a table that is compared.

        It is the present one, as soon as it has everything up to the reference's position.

        :param name: its name in the report
        :param result: gets the batch and the version, or the problem
        :raises NotComparable: it does not come there in time
        """
        while True:
            there = target.exists()
            if there and source_reference.later_changes is None:
                return target.pin_table_state()
            if there and (actual_owner := target.read_owner()) != owner.recorded_owner:
                other = owner.recorded_owner.is_but_for_its_log(actual_owner)
                result.problem = (
                    "the table was built from another change log than the present one"
                    if other
                    else f"the table belongs to {actual_owner or 'no connector'}"
                )
                return None
            if there:
                pinned = target.pin_table_state()
                marker = pinned.read_marker(owner.application_name)
                if not self._behind(source_reference, name, marker):
                    result.batch, result.version = marker, pinned.version
                    return pinned
            if source_reference.later_changes is None or (
                not there and self.find_applied_batch(source_reference.topic, name) >= source_reference.reached_batch
            ):
                unknown = self._plan is None and self.read_report() is None
                result.problem = "the table does not exist" + (_ELSEWHERE if unknown else "")
                return None
            self._wait(source_reference, f"it is at batch {marker}" if there else "it does not exist")

    def _behind(self, source_reference: SourceReference, name: str, marker: int) -> bool:
        """Return whether a table with this last batch lacks something from before the position."""
        since = source_reference.later_changes
        assert since is not None
        if (
            marker >= since.required_batch
            or self.find_applied_batch(source_reference.topic, name, marker) >= since.required_batch
        ):
            return False
        return since.has_missing_events(source_reference.topic, marker)

    def find_applied_batch(self, topic: str, name: str, marker: int | None = None) -> int:
        """Return the batch up to which an apply has found nothing more to do for a table; -1 if that is not known.

        :param marker: the table's last batch now
        """
        report = self.read_report()
        if report is None or {topic, name} & (report["failed"].keys() | report["lagging"].keys()):
            return -1
        stand = report["table_states"].get(name)
        if marker is not None and (stand is None or stand.get("batch") != marker):
            return -1
        return int(report["last_batch"])

    def _wait(self, source_reference: SourceReference, stands: str) -> None:
        """Wait a moment, if there is time left.

        :raises NotComparable: it is over
        """
        if time.monotonic() < self._deadline:
            time.sleep(_LOOK_S)
            return
        assert self._plan is not None
        raise NotComparable(
            f"it did not reach batch {source_reference.reached_batch} within {self._plan.wait_s:.0f} s, which is the batch with the position of the "
            f"reference ({source_reference.at}); {stands}: run the apply, then verify it again"
        )
