"""Reports of apply runs in the change log: one for each target, which is a kind of table and a location.

They are for people, for sensors, and for the next run, which uses them to skip tables without looking. Only the table itself says for sure
which batch it has. A report that cannot be read is treated as missing.
"""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any, Final, Literal, cast

import orjson

from airflow_provider_cdc.changelog.files.storage import Storage
from airflow_provider_cdc.changelog.reports.apply_report import ApplyReport, EarlierRun, TableApplied
from airflow_provider_cdc.changelog.reports.apply_report_changes import BASE, merge_changes
from airflow_provider_cdc.changelog.reports.apply_turns import ApplyTurns
from airflow_provider_cdc.changelog.reports.report_store import TargetReports
from airflow_provider_cdc.core.config.target_table_rules import NO_RULES, TableRules
from airflow_provider_cdc.core.errors import CdcError

log = logging.getLogger(__name__)

LEFT_S: Final = 24 * 3600.0
"""Age at which a base that a killed job has left is deleted."""
_BASE: Final = ".base"
_READS: Final = 3
"""How often a report is read whose base is not there: both are replaced one after the other."""


class ApplyReports(TargetReports[ApplyReport]):
    """The reports about one connector.

        >>> ApplyReports(changelog.storage, "shop").read("delta", "/lake/{database}/{table}")["last_batch"]
        42

    :class:`~airflow_provider_cdc.changelog.reports.apply_report.ApplyReport` describes the fields of a report.
    """

    FOLDER = "applied"

    def __init__(self, storage: Storage, connector: str) -> None:
        super().__init__(storage, connector)
        self._bases = dict[str, tuple[str, ApplyReport]]()

    def read(self, target: str, location: str) -> ApplyReport | None:
        """Read the last run's report; ``None`` if there is none that can be read."""
        report = self._parsed(self.report_path(target, location))
        return report if report is not None and report["location"] == location else None

    def list_reports(self) -> list[ApplyReport]:
        """Read the reports of all targets."""
        return [report for report in map(self._parsed, self._paths()) if report is not None]

    def list_unreadable(self) -> list[str]:
        """List the names of reports that cannot be read."""
        return [
            path.rsplit("/", 1)[-1]
            for path in self._paths()
            if self._parsed(path) is None and self._storage.read(path) is not None
        ]

    def _paths(self) -> list[str]:
        names = self._storage.list(self._storage.join_path(self._connector, self.FOLDER))
        return [self._storage.join_path(self._connector, self.FOLDER, name) for name in names if name.endswith(".json")]

    def write(self, report: ApplyReport) -> None:
        """Replace the report of a target atomically."""
        super().write({**report, "at": _now()})

    def write_base(self, report: ApplyReport) -> str:
        """Write a report as the base of later ones.

        :return: its name
        """
        path = self.report_path(report["target"], report["location"])
        base = f"{path.removesuffix('.json')}.{int(time.time())}-{uuid.uuid4().hex[:8]}{_BASE}"
        self._storage.replace(base, orjson.dumps({**report, "at": _now()}))
        return base.rsplit("/", 1)[-1]

    def write_changes(self, report: ApplyReport, base: str, changes: Mapping[str, Any]) -> None:
        """Replace the report of a target atomically by its difference to a base.

        :param changes: as :func:`~airflow_provider_cdc.changelog.reports.apply_report_changes.find_changes` returns them
        """
        target, location = report["target"], report["location"]
        fields = {**changes["fields"], "at": _now()}
        document = {"target": target, "location": location, BASE: base, **changes, "fields": fields}
        self._storage.replace(self.report_path(target, location), orjson.dumps(document, option=orjson.OPT_INDENT_2))

    def delete_bases(self, report: ApplyReport, earlier: str) -> None:
        """Delete the bases of a target that no report needs.

        :param earlier: the one of the report before; others are deleted after :data:`LEFT_S`, as other jobs may write reports of the target, too
        """
        path = self.report_path(report["target"], report["location"])
        for name in self._list_bases(path):
            written_at = int(name.removesuffix(_BASE).rsplit(".", 1)[-1].partition("-")[0])
            if name == earlier or time.time() - written_at > LEFT_S:
                try:
                    self._storage.delete(self._beside(path, name))
                except CdcError as e:  # it takes room, and is tried again
                    log.info("The file %s, which no report needs, could not be deleted: %s", name, e)

    def register_target(self, target: str, location: str, rules: TableRules = NO_RULES) -> ApplyReport:
        """Have a target known before its first apply has done anything, so that nothing is removed that it is about to read. One that is known stays as it is.

        :param rules: by which it is about to apply
        :return: its report
        """
        report = self.read(target, location)
        if report is not None:
            return report
        first: ApplyReport = {
            "connector": self._connector, "target": target, "location": location, "last_batch": 0, "tables": [], "failed": {},
            "lagging": {}, "table_states": {}, "seconds": 0.0, "rules": rules.compute_digest(),
            "table_rules": rules.format_rules() if rules else "",
        }  # fmt: skip
        self.write(first)
        return self.read(target, location) or first

    def delete_report(self, target: str, location: str) -> bool:
        """Delete the report of a target, which has no claim on the change log any more.

        :return: whether there was one
        """
        path = self.report_path(target, location)
        there = self._storage.exists(path)
        self._storage.delete(path)
        for name in self._list_bases(path):
            self._storage.delete(self._beside(path, name))
        return there

    def _list_bases(self, path: str) -> list[str]:
        folder, _, name = path.rpartition("/")
        start = f"{name.removesuffix('.json')}."
        return [base for base in self._storage.list(folder) if base.startswith(start) and base.endswith(_BASE)]

    def _beside(self, path: str, name: str) -> str:
        return f"{path.rpartition('/')[0]}/{name}"

    def _parsed(self, path: str) -> ApplyReport | None:
        try:
            for _ in range(_READS):
                data = self._storage.read(path)
                if data is None:
                    return None
                document = orjson.loads(data)
                if not (isinstance(document, dict) and BASE in document):
                    return _checked(document)
                if (base := self._read_base(path, str(document[BASE]))) is not None:
                    return _checked(merge_changes(base, document))
            raise ValueError(f"its base {document[BASE]} is missing")
        except (ValueError, TypeError, LookupError, AttributeError) as e:
            log.warning("The report %s cannot be read and is skipped: %s", path, e)
            return None

    def _read_base(self, path: str, name: str) -> ApplyReport | None:
        """Read a base once; ``None`` if there is none, since the report was replaced meanwhile."""
        known, base = self._bases.get(path, ("", None))
        if known == name:
            return base
        data = self._storage.read(self._beside(path, name))
        if data is None:
            return None
        base = _checked(orjson.loads(data))
        self._bases[path] = name, base
        return base


