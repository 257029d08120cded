"""The shared suite on MariaDB."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from tests.sources.mysql_adapter import MySqlAdapter
from tests.sources.suite import Adapter, Row, SourceSuite
from tests.sources.suite.incremental import IncrementalSuite
from tests.support.connectors import Connector
from tests.support.sources.mysql.second_opinion import row_events


class TestMariaDb(SourceSuite, IncrementalSuite):
    def second_opinion(self, connector: Connector, db: Adapter, start: Row, end: Row) -> None:
        """mysql-replication has found as many rows of as many tables, event by event."""
        ours: dict[int, tuple[str, set[int]]] = {}
        for manifest in connector.changelog.read_manifests("test"):
            for file in manifest.files:
                rows = pq.read_table(connector.changelog.storage.join_path("test", file.path), columns=["op", "source"])
                for row in rows.filter(pc.is_in(rows.column("op"), pa.array(["c", "u", "d"]))).to_pylist():
                    source = row["source"]
                    assert source["file"] == start["file"]
                    ours.setdefault(source["pos"], (file.topic.rpartition(".")[2], set()))[1].add(source["row"])
        theirs = {
            event.packet.log_pos - event.packet.event_size: (event.table, len(event.rows))
            for event in row_events(db.server, start, end, db.namespace, mariadb=True)
            if not event.table.startswith("out_") and event.table != "signals"
        }
        found = {place: (table, len(rows)) for place, (table, rows) in ours.items()}
        assert len(found) > 200
        assert found == theirs

    @pytest.fixture
    def db(self, mariadb: Any) -> Iterator[MySqlAdapter]:
        with ExitStack() as stack:
            yield MySqlAdapter(mariadb, "mariadb", stack)
