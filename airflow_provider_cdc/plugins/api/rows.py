"""The story of a row, for those who may see data."""

from datetime import datetime
from typing import Annotated

from fastapi import APIRouter
from pydantic import BaseModel, ConfigDict, Field

from airflow_provider_cdc.core.model.row_story import RowStory
from airflow_provider_cdc.hooks.row_look import Asked, look
from airflow_provider_cdc.plugins.api.reach import Store, WithRows

router = APIRouter(tags=["rows"])
_SECONDS = 10.0
"""How long a request looks at batches that the index of keys does not know yet; the next one goes on."""


class RowRequest(BaseModel):
    """Which row."""

    model_config = ConfigDict(extra="forbid")

    table: Annotated[str, Field(max_length=2000, description="As include lists spell it")]
    key: Annotated[
        list[Annotated[str, Field(max_length=10_000)]],
        Field(min_length=1, max_length=100, description="Values of the key columns in their order; or one JSON object"),
    ]
    as_of: datetime | None = Field(None, description="The row as of this time")
    compare: bool = Field(False, description="Read the row at the source, too")


@router.post("/connectors/{connector}/row")
def row(store: Store, reached: WithRows, request: RowRequest) -> RowStory:
    """Every change of one row. Each look is recorded before anything is shown: who, when, which row."""
    asked = Asked(
        request.table,
        request.key,
        reached.user.get_name(),
        reached.name,
        request.as_of,
        request.compare,
        seconds=_SECONDS,
    )
    return look(store, asked)
