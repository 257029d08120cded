"""A DAG that fails, and notifies people, while a connector needs attention."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, fields
from datetime import UTC, datetime, timedelta
from typing import Any

from airflow.sdk import DAG, task

from airflow_provider_cdc.core.errors import CdcError, ConfigError
from airflow_provider_cdc.hooks.state import DEFAULT_CONN_ID, CdcStateHook
from airflow_provider_cdc.services.connectors.parameter_checks import parse_mapping, parse_seconds, parse_text
from airflow_provider_cdc.services.dashboards.connector_alerts import AlertLimits
from airflow_provider_cdc.services.tasks.connector_fields import to_airflow_exception


def alerts_dag(
    *,
    limits: AlertLimits | Mapping[str, float | timedelta] | None = None,
    notify: Sequence[Callable[[Any], Any]] = (),
    dag_id: str = "cdc_alerts",
    schedule: Any = timedelta(minutes=5),
    state_conn_id: str = DEFAULT_CONN_ID,
    **dag: Any,
) -> DAG:
    """Build a DAG that checks all connectors of a state database, by default every five minutes.

    Its task ``look`` fails if there is an alert. The error has a sentence for each, with the name of the alert's page in brackets. It queries no source.

        >>> dag = alerts_dag(limits={"stale_s": timedelta(minutes=15)}, notify=[SmtpNotifier(to="ann@example.com", subject="{{ exception }}")])

    :param limits: limits of :class:`~airflow_provider_cdc.services.dashboards.connector_alerts.AlertLimits` that differ from the defaults: name →
        seconds or a timedelta
    :param notify: notifiers, or functions that take the context: they are called each time the task fails. ``exception`` in the context is the error
    :param schedule: as of ``DAG``
    :param state_conn_id: Airflow connection to the state tables
    :param dag: further arguments of ``DAG``
    :raises ConfigError: a limit is not known or is no time, or ``notify`` is no list of notifiers
    """
    callbacks, values = _notifiers(notify), asdict(_limits(limits))
    arguments = {
        "start_date": datetime(2024, 1, 1, tzinfo=UTC),  # Airflow schedules nothing without one
        "catchup": False,
        "max_active_runs": 1,
        "tags": ["cdc"],
        "dag_display_name": "CDC: alerts",
        "doc_md": _DOC,
        **dag,
    }
    with DAG(dag_id, schedule=schedule, **arguments) as built_dag:
        _look.override(task_id="look", retries=0, on_failure_callback=callbacks)(
            limits=values, state_conn_id=parse_text("state_conn_id", state_conn_id)
        )
    return built_dag


@task
def _look(limits: dict[str, float], state_conn_id: str) -> None:
    """Fail if a connector needs attention."""
    from airflow_provider_cdc.hooks.airflow_compat import AirflowException
    from airflow_provider_cdc.services.dashboards.connector_alerts import format_alert, load_alerts

    try:
        with CdcStateHook(state_conn_id).open_store() as store:
            alerts = load_alerts(store, AlertLimits(**limits))
    except CdcError as e:
        raise to_airflow_exception(e) from e
    if alerts:
        raise AirflowException("\n".join(map(format_alert, alerts)))


def _limits(given: Any) -> AlertLimits:
    """Return the limits.

    :raises ConfigError: one is not known, or is no time
    """
    if isinstance(given, AlertLimits):
        given = asdict(given)
    known = [field.name for field in fields(AlertLimits)]
    values = parse_mapping("limits", given)
    if unknown := sorted(str(name) for name in values if name not in known):
        raise ConfigError(
            f"limits has no {', '.join(unknown)}.",
            safe="Nothing was read or changed.",
            remedy=f"use the limits {', '.join(known)}",
        )
    return AlertLimits(**{name: parse_seconds(f"limits: {name}", value) for name, value in values.items()})


def _notifiers(notify: Any) -> list[Callable[[Any], Any]]:
    if isinstance(notify, str) or not isinstance(notify, Sequence) or not all(callable(one) for one in notify):
        raise ConfigError(f"notify must be a list of notifiers or functions, but is {notify!r}.")
    return list(notify)


_DOC = """
Checks all connectors whose state is in one state database. **look** fails while a connector needs attention; its log has a sentence for each alert.
The word in brackets is the name of the alert's page in the documentation.
"""
