"""Batches that are committed to Iceberg tables as arrays: files of rows and of deletes, which every reader understands, and their compaction."""

from __future__ import annotations

import datetime as dt
import logging
import shutil
import threading
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any

import pytest
from pyspark.sql import functions as F

from airflow_provider_cdc.core.config.target_table_rules import TableRules
from airflow_provider_cdc.targets.lake.formats import parquet_key_lookup
from airflow_provider_cdc.targets.lake.formats.iceberg import compaction, copy_on_write, row_positions
from airflow_provider_cdc.targets.lake.formats.iceberg.array_commit import IcebergArrayCommit
from airflow_provider_cdc.targets.lake.formats.iceberg.data_file_writer import IcebergFileWriter
from airflow_provider_cdc.targets.lake.formats.iceberg.table import IcebergTarget
from airflow_provider_cdc.targets.lake.formats.table_values import WriteConflict
from airflow_provider_cdc.targets.lake.types.spark_types import spark_type
from tests.support.patience import LONGEST_S
from tests.targets.lake.apply.test_readers import COLUMNS, OF_ICEBERG, _agree
from tests.targets.lake.formats.test_array_commit import _write_transactions
from tests.targets.lake.lake import Lake

pytestmark = [pytest.mark.spark, pytest.mark.only_kind("iceberg")]
KEYS = [("int64",), ("string",), ("timestamp[us]", "bool"), ("decimal128(12, 2)", "string"), ("date32[day]", "binary")]
WAYS = ("files", "keys", "positions", "positions by Spark")
SHOWN = {
    ("int64",): ("keys", "files"),
    ("timestamp[us]", "bool"): ("positions", "files", "positions by Spark"),
    ("date32[day]", "binary"): ("keys",),
}
"""Keys that are tried without ``--long``, and the ways to write them."""


@pytest.fixture(autouse=True)
def _info_logs(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "airflow_provider_cdc.targets.lake")


@pytest.fixture(autouse=True)
def _no_table_is_small(monkeypatch: pytest.MonkeyPatch) -> None:
    """But where a test says so: :func:`_set_write_way`."""
    monkeypatch.setattr(copy_on_write, "MOST_BYTES", -1)


def _set_write_way(monkeypatch: pytest.MonkeyPatch, way: str) -> str:
    """Set how old rows go: by new files (``files``), or by deletes of ``keys`` or ``positions``, which the driver or Spark finds.

    :return: the profile of a table for this
    """
    if way == "files":
        monkeypatch.setattr(copy_on_write, "MOST_BYTES", 4 << 20)
    if way == "positions by Spark":
        monkeypatch.setattr(parquet_key_lookup, "MOST_FILES", -1)
    return "fast" if way == "keys" else "compatible"


@pytest.fixture
def table(lake: Lake) -> Lake:
    lake.connector.database.create_table("s.t", {"id": "int64!", "n": "int32", "note": "string"}, key=("id",))
    with lake.connector.database.transaction() as t:
        for i in range(10):
            t.insert("s.t", {"id": i, "n": i, "note": "x"})
    lake.connector.capture()
    return lake


def _change(lake: Lake, *ids: int) -> None:
    """Change rows, or make them."""
    with lake.connector.database.transaction() as t:
        for i in ids:
            if t.update("s.t", {"id": i}, {"n": i + 100}) == 0:
                t.insert("s.t", {"id": i, "n": i, "note": "new"})
    lake.connector.capture()


def _list_write_reports(caplog: pytest.LogCaptureFixture, name: str) -> list[str]:
    """Return the log's messages about the way in which a table was written, and clear them."""
    messages = [
        r.message
        for r in caplog.records
        if r.name
        in (
            "airflow_provider_cdc.targets.lake.apply.table_batch_writer",
            "airflow_provider_cdc.targets.lake.write.table_write",
        )
        and r.message.startswith(f"p.{name} ")
    ]
    caplog.clear()
    return messages


