"""Abilities that only Delta tables have, and their meaning for the apply."""

from __future__ import annotations

import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest

from airflow_provider_cdc.core.errors import TargetError
from airflow_provider_cdc.targets.lake.formats import load_format
from airflow_provider_cdc.targets.lake.formats.delta import table as delta_table
from airflow_provider_cdc.targets.lake.formats.owners_and_markers import Marker, ObservedProgress, Owner
from airflow_provider_cdc.targets.lake.formats.table_values import ColumnEvolution, KeyedMerge, WriteConflict
from airflow_provider_cdc.targets.lake.formats.target_interface import Target
from airflow_provider_cdc.targets.lake.rows.last_event_per_key import OP
from airflow_provider_cdc.targets.lake.session.spark_session import own_session
from airflow_provider_cdc.targets.lake.types.spark_types import build_struct_type
from tests.targets.lake.lake import Lake

pytestmark = [pytest.mark.spark, pytest.mark.only_kind("delta")]
ORDERS = {"id": "int64!", "n": "int32"}
TOPIC = "p.s.orders"


def _orders(lake: Lake, *ids: int) -> None:
    lake.connector.database.create_table("s.orders", ORDERS, key=("id",))
    _insert_rows(lake, *ids)
    lake.connector.capture()


def _insert_rows(lake: Lake, *ids: int) -> None:
    with lake.connector.database.transaction() as t:
        for i in ids:
            t.insert("s.orders", {"id": i, "n": i})


def _target(lake: Lake) -> Target:
    delta = load_format("delta")
    return delta.open_target(own_session(lake.spark, delta), lake.path("s.orders"))


def test_people_may_compact_a_table_and_give_it_properties_in_sessions_of_their_own(lake: Lake) -> None:
    _orders(lake, 1)
    lake.apply()
    plain = lake.spark.newSession()
    plain.conf.unset("spark.databricks.delta.allowArbitraryProperties.enabled")
    plain.sql(f"ALTER TABLE delta.`{lake.path('s.orders')}` SET TBLPROPERTIES ('team' = 'shop')")
    plain.sql(f"OPTIMIZE delta.`{lake.path('s.orders')}`")
    _insert_rows(lake, 2)
    lake.follow()
    lake.check()
    assert _target(lake).read_owner() == lake.owner(TOPIC)


def test_a_table_whose_rows_delta_has_restored_is_an_error(lake: Lake) -> None:
    """RESTORE brings back the rows, and leaves the marker where it is."""
    _orders(lake, 1)
    lake.apply()
    for i in (2, 3):
        _insert_rows(lake, i)
        lake.follow()
    table = f"delta.`{lake.path('s.orders')}`"
    lake.spark.sql(f"RESTORE TABLE {table} TO VERSION AS OF 1")
    for _ in range(2):
        with pytest.raises(TargetError, match=r"before batch 3 \(RESTORE in version 3\)[\s\S]*move the table away"):
            lake.apply()
    _insert_rows(lake, 4)
    lake.connector.capture()
    with pytest.raises(TargetError, match="RESTORE in version 3"):
        lake.apply()
    shutil.rmtree(lake.path("s.orders"))
    lake.apply()
    lake.check()
    # what was done after the last batch may be undone
    lake.spark.sql(f"DELETE FROM {table} WHERE id = 1")
    lake.spark.sql(f"RESTORE TABLE {table} TO VERSION AS OF {lake.version('s.orders') - 1}")
    lake.follow()
    lake.check()


def test_what_is_wrong_with_a_table_is_no_conflict_whatever_its_name_is(lake: Lake) -> None:
    """Errors name the files and tables that they are about."""
    name, db = "s.ConcurrentUsers", lake.connector.database
    db.create_table(name, ORDERS, key=("id",))
    with db.transaction() as t:
        t.insert(name, {"id": 1, "n": 1})
    lake.follow()
    (file,) = Path(lake.path(name)).glob("*.parquet")
    file.unlink()
    with db.transaction() as t:
        t.update(name, {"id": 1}, {"n": 2})
    lake.connector.capture()
    with pytest.raises(TargetError, match="FILE_NOT_EXIST") as failed:
        lake.apply(writes="merge")
    assert "other writers" not in str(failed.value)


def test_columns_that_another_run_has_changed_a_moment_before_are_a_conflict(lake: Lake) -> None:
    _orders(lake, 1)
    lake.apply()
    ours, owner = _target(lake), lake.owner(TOPIC)
    types = {"id": "bigint", "n": "int"}
    rows = ours.spark.createDataFrame([("u", 1, 5)], build_struct_type({OP: "string", **types}))
    _target(lake).evolve_columns(
        ColumnEvolution(owner.application_name, 2, {"id": "bigint", "m": "int"}, (("n", "m"),))
    )
    with pytest.raises(WriteConflict):
        ours.merge(KeyedMerge(rows, ("id",), frozenset(), types), Marker(owner, 2))


