"""Properties of the memory source."""

from __future__ import annotations

from pydantic import Field

from airflow_provider_cdc.core.config import ConnectorConfig


class MemoryConfig(ConnectorConfig):
    """Where to find the database, and how finely its log is cut."""

    memory_database: str = Field(alias="memory.database", description="Name of a MemoryDatabase of this process.")
    memory_block_rows: int = Field(
        1000,
        alias="memory.block.rows",
        ge=1,
        description="Rows per log block and snapshot block; small values test more.",
    )
