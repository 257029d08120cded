"""What records say of the order of changes, and of what belongs together."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

from tests.support.mongodb import mongodb_connector
from tests.support.rendered import captured


def test_updates_in_a_row_have_the_last_document_and_each_its_own_step(uri: str, tmp_path: Path, database: Any) -> None:
    """By capture.mode.full.update.type=lookup; what each of them did, updateDescription says."""
    database.orders.insert_one({"_id": 1})
    connector = mongodb_connector(uri, tmp_path, database_include_list=database.name)
    captured(connector)
    for n in range(4):
        database.orders.update_one({"_id": 1}, {"$set": {"n": n}})
    found = [record["value"] for record in captured(connector)]
    assert [json.loads(value["after"]) for value in found] == [{"_id": 1, "n": 3}] * 4
    assert [json.loads(value["updateDescription"]["updatedFields"]) for value in found] == [{"n": n} for n in range(4)]


def test_records_tell_their_order_their_transaction_and_how_late_they_are(
    uri: str, tmp_path: Path, database: Any, client: Any
) -> None:
    orders = database.orders
    orders.insert_one({"_id": "before"})
    connector = mongodb_connector(uri, tmp_path, database_include_list=database.name, provide_transaction_metadata=True)
    (read,) = captured(connector)
    assert read["value"]["transaction"] is None, "what was before has none"
    with client.start_session() as session, session.start_transaction():
        orders.insert_many([{"_id": n} for n in range(3)], session=session)
        database.notes.insert_one({"_id": 0}, session=session)  # and the collection comes to be within it
    orders.insert_one({"_id": 9})
    orders.delete_one({"_id": 9})
    time.sleep(1.1)
    begin, *rows, end, alone, gone, _ = captured(connector)
    sources = [record["value"]["source"] for record in (*rows, alone, gone)]
    assert [(s["ts_ms"], s["ord"]) for s in sources] == sorted((s["ts_ms"], s["ord"]) for s in sources)
    assert len({(s["lsid"], s["txnNumber"]) for s in sources}) == 2, "those of a transaction share them"
    assert [(s["db"], s["collection"]) for s in sources[2:4]] == [(database.name, "orders"), (database.name, "notes")]
    assert {record["topic"] for record in (begin, end)} == {"test.transaction"}
    assert {record["value"]["id"] for record in (begin, end)} == {f"{sources[0]['lsid']}:{sources[0]['txnNumber']}"}
    counts = {c["data_collection"]: c["event_count"] for c in end["value"]["data_collections"]}
    assert counts == {f"{database.name}.orders": 3, f"{database.name}.notes": 1}
    for record in (*rows, alone, gone):
        late = record["value"]["ts_ms"] - record["value"]["source"]["ts_ms"]
        assert 1000 < late < 60_000
        assert abs(record["value"]["ts_ms"] / 1000 - time.time()) < 60
