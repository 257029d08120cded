"""Documents as columns of a database's tables: whatever their fields are called."""

from __future__ import annotations

import pytest
import sqlalchemy as sa

from airflow_provider_cdc.core.model.table_schema import TableId, TableSchema
from airflow_provider_cdc.sources.mongodb.columns.column_fields import FIRST, CollectionFields
from airflow_provider_cdc.sources.mongodb.kernels.document_columns import LONG
from airflow_provider_cdc.targets.database.config import DatabaseTargetConfig
from airflow_provider_cdc.targets.database.dialects import dialect_of
from airflow_provider_cdc.targets.database.schema.target_table import table_of

OF_DATABASES = (
    "xmin", "xmax", "cmin", "cmax", "ctid", "tableoid", "oid", "rowid", "ROWID", "_rowid_", "rownum", "level", "uid", "DB_ROW_ID", "db_trx_id", "Db_Roll_Ptr",
    "select", "group", "user", "_id_",
)  # fmt: skip
ALIKE = (
    "s",
    "S",
    "ſ",
    "σ",
    "ς",
    "µ",
    "μ",
    "fi",
    "ﬁ",
    "a",
    "ａ",
    "ss",
    "ß",
    "ẞ",
    "i",
    "I",
    "ı",
    "İ",
    "k",
    "K",
    "ΰ",
    "ΰ",
    "ǅ",
    "ǆ",
    "e",
    "é",
)
ODD = (
    "",
    "\U0001d400",
    "\U00020000",
    "a.b",
    "$a",
    "${x}",
    "'",
    '"',
    "`",
    "]",
    ";--",
    "a b",
    "\n",
    "日本",
    "²",
    "x" * 300,
)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("quoted", [True, False])
def test_every_field_of_a_document_is_a_column_that_the_database_takes(engine: sa.Engine, quoted: bool) -> None:
    fields = CollectionFields((), 1, 500)
    for name in (*OF_DATABASES, *ALIKE, *ODD):
        fields.learn_field(-1, -1, name, LONG)
    schema = TableSchema(id=TableId(namespace="shop", name="t"), key=("_id",), columns=(*FIRST, *fields.columns))
    config = DatabaseTargetConfig.parse({"connection.url": "sqlite://", "quote.identifiers": quoted})
    dialect = dialect_of(engine, config.effective_time_zone)
    table = table_of("t", schema, config, dialect)
    with engine.begin() as connection:
        dialect.detect_features(connection)
        connection.exec_driver_sql(dialect.build_create_table(table))
        there = connection.exec_driver_sql(f"SELECT * FROM {dialect.format_table_name(table.name)}").keys()
    assert len(there) == len(fields.columns) + 2
