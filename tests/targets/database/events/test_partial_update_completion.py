"""Documents in tables of a database: a column for the key, one for the document."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest
import sqlalchemy as sa

from tests.support.connectors import Connector
from tests.support.sources.document_store import DocumentDatabase, register_document_source
from tests.targets.database.apply.test_database_apply import rows, sink
from tests.targets.database.verify.test_verify_database import only, verified

NAMED = {"collection__name__format": "${source.table}"}


@pytest.fixture(autouse=True)
def _document_kind() -> Iterator[None]:
    with register_document_source():
        yield


@pytest.fixture
def engine(tmp_path: Path) -> sa.Engine:
    return sa.create_engine(f"sqlite:///{tmp_path}/target.db")


def write_transaction(shelf: DocumentDatabase, r: Random) -> None:
    """A transaction with all kinds of changes; ids are numbers, and the same as texts."""
    there = {sheet["_id"] for sheet in shelf.sheets("box.letters", shelf.end)}
    changes = []
    for _ in range(r.randrange(1, 6)):
        id_ = r.choice([int, str])(r.randrange(8))
        value = r.choice([None, 1.5, "ä'\"${x}", [1, {"a": []}], {"$odd.name": {"deep": True}}])
        if id_ not in there:
            changes.append(("c", "box.letters", {"_id": id_, "v": value}))
            there.add(id_)
        elif r.random() < 0.7:
            changes.append(("u", "box.letters", id_, {r.choice("vw"): value}))
        else:
            changes.append(("d", "box.letters", id_))
            there.remove(id_)
    shelf.commit(*changes)


def test_random_work_ends_in_equal_tables_which_can_be_compared(engine: sa.Engine, tmp_path: Path) -> None:
    r, shelf = Random(7), DocumentDatabase(str(tmp_path))
    ours = Connector(tmp_path, "shelf", {"shelf": shelf.name, "poll.interval.ms": 10, "topic.prefix": "p"})
    for step in range(6):
        for _ in range(5):
            write_transaction(shelf, r)
        if step == 3:
            shelf.commit(("drop", "box.letters"))
            write_transaction(shelf, r)
        ours.capture()
        sink(engine, ours, **NAMED).apply()
    found = {row["_id"]: json.loads(row["sheet"]) for row in rows(engine, "letters")}
    assert found == {json.dumps(s["_id"]): s for s in shelf.sheets("box.letters", shelf.end)}
    compared = only(verified(engine, ours, **NAMED))
    assert (compared.source, compared.target, compared.different) == (len(found), len(found), 0)
    with engine.begin() as c:
        c.exec_driver_sql("UPDATE letters SET sheet = '{}' WHERE _id = (SELECT min(_id) FROM letters)")
    compared = only(verified(engine, ours, **NAMED))
    assert (compared.missing, compared.surplus, compared.different) == (0, 0, 1)
