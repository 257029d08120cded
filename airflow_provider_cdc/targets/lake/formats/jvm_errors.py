"""Classes and texts of errors of the JVM: of an error, or of that which has caused it.

Classes are surer than texts, which have the names of tables and files in them. Only a full disk is known by its text alone.
"""

from __future__ import annotations

import logging

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from airflow_provider_cdc.core.error_texts import describe_error
from airflow_provider_cdc.core.errors import StorageFull
from airflow_provider_cdc.core.full_disk import is_disk_full, names_full_disk
from airflow_provider_cdc.core.remedy_commands import format_cdc_command

_TEMPORARY_FILES = (
    "DiskBlockObjectWriter",
    "ShuffleWriter",
    "SpillWriter",
    "ShuffleExternalSorter",
    "storage.DiskStore",
    "ShuffleBlockResolver",
)
"""Classes of Spark in the stack of an error about its temporary files."""
_LINE = 300
"""Characters of a line of an error's text."""
_CAUSES = 20
"""Most causes of an error that are followed: they may form a circle."""


def failed_with(error: BaseException, *names: str) -> bool:
    """Check whether an error of the JVM is of one of these classes, or was caused by one."""
    cause = getattr(error, "java_exception", None) or getattr(error, "_origin", None)
    for _ in range(_CAUSES):
        if cause is None:
            break
        if cause.getClass().getSimpleName() in names:
            return True
        cause = cause.getCause()
    return False


def full_disk_error(error: BaseException, connector: str, location: str) -> StorageFull | None:
    """Build the error for a table that could not be written because a disk is full; ``None`` if that is not why.

    :param location: of the table
    """
    text = _whole_text(error)
    if not names_full_disk(text) and not is_disk_full(error):
        return None
    temporary = any(word in text for word in _TEMPORARY_FILES)
    disk = "the disk with Spark's temporary files (spark.local.dir)" if temporary else "the disk with the table"
    maintain = format_cdc_command("maintain", connector)
    return StorageFull(
        f"No space is left on {disk}.",
        where=location,
        safe="The table is unchanged: a commit is there completely or not at all. The change log keeps the changes.",
        remedy=f"free space on {disk}, or enlarge it, then run the apply again"
        + (
            ""
            if temporary
            else f". `{maintain}` removes old files of tables, and batches that every target has applied"
        ),
    )


def log_table_error(
    log: logging.Logger, problem: str, error: Exception, connector: str, location: str, *, level: int = logging.ERROR
) -> str:
    """Log an error of a table, and return its text for the report.

    Of a full disk, the log has no stack of Java: it says no more.

    :param problem: the sentence before the error
    :param location: of the table
    """
    full = full_disk_error(error, connector, location)
    if full is None:
        log.log(level, "%s", problem, exc_info=error)
        return describe_error(error)
    text = describe_error(full)
    log.log(level, "%s %s", problem, text)
    return text


def _whole_text(error: BaseException) -> str:
    """Return the texts of an error and of its causes in the JVM, with their stacks."""
    texts, cause = [str(error)], getattr(error, "java_exception", None) or getattr(error, "_origin", None)
    for _ in range(_CAUSES):
        if cause is None:
            break
        texts += [str(cause.toString()), *(str(frame.toString()) for frame in cause.getStackTrace())]
        cause = cause.getCause()
    return "\n".join(texts)


def find_error_condition(error: BaseException) -> str:
    """Return Spark's or Delta's name of the problem; empty if there is none.

    >>> find_error_condition(error)
    'DELTA_PATH_EXISTS'
    """
    origin = error if isinstance(error, PySparkException) else getattr(error, "java_exception", None)
    for method in ("getCondition", "getErrorClass"):  # the second one is its name before Spark 4.0
        try:
            return str(getattr(origin, method)() or "")
        except (AttributeError, Py4JError):  # an error that is none of Spark's has no such method
            continue
    return ""


def describe_causes(error: BaseException) -> str:
    """Describe an error in a line: one of the JVM by its own text and by that of its first cause, which py4j's text lacks at its beginning.

    >>> describe_causes(error)
    'java.util.concurrent.ExecutionException: the log cannot be read, caused by java.net.UnknownHostException: lake.example.org'
    """
    cause = getattr(error, "java_exception", None) or getattr(error, "_origin", None)
    texts: list[str] = []
    for _ in range(_CAUSES):
        if cause is None:
            break
        texts.append(_first_line(str(cause.toString())))
        cause = cause.getCause()
    if not texts:
        return _first_line(str(error)) or type(error).__name__
    outer, first = texts[0], texts[-1]
    return outer if first in outer else f"{outer.removesuffix(first).rstrip(' :')}, caused by {first}"


def _first_line(text: str) -> str:
    return text.strip().partition("\n")[0].strip()[:_LINE]


def lost_with_an_executor(error: BaseException) -> bool:
    """Check whether rows that were set aside within Spark are gone with the executor that had them.

    They were set aside by ``localCheckpoint``. A stage that fails has the condition of its tasks in its text only.
    """
    return "[CHECKPOINT_RDD_BLOCK_ID_NOT_FOUND]" in str(error)
