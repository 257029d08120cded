"""Owners of tables: a table that is not the connector's own is left as it is, and one that says too little is known by its marker."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from airflow_provider_cdc.core.errors import ConfigError, TargetError
from airflow_provider_cdc.core.model.table_schema import TableId
from airflow_provider_cdc.sources.memory.database import MemoryDatabase
from airflow_provider_cdc.targets.lake.apply.batch_applier import BatchApplier
from airflow_provider_cdc.targets.lake.apply.table_owner_check import applied_batch
from airflow_provider_cdc.targets.lake.formats import load_format
from airflow_provider_cdc.targets.lake.formats.creation_owner_file import CreationMarker, format_marker_name
from airflow_provider_cdc.targets.lake.formats.delta.jvm_access import DeltaTableFolder
from airflow_provider_cdc.targets.lake.formats.memory_table import STORED, MemoryTableState, MemoryTarget
from airflow_provider_cdc.targets.lake.formats.owners_and_markers import Marker, Owner
from airflow_provider_cdc.targets.lake.formats.table_location import split_table_name, table_location
from airflow_provider_cdc.targets.lake.formats.table_values import WriteConflict
from airflow_provider_cdc.targets.lake.formats.target_interface import Target
from airflow_provider_cdc.targets.lake.session.spark_session import own_session
from tests.support.connectors import memory_connector
from tests.targets.lake.lake import Lake
from tests.targets.lake.with_catalog import apply

pytestmark = pytest.mark.spark
ORDERS = {"id": "int64!", "n": "int32"}
TOPIC = "p.s.orders"


def _orders(lake: Lake, *ids: int) -> None:
    lake.connector.database.create_table("s.orders", ORDERS, key=("id",))
    with lake.connector.database.transaction() as t:
        for i in ids:
            t.insert("s.orders", {"id": i, "n": i})
    lake.connector.capture()


def _target(lake: Lake) -> Target:
    format_ = load_format(lake.kind)
    target = format_.open_target(own_session(lake.spark, format_), lake.path("s.orders"))
    target.exists()
    return target


def _foreign(lake: Lake) -> list[Any]:
    """A table of someone else in the place of ours."""
    rows = lake.spark.range(3).withColumnRenamed("id", "mine")
    if lake.kind == "delta":
        rows.write.format("delta").save(lake.path("s.orders"))
    else:
        lake.spark.sql(f"CREATE NAMESPACE IF NOT EXISTS {lake.catalog()}.s")
        rows.writeTo(f"{lake.catalog()}.s.orders").tableProperty("format-version", "1").partitionedBy("mine").create()
    return lake.rows("s.orders")


def _refused(lake: Lake, text: str, **options: Any) -> str:
    before = {path: path.stat().st_mtime_ns for path in Path(lake.path("s.orders")).rglob("*") if path.is_file()}
    with pytest.raises(TargetError, match=text) as refused:
        lake.apply(**options)
    assert before == {p: p.stat().st_mtime_ns for p in Path(lake.path("s.orders")).rglob("*") if p.is_file()}
    return str(refused.value)


@pytest.mark.every_kind
def test_a_table_says_whose_it_is_from_its_first_commit_on(lake: Lake) -> None:
    _orders(lake, 1)
    lake.apply()
    assert lake.version("s.orders") == 0
    assert _target(lake).read_owner() == lake.owner(TOPIC)
    assert _target(lake).read_markers() == {lake.owner(TOPIC).application_name: 1}
    # people may go on working with it, and what they do leaves the owner
    lake.sql("ALTER TABLE {} SET TBLPROPERTIES ('team' = 'shop')", "s.orders")
    db = lake.connector.database
    db.drop_column("s.orders", "n")
    db.add_column("s.orders", "n", "string", "x")  # the table is written again
    lake.follow()
    lake.check()
    assert _target(lake).read_owner() == lake.owner(TOPIC)


@pytest.mark.every_kind
def test_a_table_of_someone_else_is_refused_until_it_is_adopted_by_name(lake: Lake) -> None:
    rows = _foreign(lake)
    _orders(lake, 1, 2)
    text = _refused(lake, "does not belong to a connector")
    assert f"--adopt '{TOPIC}'" in text
    assert lake.rows("s.orders") == rows
    with pytest.raises(ConfigError, match=r"no topic p\.s\.other"):
        lake.apply(adopt=["p.s.other"])
    lake.apply(adopt=[TOPIC])
    assert lake.rows("s.orders") == [{"id": 1, "n": 1}, {"id": 2, "n": 2}]
    assert _target(lake).read_owner() == lake.owner(TOPIC)
    lake.connector.database.rename_columns("s.orders", n="m")  # needs what our own tables have
    lake.follow()
    lake.check()


def test_an_adoption_that_was_killed_half_way_goes_on(lake: Lake) -> None:
    _foreign(lake)
    _orders(lake, 1, 2)

    def killed(location: str, name: str, write: Callable[[], Any]) -> Any:
        if name != "_alter":
            raise KeyboardInterrupt
        return write()

    lake.hook = killed
    with pytest.raises(KeyboardInterrupt):
        lake.apply(adopt=[TOPIC], threads=1)
    lake.hook = None
    lake.apply()
    lake.check()


@pytest.mark.parametrize("owner", [Owner("billing", TOPIC), Owner("test", "p.z.orders")])
def test_a_table_of_another_connector_or_of_another_topic_is_refused(lake: Lake, owner: Owner) -> None:
    _orders(lake, 1)
    lake.apply()
    _target(lake).record_owner(owner)
    _refused(lake, f"belongs to {owner}")
    with lake.connector.database.transaction() as t:
        t.insert("s.orders", {"id": 2})
    lake.connector.capture()
    _refused(lake, f"belongs to {owner}")


def _stored(monkeypatch: pytest.MonkeyPatch, owner: Owner, writer: str = "") -> Target:
    """A table in memory with batch 1, for which no session of Spark is needed; all formats are checked by the same code."""
    app, location = owner.application_name, "memory/orders"
    rows = MemoryTableState(pa.table({"id": [1]}), {"id": "bigint"}, owner.recorded_owner, {app: 1}, {app: writer})
    monkeypatch.setitem(STORED, location, rows)
    return MemoryTarget(None, location)  # type: ignore[arg-type]


@pytest.mark.parametrize("shared", [False, True])
def test_a_table_of_another_change_log_is_refused(monkeypatch: pytest.MonkeyPatch, shared: bool) -> None:
    """A4: the batches of both logs have the same numbers, which say nothing of the rows that the table lacks."""
    mine, other = (Owner("shop", TOPIC, shared, changelog=changelog) for changelog in ("mine", "other"))
    target = _stored(monkeypatch, other)
    assert applied_batch(target, other) == 1
    with pytest.raises(TargetError, match="built from another change log of shop"):
        applied_batch(target, mine)
    assert target.read_owner() == other.recorded_owner


def test_a_table_of_a_change_log_that_was_put_back_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A4 (3): another run has written a batch of the same number since then."""
    database = MemoryDatabase(str(tmp_path))
    database.create_table("s.orders", ORDERS, key=("id",))
    with database.transaction() as transaction:
        transaction.insert("s.orders", {"id": 1, "n": 1})
    connector = memory_connector(database, tmp_path, topic_prefix="p")
    connector.capture()
    manifest = connector.changelog.find_manifest(connector.name, 1)
    assert manifest is not None
    owner = Owner(connector.name, TOPIC, changelog=manifest.changelog_id)
    for writer, refused in ((manifest.writer, False), ("a run that was undone", True)):
        target = _stored(monkeypatch, owner, writer)
        applier = BatchApplier(connector.changelog, connector.name, lambda location: MemoryTarget(None, location))  # type: ignore[arg-type]
        with pytest.raises(TargetError, match="another batch with this number") if refused else nullcontext():
            assert applier.inspect_target(owner, target.location)[1] == 1


