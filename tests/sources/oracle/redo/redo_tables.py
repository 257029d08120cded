"""Tables and rows that the redo tests share."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from airflow_provider_cdc.core.model.table_schema import TableId, TableSchema
from airflow_provider_cdc.sources.oracle.config import OracleConfig
from airflow_provider_cdc.sources.oracle.redo.redo_statement_reader import RedoReader, RedoRows
from airflow_provider_cdc.sources.oracle.schema.column_types import ColumnType, make_column

PARTS = TableId(namespace="SHOP", name="PARTS")
UNAVAILABLE = {"unavailable": True}
_MINIMUM = {"topic.prefix": "p", "database.hostname": "h", "database.user": "u", "database.dbname": "D"}


def config(**properties: Any) -> OracleConfig:
    return OracleConfig.parse(_MINIMUM | properties)


def table(columns: dict[str, str], config_: OracleConfig) -> TableSchema:
    made = [make_column(PARTS, n, ColumnType.parse(t), config_, nullable=True) for n, t in columns.items()]
    assert all(c is not None for c in made)
    return TableSchema(id=PARTS, columns=tuple(c for c in made if c is not None))


def parts_reader(properties: dict[str, Any]) -> RedoReader:
    given = config(**{"lob.enabled": True, **properties})
    columns = {
        "ID": "NUMBER(9)", "LABEL": "VARCHAR2(80)", "PRICE": "NUMBER(10,2)", "MADE_AT": "TIMESTAMP(6)", "NOTES": "CLOB",
    }  # fmt: skip
    return RedoReader(table(columns, given), given, ignored=("SHAPE",))


def recorded_value(value: pa.Scalar) -> Any:
    """A value as the recorded cases spell it."""
    if not value.is_valid:
        return None
    type_ = value.type
    if pa.types.is_binary(type_):
        return value.as_py().hex()
    if pa.types.is_temporal(type_):
        return value.cast(pa.string()).as_py()
    if pa.types.is_decimal(type_):
        return str(value.as_py())
    plain = value.as_py()
    if isinstance(plain, float) and not np.isfinite(plain):
        return {"inf": "Infinity", "-inf": "-Infinity"}.get(str(plain), "NaN")
    return plain


def images(rows: RedoRows, i: int, schema: TableSchema) -> dict[str, Any]:
    """The images of one row, with the columns that it has."""
    found: dict[str, Any] = {}
    for name, struct, unavailable in (
        ("before", rows.before, rows.unavailable_before),
        ("after", rows.after, rows.unavailable_after),
    ):
        if struct is None or not struct[i].is_valid:
            continue
        found[name] = {
            column: recorded_value(struct.field(c)[i])
            for c, column in enumerate(schema.column_names)
            if unavailable is None or not unavailable[c, i]
        }
        if unavailable is not None:
            absent = np.flatnonzero(unavailable[:, i])
            assert all(not struct.field(int(c))[i].is_valid for c in absent), "an unavailable value is null"
    return found


def read(reader: RedoReader, texts: list[str], codes: list[int]) -> RedoRows:
    return reader.read(pa.array(texts, pa.string()), np.array(codes))
