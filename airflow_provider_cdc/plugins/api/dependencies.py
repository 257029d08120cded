"""Dependencies of the routes: the state tables, and a connector on which the user has the right that the route needs.

FastAPI evaluates annotations: everything they name is imported at module level.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Any

from airflow.api_fastapi.auth.managers.models.base_user import BaseUser
from airflow.api_fastapi.core_api.security import GetUserDep
from fastapi import Depends, HTTPException, Path
from fastapi.routing import APIRoute

from airflow_provider_cdc.core.spi.state_records import ConnectorRecord
from airflow_provider_cdc.hooks.airflow_compat import conf
from airflow_provider_cdc.hooks.connection_lookup import set_team
from airflow_provider_cdc.hooks.state import DEFAULT_CONN_ID, CdcStateHook, translate_database_errors
from airflow_provider_cdc.plugins.authorization import AuthorizationContext, ConnectorRight, has_right, known_of
from airflow_provider_cdc.state.state_store import StateStore

MOST = 1000
"""Entries of a list that one answer has at most."""


def _opened() -> Iterator[StateStore]:
    conn_id = conf.get("cdc", "state_conn_id", fallback=DEFAULT_CONN_ID)
    with translate_database_errors(), CdcStateHook(conn_id).open_store(patience_s=2) as store:
        yield store


Store = Annotated[StateStore, Depends(_opened)]


@dataclass(frozen=True)
class AuthorizedConnector:
    """A connector that the user may see.

    :param team: whose connections it uses: that of its DAG
    """

    record: ConnectorRecord
    user: BaseUser
    known: AuthorizationContext
    team: str | None

    @property
    def connector_name(self) -> str:
        """Name of the connector."""
        return self.record.connector


def require_right(right: ConnectorRight) -> Any:
    """Build the dependency of a route that needs a right on the connector of its path.

    A user who may not see the connector gets the same answer as if there was none.
    """

    def reached(
        store: Store, user: GetUserDep, connector: Annotated[str, Path(description="Name of the connector")]
    ) -> AuthorizedConnector:
        record = store.find_connector(connector)
        context = known_of([] if record is None else [record])
        if record is None or not has_right(user, record, ConnectorRight.READ, context):
            raise HTTPException(404, f"No connector {connector!r} has run yet.")
        if not has_right(user, record, right, context):
            raise HTTPException(403, f"You may see {connector}, but have no right to {_WORDS[right]}.")
        dag = context.find_dag(record)
        return AuthorizedConnector(record, user, context, context.find_team(record) if dag is None else dag.team)

    async def located(connector: Annotated[AuthorizedConnector, Depends(reached)]) -> AuthorizedConnector:
        set_team(connector.team)  # an endpoint runs in the context that an asynchronous dependency leaves
        return connector

    located.right = right  # type: ignore[attr-defined]  # so that the OpenAPI document can say which one a route needs
    return Depends(located)


_WORDS = {
    ConnectorRight.READ: "see it",
    ConnectorRight.OPERATE: "operate it: this requires the right to trigger runs of its DAG",
    ConnectorRight.ADMINISTER: "administer it: this requires the right to edit the connection to its source",
    ConnectorRight.ROWS: "see its rows: this requires the right to operate it, and to see the view “CDC rows”",
}


def right_of(route: APIRoute) -> ConnectorRight:
    """Return the right that a route needs; routes about all connectors show those that the user may read."""
    rights = (getattr(dependency.call, "right", None) for dependency in route.dependant.dependencies)
    return next((right for right in rights if right is not None), ConnectorRight.READ)


Readable = Annotated[AuthorizedConnector, require_right(ConnectorRight.READ)]
Operable = Annotated[AuthorizedConnector, require_right(ConnectorRight.OPERATE)]
Administrable = Annotated[AuthorizedConnector, require_right(ConnectorRight.ADMINISTER)]
WithRows = Annotated[AuthorizedConnector, require_right(ConnectorRight.ROWS)]