def test_a_second_database_with_a_table_of_the_same_name_does_not_get_the_same_place(lake: Lake) -> None:
    """The location leaves the database out, which was good enough for one."""
    db, location = lake.connector.database, f"{lake.folder}/{{table}}"
    _orders(lake, 1)
    lake.apply(location=location)
    before = load_format(lake.kind).open_target(lake.spark, f"{lake.folder}/orders").read_rows().toArrow()
    db.create_table("z.orders", ORDERS, key=("id",))
    with db.transaction() as t:
        t.insert("z.orders", {"id": 5})
    lake.connector.capture()
    with pytest.raises(ConfigError, match="would both be at"):
        lake.apply(location=location)
    assert load_format(lake.kind).open_target(lake.spark, f"{lake.folder}/orders").read_rows().toArrow() == before


@pytest.mark.every_kind
def test_files_that_are_no_table_are_refused(lake: Lake) -> None:
    _orders(lake, 1)
    folder = Path(lake.path("s.orders"))
    lake.spark.range(3).write.parquet(str(folder))
    for adopt in ((), (TOPIC,)):
        assert "part-0" in _refused(lake, "does not exist, but the folder contains", adopt=adopt)
    shutil.rmtree(folder)
    log = lake.log("s.orders")
    log.mkdir(parents=True)
    _refused(lake, f"does not exist, but the folder contains {log.name}")
    log.rmdir()
    lake.apply()
    lake.check()


