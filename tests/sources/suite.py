"""What every source must do, once for all of them.

A new source gets these tests by an adapter, which says how its database is written to, and a module of this form:

    class TestMemory(SourceSuite):
        @pytest.fixture
        def db(self) -> Adapter:
            return MemoryAdapter()
"""

from __future__ import annotations

import abc
import contextlib
import itertools
import json
import re
import shlex
import shutil
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from random import Random
from typing import Any, ClassVar

import pyarrow.parquet as pq
import pytest

from airflow_provider_cdc.core.config import ConnectorConfig
from airflow_provider_cdc.core.config_base import COLUMN_TEXTS, Decides
from airflow_provider_cdc.core.connector import CaptureResult
from airflow_provider_cdc.core.errors import PositionLost, PrerequisiteError
from airflow_provider_cdc.core.events import LogBlock, LogItem
from airflow_provider_cdc.core.filters import Filters
from airflow_provider_cdc.core.gap import find_gap
from airflow_provider_cdc.core.position import Position
from airflow_provider_cdc.core.schema import TableId
from airflow_provider_cdc.core.schema_history import CapturedTables, SchemaHistory
from airflow_provider_cdc.core.source import Source
from airflow_provider_cdc.core.streaming import Streaming
from airflow_provider_cdc.runtime import open_source
from airflow_provider_cdc.sources import load_source
from airflow_provider_cdc.state.store import StateStore
from tests.support.asked import fate, send, snapshot
from tests.support.connectors import Connector
from tests.support.large import capture_apart
from tests.support.leftovers import consistent
from tests.support.shop import operations
from tests.support.story import Journal, Story, Table, cases, compare

Row = dict[str, Any]
INT, LONG, TEXT = "int", "long", "text"
"""What columns are in these tests: 32 bits, 64 bits, and text of up to 200 characters."""


class Changes(abc.ABC):
    """An open transaction."""

    @abc.abstractmethod
    def insert(self, table: str, *rows: Row) -> None: ...

    @abc.abstractmethod
    def update(self, table: str, where: Row, values: Row) -> None: ...

    @abc.abstractmethod
    def delete(self, table: str, where: Row) -> None: ...


class Undo(Exception):
    """Raised inside a transaction, it rolls the transaction back and goes no further."""


class Adapter(abc.ABC):
    """A new, empty namespace (database, schema) for one test. Table names are without the namespace.

    :cvar kind: as connector definitions spell it
    :cvar changes_kinds: one statement makes a column of ``INT`` one of ``TEXT``
    :cvar snapshot_only_changes: statements after which a table has to be read again: ``rename_table`` and ``change_column``
    """

    kind: ClassVar[str]
    changes_kinds = True
    namespace: str

    @abc.abstractmethod
    def create(self, table: str, columns: Mapping[str, str], key: tuple[str, ...] = ()) -> None:
        """Create a table; columns of the key are not nullable."""

    @abc.abstractmethod
    def transaction(self) -> AbstractContextManager[Changes]:
        """Changes that are committed together; :class:`Undo` rolls them back."""

    @abc.abstractmethod
    def rows(self, table: str) -> list[Row]:
        """All rows, sorted by their ``repr``."""

    @abc.abstractmethod
    def add_column(self, table: str, name: str, kind: str, value: Any = None) -> None:
        """Existing rows get ``value``."""

    @abc.abstractmethod
    def drop_column(self, table: str, name: str) -> None: ...

    @abc.abstractmethod
    def rename_column(self, table: str, old: str, new: str, kind: str) -> None: ...

    @abc.abstractmethod
    def change_column(self, table: str, name: str, kind: str) -> None:
        """From ``INT`` to another kind."""

    @abc.abstractmethod
    def rename_table(self, old: str, new: str) -> None: ...

    def swap_tables(self, a: str, b: str) -> bool:
        """Let two tables exchange their names in one statement; ``False``: the database cannot."""
        return False

    def rewrites(self) -> dict[str, Callable[[str, Table, str], str]]:
        """Statements of this database after which rows have to be read again, besides :meth:`change_column`.

        Each is called with the table's name, its columns and rows, which it keeps true, and a name that nothing has. Gives what the
        table is called then.
        """
        return {}

    def create_like(self, table: str, other: str) -> bool:
        """Create a table with the columns of another one; ``False``: the database cannot."""
        return False

    @abc.abstractmethod
    def drop_table(self, table: str) -> None: ...

    @abc.abstractmethod
    def truncate(self, table: str) -> None: ...

    @abc.abstractmethod
    def connector(self, folder: Path, **properties: Any) -> Connector:
        """A connector that captures this namespace only, unless the properties say otherwise."""

    @abc.abstractmethod
    def other(self) -> Adapter:
        """Another namespace of the same database."""

    @abc.abstractmethod
    def purge(self) -> None:
        """Let the database forget its log up to now."""

    @abc.abstractmethod
    def small_blocks(self) -> AbstractContextManager[dict[str, Any]]:
        """While this is open, 3000 rows are more than a log block holds; gives properties for the connector."""

    @contextlib.contextmanager
    def small_fetches(self) -> Iterator[dict[str, Any]]:
        """While this is open, a reader of chunks takes in a few rows at a time; gives properties for the connector."""
        yield {}

    def create_sparse(
        self, table: str, columns: Mapping[str, str], key: tuple[str, ...], sparse: tuple[str, ...]
    ) -> bool:
        """Create a table whose log has the values of some ``TEXT`` columns only where a statement sets them.

        ``False``: this database logs all values.
        """
        return False

    sparse: ClassVar[Row] = {}
    """Properties with which values of such columns are captured where the log has them."""

    def signals(self) -> str:
        """Create a signal table that the connector may write to; gives ``signal.data.collection``."""
        raise NotImplementedError

    def collection(self, table: str) -> str:
        """A table's name, as ``signal.data.collection`` has it."""
        return f"{self.namespace}.{table}"

    def insert_signal(self, id_: str, type_: str, data: str) -> None:
        """A row of the signal table."""
        with self.transaction() as t:
            t.insert("signals", {"id": id_, "type": type_, "data": data})

    def condition(self, column: str, operator: str, value: int) -> str:
        """A condition in the database's SQL."""
        return f"{column} {operator} {value}"

    def select(self, table: str, condition: str) -> str:
        """A statement that gives the rows of a table that fulfil a condition."""
        return f"SELECT * FROM {self.namespace}.{table} WHERE {condition}"

    def narrowed(self, name: str, tables: str) -> tuple[Row, Row]:
        """Properties under which one that decides what of tables is captured leaves something out, and under which it does not.

        :param tables: pattern of the tables
        """
        a = self.collection("a").replace('"', "")
        return {
            "snapshot.include.collection.list": ({name: rf"{self.namespace}\.a"}, {name: ""}),
            "column.include.list": ({name: rf"{tables}\.(id|n)"}, {name: ""}),
            "column.exclude.list": ({name: rf"{tables}\.note"}, {name: ""}),
            COLUMN_TEXTS: (
                {"column.mask.with.2.chars": rf"{tables}\.note"}, {"column.mask.with.2.chars": None}
            ),
            "skipped.operations": ({name: "d"}, {name: "none"}),
            "snapshot.select.statement.overrides": (
                {name: a, f"{name}.{a}": self.select("a", self.condition("id", ">", 3))}, {name: None, f"{name}.{a}": None}
            ),
        }[name]  # fmt: skip

    def spoil(self) -> AbstractContextManager[str] | None:
        """Break a prerequisite and mend it at the end; gives what the finding's fix must name. ``None``: there is none."""
        return None

    def id(self, table: str) -> TableId:
        return TableId(namespace=self.namespace, name=table)


