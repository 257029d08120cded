"""The databases that changes are captured from."""

from __future__ import annotations

import pytest

from airflow_provider_cdc.core.spi.source import Source
from airflow_provider_cdc.sources import load_source


@pytest.mark.parametrize(
    ("kind", "connector", "log"),
    [
        ("mysql", "mysql", "sources.mysql.log."), ("mariadb", "mariadb", "sources.mysql.log."), ("oracle", "oracle", "sources.oracle.mining."),
        ("mongodb", "mongodb", "sources.mongodb.log."), ("db2", "db2", "sources.db2.log."), ("postgresql", "postgresql", "sources.postgresql.log_range"),
    ],
)  # fmt: skip
def test_each_database_is_read_by_its_own_log(kind: str, connector: str, log: str) -> None:
    found = load_source(kind)
    assert issubclass(found, Source)
    assert found.connector == connector
    import sys

    assert any(f".{log}" in name for name in sys.modules)
