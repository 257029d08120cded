"""The sink with workers: equal to the source after random work, whatever is read, written or dropped twice."""

from __future__ import annotations

import dataclasses
import json
import logging
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest
import sqlalchemy as sa

from airflow_provider_cdc.core.errors import CdcError, ConfigError, TargetError
from airflow_provider_cdc.sources.memory.database import MemoryDatabase
from airflow_provider_cdc.targets.database.config import EQUAL, DatabaseTargetConfig
from airflow_provider_cdc.targets.database.parallel.merged_key_events import (
    DELETED,
    LEFT_OUT,
    RECREATED,
    SEQ,
    merge_events_per_key,
)
from airflow_provider_cdc.targets.database.parallel.staged_parallel_apply import (
    StagedDatabaseApply,
    StagingSizes,
    Workers,
)
from airflow_provider_cdc.targets.database.parallel.staging_workers import (
    PREFIX,
    FileShare,
    StagedPartition,
    StagingWork,
    assign_partitions,
)
from airflow_provider_cdc.targets.database.target_engine import open_engine
from dev import paths
from tests.support.connectors import Connector, memory_connector
from tests.targets.database.apply.test_database_apply import (
    TABLE,
    VALUES,
    expected_rows,
    in_order,
    rows,
    sink,
    write_transactions,
)
from tests.targets.database.conftest import _FIXTURES
from tests.targets.database.killed import ALL
from tests.targets.database.workers import in_turn


@pytest.fixture(params=["mariadb", "mysql", "postgresql"])
def url(request: pytest.FixtureRequest) -> Iterator[str]:
    """The URL of an empty target database, of each kind that has staging tables."""
    server = request.getfixturevalue(_FIXTURES[request.param])
    with server.database("staged") as database:
        yield (
            server.url(database) if request.param == "postgresql" else server.url(f"{database.name}?charset=utf8mb4")
        )


def staged_apply(
    engine: sa.Engine, connector: Connector, workers: Workers = in_turn, **properties: Any
) -> StagedDatabaseApply:
    config = DatabaseTargetConfig.parse(
        {**EQUAL, "connection.url": _url(engine), **{k.replace("__", "."): v for k, v in properties.items()}}
    )
    return StagedDatabaseApply(engine, config, connector.changelog, connector.name, workers, sizes=ALL)


def _url(engine: sa.Engine) -> str:
    return engine.url.render_as_string(hide_password=False)


def left(engine: sa.Engine) -> list[str]:
    """Staging tables that are there."""
    return [name for name in sa.inspect(engine).get_table_names() if name.startswith(PREFIX)]


class WorkerCount:
    """Workers that are counted."""

    def __init__(self) -> None:
        self.topics = list[str]()

    def __call__(self, work: StagingWork, shares: Sequence[FileShare]) -> list[StagedPartition]:
        found = in_turn(work, shares)
        self.topics += sorted({part.topic for part in found if not part.why_not})
        return found


@pytest.mark.parametrize("seed", range(3))
def test_random_work_ends_in_equal_tables(engine: sa.Engine, tmp_path: Path, seed: int) -> None:
    r, named, workers = Random(seed), {"collection__name__format": "${source.table}"}, WorkerCount()
    source = MemoryDatabase(str(tmp_path))
    columns = {f"c{n} :x%s": type_ for n, type_ in enumerate(VALUES)}
    source.create_table(TABLE, {"id": "int64!", **columns}, key=("id",))
    connector = memory_connector(source, tmp_path, topic_prefix="p", batch_max_rows=r.choice([3, 1000]))
    for number in range(6):
        write_transactions(source, TABLE, r, 6)
        match number:
            case 2:
                source.add_column(TABLE, "added", "int32", 7, text="7")
            case 3 if r.random() < 0.5:
                source.truncate_table(TABLE)
        connector.capture()
        if r.random() < 0.7:
            (sink if r.random() < 0.3 else staged_apply)(engine, connector, **named).apply()
    write_transactions(source, TABLE, r, 6)
    connector.capture()
    staged_apply(engine, connector, workers, **named).apply()
    assert workers.topics
    table = TABLE.partition(".")[2]
    decimals = [name for name, type_ in columns.items() if type_.startswith("decimal")]
    assert in_order(rows(engine, table, decimals)) == in_order(expected_rows(source, TABLE, engine.dialect.name))
    assert staged_apply(engine, connector, **named).apply().event_count == 0
    assert not left(engine)


