"""Chooses how the rows of a table are written.

They are written by Spark, merged if the table has a key and otherwise all of them again, or committed as arrays.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass

from airflow_provider_cdc.changelog.reading.last_events import LastEvents, not_on_arrays
from airflow_provider_cdc.changelog.reading.pending_batches import PendingBatches
from airflow_provider_cdc.targets.lake.formats.target_roles import TargetColumns, TargetRows
from airflow_provider_cdc.targets.lake.rules.projection import Projection
from airflow_provider_cdc.targets.lake.write.arrow_rule_projection import needs_spark

log = logging.getLogger("airflow_provider_cdc.targets.lake.write.write_strategy")

LARGE_BATCH = 1 << 30
"""Bytes of the change log up to which the keys and rows of a batch are held in the memory of the driver."""
MOST_EVENTS = 5_000_000
"""Events up to which they are, however few bytes these have: each key takes 200 to 300 bytes while the last event of each is found."""

LARGE_BAG, LARGE_FRAME, MOST_CHANGES = 32 << 20, 64 << 20, 1_000_000
"""The same for a table without a key, and for rows that Spark makes, which are held as a whole: bytes, and events."""
_NOT_KEYS = ("float", "double", "array", "struct")
"""Types of keys that arrays compare in another way than tables do."""


@dataclass(frozen=True, slots=True)
class WriteStrategy:
    """The choice, for the batches of one connector.

    :param reduce: reduces batches on arrays
    :param writes: one of :data:`airflow_provider_cdc.targets.lake.formats.format_descriptor.WRITES`
    """

    reduce: Callable[[PendingBatches], LastEvents]
    writes: str = "auto"

    def needs_spark(self, target: TargetColumns, pending: PendingBatches, shape: Projection) -> str:
        """Why Spark has to make the rows of these batches for a table with a key; empty if arrays do."""
        if pending.changes:
            return "the table's columns change"
        if shape.mode == "history":
            return "its mode is history"
        if reason := not_on_arrays(pending) or needs_spark(shape, pending):
            return reason
        if pending.file_bytes > LARGE_BATCH:
            return f"{pending.file_bytes >> 20} MB of change log are too much for the memory of the driver"
        if pending.event_count > MOST_EVENTS:
            return f"{pending.event_count} events are too many for the memory of the driver"
        if more := set(target.read_column_names()) ^ {*shape.map_column_types(pending.schema), *shape.map_flag_types()}:
            return f"its columns differ from the source columns: {', '.join(sorted(more))}"
        return ""

    def find_merge_reason(
        self, target: TargetRows, pending: PendingBatches, shape: Projection, *, by_spark: bool
    ) -> str:
        """Why Spark has to write these batches, and merge them into a table with a key; empty if they may be committed as arrays.

        :param by_spark: whether Spark makes their rows, so that it would be in vain if the table refused them
        """
        if self.writes == "merge":
            return "writes=merge is set"
        if not by_spark:
            return ""
        if odd := [name for name, type_ in _key_types(pending, shape).items() if type_.startswith(_NOT_KEYS)]:
            return f"the key has columns with other types than numbers, texts and times: {', '.join(odd)}"
        if shape.mode != "log" and "t" in pending.count_operations():
            return "the table is truncated in between"
        if pending.file_bytes > LARGE_FRAME or pending.event_count > MOST_CHANGES:
            return f"{pending.event_count} events in {pending.file_bytes >> 20} MB of change log are too many for the memory of the driver"
        return target.find_upsert_obstacle(inserts_only=shape.mode == "log" or new_keys_only(pending))

    def find_rewrite_reason(self, pending: PendingBatches) -> str:
        """Return the reason to rewrite a table without a key for these batches; empty if rows may be removed from it."""
        if self.writes == "merge":
            return "writes=merge is set"
        if pending.file_bytes > LARGE_BAG or pending.event_count > MOST_CHANGES:
            return f"{pending.event_count} events in {pending.file_bytes >> 20} MB of change log are too many for the memory of the driver"
        return ""


def new_keys_only(pending: PendingBatches) -> bool:
    """Return whether all keys are new ones, by the kinds of events."""
    return set(pending.count_operations()) <= {"c"}


def _key_types(pending: PendingBatches, shape: Projection) -> dict[str, str]:
    if shape.mode in ("history", "log"):  # versions and events are identified by their numbers
        return {}
    types = shape.map_column_types(pending.schema)
    return {name: types[name] for name in shape.list_key_columns(pending.schema)}
