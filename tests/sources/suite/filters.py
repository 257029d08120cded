"""Requirements of every source: lists that decide what is captured, above all when one lets in more than before."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from airflow_provider_cdc.core.config.base_configuration import PropertyEffect
from airflow_provider_cdc.sources import load_source
from tests.sources.suite.adapter import INT, TEXT, Adapter, Row
from tests.sources.suite.common import (
    Suite,
    equal,
    start_connector,
)
from tests.support.connectors import Connector
from tests.support.pytest_runs.sampled import CaseSample
from tests.support.signals import signal_state, snapshot
from tests.support.workloads.small_tables import operations


class Lists(Suite):
    """Lists of tables, namespaces, columns and operations."""

    def test_filters_by_table(self, filled_adapter: Adapter, tmp_path: Path) -> None:
        include, _ = filled_adapter.table_lists
        connector = start_connector(filled_adapter, tmp_path, **{include: f"{filled_adapter.namespace}.a"})
        with filled_adapter.transaction() as t:
            for table in ("a", "b", "bag"):
                t.insert(table, {"n": 1, **({} if table == "bag" else {"id": 40})})
        assert operations(connector, connector.capture()) == {"a": {"c": 1}}
        equal(connector, filled_adapter, "a")
        assert set(connector.replay.tables) == {f"test.{filled_adapter.namespace}.a"}

    def test_filters_by_namespace(self, filled_adapter: Adapter, tmp_path: Path) -> None:
        other = filled_adapter.other()
        other.create("a", {"id": INT}, key=("id",))
        connector = start_connector(filled_adapter, tmp_path)
        with other.transaction() as t:
            t.insert("a", {"id": 1})
        other.add_column("a", "more", INT)
        other.truncate("a")
        assert connector.capture().events == 0
        assert not [t for t in connector.replay.advance().tables if other.namespace in t]
        assert [r for r in connector.store.schema_history("test") if r.database == other.namespace] == []

    def test_filters_by_column(self, filled_adapter: Adapter, tmp_path: Path) -> None:
        connector = start_connector(
            filled_adapter, tmp_path, column_exclude_list=rf"{filled_adapter.namespace}\.(a|bag)\.note"
        )
        with filled_adapter.transaction() as t:
            t.update("a", {"id": 1}, {"note": "hidden", "n": 5})
            t.update("a", {"id": 2}, {"id": 22})
            t.delete("bag", {"n": 1})
        connector.capture()
        for table in ("a", "bag"):
            shown = [{n: v for n, v in row.items() if n != "note"} for row in filled_adapter.rows(table)]
            assert connector.rows(f"{filled_adapter.namespace}.{table}") == sorted(shown, key=repr)

    def test_a_table_added_to_the_list_is_read_at_once_and_then_streamed(
        self, filled_adapter: Adapter, tmp_path: Path
    ) -> None:
        include, _ = filled_adapter.table_lists
        connector = start_connector(filled_adapter, tmp_path, **{include: f"{filled_adapter.namespace}.a"})
        with filled_adapter.transaction() as t:
            t.insert("a", {"id": 50})
            t.insert("b", {"id": 50})
        connector.properties[include] += f",{filled_adapter.namespace}.b"
        assert operations(connector, connector.capture()) == {"a": {"c": 1}, "b": {"r": 6}}
        with filled_adapter.transaction() as t:
            t.delete("b", {"id": 50})
        assert operations(connector, connector.capture()) == {"b": {"d": 1}}
        equal(connector, filled_adapter, "a", "b")

    def test_whatever_list_is_widened_nothing_is_missing_without_a_word(
        self, filled_adapter: Adapter, tmp_path: Path, caplog: pytest.LogCaptureFixture, sampled: CaseSample
    ) -> None:
        """Every list and switch of the source's configuration, one by one: set, widened, set again and widened again."""
        other = _create_other_namespace(filled_adapter)
        tables, kinds = (
            _list_all_tables(filled_adapter, other),
            load_source(filled_adapter.kind).Config.list_capture_properties(),
        )
        assert filled_adapter.some_lists <= kinds.keys()
        for n, (name, decides) in enumerate(kinds.items()):
            if decides is PropertyEffect.FORM:
                continue
            narrow, wide = _narrow_and_wide(filled_adapter, other, name, decides)
            connector = filled_adapter.connector(tmp_path / str(n))
            _set(connector, narrow)
            connector.capture()
            for round_ in range(2 if decides is PropertyEffect.TABLES and sampled.of(n, every=4) else 1):
                _set(connector, narrow)
                _write_everywhere(filled_adapter, other, 1000 + 100 * n + 10 * round_)
                connector.capture()
                before = _matching(connector, tables)
                _set(connector, wide)
                caplog.clear()
                connector.capture()
                if decides in (PropertyEffect.TABLES, PropertyEffect.ROWS):
                    assert _matching(connector, tables) - before, f"{name}: nothing was left out"
                else:
                    _read_what_the_warning_names(connector, caplog, name)
                _write_everywhere(filled_adapter, other, 1005 + 100 * n + 10 * round_)
                connector.capture()
                expected = {
                    (db.namespace, table)
                    for db, table in tables
                    if name not in _list_narrowed(filled_adapter) or db is filled_adapter
                }
                assert _matching(connector, tables) >= expected, name
            connector.store.close()


