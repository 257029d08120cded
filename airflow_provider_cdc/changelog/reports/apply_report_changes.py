"""A report as the difference to an earlier one, so that a round of a continuous apply writes the entries of the tables that it changed, and not those of all.

Such a document names the earlier report (``base``), which is a file beside it that is never changed, and has

- ``fields``: fields with other values
- ``without``: fields that are gone
- ``entries``: field with an entry for each table → ``changed`` entries by name, and the names that are ``gone``
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from airflow_provider_cdc.changelog.reports.apply_report import ApplyReport

BASE: Final = "base"
_BY_TABLE: Final = ("table_states", "tables", "unreported")


def find_changes(base: ApplyReport, report: ApplyReport) -> dict[str, Any]:
    """Build the difference between two reports."""
    fields, entries = dict[str, Any](), dict[str, Any]()
    before: Mapping[str, Any] = base
    for name, value in report.items():
        if name in _BY_TABLE and name in before:
            changes = _changed_entries(before[name], value)
            if changes is None:
                fields[name] = value
            elif changes["changed"] or changes["gone"]:
                entries[name] = changes
        elif name not in before or before[name] != value:
            fields[name] = value
    return {"fields": fields, "without": [name for name in before if name not in report], "entries": entries}


def count_changes(changes: Mapping[str, Any]) -> int:
    """Count the entries of tables in a difference."""
    whole = sum(len(value) for name, value in changes["fields"].items() if name in _BY_TABLE)
    return whole + sum(len(parts["changed"]) + len(parts["gone"]) for parts in changes["entries"].values())


def merge_changes(base: ApplyReport, changes: Mapping[str, Any]) -> dict[str, Any]:
    """Build the later report.

    :raises KeyError, TypeError, AttributeError: the difference is none
    """
    report: dict[str, Any] = {name: value for name, value in base.items() if name not in changes["without"]}
    report |= changes["fields"]
    for name, parts in changes["entries"].items():
        gone = {*parts["gone"]}
        there = {key: entry for key, entry in _by_name(report[name]).items() if key not in gone} | parts["changed"]
        report[name] = there if isinstance(report[name], dict) else sorted(there.values(), key=lambda e: e["topic"])
    return report


def count_entries(report: ApplyReport) -> int:
    """Count the entries of tables in a report."""
    return len(report["table_states"]) + len(report["tables"]) + len(report.get("unreported", ()))


def _changed_entries(before: Any, now: Any) -> dict[str, Any] | None:
    """Return the changed entries and the names of those that are gone; ``None`` if all of them are fewer."""
    old, new = _by_name(before), _by_name(now)
    changed = {key: entry for key, entry in new.items() if (was := old.get(key)) is not entry and was != entry}
    gone = [key for key in old if key not in new]
    return None if len(new) < max(len(now), len(changed) + len(gone)) else {"changed": changed, "gone": gone}


def _by_name(entries: Any) -> dict[str, Any]:
    if isinstance(entries, dict):
        return entries
    return {str(entry.get("name") or entry["topic"]): entry for entry in entries}