@pytest.mark.every_kind
def test_what_a_killed_run_left_of_a_new_table_is_not_in_the_way_of_the_next(lake: Lake) -> None:
    _orders(lake, 1)
    folder = Path(lake.path("s.orders"))
    lake.spark.range(3).write.parquet(str(folder))
    (folder / format_marker_name(lake.owner(TOPIC))).touch()
    assert _target(lake).find_foreign_content(Owner("billing", TOPIC))
    lake.apply()
    lake.check()
    assert not list(folder.glob("_cdc_creating*"))


@pytest.mark.parametrize("made", [True, False])
def test_a_sign_that_cannot_be_written_since_another_run_was_faster_is_a_conflict(
    spark: SparkSession, tmp_path: Path, made: bool
) -> None:
    owner = Owner("test", TOPIC)
    (tmp_path / format_marker_name(owner)).mkdir()  # in the file's way
    creation = CreationMarker(spark, *DeltaTableFolder(spark, str(tmp_path)).resolve_filesystem())
    with pytest.raises(WriteConflict if made else Py4JJavaError), creation.mark_creation(owner, lambda: made):
        pytest.fail("the table was made")


@pytest.mark.every_kind
def test_runs_that_make_the_same_table_at_once_make_it_once(lake: Lake) -> None:
    _orders(lake, 1)
    for _ in range(3):
        shutil.rmtree(lake.path("s.orders"), ignore_errors=True)
        with ThreadPoolExecutor(4) as four:
            list(four.map(lambda _: apply(lake, lake.location), range(4)))
        lake.check()
    assert not list(Path(lake.path("s.orders")).glob("_cdc_creating*"))


@pytest.mark.parametrize(
    ("database", "table", "location"),
    [
        ("..", "orders", "/lake/{database}/{table}"), ("shop", "..", "/lake/{database}/{table}"),
        (".", "orders", "/lake/{database}/{table}"), ("", "orders", "/lake/{database}/{table}"),
        ("shop", "", "/lake/{database}/{table}"), ("..", "orders", "s3a://lake/{database}/{table}"),
        ("..", "orders", "{database}/{table}"), ("shop", "orders", "/lake/../{table}"), ("", "orders", "s3a://lake/{database}/x"),
        ("", "orders", "lake.{database}.{table}"), ("shop", "..", "lake.{database}.{table}"),
    ],
)  # fmt: skip
def test_a_location_does_not_lead_out_of_the_lake(database: str, table: str, location: str) -> None:
    if table == "" and location.endswith("{table}"):
        location += "/rows"
    with pytest.raises(ConfigError, match=r"may be empty, '\.' or '\.\.'"):
        table_location(location, "shop", "t", TableId(namespace=database, name=table))


def test_dots_and_slashes_within_a_name_are_part_of_it() -> None:
    table = TableId(namespace="..a", name="b/../c")
    assert table_location("s3a://lake/{database}/{table}/", "shop", "t", table) == "s3a://lake/..a/b%2F..%2Fc/"
    assert Marker(Owner("shop", "shop.a:b"), 3).application_name == "cdc:shop:shop.a:b"


def test_the_name_of_a_table_has_as_many_parts_as_the_template() -> None:
    table = TableId(namespace="a.b`", name="c/${x}.d e")
    location = table_location("lake.{database}.{table}", "shop", "t", table)
    assert location == "lake.`a.b```.`c%2F${x}.d e`"
    assert split_table_name(location) == ("lake", "a.b`", "c%2F${x}.d e")
    assert split_table_name(table_location("lake.{connector}.x.{topic}", "shop", "p.s.t", table)) == (
        "lake",
        "shop",
        "x",
        "p.s.t",
    )


@pytest.mark.parametrize(
    "location", ["orders", "lake.orders", "lake..orders", "lake.shop.orders.", "lake.`shop.orders", "a.`b`c.d", ""]
)
def test_what_is_neither_a_path_nor_a_name_is_refused(location: str) -> None:
    with pytest.raises(ConfigError, match="neither a path nor the name"):
        table_location(location, "shop", "t", TableId(namespace="shop", name="orders"))


def test_a_kind_without_catalogs_refuses_a_name(spark: SparkSession) -> None:
    with pytest.raises(ConfigError, match="need a path as their location"):
        load_format("memory").open_target(spark, "lake.shop.orders")
