"""A DAG with a form that pauses and resumes connectors and, if its author allows it, moves, repairs and deletes them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from airflow.sdk import DAG, Param

from airflow_provider_cdc.connector import ConnectorDefinition
from airflow_provider_cdc.dag import form_params
from airflow_provider_cdc.dag.snapshot_dags import _manual
from airflow_provider_cdc.hooks.state import DEFAULT_CONN_ID
from airflow_provider_cdc.operators.lifecycle import TITLES, ConnectorLifecycleOperator
from airflow_provider_cdc.services.connectors.parameter_checks import parse_flag

_CHANGE, _SURE = "Where to continue", "Safety, for changes that cannot be undone"
_REPAIRS = {
    "snapshot": "snapshot: take a snapshot of all tables, then continue",
    "incremental": "incremental: continue at once, with an incremental snapshot of all tables beside it",
    "skip": "skip: continue, and lose the changes in between",
}


def lifecycle_dag(
    connectors: Sequence[ConnectorDefinition | str],
    *,
    dag_id: str = "cdc_lifecycle",
    dangerous: bool = False,
    state_conn_id: str = DEFAULT_CONN_ID,
    **dag: Any,
) -> DAG:
    """Build a DAG with a form that controls connectors.

    It pauses, resumes, stops and restarts connectors, and shows their status.

        >>> dag = lifecycle_dag([shop, billing])
        >>> admins = lifecycle_dag([shop, billing], dag_id="cdc_admin", dangerous=True, access_control={…})

    :param connectors: that the form offers
    :param dangerous: offer actions that cannot be undone, too: move offsets, repair gaps, delete connectors. All who may trigger the DAG may do them: give it
        a separate ``access_control``. Pages need such a DAG for these actions, and require the right to edit the source's connection besides. An action
        only shows its plan, until *Plan only* is switched off and the connector's name is typed
    :param dag: further arguments of ``DAG``
    """
    parse_flag("dangerous", dangerous)
    names = form_params.connector_names(connectors)
    offered = {action.value: title for action, title in TITLES.items() if dangerous or not action.needs_confirmation}
    params = {
        "connector": form_params.connector_param(names, None),
        "action": form_params.build_choice_param("Action", "", None, offered),
        "reason": form_params.build_text_param("Reason", "shown with the status of the connector", None),
        **(_dangerous_params() if dangerous else {}),
    }
    with _manual(dag_id, params, _DOC, "CDC: control a connector", dag) as built_dag:
        ConnectorLifecycleOperator(
            task_id="steer",
            connector="{{ params.connector }}",
            action="{{ params.action }}",
            reason="{{ params.reason or '' }}",
            state_conn_id=state_conn_id,
            **(_DANGEROUS_FIELDS if dangerous else {}),
        )
    return built_dag


def _dangerous_params() -> dict[str, Param]:
    """Build the further parameters of actions that cannot be undone."""
    return {
        "position": form_params.build_json_param("Position", "to continue from, in the form that airflow cdc offset show prints", _CHANGE),
        "version": Param(
            None, "version of the offset to restore, from airflow cdc offset history", type=["null", "integer"], minimum=1,
            title="Version", section=_CHANGE,
        ),
        "at_version": Param(
            None, "change the offset only if it still has this version, from the plan", type=["null", "integer"], minimum=0,
            title="Present version", section=_CHANGE,
        ),
        "repair": form_params.build_choice_param("Repair of a gap", "", _CHANGE, _REPAIRS),
        "plan_only": form_params.build_switch_param("Plan only", "show the plan; nothing is changed", _SURE, on=True),
        "confirm": form_params.build_text_param("Confirm", "the connector's name, typed", _SURE),
        "with_changelog": form_params.build_switch_param("Delete the change log too", "when the connector is deleted", _SURE),
    }  # fmt: skip


_DANGEROUS_FIELDS: dict[str, Any] = {
    "position": "{{ params.position | tojson if params.position else '' }}",
    "version": "{{ params.version or '' }}",
    "at_version": "{{ '' if params.at_version is none else params.at_version }}",
    "repair": "{{ params.repair }}",
    "plan_only": "{{ params.plan_only | lower }}",
    "confirm": "{{ params.confirm or '' }}",
    "with_changelog": "{{ params.with_changelog | lower }}",
}
"""Fields of the operator for them."""

_DOC = """
Controls a connector, as `airflow cdc` does. The log and the return value of **steer** show the changes, or the plan.

A paused or stopped connector ends its run at the next boundary between two transactions; the runs of its DAG are skipped until
it is resumed.
"""
