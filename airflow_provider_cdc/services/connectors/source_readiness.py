"""Questions to a source that a person asks, by a command or on a page.

They are whether capture can begin, and whether the source's log still holds a connector's position.

>>> check_readiness(access).ready
True
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

from airflow_provider_cdc.core.errors import CdcError
from airflow_provider_cdc.services.connectors.connector_handle import access_of

if TYPE_CHECKING:
    from airflow_provider_cdc.core.lifecycle.log_gap import LogGap
    from airflow_provider_cdc.core.model.log_headroom import LogRetention
    from airflow_provider_cdc.core.spi.source import Finding, Source
    from airflow_provider_cdc.core.spi.state_records import ConnectorRecord
    from airflow_provider_cdc.services.connectors.connector_handle import ConnectorAccess


@dataclass(frozen=True, slots=True)
class Readiness:
    """Prerequisites that are not met, and how far a connector is.

    :param position: where the log ends; ``None`` if capture cannot begin
    :param log_retention: how long the source keeps its log; ``None`` if it does not report that
    :param waiting: why there is something to capture; ``None`` if there is not, or that was not asked
    """

    findings: Sequence[Finding]
    position: str | None = None
    waiting: str | None = None
    log_retention: LogRetention | None = None

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


def inspect_readiness(source: Source) -> Readiness:
    """Ask a source for its findings, and how long it keeps its log. A source that is not ready need not answer the second question.

    :raises CdcError: the source cannot be queried
    """
    readiness = Readiness(source.check_prerequisites())
    try:
        return replace(readiness, log_retention=source.find_log_retention())
    except CdcError:
        if readiness.is_ready:
            raise
        return readiness  # its findings say why


def check_readiness(access: ConnectorAccess) -> Readiness:
    """Ask the source of a connector.

    :param access: as :func:`resolve_access` has it
    :raises CdcError: the source cannot be queried
    """
    from airflow_provider_cdc.core.snapshot.snapshot_policy import find_unshared_view

    probe = access.open_probe()
    try:
        readiness = inspect_readiness(probe.source)
        on_spark = access.definition.properties.get("snapshot.engine") == "spark"
        if on_spark and (finding := find_unshared_view(probe.source)) is not None:
            readiness = replace(readiness, findings=[*readiness.findings, finding])
        if not readiness.is_ready:
            return readiness
        position = str(probe.source.current_position())
        return replace(readiness, position=position, waiting=probe.explain_changes())
    finally:
        probe.close()


def gap_of(access: ConnectorAccess) -> LogGap | None:
    """Return the gap between a connector's position and the beginning of the log; ``None``: nothing.

    :param access: as :func:`resolve_access` has it
    :raises CdcError: the source cannot be queried
    """
    with access.prepare_lifecycle() as lifecycle:
        return lifecycle.find_gap()


__all__ = [
    "WAYS_OUT",
    "GapRepairOption",
    "Readiness",
    "check_readiness",
    "gap_of",
    "inspect_readiness",
    "resolve_access",
]
