"""Requirements of every source when tables change: each row is decoded as its table was, and read again where the log does not say how it is."""

from __future__ import annotations

import contextlib
import json
import re
from collections import Counter
from pathlib import Path
from random import Random

import pytest

from airflow_provider_cdc.core.capture.log_streaming import Streaming
from airflow_provider_cdc.core.model.position import Position
from tests.sources.suite.adapter import INT, LONG, TEXT, Adapter
from tests.sources.suite.common import (
    CHUNKS,
    RunKilled,
    Suite,
    dies_at_commit,
    equal,
    start_connector,
)
from tests.support.change_log.log_consistency import consistent
from tests.support.connectors import Connector
from tests.support.signals import send, signal_state, snapshot
from tests.support.sources.rewrite_journal import RewriteStory, RowJournal, cases, compare
from tests.support.workloads.small_tables import operations


def _ask_for(story: RewriteStory, connector: Connector, db: Adapter, random: Random, number: int) -> None:
    """Ask for a snapshot of a table of a story, by a row of the log or beside it."""
    table = random.choice(sorted(t for t in story.tables if not t.startswith("out_")) or [f"{story.prefix}a"])
    data = {"data-collections": [f"{db.namespace}.{table}"], "type": random.choice(("blocking", "incremental"))}
    if random.random() < 0.5:
        db.insert_signal(f"ask-{number}", "execute-snapshot", json.dumps(data))
    else:
        send(connector, "execute-snapshot", data, id_=f"ask-{number}")


