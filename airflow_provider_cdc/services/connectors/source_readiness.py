"""Questions to a source that a person asks, by a command or on a page.

They are whether capture can begin, and whether the source's log still holds a connector's position.

>>> check_readiness(access).ready
True
>>> call_source_in_time(15, "The source of shop", lambda: gap_of(access)) is None
True
"""

from __future__ import annotations

import contextvars
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from airflow_provider_cdc.core.errors import CdcError, SourceBusy, SourceUnavailable
from airflow_provider_cdc.services.connectors.connector_handle import access_of

if TYPE_CHECKING:
    from airflow_provider_cdc.core.lifecycle.log_gap import LogGap
    from airflow_provider_cdc.core.spi.source import Finding
    from airflow_provider_cdc.core.spi.state_records import ConnectorRecord
    from airflow_provider_cdc.services.connectors.connector_handle import ConnectorAccess

MOST_AT_ONCE = 8
"""Looks of one process: a source or a storage that does not answer must not take every thread of the API server."""
_places = threading.BoundedSemaphore(MOST_AT_ONCE)
_log_places = threading.BoundedSemaphore(MOST_AT_ONCE)
"""Threads for change logs are separate: a page reads one whenever it refreshes."""
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Readiness:
    """Prerequisites that are not met, and how far a connector is.

    :param position: where the log ends; ``None`` if capture cannot begin
    :param waiting: why there is something to capture; ``None`` if there is not, or that was not asked
    """

    findings: Sequence[Finding]
    position: str | None = None
    waiting: str | None = None

    @property
    def is_ready(self) -> bool:
        """Readiness of the source: capture can begin."""
        return not any(finding.fatal for finding in self.findings)


class GapRepairOption(NamedTuple):
    """A way to continue after a gap.

    :param repair: as ``airflow cdc gap --repair`` has it
    :param loses: whether changes in between are lost for good
    """

    repair: str
    short: str
    effect: str
    loses: bool = False


WAYS_OUT = (
    GapRepairOption(
        "snapshot",
        "the next run takes a snapshot of every captured table before it streams",
        "The next run takes a snapshot of every captured table before it streams.",
    ),
    GapRepairOption(
        "incremental",
        "streaming continues at once, with an incremental snapshot of the tables beside it",
        "Streaming continues from the oldest position of the log, with an incremental snapshot of every captured table beside it.",
    ),
    GapRepairOption(
        "skip",
        "streaming continues at once, the changes in between are lost for good",
        "Streaming continues from the oldest position of the log. The changes in between are LOST FOR GOOD.",
        loses=True,
    ),
)


def resolve_access(record: ConnectorRecord, state_conn_id: str | None = None) -> ConnectorAccess:
    """Return the access to the source of a connector, with the present properties of its connection.

    :raises CdcError: it is not recorded
    """
    access = access_of(record) if state_conn_id is None else access_of(record, state_conn_id)
    if access is None:
        raise CdcError(
            f"The source connection of {record.connector} is not recorded.",
            safe="Nothing was changed.",
            remedy="run its capture once",
        )
    return access.use_current_connection()


def check_readiness(access: ConnectorAccess) -> Readiness:
    """Ask the source of a connector.

    :param access: as :func:`resolve_access` has it
    :raises CdcError: the source cannot be queried
    """
    probe = access.open_probe()
    try:
        readiness = Readiness(probe.source.check_prerequisites())
        if not readiness.is_ready:
            return readiness
        return Readiness(readiness.findings, str(probe.source.current_position()), probe.explain_changes())
    finally:
        probe.close()


def gap_of(access: ConnectorAccess) -> LogGap | None:
    """Return the gap between a connector's position and the beginning of the log; ``None``: nothing.

    :param access: as :func:`resolve_access` has it
    :raises CdcError: the source cannot be queried
    """
    with access.prepare_lifecycle() as lifecycle:
        return lifecycle.find_gap()


def call_source_in_time(seconds: float, whom: str, query: Callable[[], _T]) -> _T:
    """Return the answer of a source, or raise an error when there is none in time.

    The look itself ends by the timeouts of its connection.

    :param whom: name of the queried system, for errors
    :raises SourceUnavailable: there was no answer in time
    :raises SourceBusy: too many looks wait for answers already
    """
    down = "check that the database is up and can be reached from Airflow's API server; the command airflow cdc check waits longer"
    return _waited(_places, "source", seconds, whom, query, down)


def within_log(seconds: float, connector: str, query: Callable[[], _T]) -> _T:
    """Return the answer of the change log of a connector, as :func:`call_source_in_time` for sources.

    :raises SourceUnavailable: there was no answer in time
    :raises SourceBusy: too many looks wait for answers already
    """
    down = "check that its storage is up and can be reached from Airflow's API server"
    return _waited(_log_places, "change log", seconds, f"The change log of {connector}", query, down)


def _waited(
    places: threading.BoundedSemaphore, kind: str, seconds: float, whom: str, look: Callable[[], _T], down: str
) -> _T:
    if not places.acquire(blocking=False):
        raise SourceBusy(
            f"{MOST_AT_ONCE} checks of {kind}s are already waiting for answers.",
            safe="Nothing was queried or changed.",
            remedy=f"try again in a minute; if the error persists, a {kind} does not answer",
        )
    answer: list[Any] = []
    failed: list[BaseException] = []

    def ask() -> None:
        try:
            answer.append(look())
        except BaseException as e:
            failed.append(e)
        finally:
            places.release()

    context = contextvars.copy_context()
    thread = threading.Thread(target=context.run, args=(ask,), name="cdc-look", daemon=True)
    try:
        thread.start()
    except RuntimeError:  # the process may have no more threads; its place is free again
        places.release()
        raise
    thread.join(seconds)
    if failed:
        raise failed[0]
    if not answer:
        raise SourceUnavailable(
            f"{whom} has not answered within {seconds:g} s.",
            safe="Nothing was changed.",
            remedy=down,
        )
    return answer[0]  # type: ignore[no-any-return]


__all__ = [
    "MOST_AT_ONCE",
    "WAYS_OUT",
    "GapRepairOption",
    "Readiness",
    "call_source_in_time",
    "check_readiness",
    "gap_of",
    "resolve_access",
    "within_log",
]
