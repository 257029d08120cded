"""Modes of tables that are more than the source's present rows; one module each, one line each. The mode ``current`` is in :mod:`airflow_provider_cdc.targets.lake.apply.table_batch_writer`."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from airflow_provider_cdc.targets.lake.write.modes.history_mode import write_history
from airflow_provider_cdc.targets.lake.write.modes.log_mode import write_log
from airflow_provider_cdc.targets.lake.write.modes.soft_delete_mode import write_soft_delete
from airflow_provider_cdc.targets.lake.write.table_write import TableWrite

MODES: Mapping[str, Callable[[TableWrite], None]] = {
    "log": write_log,
    "soft_delete": write_soft_delete,
    "history": write_history,
}
"""Mode → applies batches to a table of that mode, in one commit."""