class Dies(BaseException):
    """The end of a run that is killed."""


def dies_at_commit(patch: pytest.MonkeyPatch, at: int) -> None:
    """Have the next run die at its n-th commit: at every other one, when its manifest is there and its offset is not."""
    commit, left = StateStore.commit, itertools.count(1)

    def dies(self: StateStore, *args: Any, **options: Any) -> Any:
        n = next(left)
        if n >= at and at % 2:
            raise Dies
        result = commit(self, *args, **options)
        if n >= at:
            raise Dies
        return result

    patch.setattr(StateStore, "commit", dies)


CHUNKS = {"incremental_snapshot_chunk_size": 3, "signal_poll_interval_ms": 50}


def _ask_for(story: Story, connector: Connector, db: Adapter, random: Random, number: int) -> None:
    """Ask for a snapshot of a table of a story, by a row of the log or beside it."""
    table = random.choice(sorted(t for t in story.tables if not t.startswith("out_")) or [f"{story.prefix}a"])
    data = {"data-collections": [f"{db.namespace}.{table}"], "type": random.choice(("blocking", "incremental"))}
    if random.random() < 0.5:
        db.insert_signal(f"ask-{number}", "execute-snapshot", json.dumps(data))
    else:
        send(connector, "execute-snapshot", data, id_=f"ask-{number}")


