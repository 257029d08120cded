"""Abilities that only Iceberg tables have, and their meaning for the apply: catalogs, snapshots, rollbacks and expiry."""

from __future__ import annotations

import contextlib
import random
import shutil
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from py4j.protocol import Py4JJavaError

from airflow_provider_cdc.core.config.target_table_rules import TableRules
from airflow_provider_cdc.core.errors import ConfigError, TargetError
from airflow_provider_cdc.core.model.table_schema import TableId
from airflow_provider_cdc.targets.lake.formats import load_format
from airflow_provider_cdc.targets.lake.formats.iceberg import jvm_access as jvm
from airflow_provider_cdc.targets.lake.formats.iceberg import snapshot_markers
from airflow_provider_cdc.targets.lake.formats.iceberg.snapshot_line import SnapshotSummary
from airflow_provider_cdc.targets.lake.formats.iceberg.table import IcebergTarget
from airflow_provider_cdc.targets.lake.formats.iceberg.table_locations import FolderLocation
from airflow_provider_cdc.targets.lake.formats.iceberg.table_schema import RESERVED
from airflow_provider_cdc.targets.lake.formats.owners_and_markers import Marker
from airflow_provider_cdc.targets.lake.formats.table_values import WriteConflict
from airflow_provider_cdc.targets.lake.session.spark_session import own_session
from airflow_provider_cdc.targets.lake.types.spark_types import quote_name
from tests.support.workloads.memory_work import Workload
from tests.targets.lake.lake import Lake

pytestmark = [pytest.mark.spark, pytest.mark.only_kind("iceberg")]
ORDERS = {"id": "int64!", "n": "int32"}
TOPIC = "p.s.orders"


def _orders(lake: Lake, batches: int = 3, key: tuple[str, ...] = ("id",)) -> None:
    lake.connector.database.create_table("s.orders", ORDERS, key=key)
    for _ in range(batches):
        _insert_rows(lake)
        lake.follow()


def _insert_rows(lake: Lake) -> None:
    with lake.connector.database.transaction() as t:
        t.insert("s.orders", {"id": len(lake.connector.database.copy_rows("s.orders")), "n": 1})


def _target(lake: Lake) -> IcebergTarget:
    iceberg = load_format("iceberg")
    target = iceberg.open_target(own_session(lake.spark, iceberg), lake.path("s.orders"))
    assert isinstance(target, IcebergTarget)
    assert target.exists()
    return target


def _table(lake: Lake) -> Any:
    """Return the table as Iceberg's own interface gives it."""
    return _target(lake)._loaded


def _snapshots(lake: Lake) -> list[int]:
    """From the oldest to the newest."""
    return [s.snapshotId() for s in sorted(_table(lake).snapshots(), key=lambda s: s.sequenceNumber())]


# -- snapshots that come and go ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("key", [("id",), pytest.param((), marks=pytest.mark.long)])
def test_a_table_that_was_rolled_back_is_caught_up(lake: Lake, key: tuple[str, ...]) -> None:
    """The marker goes back with the rows."""
    _orders(lake, 3, key)
    lake.connector.database.rename_columns("s.orders", n="m")
    lake.follow()
    for back in (1, 0):
        _table(lake).manageSnapshots().rollbackTo(_snapshots(lake)[back]).commit()
        assert _target(lake).read_marker(lake.owner(TOPIC).application_name) == back + 1
        lake.apply()
        lake.check()
    assert _target(lake).read_marker(lake.owner(TOPIC).application_name) == 4


def test_a_marker_survives_compaction_and_expiry(lake: Lake) -> None:
    _orders(lake)
    _compact(lake)
    assert _target(lake).read_marker(lake.owner(TOPIC).application_name) == 3
    kept = _snapshots(lake)[-1]
    _expire(lake, kept)
    assert _snapshots(lake) == [kept]
    assert (_target(lake).read_markers(), _target(lake).set_back(lake.owner(TOPIC).application_name)) == (
        {lake.owner(TOPIC).application_name: 3},
        "",
    )
    assert lake.apply().tables == []
    _insert_rows(lake)
    lake.follow()
    lake.check()


