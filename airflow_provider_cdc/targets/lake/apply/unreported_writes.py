"""Finds what an earlier run has brought into a table and could tell nobody: it was killed before it wrote its report, or the storage was gone then.

A table's marker says up to which batch it has everything, and the last report up to which batch somebody was told of it. What is between the two is told by
the report of the next run. So no event gets lost, whatever fails after a commit. It may be told twice, where another run has committed and writes its report a
moment later.
"""

from __future__ import annotations

import logging

from airflow_provider_cdc.changelog.reading.pending_batches import joined
from airflow_provider_cdc.targets.lake.apply.run_report import Applied
from airflow_provider_cdc.targets.lake.backlog.backlog import Backlog
from airflow_provider_cdc.targets.lake.backlog.backlog_state import View
from airflow_provider_cdc.targets.lake.rules.target_table import Placed

log = logging.getLogger("airflow_provider_cdc.targets.lake.apply.unreported_writes")


def untold(table: Placed, at: int | None, view: View, backlog: Backlog, known: int | None = None) -> list[Applied]:
    """What a table has got since the last report, as one; or nothing.

    :param at: its last batch
    :param known: up to which batch that is told already
    """
    # before a place was found, no row of its topic had gone there
    since = max(view.told.get(table.name, table.since), known or 0, 0)
    if at is None or at <= since:
        return []
    groups = view.groups if since >= view.start else backlog.left_since(since, at)
    parts = [part for group in groups for part in group.each(table.topic, since) if part.last <= at]
    if not any(part.files for part in parts):
        return []
    found = joined(parts, parts[-1].last, parts[-1].position)
    log.warning(
        "Another run has brought %s to batch %d, and the last report does not say so, as if it had been killed: its %d events are told now.",
        table.name, at, found.events,
    )  # fmt: skip
    name = "" if table.place is None else table.name
    return [
        Applied(table.topic, table.location, found.first, found.last, found.counts(), found.position, 0.0, name=name)
    ]
