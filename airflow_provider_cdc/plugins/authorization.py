"""Rights of users on a connector: Airflow's auth manager decides by the DAG that captures it and the connection to its source.

The table of docs/run/security.md says the same in words.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

import sqlalchemy as sa
from airflow.api_fastapi.app import get_auth_manager
from airflow.api_fastapi.auth.managers.models.base_user import BaseUser
from airflow.api_fastapi.auth.managers.models.resource_details import ConnectionDetails, DagAccessEntity, DagDetails
from airflow.models.connection import Connection
from airflow.models.dag import DagModel, DagTag
from airflow.utils.session import create_session

from airflow_provider_cdc.core.spi.state_records import ConnectorRecord
from airflow_provider_cdc.hooks.airflow_compat import (
    build_team_argument,
    filter_authorized_connections,
    load_connection_teams,
    load_dag_teams,
    team_column,
)

ROWS = "CDC rows"
"""Custom view of the auth manager, checked before a row is shown."""


class ConnectorRight(StrEnum):
    """A right of a user on a connector. Each right includes the one before, except ``rows``, which requires ``operate``."""

    READ = "read"
    """See its state: who may read the DAG."""
    OPERATE = "operate"
    """Pause and resume it, send it signals: who may trigger runs of the DAG."""
    ADMINISTER = "administer"
    """Actions that may lose data: they also need the right to edit the connection to the source."""
    ROWS = "rows"
    """See the data of a row: who may operate it, and see the view :data:`ROWS`. Airflow's configuration has to allow it for the connector besides."""


@dataclass(frozen=True, slots=True)
class KnownDag:
    """Airflow's record of a DAG.

    :param next_at: when its next run is due; ``None``: nothing but an event or a person starts it
    :param stale: no file has it any more
    :param tags: in their order
    """

    id: str
    team: str | None = None
    next_at: datetime | None = None
    paused: bool = False
    stale: bool = False
    tags: tuple[str, ...] = ()


def known_dags(ids: Iterable[str]) -> dict[str, KnownDag]:
    """DAGs by their ids, from Airflow's database; by three queries, however many there are."""
    sorted_ids = sorted(set(ids))
    if not sorted_ids:
        return {}
    columns = sa.select(DagModel.dag_id, DagModel.next_dagrun_create_after, DagModel.is_paused, DagModel.is_stale)
    with create_session() as session:
        teams = load_dag_teams(sorted_ids, session)
        rows = session.execute(columns.where(DagModel.dag_id.in_(sorted_ids))).all()
        tagged = session.execute(sa.select(DagTag.dag_id, DagTag.name).where(DagTag.dag_id.in_(sorted_ids))).all()
    tags: dict[str, list[str]] = {}
    for id_, tag in tagged:
        tags.setdefault(id_, []).append(tag)
    return {
        id_: KnownDag(id_, teams.get(id_), next_at, bool(paused), bool(stale), tuple(sorted(tags.get(id_, ()))))
        for id_, next_at, paused, stale in rows
    }


def dag_of(record: ConnectorRecord) -> str | None:
    """Return the DAG whose task has captured a connector last."""
    return None if record.registration is None else record.registration.connections.get("dag")


class AuthorizationContext:
    """Airflow's records of connectors: the DAGs that capture them, and the teams of the connections to their sources.

    :param dags: by id
    """

    def __init__(self, dags: Mapping[str, KnownDag] | None = None, sources: Iterable[str] = ()) -> None:
        self.dags = dags or {}
        self._sources, self._teams = sources, dict[str, str | None]()

    def find_dag(self, record: ConnectorRecord) -> KnownDag | None:
        """Return the DAG that captures a connector."""
        return self.dags.get(dag_of(record) or "")

    def find_team(self, record: ConnectorRecord) -> str | None:
        """Return the team of the connection to a source.

        A connection that is in none of Airflow's tables, but in a secrets backend, has the team of the DAG: it is the DAG that finds it there.

        Asked by one query for all connectors, when it is wanted.
        """
        if self._sources:
            self._teams, self._sources = teams_of(self._sources), ()
        source, dag = source_of(record), self.find_dag(record)
        elsewhere = None if dag is None else dag.team
        return elsewhere if source is None else self._teams.get(source, elsewhere)


def source_of(record: ConnectorRecord) -> str | None:
    """Return the connection to the source of a connector."""
    return None if record.registration is None else record.registration.connections.get("source")


def known_of(records: Iterable[ConnectorRecord]) -> AuthorizationContext:
    """Load the DAGs and teams of these connectors from Airflow."""
    records = list(records)
    dags = known_dags(dag for record in records if (dag := dag_of(record)) is not None)
    return AuthorizationContext(dags, [source for record in records if (source := source_of(record)) is not None])


