"""A DAG with a form that pauses, resumes, moves, repairs and deletes connectors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from airflow.sdk import DAG, Param

from airflow_provider_cdc.connector import ConnectorDefinition
from airflow_provider_cdc.dag import form_params
from airflow_provider_cdc.dag.snapshot_dags import _manual
from airflow_provider_cdc.hooks.state import DEFAULT_CONN_ID
from airflow_provider_cdc.operators.lifecycle import TITLES, ConnectorLifecycleOperator

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
    state_conn_id: str = DEFAULT_CONN_ID,
    **dag: Any,
) -> DAG:
    """Build a DAG with a form that controls connectors.

    It pauses, resumes, stops and restarts connectors, shows their status, moves their offsets, repairs gaps and deletes them.

    An action that cannot be undone only shows its plan, until *Plan only* is switched off and the connector's name is typed.

    :param connectors: that the form offers
    :param dag: further arguments of ``DAG``
    """
    names = form_params.connector_names(connectors)
    params = {
        "connector": form_params.connector_param(names, None),
        "action": form_params.build_choice_param("Action", "", None, {action.value: title for action, title in TITLES.items()}),
        "reason": form_params.build_text_param("Reason", "shown with the status of the connector", None),
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
    with _manual(dag_id, params, _DOC, "CDC: control a connector", dag) as built_dag:
        ConnectorLifecycleOperator(
            task_id="steer",
            connector="{{ params.connector }}",
            action="{{ params.action }}",
            reason="{{ params.reason or '' }}",
            position="{{ params.position | tojson if params.position else '' }}",
            version="{{ params.version or '' }}",
            at_version="{{ '' if params.at_version is none else params.at_version }}",
            repair="{{ params.repair }}",
            plan_only="{{ params.plan_only | lower }}",
            confirm="{{ params.confirm or '' }}",
            with_changelog="{{ params.with_changelog | lower }}",
            state_conn_id=state_conn_id,
        )
    return built_dag


_DOC = """
Controls a connector, as `airflow cdc` does. The log and the return value of **steer** show the changes, or the plan.

A paused or stopped connector ends its run at the next boundary between two transactions; the runs of its DAG are skipped until
it is resumed.
"""
