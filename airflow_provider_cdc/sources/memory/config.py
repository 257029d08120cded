"""Properties of the memory source."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from pydantic import Field

from airflow_provider_cdc.core.config.base_configuration import ConnectionForm
from airflow_provider_cdc.core.config.table_source_config import TableConfig
from airflow_provider_cdc.core.model.table_schema import TableId


class MemoryConfig(TableConfig):
    """Properties that say where to find the database, and how finely its log is cut."""

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
        description="In the Debezium JSON form, replaces a value that the log does not contain.",
    )

    FORM: ClassVar[ConnectionForm] = ConnectionForm(
        labels={"host": "Database of this process"}, hidden=("schema", "login", "password", "port", "extra")
    )
    CONNECTION: ClassVar[Mapping[str, str]] = {"host": "memory.database"}

    def build_dataset_name(self, table: TableId) -> tuple[str, str]:
        return f"memory://{self.memory_database}", str(table)
