"""Routes for a connector that does not exist yet.

They say which sources and connections there are, the offers of one of them, and give the definition as a text.

Nothing is stored: the user puts the text under version control. FastAPI evaluates annotations: everything they name is imported at module level.
"""

from dataclasses import dataclass
from typing import Annotated

from airflow.api_fastapi.auth.managers.models.base_user import BaseUser
from airflow.api_fastapi.core_api.security import GetUserDep
from fastapi import APIRouter, Depends, HTTPException, Path
from pydantic import BaseModel, ConfigDict, Field

from airflow_provider_cdc.core.name_patterns import format_exact_pattern
from airflow_provider_cdc.hooks.connection_lookup import set_team
from airflow_provider_cdc.hooks.source import PREFIX, CdcSourceHook
from airflow_provider_cdc.plugins import authorization
from airflow_provider_cdc.plugins.api.check_and_chart_routes import Prerequisite, SourceRequest, build_prerequisites
from airflow_provider_cdc.plugins.authorization import ConnectorRight
from airflow_provider_cdc.services.connectors.bounded_calls import call_source_in_time
from airflow_provider_cdc.services.definition_writer import (
    TARGETS,
    DefinitionRequest,
    TableName,
    WrittenDefinition,
    list_source_kinds,
    modes_of,
    places_of,
    write_definition,
)
from airflow_provider_cdc.sources import SOURCES, config_class

router = APIRouter(prefix="/wizard", tags=["wizard"])
MOST_TABLES = 5000
"""Tables that are listed: of more, a pattern is written by hand."""


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid")


class RequiredProperty(_Model):
    """A property that defines the input of a connector."""

    name: str
    description: str
    example: str


class SourceKind(_Model):
    """A kind of source."""

    kind: str
    connection_type: str
    tables: str = Field(description="Name of its include list property")
    modes: dict[str, str] = Field(
        description="Snapshot mode of a new connector → its meaning; empty if the mode cannot be chosen"
    )
    places: list[RequiredProperty] = Field(
        description="Properties of which a connector needs one, because its connection does not define the input; empty for a database"
    )
    example: WrittenDefinition


class OfferedConnection(_Model):
    """A connection to a source, in Airflow's database."""

    conn_id: str
    kind: str


class WizardOptions(_Model):
    """The sources, targets and connections that a new connector can use."""

    sources: list[SourceKind]
    targets: dict[str, str]
    connections: list[OfferedConnection] = Field(description="Connections that the user may see")


class ConnectionRequest(SourceRequest):
    """A request to query the source of a connection now."""

    places: dict[str, Annotated[str, Field(min_length=1, max_length=2000)]] = Field(
        default_factory=dict,
        max_length=10,
        description="The input, if the connection does not define it: one of the kind's places. Only workers read files",
    )
    tables: list[TableName] = Field(
        default_factory=list,
        max_length=5000,
        description="Tables to capture, if known: findings about other tables are ignored",
    )


class SourceAnswer(_Model):
    """The answer of the source of a connection."""

    queried: bool = Field(
        description="Whether the source was queried; otherwise only the first run can check it, because only workers read files"
    )
    ready: bool
    findings: list[Prerequisite]
    tables: list[str] = Field(description="Names of the tables that can be captured")
    total: int
    keyless: list[str] = Field(description="Tables without a key")


@dataclass(frozen=True)
class EditableConnection:
    """A connection that the user may edit: its editors may also see the database behind it."""

    conn_id: str
    team: str | None


def _authorized(
    user: GetUserDep, connection: Annotated[str, Path(max_length=250, description="Id of the connection")]
) -> EditableConnection:
    team = authorization.team_of(connection)
    if not authorization.may_connect(user, connection, team, edit=True):
        raise HTTPException(403, f"Querying the source of {connection} requires the right to edit this connection.")
    return EditableConnection(connection, team)


async def _connected(connection: Annotated[EditableConnection, Depends(_authorized)]) -> EditableConnection:
    """Let the request use connections of the team. An endpoint runs in the context that an asynchronous dependency leaves."""
    set_team(connection.team)
    return connection


_connected.right = ConnectorRight.ADMINISTER  # type: ignore[attr-defined]
Editable = Annotated[EditableConnection, Depends(_connected)]


def _example(kind: str) -> WrittenDefinition:
    return write_definition(DefinitionRequest(source=kind, name="shop", conn_id=f"shop_{kind}", tables=["shop.orders"]))


def _list_visible_connections(user: BaseUser) -> list[OfferedConnection]:
    connections = authorization.known_connections(PREFIX, SOURCES)
    return [
        OfferedConnection(conn_id=connection.id, kind=connection.kind)
        for connection in connections
        if authorization.may_connect(user, connection.id, connection.team, edit=False)
    ]


@router.get("")
def list_wizard_options(user: GetUserDep) -> WizardOptions:
    """List the kinds of sources, each with an example to copy, the targets, and the connections that the user may see."""
    sources = [
        SourceKind(
            kind=kind,
            connection_type=f"{PREFIX}{kind}",
            tables=config_class(kind).TABLES[0],
            modes=modes_of(kind),
            places=[
                RequiredProperty(name=name, description=description, example=example)
                for name, (description, example) in places_of(kind).items()
            ],
            example=_example(kind),
        )
        for kind in list_source_kinds()
    ]
    return WizardOptions(
        sources=sources,
        targets={str(target): description for target, description in TARGETS.items()},
        connections=_list_visible_connections(user),
    )


@router.post("/connections/{connection:path}")  # ids of connections may have slashes
def inspect_source(reached: Editable, request: ConnectionRequest) -> SourceAnswer:
    """Check the prerequisites at the source of a connection, and list the tables that can be captured."""
    hook, patterns = CdcSourceHook(reached.conn_id), [format_exact_pattern(table) for table in request.tables]
    inspection = call_source_in_time(
        request.seconds,
        reached.conn_id,
        lambda: hook.inspect_source(request.places, patterns),
        name=f"The source of connection {reached.conn_id}",
        captured=False,
    )
    named = sorted(str(table) for table in inspection.tables)
    keyless = sorted(str(table) for table, schema in inspection.tables.items() if not schema.key)
    return SourceAnswer(
        queried=inspection.queried,
        ready=not any(finding.fatal for finding in inspection.findings),
        findings=build_prerequisites(inspection.findings),
        tables=named[:MOST_TABLES],
        total=len(named),
        keyless=keyless[:MOST_TABLES],
    )


@router.post("/definition")
def generate_definition(request: DefinitionRequest) -> WrittenDefinition:
    """Return the definition as Python and as YAML.

    The definition is checked as far as possible without the source. Nothing is stored.
    """
    return write_definition(request)