@pytest.mark.parametrize("types", [("string!", "int32!"), ("decimal128(12, 2)!", "date32[day]!")])
def test_keys_of_several_columns(engine: sa.Engine, tmp_path: Path, types: tuple[str, str]) -> None:
    r, source = Random(9), MemoryDatabase(str(tmp_path))
    source.create_table("s.t", {"x": types[0], "y": types[1], "id": "int64", "n": "int32"}, key=("x", "y"))
    connector = memory_connector(source, tmp_path, topic_prefix="p", batch_max_rows=20)
    keys = [(x, y) for x in VALUES[types[0].rstrip("!")][:9] for y in VALUES[types[1].rstrip("!")]]
    keys = keys if types[0] != "string!" else [(f"k{n}", y) for n, (_, y) in enumerate(keys)]
    for _ in range(4):
        for _ in range(30):
            x, y = r.choice(keys)
            with source.transaction() as t:
                if t.update("s.t", {"x": x, "y": y}, {"n": r.randrange(100)}) == 0:
                    t.insert("s.t", {"x": x, "y": y, "id": keys.index((x, y)), "n": 0})
                elif r.random() < 0.3:
                    t.delete("s.t", {"x": x, "y": y})
        connector.capture()
        staged_apply(engine, connector).apply()
    decimals = ["x"] if "decimal" in types[0] else []
    assert in_order(rows(engine, "p_s_t", decimals)) == in_order(expected_rows(source, "s.t", ""))
    assert not left(engine)


def test_a_truncate_and_a_table_of_the_same_name_leave_only_what_came_after(engine: sa.Engine, tmp_path: Path) -> None:
    source, workers = MemoryDatabase(str(tmp_path)), WorkerCount()
    source.create_table("s.t", {"id": "int64!", "n": "int32"}, key=("id",))
    connector = memory_connector(source, tmp_path, topic_prefix="p", batch_max_rows=5)

    def fill(first: int, n: int) -> None:
        with source.transaction() as t:
            for number in range(first, first + 12):
                t.insert("s.t", {"id": number, "n": n})

    fill(0, 1)
    connector.capture()
    staged_apply(engine, connector, workers).apply()
    source.truncate_table("s.t")
    fill(6, 2)
    source.truncate_table("s.t")
    fill(20, 3)
    connector.capture()
    staged_apply(engine, connector, workers).apply()
    assert in_order(rows(engine, "p_s_t")) == in_order(source.copy_rows("s.t"))
    source.truncate_table("s.t")  # and nothing after it
    connector.capture()
    staged_apply(engine, connector, workers).apply()
    assert rows(engine, "p_s_t") == []
    assert workers.topics == ["p.s.t"] * 3


def test_values_that_events_leave_out_stay_as_they_are(engine: sa.Engine, tmp_path: Path) -> None:
    r, source, workers = Random(5), MemoryDatabase(str(tmp_path)), WorkerCount()
    columns = {"id": "int64!", "a": "string", "b": "int32", "c": "string"}
    source.create_table("s.t", columns, key=("id",), sparse=("a", "b", "c"))
    connector = memory_connector(source, tmp_path, topic_prefix="p", batch_max_rows=7)
    for _ in range(5):
        for _ in range(25):
            id_, change = {"id": r.randrange(10)}, {r.choice("abc"): None}
            change = {n: r.randrange(50) if n == "b" else r.choice(["x", "", None, "long"]) for n in change}
            with source.transaction() as t:
                if r.random() < 0.2:
                    t.delete("s.t", id_)
                if t.update("s.t", id_, change) == 0:
                    t.insert("s.t", {**id_, "a": "begun", "b": None, "c": "begun"})
        connector.capture()
        staged_apply(engine, connector, workers).apply()
    assert in_order(rows(engine, "p_s_t")) == in_order(source.copy_rows("s.t"))
    assert workers.topics == ["p.s.t"] * 5


