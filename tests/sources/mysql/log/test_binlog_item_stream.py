"""The end of a stream: at its ``until``, whichever server that position is of."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from airflow_provider_cdc.core.model.log_items import LogBlock, SchemaChange
from airflow_provider_cdc.sources.mysql.gtid_sets import parse_gtids
from tests.support.sources.mysql.mysql_chunks import FixedTables, source_of


@pytest.fixture(params=["mariadb", "mysql97"])
def db(request: pytest.FixtureRequest) -> Iterator[Any]:
    with request.getfixturevalue(request.param).database("ends") as database:
        database.sql("CREATE TABLE t (id INT PRIMARY KEY, v INT)")
        yield database


@pytest.mark.parametrize(
    "later",
    [
        ["INSERT INTO t VALUES (2, 2)"],
        ["ALTER TABLE t ADD w INT"],
        ["INSERT INTO t VALUES (2, 2)", "ALTER TABLE t ADD w INT"],
        ["FLUSH BINARY LOGS", "INSERT INTO t VALUES (2, 2)"],
    ],
)
def test_nothing_after_a_position_of_another_server_is_read(db: Any, later: list[str]) -> None:
    """Only the GTIDs of such a position count; what is in the same buffer behind it belongs to the next reader."""
    with source_of(db.server) as source:
        tables = {t: s for t, s in source.discover_tables().items() if t.namespace == db.name}
        start = source.current_position()
        db.sql("INSERT INTO t VALUES (0, 0)", "INSERT INTO t VALUES (1, 1)")
        end = source.current_position()
        db.sql(*later)
        items = list(
            source.stream_log(start, FixedTables(tables), until=replace(end, server="another", file="other-bin.000001"))
        )
        rows = [r["id"] for i in items if isinstance(i, LogBlock) for b in i.rows for r in b.after.to_pylist()]
        assert rows == [0, 1]
        assert not [i for i in items if isinstance(i, SchemaChange)]
        blocks = [i for i in items if isinstance(i, LogBlock)]
        assert parse_gtids(blocks[-1].position.gtids) == parse_gtids(end.gtids)  # type: ignore[attr-defined]
