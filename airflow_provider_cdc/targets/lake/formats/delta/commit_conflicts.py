"""Delta's ways of saying that another writer was faster."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException

from airflow_provider_cdc.targets.lake.formats.jvm_errors import failed_with, find_error_condition
from airflow_provider_cdc.targets.lake.formats.table_values import MaintenanceStepResult, WriteConflict

_CONFLICTS = (
    "ConcurrentWriteException", "ConcurrentAppendException", "ConcurrentDeleteReadException", "ConcurrentDeleteDeleteException",
    "ConcurrentTransactionException", "MetadataChangedException", "ProtocolChangedException",
)  # fmt: skip
"""Classes of errors. Texts would not do: they have the names of tables and files, and classes of Java that are called so, too."""
_CONDITIONS = (
    "DELTA_CONCURRENT",
    "DELTA_METADATA_CHANGED",
    "DELTA_PROTOCOL_CHANGED",
    "DELTA_SCHEMA_CHANGE_SINCE_ANALYSIS",
    "DELTA_PATH_EXISTS",
)
"""Beginnings of the names of error conditions."""
OF_COLUMNS = ("FIELD_ALREADY_EXISTS", "UNRESOLVED_COLUMN", "FIELD_NOT_FOUND")
"""Errors of ``ALTER TABLE`` when another run has made the same change a moment before."""
OF_MERGE = "DELTA_MERGE_UNRESOLVED_EXPRESSION"
"""Error of MERGE when another run has changed the columns a moment before."""


def or_conflict(step: Callable[[], MaintenanceStepResult]) -> Callable[[], MaintenanceStepResult]:
    def work() -> MaintenanceStepResult:
        with translate_conflicts():
            return step()

    return work


@contextlib.contextmanager
def translate_conflicts(*more: str) -> Iterator[None]:
    """Raise errors that mean a conflict as :class:`WriteConflict`.

    :param more: conditions that say so here, besides those that always do
    :raises Conflict: another writer was faster
    """
    try:
        yield
    except (PySparkException, Py4JJavaError) as e:
        if failed_with(e, *_CONFLICTS) or find_error_condition(e).startswith((*_CONDITIONS, *more)):
            raise WriteConflict(str(e)) from e
        raise