class Structure(Suite):
    """Columns and tables that come, go, and change."""

    def test_columns_added_and_dropped(self, filled_adapter: Adapter, tmp_path: Path) -> None:
        connector = start_connector(filled_adapter, tmp_path)
        filled_adapter.add_column("a", "more", INT, 7)
        filled_adapter.add_column("a", "late", TEXT)
        with filled_adapter.transaction() as t:
            t.insert("a", {"id": 10, "more": 1, "late": "x"})
        filled_adapter.drop_column("a", "note")
        with filled_adapter.transaction() as t:
            t.update("a", {"id": 1}, {"more": 2})
        assert operations(connector, connector.capture()) == {"a": {"c": 1, "u": 1}}
        equal(connector, filled_adapter)

    def test_a_column_renamed_and_widened(self, filled_adapter: Adapter, tmp_path: Path) -> None:
        connector = start_connector(filled_adapter, tmp_path)
        filled_adapter.rename_column("a", "n", "amount", INT)
        with filled_adapter.transaction() as t:
            t.update("a", {"id": 1}, {"amount": 5})
        filled_adapter.change_column("a", "amount", LONG)
        with filled_adapter.transaction() as t:
            t.update("a", {"id": 2}, {"amount": 2**40})
        assert operations(connector, connector.capture()) == {"a": {"u": 2}}
        equal(connector, filled_adapter)

    def test_a_column_of_another_kind_has_its_table_read_again(self, filled_adapter: Adapter, tmp_path: Path) -> None:
        connector = start_connector(filled_adapter, tmp_path)
        with filled_adapter.transaction() as t:
            t.insert("a", {"id": 20, "n": 1})
        filled_adapter.change_column("a", "n", TEXT)
        with filled_adapter.transaction() as t:
            t.insert("a", {"id": 21, "n": "one"})
            t.insert("b", {"id": 21})
        assert operations(connector, connector.capture()) == {"a": {"c": 2, "t": 1, "r": 7}, "b": {"c": 1}}
        equal(connector, filled_adapter)
        with filled_adapter.transaction() as t:
            t.update("a", {"id": 21}, {"n": "two"})
        assert operations(connector, connector.capture()) == {"a": {"u": 1}}
        equal(connector, filled_adapter)

    @pytest.mark.parametrize("view", ["before the run", "before the view"])
    def test_a_part_of_a_table_that_was_asked_for_is_all_of_it_where_its_rows_are_rewritten(
        self, filled_adapter: Adapter, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, view: str
    ) -> None:
        """The request is taken before the statement is come to in the log."""
        connector = start_connector(filled_adapter, tmp_path)
        select = {
            "data-collection": f"{filled_adapter.namespace}.a",
            "filter": filled_adapter.select("a", filled_adapter.condition("id", "<", 3)),
        }
        number = snapshot(connector, f"{filled_adapter.namespace}.a", type="blocking", additional_conditions=[select])
        todo = [lambda: filled_adapter.change_column("a", "n", TEXT)]
        if view == "before the run":
            todo.pop()()
        catch_up = Streaming.catch_up

        def caught_up(streaming: Streaming, end: Position) -> None:
            catch_up(streaming, end)
            if todo:
                todo.pop()()

        monkeypatch.setattr(Streaming, "catch_up", caught_up)
        connector.capture()
        assert todo == []
        equal(connector, filled_adapter, "a")
        assert signal_state(connector, number)[0] == "done"

    def test_a_request_that_fails_does_not_keep_a_rewritten_table_from_being_read_again(
        self, filled_adapter: Adapter, tmp_path: Path
    ) -> None:
        connector = start_connector(filled_adapter, tmp_path)
        names = [f"{filled_adapter.namespace}.{table}" for table in ("a", "b")]
        bad = {"data-collection": names[1], "filter": "this is <> not SQL"}
        number = snapshot(connector, *names, type="blocking", additional_conditions=[bad])
        filled_adapter.change_column("a", "n", TEXT)
        connector.capture()
        equal(connector, filled_adapter, "a", "b")
        assert signal_state(connector, number)[0] == "failed"

    def test_what_happens_before_a_table_is_read_again_is_captured(
        self, db: Adapter, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        """Row events and statements, each once and under the structure of its place; the read follows where it was made. Snapshots of
        the tables of every other story are asked for meanwhile, and some of the runs in between die."""
        random, journal = Random(7), RowJournal()
        reported = cases([*(["kind"] if db.changes_kinds else []), *db.rewrites()], random, each=2, longer=self.STORIES)
        stories = [RewriteStory(db, journal, f"s{n}_", random) for n in range(len(reported))]
        listed = {"table_include_list": rf"{re.escape(db.namespace)}\.s\d+_.*", "batch_max_rows": 50}
        connector = db.connector(tmp_path, **listed, signal_data_collection=db.signals(), **CHUNKS)
        first = connector.capture().batches[-1]
        start = connector.store.load_offset("test").offset.position
        going = dict(enumerate(story.tell(*case) for story, case in zip(stories, reported, strict=True)))
        requested = 0
        while going:
            for n in random.sample(sorted(going), random.randint(1, len(going))):
                if next(going[n], self) is self:
                    del going[n]
                if n % 2 and random.random() < 0.4:
                    _ask_for(random.choice(stories[1::2]), connector, db, random, requested)
                    requested += 1
            with monkeypatch.context() as patch:
                dies_at_commit(patch, random.randint(1, 12))
                with contextlib.suppress(RunKilled):
                    connector.capture()
        connector.capture()
        compare(connector, journal, first)
        self.second_opinion(connector, db, start, connector.store.load_offset("test").offset.position)
        equal(connector, db, *(t for story in stories for t in story.tables if not t.startswith("out_")))
        consistent(connector)
        states = Counter(s.state for s in connector.store.signals_of("test", limit=1000))
        assert states.total() == requested
        assert set(states) <= {"done", "refused", "failed"}
        assert states["done"] > requested // 2
        with capsys.disabled():
            events = sum(map(len, journal.events.values()))
            print(
                f" [{len(reported)} cases, {events} events, {len(journal.changes)} statements, {dict(states)}]", end=""
            )

    def test_a_table_emptied(self, filled_adapter: Adapter, tmp_path: Path) -> None:
        connector = start_connector(filled_adapter, tmp_path)
        with filled_adapter.transaction() as t:
            t.insert("a", {"id": 20})
        filled_adapter.truncate("a")
        filled_adapter.truncate("bag")
        with filled_adapter.transaction() as t:
            t.insert("a", {"id": 1})
        assert operations(connector, connector.capture()) == {"a": {"c": 2, "t": 1}, "bag": {"t": 1}}
        equal(connector, filled_adapter)

    def test_tables_created_renamed_dropped_and_created_again(self, filled_adapter: Adapter, tmp_path: Path) -> None:
        connector = start_connector(filled_adapter, tmp_path)
        filled_adapter.create("new", {"id": INT, "note": TEXT}, key=("id",))
        with filled_adapter.transaction() as t:
            t.insert("new", {"id": 1, "note": "x"})
        filled_adapter.rename_table("b", "c")
        with filled_adapter.transaction() as t:
            t.insert("c", {"id": 30})
        filled_adapter.drop_table("a")
        filled_adapter.create("a", {"other": TEXT, "id": LONG}, key=("id",))
        with filled_adapter.transaction() as t:
            t.insert("a", {"id": 1, "other": "y"})
        connector.capture()
        equal(connector, filled_adapter, "new", "a", "c", "bag")
        consistent(connector)
