"""Holds everything that differs between the versions of Airflow that the provider supports: 3.1, 3.2 and 3.3.

No other module asks for the version, or imports from Airflow what one of these versions lacks:

- Airflow 3.1 has configuration, exceptions and metrics outside of ``airflow.sdk``, no teams, and finds the state tables by a setting.
- Airflow 3.1 and 3.2 have no shared streams and no state store of assets: each trigger polls for itself, and keeps its cursor in a variable.
"""

from __future__ import annotations

import hashlib
import importlib
import os
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import urlsplit

from airflow import __version__ as _VERSION
from asgiref.sync import SyncToAsync, sync_to_async

from airflow_provider_cdc.core.remedy_commands import set_command_prefix

OLDEST = (3, 1)
"""The first version that the provider supports."""


def check_airflow_version(version: str = _VERSION) -> None:
    """Reject an Airflow that is too old, with the reason.

    :raises ImportError: Airflow is older than 3.1

    >>> check_airflow_version("3.0.6")
    Traceback (most recent call last):
    ...
    ImportError: airflow-provider-cdc needs Airflow 3.1 or newer, and this is Airflow 3.0.6, which runs on SQLAlchemy 1.4; the state tables need SQLAlchemy 2. Upgrade Airflow: pip install 'apache-airflow>=3.1'
    """
    if _numbers(version) < OLDEST:
        raise ImportError(
            f"airflow-provider-cdc needs Airflow 3.1 or newer, and this is Airflow {version}, which runs on SQLAlchemy 1.4; "
            "the state tables need SQLAlchemy 2. Upgrade Airflow: pip install 'apache-airflow>=3.1'"
        )


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".")[:2])


check_airflow_version()
_NUMBERS = _numbers(_VERSION)

if TYPE_CHECKING:
    import asyncio

    from airflow.api_fastapi.auth.managers.base_auth_manager import BaseAuthManager
    from airflow.api_fastapi.auth.managers.models.base_user import BaseUser
    from airflow.models.connection import Connection
    from airflow.sdk.configuration import conf
    from airflow.sdk.exceptions import (
        AirflowException,
        AirflowFailException,
        AirflowNotFoundException,
        AirflowSensorTimeout,
        AirflowSkipException,
        AirflowTaskTimeout,
        TaskDeferred,
    )
    from airflow.triggers.base import BaseEventTrigger
    from airflow.triggers.shared_stream import AdvanceItem, SharedStreamProducer
    from sqlalchemy import ColumnElement
    from sqlalchemy.orm import InstrumentedAttribute, Session
else:
    try:
        from airflow.sdk.configuration import conf
        from airflow.sdk.exceptions import (
            AirflowException,
            AirflowFailException,
            AirflowNotFoundException,
            AirflowSensorTimeout,
            AirflowSkipException,
            AirflowTaskTimeout,
            TaskDeferred,
        )
    except ImportError:  # Airflow 3.1
        from airflow.configuration import conf
        from airflow.exceptions import (
            AirflowException,
            AirflowFailException,
            AirflowNotFoundException,
            AirflowSensorTimeout,
            AirflowSkipException,
            AirflowTaskTimeout,
            TaskDeferred,
        )

__all__ = [
    "AdvanceItem",
    "AirflowException",
    "AirflowFailException",
    "AirflowNotFoundException",
    "AirflowSensorTimeout",
    "AirflowSkipException",
    "AirflowTaskTimeout",
    "SharedStreamProducer",
    "TaskDeferred",
    "check_airflow_version",
    "conf",
]


class _NoSharedStream:
    """Base of producers where Airflow has no shared streams, and nothing calls them but the trigger itself."""


