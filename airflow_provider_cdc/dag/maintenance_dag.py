"""A DAG that maintains the tables of connectors, and removes old data of their change logs and of the state tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from airflow.sdk import DAG

from airflow_provider_cdc.connector import ConnectorDefinition
from airflow_provider_cdc.core.errors import ConfigError
from airflow_provider_cdc.hooks.state import DEFAULT_CONN_ID
from airflow_provider_cdc.operators.apply_connectors import ConnectorApplyOptions
from airflow_provider_cdc.operators.maintain_tables import MaintainTablesOperator
from airflow_provider_cdc.operators.retention import RetentionOperator
from airflow_provider_cdc.services.connectors.parameter_checks import parse_mapping


def maintenance_dag(
    connectors: Sequence[ConnectorDefinition | ConnectorApplyOptions],
    *,
    location: str | None = None,
    target: str = "delta",
    keep: float | timedelta = timedelta(days=7),
    dag_id: str = "cdc_maintenance",
    schedule: Any = "@daily",
    spark_conn_id: str = "spark_default",
    storage_conn_id: str | None = None,
    state_conn_id: str = DEFAULT_CONN_ID,
    maintain: Mapping[str, Any] | None = None,
    **dag: Any,
) -> DAG:
    """Build a DAG that maintains what connectors write, by default once a day.

    It has one task for each connector, of the connector's name. The task removes batches of the change log that no target needs any more, and old
    rows of the state tables. Then it maintains the tables in the lakehouse, if the connector has a location: small files become large ones, and old
    snapshots go. A connector without a location needs no Spark. It may run beside captures and applies.

        >>> dag = maintenance_dag([shop, billing], location="s3a://lake/{connector}/{database}/{table}")
        >>> dag = maintenance_dag([warehouse])  # its changes go to a database

    :param connectors: definitions, or :class:`~airflow_provider_cdc.operators.apply_connectors.ConnectorApplyOptions`, where location,
        ``storage_conn_id`` or ``threads`` of one differ from the others; its other options are those of the apply alone
    :param location: where tables are, as the apply has it, of all connectors that name no other place
    :param target: kind of all tables, ``delta`` or ``iceberg``
    :param keep: how long files and snapshots of tables stay after they were replaced, in hours or as a timedelta; at least an hour
    :param schedule: as of ``DAG``
    :param storage_conn_id: Airflow connection with secret fsspec options of the change log in its extra
    :param state_conn_id: Airflow connection to the state tables
    :param maintain: further arguments of :class:`~airflow_provider_cdc.operators.maintain_tables.MaintainTablesOperator` (``conf``, ``threads``,
        ``driver_memory``, …)
    :param dag: further arguments of ``DAG``
    :raises ConfigError: there are no connectors, one is there twice, or an argument of a task cannot be used
    """
    options = _options_of(connectors)
    more = parse_mapping("maintain", maintain)
    if maintain and location is None and not any(one.location for one in options):
        raise ConfigError("maintain needs location: without location, there are no tables to maintain.")
    names = ", ".join(f"**{one.definition.name}**" for one in options)
    arguments = {
        "start_date": datetime(2024, 1, 1, tzinfo=UTC),  # Airflow schedules nothing without one
        "catchup": False,
        "max_active_runs": 1,
        "tags": ["cdc"],
        "dag_display_name": "CDC: maintenance",
        "doc_md": f"Maintains the tables of the connectors {names}, and removes old data of their change logs and of the state tables.",
        **dag,
        "default_args": {"retries": 1, "retry_delay": timedelta(minutes=5), **(dag.get("default_args") or {})},
    }
    with DAG(dag_id, schedule=schedule, **arguments) as built_dag:
        for one in options:
            common: dict[str, Any] = {
                "task_id": one.definition.name,
                "definition": one.definition,
                "state_conn_id": state_conn_id,
                "storage_conn_id": one.storage_conn_id or storage_conn_id,
            }
            place = one.location if one.location is not None else location
            if place is None:
                RetentionOperator(**common)
                continue
            threads = {} if one.threads is None else {"threads": one.threads}
            tables = {"location": place, "target": target, "keep": keep, "conn_id": spark_conn_id}
            MaintainTablesOperator(**{**common, **tables, **more, **threads})
    return built_dag


def _options_of(connectors: Any) -> list[ConnectorApplyOptions]:
    """Return the connectors with their options.

    :raises ConfigError: there are none, one is there twice, or one is no definition
    """
    if isinstance(connectors, str | ConnectorDefinition) or not isinstance(connectors, Sequence) or not connectors:
        raise ConfigError(f"connectors must be a list of at least one definition, but is {connectors!r}.")
    options = [
        ConnectorApplyOptions(definition=one) if isinstance(one, ConnectorDefinition) else one for one in connectors
    ]
    for one in options:
        if not isinstance(one, ConnectorApplyOptions):
            raise ConfigError(f"connectors must be definitions, but one is {one!r}.")
    names = [one.definition.name for one in options]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise ConfigError(f"connectors are there twice: {', '.join(twice)}.")
    return options