def test_a_restore_that_someone_undoes_is_none(lake: Lake) -> None:
    _orders(lake, 1)
    lake.apply()
    _insert_rows(lake, 2)
    lake.follow()
    for version in (0, 1):
        lake.sql(f"RESTORE TABLE {{}} TO VERSION AS OF {version}", "s.orders")
    _insert_rows(lake, 3)
    lake.follow()
    lake.check()


def test_a_table_that_someone_has_made_again_is_an_error(lake: Lake) -> None:
    """It has the marker still, and nothing says any more whose it is."""
    _orders(lake, 1)
    lake.apply()
    lake.sql("CREATE OR REPLACE TABLE {} USING delta AS SELECT 7L AS id, 7 AS n", "s.orders")
    _insert_rows(lake, 2)
    lake.connector.capture()
    with pytest.raises(TargetError, match="CREATE OR REPLACE TABLE AS SELECT in version 1"):
        lake.apply()
    assert (lake.version("s.orders"), lake.rows("s.orders")) == (1, [{"id": 7, "n": 7}])
    shutil.rmtree(lake.path("s.orders"))
    lake.apply()
    lake.check()


def test_a_table_of_someone_else_that_was_restored_may_be_adopted(lake: Lake) -> None:
    for _ in range(2):
        lake.spark.range(3).write.format("delta").mode("append").save(lake.path("s.orders"))
    lake.sql("RESTORE TABLE {} TO VERSION AS OF 0", "s.orders")
    _orders(lake, 1)
    lake.apply(adopt=[TOPIC])
    lake.check()


def test_columns_of_an_adopted_table_may_be_null_from_then_on(lake: Lake) -> None:
    lake.sql("CREATE TABLE {} (id BIGINT NOT NULL, n INT NOT NULL) USING delta", "s.orders")
    _orders(lake, 1, 2)
    lake.apply(adopt=[TOPIC])
    with lake.connector.database.transaction() as t:
        t.update("s.orders", {"id": 1}, {"n": None})
    lake.follow()
    lake.check()
    assert lake.frame("s.orders").where("n IS NULL").count() == 1


def test_what_may_not_be_null_is_not_null_after_a_commit_either(lake: Lake) -> None:
    _orders(lake, 1)
    lake.sql("CREATE TABLE {} (id BIGINT NOT NULL, n INT NOT NULL) USING delta", "s.orders")
    rows = lake.spark.createDataFrame([(1, 1)], "id bigint, n int")
    options = {"txnAppId": lake.owner(TOPIC).application_name, "txnVersion": 1}
    rows.write.format("delta").mode("append").options(**options).save(lake.path("s.orders"))
    _target(lake).record_owner(lake.owner(TOPIC))
    _insert_rows(lake, 2)
    lake.follow()
    lake.check()
    with lake.connector.database.transaction() as t:
        t.update("s.orders", {"id": 1}, {"n": None})
    lake.connector.capture()
    with pytest.raises(TargetError, match="NOT NULL constraint violated for column: n"):
        lake.apply()
    assert lake.rows("s.orders") == [{"id": 1, "n": 1}, {"id": 2, "n": 2}]


def test_a_table_with_markers_of_two_has_no_owner(lake: Lake) -> None:
    _orders(lake, 1)
    rows = lake.spark.createDataFrame([(1, 1)], "id bigint, n int")
    for topic in (TOPIC, "p.z.orders"):
        options = {"txnAppId": lake.owner(topic).application_name, "txnVersion": 1}
        rows.write.format("delta").mode("append").options(**options).save(lake.path("s.orders"))
    for adopt in ((), (TOPIC,)):
        with pytest.raises(TargetError, match="of this connector and of others"):
            lake.apply(adopt=adopt)


@pytest.mark.parametrize(("there", "begins"), [(3, True), (4, False), (5, None)])
def test_a_commit_of_arrays_begins_only_at_the_batch_at_which_its_rows_were_chosen(
    monkeypatch: pytest.MonkeyPatch, there: int, begins: bool | None
) -> None:
    """C1: batches 4 and 5 were joined for a table at batch 3. Rows of a table without a key would be there twice.

    The folder is a stand-in with nothing but a marker, which makes the test cheap; ``test_targets.py`` has two runs on real tables.
    """
    owner = Owner("shop", TOPIC)
    target = delta_table.DeltaTarget(None, "/lake/orders")  # type: ignore[arg-type]
    transaction = SimpleNamespace(snapshot=lambda: None)
    target._folder = SimpleNamespace(  # type: ignore[assignment]
        load_class=lambda name: SimpleNamespace(empty=lambda: None),
        open_log=lambda fresh: SimpleNamespace(startTransaction=lambda *_: transaction),
    )
    monkeypatch.setattr(delta_table, "read_snapshot_markers", lambda *_: {owner.application_name: there})
    target.stand = ObservedProgress(owner.application_name, 3, 0)
    if begins is False:
        with pytest.raises(WriteConflict, match="from batch 3 to 4"):
            target._begin(Marker(owner, 5))
    else:
        assert target._begin(Marker(owner, 5)) is (transaction if begins else None)
