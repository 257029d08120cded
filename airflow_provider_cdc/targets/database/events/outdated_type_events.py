"""Columns that get another type at the source, which not all of their values from before are of.

The source has rewritten the rows that were there, and their table is read again. So a value that is none of the new type is in no row any more, if a later
event has its row: the event of it is left out.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from dataclasses import replace

import numpy as np

from airflow_provider_cdc.changelog.reading.pending_batches import PendingBatches, trace_columns
from airflow_provider_cdc.targets.database.config import DatabaseTargetConfig, InsertMode
from airflow_provider_cdc.targets.database.events.event_reader import TableEvents, unfit_value
from airflow_provider_cdc.targets.database.schema.batch_common_types import has_more
from airflow_provider_cdc.targets.database.schema.target_table import DatabaseTargetTable


def changes_types(pending: PendingBatches, table: DatabaseTargetTable) -> bool:
    """Return whether events may have values that are none of the types which the table has.

    :raises ChangeLogDamaged: a change between two versions of the schema is missing
    """
    type_by_name = {field.column.name: field.column.type for field in table.fields}
    for version in {file.schema_version for _, file in pending.files} - {pending.schema_version}:
        then = {column.name: column.type for column in pending.schemas[version].columns}
        for name, origin in trace_columns(pending, version).items():
            if name not in type_by_name or origin.column is None:
                continue
            if (type_ := then[origin.column]) != type_by_name[name] and not has_more(type_by_name[name], type_):
                return True
    return False


def without_unfit(
    table_events: Iterator[TableEvents], table: DatabaseTargetTable, config: DatabaseTargetConfig
) -> Iterator[TableEvents]:
    """Leave out events with values that are none of the type of their column.

    :raises TargetError: no later event has the row, or each event is one
    """
    key = [field.name for field in table.key_columns]
    waiting = dict[Hashable, tuple[str, int]]()
    for events in table_events:
        fit = events
        if events.unfit is not None and (not key or config.insert_mode is InsertMode.INSERT):
            first = int(np.flatnonzero(events.unfit != "")[0])
            raise unfit_value(table, events.unfit[first], int(events.seq[first]))
        if waiting or events.unfit is not None:
            rows = list(zip(*(events.rows[name].to_pylist() for name in key), strict=True))
            unfit = [""] * len(events.op) if events.unfit is None else events.unfit.tolist()
            for at, column in enumerate(unfit):
                if events.op[at] == "t":
                    if config.truncate_enabled:
                        waiting.clear()
                elif not column:
                    if events.op[at] != "d" or config.delete_enabled:
                        waiting.pop(rows[at], None)
                else:
                    waiting[rows[at]] = column, int(events.seq[at])
            if events.unfit is not None:
                fit = replace(events.select_events(events.unfit == ""), unfit=None)
        if len(fit.op):
            yield fit
    for column, seq in waiting.values():
        raise unfit_value(table, column, seq)
