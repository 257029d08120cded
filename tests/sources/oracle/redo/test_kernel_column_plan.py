"""Columns of types that cannot be captured: whatever the redo text has for them, it is not read."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from airflow_provider_cdc.core.model.table_schema import Column, ColumnDeclaration, TableId, TableSchema
from airflow_provider_cdc.sources.oracle.config import OracleConfig
from airflow_provider_cdc.sources.oracle.redo.redo_statement_reader import RedoReader, RedoRows

SCHEMA = TableSchema(
    id=TableId(namespace="SHOP", name="PARTS", catalog="PDB1"),
    columns=(
        Column(name="ID", type="int64", declared=ColumnDeclaration(type_name="NUMBER", length=9, scale=0)),
        Column(name="SPOT", type="null", declared=ColumnDeclaration(type_name="SDO_GEOMETRY")),
        Column(name="NOTE", type="string", declared=ColumnDeclaration(type_name="VARCHAR2", length=9)),
    ),
    key=("ID",),
)
TEXTS = [
    """insert into "SHOP"."PARTS"("ID","SPOT","NOTE") values ('1',Unsupported Type,'a');""",
    """update "SHOP"."PARTS" set "NOTE" = 'b' where "ID" = '1' and "NOTE" = 'a';""",
    """delete from "SHOP"."PARTS" where "ID" = '1' and "SPOT" = Unsupported Type and "NOTE" = 'b';""",
]
CODES = np.array([1, 3, 2])


def _read(how: str) -> RedoRows:
    config = OracleConfig.parse(
        {"topic.prefix": "p", "database.hostname": "h", "database.user": "u", "database.dbname": "CDB1"}
    )
    reader = RedoReader(SCHEMA, config)
    return reader.read(pa.array(TEXTS), CODES) if how == "read" else reader.read_plain(TEXTS, CODES)


@pytest.mark.parametrize("how", ["read", "plain"])
def test_a_column_that_cannot_be_captured_has_no_value_and_spoils_none(how: str) -> None:
    rows = _read(how)
    assert rows.after is not None
    assert rows.before is not None
    assert rows.after.to_pylist() == [
        {"ID": 1, "SPOT": None, "NOTE": "a"}, {"ID": 1, "SPOT": None, "NOTE": "b"}, None,
    ]  # fmt: skip
    assert rows.before.to_pylist() == [
        None, {"ID": 1, "SPOT": None, "NOTE": "a"}, {"ID": 1, "SPOT": None, "NOTE": "b"},
    ]  # fmt: skip
    # no one waits for a value of it, so none is missing
    assert (rows.unavailable_before, rows.unavailable_after) == (None, None)
