"""Batches that are committed as arrays: the tables are those that a MERGE makes, and readers find in the files what they expect."""

from __future__ import annotations

import contextlib
import datetime as dt
import json
import logging
import threading
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyspark.sql import functions as F

from airflow_provider_cdc.core.errors import ConfigError, TargetError
from airflow_provider_cdc.targets.lake.formats.delta.file_reader import DeltaFileReader
from airflow_provider_cdc.targets.lake.formats.table_values import WriteConflict
from airflow_provider_cdc.targets.lake.types.spark_types import spark_type
from tests.support.patience import LONGEST_S
from tests.targets.lake.apply.test_readers import COLUMNS, FULL, READERS, _agree
from tests.targets.lake.lake import Lake

pytestmark = [pytest.mark.spark, pytest.mark.only_kind("delta")]
Row = dict[str, Any]
KEYS: dict[str, list[Any]] = {
    "int64": [-1, 0, 7, 2**40], "string": ["", "a", "A", "ä${user.home}", "it's `odd`", "x" * 50], "bool": [True, False],
    "decimal128(12, 2)": [Decimal("0.00"), Decimal("-1.50")], "date32[day]": [dt.date(1, 1, 1), dt.date(1066, 10, 14), dt.date(1582, 10, 10), dt.date(9999, 12, 31)],
    "timestamp[us]": [dt.datetime(1500, 1, 1), dt.datetime(2024, 2, 29, 12, 0, 0, 1)], "binary": [b"", b"\0", b"a"],
}  # fmt: skip


@pytest.fixture(autouse=True)
def _info_logs(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "airflow_provider_cdc.targets.lake")


def _list_write_reports(caplog: pytest.LogCaptureFixture, table: str) -> list[str]:
    """Return the log's messages about the way in which a table was written, and clear them."""
    messages = [
        r.message
        for r in caplog.records
        if r.name
        in (
            "airflow_provider_cdc.targets.lake.apply.table_batch_writer",
            "airflow_provider_cdc.targets.lake.write.table_write",
        )
        and r.message.startswith(f"p.{table} ")
    ]
    caplog.clear()
    return messages


def _operations(lake: Lake, table: str) -> list[str]:
    """Operations of the table's history, the oldest first."""
    log = Path(lake.path(table)) / "_delta_log"
    lines = [json.loads(line) for f in sorted(log.glob("*.json")) for line in f.read_text().splitlines()]
    return [line["commitInfo"]["operation"] for line in lines if "commitInfo" in line]


def make_tables_large(monkeypatch: pytest.MonkeyPatch, way: str = "vectors") -> None:
    """For a commit with deletion vectors, every table counts as a large one; and as a very large one, if Spark is to find the rows."""
    if way != "files":
        monkeypatch.setattr("airflow_provider_cdc.targets.lake.formats.delta.array_commit.MOST_BYTES", -1)
    if way == "found by Spark":
        monkeypatch.setattr("airflow_provider_cdc.targets.lake.formats.parquet_key_lookup.MOST_FILES", -1)


def _changed_files(lake: Lake, table: str) -> list[tuple[int, int]]:
    """Count the files that each commit has removed and added."""
    log = Path(lake.path(table)) / "_delta_log"
    commits = [[json.loads(line) for line in f.read_text().splitlines()] for f in sorted(log.glob("*.json"))]
    return [(sum("remove" in line for line in lines), sum("add" in line for line in lines)) for lines in commits]


