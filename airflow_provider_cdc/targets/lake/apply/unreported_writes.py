"""Finds changes that an earlier run has brought into a table and could not report.

It was killed before it wrote its report, or the storage was gone then. A table's marker says up to which batch it has everything, and the last report up to
which batch that was reported. The next run reports the batches between the two. So no event gets lost, whatever fails after a commit. It may be
reported twice, where another run has committed and writes its report a moment later.
"""

from __future__ import annotations

import logging

from airflow_provider_cdc.changelog.reading.pending_batches import merge_pending
from airflow_provider_cdc.targets.lake.apply.apply_run_report import TableApplyResult
from airflow_provider_cdc.targets.lake.backlog.reported_apply_state import BacklogState
from airflow_provider_cdc.targets.lake.backlog.unapplied_batches import Backlog
from airflow_provider_cdc.targets.lake.rules.topic_target import TargetTable

log = logging.getLogger("airflow_provider_cdc.targets.lake.apply.unreported_writes")


def find_unreported_writes(
    table: TargetTable, at: int | None, view: BacklogState, backlog: Backlog, reported: int | None = None
) -> list[TableApplyResult]:
    """Return the changes of a table since the last report, as one result; or nothing.

    :param at: its last batch
    :param reported: up to which batch that is reported already
    """
    # before a place was found, no row of its topic had gone there
    since = max(view.reported_batches.get(table.name, table.begins_after), reported or 0, 0)
    if at is None or at <= since:
        return []
    groups = view.groups if since >= view.start else backlog.left_since(since, at)
    parts = [part for group in groups for part in group.list_parts(table.topic, since) if part.last <= at]
    if not any(part.files for part in parts):
        return []
    pending = merge_pending(parts, parts[-1].last, parts[-1].position)
    log.warning(
        "Another run applied %s up to batch %d without reporting it, and was probably killed: its %d events are reported now.",
        table.name, at, pending.event_count,
    )  # fmt: skip
    name = "" if table.place is None else table.name
    return [
        TableApplyResult(
            table.topic,
            table.location,
            pending.first,
            pending.last,
            pending.count_operations(),
            pending.position,
            0.0,
            name=name,
        )
    ]