def _snapshots(lake: Lake, name: str = "s.t") -> list[dict[str, str]]:
    """Operation and summary of each snapshot, the oldest first."""
    target = lake.target(name)
    assert isinstance(target, IcebergTarget)
    assert target.exists()
    found = sorted(target._loaded.snapshots(), key=lambda s: s.sequenceNumber())
    return [{"operation": s.operation(), **dict(s.summary())} for s in found]


def _deletes(lake: Lake, name: str = "s.t") -> list[tuple[int, int]]:
    """For each snapshot, how many files of deleted keys and of deleted positions it has added."""
    what = "added-equality-delete-files", "added-position-delete-files"
    return [(int(s.get(what[0], 0)), int(s.get(what[1], 0))) for s in _snapshots(lake, name)]


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("key", "way"),
    [
        pytest.param(key, way, marks=[] if way in SHOWN.get(key, ()) else [pytest.mark.long])
        for key in KEYS
        for way in WAYS
    ],
)
def test_a_commit_of_arrays_makes_the_table_that_a_merge_makes(
    lake: Lake, key: tuple[str, ...], way: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    profile = _set_write_way(monkeypatch, way)
    db, r = lake.connector.database, Random(len(key[0]))
    names = {f"k {i}`": type_ for i, type_ in enumerate(key)}
    columns = {**{k: f"{t}!" for k, t in names.items()}, **{k: t for k, t in COLUMNS.items() if k != "id"}}
    db.create_table("s.t", columns, key=tuple(names))
    _write_transactions(lake, "s.t", names, r)
    lake.connector.capture()
    lake.apply(profile=profile)
    for _ in range(3):
        _write_transactions(lake, "s.t", names, r)
        lake.connector.capture()
        lake.apply(writes="commit")
    assert [text.split(":")[0] for text in _list_write_reports(caplog, "s.t")] == ["p.s.t is committed"] * 3
    lake.check()
    by_key, by_position = map(sum, zip(*_deletes(lake), strict=True))
    assert (by_key > 0, by_position > 0) == (way == "keys", way.startswith("positions"))
    _agree(lake, "s.t", *(OF_ICEBERG if profile == "compatible" else ("DuckDB",)))
    # and the format's own statements work on what was written
    lake.sql("DELETE FROM {} WHERE i32 % 2 = 0", "s.t")
    left = lake.rows("s.t")
    compaction.compact_files(lake.spark, _load_table(lake))
    assert lake.rows("s.t") == left


def _load_table(lake: Lake) -> Any:
    target = lake.target("s.t")
    assert target.exists()
    return target._loaded


@pytest.mark.parametrize("profile", ["compatible", "fast"])
def test_new_keys_are_appended_and_only_keys_that_may_be_there_are_looked_for(
    table: Lake, profile: str, caplog: pytest.LogCaptureFixture
) -> None:
    table.apply(profile=profile)
    _change(table, 20, 21)
    table.apply(writes="commit")
    assert _list_write_reports(caplog, "s.t") == ["p.s.t is committed: 2 keys, 2 rows."]
    _change(table, 3, 22)
    table.apply(writes="commit")
    fast = profile == "fast"
    assert _deletes(table) == [(0, 0), (0, 0), (1, 0) if fast else (0, 1)]
    assert [s["operation"] for s in _snapshots(table)] == ["append", "append", "overwrite"]
    table.check()
    for name in ("PyIceberg", "Polars") if fast else ():
        with pytest.raises(Exception, match="equality deletes"):
            OF_ICEBERG[name](table.path("s.t"))


@pytest.mark.parametrize("profile", ["fast", pytest.param("compatible", marks=pytest.mark.long)])
def test_a_create_of_a_key_that_the_table_has_replaces_its_row(table: Lake, profile: str) -> None:
    """No one trusts that a new key is new: a table may have rows that something else has put there."""
    table.apply(profile=profile)
    table.sql("INSERT INTO {} VALUES (50, 1, 'stray')", "s.t")
    _change(table, 50)
    table.apply(writes="commit")
    table.check()


def test_keys_that_come_and_go_leave_the_marker_alone_in_their_commit(table: Lake) -> None:
    table.apply()
    db = table.connector.database
    with db.transaction() as t:
        t.insert("s.t", {"id": 99, "n": 1})
        t.delete("s.t", {"id": 99})
    table.connector.capture()
    table.apply(writes="commit")
    assert _deletes(table) == [(0, 0), (0, 0)]
    assert [int(s["total-records"]) for s in _snapshots(table)] == [10, 10]
    assert table.apply(writes="commit").tables == []
    table.check()


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ("ALTER TABLE {} ADD COLUMN more STRING", "its columns differ from the source columns: more"),
        ("ALTER TABLE {} SET TBLPROPERTIES ('format-version' = '3')", "it uses deletion vectors"),
        ("partition", "it is partitioned by n"),
        ("require", "some columns are NOT NULL: id"),
    ],
)
def test_a_table_with_more_than_rows_is_merged(
    table: Lake, change: str, why: str, caplog: pytest.LogCaptureFixture
) -> None:
    table.apply()
    if change == "partition":
        _load_table(table).updateSpec().addField("n").commit()
    elif change == "require":
        _load_table(table).updateSchema().allowIncompatibleChanges().requireColumn("id").commit()
    else:
        table.sql(change, "s.t")
    _change(table, 3, 22)
    table.apply(writes="commit")
    assert why in _list_write_reports(caplog, "s.t")[0]
    table.check()


