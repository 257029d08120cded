"""A DAG that captures several small connectors by one task, and applies their changes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

from airflow.providers.standard.operators.empty import EmptyOperator
from airflow.sdk import DAG, TriggerRule

from airflow_provider_cdc.core.errors import ConfigError
from airflow_provider_cdc.core.lifecycle.next_run import RETRY_AFTER_S
from airflow_provider_cdc.dag.connector_dag import CONTINUOUS, arguments_of, build_sensor_arguments
from airflow_provider_cdc.hooks.state import DEFAULT_CONN_ID
from airflow_provider_cdc.operators.apply_connectors import ApplyConnectorsOperator, ConnectorApplyOptions
from airflow_provider_cdc.operators.capture_group import CaptureGroupOperator
from airflow_provider_cdc.sensors.any_changes import AnyChangesSensor
from airflow_provider_cdc.services.connectors.grouped_connectors import GroupedConnector
from airflow_provider_cdc.services.connectors.parameter_checks import parse_mapping


def cdc_group_dag(
    connectors: Sequence[GroupedConnector],
    *,
    location: str | None = None,
    tables_of: Sequence[ConnectorApplyOptions] = (),
    target: str = "delta",
    dag_id: str = "cdc_group",
    schedule: Any = CONTINUOUS,
    state_conn_id: str = DEFAULT_CONN_ID,
    spark_conn_id: str = "spark_default",
    wait: bool = True,
    poll_interval: float | timedelta = 10.0,
    wait_timeout: float | timedelta = timedelta(days=7),
    retry_after: float | timedelta = timedelta(seconds=RETRY_AFTER_S),
    capture: Mapping[str, Any] | None = None,
    apply: Mapping[str, Any] | None = None,
    **dag: Any,
) -> DAG:
    """Build a DAG for several small connectors.

    It waits until any of them has changes, captures those that have by one process, one after the other, and applies them in one Spark session.
    A hundred quiet connectors cost one DAG, one waiting sensor and no process.

        >>> dag = cdc_group_dag(
        ...     [GroupedConnector(definition=shop, conn_id="shop_mariadb"), GroupedConnector(definition=billing, conn_id="billing_mariadb")],
        ...     location="s3a://lake/{connector}/{database}/{table}",
        ... )

    If a connector fails, the others are captured and applied, and the run fails and names it. One whose source is down is no failure where the sensor waits
    for it; the log and the result of the task *capture* name it.

    :param location: where tables are, of all connectors that ``tables_of`` names no other place of. Without both, the DAG captures only; another one applies,
        such as that of :func:`~airflow_provider_cdc.dag.apply_dag.apply_dag`
    :param tables_of: options that differ for the tables of single connectors
    :param target: kind of all tables, ``delta`` or ``iceberg``
    :param schedule: as of ``DAG``. With a fixed schedule, ``wait=False`` keeps runs from waiting
    :param wait: begin with the sensor. Without it, a run captures the changes that there are, and never waits
    :param wait_timeout: how long to wait for changes; a run in which nothing changes is skipped, not failed
    :param retry_after: how long a connector waits after a failure that needs a person, unless something is repaired before
    :param capture: further arguments of :class:`~airflow_provider_cdc.operators.capture_group.CaptureGroupOperator`
    :param apply: further arguments of :class:`~airflow_provider_cdc.operators.apply_connectors.ApplyConnectorsOperator`
    :param dag: further arguments of ``DAG``
    :raises ConfigError: there are no connectors, one is there twice, or ``tables_of`` names one that is not captured here
    """
    applied = location is not None or bool(tables_of)
    if not applied and apply:
        raise ConfigError("apply needs location: without location, no changes are applied.")
    common: dict[str, Any] = {"connectors": connectors, "state_conn_id": state_conn_id}
    names = ", ".join(f"**{connector.definition.name}**" for connector in connectors)
    schedule, arguments = arguments_of(schedule, run_for=None, continuous=False, refused=False, dag=dag)
    done = f"Keeps the captured changes of the connectors {names} up to date."
    arguments = {"tags": ["cdc"], "doc_md": done, **arguments}
    with DAG(dag_id, schedule=schedule, **arguments) as built_dag:
        # the sensor of the next run polls a source that is down: nothing needs a retry meanwhile
        behind_sensor = {"skip_unreachable": wait, "retry_after": retry_after if wait else None}
        captured = CaptureGroupOperator(
            task_id="capture", **common, **{**behind_sensor, **parse_mapping("capture", capture)}
        )
        if wait:
            waits = build_sensor_arguments(poll_interval, wait_timeout, ["apply"] if applied else [], retry_after)
            AnyChangesSensor(**waits, **common) >> captured
        if applied:
            apply_changes = ApplyConnectorsOperator(
                task_id="apply",
                connectors=_applied(connectors, tables_of),
                location=location,
                target=target,
                conn_id=spark_conn_id,
                state_conn_id=state_conn_id,
                # a connector that fails must not keep captured changes of the others from being applied
                trigger_rule=TriggerRule.NONE_SKIPPED,
                **parse_mapping("apply", apply),
            )
            # of a run, the last tasks decide: one for the capture, too. It takes no process
            captured >> [apply_changes, EmptyOperator(task_id="captured")]
    return built_dag


def _applied(
    connectors: Sequence[GroupedConnector], tables_of: Sequence[ConnectorApplyOptions]
) -> list[ConnectorApplyOptions]:
    different = {options.definition.name: options for options in tables_of}
    all_options = []
    for connector in connectors:
        tables = different.pop(connector.definition.name, None) or ConnectorApplyOptions(
            definition=connector.definition
        )
        all_options.append(replace(tables, storage_conn_id=tables.storage_conn_id or connector.storage_conn_id))
    if different:
        raise ConfigError(
            f"tables_of names connectors that the group does not capture: {', '.join(different)}.",
            where=f"captured: {', '.join(captured.definition.name for captured in connectors)}",
            remedy="add them to this group, or apply them in the DAG that captures them",
        )
    return all_options
