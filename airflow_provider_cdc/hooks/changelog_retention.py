"""Removes batches of a connector's change log that no target needs any more, for tasks and commands. Without Spark."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from airflow_provider_cdc.core.errors import CdcError

if TYPE_CHECKING:
    from airflow_provider_cdc.changelog.retention import Plan
    from airflow_provider_cdc.hooks.connector import ConnectorAccess

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class LogMaintenance:
    """What became of a connector's change log.

    :param plan: what was removed, or would be; ``None`` if that has failed
    :param error: with what
    """

    connector: str
    plan: Plan | None = None
    error: Exception | None = None

    @property
    def problem(self) -> str:
        """For people; empty if there was none."""
        return "" if self.error is None else f"Old batches of {self.connector} could not be removed: {self.error}"

    def lines(self) -> list[str]:
        """For people."""
        return [self.problem] if self.plan is None else self.plan.lines(self.connector)

    def document(self) -> dict[str, Any]:
        """As JSON: ``problem``, and what :meth:`airflow_provider_cdc.changelog.retention.Plan.document` has."""
        return {"problem": self.problem, **({} if self.plan is None else self.plan.document())}


def maintain_log(access: ConnectorAccess, *, dry_run: bool = False) -> LogMaintenance:
    """Remove what ``changelog.retention.ms`` and ``changelog.retention.bytes`` of the connector's definition leave no reason to keep.

    An error is not raised: what else is to be maintained does not depend on it.

    :param dry_run: only say what would be removed
    """
    from airflow_provider_cdc.changelog.retention import Limits, Retention

    name = access.definition.name
    try:
        retention = Retention(access.changelog(), name, Limits.of(access.definition.properties))
        return LogMaintenance(name, retention.plan() if dry_run else retention.run())
    except (CdcError, OSError) as e:
        log.debug("The change log of %s could not be maintained.", name, exc_info=True)
        return LogMaintenance(name, error=e)