def test_readers_that_skip_files_by_their_bounds_find_every_row(lake: Lake) -> None:
    db = lake.connector.database
    values = {
        "decimal128(38, 2)": [Decimal("12345678901234567.89"), Decimal("-98765432109876543210.98"), Decimal("0.10")],
        "decimal128(12, 2)": [Decimal("-0.01"), Decimal("9999999999.99"), Decimal("0.00")],
        "string": ["x" * 40, "", "\U0010ffff" * 33], "int64": [2**62 + 1, -(2**63), 2**53 + 1],
        "date32[day]": [dt.date(1, 1, 1), dt.date(9999, 12, 31), dt.date(1066, 10, 14)],
        "timestamp[us]": [dt.datetime(1, 1, 1), dt.datetime(9999, 12, 31, 23, 59, 59, 999999), dt.datetime(1582, 10, 10)],
        "double": [-0.0, float("inf"), 1e300], "bool": [True, False, None],
    }  # fmt: skip
    names = {f"c{i}": type_ for i, type_ in enumerate(values)}
    db.create_table("s.t", {"id": "int64!", **names}, key=("id",))
    lake.follow()
    for i in range(3):
        with db.transaction() as t:
            t.insert("s.t", {"id": i, **{name: values[type_][i] for name, type_ in names.items()}})
        lake.connector.capture()
        lake.apply(writes="commit")
    for name, type_ in names.items():
        for i, value in enumerate(values[type_]):
            same = F.col(name).eqNullSafe(F.lit(None if value is None else str(value)).cast(spark_type(type_)))
            assert [row.id for row in lake.frame("s.t").where(same).collect()] == [i], (name, value)
    lake.check()


