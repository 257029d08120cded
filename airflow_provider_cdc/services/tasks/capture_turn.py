"""The hand-over of a connector's capture, from one run of a DAG to a later one."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from airflow_provider_cdc.hooks.state import CdcStateHook
from airflow_provider_cdc.services.tasks.connector_fields import owner_of

if TYPE_CHECKING:
    from airflow.sdk import Context

_BEGUN = re.compile(r", run of (\S+)$")
"""The end of the name of an owner: when its DAG run began."""


class CaptureTurn:
    """The turn of one DAG run to capture a connector: the run of a DAG that began last captures.

    :param began: when the DAG run began
    """

    def __init__(self, context: Context, began: datetime, connector: str, state_conn_id: str, log: Any) -> None:
        ti = context["ti"]
        self._began, self._connector, self._state_conn_id, self._log = began, connector, state_conn_id, log
        self._task, self._dag = f"{ti.dag_id}.{ti.task_id} ", f"{ti.dag_id} "
        suffix = f", run of {began.isoformat()}"
        self.owner = owner_of(context)[: 500 - len(suffix)] + suffix
        """The owner of the lease."""
        self._by = f"{ti.dag_id} {ti.run_id}"[: 250 - len(suffix)] + suffix

    def claim_turn(self) -> bool:
        """Claim the turn. An earlier run that captures is asked to end at its next transaction boundary.

        :return: whether it is this run's turn; ``False`` once a later run has taken it
        :raises CdcError: the state tables cannot be queried
        """
        with CdcStateHook(self._state_conn_id).open_store() as store:
            if _is_later(store.load_control(self._connector).by, self._dag, self._began):
                return False
            record = store.find_connector(self._connector)
            owner = "" if record is None else record.owner or ""
            holder_began = _find_begin(owner, self._task)
            if holder_began is not None and holder_began > self._began:
                return False
            if holder_began is not None and holder_began < self._began:
                self._log.info("Taking over the capture from %s.", owner)
                store.request_restart(self._connector, self._by, "a later run of the DAG takes over")
        return True


def began_at(context: Context) -> datetime:
    """Return when the DAG run has begun; now, if that is not known."""
    began = getattr(context.get("dag_run"), "start_date", None)
    return began if isinstance(began, datetime) else datetime.now(UTC)


def _is_later(text: str, prefix: str, began: datetime) -> bool:
    other = _find_begin(text, prefix)
    return other is not None and other > began


def _find_begin(text: str, prefix: str) -> datetime | None:
    """Find when a run of the same DAG began, by the name of the owner; ``None`` if it is no such name."""
    found = _BEGUN.search(text) if text.startswith(prefix) else None
    return None if found is None else datetime.fromisoformat(found[1])