def only_registered(report: ApplyReport) -> bool:
    """Check whether a report says only that the target exists: no apply has written it.

    >>> only_registered({"last_batch": 0, "table_states": {}})
    True
    """
    return not report["last_batch"] and "owner" not in report


def rules_of(report: ApplyReport) -> TableRules:
    """Return the rules of tables by which a run has applied."""
    return TableRules.parse(report["table_rules"]) if report.get("table_rules") else NO_RULES


_COUNTS: tuple[Literal["rows", "ways"], ...] = ("rows", "ways")
_SIZES: tuple[Literal["rows_written", "rows_deleted", "bytes_written", "files_written"], ...] = (
    "rows_written", "rows_deleted", "bytes_written", "files_written",
)  # fmt: skip


def merge_steps(earlier: TableApplied, later: TableApplied) -> TableApplied:
    """Merge the results of two steps on one table. A fact that only one step knows is unknown for both."""
    merged: TableApplied = {**earlier, **later}
    for name in _COUNTS:
        first, second = earlier.get(name) or {}, later.get(name) or {}
        merged[name] = {key: first.get(key, 0) + second.get(key, 0) for key in {**first, **second}}
    merged["seconds"] = round(earlier["seconds"] + later["seconds"], 3)
    for size in _SIZES:
        before, after = earlier.get(size), later.get(size)
        merged[size] = None if before is None or after is None else round(before + after, 3)
    merged["first_batch"] = min(earlier["first_batch"], later["first_batch"])
    merged["last_batch"] = max(earlier["last_batch"], later["last_batch"])
    merged["committed_ms"] = max(earlier.get("committed_ms", 0), later.get("committed_ms", 0))
    if later.get("freshness_s") is None:
        merged["freshness_s"] = earlier.get("freshness_s")
    return merged