def has_right(user: BaseUser, record: ConnectorRecord, right: ConnectorRight, context: AuthorizationContext) -> bool:
    """Check whether a user has a right on a connector.

    Where no DAG has captured it, or Airflow has the DAG no more, the connection to its source decides instead of one.

    :param context: of :func:`known_of`
    """
    match right:
        case ConnectorRight.READ:
            return _dag(user, record, context, writes=False)
        case ConnectorRight.OPERATE:
            return _dag(user, record, context, writes=False) and _dag(user, record, context, writes=True)
        case ConnectorRight.ADMINISTER:
            return has_right(user, record, ConnectorRight.OPERATE, context) and _connection(
                user, record, context, writes=True
            )
        case ConnectorRight.ROWS:
            view_allowed = get_auth_manager().is_authorized_custom_view(method="GET", resource_name=ROWS, user=user)
            return bool(view_allowed) and has_right(user, record, ConnectorRight.OPERATE, context)


def filter_readable(
    user: BaseUser, records: Iterable[ConnectorRecord], context: AuthorizationContext
) -> list[ConnectorRecord]:
    """Return the connectors on which a user has :attr:`ConnectorRight.READ`.

    The auth manager is called once a team for all DAGs, and for all connections.
    """
    records = list(records)
    dags, connections = defaultdict[str | None, set[str]](set), defaultdict[str | None, set[str]](set)
    for record in records:
        if (known_dag := context.find_dag(record)) is not None:
            dags[known_dag.team].add(known_dag.id)
        elif (source := source_of(record)) is not None:
            connections[context.find_team(record)].add(source)
    manager = get_auth_manager()
    read = {
        id_ for team, ids in dags.items()
        for id_ in manager.filter_authorized_dag_ids(dag_ids=ids, user=user, method="GET", **build_team_argument(team))
    }  # fmt: skip
    linked = {
        id_ for team, ids in connections.items() for id_ in filter_authorized_connections(manager, ids, user, team)
    }

    def is_readable(record: ConnectorRecord) -> bool:
        known_dag, source = context.find_dag(record), source_of(record)
        if known_dag is not None:
            return known_dag.id in read
        return has_right(user, record, ConnectorRight.READ, context) if source is None else source in linked

    return [record for record in records if is_readable(record)]


def rights_on(user: BaseUser, record: ConnectorRecord, context: AuthorizationContext) -> list[ConnectorRight]:
    """Return all rights that a user has on a connector."""
    return [right for right in ConnectorRight if has_right(user, record, right, context)]


@dataclass(frozen=True, slots=True)
class KnownConnection:
    """A connection of Airflow's database to a source.

    :param kind: of source
    """

    id: str
    kind: str
    team: str | None = None


def known_connections(prefix: str, kinds: Iterable[str]) -> list[KnownConnection]:
    """Return connections of Airflow's database by their ids.

    Their type is the prefix and one of these kinds of sources.
    """
    types = {f"{prefix}{kind}": kind for kind in kinds}
    columns = sa.select(Connection.conn_id, Connection.conn_type, team_column(Connection))
    with create_session() as session:
        rows = session.execute(columns.where(Connection.conn_type.in_(types)).order_by(Connection.conn_id)).all()
    return [KnownConnection(id_, types[type_], team) for id_, type_, team in rows]


def teams_of(conn_ids: Iterable[str]) -> dict[str, str | None]:
    """Return connections of Airflow's database → the team of each; ``None``: of all teams."""
    return load_connection_teams(set(conn_ids))


def team_of(conn_id: str) -> str | None:
    """Return the team that a connection of Airflow's database belongs to."""
    return teams_of([conn_id]).get(conn_id)


def may_connect(user: BaseUser, conn_id: str, team: str | None, *, edit: bool) -> bool:
    """Check whether a user may see a connection, or edit it."""
    details = ConnectionDetails(conn_id=conn_id, team_name=team)
    manager = get_auth_manager()
    return bool(manager.is_authorized_connection(method="PUT" if edit else "GET", details=details, user=user))


def _dag(user: BaseUser, record: ConnectorRecord, context: AuthorizationContext, *, writes: bool) -> bool:
    # the rows of a connector outlive its DAG: a deleted one has no team, and would be for all teams
    if (known_dag := context.find_dag(record)) is None:
        return _connection(user, record, context, writes=writes)
    return bool(
        get_auth_manager().is_authorized_dag(
            method="POST" if writes else "GET",
            access_entity=DagAccessEntity.RUN if writes else None,
            details=DagDetails(id=known_dag.id, team_name=known_dag.team),
            user=user,
        )
    )


def _connection(user: BaseUser, record: ConnectorRecord, context: AuthorizationContext, *, writes: bool) -> bool:
    details = ConnectionDetails(conn_id=source_of(record), team_name=context.find_team(record))
    manager = get_auth_manager()
    return bool(manager.is_authorized_connection(method="PUT" if writes else "GET", details=details, user=user))
