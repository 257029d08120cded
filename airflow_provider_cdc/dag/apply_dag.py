"""A DAG that applies what the DAGs of several connectors capture."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any
from urllib.parse import quote

from airflow.sdk import DAG, Asset, AssetAny, AssetWatcher

from airflow_provider_cdc.connector import ConnectorDefinition
from airflow_provider_cdc.core.lifecycle.next_run import RETRY_AFTER_S
from airflow_provider_cdc.dag.connector_dag import OVERLAP, arguments_of, length_of
from airflow_provider_cdc.dag.table_assets import watched_table_asset
from airflow_provider_cdc.hooks.state import DEFAULT_CONN_ID
from airflow_provider_cdc.operators.apply_connectors import ApplyConnectorsOperator, ConnectorApplyOptions
from airflow_provider_cdc.services.connectors.parameter_checks import parse_mapping, parse_seconds
from airflow_provider_cdc.services.tasks.apply_notes import format_task_key
from airflow_provider_cdc.triggers.apply_due import ApplyDueTrigger

CAPTURED = "@captured"
"""The schedule of a DAG that runs when one of its connectors has captured something."""


def apply_dag(
    connectors: Sequence[ConnectorDefinition | ConnectorApplyOptions],
    *,
    location: str | None = None,
    target: str = "delta",
    dag_id: str = "cdc_apply",
    schedule: Any = CAPTURED,
    continuous: bool = False,
    run_for: float | timedelta | None = None,
    spark_conn_id: str = "spark_default",
    storage_conn_id: str | None = None,
    state_conn_id: str = DEFAULT_CONN_ID,
    poll_interval: float | timedelta = 5.0,
    retry_after: float | timedelta = timedelta(seconds=RETRY_AFTER_S),
    apply: Mapping[str, Any] | None = None,
    **dag: Any,
) -> DAG:
    """Build a DAG that applies the changes of several connectors in one Spark session.

    Other DAGs capture them: ``cdc_dag`` without ``location``.

        >>> dag = apply_dag([shop, billing], location="s3a://lake/{connector}/{database}/{table}", continuous=True)

    :param connectors: definitions, or :class:`~airflow_provider_cdc.operators.apply_connectors.ConnectorApplyOptions`, where one differs from the others
    :param location: where tables are, of all connectors that name no other place
    :param target: kind of all tables, ``delta`` or ``iceberg``
    :param schedule: as of ``DAG``; by default a run begins when one of the connectors has captured something, and when a target lacks what was captured and is
        due to be tried again
    :param continuous: apply all the time, with changes in the tables within seconds: a run takes ``run_for`` (an hour), and hands over to the next one
    :param poll_interval: seconds between two looks whether anything is captured, if that starts the runs
    :param retry_after: how long it waits after a failure of a target that needs a person, if nothing more is captured
    :param apply: further arguments of :class:`~airflow_provider_cdc.operators.apply_connectors.ApplyConnectorsOperator` (``conf``, ``tables``,
        ``threads``, ``driver_memory``, …)
    :param dag: further arguments of ``DAG``
    """
    definitions = [
        connector.definition if isinstance(connector, ConnectorApplyOptions) else connector for connector in connectors
    ]
    names = ", ".join(f"**{definition.name}**" for definition in definitions)
    captured = [
        watched_table_asset(definition, poll_interval=poll_interval, state_conn_id=state_conn_id)
        for definition in definitions
    ]
    # a target that was away gets what it lacks, also if nothing more is captured
    due = [
        _watch_due_applies(definition, dag_id, parse_seconds("retry_after", retry_after), poll_interval, state_conn_id)
        for definition in definitions
    ]
    schedule, arguments = arguments_of(
        AssetAny(*captured, *due) if schedule == CAPTURED else schedule,
        run_for=run_for, continuous=continuous, refused=schedule != CAPTURED, dag=dag,
    )  # fmt: skip
    arguments = {"tags": ["cdc"], "doc_md": f"Keeps the tables of the connectors {names} up to date.", **arguments}
    length = length_of(run_for) + OVERLAP if continuous else run_for
    with DAG(dag_id, schedule=schedule, **arguments) as built_dag:
        ApplyConnectorsOperator(
            task_id="apply",
            connectors=connectors,
            location=location,
            target=target,
            run_for=length,
            conn_id=spark_conn_id,
            state_conn_id=state_conn_id,
            storage_conn_id=storage_conn_id,
            **parse_mapping("apply", apply),
        )
    return built_dag


def _watch_due_applies(
    definition: ConnectorDefinition,
    dag_id: str,
    retry_after_s: float,
    poll_interval: float | timedelta,
    state_conn_id: str,
) -> Asset:
    """Build the asset whose events come when the DAG is to try an apply again."""
    trigger = ApplyDueTrigger(
        definition.name,
        format_task_key(dag_id, "apply"),
        retry_after_s=retry_after_s,
        state_conn_id=state_conn_id,
        poll_interval=parse_seconds("poll_interval", poll_interval),
    )
    uri = f"cdc://{quote(definition.name)}/{quote(dag_id)}/apply-due"
    return Asset(uri, watchers=[AssetWatcher(name="apply_due", trigger=trigger)])
