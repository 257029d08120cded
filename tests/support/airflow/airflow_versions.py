"""Names of Airflow that its versions have in different modules: the tests run with Airflow 3.1, 3.2 and 3.3."""

from __future__ import annotations

import atexit
from collections.abc import Sequence
from typing import Any

import pytest

try:
    from airflow.sdk.exceptions import (
        AirflowException,
        AirflowFailException,
        AirflowSensorTimeout,
        AirflowSkipException,
        AirflowTaskTimeout,
        ParamValidationError,
        TaskDeferralError,
        TaskDeferred,
    )
except ImportError:  # Airflow 3.1
    from airflow.exceptions import (
        AirflowException,
        AirflowFailException,
        AirflowSensorTimeout,
        AirflowSkipException,
        AirflowTaskTimeout,
        ParamValidationError,
        TaskDeferralError,
        TaskDeferred,
    )

__all__ = [
    "AirflowException",
    "AirflowFailException",
    "AirflowSensorTimeout",
    "AirflowSkipException",
    "AirflowTaskTimeout",
    "ParamValidationError",
    "TaskDeferralError",
    "TaskDeferred",
    "begin_metrics",
    "cdc_command",
    "dag_bag_class",
    "end_metrics",
    "has_teams",
    "page_link",
    "serialize_dag",
    "set_auth_manager",
    "simple_user",
    "takes_bundle_name",
]


def dag_bag_class() -> Any:
    """The class that reads DAGs from a folder."""
    try:
        from airflow.dag_processing.dagbag import DagBag
    except ModuleNotFoundError:  # Airflow 3.1
        from airflow.models.dagbag import DagBag
    return DagBag


def serialize_dag(dag: Any) -> dict[str, Any]:
    """A DAG as Airflow stores it."""
    from airflow.serialization import serialized_objects

    # Airflow 3.1 has the writer and the reader in one class
    writer = getattr(serialized_objects, "DagSerialization", serialized_objects.SerializedDAG)
    return dict(writer.to_dict(dag))


def begin_metrics() -> None:
    """Read the settings of metrics, as Airflow does at the beginning of each task."""
    try:
        from airflow.sdk.observability import stats
        from airflow.sdk.observability.metrics import stats_utils
    except ModuleNotFoundError:  # Airflow 3.1
        from airflow.stats import Stats

        kind: Any = type(Stats)
        if hasattr(kind, "factory"):
            del kind.factory
        Stats.instance = None
        kind.__init__(Stats)
    else:
        # Airflow 3.2 has its functions in a class, which the factory takes
        classes = () if hasattr(stats, "initialize") else (stats.Stats,)
        _initialize_stats(stats, stats_utils.get_stats_factory(*classes))


def end_metrics() -> None:
    """Send no more metrics."""
    try:
        from airflow.sdk._shared.observability.metrics.base_stats_logger import NoStatsLogger
        from airflow.sdk.observability import stats
    except ModuleNotFoundError:  # Airflow 3.1
        from airflow.metrics.base_stats_logger import NoStatsLogger
        from airflow.stats import Stats

        type(Stats).factory, Stats.instance = NoStatsLogger, None
    else:
        _initialize_stats(stats, NoStatsLogger)


def forget_metrics_at_exit() -> None:
    """Keep the end of this process from sending metrics of OpenTelemetry once more."""
    try:
        from airflow.sdk._shared.observability.metrics import otel_logger
    except ModuleNotFoundError:  # Airflow 3.1
        from airflow.metrics import otel_logger
    atexit.unregister(otel_logger.flush_otel_metrics)


def _initialize_stats(module: Any, factory: Any) -> None:
    if hasattr(module, "initialize"):
        module.initialize(factory=factory, export_legacy_names=True)
    else:  # Airflow 3.2
        module.Stats.initialize(factory=factory)


def has_teams() -> bool:
    """Check whether connections and DAGs may belong to teams: since Airflow 3.2."""
    from airflow.models.connection import Connection

    return hasattr(Connection, "team_name")


def set_auth_manager(monkeypatch: pytest.MonkeyPatch, manager: Any) -> None:
    """Have this process ask another auth manager for rights."""
    from airflow.api_fastapi import app

    state = getattr(app, "_AuthManagerState", None)
    if state is None:  # Airflow 3.1
        monkeypatch.setattr(app, "auth_manager", manager)
    else:
        monkeypatch.setattr(state, "instance", manager)


def simple_user(name: str, role: str | None, teams: Sequence[str] = ()) -> Any:
    """A user of Airflow's simple auth manager."""
    from airflow.api_fastapi.auth.managers.simple.user import SimpleAuthManagerUser

    more: dict[str, Any] = {"teams": list(teams)} if has_teams() else {}
    return SimpleAuthManagerUser(username=name, role=role, **more)


def cdc_command(words: str) -> str:
    """A command as errors name it: since Airflow 3.2 it is one of Airflow's."""
    return f"airflow cdc {words}" if has_teams() else f"airflow-cdc {words}"


def takes_bundle_name() -> bool:
    """Check whether a bag of DAGs knows the name of its bundle: since Airflow 3.2."""
    import inspect

    return "bundle_name" in inspect.signature(dag_bag_class()).parameters


def page_link(path: str) -> str:
    """The link of a task to one of our pages; empty in Airflow 3.1, which cannot show them."""
    return path if has_teams() else ""
