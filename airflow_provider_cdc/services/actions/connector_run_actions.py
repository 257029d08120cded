"""Actions that runs of Airflow carry out on a connector, for requests on a page.

They are: run now, compare, repair, rebuild, move the offset, repair a gap.

Their plans are built here, from the state, the change log and, of an offset, the source; the run itself does the work, by the operators that the forms have.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from airflow_provider_cdc.core.errors import CdcError
from airflow_provider_cdc.core.name_patterns import format_exact_pattern
from airflow_provider_cdc.services.actions.action_models import (
    ConnectorAction,
    RebuildTargetTables,
    RepairGap,
    RepairTargetTables,
    ResetOffset,
    RestoreOffset,
    RunCaptureDag,
    SetOffset,
    VerifyTargetTables,
)
from airflow_provider_cdc.services.connectors.bounded_calls import call_log_in_time, call_source_in_time
from airflow_provider_cdc.services.connectors.captured_tables import captured_tables, format_names, select_tables
from airflow_provider_cdc.services.connectors.connector_targets import access_to, one_target
from airflow_provider_cdc.services.connectors.source_readiness import WAYS_OUT
from airflow_provider_cdc.services.text.pause_gap_signal_texts import format_halt

if TYPE_CHECKING:
    from airflow_provider_cdc.core.lifecycle.connector_lifecycle import ConnectorLifecycle
    from airflow_provider_cdc.core.lifecycle.log_gap import RepairPlan
    from airflow_provider_cdc.core.lifecycle.offset_plan import OffsetPlan
    from airflow_provider_cdc.core.spi.state_records import ConnectorRecord
    from airflow_provider_cdc.state.state_store import StateStore

NOTHING = "Nothing was changed."
_SOURCE_ANSWER_S = 30.0
"""How long a source may take to answer for a plan; where it reads its log for that, functions may have to be compiled first."""
LOG_ANSWER_S = 15.0
"""How long the storage of a change log may take to answer for a plan."""
_STEERS = ("connector", "action", "at_version", "plan_only", "confirm", "reason")
_P = TypeVar("_P")
_WORKS = ("connector", "work", "tables", "target", "location", "confirm")


class DagRuns(Protocol):
    """Airflow's DAG runs, as far as one user may begin them."""

    def find_form_dag(
        self, choices: Mapping[str, str], parameters: Collection[str], factory: str, *, dangerous: bool = False
    ) -> str:
        """Return the id of a DAG with a form that fits.

        The form has these parameters and takes the connector, and the user may begin a run of the DAG.

        :param choices: values that the form has to offer, by their parameters; the connector is one of them
        :param factory: factory of such a DAG, for the error
        :param dangerous: whether it needs ``dangerous=True``, for the error
        :raises CdcError: there is none
        """

    def find_obstacle(self, dag: str) -> str | None:
        """Return why a run that began now would wait for good; ``None`` if it would not."""

    def start_run(self, dag: str, run: str, conf: Mapping[str, Any]) -> None:
        """Begin a run.

        :param run: its id
        :raises CdcError: Airflow refuses it
        """


@dataclass(frozen=True, slots=True)
class DagRunAction:
    """The task of a run.

    :param lines: for people
    :param conf: its parameters
    :param obstacles: why it cannot be done now, each with its remedy
    :param version: of the offset that it is about
    :param about: the tables that it is about
    """

    dag: str
    lines: Sequence[str]
    confirm: bool
    conf: Mapping[str, Any] = field(default_factory=dict)
    obstacles: Sequence[str] = ()
    version: int | None = None
    about: Sequence[str] | None = None


def by_run(action: ConnectorAction) -> bool:
    """Check whether a run of Airflow does it."""
    return isinstance(
        action,
        (RunCaptureDag, VerifyTargetTables, RebuildTargetTables, RestoreOffset, SetOffset, ResetOffset, RepairGap),
    )


