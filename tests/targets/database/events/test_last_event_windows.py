"""Steps of many files at once end in the same rows as those of each file, whatever the sizes are at which they are parted."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest
import sqlalchemy as sa

from airflow_provider_cdc.changelog.reading.pending_batches import BatchesByTopic, PendingBatches
from airflow_provider_cdc.core.model.batch_manifest import DataFile
from airflow_provider_cdc.sources.memory.database import MemoryDatabase
from airflow_provider_cdc.targets.database.config import EQUAL, DatabaseTargetConfig
from airflow_provider_cdc.targets.database.dialects import load_dialect
from airflow_provider_cdc.targets.database.events import event_reader, last_event_windows
from airflow_provider_cdc.targets.database.events.event_operation_reader import TableOperation, read_operations
from airflow_provider_cdc.targets.database.schema.batch_common_types import with_room
from airflow_provider_cdc.targets.database.schema.target_table import DatabaseTargetTable, table_of
from tests.support.connectors import Connector, memory_connector
from tests.targets.database.apply.test_database_apply import in_order, rows, sink

TABLE = "s.t"
SIZES = {
    "WINDOW_EVENTS": (1, 7, 10**6),
    "WINDOW_BYTES": (1, 1 << 26),
    "STEP_ROWS": (1, 4, 50_000),
    "_HELD_BYTES": (0, 1 << 20),
}


def _prepare_batches(folder: Path, r: Random) -> tuple[MemoryDatabase, Connector]:
    """A table with a key of two columns, and batches of a few events, in files of a few of them; in between the table gets a column."""
    source = MemoryDatabase(str(folder))
    source.create_table(TABLE, {"id": "int64!", "k": "string!", "v": "string"}, key=("id", "k"))
    connector = memory_connector(source, folder, topic_prefix="p", batch_max_rows=r.choice([3, 1000]))
    for number in range(8):
        if number == 4 and r.random() < 0.5:
            source.add_column(TABLE, "added", "int32", 7, text="7")
        with source.transaction() as t:
            for _ in range(r.randrange(1, 9)):
                key: dict[str, Any] = {"id": r.randrange(4), "k": r.choice(["", "ä\t", "\\N"])}
                there = any(row["id"] == key["id"] and row["k"] == key["k"] for row in source.copy_rows(TABLE))
                if there and r.random() < 0.3:
                    t.delete(TABLE, key)
                elif there and r.random() < 0.3:
                    t.update(TABLE, key, {"id": r.randrange(100, 10**6)})
                elif there:
                    t.update(TABLE, key, {"v": str(r.random())})
                else:
                    t.insert(TABLE, {**key, "v": None})
        connector.capture()
    return source, connector


def _pending(connector: Connector, config: DatabaseTargetConfig) -> tuple[PendingBatches, DatabaseTargetTable]:
    batches = [manifest.batch_contents for manifest in connector.changelog.read_manifests(connector.name)]
    pending = BatchesByTopic(connector.changelog, batches).merge_parts("p.s.t")
    assert pending is not None
    pending = with_room(pending)
    return pending, table_of("p.s.t", pending.schema, config, load_dialect("sqlite")())


def _apply_steps(steps: list[TableOperation], *, deletes: bool = True) -> list[dict[str, Any]]:
    """The rows that steps leave in an empty table. One that is marked as new must not be there, if nothing is left out."""
    found = dict[tuple[Any, ...], dict[str, Any]]()
    for step in steps:
        assert step.rows.num_rows == len(step.seq) > 0
        for row in step.rows.to_pylist():
            key = (row["id"], row["k"])
            if step.action == "delete":
                found.pop(key, None)
                continue
            assert step.action == "write"
            assert not (deletes and step.new and key in found)
            found[key] = row
    return sorted(found.values(), key=repr)


@pytest.mark.parametrize("seed", range(12))
def test_a_window_ends_in_the_rows_of_the_source(tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    r = Random(seed)
    for name, values in SIZES.items():
        monkeypatch.setattr(last_event_windows, name, r.choice(values))
    monkeypatch.setattr(event_reader, "WHOLE_GROUP", r.choice([2, 100_000]))
    config = DatabaseTargetConfig.parse(EQUAL)
    source, connector = _prepare_batches(tmp_path, r)
    pending, table = _pending(connector, config)
    assert last_event_windows.can_use_windows(pending, table, config)
    reports = list[int]()
    given = (connector.changelog, connector.name, pending, table, config)
    found = list(last_event_windows.EventWindows(*given, committed=reports.append).read_operations())
    assert _apply_steps(found) == sorted(source.copy_rows(TABLE), key=repr)
    assert len(reports) == len(pending.files)
    assert max(reports) > 0
    if last_event_windows.WINDOW_EVENTS == 10**6 and last_event_windows.WINDOW_BYTES > 1:
        keys = [tuple(row.values()) for step in found for row in step.rows.select(["id", "k"]).to_pylist()]
        assert len(keys) == len(set(keys)), "of each key there is one step"


@pytest.mark.parametrize("seed", range(2))
def test_deletes_that_are_not_applied_leave_the_row_before(tmp_path: Path, seed: int) -> None:
    """The last event that counts is the last one that is no delete."""
    config = DatabaseTargetConfig.parse({**EQUAL, "delete.enabled": False})
    _, connector = _prepare_batches(tmp_path, Random(seed))
    pending, table = _pending(connector, config)
    given = (connector.changelog, connector.name, pending, table, config)
    expected = _apply_steps(list(read_operations(*given)), deletes=False)
    assert _apply_steps(list(last_event_windows.EventWindows(*given).read_operations()), deletes=False) == expected


def _file(**more: Any) -> DataFile:
    values = {
        "topic": "p.s.t",
        "schema_version": 1,
        "path": "x",
        "rows": 1,
        "bytes": 1,
        "crc32": 0,
        "first_seq": 1,
        "last_seq": 1,
        "counts": {"c": 1},
    }
    return DataFile(**{**values, **more})


@pytest.mark.parametrize(
    ("properties", "more", "key", "fits"),
    [
        ({}, {}, "int64", True),
        ({"insert.mode": "update", "delete.enabled": False}, {}, "int64", False),
        ({"primary.key.mode": "kafka", "delete.enabled": False}, {}, "int64", False),
        ({"primary.key.mode": "record_value", "delete.enabled": False}, {}, "int64", False),
        ({}, {"counts": {"t": 1}}, "int64", False),
        ({}, {"unavailable": ["v"]}, "int64", False),
        ({}, {}, "double", False),
    ],
)  # fmt: skip
def test_where_more_than_the_last_event_matters_each_part_has_its_steps(
    tmp_path: Path, properties: dict[str, Any], more: dict[str, Any], key: str, fits: bool
) -> None:
    source = MemoryDatabase(str(tmp_path))
    source.create_table(TABLE, {"id": f"{key}!", "v": "string"}, key=("id",))
    config, schema = (
        DatabaseTargetConfig.parse({**EQUAL, **properties}),
        source.read_consistent_view()[1][source.resolve_table_id(TABLE)],
    )
    table = table_of("p.s.t", schema, config, load_dialect("sqlite")())
    pending = PendingBatches("p.s.t", [("", _file()), ("", _file(**more))], {1: schema})
    assert last_event_windows.can_use_windows(pending, table, config) == fits
    assert not last_event_windows.can_use_windows(
        PendingBatches("p.s.t", pending.files[1:], {1: schema}), table, config
    ), "one file is read once"
    if fits:
        taken = PendingBatches("p.s.t", pending.files, {1: schema}, name_takeover=(1, 1))
        assert not last_event_windows.can_use_windows(taken, table, config)


FORMS = {
    "plain": "CREATE TABLE p_s_t (id BIGINT PRIMARY KEY, v INTEGER, up BIGINT)",
    "unique": "CREATE TABLE p_s_t (id BIGINT PRIMARY KEY, v INTEGER UNIQUE, up BIGINT)",
    "refers": "CREATE TABLE p_s_t (id BIGINT PRIMARY KEY, v INTEGER, up BIGINT, CONSTRAINT c FOREIGN KEY (up) REFERENCES p_s_t (id))",
    "deferred": "CREATE TABLE p_s_t (id BIGINT PRIMARY KEY, v INTEGER, up BIGINT, CONSTRAINT c FOREIGN KEY (up) REFERENCES p_s_t (id) DEFERRABLE)",
}


@pytest.mark.parametrize("url", ["sqlite", "postgresql", "mariadb"], indirect=True)
@pytest.mark.parametrize("form", FORMS)
def test_many_small_batches_are_a_few_statements(
    engine: sa.Engine, tmp_path: Path, form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """But where another column has to be unique, whose values go from row to row, or where rows refer to each other."""
    kind = engine.dialect.name
    if kind in ("mysql", "mariadb") and form == "deferred":
        pytest.skip("MariaDB has no such foreign keys")
    monkeypatch.setattr(last_event_windows, "STEP_ROWS", 1)
    source = MemoryDatabase(str(tmp_path))
    source.create_table(TABLE, {"id": "int64!", "v": "int32", "up": "int64"}, key=("id",))
    connector = memory_connector(source, tmp_path, topic_prefix="p")
    with engine.begin() as connection:
        if kind == "sqlite":
            connection.exec_driver_sql("PRAGMA foreign_keys = ON")
        connection.exec_driver_sql(FORMS[form])
    for id_ in range(20):
        with source.transaction() as t:
            if id_:
                t.update(TABLE, {"id": id_ - 1}, {"v": -id_})
            t.insert(TABLE, {"id": id_, "v": 7, "up": id_ - 1 if id_ else None})
        connector.capture()
    with source.transaction() as t:
        t.update(TABLE, {"id": 0}, {"v": 0})  # the last one that is written is the first one that others refer to
    connector.capture()
    done = list[str]()
    one = sink(engine, connector)
    for name in ("insert", "upsert", "delete"):
        plain = getattr(one._dialect, name)

        def write(*args: Any, name: str = name, plain: Any = plain, **named: Any) -> None:
            done.append(name)
            plain(*args, **named)

        monkeypatch.setattr(one._dialect, name, write)
    one.apply()
    assert in_order(rows(engine, "p_s_t")) == in_order(source.copy_rows(TABLE))
    in_turn = form == "unique" or (form == "refers" and kind not in ("mysql", "mariadb"))
    assert ("upsert" in done) == in_turn
    assert (len(done) > 20) == in_turn


def test_rows_are_sorted_by_their_key(tmp_path: Path) -> None:
    from airflow_provider_cdc.targets.database.dialects import target_dialect

    source = MemoryDatabase(str(tmp_path))
    source.create_table(TABLE, {"a": "int64!", "b": "string!", "v": "string"}, key=("b", "a"))
    table = table_of(
        "p.s.t",
        source.read_consistent_view()[1][source.resolve_table_id(TABLE)],
        DatabaseTargetConfig.parse(EQUAL),
        load_dialect("sqlite")(),
    )
    given = pa.table({"a": [1, 2, 1], "b": ["y", "x", "x"], "v": ["1", "2", "3"]})
    key = [field.name for field in table.key_columns]
    found = target_dialect.in_key_order(table, given).to_pylist()
    assert found == sorted(given.to_pylist(), key=lambda row: [row[name] for name in key])