@pytest.mark.parametrize("compacted_since", [False, True])
def test_a_rollback_whose_marker_has_expired_is_an_error(lake: Lake, compacted_since: bool) -> None:
    _orders(lake, 2)
    _compact(lake)
    compacted = _snapshots(lake)[-1]
    _insert_rows(lake)
    lake.follow()
    _table(lake).manageSnapshots().rollbackTo(compacted).commit()
    _expire(lake, compacted)
    if compacted_since:  # as by a maintenance, which may come before the next apply
        _compact(lake)
    with pytest.raises(TargetError, match=rf"before batch 3 \(the table was rolled back to snapshot {compacted}\)"):
        lake.apply()


def test_a_snapshot_that_was_picked_alone_is_an_error(lake: Lake) -> None:
    """It has rows of a batch without its marker."""
    _orders(lake, 3, ())
    first, second, third = _snapshots(lake)
    _table(lake).manageSnapshots().rollbackTo(first).commit()
    _table(lake).manageSnapshots().cherrypick(third).commit()
    with pytest.raises(TargetError, match="cherry-picked"):
        lake.apply()
    assert _target(lake).read_marker(lake.owner(TOPIC).application_name) == 1
    _table(lake).manageSnapshots().setCurrentSnapshot(second).commit()
    lake.apply()
    lake.check()


def test_a_table_that_someone_has_made_again_is_built_again(lake: Lake) -> None:
    _orders(lake)
    lake.sql("REPLACE TABLE {} USING iceberg AS SELECT 1 AS other", "s.orders")
    lake.apply()
    lake.check()
    assert list(lake.frame("s.orders").columns) == list(ORDERS)


