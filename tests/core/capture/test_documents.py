"""Sources whose rows are documents, and which have no structures: captured, streamed, read in chunks, rendered and applied (tests/support/sources/document_store.py)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from airflow_provider_cdc.connector import open_source
from airflow_provider_cdc.core.errors import ConfigError
from airflow_provider_cdc.core.lifecycle.offset_plan import OffsetEffect, OffsetPlanner
from airflow_provider_cdc.core.model.connector_signal import SentSignal
from airflow_provider_cdc.core.writing.row_block_transforms import beside_of
from tests.support.change_log.rendered import capture_records, of_table, records
from tests.support.connectors import Connector
from tests.support.sources.document_store import (
    DocumentDatabase,
    ShelfPosition,
    folder_id,
    read,
    register_document_source,
    text,
)


@pytest.fixture(autouse=True)
def _document_kind() -> Iterator[None]:
    with register_document_source():
        yield


@pytest.fixture
def document_store(request: pytest.FixtureRequest) -> DocumentDatabase:
    return DocumentDatabase(request.node.name)


def connector(shelf: DocumentDatabase, folder: Path, **properties: Any) -> Connector:
    named = {k.replace("_", "."): v for k, v in properties.items()}
    return Connector(folder, "shelf", {"shelf": shelf.name, "poll.interval.ms": 10, **named})


def captured_sheets(ours: Connector, folder: str) -> list[Any]:
    return sorted((json.loads(row["sheet"]) for row in ours.rows(folder)), key=repr)


def source_sheets(shelf: DocumentDatabase, folder: str) -> list[Any]:
    return sorted(shelf.sheets(folder, shelf.end), key=repr)


LETTER = {"_id": 1, "to": {"name": "Ann", "ways": ["post", {"air": True}]}}


def test_documents_are_their_texts_and_keys_their_ids(document_store: DocumentDatabase, tmp_path: Path) -> None:
    ours = connector(document_store, tmp_path)
    document_store.commit(("c", "box.letters", LETTER))
    (read,) = capture_records(ours)
    assert (read["topic"], read["key"]) == ("test.box.letters", {"id": "1"})
    assert list(read["value"]) == ["before", "after", "whatChanged", "source", "op", "ts_ms", "transaction"]
    assert (read["value"]["before"], read["value"]["after"]) == (None, text(LETTER))
    source = read["value"]["source"]
    assert list(source)[-2:] == ["folder", "entry"]
    assert (source["db"], source["folder"], source["snapshot"]) == ("box", "letters", "last")
    assert "table" not in source


def test_updates_say_what_they_changed_beside_the_images(document_store: DocumentDatabase, tmp_path: Path) -> None:
    ours = connector(document_store, tmp_path)
    document_store.commit(("c", "box.letters", LETTER))
    ours.capture()
    document_store.commit(
        ("u", "box.letters", 1, {"sent": "now"}), ("c", "box.letters", {"_id": "1"}), ("d", "box.letters", 1)
    )
    update, create, delete, tombstone = capture_records(ours)
    assert update["value"]["before"] == text(LETTER)
    assert update["value"]["after"] == text({**LETTER, "sent": "now"})
    assert update["value"]["whatChanged"] == {"removed": None, "changed": text({"sent": "now"}), "cut": []}
    assert create["key"] == {"id": '"1"'}
    assert (create["value"]["whatChanged"], delete["value"]["whatChanged"]) == (None, None)
    assert (delete["key"], tombstone["key"], tombstone["value"]) == ({"id": "1"}, {"id": "1"}, None)
    assert captured_sheets(ours, "box.letters") == [{"_id": "1"}]


def test_a_document_that_the_log_does_not_have_is_null(document_store: DocumentDatabase, tmp_path: Path) -> None:
    ours = connector(document_store, tmp_path, whole_sheets=False)
    document_store.commit(("c", "box.letters", LETTER))
    ours.capture()
    document_store.commit(("u", "box.letters", 1, {"sent": "now"}))
    (update,) = capture_records(ours)
    assert (update["value"]["before"], update["value"]["after"]) == (None, None)
    assert json.loads(update["value"]["whatChanged"]["changed"]) == {"sent": "now"}
    assert captured_sheets(ours, "box.letters") == [LETTER]  # as with any value that the log does not have
    document_store.commit(("d", "box.letters", 1))
    assert capture_records(ours)[0]["value"]["before"] is None
    assert captured_sheets(ours, "box.letters") == []


def test_schemas_are_those_that_the_source_declares(document_store: DocumentDatabase, tmp_path: Path) -> None:
    ours = connector(document_store, tmp_path)
    document_store.commit(("c", "box.letters", LETTER))
    (read,) = capture_records(ours, schemas=True)
    assert read["key"]["schema"]["fields"] == [{"type": "string", "optional": False, "field": "id"}]
    nodes = {node["field"]: node for node in read["value"]["schema"]["fields"]}
    assert list(nodes) == list(read["value"]["payload"])
    json_text = {"type": "string", "optional": True, "name": "io.debezium.data.Json", "version": 1}
    assert (nodes["before"], nodes["after"]) == (json_text | {"field": "before"}, json_text | {"field": "after"})
    assert nodes["whatChanged"]["name"] == "shelf.what.changed"
    assert nodes["source"]["name"] == "shelf.Source"
    assert [f["field"] for f in nodes["source"]["fields"]][-2:] == ["folder", "entry"]


def test_what_is_beside_the_images_is_a_column_of_the_files(document_store: DocumentDatabase, tmp_path: Path) -> None:
    ours = connector(document_store, tmp_path, skipped_operations="c")
    ours.capture()
    changes = [("u", "box.letters", n, {"n": n}) for n in range(20)]
    document_store.commit(*[("c", "box.letters", {"_id": n}) for n in range(20)])
    document_store.commit(*[change for n in range(20) for change in (("c", "box.notes", {"_id": n}), changes[n])])
    ours.capture()
    (manifest,) = ours.changelog.read_manifests(ours.name)
    (file,) = manifest.files  # creates are left out, and what the others say of themselves stays with them
    with ours.changelog.open_file(ours.name, file) as f:
        table = pq.read_table(f)
    assert table.schema.names.index("whatChanged") == table.schema.names.index("after") + 1
    document = [(json.loads(e["key"]["_id"]), json.loads(e["whatChanged"]["changed"])) for e in table.to_pylist()]
    assert document == [(n, {"n": n}) for n in range(20)]


def test_tables_come_with_their_first_rows(document_store: DocumentDatabase, tmp_path: Path) -> None:
    """An empty database is captured: nothing is read, and what comes is streamed."""
    ours = connector(document_store, tmp_path)
    assert ours.capture().events == 0
    assert ours.capture().events == 0
    document_store.commit(
        ("c", "box.letters", {"_id": 1}), ("c", "attic.old", {"_id": 2}), ("c", "box.letters", {"_id": 3})
    )
    found = capture_records(ours)
    assert [(r["topic"], r["key"]["id"]) for r in found] == [
        ("test.box.letters", "1"),
        ("test.attic.old", "2"),
        ("test.box.letters", "3"),
    ]
    assert [str(t.id) for t in ours.store.load_schemas(ours.name).changes[0].changes] == ["box.letters"]
    assert ours.capture().events == 0


def test_no_history_is_needed(document_store: DocumentDatabase, tmp_path: Path) -> None:
    """Going back over what came and went is no question of structures, and snapshot.mode=recovery has nothing to recover."""
    ours = connector(document_store, tmp_path)
    document_store.commit(("c", "box.letters", {"_id": 1}))
    ours.capture()
    document_store.commit(("c", "box.notes", {"_id": 1}))
    document_store.commit(("drop", "box.notes"))
    ours.capture()
    with open_source(ours.definition()) as source:
        history = ours.store.schema_history(ours.name)
        plan = OffsetPlanner(ours.name, ours.store.load_offset(ours.name), source, (), history).plan_move(
            ShelfPosition(1)
        )
    assert (plan.effect, plan.problems) == (OffsetEffect.REPEAT, ())
    document_store.commit(("c", "box.letters", {"_id": 2}))
    assert ours.capture({"snapshot.mode": "recovery"}).topics == {"test.box.letters": 1}


def test_a_column_beside_the_images_that_the_schema_does_not_have_is_an_error() -> None:
    rows = read(folder_id("box.letters"), [{"_id": 1}], 0)
    assert beside_of(rows, rows.table)["whatChanged"].null_count == 1
    for wrong in ({"other": pa.array(["x"])}, {"whatChanged": pa.array(["x"])}):
        rows.beside = wrong
        with pytest.raises(ValueError, match=r"box\.letters has no column (other|whatChanged) of 1 times string"):
            beside_of(rows, rows.table)


def test_a_table_that_was_dropped_and_has_rows_again_begins_empty(
    document_store: DocumentDatabase, tmp_path: Path
) -> None:
    ours = connector(document_store, tmp_path)
    document_store.commit(("c", "box.letters", {"_id": 1}), ("c", "box.notes", {"_id": 1}))
    ours.capture()
    document_store.commit(("drop", "box.letters"))
    document_store.commit(("c", "box.letters", {"_id": 2}))
    assert [r["value"]["op"] for r in capture_records(ours)] == ["t", "c"]
    assert (captured_sheets(ours, "box.letters"), captured_sheets(ours, "box.notes")) == ([{"_id": 2}], [{"_id": 1}])
    assert all(r["topic"] != "test" for r in records(ours))  # there are no statements


def test_lists_have_the_names_of_the_source(document_store: DocumentDatabase, tmp_path: Path) -> None:
    ours = connector(document_store, tmp_path, folder_include_list=r"box\..*")
    document_store.commit(("c", "box.letters", {"_id": 1}), ("c", "attic.old", {"_id": 2}))
    assert [r["topic"] for r in capture_records(ours)] == ["test.box.letters"]
    wider = {"folder.include.list": r"(box|attic)\..*"}
    assert ours.capture(wider).topics == {"test.attic.old": 1}
    with pytest.raises(
        ConfigError, match=r"table\.include\.list: unknown property; did you mean folder\.include\.list"
    ):
        ours.capture({"table.include.list": "x"})
    with pytest.raises(ConfigError, match=r"column\.mask\.with\.3\.chars: unknown property"):
        ours.capture({"column.mask.with.3.chars": "x"})


@pytest.mark.parametrize("written", [False, True], ids=["read watermarks", "written watermarks"])
def test_chunks_are_in_the_order_of_the_source(document_store: DocumentDatabase, tmp_path: Path, written: bool) -> None:
    """Keys of chunks are what only the source understands; numbers come before texts in this database, and 10 after 9."""
    ours = connector(
        document_store, tmp_path, snapshot_mode="no_data", incremental_snapshot_chunk_size=3, folder_include_list=r"box\.letters",
        **({"signal_data_collection": "box.signals"} if written else {}),
    )  # fmt: skip
    ids = [*range(8, 16), "b", "a", "10"]
    document_store.commit(
        *[("c", "box.letters", {"_id": id_, "kind": "odd" if id_ in (9, "a") else "even"}) for id_ in ids]
    )
    document_store.commit(("c", "box.signals", {"_id": "first"}))
    ours.capture()
    data = {"data-collections": ["box.letters"]}
    if written:  # a document, with a document in it
        document_store.commit(("c", "box.signals", {"_id": "now", "type": "execute-snapshot", "data": data}))
    else:
        ours.store.send(ours.name, SentSignal("now", "execute-snapshot", json.dumps(data), "airflow", "x"))
    found = capture_records(ours) or capture_records(ours)  # a signal that ends the log is carried out by the next run
    assert [json.loads(r["key"]["id"]) for r in found] == [*range(8, 16), "10", "a", "b"]
    assert {r["value"]["source"]["snapshot"] for r in found} == {"incremental"}
    assert {r["topic"] for r in found} == {"test.box.letters"}
    document_store.commit(("u", "box.letters", 9, {"kind": "even"}))
    ours.capture()
    assert captured_sheets(ours, "box.letters") == source_sheets(document_store, "box.letters")


def test_ranges_of_keys_are_in_the_order_of_the_source(document_store: DocumentDatabase, tmp_path: Path) -> None:
    """Keys are given as events have them; a key that has no document becomes a delete."""
    ours = connector(document_store, tmp_path, snapshot_mode="no_data", incremental_snapshot_chunk_size=2)
    ours.replay.partial = True
    document_store.commit(*[("c", "box.letters", {"_id": id_}) for id_ in [*range(8, 16), "b", "a", "10"]])
    ours.capture()
    ranges = [
        {"data-collection": "box.letters", "from": {"_id": "14"}, "to": {"_id": '"a"'}, "absent": [{"_id": '"0"'}]},
        {"data-collection": "box.letters", "from": {"_id": "9"}, "to": {"_id": "10"}, "absent": [{"_id": "9"}]},
    ]
    data = {"data-collections": ["box.letters"], "key-ranges": ranges}
    ours.store.send(ours.name, SentSignal("now", "execute-snapshot", json.dumps(data), "airflow", "x"))
    found = [(r["value"]["op"], json.loads(r["key"]["id"])) for r in capture_records(ours) if r["value"]]
    assert [id_ for op, id_ in found if op == "d"] == ["0"]
    assert list(dict.fromkeys(id_ for op, id_ in found if op == "r")) == [14, 15, "10", "a", 9, 10]


@pytest.mark.parametrize("kind", ["incremental", "blocking"])
def test_conditions_are_documents(document_store: DocumentDatabase, tmp_path: Path, kind: str) -> None:
    ours = connector(document_store, tmp_path, snapshot_mode="no_data")
    document_store.commit(*[("c", "box.letters", {"_id": n, "kind": "odd" if n % 2 else "even"}) for n in range(6)])
    ours.capture()
    condition = [{"data-collection": "box.letters", "filter": {"kind": "odd"}}]
    data = {"data-collections": ["box.letters"], "type": kind, "additional-conditions": condition}
    ours.store.send(ours.name, SentSignal("now", "execute-snapshot", json.dumps(data), "airflow", "x"))
    assert [r["key"]["id"] for r in capture_records(ours) if r["value"]["op"] == "r"] == ["1", "3", "5"]
    assert {json.dumps(json.loads(asked)) for asked in document_store.asked} == {'{"kind": "odd"}'}


def test_events_that_come_meanwhile_supersede_the_rows_of_a_chunk(
    document_store: DocumentDatabase, tmp_path: Path
) -> None:
    ours = connector(document_store, tmp_path, snapshot_mode="no_data", incremental_snapshot_chunk_size=4)
    document_store.commit(*[("c", "box.letters", {"_id": n, "v": 0}) for n in range(12)])
    ours.capture()
    random, left = Random(5), [6]
    ours.replay.partial = True  # no_data: events are about rows that no batch has

    def write_until_done() -> None:
        if left[0]:
            left[0] -= 1
            document_store.commit(
                *[("u", "box.letters", random.randrange(12), {"v": random.random()}) for _ in range(3)]
            )

    document_store.on_read = write_until_done
    data = json.dumps({"data-collections": ["box.letters"]})
    ours.store.send(ours.name, SentSignal("now", "execute-snapshot", data, "airflow", "x"))
    ours.capture()
    ours.capture()
    assert left[0] < 6
    assert captured_sheets(ours, "box.letters") == source_sheets(document_store, "box.letters")
    assert of_table(records(ours), "letters")
