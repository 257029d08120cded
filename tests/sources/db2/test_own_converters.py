"""Converters of users with Db2: rows of snapshots and of change tables have the same converted values."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

import pytest

from dev.servers.db2 import Db2
from tests.sources.db2_adapter import Db2Adapter
from tests.support.change_log.rendered import capture_records, of_table, row_fields
from tests.support.own_converters import own_converters


def test_the_documented_example_converts_rows_of_snapshot_and_stream(
    db2: Db2, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own_converters(tmp_path, monkeypatch)
    with ExitStack() as stack:
        db = Db2Adapter(db2, stack)
        db._create("T", {"ID": "INTEGER", "ISBN": "VARCHAR(20)", "V": "VARCHAR(9)"}, ("ID",))
        db.server.transaction(f"INSERT INTO {db.name('T')} VALUES (1, '1-23', 'a'), (2, NULL, 'b')")
        db.server.catch_up()
        properties = {"isbn.type": "com.example.Isbn", "isbn.schema.name": "io.debezium.db2.type.Isbn"}
        connector = db.connector(tmp_path, converters="isbn", **properties)
        read = of_table(capture_records(connector, schemas=True), "T")
        db.server.transaction(f"UPDATE {db.name('T')} SET ISBN = '4-56' WHERE ID = 2")
        db.server.catch_up()
        (changed,) = of_table(capture_records(connector, schemas=True), "T")
    assert [r["value"]["payload"]["after"]["ISBN"] for r in read] == [123, None]
    images = changed["value"]["payload"]
    assert (images["before"]["ISBN"], images["after"]) == (None, {"ID": 2, "ISBN": 456, "V": "b"})
    assert row_fields(read[0]) == row_fields(changed)
    node = row_fields(changed)["ISBN"]
    assert (node["type"], node["name"], node["optional"]) == ("int64", "io.debezium.db2.type.Isbn", True)
