"""Where the tables of a comparison are and up to which batch they have everything: by the report of the last apply, and by the tables themselves."""

from __future__ import annotations

import time
from typing import Any

from airflow_provider_cdc.changelog.files.change_log import ChangeLog
from airflow_provider_cdc.changelog.reports.apply_report import AppliedReports
from airflow_provider_cdc.core.config.table_rules import NO_RULES, TableRules
from airflow_provider_cdc.core.model.schema import TableId
from airflow_provider_cdc.targets.lake.formats.table_location import table_location
from airflow_provider_cdc.targets.lake.formats.target import Owner, Pinned, Target
from airflow_provider_cdc.targets.lake.rules.target_table import Placed
from airflow_provider_cdc.targets.lake.verify.source_rows import Wanted
from airflow_provider_cdc.verify.captured_since import NotComparable
from airflow_provider_cdc.verify.verification_plan import VerifyPlan
from airflow_provider_cdc.verify.verification_report import Compared

_LOOK_S = 2.0
"""Seconds between two looks at a table that is behind."""
_ELSEWHERE = (
    "; if a rule has it elsewhere, or in several tables, --applied names the change log in which the last apply says so"
)


class Standing:
    """How the tables of a connector stand. What is waited for is waited for from now on.

    :param plan: of the comparison; ``None``: nothing is written to the tables meanwhile
    :param changelog: of the connector; without a plan it may be that of a reference, which knows of no apply
    :param location: where the tables are, as it was given to the apply
    """

    def __init__(self, plan: VerifyPlan | None, changelog: ChangeLog, connector: str, kind: str, location: str) -> None:
        self._plan, self._connector, self._kind, self._location = plan, connector, kind, location
        self._reports = AppliedReports(changelog.storage, connector)
        self._deadline = time.monotonic() + (plan.wait_s if plan else 0.0)

    def report(self) -> dict[str, Any] | None:
        """What the last apply has left; ``None`` if that is not in the change log, which may be that of a reference."""
        return self._reports.read(self._kind, self._location)

    def where(self, topic: str, table: TableId, rules: TableRules | None) -> str:
        """The location of a table; a rule may have put it elsewhere, which the report of the apply knows, or the rules do."""
        report = self.report()
        known = report["stands"].get(topic, {}).get("location") if report else None
        found = (rules or NO_RULES).match(table)
        location = found.rule.location or self._location
        return known or table_location(location, self._connector, topic, table, found.groups)

    def places(self, topic: str) -> list[Placed]:
        """The tables that a route has made of a topic, as far as the last apply knows."""
        stands = (self.report() or {"stands": {}})["stands"]
        found = [
            Placed.known(name, entry)
            for name, entry in stands.items()
            if entry.get("topic") == topic and "place" in entry
        ]
        return sorted(found, key=lambda table: table.name)

    def found(self, wanted: Wanted) -> int:
        """Wait until an apply has looked which tables of a topic there are by the reference's position.

        :return: the batch up to which it has
        :raises NotComparable: none does in time
        """
        since, topic = wanted.since, wanted.topic
        assert since is not None
        while True:
            through = self.through(topic, topic)
            if through >= since.reached or (through >= 0 and not since.lacks(topic, through)):
                return max(through, since.reached)
            self._wait(wanted, "its rows are in several tables, and the last one stands before that")

    def pinned(self, target: Target, wanted: Wanted, name: str, result: Compared, owner: Owner) -> Pinned | None:
        """The state of a table that is compared: the present one, as soon as it has everything up to the reference's position.

        :param name: what the report calls it
        :param result: gets the batch and the version, or what is the matter
        :raises NotComparable: it does not come there in time
        """
        while True:
            there = target.exists()
            if there and wanted.since is None:
                return target.pinned()
            if there and (found := target.owner()) != owner.recorded:
                other = owner.recorded.is_but_for_its_log(found)
                result.problem = (
                    "the table there was made from another change log than the one that is there"
                    if other
                    else f"the table there belongs to {found or 'nobody'}"
                )
                return None
            if there:
                pinned = target.pinned()
                marker = pinned.marker(owner.app)
                if not self._behind(wanted, name, marker):
                    result.batch, result.version = marker, pinned.version
                    return pinned
            if wanted.since is None or (not there and self.through(wanted.topic, name) >= wanted.reached):
                unknown = self._plan is None and self.report() is None
                result.problem = "there is no such table" + (_ELSEWHERE if unknown else "")
                return None
            self._wait(wanted, f"it stands at batch {marker}" if there else "it is not there")

    def _behind(self, wanted: Wanted, name: str, marker: int) -> bool:
        """Whether a table with this last batch lacks something from before the position."""
        since = wanted.since
        assert since is not None
        if marker >= since.reached or self.through(wanted.topic, name, marker) >= since.reached:
            return False
        return since.lacks(wanted.topic, marker)

    def through(self, topic: str, name: str, marker: int | None = None) -> int:
        """The batch up to which an apply has found nothing more to do for a table; -1 if that is not known.

        :param marker: the table's last batch now
        """
        report = self.report()
        if report is None or {topic, name} & (report["failed"].keys() | report["lagging"].keys()):
            return -1
        stand = report["stands"].get(name)
        if marker is not None and (stand is None or stand.get("batch") != marker):
            return -1
        return int(report["last_batch"])

    def _wait(self, wanted: Wanted, stands: str) -> None:
        """
        :raises NotComparable: it is over
        """
        if time.monotonic() < self._deadline:
            time.sleep(_LOOK_S)
            return
        assert self._plan is not None
        raise NotComparable(
            f"the apply has not brought it to batch {wanted.reached} within {self._plan.wait_s:.0f} s, which has the position at which "
            f"the source was read ({wanted.at}); {stands}: run the apply, then verify it again"
        )