def test_rows_that_get_other_keys_and_leave_values_out_are_moved_by_the_driver(
    engine: sa.Engine, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    source, workers = MemoryDatabase(str(tmp_path)), WorkerCount()
    source.create_table("s.t", {"id": "int64!", "a": "string", "b": "int32"}, key=("id",), sparse=("a",))
    source.create_table("s.plain", {"id": "int64!"}, key=("id",))
    connector = memory_connector(source, tmp_path, topic_prefix="p")
    with source.transaction() as t:
        for number in range(9):
            t.insert("s.t", {"id": number, "a": f"a{number}", "b": number})
            t.insert("s.plain", {"id": number})
    connector.capture()
    staged_apply(engine, connector).apply()
    with source.transaction() as t:
        t.update("s.t", {"id": 3}, {"id": 30, "b": 300})
        t.update("s.t", {"id": 4}, {"b": 400})
        t.delete("s.plain", {"id": 1})
    connector.capture()
    with caplog.at_level(logging.INFO):
        staged_apply(engine, connector, workers).apply()
    assert in_order(rows(engine, "p_s_t")) == in_order(source.copy_rows("s.t"))
    assert in_order(rows(engine, "p_s_plain")) == in_order(source.copy_rows("s.plain"))
    assert workers.topics == ["p.s.plain"]
    assert "The driver writes p.s.t without staging: keys of rows change, and their events omit values" in caplog.text
    assert not left(engine)


def test_a_row_that_is_refused_stops_its_table_and_no_other(engine: sa.Engine, tmp_path: Path) -> None:
    source = MemoryDatabase(str(tmp_path))
    for name in ("s.bad", "s.good"):
        source.create_table(name, {"id": "int64!", "mail": "int32"}, key=("id",))
    connector = memory_connector(source, tmp_path, topic_prefix="p")
    with source.transaction() as t:
        for name in ("s.bad", "s.good"):
            t.insert(name, {"id": 1, "mail": 1})
    connector.capture()
    staged_apply(engine, connector).apply()
    with engine.begin() as connection:
        connection.execute(sa.text("CREATE UNIQUE INDEX one ON p_s_bad (mail)"))
    with source.transaction() as t:
        for name in ("s.bad", "s.good"):
            t.insert(name, {"id": 2, "mail": 1})
    connector.capture()
    for _ in range(2):
        with pytest.raises(TargetError, match=r"(?s)p\.s\.bad.*p_s_bad rejects a row.*id=2"):
            staged_apply(engine, connector).apply()
        assert in_order(rows(engine, "p_s_good")) == in_order(source.copy_rows("s.good"))
        assert rows(engine, "p_s_bad") == [{"id": 1, "mail": 1}]
        with source.transaction() as t:
            t.insert("s.good", {"id": 3 + len(source.copy_rows("s.good")), "mail": 1})
        connector.capture()
    with engine.begin() as connection:
        table = "" if engine.dialect.name == "postgresql" else " ON p_s_bad"
        connection.execute(sa.text(f"DROP INDEX one{table}"))
    staged_apply(engine, connector).apply()
    for name in ("bad", "good"):
        assert in_order(rows(engine, f"p_s_{name}")) == in_order(source.copy_rows(f"s.{name}"))
    assert not left(engine)


def test_a_value_that_no_staging_table_takes_is_named_with_its_row(engine: sa.Engine, tmp_path: Path) -> None:
    """Keys of texts have a longest length in MySQL, and PostgreSQL has no text with a NUL."""
    source = MemoryDatabase(str(tmp_path))
    source.create_table("s.t", {"id": "string!", "a": "string"}, key=("id",))
    connector = memory_connector(source, tmp_path, topic_prefix="p")
    with source.transaction() as t:
        t.insert("s.t", {"id": "good", "a": "a"})
        t.insert("s.t", {"id": "x" * 300, "a": "\0"})
    connector.capture()
    with pytest.raises(TargetError, match=r"(?s)p_s_t rejects a row.*row with id=xxx"):
        staged_apply(engine, connector).apply()
    staged_apply(engine, connector, errors__tolerance="all").apply()
    assert rows(engine, "p_s_t") == [{"id": "good", "a": "a"}]
    assert len(rows(engine, "cdc_errors")) == 1


def test_a_unique_value_may_go_from_one_row_to_another(engine: sa.Engine, tmp_path: Path) -> None:
    source = MemoryDatabase(str(tmp_path))
    source.create_table("s.t", {"id": "int64!", "mail": "int32"}, key=("id",))
    connector = memory_connector(source, tmp_path, topic_prefix="p")
    with source.transaction() as t:
        for number in range(5):
            t.insert("s.t", {"id": number, "mail": number})
    connector.capture()
    staged_apply(engine, connector).apply()
    with engine.begin() as connection:
        connection.execute(sa.text("CREATE UNIQUE INDEX one ON p_s_t (mail)"))
    with source.transaction() as t:
        t.update("s.t", {"id": 1}, {"mail": None})
        t.update("s.t", {"id": 2}, {"mail": 1})
        t.update("s.t", {"id": 1}, {"mail": 2})
        t.delete("s.t", {"id": 3})
        t.insert("s.t", {"id": 9, "mail": 3})
    connector.capture()
    staged_apply(engine, connector).apply()
    assert in_order(rows(engine, "p_s_t")) == in_order(source.copy_rows("s.t"))


@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_run_that_is_overtaken_writes_nothing_twice_and_leaves_nothing(
    engine: sa.Engine, tmp_path: Path, moment: str
) -> None:
    r, source, overtaken = Random(2), MemoryDatabase(str(tmp_path)), list[int]()
    source.create_table("s.t", {"id": "int64!", **{f"c{n}": t for n, t in enumerate(("int32", "string"))}}, key=("id",))
    connector = memory_connector(source, tmp_path, topic_prefix="p", batch_max_rows=4)

    def apply_meanwhile(work_: StagingWork, shares: Sequence[FileShare]) -> list[StagedPartition]:
        found = in_turn(work_, shares) if moment == "after" else []
        if len(overtaken) < 2:
            overtaken.append(work_.run.batch)
            (sink if len(overtaken) == 1 else staged_apply)(engine, connector).apply()
            write_transactions(source, "s.t", r, 3)
            connector.capture()
        return found or in_turn(work_, shares)

    write_transactions(source, "s.t", r, 10)
    connector.capture()
    done = staged_apply(engine, connector, apply_meanwhile).apply()
    assert len(overtaken) == 2
    assert done.batch == connector.changelog.list_batches(connector.name)[-1]
    assert in_order(rows(engine, "p_s_t")) == in_order(source.copy_rows("s.t"))
    assert not left(engine)


def test_staging_tables_of_a_killed_run_are_dropped_when_no_one_can_need_them(
    engine: sa.Engine, tmp_path: Path
) -> None:
    r, source = Random(2), MemoryDatabase(str(tmp_path))
    source.create_table("s.t", {"id": "int64!", "c0": "int32"}, key=("id",))
    connector = memory_connector(source, tmp_path, topic_prefix="p")
    kept = [f"{PREFIX}_00000000_0_abcdef_0_0_0", f"{PREFIX}_of_somebody_else"]
    with engine.begin() as connection:
        for name in kept:
            connection.execute(sa.text(f"CREATE TABLE {name} (a int)"))

    class Killed(BaseException):
        """No one catches it, but for what ``finally`` does; that is switched off."""

    def raise_killed(work_: StagingWork, shares: Sequence[FileShare]) -> list[StagedPartition]:
        in_turn(work_, shares)
        raise Killed

    write_transactions(source, "s.t", r, 5)
    connector.capture()
    dying = staged_apply(engine, connector, raise_killed)
    dying._drop = lambda *_: None  # type: ignore[method-assign]
    with pytest.raises(Killed):
        dying.apply()
    assert len(left(engine)) > len(kept)
    before = set(left(engine))

    def apply_beside(work_: StagingWork, shares: Sequence[FileShare]) -> list[StagedPartition]:
        assert before <= set(left(engine)), "it may be of a run that is alive"
        return in_turn(work_, shares)

    staged_apply(engine, connector, apply_beside).apply()
    assert in_order(rows(engine, "p_s_t")) == in_order(source.copy_rows("s.t"))
    assert sorted(left(engine)) == sorted(kept)


@pytest.mark.parametrize("how", ["DELETE FROM {}", "DROP TABLE {}"])
def test_staging_tables_that_a_crash_has_emptied_are_filled_again(engine: sa.Engine, tmp_path: Path, how: str) -> None:
    """A crash of PostgreSQL empties tables that are not in its log."""
    r, source, crashes = Random(2), MemoryDatabase(str(tmp_path)), list[str]()
    source.create_table("s.t", {"id": "int64!", "c0": "int32"}, key=("id",))
    connector = memory_connector(source, tmp_path, topic_prefix="p")

    def apply_crashed(work_: StagingWork, shares: Sequence[FileShare]) -> list[StagedPartition]:
        found = in_turn(work_, shares)
        if len(crashes) < 2:
            crashes.extend(table.name for part in found for table in part.tables[:1])
            with engine.begin() as connection:
                for name in crashes[-1:]:
                    connection.execute(sa.text(how.format(name)))
        return found

    write_transactions(source, "s.t", r, 5)
    connector.capture()
    staged_apply(engine, connector, apply_crashed).apply()
    assert crashes
    assert in_order(rows(engine, "p_s_t")) == in_order(source.copy_rows("s.t"))
    assert not left(engine)

    def report_always(work_: StagingWork, shares: Sequence[FileShare]) -> list[StagedPartition]:
        return [
            dataclasses.replace(p, tables=tuple(dataclasses.replace(t, rows=10**6) for t in p.tables))
            for p in in_turn(work_, shares)
        ]

    write_transactions(source, "s.t", r, 5)
    connector.capture()
    with pytest.raises(CdcError, match="4 times in a row"):
        staged_apply(engine, connector, report_always).apply()


def test_events_that_did_not_come_to_a_partition_are_an_error(engine: sa.Engine, tmp_path: Path) -> None:
    r, source = Random(2), MemoryDatabase(str(tmp_path))
    source.create_table("s.t", {"id": "int64!", "c0": "int32"}, key=("id",))
    connector = memory_connector(source, tmp_path, topic_prefix="p", batch_max_rows=3)
    for _ in range(3):
        write_transactions(source, "s.t", r, 5)
        connector.capture()
    for lost in (lambda shares, found: in_turn(shares[0], shares[1][1:]), lambda shares, found: found[:-1]):

        def lose_events(work_: StagingWork, shares: Sequence[FileShare], lost: Any = lost) -> list[StagedPartition]:
            return list(lost((work_, shares), in_turn(work_, shares)))

        with pytest.raises(CdcError, match="workers have read"):
            staged_apply(engine, connector, lose_events).apply()
    assert "p_s_t" not in sa.inspect(engine).get_table_names() or rows(engine, "p_s_t") == []


@pytest.mark.parametrize(
    "properties",
    [
        {"insert__mode": "insert", "delete__enabled": False, "primary__key__mode": "none", "truncate__enabled": False},
        {"insert__mode": "update"},
        {"primary__key__mode": "kafka", "delete__enabled": False, "truncate__enabled": False},
    ],
)
def test_what_needs_every_event_is_written_by_the_driver(
    engine: sa.Engine, tmp_path: Path, properties: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    source, workers = MemoryDatabase(str(tmp_path)), WorkerCount()
    source.create_table("s.t", {"id": "int64!", "n": "int32"}, key=("id",))
    connector = memory_connector(source, tmp_path, topic_prefix="p")
    with source.transaction() as t:
        t.insert("s.t", {"id": 1, "n": 1})
    connector.capture()
    with caplog.at_level(logging.INFO):
        staged_apply(engine, connector, workers, **properties).apply()
    assert (
        len(rows(engine, "p_s_t")) == (0 if properties["insert__mode"] == "update" else 1)
        if "insert__mode" in properties
        else 1
    )
    assert workers.topics == []
    assert "The driver writes p.s.t without staging" in caplog.text


def test_a_database_without_staging_tables_is_refused(tmp_path: Path) -> None:
    source = MemoryDatabase(str(tmp_path))
    connector = memory_connector(source, tmp_path, topic_prefix="p")
    engine = open_engine(DatabaseTargetConfig.parse({"connection.url": f"sqlite:///{tmp_path}/target.db"}))
    with pytest.raises(ConfigError, match=r"(?s)cannot write to sqlite.*ApplyToDatabaseOperator"):
        staged_apply(engine, connector)
    engine.dispose()


# -- sizes ------------------------------------------------------------------------------------------------------------


def test_partitions_are_as_many_as_rows_need_that_are_not_compressed(
    tmp_path: Path, postgres: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """Texts that are the same in all rows take nothing in a file, and much in memory."""
    source = MemoryDatabase(str(tmp_path))
    source.create_table("s.t", {"id": "int64!", "text": "string"}, key=("id",))
    with source.transaction() as t:
        for number in range(3000):
            t.insert("s.t", {"id": number, "text": "x" * 1000})
    connector = memory_connector(source, tmp_path, topic_prefix="p")
    connector.capture()
    (manifest,) = connector.changelog.read_manifests(connector.name)
    assert manifest.batch_contents.total_bytes < 300_000
    with postgres.database("sizes") as name, caplog.at_level(logging.INFO):
        config = DatabaseTargetConfig.parse({**EQUAL, "connection.url": postgres.url(name)})
        engine = open_engine(config)
        sizes = StagingSizes(little=1, partition=300_000)
        StagedDatabaseApply(
            engine, config, connector.changelog, connector.name, in_turn, sizes=sizes, parallel=1
        ).apply()
        assert len(rows(engine, "p_s_t")) == 3000
        engine.dispose()
    assert "staged by 11 tasks" in caplog.text


def test_the_memory_of_a_partition_is_bounded_by_its_size(tmp_path: Path, postgres: Any) -> None:
    with postgres.database("memory") as name:
        command = [
            sys.executable,
            "-m",
            "tests.targets.database.partition_memory",
            postgres.url(name),
            tmp_path,
            "500000",
        ]
        ended = subprocess.run(list(map(str, command)), cwd=paths.ROOT, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    found = json.loads(ended.stdout)
    assert found["arrow"] > 40
    assert found["most"] - found["before"] < 3.5 * found["arrow"], found


# -- arrays -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(20))
def test_events_are_folded_as_if_one_after_the_other_was_applied(seed: int) -> None:
    r, names = Random(seed), ("a", "b", "c")
    events = list[dict[str, Any]]()
    for seq in range(r.randrange(1, 60)):
        deleted = r.random() < 0.2
        without = [] if deleted or seed % 4 == 0 else [name for name in names if r.random() < 0.5]
        values = {name: None if deleted or name in without else r.choice([None, seq]) for name in names}
        own = {SEQ: seq, DELETED: deleted, RECREATED: False, LEFT_OUT: "\0".join(without)}
        events.append({"id": r.randrange(6), **values, **own})
    schema = pa.schema(
        [
            ("id", pa.int64()),
            *((n, pa.int64()) for n in names),
            (SEQ, pa.int64()),
            (DELETED, pa.bool_()),
            (RECREATED, pa.bool_()),
            (LEFT_OUT, pa.string()),
        ]
    )

    def folded(rows_: list[dict[str, Any]]) -> pa.Table:
        return merge_events_per_key(pa.Table.from_pylist(rows_, schema), ["id"])

    r.shuffle(events)
    cut = r.randrange(len(events) + 1)
    ordered = sorted(events, key=lambda e: e[SEQ])
    parts = [events] if r.random() < 0.5 else [ordered[:cut], ordered[cut:]]
    found = merge_events_per_key(pa.concat_tables([folded(part) for part in reversed(parts)]), ["id"])
    begun = {id_: {"id": id_, "a": -1, "b": -2, "c": -3} for id_ in range(0, 6, 2)}
    assert _rows_after(begun, found.to_pylist()) == _rows_after(begun, ordered)
    assert len(set(found["id"].to_pylist())) == found.num_rows


def _rows_after(begun: dict[int, dict[str, Any]], events: list[dict[str, Any]]) -> dict[int, dict[str, Any]]:
    """Rows after some events, one after the other."""
    there = {id_: dict(row) for id_, row in begun.items()}
    for event in events:
        if event[DELETED] or event[RECREATED]:
            there.pop(event["id"], None)
        if not event[DELETED]:
            row = there.setdefault(event["id"], {"id": event["id"], "a": None, "b": None, "c": None})
            row |= {name: event[name] for name in "abc" if name not in event[LEFT_OUT].split("\0")}
    return there


def test_keys_are_spread_evenly_and_always_to_the_same_partition() -> None:
    for values in (range(10_000), [f"key {n}" for n in range(10_000)], [None, *range(9_999)]):
        keys = pa.table({"a": list(values), "b": ["x"] * 10_000})
        found = assign_partitions(keys, 7)
        sizes = [int((found == number).sum()) for number in range(7)]
        assert min(sizes) > 1000
        assert (assign_partitions(keys.slice(500, 100), 7) == found[500:600]).all()
