"""The history of a row, for users who may see data."""

from datetime import datetime
from typing import Annotated

from fastapi import APIRouter, HTTPException
from pydantic import BaseModel, ConfigDict, Field

from airflow_provider_cdc.changelog.row_history.row_history_models import KeyColumn, RowHistory
from airflow_provider_cdc.plugins import authorization
from airflow_provider_cdc.plugins.api.dependencies import Store, WithRows
from airflow_provider_cdc.services.row_history.row_history_lookup import RowQuery, load_row_history, row_keys

router = APIRouter(tags=["rows"])
_SECONDS = 10.0
"""Seconds that a request spends on batches that the index of keys does not know yet; the next one continues."""
_ANSWER_S = 20.0
"""Seconds that a request waits for the change log, for the targets, and for the source."""


class TableRequest(BaseModel):
    """A request about a table."""

    model_config = ConfigDict(extra="forbid")

    table: Annotated[str, Field(max_length=2000, description="Name of the table, as in include lists")]


class RowRequest(TableRequest):
    """A request about a row."""

    key: Annotated[
        list[Annotated[str, Field(max_length=10_000)]],
        Field(min_length=1, max_length=100, description="Values of the key columns in order; or one JSON object"),
    ]
    as_of: datetime | None = Field(None, description="The row as of this time")
    compare: bool = Field(False, description="Also read the row from the source")
    connections: Annotated[
        list[Annotated[str, Field(max_length=250)]],
        Field(
            max_length=20,
            description="Connections to target databases, to read the row there; the user must have the right to edit each connection",
        ),
    ] = []


@router.post("/connectors/{connector}/row")
def get_row_history(store: Store, reached: WithRows, request: RowRequest) -> RowHistory:
    """Return all changes of one row. Each look-up is recorded before anything is returned: the user, the time and the row."""
    for conn_id in request.connections:
        if not authorization.may_connect(reached.user, conn_id, authorization.team_of(conn_id), edit=True):
            raise HTTPException(
                403, f"Reading the row by connection {conn_id} requires the right to edit this connection."
            )
    query = RowQuery(
        request.table, request.key, reached.user.get_name(), reached.connector_name, request.as_of, request.compare, request.connections,
        _SECONDS, _ANSWER_S,
    )  # fmt: skip
    return load_row_history(store, query)


@router.post("/connectors/{connector}/row/key")
def list_key_columns(store: Store, reached: WithRows, request: TableRequest) -> list[KeyColumn]:
    """List the key columns of a table, and the form of their values. The request returns no data and is not recorded."""
    by, connector = reached.user.get_name(), reached.connector_name
    return row_keys(store, RowQuery(request.table, (), by, connector, seconds=_SECONDS, answer_s=_ANSWER_S))