def __getattr__(name: str) -> Any:
    """Import the classes of shared streams when a trigger needs them, and not when DAGs are parsed."""
    if name not in ("AdvanceItem", "SharedStreamProducer"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        return getattr(importlib.import_module("airflow.triggers.shared_stream"), name)
    except ModuleNotFoundError:  # Airflow 3.1, 3.2
        return _NoSharedStream


# metrics


class Stats(Protocol):
    """The functions of Airflow's metrics."""

    def gauge(self, stat: str, value: float, *, tags: dict[str, str]) -> None: ...

    def incr(self, stat: str, count: int, *, tags: dict[str, str]) -> None: ...

    def timing(self, stat: str, dt: Any, *, tags: dict[str, str]) -> None: ...


def load_stats() -> Stats:
    """Return Airflow's metrics, for the process of a task."""
    try:
        module = importlib.import_module("airflow.sdk.observability.stats")
    except ModuleNotFoundError:  # Airflow 3.1
        module = importlib.import_module("airflow.stats")
    stats: Stats = module if hasattr(module, "gauge") else module.Stats
    return stats


# runs of DAGs


def build_run_type_argument() -> dict[str, tuple[str, ...]]:
    """Return the argument of ``DAG`` with which Airflow refuses backfills; empty on Airflow 3.1, where the task refuses.

    A run continues from the offset, and cannot capture the past.
    """
    if _NUMBERS < (3, 2):
        return {}
    since_33 = ("operator_triggered",) if _NUMBERS >= (3, 3) else ()
    return {"allowed_run_types": ("scheduled", "manual", "asset_triggered", "asset_materialization", *since_33)}


# cursors of triggers


class CursorStore(Protocol):
    """Values of one asset that outlive a triggerer."""

    async def aget(self, key: str) -> Any: ...

    async def aset(self, key: str, value: Any) -> None: ...


class VariableStore:
    """Keeps values of one asset in Airflow variables, where assets have no state store.

    :param owner: the asset, or another name that is the only one of its kind
    """

    def __init__(self, owner: str) -> None:
        # the column of names takes 250 characters, and names of assets are longer
        self._suffix = f"{owner[:150]}.{hashlib.sha256(owner.encode()).hexdigest()[:12]}"

    async def aget(self, key: str) -> Any:
        text = await sync_to_async(_get_variable)(f"{key}.{self._suffix}")
        return None if text is None else int(text)

    async def aset(self, key: str, value: Any) -> None:
        await sync_to_async(_set_variable)(f"{key}.{self._suffix}", str(value))


def _get_variable(name: str) -> str | None:
    """In a thread, with the import: the event loop of a triggerer waits for nothing."""
    from airflow.sdk import Variable

    from airflow_provider_cdc.core.errors import StateUnavailable
    from airflow_provider_cdc.hooks.unanswered_lookups import explain_unanswered_variable

    text: str | None = Variable.get(name, default=None)
    if text is None and (reason := explain_unanswered_variable(name)) is not None:
        raise StateUnavailable(
            f"Airflow could not look up variable {name}: {reason}.",
            safe="The watcher continues with the batch in this variable.",
            remedy="check the API server and the metadata database of Airflow",
        )
    return text


def _set_variable(name: str, text: str) -> None:
    from airflow.sdk import Variable

    description = "A cursor of change data capture; without it, the watcher begins at the newest batch."
    Variable.set(name, text, description)


def find_cursor_store(trigger: BaseEventTrigger, asset: str | None, owner: str) -> CursorStore | None:
    """Return the store that keeps the cursor of a trigger; ``None`` where the trigger is no watcher of an asset.

    :param asset: name of the asset, if the trigger watches several
    :param owner: name of the cursor where assets have no state store
    """
    from airflow.sdk import Asset

    try:
        store: Any = trigger.asset_state_store
    except AttributeError:  # Airflow 3.1, 3.2
        return VariableStore(owner)
    chosen: CursorStore | None = store if store is None or asset is None else store[Asset(asset)]
    return chosen


def lend_event_loop(loop: asyncio.AbstractEventLoop) -> None:
    """Let a thread of a triggerer look up connections: Airflow 3.1 asks its supervisor on the event loop that the thread names.

    :param loop: of the triggerer
    """
    if _NUMBERS >= (3, 2):
        return
    # as sync_to_async does in its own threads; without it, the call makes an event loop that does not own the connection
    SyncToAsync.threadlocal.main_event_loop = loop
    SyncToAsync.threadlocal.main_event_loop_pid = os.getpid()


# state tables

DB_MANAGER = "airflow_provider_cdc.state.db_manager.CdcDBManager"


def find_migration_obstacle() -> str | None:
    """Return the setting that ``airflow db migrate`` needs to create the state tables; ``None`` if it needs none."""
    from airflow.providers_manager import ProvidersManager

    if hasattr(ProvidersManager, "db_managers") or DB_MANAGER in conf.get(
        "database", "external_db_managers", fallback=""
    ):
        return None
    return f"AIRFLOW__DATABASE__EXTERNAL_DB_MANAGERS={DB_MANAGER}"  # Airflow 3.1


# pages


def find_bundle_url(path: str) -> str | None:
    """Return the address that Airflow's UI loads the pages from; ``None`` where it cannot show them.

    :param path: below the base path of Airflow, without a slash at its beginning
    """
    if _NUMBERS >= (3, 3):
        return path
    if _NUMBERS >= (3, 2):  # the browser resolves it against nothing
        base = urlsplit(conf.get("api", "base_url", fallback="/") or "/").path
        return f"{base.rstrip('/')}/{path}"
    return None  # Airflow 3.1 gives plugins no Chakra, which the pages are made of


# commands


def has_provider_commands() -> bool:
    """Check whether ``airflow cdc`` works; otherwise the script ``airflow-cdc`` has the commands."""
    return _NUMBERS >= (3, 2)


if not has_provider_commands():
    set_command_prefix("airflow-cdc")


# the metadata DB, and teams, which Airflow has since 3.2


def load_dag_teams(ids: Sequence[str], session: Session) -> dict[str, str | None]:
    """Return the team of each DAG, as far as it has one."""
    from airflow.models.dag import DagModel

    load = getattr(DagModel, "get_dag_id_to_team_name_mapping", None)
    return {} if load is None else dict(load(ids, session=session))


def load_connection_teams(conn_ids: Collection[str]) -> dict[str, str | None]:
    """Return the connections of Airflow's database among these, with the team of each."""
    from airflow.models.connection import Connection
    from airflow.utils.session import create_session
    from sqlalchemy import select

    with create_session() as session:
        rows = session.execute(
            select(Connection.conn_id, team_column(Connection)).where(Connection.conn_id.in_(conn_ids))
        )
        return {row[0]: row[1] for row in rows}


def load_team_connection(conn_id: str, team: str) -> Any:
    """Return a connection of a team, or of no team, in a process that is no task.

    :raises AirflowNotFoundException: there is none, or it belongs to another team
    """
    from airflow.models.connection import Connection

    if not conf.getboolean("core", "multi_team", fallback=False):
        return Connection.get_connection_from_secrets(conn_id)
    return Connection.get_connection_from_secrets(conn_id, team_name=team)


def team_column(model: type[Connection]) -> InstrumentedAttribute[str | None] | Any:
    """Return the column of the team of a connection; ``NULL`` where Airflow has no teams."""
    from sqlalchemy import null

    return getattr(model, "team_name", null())


def build_team_argument(team: str | None) -> dict[str, Any]:
    """Return the argument of an auth manager for the connections or DAGs of one team."""
    from airflow.api_fastapi.auth.managers.base_auth_manager import BaseAuthManager

    names = BaseAuthManager.filter_authorized_dag_ids.__code__.co_varnames
    return {"team_name": team} if "team_name" in names else {}


def filter_authorized_connections(
    manager: BaseAuthManager[Any], conn_ids: set[str], user: BaseUser, team: str | None
) -> set[str]:
    """Return the connections of one team that a user may see: by one call, where the auth manager has it."""
    from airflow.api_fastapi.auth.managers.models.resource_details import ConnectionDetails

    if hasattr(manager, "filter_authorized_connections"):
        return set(manager.filter_authorized_connections(conn_ids=conn_ids, user=user, method="GET", team_name=team))
    return {  # Airflow 3.1
        conn_id
        for conn_id in conn_ids
        if manager.is_authorized_connection(method="GET", details=ConnectionDetails(conn_id=conn_id), user=user)
    }


def build_manual_condition() -> ColumnElement[bool]:
    """Return the condition that a DAG has no schedule: only people start it."""
    from airflow.models.dag import DagModel

    timetable = getattr(DagModel, "timetable_type", None)
    condition: ColumnElement[bool] = (
        DagModel.timetable_summary == "None" if timetable is None else timetable.like("%NullTimetable")
    )
    return condition
