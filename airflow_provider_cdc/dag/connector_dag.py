"""Wait → capture → apply, or capture and apply side by side, from one connector definition."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from airflow.providers.standard.operators.empty import EmptyOperator
from airflow.sdk import DAG, BaseOperator, TaskGroup, TriggerRule

from airflow_provider_cdc.connector import ConnectorDefinition
from airflow_provider_cdc.core.errors import ConfigError
from airflow_provider_cdc.core.lifecycle.next_run import RETRY_AFTER_S
from airflow_provider_cdc.hooks.airflow_compat import build_run_type_argument
from airflow_provider_cdc.hooks.state import DEFAULT_CONN_ID
from airflow_provider_cdc.operators.apply_changes import ApplyChangesOperator
from airflow_provider_cdc.operators.apply_to_database import ApplyToDatabaseOperator
from airflow_provider_cdc.operators.apply_to_database_on_spark import ApplyToDatabaseOnSparkOperator
from airflow_provider_cdc.operators.capture import CaptureOperator
from airflow_provider_cdc.sensors.changes_available import ChangesAvailableSensor
from airflow_provider_cdc.services.connectors.parameter_checks import parse_flag, parse_mapping, parse_seconds

CONTINUOUS = "@continuous"
LENGTH = timedelta(hours=1)
"""How long a run takes that captures and applies all the time."""
OVERLAP = timedelta(minutes=2)
"""How long its tasks continue after that, if those of the next run are not ready before."""
RETRY_DELAY = timedelta(seconds=20)
"""Pause before a task of such a run is tried again: a target that is back is up to date within a minute, with the start of Spark."""
FRESH_MS = 1000
"""``batch.max.ms`` of a connector whose changes are applied all the time."""


def cdc_task_group(
    definition: ConnectorDefinition,
    *,
    conn_id: str,
    location: str | None = None,
    target: str = "delta",
    tables: Any = (),
    database: str | None = None,
    sink: Mapping[str, Any] | None = None,
    on_spark: bool = False,
    submit: Any = None,
    group_id: str | None = None,
    prefix_group_id: bool = True,
    state_conn_id: str = DEFAULT_CONN_ID,
    storage_conn_id: str | None = None,
    spark_conn_id: str = "spark_default",
    wait: bool = True,
    poll_interval: float | timedelta = 10.0,
    wait_timeout: float | timedelta = timedelta(days=7),
    retry_after: float | timedelta = timedelta(seconds=RETRY_AFTER_S),
    run_for: float | timedelta | None = None,
    continuous: bool = False,
    adopt: bool = False,
    snapshot_job: Mapping[str, Any] | None = None,
    apply: Mapping[str, Any] | None = None,
) -> TaskGroup:
    """Build the tasks as a group, for a DAG of the user.

    :param conn_id: Airflow connection to the source database
    :param location: where tables are, with ``{database}``, ``{table}``, ``{topic}`` and ``{connector}``. Without it nothing is applied here: another
        DAG does it, such as that of :func:`~airflow_provider_cdc.dag.apply_dag.apply_dag`
    :param target: kind of the tables, ``delta`` or ``iceberg``
    :param tables: rules for tables that are not kept as the source has them, or are elsewhere, as of :class:`ApplyChangesOperator`
    :param database: Airflow connection to a relational database whose tables are kept equal to the source, instead of tables in a lakehouse:
        :class:`~airflow_provider_cdc.operators.apply_to_database.ApplyToDatabaseOperator`
    :param sink: properties of the tables there, as of that operator
    :param on_spark: have Spark (``spark_conn_id``) bring changes into the database, for loads that outgrow one machine:
        :class:`~airflow_provider_cdc.operators.apply_to_database_on_spark.ApplyToDatabaseOnSparkOperator`
    :param group_id: name of the group; by default the connector's name, with ``_`` for dots
    :param prefix_group_id: begin the ids of tasks with ``group_id``, such as ``shop.capture``: a DAG may have several groups then
    :param submit: the service that runs the Spark job, by default ``spark-submit`` on the worker: a name, or a mapping with ``platform`` and its parameters,
        as docs/platforms/spark.md has them
    :param wait: begin with the sensor. Without it, a run captures the changes that there are, and never waits
    :param wait_timeout: how long to wait for changes; a run in which nothing changes is skipped, not failed
    :param retry_after: how long the sensor waits after a failure that needs a person, unless something is repaired before
    :param run_for: capture for this long instead of up to the present end of the log
    :param continuous: capture and apply side by side for ``run_for`` (an hour), without the sensor: changes are in the tables within
        seconds. The DAG has to begin a run every ``run_for``, and allow two at once: the tasks of a run continue until those of the next one
        are ready, and hand over to them. Batches are closed after a second, if the definition has no ``batch.max.ms``
    :param adopt: take over the connector of this name, as of :class:`CaptureOperator`
    :param snapshot_job: how the Spark job is submitted that reads the tables of snapshots, as of :class:`CaptureOperator`. By default, with ``location``
        or ``on_spark``, as the job that applies: by ``spark_conn_id`` and ``submit``
    :param apply: further arguments of :class:`ApplyChangesOperator` (``jars``, ``packages``, ``conf``, ``threads``, …), or of the operator of a database
    """
    _refuse_two_targets(location=location, tables=tables, database=database, sink=sink, on_spark=on_spark, apply=apply)
    if submit is not None and location is None:
        raise ConfigError("submit needs location: only tables in a lakehouse are applied by a service.")
    for flag, value in (("wait", wait), ("on_spark", on_spark), ("continuous", continuous)):
        parse_flag(flag, value)
    captures: dict[str, Any] = {"run_for": run_for}
    applies = {**({} if submit is None else {"submit": submit}), **parse_mapping("apply", apply)}
    if continuous:
        definition, captures = _all_the_time(definition, run_for)
        applies = {"run_for": captures["run_for"], **applies}
    common: dict[str, Any] = {"definition": definition, "conn_id": conn_id, "state_conn_id": state_conn_id}
    name = group_id or definition.name.replace(".", "_")  # Airflow has no dots in the names of groups
    with TaskGroup(name, prefix_group_id=prefix_group_id) as group:
        job = parse_mapping("snapshot_job", snapshot_job)
        if not job and (location is not None or on_spark):
            job = {"conn_id": spark_conn_id, **({} if submit is None else {"submit": submit})}
        capture = CaptureOperator(
            task_id="capture", storage_conn_id=storage_conn_id, adopt=adopt, snapshot_job=job, **captures, **common
        )
        applies = {
            "task_id": "apply",
            "definition": definition,
            "state_conn_id": state_conn_id,
            "storage_conn_id": storage_conn_id,
            **applies,
        }
        # a table that is stopped must not keep captured changes of the other tables from being applied
        if not continuous:
            applies = {"trigger_rule": TriggerRule.NONE_SKIPPED, **applies}
        task: BaseOperator | None = None
        if location is not None:
            task = ApplyChangesOperator(
                location=location, target=target, tables=tables, conn_id=spark_conn_id, **applies
            )
        elif database is not None:
            task = _apply_to(database, sink, spark_conn_id if on_spark else None, applies)
        if task is not None and not continuous:
            # of a run, the last tasks decide: one for the capture, too. It takes no process
            capture >> [task, EmptyOperator(task_id="captured")]
        if wait and not continuous:
            applied_by = [] if task is None else [task.task_id]
            waits = build_sensor_arguments(poll_interval, wait_timeout, applied_by, retry_after)
            ChangesAvailableSensor(**waits, **common) >> capture
    return group


def build_sensor_arguments(
    poll_interval: float | timedelta,
    wait_timeout: float | timedelta,
    applied_by: Sequence[str],
    retry_after: float | timedelta,
) -> dict[str, Any]:
    """Arguments of the sensor that a run begins with.

    :param poll_interval: seconds between two polls
    :param wait_timeout: after which a run in which nothing changes is skipped, not failed
    :param applied_by: ids of the tasks that apply
    :param retry_after: how long it waits after a failure that needs a person
    """
    timeout, start = parse_seconds("wait_timeout", wait_timeout), {"applied_by": applied_by, "retry_after": retry_after}
    return {"task_id": "wait", "poll_interval": poll_interval, "timeout": timeout, "soft_fail": True, **start}


def _all_the_time(
    definition: ConnectorDefinition, run_for: float | timedelta | None
) -> tuple[ConnectorDefinition, dict[str, Any]]:
    """Return a connector as it is captured without a pause, and the arguments of the task that captures it.

    The next run's task takes over from it.
    """
    length, patience = length_of(run_for) + OVERLAP, 5 * OVERLAP.total_seconds()
    fresh = replace(definition, properties={"batch.max.ms": FRESH_MS, **definition.properties})
    return fresh, {"run_for": length, "hand_over": True, "lease_wait": patience}


def _refuse_two_targets(
    *, location: str | None, tables: Any, database: str | None, sink: Any, on_spark: bool, apply: Any
) -> None:
    """Reject arguments for two targets.

    :raises ConfigError: there are two targets, or there are options of a target that is not given
    """
    if location is None and (tables or (apply and database is None)):
        raise ConfigError("tables and apply need location: without location, no changes are applied.")
    if (sink or on_spark) and database is None:
        raise ConfigError("sink and on_spark need database: without database, no changes are applied to a database.")
    if location is not None and database is not None:
        raise ConfigError(
            "location and database are two targets: use one DAG to capture, and a separate DAG to apply to each target."
        )


def _apply_to(
    database: str, sink: Mapping[str, Any] | None, spark_conn_id: str | None, more: Mapping[str, Any]
) -> BaseOperator:
    """Build the task that applies to a relational database, by Spark if there is a connection to it."""
    if spark_conn_id is None:
        return ApplyToDatabaseOperator(conn_id=database, sink=sink, **more)
    return ApplyToDatabaseOnSparkOperator(database_conn_id=database, sink=sink, conn_id=spark_conn_id, **more)


def cdc_dag(
    definition: ConnectorDefinition,
    *,
    conn_id: str,
    location: str | None = None,
    tables: Any = (),
    database: str | None = None,
    sink: Mapping[str, Any] | None = None,
    on_spark: bool = False,
    submit: Any = None,
    dag_id: str | None = None,
    schedule: Any = CONTINUOUS,
    continuous: bool = False,
    group: Mapping[str, Any] | None = None,
    **dag: Any,
) -> DAG:
    """Build a DAG that keeps the tables of one connector up to date.

    One run follows the other, and each waits for changes first; with ``continuous=True``, a run captures and applies all the time.

    Airflow finds a DAG only in a module-level variable: ``dag = cdc_dag(…)``.

    :param location: where tables are, as of :func:`cdc_task_group`. Without it, the DAG captures only; one DAG may apply the captures
        of several of these: :func:`~airflow_provider_cdc.dag.apply_dag.apply_dag`
    :param tables: rules for tables that are not kept as the source has them, or are elsewhere: mode, columns, filter and so on by patterns,
        as of :class:`ApplyChangesOperator`
    :param database: Airflow connection to a relational database whose tables are kept equal to the source, instead of ``location``
    :param sink: properties of the tables there, as of :class:`~airflow_provider_cdc.operators.apply_to_database.ApplyToDatabaseOperator`
    :param on_spark: have Spark bring changes into the database, as of :func:`cdc_task_group`
    :param submit: the service that runs the Spark job, as of :func:`cdc_task_group`
    :param dag_id: by default ``cdc_<connector>``
    :param schedule: as of ``DAG``. With a fixed schedule, ``group={"wait": False}`` keeps runs from waiting
    :param continuous: capture and apply without a pause; changes are in the tables within seconds. A run takes an hour, or
        ``group={"run_for": …}``, and hands over to the next one, also to one that a user triggers. It occupies two worker slots all the time, and four while it hands over
    :param group: further arguments of :func:`cdc_task_group`
    :param dag: further arguments of ``DAG`` (``default_args``, ``tags``, ``start_date``, …)
    """
    group = parse_mapping("group", group)
    group.setdefault("prefix_group_id", "group_id" in group)
    if continuous:
        group["continuous"] = True
    done = f"the tables of connector **{definition.name}** ({definition.source}) up to date in `{location}`"
    if database is not None:
        done = f"the tables of connector **{definition.name}** ({definition.source}) up to date in the database of `{database}`"
    elif location is None:
        done = f"the change log of connector **{definition.name}** ({definition.source}) up to date"
    schedule, arguments = arguments_of(
        schedule, run_for=group.get("run_for"), continuous=continuous, refused=schedule != CONTINUOUS, dag=dag
    )
    arguments = {"tags": ["cdc", definition.source], "doc_md": f"Keeps {done}.", **arguments}
    with DAG(dag_id or f"cdc_{definition.name}", schedule=schedule, **arguments) as built_dag:
        cdc_task_group(
            definition,
            conn_id=conn_id,
            location=location,
            tables=tables,
            database=database,
            sink=sink,
            on_spark=on_spark,
            submit=submit,
            **group,
        )
    return built_dag


def arguments_of(
    schedule: Any, *, run_for: float | timedelta | None, continuous: bool, refused: bool, dag: Mapping[str, Any]
) -> tuple[Any, dict[str, Any]]:
    """Build the schedule and further arguments of a DAG that captures or applies.

    :param refused: whether the user has given a schedule that ``continuous`` has no use for
    :param dag: arguments of the user
    """
    if continuous and refused:
        raise ConfigError("continuous=True sets its own schedule: one run every run_for (default: one hour).")
    if continuous and dag.get("max_active_runs", 2) < 2:
        raise ConfigError("continuous=True needs max_active_runs of at least 2: a run hands over to the next one.")
    if continuous and dag.get("catchup"):
        raise ConfigError("continuous=True captures from now on: catchup=True has no past to catch up with.")
    return length_of(run_for) if continuous else schedule, {
        "start_date": datetime(2024, 1, 1, tzinfo=UTC),  # Airflow schedules nothing without one
        "catchup": False,
        **build_run_type_argument(),
        "max_active_runs": 2 if continuous else 1,
        **dag,
        "default_args": {**_build_retries(run_for, continuous=continuous), **(dag.get("default_args") or {})},
    }


def _build_retries(run_for: float | timedelta | None, *, continuous: bool) -> dict[str, Any]:
    """Build the arguments about retries: a continuous run has no sensor that begins another one, so its tasks are retried for about as long as it takes."""
    if not continuous:
        return {"retries": 3, "retry_delay": timedelta(seconds=30)}
    return {"retries": max(3, int(length_of(run_for) / RETRY_DELAY)), "retry_delay": RETRY_DELAY}


def length_of(run_for: float | timedelta | None) -> timedelta:
    """Return how long a run of a continuous DAG takes."""
    return LENGTH if run_for is None else timedelta(seconds=parse_seconds("run_for", run_for))