def _list_narrowed(db: Adapter) -> tuple[str, ...]:
    """Lists of which the case is about one namespace."""
    return (*db.table_lists, "signal.data.collection")


def _create_other_namespace(ready: Adapter) -> Adapter:
    """Another namespace with one of the tables."""
    other, columns = ready.other(), {"id": INT, "n": INT, "note": TEXT}
    if not other.create_sparse("a", columns, ("id",), ("note",)):
        other.create("a", columns, ("id",))
    with other.transaction() as t:
        t.insert("a", {"id": 1, "n": 1, "note": "elsewhere"})
    return other


def _list_all_tables(ready: Adapter, other: Adapter) -> list[tuple[Adapter, str]]:
    return [(ready, "a"), (ready, "b"), (other, "a")]


def _narrow_and_wide(db: Adapter, other: Adapter, name: str, decides: PropertyEffect) -> tuple[Row, Row]:
    """Properties under which a list leaves something out, and under which it does not."""
    ns, both = db.namespace, f"({db.namespace}|{other.namespace})"
    kinds = load_source(db.kind).Config.list_capture_properties()
    listed, left_out = db.table_lists
    upper = [
        n for n, d in kinds.items() if d is PropertyEffect.TABLES and n.endswith(".list") and n not in db.table_lists
    ]
    anywhere = dict.fromkeys(upper, "") | {listed: rf"{both}\.(a|b)", left_out: ""} | db.sparse
    if name in db.table_lists:
        include = "include" in name
        here = anywhere | {listed: "" if not include else rf"{ns}\.(a|b)"}
        here |= {n: ns for n in upper if "include" in n}
        return here | {name: rf"{ns}\.a" if include else rf"{ns}\.b"}, here
    if name == "signal.data.collection":
        return anywhere | {name: db.collection("b")}, anywhere | {name: None}
    if decides is PropertyEffect.TABLES and name.endswith(".list"):
        return anywhere | ({name: ns} if "include" in name else {name: other.namespace}), anywhere
    narrow, wide = db.narrowed(name, rf"{both}\..*")
    return anywhere | narrow, anywhere | wide


def _set(connector: Connector, properties: Row) -> None:
    connector.properties |= properties
    for name in [name for name, value in properties.items() if value is None]:
        del connector.properties[name]


def _write_everywhere(ready: Adapter, other: Adapter, id_: int) -> None:
    for db, table in _list_all_tables(ready, other):
        with db.transaction() as t:
            t.insert(table, *({"id": i, "n": i, "note": f"n{i}"} for i in range(id_, id_ + 3)))
            t.update(table, {"id": id_}, {"note": "changed"})
            t.delete(table, {"id": id_ + 1})


def _matching(connector: Connector, tables: list[tuple[Adapter, str]]) -> set[tuple[str, str]]:
    """Return those of the tables that equal the source."""
    there = connector.replay.advance().tables
    return {
        (db.namespace, table)
        for db, table in tables
        if f"test.{db.namespace}.{table}" in there and connector.rows(f"{db.namespace}.{table}") == db.rows(table)
    }


def _told_as_missing(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [m for m in caplog.messages if "may be missing or outdated" in m]


def _read_what_the_warning_names(connector: Connector, caplog: pytest.LogCaptureFixture, name: str) -> None:
    """Do what the command says that the warning ends with."""
    messages = _told_as_missing(caplog)
    assert messages, f"{name}: nothing is said"
    for message in messages:
        assert name in message
        command = shlex.split(message.rpartition("To snapshot them again: ")[2])
        assert command[:4] == ["airflow", "cdc", "snapshot", "test"]
        assert command[-1] == "--replace"
        number = snapshot(connector, *command[4:-1], replace=True)
        connector.capture()
        assert signal_state(connector, number)[0] == "done"
