"""Helpers of the tests of mining: a configuration for a test server, and windows mined one after the other."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from airflow_provider_cdc.core.config.capture_filters import Filters
from airflow_provider_cdc.sources.oracle.config import OracleConfig
from airflow_provider_cdc.sources.oracle.mining.logminer_query import BATCH
from airflow_provider_cdc.sources.oracle.mining.session import MiningSession
from dev.servers.oracle import Oracle

ONLINE = {"log.mining.strategy": "online_catalog"}


def settings(server: Oracle, **properties: Any) -> OracleConfig:
    """Properties of a connector that captures a test server; dots in names are written as double underscores."""
    named = {
        "topic.prefix": "p", "database.hostname": server.host, "database.port": server.port, "database.user": server.user,
        "database.password": server.password, "database.dbname": server.database, **ONLINE,
    }  # fmt: skip
    if server.pdb:
        named["database.pdb.name"] = server.pdb
    return OracleConfig.parse(named | {name.replace("__", "."): value for name, value in properties.items()})


def session_of(server: Oracle, **properties: Any) -> MiningSession:
    config = settings(server, **properties)
    return MiningSession(config, Filters(config))


def mine_rows(session: MiningSession, start: int, end: int, first: bool = True) -> list[dict[str, Any]]:
    """The rows of one window."""
    low = start if first else start + 1
    session.open_window(low, end)
    return as_rows(session.read_rows(low, end))


def as_rows(batches: Iterator[pa.RecordBatch]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for batch in batches:
        assert batch.schema == BATCH
        found += batch.to_pylist()
    return found


def changes(rows: list[dict[str, Any]]) -> list[str]:
    """The redo texts of inserts, updates and deletes that were not undo."""
    return [row["sql"] for row in rows if row["code"] in (1, 2, 3) and not row["rollback"]]


def insert(server: Oracle, *ids: int) -> None:
    """Rows of the table ``ty`` of the tests of mining, each in a separate transaction."""
    server.sql(*(f"INSERT INTO ty VALUES ({id_}, 'v')" for id_ in ids))


def ids(found: list[dict[str, Any]]) -> list[int]:
    """The ids of rows that were inserted, in the order of the log."""
    return [int(text.split("values ('")[1].split("'")[0]) for text in changes(found)]


def flushed_scn(server: Oracle) -> int:
    """An SCN up to which all is on disk."""
    scn = server.scn()
    server.flush()
    return scn
