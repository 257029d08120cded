"""Tasks that control a connector: status, pause, resume, stop, restart, move the offset, repair a gap, delete."""

from __future__ import annotations

import enum
import json
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseOperator

from airflow_provider_cdc.core.errors import CdcError, ConfigError
from airflow_provider_cdc.hooks.airflow_compat import AirflowException, AirflowFailException
from airflow_provider_cdc.hooks.page_links import ConnectorLink
from airflow_provider_cdc.hooks.state import DEFAULT_CONN_ID, CdcStateHook
from airflow_provider_cdc.services.connectors.connector_handle import access_of, find_connector
from airflow_provider_cdc.services.connectors.parameter_checks import parse_seconds
from airflow_provider_cdc.services.tasks.action_outcome_recorder import record_outcome
from airflow_provider_cdc.services.tasks.connector_fields import StateFields, format_signal_sender, to_airflow_exception
from airflow_provider_cdc.services.text.pause_gap_signal_texts import gap_text

if TYPE_CHECKING:
    from airflow.sdk import Context

    from airflow_provider_cdc.connector import ConnectorDefinition
    from airflow_provider_cdc.core.lifecycle.connector_lifecycle import ConnectorLifecycle
    from airflow_provider_cdc.core.lifecycle.log_gap import GapRepair
    from airflow_provider_cdc.core.lifecycle.offset_plan import OffsetPlan


class LifecycleAction(enum.StrEnum):
    """An action on a connector."""

    STATUS = "status"
    PAUSE = "pause"
    RESUME = "resume"
    STOP = "stop"
    RESTART = "restart"
    OFFSET_SET = "offset-set"
    OFFSET_RESTORE = "offset-restore"
    OFFSET_RESET = "offset-reset"
    REPAIR_GAP = "repair-gap"
    DELETE = "delete"

    @property
    def needs_confirmation(self) -> bool:
        """Need of a confirmation; such an action can be planned without changing anything, too."""
        return self in (
            LifecycleAction.OFFSET_SET, LifecycleAction.OFFSET_RESTORE, LifecycleAction.OFFSET_RESET, LifecycleAction.REPAIR_GAP, LifecycleAction.DELETE
        )  # fmt: skip


TITLES = {
    LifecycleAction.STATUS: "Show the status",
    LifecycleAction.PAUSE: "Pause the connector",
    LifecycleAction.RESUME: "Resume the connector",
    LifecycleAction.STOP: "Stop the connector",
    LifecycleAction.RESTART: "Restart the active run",
    LifecycleAction.OFFSET_SET: "Continue from another position",
    LifecycleAction.OFFSET_RESTORE: "Restore an earlier offset",
    LifecycleAction.OFFSET_RESET: "Reset the offset: snapshot all tables again",
    LifecycleAction.REPAIR_GAP: "Repair a gap: the log no longer contains the position",
    LifecycleAction.DELETE: "Delete the connector",
}
"""The choices in the form."""


