"""Properties of the memory source."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from pydantic import Field

from airflow_provider_cdc.core.config import ConnectionForm, ConnectorConfig


class MemoryConfig(ConnectorConfig):
    """Where to find the database, and how finely its log is cut."""

    memory_database: str = Field(alias="memory.database", description="Name of a MemoryDatabase of this process.")
    memory_block_rows: int = Field(
        1000,
        alias="memory.block.rows",
        ge=1,
        description="Rows per log block and snapshot block; small values test more.",
    )

    unavailable_value_placeholder: str = Field(
        "__debezium_unavailable_value",
        alias="unavailable.value.placeholder",
        description="In the Debezium JSON form, stands for a value that the log does not have.",
    )

    FORM: ClassVar[ConnectionForm] = ConnectionForm(
        labels={"host": "Database of this process"}, hidden=("schema", "login", "password", "port", "extra")
    )

    @classmethod
    def from_connection(
        cls,
        *,
        host: str | None = None,
        port: int | None = None,
        login: str | None = None,
        password: str | None = None,
        schema: str | None = None,
        extra: Mapping[str, Any] | None = None,
    ) -> dict[str, Any]:
        named = {} if host is None else {"memory.database": host}
        return named | super().from_connection(extra=extra)
