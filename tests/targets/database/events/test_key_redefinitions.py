"""Keys that the source changes. On every database: ``tests/cases/test_sink.py``."""

from __future__ import annotations

from pathlib import Path

import pytest

from airflow_provider_cdc.core.model.table_schema import Column
from airflow_provider_cdc.targets.database.config import DatabaseTargetConfig
from airflow_provider_cdc.targets.database.target_engine import open_engine
from tests.targets.database.apply.test_database_apply import rows
from tests.targets.database.source_table import ID, Table, column

CODE = column("code", "string", "VARCHAR", 10, nullable=False)
V = Column(name="v", type="int32")


@pytest.mark.parametrize("new", [("code",), ("id", "code")], ids=["replaced", "widened"])
def test_changes_before_another_key_are_applied_by_the_key_before(tmp_path: Path, new: tuple[str, ...]) -> None:
    """A2: the delete and the update have the key ``id``, which later events of the same apply do not have any more."""
    engine = open_engine(DatabaseTargetConfig.parse({"connection.url": f"sqlite:///{tmp_path}/target.db"}))
    table = Table(tmp_path, engine, CODE, V)
    table.insert({"id": 1, "code": "A", "v": 1}, {"id": 2, "code": "B", "v": 2})
    table.connector.capture()
    with table.source.transaction() as t:
        t.delete("s.t", {"id": 1})
        t.update("s.t", {"id": 2}, {"code": "C"})
    table.alter(ID, CODE, V, key=new)
    table.insert({"id": 3, "code": "D", "v": 3})
    table.apply()
    assert [(row["id"], row["code"]) for row in rows(engine, "p_s_t")] == [(2, "C"), (3, "D")]
    engine.dispose()
