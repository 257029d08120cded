"""Finds out without Spark whether there is anything to apply: from the change log, the last report, and a look at the tables' files.

The report alone is not enough: a table may have been dropped since, or replaced by an older copy. So the report has a stamp of each
table (:meth:`airflow_provider_cdc.targets.lake.formats.format_descriptor.TableFormat.load_stamp`); if a stamp has changed, Spark reads the table's marker.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor

from airflow_provider_cdc.changelog.files.change_log import ChangeLog
from airflow_provider_cdc.changelog.reports.apply_report import ApplyReport, TableState
from airflow_provider_cdc.changelog.reports.apply_report_store import ApplyReports, not_announced
from airflow_provider_cdc.changelog.reports.apply_turns import ApplyTurns
from airflow_provider_cdc.targets.lake.formats import load_format

log = logging.getLogger("airflow_provider_cdc.targets.lake.apply.up_to_date_check")

_LOOKS = 16
"""Tables that are checked at the same time."""


def read_table_stamp(changelog: ChangeLog, target: str, location: str, known: str = "") -> str:
    """Return the stamp of a table; empty if there is none, or if it cannot be read from here.

    :param known: an earlier stamp of the table, which makes the look cheap
    """
    look = load_format(target).load_stamp()
    if look is None:
        return ""
    try:
        files, folder = changelog.storage.resolve_url(location)
        return look(files, folder, known)
    except Exception as e:  # each kind of store has different errors; Spark, with separate settings, may reach it
        log.info("The table at %s cannot be inspected without Spark: %s", location, e)
        return ""


def find_unchanged_topics(changelog: ChangeLog, target: str, table_states: Mapping[str, TableState]) -> set[str]:
    """Topics whose tables have the stamp that is in the report."""

    def same(item: tuple[str, TableState]) -> bool:
        known = item[1]["stamp"]
        return bool(known) and read_table_stamp(changelog, target, item[1]["location"], known) == known

    with ThreadPoolExecutor(_LOOKS, thread_name_prefix="cdc-look") as pool:
        return {
            topic
            for (topic, _), ok in zip(table_states.items(), pool.map(same, table_states.items()), strict=True)
            if ok
        }


def nothing_new(
    changelog: ChangeLog, connector: str, target: str, location: str, rules: str = ""
) -> ApplyReport | None:
    """Return the report of the last run if there is nothing to do after it.

    That is the case if every table has the last batch of the change log.

    :param rules: as in the report of a run with the same rules of tables
    """
    report = ApplyReports(changelog.storage, connector).read(target, location)
    if report is None or report["failed"] or report["lagging"] or not report["table_states"]:
        return None
    if report.get("rules", "") != rules:
        return None  # tables may have other places now
    if not changelog.ends_with(connector, report["last_batch"], writer=report.get("writer", "")):
        return None
    if len(find_unchanged_topics(changelog, target, report["table_states"])) < len(report["table_states"]):
        return None
    log.info(
        "%d tables of %s are at batch %d, the last one.", len(report["table_states"]), connector, report["last_batch"]
    )
    earlier = not_announced(report, ApplyTurns(changelog.storage, connector, target, location))
    return {**report, "tables": [], "unreported": [], "earlier": earlier, "owner": "", "seconds": 0.0}