class SourceSuite:
    """See the module. Subclasses give the fixture ``db``."""

    STORIES = 12
    """How many stories of several statements are told, besides those of one."""

    def second_opinion(self, connector: Connector, db: Adapter, start: Row, end: Row) -> None:
        """Compare the events of a stretch of the log with those of another reader, where there is one."""

    @pytest.fixture
    def ready(self, db: Adapter) -> Adapter:
        """Two tables with a key and one without, with a few rows."""
        for table in ("a", "b"):
            db.create(table, {"id": INT, "n": INT, "note": TEXT}, key=("id",))
        db.create("bag", {"n": INT, "note": TEXT})
        with db.transaction() as t:
            for table in ("a", "b"):
                t.insert(table, *({"id": i, "n": i * 10, "note": f"ä{i}"} for i in range(1, 6)))
            t.insert("bag", {"n": 1, "note": "x"}, {"n": 1, "note": "x"}, {"n": None, "note": None})
        return db

    # -- rows ---------------------------------------------------------------------------------------------------------

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

    def test_snapshot_then_stream(self, ready: Adapter, tmp_path: Path) -> None:
        connector = ready.connector(tmp_path)
        assert operations(connector, connector.capture()) == {"a": {"r": 5}, "b": {"r": 5}, "bag": {"r": 3}}
        equal(connector, ready)
        with ready.transaction() as t:
            t.insert("a", {"id": 10, "n": None, "note": "new"})
            t.update("a", {"id": 1}, {"note": None})
            t.delete("b", {"id": 2})
        assert operations(connector, connector.capture()) == {"a": {"c": 1, "u": 1}, "b": {"d": 1}}
        equal(connector, ready)
        assert connector.capture().events == 0
        consistent(connector)

    def test_key_changes_and_swaps(self, ready: Adapter, tmp_path: Path) -> None:
        connector = started(ready, tmp_path)
        with ready.transaction() as t:
            t.update("a", {"id": 1}, {"id": 100})
            for old, new in ((2, -1), (3, 2), (-1, 3)):
                t.update("a", {"id": old}, {"id": new})
        with ready.transaction() as t:
            t.delete("b", {"id": 1})
            t.insert("b", {"id": 1, "n": 5, "note": "again"})
        assert operations(connector, connector.capture()) == {"a": {"d": 4, "c": 4}, "b": {"d": 1, "c": 1}}
        equal(connector, ready)

    def test_rows_that_are_equal_in_everything(self, ready: Adapter, tmp_path: Path) -> None:
        connector = started(ready, tmp_path)
        with ready.transaction() as t:
            t.insert("bag", {"n": 1, "note": "x"}, {"n": 7, "note": None})
            t.update("bag", {"n": 7}, {"n": 8})
            t.delete("bag", {"n": 1})
        connector.capture()
        equal(connector, ready)
        assert len(ready.rows("bag")) == 2

    def test_a_transaction_over_several_tables_keeps_its_order(self, ready: Adapter, tmp_path: Path) -> None:
        connector = started(ready, tmp_path, provide_transaction_metadata=True)
        with ready.transaction() as t:
            for i in range(50, 55):
                t.insert("a", {"id": i})
                t.insert("b", {"id": i})
                t.update("a", {"id": i}, {"n": 1})
        with ready.transaction() as t:
            t.insert("bag", {"n": 3})
        result = connector.capture()
        found = events(connector, result)
        assert [(e["table"], e["op"]) for e in found] == [("a", "c"), ("b", "c"), ("a", "u")] * 5 + [("bag", "c")]
        assert [e["transaction"]["total_order"] for e in found] == [*range(1, 16), 1]
        assert [e["transaction"]["data_collection_order"] for e in found if e["table"] == "b"] == list(range(1, 6))
        assert len({e["transaction"]["id"] for e in found}) == 2
        equal(connector, ready)

    def test_what_is_rolled_back_is_not_captured(self, ready: Adapter, tmp_path: Path) -> None:
        connector = started(ready, tmp_path)
        with ready.transaction() as t:
            t.insert("a", {"id": 70})
            t.delete("b", {"id": 1})
            raise Undo
        with ready.transaction() as t:
            t.insert("a", {"id": 71})
        assert operations(connector, connector.capture()) == {"a": {"c": 1}}
        equal(connector, ready)

    def test_a_transaction_larger_than_a_block(self, ready: Adapter, tmp_path: Path) -> None:
        with ready.small_blocks() as properties:
            connector = started(ready, tmp_path, provide_transaction_metadata=True, batch_max_rows=100, **properties)
            with ready.transaction() as t:
                for lo in range(1000, 4000, 100):
                    t.insert("a", *({"id": i, "n": i, "note": "x" * 30} for i in range(lo, lo + 100)))
                t.insert("b", {"id": 1000})
            seen = _blocks(connector, ready)
            assert sum(seen[:-1]) > 0, "no block was open: the test does not test what it says"
            result = connector.capture()
        assert operations(connector, result) == {"a": {"c": 3000}, "b": {"c": 1}}
        assert [e["transaction"]["total_order"] for e in events(connector, result)] == list(range(1, 3002))
        equal(connector, ready)

    def test_an_empty_table_and_an_empty_transaction(self, db: Adapter, tmp_path: Path) -> None:
        db.create("bare", {"id": INT, "note": TEXT}, key=("id",))
        connector = started(db, tmp_path)
        assert connector.rows(f"{db.namespace}.bare") == []
        with db.transaction():
            pass
        assert connector.capture().events == 0
        with db.transaction() as t:
            t.insert("bare", {"id": 1, "note": ""})
        assert operations(connector, connector.capture()) == {"bare": {"c": 1}}
        equal(connector, db)

    # -- structure ----------------------------------------------------------------------------------------------------

    def test_columns_added_and_dropped(self, ready: Adapter, tmp_path: Path) -> None:
        connector = started(ready, tmp_path)
        ready.add_column("a", "more", INT, 7)
        ready.add_column("a", "late", TEXT)
        with ready.transaction() as t:
            t.insert("a", {"id": 10, "more": 1, "late": "x"})
        ready.drop_column("a", "note")
        with ready.transaction() as t:
            t.update("a", {"id": 1}, {"more": 2})
        assert operations(connector, connector.capture()) == {"a": {"c": 1, "u": 1}}
        equal(connector, ready)

    def test_a_column_renamed_and_widened(self, ready: Adapter, tmp_path: Path) -> None:
        connector = started(ready, tmp_path)
        ready.rename_column("a", "n", "amount", INT)
        with ready.transaction() as t:
            t.update("a", {"id": 1}, {"amount": 5})
        ready.change_column("a", "amount", LONG)
        with ready.transaction() as t:
            t.update("a", {"id": 2}, {"amount": 2**40})
        assert operations(connector, connector.capture()) == {"a": {"u": 2}}
        equal(connector, ready)

    def test_a_column_of_another_kind_has_its_table_read_again(self, ready: Adapter, tmp_path: Path) -> None:
        connector = started(ready, tmp_path)
        with ready.transaction() as t:
            t.insert("a", {"id": 20, "n": 1})
        ready.change_column("a", "n", TEXT)
        with ready.transaction() as t:
            t.insert("a", {"id": 21, "n": "one"})
            t.insert("b", {"id": 21})
        assert operations(connector, connector.capture()) == {"a": {"c": 2, "t": 1, "r": 7}, "b": {"c": 1}}
        equal(connector, ready)
        with ready.transaction() as t:
            t.update("a", {"id": 21}, {"n": "two"})
        assert operations(connector, connector.capture()) == {"a": {"u": 1}}
        equal(connector, ready)

    @pytest.mark.parametrize("view", ["before the run", "before the view"])
    def test_a_part_of_a_table_that_was_asked_for_is_all_of_it_where_its_rows_are_rewritten(
        self, ready: Adapter, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, view: str
    ) -> None:
        """The request is taken before the statement is come to in the log."""
        connector = started(ready, tmp_path)
        select = {
            "data-collection": f"{ready.namespace}.a",
            "filter": ready.select("a", ready.condition("id", "<", 3)),
        }
        number = snapshot(connector, f"{ready.namespace}.a", type="blocking", additional_conditions=[select])
        todo = [lambda: ready.change_column("a", "n", TEXT)]
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
        equal(connector, ready, "a")
        assert fate(connector, number)[0] == "done"

    def test_a_request_that_fails_does_not_keep_a_rewritten_table_from_being_read_again(
        self, ready: Adapter, tmp_path: Path
    ) -> None:
        connector = started(ready, tmp_path)
        names = [f"{ready.namespace}.{table}" for table in ("a", "b")]
        bad = {"data-collection": names[1], "filter": "this is <> not SQL"}
        number = snapshot(connector, *names, type="blocking", additional_conditions=[bad])
        ready.change_column("a", "n", TEXT)
        connector.capture()
        equal(connector, ready, "a", "b")
        assert fate(connector, number)[0] == "failed"

    def test_what_happens_before_a_table_is_read_again_is_captured(
        self, db: Adapter, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        """Row events and statements, each once and under the structure of its place; the read follows where it was made. Snapshots of
        the tables of every other story are asked for meanwhile, and some of the runs in between die."""
        random, journal = Random(7), Journal()
        told = cases([*(["kind"] if db.changes_kinds else []), *db.rewrites()], random, each=2, longer=self.STORIES)
        stories = [Story(db, journal, f"s{n}_", random) for n in range(len(told))]
        listed = {"table_include_list": rf"{re.escape(db.namespace)}\.s\d+_.*", "batch_max_rows": 50}
        connector = db.connector(tmp_path, **listed, signal_data_collection=db.signals(), **CHUNKS)
        first = connector.capture().batches[-1]
        start = connector.store.load("test").offset.position
        going = dict(enumerate(story.tell(*case) for story, case in zip(stories, told, strict=True)))
        asked = 0
        while going:
            for n in random.sample(sorted(going), random.randint(1, len(going))):
                if next(going[n], self) is self:
                    del going[n]
                if n % 2 and random.random() < 0.4:
                    _ask_for(random.choice(stories[1::2]), connector, db, random, asked)
                    asked += 1
            with monkeypatch.context() as patch:
                dies_at_commit(patch, random.randint(1, 12))
                with contextlib.suppress(Dies):
                    connector.capture()
        connector.capture()
        compare(connector, journal, first)
        self.second_opinion(connector, db, start, connector.store.load("test").offset.position)
        equal(connector, db, *(t for story in stories for t in story.tables if not t.startswith("out_")))
        consistent(connector)
        fates = Counter(s.fate for s in connector.store.signals_of("test", limit=1000))
        assert fates.total() == asked
        assert set(fates) <= {"done", "refused", "failed"}
        assert fates["done"] > asked // 2
        with capsys.disabled():
            events = sum(map(len, journal.events.values()))
            print(f" [{len(told)} cases, {events} events, {len(journal.changes)} statements, {dict(fates)}]", end="")

    def test_a_table_emptied(self, ready: Adapter, tmp_path: Path) -> None:
        connector = started(ready, tmp_path)
        with ready.transaction() as t:
            t.insert("a", {"id": 20})
        ready.truncate("a")
        ready.truncate("bag")
        with ready.transaction() as t:
            t.insert("a", {"id": 1})
        assert operations(connector, connector.capture()) == {"a": {"c": 2, "t": 1}, "bag": {"t": 1}}
        equal(connector, ready)

    def test_tables_created_renamed_dropped_and_created_again(self, ready: Adapter, tmp_path: Path) -> None:
        connector = started(ready, tmp_path)
        ready.create("new", {"id": INT, "note": TEXT}, key=("id",))
        with ready.transaction() as t:
            t.insert("new", {"id": 1, "note": "x"})
        ready.rename_table("b", "c")
        with ready.transaction() as t:
            t.insert("c", {"id": 30})
        ready.drop_table("a")
        ready.create("a", {"other": TEXT, "id": LONG}, key=("id",))
        with ready.transaction() as t:
            t.insert("a", {"id": 1, "other": "y"})
        connector.capture()
        equal(connector, ready, "new", "a", "c", "bag")
        consistent(connector)

    # -- filters ------------------------------------------------------------------------------------------------------

    def test_filters_by_table(self, ready: Adapter, tmp_path: Path) -> None:
        connector = started(ready, tmp_path, table_include_list=f"{ready.namespace}.a")
        with ready.transaction() as t:
            for table in ("a", "b", "bag"):
                t.insert(table, {"n": 1, **({} if table == "bag" else {"id": 40})})
        assert operations(connector, connector.capture()) == {"a": {"c": 1}}
        equal(connector, ready, "a")
        assert set(connector.replay.tables) == {f"test.{ready.namespace}.a"}

    def test_filters_by_namespace(self, ready: Adapter, tmp_path: Path) -> None:
        other = ready.other()
        other.create("a", {"id": INT}, key=("id",))
        connector = started(ready, tmp_path)
        with other.transaction() as t:
            t.insert("a", {"id": 1})
        other.add_column("a", "more", INT)
        other.truncate("a")
        assert connector.capture().events == 0
        assert not [t for t in connector.replay.advance().tables if other.namespace in t]
        assert [r for r in connector.store.schema_history("test") if r.database == other.namespace] == []

    def test_filters_by_column(self, ready: Adapter, tmp_path: Path) -> None:
        connector = started(ready, tmp_path, column_exclude_list=rf"{ready.namespace}\.(a|bag)\.note")
        with ready.transaction() as t:
            t.update("a", {"id": 1}, {"note": "hidden", "n": 5})
            t.update("a", {"id": 2}, {"id": 22})
            t.delete("bag", {"n": 1})
        connector.capture()
        for table in ("a", "bag"):
            shown = [{n: v for n, v in row.items() if n != "note"} for row in ready.rows(table)]
            assert connector.rows(f"{ready.namespace}.{table}") == sorted(shown, key=repr)

    def test_a_table_added_to_the_list_is_read_at_once_and_then_streamed(self, ready: Adapter, tmp_path: Path) -> None:
        connector = started(ready, tmp_path, table_include_list=f"{ready.namespace}.a")
        with ready.transaction() as t:
            t.insert("a", {"id": 50})
            t.insert("b", {"id": 50})
        connector.properties["table.include.list"] += f",{ready.namespace}.b"
        assert operations(connector, connector.capture()) == {"a": {"c": 1}, "b": {"r": 6}}
        with ready.transaction() as t:
            t.delete("b", {"id": 50})
        assert operations(connector, connector.capture()) == {"b": {"d": 1}}
        equal(connector, ready, "a", "b")

    def test_whatever_list_is_widened_nothing_is_missing_without_a_word(
        self, ready: Adapter, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        """Every list and switch of the source's configuration, one by one: set, widened, set again and widened again."""
        other = _another(ready)
        tables, kinds = _everything(ready, other), load_source(ready.kind).Config.lists()
        assert {"table.include.list", "column.exclude.list", "skipped.operations"} <= kinds.keys()
        for n, (name, decides) in enumerate(kinds.items()):
            if decides is Decides.FORM:
                continue
            narrow, wide = _narrow_and_wide(ready, other, name, decides)
            connector = ready.connector(tmp_path / str(n))
            _set(connector, narrow)
            connector.capture()
            for round_ in range(2 if decides is Decides.TABLES else 1):
                _set(connector, narrow)
                _write_everywhere(ready, other, 1000 + 100 * n + 10 * round_)
                connector.capture()
                before = _matching(connector, tables)
                _set(connector, wide)
                caplog.clear()
                connector.capture()
                if decides in (Decides.TABLES, Decides.ROWS):
                    assert _matching(connector, tables) - before, f"{name}: nothing was left out"
                else:
                    _read_what_the_warning_names(connector, caplog, name)
                _write_everywhere(ready, other, 1005 + 100 * n + 10 * round_)
                connector.capture()
                wanted = {(db.namespace, table) for db, table in tables if name not in _NARROWED or db is ready}
                assert _matching(connector, tables) >= wanted, name
            connector.store.close()

    def test_an_offset_that_does_not_know_all_lists_loads_and_tables_that_may_be_missing_are_named(
        self, ready: Adapter, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        """As earlier releases wrote it: with lists of databases and tables only."""
        other = _another(ready)
        for n, (name, decides) in enumerate(load_source(ready.kind).Config.lists().items()):
            if decides is not Decides.TABLES or name == "signal.data.collection":
                continue
            narrow, wide = _narrow_and_wide(ready, other, name, decides)
            connector = ready.connector(tmp_path / str(n))
            _set(connector, narrow)
            connector.capture()
            _forget_lists(connector)
            _write_everywhere(ready, other, 2000 + 100 * n)
            _set(connector, wide)
            caplog.clear()
            connector.capture()
            if _told_as_missing(caplog):
                _read_what_the_warning_names(connector, caplog, "")
            tables = [(db, table) for db, table in _everything(ready, other) if name not in _NARROWED or db is ready]
            assert _matching(connector, tables) >= {(db.namespace, table) for db, table in tables}, name
            caplog.clear()
            connector.capture()
            assert not _told_as_missing(caplog), "it is told once"
            connector.store.close()

    # -- restarts -----------------------------------------------------------------------------------------------------

    def test_a_restart_after_any_item_of_the_log_loses_and_repeats_nothing(
        self, ready: Adapter, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        with ready.small_blocks() as properties:
            before = started(ready, tmp_path / "before", batch_max_rows=1, **properties)
            before.store.close()
            _busy(ready)
            for n in range(1, 200):
                shutil.copytree(tmp_path / "before", folder := tmp_path / str(n))
                connector = ready.connector(folder, batch_max_rows=1, **properties)
                with monkeypatch.context() as patch:
                    _die_after(patch, load_source(ready.kind), n)
                    try:
                        connector.capture()
                        break
                    except Dies:
                        pass
                connector.capture()
                equal(connector, ready)
                connector.store.close()
        assert n > 6
        equal(connector, ready)

    def test_a_run_that_is_stopped_goes_on_later(self, ready: Adapter, tmp_path: Path) -> None:
        connector = started(ready, tmp_path)
        with ready.transaction() as t:
            t.insert("a", {"id": 60})
        assert connector.capture(run_for_s=0.3).events == 1
        with ready.transaction() as t:
            t.insert("a", {"id": 61})
        assert connector.capture().events == 1
        equal(connector, ready)

    def test_a_run_of_an_existing_connector_loads_nothing_that_it_does_not_need(
        self, ready: Adapter, tmp_path: Path
    ) -> None:
        if ready.kind == "memory":
            pytest.skip("this database lives in one process")
        connector = started(ready, tmp_path)
        found = capture_apart(connector)
        assert (found["events"], found["pandas"], found["kernels"]) == (0, False, [])
        with ready.transaction() as t:
            t.insert("a", {"id": 60, "n": 1, "note": "new"})
        found = capture_apart(connector)
        assert (found["events"], found["pandas"]) == (1, False)
        equal(connector, ready)

    # -- positions ----------------------------------------------------------------------------------------------------

    def test_positions_grow_with_every_transaction(self, ready: Adapter, tmp_path: Path) -> None:
        with _source(ready, tmp_path) as source:
            places = [source.current_position()]
            for i in range(3):
                with ready.transaction() as t:
                    t.insert("a", {"id": 80 + i})
                places.append(source.current_position())
            for i, one in enumerate(places):
                assert source.parse_position(one.to_json()).to_json() == one.to_json()
                assert str(one)
                for j, other in enumerate(places):
                    assert one.reached(other) == (i >= j)
            oldest = source.oldest_position()
            assert places[0].reached(oldest)
            for place in (oldest, *places):
                source.verify_position(place)

    def test_a_position_that_the_log_has_lost_is_an_error(self, ready: Adapter, tmp_path: Path) -> None:
        connector = started(ready, tmp_path)
        with ready.transaction() as t:
            t.insert("a", {"id": 90})
        ready.purge()
        before = connector.store.load("test")
        with pytest.raises(PositionLost) as caught:
            connector.capture()
        assert caught.value.where
        assert caught.value.remedy
        assert connector.store.load("test") == before
        connector.capture({"snapshot.mode": "when_needed"})
        equal(connector, ready)

    # -- beside a run -------------------------------------------------------------------------------------------------

    def test_looking_does_not_disturb_a_stream(self, ready: Adapter, tmp_path: Path) -> None:
        """Every question that may be asked beside a run, by two who ask at once, again and again: the stream goes on."""
        connector = started(ready, tmp_path)
        stop, threads = threading.Event(), []
        asked: list[int] = [0, 0]
        wrong: list[BaseException] = []

        def look(who: int) -> None:
            try:
                while not stop.is_set():
                    for question in _QUESTIONS:
                        with _source_of(connector) as source:
                            question(source, connector)
                    asked[who] += 1
            except BaseException as e:
                wrong.append(e)

        with _live(connector, ready) as rows:
            for who in range(2):
                threads.append(threading.Thread(target=look, args=(who,)))
                threads[-1].start()
            try:
                for i in range(10):
                    with ready.transaction() as t:
                        t.insert("a", {"id": 700 + i})
                    rows(1 + i)
                while min(asked) < 2 and not wrong:
                    time.sleep(0.05)
            finally:
                stop.set()
                for thread in threads:
                    thread.join()
            assert wrong == []
            with ready.transaction() as t:
                t.insert("b", {"id": 700})
            rows(11)
        assert connector.capture().events == 11
        equal(connector, ready)

    # -- the seam itself ----------------------------------------------------------------------------------------------

    def test_discover_finds_tables_with_their_structures(self, ready: Adapter, tmp_path: Path) -> None:
        with _source(ready, tmp_path) as source:
            found = source.discover()
        mine = {t.name: s for t, s in found.items() if t.namespace == ready.namespace}
        assert {n: (s.names, s.key) for n, s in mine.items()} == {
            "a": (("id", "n", "note"), ("id",)), "b": (("id", "n", "note"), ("id",)), "bag": (("n", "note"), ()),
        }  # fmt: skip
        assert [c.type for c in mine["a"].columns] == ["int32", "int32", "string"]
        assert [c.nullable for c in mine["a"].columns] == [False, True, True]

    def test_a_snapshot_shows_one_moment_and_each_row_once(self, ready: Adapter, tmp_path: Path) -> None:
        with _source(ready, tmp_path) as source:
            tables = [ready.id("a"), ready.id("bag"), ready.id("nothing")]
            was = {t: ready.rows(t) for t in ("a", "bag")}
            with source.snapshot(tables, readers=2) as session:
                with ready.transaction() as t:
                    t.insert("a", {"id": 99})
                    t.delete("bag", {"n": 1})
                assert set(session.schemas) == {ready.id("a"), ready.id("bag")}
                for table in session.schemas:
                    blocks = [b for chunk in session.chunks(table) for b in session.read(chunk)]
                    rows = [row for block in blocks for row in (block.after or []).to_pylist()]
                    assert sorted(rows, key=repr) == was[table.name]
                assert source.current_position().reached(session.position)
                assert not session.position.reached(source.current_position())

    def test_a_stream_gives_nothing_that_was_committed_after_its_end(self, ready: Adapter, tmp_path: Path) -> None:
        """A table that was read there joins there: what a stream went beyond would be lost to it."""
        connector = started(ready, tmp_path)
        with ready.transaction() as t:
            t.insert("a", {"id": 80})
        with _source(ready, tmp_path / "other") as source:
            end = source.current_position()
            with ready.transaction() as t:
                t.insert("a", {"id": 81})
            assert _streamed(connector, ready, end) == 1
            assert _streamed(connector, ready, source.current_position()) == 2

    def test_a_database_that_is_ready_has_no_finding(self, ready: Adapter, tmp_path: Path) -> None:
        with _source(ready, tmp_path) as source:
            assert [f for f in source.check() if f.fatal] == []

    def test_a_missing_prerequisite_is_told_with_what_mends_it(self, ready: Adapter, tmp_path: Path) -> None:
        spoiled = ready.spoil()
        if spoiled is None:
            pytest.skip("this source has no prerequisites")
        with spoiled as fix:
            with pytest.raises(PrerequisiteError) as caught:
                ready.connector(tmp_path).capture()
            assert fix in str(caught.value)
        assert ready.connector(tmp_path).capture().events == 13

    def test_a_source_can_be_closed_twice(self, ready: Adapter, tmp_path: Path) -> None:
        with _source(ready, tmp_path) as source:
            source.current_position()
            source.close()


# what the tests have in common


def started(db: Adapter, folder: Path, **properties: Any) -> Connector:
    """A connector whose snapshot is done."""
    connector = db.connector(folder, **properties)
    connector.capture()
    return connector


def equal(connector: Connector, db: Adapter, *tables: str) -> None:
    for table in tables or ("a", "b", "bag", "bare"):
        if tables or f"test.{db.namespace}.{table}" in connector.replay.advance().tables:
            assert connector.rows(f"{db.namespace}.{table}") == db.rows(table), table


def events(connector: Connector, result: CaptureResult) -> list[Row]:
    """The events of one run in their order, each with its table."""
    found = []
    for manifest in connector.changelog.manifests("test"):
        for file in manifest.files if manifest.batch in result.batches else ():
            with connector.changelog.open("test", file) as f:
                rows = pq.ParquetFile(f).read().to_pylist()
            found += [row | {"table": file.topic.rpartition(".")[2]} for row in rows]
    return sorted(found, key=lambda e: e["seq"])


_NARROWED = ("table.include.list", "table.exclude.list", "signal.data.collection")
"""Lists of which the case is about one namespace."""


def _another(ready: Adapter) -> Adapter:
    """Another namespace with one of the tables."""
    other, columns = ready.other(), {"id": INT, "n": INT, "note": TEXT}
    if not other.create_sparse("a", columns, ("id",), ("note",)):
        other.create("a", columns, ("id",))
    with other.transaction() as t:
        t.insert("a", {"id": 1, "n": 1, "note": "elsewhere"})
    return other


def _everything(ready: Adapter, other: Adapter) -> list[tuple[Adapter, str]]:
    return [(ready, "a"), (ready, "b"), (other, "a")]


def _narrow_and_wide(db: Adapter, other: Adapter, name: str, decides: Decides) -> tuple[Row, Row]:
    """Properties under which a list leaves something out, and under which it does not."""
    ns, both = db.namespace, f"({db.namespace}|{other.namespace})"
    kinds = load_source(db.kind).Config.lists()
    upper = [n for n, d in kinds.items() if d is Decides.TABLES and n.endswith(".list") and not n.startswith("table.")]
    anywhere = (
        dict.fromkeys(upper, "") | {"table.include.list": rf"{both}\.(a|b)", "table.exclude.list": ""} | db.sparse
    )
    if name in ("table.include.list", "table.exclude.list"):
        include = "include" in name
        here = anywhere | {"table.include.list": "" if not include else rf"{ns}\.(a|b)"}
        here |= {n: ns for n in upper if "include" in n}
        return here | {name: rf"{ns}\.a" if include else rf"{ns}\.b"}, here
    if name == "signal.data.collection":
        return anywhere | {name: db.collection("b")}, anywhere | {name: None}
    if decides is Decides.TABLES:
        return anywhere | ({name: ns} if "include" in name else {name: other.namespace}), anywhere
    narrow, wide = db.narrowed(name, rf"{both}\..*")
    return anywhere | narrow, anywhere | wide


def _set(connector: Connector, properties: Row) -> None:
    connector.properties |= properties
    for name in [name for name, value in properties.items() if value is None]:
        del connector.properties[name]


def _write_everywhere(ready: Adapter, other: Adapter, id_: int) -> None:
    for db, table in _everything(ready, other):
        with db.transaction() as t:
            t.insert(table, *({"id": i, "n": i, "note": f"n{i}"} for i in range(id_, id_ + 3)))
            t.update(table, {"id": id_}, {"note": "changed"})
            t.delete(table, {"id": id_ + 1})


def _matching(connector: Connector, tables: list[tuple[Adapter, str]]) -> set[tuple[str, str]]:
    """Of the tables, those that equal the source."""
    there = connector.replay.advance().tables
    return {
        (db.namespace, table)
        for db, table in tables
        if f"test.{db.namespace}.{table}" in there and connector.rows(f"{db.namespace}.{table}") == db.rows(table)
    }


def _told_as_missing(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [m for m in caplog.messages if "may be missing or old" in m]


def _read_what_the_warning_names(connector: Connector, caplog: pytest.LogCaptureFixture, name: str) -> None:
    """Do what the command says that the warning ends with."""
    told = _told_as_missing(caplog)
    assert told, f"{name}: nothing is said"
    for message in told:
        assert name in message
        command = shlex.split(message.rpartition("To read them: ")[2])
        assert command[:4] == ["airflow", "cdc", "snapshot", "test"]
        assert command[-1] == "--replace"
        number = snapshot(connector, *command[4:-1], replace=True)
        connector.capture()
        assert fate(connector, number)[0] == "done"


def _forget_lists(connector: Connector) -> None:
    """Have the offset remember what earlier releases did."""
    with connector.store.lease("test", "earlier", wait_s=10) as lease:
        stored = connector.store.load("test")
        assert stored.offset is not None
        lists = json.loads(stored.offset.tables_filter)["lists"]
        first = {n: v for n, v in lists.items() if n.startswith(("database.", "table."))}
        old = json.dumps(first) if first else ""
        connector.store.advance(lease, stored, stored.offset.model_copy(update={"tables_filter": old}))


@contextlib.contextmanager
def _source(db: Adapter, folder: Path, **properties: Any) -> Iterator[Source]:
    connector = db.connector(folder, **properties)
    with open_source(connector.definition(), connector.secrets) as source:
        yield source


def _blocks(connector: Connector, db: Adapter) -> list[bool]:
    """Of the log from the connector's offset on: whether each block is open."""
    return [item.open for item in _items(connector, db) if isinstance(item, LogBlock)]


def _streamed(connector: Connector, db: Adapter, until: Position) -> int:
    """How many rows come from the connector's offset up to a position."""
    return sum(item.row_count for item in _items(connector, db, until) if isinstance(item, LogBlock))


def _items(connector: Connector, db: Adapter, until: Position | None = None) -> list[LogItem]:
    with _source_of(connector) as source:
        return list(_stream(source, connector, db, until or source.current_position()))


def _source_of(connector: Connector) -> Source:
    return open_source(connector.definition(), connector.secrets)


def _stream(source: Source, connector: Connector, db: Adapter, until: Position | None) -> Iterator[LogItem]:
    """The log from the connector's offset on."""
    history = SchemaHistory.replay(connector.store.schema_history("test"))
    filters = Filters(ConnectorConfig.parse({"topic.prefix": "x", "table.include.list": rf"{db.namespace}\..*"}))
    offset = connector.store.load("test").offset
    assert offset is not None
    assert offset.position is not None
    tables = CapturedTables(filters, history)
    return source.stream(source.parse_position(offset.position), tables, until=until)


def _look_at_places(source: Source, connector: Connector) -> None:
    """What `airflow cdc gap`, and the plan of another offset, ask for the places that they know."""
    offset = connector.store.load("test").offset
    assert offset is not None
    assert offset.position is not None
    assert find_gap("test", offset, None, source) is None
    for place in (source.parse_position(offset.position), source.oldest_position(), source.current_position()):
        source.position_of(place.to_json())
        source.verify_position(place)


_QUESTIONS: tuple[Callable[[Source, Connector], object], ...] = (
    lambda source, _: source.check(),
    lambda source, _: source.discover(),
    lambda source, _: source.current_position(),
    lambda source, _: source.oldest_position(),
    lambda source, _: source.metrics(),
    _look_at_places,
)
"""Everything that is asked of a source beside a run: by sensors, pages, commands and plans."""


@contextlib.contextmanager
def _live(connector: Connector, db: Adapter) -> Iterator[Callable[[int], None]]:
    """A stream from the connector's offset on that goes on for ever; gives what waits until so many rows have come."""
    got, over = [0], threading.Event()
    wrong: list[BaseException] = []

    def read() -> None:
        try:
            with _source_of(connector) as source:
                for item in _stream(source, connector, db, None):
                    got[0] += item.row_count if isinstance(item, LogBlock) else 0
                    if over.is_set():
                        return
        except BaseException as e:
            wrong.append(e)

    def wait(rows: int) -> None:
        while got[0] < rows:
            assert wrong == [], f"the stream has ended: {wrong[0]}"
            assert thread.is_alive()
            time.sleep(0.01)
        assert got[0] == rows

    thread = threading.Thread(target=read)
    thread.start()
    try:
        yield wait
        assert wrong == []
    finally:
        over.set()
        thread.join()


def _die_after(patch: pytest.MonkeyPatch, cls: type[Source], n: int) -> None:
    """The run ends after the n-th item of the log, before anything else is done."""
    stream: Callable[..., Iterator[Any]] = cls.stream

    def dying(self: Source, *args: Any, **options: Any) -> Iterator[Any]:
        for count, item in enumerate(stream(self, *args, **options), 1):
            yield item
            if count == n:
                raise Dies

    patch.setattr(cls, "stream", dying)


def _busy(db: Adapter) -> None:
    """A bit of everything, in a dozen items."""
    with db.transaction() as t:
        t.insert("a", {"id": 201, "n": 1})
        t.update("a", {"id": 1}, {"id": 101})
        t.delete("b", {"id": 1})
    db.add_column("a", "more", INT, 3)
    with db.transaction() as t:
        t.update("a", {"id": 201}, {"more": 4})
        t.insert("bag", {"n": 1, "note": "x"})
    db.truncate("b")
    with db.transaction() as t:
        t.insert("b", *({"id": i, "n": i, "note": "x" * 30} for i in range(300, 2000)))
        t.update("bag", {"n": 1}, {"note": "y"})
    db.rename_column("a", "more", "most", INT)
    with db.transaction() as t:
        t.insert("a", {"id": 202, "most": 1})
    db.change_column("a", "most", TEXT)
    with db.transaction() as t:
        t.insert("a", {"id": 203, "most": "1"})
