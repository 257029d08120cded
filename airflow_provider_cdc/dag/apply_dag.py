"""A DAG that applies what the DAGs of several connectors capture."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

from airflow.sdk import DAG, AssetAny

from airflow_provider_cdc.connector import ConnectorDefinition
from airflow_provider_cdc.dag.connector_dag import OVERLAP, arguments_of, length_of
from airflow_provider_cdc.dag.table_assets import watched_table_asset
from airflow_provider_cdc.hooks.state import DEFAULT_CONN_ID
from airflow_provider_cdc.operators.apply_connectors import ApplyConnectorsOperator, ConnectorApplyOptions
from airflow_provider_cdc.services.connectors.parameter_checks import parse_mapping

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
    apply: Mapping[str, Any] | None = None,
    **dag: Any,
) -> DAG:
    """Build a DAG that applies the changes of several connectors in one Spark session.

    Other DAGs capture them: ``cdc_dag`` without ``location``.

        >>> dag = apply_dag([shop, billing], location="s3a://lake/{connector}/{database}/{table}", continuous=True)

    :param connectors: definitions, or :class:`~airflow_provider_cdc.operators.apply_connectors.ConnectorApplyOptions`, where one differs from the others
    :param location: where tables are, of all connectors that name no other place
    :param target: kind of all tables, ``delta`` or ``iceberg``
    :param schedule: as of ``DAG``; by default a run begins when one of the connectors has captured something
    :param continuous: apply all the time, with changes in the tables within seconds: a run takes ``run_for`` (an hour), and hands over to the next one
    :param poll_interval: seconds between two looks whether anything is captured, if that starts the runs
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
    schedule, arguments = arguments_of(
        AssetAny(*captured) if schedule == CAPTURED else schedule,
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
