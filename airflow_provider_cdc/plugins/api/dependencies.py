"""What the routes are given: the state tables, and a connector on which the user has the right that the route needs.

FastAPI evaluates annotations: everything they name is imported at module level.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Annotated, Any

from airflow.api_fastapi.auth.managers.models.base_user import BaseUser
from airflow.api_fastapi.core_api.security import GetUserDep
from fastapi import Depends, HTTPException, Path
from fastapi.routing import APIRoute

from airflow_provider_cdc.core.spi.state_records import ConnectorRecord
from airflow_provider_cdc.hooks.state import CdcStateHook, reachable
from airflow_provider_cdc.plugins.authorization import Known, Right, known_of, may
from airflow_provider_cdc.state.store import StateStore

MOST = 1000
"""Entries of a list that one answer has at most."""


def _opened() -> Iterator[StateStore]:
    with reachable(), CdcStateHook().opened(patience_s=2) as store:
        yield store


Store = Annotated[StateStore, Depends(_opened)]


@dataclass(frozen=True)
class Reached:
    """A connector that the user may see."""

    record: ConnectorRecord
    user: BaseUser
    known: Known

    @property
    def name(self) -> str:
        """Of the connector."""
        return self.record.connector


def needs(right: Right) -> Any:
    """The dependency of a route that needs a right on the connector of its path.

    Who may not see the connector is told the same as if there was none.
    """

    def reached(
        store: Store, user: GetUserDep, connector: Annotated[str, Path(description="Name of the connector")]
    ) -> Reached:
        record = store.connector(connector)
        known = known_of([] if record is None else [record])
        if record is None or not may(user, record, Right.READ, known):
            raise HTTPException(404, f"No connector {connector!r} has run yet.")
        if not may(user, record, right, known):
            raise HTTPException(403, f"You may see {connector}, and have no right to {_WORDS[right]}.")
        return Reached(record, user, known)

    return Depends(_marked(reached, right))


def _marked(dependency: Callable[..., Reached], right: Right) -> Callable[..., Reached]:
    """With the right on it, so that the OpenAPI document can say which one a route needs."""
    dependency.right = right  # type: ignore[attr-defined]
    return dependency


_WORDS = {
    Right.READ: "see it",
    Right.OPERATE: "operate it: that needs the right to trigger runs of its DAG",
    Right.ADMINISTER: "administer it: that needs the right to edit the connection to its source",
    Right.ROWS: "see its rows: that needs the right to operate it, and to see the view “CDC rows”",
}


def right_of(route: APIRoute) -> Right:
    """The right that a route needs; routes about all connectors show those that the user may read."""
    found = (getattr(one.call, "right", None) for one in route.dependant.dependencies)
    return next((right for right in found if right is not None), Right.READ)


Readable = Annotated[Reached, needs(Right.READ)]
Operable = Annotated[Reached, needs(Right.OPERATE)]
Administrable = Annotated[Reached, needs(Right.ADMINISTER)]
WithRows = Annotated[Reached, needs(Right.ROWS)]
