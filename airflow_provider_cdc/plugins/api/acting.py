"""Routes that change something. Each says what it would do, and does it when it is asked to; what can lose or repeat something wants the connector's name."""

from typing import Annotated

from fastapi import APIRouter, Query

from airflow_provider_cdc.core.model.action import (
    Action,
    AskedFor,
    ForgetTarget,
    Pause,
    Plan,
    Rebuild,
    Repair,
    RepairGap,
    ResetOffset,
    RestoreOffset,
    Resume,
    RunNow,
    SetOffset,
    Snapshot,
    Stop,
    StopSnapshot,
    Verify,
)
from airflow_provider_cdc.hooks.actions import carry_out, plan_of
from airflow_provider_cdc.hooks.asked_for import asked_for
from airflow_provider_cdc.plugins.api.reach import MOST, Administrable, Operable, Reached, Readable, Store
from airflow_provider_cdc.plugins.runs import AirflowRuns
from airflow_provider_cdc.state.store import StateStore

router = APIRouter(prefix="/connectors/{connector}/actions", tags=["actions"])
PlanOnly = Annotated[bool, Query(alias="plan", description="Only say what would be done")]
Confirm = Annotated[str | None, Query(max_length=250, description="The connector's name, where the plan wants it")]


def _acted(store: StateStore, reached: Reached, asked: Action, plan: bool, confirm: str | None) -> Plan:
    runs = AirflowRuns(reached.user)
    if plan:
        return plan_of(store, reached.record, asked, runs)
    return carry_out(store, reached.record, asked, runs, confirm=confirm, by=reached.user.get_name())


@router.get("")
def asked(store: Store, reached: Readable, limit: Annotated[int, Query(ge=1, le=MOST)] = 20) -> list[AskedFor]:
    """What people have asked for on pages, and what has become of it, newest first."""
    return asked_for(store, reached.name, AirflowRuns(reached.user), limit)


@router.post("/pause")
def pause(store: Store, reached: Operable, asked: Pause, plan: PlanOnly = True) -> Plan:
    """Capture nothing for a while."""
    return _acted(store, reached, asked, plan, None)


@router.post("/stop")
def stop(store: Store, reached: Operable, asked: Stop, plan: PlanOnly = True) -> Plan:
    """Capture nothing until further notice."""
    return _acted(store, reached, asked, plan, None)


@router.post("/resume")
def resume(store: Store, reached: Operable, asked: Resume, plan: PlanOnly = True) -> Plan:
    """Go on where the offset stands."""
    return _acted(store, reached, asked, plan, None)


@router.post("/snapshot")
def snapshot(store: Store, reached: Operable, asked: Snapshot, plan: PlanOnly = True, confirm: Confirm = None) -> Plan:
    """Read tables again."""
    return _acted(store, reached, asked, plan, confirm)


@router.post("/stop-snapshot")
def stop_snapshot(
    store: Store, reached: Operable, asked: StopSnapshot, plan: PlanOnly = True, confirm: Confirm = None
) -> Plan:
    """Stop reading tables in chunks."""
    return _acted(store, reached, asked, plan, confirm)


@router.post("/forget-target")
def forget_target(
    store: Store, reached: Administrable, asked: ForgetTarget, plan: PlanOnly = True, confirm: Confirm = None
) -> Plan:
    """Release what a target holds back of the change log."""
    return _acted(store, reached, asked, plan, confirm)


@router.post("/run")
def run_now(store: Store, reached: Operable, asked: RunNow, plan: PlanOnly = True) -> Plan:
    """Have the DAG that captures run now."""
    return _acted(store, reached, asked, plan, None)


@router.post("/verify")
def verify(store: Store, reached: Operable, asked: Verify, plan: PlanOnly = True) -> Plan:
    """Compare tables of a target with the source."""
    return _acted(store, reached, asked, plan, None)


@router.post("/repair")
def repair(store: Store, reached: Operable, asked: Repair, plan: PlanOnly = True, confirm: Confirm = None) -> Plan:
    """Compare tables of a target with the source, and have the rows that differ read again."""
    return _acted(store, reached, asked, plan, confirm)


@router.post("/rebuild")
def rebuild(
    store: Store, reached: Administrable, asked: Rebuild, plan: PlanOnly = True, confirm: Confirm = None
) -> Plan:
    """Build tables of a target again from the change log."""
    return _acted(store, reached, asked, plan, confirm)


@router.post("/restore-offset")
def restore_offset(
    store: Store, reached: Administrable, asked: RestoreOffset, plan: PlanOnly = True, confirm: Confirm = None
) -> Plan:
    """Go back to an offset that the connector has had."""
    return _acted(store, reached, asked, plan, confirm)


@router.post("/set-offset")
def set_offset(
    store: Store, reached: Administrable, asked: SetOffset, plan: PlanOnly = True, confirm: Confirm = None
) -> Plan:
    """Go on from another position in the source's log."""
    return _acted(store, reached, asked, plan, confirm)


@router.post("/reset-offset")
def reset_offset(
    store: Store, reached: Administrable, asked: ResetOffset, plan: PlanOnly = True, confirm: Confirm = None
) -> Plan:
    """Forget the offset, and have all tables read again."""
    return _acted(store, reached, asked, plan, confirm)


@router.post("/repair-gap")
def repair_gap(
    store: Store, reached: Administrable, asked: RepairGap, plan: PlanOnly = True, confirm: Confirm = None
) -> Plan:
    """Go on although the source's log does not hold the position any more."""
    return _acted(store, reached, asked, plan, confirm)
