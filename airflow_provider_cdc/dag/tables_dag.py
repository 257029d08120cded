"""A DAG with a form that compares tables with the source, repairs them, and builds them again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

from airflow.sdk import DAG, Param

from airflow_provider_cdc.connector import ConnectorDefinition
from airflow_provider_cdc.dag import form_params
from airflow_provider_cdc.dag.snapshot_dags import _manual
from airflow_provider_cdc.hooks.state import DEFAULT_CONN_ID
from airflow_provider_cdc.operators.table_actions import TITLES, TableAction, WorkOnTablesOperator
from airflow_provider_cdc.services.connectors.parameter_checks import parse_flag


def tables_dag(
    connectors: Sequence[ConnectorDefinition | str],
    *,
    dag_id: str = "cdc_tables",
    dangerous: bool = False,
    spark: Mapping[str, Any] | None = None,
    wait: float | timedelta = timedelta(minutes=10),
    state_conn_id: str = DEFAULT_CONN_ID,
    **dag: Any,
) -> DAG:
    """Build a DAG with a form that works on tables of a target.

    It compares them with the source, and has rows that differ read again.

    The pages of connectors start its runs, too.

    :param connectors: that the form offers
    :param dangerous: offer to build tables again from the change log, too: all who may trigger the DAG may do so. Pages need such a DAG for that
    :param spark: how jobs are submitted for tables in a lakehouse: ``conn_id``, ``jars``, ``packages``, ``conf`` and other arguments of ``SparkSubmitOperator``
    :param wait: how long a comparison waits for the capture, and then for the apply
    :param dag: further arguments of ``DAG``
    """
    parse_flag("dangerous", dangerous)
    offered = {work.value: title for work, title in TITLES.items() if dangerous or work is not TableAction.REBUILD}
    names = form_params.connector_names(connectors)
    params = {
        "connector": form_params.connector_param(names, None),
        "work": form_params.build_choice_param("Action", "", None, offered),
        "tables": Param(
            [], "one per line; to verify, names or regular expressions that match whole names, or none for all tables",
            type=["null", "array"], items={"type": "string"}, title="Tables",
        ),
        "target": form_params.build_text_param("Kind of the target", "if the connector has several targets", None),
        "location": form_params.build_text_param("Location of its tables", "as given to its apply, if the connector has several targets", None),
        "confirm": form_params.build_text_param("Confirm", "the connector's name; not needed to verify", None),
    }  # fmt: skip
    with _manual(dag_id, params, _DOC, "CDC: verify, repair and rebuild tables", dag) as built_dag:
        WorkOnTablesOperator(
            task_id="work",
            connector="{{ params.connector }}",
            work="{{ params.work }}",
            tables="{{ params.tables | tojson if params.tables else '' }}",
            target="{{ params.target or '' }}",
            location="{{ params.location or '' }}",
            confirm="{{ params.confirm or '' }}",
            wait=wait,
            spark=spark,
            state_conn_id=state_conn_id,
        )
    return built_dag


_DOC = """
Works on the tables that a connector's changes are applied to, as `airflow cdc verify` and `airflow cdc rebuild` do. Capture and apply continue meanwhile.

- **verify** compares the tables with the source, row by row and value by value. Nothing is changed.
- **repair** verifies the tables, and snapshots the rows that differ again by signals to the connector.
- **rebuild**, where the form offers it, rebuilds the tables from the change log, and replaces each table by one commit.
"""
