"""Configurations and columns of Db2 for tests without a database."""

from __future__ import annotations

from typing import Any

from airflow_provider_cdc.core.model.table_schema import Column, TableId, TableSchema
from airflow_provider_cdc.sources.db2.config import Db2Config
from airflow_provider_cdc.sources.db2.schema.type_mapping import Db2ColumnType, make_column

BASE = {
    "topic.prefix": "test", "database.hostname": "localhost", "database.user": "cdc", "database.password": "secret-word",
    "database.dbname": "testdb",
}  # fmt: skip
CONTROL_GRANTS = tuple(
    f"GRANT SELECT ON TABLE ASNCDC.IBMSNAP_{name} TO USER CDC" for name in ("REGISTER", "UOW", "CAPPARMS")
)
"""Grants on control tables that every capture needs."""
SIGNAL_GRANT = "GRANT SELECT, INSERT ON TABLE ASNCDC.IBMSNAP_SIGNAL TO USER CDC"
"""A grant that snapshots with locks and incremental snapshots need, too."""
PARTS = TableId(catalog="TESTDB", namespace="SHOP", name="PARTS")


def config(**properties: Any) -> Db2Config:
    """A configuration; properties with underscores for dots."""
    return Db2Config.parse(BASE | {name.replace("_", "."): value for name, value in properties.items()})


def column(
    type_: str, name: str = "C", *, nullable: bool = True, distinct: str | None = None, **properties: Any
) -> Column:
    """A column of a type, as DDL spells it."""
    return make_column(name, Db2ColumnType.parse(type_), config(**properties), nullable=nullable, distinct=distinct)


def schema_of(*columns: Column, key: tuple[str, ...] = ()) -> TableSchema:
    """A table with these columns."""
    return TableSchema(id=PARTS, columns=columns, key=key)
