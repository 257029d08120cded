"""Classes of errors of the JVM: of an error, or of that which has caused it.

Texts say less: they have the names of tables and files in them.
"""

from __future__ import annotations

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

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


def lost_with_an_executor(error: BaseException) -> bool:
    """Check whether rows that were set aside within Spark are gone with the executor that had them.

    They were set aside by ``localCheckpoint``. A stage that fails has the condition of its tasks in its text only.
    """
    return "[CHECKPOINT_RDD_BLOCK_ID_NOT_FOUND]" in str(error)
