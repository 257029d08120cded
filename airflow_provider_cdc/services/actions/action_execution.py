"""Actions of people on a connector from a page: the plan, then its execution, recorded with who, when and why.

>>> plan = plan_of(store, record, Pause(reason="upgrade of the database"), runs)
>>> plan.lines
['The run ada ends at the next boundary between two transactions; new runs are skipped.', …]
>>> carry_out(store, record, Pause(reason="upgrade of the database"), runs, confirm=None, by="ann")
"""

from __future__ import annotations

import hashlib
import json
import uuid
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from airflow_provider_cdc.core.error_texts import describe_error
from airflow_provider_cdc.core.errors import CdcError, ConfigError
from airflow_provider_cdc.core.model.connector_signal import SentSignal, Signal
from airflow_provider_cdc.core.model.notifications import ACTION, Notification, NotificationType
from airflow_provider_cdc.core.name_patterns import format_exact_pattern
from airflow_provider_cdc.core.remedy_commands import format_cdc_command
from airflow_provider_cdc.core.signals.signal_request_parser import SignalRejected, parse_request
from airflow_provider_cdc.core.spi.store_interfaces import DesiredState
from airflow_provider_cdc.services.actions.action_models import (
    ActionPlan,
    ConnectorAction,
    ForgetTarget,
    StartSnapshot,
    StopIncrementalSnapshot,
)
from airflow_provider_cdc.services.actions.connector_run_actions import (
    LOG_ANSWER_S,
    NOTHING,
    DagRunAction,
    DagRuns,
    by_run,
    work_of,
)
from airflow_provider_cdc.services.connectors.bounded_calls import call_log_in_time
from airflow_provider_cdc.services.connectors.captured_tables import (
    captured_tables,
    format_names,
    known_tables,
    select_tables,
)
from airflow_provider_cdc.services.connectors.connector_handle import access_of
from airflow_provider_cdc.services.text.pause_gap_signal_texts import format_halt, progress_text, why_idle

if TYPE_CHECKING:
    from airflow_provider_cdc.changelog.retention.target_progress import TargetProgress
    from airflow_provider_cdc.core.spi.state_records import ConnectorRecord
    from airflow_provider_cdc.services.connectors.connector_handle import ConnectorAccess
    from airflow_provider_cdc.state.state_store import StateStore

_DESIRED_STATES = {"pause": DesiredState.PAUSED, "stop": DesiredState.STOPPED, "resume": DesiredState.RUNNING}


def plan_of(store: StateStore, record: ConnectorRecord, action: ConnectorAction, runs: DagRuns) -> ActionPlan:
    """Build the plan of an action. Nothing is changed.

    :param runs: of Airflow, as the person who asks may begin them

    :raises CdcError: it cannot be done
    """
    if by_run(action):
        return _plan(record, action, work_of(store, record, action, runs))
    about: Sequence[str] | None = None
    match action:
        case StartSnapshot():
            (lines, about), confirm = _snapshot(store, record, action), True
        case StopIncrementalSnapshot():
            (lines, about), confirm = _stop_snapshot(store, record, action), True
        case ForgetTarget():
            lines, confirm = _forget(record, action), True
        case _:
            lines, confirm = _control(record, action), False
            about = [str(record.control.desired_state)]
    return ActionPlan(
        action=_name(action), connector=record.connector, lines=lines, confirm=confirm, about=_digest(about)
    )


def _digest(about: Sequence[str] | None) -> str | None:
    """Compute a digest that stands for all of it."""
    return None if about is None else hashlib.sha256(json.dumps(sorted(about)).encode()).hexdigest()[:32]


def _plan(record: ConnectorRecord, action: ConnectorAction, work: DagRunAction) -> ActionPlan:
    return ActionPlan(
        action=_name(action), connector=record.connector, lines=list(work.lines), confirm=work.confirm, dag=work.dag,
        obstacle=" ".join(work.obstacles) or None, version=work.version, about=_digest(work.about),
    )  # fmt: skip


