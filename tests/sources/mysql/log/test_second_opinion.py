"""mysql-replication reads the same log: event by event it says what we say.

Where it is known to differ the work leaves it out: it drops rows of tables whose columns it cannot name, gives JSON and bits in its
own forms, and knows no compressed events. That is why decoding is ours (docs/sources/mysql.md).
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.sources.mysql.kernels.test_kernels import events_of
from tests.support.connectors import mysql_connector
from tests.support.sources.mysql.second_opinion import DeleteRowsEvent, WriteRowsEvent, row_events
from tests.support.sources.mysql.workload import Writer

Change = tuple[str, str, dict[str, Any] | None, dict[str, Any] | None]


def _their_changes(
    server: Any, start: dict[str, Any], end: dict[str, Any], database: str, *, mariadb: bool
) -> Iterator[Change]:
    """Rows as mysql-replication gives them, between two places of a log file."""
    for event in row_events(server, start, end, database, mariadb=mariadb):
        for row in event.rows:
            match event:
                case WriteRowsEvent():
                    yield event.table, "c", None, row["values"]
                case DeleteRowsEvent():
                    yield event.table, "d", row["values"], None
                case _:
                    yield event.table, "u", row["before_values"], row["after_values"]


@pytest.mark.parametrize("kind", ["mariadb", "mysql97", "mysql80"])
def test_same_rows_in_the_same_order(request: pytest.FixtureRequest, tmp_path: Path, kind: str) -> None:
    server = request.getfixturevalue(kind)
    mariadb = kind == "mariadb"
    with server.connect(autocommit=True) as connection:
        writer = Writer(connection, "opinion", 8, ddl=0.0)
        writer.prepare()
        connector = mysql_connector(
            server, tmp_path, "mariadb" if mariadb else "mysql", database_include_list="opinion"
        )
        connector.capture()
        start = connector.store.load_offset(connector.name).offset.position
        writer.write(150)
        connector.capture()
        end = connector.store.load_offset(connector.name).offset.position
        assert end["file"] == start["file"]
        assert end["file"] == start["file"]
        theirs = list(_their_changes(server, start, end, "opinion", mariadb=mariadb))
        writer.run("DROP DATABASE opinion")
    ours = [
        (e["source"]["table"], e["op"], e["before"], e["after"])
        for e in _join_key_changes(events_of(connector))
        if e["op"] in ("c", "u", "d")
    ]
    assert len(ours) > 200
    assert ours == theirs


def _join_key_changes(events: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Key changes, which are a delete and a create of the same place in the log, as the one update that they were."""
    held = None
    for event in events:
        place = {k: event["source"][k] for k in ("file", "pos", "row", "gtid")}
        if held is not None:
            if event["op"] == "c" and place == held[0]:
                yield {**event, "op": "u", "before": held[1]["before"]}
                held = None
                continue
            yield held[1]
            held = None
        if event["op"] == "d":
            held = place, event
        else:
            yield event
    if held is not None:
        yield held[1]