def test_idle_topics_of_a_shared_table_read_no_snapshot_twice(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    db, idle, others = lake.connector.database, 5, 60
    lake.tables = TableRules.parse(
        [{"tables": r"s\.(?P<name>\w+)", "location": lake.path("s.orders"), "shard": {"shard": "{name}"}}]
    )
    for number in range(idle):
        db.create_table(f"s.idle{number}", ORDERS, key=("id",))
        with db.transaction() as t:
            t.insert(f"s.idle{number}", {"id": 1, "n": 1})
    lake.follow()
    table = _table(lake)
    for number in range(others):
        table.newAppend().set("cdc.batch.busy", str(number)).commit()
    seen: list[int] = []
    read = snapshot_markers._summary_of

    def count(snapshot: Any) -> SnapshotSummary:
        seen.append(snapshot.snapshotId())
        return read(snapshot)

    monkeypatch.setattr(snapshot_markers, "_summary_of", count)
    snapshot_markers._LINES.clear()
    assert lake.apply(threads=1).tables == []
    assert len(seen) == len(set(seen)) <= others + idle + 1
    seen.clear()
    table.newAppend().set("cdc.batch.busy", str(others)).commit()
    assert lake.apply(threads=1).tables == []
    assert len(seen) == 1


def _compact(lake: Lake) -> None:
    """Compact the table as ``rewrite_data_files`` does: the same rows in other files, in a snapshot without our marks."""
    table = _table(lake)
    util = lake.spark._jvm.org.apache.iceberg.spark.actions.SparkActions.get(lake.spark._jsparkSession)  # type: ignore[union-attr]
    done = util.rewriteDataFiles(table).option("rewrite-all", "true").execute()
    assert done.rewrittenDataFilesCount() > 0


def _expire(lake: Lake, *kept: int) -> None:
    expire = _table(lake).expireSnapshots()
    for snapshot in set(_snapshots(lake)) - set(kept):
        expire.expireSnapshotId(snapshot)
    expire.commit()


# -- commits ----------------------------------------------------------------------------------------------------------


def test_every_batch_is_one_snapshot_and_columns_are_one_commit(lake: Lake) -> None:
    _orders(lake)
    assert lake.version("s.orders") == 2
    assert len(_snapshots(lake)) == 3
    db = lake.connector.database
    db.rename_columns("s.orders", n="m")
    db.add_column("s.orders", "c", "string", "x")
    db.change_column("s.orders", "m", "int64", int)
    lake.follow()
    assert (lake.version("s.orders"), len(_snapshots(lake))) == (4, 4)
    db.change_column("s.orders", "m", "string", str)  # no other type of this kind: the table is read again
    lake.follow()
    lake.check()
    assert (lake.version("s.orders"), len(_snapshots(lake))) == (5, 5)


def test_a_commit_that_was_overtaken_leaves_no_files(lake: Lake) -> None:
    _orders(lake, 1)
    ours = _target(lake)
    rows = ours.read_rows().localCheckpoint()

    @contextlib.contextmanager
    def overtake() -> Iterator[None]:
        lake.sql("ALTER TABLE {} SET TBLPROPERTIES ('team' = 'shop')", "s.orders")
        yield

    before = _files(lake)
    ours._place.lock_metadata = overtake  # type: ignore[method-assign]
    with pytest.raises(WriteConflict):
        ours.append(rows, _next_marker(ours))
    assert _files(lake) == before
    assert _target(lake).read_marker(lake.owner(TOPIC).application_name) == 1


def test_an_unconfirmed_commit_is_read_from_the_table(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """A catalog whose answer is lost; here it is lost on the way to us."""
    _orders(lake, 1, ())
    jvm: Any = lake.spark._jvm
    lost = jvm.org.apache.iceberg.exceptions.CommitStateUnknownException(jvm.java.lang.RuntimeException("no answer"))
    answers = iter([False])
    alone = FolderLocation.lock_metadata

    @contextlib.contextmanager
    def commit_unanswered(place: FolderLocation) -> Iterator[None]:
        with alone(place):
            yield
        if not next(answers, True):
            raise Py4JJavaError("no answer", lost)

    monkeypatch.setattr(FolderLocation, "lock_metadata", commit_unanswered)
    _insert_rows(lake)
    lake.follow()
    lake.check()
    assert len(_snapshots(lake)) == 2


def test_a_commit_that_was_done_and_is_said_to_have_failed_keeps_its_files(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A catalog to which the request comes twice, as the first answer was lost."""
    _orders(lake, 1)
    _insert_rows(lake)
    lake.connector.capture()
    publish = IcebergTarget._publish

    def publish_twice(target: IcebergTarget) -> None:
        monkeypatch.setattr(IcebergTarget, "_publish", publish)
        target._loaded.operations().commit(target._before, target._view.operations().current())
        publish(target)

    monkeypatch.setattr(IcebergTarget, "_publish", publish_twice)
    lake.apply()
    lake.check()
    assert len(_snapshots(lake)) == 2


def _next_marker(target: IcebergTarget) -> Marker:
    owner = target.read_owner()
    return Marker(owner, target.read_marker(owner.application_name) + 1)


def _files(lake: Lake) -> set[str]:
    return {p.name for p in Path(lake.path("s.orders")).rglob("*") if p.suffix in (".parquet", ".avro")}


def _term(lake: Lake, column: str) -> Any:
    return lake.spark._jvm.org.apache.iceberg.expressions.Expressions.ref(column)  # type: ignore[union-attr]


def _nulls_first(lake: Lake) -> Any:
    return lake.spark._jvm.org.apache.iceberg.NullOrder.NULLS_FIRST  # type: ignore[union-attr]


def test_partitions_stay_when_a_table_is_written_again_and_go_with_their_column(lake: Lake) -> None:
    lake.connector.database.create_table("s.orders", {"id": "int64", "a": "int32", "b": "int32"})
    with lake.connector.database.transaction() as t:
        for i in range(6):
            t.insert("s.orders", {"id": i, "a": i % 2, "b": i % 3})
    lake.follow()
    _table(lake).updateSpec().addField("a").addField("b").commit()
    _table(lake).replaceSortOrder().asc(_term(lake, "b"), _nulls_first(lake)).commit()
    with lake.connector.database.transaction() as t:
        t.delete("s.orders", {"id": 1})
    lake.follow()
    lake.check()
    assert [field.name() for field in _table(lake).spec().fields()] == ["a", "b"]
    lake.connector.database.change_column("s.orders", "b", "string", str)
    lake.follow()
    lake.check()
    assert [field.name() for field in _table(lake).spec().fields()] == ["a"]
    assert not _table(lake).sortOrder().isSorted()


def test_a_table_whose_partition_column_is_gone_goes_on_being_merged(lake: Lake) -> None:
    db = lake.connector.database
    db.create_table("s.orders", {"id": "int64!", "n": "int32"}, key=("id",))
    _insert_rows(lake)
    lake.follow()
    _table(lake).updateSpec().addField("n").commit()
    for _ in range(2):
        _insert_rows(lake)
        lake.follow()
    db.change_column("s.orders", "n", "string", str)  # no other type of this kind: the table is written again
    lake.follow()
    for change in ({"n": "x"}, {"n": None}):
        with db.transaction() as t:
            t.update("s.orders", {"id": 1}, change)
        lake.connector.capture()
        lake.apply(writes="merge")
        lake.check()


# -- places -----------------------------------------------------------------------------------------------------------


def test_a_table_that_was_copied_by_its_files_is_refused(lake: Lake) -> None:
    """It would write where the other one is."""
    _orders(lake, 1)
    shutil.copytree(lake.folder / "lake", lake.folder / "copy")
    with pytest.raises(TargetError, match=r"records .*/lake/s/orders.*moved or copied"):
        replace(lake, name="copy").apply()
    shutil.rmtree(lake.folder / "copy")
    replace(lake, name="copy").apply()
    replace(lake, name="copy").check()


def test_a_place_that_means_something_else_is_refused(lake: Lake) -> None:
    lake.connector.database.create_table("s.orders#files", ORDERS, key=("id",))
    lake.connector.capture()
    with pytest.raises(TargetError, match="is a view of a table's metadata"):
        lake.apply()


class _NamedTables:
    """Tables in a catalog, as people see them."""

    def __init__(self, lake: Lake, catalog: str) -> None:
        self._lake = lake
        self._prefix = f"x{zlib.crc32(str(lake.folder).encode())}_"
        self.location = f"{catalog}.{self._prefix}{{database}}.{{table}}"

    def rows(self, table: TableId, columns: Iterable[str]) -> list[dict[str, Any]]:
        spark = self._lake.spark.newSession()
        spark.conf.set("spark.sql.variable.substitute", "false")
        parts = self.location.split(".")[0], f"{self._prefix}{table.namespace}", table.name
        rows = spark.table(".".join(map(quote_name, parts))).select(*map(quote_name, columns)).toArrow().to_pylist()
        return sorted(rows, key=repr)

    def check(self) -> None:
        for topic, replayed in self._lake.replayed().items():
            assert self.rows(replayed.schema.id, replayed.schema.column_names) == replayed.all(), topic


@pytest.fixture(params=["in_files", pytest.param("looked_up", marks=pytest.mark.long)])
def named_tables(request: pytest.FixtureRequest, lake: Lake) -> _NamedTables:
    return _NamedTables(lake, request.param)


def test_tables_of_a_catalog_follow_their_source(lake: Lake, named_tables: _NamedTables) -> None:
    work, r = Workload(lake.connector.database, sparse=("note",)), random.Random(4)
    for _ in range(2):
        for _ in range(30):
            work.step(r)
        lake.connector.capture()
        lake.apply(location=named_tables.location)
        named_tables.check()
    assert lake.apply(location=named_tables.location).tables == []


def test_odd_names_of_tables_are_one_part_each(lake: Lake, named_tables: _NamedTables) -> None:
    db, names = lake.connector.database, ("a.b", "it's", "${x}", "a b", "日本", "x.y.z")
    for name in names:
        db.create_table(f"s.{name}", ORDERS, key=("id",))
    for i in range(2):
        with db.transaction() as t:
            for name in names:
                t.insert(f"s.{name}", {"id": i, "n": i})
        lake.connector.capture()
        lake.apply(location=named_tables.location)
    named_tables.check()
    found = lake.spark.newSession().sql(f"SHOW TABLES IN {named_tables.location.split('{')[0]}s").collect()
    assert {row.tableName for row in found} == set(names)


def test_a_catalog_that_is_not_there_is_named(lake: Lake) -> None:
    _orders(lake, 0)
    lake.connector.capture()
    with pytest.raises(TargetError, match=r"no Iceberg catalog 'nowhere'[\s\S]*spark.sql.catalog.nowhere=org"):
        lake.apply(location="nowhere.{database}.{table}")
    with pytest.raises(ConfigError, match="neither a path nor the name"):
        lake.apply(location="{database}.{table}")


# -- names of columns that are Iceberg's own --------------------------------------------------------------------------


def test_the_reserved_names_are_those_of_this_version_of_iceberg(lake: Lake) -> None:
    columns = jvm.load_jvm_class(lake.spark, f"{jvm.ICEBERG}.MetadataColumns")
    others = {"_change_type", "_change_ordinal", "_commit_snapshot_id", "_metadata", "file", "pos"}
    assert {name for name in RESERVED | others if columns.isMetadataColumn(name)} == RESERVED


def test_a_column_of_the_source_with_a_reserved_name_is_refused_and_a_rule_gives_it_another_one(lake: Lake) -> None:
    database = lake.connector.database
    database.create_table("s.good", ORDERS, key=("id",))
    database.create_table("s.orders", {**ORDERS, "_POS": "int32"}, key=("id",))
    with database.transaction() as t:
        t.insert("s.good", {"id": 1, "n": 1})
        t.insert("s.orders", {"id": 1, "n": 1, "_POS": 7})
    lake.connector.capture()
    with pytest.raises(TargetError, match=r"cannot have a column called '_POS'[\s\S]*columns.rename \{'_POS': 'POS'\}"):
        lake.apply()
    assert not Path(lake.path("s.orders")).exists()
    lake.check("s.good")
    lake.tables = TableRules.parse([{"tables": r"s\.orders", "columns": {"rename": {"_pos": "POS"}}}])
    lake.apply()
    assert lake.rows("s.orders") == [{"id": 1, "n": 1, "POS": 7}]


def test_a_rule_that_makes_a_column_with_a_reserved_name_is_refused_before_any_table_is_written(lake: Lake) -> None:
    for name in ("a", "orders"):
        lake.connector.database.create_table(f"s.{name}", ORDERS, key=("id",))
    _insert_rows(lake)
    lake.connector.capture()
    for columns in ({"constant": {"_File": "x"}}, {"metadata": {"_deleted": "op"}}, {"rename": {"n": "_spec_id"}}):
        lake.tables = TableRules.parse([{"tables": r"s\.orders", "columns": columns}])
        with pytest.raises(TargetError, match="cannot have a column called"):
            lake.apply()
        assert not Path(lake.path("s.a")).exists()


@pytest.mark.parametrize("truncated", [False, True])
def test_a_reserved_name_that_a_column_gets_later_stops_its_table_as_it_was(lake: Lake, truncated: bool) -> None:
    _orders(lake, 2)
    rows, snapshots = lake.rows("s.orders"), _snapshots(lake)
    lake.connector.database.add_column("s.orders", "_file", "string", "x")
    if truncated:
        lake.connector.database.truncate_table("s.orders")
    with pytest.raises(TargetError, match="cannot have a column called '_file'"):
        lake.follow()
    assert (lake.rows("s.orders"), _snapshots(lake)) == (rows, snapshots)
    lake.connector.database.rename_columns("s.orders", _file="file")
    _insert_rows(lake)
    lake.follow()
    lake.check()