def carry_out(
    store: StateStore,
    record: ConnectorRecord,
    action: ConnectorAction,
    runs: DagRuns,
    *,
    confirm: str | None,
    by: str,
    about: str | None = None,
) -> ActionPlan:
    """Carry out an action. It is recorded before, and if it fails that is recorded too.

    :param runs: of Airflow, as the person who asks may begin them
    :param confirm: the connector's name, where the plan wants it
    :param by: the user who requests it
    :param about: as the plan has it that the user has seen
    :raises CdcError: it cannot be done, or is not confirmed
    """
    work = work_of(store, record, action, runs) if by_run(action) else None
    plan = plan_of(store, record, action, runs) if work is None else _plan(record, action, work)
    if plan.confirm and confirm != record.connector:
        raise ConfigError(
            f"The action {plan.action} is not confirmed: the given name is {confirm or ''!r}, but the connector is {record.connector}.",
            safe=NOTHING,
            remedy="give the connector's name",
        )
    if about is not None and about != plan.about:
        raise CdcError(
            f"The affected tables or signals have changed since the plan was made. Now: {plan.lines[0]}",
            where=f"connector {record.connector}",
            safe=NOTHING,
            remedy="check the new plan",
        )
    if plan.obstacle is not None:
        raise CdcError(plan.obstacle, where=f"connector {record.connector}", safe=NOTHING)
    # the record names the run before the run begins, so that its effects are never without a record
    run = None if work is None else f"cdc_{plan.action}__{datetime.now(UTC):%Y-%m-%dT%H:%M:%S}_{uuid.uuid4().hex[:8]}"
    where = {} if work is None or run is None else {"dag": work.dag, "run": run}
    id_ = str(uuid.uuid4())
    _record(store, record, action, by, NotificationType.REQUESTED, id_, **where)
    try:
        signal = None
        if work is None or run is None:
            signal = _do(store, record, action, by, id_)
        else:
            runs.start_run(work.dag, run, work.conf)
    except CdcError as e:
        _record(store, record, action, by, NotificationType.FAILED, id_, error=describe_error(e), **where)
        raise
    return plan.model_copy(update={"done": True, "signal": signal, "run": run})


def _name(action: ConnectorAction) -> str:
    return str(action.action)  # type: ignore[attr-defined]


def _do(store: StateStore, record: ConnectorRecord, action: ConnectorAction, by: str, id_: str) -> int | None:
    """:param id_: of the record, which also identifies the signal"""
    match action:
        case StartSnapshot() | StopIncrementalSnapshot():
            type_, data = _signal(store, record, action)
            return store.send(record.connector, SentSignal(id_, type_, data, "airflow", None, by))
        case ForgetTarget():
            from airflow_provider_cdc.changelog.reports.apply_report_store import ApplyReports

            access = _access(record)
            call_log_in_time(
                LOG_ANSWER_S,
                record.connector,
                lambda: ApplyReports(access.open_change_log().storage, record.connector).delete_report(
                    action.target, action.location
                ),
                safe="The target may be forgotten or not; no batch was removed.",
            )
            store.targets.forget_target(record.connector, action.target, action.location)
        case _:
            store.set_control(record.connector, _DESIRED_STATES[_name(action)], by, action.reason)
    return None


def _record(
    store: StateStore,
    record: ConnectorRecord,
    action: ConnectorAction,
    by: str,
    type_: NotificationType,
    id_: str,
    **more: str,
) -> None:
    document = action.model_dump(mode="json", exclude={"action", "reason"}, exclude_defaults=True)
    data = {"connector_name": record.connector, "by": by, "action": _name(action), "reason": action.reason, **more}
    if document:
        data["parameters"] = json.dumps(document, ensure_ascii=False)
    data = {name: text for name, text in data.items() if text}
    store.add_notification(
        record.connector, Notification(id=id_, aggregate_type=ACTION, type=type_, additional_data=data)
    )


# -- plans of the actions -----------------------------------------------------------------------------------------------


def _control(record: ConnectorRecord, action: ConnectorAction) -> list[str]:
    alive = f"The run {record.owner} ends at the next boundary between two transactions; new runs are skipped."
    idle = "No run is active; new runs are skipped."
    stays = "The offset stays: nothing is lost while the source keeps its log."
    match _name(action):
        case "resume":
            now = format_halt(record.control)
            return [
                f"The connector is {now}." if now else "The connector is neither paused nor stopped.",
                "The next run continues from the offset.",
            ]
        case "stop":
            return [
                alive if record.owner else idle,
                stays,
                "The status shows the connector as stopped: it is not expected to resume soon.",
            ]
        case _:
            return [alive if record.owner else idle, stays]


