"""Routes for a connector that is not there yet: which sources and connections there are, what one of them offers, and the definition as a text.

Nothing is stored: whoever asks puts the text under version control. FastAPI evaluates annotations: everything they name is imported at module level.
"""

from dataclasses import dataclass
from typing import Annotated

from airflow.api_fastapi.auth.managers.models.base_user import BaseUser
from airflow.api_fastapi.core_api.security import GetUserDep
from fastapi import APIRouter, Depends, HTTPException, Path
from pydantic import BaseModel, ConfigDict, Field

from airflow_provider_cdc.hooks.source import PREFIX, CdcSourceHook
from airflow_provider_cdc.plugins import authorization
from airflow_provider_cdc.plugins.api.diagnostics import Ask, Prerequisite, prerequisites
from airflow_provider_cdc.plugins.authorization import Right
from airflow_provider_cdc.services.connectors.source_probe import within
from airflow_provider_cdc.services.definition_wizard import (
    TARGETS,
    NewDefinition,
    TableName,
    WrittenDefinition,
    kinds,
    modes_of,
    pattern_of,
    places_of,
    written,
)
from airflow_provider_cdc.sources import SOURCES, config_class

router = APIRouter(prefix="/wizard", tags=["wizard"])
MOST_TABLES = 5000
"""Tables that are listed: of more, a pattern is written by hand."""


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid")


class NeededPlace(_Model):
    """A property that says what a connector reads."""

    name: str
    what: str
    example: str


class SourceKind(_Model):
    """A kind of source."""

    kind: str
    connection_type: str
    tables: str = Field(description="What its include list is called")
    modes: dict[str, str] = Field(
        description="What a new connector reads → what that means; none where it cannot be chosen"
    )
    places: list[NeededPlace] = Field(
        description="Properties of which a connector needs one, as no connection says what it reads; none for a database"
    )
    example: WrittenDefinition


class OfferedConnection(_Model):
    """A connection to a source, in Airflow's database."""

    conn_id: str
    kind: str


class Offers(_Model):
    """What a new connector can be made of."""

    sources: list[SourceKind]
    targets: dict[str, str]
    connections: list[OfferedConnection] = Field(description="Those that the user may see")


class AskConnection(Ask):
    """That the source of a connection is asked now."""

    places: dict[str, Annotated[str, Field(min_length=1, max_length=2000)]] = Field(
        default_factory=dict,
        max_length=10,
        description="What is read, where no connection says it: of the kind's places. Files are left to the workers",
    )
    tables: list[TableName] = Field(
        default_factory=list,
        max_length=5000,
        description="What is to be captured, if that is known: what other tables lack does not matter then",
    )


class SourceAnswer(_Model):
    """What the source of a connection says."""

    asked: bool = Field(
        description="Otherwise only the first run can say whether something is missing: the files are the workers'"
    )
    ready: bool
    findings: list[Prerequisite]
    tables: list[str] = Field(description="What could be captured, by name")
    total: int
    keyless: list[str] = Field(description="Those of them without a key")


@dataclass(frozen=True)
class Connected:
    """A connection that the user may edit: who may do that may see what it leads to."""

    conn_id: str


def _connected(user: GetUserDep, connection: Annotated[str, Path(max_length=250, description="Its id")]) -> Connected:
    team = authorization.team_of(connection)
    if not authorization.may_connect(user, connection, team, edit=True):
        raise HTTPException(403, f"To have the source of {connection} asked needs the right to edit this connection.")
    return Connected(connection)


_connected.right = Right.ADMINISTER  # type: ignore[attr-defined]
Editable = Annotated[Connected, Depends(_connected)]


def _example(kind: str) -> WrittenDefinition:
    return written(NewDefinition(source=kind, name="shop", conn_id=f"shop_{kind}", tables=["shop.orders"]))


def _seen(user: BaseUser) -> list[OfferedConnection]:
    found = authorization.known_connections(PREFIX, SOURCES)
    return [
        OfferedConnection(conn_id=one.id, kind=one.kind)
        for one in found
        if authorization.may_connect(user, one.id, one.team, edit=False)
    ]


@router.get("")
def offers(user: GetUserDep) -> Offers:
    """Kinds of sources, each with an example to copy; targets; and the connections that the user may see."""
    sources = [
        SourceKind(
            kind=kind,
            connection_type=f"{PREFIX}{kind}",
            tables=config_class(kind).TABLES[0],
            modes=modes_of(kind),
            places=[
                NeededPlace(name=name, what=what, example=example) for name, (what, example) in places_of(kind).items()
            ],
            example=_example(kind),
        )
        for kind in kinds()
    ]
    return Offers(
        sources=sources, targets={str(target): what for target, what in TARGETS.items()}, connections=_seen(user)
    )


@router.post("/connections/{connection:path}")  # ids of connections may have slashes
def source(reached: Editable, asked: AskConnection) -> SourceAnswer:
    """Ask the source of a connection whether capture can begin, and what could be captured."""
    hook, patterns = CdcSourceHook(reached.conn_id), [pattern_of(table) for table in asked.tables]
    found = within(
        asked.seconds, f"The source of connection {reached.conn_id}", lambda: hook.offers(asked.places, patterns)
    )
    named = sorted(str(table) for table in found.tables)
    keyless = sorted(str(table) for table, schema in found.tables.items() if not schema.key)
    return SourceAnswer(
        asked=found.asked,
        ready=not any(one.fatal for one in found.findings),
        findings=prerequisites(found.findings),
        tables=named[:MOST_TABLES],
        total=len(named),
        keyless=keyless[:MOST_TABLES],
    )


@router.post("/definition")
def definition(asked: NewDefinition) -> WrittenDefinition:
    """The definition as Python and as YAML. It is checked as far as that goes without the source; nothing is stored."""
    return written(asked)