@pytest.mark.parametrize("way", ["files", "keys", pytest.param("positions", marks=pytest.mark.long)])
def test_of_two_commits_of_a_batch_one_counts(table: Lake, way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both find that the table lacks the batch, then both commit."""
    table.apply(profile=_set_write_way(monkeypatch, way))
    _change(table, 3, 22)
    both = threading.Barrier(2, timeout=LONGEST_S)

    def hook(location: str, name: str, write: Any) -> Any:
        if not both.broken:
            both.wait()
        try:
            return write()
        except WriteConflict:
            both.abort()
            raise

    table.hook = hook
    runs = [threading.Thread(target=table.apply, kwargs={"writes": "commit"}) for _ in range(2)]
    for run in runs:
        run.start()
    for run in runs:
        run.join()
    assert len(_snapshots(table)) == 2
    table.check()


@pytest.mark.parametrize("way", ["files", "keys", pytest.param("positions", marks=pytest.mark.long)])
def test_a_commit_that_was_overtaken_leaves_no_files(table: Lake, way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    table.apply(profile=_set_write_way(monkeypatch, way))
    _change(table, 3, 22)
    before: list[set[str]] = []
    upsert = IcebergTarget._publish

    def overtake(target: IcebergTarget) -> None:
        if not before:
            table.sql("ALTER TABLE {} SET TBLPROPERTIES ('team' = 'shop')", "s.t")
            before.append(_files(table))
            try:
                upsert(target)
            finally:
                before.append(_files(table))
        else:
            upsert(target)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(IcebergTarget, "_publish", overtake)
        table.apply(writes="commit")
    assert len(before[0]) > len(before[1])
    assert len(_snapshots(table)) == 2
    table.check()


class ProcessKilled(BaseException):
    """No one catches it, as no one catches a kill."""


class KilledCommit:
    """Ends the work before or after a step of a commit. At 0 it only counts: each step has a moment before it, and one after it."""

    def __init__(self, patch: pytest.MonkeyPatch, moment: int) -> None:
        self._moment, self.names, self.dead = moment, list[str](), False
        for owner, name in STEPS:
            patch.setattr(owner, name, self._step(getattr(owner, name), name))
        for owner, name in (
            (IcebergFileWriter, "remove_files"),
            (IcebergTarget, "_discard"),
        ):  # who is killed tidies nothing up
            patch.setattr(owner, name, self._unless_dead(getattr(owner, name)))

    def _step(self, method: Any, name: str) -> Any:
        def step(*given: Any, **named: Any) -> Any:
            self._at(f"before {name}")
            result = method(*given, **named)
            self._at(f"after {name}")
            return result

        return step

    def _at(self, name: str) -> None:
        self.names.append(name)
        if len(self.names) == self._moment:
            self.dead = True
            raise ProcessKilled(name)

    def _unless_dead(self, method: Any) -> Any:
        return lambda *given: None if self.dead else method(*given)


STEPS = [
    (IcebergFileWriter, "_put"), (IcebergArrayCommit, "write_batch"), (IcebergTarget, "_record"), (IcebergTarget, "_publish"),
    (IcebergTarget, "_compact"), (compaction, "compact_files"),
]  # fmt: skip
"""Of a commit, from its first file to the compaction that may follow."""


def _positions(lake: Lake) -> list[int]:
    """Return the number of positions that each snapshot has deleted."""
    return [int(snapshot.get("added-position-deletes", 0)) for snapshot in _snapshots(lake)]


@pytest.mark.parametrize("key", [("id",), ()])
def test_rows_of_files_from_when_the_table_was_partitioned_are_replaced(
    lake: Lake, key: tuple[str, ...], caplog: pytest.LogCaptureFixture
) -> None:
    db = lake.connector.database
    db.create_table("s.t", {"id": "int64!", "n": "int32"}, key=key)

    def insert(*ids: int) -> None:
        with db.transaction() as t:
            for i in ids:
                t.insert("s.t", {"id": i, "n": i})
        lake.follow()

    insert(0, 1)
    _load_table(lake).updateSpec().addField("n").commit()
    insert(2, 3, 4)
    _load_table(lake).updateSpec().removeField("n").commit()
    caplog.clear()
    for way in ("merge", "commit"):
        with db.transaction() as t:
            for i in (1, 2, 4):
                t.update("s.t", {"id": i}, {"n": {"merge": 100, "commit": 200}[way] + i})
        lake.follow()
        lake.check()
        (message,) = _list_write_reports(caplog, "s.t")
        assert ("it has files from an earlier partitioning" in message) == (way == "merge")
        if key and way == "merge":
            compaction.compact_files(lake.spark, _load_table(lake))


def test_a_row_that_changes_with_every_batch_is_deleted_once_each_time(table: Lake) -> None:
    """Its older places are deleted already; readers need not hear it again."""
    table.apply()
    for _ in range(3):
        _change(table, 3, 4)
        table.apply(writes="commit")
    assert _positions(table)[1:] == [2, 2, 2]
    table.check()


def test_rows_are_found_in_files_from_before_their_key_was_renamed_and_widened(lake: Lake) -> None:
    db = lake.connector.database
    db.create_table("s.t", {"b": "int32!", "a.b": "string!", "n": "int32"}, key=("a.b", "b"))
    with db.transaction() as t:
        for i in range(20):
            t.insert("s.t", {"b": i, "a.b": f"it's {i % 3}", "n": i})
    lake.connector.capture()
    lake.apply()
    db.rename_column("s.t", "b", "id")
    db.change_column("s.t", "id", "int64", int)
    with db.transaction() as t:
        t.update("s.t", {"id": 4, "a.b": "it's 1"}, {"n": 400})
        t.delete("s.t", {"id": 5, "a.b": "it's 2"})
        t.insert("s.t", {"id": 2**40, "a.b": "it's 0", "n": 1})
    lake.connector.capture()
    lake.apply(writes="commit")
    assert _positions(lake)[-1] == 2
    lake.check()


@pytest.mark.parametrize(
    ("limit", "value", "message"),
    [("MOST_FILES", 0, "the table has 1 files"), ("MOST_BYTES", 100, "the keys may be in files of 0 GB")],
)
def test_what_is_too_much_for_the_driver_is_left_to_spark(
    table: Lake, limit: str, value: int, message: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    table.apply()
    monkeypatch.setattr(parquet_key_lookup, limit, value)
    _change(table, 3, 22)
    table.apply(writes="commit")
    assert f"Spark searches for the rows to remove: {message}." in caplog.messages
    table.check()


def test_files_that_are_not_on_a_local_disk_are_read_by_ranges(table: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """Here they are, and are read through the table's own way to its store, as those of an object store."""
    monkeypatch.setattr(row_positions, "_on_disk", lambda _: None)
    table.apply()
    for ids in ((3, 22), (3, 4)):
        _change(table, *ids)
        table.apply(writes="commit")
    assert _positions(table)[1:] == [1, 2]
    table.check()


@pytest.mark.parametrize("way", ["files", pytest.param("keys", marks=pytest.mark.long), "positions"])
def test_a_commit_that_is_killed_at_any_moment_is_caught_up(
    table: Lake, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compaction, "DELETES", 1)
    table.apply(profile=_set_write_way(monkeypatch, way))
    _change(table, 3, 22)
    batches = table.connector.changelog.list_batches("test")
    saved, applied = table.folder / "saved", Path(table.connector.changelog.storage.root) / "test" / "applied"
    shutil.copytree(table.path("s.t"), saved)

    def restore_table() -> None:
        shutil.rmtree(table.path("s.t"))
        shutil.copytree(saved, table.path("s.t"))
        shutil.rmtree(applied, ignore_errors=True)

    def run(moment: int) -> list[str]:
        with pytest.MonkeyPatch.context() as patch:
            killing = KilledCommit(patch, moment)
            if moment:
                with pytest.raises(ProcessKilled):
                    table.apply(threads=1)
            else:
                table.apply(threads=1)
        return killing.names

    moments = run(0)
    assert {"after _put", "after _publish"} <= set(moments)
    assert ("after compact_files" in moments) == (way != "files")
    assert moments.count("after _put") == (1 if way == "files" else 2)
    for moment, name in enumerate(moments, start=1):
        restore_table()
        assert run(moment)[-1] == name
        published = "after _publish" in moments[:moment]
        assert (len(_snapshots(table)) > 1) == published, name
        done = table.apply(threads=1).tables
        assert len(done) == (0 if published else 1), name
        table.check()
        target = table.target("s.t")
        assert target.exists()
        assert set(target.read_markers().values()) == {batches[-1]}, name
        own = [
            s
            for s in _snapshots(table)
            if any(n.startswith("cdc.batch.") and v == str(batches[-1]) for n, v in s.items())
        ]
        assert len(own) == 1, name
        assert target.set_back(target.read_owner().application_name) == ""
        assert table.apply(threads=1).tables == []


@pytest.mark.parametrize("way", WAYS)
def test_keys_may_have_a_null_in_them(lake: Lake, way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    db = lake.connector.database
    db.create_table("s.t", {"a": "int64", "b": "string", "n": "int32"}, key=("a", "b"))
    keys = [{"a": a, "b": b} for a in (None, 1, 2) for b in (None, "", "x")]
    with db.transaction() as t:
        for key in keys:
            t.insert("s.t", {**key, "n": 0})
    lake.connector.capture()
    lake.apply(profile=_set_write_way(monkeypatch, way))
    for round_, changed in enumerate((keys[::2], keys[1::2], keys[:3], keys[:1])):
        with db.transaction() as t:
            for key in changed:
                t.update("s.t", key, {"n": round_})
            t.delete("s.t", changed[-1])
            t.insert("s.t", {**changed[-1], "n": -round_})
        lake.connector.capture()
        lake.apply(writes="commit")
        lake.check()
    with db.transaction() as t:
        t.delete("s.t", keys[0])
    lake.connector.capture()
    lake.apply(writes="commit")
    lake.check()
    assert len(lake.rows("s.t")) == len(keys) - 1
    assert [s["operation"] for s in _snapshots(lake)][-1] in ("overwrite", "delete")


def test_a_small_table_stays_a_few_files_without_deletes(table: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    profile = _set_write_way(monkeypatch, "files")
    monkeypatch.setattr(copy_on_write, "GATHERED", 4)
    table.apply(profile=profile)
    for i in range(6):
        _change(table, 30 + i)
        table.apply()
    assert max(int(s["total-data-files"]) for s in _snapshots(table)) == 4
    _change(table, 3, 31, 33)
    table.apply()
    table.check()
    assert sum(map(sum, _deletes(table))) == 0
    _agree(table, "s.t", *OF_ICEBERG)


@pytest.mark.parametrize("before", ["keys", "merge", "renamed", "orc"])
def test_a_small_table_takes_over_whatever_files_there_are(
    table: Lake, before: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Deletes of earlier commits go with the rows that they delete; files that arrays do not know are read by Spark."""
    db = table.connector.database
    table.apply(profile="fast")
    if before == "orc":
        table.sql("ALTER TABLE {} SET TBLPROPERTIES ('write.format.default' = 'orc')", "s.t")
    _change(table, 3, 22)
    table.apply(writes="commit" if before == "keys" else "merge")
    if before == "renamed":
        db.rename_columns("s.t", n="m")
        db.change_column("s.t", "m", "int64", int)
        db.add_column("s.t", "k", "string", "x")
        table.follow()
    _set_write_way(monkeypatch, "files")
    caplog.clear()
    for ids in ((4, 22), (5,), (23,)):
        with db.transaction() as t:
            for i in ids:
                t.update("s.t", {"id": i}, {"note": f"n{i}"}) or t.insert("s.t", {"id": i, "note": "new"})
        table.connector.capture()
        table.apply()
        table.check()
    assert [text.split(":")[0] for text in _list_write_reports(caplog, "s.t")] == ["p.s.t is committed"] * 3
    assert int(_snapshots(table)[-1].get("total-delete-files", 0)) == 0
    _agree(table, "s.t", *OF_ICEBERG)


def _files(lake: Lake) -> set[str]:
    return {p.name for p in Path(lake.path("s.t")).rglob("*") if p.suffix in (".parquet", ".avro")}


@pytest.mark.parametrize("profile", ["fast", pytest.param("compatible", marks=pytest.mark.long)])
def test_what_accumulates_is_compacted_and_the_marker_stays(
    table: Lake, profile: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compaction, "DELETES", 3)
    table.apply(profile=profile)
    for i in range(7):
        _change(table, i, 30 + i)
        table.apply(writes="commit")
        table.check()
    operations = [s["operation"] for s in _snapshots(table)]
    assert operations.count("replace") >= 2
    assert int(_snapshots(table)[-1]["total-delete-files"]) <= 1, "of the batch after the last compaction"
    assert table.apply(writes="commit").tables == []
    compaction.compact_files(table.spark, _load_table(table))
    _agree(table, "s.t", *OF_ICEBERG)


@pytest.mark.parametrize("profile", ["fast", pytest.param("compatible", marks=pytest.mark.long)])
def test_deletes_of_keys_are_understood_after_the_key_was_renamed_and_widened(lake: Lake, profile: str) -> None:
    db = lake.connector.database
    db.create_table("s.t", {"id": "int32!", "n": "int32", "note": "string"}, key=("id",))
    for i in range(3):
        _change(lake, i, i + 1)
        lake.apply(writes="commit", profile=profile)
    db.rename_columns("s.t", id="key")
    db.change_column("s.t", "key", "int64", int)
    lake.follow()
    lake.check()
    with db.transaction() as t:
        t.update("s.t", {"key": 1}, {"n": 5})
        t.update("s.t", {"key": 2}, {"key": 2**40})
    lake.connector.capture()
    lake.apply(writes="commit")
    lake.check()
    db.change_column("s.t", "n", "string", str)  # the table is written again
    lake.follow()
    lake.check()
    assert int(_snapshots(lake)[-1].get("total-delete-files", 0)) == 0


def test_small_files_without_deletes_are_compacted(table: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compaction, "SMALL", 6)
    table.apply()
    for i in range(6):
        _change(table, 30 + i)
        table.apply(writes="commit")
    assert [s["operation"] for s in _snapshots(table)] == ["append"] * 6 + ["replace", "append"]
    assert int(_snapshots(table)[-1]["total-data-files"]) == 2
    table.check()


def test_a_compaction_that_fails_leaves_the_batch_where_it_is(
    table: Lake, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(compaction, "DELETES", 1)
    table.apply(profile="fast")

    table.sql("ALTER TABLE {} SET TBLPROPERTIES ('write.format.default' = 'nonsense')", "s.t")
    _change(table, 3)
    table.apply(writes="commit")
    assert "could not be compacted; a later commit tries again" in caplog.text
    table.check()
    table.sql("ALTER TABLE {} UNSET TBLPROPERTIES ('write.format.default')", "s.t")
    _change(table, 4)
    table.apply(writes="commit")
    assert _snapshots(table)[-1]["operation"] == "replace"
    table.check()


def test_a_column_that_has_come_behind_those_of_the_mode_is_committed_where_it_is(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    _set_write_way(monkeypatch, "files")
    db, shared = lake.connector.database, f"{lake.folder}/{lake.name}/s/all"
    rule = {"tables": r"s\.(?P<name>\w+)", "location": shared, "mode": "soft_delete", "shard": {"shard": "{name}"}}
    lake.tables = TableRules.parse([rule])
    for name, more in (("one", {}), ("two", {"more": "string"})):
        db.create_table(f"s.{name}", {"id": "int64!", "n": "int32", **more}, key=("id",))
        with db.transaction() as t:
            for i in (1, 2):
                t.insert(f"s.{name}", {"id": i, "n": 0})
        lake.follow()
    assert list(lake.target("s.all").read_column_types()) == ["shard", "id", "n", "_is_deleted", "_deleted_at", "more"]
    with db.transaction() as t:
        t.update("s.two", {"id": 1}, {"n": 9, "more": "x"})
    lake.follow()
    assert "p.s.two is committed: 1 keys, 1 rows." in caplog.text
    rows = {(row["shard"], row["id"], row["n"], row["more"], row["_is_deleted"]) for row in lake.rows("s.all")}
    assert rows == {(name, i, 0, None, False) for name, i in (("one", 1), ("one", 2), ("two", 2))} | {
        ("two", 1, 9, "x", False)
    }
