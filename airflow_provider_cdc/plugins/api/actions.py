"""Routes that change something. Each says what it would do, and does it when it is asked to; what can lose or repeat something wants the connector's name."""

from dataclasses import dataclass
from typing import Annotated

from fastapi import APIRouter, Depends, Query

from airflow_provider_cdc.plugins.api.dependencies import MOST, Administrable, Operable, Reached, Readable, Store
from airflow_provider_cdc.plugins.dag_runs import AirflowRuns
from airflow_provider_cdc.services.actions.action_history import asked_for
from airflow_provider_cdc.services.actions.action_models import (
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
from airflow_provider_cdc.services.actions.actions import carry_out, plan_of
from airflow_provider_cdc.state.store import StateStore

router = APIRouter(prefix="/connectors/{connector}/actions", tags=["actions"])


@dataclass(frozen=True)
class How:
    """Whether something is done, or only said."""

    plan: bool
    confirm: str | None
    about: str | None


def _how(
    plan: Annotated[bool, Query(description="Only say what would be done")] = True,
    confirm: Annotated[
        str | None, Query(max_length=250, description="The connector's name, where the plan wants it")
    ] = None,
    about: Annotated[
        str | None,
        Query(
            max_length=64, description="As the plan has it: nothing is done if it would be about something else by now"
        ),
    ] = None,
) -> How:
    return How(plan, confirm, about)


Asking = Annotated[How, Depends(_how)]


def _acted(store: StateStore, reached: Reached, asked: Action, how: How) -> Plan:
    runs = AirflowRuns(reached.user)
    if how.plan:
        return plan_of(store, reached.record, asked, runs)
    by = reached.user.get_name()
    return carry_out(store, reached.record, asked, runs, confirm=how.confirm, about=how.about, by=by)


@router.get("")
def asked(store: Store, reached: Readable, limit: Annotated[int, Query(ge=1, le=MOST)] = 20) -> list[AskedFor]:
    """What people have asked for on pages, and what has become of it, newest first."""
    return asked_for(store, reached.name, AirflowRuns(reached.user), limit)


@router.post("/pause")
def pause(store: Store, reached: Operable, asked: Pause, how: Asking) -> Plan:
    """Capture nothing for a while."""
    return _acted(store, reached, asked, how)


@router.post("/stop")
def stop(store: Store, reached: Operable, asked: Stop, how: Asking) -> Plan:
    """Capture nothing until further notice."""
    return _acted(store, reached, asked, how)


@router.post("/resume")
def resume(store: Store, reached: Operable, asked: Resume, how: Asking) -> Plan:
    """Go on where the offset stands."""
    return _acted(store, reached, asked, how)


@router.post("/snapshot")
def snapshot(store: Store, reached: Operable, asked: Snapshot, how: Asking) -> Plan:
    """Read tables again."""
    return _acted(store, reached, asked, how)


@router.post("/stop-snapshot")
def stop_snapshot(store: Store, reached: Operable, asked: StopSnapshot, how: Asking) -> Plan:
    """Stop reading tables in chunks."""
    return _acted(store, reached, asked, how)


@router.post("/forget-target")
def forget_target(store: Store, reached: Administrable, asked: ForgetTarget, how: Asking) -> Plan:
    """Release what a target holds back of the change log."""
    return _acted(store, reached, asked, how)


@router.post("/run")
def run_now(store: Store, reached: Operable, asked: RunNow, how: Asking) -> Plan:
    """Have the DAG that captures run now."""
    return _acted(store, reached, asked, how)


@router.post("/verify")
def verify(store: Store, reached: Operable, asked: Verify, how: Asking) -> Plan:
    """Compare tables of a target with the source."""
    return _acted(store, reached, asked, how)


@router.post("/repair")
def repair(store: Store, reached: Operable, asked: Repair, how: Asking) -> Plan:
    """Compare tables of a target with the source, and have the rows that differ read again."""
    return _acted(store, reached, asked, how)


@router.post("/rebuild")
def rebuild(store: Store, reached: Administrable, asked: Rebuild, how: Asking) -> Plan:
    """Build tables of a target again from the change log."""
    return _acted(store, reached, asked, how)


@router.post("/restore-offset")
def restore_offset(store: Store, reached: Administrable, asked: RestoreOffset, how: Asking) -> Plan:
    """Go back to an offset that the connector has had."""
    return _acted(store, reached, asked, how)


@router.post("/set-offset")
def set_offset(store: Store, reached: Administrable, asked: SetOffset, how: Asking) -> Plan:
    """Go on from another position in the source's log."""
    return _acted(store, reached, asked, how)


@router.post("/reset-offset")
def reset_offset(store: Store, reached: Administrable, asked: ResetOffset, how: Asking) -> Plan:
    """Forget the offset, and have all tables read again."""
    return _acted(store, reached, asked, how)


@router.post("/repair-gap")
def repair_gap(store: Store, reached: Administrable, asked: RepairGap, how: Asking) -> Plan:
    """Go on although the source's log does not hold the position any more."""
    return _acted(store, reached, asked, how)
