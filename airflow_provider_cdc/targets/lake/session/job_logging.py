"""Lines of a job's log. Where one job applies several connectors, a line begins with the name of the one that it is about."""

from __future__ import annotations

import logging
import threading

_FORMAT = "%(asctime)s %(levelname)s %(name)s: %(about)s%(message)s"
_OF = threading.local()


def speaks_of(connector: str) -> None:
    """Lines of this thread are about a connector from now on."""
    _OF.connector = connector


class LogPrefixFilter(logging.Filter):
    """Gives each record the prefix of its message.

    :param named: whether that is the connector's name; otherwise it is nothing
    """

    def __init__(self, *, named: bool) -> None:
        super().__init__()
        self._named = named

    def filter(self, record: logging.LogRecord) -> bool:
        connector = getattr(_OF, "connector", "") if self._named else ""
        record.about = f"[{connector}] " if connector else ""
        return True


def configure_job_logging(*, named: bool = False) -> None:
    """Log of a process that is a job.

    :param named: lines begin with the connector that they are about
    """
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter(_FORMAT))
    handler.addFilter(LogPrefixFilter(named=named))
    logging.basicConfig(level=logging.INFO, handlers=[handler])
    logging.getLogger("py4j").setLevel(logging.WARNING)  # a line for every call into the JVM
