"""Requirements of every source: rows of the snapshot and of the log, in their order, in whole transactions."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.sources.suite.adapter import INT, TEXT, Adapter, UndoTransaction
from tests.sources.suite.common import (
    Suite,
    equal,
    events,
    open_blocks,
    start_connector,
)
from tests.support.change_log.log_consistency import consistent
from tests.support.workloads.small_tables import operations


class Rows(Suite):
    """Inserts, updates, deletes and transactions."""

    def test_values_that_the_log_leaves_out_stay_as_they_were(self, db: Adapter, tmp_path: Path) -> None:
        if not db.create_sparse("t", {"id": INT, "n": INT, "big": TEXT}, ("id",), ("big",)):
            pytest.skip("this database logs all values")
        with db.transaction() as t:
            t.insert("t", *({"id": i, "n": i, "big": f"long {i}"} for i in range(1, 6)))
        connector = db.connector(tmp_path)
        connector.capture()
        with db.transaction() as t:
            t.insert("t", {"id": 6, "n": 6, "big": "long 6"})
            t.update("t", {"id": 1}, {"n": 10})
            t.update("t", {"id": 2}, {"big": None})
            t.update("t", {"id": 2}, {"n": 20})
            t.update("t", {"id": 3}, {"id": 30})
            t.update("t", {"id": 30}, {"n": 30})
            t.delete("t", {"id": 4})
            t.update("t", {"id": 6}, {"n": 60})
        found = events(connector, connector.capture())
        equal(connector, db, "t")
        lists = [(e["op"], e["unavailable"], e["unavailable_before"]) for e in found]
        big = ["big"]
        assert lists == [
            ("c", None, None), ("u", big, big), ("u", None, big), ("u", big, big), ("d", big, None), ("c", big, None),
            ("u", big, big), ("d", big, None), ("u", big, big),
        ]  # fmt: skip

    def test_snapshot_then_stream(self, filled_adapter: Adapter, tmp_path: Path) -> None:
        connector = filled_adapter.connector(tmp_path)
        assert operations(connector, connector.capture()) == {"a": {"r": 5}, "b": {"r": 5}, "bag": {"r": 3}}
        equal(connector, filled_adapter)
        with filled_adapter.transaction() as t:
            t.insert("a", {"id": 10, "n": None, "note": "new"})
            t.update("a", {"id": 1}, {"note": None})
            t.delete("b", {"id": 2})
        assert operations(connector, connector.capture()) == {"a": {"c": 1, "u": 1}, "b": {"d": 1}}
        equal(connector, filled_adapter)
        assert connector.capture().events == 0
        consistent(connector)

    def test_key_changes_and_swaps(self, filled_adapter: Adapter, tmp_path: Path) -> None:
        connector = start_connector(filled_adapter, tmp_path)
        with filled_adapter.transaction() as t:
            t.update("a", {"id": 1}, {"id": 100})
            for old, new in ((2, -1), (3, 2), (-1, 3)):
                t.update("a", {"id": old}, {"id": new})
        with filled_adapter.transaction() as t:
            t.delete("b", {"id": 1})
            t.insert("b", {"id": 1, "n": 5, "note": "again"})
        assert operations(connector, connector.capture()) == {"a": {"d": 4, "c": 4}, "b": {"d": 1, "c": 1}}
        equal(connector, filled_adapter)

    def test_keys_that_one_statement_moves_over_each_other(self, filled_adapter: Adapter, tmp_path: Path) -> None:
        connector = start_connector(filled_adapter, tmp_path)
        if not filled_adapter.moves_keys("a", 1):
            pytest.skip("this database makes sure of the key of each row by itself")
        assert operations(connector, connector.capture()) == {"a": {"d": 5, "c": 5}}
        equal(connector, filled_adapter)
        filled_adapter.moves_keys("a", -1)
        connector.capture()
        equal(connector, filled_adapter)

    def test_rows_that_are_equal_in_everything(self, filled_adapter: Adapter, tmp_path: Path) -> None:
        connector = start_connector(filled_adapter, tmp_path)
        with filled_adapter.transaction() as t:
            t.insert("bag", {"n": 1, "note": "x"}, {"n": 7, "note": None})
            t.update("bag", {"n": 7}, {"n": 8})
            t.delete("bag", {"n": 1})
        connector.capture()
        equal(connector, filled_adapter)
        assert len(filled_adapter.rows("bag")) == 2

    def test_a_transaction_over_several_tables_keeps_its_order(self, filled_adapter: Adapter, tmp_path: Path) -> None:
        connector = start_connector(filled_adapter, tmp_path, provide_transaction_metadata=True)
        with filled_adapter.transaction() as t:
            for i in range(50, 55):
                t.insert("a", {"id": i})
                t.insert("b", {"id": i})
                t.update("a", {"id": i}, {"n": 1})
        with filled_adapter.transaction() as t:
            t.insert("bag", {"n": 3})
        result = connector.capture()
        found = events(connector, result)
        assert [(e["table"], e["op"]) for e in found] == [("a", "c"), ("b", "c"), ("a", "u")] * 5 + [("bag", "c")]
        assert [e["transaction"]["total_order"] for e in found] == [*range(1, 16), 1]
        assert [e["transaction"]["data_collection_order"] for e in found if e["table"] == "b"] == list(range(1, 6))
        assert len({e["transaction"]["id"] for e in found}) == 2
        equal(connector, filled_adapter)

    def test_what_is_rolled_back_is_not_captured(self, filled_adapter: Adapter, tmp_path: Path) -> None:
        connector = start_connector(filled_adapter, tmp_path)
        with filled_adapter.transaction() as t:
            t.insert("a", {"id": 70})
            t.delete("b", {"id": 1})
            raise UndoTransaction
        with filled_adapter.transaction() as t:
            t.insert("a", {"id": 71})
        assert operations(connector, connector.capture()) == {"a": {"c": 1}}
        equal(connector, filled_adapter)

    def test_a_transaction_larger_than_a_block(self, filled_adapter: Adapter, tmp_path: Path) -> None:
        with filled_adapter.small_blocks() as properties:
            connector = start_connector(
                filled_adapter, tmp_path, provide_transaction_metadata=True, batch_max_rows=100, **properties
            )
            with filled_adapter.transaction() as t:
                for lo in range(1000, 4000, 100):
                    t.insert("a", *({"id": i, "n": i, "note": "x" * 30} for i in range(lo, lo + 100)))
                t.insert("b", {"id": 1000})
            seen = open_blocks(connector, filled_adapter)
            assert sum(seen[:-1]) > 0, "no block was open: the test does not test what it says"
            result = connector.capture()
        assert operations(connector, result) == {"a": {"c": 3000}, "b": {"c": 1}}
        assert [e["transaction"]["total_order"] for e in events(connector, result)] == list(range(1, 3002))
        equal(connector, filled_adapter)

    def test_an_empty_table_and_an_empty_transaction(self, db: Adapter, tmp_path: Path) -> None:
        db.create("bare", {"id": INT, "note": TEXT}, key=("id",))
        connector = start_connector(db, tmp_path)
        assert connector.rows(f"{db.namespace}.bare") == []
        with db.transaction():
            pass
        assert connector.capture().events == 0
        with db.transaction() as t:
            t.insert("bare", {"id": 1, "note": ""})
        assert operations(connector, connector.capture()) == {"bare": {"c": 1}}
        equal(connector, db)
