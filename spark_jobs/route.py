"""Chooses how the rows of a table are written: by Spark, merged if the table has a key and otherwise all of them anew, or committed as arrays."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass

from airflow_provider_cdc.changelog.pending import Pending
from airflow_provider_cdc.changelog.reduction import Reduction, not_on_arrays
from spark_jobs.targets.base import Target

log = logging.getLogger("spark_jobs.route")

LARGE_BATCH = 1 << 30
"""Bytes of the change log up to which the keys and rows of a batch are held in the memory of the driver."""

LARGE_BAG, MOST_CHANGES = 32 << 20, 1_000_000
"""The same for a table without a key, whose batches are held as a whole: bytes, and events."""


@dataclass(frozen=True, slots=True)
class Route:
    """The choice, for the batches of one connector.

    :param reduce: reduces batches on arrays
    :param writes: one of :data:`spark_jobs.targets.formats.WRITES`
    """

    reduce: Callable[[Pending], Reduction]
    writes: str = "auto"

    def merges(self, target: Target, pending: Pending) -> str:
        """Why these batches are to be merged; empty if they may be committed as arrays."""
        if self.writes == "merge":
            return "it was asked for"
        if not target.takes_arrays:
            return "arrays cannot be committed to tables of this kind"
        if pending.changes:
            return "the table's columns change"
        if reason := not_on_arrays(pending):
            return reason
        if pending.bytes > LARGE_BATCH:
            return f"{pending.bytes >> 20} MB of change log are too many for the memory of the driver"
        return ""

    def replaces(self, pending: Pending) -> str:
        """Why a table without a key is to be written anew for these batches; empty if rows may be taken from it."""
        if self.writes == "merge":
            return "it was asked for"
        if pending.bytes > LARGE_BAG or pending.events > MOST_CHANGES:
            return f"{pending.events} events in {pending.bytes >> 20} MB of change log are too many for the memory of the driver"
        return ""
