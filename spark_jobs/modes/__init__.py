"""Modes of tables that are more than the source's present rows; one module each, one line each. The mode ``current`` is in :mod:`spark_jobs.table`."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from spark_jobs.modes.history import write_history
from spark_jobs.modes.log import write_log
from spark_jobs.modes.soft_delete import write_soft_delete
from spark_jobs.write import Write

MODES: Mapping[str, Callable[[Write], None]] = {
    "log": write_log,
    "soft_delete": write_soft_delete,
    "history": write_history,
}
"""Mode → applies batches to a table of that mode, in one commit."""
