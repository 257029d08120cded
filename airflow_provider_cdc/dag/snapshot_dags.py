"""DAGs with a form: one reads tables again, one sends any signal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

from airflow.sdk import DAG, Param, task

from airflow_provider_cdc.connector import ConnectorDefinition
from airflow_provider_cdc.core.errors import CdcError
from airflow_provider_cdc.core.signals.signal_request_parser import MOST_CHUNK_ROWS
from airflow_provider_cdc.dag import form_params
from airflow_provider_cdc.hooks.state import DEFAULT_CONN_ID, CdcStateHook
from airflow_provider_cdc.operators.signal import SendSignalOperator
from airflow_provider_cdc.sensors.snapshot_completed import SnapshotCompletedSensor
from airflow_provider_cdc.services.connectors.parameter_checks import parse_mapping, parse_seconds
from airflow_provider_cdc.services.tasks.connector_fields import to_airflow_exception

TYPES = (
    "execute-snapshot", "stop-snapshot", "pause-snapshot", "resume-snapshot", "log", "schema-changes",
    "set-binlog-position",
)  # fmt: skip
"""Documented types of signals, as suggestions."""
_WHICH, _HOW = "Which rows", "How to read"


def ad_hoc_snapshot_dag(
    connectors: Sequence[ConnectorDefinition | str],
    *,
    dag_id: str = "cdc_ad_hoc_snapshot",
    tables: Mapping[str, Sequence[str]] | None = None,
    state_conn_id: str = DEFAULT_CONN_ID,
    poll_interval: float | timedelta = 5.0,
    timeout: float | timedelta = timedelta(days=2),
    **dag: Any,
) -> DAG:
    """Build a DAG with a form that requests a snapshot.

    The form says which tables of which connector are to be read again, which rows, and how.

    Its tasks check the entries against the captured tables, send the signal, and wait without a worker until the
    snapshot is complete; progress is in the log of ``wait``.

        >>> dag = ad_hoc_snapshot_dag([shop, billing], tables={"billing": ["billing.invoices"]})

    :param connectors: that the form offers
    :param tables: connector → names of tables to offer besides those that its include list names one by one
    :param poll_interval: seconds between two polls of the snapshot's progress
    :param timeout: how long to wait for a snapshot; it continues after that
    :param dag: further arguments of ``DAG``
    """
    names = form_params.connector_names(connectors)
    known_tables = form_params.known_tables(connectors, parse_mapping("tables", tables))
    params = _snapshot_params(names, known_tables)
    with _manual(dag_id, params, _SNAPSHOT_DOC, "CDC: snapshot tables again", dag) as built_dag:
        connector = "{{ params.connector }}"
        request: Any = _check.override(task_id="check")(state_conn_id=state_conn_id)
        send: Any = SendSignalOperator(
            task_id="send", connector=connector, type="execute-snapshot", data=request, state_conn_id=state_conn_id
        )
        SnapshotCompletedSensor(
            task_id="wait",
            connector=connector,
            number=send.output,
            state_conn_id=state_conn_id,
            poll_interval=poll_interval,
            timeout=parse_seconds("timeout", timeout),
        )
    return built_dag


def signal_dag(
    connectors: Sequence[ConnectorDefinition | str],
    *,
    dag_id: str = "cdc_signal",
    state_conn_id: str = DEFAULT_CONN_ID,
    poll_interval: float | timedelta = 5.0,
    timeout: float | timedelta = timedelta(days=2),
    **dag: Any,
) -> DAG:
    """Build a DAG with a form that sends any signal to a connector and waits until it has ended.

    :param connectors: that the form offers
    :param dag: further arguments of ``DAG``
    """
    names = form_params.connector_names(connectors)
    params = {
        "connector": form_params.connector_param(names, None),
        "type": Param(
            "log", "a documented type, a type of the source, or a custom type", type="string", minLength=1,
            examples=list(TYPES), title="Type",
        ),
        "data": form_params.build_json_param("Data", 'data of the signal, for example {"message": "we were here at {}"}', None),
        "id": form_params.build_text_param("Id", "id of the signal in notifications (default: the id of the run)", None),
    }  # fmt: skip
    with _manual(dag_id, params, _SIGNAL_DOC, "CDC: send a signal", dag) as built_dag:
        send: Any = SendSignalOperator(
            task_id="send",
            connector="{{ params.connector }}",
            type="{{ params.type }}",
            data="{{ params.data | tojson if params.data else '' }}",
            id="{{ params.id or '' }}",
            state_conn_id=state_conn_id,
        )
        SnapshotCompletedSensor(
            task_id="wait",
            connector="{{ params.connector }}",
            number=send.output,
            state_conn_id=state_conn_id,
            poll_interval=poll_interval,
            timeout=parse_seconds("timeout", timeout),
        )
    return built_dag


@task
def _check(state_conn_id: str, **context: Any) -> dict[str, Any]:
    """Check the entries, and return the data of the signal."""
    from airflow_provider_cdc.core.config.table_source_config import TableConfig
    from airflow_provider_cdc.dag.snapshot_form_parser import snapshot_request
    from airflow_provider_cdc.services.connectors.captured_tables import captured_tables
    from airflow_provider_cdc.services.connectors.connector_handle import access_of, find_connector
    from airflow_provider_cdc.sources import config_class

    params = context["params"]
    try:
        with CdcStateHook(state_conn_id).open_store() as store:
            row = find_connector(store, params["connector"])
            access = access_of(row)
            config = TableConfig if access is None else config_class(access.definition.source)
            return snapshot_request(params, captured_tables(store, row), config)
    except CdcError as e:
        raise to_airflow_exception(e) from e


def _snapshot_params(names: Sequence[str], known_tables: Mapping[str, Sequence[str]]) -> dict[str, Param]:
    several = len(names) > 1
    shown = {table: f"{table} ({', '.join(owners)})" for table, owners in known_tables.items()} if several else {}
    tables = Param(
        None,
        "tables from the connectors' include lists"
        if known_tables
        else "the include lists name no tables: type them below",
        type=["null", "array"],
        items={"type": "string"},
        examples=list(known_tables),
        values_display=shown,
        title="Tables",
    )
    return {
        "connector": form_params.connector_param(names, None),
        "tables": tables,
        "more_tables": Param(
            None,
            "one per line, as database.table or as a regular expression that matches whole names",
            type=["null", "array"],
            items={"type": "string"},
            title="Further tables",
        ),
        "filters": form_params.build_json_param(
            "Filter per table",
            'a condition in the database\'s SQL, for example {"inventory.orders": "region = \'north\'"}; in a blocking snapshot, the whole '
            "SELECT. Rows that do not match stay unchanged.",
            _WHICH,
        ),
        "changed_since_column": form_params.build_text_param(
            "Changed since: column", "only rows with this column at or after the time below", _WHICH
        ),
        "changed_since": form_params.build_text_param(
            "Changed since: time", "compared as UTC", _WHICH, format="date-time"
        ),
        "type": form_params.build_choice_param(
            "Type",
            "beside the capture, or while the capture waits",
            _HOW,
            {"incremental": "incremental: in chunks, beside the capture", "blocking": "blocking: at once, in parallel"},
        ),
        "surrogate_key": form_params.build_text_param(
            "Surrogate key",
            "column that divides the table into chunks, instead of the primary key; it must not be NULL",
            _HOW,
        ),
        "chunk_size": form_params.whole_number(
            "Chunk size",
            "rows of a chunk of an incremental snapshot (default: the connector's setting)",
            _HOW,
            MOST_CHUNK_ROWS,
        ),
        "replace": form_params.build_switch_param(
            "Empty the tables first",
            "empties the target tables, so that rows deleted from the source disappear there too; not together with filters",
            _HOW,
        ),
    }


def _manual(dag_id: str, params: Mapping[str, Any], doc: str, title: str, dag: dict[str, Any]) -> DAG:
    """Build a DAG that only people start."""
    arguments = {
        "schedule": None,
        "catchup": False,
        "tags": ["cdc"],
        "dag_display_name": title,
        "doc_md": doc,
        "params": dict(params),
        **dag,
    }
    return DAG(dag_id, **arguments)


_SNAPSHOT_DOC = """
Takes a snapshot of tables of a connector again while its changes are captured.

1. **check** checks the form against the tables that the connector captures.
2. **send** sends the signal `execute-snapshot`.
3. **wait** waits, without a worker, until the snapshot is complete; its log shows the progress.

The connector's own DAG takes the snapshot. Stop, pause or resume a snapshot with the DAG `cdc_signal`.
"""
_SIGNAL_DOC = """
Sends a signal to a connector and waits, without a worker, until it has ended. Types and data are as in the
Debezium connector documentation, "Sending signals to a connector".
"""