def _write_transactions(lake: Lake, table: str, key: dict[str, str], r: Random) -> None:
    """A few transactions of everything that can happen to rows, changes of the key included."""
    db = lake.connector.database  # type: ignore[attr-defined]
    for _ in range(6):
        with db.transaction() as t:
            for _ in range(r.randrange(1, 5)):
                where = {name: r.choice(KEYS[type_]) for name, type_ in key.items()}
                row = {**where, **(FULL if r.random() < 0.5 else dict.fromkeys(FULL)), "i32": r.randrange(99)}
                if t.update(table, where, {"i32": row["i32"], "note": r.choice([None, "x"])}) == 0:
                    t.insert(table, row)
                elif r.random() < 0.3:
                    t.delete(table, where)


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    "key",
    [
        ("int64",),
        pytest.param(("string",), marks=pytest.mark.long),
        ("timestamp[us]", "bool"),
        pytest.param(("decimal128(12, 2)", "string"), marks=pytest.mark.long),
        pytest.param(("date32[day]", "binary"), marks=pytest.mark.long),
    ],
)
@pytest.mark.parametrize("way", ["files", "vectors", "found by Spark"])
def test_a_commit_of_arrays_makes_the_table_that_a_merge_makes(
    lake: Lake, key: tuple[str, ...], way: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_tables_large(monkeypatch, way)
    db, r = lake.connector.database, Random(len(key[0]))  # type: ignore[attr-defined]
    names = {f"k {i}`": type_ for i, type_ in enumerate(key)}
    columns = {**{k: f"{t}!" for k, t in names.items()}, **{k: t for k, t in COLUMNS.items() if k != "id"}}
    db.create_table("s.t", columns, key=tuple(names))
    _write_transactions(lake, "s.t", names, r)
    lake.connector.capture()
    lake.apply(profile="compatible" if way == "files" else "fast")
    for _ in range(3):
        _write_transactions(lake, "s.t", names, r)
        lake.connector.capture()
        lake.apply()
    assert [text.split(":")[0] for text in _list_write_reports(caplog, "s.t")] == ["p.s.t is committed"] * 3
    lake.check()
    _agree(lake, "s.t", "DuckDB", "delta-rs")
    lake.apply()
    assert _operations(lake, "s.t")[1:] == ["STREAMING UPDATE"] * 3
    # and Delta's own statements work on what was written
    lake.spark.sql(f"OPTIMIZE delta.`{lake.path('s.t')}`")
    lake.check()


@pytest.fixture
def table(lake: Lake) -> Lake:
    db = lake.connector.database  # type: ignore[attr-defined]
    db.create_table("s.t", {"id": "int64!", "n": "int32", "note": "string"}, key=("id",))
    with db.transaction() as t:
        for i in range(10):
            t.insert("s.t", {"id": i, "n": i, "note": "x"})
    lake.connector.capture()
    return lake


def _change(lake: Lake, *ids: int) -> None:
    db = lake.connector.database  # type: ignore[attr-defined]
    with db.transaction() as t:
        for i in ids:
            if t.update("s.t", {"id": i}, {"n": i + 100}) == 0:
                t.insert("s.t", {"id": i, "n": i, "note": "new"})
    lake.connector.capture()


def test_a_small_batch_has_no_one_read_the_log_of_its_table(table: Lake) -> None:
    """A Spark job that makes the state of a table of its log takes longer than all the rest, and its plans stay in memory. The time zone is not UTC here."""
    table.apply()
    _change(table, 3, 20)
    session = table.spark._jvm
    session.org.apache.spark.sql.delta.DeltaLog.clearCache()  # type: ignore[union-attr]  # as a run has it that begins
    scheduler = table.spark.sparkContext._jsc.sc().dagScheduler()
    before = scheduler.numTotalJobs()
    table.apply()
    assert scheduler.numTotalJobs() == before
    table.check()


def test_a_table_without_checksums_of_its_versions_is_brought_up_to_date_once(table: Lake) -> None:
    """Other writers of Delta do not leave them: then the log itself says what the table has."""
    table.apply()
    _change(table, 3, 20)
    for file in table.log("s.t").glob("*.crc"):
        file.unlink()
    table.spark._jvm.org.apache.spark.sql.delta.DeltaLog.clearCache()  # type: ignore[union-attr]
    table.apply()
    table.check()
    version = table.version("s.t")
    table.apply()
    assert table.version("s.t") == version == 1


def test_files_with_rows_that_change_are_written_again_in_a_small_table(
    table: Lake, caplog: pytest.LogCaptureFixture
) -> None:
    table.apply()
    _change(table, 20, 21)
    table.apply()
    _change(table, 3, 22)
    table.apply()
    assert _list_write_reports(caplog, "s.t") == ["p.s.t is committed: 2 keys, 2 rows."] * 2
    assert _operations(table, "s.t") == ["WRITE", "STREAMING UPDATE", "STREAMING UPDATE"]
    assert _changed_files(table, "s.t")[1:] == [(0, 1), (1, 1)]
    table.check()
    _agree(table, "s.t", *READERS)


def test_many_small_files_become_one(table: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("airflow_provider_cdc.targets.lake.formats.delta.copy_on_write.GATHERED", 4)
    table.apply()
    for i in range(20, 24):
        _change(table, i)
        table.apply()
    assert _changed_files(table, "s.t")[1:] == [(0, 1), (0, 1), (0, 1), (4, 1)]
    table.check()
    # by what files say of their keys, those of other keys are not read
    read: list[int] = []
    monkeypatch.setattr(
        DeltaFileReader,
        "read_rows",
        lambda self, *of, read_=DeltaFileReader.read_rows: read.append(1) or read_(self, *of),
    )
    _change(table, 50)
    table.apply()
    assert not read
    _change(table, 50)
    table.apply()
    assert len(read) == 1
    table.check()


def test_a_batch_that_takes_all_rows_away_leaves_a_table_without_files(table: Lake) -> None:
    table.apply()
    db = table.connector.database  # type: ignore[attr-defined]
    with db.transaction() as t:
        for i in range(10):
            t.delete("s.t", {"id": i})
    table.connector.capture()
    table.apply()
    assert _changed_files(table, "s.t")[1:] == [(1, 0)]
    table.check()
    _change(table, 3)
    table.apply()
    table.check()


def test_rows_of_files_with_older_columns_are_kept(lake: Lake) -> None:
    """Columns that were renamed, added and widened since, in files that Spark has written."""
    db = lake.connector.database  # type: ignore[attr-defined]
    db.create_table("s.t", COLUMNS, key=("id",))
    with db.transaction() as t:
        for i in range(9):
            t.insert("s.t", {"id": i, **(FULL if i % 2 else dict.fromkeys(FULL))})
    lake.follow()
    alters = (
        lambda: db.rename_column("s.t", "note", "a note; with more"),
        lambda: db.add_column("s.t", "more", COLUMNS["exact"]),
        lambda: db.change_column("s.t", "i32", "int64", int),
        lambda: db.add_column("s.t", "many", COLUMNS["vector"]),
    )
    for number, alter in enumerate(alters, start=9):
        alter()
        with db.transaction() as t:
            t.insert("s.t", {"id": number})
        lake.follow()
    for i in (3, 9, 12):
        with db.transaction() as t:
            t.update("s.t", {"id": i}, {"x": 9.5})
        lake.follow()
    assert _operations(lake, "s.t")[-3:] == ["STREAMING UPDATE"] * 3
    lake.check()
    _agree(lake, "s.t", "DuckDB")


def test_a_file_without_the_key_is_left_to_spark(
    table: Lake, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its rows would count as rows with other keys, and stay twice."""
    table.apply()
    (file,) = Path(table.path("s.t")).glob("*.parquet")
    rows = pq.read_table(file)
    pq.write_table(rows.rename_columns(["another", *rows.column_names[1:]]), file)
    _change(table, 3)
    with contextlib.suppress(TargetError):  # whatever Spark makes of such a file
        table.apply()
    assert _list_write_reports(caplog, "s.t") == [
        "p.s.t is merged: a file lacks id; the table has no deletion vectors."
    ]


def test_new_keys_are_appended_to_a_large_table_of_the_plainest_kind(
    table: Lake, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_tables_large(monkeypatch)
    table.apply()
    _change(table, 20, 21)
    table.apply()
    assert _list_write_reports(caplog, "s.t") == ["p.s.t is committed: 2 keys, 2 rows."]
    _change(table, 3, 22)
    table.apply()
    assert _list_write_reports(caplog, "s.t") == ["p.s.t is merged: it is large; the table has no deletion vectors."]
    assert _operations(table, "s.t") == ["WRITE", "STREAMING UPDATE", "MERGE"]
    table.check()


@pytest.mark.parametrize(
    ("profile", "large_", "message"),
    [
        ("compatible", False, "is committed: 1 keys"),
        ("compatible", True, "is merged: it is large; the table has no deletion vectors and already has some"),
        ("fast", True, "is committed: 1 keys"),
    ],
)
def test_a_create_of_a_key_that_the_table_has_replaces_its_row(
    table: Lake,
    profile: str,
    large_: bool,
    message: str,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """No one trusts that a new key is new: a table may have rows that something else has put there."""
    make_tables_large(monkeypatch, "vectors" if large_ else "files")
    table.apply(profile=profile)
    table.spark.sql(f"INSERT INTO delta.`{table.path('s.t')}` VALUES (50, 1, 'stray')")
    _change(table, 50)
    caplog.clear()
    table.apply()
    assert message in _list_write_reports(caplog, "s.t")[0]
    table.check()


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    ("change", "why"),
    [
        ("ALTER TABLE {} SET TBLPROPERTIES ('delta.enableChangeDataFeed' = 'true')", "it has changeDataFeed"),
        ("ALTER TABLE {} ADD CONSTRAINT small CHECK (n < 100000)", "it has checkConstraints"),
        ("ALTER TABLE {} ADD COLUMN more STRING", "its columns differ from the source columns: more"),
        ("ALTER TABLE {} SET TBLPROPERTIES ('delta.enableRowTracking' = 'true')", "it has domainMetadata, rowTracking"),
    ],
)
def test_a_table_with_more_than_rows_is_merged(
    table: Lake, change: str, why: str, caplog: pytest.LogCaptureFixture
) -> None:
    table.apply(profile="fast")
    table.spark.sql(change.format(f"delta.`{table.path('s.t')}`"))
    _change(table, 3, 22)
    table.apply()
    assert why in _list_write_reports(caplog, "s.t")[0]
    table.check()


def test_readers_that_skip_files_by_their_statistics_find_every_row(lake: Lake) -> None:
    """Values that JSON cannot hold exactly, and texts that are cut in statistics, must not hide rows."""
    db = lake.connector.database  # type: ignore[attr-defined]
    values = {
        "decimal128(38, 2)": [Decimal("12345678901234567.89"), Decimal("-98765432109876543210.98"), Decimal("0.10")],
        "decimal128(38, 0)": [Decimal(10**37), Decimal(-(10**37) + 1), Decimal(2**53 + 1)],
        "string": ["x" * 40, "", "ä" * 33], "int64": [2**62 + 1, -(2**63), 2**53 + 1],
        "date32[day]": [dt.date(1, 1, 1), dt.date(9999, 12, 31), dt.date(1066, 10, 14)],
    }  # fmt: skip
    names = {f"c{i}": type_ for i, type_ in enumerate(values)}
    db.create_table("s.t", {"id": "int64!", **names}, key=("id",))
    lake.follow()
    for i in range(3):
        with db.transaction() as t:
            t.insert("s.t", {"id": i, **{name: values[type_][i] for name, type_ in names.items()}})
        lake.connector.capture()
        lake.apply()
    assert _operations(lake, "s.t")[1:] == ["STREAMING UPDATE"] * 3
    for name, type_ in names.items():
        for i, value in enumerate(values[type_]):
            assert [
                row.id
                for row in lake.frame("s.t").where(F.col(name) == F.lit(str(value)).cast(spark_type(type_))).collect()
            ] == [i], (
                name,
                value,
            )
    lake.check()
    _agree(lake, "s.t", *READERS)


def test_batches_are_merged_if_asked_for(table: Lake, caplog: pytest.LogCaptureFixture) -> None:
    table.apply()
    for writes, message in (
        ("auto", "is committed"),
        ("commit", "is committed"),
        ("merge", "is merged: writes=merge is set"),
    ):
        _change(table, 3)
        table.apply(writes=writes)
        assert message in _list_write_reports(caplog, "s.t")[0]
    with pytest.raises(ConfigError, match=r"'never' is not a write strategy\. Valid values are: auto, merge, commit"):
        table.apply(writes="never")


@pytest.mark.parametrize("way", ["files", "vectors"])
def test_of_two_commits_of_a_batch_one_counts(table: Lake, way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both find that the table lacks the batch, then both commit."""
    make_tables_large(monkeypatch, way)
    table.apply(profile="fast")
    _change(table, 3, 22)
    both = threading.Barrier(2, timeout=LONGEST_S)
    caught: list[Exception] = []

    def hook(location: str, name: str, write: Any) -> Any:
        if both.n_waiting or not both.broken:
            both.wait()
        try:
            return write()
        except WriteConflict as e:
            caught.append(e)
            both.abort()
            raise

    table.hook = hook
    runs = [threading.Thread(target=table.apply, kwargs={}) for _ in range(2)]
    for run in runs:
        run.start()
    for run in runs:
        run.join()
    assert _operations(table, "s.t") == ["WRITE", "STREAMING UPDATE"]
    table.check()