class ConnectorLifecycleOperator(StateFields, BaseOperator):
    """Controls a connector.

    ``pause`` and ``stop`` end the run that is alive at the next boundary between two transactions, and wait for its end;
    new runs are skipped until ``resume``. ``offset-set``, ``offset-restore``, ``offset-reset``, ``repair-gap`` and ``delete`` cannot
    simply be undone: they must be confirmed with the connector's name; with ``plan_only`` they change nothing and return their plan.

        >>> ConnectorLifecycleOperator(task_id="pause", connector="shop", action="pause", reason="upgrade of the database")

    Returns the status of the connector afterwards, as ``airflow cdc status`` shows it; with ``plan_only`` the plan.

    :param connector: the connector, or its name (templated)
    :param action: see :class:`LifecycleAction` (templated)
    :param reason: shown to people who wonder (templated)
    :param confirm: the connector's name, of actions that have to be confirmed (templated)
    :param plan_only: change nothing, and return the plan (templated: ``"true"`` or ``"false"``)
    :param position: of ``offset-set``, a position in the source's log, as ``airflow cdc offset`` shows it (templated)
    :param version: of ``offset-restore``, an offset in the connector's history (templated)
    :param repair: of ``repair-gap``: ``snapshot``, ``incremental`` or ``skip`` (templated)
    :param with_changelog: of ``delete``: delete the change log too (templated: ``"true"`` or ``"false"``)
    :param at_version: of actions on the offset and of ``repair-gap``: do nothing unless the offset has this version still, as the plan had that was confirmed (templated)
    :param state_conn_id: Airflow connection to the state tables (templated)
    :param wait_for_end: seconds to wait for the run that is alive to end, of ``pause`` and ``stop``; 0 = do not wait
    """

    template_fields: Sequence[str] = (
        *StateFields.STATE_FIELDS, "action", "reason", "confirm", "plan_only", "position", "version", "repair",
        "with_changelog", "at_version",
    )  # fmt: skip
    template_fields_renderers = {"position": "json"}
    OPTIONAL_TEXTS = ("reason", "confirm", "repair")
    operator_extra_links = (ConnectorLink(),)
    ui_color = "#f7e3e3"

    def __init__(
        self,
        *,
        connector: str | ConnectorDefinition,
        action: str,
        reason: str = "",
        confirm: str | None = None,
        plan_only: bool | str = False,
        position: Mapping[str, Any] | str | None = None,
        version: int | str | None = None,
        repair: str | None = None,
        with_changelog: bool | str = False,
        at_version: int | str | None = None,
        state_conn_id: str = DEFAULT_CONN_ID,
        wait_for_end: float | timedelta = 120.0,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self._set_connector_name(connector, state_conn_id)
        self.action, self.reason, self.confirm = str(action), reason, confirm
        self.plan_only, self.with_changelog = plan_only, with_changelog
        self.position, self.version, self.repair = position, version, repair
        self.at_version = at_version
        self.wait_for_end = parse_seconds("wait_for_end", wait_for_end, zero=True)
        self.check_parameters()

    def execute(self, context: Context) -> dict[str, Any]:
        try:
            action = LifecycleAction(self.action)
        except ValueError:
            valid = ", ".join(a.value for a in LifecycleAction)
            raise AirflowFailException(f"{self.action!r} is not an action. Valid values are: {valid}.") from None
        try:
            if action.needs_confirmation:
                return self._changed(action, context)
            return self._steer(action, format_signal_sender(context))
        except CdcError as e:
            raise to_airflow_exception(e) from e

    # -- actions that can be undone----------------------------------------------------------------------------------

    def _steer(self, action: LifecycleAction, by: str) -> dict[str, Any]:
        from airflow_provider_cdc.core.lifecycle.connector_lifecycle import ConnectorLifecycle

        with CdcStateHook(self.state_conn_id).open_store() as store:
            find_connector(store, self.connector)
            lifecycle = ConnectorLifecycle(self.connector, store)
            if action is not LifecycleAction.STATUS:
                getattr(lifecycle, action.value)(by, self.reason)
                self.log.info("Connector %s: %s, requested by %s. %s", self.connector, action.value, by, self.reason)
            if action in (LifecycleAction.PAUSE, LifecycleAction.STOP):
                self._until_ended(lifecycle)
            return self._status(lifecycle)

    def _until_ended(self, lifecycle: ConnectorLifecycle) -> None:
        deadline = time.monotonic() + self.wait_for_end
        while self.wait_for_end and (owner := lifecycle.inspect_status().owner) is not None:
            if time.monotonic() >= deadline:
                raise AirflowException(
                    f"The run {owner} of {self.connector} has not ended within {self.wait_for_end:g} s of the request."
                )
            time.sleep(min(1.0, self.wait_for_end))

    def _status(self, lifecycle: ConnectorLifecycle) -> dict[str, Any]:
        status = lifecycle.inspect_status().to_document()
        for name, value in status.items():
            if value not in (None, "", [], {}):
                self.log.info("  %s: %s", name, value)
        return status

    # -- actions that cannot be undone------------------------------------------------------------------------------------------

    def _changed(self, action: LifecycleAction, context: Context) -> dict[str, Any]:
        dry = _yes(self.plan_only, "plan_only")
        if dry or action is LifecycleAction.DELETE:  # the deletion itself is recorded when it is done
            return self._change(action, format_signal_sender(context), dry, [])
        with record_outcome(self.connector, self.state_conn_id, action.value, context, self.log) as lines:
            return self._change(action, format_signal_sender(context), dry, lines)

    def _change(self, action: LifecycleAction, by: str, dry: bool, lines: list[str]) -> dict[str, Any]:
        """:param lines: a line is added for each change"""
        with self._opened() as lifecycle:
            if action is LifecycleAction.DELETE:
                return self._delete(lifecycle, dry, by)
            if action is LifecycleAction.REPAIR_GAP:
                return self._repair(lifecycle, dry, by, lines)
            plan = self._plan(action, lifecycle)
            self._show(plan)
            if self._planned() not in (None, plan.version):
                raise ConfigError(
                    "The offset has moved since the plan was made.",
                    where=f"connector {self.connector}: version {self.at_version}, now {plan.version}",
                    safe="Nothing was changed.",
                    remedy="check the new plan",
                )
            if dry:
                return {"plan_only": True, **plan.to_document()}
            if self.reason:
                by = f"{by}: {self.reason}"
            lifecycle.apply_offset(plan, self.confirm, by)
            lines.append(f"The offset was moved from {plan.now} to {plan.target}.")
            self.log.info("The offset of %s was moved to %s.", self.connector, plan.target)
            return self._status(lifecycle)

    def _plan(self, action: LifecycleAction, lifecycle: ConnectorLifecycle) -> OffsetPlan:
        if action is LifecycleAction.OFFSET_RESET:
            return lifecycle.plan_offset(None)
        if action is LifecycleAction.OFFSET_RESTORE:
            try:
                return lifecycle.plan_restore(int(str(self.version)))
            except ValueError:
                raise AirflowFailException(f"{self.version!r} is not the version of an offset.") from None
        try:
            position = json.loads(self.position) if isinstance(self.position, str) else self.position
        except ValueError:
            position = None
        if not isinstance(position, Mapping) or not position:
            raise AirflowFailException(f"{self.position!r} is not a position: give a JSON object.")
        assert lifecycle.source is not None
        return lifecycle.plan_offset(lifecycle.source.position_of(position))

    def _show(self, plan: OffsetPlan) -> None:
        self.log.info("Connector %s from %s to %s: %s", self.connector, plan.now, plan.target, plan.effect.value)
        for line in plan.consequences:
            self.log.info("  %s", line)
        for line in plan.problems:
            self.log.warning("  %s", line)

    def _repair(self, lifecycle: ConnectorLifecycle, dry: bool, by: str, lines: list[str]) -> dict[str, Any]:
        from airflow_provider_cdc.core.lifecycle.log_gap import GapRepair

        valid = [r.value for r in GapRepair]
        if self.repair not in valid:
            raise AirflowFailException(f"{self.repair!r} is not a repair. Valid values are: {', '.join(valid)}.")
        if dry:
            return self._look_at_gap(lifecycle, GapRepair(self.repair))
        if self.reason:
            by = f"{by}: {self.reason}"
        done = lifecycle.repair_gap(GapRepair(self.repair), self.confirm, by, version=self._planned())
        reads = "" if done.signal is None else f" Signal {done.signal} requests the snapshot."
        lines.append(f"{done.gap} Repaired by {done.how.value}.{reads}")
        self.log.info("%s", lines[-1])
        return {**self._status(lifecycle), "gap": done.gap.to_document(), "signal": done.signal}

    def _look_at_gap(self, lifecycle: ConnectorLifecycle, how: GapRepair) -> dict[str, Any]:
        gap = lifecycle.find_gap()
        self.log.info("%s", gap_text(gap, self.connector))
        result: dict[str, Any] = {"plan_only": True, "connector": self.connector, "gap": None, "plan": None}
        if gap is None:
            return result
        plan = lifecycle.plan_repair(how)
        for problem in plan.problems:
            self.log.warning("  %s", problem)
        return {**result, "gap": gap.to_document(), "plan": plan.to_document()}

    def _planned(self) -> int | None:
        """Return the version of the offset that the confirmed plan was about."""
        if self.at_version in (None, ""):
            return None
        try:
            return int(str(self.at_version))
        except ValueError:
            raise AirflowFailException(f"{self.at_version!r} is not the version of an offset.") from None

    def _delete(self, lifecycle: ConnectorLifecycle, dry: bool, by: str) -> dict[str, Any]:
        status, too = self._status(lifecycle), _yes(self.with_changelog, "with_changelog")
        deleted = f"The state of {self.connector}{' and its change log' if too else ''}"
        if dry:
            self.log.info("%s would be deleted; nothing was deleted.", deleted)
            return {"plan_only": True, **status}
        lifecycle.delete(self.confirm, by, with_changelog=too)
        self.log.info("%s: deleted. Targets were not touched.", deleted)
        return {"connector": self.connector, "deleted": True}

    @contextmanager
    def _opened(self) -> Iterator[ConnectorLifecycle]:
        """Open the connector with its source, as its last run reached it."""
        with CdcStateHook(self.state_conn_id).open_store() as store:
            access = access_of(find_connector(store, self.connector), self.state_conn_id)
        if access is None:
            raise AirflowFailException(
                f"The source connection of {self.connector} is not recorded, because the connector has never run. Run it once."
            )
        with access.use_current_connection().prepare_lifecycle() as lifecycle:
            yield lifecycle


def _yes(value: Any, name: str) -> bool:
    """Parse a switch that may be rendered from a template."""
    if isinstance(value, bool):
        return value
    if isinstance(value, str) and value.strip().lower() in ("true", "false"):
        return value.strip().lower() == "true"
    raise AirflowFailException(f"{name} is {value!r}; valid values are true and false.")