def work_of(store: StateStore, record: ConnectorRecord, action: ConnectorAction, runs: DagRuns) -> DagRunAction:
    """Return the work of a run, and its obstacles.

    :raises CdcError: it cannot be requested
    """
    match action:
        case RunCaptureDag():
            work = _run_now(record)
        case VerifyTargetTables():
            work = _compare(store, record, action, runs)
        case RebuildTargetTables():
            work = _rebuild(store, record, action, runs)
        case RestoreOffset() | SetOffset() | ResetOffset():
            work = _move(record, action, runs)
        case RepairGap():
            work = _repair_gap(record, action, runs)
        case _:
            raise AssertionError(action)
    waits = runs.find_obstacle(work.dag)
    return work if waits is None else replace(work, obstacles=[*work.obstacles, waits])


def _run_now(record: ConnectorRecord) -> DagRunAction:
    dag = None if record.registration is None else record.registration.connections.get("dag")
    if dag is None:
        raise CdcError(
            f"No DAG has captured {record.connector}, so no DAG can be run.",
            safe=NOTHING,
            remedy="capture the connector with a DAG, for example from cdc_dag",
        )
    lines = [f"A run of the DAG {dag} starts now, like a scheduled run, and continues from the offset."]
    if record.owner is not None:
        lines.append(f"The run {record.owner} is active: the new run waits for it, or ends without capturing.")
    if text := format_halt(record.control):
        lines.append(f"The connector is {text}: its capture is skipped until it is resumed.")
    return DagRunAction(dag, lines, False)


def _tables(store: StateStore, record: ConnectorRecord, patterns: Sequence[str]) -> list[str]:
    return select_tables(patterns, captured_tables(store, record)) if patterns else []


def _target(record: ConnectorRecord, action: VerifyTargetTables | RebuildTargetTables) -> tuple[str, str]:
    """Return kind and location of the target that is meant.

    :raises CdcError: there is none, or several; or the change log has not answered in time
    """
    access = access_to(record)
    return call_log_in_time(
        LOG_ANSWER_S,
        record.connector,
        lambda: one_target(access, action.target or None, action.location or None),
    )


def _compare(store: StateStore, record: ConnectorRecord, action: VerifyTargetTables, runs: DagRuns) -> DagRunAction:
    target, location = _target(record, action)
    tables = _tables(store, record, action.tables)
    repairs = isinstance(action, RepairTargetTables)
    lines = [
        f"{f'These tables: {format_names(tables)}.' if tables else 'All tables that can be verified.'} Target: {target} at {location}.",
        "The verification reads their rows from the source at one position of its log, and compares them value by value with each table as of its last batch. "
        "This takes about as long as a snapshot of the tables. Capture and apply continue.",
    ]
    if repairs:
        lines += [
            "Signals to the connector snapshot the rows that differ again: each row is captured again as a new event, and rows that the source does not have are deleted.",
            "The run fails if a table differs, although its repair has started.",
        ]
    else:
        lines.append("No table is changed. The run fails if a table differs from the source, and names the table.")
    conf = {
        "connector": record.connector, "work": "repair" if repairs else "verify", "tables": [format_exact_pattern(name) for name in tables],
        "target": target, "location": location, "confirm": record.connector if repairs else None,
    }  # fmt: skip
    return DagRunAction(
        runs.find_form_dag(_choices(conf, "work"), _WORKS, "tables_dag"), lines, repairs, conf, about=tables
    )


def _rebuild(store: StateStore, record: ConnectorRecord, action: RebuildTargetTables, runs: DagRuns) -> DagRunAction:
    target, location = _target(record, action)
    tables = _tables(store, record, action.tables)
    lines = [
        f"{len(tables):,} table{'' if len(tables) == 1 else 's'} of {target} at {location} {'is' if len(tables) == 1 else 'are'} rebuilt from the change log: {format_names(tables)}.",
        "Each table is replaced as of its last batch. Rows that others have written to it are removed, and rows that others have deleted are restored. Capture and apply continue.",
    ]
    conf = {
        "connector": record.connector, "work": "rebuild", "tables": tables, "target": target, "location": location,
        "confirm": record.connector,
    }  # fmt: skip
    dag = runs.find_form_dag(_choices(conf, "work"), _WORKS, "tables_dag", dangerous=True)
    return DagRunAction(dag, lines, True, conf, about=tables)


