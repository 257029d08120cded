"""Routes that change something. Each returns its plan, or executes it; an action that can lose or repeat something needs the connector's name."""

from dataclasses import dataclass
from typing import Annotated

from fastapi import APIRouter, Depends, Query

from airflow_provider_cdc.plugins.airflow_audit_log import log_action
from airflow_provider_cdc.plugins.api.dependencies import (
    MOST,
    Administrable,
    AuthorizedConnector,
    Operable,
    Readable,
    Store,
)
from airflow_provider_cdc.plugins.user_dag_runs import AirflowDagRuns
from airflow_provider_cdc.services.actions.action_execution import carry_out, plan_of
from airflow_provider_cdc.services.actions.action_history import load_requested_actions
from airflow_provider_cdc.services.actions.action_models import (
    ActionPlan,
    ConnectorAction,
    ForgetTarget,
    PauseConnector,
    RebuildTargetTables,
    RepairGap,
    RepairTargetTables,
    RequestedAction,
    ResetOffset,
    RestoreOffset,
    ResumeConnector,
    RunCaptureDag,
    SetOffset,
    StartSnapshot,
    StopConnector,
    StopIncrementalSnapshot,
    VerifyTargetTables,
)
from airflow_provider_cdc.state.state_store import StateStore

router = APIRouter(prefix="/connectors/{connector}/actions", tags=["actions"])


@dataclass(frozen=True)
class ExecutionOptions:
    """The choice whether an action is done, or only planned."""

    plan: bool
    confirm: str | None
    about: str | None


def _how(
    plan: Annotated[bool, Query(description="Only return the plan")] = True,
    confirm: Annotated[
        str | None, Query(max_length=250, description="The connector's name, if the plan requires it")
    ] = None,
    about: Annotated[
        str | None,
        Query(
            max_length=64,
            description="From the plan: nothing is done if the affected tables or signals have changed since",
        ),
    ] = None,
) -> ExecutionOptions:
    return ExecutionOptions(plan, confirm, about)


Asking = Annotated[ExecutionOptions, Depends(_how)]


def _acted(
    store: StateStore, reached: AuthorizedConnector, action: ConnectorAction, how: ExecutionOptions
) -> ActionPlan:
    runs = AirflowDagRuns(reached.user)
    if how.plan:
        return plan_of(store, reached.record, action, runs)
    by = reached.user.get_name()
    log_action(reached.user, reached.record, action)
    return carry_out(store, reached.record, action, runs, confirm=how.confirm, about=how.about, by=by)


@router.get("")
def list_requested_actions(
    store: Store, reached: Readable, limit: Annotated[int, Query(ge=1, le=MOST)] = 20
) -> list[RequestedAction]:
    """List the actions that users have requested on pages, with their results, newest first."""
    return load_requested_actions(store, reached.connector_name, AirflowDagRuns(reached.user), limit)


@router.post("/pause")
def pause_connector(store: Store, reached: Operable, action: PauseConnector, how: Asking) -> ActionPlan:
    """Pause the connector: new runs are skipped until it is resumed."""
    return _acted(store, reached, action, how)


@router.post("/stop")
def stop_connector(store: Store, reached: Operable, action: StopConnector, how: Asking) -> ActionPlan:
    """Stop the connector: as a pause, but the connector is not expected to resume soon."""
    return _acted(store, reached, action, how)


@router.post("/resume")
def resume_connector(store: Store, reached: Operable, action: ResumeConnector, how: Asking) -> ActionPlan:
    """Resume the connector: the next run continues from the offset."""
    return _acted(store, reached, action, how)


@router.post("/snapshot")
def request_snapshot(store: Store, reached: Operable, action: StartSnapshot, how: Asking) -> ActionPlan:
    """Snapshot tables again."""
    return _acted(store, reached, action, how)


@router.post("/stop-snapshot")
def stop_snapshot(store: Store, reached: Operable, action: StopIncrementalSnapshot, how: Asking) -> ActionPlan:
    """Stop incremental snapshots."""
    return _acted(store, reached, action, how)


@router.post("/forget-target")
def forget_target(store: Store, reached: Administrable, action: ForgetTarget, how: Asking) -> ActionPlan:
    """Forget a target: the change log no longer keeps batches for it."""
    return _acted(store, reached, action, how)


@router.post("/run")
def run_now(store: Store, reached: Operable, action: RunCaptureDag, how: Asking) -> ActionPlan:
    """Start a run of the DAG that captures the connector."""
    return _acted(store, reached, action, how)


@router.post("/verify")
def verify_tables(store: Store, reached: Operable, action: VerifyTargetTables, how: Asking) -> ActionPlan:
    """Verify tables of a target against the source."""
    return _acted(store, reached, action, how)


@router.post("/repair")
def repair_tables(store: Store, reached: Operable, action: RepairTargetTables, how: Asking) -> ActionPlan:
    """Verify tables of a target against the source, and repair the rows that differ."""
    return _acted(store, reached, action, how)


@router.post("/rebuild")
def rebuild_tables(store: Store, reached: Administrable, action: RebuildTargetTables, how: Asking) -> ActionPlan:
    """Rebuild tables of a target from the change log."""
    return _acted(store, reached, action, how)


@router.post("/restore-offset")
def restore_offset(store: Store, reached: Administrable, action: RestoreOffset, how: Asking) -> ActionPlan:
    """Restore an earlier offset of the connector."""
    return _acted(store, reached, action, how)


@router.post("/set-offset")
def set_offset(store: Store, reached: Administrable, action: SetOffset, how: Asking) -> ActionPlan:
    """Set the offset, so that the connector continues from another position in the source's log."""
    return _acted(store, reached, action, how)


@router.post("/reset-offset")
def reset_offset(store: Store, reached: Administrable, action: ResetOffset, how: Asking) -> ActionPlan:
    """Reset the offset: the next run takes a snapshot of every captured table again."""
    return _acted(store, reached, action, how)


@router.post("/repair-gap")
def repair_gap(store: Store, reached: Administrable, action: RepairGap, how: Asking) -> ActionPlan:
    """Repair a gap: the connector continues although the source's log no longer contains its position."""
    return _acted(store, reached, action, how)