def _signal(
    store: StateStore, record: ConnectorRecord, action: StartSnapshot | StopIncrementalSnapshot
) -> tuple[str, str]:
    """Build type and data of the signal. The name of a table is sent as the pattern of this table alone.

    :raises ConfigError: it would be refused
    """
    data: dict[str, Any] = {"type": action.type if isinstance(action, StartSnapshot) else "incremental"}
    if action.tables:
        names = set(known_tables(store, record))
        data["data-collections"] = [format_exact_pattern(n) if n in names else n for n in action.tables]
    if isinstance(action, StartSnapshot) and action.replace:
        data["replace"] = True
    if isinstance(action, StartSnapshot) and action.on_spark:
        data["engine"] = "spark"
    type_, text = "execute-snapshot" if isinstance(action, StartSnapshot) else "stop-snapshot", json.dumps(data)
    try:
        parse_request(Signal(0, "plan", type_, text))
    except SignalRejected as e:
        raise ConfigError(f"The signal would be rejected: {e}.", safe="Nothing was sent.") from None
    return type_, text


def _snapshot(store: StateStore, record: ConnectorRecord, action: StartSnapshot) -> tuple[list[str], list[str]]:
    """Return the effects of the snapshot as texts, and its tables."""
    _signal(store, record, action)
    tables = select_tables(action.tables, captured_tables(store, record))
    number = f"{len(tables):,} table{'' if len(tables) == 1 else 's'}"
    how = (
        "in chunks beside the stream"
        if action.type == "incremental"
        else f"as a whole{', by executors of Spark' if action.on_spark else ''}; changes wait until it is complete"
    )
    lines = [f"{number} {'is' if len(tables) == 1 else 'are'} snapshotted again, {how}: {format_names(tables)}."]
    lines.append("Every row is captured again as a new event.")
    if action.replace:
        lines.append(
            "The target tables are EMPTIED first: readers do not see their rows until the snapshot is applied."
        )
    if idle := why_idle(record, record.connector):
        lines.append(f"The snapshot starts later: {idle}.")
    return lines, tables


def _stop_snapshot(
    store: StateStore, record: ConnectorRecord, action: StopIncrementalSnapshot
) -> tuple[list[str], list[str]]:
    """Return the effects of the action as texts, and its signals."""
    _signal(store, record, action)
    scans = [] if record.offset is None else [scan.table for scan in record.offset.incremental.scans]
    under_way = [s for s in store.signals_of(record.connector, 20, under_way=True) if s.type == "execute-snapshot"]
    lines = [
        f"Signal {s.number} is {s.state}: {progress_text(s.progress) or 'no row was read yet'}." for s in under_way
    ]
    if not scans and not under_way:
        lines.append("No incremental snapshot is active, so no snapshot is stopped.")
    tables_text = ", ".join(action.tables) if action.tables else f"all tables ({format_names(scans)})"
    lines.append(
        f"The capture reads no more chunks of {tables_text}. Rows that were not read yet stay unchanged in the targets."
    )
    return lines, [str(s.number) for s in under_way]


def _access(record: ConnectorRecord) -> ConnectorAccess:
    if (access := access_of(record)) is None:
        raise CdcError(
            f"The location of the change log of {record.connector} is not recorded.",
            safe=NOTHING,
            remedy="run the capture of the connector once",
        )
    return access


def _forget(record: ConnectorRecord, action: ForgetTarget) -> list[str]:
    access = _access(record)
    need = call_log_in_time(
        LOG_ANSWER_S,
        record.connector,
        lambda: find_forgettable_target(access, record.connector, action.target, action.location),
    )
    return [
        f"{need.display_name} has applied batches up to {need.after}. The next maintenance may remove later batches from the change log.",
        "Its tables are not changed. The next apply to it registers it again; tables that need batches removed by then cannot continue.",
    ]


def find_forgettable_target(access: ConnectorAccess, connector: str, target: str, location: str) -> TargetProgress:
    """Return the progress of a target that may be forgotten.

    :raises CdcError: there is no such target, or an apply to it is under way
    """
    from airflow_provider_cdc.changelog.reports.apply_turns import ApplyTurns
    from airflow_provider_cdc.changelog.retention.target_progress import needs_of

    storage = access.open_change_log().storage
    registered_targets = needs_of(storage, connector)
    need = next(
        (progress for progress in registered_targets if (progress.target, progress.location) == (target, location)),
        None,
    )
    if need is None:
        raise CdcError(
            f"No changes of {connector} were applied to {target} at {location}.",
            where=f"targets: {'; '.join(progress.display_name for progress in registered_targets) or 'none'}",
            safe=NOTHING,
            remedy=f"`{format_cdc_command('targets', connector)}` lists the targets",
        )
    if ApplyTurns(storage, connector, target, location).has_live_turn():
        raise CdcError(
            f"An active apply to {need.display_name} would register the target again.",
            safe="The target is still registered; no batch was removed.",
            remedy="stop its task and pause its DAG, then forget the target",
        )
    return need


__all__ = ["carry_out", "find_forgettable_target", "plan_of"]