def _move(record: ConnectorRecord, action: RestoreOffset | SetOffset | ResetOffset, runs: DagRuns) -> DagRunAction:
    def planned(lifecycle: ConnectorLifecycle) -> OffsetPlan:
        match action:
            case RestoreOffset():
                return lifecycle.plan_restore(action.version)
            case SetOffset():
                assert lifecycle.source is not None
                return lifecycle.plan_offset(lifecycle.source.position_of(action.position))
            case ResetOffset():
                return lifecycle.plan_offset(None)

    plan = _planned(record, planned)
    beside: dict[str, Any]
    match action:
        case RestoreOffset():
            beside = {"action": "offset-restore", "version": action.version}
        case SetOffset():
            beside = {"action": "offset-set", "position": action.position}
        case ResetOffset():
            beside = {"action": "offset-reset"}
    if plan.target == "none":
        continuation = f"The connector discards its position, {plan.now}."
    else:
        instead = "" if plan.target == plan.now else f" instead of {plan.now}"
        continuation = f"The connector continues from {plan.target}{instead}."
    return _steered(record, action, runs, [continuation, *plan.consequences], plan.problems, plan.version, beside)


def _repair_gap(record: ConnectorRecord, action: RepairGap, runs: DagRuns) -> DagRunAction:
    def planned(lifecycle: ConnectorLifecycle) -> RepairPlan:
        from airflow_provider_cdc.core.lifecycle.log_gap import GapRepair

        return lifecycle.plan_repair(GapRepair(action.repair))

    plan = _planned(record, planned)
    lines = [str(plan.gap), next(way.effect for way in WAYS_OUT if way.repair == action.repair)]
    if plan.tables:
        lines.append(
            f"{len(plan.tables):,} table{' is' if len(plan.tables) == 1 else 's are'} snapshotted again, each after a truncate: {format_names(plan.tables)}."
        )
    if plan.whole:
        lines.append(
            f"Snapshotted as a whole while the stream waits, because their structure has changed: {format_names(plan.whole)}."
        )
    beside = {"action": "repair-gap", "repair": action.repair}
    return _steered(record, action, runs, lines, plan.problems, plan.version, beside)


def _planned(record: ConnectorRecord, plan: Callable[[ConnectorLifecycle], _P]) -> _P:
    """Build a plan that needs the source.

    :raises CdcError: it has not answered in time, or there can be no such plan
    """
    access = access_to(record).use_current_connection()

    def look() -> _P:
        with access.prepare_lifecycle() as lifecycle:
            return plan(lifecycle)

    return call_source_in_time(_SOURCE_ANSWER_S, access.conn_id, look, name=f"The source of {record.connector}")


def _steered(
    record: ConnectorRecord,
    action: RestoreOffset | SetOffset | ResetOffset | RepairGap,
    runs: DagRuns,
    lines: Sequence[str],
    problems: Sequence[str],
    version: int,
    beside: Mapping[str, Any],
) -> DagRunAction:
    """Return the work of a run of a form that controls connectors.

    :param version: of the offset that the plan is about
    :param beside: parameters that the action has for itself
    """
    obstacles = list(problems)
    if action.at_version not in (None, version):
        obstacles.append(
            f"The offset has moved since the plan was made: its version was {action.at_version}, and is now {version}. Check the new plan."
        )
    if record.owner is not None:
        obstacles.append(f"The active run {record.owner} would move the offset: pause the connector first.")
    conf = {
        "connector": record.connector, "at_version": version, "plan_only": False, "confirm": record.connector,
        "reason": action.reason or None, **beside,
    }  # fmt: skip
    dag = runs.find_form_dag(_choices(conf, "action"), {*_STEERS, *beside}, "lifecycle_dag", dangerous=True)
    return DagRunAction(dag, lines, True, conf, obstacles, version)


def _choices(conf: Mapping[str, Any], action: str) -> dict[str, str]:
    return {"connector": conf["connector"], action: conf[action]}


__all__ = ["LOG_ANSWER_S", "NOTHING", "DagRunAction", "DagRuns", "by_run", "work_of"]