def all_done(report: ApplyReport) -> list[TableApplied]:
    """Return the results of a run on tables, and before them those of earlier runs that no report has.

    Those runs were killed, or their storage was gone. All of it has to be reported, once.
    """
    return [*report.get("unreported", ()), *report["tables"]]


def not_announced(report: ApplyReport, turns: ApplyTurns, owner: str = "") -> list[EarlierRun]:
    """List the runs whose tables no task has reported, as far as is known: ``owner`` and ``tables`` of each.

    The task of the run after them checks again whether they were reported; if their own tasks were killed, it reports them. A run without an owner was started by hand, and is not reported.

    :param report: of the last run
    :param owner: of the run that asks; its own results do not count
    """
    runs = [run for run in report.get("earlier", ()) if not turns.is_announced(run["owner"])]
    last, tables = str(report.get("owner", "")), all_done(report)
    if last not in ("", owner) and tables and not turns.is_announced(last):
        runs.append({"owner": last, "tables": merge_by_table(tables)})
    return runs


def name_of(table: TableApplied) -> str:
    """Return the name of a table in reports.

    It is its topic; of those that a route makes of one topic, that and the location.
    """
    return str(table.get("name") or table["topic"])


def topic_of(report: ApplyReport, name: str) -> str:
    """Return the topic of a table, by its name in a report."""
    state = report["table_states"].get(name)
    return name if state is None else str(state.get("topic", name))


def merge_by_table(tables: Iterable[TableApplied]) -> list[TableApplied]:
    """Merge to one entry for each table, also if its batches were applied in several steps or jobs.

    :class:`~airflow_provider_cdc.changelog.reports.apply_report.TableApplied` describes the fields of an entry.
    """
    merged: dict[str, TableApplied] = {}
    for table in tables:
        before = merged.get(name_of(table))
        merged[name_of(table)] = table if before is None else merge_steps(before, table)
    return [merged[name] for name in sorted(merged)]


METRICS = (
    "events", "rows_written", "rows_deleted", "bytes_written", "files_written", "seconds", "ways", "freshness_s", "last_batch",
)  # fmt: skip
"""Names of the metrics of a table."""


def build_table_metrics(tables: Iterable[TableApplied], most: int | None = None) -> dict[str, dict[str, Any]]:
    """Table, as :func:`name_of` calls it → its metrics by name; see :data:`METRICS`.

    :param tables: as :func:`merge_by_table` gives them
    :param most: only so many, those with the most events
    """
    counted = [(name_of(table), sum(table["rows"].values()), table) for table in tables]
    counted = sorted(counted, key=lambda entry: (-entry[1], entry[0]))[:most]
    return {
        table_name: {name: events if name == "events" else table.get(name) for name in METRICS}
        for table_name, events, table in counted
    }


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


_FIELDS: Mapping[str, Any] = {
    "target": str, "location": str, "last_batch": int, "tables": list, "failed": dict, "lagging": dict, "table_states": dict, "seconds": int | float,
}  # fmt: skip


def _checked(report: Any) -> ApplyReport:
    """Check a report, and return it.

    :raises TypeError: it is no report
    """
    if not isinstance(report, dict):
        raise TypeError("it is not a JSON object")
    for name, kind in _FIELDS.items():
        if not isinstance(report.get(name), kind):
            raise TypeError(f"its field {name} is {report.get(name)!r}")
    return cast("ApplyReport", report)
